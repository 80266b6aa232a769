//! Random servers with faults: what can go wrong, and when it heals.

use std::collections::BTreeSet;
use std::fmt;

use coplay::mirror::{DEFAULT_GIT, DeliveryOrder, DropCurve, DropPolicy, GtdMeasure, MirrorConfig, SourceId};
use coplay::time::{Instant, TimeDelta};

use super::judge::Judge;
use super::{Plan, Sabotage, Script, Senate};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss};
use crate::random::Random;
use crate::scenario::Played;

/// Servers begin to speak, faults come, and then all is well and everybody is silent.
const SPEAK: TimeDelta = TimeDelta::from_millis(1_000);
const BEGIN: i64 = 1_500;
const FAULTS_END: i64 = 6_000;
/// Then so long until everything must have got everywhere.
const RECOVERY: TimeDelta = TimeDelta::from_secs(8);
/// Somebody may go on for so long after that.
const TALK_ON: TimeDelta = TimeDelta::from_secs(5);

/// What can be in a scenario.
pub const KINDS: [&str; 19] = [
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
pub struct Scenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// The seats.
    pub plans: Vec<Plan>,
    /// Both directions of all ways, until the faults end; then they lose nothing.
    pub link: LinkConfig,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, Fault)>,
    /// Seats at which nobody is at the beginning: the last ones, so many.
    pub late: usize,
    /// Who goes on when all others are silent.
    pub talker: Option<usize>,
    /// Something that is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
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

impl Scenario {
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
            .map(|_| Plan {
                clock: draw_clock(&mut luck),
                config: MirrorConfig { policy: if mixed { draw_policy(&mut luck) } else { policy }, ..base.clone() },
                work: TimeDelta::from_micros(if busy { luck.range(100..=2_000) } else { 0 }),
                script: draw_script(&mut luck, seats),
                bulk,
            })
            .collect();
        let late = if luck.chance(0.3) { luck.below(seats as u64 - 1) as usize } else { 0 };
        let link = draw_link(&mut luck);
        let mut scenario = Self { seed, plans, link, faults: Vec::new(), late, talker, sabotage: None };
        scenario.draw_faults(&mut luck);
        scenario
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        let seats = self.plans.len();
        let at = |luck: &mut Random| Instant::ZERO + TimeDelta::from_millis(luck.range(BEGIN..=FAULTS_END - 2_500));
        for seat in seats - self.late..seats {
            self.faults.push((at(luck), Fault::Enter(seat)));
        }
        // Somebody stays, so that there is a game to come back to.
        let staying = luck.below((seats - self.late) as u64) as usize;
        for seat in (0..seats - self.late).filter(|seat| *seat != staying) {
            let (when, fate) = (at(luck), luck.unit());
            if fate < 0.15 {
                self.faults.push((when, Fault::Crash(seat)));
            } else if fate < 0.22 {
                self.faults.push((when, Fault::Leave(seat)));
            } else {
                continue;
            }
            if luck.chance(0.6) {
                self.faults.push((when + TimeDelta::from_millis(luck.range(50..=2_400)), Fault::Enter(seat)));
            }
        }
        if luck.chance(0.4) {
            let when = at(luck);
            self.faults.push((when, Fault::Split(luck.range(1..=seats as i64 - 1) as usize)));
            self.faults.push((when + TimeDelta::from_millis(luck.range(200..=2_400)), Fault::Heal));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Plays it, and judges.
    pub fn play(&self) -> Played {
        let mut senate = Senate::new(self.seed, &self.plans, |_, _| self.link.clone());
        let mut judge = Judge::new(self);
        senate.set_sabotage(self.sabotage);
        (0..self.plans.len() - self.late).for_each(|seat| senate.enter(seat));
        senate.run(Instant::ZERO + SPEAK, |seat, seen| judge.on_seen(seat, seen));
        (0..self.plans.len() - self.late).for_each(|seat| senate.speak(seat));
        for (at, fault) in &self.faults {
            senate.run(*at, |seat, seen| judge.on_seen(seat, seen));
            judge.judge_all_drops(&senate);
            self.happen(&mut senate, *fault, &mut judge);
        }
        let calm = Instant::ZERO + TimeDelta::from_millis(FAULTS_END);
        senate.run(calm, |seat, seen| judge.on_seen(seat, seen));
        judge.judge_memory(&senate);
        self.calm_down(&mut senate);
        senate.run(calm + TALK_ON, |seat, seen| judge.on_seen(seat, seen));
        self.talker.into_iter().for_each(|seat| senate.hush(seat));
        senate.run(calm + RECOVERY, |seat, seen| judge.on_seen(seat, seen));
        judge.judge_memory(&senate);
        judge.on_end(&senate);
        judge.into_played(self, &senate)
    }

    fn happen(&self, senate: &mut Senate, fault: Fault, judge: &mut Judge) {
        let seats = self.plans.len();
        match fault {
            Fault::Enter(seat) if senate.server(seat).is_none() => {
                judge.on_enter(seat);
                senate.enter(seat);
                senate.speak(seat);
            }
            Fault::Enter(_) => {}
            Fault::Crash(seat) => {
                judge.on_gone(senate, seat);
                senate.crash(seat);
            }
            Fault::Leave(seat) => {
                judge.on_gone(senate, seat);
                senate.leave(seat);
            }
            Fault::Split(first) => {
                for (from, to) in pairs(seats).filter(|(from, to)| (*from < first) != (*to < first)) {
                    senate.link_mut(from, to).set_cut(true);
                }
            }
            Fault::Heal => pairs(seats).for_each(|(from, to)| senate.link_mut(from, to).set_cut(false)),
        }
    }

    /// From now on nothing is lost, and nothing is said but by who talks on.
    fn calm_down(&self, senate: &mut Senate) {
        let calm = LinkConfig { loss: Loss::None, duplicate: 0.0, ..self.link.clone() };
        for (from, to) in pairs(self.plans.len()) {
            senate.link_mut(from, to).set_cut(false);
            senate.link_mut(from, to).set_config(calm.clone());
        }
        (0..self.plans.len()).filter(|seat| Some(*seat) != self.talker).for_each(|seat| senate.hush(seat));
    }

    /// The seats at which events may be given up that are not obsolete.
    pub(super) fn give_up(&self) -> BTreeSet<usize> {
        let gives_up = |plan: &Plan| matches!(plan.config.policy, DropPolicy::TwoCurve { .. });
        (0..self.plans.len()).filter(|seat| gives_up(&self.plans[*seat])).collect()
    }

    /// Whether nothing at all goes wrong.
    pub(super) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.late == 0 && self.link.loss == Loss::None
    }

