//! A player A who moves, the server, and a player B who looks on, over a way of one of three lengths.

use coplay::motion::{MilliVec2, MotionConfig, MotionPredictor, ObjectId, ObjectMoment};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Delay, Jitter, LinkConfig};
use coplay_sim::motion::{Endpoint, LINEAR_MOTION, MotionNetwork, MotionPlan};
use coplay_sim::random::Random;

/// The ways of the paper's Figure 3: name, and round trip in microseconds.
pub(super) const LINKS: [(&str, i64); 3] = [("LAN", 640), ("local", 10_000), ("overseas", 160_000)];
/// The paths of the paper, and the time between two commands.
pub(super) const MOTION_PATHS: [(&str, TimeDelta); 3] = [
    ("linear", TimeDelta::from_secs(1_000)),
    ("zig-zag", TimeDelta::from_millis(2_200)),
    ("circular", TimeDelta::from_millis(500)),
];
/// The pairs of the paper's curves.
pub(super) const OBSERVER_PAIRS: [&str; 3] = ["A and server", "server and B", "A and B"];

/// The part of the delay that is jitter, on average.
pub(super) const JITTER_SHARE: f64 = 0.05;
/// What happens before this does not count: clocks get to know each other.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);
/// How long A moves.
pub(super) const WALK_DURATION: TimeDelta = TimeDelta::from_millis(6_600);
/// Time between two looks.
pub(super) const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
const FRAME_PERIOD: TimeDelta = TimeDelta::from_micros(16_667);
const AVATAR: ObjectId = ObjectId(1);
const PLAYER_A: Endpoint = Endpoint::Seat(0);
const PLAYER_B: Endpoint = Endpoint::Seat(1);

/// One walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct MotionWalk {
    pub(super) seed: u64,
    pub(super) link: usize,
    pub(super) motion_path: usize,
    pub(super) config: MotionConfig,
    /// The part of the delay that is jitter.
    pub(super) jitter: f64,
}

/// How far apart everybody was at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimerSample {
    /// Seconds since the first command.
    pub(super) at_s: f64,
    /// Between the timers of the three [pairs](OBSERVER_PAIRS), in milliseconds. Who has not begun the newest leg is at its beginning.
    pub(super) timers_ms: [f64; 3],
    /// Between where they take the object to be, in units.
    pub(super) distances: [f64; 3],
    /// Seconds since the last command.
    pub(super) since_command_s: f64,
}

/// What was seen of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkTrace {
    pub(super) samples: Vec<TimerSample>,
    pub(super) commands: usize,
    /// What B's client itself says of the last window, and what it was, in units times seconds.
    pub(super) reported_discrepancy: f64,
    pub(super) actual_discrepancy: f64,
    /// The slowest and the fastest that anybody's timer went, over 50 ms on one leg.
    pub(super) min_timer_speed: f64,
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
        let mut luck = Random::stream(self.seed, "walk");
        let mut clock = || NodeClock {
            offset: TimeDelta::from_millis(luck.range(-1_000_000..=1_000_000)),
            skew_ppm: luck.range(-50..=50) as f64,
        };
        let plan = MotionPlan {
            config: self.config,
            frame: FRAME_PERIOD,
            server: clock(),
            clients: vec![clock(), clock()],
            link: self.link_config(),
        };
        let mut court = MotionNetwork::new(self.seed, &plan);
        let local = court.local_time(Endpoint::Server);
        court.start_server().spawn(
            local,
            AVATAR,
            Some(MotionNetwork::client_id(0)),
            MilliVec2::default(),
            MilliVec2::default(),
        );
        court.start_client(0).own(AVATAR);
        court.start_client(1).subscribe(AVATAR);
        court
    }

    /// The motion after so many commands, at one unit a second.
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
        let mut court = self.build_simulation();
        // Nobody presses a button at the beginning of a frame.
        let apart = Random::stream(self.seed, "phase").unit();
        let begin = Instant::ZERO + WARM_UP + FRAME_PERIOD.scale(apart);
        court.run(begin, |_, _| ());
        let mut seen = WalkTrace { min_timer_speed: 1.0, max_timer_speed: 1.0, ..WalkTrace::default() };
        let (mut next, mut pressed) = (begin, begin);
        let mut past: Vec<[Option<ObjectMoment<MilliVec2>>; 3]> = Vec::new();
        while court.now() < begin + WALK_DURATION {
            if court.now() >= next {
                court.command(PLAYER_A, AVATAR, self.velocity(seen.commands));
                (pressed, next) = (next, next + MOTION_PATHS[self.motion_path].1);
                seen.commands += 1;
            }
            let until = court.now() + SAMPLE_INTERVAL;
            court.run(until.min(next.max(court.now())), |_, _| ());
            let moments = [PLAYER_A, Endpoint::Server, PLAYER_B].map(|end| court.object_moment(end, AVATAR));
            seen.samples.push(timer_sample(
                &moments,
                (court.now() - begin).as_secs_f64(),
                (court.now() - pressed).as_secs_f64(),
            ));
            past.push(moments);
            seen.update_timer_speeds(&past);
        }
        let window = (self.config.averaging_window.as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64()) as usize;
        let last = &seen.samples[seen.samples.len().saturating_sub(window)..];
        seen.actual_discrepancy =
            last.iter().map(|look| look.distances[1]).sum::<f64>() * SAMPLE_INTERVAL.as_secs_f64();
        seen.reported_discrepancy =
            court.client(1).and_then(|b| b.consistency(AVATAR)).map_or(f64::NAN, |told| told.discrepancy);
        seen
    }
}

