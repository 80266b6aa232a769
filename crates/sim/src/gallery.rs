//! Those who watch the game of a scenario: from a site, through a relay, or through a relay of a relay; some of them badly.
//!
//! They have addresses, links and a queue of their own and take turns with the [`World`], which knows nothing of them but that some
//! datagrams go out of it and others come in.

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::session::{Settings, State};
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::check::Ledger;
use crate::link::{Link, LinkConfig, Loss, Rate};
use crate::queue::Queue;
use crate::random::Random;
use crate::toy::Toy;
use crate::world::World;

/// The world and the gallery take turns of this length.
pub const TURN: TimeDelta = TimeDelta::from_millis(2);
/// The address of the first seat.
const FIRST: u64 = 10_000;
/// How many of all scenarios are watched.
const SHARE: f64 = 0.22;
/// Whoever is silent says nothing more so long after it came.
const TALKS_FOR: TimeDelta = TimeDelta::from_secs(2);
/// So long must somebody have watched at one place to be judged.
const SETTLED: TimeDelta = TimeDelta::from_secs(8);
/// And so far may it be behind then.
const BEHIND: TimeDelta = TimeDelta::from_secs(2);
/// The most memory that one who watches may take, and the feed of a relay.
const MEMORY: usize = 512 * 1_024;
/// More calls than this at one instant are without end.
const MOST_DRIVES: u32 = 20_000;

/// Who watches a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seats; one that serves others comes before them.
    pub seats: Vec<SeatPlan>,
}

/// One who watches.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatPlan {
    /// Where it asks, first things first.
    pub from: Vec<Source>,
    /// One direction of its way to them.
    pub link: LinkConfig,
    /// When it comes.
    pub comes: Instant,
    /// What is wrong with it.
    pub habit: Habit,
}

/// Where somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// At a site.
    Site(usize),
    /// At another one who watches.
    Seat(usize),
}

/// What can be wrong with one who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Nothing.
    Sound,
    /// It says nothing any more.
    Silent,
    /// Its line carries next to nothing.
    Slow,
    /// It talks nonsense half of the time.
    Garbage,
}

impl Plan {
    /// Who watches a scenario of so many sites, if anybody does.
    pub fn draw(seed: u64, sites: usize, link: impl Fn(&mut Random) -> LinkConfig) -> Option<Self> {
        let mut luck = Random::stream(seed, "gallery");
        if !luck.chance(SHARE) {
            return None;
        }
        let mut seats: Vec<SeatPlan> = Vec::new();
        for _ in 0..luck.range(2..=5) {
            let relays: Vec<usize> = (0..seats.len()).filter(|seat| seats[*seat].habit == Habit::Sound).collect();
            let relay = (!relays.is_empty() && luck.chance(0.5)).then(|| Source::Seat(*luck.pick(&relays)));
            let first = luck.below(sites as u64) as usize;
            let at_sites = (first..sites).chain(0..first).map(Source::Site);
            let mut link = link(&mut luck);
            let habit =
                *luck.pick(&[Habit::Sound, Habit::Sound, Habit::Sound, Habit::Silent, Habit::Slow, Habit::Garbage]);
            if habit == Habit::Slow {
                link.rate = Some(Rate { bytes_per_second: 1_500, queue_bytes: 3_000 });
            }
            let comes = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=12_000));
            seats.push(SeatPlan { from: relay.into_iter().chain(at_sites).collect(), link, comes, habit });
        }
        Some(Self { seats })
    }

    /// Whether somebody watches through a relay.
    pub fn is_relayed(&self) -> bool {
        self.seats.iter().any(|seat| matches!(seat.from.first(), Some(Source::Seat(_))))
    }

    fn is_relay(&self, number: usize) -> bool {
        self.seats.iter().any(|seat| seat.from.contains(&Source::Seat(number)))
    }
}

impl SeatPlan {
    /// Whether nothing is in the way of seeing everything.
    fn is_decent(&self) -> bool {
        let loss = match self.link.loss {
            Loss::None => 0.0,
            Loss::Independent(loss) => loss,
            Loss::Bursty { .. } | Loss::Outages { .. } => 1.0,
        };
        self.habit == Habit::Sound && loss < 0.1 && self.link.rate.is_none()
    }
}

