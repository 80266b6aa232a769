//! Simulates a moving player A, the server, and an observing player B, over links with one of three round-trip times.

use coplay::motion::{MilliVec2, MotionConfig, MotionPredictor, ObjectId, ObjectMoment};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, Jitter, LinkConfig};
use coplay_links::random::Random;
use coplay_sim::clock::NodeClock;
use coplay_sim::motion::{LINEAR_MOTION, MotionEndpoint, MotionNetwork, MotionPlan};

/// Links of the paper's Figure 3: name, and round-trip time to the server in microseconds.
pub(super) const LINKS: [(&str, i64); 3] = [("LAN", 640), ("local", 10_000), ("overseas", 160_000)];
/// Motion paths of the paper, and the time between two commands; on the linear path, one command lasts for the whole
/// walk.
pub(super) const MOTION_PATHS: [(&str, TimeDelta); 3] = [
    ("linear", TimeDelta::from_secs(1_000)),
    ("zig-zag", TimeDelta::from_millis(2_200)),
    ("circular", TimeDelta::from_millis(500)),
];
/// Pairs of observers whose timers and positions are compared, as in the paper's curves.
pub(super) const OBSERVER_PAIRS: [&str; 3] = ["A and server", "server and B", "A and B"];

/// Mean jitter as a fraction of the one-way delay.
pub(super) const JITTER_SHARE: f64 = 0.05;
/// Time before the measurement, in which the clocks synchronise.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);
/// Duration of A's motion.
pub(super) const WALK_DURATION: TimeDelta = TimeDelta::from_millis(6_600);
/// Interval between two samples.
pub(super) const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
const FRAME_PERIOD: TimeDelta = TimeDelta::from_micros(16_667);
const AVATAR: ObjectId = ObjectId(1);
const PLAYER_A: MotionEndpoint = MotionEndpoint::Seat(0);
const PLAYER_B: MotionEndpoint = MotionEndpoint::Seat(1);

/// Settings of one walk. `link` and `motion_path` are indices into [`LINKS`] and [`MOTION_PATHS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct MotionWalk {
    pub(super) seed: u64,
    pub(super) link: usize,
    pub(super) motion_path: usize,
    pub(super) config: MotionConfig,
    /// Mean jitter as a fraction of the one-way delay.
    pub(super) jitter: f64,
}

/// Differences between the three observers of the object (A, server, B) at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimerSample {
    /// Seconds since the first command.
    pub(super) at_s: f64,
    /// Absolute timer differences of the three [pairs](OBSERVER_PAIRS), in milliseconds. The timer of an observer that
    /// has not begun the newest segment counts as 0.
    pub(super) timers_ms: [f64; 3],
    /// Distances between the positions of the object at the observers of each pair, in units.
    pub(super) distances: [f64; 3],
    /// Seconds since the last command.
    pub(super) since_command_s: f64,
}

/// Measurements of one walk.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkTrace {
    pub(super) samples: Vec<TimerSample>,
    pub(super) commands: usize,
    /// Discrepancy that B's client reports for the last averaging window, in unit-seconds.
    pub(super) reported_discrepancy: f64,
    /// Actual discrepancy between B and the server in the last averaging window, in unit-seconds.
    pub(super) actual_discrepancy: f64,
    /// Lowest speed of any timer relative to real time, measured over 50 ms within one segment.
    pub(super) min_timer_speed: f64,
    /// Highest speed of any timer relative to real time, measured over 50 ms within one segment.
    pub(super) max_timer_speed: f64,
}

impl MotionWalk {
    fn link_config(&self) -> LinkConfig {
        let delay = TimeDelta::from_micros(LINKS[self.link].1 / 2);
        let mean = delay.scale(self.jitter);
        let jitter = if mean > TimeDelta::ZERO { Jitter::Exponential { mean } } else { Jitter::None };
        LinkConfig { delay: Delay::Constant(delay - mean), jitter, reorder: true, ..LinkConfig::default() }
    }

    fn build_simulation(&self) -> MotionNetwork {
        let mut random = Random::stream(self.seed, "walk");
        let mut clock = || NodeClock {
            offset: TimeDelta::from_millis(random.range(-1_000_000..=1_000_000)),
            skew_ppm: random.range(-50..=50) as f64,
        };
        let plan = MotionPlan {
            config: self.config,
            frame: FRAME_PERIOD,
            server: clock(),
            clients: vec![clock(), clock()],
            link: self.link_config(),
        };
        let mut network = MotionNetwork::new(self.seed, &plan);
        let local = network.local_time(MotionEndpoint::Server);
        network.start_server().spawn(
            local,
            AVATAR,
            Some(MotionNetwork::client_id(0)),
            MilliVec2::default(),
            MilliVec2::default(),
        );
        network.start_client(0).own(AVATAR);
        network.start_client(1).subscribe(AVATAR);
        network
    }

