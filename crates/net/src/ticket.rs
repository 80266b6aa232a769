//! Tickets: one line of text with which a joiner finds the host and is admitted.
//!
//! A ticket for plain UDP is readable, `udp://HOST:PORT#SECRET`. A ticket for [iroh](crate::iroh) is `coplay:` followed
//! by base32 text: a version, the token, the host's key and addresses, and a checksum, which distinguishes a typing
//! error from an unreachable host.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use blake2::Blake2s;
use blake2::digest::Digest;
use blake2::digest::consts::U4;

use crate::base32;
use crate::key::Token;
use crate::peer_addr::IrohAddr;

const UDP_SCHEME: &str = "udp://";
const COPLAY_SCHEME: &str = "coplay:";
const TICKET_VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;

/// Maximum length of a ticket, in bytes.
pub const MAX_TICKET_LEN: usize = 512;
/// Maximum length of a DNS host name, in bytes.
const MAX_HOST_LEN: usize = 253;
/// Maximum length of a secret, in bytes.
const MAX_SECRET_LEN: usize = 128;

/// Address of a game and the permission to join it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// Ticket for secured UDP, `udp://HOST:PORT#SECRET`.
    Udp {
        /// Host name or IP address; an IPv6 address without brackets.
        host: String,
        /// UDP port of the host, 1 to 65535.
        port: u16,
        /// Text from which [`Secret::from_text`](crate::key::Secret::from_text) makes the session secret.
        secret: String,
    },
    /// Ticket for iroh, `coplay:` and base32 text.
    Iroh {
        /// Key and addresses of the host.
        addr: IrohAddr,
        /// Token that admits the joiner.
        token: Token,
    },
}

impl Ticket {
    /// Returns the name of the ticket's seat group: the same for all tickets with this secret or token, at any address.
    /// A player keeps its key, and so its seat, within a seat group.
    pub fn seat_group(&self) -> String {
        match self {
            Self::Udp { secret, .. } => seat_group_of_secret(secret),
            Self::Iroh { token, .. } => seat_group_of_token(token),
        }
    }
}

/// Returns the name of the seat group of all UDP tickets with this secret.
pub fn seat_group_of_secret(secret: &str) -> String {
    format!("{UDP_SCHEME}#{secret}")
}

/// Returns the name of the seat group of all iroh tickets with this token.
pub fn seat_group_of_token(token: &Token) -> String {
    format!("{COPLAY_SCHEME}#{}", base32::encode(token.bytes()))
}

/// Reason why a text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketError {
    /// The text starts with neither `coplay:` nor `udp://`.
    NotATicket,
    /// The text is longer than [`MAX_TICKET_LEN`].
    TooLong,
    /// The base32 text, its checksum or its content is invalid: a part is missing or changed.
    Damaged,
    /// The ticket comes from a newer version of this program.
    NewerVersion,
    /// The host is missing, longer than 253 bytes, or contains a character that no host name has; or the text in
    /// brackets is not an IPv6 address, or the closing bracket is missing.
    InvalidHost,
    /// An IPv6 address is not in brackets.
    MissingBrackets,
    /// The port is missing, or not a number from 1 to 65535.
    InvalidPort,
    /// The secret after the `#` is missing, too long, or contains control characters or white space.
    InvalidSecret,
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotATicket => "the text does not begin with coplay: or udp://",
            Self::TooLong => "the text is longer than 512 bytes",
            Self::Damaged => "a part of the ticket is missing or was changed",
            Self::NewerVersion => "the ticket comes from a newer version of coplay",
            Self::InvalidHost => "the host name or address is missing or invalid",
            Self::MissingBrackets => "the IPv6 address must be in brackets, as in udp://[2001:db8::1]:7000#SECRET",
            Self::InvalidPort => "the port is missing, or is not a number from 1 to 65535",
            Self::InvalidSecret => "the secret after # is missing, longer than 128 bytes, or contains spaces",
        })
    }
}

