//! Random scenarios of mirrored servers with faults, each drawn from a seed alone.
//!
//! From 1.5 s on, servers crash, leave, join late or are cut off from each other. A server that crashed or left
//! restarts before 6 s or stays down; at least one server always runs. At 6 s all links are restored, packet loss and
//! duplicates end, and the servers stop issuing events; in some scenarios one server continues until 11 s. Delay,
//! jitter, reordering and clock skew last to the end. The final checks are at 14 s.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;

use coplay::mirror::{DEFAULT_GIT, DeliveryOrder, DropCurve, DropPolicy, GtdMeasure, MirrorConfig, SourceId};
use coplay::time::{Instant, TimeDelta};

use super::{EventScript, MirrorSabotage, MirrorServerPlan};
use crate::clock::NodeClock;
use crate::network::Fault;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_links::random::Random;

/// Time at which the servers begin to issue events.
pub(super) const ISSUING_BEGIN: TimeDelta = TimeDelta::from_millis(1_000);
/// Earliest time of a crash, a leave, a late join or a partition, in milliseconds.
const FAULTS_BEGIN_MS: i64 = 1_500;
/// Time at which partitions, packet loss and duplicates have ended, in milliseconds. Servers that restart do so before.
pub(super) const FAULTS_END_MS: i64 = 6_000;
/// Time from the end of the faults to the final checks.
pub(super) const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(8);
/// Time for which the last issuer continues after the end of the faults.
pub(super) const LAST_ISSUER_TIME: TimeDelta = TimeDelta::from_secs(5);

/// Mirrored servers, their links, and all faults injected into them.
#[derive(Clone, Debug)]
pub struct MirrorScenario {
    /// Seed from which the whole scenario is drawn.
    pub seed: u64,
    /// Plan of each node and its server.
    pub server_plans: Vec<MirrorServerPlan>,
    /// Conditions of all links. Loss and duplicates end with the faults.
    pub link: LinkConfig,
    /// Faults with their true times, in time order.
    pub faults: Vec<(Instant, MirrorFault)>,
    /// Number of servers that join late: the last ones.
    pub late_joiners: usize,
    /// Node whose server issues events for 5 s longer than all others; `None` if all stop at the same time.
    pub last_issuer: Option<usize>,
    /// Deliberate defect at the first node, to prove that the checker detects it.
    pub sabotage: Option<MirrorSabotage>,
}

/// A fault among the servers, or the end of one.
pub type MirrorFault = Fault<Infallible>;

impl MirrorScenario {
    /// Draws the scenario of a seed. A change of the stream names or of the order of the draws changes the scenario of
    /// every seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, "senate");
        let servers = *random.pick(&[2, 2, 3, 3, 4, 5, 6, 8]);
        let base = draw_config(&mut random);
        let policy = draw_policy(&mut random);
        let mixed = random.chance(0.4);
        let busy = random.chance(0.3);
        let mut extra_random = Random::stream(seed, "senate, more");
        let bulk = if extra_random.chance(0.2) { extra_random.range(70_000..=200_000) as usize } else { 0 };
        let last_issuer = extra_random.chance(0.3).then(|| extra_random.below(servers as u64) as usize);
        let server_plans = (0..servers)
            .map(|_| MirrorServerPlan {
                clock: NodeClock::draw(&mut random),
                config: MirrorConfig { policy: if mixed { draw_policy(&mut random) } else { policy }, ..base.clone() },
                work: TimeDelta::from_micros(if busy { random.range(100..=2_000) } else { 0 }),
                script: draw_script(&mut random, servers),
                bulk,
            })
            .collect();
        let late_joiners = if random.chance(0.3) { random.below(servers as u64 - 1) as usize } else { 0 };
        let link = draw_link(&mut random);
        let mut scenario =
            Self { seed, server_plans, link, faults: Vec::new(), late_joiners, last_issuer, sabotage: None };
        scenario.draw_faults(&mut random);
        scenario
    }

    fn draw_faults(&mut self, random: &mut Random) {
        let servers = self.server_plans.len();
        let at = |random: &mut Random| {
            Instant::ZERO + TimeDelta::from_millis(random.range(FAULTS_BEGIN_MS..=FAULTS_END_MS - 2_500))
        };
        for node in servers - self.late_joiners..servers {
            self.faults.push((at(random), MirrorFault::Start(node)));
        }
        // One server stays, so that there is a game to rejoin.
        let staying = random.below((servers - self.late_joiners) as u64) as usize;
        for node in (0..servers - self.late_joiners).filter(|node| *node != staying) {
            let (when, fate) = (at(random), random.unit());
            if fate < 0.15 {
                self.faults.push((when, MirrorFault::Crash(node)));
            } else if fate < 0.22 {
                self.faults.push((when, MirrorFault::Leave(node)));
            } else {
                continue;
            }
            if random.chance(0.6) {
                self.faults.push((when + TimeDelta::from_millis(random.range(50..=2_400)), MirrorFault::Start(node)));
            }
        }
        if random.chance(0.4) {
            let when = at(random);
            self.faults.push((when, MirrorFault::Split(random.range(1..=servers as i64 - 1) as usize)));
            self.faults.push((when + TimeDelta::from_millis(random.range(200..=2_400)), MirrorFault::HealAll));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Returns the nodes that may abandon events that are not obsolete: those with the two-curve policy.
    pub(super) fn nodes_that_may_give_up(&self) -> BTreeSet<usize> {
        let gives_up = |plan: &MirrorServerPlan| matches!(plan.config.policy, DropPolicy::TwoCurve { .. });
        (0..self.server_plans.len()).filter(|node| gives_up(&self.server_plans[*node])).collect()
    }

    /// Returns whether the scenario has no fault, no late joiner and no loss.
    pub(super) fn is_fault_free(&self) -> bool {
        self.faults.is_empty() && self.late_joiners == 0 && self.link.loss == Loss::None
    }

    /// Returns the error that jitter may cause in a group time: half of the largest uniform jitter, or the mean of
    /// exponential jitter.
    pub(super) fn jitter_allowance(&self) -> TimeDelta {
        match self.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(max) => max / 2,
            Jitter::Exponential { mean } => mean,
        }
    }

    pub(super) fn order(&self) -> DeliveryOrder {
        self.server_plans[0].config.order
    }

    /// Returns the features that a scenario may have, for coverage counts, and whether this one has them.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let has = |kind: fn(&MirrorFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let is = |kind: fn(&DropPolicy) -> bool| self.server_plans.iter().any(|plan| kind(&plan.config.policy));
        let entered = self.faults.iter().filter(|(_, fault)| matches!(fault, MirrorFault::Start(_))).count();
        vec![
            ("loss", matches!(self.link.loss, Loss::Independent(_))),
            ("bursts", matches!(self.link.loss, Loss::Bursty { .. })),
            ("jitter", self.link.jitter != Jitter::None),
            ("reordering", self.link.reorder && self.link.jitter != Jitter::None),
            ("duplicates", self.link.duplicate > 0.0),
            ("skew", self.server_plans.iter().any(|plan| plan.clock.skew_ppm != 0.0)),
            ("partition", has(|fault| matches!(fault, MirrorFault::Split(_)))),
            ("crash", has(|fault| matches!(fault, MirrorFault::Crash(_)))),
            ("restart", entered > self.late_joiners),
            ("leave", has(|fault| matches!(fault, MirrorFault::Leave(_)))),
            ("late join", self.late_joiners > 0),
            ("long snapshots", self.server_plans.iter().any(|plan| plan.bulk > 0)),
            ("last issuer", self.last_issuer.is_some()),
            ("total order", self.order() == DeliveryOrder::Total),
            ("off", is(|policy| matches!(policy, DropPolicy::Off))),
            ("on-off", is(|policy| matches!(policy, DropPolicy::OnOff { .. }))),
            ("ILA", is(|policy| matches!(policy, DropPolicy::Ila(_)))),
            ("two curves", is(|policy| matches!(policy, DropPolicy::TwoCurve { .. }))),
            ("adaptive", is(|policy| matches!(policy, DropPolicy::Adaptive { .. }))),
        ]
    }
}

