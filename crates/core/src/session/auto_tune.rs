//! The dials, turned by themselves: lag and window from what the links need and what the machines can do.
//!
//! Every site measures, frame by frame, how many frames its newest inputs are old by the time they are needed: delay, jitter and
//! loss in one number. Once a second it tells the coordinator the one that nearly all frames can do with, and how many frames its
//! machine can repair within one. The coordinator turns the dials for all, so that everybody has the same: by one frame at a time,
//! at once if frames have to wait, late if there is room to spare, and hardly ever where a link only trembles. An
//! order that turns them by more is followed by nobody.

use super::event::Event;
use super::settings::{MAX_INPUT_DELAY, MAX_LEAD};
use super::{Phase, Session};
use crate::id::{MAX_SITES, SiteId};
use crate::time::{Instant, TimeDelta};
use crate::wire::{CommandKind, TuningStats};

/// Frames that a measurement looks back on, in two halves: so many that the few late ones of a noisy link are always about as many.
const HISTOGRAM_HALF_FRAMES: u32 = 600;
/// The oldest inputs told apart.
const MAX_INPUT_AGE: usize = 192;
/// One frame in so many may have to do without.
const LATE_FRAMES_ONE_IN: u32 = 50;
/// Conditions are told and looked at so often.
const TUNE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// The dials go up at the first look where frames wait, and after so many where only the spare is missing.
const INTERVALS_TO_INCREASE: u32 = 2;
/// Stands for a turn by which the window gets shorter, and the lag longer, because a machine is too slow for it.
const SHORTEN_WINDOW: i32 = -3;
/// They go down after so many where there is room for more than one frame, or are shared otherwise.
const INTERVALS_TO_DECREASE: u32 = 12;
/// And after so many where there is room for one: what a noisy link needs is often on the edge between two numbers.
const INTERVALS_TO_DECREASE_BY_ONE: u32 = 45;
/// With this lag, in frames, nobody feels that a button is late; more is taken only where repairs cannot reach.
const COMFORTABLE_INPUT_DELAY: u32 = 2;
/// Frames to spare: links get worse before they get better.
const SPARE_FRAMES: u32 = 1;
/// The longest window that is chosen.
pub(super) const MAX_AUTO_PREDICTION_WINDOW: u32 = 20;
/// The part of a frame's time that a full repair may take.
const MAX_ROLLBACK_SHARE: f64 = 0.8;

/// The part of the cost of saving and loading that is forgotten with every look. Where nothing is guessed nobody saves or loads, and a
/// computer that was busy once would never be trusted again.
const COST_DECAY_DIVISOR: i64 = 32;
/// So many of the newest are looked at to tell how long something takes.
const COST_SAMPLES: usize = 32;

/// What one thing costs that a host program is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCosts {
    /// To step the machine.
    pub step: TimeDelta,
    /// To keep a state.
    pub save: TimeDelta,
    /// To put one back.
    pub load: TimeDelta,
}

impl MachineCosts {
    /// The most frames that can be repaired within a frame of this length.
    pub fn max_prediction_window(&self, period: TimeDelta) -> u32 {
        let left = period.scale(MAX_ROLLBACK_SHARE) - self.load - self.step - self.save;
        let each = (self.step + self.save).max(TimeDelta::from_nanos(1));
        (left.as_nanos() / each.as_nanos()).clamp(0, i64::from(MAX_AUTO_PREDICTION_WINDOW)) as u32
    }
}

impl TuningStats {
    /// No site needs or can do more than this.
    fn clamped(self) -> Self {
        Self {
            input_age: self.input_age.min(MAX_INPUT_AGE as u32),
            max_prediction_window: self.max_prediction_window.min(MAX_AUTO_PREDICTION_WINDOW),
        }
    }
}

