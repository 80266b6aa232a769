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

use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, Loss, Rate};
use crate::random::Random;
use crate::session::checker::SessionChecker;
use crate::session_network::SessionNetwork;
use crate::toy_machine::ToyMachine;

/// The world and the gallery take turns of this length.
pub const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(2);
/// The address of the first seat.
const FIRST_ADDRESS: u64 = 10_000;
/// How many of all scenarios are watched.
const SPECTATED_SHARE: f64 = 0.22;
/// Whoever is silent says nothing more so long after it came.
const SILENT_AFTER: TimeDelta = TimeDelta::from_secs(2);
/// So long must somebody have watched at one place to be judged.
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(8);
/// And so far may it be behind then.
const MAX_BEHIND: TimeDelta = TimeDelta::from_secs(2);
/// The most memory that one who watches may take, and the feed of a relay.
const MAX_MEMORY: usize = 512 * 1_024;
/// More calls than this at one instant are without end.
const MAX_CALLS_PER_INSTANT: u32 = 20_000;

/// Who watches a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectatorsPlan {
    /// The seats; one that serves others comes before them.
    pub spectators: Vec<SpectatorPlan>,
}

/// One who watches.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectatorPlan {
    /// Where it asks, first things first.
    pub sources: Vec<SpectatorSource>,
    /// One direction of its way to them.
    pub link: LinkConfig,
    /// When it comes.
    pub joins_at: Instant,
    /// What is wrong with it.
    pub behavior: SpectatorBehavior,
}

/// Where somebody watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorSource {
    /// At a site.
    Site(usize),
    /// At another one who watches.
    Seat(usize),
}

/// What can be wrong with one who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorBehavior {
    /// Nothing.
    Sound,
    /// It says nothing any more.
    Silent,
    /// Its line carries next to nothing.
    Slow,
    /// It talks nonsense half of the time.
    Garbage,
}

impl SpectatorsPlan {
    /// Who watches a scenario of so many sites, if anybody does.
    pub fn draw(seed: u64, sites: usize, link: impl Fn(&mut Random) -> LinkConfig) -> Option<Self> {
        let mut luck = Random::stream(seed, "gallery");
        if !luck.chance(SPECTATED_SHARE) {
            return None;
        }
        let mut seats: Vec<SpectatorPlan> = Vec::new();
        for _ in 0..luck.range(2..=5) {
            let relays: Vec<usize> =
                (0..seats.len()).filter(|seat| seats[*seat].behavior == SpectatorBehavior::Sound).collect();
            let relay = (!relays.is_empty() && luck.chance(0.5)).then(|| SpectatorSource::Seat(*luck.pick(&relays)));
            let first = luck.below(sites as u64) as usize;
            let at_sites = (first..sites).chain(0..first).map(SpectatorSource::Site);
            let mut link = link(&mut luck);
            let habit = *luck.pick(&[
                SpectatorBehavior::Sound,
                SpectatorBehavior::Sound,
                SpectatorBehavior::Sound,
                SpectatorBehavior::Silent,
                SpectatorBehavior::Slow,
                SpectatorBehavior::Garbage,
            ]);
            if habit == SpectatorBehavior::Slow {
                link.rate = Some(Rate { bytes_per_second: 1_500, queue_bytes: 3_000 });
            }
            let comes = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=12_000));
            seats.push(SpectatorPlan {
                sources: relay.into_iter().chain(at_sites).collect(),
                link,
                joins_at: comes,
                behavior: habit,
            });
        }
        Some(Self { spectators: seats })
    }

    /// Whether somebody watches through a relay.
    pub fn has_relay(&self) -> bool {
        self.spectators.iter().any(|seat| matches!(seat.sources.first(), Some(SpectatorSource::Seat(_))))
    }

    fn is_relay(&self, number: usize) -> bool {
        self.spectators.iter().any(|seat| seat.sources.contains(&SpectatorSource::Seat(number)))
    }
}

impl SpectatorPlan {
    /// Whether nothing is in the way of seeing everything.
    fn must_stay_live(&self) -> bool {
        let loss = match self.link.loss {
            Loss::None => 0.0,
            Loss::Independent(loss) => loss,
            Loss::Bursty { .. } | Loss::Outages { .. } => 1.0,
        };
        self.behavior == SpectatorBehavior::Sound && loss < 0.1 && self.link.rate.is_none()
    }
}

