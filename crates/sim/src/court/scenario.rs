//! Random courts with faults: what can go wrong, and when it heals.

use std::fmt;

use coplay::motion::{Config, Method, ObjectId, Pair};
use coplay::time::{Instant, TimeDelta};

use super::judge::{Judge, Sabotage};
use super::{Court, End, Plan};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss};
use crate::random::Random;
use crate::scenario::Played;

/// Faults come between these, and then all is well.
const BEGIN: TimeDelta = TimeDelta::from_secs(2);
const FAULTS_END: TimeDelta = TimeDelta::from_secs(9);
/// Nobody commands anything from the last fault on, and after this all simulators must be where the server's are.
const RECOVERED: TimeDelta = TimeDelta::from_secs(14);
/// Then everybody commands again until here, and at the end all that was told of it must be true.
const LAST_COMMANDS: TimeDelta = TimeDelta::from_millis(16_200);
pub(super) const MEASURED: TimeDelta = TimeDelta::from_secs(17);
const END: TimeDelta = TimeDelta::from_millis(18_500);

/// By how much delays differ at the most.
const MOST_JITTER: TimeDelta = TimeDelta::from_millis(50);

/// What can be in a scenario.
pub const KINDS: [&str; 14] = [
    "loss",
    "bursts",
    "jitter",
    "overtaking",
    "duplicates",
    "skew",
    "partition",
    "client crash",
    "server restart",
    "object placed",
    "object removed",
    "combined commands",
    "server's share",
    "paper's method",
];

/// A court to be played, with everything that happens to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// What it is like.
    pub plan: Plan,
    /// Objects that the server itself commands.
    pub autonomous: usize,
    /// The time between two commands of an object, on average.
    pub pause: TimeDelta,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, Fault)>,
    /// Something that is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Something that happens to a court.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A client does not hear the server, nor the server it.
    Cut(usize),
    /// They do again.
    Heal(usize),
    /// Something is gone without a word.
    Crash(End),
    /// It is started anew, and knows nothing.
    Start(End),
    /// The server puts an object of a client somewhere else.
    Place(usize),
    /// One of the server's own objects is no more.
    Remove,
}

