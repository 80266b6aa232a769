//! Spectators of a scenario's session. Each subscribes to the feed of a site or of another spectator, which then is a
//! relay. Some spectators misbehave.
//!
//! The spectators have addresses, links and an event queue of their own. They take turns with the [`SessionNetwork`]
//! and exchange only external datagrams with it.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::session::{Settings, State};
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};

use super::checker::SessionChecker;
use crate::session_network::SessionNetwork;
use crate::toy_machine::ToyMachine;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, Loss, Rate};
use coplay_links::random::Random;

/// Interval of virtual time at which the session and the spectators take turns.
pub const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(2);
/// Address of the first spectator. The others follow in order.
const FIRST_ADDRESS: u64 = 10_000;
/// Probability that a scenario has spectators.
const SPECTATED_SHARE: f64 = 0.22;
/// Time after its join at which a spectator with [`SpectatorBehavior::Silent`] stops sending.
const SILENT_AFTER: TimeDelta = TimeDelta::from_secs(2);
/// Time after a spectator's subscription to its current source from which on its liveness is checked.
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(8);
/// Largest time by which a spectator that must stay live may be behind its source.
const MAX_BEHIND: TimeDelta = TimeDelta::from_secs(2);
/// Largest allowed memory of a spectator, and separately of the feed of a relay, in bytes.
const MAX_MEMORY: usize = 512 * 1_024;
/// Number of calls at one instant above which a spectator counts as looping endlessly.
const MAX_CALLS_PER_INSTANT: u32 = 20_000;

/// Plan of all spectators of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectatorsPlan {
    /// Plans in order of the spectators' numbers. A relay comes before the spectators that use it.
    pub spectators: Vec<SpectatorPlan>,
}

/// Plan of one spectator.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectatorPlan {
    /// Sources in order of preference.
    pub sources: Vec<SpectatorSource>,
    /// Conditions in each direction between the spectator and its sources.
    pub link: LinkConfig,
    /// True time at which the spectator subscribes.
    pub joins_at: Instant,
    /// Fault of the spectator, if any.
    pub behavior: SpectatorBehavior,
}

/// Feed to which a spectator subscribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorSource {
    /// The feed of the site with this number.
    Site(usize),
    /// The feed of the spectator with this number, which acts as a relay.
    Spectator(usize),
}

/// Fault of a spectator, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorBehavior {
    /// The spectator has no fault.
    Sound,
    /// The spectator stops sending 2 s after its join.
    Silent,
    /// The spectator's link carries only 1,500 bytes per second in each direction.
    Slow,
    /// The spectator corrupts half of its datagrams at random.
    Garbage,
}

impl SpectatorsPlan {
    /// Draws 2 to 5 spectators of a scenario with this many sites, or `None` in 78 % of the scenarios. The stream name
    /// is part of the seed and must not change.
    pub fn draw(seed: u64, sites: usize, link: impl Fn(&mut Random) -> LinkConfig) -> Option<Self> {
        let mut random = Random::stream(seed, "gallery");
        if !random.chance(SPECTATED_SHARE) {
            return None;
        }
        let mut spectators: Vec<SpectatorPlan> = Vec::new();
        for _ in 0..random.range(2..=5) {
            let relays: Vec<usize> =
                (0..spectators.len()).filter(|index| spectators[*index].behavior == SpectatorBehavior::Sound).collect();
            let relay =
                (!relays.is_empty() && random.chance(0.5)).then(|| SpectatorSource::Spectator(*random.pick(&relays)));
            let first = random.below(sites as u64) as usize;
            let at_sites = (first..sites).chain(0..first).map(SpectatorSource::Site);
            let mut link = link(&mut random);
            let behavior = *random.pick(&[
                SpectatorBehavior::Sound,
                SpectatorBehavior::Sound,
                SpectatorBehavior::Sound,
                SpectatorBehavior::Silent,
                SpectatorBehavior::Slow,
                SpectatorBehavior::Garbage,
            ]);
            if behavior == SpectatorBehavior::Slow {
                link.rate = Some(Rate { bytes_per_second: 1_500, queue_bytes: 3_000 });
            }
            let joins_at = Instant::ZERO + TimeDelta::from_millis(random.range(0..=12_000));
            spectators.push(SpectatorPlan {
                sources: relay.into_iter().chain(at_sites).collect(),
                link,
                joins_at,
                behavior,
            });
        }
        Some(Self { spectators })
    }

