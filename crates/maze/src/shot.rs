//! Shots: where and when they were fired is all there is to know of them.

use crate::position::Position;

/// Shots are kept for so many ticks: longer than they fly, and longer than any gap in what is heard of who fired them.
pub const SHOT_RETENTION: u32 = 200;

/// Nobody has more shots than this that are still kept.
pub const MAX_SHOTS: usize = 4;

/// A shot. It flies straight on until it meets a wall.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shot {
    /// Which of its owner's; wraps.
    pub number: u16,
    /// When it was fired.
    pub tick: u32,
    /// From where: a place of whole units.
    pub origin: Position,
    /// Which way.
    pub heading: u16,
}

/// The newest shots of an avatar. They ride in its state, so that a lost packet loses no shot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecentShots {
    /// The number of the newest, also when it is no longer kept.
    last_number: u16,
    /// The oldest first; as many as `len` of them count, and the rest is as if it had never been.
    shots: [Shot; MAX_SHOTS],
    len: u8,
}

impl RecentShots {
    /// No shots, after so many.
    pub(crate) fn starting_after(fired: u16) -> Self {
        Self { last_number: fired, ..Self::default() }
    }

    /// Those that are kept, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Shot> + ExactSizeIterator {
        self.shots[..usize::from(self.len)].iter()
    }

    /// The newest.
    pub fn newest(&self) -> Option<&Shot> {
        self.iter().next_back()
    }

    /// The number of the newest shot, also when it is forgotten. Who knows of an avatar with the same number knows of all its shots.
    pub fn last_number(&self) -> u16 {
        self.last_number
    }

    /// Adds a shot. It gets the next number and begins at whole units of the grid, whatever it says, so that it takes few bytes to
    /// tell. The oldest goes if there are too many.
    pub fn push(&mut self, shot: Shot) {
        if usize::from(self.len) == MAX_SHOTS {
            self.drop_oldest();
        }
        self.last_number = self.last_number.wrapping_add(1);
        self.shots[usize::from(self.len)] =
            Shot { number: self.last_number, origin: shot.origin.rounded_to_units(), ..shot };
        self.len += 1;
    }

    /// Forgets what was fired earlier.
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
        assert_eq!(shots, RecentShots::starting_after(2), "what is forgotten makes no difference");
    }

    #[test]
    fn shot_origin_is_rounded_to_grid_units() {
        let mut shots = RecentShots::default();
        shots.push(Shot { origin: Position { x: 129, y: 127 }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.origin), Some(Position { x: 256, y: 0 }));
        shots.push(Shot { origin: Position { x: i32::MAX, y: i32::MIN }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.origin), Some(Position::from_units(65_535, 0)), "on the grid");
    }
}
