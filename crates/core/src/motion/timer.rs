//! Motion timers, and the delay that they make up for: equations 3 to 7 of the paper.

use crate::time::TimeDelta;

/// How much slower and faster than time a timer may run while it is off. It never stands still and never goes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimerRate {
    /// When it is ahead.
    pub slowest: f64,
    /// When it is behind.
    pub fastest: f64,
}

impl TimerRate {
    /// The paper's: ε = min(|Td|, Δt/2) either way.
    pub const PAPER: Self = Self { slowest: 0.5, fastest: 1.5 };
    /// As slow, but up to twice as fast.
    pub const OURS: Self = Self { slowest: 0.5, fastest: 2.0 };

    /// By how much of so long a time a timer that is off can come nearer.
    fn max_correction(self, off: TimeDelta, by: TimeDelta) -> TimeDelta {
        by.scale(if off.is_negative() { self.fastest - 1.0 } else { 1.0 - self.slowest })
    }

    /// Whether there can be such a pace.
    pub(super) fn is_valid(self) -> bool {
        self.slowest > 0.0 && self.slowest < 1.0 && self.fastest > 1.0 && self.fastest <= 8.0
    }
}

/// How long an object has been on its leg, as one simulator sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionTimer {
    /// Tc.
    value: TimeDelta,
    /// Td: by how much it is taken to be ahead of the server's.
    offset: TimeDelta,
}

impl MotionTimer {
    /// One that is at so much, and so much ahead.
    pub const fn new(value: TimeDelta, off: TimeDelta) -> Self {
        Self { value, offset: off }
    }

    /// Tc.
    pub const fn value(&self) -> TimeDelta {
        self.value
    }

    /// Td.
    pub const fn offset(&self) -> TimeDelta {
        self.offset
    }

    /// A frame that takes so long (Δt). Says for how long the object moves in it (t).
    pub fn advance(&mut self, by: TimeDelta, pace: TimerRate) -> TimeDelta {
        let by = by.max(TimeDelta::ZERO);
        let epsilon = self.offset.abs().min(pace.max_correction(self.offset, by));
        let signed = if self.offset.is_negative() { -epsilon } else { epsilon };
        let step = by - signed; // (3)
        self.offset -= signed; // (4)
        self.value += step; // (5)
        step
    }

    /// The way to the server took so long (RT), and was taken to be so long (`RT_accum`) when the timer was set: by the difference it is
    /// further ahead than was known.
    pub fn correct(&mut self, delay: TimeDelta, expected: TimeDelta) {
        self.offset += delay - expected; // (6)
    }

    /// It is so far ahead.
    pub fn set_offset(&mut self, off: TimeDelta) {
        self.offset = off;
    }
}

/// The delay to the server as it was of late: RT and `RT_accum`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayEstimate {
    accumulated: Option<TimeDelta>,
}

/// The weight of what was before, α, in hundredths: the paper's 0.5.
const ALPHA: i64 = 50;

impl DelayEstimate {
    /// `RT_accum`; nothing as long as nothing was measured.
    pub fn accumulated(&self) -> TimeDelta {
        self.accumulated.unwrap_or_default()
    }

    /// Takes in half a round trip, RT.
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