    /// Returns whether the first source of some spectator is a relay.
    pub fn has_relay(&self) -> bool {
        self.spectators.iter().any(|node| matches!(node.sources.first(), Some(SpectatorSource::Spectator(_))))
    }

    fn is_relay(&self, number: usize) -> bool {
        self.spectators.iter().any(|node| node.sources.contains(&SpectatorSource::Spectator(number)))
    }
}

impl SpectatorPlan {
    /// Returns whether the spectator must stay live: it has no fault, and its link has no rate limit, no bursts of
    /// loss, and less than 10 % loss.
    fn must_stay_live(&self) -> bool {
        let loss = match self.link.loss {
            Loss::None => 0.0,
            Loss::Independent(loss) => loss,
            Loss::Bursty { .. } | Loss::Outages { .. } => 1.0,
        };
        self.behavior == SpectatorBehavior::Sound && loss < 0.1 && self.link.rate.is_none()
    }
}

/// Spectators of a running scenario, with their links and their event queue.
#[derive(Debug)]
pub struct SpectatorNetwork {
    plan: SpectatorsPlan,
    seed: u64,
    session_id: u64,
    settings: Settings,
    nodes: Vec<Option<SpectatorNode>>,
    queue: TimedEventQueue<SpectatorQueueEvent>,
    now: Instant,
    random: Random,
    outgoing: Vec<(usize, Addr, Vec<u8>, SenderRole)>,
}

/// A spectator's computer, with a machine and, if it is a relay, a feed.
#[derive(Debug)]
struct SpectatorNode {
    spectator: Spectator,
    feed: Option<Feed>,
    machine: ToyMachine,
    uplink: Link,
    downlink: Link,
    /// Address of the current source; `None` before the first subscription and while the source changes.
    source: Option<Addr>,
    /// Time of the last subscription that a source accepted; the start of the spectator before the first.
    source_since: Instant,
    wake_id: u64,
    calls_at_instant: (Instant, u32),
    peak_memory: usize,
    violation: Option<String>,
}

