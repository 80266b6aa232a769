//! Random mazes with faults: what can go wrong, and when it heals.

use std::fmt;

use coplay::peer_world::UpdatePolicy;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;

use super::checker::{PeerWorldChecker, Sabotage};
use super::{PeerWorldNetwork, PeerWorldSitePlan};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use crate::random::Random;
use crate::session::scenario::ScenarioResult;

/// Faults come between these, and then all is well.
const FAULTS_BEGIN: TimeDelta = TimeDelta::from_secs(3);
const FAULTS_END: TimeDelta = TimeDelta::from_secs(12);
/// From the last fault on so long until everybody must see everybody again.
const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(5);
/// Then nobody shoots any more, and after this everybody must know every hit.
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(6);

/// By how much delays differ at the most. Where they differ by more and nothing is overtaken, a quick round trip is so rare that clocks are not
/// known to 10 ms.
const MAX_JITTER: TimeDelta = TimeDelta::from_millis(50);

/// What can be in a scenario.
pub const FEATURES: [&str; 11] = [
    "loss",
    "bursts",
    "jitter",
    "skew",
    "bottleneck",
    "partition",
    "crash",
    "leave",
    "late join",
    "source-side reckoning",
    "adaptive rate",
];

/// A maze to be played, with everything that happens to it.
#[derive(Clone, Debug)]
pub struct PeerWorldScenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// What is agreed on.
    pub terms: MazeSettings,
    /// The sites.
    pub site_plans: Vec<PeerWorldSitePlan>,
    /// Both directions of all ways, until the faults end; then they lose nothing.
    pub link: LinkConfig,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, PeerWorldFault)>,
    /// Sites that are not there at the beginning: the last ones, so many.
    pub late_joiners: usize,
    /// Something that is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Something that happens to a maze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldFault {
    /// Somebody comes.
    Enter(usize),
    /// Somebody is gone without a word.
    Crash(usize),
    /// Somebody says goodbye.
    Leave(usize),
    /// The first so many places and the others do not hear each other.
    Split(usize),
    /// They do again.
    Heal,
}

