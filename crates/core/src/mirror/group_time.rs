//! The group time that all mirrors share. The mirrors follow the present mirror with the lowest source id that knows
//! the group time, unless that mirror is far behind the others.

use crate::time::{GroupInstant, Instant, TimeDelta};

/// Difference between two mirrors' group times from which on the one behind steps instead of slewing. Differences
/// become that large when two groups meet or a server was suspended.
const STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(250);
/// Maximum slew, as a fraction of the elapsed time.
const MAX_SLEW: f64 = 0.02;
/// Maximum elapsed time that one slew accounts for.
const MAX_SLEW_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// This mirror's estimate of the group time, which is steered towards the estimates of its peers.
#[derive(Debug, Default)]
pub(super) struct GroupTime {
    offset: Option<TimeDelta>,
    steered_at: Instant,
}

impl GroupTime {
    /// Starts a new group time that is 0 at `now`.
    pub(super) fn start(now: Instant) -> Self {
        Self { offset: Some(Instant::ZERO - now), steered_at: now }
    }

    /// Returns the offset of the group time from the local clock, positive if the group time is ahead. `None` while the
    /// group time is unknown.
    pub(super) fn offset(&self) -> Option<TimeDelta> {
        self.offset
    }

    pub(super) fn to_group(&self, now: Instant) -> Option<GroupInstant> {
        self.offset.map(|offset| GroupInstant::from_nanos((now + offset).as_nanos()))
    }

    /// Converts a group time to the local clock. `None` while the group time is unknown.
    pub(super) fn to_local(&self, at: GroupInstant) -> Option<Instant> {
        self.offset.map(|offset| Instant::from_nanos(at.as_nanos()) - offset)
    }

    /// Returns whether this mirror is at least [`STEP_THRESHOLD`] behind a peer's group time, whose offset is `target`,
    /// or has no group time. This mirror then follows the peer even if the peer's source id is higher.
    pub(super) fn is_far_behind(&self, target: TimeDelta) -> bool {
        self.offset.is_none_or(|offset| target - offset >= STEP_THRESHOLD)
    }

    /// Returns whether this mirror is at least [`STEP_THRESHOLD`] ahead of a peer's group time, whose offset is
    /// `target`. The peer then has to follow.
    pub(super) fn is_far_ahead(&self, target: TimeDelta) -> bool {
        self.offset.is_some_and(|offset| offset - target >= STEP_THRESHOLD)
    }

    /// Slews towards a peer's group time, whose offset is `target`. Steps to `target` if it is far ahead or no group
    /// time is known, and ignores it if it is far behind.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let max_slew = (now - self.steered_at).min(MAX_SLEW_INTERVAL).max(TimeDelta::ZERO).scale(MAX_SLEW);
        self.steered_at = now;
        self.offset = Some(match self.offset {
            Some(offset) if (target - offset).abs() < STEP_THRESHOLD => {
                offset + (target - offset).max(-max_slew).min(max_slew)
            }
            Some(offset) => offset.max(target),
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
        assert_eq!(time.offset(), Some(near), "group time must not go back for a suspended mirror");
        time.steer(at_millis(20_000), TimeDelta::ZERO);
        assert_eq!(time.offset(), Some(TimeDelta::ZERO));
    }
}
