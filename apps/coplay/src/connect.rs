//! Opens transports between sites. No other module of the program opens one.
//!
//! A host opens a [`TransportKind`] and gets a ticket, which is a line of text. [`open_for_ticket`] opens a transport
//! to the host of a ticket.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use coplay_net::iroh::{IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::ticket::{self, Ticket, TicketError};
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport};
use coplay_shell::error::AppError;

/// Largest number of received datagrams and connection events that wait for the game.
const INCOMING_QUEUE_LEN: usize = 4_096;
/// Longest wait for a relay before a ticket is made without one, as in a network without Internet access.
const RELAY_WAIT: Duration = Duration::from_millis(700);
/// Unspecified IPv4 address with port 0: all IPv4 addresses of this computer, and any free port.
const ANY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Transport on which a host listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Plain UDP, secured by a shared secret.
    Udp {
        /// Local address on which the host listens; port 0 stands for any free port.
        addr: SocketAddr,
        /// Secret that admits a peer; it is part of the ticket.
        secret: String,
    },
    /// Iroh, which traverses most NATs.
    Iroh {
        /// Relay for peers without a direct path.
        relay: RelayConfig,
        /// Random token that admits a peer; it is part of the ticket.
        token: Token,
    },
}

/// Open transport, the addresses of the host, and the ticket of this site.
pub struct Connection {
    /// Transport for outgoing datagrams.
    pub transport: Arc<dyn Transport>,
    /// Queue of incoming datagrams and connection events.
    pub incoming: Receiver<Incoming>,
    /// Sending end of `incoming`, for datagrams that the transport does not receive, such as multicast.
    pub incoming_sender: SyncSender<Incoming>,
    /// Addresses of the host to dial; empty at the host itself.
    pub host_addrs: Vec<PeerAddr>,
    /// Key that the host must prove to own; `None` at the host itself, and if the ticket does not contain the key, as
    /// with UDP.
    pub expected_key: Option<PeerKey>,
    /// Function that returns the ticket by which others can join this site.
    pub own_ticket: OwnTicketFn,
}

/// Function that returns the current ticket of this site. The addresses in a ticket may change over time.
pub type OwnTicketFn = Arc<dyn Fn() -> Ticket + Send + Sync>;

impl TransportKind {
    /// Returns plain UDP on this port or address, with this secret or a random one. Fails if `listen` or `secret` is
    /// invalid.
    pub fn udp(listen: &str, secret: Option<&str>) -> Result<Self, AppError> {
        let secret = match secret {
            Some(secret) if !ticket::is_valid_secret(secret) => {
                let hint = "give one word, such as 16 random letters and digits, or leave out --secret";
                return Err(
                    AppError::usage("invalid value for --secret: must be 1 to 128 bytes without spaces").hint(hint)
                );
            }
            Some(secret) => secret.to_owned(),
            None => Secret::random_text(),
        };
        Ok(Self::Udp { addr: listen_address(listen)?, secret })
    }

    /// Returns iroh with this relay and a random token.
    pub fn iroh(relay: RelayConfig) -> Self {
        Self::Iroh { relay, token: Token::random() }
    }

    /// Returns the group of the seat keys of this game, derived from its secret or token.
    pub fn seat_group(&self) -> String {
        match self {
            Self::Udp { secret, .. } => ticket::seat_group_of_secret(secret),
            Self::Iroh { token, .. } => ticket::seat_group_of_token(token),
        }
    }

    /// Opens the transport under this identity. Iroh waits up to 0.7 s for a relay.
    pub fn open(&self, identity: Identity) -> Result<Connection, AppError> {
        match self {
            Self::Udp { addr, secret } => open_udp(*addr, identity, secret),
            Self::Iroh { relay, token } => {
                let (connection, iroh) = open_iroh(&identity, token.clone(), relay.clone())?;
                iroh.wait_for_relay(RELAY_WAIT);
                Ok(connection)
            }
        }
    }
}

/// Parses a ticket. The error states the reason and has a hint.
pub fn parse_ticket(text: &str) -> Result<Ticket, AppError> {
    text.parse::<Ticket>().map_err(|error| {
        let hint = match error {
            TicketError::NewerVersion => "install the newest version of coplay; `coplay --version` prints yours",
            _ => "copy the whole ticket as the host or `coplay world serve` shows it; in a shell, put it in single quotes",
        };
        AppError::usage(format!("invalid ticket: {error}")).hint(hint)
    })
}

