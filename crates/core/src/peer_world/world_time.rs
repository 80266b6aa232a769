//! The world's time: that of the lowest site that is here and knows it. Whoever follows comes nearer gradually, so that its ticks stay even.

use crate::time::{Instant, TimeDelta};

/// Further off than this nobody comes nearer gradually: the computer slept, or the world's time was not known.
const STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(250);
/// How much faster or slower time goes at the most while it is brought nearer, and for how long at a stretch.
const MAX_SLEW: f64 = 0.02;
const MAX_SLEW_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// No world gets older than this, in ticks: who says so is mistaken.
const MAX_TICK: u32 = u32::MAX / 2;

/// What we take the world's time to be.
#[derive(Debug, Default)]
pub(super) struct WorldTime {
    /// By how much it is ahead of our clock.
    offset: Option<TimeDelta>,
    steered_at: Instant,
    /// The last tick that was told: time never goes back.
    last_tick: u32,
}

impl WorldTime {
    /// A world that begins now.
    pub(super) fn start(now: Instant) -> Self {
        Self { offset: Some(Instant::ZERO - now), steered_at: now, last_tick: 0 }
    }

    pub(super) fn offset(&self) -> Option<TimeDelta> {
        self.offset
    }

    /// Comes nearer to what somebody else takes it to be. Who is far ahead of us is followed at once: we slept. Who is far behind is not
    /// followed at all: it slept.
    pub(super) fn steer(&mut self, now: Instant, target: TimeDelta) {
        let most = (now - self.steered_at).min(MAX_SLEW_INTERVAL).scale(MAX_SLEW);
        self.steered_at = now;
        self.offset = Some(match self.offset {
            Some(ahead) if Self::is_same_time(ahead, target) => ahead + (target - ahead).max(-most).min(most),
            Some(ahead) => ahead.max(target),
            None => target,
        });
    }

    /// Whether somebody is so far ahead of us that we must have slept.
    pub(super) fn is_far_behind(&self, target: TimeDelta) -> bool {
        self.offset.is_some_and(|ahead| target - ahead >= STEP_THRESHOLD)
    }

    /// Whether two who say this have the same time in mind.
    pub(super) fn is_same_time(one: TimeDelta, other: TimeDelta) -> bool {
        (one - other).abs() < STEP_THRESHOLD
    }

    /// Whether a world can have this time.
    pub(super) fn is_plausible(now: Instant, ahead: TimeDelta, tick: TimeDelta) -> bool {
        let since_begin = now + ahead - Instant::ZERO;
        !since_begin.is_negative() && since_begin.as_nanos() / tick.as_nanos() < i64::from(MAX_TICK)
    }

    /// The time since the world began.
    fn elapsed(&self, now: Instant) -> Option<TimeDelta> {
        self.offset.map(|ahead| now + ahead - Instant::ZERO)
    }

    /// The tick that it is now, if that is known. It never becomes less.
    pub(super) fn tick(&mut self, now: Instant, tick: TimeDelta) -> Option<u32> {
        let number = self.elapsed(now)?.as_nanos().div_euclid(tick.as_nanos());
        self.last_tick = self.last_tick.max(u32::try_from(number.clamp(0, MAX_TICK.into())).unwrap_or(MAX_TICK));
        Some(self.last_tick)
    }

    /// Our time when a tick begins.
    pub(super) fn tick_start(&self, number: u32, tick: TimeDelta) -> Option<Instant> {
        self.offset.map(|ahead| Instant::ZERO + tick * i64::from(number) - ahead)
    }
}

/// The tick nearest to `about` that ends in these 16 bits.
pub(super) fn expand_tick(about: u32, low: u16) -> Option<u32> {
    let away = low.wrapping_sub(about as u16) as i16;
    about.checked_add_signed(away.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: TimeDelta = TimeDelta::from_millis(10);

    fn at_millis(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn follower_slews_to_the_target_without_a_jump() {
        let mut time = WorldTime::start(at_millis(1_000));
        assert_eq!(time.tick(at_millis(1_055), TICK), Some(5));
        let target = TimeDelta::from_millis(-990);
        for now in 1_001..3_000 {
            let before = time.offset().unwrap();
            time.steer(at_millis(now), target);
            assert!((time.offset().unwrap() - before).abs() <= TimeDelta::from_micros(20));
        }
        assert_eq!(time.offset(), Some(target));
    }

    #[test]
    fn far_behind_site_steps_forward_and_ticks_never_decrease() {
        let mut time = WorldTime::start(at_millis(0));
        assert_eq!(time.tick(at_millis(5_000), TICK), Some(500));
        time.steer(at_millis(5_000), TimeDelta::from_millis(-3_600_000));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(501), "who slept for an hour holds up nobody");
        assert!(time.is_far_behind(TimeDelta::from_millis(1_000)));
        time.steer(at_millis(5_010), TimeDelta::from_millis(1_000));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(601));
        time.steer(at_millis(5_010), TimeDelta::from_millis(900));
        assert_eq!(time.tick(at_millis(5_010), TICK), Some(601));
        assert_eq!(time.tick_start(602, TICK), Some(at_millis(5_020)));
    }

    #[test]
    fn implausible_world_time_is_rejected() {
        for ahead in [TimeDelta::MAX, -TimeDelta::MAX, TimeDelta::from_millis(-5_001)] {
            assert!(!WorldTime::is_plausible(at_millis(5_000), ahead, TICK), "{ahead:?}");
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
