//! Networks for players: UDP, and iroh for players that cannot reach an open port.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use coplay::peer_world::EntityId;
use coplay::time::Instant;
use coplay_net::impair::{ImpairedTransport, Impairment};
use coplay_net::iroh::{IrohAddr, IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::ticket::Ticket;
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport};
use coplay_shell::error::AppError;
use coplay_world::player_entity;

use crate::cli::ServeArgs;

/// Largest number of datagrams per transport that wait for the world's thread.
const QUEUE_CAPACITY: usize = 16_384;
/// Number of routes at which the routes of clients that do not play are dropped.
const MAX_ROUTES: usize = 65_536;
/// Longest wait for iroh to connect to a relay at the start.
const RELAY_TIMEOUT: Duration = Duration::from_millis(700);

/// Transport by which a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// UDP, secured by the secret of the world.
    Udp,
    /// iroh (QUIC), which connects through most routers.
    Iroh,
}

impl TransportKind {
    /// Returns the transport to which an address belongs: iroh if it is an iroh address, else UDP.
    pub fn of_addr(addr: &str) -> Self {
        if IrohAddr::from_peer_addr(&PeerAddr(addr.into())).is_some() { Self::Iroh } else { Self::Udp }
    }

    fn other(self) -> Self {
        match self {
            Self::Udp => Self::Iroh,
            Self::Iroh => Self::Udp,
        }
    }
}

/// Transport to players, and the queue of its incoming datagrams.
struct PlayerTransport {
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
}

/// Transport and key by which the last datagram of each client arrived.
#[derive(Debug, Default)]
struct PlayerRoutes(BTreeMap<EntityId, (TransportKind, PeerKey)>);

impl PlayerRoutes {
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_ROUTES
    }

    /// Drops the routes of all clients that do not play. A client that only completed a handshake gets a route again
    /// with its next datagram.
    fn retain_players(&mut self, players: impl Iterator<Item = EntityId>) {
        let mut all = std::mem::take(&mut self.0);
        self.0 = players.filter_map(|player| all.remove_entry(&player)).collect();
    }
}

/// Transports to all players, and the route to each client.
pub struct PlayerNetwork {
    udp: PlayerTransport,
    iroh: Option<(PlayerTransport, Arc<IrohTransport>)>,
    /// Transport that was polled first the last time. Next time, the other transport is polled first.
    next_transport: TransportKind,
    /// UDP address that is announced to players.
    public_addr: String,
    routes: PlayerRoutes,
    /// Datagrams and bytes sent to clients on all transports.
    pub sent: (u64, u64),
    /// Datagrams and bytes received from clients on all transports.
    pub received: (u64, u64),
}

impl PlayerNetwork {
    /// Opens UDP, and iroh if `--iroh` was given. Also returns the address on which UDP listens.
    pub fn open(args: &ServeArgs, secret: &Secret) -> Result<(Self, SocketAddr), AppError> {
        let (queue, incoming) = sync_channel(QUEUE_CAPACITY);
        let udp = UdpTransport::listen(args.listen, Identity::random(), secret.clone(), queue).map_err(|error| {
            let hint = "choose another port or address with --listen";
            AppError::failure(format!("cannot listen on {}: {}", args.listen, bind_error_message(&error))).hint(hint)
        })?;
        let local_addr = udp.local_addr().unwrap_or(args.listen);
        let own_addr = udp.own_addrs().first().map_or_else(|| local_addr.to_string(), |addr| addr.0.clone());
        let public_addr = args.public.map_or(own_addr, |public| public.to_string());
        let iroh = if args.iroh { Some(open_iroh(args, secret)?) } else { None };
        let udp = PlayerTransport { transport: with_impairment(Arc::new(udp), args.impair.as_ref())?, incoming };
        Ok((
            Self {
                udp,
                iroh,
                next_transport: TransportKind::Udp,
                public_addr,
                routes: PlayerRoutes::default(),
                sent: (0, 0),
                received: (0, 0),
            },
            local_addr,
        ))
    }

    /// Returns the next datagram of a client: arrival time, entity of the client and contents. `None` if none waits.
    pub fn poll_datagram(&mut self) -> Option<(Instant, EntityId, Vec<u8>)> {
        loop {
            // Alternates, so that neither transport starves the other.
            self.next_transport = self.next_transport.other();
            let received = self.try_recv(self.next_transport).or_else(|| self.try_recv(self.next_transport.other()));
            if let (kind, Incoming::Datagram { at, from, bytes }) = received? {
                return Some((at, self.on_datagram(kind, from, bytes.len()), bytes));
            }
        }
    }

    fn try_recv(&self, kind: TransportKind) -> Option<(TransportKind, Incoming)> {
        let transport = match kind {
            TransportKind::Udp => &self.udp,
            TransportKind::Iroh => &self.iroh.as_ref()?.0,
        };
        transport.incoming.try_recv().ok().map(|incoming| (kind, incoming))
    }

