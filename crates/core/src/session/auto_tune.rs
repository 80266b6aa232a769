//! Automatic tuning of the delay settings: input delay and prediction window follow the needs of the links and the
//! machines.
//!
//! For every frame, a site measures the *input age*: the number of frames by which the received inputs of the slowest
//! peer end before those of the site itself, plus the frame periods for which the frame waited. This one number covers
//! delay, jitter and loss. Once per second the site sends all players the age that 98 % of its frames do not exceed,
//! and the longest prediction window for which a rollback on its machine takes at most 80 % of a frame period. The
//! target for the lead, the sum of input delay and prediction window, is the highest reported input age plus one spare
//! frame. The coordinator changes either value for all sites by at most one frame at a time: after one evaluation if
//! the input age exceeds the lead, so that frames wait; after two in a row if only the spare frame is missing, or if a
//! machine is too slow for the prediction window; after 12 to 45 if the lead exceeds its target; and after 12 if the
//! same lead should be split differently. Sites ignore a command that changes either value by more than one frame.

use alloc::boxed::Box;

use super::delay_settings::DelaySettings;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::message::{CommandKind, TuningStats};
use crate::settings::{MAX_AUTO_PREDICTION_WINDOW, MAX_INPUT_DELAY, MAX_LEAD};
use crate::time::{Instant, TimeDelta};

/// Number of frames in each half of the input age histogram: enough that the share of late frames on a noisy link
/// hardly varies between evaluations.
const HISTOGRAM_HALF_FRAMES: u32 = 600;
/// Number of input ages that the histogram distinguishes: 0 to 191 frames. Higher ages count as 191 frames.
const MAX_INPUT_AGE: usize = 192;
/// Inverse of the share of frames whose input age may exceed the reported one: one frame in 50.
const LATE_FRAMES_ONE_IN: u32 = 50;
/// Interval at which sites send and evaluate tuning statistics.
const TUNE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Number of evaluations in a row before the lead (input delay plus prediction window) grows for [`SPARE_FRAMES`]
/// alone, or before the prediction window shrinks for a slow machine. If the input age exceeds the lead, so that frames
/// wait, one evaluation is enough.
const INTERVALS_TO_INCREASE: u32 = 2;
/// Code of the change that shortens the prediction window and lengthens the input delay, because a machine is too slow
/// for the window.
const SHORTEN_WINDOW: i32 = -3;
/// Number of evaluations in a row before the lead is shortened when it exceeds its target by more than one frame, or
/// before the same lead is split differently.
const INTERVALS_TO_DECREASE: u32 = 12;
/// Number of evaluations in a row before the lead is shortened when it exceeds its target by one frame: on a noisy link
/// the target often alternates between two values.
const INTERVALS_TO_DECREASE_BY_ONE: u32 = 45;
/// Input delay that players do not notice, in frames. A longer one is chosen only if the prediction window cannot cover
/// the rest of the target lead.
const COMFORTABLE_INPUT_DELAY: u32 = 2;
/// Number of frames by which the target lead exceeds the measured input age, because links get worse before they get
/// better.
const SPARE_FRAMES: u32 = 1;
/// Largest share of a frame period that a rollback over the whole prediction window may take, with the new frame.
const MAX_ROLLBACK_SHARE: f64 = 0.8;

/// Divisor of the cost samples that gives their decay with every evaluation. Without predictions there are no saves and
/// loads to measure, so a machine that was busy once would otherwise count as slow forever.
const COST_DECAY_DIVISOR: i64 = 32;
/// Number of newest samples of which a cost estimate takes the median.
const COST_SAMPLES: usize = 32;

/// Time that the host program needs for each request of a rollback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCosts {
    /// Time to step the machine by one frame without picture and sound.
    pub step: TimeDelta,
    /// Time to save the machine's state in a slot.
    pub save: TimeDelta,
    /// Time to load the machine's state from a slot.
    pub load: TimeDelta,
}

