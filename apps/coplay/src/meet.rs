//! How sites find each other: the one place that knows which transports there are.
//!
//! A host opens a [`Way`] and gets a ticket, which is a text. Whoever has the ticket gets a line to the host with [`Ticket::call`].

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use coplay_net::key::{Identity, Secret};
use coplay_net::udp::Udp;
use coplay_net::{Incoming, PeerKey, Place, Transport};

use crate::trouble::Trouble;

/// What may wait for the game's thread: some frames of a crowd.
const QUEUE: usize = 4_096;
/// What a ticket for plain UDP begins with.
const UDP: &str = "udp://";
/// The longest secret, in bytes: it is typed, or at least copied.
const MAX_SECRET: usize = 200;

/// A way to be reached, for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Plain UDP, secured by a secret.
    Udp {
        /// Where to listen.
        addr: SocketAddr,
        /// What everybody must know.
        secret: String,
    },
}

/// What a host gives to others so that they find it.
#[derive(Clone, PartialEq, Eq)]
pub enum Ticket {
    /// Plain UDP, secured by a secret.
    Udp {
        /// The host's name or address, and its port.
        host: String,
        /// What everybody must know.
        secret: String,
    },
}

/// A transport that is up.
pub struct Line {
    /// What carries datagrams.
    pub transport: Arc<dyn Transport>,
    /// What comes in.
    pub incoming: Receiver<Incoming>,
    /// Where the host may be; at the host itself, nothing.
    pub places: Vec<Place>,
    /// Who must answer there, if that is known.
    pub expect: Option<PeerKey>,
}

impl Way {
    /// What a host asked for.
    pub fn new(udp: Option<&str>, secret: Option<&str>) -> Result<Self, Trouble> {
        let secret = match secret {
            Some(secret) => check_secret(secret)?.to_owned(),
            None => Secret::random_text(),
        };
        let addr = udp.map_or(Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))), listen_address)?;
        Ok(Self::Udp { addr, secret })
    }

    /// What a seat key belongs to: a group of people, wherever they are.
    pub fn group(&self) -> String {
        match self {
            Self::Udp { secret, .. } => format!("{UDP}#{secret}"),
        }
    }

    /// Opens it.
    pub fn open(&self, identity: Identity) -> Result<(Line, Ticket), Trouble> {
        match self {
            Self::Udp { addr, secret } => {
                let (line, udp) = listen(*addr, identity, secret)?;
                let host = udp.own_places().into_iter().next().map_or_else(|| addr.to_string(), |place| place.0);
                Ok((line, Ticket::Udp { host, secret: secret.clone() }))
            }
        }
    }
}

impl Ticket {
    /// Reads a ticket.
    pub fn parse(text: &str) -> Result<Self, Trouble> {
        let text = text.trim();
        let shape = "a ticket looks like udp://HOST:PORT#SECRET; the host's coplay shows it";
        let bad = |what: &str| Err(Trouble::misuse(format!("this is no ticket: {what}")).hint(shape));
        let Some(rest) = text.strip_prefix(UDP) else {
            return match text.split_once("://") {
                _ if text.is_empty() => bad("it is empty"),
                Some((kind, _)) => bad(&format!("nothing is known about {kind}://")),
                None => bad("it does not begin with udp://"),
            };
        };
        let Some((host, secret)) = rest.split_once('#') else {
            let hint = "copy all of it, with # and what follows; in a shell put it between quotes";
            return Err(Trouble::misuse("this is no ticket: the secret after # is missing").hint(hint));
        };
        let Some((name, port)) = host.rsplit_once(':').filter(|(name, _)| !name.is_empty()) else {
            return bad("the host's address or its port is missing");
        };
        if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return bad(&format!("{port:?} is not the number of a port"));
        }
        if name.contains(':') && !(name.starts_with('[') && name.ends_with(']')) {
            return bad("an IPv6 address is written in brackets");
        }
        Ok(Self::Udp { host: host.to_owned(), secret: check_secret(secret)?.to_owned() })
    }

    /// What a seat key belongs to: a group of people, wherever they are.
    pub fn group(&self) -> String {
        match self {
            Self::Udp { secret, .. } => format!("{UDP}#{secret}"),
        }
    }

    /// Opens a line to whoever gave this ticket.
    pub fn call(&self, identity: Identity) -> Result<Line, Trouble> {
        match self {
            Self::Udp { host, secret } => {
                let places = resolve(host)?;
                let (mut line, _) = listen(free_port(&places), identity, secret)?;
                line.places = places.iter().map(|addr| Place(addr.to_string())).collect();
                Ok(line)
            }
        }
    }
}

impl std::fmt::Display for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp { host, secret } => write!(f, "{UDP}{host}#{secret}"),
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp { host, .. } => write!(f, "{UDP}{host}#…"),
        }
    }
}

