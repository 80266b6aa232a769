//! Random scenarios of serverless mazes with faults, each drawn from a seed alone.
//!
//! From 3 s on, sites crash, leave, join late or are cut off from each other. A site that crashed or left may rejoin
//! before 12 s; at least one site always runs. At 12 s all links are restored, and packet loss, duplicates and
//! bottlenecks end. Delay, jitter, reordering and clock skew last to the end. Presence, agreement of the views, and
//! clocks are checked at 17 s, scores at 23 s.

use std::convert::Infallible;
use std::fmt;

use coplay::peer_world::UpdatePolicy;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;

use super::PeerWorldSitePlan;
use super::sabotage::PeerWorldSabotage;
use crate::clock::NodeClock;
use crate::network::Fault;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use coplay_links::random::Random;

/// Earliest time of a crash, a leave, a late join or a partition.
const FAULTS_BEGIN: TimeDelta = TimeDelta::from_secs(3);
/// Time at which partitions, packet loss, duplicates and bottlenecks have ended. Sites that rejoin do so before.
pub(super) const FAULTS_END: TimeDelta = TimeDelta::from_secs(12);
/// Time from the end of the faults until every site must see every avatar again.
pub(super) const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(5);
/// Time from the release of all controls until every site must know every hit.
pub(super) const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(6);

/// Largest uniform jitter of a link; the mean of exponential jitter is at most a fifth of it. With more jitter and no
/// reordering, fast round trips are so rare that clock offsets are not known to 10 ms.
const MAX_JITTER: TimeDelta = TimeDelta::from_millis(50);

/// A maze, its sites and links, and all faults injected into it.
#[derive(Clone, Debug)]
pub struct PeerWorldScenario {
    /// Seed from which the whole scenario is drawn.
    pub seed: u64,
    /// Settings of the maze, the same at all sites.
    pub terms: MazeSettings,
    /// Plan of each node and its site.
    pub site_plans: Vec<PeerWorldSitePlan>,
    /// Conditions of all links. Loss, duplicates and the bottleneck end with the faults.
    pub link: LinkConfig,
    /// Faults with their true times, in time order.
    pub faults: Vec<(Instant, PeerWorldFault)>,
    /// Number of sites that join late: the last ones.
    pub late_joiners: usize,
    /// Deliberate defect at the first node, to prove that the checker detects it.
    pub sabotage: Option<PeerWorldSabotage>,
}

/// A fault of a maze, or the end of one.
pub type PeerWorldFault = Fault<Infallible>;

