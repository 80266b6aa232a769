//! Servers that mirror each other in virtual time: seats with clocks of their own, each with its server, and links between all of them.

mod checker;
mod sabotage;
mod scenario;
mod test_game;

use std::collections::BTreeMap;

use coplay::mirror::{Mirror, MirrorConfig, MirrorDestination, MirrorEvent, MirrorRequest, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

pub use sabotage::Sabotage;
pub use scenario::{FEATURES, MirrorFault, MirrorScenario};
pub use test_game::{EventKind, IssuedEvent, SourceState, TestObject};

use crate::clock::NodeClock;
use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, LinkStats};
use crate::random::{LogNormal, Random};

/// All seats, and the ways between them.
pub struct MirrorNetwork {
    now: Instant,
    seed: u64,
    nodes: Vec<ServerNode>,
    /// The seat of each source that ever was.
    node_by_source: BTreeMap<SourceId, usize>,
    /// One direction each, by `from * seats + to`.
    links: Vec<Link>,
    queue: EventQueue<MirrorQueueEvent>,
    /// All events that were issued, by source; the first has the number 1.
    issued_events: BTreeMap<SourceId, Vec<IssuedEvent>>,
    sources: Random,
    sabotage: Option<Sabotage>,
}

/// A seat as it is planned.
#[derive(Clone, Debug)]
pub struct MirrorServerPlan {
    /// Its clock.
    pub clock: NodeClock,
    /// Its mirror; who it is will be chosen for every run of it.
    pub config: MirrorConfig,
    /// How long it takes to take in one event.
    pub work: TimeDelta,
    /// What it issues.
    pub script: EventScript,
    /// Bytes that its snapshots have beside what is in them.
    pub bulk: usize,
}

/// What a seat issues, once it is [told to](MirrorNetwork::speak).
#[derive(Clone, Copy, Debug)]
pub struct EventScript {
    /// The mean time between two events.
    pub every: TimeDelta,
    /// Its standard deviation.
    pub spread: TimeDelta,
    /// How many events, in one run.
    pub count: u32,
    /// About how many objects.
    pub keys: u64,
    /// The share of moves, of nudges, of resets and of events about nothing; the rest are deeds.
    pub shares: [f64; 4],
    /// Bytes of an event.
    pub bytes: usize,
}

/// A computer at which a server may run.
struct ServerNode {
    plan: MirrorServerPlan,
    server: Option<MirrorServer>,
    /// The next time it is woken; older ones do not count.
    next_wake: Instant,
    run_count: u32,
    random: Random,
    issue_intervals: LogNormal,
}

/// A server: its mirror, and the game as it is there.
pub struct MirrorServer {
    /// The engine.
    pub mirror: Mirror,
    /// The game: one part for each source.
    pub source_states: BTreeMap<SourceId, SourceState>,
    busy_until: Instant,
    next_issue_at: Option<Instant>,
    issued_count: u32,
}

enum MirrorQueueEvent {
    Wake { node: usize },
    Arrive { from: SourceId, to: SourceId, bytes: Box<[u8]> },
}

/// What was seen at a seat.
#[derive(Clone, Copy, Debug)]
pub enum MirrorObservation {
    /// An event was delivered.
    Delivered {
        /// Whose.
        source: SourceId,
        /// Which.
        seq: u64,
        /// When it was issued.
        at: GroupInstant,
        /// How long it took, as the engine measures it.
        gtd: TimeDelta,
        /// Whether it came in its order among those of its object, and for the first time.
        is_in_order: bool,
        /// Whether the engine says that it should have come before.
        is_late: bool,
        /// Whether it is the seat's own.
        is_own: bool,
    },
    /// A part of the game was taken over from somebody else.
    Installed {
        /// Whose objects.
        of: SourceId,
    },
    /// The engine says something.
    EngineEvent(MirrorEvent),
}