/// Those who watch, at work.
#[derive(Debug)]
pub struct Gallery {
    plan: Plan,
    seed: u64,
    session: u64,
    settings: Settings,
    seats: Vec<Option<Seat>>,
    queue: Queue<Happening>,
    now: Instant,
    luck: Random,
    sent: Vec<(usize, Addr, Vec<u8>, Part)>,
}

/// One who watches: a computer with a machine, and with a feed if others watch there.
#[derive(Debug)]
struct Seat {
    watcher: Spectator,
    feed: Option<Feed>,
    machine: Toy,
    up: Link,
    down: Link,
    /// Where it watches now.
    source: Option<Addr>,
    /// Since when it does: sources that are gone cost it the time to notice.
    since: Instant,
    alarm: u64,
    drives: (Instant, u32),
    most_memory: usize,
    nonsense: Option<String>,
}

/// What of a seat sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Watcher,
    Feed,
}

#[derive(Debug)]
enum Happening {
    Come { seat: usize },
    Wake { seat: usize, alarm: u64 },
    Arrive { to: Addr, sender: Addr, bytes: Vec<u8> },
}

impl Gallery {
    /// An empty gallery, to which those of a plan will come.
    pub fn new(seed: u64, session: u64, settings: Settings, plan: Plan) -> Self {
        let mut queue = Queue::new();
        for (number, seat) in plan.seats.iter().enumerate() {
            queue.push(seat.comes, Happening::Come { seat: number });
        }
        Self {
            seats: plan.seats.iter().map(|_| None).collect(),
            plan,
            seed,
            session,
            settings,
            queue,
            now: Instant::ZERO,
            luck: Random::stream(seed, "gallery at work"),
            sent: Vec::new(),
        }
    }

    /// Makes good for the time that the world is ahead.
    pub fn catch_up(&mut self, world: &mut World, ledger: &mut Ledger) {
        for (at, sender, to, bytes) in world.take_outside() {
            self.go_down(at, sender, to, &bytes);
        }
        while let Some((at, happening)) =
            self.queue.next_time().filter(|at| *at <= world.now()).and_then(|_| self.queue.pop())
        {
            self.now = self.now.max(at);
            match happening {
                Happening::Come { seat } => self.come(seat, world, ledger),
                Happening::Wake { seat, alarm } => {
                    if self.seats[seat].as_ref().is_some_and(|seat| seat.alarm == alarm) {
                        self.drive(seat, ledger);
                    }
                }
                Happening::Arrive { to, sender, bytes } => self.arrive(to, sender, &bytes, world, ledger),
            }
        }
    }

    /// A datagram on its way to one who watches.
    fn go_down(&mut self, at: Instant, sender: Addr, to: Addr, bytes: &[u8]) {
        let Some(seat) = seat_at(to).and_then(|seat| self.seats.get_mut(seat)?.as_mut()) else { return };
        for arrival in seat.down.send(at, bytes.len()) {
            self.queue.push(arrival, Happening::Arrive { to, sender, bytes: bytes.to_vec() });
        }
    }

