//! Random scenarios of a server of moving objects and its clients with faults, each drawn from a seed alone.
//!
//! From 2 s on, clients are cut off, endpoints crash and restart, and the server overrules, transfers, removes and
//! respawns objects. At 9 s all links are restored, and packet loss and duplicates end; all restarts and respawns come
//! before. Some removed objects stay removed. Delay, jitter, reordering and clock skew last to the end. Convergence is
//! checked at 14 s and, after more commands up to 16.2 s, at 18.5 s; discrepancies are checked at 17 s. If a client is
//! cut off until the server forgets it, all times from 9 s on are 8 s later.

use std::fmt;

use coplay::motion::{MotionConfig, ObjectId, SyncMethod};
use coplay::time::{Instant, TimeDelta};

use super::sabotage::MotionSabotage;
use super::{MotionEndpoint, MotionPlan, avatar_of};
use crate::clock::NodeClock;
use crate::network::Fault;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_links::random::Random;

/// Earliest time of a cut, a crash or a decision of the server.
pub(super) const FAULTS_BEGIN: TimeDelta = TimeDelta::from_secs(2);
/// Time at which cuts, packet loss and duplicates have ended, without extension. All restarts and respawns come before.
pub(super) const FAULTS_END: TimeDelta = TimeDelta::from_secs(9);
/// Addition to all times from [`FAULTS_END`] on, in a scenario in which a client is cut off until the server forgets
/// it.
const LONG_PARTITION_EXTENSION: TimeDelta = TimeDelta::from_secs(8);
/// Duration of a cut after which the server has forgotten the client, in milliseconds. The server forgets a silent
/// client after ten seconds.
const LONG_PARTITION_MS: std::ops::RangeInclusive<i64> = 10_100..=13_000;
/// Time at which all clients must agree with the server. No command is given from the end of the faults until then.
pub(super) const RECOVERY_END: TimeDelta = TimeDelta::from_secs(14);
/// End of a second series of commands, after the first check of convergence.
pub(super) const LAST_COMMANDS_AT: TimeDelta = TimeDelta::from_millis(16_200);
/// Time at which the discrepancies are measured.
const MEASURED_AT: TimeDelta = TimeDelta::from_secs(17);
/// End of the scenario, and time of the last check of convergence.
pub(super) const SCENARIO_END: TimeDelta = TimeDelta::from_millis(18_500);

/// Largest uniform jitter of a link; the mean of exponential jitter is at most a fifth of it.
const MAX_JITTER: TimeDelta = TimeDelta::from_millis(50);

/// A server, its clients, their objects, and all faults injected into them.
#[derive(Clone, Debug)]
pub struct MotionScenario {
    /// Seed from which the whole scenario is drawn.
    pub seed: u64,
    /// Clocks, link conditions and settings of the network.
    pub plan: MotionPlan,
    /// Number of objects that the server itself owns and commands.
    pub server_object_count: usize,
    /// Mean interval between two commands of an object. Intervals are exponentially distributed.
    pub mean_command_interval: TimeDelta,
    /// Addition to all times from the end of the faults on; zero without a long cut.
    pub extension: TimeDelta,
    /// Faults with their true times, in time order.
    pub faults: Vec<(Instant, MotionFault)>,
    /// Deliberate defect at the first client, to prove that the checker detects it.
    pub sabotage: Option<MotionSabotage>,
}

/// A fault of a scenario, the end of one, or a decision of the server. Computer 0 is the server's; clients follow in
/// seat order.
pub type MotionFault = Fault<MotionDecision>;

/// A decision of the server, or a forged command number. Clients are given by seat number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionDecision {
    /// Makes the server move a client's object to another place.
    Place(usize),
    /// Makes the server give a command to a client's object.
    Command(usize),
    /// Makes the server transfer the object of one client (first number) to another (second number).
    Give(usize, usize),
    /// Makes the server remove one of its own objects.
    Remove,
    /// Makes the server remove an object until it is respawned.
    Vanish(ObjectId),
    /// Makes the server spawn a removed object again under the same id.
    Respawn(ObjectId),
    /// Replaces the command numbers in a client's next datagram with commands by the highest number.
    ForgeNumber(usize),
}