/// Everything that one site knows for it.
#[derive(Debug)]
pub(super) struct AutoTuner {
    input_ages: InputAgeHistogram,
    step_costs: CostSamples,
    save_costs: CostSamples,
    load_costs: CostSamples,
    /// The shortest of the steps that were shown since the last look.
    min_shown_step: TimeDelta,
    /// What the host program was asked for last, and when.
    pending_request: Option<(TimedRequest, Instant)>,
    next_tuning: Instant,
    /// What the sites told last.
    tuning_stats: [Option<TuningStats>; MAX_SITES],
    /// For how many looks the same turn was wanted.
    wanted_change: (i32, u32),
    /// And for how many there was room for more than one frame.
    spare_intervals: u32,
}

/// What was asked of a host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimedRequest {
    HiddenStep,
    /// A step that is seen and heard: it costs more than one that is not, and how much more is not known.
    ShownStep,
    Save,
    Load,
}

/// How long one thing took of late.
#[derive(Debug)]
struct CostSamples {
    newest: [TimeDelta; COST_SAMPLES],
    count: usize,
    /// What is told before there are any.
    initial: TimeDelta,
}

impl CostSamples {
    fn new(at_first: TimeDelta) -> Self {
        Self { newest: [TimeDelta::ZERO; COST_SAMPLES], count: 0, initial: at_first }
    }

    fn add(&mut self, sample: TimeDelta) {
        self.newest[self.count % COST_SAMPLES] = sample;
        self.count = self.count.wrapping_add(1);
    }

    /// What took longer than that counts a little less.
    fn decay(&mut self, least: TimeDelta) {
        for sample in self.newest.iter_mut().chain([&mut self.initial]) {
            *sample = (*sample - *sample / COST_DECAY_DIVISOR).max(least).min(*sample);
        }
    }

    /// As long as half of them took, or longer: a computer that does something else for a moment is not a slow one.
    fn median(&self) -> TimeDelta {
        let mut sorted = self.newest;
        let sorted = &mut sorted[..self.count.min(COST_SAMPLES)];
        sorted.sort_unstable();
        let middle = sorted.len().saturating_sub(1) / 2;
        sorted.get(middle).copied().unwrap_or(self.initial)
    }
}

/// How old inputs were, in frames.
#[derive(Debug)]
struct InputAgeHistogram {
    halves: [[u16; MAX_INPUT_AGE]; 2],
    count: u32,
}

impl InputAgeHistogram {
    fn add(&mut self, age: u32) {
        let deepest = MAX_INPUT_AGE - 1;
        self.halves[0][(age as usize).min(deepest)] += 1;
        self.count += 1;
        if self.count == HISTOGRAM_HALF_FRAMES {
            self.halves[1] = self.halves[0];
            self.halves[0] = [0; MAX_INPUT_AGE];
            self.count = 0;
        }
    }

    /// The age that all inputs but a few are below.
    fn high_percentile(&self) -> u32 {
        let count = |age: usize| u32::from(self.halves[0][age]) + u32::from(self.halves[1][age]);
        let few = (0..MAX_INPUT_AGE).map(count).sum::<u32>() / LATE_FRAMES_ONE_IN;
        let mut older = 0;
        let usual = (0..MAX_INPUT_AGE).rev().find(|age| {
            older += count(*age);
            older > few
        });
        usual.unwrap_or(0) as u32
    }
}

impl AutoTuner {
    pub(super) fn new(now: Instant, costs: MachineCosts) -> Self {
        Self {
            input_ages: InputAgeHistogram { halves: [[0; MAX_INPUT_AGE]; 2], count: 0 },
            step_costs: CostSamples::new(costs.step),
            save_costs: CostSamples::new(costs.save),
            load_costs: CostSamples::new(costs.load),
            min_shown_step: TimeDelta::MAX,
            pending_request: None,
            next_tuning: now + TUNE_INTERVAL * 2,
            tuning_stats: [None; MAX_SITES],
            wanted_change: (0, 0),
            spare_intervals: 0,
        }
    }

    /// Somebody else has the site's seat now.
    pub(super) fn forget_site(&mut self, site: SiteId) {
        self.tuning_stats[site.index()] = None;
    }