/// Part of a spectator's computer that sends a datagram.
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
    /// Creates a network that the spectators of the plan join at their times.
    pub fn new(seed: u64, session: u64, settings: Settings, plan: SpectatorsPlan) -> Self {
        let mut queue = TimedEventQueue::new();
        for (number, node) in plan.spectators.iter().enumerate() {
            queue.push(node.joins_at, SpectatorQueueEvent::Join { node: number });
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

    /// Exchanges datagrams with the session network, and runs the spectators up to the time of that network. Reports
    /// the spectators' loads and steps to the checker.
    pub fn catch_up(&mut self, network: &mut SessionNetwork, checker: &mut SessionChecker) {
        for (at, sender, to, bytes) in network.take_external() {
            self.send_downlink(at, sender, to, &bytes);
        }
        while let Some((at, event)) =
            self.queue.next_time().filter(|at| *at <= network.now()).and_then(|_| self.queue.pop())
        {
            self.now = self.now.max(at);
            match event {
                SpectatorQueueEvent::Join { node } => self.join(node, network, checker),
                SpectatorQueueEvent::Wake { node, wake_id } => {
                    if self.nodes[node].as_ref().is_some_and(|node| node.wake_id == wake_id) {
                        self.run_host_program(node, checker);
                    }
                }
                SpectatorQueueEvent::Arrive { to, sender, bytes } => self.deliver(to, sender, &bytes, network, checker),
            }
        }
    }

    /// Puts a datagram on the downlink of the spectator at `to`; without such a spectator it is lost.
    fn send_downlink(&mut self, at: Instant, sender: Addr, to: Addr, bytes: &[u8]) {
        let Some(node) = spectator_at(to).and_then(|node| self.nodes.get_mut(node)?.as_mut()) else { return };
        for arrival in node.downlink.send(at, bytes.len()) {
            self.queue.push(arrival, SpectatorQueueEvent::Arrive { to, sender, bytes: bytes.to_vec() });
        }
    }

    fn join(&mut self, number: usize, network: &SessionNetwork, checker: &mut SessionChecker) {
        let plan = &self.plan.spectators[number];
        let sources = plan.sources.iter().map(|source| match source {
            SpectatorSource::Site(site) => SessionNetwork::address(*site, network.nodes[*site].address_changes()),
            SpectatorSource::Spectator(spectator) => spectator_address(*spectator),
        });
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 64 * 1_024,
            ..SpectatorConfig::new(self.session_id, self.settings.clone(), sources.collect())
        };
        let link = |direction: &str| Link::new(plan.link.clone(), self.seed, &format!("{direction} {number}"));
        self.nodes[number] = Some(SpectatorNode {
            spectator: Spectator::new(self.now, config).expect("settings are valid"),
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
        self.run_host_program(number, checker);
    }

    /// Gives a spectator that is a relay a new feed, when it starts and when it has loaded a state.
    fn reset_feed(&mut self, number: usize) {
        let config = FeedConfig::new(self.session_id, self.random.bits(), self.settings.clone());
        if let Some(node) = self.nodes[number].as_mut().filter(|_| self.plan.is_relay(number)) {
            node.feed = Some(Feed::new(config).expect("settings are valid"));
        }
    }

    fn deliver(
        &mut self,
        to: Addr,
        sender: Addr,
        bytes: &[u8],
        network: &mut SessionNetwork,
        checker: &mut SessionChecker,
    ) {
        let Some(number) = spectator_at(to) else { return network.deliver_external(sender, to, bytes, &mut |_| ()) };
        let Some(node) = self.nodes.get_mut(number).and_then(Option::as_mut) else { return };
        // A spectator subscribes only to earlier ones, so a datagram of a later one is for the feed.
        match (&mut node.feed, spectator_at(sender)) {
            (Some(feed), Some(asking)) if asking > number => feed.handle_datagram(self.now, sender, bytes),
            _ => node.spectator.handle_datagram(self.now, sender, bytes),
        }
        self.run_host_program(number, checker);
    }

    /// Runs the host program of a spectator: serves its requests, sends its datagrams, and schedules its next wake-up.
    fn run_host_program(&mut self, number: usize, checker: &mut SessionChecker) {
        let now = self.now;
        while self.nodes[number].as_mut().is_some_and(|node| node.serve_requests(number, now, checker)) {
            self.reset_feed(number);
            self.publish_snapshot(number);
        }
        let Some(node) = &mut self.nodes[number] else { return };
        node.poll_output(number, now, &mut self.outgoing);
        node.detect_busy_loop(now);
        if let Some(at) = node.next_timeout().filter(|_| node.violation.is_none()) {
            node.wake_id += 1;
            self.queue.push(at.max(now), SpectatorQueueEvent::Wake { node: number, wake_id: node.wake_id });
        }
        let mut sent = std::mem::take(&mut self.outgoing);
        for (from, to, bytes, role) in sent.drain(..) {
            self.transmit(from, to, bytes, role);
        }
        self.outgoing = sent;
    }

    /// Passes the state that a relay has loaded to its new feed.
    fn publish_snapshot(&mut self, number: usize) {
        let now = self.now;
        if let Some(SpectatorNode { feed: Some(feed), machine, spectator, .. }) = &mut self.nodes[number] {
            feed.set_snapshot(now, spectator.next_frame(), &machine.to_bytes(), machine.hash());
        }
    }

    /// Sends a datagram of spectator `from`: from its feed to another spectator, or from the spectator itself to its
    /// source. Silence and corruption are applied here.
    fn transmit(&mut self, from: usize, to: Addr, mut bytes: Vec<u8>, role: SenderRole) {
        if role == SenderRole::Feed {
            return self.send_downlink(self.now, spectator_address(from), to, &bytes);
        }
        let plan = &self.plan.spectators[from];
        match plan.behavior {
            SpectatorBehavior::Silent if self.now > plan.joins_at + SILENT_AFTER => return,
            SpectatorBehavior::Garbage if self.random.chance(0.5) => corrupt_datagram(&mut self.random, &mut bytes),
            _ => {}
        }
        let Some(node) = &mut self.nodes[from] else { return };
        for at in node.uplink.send(self.now, bytes.len()) {
            self.queue
                .push(at, SpectatorQueueEvent::Arrive { to, sender: spectator_address(from), bytes: bytes.clone() });
        }
    }

    /// Reports violations at the end of a run: spectators that must stay live, joined a healthy source at least 8 s
    /// ago, and are not live or too far behind; and any spectator that used too much memory, received an invalid state
    /// or looped endlessly. `fps` is the measured frame rate of each site.
    pub fn check(&self, network: &SessionNetwork, checker: &mut SessionChecker, fps: &[f64]) {
        // In a game of four or more, a quorum may lack inputs of a site outside it. Its members prove that they have
        // confirmed a frame only by their inputs, which run ahead of their confirmed frames by up to this many frames.
        let is_proof_needed = network.nodes.len() > 3;
        let publish_lag =
            if is_proof_needed { self.settings.input_delay + self.settings.prediction_window + 1 } else { 0 };
        let max_behind = (MAX_BEHIND.as_secs_f64() / self.settings.rate.period().as_secs_f64()) as u32 + publish_lag;
        for (number, (plan, node)) in self.plan.spectators.iter().zip(&self.nodes).enumerate() {
            let Some(node) = node else { continue };
            if let Some(description) = &node.violation {
                checker.report_violation("agreement", format!("spectator {number} {description}"));
            }
            if node.peak_memory > MAX_MEMORY {
                checker.report_violation("bounds", format!("spectator {number} uses {} bytes", node.peak_memory));
            }
            let Some(source_frame) = self.source_frame(node, network, fps) else { continue };
            if !plan.must_stay_live() || !node.is_settled(network.now()) {
                continue;
            }
            let next_frame = node.spectator.next_frame();
            let behind = (source_frame - next_frame).max(0) as u32;
            if behind > max_behind || !node.spectator.is_live() {
                let live = if node.spectator.is_live() { "live" } else { "not live" };
                let description =
                    format!("spectator {number} is {live} and {behind} frames behind its source at the end");
                checker.report_violation("liveness", description);
            }
        }
    }

    /// Returns the next frame of a spectator's source; `None` if the source does not make progress as it should.
    fn source_frame(&self, node: &SpectatorNode, network: &SessionNetwork, fps: &[f64]) -> Option<Frame> {
        let source = node.source?;
        if let Some(relay) = spectator_at(source) {
            let relay = self.nodes[relay].as_ref()?;
            let is_healthy = relay.spectator.is_live() && relay.is_settled(network.now());
            return (is_healthy && self.source_frame(relay, network, fps).is_some())
                .then(|| relay.spectator.next_frame());
        }
        let number = network.node_at(source)?;
        let site = &network.nodes[number];
        let full = 1.0 / self.settings.rate.period().as_secs_f64();
        let is_healthy = !site.is_crashed && site.session.state() == State::Running && fps[number] > 0.9 * full;
        is_healthy.then(|| site.session.stats().confirmed)
    }
}

fn spectator_address(node: usize) -> Addr {
    Addr(FIRST_ADDRESS + node as u64)
}

fn spectator_at(addr: Addr) -> Option<usize> {
    addr.0.checked_sub(FIRST_ADDRESS).filter(|node| *node < 100).map(|node| node as usize)
}

/// Corrupts a datagram in one of four ways: flips a bit, cuts the end off, adds a byte, or overwrites the end.
fn corrupt_datagram(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len().max(1) as u64) as usize;
    match random.below(4) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => bytes.push(random.bits() as u8),
        _ => bytes[at..].fill_with(|| random.bits() as u8),
    }
}

