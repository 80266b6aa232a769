//! The dials, turned by themselves: lag and window from what the links need and what the machines can do.
//!
//! Every site measures, frame by frame, how many frames its newest inputs are old by the time they are needed: delay, jitter and
//! loss in one number. Once a second it tells the coordinator the one that nearly all frames can do with, and how many frames its
//! machine can repair within one. The coordinator turns the dials for all, so that everybody has the same: by one frame at a time,
//! at once if frames have to wait, late if there is room to spare, and hardly ever where a link only trembles. An
//! order that turns them by more is followed by nobody.

use super::event::Event;
use super::settings::{MAX_LAG, MAX_REACH};
use super::{Phase, Session};
use crate::id::{MAX_SITES, SiteId};
use crate::time::{Instant, TimeDelta};
use crate::wire::{Condition, What};

/// Frames that a measurement looks back on, in two halves: so many that the few late ones of a noisy link are always about as many.
const HALF: u32 = 600;
/// The oldest inputs told apart.
const DEEPEST: usize = 192;
/// One frame in so many may have to do without.
const BUT_ONE_IN: u32 = 50;
/// Conditions are told and looked at so often.
const EVERY: TimeDelta = TimeDelta::from_secs(1);
/// The dials go up at the first look where frames wait, and after so many where only the spare is missing.
const LOOKS_UP: u32 = 2;
/// Stands for a turn by which the window gets shorter, and the lag longer, because a machine is too slow for it.
const TOO_LONG: i32 = -3;
/// They go down after so many where there is room for more than one frame, or are shared otherwise.
const LOOKS_DOWN: u32 = 12;
/// And after so many where there is room for one: what a noisy link needs is often on the edge between two numbers.
const LOOKS_DOWN_ONE: u32 = 45;
/// With this lag, in frames, nobody feels that a button is late; more is taken only where repairs cannot reach.
const COMFORT: u32 = 2;
/// Frames to spare: links get worse before they get better.
const SPARE: u32 = 1;
/// The longest window that is chosen.
pub(super) const MOST_WINDOW: u32 = 20;
/// The part of a frame's time that a full repair may take.
const REPAIR_SHARE: f64 = 0.8;

/// The part of the cost of saving and loading that is forgotten with every look. Where nothing is guessed nobody saves or loads, and a
/// computer that was busy once would never be trusted again.
const FORGOTTEN: i64 = 32;
/// So many of the newest are looked at to tell how long something takes.
const SAMPLES: usize = 32;

/// What one thing costs that a host program is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To step the machine.
    pub step: TimeDelta,
    /// To keep a state.
    pub save: TimeDelta,
    /// To put one back.
    pub load: TimeDelta,
}

impl Costs {
    /// The most frames that can be repaired within a frame of this length.
    pub fn window(&self, period: TimeDelta) -> u32 {
        let left = period.scale(REPAIR_SHARE) - self.load - self.step - self.save;
        let each = (self.step + self.save).max(TimeDelta::from_nanos(1));
        (left.as_nanos() / each.as_nanos()).clamp(0, i64::from(MOST_WINDOW)) as u32
    }
}

impl Condition {
    /// No site needs or can do more than this.
    fn bounded(self) -> Self {
        Self { need: self.need.min(DEEPEST as u32), window: self.window.min(MOST_WINDOW) }
    }
}

/// Everything that one site knows for it.
#[derive(Debug)]
pub(super) struct Auto {
    ages: Ages,
    steps: Samples,
    saves: Samples,
    loads: Samples,
    /// The shortest of the steps that were shown since the last look.
    shown: TimeDelta,
    /// What the host program was asked for last, and when.
    asked: Option<(Asked, Instant)>,
    next_look: Instant,
    /// What the sites told last.
    conditions: [Option<Condition>; MAX_SITES],
    /// For how many looks the same turn was wanted.
    wanted: (i32, u32),
    /// And for how many there was room for more than one frame.
    roomy: u32,
}

/// What was asked of a host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Step,
    /// A step that is seen and heard: it costs more than one that is not, and how much more is not known.
    Show,
    Save,
    Load,
}

/// How long one thing took of late.
#[derive(Debug)]
struct Samples {
    newest: [TimeDelta; SAMPLES],
    counted: usize,
    /// What is told before there are any.
    at_first: TimeDelta,
}