/// Those who watch, at work.
#[derive(Debug)]
pub struct SpectatorNetwork {
    plan: SpectatorsPlan,
    seed: u64,
    session_id: u64,
    settings: Settings,
    nodes: Vec<Option<SpectatorNode>>,
    queue: EventQueue<SpectatorQueueEvent>,
    now: Instant,
    random: Random,
    outgoing: Vec<(usize, Addr, Vec<u8>, SenderRole)>,
}

/// One who watches: a computer with a machine, and with a feed if others watch there.
#[derive(Debug)]
struct SpectatorNode {
    spectator: Spectator,
    feed: Option<Feed>,
    machine: ToyMachine,
    uplink: Link,
    downlink: Link,
    /// Where it watches now.
    source: Option<Addr>,
    /// Since when it does: sources that are gone cost it the time to notice.
    source_since: Instant,
    wake_id: u64,
    calls_at_instant: (Instant, u32),
    peak_memory: usize,
    violation: Option<String>,
}

/// What of a seat sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderRole {
    Spectator,
    Feed,
}

#[derive(Debug)]
enum SpectatorQueueEvent {
    Join { node: usize },
    Wake { node: usize, wake_id: u64 },
    Arrive { to: Addr, sender: Addr, bytes: Vec<u8> },
}

impl SpectatorNetwork {
    /// An empty gallery, to which those of a plan will come.
    pub fn new(seed: u64, session: u64, settings: Settings, plan: SpectatorsPlan) -> Self {
        let mut queue = EventQueue::new();
        for (number, seat) in plan.spectators.iter().enumerate() {
            queue.push(seat.joins_at, SpectatorQueueEvent::Join { node: number });
        }
        Self {
            nodes: plan.spectators.iter().map(|_| None).collect(),
            plan,
            seed,
            session_id: session,
            settings,
            queue,
            now: Instant::ZERO,
            random: Random::stream(seed, "gallery at work"),
            outgoing: Vec::new(),
        }
    }

    /// Makes good for the time that the world is ahead.
    pub fn catch_up(&mut self, world: &mut SessionNetwork, ledger: &mut SessionChecker) {
        for (at, sender, to, bytes) in world.take_external() {
            self.send_downlink(at, sender, to, &bytes);
        }
        while let Some((at, happening)) =
            self.queue.next_time().filter(|at| *at <= world.now()).and_then(|_| self.queue.pop())
        {
            self.now = self.now.max(at);
            match happening {
                SpectatorQueueEvent::Join { node: seat } => self.join(seat, world, ledger),
                SpectatorQueueEvent::Wake { node: seat, wake_id: alarm } => {
                    if self.nodes[seat].as_ref().is_some_and(|seat| seat.wake_id == alarm) {
                        self.run_host_program(seat, ledger);
                    }
                }
                SpectatorQueueEvent::Arrive { to, sender, bytes } => self.deliver(to, sender, &bytes, world, ledger),
            }
        }
    }

    /// A datagram on its way to one who watches.
    fn send_downlink(&mut self, at: Instant, sender: Addr, to: Addr, bytes: &[u8]) {
        let Some(seat) = spectator_at(to).and_then(|seat| self.nodes.get_mut(seat)?.as_mut()) else { return };
        for arrival in seat.downlink.send(at, bytes.len()) {
            self.queue.push(arrival, SpectatorQueueEvent::Arrive { to, sender, bytes: bytes.to_vec() });
        }
    }

