//! Draws a session scenario from a seed.
//!
//! The names of the random streams and the order of the draws are part of the seed. Changing either changes the
//! scenarios that recorded seeds give.

use coplay::frame::{Frame, FrameRate};
use coplay::input::{InputWord, Recovery};
use coplay::session::{AbsentInput, InputHistory, InputPredictor, SendPolicy, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};

use super::{BitDistribution, MachineFault, SessionFault, SessionScenario};
use crate::clock::NodeClock;
use crate::session::recording;
use crate::session::spectators::SpectatorsPlan;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use coplay_links::random::Random;

impl SessionScenario {
    /// Draws the scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, "scenario");
        let sites = *random.pick(&[2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8]);
        let input_delay = *random.pick(&[0, 1, 2, 3, 4, 6, 6, 6, 8, 10, 18]);
        let prediction_window = *random.pick(&[0, 0, 0, 1, 2, 4, 8, 8, 16, 60]);
        let (numerator, denominator) = *random.pick(&[(60, 1), (60, 1), (60_098_814, 1_000_000), (50, 1), (30, 1)]);
        let frame_rate = FrameRate::new(numerator, denominator).expect("every rate in the list is valid");
        let policies = [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Adaptive];
        let policy = *random.pick(&policies);
        let mixed = random.chance(0.2);
        let recovery = (0..sites).map(|_| if mixed { *random.pick(&policies) } else { policy }).collect();
        let input_layout = *random.pick(&[
            BitDistribution::Buttons,
            BitDistribution::Buttons,
            BitDistribution::Sticks,
            BitDistribution::Shared,
            BitDistribution::TwoAtOne,
        ]);
        let mut scenario = Self {
            seed,
            sites,
            input_delay,
            prediction_window,
            frame_rate,
            recovery,
            input_layout,
            links: Vec::new(),
            clocks: (0..sites).map(|_| random_clock(&mut random)).collect(),
            // A full rollback fits into one frame.
            step_cost: (0..sites)
                .map(|_| TimeDelta::from_micros(random.range(0..=5_000 / (1 + i64::from(prediction_window)))))
                .collect(),
            faults: Vec::new(),
            late_joiners: 0,
            joins_by_replay: false,
            can_save: vec![true; sites],
            predictor: *random.pick(&[
                InputPredictor::Repeat,
                InputPredictor::Repeat,
                InputPredictor::Neutral,
                InputPredictor::Custom(predict_only_even_frames),
            ]),
            compare_every: *random.pick(&[60, 60, 60, 60, 60, 1, 7, 280]),
            restarts_diverged_site: random.chance(0.5),
            auto_delay: random.chance(0.25),
            drop_timeouts: random.chance(0.5).then(|| draw_drop_timeouts(&mut random, sites)),
            absent_input: if Random::stream(seed, "absent").chance(0.5) {
                AbsentInput::Repeat
            } else {
                AbsentInput::Nothing
            },
            starvation: StarvationPolicy::Wait,
            sending: SendPolicy::AtOnce,
            stall_limit: draw_stall_timeout(&mut Random::stream(seed, "late after")),
            spectators: SpectatorsPlan::draw(seed, sites, random_link),
            movie_site: None,
            sabotage: None,
        };
        if sites > 2 && random.chance(0.25) {
            scenario.late_joiners = 1 + usize::from(sites > 3 && random.chance(0.5));
        }
        scenario.draw_buffering(&mut Random::stream(seed, "buffering"));
        scenario.draw_save_support(&mut random);
        scenario.movie_site = recording::draw_movie_site(seed, scenario.starter_count());
        scenario.draw_links(&mut random);
        if random.chance(0.1) {
            scenario.draw_divergence(&mut random);
        } else {
            scenario.draw_faults(&mut random);
        }
        scenario
    }

    /// Draws whether the sites use the pauses and the send intervals of Kim and Park, and the classic recovery that
    /// they compare with.
    fn draw_buffering(&mut self, random: &mut Random) {
        if random.chance(0.15) {
            self.starvation = StarvationPolicy::Pause;
        }
        if random.chance(0.1) {
            self.sending = SendPolicy::Measured;
        }
        if random.chance(0.1) {
            self.recovery.fill(Recovery::Classic);
        }
    }

    fn draw_links(&mut self, random: &mut Random) {
        let common = random.chance(0.5).then(|| random_link(random));
        let asymmetric = random.chance(0.2);
        self.links = vec![LinkConfig::perfect(); self.sites * self.sites];
        for one in 0..self.sites {
            for other in 0..one {
                let forward = common.clone().unwrap_or_else(|| random_link(random));
                let mut backward = forward.clone();
                if asymmetric {
                    backward.delay = random_delay(random);
                }
                self.links[one * self.sites + other] = forward;
                self.links[other * self.sites + one] = backward;
            }
        }
    }

    /// Draws which machines cannot save: none in a scenario with prediction, or with spectators, which may start from a
    /// snapshot. If a machine cannot save, joining sites replay all frames, as they do in 20 % of the other scenarios.
    fn draw_save_support(&mut self, random: &mut Random) {
        if self.prediction_window == 0 && self.spectators.is_none() && random.chance(0.3) {
            self.can_save.fill_with(|| random.chance(0.5));
        }
        self.joins_by_replay = self.can_save.contains(&false) || random.chance(0.2);
    }

    /// Makes one machine diverge and injects no other fault, so that every desync report must be right. There are no
    /// late joiners, all machines can save, and no slow peer is dropped.
    fn draw_divergence(&mut self, random: &mut Random) {
        self.late_joiners = 0;
        self.can_save.fill(true);
        self.stall_limit = None;
        // A replay would not reproduce the corrupted state.
        self.joins_by_replay = false;
        let site = random.below(self.sites as u64) as usize;
        let at = Instant::ZERO + TimeDelta::from_millis(random.range(4_000..=8_000));
        self.faults.push((at, SessionFault::Engine(MachineFault::Diverge(site))));
    }

    fn draw_faults(&mut self, random: &mut Random) {
        for site in self.starter_count()..self.sites {
            let at = Instant::ZERO + TimeDelta::from_millis(random.range(0..=9_000));
            self.faults.push((at, SessionFault::Start(site)));
            self.draw_leave(random, site, at);
        }
        for _ in 0..random.below(4) {
            let from = Instant::ZERO + TimeDelta::from_millis(random.range(0..=11_000));
            let until = from + TimeDelta::from_millis(random.range(50..=4_000));
            self.draw_fault(random, from, until);
        }
        self.draw_permanent_cut(random);
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Draws, with a probability of 30 %, a leave of a joiner up to 6 s after its start, before or after its join.
    fn draw_leave(&mut self, random: &mut Random, site: usize, joins_at: Instant) {
        if random.chance(0.3) {
            self.faults.push((joins_at + TimeDelta::from_millis(random.range(0..=6_000)), SessionFault::Leave(site)));
        }
    }

    /// Draws, with a probability of 15 %, a permanent cut between two of three or more sites. A scenario with a joiner
    /// has none, because a joiner must reach all sites.
    fn draw_permanent_cut(&mut self, random: &mut Random) {
        let has_joiner = self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Start(_)));
        if self.sites > 2 && !has_joiner && random.chance(0.15) {
            let one = random.below(self.sites as u64) as usize;
            let other = (one + 1 + random.below(self.sites as u64 - 1) as usize) % self.sites;
            let at = Instant::ZERO + TimeDelta::from_millis(random.range(6_000..=13_000));
            // A temporary cut of the same link does not heal after that time either.
            let heals = [
                SessionFault::Heal(one, other),
                SessionFault::Heal(other, one),
                SessionFault::HealOneWay(one, other),
                SessionFault::HealOneWay(other, one),
            ];
            self.faults.retain(|(then, fault)| *then < at || !heals.contains(fault));
            self.faults.push((at, SessionFault::Cut(one, other)));
        }
    }

    fn draw_fault(&mut self, random: &mut Random, from: Instant, until: Instant) {
        let one = random.below(self.sites as u64) as usize;
        let other = (one + 1 + random.below(self.sites as u64 - 1) as usize) % self.sites;
        let mover = (self.seed % self.sites as u64) as usize;
        let is_gone =
            self.faults.iter().any(|(_, fault)| [SessionFault::Crash(one), SessionFault::Leave(one)].contains(fault));
        let cost = self.step_cost[one];
        let returns = random.chance(0.5);
        let one_way = random.chance(0.4);
        let mut add = |at: Instant, fault: SessionFault| self.faults.push((at, fault));
        match random.below(10) {
            0 if one_way => {
                add(from, SessionFault::CutOneWay(one, other));
                add(until, SessionFault::HealOneWay(one, other));
            }
            0 => {
                add(from, SessionFault::Cut(one, other));
                add(until, SessionFault::Heal(one, other));
            }
            // All links of one site fail in the same direction.
            1 if one_way => (0..self.sites).filter(|site| *site != one).for_each(|site| {
                let (sender, receiver) = if returns { (one, site) } else { (site, one) };
                add(from, SessionFault::CutOneWay(sender, receiver));
                add(until, SessionFault::HealOneWay(sender, receiver));
            }),
            1 => (0..self.sites).filter(|site| *site != one).for_each(|site| {
                add(from, SessionFault::Cut(one, site));
                add(until, SessionFault::Heal(one, site));
            }),
            2 => add(from, SessionFault::Pause(one, until)),
            8 => add(from, SessionFault::Suspend(one, until)),
            // A crash or a leave comes 3 s later, so that the session makes progress first.
            3 if !is_gone => {
                add(from + TimeDelta::from_secs(3), SessionFault::Crash(one));
                if returns {
                    let joins_at = from + TimeDelta::from_secs(3) + (until - from);
                    add(joins_at, SessionFault::Start(one));
                    self.draw_leave(random, one, joins_at);
                }
            }
            4 if !is_gone => add(from + TimeDelta::from_secs(3), SessionFault::Leave(one)),
            3 | 4 => {}
            // Only one site per scenario changes its address: two that do so at once cannot find each other.
            5 if self.late_joiners == 0 => add(from, SessionFault::Move(mover)),
            6 => {
                add(from, SessionFault::Worsen(one, other, random_link(random)));
                add(until, SessionFault::Restore(one, other));
            }
            7 => {
                add(
                    from,
                    SessionFault::Engine(MachineFault::Slow(one, self.frame_rate.period().scale(0.8 + random.unit()))),
                );
                add(until, SessionFault::Engine(MachineFault::Slow(one, cost)));
            }
            _ => add(from, SessionFault::Garbage(one, random.range(10..=2_000) as u32)),
        }
    }
}

