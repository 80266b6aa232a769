//! Random courts with faults: what can go wrong, and when it heals.

use std::fmt;

use coplay::motion::{ClientId, MilliVec2, MotionConfig, ObjectId, SyncMethod};
use coplay::time::{Instant, TimeDelta};

use super::checker::MotionChecker;
use super::sabotage::Sabotage;
use super::{Endpoint, MotionNetwork, MotionPlan};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss};
use crate::random::Random;
use crate::session::scenario::ScenarioResult;

/// Faults come between these, and then all is well.
const FAULTS_BEGIN: TimeDelta = TimeDelta::from_secs(2);
const FAULTS_END: TimeDelta = TimeDelta::from_secs(9);
/// Everything from there on is so much later where somebody is cut off for so long that the server forgets it.
const LONG_PARTITION_EXTENSION: TimeDelta = TimeDelta::from_secs(8);
/// How long that is, in milliseconds: the server has patience for ten seconds.
const LONG_PARTITION_MS: std::ops::RangeInclusive<i64> = 10_100..=13_000;
/// Nobody commands anything from the last fault on, and after this all simulators must be where the server's are.
const RECOVERY_END: TimeDelta = TimeDelta::from_secs(14);
/// Then everybody commands again until here, and at the end all that was told of it must be true.
const LAST_COMMANDS_AT: TimeDelta = TimeDelta::from_millis(16_200);
const MEASURED_AT: TimeDelta = TimeDelta::from_secs(17);
const SCENARIO_END: TimeDelta = TimeDelta::from_millis(18_500);

/// By how much delays differ at the most.
const MAX_JITTER: TimeDelta = TimeDelta::from_millis(50);

/// What can be in a scenario.
pub const FEATURES: [&str; 19] = [
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
    "long partition",
    "object commanded",
    "object given away",
    "object spawned again",
    "boast",
];

/// A court to be played, with everything that happens to it.
#[derive(Clone, Debug)]
pub struct MotionScenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// What it is like.
    pub plan: MotionPlan,
    /// Objects that the server itself commands.
    pub server_object_count: usize,
    /// The time between two commands of an object, on average.
    pub mean_command_interval: TimeDelta,
    /// By how much later than usual faults end.
    pub extension: TimeDelta,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, MotionFault)>,
    /// Something that is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Something that happens to a court.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionFault {
    /// A client does not hear the server, nor the server it.
    Cut(usize),
    /// They do again.
    Heal(usize),
    /// Something is gone without a word.
    Crash(Endpoint),
    /// It is started anew, and knows nothing.
    Start(Endpoint),
    /// The server puts an object of a client somewhere else.
    Place(usize),
    /// The server commands an object of a client itself.
    Command(usize),
    /// The server gives an object of a client to another.
    Give(usize, usize),
    /// One of the server's own objects is no more.
    Remove,
    /// Any object is no more for a while.
    Vanish(ObjectId),
    /// There is one again that is called the same.
    Respawn(ObjectId),
    /// A client claims to have given more commands than there are numbers.
    Boast(usize),
}

