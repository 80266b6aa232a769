//! Random servers with faults: what can go wrong, and when it heals.

use std::collections::BTreeSet;
use std::fmt;

use coplay::mirror::{DEFAULT_GIT, DeliveryOrder, DropCurve, DropPolicy, GtdMeasure, MirrorConfig, SourceId};
use coplay::time::{Instant, TimeDelta};

use super::checker::MirrorChecker;
use super::{EventScript, MirrorNetwork, MirrorServerPlan, Sabotage};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss};
use crate::random::Random;
use crate::session::scenario::ScenarioResult;

/// Servers begin to speak, faults come, and then all is well and everybody is silent.
const ISSUING_BEGIN: TimeDelta = TimeDelta::from_millis(1_000);
const FAULTS_BEGIN_MS: i64 = 1_500;
const FAULTS_END_MS: i64 = 6_000;
/// Then so long until everything must have got everywhere.
const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(8);
/// Somebody may go on for so long after that.
const LAST_ISSUER_TIME: TimeDelta = TimeDelta::from_secs(5);

/// What can be in a scenario.
pub const FEATURES: [&str; 19] = [
    "loss",
    "bursts",
    "jitter",
    "reordering",
    "duplicates",
    "skew",
    "partition",
    "crash",
    "restart",
    "leave",
    "late join",
    "long snapshots",
    "one talks on",
    "total order",
    "off",
    "on-off",
    "ILA",
    "two curves",
    "adaptive",
];

/// Servers, and everything that happens to them.
#[derive(Clone, Debug)]
pub struct MirrorScenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// The seats.
    pub server_plans: Vec<MirrorServerPlan>,
    /// Both directions of all ways, until the faults end; then they lose nothing.
    pub link: LinkConfig,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, MirrorFault)>,
    /// Seats at which nobody is at the beginning: the last ones, so many.
    pub late_joiners: usize,
    /// Who goes on when all others are silent.
    pub last_issuer: Option<usize>,
    /// Something that is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorFault {
    /// A server is started.
    Enter(usize),
    /// A server is gone without a word.
    Crash(usize),
    /// A server says goodbye.
    Leave(usize),
    /// The first so many seats and the others do not hear each other.
    Split(usize),
    /// They do again.
    Heal,
}

