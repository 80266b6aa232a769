//! Many spectators of one session: their cost, and a trace hash of the players that shows whether spectators change the
//! players' behaviour.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;
use crate::network::{Computer, Datagram, Moment, Network, Node, Outbox, Reaction, Topology};
use crate::session_experiment::SessionExperiment;
use crate::session_network::{SessionNetwork, SiteEvent};
use crate::toy_machine::mix_hash;
use coplay_links::link::{LinkConfig, Loss};
use coplay_links::random::Random;

/// Interval of virtual time at which the session and the spectators take turns.
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
/// Period, from the first confirmed frame on, within which all spectators join.
const JOIN_PERIOD: TimeDelta = TimeDelta::from_secs(4);
/// Address of the feed. Spectator n has this address plus n + 1.
const FEED_ADDRESS: Addr = Addr(1_000);
/// Number of the feed's computer. Spectator n is computer n + 1.
const FEED: usize = 0;

/// Parameters of a test with many spectators of one session.
#[derive(Clone, Debug)]
pub struct SpectatorScaleTest {
    /// Session that is watched; its seed is the seed of the whole test.
    pub session: SessionExperiment,
    /// Number of spectators that subscribe to the feed.
    pub spectators: usize,
    /// Conditions in each direction between the feed and every spectator.
    pub link: LinkConfig,
    /// Virtual time to run after the first confirmed frame.
    pub duration: TimeDelta,
    /// Size of the snapshot in bytes. Less than 8 counts as 8.
    pub state_bytes: usize,
}

impl SpectatorScaleTest {
    /// Creates a test of 20 s with two players over broadband links and this many spectators, each with a delay of 15
    /// to 30 ms and 1 % loss in each direction.
    pub fn new(spectators: usize) -> Self {
        let link = LinkConfig {
            jitter: coplay_links::link::Jitter::Uniform(TimeDelta::from_millis(15)),
            loss: Loss::Independent(0.01),
            ..LinkConfig::constant_rtt(TimeDelta::from_millis(30))
        };
        Self {
            session: SessionExperiment::new(LinkConfig::broadband()),
            spectators,
            link,
            duration: TimeDelta::from_secs(20),
            state_bytes: 512,
        }
    }

    /// Runs the session and its spectators, and returns their costs and errors.
    pub fn run(&self) -> SpectatorScaleResult {
        ScaleRun::new(self).run(self)
    }
}

/// Runs the test of [`SpectatorScaleTest::new`] with this many spectators.
pub fn run_default(spectators: usize) -> SpectatorScaleResult {
    SpectatorScaleTest::new(spectators).run()
}

/// Costs and errors of a test with many spectators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpectatorScaleResult {
    /// Hash of all datagrams between the players and of all frames that they confirmed, with their times.
    pub player_trace_hash: u64,
    /// Number of frames that the first player confirmed.
    pub frames: u32,
    /// Number of subscribers of the feed at the end.
    pub subscribers: usize,
    /// Number of spectators that are live at the end: they have caught up and present frames as they are played.
    pub live: usize,
    /// Number of frames after which a spectator's state differed from the players', summed over all spectators.
    pub wrong_frames: usize,
    /// Mean distance of the spectators behind the first player's last confirmed frame at the end, in frames.
    pub mean_frames_behind: f64,
    /// Number of times that a picture froze because frames were late, summed over all spectators.
    pub stalls: u64,
    /// Number of batches that the feed encoded, each once for all spectators.
    pub batches: u64,
    /// Total size of the encoded batches, in bytes.
    pub batch_bytes: u64,
    /// Number of datagrams that the feed sent.
    pub packets_down: u64,
    /// Payload bytes that the feed sent.
    pub bytes_down: u64,
    /// Payload bytes that the feed sent on request: snapshots and missed frames.
    pub requested_bytes: u64,
    /// Number of datagrams that the spectators sent, summed over all of them.
    pub packets_up: u64,
    /// Payload bytes that the spectators sent, summed over all of them.
    pub bytes_up: u64,
    /// Time from the join to the end in seconds, summed over all spectators.
    pub total_watch_seconds: f64,
    /// Memory of the feed at the end, in bytes.
    pub feed_memory: usize,
    /// Memory, at the end, of the spectator that uses most, in bytes.
    pub max_spectator_memory: usize,
}

/// A computer of the network: that of the feed, or that of a spectator from its join on.
#[derive(Debug)]
enum ScaleNode {
    Feed(Box<Feed>),
    Spectator(Option<Box<ScaleSpectator>>),
}

/// A spectator whose machine state is a hash of all inputs.
#[derive(Debug)]
struct ScaleSpectator {
    spectator: Spectator,
    state_hash: u64,
    joined_at: Instant,
}

