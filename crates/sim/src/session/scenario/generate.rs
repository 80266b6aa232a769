//! Drawing a scenario from a seed.

use coplay::frame::{Frame, FrameRate};
use coplay::input::{InputWord, Recovery};
use coplay::session::{AbsentInput, InputHistory, InputPredictor, SendPolicy, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};

use super::{InputLayout, SessionFault, SessionScenario};
use crate::clock::NodeClock;
use crate::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use crate::random::Random;
use crate::session::recording;
use crate::spectators;

impl SessionScenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "scenario");
        let sites = *luck.pick(&[2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8]);
        let lag = *luck.pick(&[0, 1, 2, 3, 4, 6, 6, 6, 8, 10, 18]);
        let window = *luck.pick(&[0, 0, 0, 1, 2, 4, 8, 8, 16, 60]);
        let rate = *luck.pick(&[(60, 1), (60, 1), (60_098_814, 1_000_000), (50, 1), (30, 1)]);
        let rate = FrameRate::new(rate.0, rate.1).expect("all of them are frame rates");
        let policies = [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Adaptive];
        let policy = *luck.pick(&policies);
        let mixed = luck.chance(0.2);
        let recovery = (0..sites).map(|_| if mixed { *luck.pick(&policies) } else { policy }).collect();
        let pads = *luck.pick(&[
            InputLayout::Buttons,
            InputLayout::Buttons,
            InputLayout::Sticks,
            InputLayout::Shared,
            InputLayout::TwoAtOne,
        ]);
        let mut scenario = Self {
            seed,
            sites,
            input_delay: lag,
            prediction_window: window,
            frame_rate: rate,
            recovery,
            input_layout: pads,
            links: Vec::new(),
            clocks: (0..sites).map(|_| random_clock(&mut luck)).collect(),
            // A full repair fits into a frame.
            step_cost: (0..sites)
                .map(|_| TimeDelta::from_micros(luck.range(0..=5_000 / (1 + i64::from(window)))))
                .collect(),
            faults: Vec::new(),
            late_joiners: 0,
            joins_by_replay: false,
            can_save: vec![true; sites],
            predictor: *luck.pick(&[
                InputPredictor::Repeat,
                InputPredictor::Repeat,
                InputPredictor::Neutral,
                InputPredictor::Custom(predict_only_even_frames),
            ]),
            compare_every: *luck.pick(&[60, 60, 60, 60, 60, 1, 7, 280]),
            restarts_diverged_site: luck.chance(0.5),
            auto_delay: luck.chance(0.25),
            drop_timeouts: luck.chance(0.5).then(|| draw_drop_timeouts(&mut luck, sites)),
            absent_input: if Random::stream(seed, "absent").chance(0.5) {
                AbsentInput::Repeat
            } else {
                AbsentInput::Nothing
            },
            starvation: StarvationPolicy::Wait,
            sending: SendPolicy::AtOnce,
            stall_timeout: draw_stall_timeout(&mut Random::stream(seed, "late after")),
            spectators: spectators::scenario::SpectatorsPlan::draw(seed, sites, random_link),
            movie_site: None,
            sabotage: None,
        };
        if sites > 2 && luck.chance(0.25) {
            scenario.late_joiners = 1 + usize::from(sites > 3 && luck.chance(0.5));
        }
        scenario.draw_buffering(&mut Random::stream(seed, "buffering"));
        scenario.draw_save_support(&mut luck);
        scenario.movie_site = recording::draw_movie_site(seed, scenario.starter_count());
        scenario.draw_links(&mut luck);
        if luck.chance(0.1) {
            scenario.draw_divergence(&mut luck);
        } else {
            scenario.draw_faults(&mut luck);
        }
        scenario
    }

    /// Some buffer as Kim and Park do, or recover as those do whom they compare themselves with.
    fn draw_buffering(&mut self, luck: &mut Random) {
        if luck.chance(0.15) {
            self.starvation = StarvationPolicy::Pause;
        }
        if luck.chance(0.1) {
            self.sending = SendPolicy::Measured;
        }
        if luck.chance(0.1) {
            self.recovery.fill(Recovery::Classic);
        }
    }

    fn draw_links(&mut self, luck: &mut Random) {
        let alike = luck.chance(0.5).then(|| random_link(luck));
        let asymmetric = luck.chance(0.2);
        self.links = vec![LinkConfig::perfect(); self.sites * self.sites];
        for one in 0..self.sites {
            for other in 0..one {
                let there = alike.clone().unwrap_or_else(|| random_link(luck));
                let mut back = there.clone();
                if asymmetric {
                    back.delay = random_delay(luck);
                }
                self.links[one * self.sites + other] = there;
                self.links[other * self.sites + one] = back;
            }
        }
    }

    /// Where nothing is guessed, some machines cannot save; then nobody can begin in the middle, and nobody watches who would.
    fn draw_save_support(&mut self, luck: &mut Random) {
        if self.prediction_window == 0 && self.spectators.is_none() && luck.chance(0.3) {
            self.can_save.fill_with(|| luck.chance(0.5));
        }
        self.joins_by_replay = self.can_save.contains(&false) || luck.chance(0.2);
    }

    /// One machine goes astray, and nothing else happens: whatever is told then must be right.
    fn draw_divergence(&mut self, luck: &mut Random) {
        self.late_joiners = 0;
        self.can_save.fill(true);
        self.stall_timeout = None;
        // What went astray is not found by playing it again.
        self.joins_by_replay = false;
        let site = luck.below(self.sites as u64) as usize;
        let at = Instant::ZERO + TimeDelta::from_millis(luck.range(4_000..=8_000));
        self.faults.push((at, SessionFault::Astray(site)));
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        for site in self.starter_count()..self.sites {
            let at = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=9_000));
            self.faults.push((at, SessionFault::Restart(site)));
            self.draw_leave(luck, site, at);
        }
        for _ in 0..luck.below(4) {
            let from = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=11_000));
            let until = from + TimeDelta::from_millis(luck.range(50..=4_000));
            self.draw_fault(luck, from, until);
        }
        self.draw_permanent_cut(luck);
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Who comes may leave again, before it is in or afterwards.
    fn draw_leave(&mut self, luck: &mut Random, site: usize, comes: Instant) {
        if luck.chance(0.3) {
            self.faults.push((comes + TimeDelta::from_millis(luck.range(0..=6_000)), SessionFault::Leave(site)));
        }
    }

    /// Between two of three or more the way is cut and never back. Nobody could come in then, because who comes must hear all.
    fn draw_permanent_cut(&mut self, luck: &mut Random) {
        let somebody_comes = self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Restart(_)));
        if self.sites > 2 && !somebody_comes && luck.chance(0.15) {
            let one = luck.below(self.sites as u64) as usize;
            let other = (one + 1 + luck.below(self.sites as u64 - 1) as usize) % self.sites;
            let at = Instant::ZERO + TimeDelta::from_millis(luck.range(6_000..=13_000));
            // What was cut for a while stays cut from then on, too.
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

    fn draw_fault(&mut self, luck: &mut Random, from: Instant, until: Instant) {
        let one = luck.below(self.sites as u64) as usize;
        let other = (one + 1 + luck.below(self.sites as u64 - 1) as usize) % self.sites;
        let mover = (self.seed % self.sites as u64) as usize;
        let goes =
            self.faults.iter().any(|(_, fault)| [SessionFault::Crash(one), SessionFault::Leave(one)].contains(fault));
        let cost = self.step_cost[one];
        let returns = luck.chance(0.5);
        let one_way = luck.chance(0.4);
        let mut add = |at: Instant, fault: SessionFault| self.faults.push((at, fault));
        match luck.below(10) {
            0 if one_way => {
                add(from, SessionFault::CutOneWay(one, other));
                add(until, SessionFault::HealOneWay(one, other));
            }
            0 => {
                add(from, SessionFault::Cut(one, other));
                add(until, SessionFault::Heal(one, other));
            }
            // It hears nobody, and is heard by all; or the other way round.
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
            // Those for good come late, so that something has happened before.
            3 if !goes => {
                add(from + TimeDelta::from_secs(3), SessionFault::Crash(one));
                if returns {
                    let comes = from + TimeDelta::from_secs(3) + (until - from);
                    add(comes, SessionFault::Restart(one));
                    self.draw_leave(luck, one, comes);
                }
            }
            4 if !goes => add(from + TimeDelta::from_secs(3), SessionFault::Leave(one)),
            3 | 4 => {}
            // Two that move at once cannot find each other by themselves.
            5 if self.late_joiners == 0 => add(from, SessionFault::Move(mover)),
            6 => {
                add(from, SessionFault::Worsen(one, other, random_link(luck)));
                add(until, SessionFault::Restore(one, other));
            }
            7 => {
                add(from, SessionFault::Slow(one, self.frame_rate.period().scale(0.8 + luck.unit())));
                add(until, SessionFault::Slow(one, cost));
            }
            _ => add(from, SessionFault::Garbage(one, luck.range(10..=2_000) as u32)),
        }
    }
}

