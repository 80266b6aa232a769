//! A node's own clock and its deviation from the true time of the simulation.
//!
//! The conversions between true and local time are integer arithmetic on a fixed-point rate. Local time therefore never
//! runs backwards, and the conversion of a local deadline to true time gives exactly the first nanosecond at which the
//! deadline is reached.

use coplay::time::{Instant, TimeDelta};
use coplay_links::random::Random;

/// Clock of one simulated computer. It deviates from true time by an initial offset and a constant skew.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeClock {
    /// Time that the clock shows at true time zero.
    pub offset: TimeDelta,
    /// Rate error in parts per million: a negative skew makes the clock too slow. Crystals are within ±100 ppm.
    pub skew_ppm: f64,
}

/// Number of fraction bits of the fixed-point clock rate. With 60 bits, 2⁶³ ns times a rate of 2 still fits 128 bits.
const RATE_BITS: u32 = 60;
/// Fixed-point rate of a clock without skew.
const RATE_ONE: i128 = 1 << RATE_BITS;
/// Largest absolute skew in ppm: a clock runs at half to one and a half times the right speed.
const SKEW_PPM_MAX: f64 = 500_000.0;

impl NodeClock {
    /// A clock that shows the true time.
    pub const TRUE: Self = Self { offset: TimeDelta::ZERO, skew_ppm: 0.0 };

    /// Draws a clock that is up to 28 h off and, in 60 % of the draws, runs up to 100 ppm too fast or too slow.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let skew_ppm = if random.chance(0.6) { random.range(-100..=100) as f64 } else { 0.0 };
        Self { offset: TimeDelta::from_millis(random.range(-100_000_000..=100_000_000)), skew_ppm }
    }

    /// Converts true time to the time that the clock shows. [`Instant::FAR_FUTURE`] stays [`Instant::FAR_FUTURE`].
    pub fn local(&self, true_time: Instant) -> Instant {
        if true_time == Instant::FAR_FUTURE {
            return Instant::FAR_FUTURE;
        }
        let elapsed = (i128::from(true_time.as_nanos()) * self.rate()) >> RATE_BITS;
        saturating_instant(elapsed + i128::from(self.offset.as_nanos()))
    }

    /// Returns the first true time at which the clock shows `local` or later. A node woken at that time finds its
    /// deadline reached, and overrun by less than two nanoseconds. [`Instant::FAR_FUTURE`] stays
    /// [`Instant::FAR_FUTURE`].
    pub fn true_time(&self, local: Instant) -> Instant {
        if local == Instant::FAR_FUTURE {
            return Instant::FAR_FUTURE;
        }
        let elapsed = i128::from(local.as_nanos()) - i128::from(self.offset.as_nanos());
        saturating_instant(div_ceil(elapsed << RATE_BITS, self.rate()))
    }

    /// Returns the local nanoseconds per true nanosecond, in units of 2⁻⁶⁰.
    fn rate(&self) -> i128 {
        let skew = self.skew_ppm.clamp(-SKEW_PPM_MAX, SKEW_PPM_MAX) * 1e-6;
        RATE_ONE + i128::from((skew * RATE_ONE as f64) as i64)
    }
}

fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

fn saturating_instant(nanos: i128) -> Instant {
    Instant::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn at(nanos: i64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn random_clock(random: &mut Random) -> NodeClock {
        let offset = TimeDelta::from_nanos(random.range(-HOUR..=HOUR));
        let skew_ppm = *random.pick(&[0.0, 0.001, -0.001, 10.0, -10.0, 123.456, -99.9, 50_000.0, -50_000.0]);
        NodeClock { offset, skew_ppm }
    }

    /// Returns a random instant of any magnitude, before or after the origin, up to the ends of the `i64` range.
    fn random_instant(random: &mut Random) -> Instant {
        at(random.bits() as i64 >> random.below(64))
    }

    #[test]
    fn clock_without_offset_and_skew_shows_true_time() {
        for nanos in [i64::MIN, -1, 0, 1, HOUR, i64::MAX] {
            assert_eq!(NodeClock::TRUE.local(at(nanos)), at(nanos));
            assert_eq!(NodeClock::TRUE.true_time(at(nanos)), at(nanos));
        }
    }

    #[test]
    fn skew_is_parts_per_million() {
        let fast = NodeClock { offset: TimeDelta::from_secs(5), skew_ppm: 100.0 };
        let gained = fast.local(at(HOUR)) - at(HOUR) - fast.offset;
        assert!((gained - TimeDelta::from_millis(360)).abs() <= TimeDelta::from_nanos(1), "{gained:?}");

        let slow = NodeClock { skew_ppm: -100.0, ..NodeClock::TRUE };
        let lost = at(HOUR) - slow.local(at(HOUR));
        assert!((lost - TimeDelta::from_millis(360)).abs() <= TimeDelta::from_nanos(1), "{lost:?}");
    }

    #[test]
    fn true_time_of_a_deadline_overshoots_by_less_than_two_nanoseconds() {
        let mut random = Random::new(1);
        for _ in 0..100_000 {
            let (clock, deadline) = (random_clock(&mut random), random_instant(&mut random));
            let woken = clock.true_time(deadline);
            let shown = clock.local(woken);
            assert!(shown >= deadline, "{clock:?} {deadline:?}");
            if woken > at(i64::MIN) && woken < Instant::FAR_FUTURE {
                assert!(shown - deadline < TimeDelta::from_nanos(2), "{clock:?} {deadline:?}");
                let before = clock.local(woken - TimeDelta::from_nanos(1));
                assert!(before < deadline, "{clock:?} {deadline:?}: woken later than needed");
            }
        }
    }

    #[test]
    fn local_to_true_time_round_trip_is_exact() {
        let mut random = Random::new(2);
        for _ in 0..100_000 {
            let clock = random_clock(&mut random);
            let true_time = at(random.range(-1000 * HOUR..=1000 * HOUR));
            let error = true_time - clock.true_time(clock.local(true_time));
            assert!(error >= TimeDelta::ZERO && error < TimeDelta::from_nanos(2), "{clock:?} {true_time:?}");
        }
    }

    #[test]
    fn local_time_never_runs_backwards() {
        let mut random = Random::new(3);
        for _ in 0..100_000 {
            let (clock, now) = (random_clock(&mut random), random_instant(&mut random));
            assert!(clock.local(now + TimeDelta::from_nanos(1)) >= clock.local(now), "{clock:?} {now:?}");
        }
    }

    #[test]
    fn far_future_is_preserved() {
        let clock = NodeClock { offset: TimeDelta::from_secs(9), skew_ppm: -40.0 };
        assert_eq!(clock.true_time(Instant::FAR_FUTURE), Instant::FAR_FUTURE);
        assert_eq!(clock.local(Instant::FAR_FUTURE), Instant::FAR_FUTURE);
    }

    #[test]
    fn extreme_skew_is_clamped() {
        for skew_ppm in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -2e6] {
            let clock = NodeClock { offset: TimeDelta::MAX, skew_ppm };
            assert!(clock.local(clock.true_time(at(HOUR))) >= at(HOUR));
        }
    }
}