impl PeerWorldScenario {
    /// Draws the scenario of a seed. The stream name and the order of the draws are part of the seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, "maze");
        let sites = *random.pick(&[2, 2, 3, 3, 4, 5, 6, 8]);
        let terms = MazeSettings {
            seed: random.bits(),
            cells_per_side: *random.pick(&[4, 4, 5, 6, 8]),
            bucket_ticks: *random.pick(&[2, 4, 4, 4, 8]),
            playout_delay_ticks: *random.pick(&[10, 15, 15, 20, 30]),
        };
        let policies = [
            UpdatePolicy::fixed(25),
            UpdatePolicy::fixed(5),
            UpdatePolicy::dead_reckoned(8),
            UpdatePolicy::adaptive(5, 25),
            UpdatePolicy::default(),
        ];
        let sending = *random.pick(&policies);
        let mixed = random.chance(0.3);
        let site_plans = (0..sites)
            .map(|_| PeerWorldSitePlan {
                clock: NodeClock::draw(&mut random),
                sending: if mixed { *random.pick(&policies) } else { sending },
                ninjas: random.range(1..=3) as u8,
            })
            .collect();
        let late_joiners = if random.chance(0.4) { random.below(sites as u64 - 1) as usize } else { 0 };
        let link = draw_link(&mut random);
        let mut scenario = Self { seed, terms, site_plans, link, faults: Vec::new(), late_joiners, sabotage: None };
        scenario.draw_faults(&mut random);
        scenario
    }

    fn draw_faults(&mut self, random: &mut Random) {
        let sites = self.site_plans.len();
        let at = |random: &mut Random| {
            Instant::ZERO
                + TimeDelta::from_millis(
                    random.range(FAULTS_BEGIN.as_micros() / 1_000..=FAULTS_END.as_micros() / 1_000 - 3_000),
                )
        };
        for node in sites - self.late_joiners..sites {
            self.faults.push((at(random), PeerWorldFault::Start(node)));
        }
        // One site stays, so that there is a maze to rejoin.
        let staying = random.below((sites - self.late_joiners) as u64) as usize;
        for node in (0..sites - self.late_joiners).filter(|node| *node != staying) {
            let (when, fate) = (at(random), random.unit());
            if fate < 0.12 {
                self.faults.push((when, PeerWorldFault::Crash(node)));
            } else if fate < 0.24 {
                self.faults.push((when, PeerWorldFault::Leave(node)));
            } else {
                continue;
            }
            if random.chance(0.5) {
                self.faults
                    .push((when + TimeDelta::from_millis(random.range(100..=2_900)), PeerWorldFault::Start(node)));
            }
        }
        if sites > 2 && random.chance(0.4) {
            let when = at(random);
            self.faults.push((when, PeerWorldFault::Split(random.range(1..=sites as i64 - 1) as usize)));
            self.faults.push((when + TimeDelta::from_millis(random.range(300..=2_900)), PeerWorldFault::HealAll));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Returns the features that a scenario may have, for coverage counts, and whether this one has them.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let has = |kind: fn(&PeerWorldFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let sends = |kind: fn(&UpdatePolicy) -> bool| self.site_plans.iter().any(|plan| kind(&plan.sending));
        vec![
            ("loss", matches!(self.link.loss, Loss::Independent(_))),
            ("bursts", matches!(self.link.loss, Loss::Bursty { .. })),
            ("jitter", self.link.jitter != Jitter::None),
            ("skew", self.site_plans.iter().any(|plan| plan.clock.skew_ppm != 0.0)),
            ("bottleneck", self.link.rate.is_some()),
            ("partition", has(|fault| matches!(fault, PeerWorldFault::Split(_)))),
            ("crash", has(|fault| matches!(fault, PeerWorldFault::Crash(_)))),
            ("leave", has(|fault| matches!(fault, PeerWorldFault::Leave(_)))),
            ("late join", self.late_joiners > 0),
            ("source-side reckoning", sends(|sending| sending.tolerance.is_some())),
            ("adaptive rate", sends(|sending| sending.is_adaptive)),
        ]
    }

    /// Returns the upper bound of the jitter; for exponential jitter ten times its mean, which is almost never
    /// exceeded.
    pub(super) fn max_jitter(&self) -> TimeDelta {
        match self.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(max) => max,
            Jitter::Exponential { mean } => mean * 10,
        }
    }

    /// Returns whether the links are as fast as a local network: a delay of at most 2 ms with jitter, and no
    /// bottleneck.
    pub(super) fn is_lan(&self) -> bool {
        let Delay::Constant(delay) = self.link.delay else { return false };
        self.link.rate.is_none() && delay + self.max_jitter() <= TimeDelta::from_millis(2)
    }
}

fn draw_link(random: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*random.pick(&[200, 200, 5_000, 20_000, 50_000, 80_000, 150_000]));
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
    let rate =
        random.chance(0.15).then(|| Rate { bytes_per_second: random.range(4_000..=20_000) as u64, queue_bytes: 3_000 });
    let duplicate = if random.chance(0.2) { 0.05 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: random.chance(0.5), loss, duplicate, rate }
}

impl fmt::Display for PeerWorldScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.seed, self.terms)?;
        writeln!(f, "link: {:?}", self.link)?;
        for (node, plan) in self.site_plans.iter().enumerate() {
            writeln!(f, "node {node}: {plan:?}")?;
        }
        writeln!(f, "late joiners: {}", self.late_joiners)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
