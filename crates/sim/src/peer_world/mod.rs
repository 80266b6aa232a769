//! A maze without a server in virtual time: sites with clocks of their own, each with its game, and links between all of them.

mod checker;
mod scenario;

use std::collections::BTreeMap;

use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{MazeSettings, MazeSite};

pub use checker::Sabotage;
pub use scenario::{FEATURES, PeerWorldFault, PeerWorldScenario};

use crate::clock::NodeClock;
use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, LinkStats};

/// A maze and all its sites.
pub struct PeerWorldNetwork {
    now: Instant,
    seed: u64,
    terms: MazeSettings,
    places: Vec<PeerWorldNode>,
    node_by_site: BTreeMap<WorldSiteId, usize>,
    /// One direction each, from and to, as far as anything was sent there: in a large world most are never used.
    links: BTreeMap<(usize, usize), Link>,
    /// What links are like at first.
    default_link: LinkConfig,
    queue: EventQueue<PeerWorldQueueEvent>,
    /// What was delivered, for who wants to know.
    delivered: Vec<DeliveredDatagram>,
    keep_deliveries: bool,
    sabotage: Option<Sabotage>,
}

/// A computer at which a site may run.
struct PeerWorldNode {
    site: WorldSiteId,
    clock: NodeClock,
    sending: UpdatePolicy,
    ninjas: u8,
    game: Option<MazeSite>,
    /// The next time it is woken; older ones do not count.
    next_wake: Instant,
}

/// A site as it is planned.
#[derive(Clone, Debug)]
pub struct PeerWorldSitePlan {
    /// Its clock.
    pub clock: NodeClock,
    /// When it tells of its avatars.
    pub sending: UpdatePolicy,
    /// Its avatars.
    pub ninjas: u8,
}

enum PeerWorldQueueEvent {
    Wake { node: usize },
    Arrive { from: usize, to: usize, bytes: Box<[u8]> },
}

/// A datagram that arrived.
#[derive(Clone, Debug)]
pub struct DeliveredDatagram {
    /// When, in true time.
    pub at: Instant,
    /// From which place.
    pub from: usize,
    /// At which place.
    pub to: usize,
    /// What it says.
    pub bytes: Box<[u8]>,
}

impl PeerWorldNetwork {
    /// Places with links between them, all alike at first; nobody is there yet.
    pub fn new(seed: u64, terms: MazeSettings, plans: &[PeerWorldSitePlan], link: &LinkConfig) -> Self {
        let mut luck = crate::random::Random::stream(seed, "sites");
        let place = |plan: &PeerWorldSitePlan| PeerWorldNode {
            site: WorldSiteId(luck.bits() as u32),
            clock: plan.clock,
            sending: plan.sending,
            ninjas: plan.ninjas,
            game: None,
            next_wake: Instant::FAR_FUTURE,
        };
        let places: Vec<PeerWorldNode> = plans.iter().map(place).collect();
        Self {
            now: Instant::ZERO,
            seed,
            terms,
            links: BTreeMap::new(),
            default_link: link.clone(),
            node_by_site: places.iter().enumerate().map(|(number, place)| (place.site, number)).collect(),
            places,
            queue: EventQueue::new(),
            delivered: Vec::new(),
            keep_deliveries: false,
            sabotage: None,
        }
    }