/// For how long each site waits for a silent one: all for the same time, or each for another.
fn draw_drop_timeouts(luck: &mut Random, sites: usize) -> Vec<TimeDelta> {
    let limit = |luck: &mut Random| TimeDelta::from_millis(luck.range(400..=2_500));
    let (alike, common) = (luck.chance(0.7), limit(luck));
    (0..sites).map(|_| if alike { common } else { limit(luck) }).collect()
}

/// For how long one who is heard may hold up the game.
fn draw_stall_timeout(luck: &mut Random) -> Option<TimeDelta> {
    luck.chance(0.2).then(|| TimeDelta::from_millis(luck.range(100..=1_500)))
}

/// A guess that is wrong in every other frame.
fn predict_only_even_frames(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
    if let Some(last) = past.end().checked_sub(1).filter(|_| frame.number().is_multiple_of(2)) {
        past.read(last, words);
    }
}

fn random_clock(luck: &mut Random) -> NodeClock {
    let extreme = luck.chance(0.05);
    let skew_ppm = (luck.unit() * 2.0 - 1.0) * if extreme { 10_000.0 } else { 100.0 };
    NodeClock { offset: TimeDelta::from_millis(luck.range(-1_000_000..=1_000_000_000)), skew_ppm }
}

fn random_delay(luck: &mut Random) -> Delay {
    let mean = TimeDelta::from_micros(luck.range(0..=100_000));
    match luck.below(5) {
        0 | 1 => Delay::Constant(mean),
        2 => Delay::Normal { mean, sd: mean / 10 },
        3 => Delay::LogNormal { mean: mean + TimeDelta::from_micros(100), sd: mean / 6 + TimeDelta::from_micros(10) },
        _ => Delay::Recorded((0..97).map(|_| mean + TimeDelta::from_micros(luck.range(0..=8_000))).collect()),
    }
}

fn random_link(luck: &mut Random) -> LinkConfig {
    let ms = TimeDelta::from_millis;
    LinkConfig {
        delay: random_delay(luck),
        jitter: match luck.below(5) {
            0 => Jitter::Uniform(ms(luck.range(1..=30))),
            1 => Jitter::Exponential { mean: ms(luck.range(1..=15)) },
            _ => Jitter::None,
        },
        reorder: luck.chance(0.3),
        loss: match luck.below(5) {
            0 | 1 => Loss::Independent(luck.unit() * 0.2),
            2 => Loss::bursts(luck.unit() * 0.1, 1.0 + luck.unit() * 4.0),
            _ => Loss::None,
        },
        duplicate: if luck.chance(0.2) { luck.unit() * 0.1 } else { 0.0 },
        rate: luck.chance(0.15).then_some(Rate { bytes_per_second: 32_000, queue_bytes: 4_000 }),
    }
}
