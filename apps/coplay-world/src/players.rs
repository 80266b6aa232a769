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
use coplay_world::entity_of;

use crate::cli::Serve;
use crate::trouble::{Trouble, in_words};

/// What may wait on a way for the world's thread.
const QUEUE: usize = 16_384;
/// Beyond so many keys those are forgotten that do not belong to who plays.
const MAX_KEYS: usize = 65_536;
/// So long a ticket waits for a relay to be in it.
const FOR_RELAY: Duration = Duration::from_millis(700);

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Plain UDP, secured by the secret.
    Udp,
    /// Through most routers.
    Iroh,
}

impl Way {
    /// The way that leads to a place.
    pub fn to(place: &str) -> Self {
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
struct Line {
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
}

/// Who was heard, and on which way last.
#[derive(Debug, Default)]
struct Keys(BTreeMap<EntityId, (Way, PeerKey)>);

impl Keys {
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_KEYS
    }

    /// Forgets everybody who does not play: who only shook hands is heard again if it wants anything.
    fn keep(&mut self, players: impl Iterator<Item = EntityId>) {
        let mut all = std::mem::take(&mut self.0);
        self.0 = players.filter_map(|player| all.remove_entry(&player)).collect();
    }
}

/// All players, on all ways.
pub struct Players {
    udp: Line,
    iroh: Option<(Line, Arc<IrohTransport>)>,
    /// Who is listened to next.
    next: Way,
    /// Where UDP leads to us.
    public: String,
    keys: Keys,
    /// Datagrams and bytes.
    pub sent: (u64, u64),
    /// The same, that came.
    pub received: (u64, u64),
}

impl Players {
    /// Opens all ways that were asked for; also says where we listen.
    pub fn open(args: &Serve, secret: &Secret) -> Result<(Self, SocketAddr), Trouble> {
        let (queue, incoming) = sync_channel(QUEUE);
        let udp = UdpTransport::listen(args.listen, Identity::random(), secret.clone(), queue).map_err(|error| {
            let hint = "choose another address with --listen";
            Trouble::failure(format!("nothing can listen at {}: {}", args.listen, in_words(&error)), hint)
        })?;
        let here = udp.local_addr().unwrap_or(args.listen);
        let known = udp.own_addrs().first().map_or_else(|| here.to_string(), |place| place.0.clone());
        let public = args.public.map_or(known, |public| public.to_string());
        let iroh = if args.iroh { Some(open_iroh(args, secret)?) } else { None };
        let udp = Line { transport: impaired(Arc::new(udp), args.impair.as_ref())?, incoming };
        Ok((Self { udp, iroh, next: Way::Udp, public, keys: Keys::default(), sent: (0, 0), received: (0, 0) }, here))
    }

    /// The next that a player said: when it came, and who said it.
    pub fn poll(&mut self) -> Option<(Instant, EntityId, Vec<u8>)> {
        loop {
            // In turn, so that none is starved by the other.
            self.next = self.next.other();
            let came = self.try_recv(self.next).or_else(|| self.try_recv(self.next.other()));
            if let (way, Incoming::Datagram { at, from, bytes }) = came? {
                return Some((at, self.on_datagram(way, from, bytes.len()), bytes));
            }
        }
    }

    fn try_recv(&self, way: Way) -> Option<(Way, Incoming)> {
        let line = match way {
            Way::Udp => &self.udp,
            Way::Iroh => &self.iroh.as_ref()?.0,
        };
        line.incoming.try_recv().ok().map(|incoming| (way, incoming))
    }

    fn on_datagram(&mut self, way: Way, from: PeerKey, len: usize) -> EntityId {
        self.received.0 += 1;
        self.received.1 += len as u64;
        let entity = entity_of(&from.0);
        self.keys.0.insert(entity, (way, from));
        entity
    }

    /// Makes room if there are too many keys, but not at the cost of who plays. To be called so often that no great number comes in between.
    pub fn make_room(&mut self, players: impl Iterator<Item = EntityId>) {
        if self.keys.is_full() {
            self.keys.keep(players);
        }
    }

    /// The way of a player.
    pub fn way_of(&self, entity: EntityId) -> Way {
        self.keys.0.get(&entity).map_or(Way::Udp, |(way, _)| *way)
    }

    /// Says something to a player.
    pub fn send(&mut self, entity: EntityId, bytes: &[u8]) {
        let Some((way, key)) = self.keys.0.get(&entity) else { return };
        let line = match (way, &self.iroh) {
            (Way::Iroh, Some((iroh, _))) => iroh,
            _ => &self.udp,
        };
        if line.transport.send(key, bytes) {
            self.sent.0 += 1;
            self.sent.1 += bytes.len() as u64;
        }
    }

    /// Where players reach us, as far as we know by now.
    pub fn places(&self) -> Vec<String> {
        let iroh = self.iroh.iter().flat_map(|(_, iroh)| iroh.own_addrs());
        [self.public.clone()].into_iter().chain(iroh.map(|place| place.0)).collect()
    }

    /// What players need in order to come in by iroh.
    pub fn ticket(&self) -> Option<Ticket> {
        self.iroh.as_ref().map(|(_, iroh)| iroh.ticket())
    }

    /// Datagrams that were not taken.
    pub fn refused(&self) -> u64 {
        let iroh = self.iroh.as_ref().map(|(line, _)| line.transport.drop_counts().total());
        self.udp.transport.drop_counts().total() + iroh.unwrap_or_default()
    }
}

/// What lets players in by iroh: all who know the secret of the world have it.
fn token(secret: &Secret) -> Token {
    Token::from_secret(secret, "world iroh")
}

fn open_iroh(args: &Serve, secret: &Secret) -> Result<(Line, Arc<IrohTransport>), Trouble> {
    let (queue, incoming) = sync_channel(QUEUE);
    let anywhere = SocketAddr::new(args.listen.ip(), 0);
    let relay = args.relay.clone().unwrap_or(RelayConfig::Default);
    let opened = IrohTransport::listen(anywhere, &Identity::random(), token(secret), relay, queue);
    let iroh = Arc::new(opened.map_err(|error| {
        Trouble::failure(format!("there is no way into the network: {error}"), "leave --iroh out to do without")
    })?);
    iroh.wait_for_relay(FOR_RELAY);
    Ok((Line { transport: impaired(iroh.clone(), args.impair.as_ref())?, incoming }, iroh))
}

/// A way as it is, or worse.
fn impaired(way: Arc<dyn Transport>, impairment: Option<&Impairment>) -> Result<Arc<dyn Transport>, Trouble> {
    let Some(impairment) = impairment.cloned() else { return Ok(way) };
    let failed = |error| Trouble::failure(format!("the way out cannot be made worse: {error}"), "leave --impair out");
    Ok(Arc::new(ImpairedTransport::new(way, impairment).map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn many_handshakes_do_not_cut_off_who_plays() {
        let entity = |number: u32| EntityId { site: WorldSiteId(number), index: 0 };
        let mut keys = Keys::default();
        for number in 0..MAX_KEYS as u32 {
            assert!(!keys.is_full());
            keys.0.insert(entity(number), (Way::Udp, PeerKey([number as u8; 32])));
        }
        assert!(keys.is_full());
        keys.keep([5, 70_000, 9].map(entity).into_iter());
        let kept: Vec<_> = keys.0.into_iter().collect();
        let of = |number: u32| (entity(number), (Way::Udp, PeerKey([number as u8; 32])));
        assert_eq!(kept, [of(5), of(9)]);
    }
}