    /// Returns the velocity that command number `turn` sets, at one unit per second.
    fn velocity(&self, turn: usize) -> MilliVec2 {
        const EIGHTHS: [(i64, i64); 8] =
            [(1_000, 0), (707, 707), (0, 1_000), (-707, 707), (-1_000, 0), (-707, -707), (0, -1_000), (707, -707)];
        let (x, y) = match self.motion_path {
            0 => EIGHTHS[0],
            1 => EIGHTHS[if turn.is_multiple_of(2) { 1 } else { 7 }],
            _ => EIGHTHS[turn % 8],
        };
        MilliVec2 { x, y }
    }

    pub(super) fn run(&self) -> WalkTrace {
        let mut network = self.build_simulation();
        // A button press does not coincide with the start of a frame.
        let phase = Random::stream(self.seed, "phase").unit();
        let start = Instant::ZERO + WARM_UP + FRAME_PERIOD.scale(phase);
        network.run(start, &mut ());
        let mut trace = WalkTrace { min_timer_speed: 1.0, max_timer_speed: 1.0, ..WalkTrace::default() };
        let (mut next, mut last_command) = (start, start);
        let mut past: Vec<[Option<ObjectMoment<MilliVec2>>; 3]> = Vec::new();
        while network.now() < start + WALK_DURATION {
            if network.now() >= next {
                network.command(PLAYER_A, AVATAR, self.velocity(trace.commands));
                (last_command, next) = (next, next + MOTION_PATHS[self.motion_path].1);
                trace.commands += 1;
            }
            let until = network.now() + SAMPLE_INTERVAL;
            network.run(until.min(next.max(network.now())), &mut ());
            let moments = [PLAYER_A, MotionEndpoint::Server, PLAYER_B].map(|end| network.object_moment(end, AVATAR));
            trace.samples.push(timer_sample(
                &moments,
                (network.now() - start).as_secs_f64(),
                (network.now() - last_command).as_secs_f64(),
            ));
            past.push(moments);
            trace.update_timer_speeds(&past);
        }
        let window = (self.config.averaging_window.as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64()) as usize;
        let last = &trace.samples[trace.samples.len().saturating_sub(window)..];
        trace.actual_discrepancy =
            last.iter().map(|sample| sample.distances[1]).sum::<f64>() * SAMPLE_INTERVAL.as_secs_f64();
        trace.reported_discrepancy =
            network.client(1).and_then(|b| b.consistency(AVATAR)).map_or(f64::NAN, |report| report.discrepancy);
        trace
    }
}

fn timer_sample(moments: &[Option<ObjectMoment<MilliVec2>>; 3], at: f64, since_command_s: f64) -> TimerSample {
    let newest = moments.iter().flatten().map(|moment| moment.number).max().unwrap_or_default();
    let timer = |moment: &Option<ObjectMoment<MilliVec2>>| match moment {
        Some(moment) if moment.number == newest => moment.timer.value().as_millis_f64(),
        _ => 0.0,
    };
    let [a, server, b] = [0, 1, 2].map(|observer: usize| timer(&moments[observer]));
    let distance = |one: usize, other: usize| match (&moments[one], &moments[other]) {
        (Some(one), Some(other)) => LINEAR_MOTION.distance(&one.state, &other.state),
        _ => 0.0,
    };
    let units = [distance(0, 1), distance(1, 2), distance(0, 2)];
    TimerSample {
        at_s: at,
        timers_ms: [(a - server).abs(), (server - b).abs(), (a - b).abs()],
        distances: units,
        since_command_s,
    }
}

impl WalkTrace {
    /// Updates the lowest and highest timer speed with the last 50 ms, for timers that stayed on one segment.
    fn update_timer_speeds(&mut self, past: &[[Option<ObjectMoment<MilliVec2>>; 3]]) {
        const SPAN: usize = 50;
        let Some(before) = past.len().checked_sub(SPAN + 1) else { return };
        for (then, now) in past[before].iter().zip(&past[past.len() - 1]) {
            if let (Some(then), Some(now)) = (then, now)
                && then.number == now.number
            {
                let speed = (now.timer.value() - then.timer.value()).as_secs_f64()
                    / (SAMPLE_INTERVAL.as_secs_f64() * SPAN as f64);
                (self.min_timer_speed, self.max_timer_speed) =
                    (self.min_timer_speed.min(speed), self.max_timer_speed.max(speed));
            }
        }
    }

    /// Returns the discrepancy D of the timers of each pair per command, in millisecond-seconds.
    pub(super) fn timer_discrepancies(&self) -> [f64; 3] {
        self.integrate(|sample| sample.timers_ms)
    }

    /// Returns the discrepancy D of the positions of each pair per command, in milliunit-seconds.
    pub(super) fn position_discrepancies(&self) -> [f64; 3] {
        self.integrate(|sample| sample.distances.map(|units| units * 1e3))
    }

    fn integrate(&self, of: impl Fn(&TimerSample) -> [f64; 3]) -> [f64; 3] {
        let mut area = [0.0; 3];
        for sample in &self.samples {
            area.iter_mut()
                .zip(of(sample))
                .for_each(|(area, difference)| *area += difference * SAMPLE_INTERVAL.as_secs_f64());
        }
        area.map(|area| area / self.commands.max(1) as f64)
    }
}
