//! Motion timers, and the delay that they compensate: equations 3 to 7 of the paper.

use crate::time::TimeDelta;

/// Rates of a motion timer, relative to real time, while it is being corrected. A timer never stops and never goes
/// back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimerRate {
    /// Rate while the timer is ahead.
    pub slowest: f64,
    /// Rate while the timer is behind.
    pub fastest: f64,
}

impl TimerRate {
    /// The paper's rates, 0.5 and 1.5: ε = min(|Td|, Δt/2) in both directions.
    pub const PAPER: Self = Self { slowest: 0.5, fastest: 1.5 };
    /// Rates of [`MotionConfig::clocks`](super::MotionConfig::clocks): as slow as the paper's, but up to twice real
    /// time.
    pub const OURS: Self = Self { slowest: 0.5, fastest: 2.0 };

    /// Returns the maximum correction of a timer with this offset during `elapsed`.
    fn max_correction(self, offset: TimeDelta, elapsed: TimeDelta) -> TimeDelta {
        elapsed.scale(if offset.is_negative() { self.fastest - 1.0 } else { 1.0 - self.slowest })
    }

    /// Returns whether `slowest` is above 0 and below 1, and `fastest` is above 1 and at most 8.
    pub(super) fn is_valid(self) -> bool {
        self.slowest > 0.0 && self.slowest < 1.0 && self.fastest > 1.0 && self.fastest <= 8.0
    }
}

/// Progress of an object on its segment, as one simulator sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionTimer {
    /// Tc: motion time on the segment.
    value: TimeDelta,
    /// Td: estimated lead over the server's timer; negative if behind.
    offset: TimeDelta,
}

impl MotionTimer {
    /// Creates a timer with the value Tc and the offset Td.
    pub const fn new(value: TimeDelta, offset: TimeDelta) -> Self {
        Self { value, offset }
    }

    /// Returns Tc, the motion time on the segment.
    pub const fn value(&self) -> TimeDelta {
        self.value
    }

    /// Returns Td, the estimated lead over the server's timer; negative if behind.
    pub const fn offset(&self) -> TimeDelta {
        self.offset
    }

    /// Advances by a frame of duration `elapsed` (Δt). Returns the motion time of the frame (t).
    pub fn advance(&mut self, elapsed: TimeDelta, rate: TimerRate) -> TimeDelta {
        let elapsed = elapsed.max(TimeDelta::ZERO);
        let epsilon = self.offset.abs().min(rate.max_correction(self.offset, elapsed));
        let correction = if self.offset.is_negative() { -epsilon } else { epsilon };
        let step = elapsed - correction; // (3)
        self.offset -= correction; // (4)
        self.value += step; // (5)
        step
    }

    /// Corrects Td once the delay to the server is measured: adds the measured `delay` (RT) minus the `expected` delay
    /// (`RT_accum`) that was assumed when the timer was set.
    pub fn correct(&mut self, delay: TimeDelta, expected: TimeDelta) {
        self.offset += delay - expected; // (6)
    }

    /// Sets Td, the estimated lead over the server's timer.
    pub fn set_offset(&mut self, offset: TimeDelta) {
        self.offset = offset;
    }
}

/// Smoothed delay to the server, `RT_accum`, from samples of RT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayEstimate {
    accumulated: Option<TimeDelta>,
}

/// Weight α of the previous estimate, in hundredths: the paper's 0.5.
const ALPHA: i64 = 50;

impl DelayEstimate {
    /// Returns `RT_accum`; zero before the first sample.
    pub fn accumulated(&self) -> TimeDelta {
        self.accumulated.unwrap_or_default()
    }

    /// Adds a sample of RT, half of a round trip.
    pub fn on_sample(&mut self, delay: TimeDelta) {
        let before = self.accumulated.unwrap_or(delay);
        self.accumulated = Some((before * ALPHA + delay * (100 - ALPHA)) / 100); // (7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: i64) -> TimeDelta {
        TimeDelta::from_millis(millis)
    }

    #[test]
    fn timer_ahead_runs_at_half_speed_until_corrected() {
        let mut timer = MotionTimer::new(TimeDelta::ZERO, millis(25));
        let steps = [millis(20); 4].map(|frame| timer.advance(frame, TimerRate::PAPER));
        assert_eq!(steps, [millis(10), millis(10), millis(15), millis(20)]);
        assert_eq!((timer.value(), timer.offset()), (millis(55), TimeDelta::ZERO));
    }

    #[test]
    fn timer_behind_runs_faster_until_corrected() {
        let mut timer = MotionTimer::new(millis(5), millis(-25));
        let steps = [millis(20); 4].map(|frame| timer.advance(frame, TimerRate::PAPER));
        assert_eq!(steps, [millis(30), millis(30), millis(25), millis(20)]);
        let mut quick = MotionTimer::new(millis(5), millis(-25));
        let steps = [millis(20); 3].map(|frame| quick.advance(frame, TimerRate::OURS));
        assert_eq!(steps, [millis(40), millis(25), millis(20)]);
        assert_eq!((timer.offset(), quick.offset()), (TimeDelta::ZERO, TimeDelta::ZERO));
    }

    #[test]
    fn timer_never_goes_back() {
        let mut timer = MotionTimer::new(millis(5), millis(3));
        assert_eq!(timer.advance(millis(-9), TimerRate::PAPER), TimeDelta::ZERO);
        assert_eq!(timer, MotionTimer::new(millis(5), millis(3)));
    }

    #[test]
    fn delay_estimate_averages_old_and_new_samples_equally() {
        let mut delay = DelayEstimate::default();
        for (sample, accumulated) in [(80, 80), (100, 90), (60, 75)] {
            delay.on_sample(millis(sample));
            assert_eq!(delay.accumulated(), millis(accumulated));
        }
        let mut timer = MotionTimer::new(TimeDelta::ZERO, millis(80));
        timer.correct(millis(90), millis(80));
        assert_eq!(timer.offset(), millis(90));
    }
}