fn check_secret(secret: &str) -> Result<&str, Trouble> {
    let odd = |sign: char| sign.is_whitespace() || sign.is_control();
    let what = match secret {
        "" => "the secret is empty",
        _ if secret.len() > MAX_SECRET => "the secret is too long",
        _ if secret.contains(odd) => "the secret has a space in it, which gets lost where it is copied",
        _ => return Ok(secret),
    };
    Err(Trouble::misuse(what).hint("a secret is one long word, such as 16 letters and digits that nobody can guess"))
}

/// The address to listen at: a port alone stands for all addresses of this computer.
fn listen_address(text: &str) -> Result<SocketAddr, Trouble> {
    let bare = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = bare.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        Trouble::misuse(format!("{text:?} is no address to listen at"))
            .hint("say a port, such as 7000, or an address and a port, such as 192.168.1.5:7000 or [::]:7000")
    })
}

fn resolve(host: &str) -> Result<Vec<SocketAddr>, Trouble> {
    let found: Vec<SocketAddr> = host.to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    if found.is_empty() {
        return Err(Trouble::failure(format!("there is no computer called {host}"))
            .hint("is the ticket copied as it was shown, and is there a network?"));
    }
    Ok(found)
}

/// Any port, of a family that can reach them.
fn free_port(places: &[SocketAddr]) -> SocketAddr {
    let any: IpAddr = match places.iter().any(SocketAddr::is_ipv6) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

fn listen(addr: SocketAddr, identity: Identity, secret: &str) -> Result<(Line, Arc<Udp>), Trouble> {
    let (queue, incoming) = sync_channel(QUEUE);
    let opened = Udp::listen(addr, identity, Secret::from_text(secret), queue);
    let udp = Arc::new(opened.map_err(|error| refused(addr, &error))?);
    let line = Line { transport: udp.clone(), incoming, places: vec![], expect: None };
    Ok((line, udp))
}

fn refused(addr: SocketAddr, error: &std::io::Error) -> Trouble {
    let port = addr.port();
    match error.kind() {
        ErrorKind::AddrInUse => Trouble::failure(format!("port {port} is taken by another program"))
            .hint("choose another port with --udp, or leave --udp out to have any that is free"),
        ErrorKind::AddrNotAvailable => Trouble::failure(format!("{} is no address of this computer", addr.ip()))
            .hint(format!("say --udp {port} to listen at all addresses of this computer")),
        ErrorKind::PermissionDenied => Trouble::failure(format!("listening at port {port} is not permitted"))
            .hint("choose a port from 1024 on with --udp"),
        _ => Trouble::failure(format!("nothing can listen at {addr}: {error}"))
            .hint("choose another address with --udp, or leave --udp out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back_as_they_were() {
        for text in ["udp://192.168.1.5:7000#tennis", "udp://[::1]:7000#a#b", "udp://example.org:1#x"] {
            assert_eq!(Ticket::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Ticket::parse(" udp://a:1#x\n").unwrap(), Ticket::parse("udp://a:1#x").unwrap());
    }

    #[test]
    fn what_is_no_ticket_is_told_why() {
        let why = |text: &str| Ticket::parse(text).unwrap_err().to_string();
        let cases = [
            ("", "it is empty"),
            ("192.168.1.5:7000", "does not begin with udp://"),
            ("http://a:1#x", "nothing is known about http://"),
            ("udp://a:7000", "the secret after # is missing"),
            ("udp://a:7000#", "the secret is empty"),
            ("udp://a#x", "port is missing"),
            ("udp://:70#x", "address or its port is missing"),
            ("udp://a:0#x", "\"0\" is not the number of a port"),
            ("udp://a:70000#x", "\"70000\" is not"),
            ("udp://fe80::1:7000#x", "in brackets"),
        ];
        for (text, expected) in cases {
            assert!(why(text).contains(expected) && why(text).contains("hint: "), "{text}: {}", why(text));
        }
        assert_eq!(Ticket::parse("x").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn addresses_to_listen_at() {
        let at = |text| listen_address(text).unwrap().to_string();
        assert_eq!(
            (at("7000"), at(":7000"), at("127.0.0.1:5")),
            ("0.0.0.0:7000".into(), "0.0.0.0:7000".into(), "127.0.0.1:5".into())
        );
        assert_eq!(at("[::]:9"), "[::]:9");
        assert!(listen_address("70000").is_err() && listen_address("nowhere").is_err());
    }

    #[test]
    fn a_port_is_taken_once() {
        let way = Way::new(Some("127.0.0.1:0"), Some("tennis")).unwrap();
        let (_line, Ticket::Udp { host, .. }) = way.open(Identity::random()).unwrap();
        let again = Way::new(Some(&host), None).unwrap().open(Identity::random()).err().unwrap();
        assert!(again.to_string().contains("is taken by another program"), "{again}");
        let elsewhere = Way::new(Some("192.0.2.7:0"), None).unwrap().open(Identity::random()).err().unwrap();
        assert!(elsewhere.to_string().contains("is no address of this computer"), "{elsewhere}");
    }
}
