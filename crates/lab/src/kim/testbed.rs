//! The stand on which all experiments of this paper are made: two sites, watched from outside as time goes by.

use coplay::id::SiteId;
use coplay::input::Recovery;
use coplay::session::{Event, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::SessionMessage;
use coplay_sim::link::LinkConfig;
use coplay_sim::session_experiment::SessionExperiment as Game;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};

use crate::numbers::lossy_link;

/// The way in one direction.
pub const ONE_WAY_DELAY_MS: f64 = 65.0;
/// The world is looked at this often.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(4);
/// More datagrams than leave in a turn.
const MAX_CAPTURED_PACKETS: usize = 1_000;
/// What happens in the first seconds does not count.
const WARM_UP: TimeDelta = TimeDelta::from_secs(3);

/// A game of two with the buffers of the paper.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// The game.
    pub game: Game,
    /// For how long it is watched.
    pub duration: TimeDelta,
    /// What changes about the links meanwhile: when, from which site, and the new conditions of its way out.
    pub link_changes: Vec<(TimeDelta, usize, LinkConfig)>,
    /// By how much the second site's clock is too fast, in millionths.
    pub skew_ppm: Option<f64>,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct TestbedTrace {
    /// Frames of the other's inputs in each buffer: when, and how many.
    pub buffers: [Vec<(f64, f64)>; 2],
    /// All packets.
    pub packets: Vec<TracedPacket>,
    /// When all paused, and for how long, as the first site told it.
    pub pauses: Vec<(f64, f64)>,
    /// Frames that each site stepped.
    pub frames: [u32; 2],
    /// Frames that waited for inputs, at both sites.
    pub stalled_frames: u64,
    /// For how long.
    pub stalled_s: f64,
    /// For how long it was watched.
    pub seconds: f64,
    /// Whether both sites had the same states.
    pub states_equal: bool,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedPacket {
    /// When it left.
    pub at_s: f64,
    /// Who sent it.
    pub from: usize,
    /// Bytes of payload.
    pub bytes: usize,
    /// It asks for something.
    pub has_request: bool,
    /// It has something that was asked for.
    pub has_answer: bool,
}

impl Testbed {
    /// Two sites with an initial delay, 65 ms apart, that lose this part of all packets; history, and agreed pauses. The way is always the same,
    /// so the paper's interval (equation 3) is a frame, and that is how often packets leave.
    pub fn new(seed: u64, delay_frames: u32, loss: f64) -> Self {
        let game = Game {
            seed,
            input_delay: delay_frames,
            recovery: Recovery::History,
            starvation: StarvationPolicy::Pause,
            ..Game::new(lossy_link(2.0 * ONE_WAY_DELAY_MS, loss))
        };
        Self { game, duration: TimeDelta::from_secs(60), link_changes: Vec::new(), skew_ppm: None }
    }

    /// Watches it.
    pub fn run(&self) -> TestbedTrace {
        let mut world = self.game.build_network();
        if let Some(skew_ppm) = self.skew_ppm {
            world.sites[1].clock.skew_ppm = skew_ppm;
        }
        let mut watch = TraceRecorder {
            started_at: None,
            hashes: Default::default(),
            trace: TestbedTrace::default(),
            stalled_before: TimeDelta::ZERO,
        };
        let mut changes = self.link_changes.clone();
        while !watch.is_over(world.now(), self.duration) {
            watch.advance(&mut world);
            changes.retain(|(at, from, link)| {
                let due = watch.started_at.is_some_and(|began| world.now() - began >= *at);
                if due {
                    world.link(*from, 1 - *from).set_config(link.clone());
                }
                !due
            });
        }
        watch.finish(&world)
    }
}

struct TraceRecorder {
    /// When the first frame began, and warming up was over.
    started_at: Option<Instant>,
    hashes: [Vec<u64>; 2],
    trace: TestbedTrace,
    /// The time that was waited before.
    stalled_before: TimeDelta,
}

/// Nobody waits longer than this for a game to begin.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);

impl TraceRecorder {
    fn is_over(&self, now: Instant, time: TimeDelta) -> bool {
        self.started_at.map_or(now - Instant::ZERO > START_TIMEOUT, |began| now - began >= time)
    }

    fn seconds(&self, at: Instant) -> f64 {
        self.started_at.map_or(0.0, |began| (at - began).as_secs_f64())
    }

    fn advance(&mut self, world: &mut SessionNetwork) {
        world.start_capture(MAX_CAPTURED_PACKETS);
        let until = world.now() + POLL_INTERVAL;
        world.run_until(until, &mut |happened| self.on_event(&happened));
        if self.started_at.is_none() && self.hashes.iter().all(|hashes| !hashes.is_empty()) {
            self.warm_up(world);
        }
        if self.started_at.is_some() {
            self.sample(world);
        }
    }

    /// Lets the first seconds pass.
    fn warm_up(&mut self, world: &mut SessionNetwork) {
        let until = world.now() + WARM_UP;
        world.run_until(until, &mut |happened| self.on_event(&happened));
        world.start_capture(MAX_CAPTURED_PACKETS);
        self.started_at = Some(world.now());
        self.trace = TestbedTrace::default();
        let stats = [0, 1].map(|site| world.sites[site].session.stats());
        self.trace.frames = stats.map(|stats| stats.frame.number());
        self.trace.stalled_frames = stats.iter().map(|stats| stats.stalls).sum();
        self.stalled_before = stats.iter().fold(TimeDelta::ZERO, |sum, stats| sum + stats.stall_time);
    }

    fn on_event(&mut self, happened: &SiteEvent<'_>) {
        match happened {
            SiteEvent::Confirmed { site, hash, .. } => self.hashes[*site].push(*hash),
            SiteEvent::SessionEvent { site: 0, at, event: Event::Paused { duration: hold, .. } } => {
                self.trace.pauses.push((self.seconds(*at), hold.as_secs_f64()));
            }
            _ => {}
        }
    }

    fn sample(&mut self, world: &SessionNetwork) {
        let at_s = self.seconds(world.now());
        for number in 0..2 {
            let site = &world.sites[number];
            let other = SiteId::first(2).nth(1 - number).expect("there are two sites");
            let stats = site.session.peer_stats(site.clock.local(world.now()), other);
            self.trace.buffers[number].extend(stats.map(|stats| (at_s, stats.buffered_frames as f64)));
        }
        for heard in world.captured() {
            let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&heard.bytes) else { continue };
            self.trace.packets.push(TracedPacket {
                at_s: self.seconds(heard.at),
                from: heard.from,
                bytes: heard.bytes.len(),
                has_request: !tick.missing.is_empty(),
                has_answer: !tick.resends.is_empty(),
            });
        }
    }

    fn finish(mut self, world: &SessionNetwork) -> TestbedTrace {
        let stats = [0, 1].map(|site| world.sites[site].session.stats());
        let trace = &mut self.trace;
        trace.seconds = self.started_at.map_or(0.0, |began| (world.now() - began).as_secs_f64());
        trace.frames = [0, 1].map(|site| stats[site].frame.number() - trace.frames[site]);
        trace.stalled_frames = stats.iter().map(|stats| stats.stalls).sum::<u64>() - trace.stalled_frames;
        let stalled = stats.iter().fold(TimeDelta::ZERO, |sum, stats| sum + stats.stall_time) - self.stalled_before;
        trace.stalled_s = stalled.as_secs_f64();
        let [one, other] = &self.hashes;
        let both = one.len().min(other.len());
        trace.states_equal = both > 0 && one[..both] == other[..both];
        self.trace
    }
}

