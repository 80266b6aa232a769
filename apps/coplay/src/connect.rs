//! How sites find each other: the one place that knows which transports there are.
//!
//! A host opens a [`TransportKind`] and gets a ticket, which is a text. Whoever has the ticket gets a line to the host with [`open_for_ticket`].

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use coplay_net::iroh::{IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::ticket::{self, Ticket};
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport};

use crate::error::AppError;

/// What may wait for the game's thread: some frames of a crowd.
const INCOMING_QUEUE_LEN: usize = 4_096;
/// So long a ticket waits for a relay to be in it. Where there is no network beyond the local one, it does without.
const RELAY_WAIT: Duration = Duration::from_millis(700);
/// Any address of this computer, and any port.
const ANY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A way to be reached, for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Plain UDP, secured by a secret.
    Udp {
        /// Where to listen.
        addr: SocketAddr,
        /// What everybody must know.
        secret: String,
    },
    /// Through most routers.
    Iroh {
        /// What helps where there is no way.
        relay: RelayConfig,
        /// What lets in.
        token: Token,
    },
}

/// A transport that is up.
pub struct Connection {
    /// What carries datagrams.
    pub transport: Arc<dyn Transport>,
    /// What comes in.
    pub incoming: Receiver<Incoming>,
    /// The other end of that: what comes another way can be put there, too.
    pub incoming_sender: SyncSender<Incoming>,
    /// Where the host may be; at the host itself, nothing.
    pub host_addrs: Vec<PeerAddr>,
    /// Who must answer there, if that is known.
    pub expected_key: Option<PeerKey>,
    /// What leads to us, as far as we know by now.
    pub own_ticket: TicketSource,
}

/// Tells what leads to us now: addresses come and go.
pub type TicketSource = Arc<dyn Fn() -> Ticket + Send + Sync>;

impl TransportKind {
    /// Plain UDP, as a host asked for it.
    pub fn udp(listen: &str, secret: Option<&str>) -> Result<Self, AppError> {
        let secret = match secret {
            Some(secret) if !ticket::is_valid_secret(secret) => {
                let hint = "a secret is one word, such as 16 letters and digits that nobody can guess";
                return Err(AppError::usage("the secret is empty, too long, or has a space in it").hint(hint));
            }
            Some(secret) => secret.to_owned(),
            None => Secret::random_text(),
        };
        Ok(Self::Udp { addr: listen_address(listen)?, secret })
    }

    /// Through most routers, for those who get the ticket.
    pub fn iroh(relay: RelayConfig) -> Self {
        Self::Iroh { relay, token: Token::random() }
    }

    /// What a seat key belongs to.
    pub fn seat_group(&self) -> String {
        match self {
            Self::Udp { secret, .. } => ticket::seat_group_of_secret(secret),
            Self::Iroh { token, .. } => ticket::seat_group_of_token(token),
        }
    }

    /// Opens it.
    pub fn open(&self, identity: Identity) -> Result<Connection, AppError> {
        match self {
            Self::Udp { addr, secret } => open_udp(*addr, identity, secret),
            Self::Iroh { relay, token } => {
                let (line, iroh) = open_iroh(&identity, token.clone(), relay.clone())?;
                iroh.wait_for_relay(RELAY_WAIT);
                Ok(line)
            }
        }
    }
}

/// Reads a ticket.
pub fn parse_ticket(text: &str) -> Result<Ticket, AppError> {
    text.parse().map_err(|error| {
        AppError::usage(format!("this is no ticket: {error}"))
            .hint("copy all of what the host's coplay shows, and in a shell put it between quotes")
    })
}