impl MachineCosts {
    /// Returns the longest prediction window, at most 20 frames, for which a rollback takes at most 80 % of `period`:
    /// one load, then a step and a save for each resimulated frame and for the new one. Returns 0 if there is none.
    pub fn max_prediction_window(&self, period: TimeDelta) -> u32 {
        let left = period.scale(MAX_ROLLBACK_SHARE) - self.load - self.step - self.save;
        let each = (self.step + self.save).max(TimeDelta::from_nanos(1));
        (left.as_nanos() / each.as_nanos()).clamp(0, i64::from(MAX_AUTO_PREDICTION_WINDOW)) as u32
    }
}

impl TuningStats {
    /// Returns these untrusted statistics with an input age of at most 192 frames and a prediction window of at most
    /// 20.
    fn clamped(self) -> Self {
        Self {
            input_age: self.input_age.min(MAX_INPUT_AGE as u32),
            max_prediction_window: self.max_prediction_window.min(MAX_AUTO_PREDICTION_WINDOW),
        }
    }
}

/// State of automatic tuning: this site's measurements, the newest statistics of all sites, and the change of the delay
/// settings that was wanted last.
#[derive(Debug)]
struct AutoTuner {
    input_ages: InputAgeHistogram,
    step_costs: CostSamples,
    save_costs: CostSamples,
    load_costs: CostSamples,
    /// Shortest step with picture and sound since the last evaluation.
    min_shown_step: TimeDelta,
    /// The request that the host program is carrying out, and when it was issued.
    pending_request: Option<(MeasuredRequest, Instant)>,
    next_tuning: Instant,
    /// The newest statistics of each site, including this one; `None` until they arrive.
    tuning_stats: [Option<TuningStats>; MAX_SITES],
    /// The change that the last evaluation wanted (1 for a longer lead, −1 for a shorter one, −2 for another split of
    /// the same lead, [`SHORTEN_WINDOW`], or 0), and for how many evaluations in a row it was wanted.
    wanted_change: (i32, u32),
    /// Number of evaluations in a row in which the lead exceeded its target by more than one frame.
    spare_intervals: u32,
}

/// A request whose duration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasuredRequest {
    HiddenStep,
    /// A step with picture and sound. It costs more than one without, by an unknown amount.
    ShownStep,
    Save,
    Load,
}

/// The newest durations of one kind of request.
#[derive(Debug)]
struct CostSamples {
    newest: [TimeDelta; COST_SAMPLES],
    count: usize,
    /// The configured estimate, which counts before the first sample.
    initial: TimeDelta,
}

impl CostSamples {
    fn new(initial: TimeDelta) -> Self {
        Self { newest: [TimeDelta::ZERO; COST_SAMPLES], count: 0, initial }
    }

    fn add(&mut self, sample: TimeDelta) {
        self.newest[self.count % COST_SAMPLES] = sample;
        self.count = self.count.wrapping_add(1);
    }

    /// Lowers each sample and the configured estimate by 1/32, but not below `least`.
    fn decay(&mut self, least: TimeDelta) {
        for sample in self.newest.iter_mut().chain([&mut self.initial]) {
            *sample = (*sample - *sample / COST_DECAY_DIVISOR).max(least).min(*sample);
        }
    }

    /// Returns the median of the samples, so that a machine that is busy for a moment does not count as slow; the
    /// configured estimate before the first sample.
    fn median(&self) -> TimeDelta {
        let mut sorted = self.newest;
        let sorted = &mut sorted[..self.count.min(COST_SAMPLES)];
        sorted.sort_unstable();
        let middle = sorted.len().saturating_sub(1) / 2;
        sorted.get(middle).copied().unwrap_or(self.initial)
    }
}

/// Histogram of the input ages, in frames, of the last 600 to 1,199 stepped frames; of all while there are fewer than
/// 600.
#[derive(Debug)]
struct InputAgeHistogram {
    halves: [[u16; MAX_INPUT_AGE]; 2],
    count: u32,
}