impl Scenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "court");
        let clients = luck.range(2..=5) as usize;
        let method = if luck.chance(0.2) { Config::paper(0) } else { Config::clocks(0) };
        let share = if luck.chance(0.3) && method.method == Method::Clocks { 0.25 } else { 0.0 };
        let buffer = TimeDelta::from_millis(*luck.pick(&[0, 50, 50, 50, 120]));
        let plan = Plan {
            config: Config { share, buffer, ..method },
            frame: TimeDelta::from_micros(*luck.pick(&[16_667, 33_333, 33_333, 20_000])),
            server: draw_clock(&mut luck),
            clients: (0..clients).map(|_| draw_clock(&mut luck)).collect(),
            link: draw_link(&mut luck),
        };
        let autonomous = luck.below(4) as usize;
        let pause = TimeDelta::from_millis(*luck.pick(&[150, 400, 400, 1_000, 2_500]));
        let mut scenario = Self { seed, plan, autonomous, pause, faults: Vec::new(), sabotage: None };
        scenario.draw_faults(&mut luck);
        scenario
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        const LONGEST: i64 = 2_500;
        let (begin, end) = (BEGIN.as_micros() / 1_000, FAULTS_END.as_micros() / 1_000 - LONGEST - 100);
        let at = |luck: &mut Random| Instant::ZERO + TimeDelta::from_millis(luck.range(begin..=end));
        let later = |luck: &mut Random, least: i64| TimeDelta::from_millis(luck.range(least..=LONGEST));
        for seat in 0..self.plan.clients.len() {
            let when = at(luck);
            if luck.chance(0.25) {
                self.faults.push((when, Fault::Cut(seat)));
                self.faults.push((when + later(luck, 200), Fault::Heal(seat)));
            } else if luck.chance(0.2) {
                self.faults.push((when, Fault::Crash(End::Seat(seat))));
                self.faults.push((when + later(luck, 10), Fault::Start(End::Seat(seat))));
            }
        }
        if luck.chance(0.25) {
            let when = at(luck);
            self.faults.push((when, Fault::Crash(End::Server)));
            self.faults.push((when + later(luck, 10), Fault::Start(End::Server)));
        }
        if luck.chance(0.15) {
            self.faults.push((at(luck), Fault::Place(luck.below(self.plan.clients.len() as u64) as usize)));
        }
        if self.autonomous > 0 && luck.chance(0.15) {
            self.faults.push((at(luck), Fault::Remove));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// The object of a client.
    pub(super) fn avatar(seat: usize) -> ObjectId {
        ObjectId(seat as u32 + 1)
    }

    /// All objects there may be, and who commands them.
    pub(super) fn objects(&self) -> impl Iterator<Item = (ObjectId, End)> {
        let clients = self.plan.clients.len();
        let own = (0..clients).map(|seat| (Self::avatar(seat), End::Seat(seat)));
        own.chain((0..self.autonomous).map(move |number| (ObjectId(1_000 + number as u32), End::Server)))
    }

    /// Plays it, and judges.
    pub fn play(&self) -> Played {
        let mut court = Court::new(self.seed, &self.plan);
        let mut judge = Judge::new(self);
        court.set_sabotage(self.sabotage);
        self.start(&mut court, End::Server, &judge);
        (0..self.plan.clients.len()).for_each(|seat| self.start(&mut court, End::Seat(seat), &judge));
        let mut script = Script::new(self);
        let mut faults = self.faults.iter().copied().peekable();
        while let Some((at, _)) = faults.peek().copied() {
            script.run(&mut court, at, &mut judge);
            faults.next().into_iter().for_each(|(_, fault)| self.happen(&mut court, fault, &mut judge));
        }
        script.run(&mut court, Instant::ZERO + FAULTS_END, &mut judge);
        self.calm_down(&mut court);
        judge.rest(&mut court, Instant::ZERO + RECOVERED);
        judge.on_settled(&court, self, false);
        script.run(&mut court, Instant::ZERO + LAST_COMMANDS, &mut judge);
        judge.rest(&mut court, Instant::ZERO + MEASURED);
        judge.on_measured(&court);
        judge.rest(&mut court, Instant::ZERO + END);
        judge.on_settled(&court, self, true);
        judge.into_played(self, &court)
    }

    fn happen(&self, court: &mut Court, fault: Fault, judge: &mut Judge) {
        match fault {
            Fault::Cut(seat) => court.links_mut(seat).into_iter().for_each(|link| link.set_cut(true)),
            Fault::Heal(seat) => court.links_mut(seat).into_iter().for_each(|link| link.set_cut(false)),
            Fault::Crash(end) => {
                judge.on_crash(end);
                court.crash(end);
            }
            Fault::Start(end) => self.start(court, end, judge),
            Fault::Place(seat) => {
                let local = court.local(End::Server);
                if let Some(server) = court.server_mut() {
                    server.place(local, Self::avatar(seat), Pair::units(100, 100), Pair::default());
                }
                judge.on_placed(Self::avatar(seat));
            }
            Fault::Remove => {
                let Some((object, _)) = self.objects().find(|(_, by)| *by == End::Server) else { return };
                court.server_mut().into_iter().for_each(|server| server.remove(object));
                judge.on_removed(object);
            }
        }
    }

    fn start(&self, court: &mut Court, end: End, judge: &Judge) {
        let local = court.local(end);
        let there = self.objects().filter(|(object, _)| !judge.is_removed(*object));
        match end {
            End::Server => {
                let server = court.start_server();
                for (object, by) in there {
                    let owner = if let End::Seat(seat) = by { Some(Court::id(seat)) } else { None };
                    server.spawn(local, object, owner, Pair::units(object.0.into(), 0), Pair::default());
                }
            }
            End::Seat(seat) => {
                let client = court.start_client(seat);
                for (object, by) in there {
                    if by == end { client.own(object) } else { client.watch(object) }
                }
            }
        }
    }

    /// From now on nothing is lost.
    fn calm_down(&self, court: &mut Court) {
        let calm = LinkConfig { loss: Loss::None, duplicate: 0.0, ..self.plan.link.clone() };
        for seat in 0..self.plan.clients.len() {
            for link in court.links_mut(seat) {
                link.set_cut(false);
                link.set_config(calm.clone());
            }
        }
    }

    /// Which of [`KINDS`] are in it.
    pub fn kinds(&self) -> Vec<bool> {
        let has = |kind: fn(&Fault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let Plan { config, link, clients, .. } = &self.plan;
        vec![
            matches!(link.loss, Loss::Independent(_)),
            matches!(link.loss, Loss::Bursty { .. }),
            link.jitter != Jitter::None,
            link.jitter != Jitter::None && link.reorder,
            link.duplicate > 0.0,
            clients.iter().any(|clock| clock.skew_ppm != 0.0),
            has(|fault| matches!(fault, Fault::Cut(_))),
            has(|fault| matches!(fault, Fault::Crash(End::Seat(_)))),
            has(|fault| matches!(fault, Fault::Crash(End::Server))),
            has(|fault| matches!(fault, Fault::Place(_))),
            has(|fault| matches!(fault, Fault::Remove)),
            config.buffer > TimeDelta::ZERO && self.pause < TimeDelta::from_millis(500),
            config.share > 0.0,
            config.method == Method::Paper,
        ]
    }

    /// How much longer than usual packets are under way at the most, nearly always.
    pub(super) fn jitter(&self) -> TimeDelta {
        match self.plan.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(most) => most,
            Jitter::Exponential { mean } => mean * 10,
        }
    }
}