impl MotionScenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "court");
        let clients = luck.range(2..=5) as usize;
        let method = if luck.chance(0.2) { MotionConfig::paper(0) } else { MotionConfig::clocks(0) };
        let share = if luck.chance(0.3) && method.method == SyncMethod::Clocks { 0.25 } else { 0.0 };
        let buffer = TimeDelta::from_millis(*luck.pick(&[0, 50, 50, 50, 120]));
        let plan = MotionPlan {
            config: MotionConfig { server_share: share, combine_interval: buffer, ..method },
            frame: TimeDelta::from_micros(*luck.pick(&[16_667, 33_333, 33_333, 20_000])),
            server: draw_clock(&mut luck),
            clients: (0..clients).map(|_| draw_clock(&mut luck)).collect(),
            link: draw_link(&mut luck),
        };
        let autonomous = luck.below(4) as usize;
        let pause = TimeDelta::from_millis(*luck.pick(&[150, 400, 400, 1_000, 2_500]));
        let mut scenario = Self {
            seed,
            plan,
            server_object_count: autonomous,
            mean_command_interval: pause,
            extension: TimeDelta::ZERO,
            faults: Vec::new(),
            sabotage: None,
        };
        scenario.draw_faults(&mut luck);
        scenario
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        const LONGEST: i64 = 2_500;
        let (begin, end) = (FAULTS_BEGIN.as_micros() / 1_000, FAULTS_END.as_micros() / 1_000 - LONGEST - 100);
        let at = |luck: &mut Random| Instant::ZERO + TimeDelta::from_millis(luck.range(begin..=end));
        let later = |luck: &mut Random, least: i64| TimeDelta::from_millis(luck.range(least..=LONGEST));
        for seat in 0..self.plan.clients.len() {
            let when = at(luck);
            if luck.chance(0.05) {
                self.extension = LONG_PARTITION_EXTENSION;
                let when = Instant::ZERO + FAULTS_BEGIN + TimeDelta::from_millis(luck.range(0..=1_000));
                self.faults.push((when, MotionFault::Cut(seat)));
                self.faults
                    .push((when + TimeDelta::from_millis(luck.range(LONG_PARTITION_MS)), MotionFault::Heal(seat)));
            } else if luck.chance(0.25) {
                self.faults.push((when, MotionFault::Cut(seat)));
                self.faults.push((when + later(luck, 200), MotionFault::Heal(seat)));
            } else if luck.chance(0.2) {
                self.faults.push((when, MotionFault::Crash(Endpoint::Seat(seat))));
                self.faults.push((when + later(luck, 10), MotionFault::Start(Endpoint::Seat(seat))));
            }
        }
        if luck.chance(0.25) {
            let when = at(luck);
            self.faults.push((when, MotionFault::Crash(Endpoint::Server)));
            self.faults.push((when + later(luck, 10), MotionFault::Start(Endpoint::Server)));
        }
        if self.server_object_count > 0 && luck.chance(0.15) {
            self.faults.push((at(luck), MotionFault::Remove));
        }
        let seats = self.plan.clients.len() as u64;
        for fault in [MotionFault::Place, MotionFault::Command, MotionFault::Boast] {
            if luck.chance(0.15) {
                self.faults.push((at(luck), fault(luck.below(seats) as usize)));
            }
        }
        if luck.chance(0.15) {
            let (seat, to) = (luck.below(seats) as usize, luck.below(seats) as usize);
            self.faults.push((at(luck), MotionFault::Give(seat, to)));
        }
        if luck.chance(0.2) {
            let all: Vec<ObjectId> = self.objects().map(|(object, _)| object).collect();
            let (object, when) = (*luck.pick(&all), at(luck));
            let gap = TimeDelta::from_millis(*luck.pick(&[0, 20, 200, 1_500]));
            self.faults.push((when, MotionFault::Vanish(object)));
            self.faults.push((when + gap, MotionFault::Respawn(object)));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// A moment of a scenario in which faults end when they usually do.
    fn time_of(&self, usually: TimeDelta) -> Instant {
        Instant::ZERO + usually + self.extension
    }

    /// When discrepancies are measured.
    pub(super) fn measurement_time(&self) -> Instant {
        self.time_of(MEASURED_AT)
    }

    /// The object of a client.
    pub(super) fn avatar_of(seat: usize) -> ObjectId {
        ObjectId(seat as u32 + 1)
    }

    /// All objects there may be, and who commands them.
    pub(super) fn objects(&self) -> impl Iterator<Item = (ObjectId, Endpoint)> {
        let clients = self.plan.clients.len();
        let own = (0..clients).map(|seat| (Self::avatar_of(seat), Endpoint::Seat(seat)));
        own.chain((0..self.server_object_count).map(move |number| (ObjectId(1_000 + number as u32), Endpoint::Server)))
    }

    /// Plays it, and judges.
    pub fn run(&self) -> ScenarioResult {
        let mut court = MotionNetwork::new(self.seed, &self.plan);
        let mut judge = MotionChecker::new(self);
        court.set_sabotage(self.sabotage);
        self.start_endpoint(&mut court, Endpoint::Server, &judge);
        (0..self.plan.clients.len()).for_each(|seat| self.start_endpoint(&mut court, Endpoint::Seat(seat), &judge));
        let mut script = CommandScript::new(self);
        let mut faults = self.faults.iter().copied().peekable();
        while let Some((at, _)) = faults.peek().copied() {
            script.run(&mut court, at, &mut judge);
            faults.next().into_iter().for_each(|(_, fault)| self.apply_fault(&mut court, fault, &mut judge));
        }
        script.run(&mut court, self.time_of(FAULTS_END), &mut judge);
        self.end_impairments(&mut court);
        judge.run_until(&mut court, self.time_of(RECOVERY_END));
        judge.check_convergence(&court, self, false);
        script.run(&mut court, self.time_of(LAST_COMMANDS_AT), &mut judge);
        judge.run_until(&mut court, self.measurement_time());
        judge.check_discrepancies(&court);
        judge.run_until(&mut court, self.time_of(SCENARIO_END));
        judge.check_convergence(&court, self, true);
        judge.into_result(self, &court)
    }

    fn apply_fault(&self, court: &mut MotionNetwork, fault: MotionFault, judge: &mut MotionChecker) {
        match fault {
            MotionFault::Cut(seat) => court.links_mut(seat).into_iter().for_each(|link| link.set_cut(true)),
            MotionFault::Heal(seat) => court.links_mut(seat).into_iter().for_each(|link| link.set_cut(false)),
            MotionFault::Crash(end) => {
                judge.on_crash(court, end);
                court.crash(end);
            }
            MotionFault::Start(end) => self.start_endpoint(court, end, judge),
            MotionFault::Remove => {
                let Some((object, _)) = self.objects().find(|(_, by)| *by == Endpoint::Server) else { return };
                court.server_mut().into_iter().for_each(|server| server.remove(object));
                judge.on_removed(object);
            }
            MotionFault::Boast(seat) => court.forge_next_number(seat),
            // The rest is up to the server, if it runs.
            _ if court.server().is_none() => {}
            MotionFault::Vanish(object) if !judge.is_removed(object) => {
                court.server_mut().into_iter().for_each(|server| server.remove(object));
                judge.on_removed(object);
            }
            MotionFault::Respawn(object) if judge.is_removed(object) => self.respawn(court, object, judge),
            MotionFault::Place(seat) | MotionFault::Command(seat) | MotionFault::Give(seat, _) => {
                let object = Self::avatar_of(seat);
                if !judge.is_removed(object) {
                    self.apply_server_decision(court, fault, object, judge);
                }
            }
            MotionFault::Vanish(_) | MotionFault::Respawn(_) => {}
        }
    }

    /// The server decides something about an object that a client commands.
    fn apply_server_decision(
        &self,
        court: &mut MotionNetwork,
        fault: MotionFault,
        object: ObjectId,
        judge: &mut MotionChecker,
    ) {
        let local = court.local_time(Endpoint::Server);
        let Some(server) = court.server_mut() else { return };
        match fault {
            MotionFault::Command(_) => server.command(local, object, MilliVec2 { x: -1_500, y: 2_500 }),
            MotionFault::Give(_, to) => {
                server.transfer_ownership(object, Some(MotionNetwork::client_id(to)));
                judge.on_transfer(court, object, to);
            }
            _ => server.place(local, object, MilliVec2::from_units(100, 100), MilliVec2::default()),
        }
        judge.on_server_decision(court, object);
        court.transmit(Endpoint::Server);
    }

    fn respawn(&self, court: &mut MotionNetwork, object: ObjectId, judge: &mut MotionChecker) {
        let (local, owner) = (court.local_time(Endpoint::Server), judge.owner(object));
        let Some(server) = court.server_mut() else { return };
        server.spawn(
            local,
            object,
            owner_client(owner),
            MilliVec2::from_units(-50, object.0.into()),
            MilliVec2 { x: 700, y: 100 },
        );
        judge.on_respawned(court, object);
        for seat in 0..court.seats() {
            court.subscribe(seat, object, owner == Endpoint::Seat(seat));
        }
    }

    fn start_endpoint(&self, court: &mut MotionNetwork, end: Endpoint, judge: &MotionChecker) {
        let local = court.local_time(end);
        let there = self.objects().map(|(object, _)| object).filter(|object| !judge.is_removed(*object));
        match end {
            Endpoint::Server => {
                // What a server finds when it is started is not where its clients saw it last.
                let later = court.run_count().into();
                let server = court.start_server();
                for object in there {
                    let (place, vector) =
                        (MilliVec2::from_units(object.0.into(), later), MilliVec2 { x: 500, y: -250 });
                    server.spawn(local, object, owner_client(judge.owner(object)), place, vector);
                }
            }
            Endpoint::Seat(seat) => {
                court.start_client(seat);
                there.for_each(|object| court.subscribe(seat, object, judge.owner(object) == end));
            }
        }
    }

    /// From now on nothing is lost.
    fn end_impairments(&self, court: &mut MotionNetwork) {
        let calm = LinkConfig { loss: Loss::None, duplicate: 0.0, ..self.plan.link.clone() };
        for seat in 0..self.plan.clients.len() {
            for link in court.links_mut(seat) {
                link.set_cut(false);
                link.set_config(calm.clone());
            }
        }
    }

    /// Which of [`FEATURES`] are in it.
    pub fn features(&self) -> Vec<bool> {
        let has = |kind: fn(&MotionFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let MotionPlan { config, link, clients, .. } = &self.plan;
        vec![
            matches!(link.loss, Loss::Independent(_)),
            matches!(link.loss, Loss::Bursty { .. }),
            link.jitter != Jitter::None,
            link.jitter != Jitter::None && link.reorder,
            link.duplicate > 0.0,
            clients.iter().any(|clock| clock.skew_ppm != 0.0),
            has(|fault| matches!(fault, MotionFault::Cut(_))),
            has(|fault| matches!(fault, MotionFault::Crash(Endpoint::Seat(_)))),
            has(|fault| matches!(fault, MotionFault::Crash(Endpoint::Server))),
            has(|fault| matches!(fault, MotionFault::Place(_))),
            has(|fault| matches!(fault, MotionFault::Remove)),
            config.combine_interval > TimeDelta::ZERO && self.mean_command_interval < TimeDelta::from_millis(500),
            config.server_share > 0.0,
            config.method == SyncMethod::Paper,
            self.extension > TimeDelta::ZERO,
            has(|fault| matches!(fault, MotionFault::Command(_))),
            has(|fault| matches!(fault, MotionFault::Give(..))),
            has(|fault| matches!(fault, MotionFault::Respawn(_))),
            has(|fault| matches!(fault, MotionFault::Boast(_))),
        ]
    }

    /// How much longer than usual packets are under way at the most, nearly always.
    pub(super) fn max_jitter(&self) -> TimeDelta {
        match self.plan.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(most) => most,
            Jitter::Exponential { mean } => mean * 10,
        }
    }
}

