//! The time that all mirrors share: that of the lowest source that is here and knows it.

use crate::time::{GroupInstant, Instant, TimeDelta};

/// Further off than this nobody comes nearer gradually: two groups met, or a computer slept.
const STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(250);
/// How much faster or slower time goes at the most while it is brought nearer, and for how long at a stretch.
const MAX_SLEW: f64 = 0.02;
const MAX_SLEW_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// What we take the group's time to be.
#[derive(Debug, Default)]
pub(super) struct GroupTime {
    offset: Option<TimeDelta>,
    steered_at: Instant,
}

impl GroupTime {
    /// A time that begins now.
    pub(super) fn start(now: Instant) -> Self {
        Self { offset: Some(Instant::ZERO - now), steered_at: now }
    }

    /// By how much it is ahead of our clock.
    pub(super) fn offset(&self) -> Option<TimeDelta> {
        self.offset
    }

    pub(super) fn to_group(&self, now: Instant) -> Option<GroupInstant> {
        self.offset.map(|ahead| GroupInstant::from_nanos((now + ahead).as_nanos()))
    }

    /// Our time at a time of the group.
    pub(super) fn to_local(&self, at: GroupInstant) -> Option<Instant> {
        self.offset.map(|ahead| Instant::from_nanos(at.as_nanos()) - ahead)
    }

    /// Whether somebody whose time is this is to be followed, though it be higher than us.
    pub(super) fn is_far_behind(&self, target: TimeDelta) -> bool {
        self.offset.is_none_or(|ahead| target - ahead >= STEP_THRESHOLD)
    }

    /// Whether somebody whose time is this is so far behind that it must follow us.
    pub(super) fn is_far_ahead(&self, target: TimeDelta) -> bool {
        self.offset.is_some_and(|ahead| ahead - target >= STEP_THRESHOLD)
    }

    /// Comes nearer to what somebody else takes it to be; at once if that is far ahead.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let most = (now - self.steered_at).min(MAX_SLEW_INTERVAL).max(TimeDelta::ZERO).scale(MAX_SLEW);
        self.steered_at = now;
        self.offset = Some(match self.offset {
            Some(ahead) if (target - ahead).abs() < STEP_THRESHOLD => ahead + (target - ahead).max(-most).min(most),
            Some(ahead) => ahead.max(target),
            None => target,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_millis(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn group_time_slews_when_near_and_steps_when_behind() {
        let mut time = GroupTime::start(at_millis(1_000));
        assert_eq!(time.to_group(at_millis(1_005)), Some(GroupInstant::from_nanos(5_000_000)));
        assert_eq!(time.to_local(GroupInstant::from_nanos(5_000_000)), Some(at_millis(1_005)));
        let near = TimeDelta::from_millis(-990);
        time.steer(at_millis(1_100), near);
        assert_eq!(time.offset(), Some(TimeDelta::from_millis(-998)));
        (0..100).for_each(|step| time.steer(at_millis(1_100 + 100 * step), near));
        assert_eq!(time.offset(), Some(near));
        assert!(time.is_far_behind(TimeDelta::ZERO) && time.is_far_ahead(TimeDelta::from_secs(-5)));
        time.steer(at_millis(20_000), TimeDelta::from_secs(-5));
        assert_eq!(time.offset(), Some(near), "time does not go back for who slept");
        time.steer(at_millis(20_000), TimeDelta::ZERO);
        assert_eq!(time.offset(), Some(TimeDelta::ZERO));
    }
}
