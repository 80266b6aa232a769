//! A player A who moves, the server, and a player B who looks on, over a way of one of three lengths.

use coplay::motion::{MilliVec2, MotionConfig, MotionPredictor, ObjectId, ObjectMoment};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::court::{Court, End, LINEAR, Plan};
use coplay_sim::link::{Delay, Jitter, LinkConfig};
use coplay_sim::random::Random;

/// The ways of the paper's Figure 3: name, and round trip in microseconds.
pub(super) const WAYS: [(&str, i64); 3] = [("LAN", 640), ("local", 10_000), ("overseas", 160_000)];
/// The paths of the paper, and the time between two commands.
pub(super) const PATHS: [(&str, TimeDelta); 3] = [
    ("linear", TimeDelta::from_secs(1_000)),
    ("zig-zag", TimeDelta::from_millis(2_200)),
    ("circular", TimeDelta::from_millis(500)),
];
/// The pairs of the paper's curves.
pub(super) const PAIRS: [&str; 3] = ["A and server", "server and B", "A and B"];

/// The part of the delay that is jitter, on average.
pub(super) const JITTER: f64 = 0.05;
/// What happens before this does not count: clocks get to know each other.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);
/// How long A moves.
pub(super) const MOVING: TimeDelta = TimeDelta::from_millis(6_600);
/// Time between two looks.
pub(super) const LOOK: TimeDelta = TimeDelta::from_millis(1);
const FRAME: TimeDelta = TimeDelta::from_micros(16_667);
const AVATAR: ObjectId = ObjectId(1);
const A: End = End::Seat(0);
const B: End = End::Seat(1);

/// One walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) seed: u64,
    pub(super) way: usize,
    pub(super) path: usize,
    pub(super) config: MotionConfig,
    /// The part of the delay that is jitter.
    pub(super) jitter: f64,
}

/// How far apart everybody was at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// Seconds since the first command.
    pub(super) at: f64,
    /// Between the timers of the three [pairs](PAIRS), in milliseconds. Who has not begun the newest leg is at its beginning.
    pub(super) timers_ms: [f64; 3],
    /// Between where they take the object to be, in units.
    pub(super) units: [f64; 3],
    /// Seconds since the last command.
    pub(super) since: f64,
}

/// What was seen of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) looks: Vec<Look>,
    pub(super) commands: usize,
    /// What B's client itself says of the last window, and what it was, in units times seconds.
    pub(super) told: f64,
    pub(super) true_last: f64,
    /// The slowest and the fastest that anybody's timer went, over 50 ms on one leg.
    pub(super) slowest: f64,
    pub(super) fastest: f64,
}

impl Walk {
    fn link(&self) -> LinkConfig {
        let delay = TimeDelta::from_micros(WAYS[self.way].1 / 2);
        let mean = delay.scale(self.jitter);
        let jitter = if mean > TimeDelta::ZERO { Jitter::Exponential { mean } } else { Jitter::None };
        LinkConfig { delay: Delay::Constant(delay - mean), jitter, reorder: true, ..LinkConfig::default() }
    }

    fn court(&self) -> Court {
        let mut luck = Random::stream(self.seed, "walk");
        let mut clock = || NodeClock {
            offset: TimeDelta::from_millis(luck.range(-1_000_000..=1_000_000)),
            skew_ppm: luck.range(-50..=50) as f64,
        };
        let plan = Plan {
            config: self.config,
            frame: FRAME,
            server: clock(),
            clients: vec![clock(), clock()],
            link: self.link(),
        };
        let mut court = Court::new(self.seed, &plan);
        let local = court.local(End::Server);
        court.start_server().spawn(local, AVATAR, Some(Court::id(0)), MilliVec2::default(), MilliVec2::default());
        court.start_client(0).own(AVATAR);
        court.start_client(1).subscribe(AVATAR);
        court
    }

    /// The motion after so many commands, at one unit a second.
    fn vector(&self, turn: usize) -> MilliVec2 {
        const EIGHTHS: [(i64, i64); 8] =
            [(1_000, 0), (707, 707), (0, 1_000), (-707, 707), (-1_000, 0), (-707, -707), (0, -1_000), (707, -707)];
        let (x, y) = match self.path {
            0 => EIGHTHS[0],
            1 => EIGHTHS[if turn.is_multiple_of(2) { 1 } else { 7 }],
            _ => EIGHTHS[turn % 8],
        };
        MilliVec2 { x, y }
    }