    fn on_datagram(&mut self, kind: TransportKind, from: PeerKey, len: usize) -> EntityId {
        self.received.0 += 1;
        self.received.1 += len as u64;
        let entity = player_entity(&from.0);
        self.routes.0.insert(entity, (kind, from));
        entity
    }

    /// Drops the routes of clients that do not play, once there are 65,536 routes. Until the next call, each datagram
    /// can add one route.
    pub fn evict_idle_routes(&mut self, players: impl Iterator<Item = EntityId>) {
        if self.routes.is_full() {
            self.routes.retain_players(players);
        }
    }

    /// Returns the transport by which a client was last received; UDP if it has no route.
    pub fn transport_of(&self, entity: EntityId) -> TransportKind {
        self.routes.0.get(&entity).map_or(TransportKind::Udp, |(kind, _)| *kind)
    }

    /// Sends a datagram to a client by its route. Drops the datagram if the client has no route.
    pub fn send(&mut self, entity: EntityId, bytes: &[u8]) {
        let Some((kind, key)) = self.routes.0.get(&entity) else { return };
        let transport = match (kind, &self.iroh) {
            (TransportKind::Iroh, Some((iroh, _))) => iroh,
            _ => &self.udp,
        };
        if transport.transport.send(key, bytes) {
            self.sent.0 += 1;
            self.sent.1 += bytes.len() as u64;
        }
    }

    /// Returns the addresses for players, that of UDP first, then those that iroh knows by now.
    pub fn public_addrs(&self) -> Vec<String> {
        let iroh = self.iroh.iter().flat_map(|(_, iroh)| iroh.own_addrs());
        [self.public_addr.clone()].into_iter().chain(iroh.map(|addr| addr.0)).collect()
    }

    /// Returns the ticket for iroh players; `None` without `--iroh`.
    pub fn ticket(&self) -> Option<Ticket> {
        self.iroh.as_ref().map(|(_, iroh)| iroh.ticket())
    }

    /// Returns the number of datagrams that were rejected, dropped by the kernel, or found a full queue, on all
    /// transports.
    pub fn refused_count(&self) -> u64 {
        let iroh = self.iroh.as_ref().map(|(transport, _)| transport.transport.drop_counts().total());
        self.udp.transport.drop_counts().total() + iroh.unwrap_or_default()
    }
}

/// Derives the token that admits players by iroh. Every client with the secret of the world can derive it.
fn iroh_token(secret: &Secret) -> Token {
    Token::from_secret(secret, "world iroh")
}

fn open_iroh(args: &ServeArgs, secret: &Secret) -> Result<(PlayerTransport, Arc<IrohTransport>), AppError> {
    let (queue, incoming) = sync_channel(QUEUE_CAPACITY);
    let any_port = SocketAddr::new(args.listen.ip(), 0);
    let relay = args.relay.clone().unwrap_or(RelayConfig::Default);
    let opened = IrohTransport::listen(any_port, &Identity::random(), iroh_token(secret), relay, queue);
    let iroh = Arc::new(opened.map_err(|error| {
        AppError::failure(format!("cannot open an iroh endpoint: {error}"))
            .hint("check the network connection, or leave out --iroh")
    })?);
    iroh.wait_for_relay(RELAY_TIMEOUT);
    Ok((PlayerTransport { transport: with_impairment(iroh.clone(), args.impair.as_ref())?, incoming }, iroh))
}

/// Wraps a transport in the link emulation of `--impair`, if it was given.
fn with_impairment(
    transport: Arc<dyn Transport>,
    impairment: Option<&Impairment>,
) -> Result<Arc<dyn Transport>, AppError> {
    let Some(impairment) = impairment.cloned() else { return Ok(transport) };
    let failed = |error| AppError::failure(format!("cannot simulate bad links: {error}")).hint("leave out --impair");
    Ok(Arc::new(ImpairedTransport::new(transport, impairment).map_err(failed)?))
}

/// Describes why a listening socket could not be opened.
pub(crate) fn bind_error_message(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "the port is already in use".into(),
        ErrorKind::AddrNotAvailable => "this computer does not have this address".into(),
        ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn idle_handshakes_do_not_evict_players() {
        let entity = |number: u32| EntityId { site: WorldSiteId(number), index: 0 };
        let mut routes = PlayerRoutes::default();
        for number in 0..MAX_ROUTES as u32 {
            assert!(!routes.is_full());
            routes.0.insert(entity(number), (TransportKind::Udp, PeerKey([number as u8; 32])));
        }
        assert!(routes.is_full());
        routes.retain_players([5, 70_000, 9].map(entity).into_iter());
        let kept: Vec<_> = routes.0.into_iter().collect();
        let of = |number: u32| (entity(number), (TransportKind::Udp, PeerKey([number as u8; 32])));
        assert_eq!(kept, [of(5), of(9)]);
    }
}