    fn come(&mut self, number: usize, world: &World, ledger: &mut Ledger) {
        let plan = &self.plan.seats[number];
        let from = plan.from.iter().map(|source| match source {
            Source::Site(site) => World::address(*site, world.sites[*site].moves()),
            Source::Seat(seat) => address(*seat),
        });
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 64 * 1_024,
            ..SpectatorConfig::new(self.session, self.settings.clone(), from.collect())
        };
        let link = |way: &str| Link::new(plan.link.clone(), self.seed, &format!("{way} {number}"));
        self.seats[number] = Some(Seat {
            watcher: Spectator::new(self.now, config).expect("the settings are sound"),
            feed: None,
            machine: Toy::new(self.settings.ownership.players()),
            up: link("up"),
            down: link("down"),
            source: None,
            since: self.now,
            alarm: 0,
            drives: (self.now, 0),
            most_memory: 0,
            nonsense: None,
        });
        self.renew_feed(number);
        self.drive(number, ledger);
    }

    /// A relay that begins anew, at another frame than the one that would follow, has a new feed.
    fn renew_feed(&mut self, number: usize) {
        let config = FeedConfig::new(self.session, self.luck.bits(), self.settings.clone());
        if let Some(seat) = self.seats[number].as_mut().filter(|_| self.plan.is_relay(number)) {
            seat.feed = Some(Feed::new(config).expect("the settings are sound"));
        }
    }

    fn arrive(&mut self, to: Addr, sender: Addr, bytes: &[u8], world: &mut World, ledger: &mut Ledger) {
        let Some(number) = seat_at(to) else { return world.deliver(to, sender, bytes) };
        let Some(seat) = self.seats.get_mut(number).and_then(Option::as_mut) else { return };
        // Whoever comes later asks, and is not asked.
        match (&mut seat.feed, seat_at(sender)) {
            (Some(feed), Some(asking)) if asking > number => feed.handle_datagram(self.now, sender, bytes),
            _ => seat.watcher.handle_datagram(self.now, sender, bytes),
        }
        self.drive(number, ledger);
    }

    /// The host program of one who watches.
    fn drive(&mut self, number: usize, ledger: &mut Ledger) {
        let now = self.now;
        while self.seats[number].as_mut().is_some_and(|seat| seat.serve(number, now, ledger)) {
            self.renew_feed(number);
            self.reload(number);
        }
        let Some(seat) = &mut self.seats[number] else { return };
        seat.speak(number, now, &mut self.sent);
        seat.note_drive(now);
        if let Some(at) = seat.next_time().filter(|_| seat.nonsense.is_none()) {
            seat.alarm += 1;
            self.queue.push(at.max(now), Happening::Wake { seat: number, alarm: seat.alarm });
        }
        let mut sent = std::mem::take(&mut self.sent);
        for (from, to, bytes, part) in sent.drain(..) {
            self.go(from, to, bytes, part);
        }
        self.sent = sent;
    }

    /// Whoever watches at a relay gets the state with which that began anew.
    fn reload(&mut self, number: usize) {
        let now = self.now;
        if let Some(Seat { feed: Some(feed), machine, watcher, .. }) = &mut self.seats[number] {
            feed.set_snapshot(now, watcher.next_frame(), &machine.to_bytes(), machine.hash());
        }
    }

    /// A datagram leaves a seat: of its feed down to another, or of itself up to where it watches.
    fn go(&mut self, from: usize, to: Addr, mut bytes: Vec<u8>, part: Part) {
        if part == Part::Feed {
            return self.go_down(self.now, address(from), to, &bytes);
        }
        let plan = &self.plan.seats[from];
        match plan.habit {
            Habit::Silent if self.now > plan.comes + TALKS_FOR => return,
            Habit::Garbage if self.luck.chance(0.5) => spoil(&mut self.luck, &mut bytes),
            _ => {}
        }
        let Some(seat) = &mut self.seats[from] else { return };
        for at in seat.up.send(self.now, bytes.len()) {
            self.queue.push(at, Happening::Arrive { to, sender: address(from), bytes: bytes.clone() });
        }
    }

    /// Those who can see everything do, and nobody takes more than it should.
    pub fn judge(&self, world: &World, ledger: &mut Ledger, speeds: &[f64]) {
        let most_behind = (BEHIND.as_secs_f64() / self.settings.rate.period().as_secs_f64()) as u32;
        for (number, (plan, seat)) in self.plan.seats.iter().zip(&self.seats).enumerate() {
            let Some(seat) = seat else { continue };
            if let Some(what) = &seat.nonsense {
                ledger.violate("agreement", format!("watcher {number} {what}"));
            }
            if seat.most_memory > MEMORY {
                ledger.violate("bounds", format!("watcher {number} takes {} bytes", seat.most_memory));
            }
            let Some(there) = self.source_frame(seat, world, speeds) else { continue };
            if !plan.is_decent() || !seat.is_settled(world.now()) {
                continue;
            }
            let here = seat.watcher.next_frame();
            let behind = (there - here).max(0) as u32;
            if behind > most_behind || !seat.watcher.is_live() {
                let live = if seat.watcher.is_live() { "live" } else { "not live" };
                let what = format!("watcher {number} is {live} and {behind} frames behind at the end");
                ledger.violate("liveness", what);
            }
        }
    }

    /// The frame that a seat's source comes to next, if that goes on as it should.
    fn source_frame(&self, seat: &Seat, world: &World, speeds: &[f64]) -> Option<Frame> {
        let source = seat.source?;
        if let Some(relay) = seat_at(source) {
            let relay = self.seats[relay].as_ref()?;
            let goes_on = relay.watcher.is_live() && relay.is_settled(world.now());
            return (goes_on && self.source_frame(relay, world, speeds).is_some()).then(|| relay.watcher.next_frame());
        }
        let number = world.site_at(source)?;
        let site = &world.sites[number];
        let full = 1.0 / self.settings.rate.period().as_secs_f64();
        let goes_on = !site.crashed && site.session.state() == State::Running && speeds[number] > 0.9 * full;
        goes_on.then(|| site.session.stats().confirmed)
    }
}

