//! Minimal game for tests: points on a line.

use super::{DeadReckoning, INFINITE_DISTANCE, WorldRegion};

#[derive(Clone, Debug, Default)]
pub(super) struct TestGame {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) position: i32,
    pub(super) speed: i32,
    pub(super) lives: u8,
}

impl TestGame {
    #[expect(clippy::unused_self, reason = "method syntax reads well at the call sites")]
    pub(super) fn point(&self, position: i32, speed: i32) -> Point {
        Point { position, speed, lives: 0 }
    }
}

impl DeadReckoning for TestGame {
    type State = Point;

    fn extrapolate(&self, state: &Point, ticks: u32) -> Point {
        Point { position: state.position.wrapping_add(state.speed.wrapping_mul(ticks as i32)), ..*state }
    }

    fn interpolate(&self, earlier: &Point, later: &Point, part: u32, whole: u32) -> Point {
        let distance = (i64::from(later.position) - i64::from(earlier.position)) * i64::from(part) / i64::from(whole);
        Point { position: earlier.position.wrapping_add(distance as i32), ..*earlier }
    }

    fn distance(&self, one: &Point, other: &Point) -> u32 {
        if one.lives == other.lives { one.position.abs_diff(other.position) } else { INFINITE_DISTANCE }
    }

    fn region(&self, state: &Point) -> WorldRegion {
        WorldRegion { x: (state.position / 1_000).clamp(0, 255) as u8, y: 0 }
    }

    fn encode(&self, state: &Point, buf: &mut [u8]) -> Option<usize> {
        let room = buf.get_mut(..9)?;
        room[..4].copy_from_slice(&state.position.to_le_bytes());
        room[4..8].copy_from_slice(&state.speed.to_le_bytes());
        room[8] = state.lives;
        Some(9)
    }

    fn decode(&self, bytes: &[u8]) -> Option<Point> {
        let (position, rest) = bytes.split_first_chunk()?;
        let (speed, rest) = rest.split_first_chunk()?;
        let [lives] = rest else { return None };
        Some(Point { position: i32::from_le_bytes(*position), speed: i32::from_le_bytes(*speed), lives: *lives })
    }
}
