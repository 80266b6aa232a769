//! A crowd that watches one game: what it costs, and that the players cannot tell whether it is there.

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, Loss};
use crate::random::Random;
use crate::session_experiment::SessionExperiment;
use crate::session_network::{SessionNetwork, SiteEvent};
use crate::toy_machine::mix_hash;

/// The world and the crowd take turns of this length.
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
/// The crowd comes within this time, from the first frame on.
const JOIN_PERIOD: TimeDelta = TimeDelta::from_secs(4);
/// The address of the feed; those who watch have the numbers after it.
const FEED_ADDRESS: Addr = Addr(1_000);

/// What is run.
#[derive(Clone, Debug)]
pub struct SpectatorScaleTest {
    /// Two players; its seed is that of everything.
    pub session: SessionExperiment,
    /// How many watch.
    pub spectators: usize,
    /// One direction of the way to each of them.
    pub link: LinkConfig,
    /// How long the game is.
    pub duration: TimeDelta,
    /// Bytes of the state to begin with.
    pub state_bytes: usize,
}

impl SpectatorScaleTest {
    /// So many, each 15 to 30 ms away and with one packet in a hundred lost, for 20 seconds.
    pub fn new(watchers: usize) -> Self {
        let link = LinkConfig {
            jitter: crate::link::Jitter::Uniform(TimeDelta::from_millis(15)),
            loss: Loss::Independent(0.01),
            ..LinkConfig::constant_rtt(TimeDelta::from_millis(30))
        };
        Self {
            session: SessionExperiment::new(LinkConfig::broadband()),
            spectators: watchers,
            link,
            duration: TimeDelta::from_secs(20),
            state_bytes: 512,
        }
    }

    /// Runs it.
    pub fn run(&self) -> SpectatorScaleResult {
        ScaleRun::new(self).run(self)
    }
}