    pub(super) fn on_tuning_stats(&mut self, site: SiteId, condition: TuningStats) {
        self.tuning_stats[site.index()] = Some(condition.clamped());
    }

    fn costs(&self) -> MachineCosts {
        MachineCosts { step: self.step_costs.median(), save: self.save_costs.median(), load: self.load_costs.median() }
    }

    /// The host program is asked for a thing of which many may follow each other without a rest.
    pub(super) fn on_request(&mut self, now: Instant, asked: TimedRequest) {
        self.pending_request = Some((asked, now));
    }

    /// It comes for more: what it was asked for is done.
    pub(super) fn on_request_done(&mut self, now: Instant) {
        let Some((asked, since)) = self.pending_request.take() else { return };
        let took = now - since;
        match asked {
            TimedRequest::HiddenStep => self.step_costs.add(took),
            TimedRequest::ShownStep => self.min_shown_step = self.min_shown_step.min(took),
            TimedRequest::Save => self.save_costs.add(took),
            TimedRequest::Load => self.load_costs.add(took),
        }
    }

    /// What was measured long ago counts less.
    fn decay_costs(&mut self) {
        self.save_costs.decay(TimeDelta::ZERO);
        self.load_costs.decay(TimeDelta::ZERO);
        // A step that is not shown takes no longer than one that is.
        self.step_costs.decay(core::mem::replace(&mut self.min_shown_step, TimeDelta::MAX));
    }
}

/// What lag and window should be for inputs that are this old, where this much can be repaired.
fn target_delays(need: u32, most_window: u32) -> (u32, u32) {
    let reach = (need + SPARE_FRAMES).min(MAX_LEAD);
    let lag = reach.saturating_sub(most_window).max(COMFORTABLE_INPUT_DELAY.min(reach)).clamp(1, MAX_INPUT_DELAY);
    (lag, (reach - lag.min(reach)).min(most_window))
}