impl MirrorNetwork {
    /// Seats with links between them; nobody is there yet.
    pub fn new(seed: u64, plans: &[MirrorServerPlan], link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = plans.len();
        let seat = |(number, plan): (usize, &MirrorServerPlan)| ServerNode {
            plan: plan.clone(),
            server: None,
            next_wake: Instant::FAR_FUTURE,
            run_count: 0,
            random: Random::stream(seed, &format!("script {number}")),
            issue_intervals: LogNormal::new(plan.script.every.as_nanos() as f64, plan.script.spread.as_nanos() as f64),
        };
        let way = |at: usize| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from} to {to}"))
        };
        Self {
            now: Instant::ZERO,
            seed,
            nodes: plans.iter().enumerate().map(seat).collect(),
            node_by_source: BTreeMap::new(),
            links: (0..count * count).map(way).collect(),
            queue: EventQueue::new(),
            issued_events: BTreeMap::new(),
            sources: Random::stream(seed, "sources"),
            sabotage: None,
        }
    }

    /// Breaks the first seat.
    pub fn set_sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.sabotage = sabotage;
    }

    fn sabotage_of(&self, seat: usize) -> Option<Sabotage> {
        self.sabotage.filter(|_| seat == 0)
    }

    /// The true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The seed of all of it.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What a seat's clock shows.
    pub fn local_time(&self, seat: usize) -> Instant {
        self.nodes[seat].plan.clock.local(self.now)
    }

    /// The server at a seat, if one runs.
    pub fn server(&self, seat: usize) -> Option<&MirrorServer> {
        self.nodes[seat].server.as_ref()
    }

    /// The seats at which a server runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|seat| self.nodes[*seat].server.is_some()).collect()
    }

    /// One direction of the way between two seats.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.nodes.len() + to]
    }

    /// All events that a source has issued.
    pub fn issued_events(&self, source: SourceId) -> &[IssuedEvent] {
        self.issued_events.get(&source).map_or(&[], Vec::as_slice)
    }

    /// All sources that ever were.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.node_by_source.keys().copied()
    }

    /// The seat at which a source runs, or ran.
    pub fn node_of(&self, source: SourceId) -> Option<usize> {
        self.node_by_source.get(&source).copied()
    }

    /// Whether a source still runs.
    pub fn is_running(&self, source: SourceId) -> bool {
        let server = self.node_of(source).and_then(|seat| self.server(seat));
        server.is_some_and(|server| server.mirror.source() == source)
    }

    /// What became of all packets.
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

    /// A server is started at a seat; every run is another source. The first of all begins the time, and the lowest source is the first seat's first.
    pub fn start_server(&mut self, seat: usize) {
        let founder = self.node_by_source.is_empty();
        let local = self.local_time(seat);
        let source = if founder { SourceId(1) } else { self.new_source() };
        let config =
            MirrorConfig { source, is_founder: founder, seed: self.seed, ..self.nodes[seat].plan.config.clone() };
        let mut mirror = Mirror::new(local, config).expect("a sane plan");
        for other in self.active_nodes().into_iter().filter(|other| *other != seat) {
            let other_local = self.local_time(other);
            if let Some(server) = self.nodes[other].server.as_mut() {
                mirror.add_peer(local, server.mirror.source());
                server.mirror.add_peer(other_local, source);
            }
        }
        self.node_by_source.insert(source, seat);
        self.issued_events.insert(source, Vec::new());
        let place = &mut self.nodes[seat];
        place.run_count += 1;
        place.server = Some(MirrorServer {
            mirror,
            source_states: BTreeMap::new(),
            busy_until: Instant::ZERO,
            next_issue_at: None,
            issued_count: 0,
        });
        self.schedule_wake(seat, self.now);
    }

    fn new_source(&mut self) -> SourceId {
        loop {
            let source = SourceId(self.sources.bits() as u32);
            if source.0 > 1 && !self.node_by_source.contains_key(&source) {
                return source;
            }
        }
    }

    /// The server is gone without a word.
    pub fn crash(&mut self, seat: usize) {
        self.nodes[seat].server = None;
    }

    /// The server says goodbye and goes.
    pub fn leave(&mut self, seat: usize) {
        self.nodes[seat].server.iter_mut().for_each(|server| server.mirror.leave());
        self.transmit(seat);
        self.crash(seat);
    }

    /// The server begins to issue events.
    pub fn start_issuing(&mut self, seat: usize) {
        let now = self.now;
        if let Some(server) = self.nodes[seat].server.as_mut() {
            server.next_issue_at = Some(now);
        }
        self.schedule_wake(seat, now);
    }

    /// The server issues nothing any more.
    pub fn stop_issuing(&mut self, seat: usize) {
        self.nodes[seat].server.iter_mut().for_each(|server| server.next_issue_at = None);
    }

    /// Whether a seat has said all that it wants to say.
    pub fn has_stopped_issuing(&self, seat: usize) -> bool {
        self.server(seat).is_none_or(|server| server.next_issue_at.is_none())
    }

    fn schedule_wake(&mut self, seat: usize, at: Instant) {
        self.nodes[seat].next_wake = at;
        self.queue.push(at, MirrorQueueEvent::Wake { node: seat });
    }

    /// Goes on until then, and tells what is seen.
    pub fn run_until(&mut self, until: Instant, mut seen: impl FnMut(usize, MirrorObservation)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                MirrorQueueEvent::Arrive { from, to: for_whom, bytes } => {
                    self.deliver(from, for_whom, &bytes, &mut seen)
                }
                MirrorQueueEvent::Wake { node: seat } if self.nodes[seat].next_wake == at => {
                    self.run_server(seat, &mut seen)
                }
                MirrorQueueEvent::Wake { .. } => {}
            }
        }
        self.now = self.now.max(until);
    }

    fn deliver(
        &mut self,
        from: SourceId,
        for_whom: SourceId,
        bytes: &[u8],
        seen: &mut impl FnMut(usize, MirrorObservation),
    ) {
        let (from_seat, to) = (self.node_by_source[&from], self.node_by_source[&for_whom]);
        let local = self.local_time(to);
        if !self.link_mut(from_seat, to).admit_arrival() || !self.is_running(for_whom) {
            return;
        }
        let spoiled = self.sabotage_of(to).map(|sabotage| sabotage.tamper_incoming(bytes));
        if let Some(server) = self.nodes[to].server.as_mut() {
            server.mirror.handle_datagram(local, from, spoiled.as_deref().unwrap_or(bytes));
            self.run_server(to, seen);
        }
    }

    /// Lets a server do what is due.
    fn run_server(&mut self, seat: usize, seen: &mut impl FnMut(usize, MirrorObservation)) {
        self.issue_due_events(seat);
        self.serve_requests(seat, seen);
        self.transmit(seat);
        let (now, clock) = (self.now, self.nodes[seat].plan.clock);
        let Some(server) = self.nodes[seat].server.as_ref() else { return };
        let timeout = clock.true_time(server.mirror.poll_timeout());
        let busy = if server.busy_until > now { server.busy_until } else { Instant::FAR_FUTURE };
        let next = timeout.min(busy).min(server.next_issue_at.unwrap_or(Instant::FAR_FUTURE));
        self.schedule_wake(seat, next.max(now + TimeDelta::from_micros(1)));
    }

    fn issue_due_events(&mut self, seat: usize) {
        let (now, local) = (self.now, self.local_time(seat));
        let ServerNode { plan, server, random: luck, issue_intervals: spacing, .. } = &mut self.nodes[seat];
        let Some(server) = server else { return };
        while let Some(at) = server.next_issue_at.filter(|at| *at <= now) {
            let issued = plan.script.draw_event(luck);
            let payload = issued.payload(plan.script.bytes);
            if server.mirror.issue(local, issued.to_issue(&payload)).is_ok() {
                self.issued_events.entry(server.mirror.source()).or_default().push(issued);
                server.issued_count += 1;
            }
            let next = at + TimeDelta::from_nanos(spacing.sample(luck) as i64);
            server.next_issue_at = (server.issued_count < plan.script.count).then_some(next);
        }
    }

    fn serve_requests(&mut self, seat: usize, seen: &mut impl FnMut(usize, MirrorObservation)) {
        let (now, local) = (self.now, self.local_time(seat));
        let sabotage = self.sabotage_of(seat);
        let ServerNode { plan, server, .. } = &mut self.nodes[seat];
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
                    seen(seat, MirrorObservation::Installed { of });
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
            seen(
                seat,
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
        while let Some(notice) = server.mirror.poll_event() {
            seen(seat, MirrorObservation::EngineEvent(notice));
        }
    }

    fn transmit(&mut self, seat: usize) {
        let local = self.local_time(seat);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(server) = self.nodes[seat].server.as_mut() {
            let Some(transmit) = server.mirror.poll_transmit(local, &mut buf) else { return };
            let me = server.mirror.source();
            let targets: Vec<SourceId> = match transmit.to {
                MirrorDestination::All => server.mirror.peers().collect(),
                MirrorDestination::One(source) => vec![source],
            };
            for target in targets {
                self.send((me, seat), target, &buf[..transmit.len]);
            }
        }
    }

    /// What is for a server that is no more gets nowhere.
    fn send(&mut self, (from, from_seat): (SourceId, usize), for_whom: SourceId, bytes: &[u8]) {
        let Some(to) = self.node_of(for_whom).filter(|to| *to != from_seat && self.is_running(for_whom)) else {
            return;
        };
        let now = self.now;
        let sabotage = self.sabotage_of(from_seat);
        for at in self.link_mut(from_seat, to).send(now, bytes.len()) {
            let bytes = sabotage.map_or_else(|| bytes.into(), |sabotage| sabotage.tamper_outgoing(bytes));
            self.queue.push(at, MirrorQueueEvent::Arrive { from, to: for_whom, bytes });
        }
    }
}

impl EventScript {
    fn draw_event(&self, luck: &mut Random) -> IssuedEvent {
        let (which, key, value) = (luck.unit(), 1 + luck.below(self.keys.max(1)), luck.bits());
        let [moves, nudges, resets, loose] = self.shares;
        let upto = [moves, moves + nudges, moves + nudges + resets, moves + nudges + resets + loose];
        let kinds = [EventKind::Move, EventKind::Nudge, EventKind::Reset, EventKind::Action];
        let found = upto.iter().position(|upto| which < *upto);
        let key = if found == Some(3) { 0 } else { key };
        IssuedEvent { key, kind: found.map_or(EventKind::Action, |found| kinds[found]), value }
    }
}