impl MirrorScenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "senate");
        let seats = *luck.pick(&[2, 2, 3, 3, 4, 5, 6, 8]);
        let base = draw_config(&mut luck);
        let policy = draw_policy(&mut luck);
        let mixed = luck.chance(0.4);
        let busy = luck.chance(0.3);
        let mut more = Random::stream(seed, "senate, more");
        let bulk = if more.chance(0.2) { more.range(70_000..=200_000) as usize } else { 0 };
        let talker = more.chance(0.3).then(|| more.below(seats as u64) as usize);
        let plans = (0..seats)
            .map(|_| MirrorServerPlan {
                clock: draw_clock(&mut luck),
                config: MirrorConfig { policy: if mixed { draw_policy(&mut luck) } else { policy }, ..base.clone() },
                work: TimeDelta::from_micros(if busy { luck.range(100..=2_000) } else { 0 }),
                script: draw_script(&mut luck, seats),
                bulk,
            })
            .collect();
        let late = if luck.chance(0.3) { luck.below(seats as u64 - 1) as usize } else { 0 };
        let link = draw_link(&mut luck);
        let mut scenario = Self {
            seed,
            server_plans: plans,
            link,
            faults: Vec::new(),
            late_joiners: late,
            last_issuer: talker,
            sabotage: None,
        };
        scenario.draw_faults(&mut luck);
        scenario
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        let seats = self.server_plans.len();
        let at = |luck: &mut Random| {
            Instant::ZERO + TimeDelta::from_millis(luck.range(FAULTS_BEGIN_MS..=FAULTS_END_MS - 2_500))
        };
        for seat in seats - self.late_joiners..seats {
            self.faults.push((at(luck), MirrorFault::Enter(seat)));
        }
        // Somebody stays, so that there is a game to come back to.
        let staying = luck.below((seats - self.late_joiners) as u64) as usize;
        for seat in (0..seats - self.late_joiners).filter(|seat| *seat != staying) {
            let (when, fate) = (at(luck), luck.unit());
            if fate < 0.15 {
                self.faults.push((when, MirrorFault::Crash(seat)));
            } else if fate < 0.22 {
                self.faults.push((when, MirrorFault::Leave(seat)));
            } else {
                continue;
            }
            if luck.chance(0.6) {
                self.faults.push((when + TimeDelta::from_millis(luck.range(50..=2_400)), MirrorFault::Enter(seat)));
            }
        }
        if luck.chance(0.4) {
            let when = at(luck);
            self.faults.push((when, MirrorFault::Split(luck.range(1..=seats as i64 - 1) as usize)));
            self.faults.push((when + TimeDelta::from_millis(luck.range(200..=2_400)), MirrorFault::Heal));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Plays it, and judges.
    pub fn run(&self) -> ScenarioResult {
        let mut senate = MirrorNetwork::new(self.seed, &self.server_plans, |_, _| self.link.clone());
        let mut judge = MirrorChecker::new(self);
        senate.set_sabotage(self.sabotage);
        (0..self.server_plans.len() - self.late_joiners).for_each(|seat| senate.start_server(seat));
        senate.run_until(Instant::ZERO + ISSUING_BEGIN, |seat, seen| judge.on_observation(seat, seen));
        (0..self.server_plans.len() - self.late_joiners).for_each(|seat| senate.start_issuing(seat));
        for (at, fault) in &self.faults {
            senate.run_until(*at, |seat, seen| judge.on_observation(seat, seen));
            judge.check_all_drops(&senate);
            self.apply_fault(&mut senate, *fault, &mut judge);
        }
        let calm = Instant::ZERO + TimeDelta::from_millis(FAULTS_END_MS);
        senate.run_until(calm, |seat, seen| judge.on_observation(seat, seen));
        judge.check_memory(&senate);
        self.end_impairments(&mut senate);
        senate.run_until(calm + LAST_ISSUER_TIME, |seat, seen| judge.on_observation(seat, seen));
        self.last_issuer.into_iter().for_each(|seat| senate.stop_issuing(seat));
        senate.run_until(calm + RECOVERY_TIME, |seat, seen| judge.on_observation(seat, seen));
        judge.check_memory(&senate);
        judge.on_end(&senate);
        judge.into_result(self, &senate)
    }

    fn apply_fault(&self, senate: &mut MirrorNetwork, fault: MirrorFault, judge: &mut MirrorChecker) {
        let seats = self.server_plans.len();
        match fault {
            MirrorFault::Enter(seat) if senate.server(seat).is_none() => {
                judge.on_start(seat);
                senate.start_server(seat);
                senate.start_issuing(seat);
            }
            MirrorFault::Enter(_) => {}
            MirrorFault::Crash(seat) => {
                judge.on_stop(senate, seat);
                senate.crash(seat);
            }
            MirrorFault::Leave(seat) => {
                judge.on_stop(senate, seat);
                senate.leave(seat);
            }
            MirrorFault::Split(first) => {
                for (from, to) in pairs(seats).filter(|(from, to)| (*from < first) != (*to < first)) {
                    senate.link_mut(from, to).set_cut(true);
                }
            }
            MirrorFault::Heal => pairs(seats).for_each(|(from, to)| senate.link_mut(from, to).set_cut(false)),
        }
    }

    /// From now on nothing is lost, and nothing is said but by who talks on.
    fn end_impairments(&self, senate: &mut MirrorNetwork) {
        let calm = LinkConfig { loss: Loss::None, duplicate: 0.0, ..self.link.clone() };
        for (from, to) in pairs(self.server_plans.len()) {
            senate.link_mut(from, to).set_cut(false);
            senate.link_mut(from, to).set_config(calm.clone());
        }
        (0..self.server_plans.len())
            .filter(|seat| Some(*seat) != self.last_issuer)
            .for_each(|seat| senate.stop_issuing(seat));
    }

    /// The seats at which events may be given up that are not obsolete.
    pub(super) fn nodes_that_may_give_up(&self) -> BTreeSet<usize> {
        let gives_up = |plan: &MirrorServerPlan| matches!(plan.config.policy, DropPolicy::TwoCurve { .. });
        (0..self.server_plans.len()).filter(|seat| gives_up(&self.server_plans[*seat])).collect()
    }

    /// Whether nothing at all goes wrong.
    pub(super) fn is_fault_free(&self) -> bool {
        self.faults.is_empty() && self.late_joiners == 0 && self.link.loss == Loss::None
    }

    /// How much longer one packet may be under way than another, for the most part.
    pub(super) fn jitter_allowance(&self) -> TimeDelta {
        match self.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(most) => most / 2,
            Jitter::Exponential { mean } => mean,
        }
    }

    pub(super) fn order(&self) -> DeliveryOrder {
        self.server_plans[0].config.order
    }

    /// Which of [`FEATURES`] are in it.
    pub fn features(&self) -> Vec<bool> {
        let has = |kind: fn(&MirrorFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let is = |kind: fn(&DropPolicy) -> bool| self.server_plans.iter().any(|plan| kind(&plan.config.policy));
        let entered = self.faults.iter().filter(|(_, fault)| matches!(fault, MirrorFault::Enter(_))).count();
        vec![
            matches!(self.link.loss, Loss::Independent(_)),
            matches!(self.link.loss, Loss::Bursty { .. }),
            self.link.jitter != Jitter::None,
            self.link.reorder && self.link.jitter != Jitter::None,
            self.link.duplicate > 0.0,
            self.server_plans.iter().any(|plan| plan.clock.skew_ppm != 0.0),
            has(|fault| matches!(fault, MirrorFault::Split(_))),
            has(|fault| matches!(fault, MirrorFault::Crash(_))),
            entered > self.late_joiners,
            has(|fault| matches!(fault, MirrorFault::Leave(_))),
            self.late_joiners > 0,
            self.server_plans.iter().any(|plan| plan.bulk > 0),
            self.last_issuer.is_some(),
            self.order() == DeliveryOrder::Total,
            is(|policy| matches!(policy, DropPolicy::Off)),
            is(|policy| matches!(policy, DropPolicy::OnOff { .. })),
            is(|policy| matches!(policy, DropPolicy::Ila(_))),
            is(|policy| matches!(policy, DropPolicy::TwoCurve { .. })),
            is(|policy| matches!(policy, DropPolicy::Adaptive { .. })),
        ]
    }
}

