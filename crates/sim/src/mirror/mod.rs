//! Fault tests of [`coplay::mirror`]: mirrored servers in virtual time, with a clock per server and links between all
//! of them.

mod checker;
mod node;
mod run;
mod sabotage;
mod scenario;
mod test_game;

use std::collections::{BTreeMap, BTreeSet};

use coplay::id::Addr;
use coplay::mirror::{Mirror, MirrorConfig, MirrorEvent, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay_links::link::LinkConfig;
use coplay_links::random::{LogNormal, Random};

pub use node::{MirrorNode, MirrorServer};
pub use sabotage::MirrorSabotage;
pub use scenario::{MirrorFault, MirrorScenario};
pub use test_game::{EventKind, IssuedEvent, SourceState, TestObject};

use crate::clock::NodeClock;
use crate::network::{Computer, Network, Topology};

/// Nodes, the servers that run on them, and the links between all nodes.
pub type MirrorNetwork = Network<MirrorNode>;

/// Plan of a node and of the server that runs on it.
#[derive(Clone, Debug)]
pub struct MirrorServerPlan {
    /// Offset and skew of the node's clock.
    pub clock: NodeClock,
    /// Configuration of the mirror. The network replaces source id, founder flag and seed at every start.
    pub config: MirrorConfig,
    /// Time for which the server is busy when it applies one event.
    pub work: TimeDelta,
    /// Script of the events that the server issues.
    pub script: EventScript,
    /// Number of padding bytes in each snapshot of one source's part of the game at this server.
    pub bulk: usize,
}

/// Times and kinds of the events that a server issues after [`MirrorNetwork::start_issuing`].
#[derive(Clone, Copy, Debug)]
pub struct EventScript {
    /// Mean interval between two events. Intervals are log-normal.
    pub every: TimeDelta,
    /// Standard deviation of the interval between two events.
    pub spread: TimeDelta,
    /// Largest number of events that one run of the server issues.
    pub count: u32,
    /// Number of objects. Each event concerns a random one of them, or none.
    pub keys: u64,
    /// Shares of moves, nudges, resets and events without an object; the rest are actions.
    pub shares: [f64; 4],
    /// Payload size of an event, in bytes. Less than 9 counts as 9.
    pub bytes: usize,
}

/// An observation at a node, for checkers and measurements.
#[derive(Clone, Copy, Debug)]
pub enum MirrorObservation {
    /// The engine delivered an event, and the server applied it.
    Delivered {
        /// Source that issued the event.
        source: SourceId,
        /// Sequence number of the event at its source.
        seq: u64,
        /// Group time at which the source issued the event.
        at: GroupInstant,
        /// Game time difference (GTD) as measured by the engine.
        gtd: TimeDelta,
        /// Whether the event came in order among the events of its object, and for the first time.
        is_in_order: bool,
        /// Whether the engine marked the event as out of order.
        is_late: bool,
        /// Whether the node's own server issued the event.
        is_own: bool,
    },
    /// The server installed a snapshot of one source's part of the game.
    Installed {
        /// Source whose part was replaced.
        of: SourceId,
    },
    /// The engine reported an event.
    EngineEvent(MirrorEvent),
}

/// Returns the address of a source.
fn address(source: SourceId) -> Addr {
    Addr(source.0.into())
}

/// Returns the address of a node at which no server has run yet. It is no address of a source.
fn vacant_address(node: usize) -> Addr {
    Addr(u64::MAX - node as u64)
}

impl MirrorNetwork {
    /// Creates one node per plan. `link(from, to)` returns the conditions of the link from node `from` to node `to`. No
    /// server runs yet.
    pub fn new(seed: u64, plans: &[MirrorServerPlan], link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let nodes = plans.iter().enumerate().map(|(number, plan)| {
            let node = MirrorNode {
                plan: plan.clone(),
                server: None,
                issued_events: BTreeMap::new(),
                random: Random::stream(seed, &format!("script {number}")),
                issue_intervals: LogNormal::new(
                    plan.script.every.as_nanos() as f64,
                    plan.script.spread.as_nanos() as f64,
                ),
                sabotage: None,
            };
            Computer::new(node, plan.clock, vacant_address(number))
        });
        let topology = Topology::mesh(seed, plans.len(), |from, to| format!("{from} to {to}"), link);
        Self::asleep(seed, nodes.collect(), topology)
    }

    /// Sets the defect of the first node.
    pub fn set_sabotage(&mut self, sabotage: Option<MirrorSabotage>) {
        self.nodes[0].sabotage = sabotage;
    }

    /// Returns the server at a node; `None` if none runs there.
    pub fn server(&self, node: usize) -> Option<&MirrorServer> {
        self.nodes[node].server.as_ref()
    }

    /// Returns the indices of the nodes on which a server runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].server.is_some()).collect()
    }

    /// Returns all events that a source has issued, in order; empty for an unknown source.
    pub fn issued_events(&self, source: SourceId) -> &[IssuedEvent] {
        self.nodes.iter().find_map(|node| node.issued_events.get(&source)).map_or(&[], Vec::as_slice)
    }

    /// Returns all sources that ever ran, in ascending order.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + use<> {
        self.nodes.iter().flat_map(|node| node.issued_events.keys().copied()).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns the node on which a source runs or ran; `None` for an unknown source.
    pub fn node_of(&self, source: SourceId) -> Option<usize> {
        self.nodes.iter().position(|node| node.issued_events.contains_key(&source))
    }

    /// Returns whether this source still runs; false after a crash or leave, even if its node runs a newer source.
    pub fn is_running(&self, source: SourceId) -> bool {
        self.node_at(address(source)).is_some()
    }

    /// Starts a server at a node. Every run is a new source. The first server founds the group time and has source id
    /// 1, the lowest.
    pub fn start_server(&mut self, node: usize) {
        let is_founder = self.sources().next().is_none();
        let local = self.local_time(node);
        let source = if is_founder { SourceId(1) } else { self.new_source() };
        let config = MirrorConfig { source, is_founder, seed: self.seed(), ..self.nodes[node].plan.config.clone() };
        let mut mirror = Mirror::new(local, config).expect("the plan is valid");
        for other in self.active_nodes().into_iter().filter(|other| *other != node) {
            let other_local = self.local_time(other);
            if let Some(server) = self.nodes[other].server.as_mut() {
                mirror.add_peer(local, server.mirror.source());
                server.mirror.add_peer(other_local, source);
            }
        }
        self.nodes[node].issued_events.insert(source, Vec::new());
        self.nodes[node].server = Some(MirrorServer::new(mirror));
        self.set_address(node, address(source));
        self.wake(node);
    }

    /// Returns the first source id of the seed's sequence that no server has had yet.
    fn new_source(&self) -> SourceId {
        let mut random = Random::stream(self.seed(), "sources");
        loop {
            let source = SourceId(random.bits() as u32);
            if source.0 > 1 && self.node_of(source).is_none() {
                return source;
            }
        }
    }

    /// Stops the server at a node without a leave message.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].server = None;
        self.remove_address(node);
    }

    /// Stops the server at a node with a leave message.
    pub fn leave(&mut self, node: usize) {
        self.nodes[node].server.iter_mut().for_each(|server| server.mirror.leave());
        self.transmit(node, &mut |_, _| ());
        self.stop(node);
    }

    /// Lets the server at a node issue the events of its script from now on.
    pub fn start_issuing(&mut self, node: usize) {
        let now = self.now();
        self.nodes[node].server.iter_mut().for_each(|server| server.next_issue_at = Some(now));
        self.wake(node);
    }

    /// Stops the issuing of events by the server at a node.
    pub fn stop_issuing(&mut self, node: usize) {
        self.nodes[node].server.iter_mut().for_each(|server| server.next_issue_at = None);
    }

    /// Returns whether the server at a node issues no events: it is not running, has not been started with
    /// [`start_issuing`](Self::start_issuing) or was stopped, or has issued its whole script.
    pub fn has_stopped_issuing(&self, node: usize) -> bool {
        self.server(node).is_none_or(|server| server.next_issue_at.is_none())
    }

    /// Processes all events up to the true time `until`, and passes the observations with their nodes to `observe`.
    pub fn run_until(&mut self, until: Instant, mut observe: impl FnMut(usize, MirrorObservation)) {
        self.run(until, &mut observe);
    }
}

impl EventScript {
    fn draw_event(&self, random: &mut Random) -> IssuedEvent {
        let (draw, key, value) = (random.unit(), 1 + random.below(self.keys.max(1)), random.bits());
        let [moves, nudges, resets, loose] = self.shares;
        let limit = [moves, moves + nudges, moves + nudges + resets, moves + nudges + resets + loose];
        let kinds = [EventKind::Move, EventKind::Nudge, EventKind::Reset, EventKind::Action];
        let found = limit.iter().position(|limit| draw < *limit);
        let key = if found == Some(3) { 0 } else { key };
        IssuedEvent { key, kind: found.map_or(EventKind::Action, |found| kinds[found]), value }
    }
}