/// Opens a line to whoever gave this ticket. Through the relay that it names, unless another is wanted.
pub fn open_for_ticket(
    ticket: &Ticket,
    identity: Identity,
    relay: Option<RelayConfig>,
) -> Result<Connection, AppError> {
    match ticket {
        Ticket::Udp { host, port, secret } => {
            let mut line = open_udp(any_port(&resolve(host, *port)?), identity, secret)?;
            line.host_addrs = ticket_addrs(ticket)?;
            Ok(line)
        }
        Ticket::Iroh { addr: home, token } => {
            let relay = relay.or_else(|| home.relay.clone().map(RelayConfig::Url)).unwrap_or_default();
            let (mut line, _) = open_iroh(&identity, token.clone(), relay)?;
            (line.host_addrs, line.expected_key) = (ticket_addrs(ticket)?, Some(home.key));
            Ok(line)
        }
    }
}

/// Where whoever gave this ticket may be.
pub fn ticket_addrs(ticket: &Ticket) -> Result<Vec<PeerAddr>, AppError> {
    Ok(match ticket {
        Ticket::Udp { host, port, .. } => resolve(host, *port)?.iter().map(|addr| PeerAddr(addr.to_string())).collect(),
        Ticket::Iroh { addr: home, .. } => vec![home.to_peer_addr()],
    })
}

/// Says whom we look for, as soon as that is begun: it may take a while until somebody answers, or nobody does.
pub fn print_dialing(tickets: &[Ticket]) {
    let places: Vec<String> = tickets.iter().map(short_address).collect();
    eprintln!("looking for {} ...", places.join(", "));
}

/// Where a ticket leads, as people say it. What must be known there is not in it.
fn short_address(ticket: &Ticket) -> String {
    match ticket {
        Ticket::Udp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
        Ticket::Udp { host, port, .. } => format!("{host}:{port}"),
        Ticket::Iroh { addr: home, .. } => home.to_peer_addr().brief(),
    }
}

/// The address to listen at: a port alone stands for all addresses of this computer.
fn listen_address(text: &str) -> Result<SocketAddr, AppError> {
    let bare = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = bare.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        AppError::usage(format!("{text:?} is no address to listen at"))
            .hint("say a port, such as 7000, or an address and a port, such as 192.168.1.5:7000 or [::]:7000")
    })
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, AppError> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    if found.is_empty() {
        return Err(AppError::failure(format!("there is no computer called {host}"))
            .hint("is the ticket copied as it was shown, and is there a network?"));
    }
    Ok(found)
}

/// Any port, of a family that can reach them.
fn any_port(places: &[SocketAddr]) -> SocketAddr {
    let any: IpAddr = match places.iter().any(SocketAddr::is_ipv6) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}

fn open_udp(addr: SocketAddr, identity: Identity, secret: &str) -> Result<Connection, AppError> {
    let (queue, incoming) = sync_channel(INCOMING_QUEUE_LEN);
    let opened = UdpTransport::listen(addr, identity, Secret::from_text(secret), queue.clone());
    let udp = Arc::new(opened.map_err(|error| listen_error(addr, &error))?);
    let (here, secret) = (udp.clone(), secret.to_owned());
    let ticket = Arc::new(move || {
        let place = here.own_addrs().into_iter().find_map(|place| place.0.parse().ok()).unwrap_or(addr);
        Ticket::Udp { host: place.ip().to_string(), port: place.port(), secret: secret.clone() }
    });
    Ok(Connection {
        transport: udp,
        incoming,
        incoming_sender: queue,
        host_addrs: vec![],
        expected_key: None,
        own_ticket: ticket,
    })
}

fn open_iroh(
    identity: &Identity,
    token: Token,
    relay: RelayConfig,
) -> Result<(Connection, Arc<IrohTransport>), AppError> {
    let (queue, incoming) = sync_channel(INCOMING_QUEUE_LEN);
    let opened = IrohTransport::listen(ANY_ADDRESS, identity, token, relay, queue.clone()).map_err(|error| {
        AppError::failure(format!("there is no way into the network: {error}"))
            .hint("is there a network at all? In a trusted one, --udp is another way")
    });
    let iroh = Arc::new(opened?);
    let here = iroh.clone();
    let ticket = Arc::new(move || here.ticket());
    Ok((
        Connection {
            transport: iroh.clone(),
            incoming,
            incoming_sender: queue,
            host_addrs: vec![],
            expected_key: None,
            own_ticket: ticket,
        },
        iroh,
    ))
}

