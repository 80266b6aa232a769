//! Spectators of a scenario's session. Each subscribes to the feed of a site or of another spectator, which then is a
//! relay. Some spectators misbehave.
//!
//! The spectators have a network of their own, in which all sites together are one computer. It takes turns with the
//! [`SessionNetwork`], and both exchange only external datagrams.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::session::{Settings, State};
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};

use super::checker::SessionChecker;
use crate::clock::NodeClock;
use crate::network::{Computer, Datagram, Moment, Network, Node, Outbox, Reaction, Topology};
use crate::session_network::SessionNetwork;
use crate::toy_machine::ToyMachine;
use coplay_links::link::{LinkConfig, Loss, Rate};
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
/// Number of the computer that stands for all sites. Spectator n is computer n + 1.
const GATEWAY: usize = 0;

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

/// Spectators of a running scenario, with their links.
#[derive(Debug)]
pub struct SpectatorNetwork {
    plan: SpectatorsPlan,
    settings: Settings,
    network: Network<SpectatorNode>,
    random: Random,
}

/// A computer of the spectators' network.
#[derive(Debug)]
enum SpectatorNode {
    /// All sites of the session.
    Sites,
    Spectator(Box<SpectatorComputer>),
}

/// A computer on which a spectator runs from its join on.
#[derive(Debug)]
struct SpectatorComputer {
    number: usize,
    plan: SpectatorPlan,
    is_relay: bool,
    session_id: u64,
    settings: Settings,
    running: Option<RunningSpectator>,
    violation: Option<String>,
}

/// A spectator with its machine and, if it is a relay, a feed.
#[derive(Debug)]
struct RunningSpectator {
    spectator: Spectator,
    feed: Option<Feed>,
    machine: ToyMachine,
    /// Address of the current source; `None` before the first subscription and while the source changes.
    source: Option<Addr>,
    /// Time of the last subscription that a source accepted; the start of the spectator before the first.
    source_since: Instant,
    peak_memory: usize,
}

/// What all spectators of a scenario share.
struct SpectatorContext<'a> {
    sites: &'a mut SessionNetwork,
    checker: &'a mut SessionChecker,
    random: &'a mut Random,
}

impl SpectatorNetwork {
    /// Creates a network that the spectators of the plan join at their times.
    pub fn new(seed: u64, session: u64, settings: Settings, plan: SpectatorsPlan) -> Self {
        let mut nodes = vec![Computer::new(SpectatorNode::Sites, NodeClock::TRUE, Addr(u64::MAX))];
        nodes.extend(plan.spectators.iter().enumerate().map(|(number, spectator)| {
            let computer = SpectatorComputer {
                number,
                plan: spectator.clone(),
                is_relay: plan.is_relay(number),
                session_id: session,
                settings: settings.clone(),
                running: None,
                violation: None,
            };
            Computer::new(SpectatorNode::Spectator(Box::new(computer)), NodeClock::TRUE, spectator_address(number))
        }));
        let name = |node: usize, direction: &str| format!("{direction} {}", node - 1);
        let topology = Topology::tree(seed, nodes.len(), name, |node| plan.spectators[node - 1].link.clone());
        let mut network = Network::asleep(seed, nodes, topology);
        network.set_gateway(GATEWAY);
        for (number, spectator) in plan.spectators.iter().enumerate() {
            network.wake_at(number + 1, spectator.joins_at);
        }
        Self { plan, settings, network, random: Random::stream(seed, "gallery at work") }
    }

    /// Exchanges datagrams with the session network, and runs the spectators up to the time of that network. Reports
    /// the spectators' loads and steps to the checker.
    pub fn catch_up(&mut self, sites: &mut SessionNetwork, checker: &mut SessionChecker) {
        for (at, sender, to, bytes) in sites.take_external() {
            self.network.forward(at, GATEWAY, sender, to, &bytes);
        }
        let now = sites.now();
        self.network.run(now, &mut SpectatorContext { sites, checker, random: &mut self.random });
    }

