//! The world time, which numbers the ticks. A site follows the world time of the peer with the lowest id below its own,
//! among those whose world time differs by less than 250 ms. It slews towards that time instead of stepping, so that
//! its ticks stay even. It steps only if it knows no world time, or if at least half of the reported ones are 250 ms or
//! more ahead.

use crate::clock::{STEP_THRESHOLD, SteeredTime};
use crate::time::{Instant, TimeDelta};

/// Maximum tick. A reported world time that has reached it is implausible.
const MAX_TICK: u32 = u32::MAX / 2;

/// This site's estimate of the world time, steered towards that of its peers.
#[derive(Debug, Default)]
pub(super) struct WorldTime {
    time: SteeredTime,
    /// Last returned tick: ticks never decrease.
    last_tick: u32,
}

impl WorldTime {
    /// Starts a new world time that is 0 at `now`.
    pub(super) fn start(now: Instant) -> Self {
        Self { time: SteeredTime::start(now), last_tick: 0 }
    }

    /// Returns the offset of the world time from the local clock; `None` while the world time is unknown.
    pub(super) fn offset(&self) -> Option<TimeDelta> {
        self.time.offset()
    }

    /// Steers towards the world time of another site, given as an offset from the local clock.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        self.time.steer(now, target);
    }

    /// Returns whether the offset `target` of a peer's world time is at least [`STEP_THRESHOLD`] above this site's:
    /// this site must have been suspended.
    pub(super) fn is_far_behind(&self, target: TimeDelta) -> bool {
        self.offset().is_some_and(|offset| target - offset >= STEP_THRESHOLD)
    }

    /// Returns whether the world time with this offset from the local clock is at `now` not negative and below
    /// [`MAX_TICK`] ticks.
    pub(super) fn is_plausible(now: Instant, offset: TimeDelta, tick_duration: TimeDelta) -> bool {
        let elapsed = now + offset - Instant::ZERO;
        !elapsed.is_negative() && elapsed.as_nanos() / tick_duration.as_nanos() < i64::from(MAX_TICK)
    }

    /// Returns the time since the world began. `None` while the world time is unknown.
    fn elapsed(&self, now: Instant) -> Option<TimeDelta> {
        self.offset().map(|offset| now + offset - Instant::ZERO)
    }

    /// Returns the current tick, which never decreases. `None` while the world time is unknown.
    pub(super) fn tick(&mut self, now: Instant, tick_duration: TimeDelta) -> Option<u32> {
        let number = self.elapsed(now)?.as_nanos().div_euclid(tick_duration.as_nanos());
        self.last_tick = self.last_tick.max(u32::try_from(number.clamp(0, MAX_TICK.into())).unwrap_or(MAX_TICK));
        Some(self.last_tick)
    }

    /// Returns the local time at which tick `number` begins. `None` while the world time is unknown.
    pub(super) fn tick_start(&self, number: u32, tick_duration: TimeDelta) -> Option<Instant> {
        self.offset().map(|offset| Instant::ZERO + tick_duration * i64::from(number) - offset)
    }
}

/// Returns the tick nearest to `about` with these low 16 bits. `None` if it would be negative.
pub(super) fn expand_tick(about: u32, low: u16) -> Option<u32> {
    let distance = low.wrapping_sub(about as u16) as i16;
    about.checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: TimeDelta = TimeDelta::from_millis(10);

    fn at_millis(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn far_behind_site_steps_forward_and_ticks_never_decrease() {
        let mut time = WorldTime::start(at_millis(0));
        assert_eq!(time.tick(at_millis(5_000), TICK), Some(500));
        time.steer(at_millis(5_000), TimeDelta::from_millis(-3_600_000));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(501), "a suspended site must not slow down the others");
        assert!(time.is_far_behind(TimeDelta::from_millis(1_000)));
        time.steer(at_millis(5_010), TimeDelta::from_millis(1_000));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(601));
        time.steer(at_millis(5_010), TimeDelta::from_millis(900));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(601));
        assert_eq!(time.tick_start(602, TICK), Some(at_millis(5_020)));
    }

    #[test]
    fn implausible_world_time_is_rejected() {
        for offset in [TimeDelta::MAX, -TimeDelta::MAX, TimeDelta::from_millis(-5_001)] {
            assert!(!WorldTime::is_plausible(at_millis(5_000), offset, TICK), "{offset:?}");
        }
        assert!(WorldTime::is_plausible(at_millis(5_000), TimeDelta::from_secs(86_400 * 30), TICK));
        let mut time = WorldTime::start(at_millis(0));
        time.steer(at_millis(1), TimeDelta::MAX);
        assert_eq!(time.tick(at_millis(1), TICK), Some(MAX_TICK));
    }

    #[test]
    fn short_tick_expands_to_the_nearest_tick() {
        assert_eq!(expand_tick(70_000, 70_003u32 as u16), Some(70_003));
        assert_eq!(expand_tick(65_540, 65_530u32 as u16), Some(65_530));
        assert_eq!(expand_tick(65_530, 65_540u32 as u16), Some(65_540));
        assert_eq!(expand_tick(3, 65_535), None, "before the world began");
    }
}