impl InputAgeHistogram {
    fn add(&mut self, age: u32) {
        let oldest = MAX_INPUT_AGE - 1;
        self.halves[0][(age as usize).min(oldest)] += 1;
        self.count += 1;
        if self.count == HISTOGRAM_HALF_FRAMES {
            self.halves[1] = self.halves[0];
            self.halves[0] = [0; MAX_INPUT_AGE];
            self.count = 0;
        }
    }

    /// Returns the lowest input age that at most one frame in [`LATE_FRAMES_ONE_IN`] exceeds.
    fn high_percentile(&self) -> u32 {
        let count = |age: usize| u32::from(self.halves[0][age]) + u32::from(self.halves[1][age]);
        let max_late = (0..MAX_INPUT_AGE).map(count).sum::<u32>() / LATE_FRAMES_ONE_IN;
        let mut late = 0;
        let age = (0..MAX_INPUT_AGE).rev().find(|age| {
            late += count(*age);
            late > max_late
        });
        age.unwrap_or(0) as u32
    }
}

impl AutoTuner {
    fn new(now: Instant, costs: MachineCosts) -> Self {
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

    fn on_tuning_stats(&mut self, site: SiteId, stats: TuningStats) {
        self.tuning_stats[site.index()] = Some(stats.clamped());
    }

    fn costs(&self) -> MachineCosts {
        MachineCosts { step: self.step_costs.median(), save: self.save_costs.median(), load: self.load_costs.median() }
    }

    /// Notes that the host program gets a request at `now`, whose duration ends with the next
    /// [`AutoTuner::on_request_done`].
    fn on_request(&mut self, now: Instant, request: MeasuredRequest) {
        self.pending_request = Some((request, now));
    }

    /// Measures the duration of the last request, which is complete because the host program asks for the next one.
    fn on_request_done(&mut self, now: Instant) {
        let Some((request, since)) = self.pending_request.take() else { return };
        let took = now - since;
        match request {
            MeasuredRequest::HiddenStep => self.step_costs.add(took),
            MeasuredRequest::ShownStep => self.min_shown_step = self.min_shown_step.min(took),
            MeasuredRequest::Save => self.save_costs.add(took),
            MeasuredRequest::Load => self.load_costs.add(took),
        }
    }

    /// Lets old cost measurements decay, once per evaluation.
    fn decay_costs(&mut self) {
        self.save_costs.decay(TimeDelta::ZERO);
        self.load_costs.decay(TimeDelta::ZERO);
        // A step without picture and sound takes no longer than the shortest one with them, so the samples decay to
        // that.
        self.step_costs.decay(core::mem::replace(&mut self.min_shown_step, TimeDelta::MAX));
    }
}

/// Returns the target input delay and prediction window, in frames, for an input age of `input_age` frames and a
/// prediction window of at most `max_window` frames.
fn target_delays(input_age: u32, max_window: u32) -> (u32, u32) {
    let lead = (input_age + SPARE_FRAMES).min(MAX_LEAD);
    let input_delay = lead.saturating_sub(max_window).max(COMFORTABLE_INPUT_DELAY.min(lead)).clamp(1, MAX_INPUT_DELAY);
    (input_delay, (lead - input_delay.min(lead)).min(max_window))
}

/// Automatic tuning at one site, which may be off.
#[derive(Debug)]
pub(super) struct Tuning {
    tuner: Option<Box<AutoTuner>>,
    /// Whether the next ticks carry this site's statistics.
    is_due: bool,
}

/// What automatic tuning reads of the other parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TuningFacts {
    pub(super) own_site: SiteId,
    /// The sites that play, including this site.
    pub(super) playing: SiteSet,
    /// Nominal time between two frames.
    pub(super) period: TimeDelta,
    /// Number of slots for rollbacks; 0 if the machine cannot save its state.
    pub(super) rollback_slots: u32,
    pub(super) delays: DelaySettings,
}

