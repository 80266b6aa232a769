//! Fault tests of [`coplay::peer_world`]: a serverless maze in virtual time, with a clock per site and links between
//! all sites.

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

/// A maze and all its nodes.
pub struct PeerWorldNetwork {
    now: Instant,
    seed: u64,
    settings: MazeSettings,
    nodes: Vec<PeerWorldNode>,
    node_by_site: BTreeMap<WorldSiteId, usize>,
    /// Links by (sender, receiver), created on first use: in a large world most are never used.
    links: BTreeMap<(usize, usize), Link>,
    /// Initial conditions of a link.
    default_link: LinkConfig,
    queue: EventQueue<PeerWorldQueueEvent>,
    /// Deliveries not taken yet, if kept.
    delivered: Vec<DeliveredDatagram>,
    keep_deliveries: bool,
    sabotage: Option<Sabotage>,
}

/// A computer on which a site may run.
struct PeerWorldNode {
    site: WorldSiteId,
    clock: NodeClock,
    sending: UpdatePolicy,
    ninjas: u8,
    game: Option<MazeSite>,
    /// Next wake-up; earlier schedules are void.
    next_wake: Instant,
}

/// Plan of a site.
#[derive(Clone, Debug)]
pub struct PeerWorldSitePlan {
    /// Clock of the computer.
    pub clock: NodeClock,
    /// Update policy of its avatars.
    pub sending: UpdatePolicy,
    /// Number of its bot avatars.
    pub ninjas: u8,
}

enum PeerWorldQueueEvent {
    Wake { node: usize },
    Arrive { from: usize, to: usize, bytes: Box<[u8]> },
}

/// A delivered datagram.
#[derive(Clone, Debug)]
pub struct DeliveredDatagram {
    /// Arrival time, in true time.
    pub at: Instant,
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// Payload.
    pub bytes: Box<[u8]>,
}

impl PeerWorldNetwork {
    /// Creates nodes with equal links between them. No site runs yet.
    pub fn new(seed: u64, settings: MazeSettings, plans: &[PeerWorldSitePlan], link: &LinkConfig) -> Self {
        let mut random = crate::random::Random::stream(seed, "sites");
        let node = |plan: &PeerWorldSitePlan| PeerWorldNode {
            site: WorldSiteId(random.bits() as u32),
            clock: plan.clock,
            sending: plan.sending,
            ninjas: plan.ninjas,
            game: None,
            next_wake: Instant::FAR_FUTURE,
        };
        let nodes: Vec<PeerWorldNode> = plans.iter().map(node).collect();
        Self {
            now: Instant::ZERO,
            seed,
            settings,
            links: BTreeMap::new(),
            default_link: link.clone(),
            node_by_site: nodes.iter().enumerate().map(|(number, node)| (node.site, number)).collect(),
            nodes,
            queue: EventQueue::new(),
            delivered: Vec::new(),
            keep_deliveries: false,
            sabotage: None,
        }
    }