/// When objects are commanded, and what.
struct CommandScript {
    random: Random,
    mean_interval: TimeDelta,
    next_commands: Vec<(Instant, ObjectId)>,
}

impl CommandScript {
    fn new(scenario: &MotionScenario) -> Self {
        let luck = Random::stream(scenario.seed, "commands");
        let mut script =
            Self { random: luck, mean_interval: scenario.mean_command_interval, next_commands: Vec::new() };
        for (object, _) in scenario.objects() {
            let at = script.next_time(Instant::ZERO + FAULTS_BEGIN / 2);
            script.next_commands.push((at, object));
        }
        script
    }

    fn next_time(&mut self, at: Instant) -> Instant {
        at + TimeDelta::from_nanos(self.random.exponential(self.mean_interval.as_nanos() as f64) as i64 + 1)
    }

    /// Goes on until then, and lets objects be commanded meanwhile: each at least once.
    fn run(&mut self, court: &mut MotionNetwork, until: Instant, judge: &mut MotionChecker) {
        let (begin, middle) = (court.now(), court.now() + (until - court.now()) / 2);
        for (at, _) in &mut self.next_commands {
            *at = (*at).min(middle).max(begin);
        }
        while let Some(first) = (0..self.next_commands.len()).min_by_key(|index| self.next_commands[*index].0) {
            let (at, object) = self.next_commands[first];
            if at >= until {
                break;
            }
            self.next_commands[first].0 = self.next_time(at.max(court.now()));
            judge.run_until(court, at);
            let vector = MilliVec2 { x: self.random.range(-7_000..=7_000), y: self.random.range(-7_000..=7_000) };
            if judge.on_command(court, object, vector) {
                court.command(judge.owner(object), object, vector);
            }
        }
        judge.run_until(court, until);
    }
}

/// Who commands an object, as the server names it.
fn owner_client(owner: Endpoint) -> Option<ClientId> {
    match owner {
        Endpoint::Server => None,
        Endpoint::Seat(seat) => Some(MotionNetwork::client_id(seat)),
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
        1 => Jitter::Uniform(delay.scale(luck.unit()).min(MAX_JITTER)),
        _ => Jitter::Exponential { mean: delay.scale(0.2 * luck.unit()).min(MAX_JITTER / 5) },
    };
    let loss = match luck.below(5) {
        0 | 1 => Loss::Independent(*luck.pick(&[0.01, 0.05, 0.1, 0.3])),
        2 => Loss::bursts(*luck.pick(&[0.02, 0.1, 0.2]), *luck.pick(&[3.0, 5.0, 8.0])),
        _ => Loss::None,
    };
    let duplicate = if luck.chance(0.2) { 0.05 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: luck.chance(0.5), loss, duplicate, rate: None }
}

impl fmt::Display for MotionScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:#?}", self.seed, self.plan)?;
        writeln!(
            f,
            "{} objects of the server, a command every {} or so",
            self.server_object_count, self.mean_command_interval
        )?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
