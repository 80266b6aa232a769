//! Shots. The tick, origin and heading of a shot determine its whole flight.

use crate::position::Position;

/// Ticks for which an avatar's state carries a shot after it was fired: longer than the longest flight, 150 ticks.
pub const SHOT_RETENTION: u32 = 200;

/// Largest number of recent shots that an avatar's state carries.
pub const MAX_SHOTS: usize = 4;

/// Shot, which flies straight until it meets a wall or 150 ticks have passed. An avatar that it hits does not stop it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shot {
    /// Number among the shots of its avatar; wraps.
    pub number: u16,
    /// Tick in which the shot was fired.
    pub tick: u32,
    /// Position at which the flight starts. `RecentShots::push` rounds it to whole units on the grid.
    pub origin: Position,
    /// Heading along which the shot flies.
    pub heading: u16,
}

/// Newest shots of an avatar. The avatar's state carries them, so that a lost packet loses no shot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecentShots {
    /// Number of the last shot that the avatar fired, even if that shot is no longer kept.
    last_number: u16,
    /// Kept shots, oldest first, in the first `len` entries. The other entries have the default value, so that equal
    /// lists compare equal.
    shots: [Shot; MAX_SHOTS],
    len: u8,
}

impl RecentShots {
    /// Creates an empty list for an avatar whose last shot had the number `last_number`. The next pushed shot gets the
    /// number after it.
    pub(crate) fn starting_after(last_number: u16) -> Self {
        Self { last_number, ..Self::default() }
    }

    /// Returns the kept shots, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Shot> + ExactSizeIterator {
        self.shots[..usize::from(self.len)].iter()
    }

    /// Returns the newest kept shot; `None` if no shot is kept.
    pub fn newest(&self) -> Option<&Shot> {
        self.iter().next_back()
    }

    /// Returns the number of the last shot that the avatar fired, even if that shot is no longer kept. Two states with
    /// the same number have no shot between them.
    pub fn last_number(&self) -> u16 {
        self.last_number
    }

    /// Adds a shot, and drops the oldest one if there are already [`MAX_SHOTS`]. Ignores the shot's own `number` and
    /// gives it the number after the last one. Rounds the origin to whole units on the grid, so that the shot takes few
    /// bytes to encode.
    pub fn push(&mut self, shot: Shot) {
        if usize::from(self.len) == MAX_SHOTS {
            self.drop_oldest();
        }
        self.last_number = self.last_number.wrapping_add(1);
        self.shots[usize::from(self.len)] =
            Shot { number: self.last_number, origin: shot.origin.rounded_to_units(), ..shot };
        self.len += 1;
    }

    /// Drops shots fired before `tick`.
    pub fn drop_before(&mut self, tick: u32) {
        while self.iter().next().is_some_and(|oldest| oldest.tick < tick) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        self.shots[0] = Shot::default();
        self.shots.rotate_left(1);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shots: &RecentShots) -> Vec<u16> {
        shots.iter().map(|shot| shot.number).collect()
    }

    #[test]
    fn newest_shots_are_kept_until_they_expire() {
        let mut shots = RecentShots::starting_after(65_533);
        for tick in [0, 60, 120, 180, 240] {
            shots.push(Shot { tick, ..Shot::default() });
        }
        assert_eq!(numbers(&shots), [65_535, 0, 1, 2]);
        shots.drop_before(120);
        assert_eq!(numbers(&shots), [0, 1, 2]);
        shots.drop_before(1_000);
        assert_eq!(numbers(&shots), []);
        assert_eq!((shots.last_number(), shots.newest()), (2, None));
        assert_eq!(shots, RecentShots::starting_after(2), "dropped shots make a difference");
    }

    #[test]
    fn shot_origin_is_rounded_to_grid_units() {
        let mut shots = RecentShots::default();
        shots.push(Shot { origin: Position { x: 129, y: 127 }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.origin), Some(Position { x: 256, y: 0 }));
        shots.push(Shot { origin: Position { x: i32::MAX, y: i32::MIN }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.origin), Some(Position::from_units(65_535, 0)), "not on the grid");
    }
}