    pub(super) fn walk(&self) -> Seen {
        let mut court = self.court();
        // Nobody presses a button at the beginning of a frame.
        let apart = Random::stream(self.seed, "phase").unit();
        let begin = Instant::ZERO + WARM_UP + FRAME.scale(apart);
        court.run(begin, |_, _| ());
        let mut seen = Seen { slowest: 1.0, fastest: 1.0, ..Seen::default() };
        let (mut next, mut pressed) = (begin, begin);
        let mut past: Vec<[Option<ObjectMoment<MilliVec2>>; 3]> = Vec::new();
        while court.now() < begin + MOVING {
            if court.now() >= next {
                court.command(A, AVATAR, self.vector(seen.commands));
                (pressed, next) = (next, next + PATHS[self.path].1);
                seen.commands += 1;
            }
            let until = court.now() + LOOK;
            court.run(until.min(next.max(court.now())), |_, _| ());
            let moments = [A, End::Server, B].map(|end| court.moment(end, AVATAR));
            seen.looks.push(look(&moments, (court.now() - begin).as_secs_f64(), (court.now() - pressed).as_secs_f64()));
            past.push(moments);
            seen.note_speed(&past);
        }
        let window = (self.config.averaging_window.as_secs_f64() / LOOK.as_secs_f64()) as usize;
        let last = &seen.looks[seen.looks.len().saturating_sub(window)..];
        seen.true_last = last.iter().map(|look| look.units[1]).sum::<f64>() * LOOK.as_secs_f64();
        seen.told = court.client(1).and_then(|b| b.consistency(AVATAR)).map_or(f64::NAN, |told| told.discrepancy);
        seen
    }
}

fn look(moments: &[Option<ObjectMoment<MilliVec2>>; 3], at: f64, since: f64) -> Look {
    let newest = moments.iter().flatten().map(|moment| moment.number).max().unwrap_or_default();
    let timer = |moment: &Option<ObjectMoment<MilliVec2>>| match moment {
        Some(moment) if moment.number == newest => moment.timer.value().as_millis_f64(),
        _ => 0.0,
    };
    let [a, server, b] = [0, 1, 2].map(|who: usize| timer(&moments[who]));
    let apart = |one: usize, other: usize| match (&moments[one], &moments[other]) {
        (Some(one), Some(other)) => LINEAR.distance(&one.state, &other.state),
        _ => 0.0,
    };
    let units = [apart(0, 1), apart(1, 2), apart(0, 2)];
    Look { at, timers_ms: [(a - server).abs(), (server - b).abs(), (a - b).abs()], units, since }
}

impl Seen {
    /// How fast timers went over the last 50 ms, where that was on one leg.
    fn note_speed(&mut self, past: &[[Option<ObjectMoment<MilliVec2>>; 3]]) {
        const OVER: usize = 50;
        let Some(before) = past.len().checked_sub(OVER + 1) else { return };
        for (then, now) in past[before].iter().zip(&past[past.len() - 1]) {
            if let (Some(then), Some(now)) = (then, now)
                && then.number == now.number
            {
                let speed = (now.timer.value() - then.timer.value()).as_secs_f64() / (LOOK.as_secs_f64() * OVER as f64);
                (self.slowest, self.fastest) = (self.slowest.min(speed), self.fastest.max(speed));
            }
        }
    }

    /// D of the timers of each pair for each command, in milliseconds times seconds.
    pub(super) fn timers(&self) -> [f64; 3] {
        self.area(|look| look.timers_ms)
    }

    /// D of where they take the object to be, for each command, in thousandths of a unit times seconds.
    pub(super) fn places(&self) -> [f64; 3] {
        self.area(|look| look.units.map(|units| units * 1e3))
    }

    fn area(&self, of: impl Fn(&Look) -> [f64; 3]) -> [f64; 3] {
        let mut area = [0.0; 3];
        for look in &self.looks {
            area.iter_mut().zip(of(look)).for_each(|(area, apart)| *area += apart * LOOK.as_secs_f64());
        }
        area.map(|area| area / self.commands.max(1) as f64)
    }
}