fn pairs(seats: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..seats * seats).map(move |at| (at / seats, at % seats)).filter(|(from, to)| from != to)
}

fn draw_config(luck: &mut Random) -> MirrorConfig {
    MirrorConfig {
        order: *luck.pick(&[DeliveryOrder::Correlated, DeliveryOrder::Total]),
        measure: *luck.pick(&[GtdMeasure::Arrival, GtdMeasure::Waiting, GtdMeasure::Delivery]),
        max_obsolete_set: *luck.pick(&[1, 3, 8, 16, 32]),
        silence_timeout: TimeDelta::from_millis(luck.range(600..=2_000)),
        history_limits: *luck.pick(&[(0, 64), (16, 128), (64, 256), (256, 4_096)]),
        ..MirrorConfig::new(SourceId(0))
    }
}

fn draw_policy(luck: &mut Random) -> DropPolicy {
    // Thresholds that are passed often make policies work hard.
    let threshold = *luck.pick(&[TimeDelta::ZERO, TimeDelta::from_millis(30), DEFAULT_GIT]);
    let curve = *luck.pick(&[
        DropCurve::PAPER,
        DropCurve { min: TimeDelta::ZERO, max: TimeDelta::from_millis(80), max_drop_permille: 900, average_shift: 1 },
    ]);
    match luck.below(9) {
        0 | 1 => DropPolicy::Off,
        2 | 3 => DropPolicy::OnOff { threshold },
        4 | 5 => DropPolicy::Ila(curve),
        6 => DropPolicy::TwoCurve { obsolete: curve, others: DropCurve::LAST_RESORT },
        _ => DropPolicy::Adaptive { threshold },
    }
}

fn draw_clock(luck: &mut Random) -> NodeClock {
    let skew_ppm = if luck.chance(0.6) { luck.range(-100..=100) as f64 } else { 0.0 };
    NodeClock { offset: TimeDelta::from_millis(luck.range(-100_000_000..=100_000_000)), skew_ppm }
}

fn draw_script(luck: &mut Random, seats: usize) -> EventScript {
    let every = TimeDelta::from_millis(luck.range(8..=50) * seats as i64 / 2);
    let shares =
        *luck.pick(&[[0.9, 0.0, 0.0, 0.0], [0.6, 0.1, 0.1, 0.1], [0.3, 0.3, 0.1, 0.1], [0.95, 0.0, 0.05, 0.0]]);
    EventScript {
        every,
        spread: every.scale(luck.unit()),
        count: u32::MAX,
        keys: *luck.pick(&[1, 2, 5, 20]),
        shares,
        bytes: *luck.pick(&[9, 40, 200]),
    }
}

fn draw_link(luck: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*luck.pick(&[200, 5_000, 20_000, 50_000, 80_000, 120_000]));
    let jitter = match luck.below(3) {
        0 => Jitter::None,
        1 => Jitter::Uniform(delay.scale(luck.unit())),
        _ => Jitter::Exponential { mean: delay.scale(0.3 * luck.unit()) },
    };
    let loss = match luck.below(5) {
        0 | 1 => Loss::Independent(*luck.pick(&[0.01, 0.05, 0.1, 0.3])),
        2 | 3 => Loss::bursts(*luck.pick(&[0.02, 0.1, 0.2]), *luck.pick(&[3.0, 5.0, 8.0])),
        _ => Loss::None,
    };
    let duplicate = if luck.chance(0.2) { 0.1 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: luck.chance(0.6), loss, duplicate, rate: None }
}

impl fmt::Display for MirrorScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: link {:?}", self.seed, self.link)?;
        for (seat, plan) in self.server_plans.iter().enumerate() {
            writeln!(f, "seat {seat}: {plan:?}")?;
        }
        writeln!(f, "late: {}", self.late_joiners)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