    fn join(&mut self, number: usize, world: &SessionNetwork, ledger: &mut SessionChecker) {
        let plan = &self.plan.spectators[number];
        let from = plan.sources.iter().map(|source| match source {
            SpectatorSource::Site(site) => SessionNetwork::address(*site, world.sites[*site].address_changes()),
            SpectatorSource::Seat(seat) => spectator_address(*seat),
        });
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 64 * 1_024,
            ..SpectatorConfig::new(self.session_id, self.settings.clone(), from.collect())
        };
        let link = |way: &str| Link::new(plan.link.clone(), self.seed, &format!("{way} {number}"));
        self.nodes[number] = Some(SpectatorNode {
            spectator: Spectator::new(self.now, config).expect("the settings are sound"),
            feed: None,
            machine: ToyMachine::new(self.settings.ownership.players()),
            uplink: link("up"),
            downlink: link("down"),
            source: None,
            source_since: self.now,
            wake_id: 0,
            calls_at_instant: (self.now, 0),
            peak_memory: 0,
            violation: None,
        });
        self.reset_feed(number);
        self.run_host_program(number, ledger);
    }

    /// A relay that begins anew, at another frame than the one that would follow, has a new feed.
    fn reset_feed(&mut self, number: usize) {
        let config = FeedConfig::new(self.session_id, self.random.bits(), self.settings.clone());
        if let Some(seat) = self.nodes[number].as_mut().filter(|_| self.plan.is_relay(number)) {
            seat.feed = Some(Feed::new(config).expect("the settings are sound"));
        }
    }

    fn deliver(
        &mut self,
        to: Addr,
        sender: Addr,
        bytes: &[u8],
        world: &mut SessionNetwork,
        ledger: &mut SessionChecker,
    ) {
        let Some(number) = spectator_at(to) else { return world.deliver_external(to, sender, bytes) };
        let Some(seat) = self.nodes.get_mut(number).and_then(Option::as_mut) else { return };
        // Whoever comes later asks, and is not asked.
        match (&mut seat.feed, spectator_at(sender)) {
            (Some(feed), Some(asking)) if asking > number => feed.handle_datagram(self.now, sender, bytes),
            _ => seat.spectator.handle_datagram(self.now, sender, bytes),
        }
        self.run_host_program(number, ledger);
    }

    /// The host program of one who watches.
    fn run_host_program(&mut self, number: usize, ledger: &mut SessionChecker) {
        let now = self.now;
        while self.nodes[number].as_mut().is_some_and(|seat| seat.serve_requests(number, now, ledger)) {
            self.reset_feed(number);
            self.publish_snapshot(number);
        }
        let Some(seat) = &mut self.nodes[number] else { return };
        seat.poll_output(number, now, &mut self.outgoing);
        seat.detect_busy_loop(now);
        if let Some(at) = seat.next_timeout().filter(|_| seat.violation.is_none()) {
            seat.wake_id += 1;
            self.queue.push(at.max(now), SpectatorQueueEvent::Wake { node: number, wake_id: seat.wake_id });
        }
        let mut sent = std::mem::take(&mut self.outgoing);
        for (from, to, bytes, part) in sent.drain(..) {
            self.transmit(from, to, bytes, part);
        }
        self.outgoing = sent;
    }

    /// Whoever watches at a relay gets the state with which that began anew.
    fn publish_snapshot(&mut self, number: usize) {
        let now = self.now;
        if let Some(SpectatorNode { feed: Some(feed), machine, spectator: watcher, .. }) = &mut self.nodes[number] {
            feed.set_snapshot(now, watcher.next_frame(), &machine.to_bytes(), machine.hash());
        }
    }

    /// A datagram leaves a seat: of its feed down to another, or of itself up to where it watches.
    fn transmit(&mut self, from: usize, to: Addr, mut bytes: Vec<u8>, part: SenderRole) {
        if part == SenderRole::Feed {
            return self.send_downlink(self.now, spectator_address(from), to, &bytes);
        }
        let plan = &self.plan.spectators[from];
        match plan.behavior {
            SpectatorBehavior::Silent if self.now > plan.joins_at + SILENT_AFTER => return,
            SpectatorBehavior::Garbage if self.random.chance(0.5) => corrupt_datagram(&mut self.random, &mut bytes),
            _ => {}
        }
        let Some(seat) = &mut self.nodes[from] else { return };
        for at in seat.uplink.send(self.now, bytes.len()) {
            self.queue
                .push(at, SpectatorQueueEvent::Arrive { to, sender: spectator_address(from), bytes: bytes.clone() });
        }
    }

    /// Those who can see everything do, and nobody takes more than it should.
    pub fn check(&self, world: &SessionNetwork, ledger: &mut SessionChecker, speeds: &[f64]) {
        let most_behind = (MAX_BEHIND.as_secs_f64() / self.settings.rate.period().as_secs_f64()) as u32;
        for (number, (plan, seat)) in self.plan.spectators.iter().zip(&self.nodes).enumerate() {
            let Some(seat) = seat else { continue };
            if let Some(what) = &seat.violation {
                ledger.report_violation("agreement", format!("watcher {number} {what}"));
            }
            if seat.peak_memory > MAX_MEMORY {
                ledger.report_violation("bounds", format!("watcher {number} takes {} bytes", seat.peak_memory));
            }
            let Some(there) = self.source_frame(seat, world, speeds) else { continue };
            if !plan.must_stay_live() || !seat.is_settled(world.now()) {
                continue;
            }
            let here = seat.spectator.next_frame();
            let behind = (there - here).max(0) as u32;
            if behind > most_behind || !seat.spectator.is_live() {
                let live = if seat.spectator.is_live() { "live" } else { "not live" };
                let what = format!("watcher {number} is {live} and {behind} frames behind at the end");
                ledger.report_violation("liveness", what);
            }
        }
    }

    /// The frame that a seat's source comes to next, if that goes on as it should.
    fn source_frame(&self, seat: &SpectatorNode, world: &SessionNetwork, speeds: &[f64]) -> Option<Frame> {
        let source = seat.source?;
        if let Some(relay) = spectator_at(source) {
            let relay = self.nodes[relay].as_ref()?;
            let goes_on = relay.spectator.is_live() && relay.is_settled(world.now());
            return (goes_on && self.source_frame(relay, world, speeds).is_some())
                .then(|| relay.spectator.next_frame());
        }
        let number = world.site_at(source)?;
        let site = &world.sites[number];
        let full = 1.0 / self.settings.rate.period().as_secs_f64();
        let goes_on = !site.is_crashed && site.session.state() == State::Running && speeds[number] > 0.9 * full;
        goes_on.then(|| site.session.stats().confirmed)
    }
}