    /// Tampers with the datagrams that arrive at the first node.
    pub fn set_sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.sabotage = sabotage;
    }

    /// Returns the true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of nodes.
    pub fn places(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the local time of a node.
    pub fn local_time(&self, node: usize) -> Instant {
        self.nodes[node].clock.local(self.now)
    }

    /// Returns the site at a node.
    pub fn site_of(&self, node: usize) -> WorldSiteId {
        self.nodes[node].site
    }

    /// Returns the node of a site.
    pub fn node_of(&self, site: WorldSiteId) -> Option<usize> {
        self.node_by_site.get(&site).copied()
    }

    /// Returns the game at a node, if a site runs there.
    pub fn game(&self, node: usize) -> Option<&MazeSite> {
        self.nodes[node].game.as_ref()
    }

    /// Returns the game at a node mutably, if a site runs there.
    pub fn game_mut(&mut self, node: usize) -> Option<&mut MazeSite> {
        self.nodes[node].game.as_mut()
    }

    /// Returns the nodes on which a site runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].game.is_some()).collect()
    }

    /// Returns the link from one node to another.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        let new = || Link::new(self.default_link.clone(), self.seed, &format!("{from} to {to}"));
        self.links.entry((from, to)).or_insert_with(new)
    }

    /// Returns the counters of all links together.
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

    /// Keeps deliveries until they are [taken](Self::take_deliveries).
    pub fn keep_deliveries(&mut self) {
        self.keep_deliveries = true;
    }

    /// Takes the deliveries since the last call.
    pub fn take_deliveries(&mut self) -> Vec<DeliveredDatagram> {
        std::mem::take(&mut self.delivered)
    }

    /// Starts a site at a node. The first site founds the maze.
    pub fn join(&mut self, node: usize) {
        let is_founder = self.active_nodes().is_empty();
        let local = self.local_time(node);
        let PeerWorldNode { site, sending, ninjas, .. } = self.nodes[node];
        let game = MazeSite::new(local, site, is_founder, &self.settings, sending, (None, ninjas));
        let mut game = game.expect("settings are valid");
        for other in self.active_nodes().into_iter().filter(|other| *other != node) {
            let (other_site, other_local) = (self.nodes[other].site, self.local_time(other));
            game.add_peer(local, other_site);
            if let Some(other) = self.game_mut(other) {
                other.add_peer(other_local, site);
            }
        }
        self.nodes[node].game = Some(game);
        self.schedule_wake(node, self.now);
    }

    /// Stops the site at a node without a leave message.
    pub fn crash(&mut self, node: usize) {
        self.nodes[node].game = None;
    }

    /// Stops the site at a node with a leave message.
    pub fn leave(&mut self, node: usize) {
        if let Some(game) = self.game_mut(node) {
            game.leave();
        }
        self.transmit(node);
        self.crash(node);
    }

    fn schedule_wake(&mut self, node: usize, at: Instant) {
        self.nodes[node].next_wake = at;
        self.queue.push(at, PeerWorldQueueEvent::Wake { node });
    }

    /// Runs until `until` and calls `on_view` whenever a node has a new view.
    pub fn run_until(&mut self, until: Instant, mut on_view: impl FnMut(&mut Self, usize)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            let has_new_view = match event {
                PeerWorldQueueEvent::Arrive { from, to, bytes } => {
                    self.deliver(from, to, bytes);
                    continue;
                }
                PeerWorldQueueEvent::Wake { node } => {
                    (self.nodes[node].next_wake == at && self.run_node(node)).then_some(node)
                }
            };
            if let Some(node) = has_new_view {
                on_view(self, node);
            }
        }
        self.now = self.now.max(until);
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: Box<[u8]>) {
        let (site, local) = (self.nodes[from].site, self.local_time(to));
        if !self.link_mut(from, to).admit_arrival() {
            return;
        }
        let bytes = match self.sabotage {
            Some(sabotage) if to == 0 => sabotage.tamper(bytes),
            _ => Some(bytes),
        };
        if let (Some(bytes), Some(game)) = (bytes, self.nodes[to].game.as_mut()) {
            game.handle_datagram(local, site, &bytes);
            if self.keep_deliveries {
                self.delivered.push(DeliveredDatagram { at: self.now, from, to, bytes });
            }
        }
    }

    /// Advances the site at a node. Returns whether it has a new view.
    fn run_node(&mut self, node: usize) -> bool {
        let local = self.local_time(node);
        let Some(game) = self.nodes[node].game.as_mut() else { return false };
        let has_new_view = game.advance(local);
        let next = game.poll_timeout(local);
        self.transmit(node);
        let at = self.nodes[node].clock.true_time(next).max(self.now + TimeDelta::from_nanos(1));
        self.schedule_wake(node, at);
        has_new_view
    }

    fn transmit(&mut self, node: usize) {
        let local = self.local_time(node);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(game) = self.nodes[node].game.as_mut() {
            let Some(packet) = game.poll_transmit(local, &mut buf) else { return };
            for site in game.receivers(packet.to) {
                if let Some(to) = self.node_of(site).filter(|to| *to != node) {
                    self.send(node, to, &buf[..packet.len]);
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

    /// Returns the seed of the network.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}