impl PeerWorldScenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "maze");
        let sites = *luck.pick(&[2, 2, 3, 3, 4, 5, 6, 8]);
        let terms = MazeSettings {
            seed: luck.bits(),
            cells_per_side: *luck.pick(&[4, 4, 5, 6, 8]),
            bucket_ticks: *luck.pick(&[2, 4, 4, 4, 8]),
            playout_delay_ticks: *luck.pick(&[10, 15, 15, 20, 30]),
        };
        let sendings = [
            UpdatePolicy::fixed(25),
            UpdatePolicy::fixed(5),
            UpdatePolicy::dead_reckoned(8),
            UpdatePolicy::adaptive(5, 25),
            UpdatePolicy::default(),
        ];
        let sending = *luck.pick(&sendings);
        let mixed = luck.chance(0.3);
        let plans = (0..sites)
            .map(|_| PeerWorldSitePlan {
                clock: draw_clock(&mut luck),
                sending: if mixed { *luck.pick(&sendings) } else { sending },
                ninjas: luck.range(1..=3) as u8,
            })
            .collect();
        let late = if luck.chance(0.4) { luck.below(sites as u64 - 1) as usize } else { 0 };
        let link = draw_link(&mut luck);
        let mut scenario =
            Self { seed, terms, site_plans: plans, link, faults: Vec::new(), late_joiners: late, sabotage: None };
        scenario.draw_faults(&mut luck);
        scenario
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        let sites = self.site_plans.len();
        let at = |luck: &mut Random| {
            Instant::ZERO
                + TimeDelta::from_millis(
                    luck.range(FAULTS_BEGIN.as_micros() / 1_000..=FAULTS_END.as_micros() / 1_000 - 3_000),
                )
        };
        for place in sites - self.late_joiners..sites {
            self.faults.push((at(luck), PeerWorldFault::Enter(place)));
        }
        // Somebody stays, so that there is a maze to come back to.
        let staying = luck.below((sites - self.late_joiners) as u64) as usize;
        for place in (0..sites - self.late_joiners).filter(|place| *place != staying) {
            let (when, fate) = (at(luck), luck.unit());
            if fate < 0.12 {
                self.faults.push((when, PeerWorldFault::Crash(place)));
            } else if fate < 0.24 {
                self.faults.push((when, PeerWorldFault::Leave(place)));
            } else {
                continue;
            }
            if luck.chance(0.5) {
                self.faults
                    .push((when + TimeDelta::from_millis(luck.range(100..=2_900)), PeerWorldFault::Enter(place)));
            }
        }
        if sites > 2 && luck.chance(0.4) {
            let when = at(luck);
            self.faults.push((when, PeerWorldFault::Split(luck.range(1..=sites as i64 - 1) as usize)));
            self.faults.push((when + TimeDelta::from_millis(luck.range(300..=2_900)), PeerWorldFault::Heal));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Plays it, and judges.
    pub fn run(&self) -> ScenarioResult {
        let mut arena = PeerWorldNetwork::new(self.seed, self.terms, &self.site_plans, &self.link);
        let mut judge = PeerWorldChecker::new(self);
        arena.keep_deliveries();
        arena.set_sabotage(self.sabotage);
        for place in 0..self.site_plans.len() - self.late_joiners {
            arena.join(place);
        }
        for (at, fault) in &self.faults {
            arena.run_until(*at, |arena, place| judge.on_view(arena, place));
            self.apply_fault(&mut arena, *fault, &mut judge);
        }
        let calm = Instant::ZERO + FAULTS_END;
        arena.run_until(calm, |arena, place| judge.on_view(arena, place));
        self.end_impairments(&mut arena);
        arena.run_until(calm + RECOVERY_TIME, |arena, place| judge.on_view(arena, place));
        judge.on_recovered(&mut arena);
        for place in arena.active_nodes() {
            arena.game_mut(place).into_iter().for_each(coplay_maze::MazeSite::release_controls);
        }
        arena.run_until(calm + RECOVERY_TIME + SETTLING_TIME, |arena, place| judge.on_view(arena, place));
        judge.on_end(&mut arena);
        judge.into_result(self, &arena)
    }

    fn apply_fault(&self, arena: &mut PeerWorldNetwork, fault: PeerWorldFault, judge: &mut PeerWorldChecker) {
        let sites = self.site_plans.len();
        match fault {
            PeerWorldFault::Enter(place) if arena.game(place).is_none() => {
                judge.on_join(place);
                arena.join(place);
            }
            PeerWorldFault::Enter(_) => {}
            PeerWorldFault::Crash(place) => {
                judge.on_departure(arena, place);
                arena.crash(place);
            }
            PeerWorldFault::Leave(place) => {
                judge.on_departure(arena, place);
                arena.leave(place);
            }
            PeerWorldFault::Split(first) => {
                for (from, to) in pairs(sites).filter(|(from, to)| (*from < first) != (*to < first)) {
                    arena.link_mut(from, to).set_cut(true);
                }
            }
            PeerWorldFault::Heal => pairs(sites).for_each(|(from, to)| arena.link_mut(from, to).set_cut(false)),
        }
    }

    /// From now on nothing is lost, and nothing waits.
    fn end_impairments(&self, arena: &mut PeerWorldNetwork) {
        let calm = LinkConfig { loss: Loss::None, duplicate: 0.0, rate: None, ..self.link.clone() };
        for (from, to) in pairs(self.site_plans.len()) {
            arena.link_mut(from, to).set_cut(false);
            arena.link_mut(from, to).set_config(calm.clone());
        }
    }

    /// Which of [`FEATURES`] are in it.
    pub fn features(&self) -> Vec<bool> {
        let has = |kind: fn(&PeerWorldFault) -> bool| self.faults.iter().any(|(_, fault)| kind(fault));
        let sends = |kind: fn(&UpdatePolicy) -> bool| self.site_plans.iter().any(|plan| kind(&plan.sending));
        vec![
            matches!(self.link.loss, Loss::Independent(_)),
            matches!(self.link.loss, Loss::Bursty { .. }),
            self.link.jitter != Jitter::None,
            self.site_plans.iter().any(|plan| plan.clock.skew_ppm != 0.0),
            self.link.rate.is_some(),
            has(|fault| matches!(fault, PeerWorldFault::Split(_))),
            has(|fault| matches!(fault, PeerWorldFault::Crash(_))),
            has(|fault| matches!(fault, PeerWorldFault::Leave(_))),
            self.late_joiners > 0,
            sends(|sending| sending.tolerance.is_some()),
            sends(|sending| sending.is_adaptive),
        ]
    }

    /// How much longer than usual packets are under way at the most, nearly always.
    pub(super) fn max_jitter(&self) -> TimeDelta {
        match self.link.jitter {
            Jitter::None => TimeDelta::ZERO,
            Jitter::Uniform(most) => most,
            Jitter::Exponential { mean } => mean * 10,
        }
    }

    /// Whether this is a network as in one house.
    pub(super) fn is_lan(&self) -> bool {
        let Delay::Constant(delay) = self.link.delay else { return false };
        self.link.rate.is_none() && delay + self.max_jitter() <= TimeDelta::from_millis(2)
    }
}

fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites * sites).map(move |at| (at / sites, at % sites)).filter(|(from, to)| from != to)
}

fn draw_clock(luck: &mut Random) -> NodeClock {
    let skew_ppm = if luck.chance(0.6) { luck.range(-100..=100) as f64 } else { 0.0 };
    NodeClock { offset: TimeDelta::from_millis(luck.range(-100_000_000..=100_000_000)), skew_ppm }
}

fn draw_link(luck: &mut Random) -> LinkConfig {
    let delay = TimeDelta::from_micros(*luck.pick(&[200, 200, 5_000, 20_000, 50_000, 80_000, 150_000]));
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
    let rate =
        luck.chance(0.15).then(|| Rate { bytes_per_second: luck.range(4_000..=20_000) as u64, queue_bytes: 3_000 });
    let duplicate = if luck.chance(0.2) { 0.05 } else { 0.0 };
    LinkConfig { delay: Delay::Constant(delay), jitter, reorder: luck.chance(0.5), loss, duplicate, rate }
}

impl fmt::Display for PeerWorldScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.seed, self.terms)?;
        writeln!(f, "link: {:?}", self.link)?;
        for (place, plan) in self.site_plans.iter().enumerate() {
            writeln!(f, "place {place}: {plan:?}")?;
        }
        writeln!(f, "late: {}", self.late_joiners)?;
        for (at, fault) in &self.faults {
            writeln!(f, "{at:?}: {fault:?}")?;
        }
        Ok(())
    }
}