fn address(seat: usize) -> Addr {
    Addr(FIRST + seat as u64)
}

fn seat_at(addr: Addr) -> Option<usize> {
    addr.0.checked_sub(FIRST).filter(|seat| *seat < 100).map(|seat| seat as usize)
}

/// Changes a datagram in one of many ways.
fn spoil(luck: &mut Random, bytes: &mut Vec<u8>) {
    let at = luck.below(bytes.len().max(1) as u64) as usize;
    match luck.below(4) {
        0 => bytes[at] ^= 1 << luck.below(8),
        1 => bytes.truncate(at),
        2 => bytes.push(luck.bits() as u8),
        _ => bytes[at..].fill_with(|| luck.bits() as u8),
    }
}

impl Seat {
    /// Does what the watcher asks for; says whether its feed must be made anew, and then it must be called again.
    fn serve(&mut self, number: usize, now: Instant, ledger: &mut Ledger) -> bool {
        while let Some(request) = self.watcher.poll_request(now) {
            match request {
                SpectatorRequest::Load { next_frame, state, hash } => {
                    ledger.on_watch_begins(number, next_frame.number(), hash);
                    match Toy::from_bytes(self.machine.paddles.len(), state) {
                        Some(machine) if machine.hash() == hash => self.machine = machine,
                        _ => _ = self.nonsense.get_or_insert("got a state that is none".into()),
                    }
                    if self.feed.is_some() {
                        return true;
                    }
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.machine.step(inputs);
                    ledger.on_watched(number, frame.number(), inputs, self.machine.hash());
                    if let Some(feed) = &mut self.feed {
                        feed.push(now, frame, inputs);
                        if feed.wants_snapshot() {
                            feed.set_snapshot(now, frame.next(), &self.machine.to_bytes(), self.machine.hash());
                        }
                    }
                }
                SpectatorRequest::Hash { frame, expected } => {
                    self.watcher.handle_hash(self.machine.hash());
                    if let Some(feed) = &mut self.feed {
                        feed.push_hash(frame, expected);
                    }
                }
            }
        }
        false
    }

    fn speak(&mut self, number: usize, now: Instant, sent: &mut Vec<(usize, Addr, Vec<u8>, Part)>) {
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.watcher.poll_transmit(now, &mut buf) {
            sent.push((number, packet.to, buf[..packet.len].to_vec(), Part::Watcher));
        }
        while let Some(packet) = self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, &mut buf)) {
            sent.push((number, packet.to, buf[..packet.len].to_vec(), Part::Feed));
        }
        while let Some(event) = self.watcher.poll_event() {
            match event {
                SpectatorEvent::Joined { source } => (self.source, self.since) = (Some(source), now),
                SpectatorEvent::SourceChanged { .. } => self.source = None,
                _ => {}
            }
        }
        let feed = self.feed.as_ref().map_or(0, Feed::memory);
        self.most_memory = self.most_memory.max(self.watcher.memory()).max(feed);
    }

    /// Whether it has watched at one place for long enough to be judged.
    fn is_settled(&self, now: Instant) -> bool {
        now - self.since >= SETTLED
    }

    fn next_time(&self) -> Option<Instant> {
        let feed = self.feed.as_ref().and_then(Feed::poll_timeout);
        self.watcher.poll_timeout().into_iter().chain(feed).min()
    }

    /// A watcher that always wants to be called at once would stop time.
    fn note_drive(&mut self, now: Instant) {
        self.drives = if self.drives.0 == now { (now, self.drives.1 + 1) } else { (now, 0) };
        if self.drives.1 > MOST_DRIVES {
            self.nonsense.get_or_insert("wants to be called again and again".into());
        }
    }
}