impl Tuning {
    /// Creates automatic tuning with these estimates of the machine's costs; `None` if it is off.
    pub(super) fn new(now: Instant, costs: Option<MachineCosts>) -> Self {
        Self { tuner: costs.map(|costs| Box::new(AutoTuner::new(now, costs))), is_due: false }
    }

    /// Returns whether the next ticks carry this site's statistics.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Notes that all ticks of an update have carried this site's statistics.
    pub(super) fn on_sent(&mut self) {
        self.is_due = false;
    }

    /// Forgets the statistics of a site whose seat a joiner takes.
    pub(super) fn forget_site(&mut self, site: SiteId) {
        if let Some(tuner) = &mut self.tuner {
            tuner.tuning_stats[site.index()] = None;
        }
    }

    /// Takes in the statistics of another site.
    pub(super) fn on_stats(&mut self, site: SiteId, stats: TuningStats) {
        if let Some(tuner) = &mut self.tuner {
            tuner.on_tuning_stats(site, stats);
        }
    }

    /// Notes that the host program gets a request.
    #[inline]
    pub(super) fn on_request(&mut self, now: Instant, request: MeasuredRequest) {
        if let Some(tuner) = &mut self.tuner {
            tuner.on_request(now, request);
        }
    }

    /// Notes that the host program has completed the last request, because it asks for the next one.
    #[inline]
    pub(super) fn on_request_done(&mut self, now: Instant) {
        if let Some(tuner) = &mut self.tuner {
            tuner.on_request_done(now);
        }
    }

    /// Records the input age of a frame that is stepped for the first time and has waited for inputs for `waited`.
    #[inline]
    pub(super) fn record_input_age(&mut self, age: impl FnOnce() -> u32, waited: TimeDelta, period: TimeDelta) {
        let Some(tuner) = &mut self.tuner else { return };
        let late_frames = waited.as_nanos() / period.as_nanos().max(1);
        tuner.input_ages.add(age() + late_frames.clamp(0, 60) as u32);
    }

    /// Returns the statistics that this site sends to all players; `None` without automatic tuning.
    pub(super) fn own_stats(&self, facts: &TuningFacts) -> Option<TuningStats> {
        let tuner = self.tuner.as_ref()?;
        Some(TuningStats {
            input_age: tuner.input_ages.high_percentile(),
            max_prediction_window: tuner.costs().max_prediction_window(facts.period).min(facts.rollback_slots),
        })
    }

    /// Evaluates the statistics once per second. Returns `None` between evaluations; else the change of the delay
    /// settings that is needed, if this site may change them (`can_change`).
    pub(super) fn update(
        &mut self,
        now: Instant,
        can_change: bool,
        facts: &TuningFacts,
    ) -> Option<Option<CommandKind>> {
        let own_stats = self.own_stats(facts)?;
        let tuner = self.tuner.as_mut().filter(|tuner| tuner.next_tuning <= now)?;
        tuner.next_tuning = now + TUNE_INTERVAL;
        tuner.decay_costs();
        tuner.on_tuning_stats(facts.own_site, own_stats);
        self.is_due = true;
        Some(if can_change { tuner.next_change(facts) } else { None })
    }
}

impl AutoTuner {
    /// Returns the change of the delay settings that the newest statistics of all players ask for.
    fn next_change(&mut self, facts: &TuningFacts) -> Option<CommandKind> {
        let playing = facts.playing;
        let sites =
            || self.tuning_stats.iter().zip(SiteId::first(MAX_SITES)).filter(|(_, site)| playing.contains(*site));
        let reported = || sites().filter_map(|(stats, site)| stats.map(|stats| (stats, site)));
        // A site that has just joined has sent no statistics yet. That must not count as a slow machine.
        if sites().count() > reported().count() {
            return None;
        }
        let (input_age, site) = reported().map(|(stats, site)| (stats.input_age, site)).max()?;
        let max_window = reported().map(|(stats, _)| stats.max_prediction_window).min().unwrap_or(0);
        let (input_delay, prediction_window) = self.next_delay_step(facts.delays, input_age, max_window);
        let input_delay = input_delay.min(MAX_INPUT_DELAY).min(MAX_LEAD - prediction_window.min(MAX_LEAD));
        let is_change = (input_delay, prediction_window) != (facts.delays.input_delay, facts.delays.prediction_window);
        is_change.then_some(CommandKind::SetDelay { input_delay, prediction_window, input_age, site })
    }