impl Samples {
    fn new(at_first: TimeDelta) -> Self {
        Self { newest: [TimeDelta::ZERO; SAMPLES], counted: 0, at_first }
    }

    fn add(&mut self, sample: TimeDelta) {
        self.newest[self.counted % SAMPLES] = sample;
        self.counted = self.counted.wrapping_add(1);
    }

    /// What took longer than that counts a little less.
    fn fade(&mut self, least: TimeDelta) {
        for sample in self.newest.iter_mut().chain([&mut self.at_first]) {
            *sample = (*sample - *sample / FORGOTTEN).max(least).min(*sample);
        }
    }

    /// As long as half of them took, or longer: a computer that does something else for a moment is not a slow one.
    fn usual(&self) -> TimeDelta {
        let mut sorted = self.newest;
        let sorted = &mut sorted[..self.counted.min(SAMPLES)];
        sorted.sort_unstable();
        let middle = sorted.len().saturating_sub(1) / 2;
        sorted.get(middle).copied().unwrap_or(self.at_first)
    }
}

/// How old inputs were, in frames.
#[derive(Debug)]
struct Ages {
    halves: [[u16; DEEPEST]; 2],
    counted: u32,
}

impl Ages {
    fn add(&mut self, age: u32) {
        let deepest = DEEPEST - 1;
        self.halves[0][(age as usize).min(deepest)] += 1;
        self.counted += 1;
        if self.counted == HALF {
            self.halves[1] = self.halves[0];
            self.halves[0] = [0; DEEPEST];
            self.counted = 0;
        }
    }

    /// The age that all inputs but a few are below.
    fn usual(&self) -> u32 {
        let count = |age: usize| u32::from(self.halves[0][age]) + u32::from(self.halves[1][age]);
        let few = (0..DEEPEST).map(count).sum::<u32>() / BUT_ONE_IN;
        let mut older = 0;
        let usual = (0..DEEPEST).rev().find(|age| {
            older += count(*age);
            older > few
        });
        usual.unwrap_or(0) as u32
    }
}

impl Auto {
    pub(super) fn new(now: Instant, costs: Costs) -> Self {
        Self {
            ages: Ages { halves: [[0; DEEPEST]; 2], counted: 0 },
            steps: Samples::new(costs.step),
            saves: Samples::new(costs.save),
            loads: Samples::new(costs.load),
            shown: TimeDelta::MAX,
            asked: None,
            next_look: now + EVERY * 2,
            conditions: [None; MAX_SITES],
            wanted: (0, 0),
            roomy: 0,
        }
    }

    /// Somebody else has the site's seat now.
    pub(super) fn forget(&mut self, site: SiteId) {
        self.conditions[site.index()] = None;
    }

    pub(super) fn tell(&mut self, site: SiteId, condition: Condition) {
        self.conditions[site.index()] = Some(condition.bounded());
    }

    fn costs(&self) -> Costs {
        Costs { step: self.steps.usual(), save: self.saves.usual(), load: self.loads.usual() }
    }

    /// The host program is asked for a thing of which many may follow each other without a rest.
    pub(super) fn on_ask(&mut self, now: Instant, asked: Asked) {
        self.asked = Some((asked, now));
    }

    /// It comes for more: what it was asked for is done.
    pub(super) fn on_call(&mut self, now: Instant) {
        let Some((asked, since)) = self.asked.take() else { return };
        let took = now - since;
        match asked {
            Asked::Step => self.steps.add(took),
            Asked::Show => self.shown = self.shown.min(took),
            Asked::Save => self.saves.add(took),
            Asked::Load => self.loads.add(took),
        }
    }

    /// What was measured long ago counts less.
    fn on_look(&mut self) {
        self.saves.fade(TimeDelta::ZERO);
        self.loads.fade(TimeDelta::ZERO);
        // A step that is not shown takes no longer than one that is.
        self.steps.fade(core::mem::replace(&mut self.shown, TimeDelta::MAX));
    }
}

/// What lag and window should be for inputs that are this old, where this much can be repaired.
fn target(need: u32, most_window: u32) -> (u32, u32) {
    let reach = (need + SPARE).min(MAX_REACH);
    let lag = reach.saturating_sub(most_window).max(COMFORT.min(reach)).clamp(1, MAX_LAG);
    (lag, (reach - lag.min(reach)).min(most_window))
}