/// What all spectators share.
struct ScaleContext<'a> {
    test: &'a SpectatorScaleTest,
    /// Hash of all inputs up to and including each frame, by frame number.
    expected_hashes: &'a [u64],
    wrong_frames: &'a mut usize,
}

/// A confirmed frame of the first player.
struct PlayerStep {
    at: Instant,
    frame: u32,
    inputs: Vec<InputWord>,
}

struct ScaleRun {
    network: Network<ScaleNode>,
    state_hash: u64,
    /// Hash of all inputs up to and including each frame, by frame number.
    expected_hashes: Vec<u64>,
    result: SpectatorScaleResult,
}

fn hash_inputs(hash: u64, words: &[InputWord]) -> u64 {
    words.iter().fold(hash, |hash, word| mix_hash(mix_hash(hash, *word as u64), (*word >> 64) as u64))
}

impl ScaleRun {
    fn new(test: &SpectatorScaleTest) -> Self {
        let config = FeedConfig {
            max_spectators: test.spectators,
            max_bulk_rate: 20_000_000,
            ..FeedConfig::new(test.session.seed, 4_711, test.session.settings())
        };
        let feed = ScaleNode::Feed(Box::new(Feed::new(config).expect("settings are valid")));
        let nodes = std::iter::once(feed).chain((0..test.spectators).map(|_| ScaleNode::Spectator(None)));
        let computer = |(number, node)| Computer::new(node, NodeClock::TRUE, Addr(FEED_ADDRESS.0 + number as u64));
        let name = |node: usize, direction: &str| format!("{direction} {}", node - 1);
        let topology = Topology::tree(test.session.seed, test.spectators + 1, name, |_| test.link.clone());
        Self {
            network: Network::asleep(test.session.seed, nodes.enumerate().map(computer).collect(), topology),
            state_hash: 1,
            expected_hashes: Vec::new(),
            result: SpectatorScaleResult::default(),
        }
    }

    fn run(mut self, test: &SpectatorScaleTest) -> SpectatorScaleResult {
        let mut network = test.session.build_network();
        let mut steps = Vec::new();
        let mut first = None;
        while first.is_none_or(|first| network.now() < first + test.duration) {
            self.step_players(&mut network, &mut steps);
            if first.is_none() && !steps.is_empty() {
                first = Some(network.now());
                self.schedule_joins(test, network.now());
            }
            self.publish_frames(&mut steps, test.state_bytes);
            self.process_events(test, network.now());
        }
        self.finish(network.now())
    }

    /// Runs the session for one step interval and hashes its datagrams and confirmed frames.
    fn step_players(&mut self, network: &mut SessionNetwork, steps: &mut Vec<PlayerStep>) {
        network.start_capture(10_000);
        let trace_hash = &mut self.result.player_trace_hash;
        let until = network.now() + STEP_INTERVAL;
        network.run_until(until, &mut |event| {
            if let SiteEvent::Confirmed { site, at, frame, words, hash } = event {
                *trace_hash =
                    [site as u64, at.as_nanos() as u64, u64::from(frame), hash].into_iter().fold(*trace_hash, mix_hash);
                if site == 0 {
                    steps.push(PlayerStep { at, frame, inputs: words.to_vec() });
                }
            }
        });
        for datagram in network.captured() {
            let head = [datagram.at.as_nanos() as u64, datagram.from as u64, datagram.to as u64];
            let bytes = datagram.bytes.iter().map(|byte| u64::from(*byte));
            *trace_hash = head.into_iter().chain(bytes).fold(*trace_hash, mix_hash);
        }
    }

    fn schedule_joins(&mut self, test: &SpectatorScaleTest, now: Instant) {
        let mut random = Random::stream(test.session.seed, "crowd");
        for spectator in 0..test.spectators {
            let delay = TimeDelta::from_nanos(random.range(0..=JOIN_PERIOD.as_nanos()));
            self.network.wake_at(spectator + 1, now + delay);
        }
    }

    fn publish_frames(&mut self, steps: &mut Vec<PlayerStep>, state_bytes: usize) {
        for PlayerStep { at, frame, inputs: words } in steps.drain(..) {
            let frame = Frame::new(frame);
            self.feed().push(at, frame, &words);
            self.state_hash = hash_inputs(self.state_hash, &words);
            self.expected_hashes.push(self.state_hash);
            if frame.number() % 60 == 59 {
                let hash = self.state_hash;
                self.feed().push_hash(frame, hash);
            }
            if self.feed().wants_snapshot() {
                let mut bytes = vec![0; state_bytes.max(8)];
                bytes[..8].copy_from_slice(&self.state_hash.to_le_bytes());
                let hash = self.state_hash;
                self.feed().set_snapshot(at, frame.next(), &bytes, hash);
            }
            self.result.frames = frame.number() + 1;
        }
    }