/// Draws the drop timeout of each site, 0.4 to 2.5 s: one common timeout in 70 % of the scenarios, one per site in the
/// others.
fn draw_drop_timeouts(random: &mut Random, sites: usize) -> Vec<TimeDelta> {
    let limit = |random: &mut Random| TimeDelta::from_millis(random.range(400..=2_500));
    let (is_common, common) = (random.chance(0.7), limit(random));
    (0..sites).map(|_| if is_common { common } else { limit(random) }).collect()
}

/// Draws the time for which a reachable peer may stall the session, 0.1 to 1.5 s; `None` in 80 % of the scenarios.
fn draw_stall_timeout(random: &mut Random) -> Option<TimeDelta> {
    random.chance(0.2).then(|| TimeDelta::from_millis(random.range(100..=1_500)))
}

/// Predicts the last known input in even frames and neutral input in odd frames.
fn predict_only_even_frames(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
    if let Some(last) = past.end().checked_sub(1).filter(|_| frame.number().is_multiple_of(2)) {
        past.read(last, words);
    }
}

fn random_clock(random: &mut Random) -> NodeClock {
    let extreme = random.chance(0.05);
    let skew_ppm = (random.unit() * 2.0 - 1.0) * if extreme { 10_000.0 } else { 100.0 };
    NodeClock { offset: TimeDelta::from_millis(random.range(-1_000_000..=1_000_000_000)), skew_ppm }
}