/// When objects are commanded, and what.
struct Script {
    luck: Random,
    pause: TimeDelta,
    next: Vec<(Instant, ObjectId, End)>,
}

impl Script {
    fn new(scenario: &Scenario) -> Self {
        let luck = Random::stream(scenario.seed, "commands");
        let mut script = Self { luck, pause: scenario.pause, next: Vec::new() };
        for (object, by) in scenario.objects() {
            let at = script.later(Instant::ZERO + BEGIN / 2);
            script.next.push((at, object, by));
        }
        script
    }

    fn later(&mut self, at: Instant) -> Instant {
        at + TimeDelta::from_nanos(self.luck.exponential(self.pause.as_nanos() as f64) as i64 + 1)
    }

    /// Goes on until then, and lets objects be commanded meanwhile: each at least once.
    fn run(&mut self, court: &mut Court, until: Instant, judge: &mut Judge) {
        let (begin, middle) = (court.now(), court.now() + (until - court.now()) / 2);
        for (at, ..) in &mut self.next {
            *at = (*at).min(middle).max(begin);
        }
        while let Some(first) = (0..self.next.len()).min_by_key(|index| self.next[*index].0) {
            let (at, object, by) = self.next[first];
            if at >= until {
                break;
            }
            self.next[first].0 = self.later(at.max(court.now()));
            judge.rest(court, at);
            let vector = Pair { x: self.luck.range(-7_000..=7_000), y: self.luck.range(-7_000..=7_000) };
            if judge.on_command(court, by, object, vector) {
                court.command(by, object, vector);
            }
        }
        judge.rest(court, until);
    }
}

fn draw_clock(luck: &mut Random) -> NodeClock {
    let skew_ppm = if luck.chance(0.6) { luck.range(-100..=100) as f64 } else { 0.0 };
    NodeClock { offset: TimeDelta::from_millis(luck.range(-100_000_000..=100_000_000)), skew_ppm }
}

fn draw_link(luck: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*luck.pick(&[320, 5_000, 20_000, 50_000, 80_000, 150_000]));
    let jitter = match luck.below(3) {
        0 => Jitter::None,
        1 => Jitter::Uniform(delay.scale(luck.unit()).min(MOST_JITTER)),
        _ => Jitter::Exponential { mean: delay.scale(0.2 * luck.unit()).min(MOST_JITTER / 5) },
    };
    let loss = match luck.below(5) {
        0 | 1 => Loss::Independent(*luck.pick(&[0.01, 0.05, 0.1, 0.3])),
        2 => Loss::bursts(*luck.pick(&[0.02, 0.1, 0.2]), *luck.pick(&[3.0, 5.0, 8.0])),
        _ => Loss::None,
    };
    let duplicate = if luck.chance(0.2) { 0.05 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: luck.chance(0.5), loss, duplicate, rate: None }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:#?}", self.seed, self.plan)?;
        writeln!(f, "{} objects of the server, a command every {} or so", self.autonomous, self.pause)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