    fn feed(&mut self) -> &mut Feed {
        match &mut self.network.nodes[FEED].node {
            ScaleNode::Feed(feed) => feed,
            ScaleNode::Spectator(_) => unreachable!("the first computer is the feed's"),
        }
    }

    /// Runs the spectators up to `now`, and then passes the datagrams that the feed has ready to their downlinks.
    fn process_events(&mut self, test: &SpectatorScaleTest, now: Instant) {
        let Self { network, expected_hashes, result, .. } = self;
        let mut context = ScaleContext { test, expected_hashes, wrong_frames: &mut result.wrong_frames };
        network.run(now, &mut context);
        network.transmit(FEED, &mut context);
        while self.feed().poll_event().is_some() {}
    }

    fn finish(mut self, now: Instant) -> SpectatorScaleResult {
        let (stats, feed_memory) = (self.feed().stats(), self.feed().memory());
        let mut result = SpectatorScaleResult {
            subscribers: stats.spectators,
            batches: stats.batches,
            batch_bytes: stats.batch_bytes,
            packets_down: stats.packets_out,
            bytes_down: stats.bytes_out,
            requested_bytes: stats.bulk_out,
            feed_memory,
            ..self.result
        };
        for node in &self.network.nodes {
            let ScaleNode::Spectator(Some(node)) = &node.node else { continue };
            let stats = node.spectator.stats();
            result.live += usize::from(node.spectator.is_live());
            result.stalls += stats.stalls;
            result.packets_up += stats.packets_out;
            result.bytes_up += stats.bytes_out;
            result.total_watch_seconds += (now - node.joined_at).as_secs_f64();
            result.max_spectator_memory = result.max_spectator_memory.max(node.spectator.memory());
            let behind = result.frames.saturating_sub(node.spectator.next_frame().number());
            result.mean_frames_behind += f64::from(behind) / (self.network.nodes.len() - 1) as f64;
        }
        result
    }
}

impl Node for ScaleNode {
    type Context<'a> = ScaleContext<'a>;

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut ScaleContext<'_>) -> Reaction {
        let Datagram { from, bytes, .. } = datagram;
        match self {
            Self::Feed(feed) => {
                feed.handle_datagram(now.now, from, bytes);
                Reaction::Wait
            }
            Self::Spectator(node) => {
                node.iter_mut().for_each(|node| node.spectator.handle_datagram(now.now, from, bytes));
                Reaction::Run
            }
        }
    }

    fn work(&mut self, now: &Moment<'_>, context: &mut ScaleContext<'_>) -> Option<TimeDelta> {
        if let Self::Spectator(node) = self {
            let node = node.get_or_insert_with(|| Box::new(ScaleSpectator::new(now.now, context.test)));
            node.serve_requests(now.now, context.expected_hashes, context.wrong_frames);
        }
        None
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut ScaleContext<'_>) -> Option<usize> {
        let buf = &mut out.buf[..MAX_DATAGRAM];
        let packet = match self {
            Self::Feed(feed) => feed.poll_transmit(now.now, buf)?,
            Self::Spectator(node) => node.as_mut()?.spectator.poll_transmit(now.now, buf)?,
        };
        out.to.push(packet.to);
        Some(packet.len)
    }

    fn on_idle(&mut self, _: &Moment<'_>, _: &mut ScaleContext<'_>) {
        if let Self::Spectator(Some(node)) = self {
            while node.spectator.poll_event().is_some() {}
        }
    }

    fn poll_timeout(&mut self, _: &Moment<'_>) -> Option<Instant> {
        if let Self::Spectator(Some(node)) = self { node.spectator.poll_timeout() } else { None }
    }
}

impl ScaleSpectator {
    fn new(now: Instant, test: &SpectatorScaleTest) -> Self {
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 16 * 1_024,
            ..SpectatorConfig::new(test.session.seed, test.session.settings(), vec![FEED_ADDRESS])
        };
        let spectator = Spectator::new(now, config).expect("settings are valid");
        Self { spectator, state_hash: 0, joined_at: now }
    }

    fn serve_requests(&mut self, now: Instant, expected_hashes: &[u64], wrong_frames: &mut usize) {
        while let Some(request) = self.spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { state, .. } => {
                    let bytes = state.first_chunk().copied().unwrap_or_default();
                    self.state_hash = u64::from_le_bytes(bytes);
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.state_hash = hash_inputs(self.state_hash, inputs);
                    *wrong_frames +=
                        usize::from(expected_hashes.get(frame.number() as usize) != Some(&self.state_hash));
                }
                SpectatorRequest::Hash { .. } => self.spectator.handle_hash(self.state_hash),
            }
        }
    }
}