fn random_delay(random: &mut Random) -> Delay {
    let mean = TimeDelta::from_micros(random.range(0..=100_000));
    match random.below(5) {
        0 | 1 => Delay::Constant(mean),
        2 => Delay::Normal { mean, sd: mean / 10 },
        3 => Delay::LogNormal { mean: mean + TimeDelta::from_micros(100), sd: mean / 6 + TimeDelta::from_micros(10) },
        _ => Delay::Recorded((0..97).map(|_| mean + TimeDelta::from_micros(random.range(0..=8_000))).collect()),
    }
}

fn random_link(random: &mut Random) -> LinkConfig {
    let ms = TimeDelta::from_millis;
    LinkConfig {
        delay: random_delay(random),
        jitter: match random.below(5) {
            0 => Jitter::Uniform(ms(random.range(1..=30))),
            1 => Jitter::Exponential { mean: ms(random.range(1..=15)) },
            _ => Jitter::None,
        },
        reorder: random.chance(0.3),
        loss: match random.below(5) {
            0 | 1 => Loss::Independent(random.unit() * 0.2),
            2 => Loss::bursts(random.unit() * 0.1, 1.0 + random.unit() * 4.0),
            _ => Loss::None,
        },
        duplicate: if random.chance(0.2) { random.unit() * 0.1 } else { 0.0 },
        rate: random.chance(0.15).then_some(Rate { bytes_per_second: 32_000, queue_bytes: 4_000 }),
    }
}