fn draw_config(random: &mut Random) -> MirrorConfig {
    MirrorConfig {
        order: *random.pick(&[DeliveryOrder::Correlated, DeliveryOrder::Total]),
        measure: *random.pick(&[GtdMeasure::Arrival, GtdMeasure::Waiting, GtdMeasure::Delivery]),
        max_obsolete_set: *random.pick(&[1, 3, 8, 16, 32]),
        silence_timeout: TimeDelta::from_millis(random.range(600..=2_000)),
        history_limits: *random.pick(&[(0, 64), (16, 128), (64, 256), (256, 4_096)]),
        ..MirrorConfig::new(SourceId(0))
    }
}

fn draw_policy(random: &mut Random) -> DropPolicy {
    // Low thresholds make the policies drop often.
    let threshold = *random.pick(&[TimeDelta::ZERO, TimeDelta::from_millis(30), DEFAULT_GIT]);
    let curve = *random.pick(&[
        DropCurve::PAPER,
        DropCurve { min: TimeDelta::ZERO, max: TimeDelta::from_millis(80), max_drop_permille: 900, average_shift: 1 },
    ]);
    match random.below(9) {
        0 | 1 => DropPolicy::Off,
        2 | 3 => DropPolicy::OnOff { threshold },
        4 | 5 => DropPolicy::Ila(curve),
        6 => DropPolicy::TwoCurve { obsolete: curve, others: DropCurve::LAST_RESORT },
        _ => DropPolicy::Adaptive { threshold },
    }
}

fn draw_script(random: &mut Random, servers: usize) -> EventScript {
    let every = TimeDelta::from_millis(random.range(8..=50) * servers as i64 / 2);
    let shares =
        *random.pick(&[[0.9, 0.0, 0.0, 0.0], [0.6, 0.1, 0.1, 0.1], [0.3, 0.3, 0.1, 0.1], [0.95, 0.0, 0.05, 0.0]]);
    EventScript {
        every,
        spread: every.scale(random.unit()),
        count: u32::MAX,
        keys: *random.pick(&[1, 2, 5, 20]),
        shares,
        bytes: *random.pick(&[9, 40, 200]),
    }
}

fn draw_link(random: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*random.pick(&[200, 5_000, 20_000, 50_000, 80_000, 120_000]));
    let jitter = match random.below(3) {
        0 => Jitter::None,
        1 => Jitter::Uniform(delay.scale(random.unit())),
        _ => Jitter::Exponential { mean: delay.scale(0.3 * random.unit()) },
    };
    let loss = match random.below(5) {
        0 | 1 => Loss::Independent(*random.pick(&[0.01, 0.05, 0.1, 0.3])),
        2 | 3 => Loss::bursts(*random.pick(&[0.02, 0.1, 0.2]), *random.pick(&[3.0, 5.0, 8.0])),
        _ => Loss::None,
    };
    let duplicate = if random.chance(0.2) { 0.1 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: random.chance(0.6), loss, duplicate, rate: None }
}

impl fmt::Display for MirrorScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: link {:?}", self.seed, self.link)?;
        for (node, plan) in self.server_plans.iter().enumerate() {
            writeln!(f, "server {node}: {plan:?}")?;
        }
        writeln!(f, "late joiners: {}", self.late_joiners)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