fn spectator_address(seat: usize) -> Addr {
    Addr(FIRST_ADDRESS + seat as u64)
}

fn spectator_at(addr: Addr) -> Option<usize> {
    addr.0.checked_sub(FIRST_ADDRESS).filter(|seat| *seat < 100).map(|seat| seat as usize)
}

/// Changes a datagram in one of many ways.
fn corrupt_datagram(luck: &mut Random, bytes: &mut Vec<u8>) {
    let at = luck.below(bytes.len().max(1) as u64) as usize;
    match luck.below(4) {
        0 => bytes[at] ^= 1 << luck.below(8),
        1 => bytes.truncate(at),
        2 => bytes.push(luck.bits() as u8),
        _ => bytes[at..].fill_with(|| luck.bits() as u8),
    }
}

impl SpectatorNode {
    /// Does what the watcher asks for; says whether its feed must be made anew, and then it must be called again.
    fn serve_requests(&mut self, number: usize, now: Instant, ledger: &mut SessionChecker) -> bool {
        while let Some(request) = self.spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { next_frame, state, hash } => {
                    ledger.on_spectator_load(number, next_frame.number(), hash);
                    match ToyMachine::from_bytes(self.machine.paddles.len(), state) {
                        Some(machine) if machine.hash() == hash => self.machine = machine,
                        _ => _ = self.violation.get_or_insert("got a state that is none".into()),
                    }
                    if self.feed.is_some() {
                        return true;
                    }
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.machine.step(inputs);
                    ledger.on_spectator_step(number, frame.number(), inputs, self.machine.hash());
                    if let Some(feed) = &mut self.feed {
                        feed.push(now, frame, inputs);
                        if feed.wants_snapshot() {
                            feed.set_snapshot(now, frame.next(), &self.machine.to_bytes(), self.machine.hash());
                        }
                    }
                }
                SpectatorRequest::Hash { frame, expected } => {
                    self.spectator.handle_hash(self.machine.hash());
                    if let Some(feed) = &mut self.feed {
                        feed.push_hash(frame, expected);
                    }
                }
            }
        }
        false
    }

    fn poll_output(&mut self, number: usize, now: Instant, sent: &mut Vec<(usize, Addr, Vec<u8>, SenderRole)>) {
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.spectator.poll_transmit(now, &mut buf) {
            sent.push((number, packet.to, buf[..packet.len].to_vec(), SenderRole::Spectator));
        }
        while let Some(packet) = self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, &mut buf)) {
            sent.push((number, packet.to, buf[..packet.len].to_vec(), SenderRole::Feed));
        }
        while let Some(event) = self.spectator.poll_event() {
            match event {
                SpectatorEvent::Joined { source } => (self.source, self.source_since) = (Some(source), now),
                SpectatorEvent::SourceChanged { .. } => self.source = None,
                _ => {}
            }
        }
        let feed = self.feed.as_ref().map_or(0, Feed::memory);
        self.peak_memory = self.peak_memory.max(self.spectator.memory()).max(feed);
    }

    /// Whether it has watched at one place for long enough to be judged.
    fn is_settled(&self, now: Instant) -> bool {
        now - self.source_since >= SETTLING_TIME
    }

    fn next_timeout(&self) -> Option<Instant> {
        let feed = self.feed.as_ref().and_then(Feed::poll_timeout);
        self.spectator.poll_timeout().into_iter().chain(feed).min()
    }

    /// A watcher that always wants to be called at once would stop time.
    fn detect_busy_loop(&mut self, now: Instant) {
        self.calls_at_instant =
            if self.calls_at_instant.0 == now { (now, self.calls_at_instant.1 + 1) } else { (now, 0) };
        if self.calls_at_instant.1 > MAX_CALLS_PER_INSTANT {
            self.violation.get_or_insert("wants to be called again and again".into());
        }
    }
}