fn listen_error(addr: SocketAddr, error: &std::io::Error) -> AppError {
    let port = addr.port();
    match error.kind() {
        ErrorKind::AddrInUse => AppError::failure(format!("port {port} is taken by another program"))
            .hint("choose another port with --udp, or leave --udp out to have any that is free"),
        ErrorKind::AddrNotAvailable => AppError::failure(format!("{} is no address of this computer", addr.ip()))
            .hint(format!("say --udp {port} to listen at all addresses of this computer")),
        ErrorKind::PermissionDenied => AppError::failure(format!("listening at port {port} is not permitted"))
            .hint("choose a port from 1024 on with --udp"),
        _ => AppError::failure(format!("nothing can listen at {addr}: {error}"))
            .hint("choose another address with --udp, or leave --udp out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ticket_error_states_the_reason() {
        for (text, why) in
            [("", "does not begin with"), ("udp://a:7000", "after # is missing"), ("coplay:aa", "missing")]
        {
            let told = parse_ticket(text).unwrap_err();
            assert!(told.to_string().contains(why) && told.to_string().contains("\nhint: "), "{told}");
            assert_eq!(told.exit_code(), 2);
        }
        assert!(TransportKind::udp("7000", Some("a b")).is_err() && TransportKind::udp("7000", Some("")).is_err());
    }

    #[test]
    fn short_address_omits_the_secret() {
        let said = |text| short_address(&parse_ticket(text).unwrap());
        assert_eq!(said("udp://127.0.0.1:7999#word"), "127.0.0.1:7999");
        assert_eq!(said("udp://[::1]:7999#word"), "[::1]:7999");
    }

    #[test]
    fn listen_address_accepts_port_or_address() {
        let at = |text| listen_address(text).unwrap().to_string();
        assert_eq!(
            (at("7000"), at(":7000"), at("127.0.0.1:5")),
            ("0.0.0.0:7000".into(), "0.0.0.0:7000".into(), "127.0.0.1:5".into())
        );
        assert_eq!(at("[::]:9"), "[::]:9");
        assert!(listen_address("70000").is_err() && listen_address("nowhere").is_err());
    }

    #[test]
    fn port_in_use_is_reported() {
        let line = TransportKind::udp("127.0.0.1:0", Some("tennis")).unwrap().open(Identity::random()).ok().unwrap();
        let Ticket::Udp { host, port, .. } = (line.own_ticket)() else { panic!("another way was opened") };
        let open = |at: &str| TransportKind::udp(at, None).unwrap().open(Identity::random()).err().unwrap().to_string();
        let again = open(&format!("{host}:{port}"));
        assert!(again.contains("is taken by another program"), "{again}");
        let elsewhere = open("192.0.2.7:0");
        assert!(elsewhere.contains("is no address of this computer"), "{elsewhere}");
    }

    /// Who has the ticket belongs to the group of whoever gave it.
    #[test]
    fn ticket_connects_to_its_issuer() {
        for way in [TransportKind::udp("127.0.0.1:0", None).unwrap(), TransportKind::iroh(RelayConfig::None)] {
            let line = way.open(Identity::random()).ok().unwrap();
            let ticket = parse_ticket(&(line.own_ticket)().to_string()).unwrap();
            assert_eq!(ticket.seat_group(), way.seat_group());
            let call = open_for_ticket(&ticket, Identity::random(), None).ok().unwrap();
            call.host_addrs.iter().for_each(|place| call.transport.dial(place, call.expected_key));
            let met = call.incoming.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(matches!(met, Incoming::Connected { peer, .. } if peer == line.transport.key()), "{met:?}");
        }
    }
}
