//! A time that several sites share without a master clock: each site keeps an offset from its own clock and steers it
//! towards the offset that a peer's time has.
//!
//! Guarantees:
//! - A small difference is slewed, by at most 2 % of the time that passes, so that intervals stay even.
//! - A site that is far behind, because it was suspended or two groups met, steps forward at once.
//! - The time never steps back: a peer that is far behind is not followed.

use crate::time::{Instant, TimeDelta};

/// Difference between two sites' times from which on the one behind steps instead of slewing. Times that differ by less
/// count as the same.
pub(crate) const STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(250);
/// Maximum slew, as a fraction of the time since the last call of [`SteeredTime::steer`].
const MAX_SLEW: f64 = 0.02;
/// Maximum time since the last call of [`SteeredTime::steer`] that a slew accounts for.
const MAX_SLEW_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// One site's estimate of the shared time.
#[derive(Debug, Default)]
pub(crate) struct SteeredTime {
    /// Offset of the shared time from the local clock, positive if the shared time is ahead. `None` while it is
    /// unknown.
    offset: Option<TimeDelta>,
    steered_at: Instant,
}

impl SteeredTime {
    /// Starts a new time that is 0 at `now`.
    pub(crate) fn start(now: Instant) -> Self {
        Self { offset: Some(Instant::ZERO - now), steered_at: now }
    }

    /// Returns the offset from the local clock; `None` while the shared time is unknown.
    pub(crate) fn offset(&self) -> Option<TimeDelta> {
        self.offset
    }

    /// Steers towards a peer's time, whose offset is `target`: slews if both count as the same, steps to the peer's
    /// time if that is far ahead or no time is known, and ignores it if it is far behind.
    pub(crate) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let elapsed = (now - self.steered_at).max(TimeDelta::ZERO);
        let max_slew = elapsed.min(MAX_SLEW_INTERVAL).scale(MAX_SLEW);
        self.steered_at = now;
        self.offset = Some(match self.offset {
            Some(offset) if is_same_time(offset, target) => offset + (target - offset).max(-max_slew).min(max_slew),
            Some(offset) => offset.max(target),
            None => target,
        });
    }
}

/// Returns whether two offsets differ by less than [`STEP_THRESHOLD`], so that they stand for the same time.
pub(crate) fn is_same_time(one: TimeDelta, other: TimeDelta) -> bool {
    (one - other).abs() < STEP_THRESHOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_millis(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn a_near_time_is_reached_without_a_jump() {
        let mut time = SteeredTime::start(at_millis(1_000));
        let target = TimeDelta::from_millis(-990);
        for now in 1_001..3_000 {
            let before = time.offset().unwrap();
            time.steer(at_millis(now), target);
            assert!((time.offset().unwrap() - before).abs() <= TimeDelta::from_micros(20));
        }
        assert_eq!(time.offset(), Some(target));
    }

    #[test]
    fn a_far_time_is_followed_forward_only() {
        let mut time = SteeredTime::start(at_millis(1_000));
        let started = time.offset();
        time.steer(at_millis(20_000), TimeDelta::from_secs(-5));
        assert_eq!(time.offset(), started, "a suspended peer must not set the time back");
        time.steer(at_millis(20_000), TimeDelta::ZERO);
        assert_eq!(time.offset(), Some(TimeDelta::ZERO));
    }

    #[test]
    fn a_clock_that_goes_back_does_not_reverse_the_slew() {
        let mut time = SteeredTime::start(at_millis(1_000));
        let started = time.offset().unwrap();
        time.steer(at_millis(500), TimeDelta::from_millis(-990));
        assert_eq!(time.offset(), Some(started));
    }

    #[test]
    fn an_unknown_time_is_adopted() {
        let mut time = SteeredTime::default();
        assert_eq!(time.offset(), None);
        time.steer(at_millis(5), TimeDelta::from_secs(9));
        assert_eq!(time.offset(), Some(TimeDelta::from_secs(9)));
    }
}
