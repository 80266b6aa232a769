//! The ways on which players come: UDP, and iroh for those who reach no open port.

use std::collections::BTreeMap;
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
use coplay_world::player_entity;

use crate::cli::ServeArgs;
use crate::error::{CliError, bind_error_message};

/// What may wait on a way for the world's thread.
const QUEUE_CAPACITY: usize = 16_384;
/// Beyond so many keys those are forgotten that do not belong to who plays.
const MAX_ROUTES: usize = 65_536;
/// So long a ticket waits for a relay to be in it.
const RELAY_TIMEOUT: Duration = Duration::from_millis(700);

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// Plain UDP, secured by the secret.
    Udp,
    /// Through most routers.
    Iroh,
}

impl TransportKind {
    /// The way that leads to a place.
    pub fn of_addr(place: &str) -> Self {
        if IrohAddr::from_peer_addr(&PeerAddr(place.into())).is_some() { Self::Iroh } else { Self::Udp }
    }

    fn other(self) -> Self {
        match self {
            Self::Udp => Self::Iroh,
            Self::Iroh => Self::Udp,
        }
    }
}

/// One way to players, and what comes on it.
struct PlayerTransport {
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
}

/// Who was heard, and on which way last.
#[derive(Debug, Default)]
struct PlayerRoutes(BTreeMap<EntityId, (TransportKind, PeerKey)>);

impl PlayerRoutes {
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_ROUTES
    }

    /// Forgets everybody who does not play: who only shook hands is heard again if it wants anything.
    fn retain_players(&mut self, players: impl Iterator<Item = EntityId>) {
        let mut all = std::mem::take(&mut self.0);
        self.0 = players.filter_map(|player| all.remove_entry(&player)).collect();
    }
}

/// All players, on all ways.
pub struct PlayerNetwork {
    udp: PlayerTransport,
    iroh: Option<(PlayerTransport, Arc<IrohTransport>)>,
    /// Who is listened to next.
    next_transport: TransportKind,
    /// Where UDP leads to us.
    public_addr: String,
    routes: PlayerRoutes,
    /// Datagrams and bytes.
    pub sent: (u64, u64),
    /// The same, that came.
    pub received: (u64, u64),
}

impl PlayerNetwork {
    /// Opens all ways that were asked for; also says where we listen.
    pub fn open(args: &ServeArgs, secret: &Secret) -> Result<(Self, SocketAddr), CliError> {
        let (queue, incoming) = sync_channel(QUEUE_CAPACITY);
        let udp = UdpTransport::listen(args.listen, Identity::random(), secret.clone(), queue).map_err(|error| {
            let hint = "choose another address with --listen";
            CliError::failure(format!("nothing can listen at {}: {}", args.listen, bind_error_message(&error)), hint)
        })?;
        let here = udp.local_addr().unwrap_or(args.listen);
        let known = udp.own_addrs().first().map_or_else(|| here.to_string(), |place| place.0.clone());
        let public = args.public.map_or(known, |public| public.to_string());
        let iroh = if args.iroh { Some(open_iroh(args, secret)?) } else { None };
        let udp = PlayerTransport { transport: with_impairment(Arc::new(udp), args.impair.as_ref())?, incoming };
        Ok((
            Self {
                udp,
                iroh,
                next_transport: TransportKind::Udp,
                public_addr: public,
                routes: PlayerRoutes::default(),
                sent: (0, 0),
                received: (0, 0),
            },
            here,
        ))
    }

    /// The next that a player said: when it came, and who said it.
    pub fn poll_datagram(&mut self) -> Option<(Instant, EntityId, Vec<u8>)> {
        loop {
            // In turn, so that none is starved by the other.
            self.next_transport = self.next_transport.other();
            let came = self.try_recv(self.next_transport).or_else(|| self.try_recv(self.next_transport.other()));
            if let (way, Incoming::Datagram { at, from, bytes }) = came? {
                return Some((at, self.on_datagram(way, from, bytes.len()), bytes));
            }
        }
    }

    fn try_recv(&self, way: TransportKind) -> Option<(TransportKind, Incoming)> {
        let line = match way {
            TransportKind::Udp => &self.udp,
            TransportKind::Iroh => &self.iroh.as_ref()?.0,
        };
        line.incoming.try_recv().ok().map(|incoming| (way, incoming))
    }