    fn computer(&self, number: usize) -> Option<&SpectatorComputer> {
        match &self.network.nodes.get(number + 1)?.node {
            SpectatorNode::Spectator(computer) => Some(computer),
            SpectatorNode::Sites => None,
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
        for (number, plan) in self.plan.spectators.iter().enumerate() {
            let Some(computer) = self.computer(number) else { continue };
            if let Some(description) = &computer.violation {
                checker.report_violation("agreement", format!("spectator {number} {description}"));
            }
            let Some(node) = &computer.running else { continue };
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
    fn source_frame(&self, node: &RunningSpectator, network: &SessionNetwork, fps: &[f64]) -> Option<Frame> {
        let source = node.source?;
        if let Some(relay) = spectator_at(source) {
            let relay = self.computer(relay)?.running.as_ref()?;
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

fn spectator_address(number: usize) -> Addr {
    Addr(FIRST_ADDRESS + number as u64)
}

fn spectator_at(addr: Addr) -> Option<usize> {
    addr.0.checked_sub(FIRST_ADDRESS).filter(|number| *number < 100).map(|number| number as usize)
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

impl Node for SpectatorNode {
    type Context<'a> = SpectatorContext<'a>;

    fn handle_datagram(
        &mut self,
        now: &Moment<'_>,
        datagram: Datagram<'_>,
        context: &mut SpectatorContext<'_>,
    ) -> Reaction {
        let Datagram { from, to, bytes } = datagram;
        let Self::Spectator(computer) = self else {
            context.sites.deliver_external(from, to, bytes, &mut |_| ());
            return Reaction::Wait;
        };
        let Some(node) = &mut computer.running else { return Reaction::Wait };
        // A spectator subscribes only to earlier ones, so a datagram of a later one is for the feed.
        match (&mut node.feed, spectator_at(from)) {
            (Some(feed), Some(asking)) if asking > computer.number => feed.handle_datagram(now.now, from, bytes),
            _ => node.spectator.handle_datagram(now.now, from, bytes),
        }
        Reaction::Run
    }

    fn work(&mut self, now: &Moment<'_>, context: &mut SpectatorContext<'_>) -> Option<TimeDelta> {
        if let Self::Spectator(computer) = self {
            if computer.running.is_none() {
                computer.join(now.now, context);
            }
            computer.serve_requests(now.now, context);
        }
        None
    }

    /// Returns the next datagram of the spectator to its source or else of its feed to another spectator.
    fn poll_transmit(
        &mut self,
        now: &Moment<'_>,
        out: &mut Outbox<'_>,
        context: &mut SpectatorContext<'_>,
    ) -> Option<usize> {
        let Self::Spectator(computer) = self else { return None };
        let SpectatorComputer { plan, running: Some(node), .. } = &mut **computer else { return None };
        while let Some(packet) = node.spectator.poll_transmit(now.now, &mut out.buf[..MAX_DATAGRAM]) {
            if let Some(len) = plan.send(now.now, out.buf, packet.len, context.random) {
                out.to.push(packet.to);
                return Some(len);
            }
        }
        let packet = node.feed.as_mut()?.poll_transmit(now.now, &mut out.buf[..MAX_DATAGRAM])?;
        out.to.push(packet.to);
        Some(packet.len)
    }

    fn on_idle(&mut self, now: &Moment<'_>, _: &mut SpectatorContext<'_>) {
        let Self::Spectator(computer) = self else { return };
        computer.running.iter_mut().for_each(|node| node.on_idle(now.now));
    }

    /// Returns the next timeout of the spectator and its feed. A spectator that showed a violation gets none.
    fn poll_timeout(&mut self, _: &Moment<'_>) -> Option<Instant> {
        let Self::Spectator(computer) = self else { return None };
        let is_correct = computer.violation.is_none();
        let RunningSpectator { spectator, feed, .. } = computer.running.as_ref().filter(|_| is_correct)?;
        spectator.poll_timeout().into_iter().chain(feed.as_ref().and_then(Feed::poll_timeout)).min()
    }

    fn on_endless_loop(&mut self) {
        if let Self::Spectator(computer) = self {
            computer.violation.get_or_insert("asks without end to be called at the same instant".into());
        }
    }
}

impl SpectatorPlan {
    /// Applies silence and corruption to a datagram of the spectator. Returns its new length; `None` if it is not sent.
    fn send(&self, now: Instant, buf: &mut [u8], len: usize, random: &mut Random) -> Option<usize> {
        match self.behavior {
            SpectatorBehavior::Silent if now > self.joins_at + SILENT_AFTER => None,
            SpectatorBehavior::Garbage if random.chance(0.5) => {
                let mut bytes = buf[..len].to_vec();
                corrupt_datagram(random, &mut bytes);
                buf[..bytes.len()].copy_from_slice(&bytes);
                Some(bytes.len())
            }
            _ => Some(len),
        }
    }
}

impl SpectatorComputer {
    fn join(&mut self, now: Instant, context: &mut SpectatorContext<'_>) {
        let sources = self.plan.sources.iter().map(|source| match source {
            SpectatorSource::Site(site) => SessionNetwork::address(*site, context.sites.nodes[*site].address_changes()),
            SpectatorSource::Spectator(spectator) => spectator_address(*spectator),
        });
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 64 * 1_024,
            ..SpectatorConfig::new(self.session_id, self.settings.clone(), sources.collect())
        };
        self.running = Some(RunningSpectator {
            spectator: Spectator::new(now, config).expect("settings are valid"),
            feed: self.new_feed(context.random),
            machine: ToyMachine::new(self.settings.ownership.players()),
            source: None,
            source_since: now,
            peak_memory: 0,
        });
    }

    /// Returns the feed of a relay that starts or has loaded a state. The draw is made for every spectator.
    fn new_feed(&self, random: &mut Random) -> Option<Feed> {
        let config = FeedConfig::new(self.session_id, random.bits(), self.settings.clone());
        self.is_relay.then(|| Feed::new(config).expect("settings are valid"))
    }

    /// Serves the spectator's requests. A relay that loads a state passes it to a new feed.
    fn serve_requests(&mut self, now: Instant, context: &mut SpectatorContext<'_>) {
        while let Some(node) = &mut self.running
            && node.serve_requests(self.number, now, &mut self.violation, context.checker)
        {
            let mut feed = self.new_feed(context.random);
            let Some(RunningSpectator { feed: current, machine, spectator, .. }) = &mut self.running else { return };
            if let Some(feed) = &mut feed {
                feed.set_snapshot(now, spectator.next_frame(), &machine.to_bytes(), machine.hash());
            }
            *current = feed;
        }
    }
}

impl RunningSpectator {
    /// Serves the spectator's requests. Returns `true` if a relay has loaded a state: the caller must replace the feed
    /// and call again.
    fn serve_requests(
        &mut self,
        number: usize,
        now: Instant,
        violation: &mut Option<String>,
        checker: &mut SessionChecker,
    ) -> bool {
        while let Some(request) = self.spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { next_frame, state, hash } => {
                    checker.on_spectator_load(number, next_frame.number(), hash);
                    match ToyMachine::from_bytes(self.machine.paddles.len(), state) {
                        Some(machine) if machine.hash() == hash => self.machine = machine,
                        _ => _ = violation.get_or_insert("received an invalid state".into()),
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

    fn on_idle(&mut self, now: Instant) {
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
}
