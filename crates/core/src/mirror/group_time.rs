//! The group time that all mirrors share. The mirrors follow the present mirror with the lowest source id that knows
//! the group time, unless that mirror is far behind the others.

use crate::clock::{STEP_THRESHOLD, SteeredTime};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// This mirror's estimate of the group time, which is steered towards the estimates of its peers.
#[derive(Debug, Default)]
pub(super) struct GroupTime {
    time: SteeredTime,
}

impl GroupTime {
    /// Starts a new group time that is 0 at `now`.
    pub(super) fn start(now: Instant) -> Self {
        Self { time: SteeredTime::start(now) }
    }

    /// Returns the offset of the group time from the local clock, positive if the group time is ahead. `None` while the
    /// group time is unknown.
    pub(super) fn offset(&self) -> Option<TimeDelta> {
        self.time.offset()
    }

    /// Steers towards a peer's group time, whose offset is `target`.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        self.time.steer(now, target);
    }

    pub(super) fn to_group(&self, now: Instant) -> Option<GroupInstant> {
        self.offset().map(|offset| GroupInstant::from_nanos((now + offset).as_nanos()))
    }

    /// Converts a group time to the local clock. `None` while the group time is unknown.
    pub(super) fn to_local(&self, at: GroupInstant) -> Option<Instant> {
        self.offset().map(|offset| Instant::from_nanos(at.as_nanos()) - offset)
    }

    /// Returns whether this mirror is at least [`STEP_THRESHOLD`] behind a peer's group time, whose offset is `target`,
    /// or has no group time. This mirror then follows the peer even if the peer's source id is higher.
    pub(super) fn is_far_behind(&self, target: TimeDelta) -> bool {
        self.offset().is_none_or(|offset| target - offset >= STEP_THRESHOLD)
    }

    /// Returns whether this mirror is at least [`STEP_THRESHOLD`] ahead of a peer's group time, whose offset is
    /// `target`. The peer then has to follow.
    pub(super) fn is_far_ahead(&self, target: TimeDelta) -> bool {
        self.offset().is_some_and(|offset| offset - target >= STEP_THRESHOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_millis(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn group_time_converts_both_ways_and_knows_who_follows() {
        let time = GroupTime::start(at_millis(1_000));
        assert_eq!(time.to_group(at_millis(1_005)), Some(GroupInstant::from_nanos(5_000_000)));
        assert_eq!(time.to_local(GroupInstant::from_nanos(5_000_000)), Some(at_millis(1_005)));
        assert!(time.is_far_behind(TimeDelta::ZERO) && time.is_far_ahead(TimeDelta::from_secs(-5)));
        let unknown = GroupTime::default();
        assert!(unknown.is_far_behind(TimeDelta::ZERO) && !unknown.is_far_ahead(TimeDelta::ZERO));
    }
}
