//! Fault tests of [`coplay::mirror`]: mirrored servers in virtual time, with a clock per server and links between all
//! of them.

mod checker;
mod run;
mod sabotage;
mod scenario;
mod test_game;

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{Mirror, MirrorConfig, MirrorDestination, MirrorEvent, MirrorRequest, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};

pub use sabotage::MirrorSabotage;
pub use scenario::{FEATURES, MirrorFault, MirrorScenario};
pub use test_game::{EventKind, IssuedEvent, SourceState, TestObject};

use crate::clock::NodeClock;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, LinkStats};
use coplay_links::random::{LogNormal, Random};

/// Nodes, the servers that run on them, and the links between all nodes.
pub struct MirrorNetwork {
    now: Instant,
    seed: u64,
    nodes: Vec<ServerNode>,
    /// Node of every source that ever ran.
    node_by_source: BTreeMap<SourceId, usize>,
    /// Links, by `from * nodes + to`.
    links: Vec<Link>,
    queue: TimedEventQueue<MirrorQueueEvent>,
    /// All issued events, by source. The first has sequence number 1.
    issued_events: BTreeMap<SourceId, Vec<IssuedEvent>>,
    sources: Random,
    sabotage: Option<MirrorSabotage>,
}

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

/// A computer on which a server may run.
struct ServerNode {
    plan: MirrorServerPlan,
    server: Option<MirrorServer>,
    /// Time of the next wake-up. Queued wake-ups for other times are void.
    next_wake: Instant,
    run_count: u32,
    random: Random,
    issue_intervals: LogNormal,
}

/// A running server: its mirror, and its copy of the game.
pub struct MirrorServer {
    /// The engine under test.
    pub mirror: Mirror,
    /// State of the game at this server, one part per source.
    pub source_states: BTreeMap<SourceId, SourceState>,
    busy_until: Instant,
    next_issue_at: Option<Instant>,
    issued_count: u32,
}