/// So many watch, under the usual conditions.
pub fn run_default(watchers: usize) -> SpectatorScaleResult {
    SpectatorScaleTest::new(watchers).run()
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpectatorScaleResult {
    /// All datagrams between the players with their times, and all steps with theirs, folded into one number.
    pub player_trace_hash: u64,
    /// Frames that the first player stepped.
    pub frames: u32,
    /// How many watch at the end, and how many of them see what is played as it is played.
    pub subscribers: usize,
    /// Those who see it as it is played.
    pub live: usize,
    /// Those whose state is not that of the players after the same frame.
    pub wrong_frames: usize,
    /// How far behind the first player those who watch are on average, in frames.
    pub mean_frames_behind: f64,
    /// How often a picture stood still, all in all.
    pub stalls: u64,
    /// Batches that were encoded, each once for all.
    pub batches: u64,
    /// Their bytes.
    pub batch_bytes: u64,
    /// Datagrams from the feed.
    pub packets_down: u64,
    /// Their bytes of payload.
    pub bytes_down: u64,
    /// Those of them that were asked for.
    pub requested_bytes: u64,
    /// Datagrams to the feed.
    pub packets_up: u64,
    /// Their bytes of payload.
    pub bytes_up: u64,
    /// The time for which somebody watched, all in all, in seconds.
    pub total_watch_seconds: f64,
    /// Bytes that the feed takes, and the most that one who watches does.
    pub feed_memory: usize,
    /// The most that one who watches takes.
    pub max_spectator_memory: usize,
}

/// One who watches, and a machine that only counts.
#[derive(Debug)]
struct ScaleSpectator {
    spectator: Spectator,
    uplink: Link,
    downlink: Link,
    state_hash: u64,
    wake_id: u64,
    joined_at: Instant,
}

#[derive(Debug)]
enum ScaleQueueEvent {
    Join { spectator: usize },
    Wake { spectator: usize, wake_id: u64 },
    Downlink { spectator: usize, bytes: Box<[u8]> },
    Uplink { spectator: usize, bytes: Box<[u8]> },
}

/// A frame that a player stepped.
struct PlayerStep {
    at: Instant,
    frame: u32,
    inputs: Vec<InputWord>,
}

struct ScaleRun {
    feed: Feed,
    spectators: Vec<Option<ScaleSpectator>>,
    queue: EventQueue<ScaleQueueEvent>,
    state_hash: u64,
    /// The tally after each frame.
    expected_hashes: Vec<u64>,
    result: SpectatorScaleResult,
}

fn hash_inputs(sum: u64, words: &[InputWord]) -> u64 {
    words.iter().fold(sum, |sum, word| mix_hash(mix_hash(sum, *word as u64), (*word >> 64) as u64))
}

impl ScaleRun {
    fn new(crowd: &SpectatorScaleTest) -> Self {
        let config = FeedConfig {
            max_spectators: crowd.spectators,
            max_bulk_rate: 20_000_000,
            ..FeedConfig::new(crowd.session.seed, 4_711, crowd.session.settings())
        };
        Self {
            feed: Feed::new(config).expect("the settings are sound"),
            spectators: (0..crowd.spectators).map(|_| None).collect(),
            queue: EventQueue::new(),
            state_hash: 1,
            expected_hashes: Vec::new(),
            result: SpectatorScaleResult::default(),
        }
    }

    fn run(mut self, crowd: &SpectatorScaleTest) -> SpectatorScaleResult {
        let mut world = crowd.session.build_network();
        let mut steps = Vec::new();
        let mut first = None;
        while first.is_none_or(|first| world.now() < first + crowd.duration) {
            self.step_players(&mut world, &mut steps);
            if first.is_none() && !steps.is_empty() {
                first = Some(world.now());
                self.schedule_joins(crowd, world.now());
            }
            self.publish_frames(&mut steps, crowd.state_bytes);
            self.process_events(crowd, world.now());
        }
        self.finish(world.now())
    }

    /// Lets the players play, and hears all they say.
    fn step_players(&mut self, world: &mut SessionNetwork, steps: &mut Vec<PlayerStep>) {
        world.start_capture(10_000);
        let players = &mut self.result.player_trace_hash;
        let until = world.now() + STEP_INTERVAL;
        world.run_until(until, &mut |happened| {
            if let SiteEvent::Confirmed { site, at, frame, words, hash } = happened {
                *players =
                    [site as u64, at.as_nanos() as u64, u64::from(frame), hash].into_iter().fold(*players, mix_hash);
                if site == 0 {
                    steps.push(PlayerStep { at, frame, inputs: words.to_vec() });
                }
            }
        });
        for heard in world.captured() {
            let head = [heard.at.as_nanos() as u64, heard.from as u64, heard.to as u64];
            let bytes = heard.bytes.iter().map(|byte| u64::from(*byte));
            *players = head.into_iter().chain(bytes).fold(*players, mix_hash);
        }
    }

    fn schedule_joins(&mut self, crowd: &SpectatorScaleTest, now: Instant) {
        let mut luck = Random::stream(crowd.session.seed, "crowd");
        for seat in 0..crowd.spectators {
            let wait = TimeDelta::from_nanos(luck.range(0..=JOIN_PERIOD.as_nanos()));
            self.queue.push(now + wait, ScaleQueueEvent::Join { spectator: seat });
        }
    }

    fn publish_frames(&mut self, steps: &mut Vec<PlayerStep>, state: usize) {
        for PlayerStep { at, frame, inputs: words } in steps.drain(..) {
            let frame = Frame::new(frame);
            self.feed.push(at, frame, &words);
            self.state_hash = hash_inputs(self.state_hash, &words);
            self.expected_hashes.push(self.state_hash);
            if frame.number() % 60 == 59 {
                self.feed.push_hash(frame, self.state_hash);
            }
            if self.feed.wants_snapshot() {
                let mut bytes = vec![0; state.max(8)];
                bytes[..8].copy_from_slice(&self.state_hash.to_le_bytes());
                self.feed.set_snapshot(at, frame.next(), &bytes, self.state_hash);
            }
            self.result.frames = frame.number() + 1;
        }
    }

    fn process_events(&mut self, crowd: &SpectatorScaleTest, now: Instant) {
        while let Some((at, happening)) = self.queue.next_time().filter(|at| *at <= now).and_then(|_| self.queue.pop())
        {
            match happening {
                ScaleQueueEvent::Join { spectator: seat } => self.join(crowd, at, seat),
                ScaleQueueEvent::Wake { spectator: seat, wake_id: alarm } => {
                    if self.spectators[seat].as_ref().is_some_and(|seat| seat.wake_id == alarm) {
                        self.run_spectator(at, seat);
                    }
                }
                ScaleQueueEvent::Downlink { spectator: seat, bytes } => {
                    if let Some(there) = &mut self.spectators[seat] {
                        there.spectator.handle_datagram(at, FEED_ADDRESS, &bytes);
                        self.run_spectator(at, seat);
                    }
                }
                ScaleQueueEvent::Uplink { spectator: seat, bytes } => {
                    self.feed.handle_datagram(at, spectator_address(seat), &bytes);
                }
            }
        }
        self.transmit_feed(now);
    }

    fn join(&mut self, crowd: &SpectatorScaleTest, now: Instant, seat: usize) {
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 16 * 1_024,
            ..SpectatorConfig::new(crowd.session.seed, crowd.session.settings(), vec![FEED_ADDRESS])
        };
        let link = |way: &str| Link::new(crowd.link.clone(), crowd.session.seed, &format!("{way} {seat}"));
        let watcher = Spectator::new(now, config).expect("the settings are sound");
        let (up, down) = (link("up"), link("down"));
        self.spectators[seat] = Some(ScaleSpectator {
            spectator: watcher,
            uplink: up,
            downlink: down,
            state_hash: 0,
            wake_id: 0,
            joined_at: now,
        });
        self.run_spectator(now, seat);
    }

    /// What the feed sends.
    fn transmit_feed(&mut self, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.feed.poll_transmit(now, &mut buf) {
            let number = (packet.to.0 - FEED_ADDRESS.0 - 1) as usize;
            let Some(seat) = &mut self.spectators[number] else { continue };
            for at in seat.downlink.send(now, packet.len) {
                self.queue.push(at, ScaleQueueEvent::Downlink { spectator: number, bytes: buf[..packet.len].into() });
            }
        }
        while self.feed.poll_event().is_some() {}
    }

    /// The host program of one who watches.
    fn run_spectator(&mut self, now: Instant, number: usize) {
        let Some(seat) = &mut self.spectators[number] else { return };
        seat.serve_requests(now, &self.expected_hashes, &mut self.result.wrong_frames);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = seat.spectator.poll_transmit(now, &mut buf) {
            for at in seat.uplink.send(now, packet.len) {
                self.queue.push(at, ScaleQueueEvent::Uplink { spectator: number, bytes: buf[..packet.len].into() });
            }
        }
        while seat.spectator.poll_event().is_some() {}
        seat.wake_id += 1;
        if let Some(at) = seat.spectator.poll_timeout() {
            self.queue.push(at.max(now), ScaleQueueEvent::Wake { spectator: number, wake_id: seat.wake_id });
        }
    }

    fn finish(self, now: Instant) -> SpectatorScaleResult {
        let stats = self.feed.stats();
        let mut outcome = SpectatorScaleResult {
            subscribers: stats.spectators,
            batches: stats.batches,
            batch_bytes: stats.batch_bytes,
            packets_down: stats.packets_out,
            bytes_down: stats.bytes_out,
            requested_bytes: stats.bulk_out,
            feed_memory: self.feed.memory(),
            ..self.result
        };
        for seat in self.spectators.iter().flatten() {
            let stats = seat.spectator.stats();
            outcome.live += usize::from(seat.spectator.is_live());
            outcome.stalls += stats.stalls;
            outcome.packets_up += stats.packets_out;
            outcome.bytes_up += stats.bytes_out;
            outcome.total_watch_seconds += (now - seat.joined_at).as_secs_f64();
            outcome.max_spectator_memory = outcome.max_spectator_memory.max(seat.spectator.memory());
            let behind = outcome.frames.saturating_sub(seat.spectator.next_frame().number());
            outcome.mean_frames_behind += f64::from(behind) / self.spectators.len() as f64;
        }
        outcome
    }
}

fn spectator_address(seat: usize) -> Addr {
    Addr(FEED_ADDRESS.0 + 1 + seat as u64)
}

impl ScaleSpectator {
    fn serve_requests(&mut self, now: Instant, truth: &[u64], wrong: &mut usize) {
        while let Some(request) = self.spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { state, .. } => {
                    let bytes = state.first_chunk().copied().unwrap_or_default();
                    self.state_hash = u64::from_le_bytes(bytes);
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.state_hash = hash_inputs(self.state_hash, inputs);
                    *wrong += usize::from(truth.get(frame.number() as usize) != Some(&self.state_hash));
                }
                SpectatorRequest::Hash { .. } => self.spectator.handle_hash(self.state_hash),
            }
        }
    }
}
