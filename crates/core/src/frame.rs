//! Frames: the steps of a shared game, numbered from 0, and the frame rate.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use crate::time::TimeDelta;

/// One step of the game. At 60 frames per second the numbers last for two years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Frame(u32);

impl Frame {
    /// The first frame of a game.
    pub const ZERO: Self = Self(0);
    /// The frame with the largest number, which stands for a frame that is never reached.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// Creates a frame from its number, counted from 0 at the start of the game.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the frame's number, counted from 0 at the start of the game.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the next frame; the frame with the largest number is its own successor.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the frame that is `frames` earlier, or `None` if that is before frame 0.
    pub const fn checked_sub(self, frames: u32) -> Option<Self> {
        match self.0.checked_sub(frames) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the low 16 bits of the number, which packets carry. [`Frame::expand_low16`] restores the frame.
    pub(crate) const fn low16(self) -> u16 {
        self.0 as u16
    }

    /// Returns the frame nearest to `self` whose number has the low 16 bits `low`, or `None` if that number would be
    /// negative or exceed `u32::MAX`.
    pub(crate) fn expand_low16(self, low: u16) -> Option<Self> {
        let ahead = low.wrapping_sub(self.0 as u16) as i16;
        self.0.checked_add_signed(i32::from(ahead)).map(Self)
    }
}

impl Add<u32> for Frame {
    type Output = Self;
    fn add(self, frames: u32) -> Self {
        Self(self.0.saturating_add(frames))
    }
}

impl AddAssign<u32> for Frame {
    fn add_assign(&mut self, frames: u32) {
        *self = *self + frames;
    }
}

/// Returns the number of frames from `earlier` to `self`, negative if `self` is before `earlier`.
impl Sub for Frame {
    type Output = i64;
    fn sub(self, earlier: Self) -> i64 {
        i64::from(self.0) - i64::from(earlier.0)
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Frames per second as an exact fraction, because real machines run at 60.0988 or 59.7275 frames per second and all
/// sites must use the same rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRate {
    frames: u32,
    seconds: u32,
}

impl FrameRate {
    /// Creates a rate of `frames` frames in `seconds` seconds. Returns `None` unless the rate is 1 to 1,000 frames per
    /// second.
    pub const fn new(frames: u32, seconds: u32) -> Option<Self> {
        let rate = Self { frames, seconds };
        if seconds > 0 && frames >= seconds && frames as u64 <= seconds as u64 * 1_000 { Some(rate) } else { None }
    }

    /// Creates a rate of a whole number of frames per second. Returns `None` unless the number is 1 to 1,000.
    pub const fn per_second(frames: u32) -> Option<Self> {
        Self::new(frames, 1)
    }

    /// Returns the fraction as (frames, seconds), as it was given to [`FrameRate::new`].
    pub const fn fraction(self) -> (u32, u32) {
        (self.frames, self.seconds)
    }

    /// Returns the time from one frame to the next, rounded to a nanosecond.
    pub const fn period(self) -> TimeDelta {
        TimeDelta::from_nanos((self.seconds as i64 * 1_000_000_000 + self.frames as i64 / 2) / self.frames as i64)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            1 => write!(f, "{} fps", self.frames),
            _ => write!(f, "{:.4} fps", f64::from(self.frames) / f64::from(self.seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_expand_to_the_nearest_frame() {
        for near in [0, 5, 40_000, 65_535, 65_536, 1_000_000] {
            for ahead in [-5i64, 0, 7, 30_000] {
                let Ok(frame) = u32::try_from(near + ahead) else { continue };
                let frame = Frame::new(frame);
                assert_eq!(Frame::new(near as u32).expand_low16(frame.low16()), Some(frame));
            }
        }
        assert_eq!(Frame::new(3).expand_low16(0xfff0), None);
    }

    #[test]
    fn frame_rates_are_exact() {
        assert_eq!(FrameRate::per_second(60).unwrap().period(), TimeDelta::from_nanos(16_666_667));
        assert!(FrameRate::new(1, 0).is_none() && FrameRate::new(0, 1).is_none() && FrameRate::new(1_001, 1).is_none());
    }
}
