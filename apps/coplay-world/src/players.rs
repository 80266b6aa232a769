//! The ways on which players come: UDP, and iroh for those who reach no open port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use coplay::bucket::EntityId;
use coplay_net::impair::{Impaired, Impairment};
use coplay_net::iroh::{Home, Iroh};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::ticket::Ticket;
use coplay_net::udp::Udp;
use coplay_net::{Incoming, PeerKey, Place, Transport};
use coplay_world::entity_of;

use crate::cli::Serve;
use crate::trouble::{Trouble, in_words};

/// What may wait on a way for the world's thread.
const QUEUE: usize = 16_384;
/// Keys of players who were here that are remembered.
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
        if Home::from_place(&Place(place.into())).is_some() { Self::Iroh } else { Self::Udp }
    }
}

/// All players, on all ways.
pub struct Players {
    udp: Arc<dyn Transport>,
    iroh: Option<(Arc<dyn Transport>, Arc<Iroh>)>,
    /// Where UDP leads to us.
    public: String,
    /// Who plays, and on which way it came last.
    keys: BTreeMap<EntityId, (Way, PeerKey)>,
    /// Datagrams and bytes.
    pub sent: (u64, u64),
    /// The same, that came.
    pub received: (u64, u64),
}

impl Players {
    /// Opens all ways that were asked for. What comes is handed to `hear`, from other threads, as long as that returns `true`. Also says where we listen.
    pub fn open(
        args: &Serve,
        secret: &Secret,
        hear: impl Fn(Way, Incoming) -> bool + Clone + Send + 'static,
    ) -> Result<(Self, SocketAddr), Trouble> {
        let udp = Udp::listen(args.listen, Identity::random(), secret.clone(), queue(Way::Udp, hear.clone())?);
        let udp = udp.map_err(|error| {
            let hint = "choose another address with --listen";
            Trouble::failure(format!("nothing can listen at {}: {}", args.listen, in_words(&error)), hint)
        })?;
        let here = udp.local_addr().unwrap_or(args.listen);
        let known = udp.own_places().first().map_or_else(|| here.to_string(), |place| place.0.clone());
        let public = args.public.map_or(known, |public| public.to_string());
        let iroh = match &args.iroh {
            true => Some(open_iroh(args, secret, queue(Way::Iroh, hear)?)?),
            false => None,
        };
        let (udp, sent, received) = (impaired(Arc::new(udp), args.impair.as_ref())?, (0, 0), (0, 0));
        Ok((Self { udp, iroh, public, keys: BTreeMap::new(), sent, received }, here))
    }

    /// A player speaks: who it is.
    pub fn on_datagram(&mut self, way: Way, from: PeerKey, bytes: &[u8]) -> EntityId {
        self.received.0 += 1;
        self.received.1 += bytes.len() as u64;
        let entity = entity_of(&from.0);
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&entity) {
            self.keys.clear();
        }
        self.keys.insert(entity, (way, from));
        entity
    }

    /// The way of a player.
    pub fn way_of(&self, entity: EntityId) -> Way {
        self.keys.get(&entity).map_or(Way::Udp, |(way, _)| *way)
    }

    /// Says something to a player.
    pub fn send(&mut self, entity: EntityId, bytes: &[u8]) {
        let Some((way, key)) = self.keys.get(&entity) else { return };
        let transport = match (way, &self.iroh) {
            (Way::Iroh, Some((iroh, _))) => iroh,
            _ => &self.udp,
        };
        if transport.send(key, bytes) {
            self.sent.0 += 1;
            self.sent.1 += bytes.len() as u64;
        }
    }

    /// Where players reach us, as far as we know by now.
    pub fn places(&self) -> Vec<String> {
        let iroh = self.iroh.iter().flat_map(|(_, iroh)| iroh.own_places());
        [self.public.clone()].into_iter().chain(iroh.map(|place| place.0)).collect()
    }

    /// What players need in order to come in by iroh.
    pub fn ticket(&self) -> Option<Ticket> {
        self.iroh.as_ref().map(|(_, iroh)| iroh.ticket())
    }

    /// Datagrams that were not taken.
    pub fn refused(&self) -> u64 {
        let iroh = self.iroh.as_ref().map(|(iroh, _)| iroh.refused().total());
        self.udp.refused().total() + iroh.unwrap_or_default()
    }
}

/// What lets players in by iroh: all who know the secret of the world have it.
fn token(secret: &Secret) -> Token {
    Token::from_secret(secret, "world iroh")
}

fn open_iroh(
    args: &Serve,
    secret: &Secret,
    queue: SyncSender<Incoming>,
) -> Result<(Arc<dyn Transport>, Arc<Iroh>), Trouble> {
    let anywhere = SocketAddr::new(args.listen.ip(), 0);
    let relay = args.relay.clone().unwrap_or_default();
    let opened = Iroh::listen(anywhere, &Identity::random(), token(secret), relay, queue);
    let iroh = Arc::new(opened.map_err(|error| {
        Trouble::failure(format!("there is no way into the network: {error}"), "leave --iroh out to do without")
    })?);
    iroh.wait_for_relay(FOR_RELAY);
    Ok((impaired(iroh.clone(), args.impair.as_ref())?, iroh))
}

/// A way as it is, or worse.
fn impaired(way: Arc<dyn Transport>, impairment: Option<&Impairment>) -> Result<Arc<dyn Transport>, Trouble> {
    let Some(impairment) = impairment.cloned() else { return Ok(way) };
    let failed = |error| Trouble::failure(format!("the way out cannot be made worse: {error}"), "leave --impair out");
    Ok(Arc::new(Impaired::new(way, impairment).map_err(failed)?))
}

/// A queue that a thread of its own empties.
fn queue(way: Way, hear: impl Fn(Way, Incoming) -> bool + Send + 'static) -> Result<SyncSender<Incoming>, Trouble> {
    let (queue, incoming) = sync_channel(QUEUE);
    let forward = move || incoming.into_iter().all(|incoming| hear(way, incoming));
    let started = std::thread::Builder::new().name("players".into()).spawn(move || _ = forward());
    started
        .map_err(|error| Trouble::failure(format!("no thread can be started: {error}"), "is the system overloaded?"))?;
    Ok(queue)
}