fn timer_sample(moments: &[Option<ObjectMoment<MilliVec2>>; 3], at: f64, since: f64) -> TimerSample {
    let newest = moments.iter().flatten().map(|moment| moment.number).max().unwrap_or_default();
    let timer = |moment: &Option<ObjectMoment<MilliVec2>>| match moment {
        Some(moment) if moment.number == newest => moment.timer.value().as_millis_f64(),
        _ => 0.0,
    };
    let [a, server, b] = [0, 1, 2].map(|who: usize| timer(&moments[who]));
    let apart = |one: usize, other: usize| match (&moments[one], &moments[other]) {
        (Some(one), Some(other)) => LINEAR_MOTION.distance(&one.state, &other.state),
        _ => 0.0,
    };
    let units = [apart(0, 1), apart(1, 2), apart(0, 2)];
    TimerSample {
        at_s: at,
        timers_ms: [(a - server).abs(), (server - b).abs(), (a - b).abs()],
        distances: units,
        since_command_s: since,
    }
}

impl WalkTrace {
    /// How fast timers went over the last 50 ms, where that was on one leg.
    fn update_timer_speeds(&mut self, past: &[[Option<ObjectMoment<MilliVec2>>; 3]]) {
        const OVER: usize = 50;
        let Some(before) = past.len().checked_sub(OVER + 1) else { return };
        for (then, now) in past[before].iter().zip(&past[past.len() - 1]) {
            if let (Some(then), Some(now)) = (then, now)
                && then.number == now.number
            {
                let speed = (now.timer.value() - then.timer.value()).as_secs_f64()
                    / (SAMPLE_INTERVAL.as_secs_f64() * OVER as f64);
                (self.min_timer_speed, self.max_timer_speed) =
                    (self.min_timer_speed.min(speed), self.max_timer_speed.max(speed));
            }
        }
    }

    /// D of the timers of each pair for each command, in milliseconds times seconds.
    pub(super) fn timer_discrepancies(&self) -> [f64; 3] {
        self.integrate(|look| look.timers_ms)
    }

    /// D of where they take the object to be, for each command, in thousandths of a unit times seconds.
    pub(super) fn position_discrepancies(&self) -> [f64; 3] {
        self.integrate(|look| look.distances.map(|units| units * 1e3))
    }

    fn integrate(&self, of: impl Fn(&TimerSample) -> [f64; 3]) -> [f64; 3] {
        let mut area = [0.0; 3];
        for look in &self.samples {
            area.iter_mut().zip(of(look)).for_each(|(area, apart)| *area += apart * SAMPLE_INTERVAL.as_secs_f64());
        }
        area.map(|area| area / self.commands.max(1) as f64)
    }
}