impl SpectatorNode {
    /// Serves the spectator's requests. Returns `true` if a relay has loaded a state: the caller must replace the feed
    /// and call again.
    fn serve_requests(&mut self, number: usize, now: Instant, checker: &mut SessionChecker) -> bool {
        while let Some(request) = self.spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { next_frame, state, hash } => {
                    checker.on_spectator_load(number, next_frame.number(), hash);
                    match ToyMachine::from_bytes(self.machine.paddles.len(), state) {
                        Some(machine) if machine.hash() == hash => self.machine = machine,
                        _ => _ = self.violation.get_or_insert("received an invalid state".into()),
                    }
                    if self.feed.is_some() {
                        return true;
                    }
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.machine.step(inputs);
                    checker.on_spectator_step(number, frame.number(), inputs, self.machine.hash());
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

    /// Returns whether the spectator joined its current source at least [`SETTLING_TIME`] ago.
    fn is_settled(&self, now: Instant) -> bool {
        now - self.source_since >= SETTLING_TIME
    }

    fn next_timeout(&self) -> Option<Instant> {
        let feed = self.feed.as_ref().and_then(Feed::poll_timeout);
        self.spectator.poll_timeout().into_iter().chain(feed).min()
    }

    /// Records a violation if the spectator always asks to be called at once, which would stop virtual time.
    fn detect_busy_loop(&mut self, now: Instant) {
        self.calls_at_instant =
            if self.calls_at_instant.0 == now { (now, self.calls_at_instant.1 + 1) } else { (now, 0) };
        if self.calls_at_instant.1 > MAX_CALLS_PER_INSTANT {
            self.violation.get_or_insert("asks without end to be called at the same instant".into());
        }
    }
}