impl std::error::Error for TicketError {}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { host, port, secret } if host.contains(':') => write!(f, "{UDP_SCHEME}[{host}]:{port}#{secret}"),
            Self::Udp { host, port, secret } => write!(f, "{UDP_SCHEME}{host}:{port}#{secret}"),
            Self::Iroh { addr, token } => {
                let mut bytes = vec![TICKET_VERSION];
                bytes.extend(token.bytes());
                bytes.extend(postcard::to_allocvec(addr).expect("every field can be encoded"));
                bytes.extend(checksum(&bytes));
                write!(f, "{COPLAY_SCHEME}{}", base32::encode(&bytes))
            }
        }
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        if text.len() > MAX_TICKET_LEN {
            return Err(TicketError::TooLong);
        }
        if let Some(rest) = strip_scheme(text, UDP_SCHEME) {
            return parse_udp(rest);
        }
        parse_iroh(strip_scheme(text, COPLAY_SCHEME).ok_or(TicketError::NotATicket)?)
    }
}

/// Returns the rest of `text` after `scheme`, ignoring case; `None` if `text` does not start with `scheme`.
fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    Blake2s::<U4>::digest(bytes).into()
}

/// Parses the base32 text of an iroh ticket. Tickets of every version start with the version number and end with the
/// checksum.
fn parse_iroh(text: &str) -> Result<Ticket, TicketError> {
    let bytes = base32::decode(text).ok_or(TicketError::Damaged)?;
    let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(TicketError::Damaged)?;
    let (version, rest) = bytes.split_first().filter(|_| checksum(bytes) == *sum).ok_or(TicketError::Damaged)?;
    if *version > TICKET_VERSION {
        return Err(TicketError::NewerVersion);
    }
    let (token, addr) = rest.split_first_chunk().filter(|_| *version == TICKET_VERSION).ok_or(TicketError::Damaged)?;
    match postcard::take_from_bytes::<IrohAddr>(addr) {
        Ok((addr, [])) if addr.is_valid() => Ok(Ticket::Iroh { addr, token: Token::from_bytes(*token) }),
        _ => Err(TicketError::Damaged),
    }
}

fn parse_udp(text: &str) -> Result<Ticket, TicketError> {
    // A secret may contain `#`, a host name cannot.
    let (authority, secret) = text.split_once('#').unwrap_or((text, ""));
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(TicketError::InvalidHost)?;
            host.parse::<Ipv6Addr>().map_err(|_| TicketError::InvalidHost)?;
            (host, port.strip_prefix(':').ok_or(TicketError::InvalidPort)?)
        }
        None => split_host_port(authority)?,
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0).ok_or(TicketError::InvalidPort)?;
    if !is_valid_secret(secret) {
        return Err(TicketError::InvalidSecret);
    }
    Ok(Ticket::Udp { host: host.into(), port, secret: secret.into() })
}

/// Returns whether a text is usable as a secret: 1 to 128 bytes without white space or control characters, which get
/// lost when the text is copied.
pub fn is_valid_secret(text: &str) -> bool {
    let is_typeable = text.chars().all(|character| !character.is_control() && !character.is_whitespace());
    is_typeable && !text.is_empty() && text.len() <= MAX_SECRET_LEN
}