impl Session {
    /// A frame is stepped for the first time: notes how old its inputs are.
    #[inline]
    pub(super) fn record_input_age(&mut self, waited: TimeDelta) {
        let Some(auto) = &mut self.auto_tuner else { return };
        let known = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.inputs.end()).min();
        let age = known.map_or(0, |known| self.frame + 1 + self.delay_settings.input_delay - known).max(0) as u32;
        let late = waited.as_nanos() / self.config.settings.rate.period().as_nanos().max(1);
        auto.input_ages.add(age + late.clamp(0, 60) as u32);
    }

    /// What we tell the coordinator.
    pub(super) fn own_tuning_stats(&self) -> Option<TuningStats> {
        let auto = self.auto_tuner.as_ref()?;
        let window = auto
            .costs()
            .max_prediction_window(self.config.settings.rate.period())
            .min(self.config.settings.rollback_slots() as u32);
        Some(TuningStats {
            input_age: auto.input_ages.high_percentile(),
            max_prediction_window: if self.config.can_save { window } else { 0 },
        })
    }

    /// Once a second: tells how things are here, and turns the dials if that is on us.
    pub(super) fn update_auto_tuner(&mut self, now: Instant) {
        let Some(condition) = self.own_tuning_stats() else { return };
        let (site, orders) = (self.config.site, self.can_schedule_command());
        let playing = self.voters();
        let Some(auto) = self.auto_tuner.as_mut().filter(|auto| auto.next_tuning <= now) else { return };
        auto.next_tuning = now + TUNE_INTERVAL;
        auto.decay_costs();
        auto.on_tuning_stats(site, condition);
        self.tuning_stats_due = true;
        self.extras_pending = true;
        if !orders || !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        let sites =
            || auto.tuning_stats.iter().zip(SiteId::first(MAX_SITES)).filter(|(_, site)| playing.contains(*site));
        let told = || sites().filter_map(|(told, site)| told.map(|told| (told, site)));
        // Whoever has just come has told nothing yet, and must not be taken for one who can do nothing.
        if sites().count() > told().count() {
            return;
        }
        let Some((need, worst)) = told().map(|(told, site)| (told.input_age, site)).max() else { return };
        let window = told().map(|(told, _)| told.max_prediction_window).min().unwrap_or(0);
        let (lag, window) = self.next_delay_step(need, window);
        let lag = lag.min(MAX_INPUT_DELAY).min(MAX_LEAD - window.min(MAX_LEAD));
        if (lag, window) != (self.delay_settings.input_delay, self.delay_settings.prediction_window) {
            let frame = self.own_inputs.end() + 30;
            self.schedule_command(
                frame,
                CommandKind::SetDelay { input_delay: lag, prediction_window: window, input_age: need, site: worst },
            );
        }
    }

    /// One step towards the target, if it was wanted for long enough.
    fn next_delay_step(&mut self, need: u32, most_window: u32) -> (u32, u32) {
        let dials = self.delay_settings;
        let now = (dials.input_delay, dials.prediction_window);
        let (lag, window) = target_delays(need, most_window);
        let direction = match (lag + window).cmp(&(dials.input_delay + dials.prediction_window)) {
            _ if dials.prediction_window > most_window => SHORTEN_WINDOW,
            core::cmp::Ordering::Greater => 1,
            core::cmp::Ordering::Less => -1,
            core::cmp::Ordering::Equal if lag != dials.input_delay => -2,
            core::cmp::Ordering::Equal => 0,
        };
        let Some(auto) = &mut self.auto_tuner else { return now };
        let (before, looks) = auto.wanted_change;
        auto.wanted_change = (direction, if before == direction { looks + 1 } else { 1 });
        auto.spare_intervals =
            if lag + window + 1 < dials.input_delay + dials.prediction_window { auto.spare_intervals + 1 } else { 0 };
        let enough = match direction {
            1 if need > dials.input_delay + dials.prediction_window => 1,
            1 | SHORTEN_WINDOW => INTERVALS_TO_INCREASE,
            -1 if auto.spare_intervals < INTERVALS_TO_DECREASE => INTERVALS_TO_DECREASE_BY_ONE,
            _ => INTERVALS_TO_DECREASE,
        };
        if direction == 0 || auto.wanted_change.1 < enough {
            return now;
        }
        (auto.wanted_change, auto.spare_intervals) = ((0, 0), 0);
        match direction {
            // Lag that nobody feels spares guesses; only then come those.
            1 if dials.input_delay < lag.min(COMFORTABLE_INPUT_DELAY) => {
                (dials.input_delay + 1, dials.prediction_window)
            }
            1 if window > dials.prediction_window => (dials.input_delay, dials.prediction_window + 1),
            1 => (dials.input_delay + 1, dials.prediction_window),
            -1 if lag < dials.input_delay => (dials.input_delay - 1, dials.prediction_window),
            -1 => (dials.input_delay, dials.prediction_window - 1),
            // What the slowest machine cannot repair must go, whatever it costs.
            SHORTEN_WINDOW => (dials.input_delay + 1, dials.prediction_window - 1),
            // The same reach, but shared otherwise.
            _ if lag < dials.input_delay => (dials.input_delay - 1, dials.prediction_window + 1),
            _ => (dials.input_delay + 1, dials.prediction_window - 1),
        }
    }

    /// The dials are turned at this frame, everywhere.
    pub(super) fn push_delay_event(
        &mut self,
        frame: crate::frame::Frame,
        lag: u32,
        window: u32,
        (need, site): (u32, SiteId),
    ) {
        self.events.push(Event::DelayChanged {
            frame,
            input_delay: lag,
            prediction_window: window,
            input_age: need,
            site,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_delay_stays_short_while_rollback_covers_the_need() {
        assert_eq!(target_delays(0, 16), (1, 0));
        assert_eq!(target_delays(1, 16), (2, 0));
        assert_eq!(target_delays(5, 16), (2, 4));
        assert_eq!(target_delays(12, 8), (5, 8));
        assert_eq!(target_delays(12, 0), (13, 0));
        assert_eq!(target_delays(190, 0), (MAX_INPUT_DELAY, 0));
        assert_eq!(target_delays(190, 20), (MAX_LEAD - 20, 20));
    }

    #[test]
    fn full_rollback_fits_into_one_frame() {
        let ms = TimeDelta::from_micros;
        let costs = MachineCosts { step: ms(1_500), save: ms(4), load: ms(39) };
        let window = costs.max_prediction_window(ms(16_667));
        assert_eq!(window, 7);
        assert_eq!(MachineCosts { step: ms(20_000), ..costs }.max_prediction_window(ms(16_667)), 0);
        assert_eq!(MachineCosts::default().max_prediction_window(ms(16_667)), MAX_AUTO_PREDICTION_WINDOW);
    }

    const PERIOD: TimeDelta = TimeDelta::from_micros(16_667);

    /// The same thing is done again and again, and takes so long.
    fn measured_window(auto: &mut AutoTuner, asked: TimedRequest, micros: i64, times: u32) -> u32 {
        for _ in 0..times {
            auto.on_request(Instant::ZERO, asked);
            auto.on_request_done(Instant::ZERO + TimeDelta::from_micros(micros));
        }
        auto.costs().max_prediction_window(PERIOD)
    }

    #[test]
    fn single_slow_step_does_not_shrink_prediction_window() {
        let mut auto = AutoTuner::new(Instant::ZERO, MachineCosts::default());
        let usual = measured_window(&mut auto, TimedRequest::HiddenStep, 1_500, 200);
        assert_eq!(usual, 7);
        assert!(measured_window(&mut auto, TimedRequest::HiddenStep, 60_000, 1) >= usual - 2, "{:?}", auto.costs());
        assert_eq!(
            measured_window(&mut auto, TimedRequest::HiddenStep, 12_000, 20),
            0,
            "but one that is slow again and again is"
        );
    }

    #[test]
    fn slow_machine_regains_prediction_window_without_rollbacks() {
        let mut auto = AutoTuner::new(Instant::ZERO, MachineCosts::default());
        for asked in [TimedRequest::HiddenStep, TimedRequest::Save, TimedRequest::Load] {
            measured_window(&mut auto, asked, 12_000, 30);
        }
        assert_eq!(auto.costs().max_prediction_window(PERIOD), 0);
        let mut windows = (0..60).map(|_| {
            auto.decay_costs();
            measured_window(&mut auto, TimedRequest::ShownStep, 2_000, 60)
        });
        assert!(windows.any(|window| window >= 2), "{:?}", auto.costs());
        assert_eq!(
            measured_window(&mut auto, TimedRequest::ShownStep, 16_000, 1_000),
            measured_window(&mut auto, TimedRequest::ShownStep, 2_000, 1)
        );
    }

    #[test]
    fn median_cost_ignores_hiccups_and_follows_lasting_slowness() {
        let ms = TimeDelta::from_millis;
        let mut samples = CostSamples::new(ms(7));
        assert_eq!(samples.median(), ms(7), "as long as nothing is known");
        for sample in [2, 40, 2, 40, 2, 2] {
            samples.add(ms(sample));
            assert_eq!(samples.median(), ms(2));
        }
        (0..COST_SAMPLES).for_each(|_| samples.add(ms(5)));
        samples.add(ms(40));
        assert_eq!(samples.median(), ms(5));
    }

    #[test]
    fn rare_late_inputs_do_not_raise_input_age() {
        let mut ages = InputAgeHistogram { halves: [[0; MAX_INPUT_AGE]; 2], count: 0 };
        for frame in 0..600 {
            ages.add(if frame % 100 == 0 { 90 } else { 3 });
        }
        assert_eq!(ages.high_percentile(), 3);
    }
}