/// Opens a transport to the host of this ticket; `relay`, if given, replaces the ticket's relay.
pub fn open_for_ticket(
    ticket: &Ticket,
    identity: Identity,
    relay: Option<RelayConfig>,
) -> Result<Connection, AppError> {
    match ticket {
        Ticket::Udp { host, port, secret } => {
            let mut connection = open_udp(any_port(&resolve(host, *port)?), identity, secret)?;
            connection.host_addrs = ticket_addrs(ticket)?;
            Ok(connection)
        }
        Ticket::Iroh { addr, token } => {
            let relay = relay.or_else(|| addr.relay.clone().map(RelayConfig::Url)).unwrap_or_default();
            let (mut connection, _) = open_iroh(&identity, token.clone(), relay)?;
            (connection.host_addrs, connection.expected_key) = (ticket_addrs(ticket)?, Some(addr.key));
            Ok(connection)
        }
    }
}

/// Returns the addresses of the host of this ticket. Resolves a host name, and fails if that is not possible.
pub fn ticket_addrs(ticket: &Ticket) -> Result<Vec<PeerAddr>, AppError> {
    Ok(match ticket {
        Ticket::Udp { host, port, .. } => resolve(host, *port)?.iter().map(|addr| PeerAddr(addr.to_string())).collect(),
        Ticket::Iroh { addr, .. } => vec![addr.to_peer_addr()],
    })
}

/// Prints to stderr that the addresses of these tickets are dialed, because an answer may take seconds or never come.
pub fn print_dialing(tickets: &[Ticket]) {
    let addrs: Vec<String> = tickets.iter().map(short_address).collect();
    eprintln!("connecting to {} ...", addrs.join(", "));
}

/// Returns the address of a ticket without its secret.
fn short_address(ticket: &Ticket) -> String {
    match ticket {
        Ticket::Udp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
        Ticket::Udp { host, port, .. } => format!("{host}:{port}"),
        Ticket::Iroh { addr, .. } => addr.to_peer_addr().brief(),
    }
}

/// Parses an address to listen on. A port alone stands for all IPv4 addresses of this computer.
fn listen_address(text: &str) -> Result<SocketAddr, AppError> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        AppError::usage(format!("invalid value {text:?} for --udp: must be a port, or an address and a port"))
            .hint("use --udp 7000, or an address and a port, such as --udp 192.168.1.5:7000 or --udp [::]:7000")
    })
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, AppError> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    if found.is_empty() {
        return Err(AppError::failure(format!("cannot resolve host {host}"))
            .hint("copy the whole ticket again, and check that there is a network connection"));
    }
    Ok(found)
}

