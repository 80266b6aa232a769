//! Drawing a scenario from a seed.

use coplay::frame::{Frame, FrameRate};
use coplay::input::{InputWord, Recovery};
use coplay::session::{AbsentInput, InputHistory, InputPredictor, SendPolicy, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};

use super::{Fault, Pads, Scenario};
use crate::clock::NodeClock;
use crate::gallery;
use crate::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use crate::random::Random;
use crate::recording;

impl Scenario {
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
        let pads = *luck.pick(&[Pads::Buttons, Pads::Buttons, Pads::Sticks, Pads::Shared, Pads::TwoAtOne]);
        let mut scenario = Self {
            seed,
            sites,
            lag,
            window,
            rate,
            recovery,
            pads,
            links: Vec::new(),
            clocks: (0..sites).map(|_| random_clock(&mut luck)).collect(),
            // A full repair fits into a frame.
            step_cost: (0..sites)
                .map(|_| TimeDelta::from_micros(luck.range(0..=5_000 / (1 + i64::from(window)))))
                .collect(),
            faults: Vec::new(),
            late: 0,
            by_replay: false,
            can_save: vec![true; sites],
            predictor: *luck.pick(&[
                InputPredictor::Repeat,
                InputPredictor::Repeat,
                InputPredictor::Neutral,
                InputPredictor::Custom(alternate),
            ]),
            compare_every: *luck.pick(&[60, 60, 60, 60, 60, 1, 7, 280]),
            heals: luck.chance(0.5),
            auto: luck.chance(0.25),
            drop_after: luck.chance(0.5).then(|| draw_patience(&mut luck, sites)),
            absent: if Random::stream(seed, "absent").chance(0.5) { AbsentInput::Repeat } else { AbsentInput::Nothing },
            starvation: StarvationPolicy::Wait,
            sending: SendPolicy::AtOnce,
            late_after: draw_late_after(&mut Random::stream(seed, "late after")),
            gallery: gallery::Plan::draw(seed, sites, random_link),
            movie: None,
            sabotage: None,
        };
        if sites > 2 && luck.chance(0.25) {
            scenario.late = 1 + usize::from(sites > 3 && luck.chance(0.5));
        }
        scenario.draw_buffering(&mut Random::stream(seed, "buffering"));
        scenario.draw_saving(&mut luck);
        scenario.movie = recording::draw(seed, scenario.starters());
        scenario.draw_links(&mut luck);
        if luck.chance(0.1) {
            scenario.draw_astray(&mut luck);
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
    fn draw_saving(&mut self, luck: &mut Random) {
        if self.window == 0 && self.gallery.is_none() && luck.chance(0.3) {
            self.can_save.fill_with(|| luck.chance(0.5));
        }
        self.by_replay = self.can_save.contains(&false) || luck.chance(0.2);
    }

    /// One machine goes astray, and nothing else happens: whatever is told then must be right.
    fn draw_astray(&mut self, luck: &mut Random) {
        self.late = 0;
        self.can_save.fill(true);
        self.late_after = None;
        // What went astray is not found by playing it again.
        self.by_replay = false;
        let site = luck.below(self.sites as u64) as usize;
        let at = Instant::ZERO + TimeDelta::from_millis(luck.range(4_000..=8_000));
        self.faults.push((at, Fault::Astray(site)));
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        for site in self.starters()..self.sites {
            let at = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=9_000));
            self.faults.push((at, Fault::Restart(site)));
            self.draw_leave_after(luck, site, at);
        }
        for _ in 0..luck.below(4) {
            let from = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=11_000));
            let until = from + TimeDelta::from_millis(luck.range(50..=4_000));
            self.draw_fault(luck, from, until);
        }
        self.draw_cut_for_good(luck);
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Who comes may leave again, before it is in or afterwards.
    fn draw_leave_after(&mut self, luck: &mut Random, site: usize, comes: Instant) {
        if luck.chance(0.3) {
            self.faults.push((comes + TimeDelta::from_millis(luck.range(0..=6_000)), Fault::Leave(site)));
        }
    }

    /// Between two of three or more the way is cut and never back. Nobody could come in then, because who comes must hear all.
    fn draw_cut_for_good(&mut self, luck: &mut Random) {
        let somebody_comes = self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Restart(_)));
        if self.sites > 2 && !somebody_comes && luck.chance(0.15) {
            let one = luck.below(self.sites as u64) as usize;
            let other = (one + 1 + luck.below(self.sites as u64 - 1) as usize) % self.sites;
            let at = Instant::ZERO + TimeDelta::from_millis(luck.range(6_000..=13_000));
            // What was cut for a while stays cut from then on, too.
            let heals = [
                Fault::Heal(one, other),
                Fault::Heal(other, one),
                Fault::HealOneWay(one, other),
                Fault::HealOneWay(other, one),
            ];
            self.faults.retain(|(then, fault)| *then < at || !heals.contains(fault));
            self.faults.push((at, Fault::Cut(one, other)));
        }
    }

    fn draw_fault(&mut self, luck: &mut Random, from: Instant, until: Instant) {
        let one = luck.below(self.sites as u64) as usize;
        let other = (one + 1 + luck.below(self.sites as u64 - 1) as usize) % self.sites;
        let mover = (self.seed % self.sites as u64) as usize;
        let goes = self.faults.iter().any(|(_, fault)| [Fault::Crash(one), Fault::Leave(one)].contains(fault));
        let cost = self.step_cost[one];
        let returns = luck.chance(0.5);
        let one_way = luck.chance(0.4);
        let mut add = |at: Instant, fault: Fault| self.faults.push((at, fault));
        match luck.below(10) {
            0 if one_way => {
                add(from, Fault::CutOneWay(one, other));
                add(until, Fault::HealOneWay(one, other));
            }
            0 => {
                add(from, Fault::Cut(one, other));
                add(until, Fault::Heal(one, other));
            }
            // It hears nobody, and is heard by all; or the other way round.
            1 if one_way => (0..self.sites).filter(|site| *site != one).for_each(|site| {
                let (sender, receiver) = if returns { (one, site) } else { (site, one) };
                add(from, Fault::CutOneWay(sender, receiver));
                add(until, Fault::HealOneWay(sender, receiver));
            }),
            1 => (0..self.sites).filter(|site| *site != one).for_each(|site| {
                add(from, Fault::Cut(one, site));
                add(until, Fault::Heal(one, site));
            }),
            2 => add(from, Fault::Pause(one, until)),
            8 => add(from, Fault::Suspend(one, until)),
            // Those for good come late, so that something has happened before.
            3 if !goes => {
                add(from + TimeDelta::from_secs(3), Fault::Crash(one));
                if returns {
                    let comes = from + TimeDelta::from_secs(3) + (until - from);
                    add(comes, Fault::Restart(one));
                    self.draw_leave_after(luck, one, comes);
                }
            }
            4 if !goes => add(from + TimeDelta::from_secs(3), Fault::Leave(one)),
            3 | 4 => {}
            // Two that move at once cannot find each other by themselves.
            5 if self.late == 0 => add(from, Fault::Move(mover)),
            6 => {
                add(from, Fault::Worsen(one, other, random_link(luck)));
                add(until, Fault::Restore(one, other));
            }
            7 => {
                add(from, Fault::Slow(one, self.rate.period().scale(0.8 + luck.unit())));
                add(until, Fault::Slow(one, cost));
            }
            _ => add(from, Fault::Garbage(one, luck.range(10..=2_000) as u32)),
        }
    }
}

/// For how long each site waits for a silent one: all for the same time, or each for another.
fn draw_patience(luck: &mut Random, sites: usize) -> Vec<TimeDelta> {
    let limit = |luck: &mut Random| TimeDelta::from_millis(luck.range(400..=2_500));
    let (alike, common) = (luck.chance(0.7), limit(luck));
    (0..sites).map(|_| if alike { common } else { limit(luck) }).collect()
}

/// For how long one who is heard may hold up the game.
fn draw_late_after(luck: &mut Random) -> Option<TimeDelta> {
    luck.chance(0.2).then(|| TimeDelta::from_millis(luck.range(100..=1_500)))
}

/// A guess that is wrong in every other frame.
fn alternate(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
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
