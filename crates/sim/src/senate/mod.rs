//! Servers that mirror each other in virtual time: seats with clocks of their own, each with its server, and links between all of them.

mod game;
mod judge;
mod sabotage;
mod scenario;

use std::collections::BTreeMap;

use coplay::mirror::{Mirror, MirrorConfig, MirrorDestination, MirrorEvent, MirrorRequest, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

pub use game::{Issued, Kind, Object, Part};
pub use sabotage::Sabotage;
pub use scenario::{Fault, KINDS, Scenario};

use crate::clock::NodeClock;
use crate::link::{Link, LinkConfig, LinkStats};
use crate::queue::Queue;
use crate::random::{LogNormal, Random};

/// All seats, and the ways between them.
pub struct Senate {
    now: Instant,
    seed: u64,
    seats: Vec<Seat>,
    /// The seat of each source that ever was.
    by_source: BTreeMap<SourceId, usize>,
    /// One direction each, by `from * seats + to`.
    links: Vec<Link>,
    queue: Queue<Happening>,
    /// All events that were issued, by source; the first has the number 1.
    journal: BTreeMap<SourceId, Vec<Issued>>,
    sources: Random,
    sabotage: Option<Sabotage>,
}

/// A seat as it is planned.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its clock.
    pub clock: NodeClock,
    /// Its mirror; who it is will be chosen for every run of it.
    pub config: MirrorConfig,
    /// How long it takes to take in one event.
    pub work: TimeDelta,
    /// What it issues.
    pub script: Script,
    /// Bytes that its snapshots have beside what is in them.
    pub bulk: usize,
}

/// What a seat issues, once it is [told to](Senate::speak).
#[derive(Clone, Copy, Debug)]
pub struct Script {
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
struct Seat {
    plan: Plan,
    server: Option<Server>,
    /// The next time it is woken; older ones do not count.
    wake: Instant,
    runs: u32,
    luck: Random,
    spacing: LogNormal,
}

/// A server: its mirror, and the game as it is there.
pub struct Server {
    /// The engine.
    pub mirror: Mirror,
    /// The game: one part for each source.
    pub parts: BTreeMap<SourceId, Part>,
    busy: Instant,
    next_issue: Option<Instant>,
    issued: u32,
}

enum Happening {
    Wake { seat: usize },
    Arrive { from: SourceId, for_whom: SourceId, bytes: Box<[u8]> },
}

/// What was seen at a seat.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
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
        in_order: bool,
        /// Whether the engine says that it should have come before.
        late: bool,
        /// Whether it is the seat's own.
        own: bool,
    },
    /// A part of the game was taken over from somebody else.
    Installed {
        /// Whose objects.
        of: SourceId,
    },
    /// The engine says something.
    Noticed(MirrorEvent),
}