/// Splits an authority without brackets into a host name or IPv4 address and the text of the port, which is empty if
/// the port is missing.
fn split_host_port(authority: &str) -> Result<(&str, &str), TicketError> {
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Err(TicketError::MissingBrackets);
    }
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    if host.contains(':') {
        return Err(TicketError::MissingBrackets);
    }
    let is_allowed = |character: char| character.is_alphanumeric() || matches!(character, '-' | '.' | '_');
    let is_valid = !host.is_empty() && host.len() <= MAX_HOST_LEN && host.chars().all(is_allowed);
    if is_valid { Ok((host, port)) } else { Err(TicketError::InvalidHost) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PeerKey;

    fn parse(text: &str) -> Result<Ticket, TicketError> {
        text.parse()
    }

    fn example() -> Ticket {
        let key = PeerKey(*::iroh::SecretKey::from_bytes(&[7; 32]).public().as_bytes());
        let addrs = vec!["192.168.1.20:40123".parse().unwrap(), "[2001:db8::7]:40124".parse().unwrap()];
        let addr = IrohAddr { key, relay: Some("https://relay.example/".into()), addrs };
        Ticket::Iroh { addr, token: Token::from_bytes([9; 16]) }
    }

    /// Returns the text of a ticket with these bytes and a valid checksum.
    fn with_checksum(bytes: &[u8]) -> String {
        let mut bytes = bytes.to_vec();
        bytes.extend(checksum(&bytes));
        format!("{COPLAY_SCHEME}{}", base32::encode(&bytes))
    }

    #[test]
    fn iroh_ticket_round_trips_through_text() {
        let text = example().to_string();
        assert!(text.len() <= 190 && text.is_ascii(), "{} {text}", text.len());
        assert_eq!(parse(&text), Ok(example()));
        assert_eq!(parse(&format!("  {} \r\n", text.to_uppercase())), Ok(example()));
    }

    /// A ticket without a relay and with one address is at most 110 characters long.
    #[test]
    fn iroh_ticket_without_relay_is_at_most_110_characters() {
        let Ticket::Iroh { addr, token } = example() else { unreachable!() };
        let addr = IrohAddr { relay: None, addrs: addr.addrs[..1].to_vec(), ..addr };
        let text = Ticket::Iroh { addr, token }.to_string();
        assert!(text.len() <= 110, "{} {text}", text.len());
    }

    #[test]
    fn longest_ticket_is_parsed() {
        let Ticket::Iroh { mut addr, token } = example() else { unreachable!() };
        addr.addrs =
            vec!["[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap(); crate::peer_addr::MAX_SOCKET_ADDRS];
        addr.relay = Some(format!("https://{}.example/", "x".repeat(60)));
        let ticket = Ticket::Iroh { addr, token };
        assert!(ticket.to_string().len() <= MAX_TICKET_LEN);
        assert_eq!(parse(&ticket.to_string()), Ok(ticket));
    }

    /// A changed, missing or added character of the base32 text is detected at any position, unless it concerns only
    /// unused bits of the last character.
    #[test]
    fn typo_in_ticket_is_detected() {
        let text = example().to_string();
        for at in COPLAY_SCHEME.len()..text.len() {
            let (head, tail) = text.split_at(at);
            let other = if tail.starts_with('a') { 'b' } else { 'a' };
            for bad in [
                format!("{head}{other}{}", &tail[1..]),
                format!("{head}{}", &tail[1..]),
                format!("{head}{other}{tail}"),
            ] {
                // Some bits of the last character may be unused.
                let parsed = parse(&bad);
                assert!(
                    parsed == Err(TicketError::Damaged) || parsed == Ok(example()) && at + 1 == text.len(),
                    "{bad}"
                );
            }
        }
    }

    #[test]
    fn invalid_ticket_text_is_rejected() {
        let long = format!("coplay:{}", "a".repeat(MAX_TICKET_LEN));
        for (bad, error) in [
            ("", TicketError::NotATicket),
            ("hello", TicketError::NotATicket),
            ("coplay", TicketError::NotATicket),
            ("http://example.com", TicketError::NotATicket),
            ("ücoplay:", TicketError::NotATicket),
            ("coplay:", TicketError::Damaged),
            ("coplay:aaaa", TicketError::Damaged),
            ("coplay:0189", TicketError::Damaged),
            ("coplay:äöü", TicketError::Damaged),
            ("coplay:\u{1f600}", TicketError::Damaged),
            (&long, TicketError::TooLong),
            (&with_checksum(&[]), TicketError::Damaged),
            (&with_checksum(&[0]), TicketError::Damaged),
            (&with_checksum(&[1]), TicketError::Damaged),
            (&with_checksum(&[1; 17]), TicketError::Damaged),
            (&with_checksum(&[1; 60]), TicketError::Damaged),
            (&with_checksum(&[2, 1, 2, 3]), TicketError::NewerVersion),
            (&with_checksum(&[255; 90]), TicketError::NewerVersion),
        ] {
            assert_eq!(parse(bad), Err(error), "{bad}");
        }
    }

    /// A ticket with a valid checksum and an invalid address is rejected.
    #[test]
    fn ticket_with_invalid_iroh_addr_is_rejected() {
        let Ticket::Iroh { addr, token } = example() else { unreachable!() };
        let no_relay = IrohAddr { relay: Some("no address".into()), ..addr.clone() };
        let no_key = IrohAddr { key: crate::peer_addr::invalid_key(), ..addr.clone() };
        let too_many = IrohAddr { addrs: vec![addr.addrs[0]; crate::peer_addr::MAX_SOCKET_ADDRS + 1], ..addr };
        for addr in [no_relay, no_key, too_many] {
            let text = Ticket::Iroh { addr, token: token.clone() }.to_string();
            assert_eq!(parse(&text), Err(TicketError::Damaged));
        }
    }

    #[test]
    fn udp_tickets_are_parsed() {
        let udp = |host: &str, port, secret: &str| Ok(Ticket::Udp { host: host.into(), port, secret: secret.into() });
        for (text, ticket) in [
            ("udp://127.0.0.1:7000#tennis", udp("127.0.0.1", 7_000, "tennis")),
            ("UDP://host.example:1#a-b#c/:@", udp("host.example", 1, "a-b#c/:@")),
            ("udp://localhost:65535#x", udp("localhost", 65_535, "x")),
            ("udp://[::1]:7000#x", udp("::1", 7_000, "x")),
            ("udp://[2001:db8::7]:7000/#x", udp("2001:db8::7", 7_000, "x")),
            ("udp://höst:7000#ü", udp("höst", 7_000, "ü")),
        ] {
            assert_eq!(parse(text), ticket, "{text}");
            let text_again = parse(text).unwrap().to_string();
            assert_eq!(parse(&text_again), ticket, "{text_again}");
        }
    }

    #[test]
    fn invalid_udp_tickets_are_rejected() {
        let long_host = format!("udp://{}:1#x", "h".repeat(MAX_HOST_LEN + 1));
        let long_secret = format!("udp://host:1#{}", "x".repeat(MAX_SECRET_LEN + 1));
        for (bad, error) in [
            ("udp://", TicketError::InvalidHost),
            ("udp://#x", TicketError::InvalidHost),
            ("udp://:7000#x", TicketError::InvalidHost),
            ("udp://a b:7000#x", TicketError::InvalidHost),
            ("udp://me@host:7000#x", TicketError::InvalidHost),
            ("udp://host/path:7000#x", TicketError::InvalidHost),
            ("udp://[::1:7000#x", TicketError::InvalidHost),
            ("udp://[]:7000#x", TicketError::InvalidHost),
            ("udp://[host]:7000#x", TicketError::InvalidHost),
            ("udp://[127.0.0.1]:7000#x", TicketError::InvalidHost),
            (&long_host, TicketError::InvalidHost),
            ("udp://::1#x", TicketError::MissingBrackets),
            ("udp://2001:db8::7:7000#x", TicketError::MissingBrackets),
            ("udp://host#x", TicketError::InvalidPort),
            ("udp://host:#x", TicketError::InvalidPort),
            ("udp://host:0#x", TicketError::InvalidPort),
            ("udp://host:65536#x", TicketError::InvalidPort),
            ("udp://host:+1#x", TicketError::InvalidPort),
            ("udp://host:-1#x", TicketError::InvalidPort),
            ("udp://host:7000x#x", TicketError::InvalidPort),
            ("udp://[::1]#x", TicketError::InvalidPort),
            ("udp://[::1]7000#x", TicketError::InvalidPort),
            ("udp://[::1]:#x", TicketError::InvalidPort),
            ("udp://host:7000", TicketError::InvalidSecret),
            ("udp://host:7000#", TicketError::InvalidSecret),
            ("udp://host:7000#a\u{7}b", TicketError::InvalidSecret),
            ("udp://host:7000#a b", TicketError::InvalidSecret),
            (&long_secret, TicketError::InvalidSecret),
        ] {
            assert_eq!(parse(bad), Err(error), "{bad}");
        }
    }

    /// Debug output goes to logs, which must not contain the token of an iroh ticket.
    #[test]
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", example()).contains("9, 9"));
    }
}
