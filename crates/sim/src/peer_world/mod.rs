//! Fault tests of [`coplay::peer_world`]: a serverless maze in virtual time, with a clock per site and links between
//! all sites.

mod checker;
mod run;
mod sabotage;
mod scenario;

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};

pub use sabotage::PeerWorldSabotage;
pub use scenario::{FEATURES, PeerWorldFault, PeerWorldScenario};

use crate::clock::NodeClock;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, LinkStats};

/// A maze, the nodes on which its sites run, and the links between them.
pub struct PeerWorldNetwork {
    now: Instant,
    seed: u64,
    settings: MazeSettings,
    nodes: Vec<PeerWorldNode>,
    node_by_site: BTreeMap<WorldSiteId, usize>,
    /// Links by (sender, receiver), created on first use: in a large world most are never used.
    links: BTreeMap<(usize, usize), Link>,
    /// Conditions of a link until they are changed.
    default_link: LinkConfig,
    queue: TimedEventQueue<PeerWorldQueueEvent>,
    /// Datagrams delivered since the last [`PeerWorldNetwork::take_deliveries`], if they are kept.
    delivered: Vec<DeliveredDatagram>,
    keep_deliveries: bool,
    sabotage: Option<PeerWorldSabotage>,
}

/// A computer on which a site of the maze may run.
struct PeerWorldNode {
    site: WorldSiteId,
    clock: NodeClock,
    sending: UpdatePolicy,
    ninjas: u8,
    game: Option<MazeSite>,
    /// Time of the next wake-up. Queued wake-ups for other times are void.
    next_wake: Instant,
}

/// Plan of a node and of the site that runs on it.
#[derive(Clone, Debug)]
pub struct PeerWorldSitePlan {
    /// Offset and skew of the node's clock.
    pub clock: NodeClock,
    /// Policy by which the site sends updates of its avatars.
    pub sending: UpdatePolicy,
    /// Number of the site's avatars, all of which software plays.
    pub ninjas: u8,
}

enum PeerWorldQueueEvent {
    Wake { node: usize },
    Arrive { from: usize, to: usize, bytes: Box<[u8]> },
}

/// A datagram that the site at a node received.
#[derive(Clone, Debug)]
pub struct DeliveredDatagram {
    /// True time of the arrival.
    pub at: Instant,
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Payload as the site received it, including sabotage.
    pub bytes: Box<[u8]>,
}

impl PeerWorldNetwork {
    /// Creates one node per plan, with equal links between all nodes. No site runs yet.
    pub fn new(seed: u64, settings: MazeSettings, plans: &[PeerWorldSitePlan], link: &LinkConfig) -> Self {
        let mut random = coplay_links::random::Random::stream(seed, "sites");
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
            queue: TimedEventQueue::new(),
            delivered: Vec::new(),
            keep_deliveries: false,
            sabotage: None,
        }
    }

    /// Sets the defect that is applied to datagrams that arrive at the first node.
    pub fn set_sabotage(&mut self, sabotage: Option<PeerWorldSabotage>) {
        self.sabotage = sabotage;
    }

    /// Returns the virtual time, from which each node's clock deviates.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of nodes, with or without a running site.
    pub fn places(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the time that a node's clock shows now.
    pub fn local_time(&self, node: usize) -> Instant {
        self.nodes[node].clock.local(self.now)
    }

    /// Returns the id of the site at a node, whether it runs or not.
    pub fn site_of(&self, node: usize) -> WorldSiteId {
        self.nodes[node].site
    }

    /// Returns the node of a site; `None` if no node has that id.
    pub fn node_of(&self, site: WorldSiteId) -> Option<usize> {
        self.node_by_site.get(&site).copied()
    }

    /// Returns the site's game at a node; `None` if no site runs there.
    pub fn game(&self, node: usize) -> Option<&MazeSite> {
        self.nodes[node].game.as_ref()
    }

    /// Returns the site's game at a node mutably; `None` if no site runs there.
    pub fn game_mut(&mut self, node: usize) -> Option<&mut MazeSite> {
        self.nodes[node].game.as_mut()
    }

    /// Returns the indices of the nodes on which a site runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].game.is_some()).collect()
    }

    /// Returns the link that carries datagrams from node `from` to node `to`.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        let new = || Link::new(self.default_link.clone(), self.seed, &format!("{from} to {to}"));
        self.links.entry((from, to)).or_insert_with(new)
    }

    /// Returns the sum of the counters of all links.
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

    /// Keeps all later deliveries until they are [taken](Self::take_deliveries).
    pub fn keep_deliveries(&mut self) {
        self.keep_deliveries = true;
    }

    /// Returns the deliveries since the last call; none unless `keep_deliveries` was called.
    pub fn take_deliveries(&mut self) -> Vec<DeliveredDatagram> {
        std::mem::take(&mut self.delivered)
    }

    /// Starts a site at a node. The site and all running sites get to know each other. A site that starts while no
    /// other runs founds the maze.
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

    /// Processes all events up to the true time `until`, and calls `on_view` whenever the site at a node has a new
    /// view.
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

    /// Advances the site at a node, sends its datagrams and schedules its next wake-up. Returns whether it has a new
    /// view.
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

    /// Returns the seed from which all random draws of the network follow.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}