/// Returns the unspecified address with port 0, which stands for any free port: of IPv6 if any of `addrs` is an IPv6
/// address, and of IPv4 otherwise.
fn any_port(addrs: &[SocketAddr]) -> SocketAddr {
    let any: IpAddr = match addrs.iter().any(SocketAddr::is_ipv6) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

fn open_udp(addr: SocketAddr, identity: Identity, secret: &str) -> Result<Connection, AppError> {
    let (queue, incoming) = sync_channel(INCOMING_QUEUE_LEN);
    let opened = UdpTransport::listen(addr, identity, Secret::from_text(secret), queue.clone());
    let udp = Arc::new(opened.map_err(|error| listen_error(addr, &error))?);
    let (transport, secret) = (udp.clone(), secret.to_owned());
    let own_ticket = Arc::new(move || {
        let own_addr = transport.own_addrs().into_iter().find_map(|addr| addr.0.parse().ok()).unwrap_or(addr);
        Ticket::Udp { host: own_addr.ip().to_string(), port: own_addr.port(), secret: secret.clone() }
    });
    Ok(Connection {
        transport: udp,
        incoming,
        incoming_sender: queue,
        host_addrs: vec![],
        expected_key: None,
        own_ticket,
    })
}

fn open_iroh(
    identity: &Identity,
    token: Token,
    relay: RelayConfig,
) -> Result<(Connection, Arc<IrohTransport>), AppError> {
    let (queue, incoming) = sync_channel(INCOMING_QUEUE_LEN);
    let opened = IrohTransport::listen(ANY_ADDRESS, identity, token, relay, queue.clone()).map_err(|error| {
        AppError::failure(format!("cannot open a network endpoint: {error}"))
            .hint("check the network connection; a host can use plain UDP with --udp 7000")
    });
    let iroh = Arc::new(opened?);
    let transport = iroh.clone();
    let own_ticket = Arc::new(move || transport.ticket());
    Ok((
        Connection {
            transport: iroh.clone(),
            incoming,
            incoming_sender: queue,
            host_addrs: vec![],
            expected_key: None,
            own_ticket,
        },
        iroh,
    ))
}

fn listen_error(addr: SocketAddr, error: &std::io::Error) -> AppError {
    let port = addr.port();
    match error.kind() {
        ErrorKind::AddrInUse => AppError::failure(format!("port {port} is used by another program"))
            .hint("choose another port with --udp, or any free port with --udp 0"),
        ErrorKind::AddrNotAvailable => AppError::failure(format!("{} is not an address of this computer", addr.ip()))
            .hint(format!("use --udp {port} to listen on all IPv4 addresses of this computer")),
        ErrorKind::PermissionDenied => AppError::failure(format!("no permission to listen on port {port}"))
            .hint("choose a port from 1024 to 65535 with --udp"),
        _ => AppError::failure(format!("cannot listen on {addr}: {error}"))
            .hint("check the network connection; a host can choose another address with --udp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ticket_error_states_the_reason() {
        for (text, reason) in
            [("", "does not begin with"), ("udp://a:7000", "after # is missing"), ("coplay:aa", "missing")]
        {
            let error = parse_ticket(text).unwrap_err();
            assert!(error.to_string().contains(reason) && error.to_string().contains("\nhint: "), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert!(TransportKind::udp("7000", Some("a b")).is_err() && TransportKind::udp("7000", Some("")).is_err());
    }

    #[test]
    fn short_address_omits_the_secret() {
        let short = |text| short_address(&parse_ticket(text).unwrap());
        assert_eq!(short("udp://127.0.0.1:7999#word"), "127.0.0.1:7999");
        assert_eq!(short("udp://[::1]:7999#word"), "[::1]:7999");
    }

    #[test]
    fn listen_address_accepts_port_or_address() {
        let parsed = |text| listen_address(text).unwrap().to_string();
        assert_eq!(
            (parsed("7000"), parsed(":7000"), parsed("127.0.0.1:5")),
            ("0.0.0.0:7000".into(), "0.0.0.0:7000".into(), "127.0.0.1:5".into())
        );
        assert_eq!(parsed("[::]:9"), "[::]:9");
        assert!(listen_address("70000").is_err() && listen_address("nowhere").is_err());
    }

    #[test]
    fn port_in_use_is_reported() {
        let udp = TransportKind::udp("127.0.0.1:0", Some("tennis")).unwrap();
        let connection = udp.open(Identity::random()).ok().unwrap();
        let Ticket::Udp { host, port, .. } = (connection.own_ticket)() else { panic!("not a UDP ticket") };
        let error =
            |addr: &str| TransportKind::udp(addr, None).unwrap().open(Identity::random()).err().unwrap().to_string();
        let in_use = error(&format!("{host}:{port}"));
        assert!(in_use.contains("is used by another program"), "{in_use}");
        let foreign = error("192.0.2.7:0");
        assert!(foreign.contains("is not an address of this computer"), "{foreign}");
    }

    /// A ticket must connect a joiner to the host that issued it, and have the same group of seat keys as the host.
    #[test]
    fn ticket_connects_to_its_issuer() {
        for kind in [TransportKind::udp("127.0.0.1:0", None).unwrap(), TransportKind::iroh(RelayConfig::None)] {
            let host = kind.open(Identity::random()).ok().unwrap();
            let ticket = parse_ticket(&(host.own_ticket)().to_string()).unwrap();
            assert_eq!(ticket.seat_group(), kind.seat_group());
            let joiner = open_for_ticket(&ticket, Identity::random(), None).ok().unwrap();
            joiner.host_addrs.iter().for_each(|addr| joiner.transport.dial(addr, joiner.expected_key));
            let event = joiner.incoming.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(matches!(event, Incoming::Connected { peer, .. } if peer == host.transport.key()), "{event:?}");
        }
    }
}
