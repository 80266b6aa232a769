//! Places on the grid.

use crate::angle::{TRIG_ONE, bearing, cosine, sine};
use crate::maze::GRID_SIZE;

/// Parts of a unit that a position tells.
pub const UNIT: i32 = 256;

/// A place, in parts of a unit (of which [`UNIT`] are one): so that the slightest turn shows, and walking does not round it away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// From west to east.
    pub x: i32,
    /// From north to south.
    pub y: i32,
}

impl Position {
    /// The place so many units east and south of the grid's corner.
    pub const fn from_units(x: i32, y: i32) -> Self {
        Self { x: x * UNIT, y: y * UNIT }
    }

    /// The place so far (in parts of a unit) this way.
    pub fn moved_along(self, heading: u16, length: i32) -> Self {
        Self {
            x: self.x.wrapping_add(scale_by_trig(length, cosine(heading))),
            y: self.y.wrapping_add(scale_by_trig(length, sine(heading))),
        }
    }

    /// How far it is to there, in whole units.
    pub fn distance(self, other: Self) -> u32 {
        (self.distance_squared(other).isqrt() / UNIT as u64) as u32
    }

    /// The square of the distance, in parts of a unit.
    pub fn distance_squared(self, other: Self) -> u64 {
        let (east, south) = (self.x.abs_diff(other.x), self.y.abs_diff(other.y));
        (u64::from(east) * u64::from(east)).saturating_add(u64::from(south) * u64::from(south))
    }

    /// The heading that leads there.
    pub fn bearing_to(self, other: Self) -> u16 {
        bearing(other.x.wrapping_sub(self.x), other.y.wrapping_sub(self.y))
    }

    /// The nearest place of whole units on the grid.
    pub(crate) fn rounded_to_units(self) -> Self {
        let whole = |parts: i32| (parts.saturating_add(UNIT / 2) / UNIT).clamp(0, GRID_SIZE - 1) * UNIT;
        Self { x: whole(self.x), y: whole(self.y) }
    }
}

/// A length times a sine or cosine, to the nearest; the same forwards and backwards.
fn scale_by_trig(length: i32, factor: i32) -> i32 {
    let product = i64::from(length) * i64::from(factor);
    let half = i64::from(TRIG_ONE / 2) * product.signum();
    ((product + half) / i64::from(TRIG_ONE)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::angle::{HALF_TURN, degrees};

    #[test]
    fn moving_forth_and_back_returns_to_the_start() {
        let here = Position::from_units(1_000, 2_000);
        for heading in (0..=u16::MAX).step_by(11) {
            assert_eq!(here.moved_along(heading, 2_048).moved_along(heading, -2_048), here);
            assert_eq!(here.moved_along(heading, 2_048), here.moved_along(heading.wrapping_add(HALF_TURN), -2_048));
        }
    }

    #[test]
    fn distances_are_in_units() {
        let here = Position::from_units(10, 10);
        assert_eq!(here.distance(Position::from_units(13, 14)), 5);
        assert_eq!(here.distance(here.moved_along(degrees(30), 99 * UNIT + 9)), 99);
        let corner = |at| Position { x: at, y: at };
        assert!(corner(i32::MIN).distance(corner(i32::MAX)) > 16_000_000, "nonsense has a distance, too");
    }
}