    /// Breaks what gets to the first place.
    pub fn set_sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.sabotage = sabotage;
    }

    /// The true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// What a place's clock shows.
    pub fn local_time(&self, place: usize) -> Instant {
        self.places[place].clock.local(self.now)
    }

    /// The site at a place.
    pub fn site_of(&self, place: usize) -> WorldSiteId {
        self.places[place].site
    }

    /// The place of a site.
    pub fn node_of(&self, site: WorldSiteId) -> Option<usize> {
        self.node_by_site.get(&site).copied()
    }

    /// The game at a place, if somebody is there.
    pub fn game(&self, place: usize) -> Option<&MazeSite> {
        self.places[place].game.as_ref()
    }

    /// The same, to change it.
    pub fn game_mut(&mut self, place: usize) -> Option<&mut MazeSite> {
        self.places[place].game.as_mut()
    }

    /// The places where somebody is.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|place| self.places[*place].game.is_some()).collect()
    }

    /// One direction of the way between two places.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        let new = || Link::new(self.default_link.clone(), self.seed, &format!("{from} to {to}"));
        self.links.entry((from, to)).or_insert_with(new)
    }

    /// What became of all packets.
    pub fn traffic(&self) -> LinkStats {
        let mut sum = LinkStats::default();
        for stats in self.links.values().map(Link::stats) {
            sum.sent += stats.sent;
            sum.bytes += stats.bytes;
            sum.lost += stats.lost;
            sum.duplicated += stats.duplicated;
            sum.overflowed += stats.overflowed;
            sum.cut += stats.cut;
        }
        sum
    }

    /// Keeps what is delivered, until it is [taken](Self::take_deliveries).
    pub fn keep_deliveries(&mut self) {
        self.keep_deliveries = true;
    }

    /// What was delivered since this was last asked.
    pub fn take_deliveries(&mut self) -> Vec<DeliveredDatagram> {
        std::mem::take(&mut self.delivered)
    }

    /// Somebody comes to a place. The first of all founds the maze.
    pub fn join(&mut self, place: usize) {
        let founder = self.active_nodes().is_empty();
        let local = self.local_time(place);
        let PeerWorldNode { site, sending, ninjas, .. } = self.places[place];
        let game = MazeSite::new(local, site, founder, &self.terms, sending, (None, ninjas));
        let mut game = game.expect("the terms are those of a maze");
        for other in self.active_nodes().into_iter().filter(|other| *other != place) {
            let (other_site, other_local) = (self.places[other].site, self.local_time(other));
            game.add_peer(local, other_site);
            if let Some(other) = self.game_mut(other) {
                other.add_peer(other_local, site);
            }
        }
        self.places[place].game = Some(game);
        self.schedule_wake(place, self.now);
    }

    /// Whoever is there is gone without a word.
    pub fn crash(&mut self, place: usize) {
        self.places[place].game = None;
    }

    /// Whoever is there says goodbye and goes.
    pub fn leave(&mut self, place: usize) {
        if let Some(game) = self.game_mut(place) {
            game.leave();
        }
        self.transmit(place);
        self.crash(place);
    }

    fn schedule_wake(&mut self, place: usize, at: Instant) {
        self.places[place].next_wake = at;
        self.queue.push(at, PeerWorldQueueEvent::Wake { node: place });
    }

    /// Plays until then, and calls whenever a place has a new view.
    pub fn run_until(&mut self, until: Instant, mut on_view: impl FnMut(&mut Self, usize)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            let viewed = match happening {
                PeerWorldQueueEvent::Arrive { from, to, bytes } => {
                    self.deliver(from, to, bytes);
                    continue;
                }
                PeerWorldQueueEvent::Wake { node: place } => {
                    (self.places[place].next_wake == at && self.run_node(place)).then_some(place)
                }
            };
            if let Some(place) = viewed {
                on_view(self, place);
            }
        }
        self.now = self.now.max(until);
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: Box<[u8]>) {
        let (site, local) = (self.places[from].site, self.local_time(to));
        if !self.link_mut(from, to).admit_arrival() {
            return;
        }
        let bytes = match self.sabotage {
            Some(sabotage) if to == 0 => sabotage.tamper(bytes),
            _ => Some(bytes),
        };
        if let (Some(bytes), Some(game)) = (bytes, self.places[to].game.as_mut()) {
            game.handle_datagram(local, site, &bytes);
            if self.keep_deliveries {
                self.delivered.push(DeliveredDatagram { at: self.now, from, to, bytes });
            }
        }
    }

    /// Lets a place do what is due. Whether it has a new view.
    fn run_node(&mut self, place: usize) -> bool {
        let local = self.local_time(place);
        let Some(game) = self.places[place].game.as_mut() else { return false };
        let viewed = game.advance(local);
        let next = game.poll_timeout(local);
        self.transmit(place);
        let at = self.places[place].clock.true_time(next).max(self.now + TimeDelta::from_nanos(1));
        self.schedule_wake(place, at);
        viewed
    }

    fn transmit(&mut self, place: usize) {
        let local = self.local_time(place);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(game) = self.places[place].game.as_mut() {
            let Some(packet) = game.poll_transmit(local, &mut buf) else { return };
            for site in game.receivers(packet.to) {
                if let Some(to) = self.node_of(site).filter(|to| *to != place) {
                    self.send(place, to, &buf[..packet.len]);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let now = self.now;
        for at in self.link_mut(from, to).send(now, bytes.len()) {
            self.queue.push(at, PeerWorldQueueEvent::Arrive { from, to, bytes: bytes.into() });
        }
    }

    /// The seed of all of it.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}