enum MirrorQueueEvent {
    Wake { node: usize },
    Arrive { from: SourceId, to: SourceId, bytes: Box<[u8]> },
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

impl MirrorNetwork {
    /// Creates one node per plan. `link(from, to)` returns the conditions of the link from node `from` to node `to`. No
    /// server runs yet.
    pub fn new(seed: u64, plans: &[MirrorServerPlan], link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = plans.len();
        let node = |(number, plan): (usize, &MirrorServerPlan)| ServerNode {
            plan: plan.clone(),
            server: None,
            next_wake: Instant::FAR_FUTURE,
            run_count: 0,
            random: Random::stream(seed, &format!("script {number}")),
            issue_intervals: LogNormal::new(plan.script.every.as_nanos() as f64, plan.script.spread.as_nanos() as f64),
        };
        let make_link = |at: usize| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from} to {to}"))
        };
        Self {
            now: Instant::ZERO,
            seed,
            nodes: plans.iter().enumerate().map(node).collect(),
            node_by_source: BTreeMap::new(),
            links: (0..count * count).map(make_link).collect(),
            queue: TimedEventQueue::new(),
            issued_events: BTreeMap::new(),
            sources: Random::stream(seed, "sources"),
            sabotage: None,
        }
    }

    /// Sets the defect of the first node.
    pub fn set_sabotage(&mut self, sabotage: Option<MirrorSabotage>) {
        self.sabotage = sabotage;
    }

    fn sabotage_of(&self, node: usize) -> Option<MirrorSabotage> {
        self.sabotage.filter(|_| node == 0)
    }

    /// Returns the virtual time, from which each node's clock deviates.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the seed from which all random draws of the network follow.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the time that a node's clock shows now.
    pub fn local_time(&self, node: usize) -> Instant {
        self.nodes[node].plan.clock.local(self.now)
    }

    /// Returns the server at a node; `None` if none runs there.
    pub fn server(&self, node: usize) -> Option<&MirrorServer> {
        self.nodes[node].server.as_ref()
    }

    /// Returns the indices of the nodes on which a server runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].server.is_some()).collect()
    }

    /// Returns the link that carries datagrams from node `from` to node `to`.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.nodes.len() + to]
    }

    /// Returns all events that a source has issued, in order; empty for an unknown source.
    pub fn issued_events(&self, source: SourceId) -> &[IssuedEvent] {
        self.issued_events.get(&source).map_or(&[], Vec::as_slice)
    }

    /// Returns all sources that ever ran, in ascending order.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.node_by_source.keys().copied()
    }

    /// Returns the node on which a source runs or ran; `None` for an unknown source.
    pub fn node_of(&self, source: SourceId) -> Option<usize> {
        self.node_by_source.get(&source).copied()
    }

    /// Returns whether this source still runs; false after a crash or leave, even if its node runs a newer source.
    pub fn is_running(&self, source: SourceId) -> bool {
        let server = self.node_of(source).and_then(|node| self.server(node));
        server.is_some_and(|server| server.mirror.source() == source)
    }

    /// Returns the sum of the counters of all links.
    pub fn traffic(&self) -> LinkStats {
        let mut sum = LinkStats::default();
        for stats in self.links.iter().map(Link::stats) {
            sum.sent += stats.sent;
            sum.bytes += stats.bytes;
            sum.lost += stats.lost;
            sum.duplicated += stats.duplicated;
            sum.overflowed += stats.overflowed;
            sum.cut += stats.cut;
        }
        sum
    }

    /// Starts a server at a node. Every run is a new source. The first server founds the group time and has source id
    /// 1, the lowest.
    pub fn start_server(&mut self, node: usize) {
        let is_founder = self.node_by_source.is_empty();
        let local = self.local_time(node);
        let source = if is_founder { SourceId(1) } else { self.new_source() };
        let config = MirrorConfig { source, is_founder, seed: self.seed, ..self.nodes[node].plan.config.clone() };
        let mut mirror = Mirror::new(local, config).expect("the plan is valid");
        for other in self.active_nodes().into_iter().filter(|other| *other != node) {
            let other_local = self.local_time(other);
            if let Some(server) = self.nodes[other].server.as_mut() {
                mirror.add_peer(local, server.mirror.source());
                server.mirror.add_peer(other_local, source);
            }
        }
        self.node_by_source.insert(source, node);
        self.issued_events.insert(source, Vec::new());
        self.nodes[node].run_count += 1;
        self.nodes[node].server = Some(MirrorServer {
            mirror,
            source_states: BTreeMap::new(),
            busy_until: Instant::ZERO,
            next_issue_at: None,
            issued_count: 0,
        });
        self.schedule_wake(node, self.now);
    }

    fn new_source(&mut self) -> SourceId {
        loop {
            let source = SourceId(self.sources.bits() as u32);
            if source.0 > 1 && !self.node_by_source.contains_key(&source) {
                return source;
            }
        }
    }

    /// Stops the server at a node without a leave message.
    pub fn crash(&mut self, node: usize) {
        self.nodes[node].server = None;
    }

    /// Stops the server at a node with a leave message.
    pub fn leave(&mut self, node: usize) {
        self.nodes[node].server.iter_mut().for_each(|server| server.mirror.leave());
        self.transmit(node);
        self.crash(node);
    }

    /// Lets the server at a node issue the events of its script from now on.
    pub fn start_issuing(&mut self, node: usize) {
        let now = self.now;
        if let Some(server) = self.nodes[node].server.as_mut() {
            server.next_issue_at = Some(now);
        }
        self.schedule_wake(node, now);
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

    fn schedule_wake(&mut self, node: usize, at: Instant) {
        self.nodes[node].next_wake = at;
        self.queue.push(at, MirrorQueueEvent::Wake { node });
    }

    /// Processes all events up to the true time `until`, and passes the observations with their nodes to `observe`.
    pub fn run_until(&mut self, until: Instant, mut observe: impl FnMut(usize, MirrorObservation)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                MirrorQueueEvent::Arrive { from, to: target, bytes } => {
                    self.deliver(from, target, &bytes, &mut observe)
                }
                MirrorQueueEvent::Wake { node } if self.nodes[node].next_wake == at => {
                    self.run_server(node, &mut observe)
                }
                MirrorQueueEvent::Wake { .. } => {}
            }
        }
        self.now = self.now.max(until);
    }

    fn deliver(
        &mut self,
        from: SourceId,
        target: SourceId,
        bytes: &[u8],
        observe: &mut impl FnMut(usize, MirrorObservation),
    ) {
        let (from_node, to) = (self.node_by_source[&from], self.node_by_source[&target]);
        let local = self.local_time(to);
        if !self.link_mut(from_node, to).admit_arrival() || !self.is_running(target) {
            return;
        }
        let tampered = self.sabotage_of(to).map(|sabotage| sabotage.tamper_incoming(bytes));
        if let Some(server) = self.nodes[to].server.as_mut() {
            server.mirror.handle_datagram(local, from, tampered.as_deref().unwrap_or(bytes));
            self.run_server(to, observe);
        }
    }

    /// Lets the server at a node issue due events, serve requests, apply delivered events and send datagrams, and
    /// schedules its next wake-up.
    fn run_server(&mut self, node: usize, observe: &mut impl FnMut(usize, MirrorObservation)) {
        self.issue_due_events(node);
        self.serve_requests(node, observe);
        self.transmit(node);
        let (now, clock) = (self.now, self.nodes[node].plan.clock);
        let Some(server) = self.nodes[node].server.as_ref() else { return };
        let timeout = clock.true_time(server.mirror.poll_timeout());
        let busy = if server.busy_until > now { server.busy_until } else { Instant::FAR_FUTURE };
        let next = timeout.min(busy).min(server.next_issue_at.unwrap_or(Instant::FAR_FUTURE));
        self.schedule_wake(node, next.max(now + TimeDelta::from_micros(1)));
    }

    fn issue_due_events(&mut self, node: usize) {
        let (now, local) = (self.now, self.local_time(node));
        let ServerNode { plan, server, random, issue_intervals, .. } = &mut self.nodes[node];
        let Some(server) = server else { return };
        while let Some(at) = server.next_issue_at.filter(|at| *at <= now) {
            let issued = plan.script.draw_event(random);
            let payload = issued.payload(plan.script.bytes);
            if server.mirror.issue(local, issued.to_issue(&payload)).is_ok() {
                self.issued_events.entry(server.mirror.source()).or_default().push(issued);
                server.issued_count += 1;
            }
            let next = at + TimeDelta::from_nanos(issue_intervals.sample(random) as i64);
            server.next_issue_at = (server.issued_count < plan.script.count).then_some(next);
        }
    }

    fn serve_requests(&mut self, node: usize, observe: &mut impl FnMut(usize, MirrorObservation)) {
        let (now, local) = (self.now, self.local_time(node));
        let sabotage = self.sabotage_of(node);
        let ServerNode { plan, server, .. } = &mut self.nodes[node];
        let Some(server) = server else { return };
        while let Some(request) = server.mirror.poll_request(local) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let bytes = server.source_states.get(&of).map(|part| part.save(plan.bulk)).unwrap_or_default();
                    server.mirror.handle_snapshot(local, of, &bytes);
                }
                MirrorRequest::Install { of, mut bytes } => {
                    sabotage.into_iter().for_each(|sabotage| sabotage.tamper_snapshot(&mut bytes));
                    server.source_states.insert(of, SourceState::load(&bytes));
                    observe(node, MirrorObservation::Installed { of });
                }
            }
        }
        while server.busy_until <= now {
            let Some(delivery) = server.mirror.poll_delivery(local) else { break };
            let (source, seq) = (delivery.source, delivery.seq);
            let part = server.source_states.entry(source).or_default();
            let times = sabotage.map_or(1, |sabotage| sabotage.apply_count(&delivery));
            let in_order = (0..times).all(|_| part.apply_payload(seq, delivery.key, delivery.payload));
            let (at, gtd, late, own) = (delivery.at, delivery.gtd, delivery.is_out_of_order, delivery.is_own);
            if plan.work > TimeDelta::ZERO {
                server.busy_until = now + plan.work;
            }
            observe(
                node,
                MirrorObservation::Delivered {
                    source,
                    seq,
                    at,
                    gtd,
                    is_in_order: in_order,
                    is_late: late,
                    is_own: own,
                },
            );
        }
        while let Some(event) = server.mirror.poll_event() {
            observe(node, MirrorObservation::EngineEvent(event));
        }
    }

    fn transmit(&mut self, node: usize) {
        let local = self.local_time(node);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(server) = self.nodes[node].server.as_mut() {
            let Some(transmit) = server.mirror.poll_transmit(local, &mut buf) else { return };
            let source = server.mirror.source();
            let targets: Vec<SourceId> = match transmit.to {
                MirrorDestination::All => server.mirror.peers().collect(),
                MirrorDestination::One(source) => vec![source],
            };
            for target in targets {
                self.send((source, node), target, &buf[..transmit.len]);
            }
        }
    }

    /// Puts a datagram on the link to a source's node. A source that no longer runs receives nothing.
    fn send(&mut self, (from, from_node): (SourceId, usize), target: SourceId, bytes: &[u8]) {
        let Some(to) = self.node_of(target).filter(|to| *to != from_node && self.is_running(target)) else {
            return;
        };
        let now = self.now;
        let sabotage = self.sabotage_of(from_node);
        for at in self.link_mut(from_node, to).send(now, bytes.len()) {
            let bytes = sabotage.map_or_else(|| bytes.into(), |sabotage| sabotage.tamper_outgoing(bytes));
            self.queue.push(at, MirrorQueueEvent::Arrive { from, to: target, bytes });
        }
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