    /// Returns input delay and prediction window in frames: one step closer to their targets if enough evaluations in a
    /// row wanted the same change, else the current values.
    fn next_delay_step(&mut self, settings: DelaySettings, input_age: u32, max_window: u32) -> (u32, u32) {
        let DelaySettings { input_delay, prediction_window, .. } = settings;
        let (target_delay, target_window) = target_delays(input_age, max_window);
        let (target_lead, lead) = (target_delay + target_window, settings.lead());
        let direction = match target_lead.cmp(&lead) {
            _ if prediction_window > max_window => SHORTEN_WINDOW,
            core::cmp::Ordering::Greater => 1,
            core::cmp::Ordering::Less => -1,
            core::cmp::Ordering::Equal if target_delay != input_delay => -2,
            core::cmp::Ordering::Equal => 0,
        };
        let (previous, count) = self.wanted_change;
        self.wanted_change = (direction, if previous == direction { count + 1 } else { 1 });
        self.spare_intervals = if target_lead + 1 < lead { self.spare_intervals + 1 } else { 0 };
        let required = match direction {
            1 if input_age > lead => 1,
            1 | SHORTEN_WINDOW => INTERVALS_TO_INCREASE,
            -1 if self.spare_intervals < INTERVALS_TO_DECREASE => INTERVALS_TO_DECREASE_BY_ONE,
            _ => INTERVALS_TO_DECREASE,
        };
        if direction == 0 || self.wanted_change.1 < required {
            return (input_delay, prediction_window);
        }
        (self.wanted_change, self.spare_intervals) = ((0, 0), 0);
        match direction {
            // An input delay that players do not notice saves predictions, so it grows first.
            1 if input_delay < target_delay.min(COMFORTABLE_INPUT_DELAY) => (input_delay + 1, prediction_window),
            1 if target_window > prediction_window => (input_delay, prediction_window + 1),
            1 => (input_delay + 1, prediction_window),
            -1 if target_delay < input_delay => (input_delay - 1, prediction_window),
            -1 => (input_delay, prediction_window - 1),
            // The window must not exceed the number of frames that the slowest machine can resimulate.
            SHORTEN_WINDOW => (input_delay + 1, prediction_window - 1),
            // The same sum, with a different split.
            _ if target_delay < input_delay => (input_delay - 1, prediction_window + 1),
            _ => (input_delay + 1, prediction_window - 1),
        }
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

    /// Measures the same request `times` times with this duration, and returns the resulting prediction window.
    fn measured_window(tuner: &mut AutoTuner, request: MeasuredRequest, micros: i64, times: u32) -> u32 {
        for _ in 0..times {
            tuner.on_request(Instant::ZERO, request);
            tuner.on_request_done(Instant::ZERO + TimeDelta::from_micros(micros));
        }
        tuner.costs().max_prediction_window(PERIOD)
    }

    #[test]
    fn single_slow_step_does_not_shrink_prediction_window() {
        let mut tuner = AutoTuner::new(Instant::ZERO, MachineCosts::default());
        let usual = measured_window(&mut tuner, MeasuredRequest::HiddenStep, 1_500, 200);
        assert_eq!(usual, 7);
        assert!(
            measured_window(&mut tuner, MeasuredRequest::HiddenStep, 60_000, 1) >= usual - 2,
            "{:?}",
            tuner.costs()
        );
        assert_eq!(
            measured_window(&mut tuner, MeasuredRequest::HiddenStep, 12_000, 20),
            0,
            "a lasting slowdown shrinks it"
        );
    }

    #[test]
    fn slow_machine_regains_prediction_window_without_rollbacks() {
        let mut tuner = AutoTuner::new(Instant::ZERO, MachineCosts::default());
        for request in [MeasuredRequest::HiddenStep, MeasuredRequest::Save, MeasuredRequest::Load] {
            measured_window(&mut tuner, request, 12_000, 30);
        }
        assert_eq!(tuner.costs().max_prediction_window(PERIOD), 0);
        let mut windows = (0..60).map(|_| {
            tuner.decay_costs();
            measured_window(&mut tuner, MeasuredRequest::ShownStep, 2_000, 60)
        });
        assert!(windows.any(|window| window >= 2), "{:?}", tuner.costs());
        assert_eq!(
            measured_window(&mut tuner, MeasuredRequest::ShownStep, 16_000, 1_000),
            measured_window(&mut tuner, MeasuredRequest::ShownStep, 2_000, 1)
        );
    }

    #[test]
    fn median_cost_ignores_hiccups_and_follows_lasting_slowness() {
        let ms = TimeDelta::from_millis;
        let mut samples = CostSamples::new(ms(7));
        assert_eq!(samples.median(), ms(7), "the initial estimate counts before the first sample");
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

    fn facts(input_delay: u32, prediction_window: u32) -> TuningFacts {
        TuningFacts {
            own_site: SiteId::new(0).unwrap(),
            playing: SiteSet::first(2),
            period: PERIOD,
            rollback_slots: 8,
            delays: crate::session::delay_settings::DelaySchedule::fixed(input_delay, prediction_window).current(),
        }
    }

    /// Returns the evaluation, counted from 1, that first changes the delay settings, and the new ones, if the other
    /// site reports this input age and this site measures 3 frames.
    fn first_change(reported_age: u32, facts: &TuningFacts) -> Option<(usize, u32, u32)> {
        let mut tuning = Tuning::new(Instant::ZERO, Some(MachineCosts::default()));
        (0..600).for_each(|_| tuning.record_input_age(|| 3, TimeDelta::ZERO, PERIOD));
        let stats = TuningStats { input_age: reported_age, max_prediction_window: 8 };
        tuning.on_stats(SiteId::new(1).unwrap(), stats);
        (1..=50).find_map(|second| {
            let now = Instant::ZERO + TimeDelta::from_secs(second + 1);
            match tuning.update(now, true, facts).expect("an evaluation is due every second") {
                Some(CommandKind::SetDelay { input_delay, prediction_window, .. }) => {
                    Some((second as usize, input_delay, prediction_window))
                }
                _ => None,
            }
        })
    }

    #[test]
    fn delay_settings_change_by_one_frame_towards_the_highest_input_age() {
        assert_eq!(first_change(3, &facts(2, 2)), None, "the lead is the input age plus one spare frame");
        assert_eq!(first_change(5, &facts(2, 2)), Some((1, 2, 3)), "frames wait: one evaluation is enough");
        assert_eq!(first_change(4, &facts(2, 2)), Some((2, 2, 3)), "only the spare frame is missing");
        assert_eq!(first_change(3, &facts(2, 4)), Some((12, 2, 3)), "the lead is two frames too long");
        assert_eq!(first_change(3, &facts(2, 3)), Some((45, 2, 2)), "the lead is one frame too long");
        assert_eq!(first_change(3, &facts(3, 1)), Some((12, 2, 2)), "the same lead, split differently");
    }

    #[test]
    fn nothing_changes_until_all_players_have_sent_statistics() {
        let mut tuning = Tuning::new(Instant::ZERO, Some(MachineCosts::default()));
        let now = Instant::ZERO + TimeDelta::from_secs(2);
        assert_eq!(tuning.update(now - TimeDelta::from_nanos(1), true, &facts(2, 20)), None, "too early");
        assert_eq!(tuning.update(now, true, &facts(2, 20)), Some(None));
        assert!(tuning.is_due());
        assert_eq!(Tuning::new(Instant::ZERO, None).update(now, true, &facts(2, 2)), None, "tuning is off");
    }
}