    /// How much longer one packet may be under way than another, for the most part.
    pub(super) fn unevenness(&self) -> TimeDelta {
        match self.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(most) => most / 2,
            Jitter::Exponential { mean } => mean,
        }
    }

    pub(super) fn order(&self) -> DeliveryOrder {
        self.plans[0].config.order
    }

    /// Which of [`KINDS`] are in it.
    pub fn kinds(&self) -> Vec<bool> {
        let has = |kind: fn(&Fault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let is = |kind: fn(&DropPolicy) -> bool| self.plans.iter().any(|plan| kind(&plan.config.policy));
        let entered = self.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Enter(_))).count();
        vec![
            matches!(self.link.loss, Loss::Independent(_)),
            matches!(self.link.loss, Loss::Bursty { .. }),
            self.link.jitter != Jitter::None,
            self.link.reorder && self.link.jitter != Jitter::None,
            self.link.duplicate > 0.0,
            self.plans.iter().any(|plan| plan.clock.skew_ppm != 0.0),
            has(|fault| matches!(fault, Fault::Split(_))),
            has(|fault| matches!(fault, Fault::Crash(_))),
            entered > self.late,
            has(|fault| matches!(fault, Fault::Leave(_))),
            self.late > 0,
            self.plans.iter().any(|plan| plan.bulk > 0),
            self.talker.is_some(),
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

fn draw_script(luck: &mut Random, seats: usize) -> Script {
    let every = TimeDelta::from_millis(luck.range(8..=50) * seats as i64 / 2);
    let shares =
        *luck.pick(&[[0.9, 0.0, 0.0, 0.0], [0.6, 0.1, 0.1, 0.1], [0.3, 0.3, 0.1, 0.1], [0.95, 0.0, 0.05, 0.0]]);
    Script {
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

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: link {:?}", self.seed, self.link)?;
        for (seat, plan) in self.plans.iter().enumerate() {
            writeln!(f, "seat {seat}: {plan:?}")?;
        }
        writeln!(f, "late: {}", self.late)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
