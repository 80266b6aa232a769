//! Time: points and spans. The caller passes the time in; the engines never read a clock.
//!
//! [`Instant`] is a point on *this site's* clock, [`GroupInstant`] a point on the clock that all sites of a session
//! share. They are different types on purpose: a conversion needs the offset between the two clocks, which a [clock
//! estimate](crate::clock) gives. Sums, differences, products and negations saturate, so no number from the network can
//! make them panic.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// A signed length of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeDelta(i64);

/// A point on this site's own monotonic clock. The caller chooses the origin. With a clock of the standard library, the
/// current time is `Instant::ZERO + TimeDelta::from(origin.elapsed())`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(i64);

/// A point on the clock that all sites of a session, or all mirrored servers of a world, share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupInstant(i64);

impl TimeDelta {
    /// No time: 0 ns. This is the default.
    pub const ZERO: Self = Self(0);
    /// The longest representable time, about 292 years.
    pub const MAX: Self = Self(i64::MAX);

    /// Creates a time span from nanoseconds. The range of `i64` nanoseconds is about ±292 years.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Creates a time span from microseconds, which saturates at about ±292 years.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a time span from milliseconds, which saturates at about ±292 years.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a time span from seconds, which saturates at about ±292 years.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the exact length in nanoseconds, with its sign.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the time in microseconds, rounded towards zero.
    pub const fn as_micros(self) -> i64 {
        self.0 / 1_000
    }

    /// Returns the time in milliseconds as a floating-point number.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time in seconds as a floating-point number.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Converts to a duration of the standard library; a negative time becomes zero.
    pub const fn to_duration(self) -> core::time::Duration {
        core::time::Duration::from_nanos(if self.0 > 0 { self.0 as u64 } else { 0 })
    }

    /// Returns the length without its sign, at most [`TimeDelta::MAX`].
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// Returns this time multiplied by `factor` in floating point. The result is not exact enough for values that sites
    /// must agree on.
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as i64)
    }

    /// Returns whether the span is shorter than 0 ns.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl Instant {
    /// The origin of this site's clock, which the caller chooses.
    pub const ZERO: Self = Self(0);
    /// The last representable point, for a deadline that never comes.
    pub const FAR_FUTURE: Self = Self(i64::MAX);

    /// Creates a point from nanoseconds since the origin, negative before it.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin, negative before it.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the microseconds since the origin, rounded down.
    pub const fn as_micros(self) -> i64 {
        self.0.div_euclid(1_000)
    }
}

impl GroupInstant {
    /// Creates a point from nanoseconds since the origin of the shared clock; in a session that is the lowest site's
    /// clock.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin of the shared clock, negative before it.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// Adds like `saturating_add`, but handles overflow in a branch. Overflow is rare, so the branch costs next to nothing.
/// Every frame computes several hundred of these sums and differences.
#[inline(always)]
fn sum(one: i64, other: i64) -> i64 {
    one.checked_add(other).unwrap_or_else(|| saturated(one < 0))
}

/// Subtracts like `saturating_sub`, but handles overflow in a branch, for the same reason as [`sum`].
#[inline(always)]
fn difference(one: i64, other: i64) -> i64 {
    one.checked_sub(other).unwrap_or_else(|| saturated(one < 0))
}

/// Multiplies like `saturating_mul`, but handles overflow in a branch, for the same reason as [`sum`].
#[inline(always)]
fn product(one: i64, other: i64) -> i64 {
    one.checked_mul(other).unwrap_or_else(|| saturated((one < 0) != (other < 0)))
}

#[cold]
#[inline(never)]
fn saturated(negative: bool) -> i64 {
    if negative { i64::MIN } else { i64::MAX }
}

macro_rules! instant_arithmetic {
    ($($instant:ty),*) => {$(
        impl Add<TimeDelta> for $instant {
            type Output = Self;
            #[inline(always)]
            fn add(self, delta: TimeDelta) -> Self {
                Self(sum(self.0, delta.0))
            }
        }

        impl AddAssign<TimeDelta> for $instant {
            #[inline(always)]
            fn add_assign(&mut self, delta: TimeDelta) {
                *self = *self + delta;
            }
        }

        impl Sub<TimeDelta> for $instant {
            type Output = Self;
            #[inline(always)]
            fn sub(self, delta: TimeDelta) -> Self {
                Self(difference(self.0, delta.0))
            }
        }

        impl Sub for $instant {
            type Output = TimeDelta;
            #[inline(always)]
            fn sub(self, earlier: Self) -> TimeDelta {
                TimeDelta(difference(self.0, earlier.0))
            }
        }

        impl fmt::Debug for $instant {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", TimeDelta(self.0))
            }
        }
    )*};
}

instant_arithmetic!(Instant, GroupInstant);

/// Converts a duration; one longer than [`TimeDelta::MAX`] becomes [`TimeDelta::MAX`].
impl From<core::time::Duration> for TimeDelta {
    fn from(duration: core::time::Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl Add for TimeDelta {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(sum(self.0, other.0))
    }
}

impl AddAssign for TimeDelta {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for TimeDelta {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(difference(self.0, other.0))
    }
}

impl SubAssign for TimeDelta {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for TimeDelta {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Mul<i64> for TimeDelta {
    type Output = Self;
    #[inline(always)]
    fn mul(self, factor: i64) -> Self {
        Self(product(self.0, factor))
    }
}

impl Div<i64> for TimeDelta {
    type Output = Self;
    #[inline(always)]
    fn div(self, divisor: i64) -> Self {
        Self(self.0 / divisor)
    }
}

impl fmt::Debug for TimeDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}ms", self.as_millis_f64())
    }
}

impl fmt::Display for TimeDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.unsigned_abs() {
            0..10_000_000_000 => write!(f, "{:.1} ms", self.as_millis_f64()),
            _ => write!(f, "{:.1} s", self.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let far = Instant::FAR_FUTURE + TimeDelta::from_secs(1);
        assert_eq!(far, Instant::FAR_FUTURE);
        assert_eq!(-TimeDelta::from_nanos(i64::MIN), TimeDelta::MAX);
        assert_eq!(Instant::from_nanos(i64::MIN) - far, TimeDelta::from_nanos(i64::MIN));
    }

    #[test]
    fn arithmetic_matches_std_saturating_ops() {
        let numbers = [i64::MIN, i64::MIN + 1, -2, -1, 0, 1, 2, i64::MAX - 1, i64::MAX];
        for (one, other) in numbers.into_iter().flat_map(|one| numbers.map(|other| (one, other))) {
            assert_eq!(sum(one, other), one.saturating_add(other));
            assert_eq!(difference(one, other), one.saturating_sub(other));
            assert_eq!(product(one, other), one.saturating_mul(other));
        }
    }
}
