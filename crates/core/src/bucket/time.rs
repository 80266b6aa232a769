//! The world's time: that of the lowest site that is here and knows it. Whoever follows comes nearer gradually, so that its ticks stay even.

use crate::time::{Instant, TimeDelta};

/// Further off than this nobody comes nearer gradually: the computer slept, or the world's time was not known.
const STEP: TimeDelta = TimeDelta::from_millis(250);
/// How much faster or slower time goes at the most while it is brought nearer, and for how long at a stretch.
const SLEW: f64 = 0.02;
const STRETCH: TimeDelta = TimeDelta::from_millis(100);
/// No world gets older than this, in ticks: who says so is mistaken.
const OLDEST: u32 = u32::MAX / 2;

/// What we take the world's time to be.
#[derive(Debug, Default)]
pub(super) struct WorldTime {
    /// By how much it is ahead of our clock.
    ahead: Option<TimeDelta>,
    steered: Instant,
    /// The last tick that was told: time never goes back.
    last: u32,
}

impl WorldTime {
    /// A world that begins now.
    pub(super) fn begin(now: Instant) -> Self {
        Self { ahead: Some(Instant::ZERO - now), steered: now, last: 0 }
    }

    pub(super) fn ahead(&self) -> Option<TimeDelta> {
        self.ahead
    }

    /// Comes nearer to what somebody else takes it to be. Who is far ahead of us is followed at once: we slept. Who is far behind is not
    /// followed at all: it slept.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let most = (now - self.steered).min(STRETCH).scale(SLEW);
        self.steered = now;
        self.ahead = Some(match self.ahead {
            Some(ahead) if Self::is_same(ahead, target) => ahead + (target - ahead).max(-most).min(most),
            Some(ahead) => ahead.max(target),
            None => target,
        });
    }

    /// Whether somebody is so far ahead of us that we must have slept.
    pub(super) fn is_left_behind(&self, target: TimeDelta) -> bool {
        self.ahead.is_some_and(|ahead| target - ahead >= STEP)
    }

    /// Whether two who say this have the same time in mind.
    pub(super) fn is_same(one: TimeDelta, other: TimeDelta) -> bool {
        (one - other).abs() < STEP
    }

    /// Whether a world can have this time.
    pub(super) fn is_sane(now: Instant, ahead: TimeDelta, tick: TimeDelta) -> bool {
        let since_begin = now + ahead - Instant::ZERO;
        !since_begin.is_negative() && since_begin.as_nanos() / tick.as_nanos() < i64::from(OLDEST)
    }

    /// The time since the world began.
    fn since_begin(&self, now: Instant) -> Option<TimeDelta> {
        self.ahead.map(|ahead| now + ahead - Instant::ZERO)
    }

    /// The tick that it is now, if that is known. It never becomes less.
    pub(super) fn tick(&mut self, now: Instant, tick: TimeDelta) -> Option<u32> {
        let number = self.since_begin(now)?.as_nanos().div_euclid(tick.as_nanos());
        self.last = self.last.max(u32::try_from(number.clamp(0, OLDEST.into())).unwrap_or(OLDEST));
        Some(self.last)
    }

    /// Our time when a tick begins.
    pub(super) fn begin_of(&self, number: u32, tick: TimeDelta) -> Option<Instant> {
        self.ahead.map(|ahead| Instant::ZERO + tick * i64::from(number) - ahead)
    }
}

/// The tick nearest to `about` that ends in these 16 bits.
pub(super) fn nearest(about: u32, low: u16) -> Option<u32> {
    let away = low.wrapping_sub(about as u16) as i16;
    about.checked_add_signed(away.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: TimeDelta = TimeDelta::from_millis(10);

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn a_follower_comes_nearer_without_a_jump() {
        let mut time = WorldTime::begin(at(1_000));
        assert_eq!(time.tick(at(1_055), TICK), Some(5));
        let target = TimeDelta::from_millis(-990);
        for now in 1_001..3_000 {
            let before = time.ahead().unwrap();
            time.steer(at(now), target);
            assert!((time.ahead().unwrap() - before).abs() <= TimeDelta::from_micros(20));
        }
        assert_eq!(time.ahead(), Some(target));
    }

    #[test]
    fn who_is_far_off_jumps_and_ticks_never_go_back() {
        let mut time = WorldTime::begin(at(0));
        assert_eq!(time.tick(at(5_000), TICK), Some(500));
        time.steer(at(5_000), TimeDelta::from_millis(-3_600_000));
        assert_eq!(time.tick(at(5_010), TICK), Some(501), "who slept for an hour holds up nobody");
        assert!(time.is_left_behind(TimeDelta::from_millis(1_000)));
        time.steer(at(5_010), TimeDelta::from_millis(1_000));
        assert_eq!(time.tick(at(5_010), TICK), Some(601));
        time.steer(at(5_010), TimeDelta::from_millis(900));
        assert_eq!(time.tick(at(5_010), TICK), Some(601));
        assert_eq!(time.begin_of(602, TICK), Some(at(5_020)));
    }

    #[test]
    fn a_time_that_cannot_be_is_known_as_such() {
        for ahead in [TimeDelta::MAX, -TimeDelta::MAX, TimeDelta::from_millis(-5_001)] {
            assert!(!WorldTime::is_sane(at(5_000), ahead, TICK), "{ahead:?}");
        }
        assert!(WorldTime::is_sane(at(5_000), TimeDelta::from_secs(86_400 * 30), TICK));
        let mut time = WorldTime::begin(at(0));
        time.steer(at(1), TimeDelta::MAX);
        assert_eq!(time.tick(at(1), TICK), Some(OLDEST));
    }

    #[test]
    fn a_short_tick_means_the_nearest() {
        assert_eq!(nearest(70_000, 70_003u32 as u16), Some(70_003));
        assert_eq!(nearest(65_540, 65_530u32 as u16), Some(65_530));
        assert_eq!(nearest(65_530, 65_540u32 as u16), Some(65_540));
        assert_eq!(nearest(3, 65_535), None, "before the world began");
    }
}
