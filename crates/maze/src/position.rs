//! Positions on the grid in fixed point: movement along a heading, distances, bearings.

use crate::angle::{TRIG_ONE, bearing, cosine, sine};

/// Side of the grid, in units.
pub const GRID_SIZE: i32 = 65_536;

/// Number of [`Position`] steps in one unit of the grid.
pub const UNIT: i32 = 256;

/// Position on the grid, in 1/[`UNIT`] units. The fractions keep the direction of a step of one tick precise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Distance from the west edge of the grid, in 1/[`UNIT`] units.
    pub x: i32,
    /// Distance from the north edge of the grid, in 1/[`UNIT`] units.
    pub y: i32,
}

impl Position {
    /// Returns the position `x` units east and `y` units south of the north-west corner of the grid.
    pub const fn from_units(x: i32, y: i32) -> Self {
        Self { x: x * UNIT, y: y * UNIT }
    }

    /// Returns the position `length` (in 1/[`UNIT`] units) away along `heading`.
    pub fn moved_along(self, heading: u16, length: i32) -> Self {
        Self {
            x: self.x.wrapping_add(scale_by_trig(length, cosine(heading))),
            y: self.y.wrapping_add(scale_by_trig(length, sine(heading))),
        }
    }

    /// Returns the distance to `other`, in whole units.
    pub fn distance(self, other: Self) -> u32 {
        (self.distance_squared(other).isqrt() / UNIT as u64) as u32
    }

    /// Returns the square of the distance to `other`, in squared 1/[`UNIT`] units.
    pub fn distance_squared(self, other: Self) -> u64 {
        let (east, south) = (self.x.abs_diff(other.x), self.y.abs_diff(other.y));
        (u64::from(east) * u64::from(east)).saturating_add(u64::from(south) * u64::from(south))
    }

    /// Returns the heading from this position towards `other`; 0 if they are equal.
    pub fn bearing_to(self, other: Self) -> u16 {
        bearing(other.x.wrapping_sub(self.x), other.y.wrapping_sub(self.y))
    }

    /// Returns the nearest position on the grid whose coordinates are whole units.
    pub(crate) fn rounded_to_units(self) -> Self {
        let whole = |parts: i32| (parts.saturating_add(UNIT / 2) / UNIT).clamp(0, GRID_SIZE - 1) * UNIT;
        Self { x: whole(self.x), y: whole(self.y) }
    }
}

/// Multiplies a length by a result of [`sine`] or [`cosine`], divides by [`TRIG_ONE`] and rounds to the nearest
/// integer. The result for a negated length is the negated result.
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
        let start = Position::from_units(1_000, 2_000);
        for heading in (0..=u16::MAX).step_by(11) {
            assert_eq!(start.moved_along(heading, 2_048).moved_along(heading, -2_048), start);
            assert_eq!(start.moved_along(heading, 2_048), start.moved_along(heading.wrapping_add(HALF_TURN), -2_048));
        }
    }

    #[test]
    fn distances_are_in_units() {
        let start = Position::from_units(10, 10);
        assert_eq!(start.distance(Position::from_units(13, 14)), 5);
        assert_eq!(start.distance(start.moved_along(degrees(30), 99 * UNIT + 9)), 99);
        let corner = |at| Position { x: at, y: at };
        assert!(corner(i32::MIN).distance(corner(i32::MAX)) > 16_000_000, "the distance overflows");
    }
}