    fn on_datagram(&mut self, way: TransportKind, from: PeerKey, len: usize) -> EntityId {
        self.received.0 += 1;
        self.received.1 += len as u64;
        let entity = player_entity(&from.0);
        self.routes.0.insert(entity, (way, from));
        entity
    }

    /// Makes room if there are too many keys, but not at the cost of who plays. To be called so often that no great number comes in between.
    pub fn evict_idle_routes(&mut self, players: impl Iterator<Item = EntityId>) {
        if self.routes.is_full() {
            self.routes.retain_players(players);
        }
    }

    /// The way of a player.
    pub fn transport_of(&self, entity: EntityId) -> TransportKind {
        self.routes.0.get(&entity).map_or(TransportKind::Udp, |(way, _)| *way)
    }

    /// Says something to a player.
    pub fn send(&mut self, entity: EntityId, bytes: &[u8]) {
        let Some((way, key)) = self.routes.0.get(&entity) else { return };
        let line = match (way, &self.iroh) {
            (TransportKind::Iroh, Some((iroh, _))) => iroh,
            _ => &self.udp,
        };
        if line.transport.send(key, bytes) {
            self.sent.0 += 1;
            self.sent.1 += bytes.len() as u64;
        }
    }

    /// Where players reach us, as far as we know by now.
    pub fn public_addrs(&self) -> Vec<String> {
        let iroh = self.iroh.iter().flat_map(|(_, iroh)| iroh.own_addrs());
        [self.public_addr.clone()].into_iter().chain(iroh.map(|place| place.0)).collect()
    }

    /// What players need in order to come in by iroh.
    pub fn ticket(&self) -> Option<Ticket> {
        self.iroh.as_ref().map(|(_, iroh)| iroh.ticket())
    }

    /// Datagrams that were not taken.
    pub fn refused_count(&self) -> u64 {
        let iroh = self.iroh.as_ref().map(|(line, _)| line.transport.drop_counts().total());
        self.udp.transport.drop_counts().total() + iroh.unwrap_or_default()
    }
}

/// What lets players in by iroh: all who know the secret of the world have it.
fn iroh_token(secret: &Secret) -> Token {
    Token::from_secret(secret, "world iroh")
}

fn open_iroh(args: &ServeArgs, secret: &Secret) -> Result<(PlayerTransport, Arc<IrohTransport>), CliError> {
    let (queue, incoming) = sync_channel(QUEUE_CAPACITY);
    let anywhere = SocketAddr::new(args.listen.ip(), 0);
    let relay = args.relay.clone().unwrap_or(RelayConfig::Default);
    let opened = IrohTransport::listen(anywhere, &Identity::random(), iroh_token(secret), relay, queue);
    let iroh = Arc::new(opened.map_err(|error| {
        CliError::failure(format!("there is no way into the network: {error}"), "leave --iroh out to do without")
    })?);
    iroh.wait_for_relay(RELAY_TIMEOUT);
    Ok((PlayerTransport { transport: with_impairment(iroh.clone(), args.impair.as_ref())?, incoming }, iroh))
}

/// A way as it is, or worse.
fn with_impairment(way: Arc<dyn Transport>, impairment: Option<&Impairment>) -> Result<Arc<dyn Transport>, CliError> {
    let Some(impairment) = impairment.cloned() else { return Ok(way) };
    let failed = |error| CliError::failure(format!("the way out cannot be made worse: {error}"), "leave --impair out");
    Ok(Arc::new(ImpairedTransport::new(way, impairment).map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn idle_handshakes_do_not_evict_players() {
        let entity = |number: u32| EntityId { site: WorldSiteId(number), index: 0 };
        let mut keys = PlayerRoutes::default();
        for number in 0..MAX_ROUTES as u32 {
            assert!(!keys.is_full());
            keys.0.insert(entity(number), (TransportKind::Udp, PeerKey([number as u8; 32])));
        }
        assert!(keys.is_full());
        keys.retain_players([5, 70_000, 9].map(entity).into_iter());
        let kept: Vec<_> = keys.0.into_iter().collect();
        let of = |number: u32| (entity(number), (TransportKind::Udp, PeerKey([number as u8; 32])));
        assert_eq!(kept, [of(5), of(9)]);
    }
}