impl TestbedTrace {
    /// Frames per second at the first site.
    pub fn frames_per_second(&self) -> f64 {
        f64::from(self.frames[0]) / self.seconds.max(1e-9)
    }

    /// The emptiest that a buffer was.
    pub fn min_buffer(&self) -> f64 {
        crate::numbers::min_or_infinity(self.buffers.iter().flatten().map(|(_, frames)| *frames))
    }

    /// Packets that ask.
    pub fn requests(&self) -> usize {
        self.packets.iter().filter(|packet| packet.has_request).count()
    }

    /// A buffer's least, mean and most in every so many seconds, as bands and lines are drawn.
    pub fn summary(&self, site: usize, every_s: f64) -> Vec<(f64, f64, f64, f64)> {
        let mut summary = Vec::new();
        let mut rest = self.buffers[site].as_slice();
        while let Some((first, _)) = rest.first() {
            let end = ((first / every_s).floor() + 1.0) * every_s;
            let count = rest.partition_point(|(at, _)| *at < end).max(1);
            let values: Vec<f64> = rest[..count].iter().map(|(_, frames)| *frames).collect();
            let middle = end - every_s / 2.0;
            let (least, most) = (
                crate::numbers::min_or_infinity(values.iter().copied()),
                crate::numbers::max_or_zero(values.iter().copied()),
            );
            summary.push((middle, least, crate::numbers::mean(&values), most));
            rest = &rest[count..];
        }
        summary
    }
}