impl MotionScenario {
    /// Draws the scenario of a seed. The stream name and the order of the draws are part of the seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, "court");
        let clients = random.range(2..=5) as usize;
        let method = if random.chance(0.2) { MotionConfig::paper(0) } else { MotionConfig::clocks(0) };
        let server_share = if random.chance(0.3) && method.method == SyncMethod::Clocks { 0.25 } else { 0.0 };
        let combine_interval = TimeDelta::from_millis(*random.pick(&[0, 50, 50, 50, 120]));
        let plan = MotionPlan {
            config: MotionConfig { server_share, combine_interval, ..method },
            frame: TimeDelta::from_micros(*random.pick(&[16_667, 33_333, 33_333, 20_000])),
            server: NodeClock::draw(&mut random),
            clients: (0..clients).map(|_| NodeClock::draw(&mut random)).collect(),
            link: draw_link(&mut random),
        };
        let server_object_count = random.below(4) as usize;
        let mean_command_interval = TimeDelta::from_millis(*random.pick(&[150, 400, 400, 1_000, 2_500]));
        let mut scenario = Self {
            seed,
            plan,
            server_object_count,
            mean_command_interval,
            extension: TimeDelta::ZERO,
            faults: Vec::new(),
            sabotage: None,
        };
        scenario.draw_faults(&mut random);
        scenario
    }

    fn draw_faults(&mut self, random: &mut Random) {
        const LONGEST: i64 = 2_500;
        let (begin, end) = (FAULTS_BEGIN.as_micros() / 1_000, FAULTS_END.as_micros() / 1_000 - LONGEST - 100);
        let at = |random: &mut Random| Instant::ZERO + TimeDelta::from_millis(random.range(begin..=end));
        let later = |random: &mut Random, least: i64| TimeDelta::from_millis(random.range(least..=LONGEST));
        for seat in 0..self.plan.clients.len() {
            let when = at(random);
            if random.chance(0.05) {
                self.extension = LONG_PARTITION_EXTENSION;
                let when = Instant::ZERO + FAULTS_BEGIN + TimeDelta::from_millis(random.range(0..=1_000));
                self.faults.push((when, Fault::Cut(0, seat + 1)));
                self.faults
                    .push((when + TimeDelta::from_millis(random.range(LONG_PARTITION_MS)), Fault::Heal(0, seat + 1)));
            } else if random.chance(0.25) {
                self.faults.push((when, Fault::Cut(0, seat + 1)));
                self.faults.push((when + later(random, 200), Fault::Heal(0, seat + 1)));
            } else if random.chance(0.2) {
                self.faults.push((when, Fault::Crash(seat + 1)));
                self.faults.push((when + later(random, 10), Fault::Start(seat + 1)));
            }
        }
        if random.chance(0.25) {
            let when = at(random);
            self.faults.push((when, Fault::Crash(0)));
            self.faults.push((when + later(random, 10), Fault::Start(0)));
        }
        if self.server_object_count > 0 && random.chance(0.15) {
            self.faults.push((at(random), Fault::Engine(MotionDecision::Remove)));
        }
        let seats = self.plan.clients.len() as u64;
        for decision in [MotionDecision::Place, MotionDecision::Command, MotionDecision::ForgeNumber] {
            if random.chance(0.15) {
                self.faults.push((at(random), Fault::Engine(decision(random.below(seats) as usize))));
            }
        }
        if random.chance(0.15) {
            let (seat, to) = (random.below(seats) as usize, random.below(seats) as usize);
            self.faults.push((at(random), Fault::Engine(MotionDecision::Give(seat, to))));
        }
        if random.chance(0.2) {
            let all: Vec<ObjectId> = self.objects().map(|(object, _)| object).collect();
            let (object, when) = (*random.pick(&all), at(random));
            let gap = TimeDelta::from_millis(*random.pick(&[0, 20, 200, 1_500]));
            self.faults.push((when, Fault::Engine(MotionDecision::Vanish(object))));
            self.faults.push((when + gap, Fault::Engine(MotionDecision::Respawn(object))));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Returns the time of this scenario that corresponds to the time `usually` without extension.
    pub(super) fn time_of(&self, usually: TimeDelta) -> Instant {
        Instant::ZERO + usually + self.extension
    }

    /// Returns the time at which the discrepancies are measured.
    pub(super) fn measurement_time(&self) -> Instant {
        self.time_of(MEASURED_AT)
    }

    /// Returns all objects with their initial owners, whether removed or not.
    pub(super) fn objects(&self) -> impl Iterator<Item = (ObjectId, MotionEndpoint)> {
        let clients = self.plan.clients.len();
        let own = (0..clients).map(|seat| (avatar_of(seat), MotionEndpoint::Seat(seat)));
        own.chain(
            (0..self.server_object_count).map(move |number| (ObjectId(1_000 + number as u64), MotionEndpoint::Server)),
        )
    }

    /// Returns the features that a scenario may have, for coverage counts, and whether this one has them.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let has = |kind: fn(&MotionFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let decides = |kind: fn(&MotionDecision) -> bool| {
            self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Engine(decision) if kind(decision)))
        };
        let MotionPlan { config, link, clients, .. } = &self.plan;
        vec![
            ("loss", matches!(link.loss, Loss::Independent(_))),
            ("bursts", matches!(link.loss, Loss::Bursty { .. })),
            ("jitter", link.jitter != Jitter::None),
            ("reordering", link.jitter != Jitter::None && link.reorder),
            ("duplicates", link.duplicate > 0.0),
            ("skew", clients.iter().any(|clock| clock.skew_ppm != 0.0)),
            ("partition", has(|fault| matches!(fault, Fault::Cut(..)))),
            ("client crash", has(|fault| matches!(fault, Fault::Crash(1..)))),
            ("server restart", has(|fault| matches!(fault, Fault::Crash(0)))),
            ("object placed", decides(|decision| matches!(decision, MotionDecision::Place(_)))),
            ("object removed", decides(|decision| matches!(decision, MotionDecision::Remove))),
            (
                "combined commands",
                config.combine_interval > TimeDelta::ZERO && self.mean_command_interval < TimeDelta::from_millis(500),
            ),
            ("server share", config.server_share > 0.0),
            ("paper method", config.method == SyncMethod::Paper),
            ("long partition", self.extension > TimeDelta::ZERO),
            ("server command", decides(|decision| matches!(decision, MotionDecision::Command(_)))),
            ("ownership transferred", decides(|decision| matches!(decision, MotionDecision::Give(..)))),
            ("object respawned", decides(|decision| matches!(decision, MotionDecision::Respawn(_)))),
            ("forged number", decides(|decision| matches!(decision, MotionDecision::ForgeNumber(_)))),
        ]
    }

    /// Returns the largest delay that jitter adds; for exponential jitter ten times its mean, which is almost never
    /// exceeded.
    pub(super) fn max_jitter(&self) -> TimeDelta {
        match self.plan.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(max) => max,
            Jitter::Exponential { mean } => mean * 10,
        }
    }
}

fn draw_link(random: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*random.pick(&[320, 5_000, 20_000, 50_000, 80_000, 150_000]));
    let jitter = match random.below(3) {
        0 => Jitter::None,
        1 => Jitter::Uniform(delay.scale(random.unit()).min(MAX_JITTER)),
        _ => Jitter::Exponential { mean: delay.scale(0.2 * random.unit()).min(MAX_JITTER / 5) },
    };
    let loss = match random.below(5) {
        0 | 1 => Loss::Independent(*random.pick(&[0.01, 0.05, 0.1, 0.3])),
        2 => Loss::bursts(*random.pick(&[0.02, 0.1, 0.2]), *random.pick(&[3.0, 5.0, 8.0])),
        _ => Loss::None,
    };
    let duplicate = if random.chance(0.2) { 0.05 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: random.chance(0.5), loss, duplicate, rate: None }
}

impl fmt::Display for MotionScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:#?}", self.seed, self.plan)?;
        writeln!(
            f,
            "{} server objects, one command per object every {} on average",
            self.server_object_count, self.mean_command_interval
        )?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