impl Senate {
    /// Seats with links between them; nobody is there yet.
    pub fn new(seed: u64, plans: &[Plan], link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = plans.len();
        let seat = |(number, plan): (usize, &Plan)| Seat {
            plan: plan.clone(),
            server: None,
            wake: Instant::FAR_FUTURE,
            runs: 0,
            luck: Random::stream(seed, &format!("script {number}")),
            spacing: LogNormal::new(plan.script.every.as_nanos() as f64, plan.script.spread.as_nanos() as f64),
        };
        let way = |at: usize| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from} to {to}"))
        };
        Self {
            now: Instant::ZERO,
            seed,
            seats: plans.iter().enumerate().map(seat).collect(),
            by_source: BTreeMap::new(),
            links: (0..count * count).map(way).collect(),
            queue: Queue::new(),
            journal: BTreeMap::new(),
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
    pub fn local(&self, seat: usize) -> Instant {
        self.seats[seat].plan.clock.local(self.now)
    }

    /// The server at a seat, if one runs.
    pub fn server(&self, seat: usize) -> Option<&Server> {
        self.seats[seat].server.as_ref()
    }

    /// The seats at which a server runs.
    pub fn present(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|seat| self.seats[*seat].server.is_some()).collect()
    }

    /// One direction of the way between two seats.
    pub fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.seats.len() + to]
    }

    /// All events that a source has issued.
    pub fn journal(&self, source: SourceId) -> &[Issued] {
        self.journal.get(&source).map_or(&[], Vec::as_slice)
    }

    /// All sources that ever were.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.by_source.keys().copied()
    }

    /// The seat at which a source runs, or ran.
    pub fn seat_of(&self, source: SourceId) -> Option<usize> {
        self.by_source.get(&source).copied()
    }

    /// Whether a source still runs.
    pub fn runs(&self, source: SourceId) -> bool {
        let server = self.seat_of(source).and_then(|seat| self.server(seat));
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
    pub fn enter(&mut self, seat: usize) {
        let founder = self.by_source.is_empty();
        let local = self.local(seat);
        let source = if founder { SourceId(1) } else { self.fresh_source() };
        let config =
            MirrorConfig { source, is_founder: founder, seed: self.seed, ..self.seats[seat].plan.config.clone() };
        let mut mirror = Mirror::new(local, config).expect("a sane plan");
        for other in self.present().into_iter().filter(|other| *other != seat) {
            let other_local = self.local(other);
            if let Some(server) = self.seats[other].server.as_mut() {
                mirror.add_peer(local, server.mirror.source());
                server.mirror.add_peer(other_local, source);
            }
        }
        self.by_source.insert(source, seat);
        self.journal.insert(source, Vec::new());
        let place = &mut self.seats[seat];
        place.runs += 1;
        place.server =
            Some(Server { mirror, parts: BTreeMap::new(), busy: Instant::ZERO, next_issue: None, issued: 0 });
        self.wake(seat, self.now);
    }

    fn fresh_source(&mut self) -> SourceId {
        loop {
            let source = SourceId(self.sources.bits() as u32);
            if source.0 > 1 && !self.by_source.contains_key(&source) {
                return source;
            }
        }
    }

    /// The server is gone without a word.
    pub fn crash(&mut self, seat: usize) {
        self.seats[seat].server = None;
    }

    /// The server says goodbye and goes.
    pub fn leave(&mut self, seat: usize) {
        self.seats[seat].server.iter_mut().for_each(|server| server.mirror.leave());
        self.transmit(seat);
        self.crash(seat);
    }

    /// The server begins to issue events.
    pub fn speak(&mut self, seat: usize) {
        let now = self.now;
        if let Some(server) = self.seats[seat].server.as_mut() {
            server.next_issue = Some(now);
        }
        self.wake(seat, now);
    }

    /// The server issues nothing any more.
    pub fn hush(&mut self, seat: usize) {
        self.seats[seat].server.iter_mut().for_each(|server| server.next_issue = None);
    }

    /// Whether a seat has said all that it wants to say.
    pub fn is_silent(&self, seat: usize) -> bool {
        self.server(seat).is_none_or(|server| server.next_issue.is_none())
    }

    fn wake(&mut self, seat: usize, at: Instant) {
        self.seats[seat].wake = at;
        self.queue.push(at, Happening::Wake { seat });
    }

    /// Goes on until then, and tells what is seen.
    pub fn run(&mut self, until: Instant, mut seen: impl FnMut(usize, Seen)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                Happening::Arrive { from, for_whom, bytes } => self.arrive(from, for_whom, &bytes, &mut seen),
                Happening::Wake { seat } if self.seats[seat].wake == at => self.work(seat, &mut seen),
                Happening::Wake { .. } => {}
            }
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, from: SourceId, for_whom: SourceId, bytes: &[u8], seen: &mut impl FnMut(usize, Seen)) {
        let (from_seat, to) = (self.by_source[&from], self.by_source[&for_whom]);
        let local = self.local(to);
        if !self.link_mut(from_seat, to).admit_arrival() || !self.runs(for_whom) {
            return;
        }
        let spoiled = self.sabotage_of(to).map(|sabotage| sabotage.spoil_inward(bytes));
        if let Some(server) = self.seats[to].server.as_mut() {
            server.mirror.handle_datagram(local, from, spoiled.as_deref().unwrap_or(bytes));
            self.work(to, seen);
        }
    }

    /// Lets a server do what is due.
    fn work(&mut self, seat: usize, seen: &mut impl FnMut(usize, Seen)) {
        self.issue(seat);
        self.serve(seat, seen);
        self.transmit(seat);
        let (now, clock) = (self.now, self.seats[seat].plan.clock);
        let Some(server) = self.seats[seat].server.as_ref() else { return };
        let timeout = clock.true_time(server.mirror.poll_timeout());
        let busy = if server.busy > now { server.busy } else { Instant::FAR_FUTURE };
        let next = timeout.min(busy).min(server.next_issue.unwrap_or(Instant::FAR_FUTURE));
        self.wake(seat, next.max(now + TimeDelta::from_micros(1)));
    }

    fn issue(&mut self, seat: usize) {
        let (now, local) = (self.now, self.local(seat));
        let Seat { plan, server, luck, spacing, .. } = &mut self.seats[seat];
        let Some(server) = server else { return };
        while let Some(at) = server.next_issue.filter(|at| *at <= now) {
            let issued = plan.script.draw(luck);
            let payload = issued.payload(plan.script.bytes);
            if server.mirror.issue(local, issued.issue(&payload)).is_ok() {
                self.journal.entry(server.mirror.source()).or_default().push(issued);
                server.issued += 1;
            }
            let next = at + TimeDelta::from_nanos(spacing.sample(luck) as i64);
            server.next_issue = (server.issued < plan.script.count).then_some(next);
        }
    }

    fn serve(&mut self, seat: usize, seen: &mut impl FnMut(usize, Seen)) {
        let (now, local) = (self.now, self.local(seat));
        let sabotage = self.sabotage_of(seat);
        let Seat { plan, server, .. } = &mut self.seats[seat];
        let Some(server) = server else { return };
        while let Some(request) = server.mirror.poll_request(local) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let bytes = server.parts.get(&of).map(|part| part.save(plan.bulk)).unwrap_or_default();
                    server.mirror.handle_snapshot(local, of, &bytes);
                }
                MirrorRequest::Install { of, mut bytes } => {
                    sabotage.into_iter().for_each(|sabotage| sabotage.spoil_state(&mut bytes));
                    server.parts.insert(of, Part::load(&bytes));
                    seen(seat, Seen::Installed { of });
                }
            }
        }
        while server.busy <= now {
            let Some(delivery) = server.mirror.poll_delivery(local) else { break };
            let (source, seq) = (delivery.source, delivery.seq);
            let part = server.parts.entry(source).or_default();
            let times = sabotage.map_or(1, |sabotage| sabotage.times(&delivery));
            let in_order = (0..times).all(|_| part.take(seq, delivery.key, delivery.payload));
            let (at, gtd, late, own) = (delivery.at, delivery.gtd, delivery.is_out_of_order, delivery.is_own);
            if plan.work > TimeDelta::ZERO {
                server.busy = now + plan.work;
            }
            seen(seat, Seen::Delivered { source, seq, at, gtd, in_order, late, own });
        }
        while let Some(notice) = server.mirror.poll_event() {
            seen(seat, Seen::Noticed(notice));
        }
    }

    fn transmit(&mut self, seat: usize) {
        let local = self.local(seat);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(server) = self.seats[seat].server.as_mut() {
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
        let Some(to) = self.seat_of(for_whom).filter(|to| *to != from_seat && self.runs(for_whom)) else { return };
        let now = self.now;
        let sabotage = self.sabotage_of(from_seat);
        for at in self.link_mut(from_seat, to).send(now, bytes.len()) {
            let bytes = sabotage.map_or_else(|| bytes.into(), |sabotage| sabotage.spoil_outward(bytes));
            self.queue.push(at, Happening::Arrive { from, for_whom, bytes });
        }
    }
}

impl Script {
    fn draw(&self, luck: &mut Random) -> Issued {
        let (which, key, value) = (luck.unit(), 1 + luck.below(self.keys.max(1)), luck.bits());
        let [moves, nudges, resets, loose] = self.shares;
        let upto = [moves, moves + nudges, moves + nudges + resets, moves + nudges + resets + loose];
        let kinds = [Kind::Move, Kind::Nudge, Kind::Reset, Kind::Deed];
        let found = upto.iter().position(|upto| which < *upto);
        let key = if found == Some(3) { 0 } else { key };
        Issued { key, kind: found.map_or(Kind::Deed, |found| kinds[found]), value }
    }
}