impl Session {
    /// A frame is stepped for the first time: notes how old its inputs are.
    #[inline]
    pub(super) fn note_age(&mut self, waited: TimeDelta) {
        let Some(auto) = &mut self.auto else { return };
        let known = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.inputs.end()).min();
        let age = known.map_or(0, |known| self.frame + 1 + self.dials.lag - known).max(0) as u32;
        let late = waited.as_nanos() / self.config.settings.rate.period().as_nanos().max(1);
        auto.ages.add(age + late.clamp(0, 60) as u32);
    }

    /// What we tell the coordinator.
    pub(super) fn condition(&self) -> Option<Condition> {
        let auto = self.auto.as_ref()?;
        let window = auto.costs().window(self.config.settings.rate.period()).min(self.config.settings.slots() as u32);
        Some(Condition { need: auto.ages.usual(), window: if self.config.can_save { window } else { 0 } })
    }

    /// Once a second: tells how things are here, and turns the dials if that is on us.
    pub(super) fn watch_auto(&mut self, now: Instant) {
        let Some(condition) = self.condition() else { return };
        let (site, orders) = (self.config.site, self.can_give_order());
        let playing = self.voters();
        let Some(auto) = self.auto.as_mut().filter(|auto| auto.next_look <= now) else { return };
        auto.next_look = now + EVERY;
        auto.on_look();
        auto.tell(site, condition);
        self.telling_condition = true;
        self.talkative = true;
        if !orders || !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        let sites = || auto.conditions.iter().zip(SiteId::first(MAX_SITES)).filter(|(_, site)| playing.contains(*site));
        let told = || sites().filter_map(|(told, site)| told.map(|told| (told, site)));
        // Whoever has just come has told nothing yet, and must not be taken for one who can do nothing.
        if sites().count() > told().count() {
            return;
        }
        let Some((need, worst)) = told().map(|(told, site)| (told.need, site)).max() else { return };
        let window = told().map(|(told, _)| told.window).min().unwrap_or(0);
        let (lag, window) = self.turn(need, window);
        let lag = lag.min(MAX_LAG).min(MAX_REACH - window.min(MAX_REACH));
        if (lag, window) != (self.dials.lag, self.dials.window) {
            let frame = self.own.end() + 30;
            self.give_order(frame, What::Dials { lag, window, need, site: worst });
        }
    }

    /// One step towards the target, if it was wanted for long enough.
    fn turn(&mut self, need: u32, most_window: u32) -> (u32, u32) {
        let dials = self.dials;
        let now = (dials.lag, dials.window);
        let (lag, window) = target(need, most_window);
        let direction = match (lag + window).cmp(&(dials.lag + dials.window)) {
            _ if dials.window > most_window => TOO_LONG,
            core::cmp::Ordering::Greater => 1,
            core::cmp::Ordering::Less => -1,
            core::cmp::Ordering::Equal if lag != dials.lag => -2,
            core::cmp::Ordering::Equal => 0,
        };
        let Some(auto) = &mut self.auto else { return now };
        let (before, looks) = auto.wanted;
        auto.wanted = (direction, if before == direction { looks + 1 } else { 1 });
        auto.roomy = if lag + window + 1 < dials.lag + dials.window { auto.roomy + 1 } else { 0 };
        let enough = match direction {
            1 if need > dials.lag + dials.window => 1,
            1 | TOO_LONG => LOOKS_UP,
            -1 if auto.roomy < LOOKS_DOWN => LOOKS_DOWN_ONE,
            _ => LOOKS_DOWN,
        };
        if direction == 0 || auto.wanted.1 < enough {
            return now;
        }
        (auto.wanted, auto.roomy) = ((0, 0), 0);
        match direction {
            // Lag that nobody feels spares guesses; only then come those.
            1 if dials.lag < lag.min(COMFORT) => (dials.lag + 1, dials.window),
            1 if window > dials.window => (dials.lag, dials.window + 1),
            1 => (dials.lag + 1, dials.window),
            -1 if lag < dials.lag => (dials.lag - 1, dials.window),
            -1 => (dials.lag, dials.window - 1),
            // What the slowest machine cannot repair must go, whatever it costs.
            TOO_LONG => (dials.lag + 1, dials.window - 1),
            // The same reach, but shared otherwise.
            _ if lag < dials.lag => (dials.lag - 1, dials.window + 1),
            _ => (dials.lag + 1, dials.window - 1),
        }
    }

    /// The dials are turned at this frame, everywhere.
    pub(super) fn tell_dials(
        &mut self,
        frame: crate::frame::Frame,
        lag: u32,
        window: u32,
        (need, site): (u32, SiteId),
    ) {
        self.events.push(Event::Dials { frame, lag, window, need, site });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_kept_short_as_long_as_repairs_reach() {
        assert_eq!(target(0, 16), (1, 0));
        assert_eq!(target(1, 16), (2, 0));
        assert_eq!(target(5, 16), (2, 4));
        assert_eq!(target(12, 8), (5, 8));
        assert_eq!(target(12, 0), (13, 0));
        assert_eq!(target(190, 0), (MAX_LAG, 0));
        assert_eq!(target(190, 20), (MAX_REACH - 20, 20));
    }

    #[test]
    fn a_full_repair_fits_into_a_frame() {
        let ms = TimeDelta::from_micros;
        let costs = Costs { step: ms(1_500), save: ms(4), load: ms(39) };
        let window = costs.window(ms(16_667));
        assert_eq!(window, 7);
        assert_eq!(Costs { step: ms(20_000), ..costs }.window(ms(16_667)), 0);
        assert_eq!(Costs::default().window(ms(16_667)), MOST_WINDOW);
    }

    const PERIOD: TimeDelta = TimeDelta::from_micros(16_667);

    /// The same thing is done again and again, and takes so long.
    fn measure(auto: &mut Auto, asked: Asked, micros: i64, times: u32) -> u32 {
        for _ in 0..times {
            auto.on_ask(Instant::ZERO, asked);
            auto.on_call(Instant::ZERO + TimeDelta::from_micros(micros));
        }
        auto.costs().window(PERIOD)
    }

    #[test]
    fn a_busy_moment_is_no_slow_machine() {
        let mut auto = Auto::new(Instant::ZERO, Costs::default());
        let usual = measure(&mut auto, Asked::Step, 1_500, 200);
        assert_eq!(usual, 7);
        assert!(measure(&mut auto, Asked::Step, 60_000, 1) >= usual - 2, "{:?}", auto.costs());
        assert_eq!(measure(&mut auto, Asked::Step, 12_000, 20), 0, "but one that is slow again and again is");
    }

    #[test]
    fn a_machine_that_was_slow_is_trusted_again_though_nothing_is_repaired() {
        let mut auto = Auto::new(Instant::ZERO, Costs::default());
        for asked in [Asked::Step, Asked::Save, Asked::Load] {
            measure(&mut auto, asked, 12_000, 30);
        }
        assert_eq!(auto.costs().window(PERIOD), 0);
        let mut windows = (0..60).map(|_| {
            auto.on_look();
            measure(&mut auto, Asked::Show, 2_000, 60)
        });
        assert!(windows.any(|window| window >= 2), "{:?}", auto.costs());
        assert_eq!(measure(&mut auto, Asked::Show, 16_000, 1_000), measure(&mut auto, Asked::Show, 2_000, 1));
    }

    #[test]
    fn one_hiccup_makes_nobody_slow_and_slowness_shows_soon() {
        let ms = TimeDelta::from_millis;
        let mut samples = Samples::new(ms(7));
        assert_eq!(samples.usual(), ms(7), "as long as nothing is known");
        for sample in [2, 40, 2, 40, 2, 2] {
            samples.add(ms(sample));
            assert_eq!(samples.usual(), ms(2));
        }
        (0..SAMPLES).for_each(|_| samples.add(ms(5)));
        samples.add(ms(40));
        assert_eq!(samples.usual(), ms(5));
    }

    #[test]
    fn rare_late_inputs_do_not_count() {
        let mut ages = Ages { halves: [[0; DEEPEST]; 2], counted: 0 };
        for frame in 0..600 {
            ages.add(if frame % 100 == 0 { 90 } else { 3 });
        }
        assert_eq!(ages.usual(), 3);
    }
}
