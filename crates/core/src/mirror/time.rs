//! The time that all mirrors share: that of the lowest source that is here and knows it.

use crate::time::{GroupInstant, Instant, TimeDelta};

/// Further off than this nobody comes nearer gradually: two groups met, or a computer slept.
const STEP: TimeDelta = TimeDelta::from_millis(250);
/// How much faster or slower time goes at the most while it is brought nearer, and for how long at a stretch.
const SLEW: f64 = 0.02;
const STRETCH: TimeDelta = TimeDelta::from_millis(100);

/// What we take the group's time to be.
#[derive(Debug, Default)]
pub(super) struct GroupTime {
    ahead: Option<TimeDelta>,
    steered: Instant,
}

impl GroupTime {
    /// A time that begins now.
    pub(super) fn begin(now: Instant) -> Self {
        Self { ahead: Some(Instant::ZERO - now), steered: now }
    }

    /// By how much it is ahead of our clock.
    pub(super) fn ahead(&self) -> Option<TimeDelta> {
        self.ahead
    }

    pub(super) fn at(&self, now: Instant) -> Option<GroupInstant> {
        self.ahead.map(|ahead| GroupInstant::from_nanos((now + ahead).as_nanos()))
    }

    /// Our time at a time of the group.
    pub(super) fn local(&self, at: GroupInstant) -> Option<Instant> {
        self.ahead.map(|ahead| Instant::from_nanos(at.as_nanos()) - ahead)
    }

    /// Whether somebody whose time is this is to be followed, though it be higher than us.
    pub(super) fn is_left_behind(&self, target: TimeDelta) -> bool {
        self.ahead.is_none_or(|ahead| target - ahead >= STEP)
    }

    /// Whether somebody whose time is this is so far behind that it must follow us.
    pub(super) fn is_far_ahead(&self, target: TimeDelta) -> bool {
        self.ahead.is_some_and(|ahead| ahead - target >= STEP)
    }

    /// Comes nearer to what somebody else takes it to be; at once if that is far ahead.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let most = (now - self.steered).min(STRETCH).max(TimeDelta::ZERO).scale(SLEW);
        self.steered = now;
        self.ahead = Some(match self.ahead {
            Some(ahead) if (target - ahead).abs() < STEP => ahead + (target - ahead).max(-most).min(most),
            Some(ahead) => ahead.max(target),
            None => target,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn who_is_near_comes_nearer_and_who_is_behind_jumps() {
        let mut time = GroupTime::begin(at(1_000));
        assert_eq!(time.at(at(1_005)), Some(GroupInstant::from_nanos(5_000_000)));
        assert_eq!(time.local(GroupInstant::from_nanos(5_000_000)), Some(at(1_005)));
        let near = TimeDelta::from_millis(-990);
        time.steer(at(1_100), near);
        assert_eq!(time.ahead(), Some(TimeDelta::from_millis(-998)));
        (0..100).for_each(|step| time.steer(at(1_100 + 100 * step), near));
        assert_eq!(time.ahead(), Some(near));
        assert!(time.is_left_behind(TimeDelta::ZERO) && time.is_far_ahead(TimeDelta::from_secs(-5)));
        time.steer(at(20_000), TimeDelta::from_secs(-5));
        assert_eq!(time.ahead(), Some(near), "time does not go back for who slept");
        time.steer(at(20_000), TimeDelta::ZERO);
        assert_eq!(time.ahead(), Some(TimeDelta::ZERO));
    }
}
