//! Shots: where and when they were fired is all there is to know of them.

use crate::place::Position;

/// Shots are kept for so many ticks: longer than they fly, and longer than any gap in what is heard of who fired them.
pub const SHOT_KEPT: u32 = 200;

/// Nobody has more shots than this that are still kept.
pub const MOST_SHOTS: usize = 4;

/// A shot. It flies straight on until it meets a wall.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shot {
    /// Which of its owner's; wraps.
    pub number: u16,
    /// When it was fired.
    pub tick: u32,
    /// From where: a place of whole units.
    pub from: Position,
    /// Which way.
    pub heading: u16,
}

/// The newest shots of an avatar. They ride in its state, so that a lost packet loses no shot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shots {
    /// The number of the newest, also when it is no longer kept.
    fired: u16,
    /// The oldest first; as many as `len` of them count, and the rest is as if it had never been.
    kept: [Shot; MOST_SHOTS],
    len: u8,
}

impl Shots {
    /// No shots, after so many.
    pub(crate) fn after(fired: u16) -> Self {
        Self { fired, ..Self::default() }
    }

    /// Those that are kept, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Shot> + ExactSizeIterator {
        self.kept[..usize::from(self.len)].iter()
    }

    /// The newest.
    pub fn newest(&self) -> Option<&Shot> {
        self.iter().next_back()
    }

    /// The number of the newest shot, also when it is forgotten. Who knows of an avatar with the same number knows of all its shots.
    pub fn fired(&self) -> u16 {
        self.fired
    }

    /// Adds a shot. It gets the next number and begins at whole units of the grid, whatever it says, so that it takes few bytes to
    /// tell. The oldest goes if there are too many.
    pub fn push(&mut self, shot: Shot) {
        if usize::from(self.len) == MOST_SHOTS {
            self.forget_oldest();
        }
        self.fired = self.fired.wrapping_add(1);
        self.kept[usize::from(self.len)] = Shot { number: self.fired, from: shot.from.rounded(), ..shot };
        self.len += 1;
    }

    /// Forgets what was fired earlier.
    pub fn forget_before(&mut self, tick: u32) {
        while self.iter().next().is_some_and(|oldest| oldest.tick < tick) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.kept[0] = Shot::default();
        self.kept.rotate_left(1);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shots: &Shots) -> Vec<u16> {
        shots.iter().map(|shot| shot.number).collect()
    }

    #[test]
    fn the_newest_four_are_kept_until_they_are_old() {
        let mut shots = Shots::after(65_533);
        for tick in [0, 60, 120, 180, 240] {
            shots.push(Shot { tick, ..Shot::default() });
        }
        assert_eq!(numbers(&shots), [65_535, 0, 1, 2]);
        shots.forget_before(120);
        assert_eq!(numbers(&shots), [0, 1, 2]);
        shots.forget_before(1_000);
        assert_eq!(numbers(&shots), []);
        assert_eq!((shots.fired(), shots.newest()), (2, None));
        assert_eq!(shots, Shots::after(2), "what is forgotten makes no difference");
    }

    #[test]
    fn shots_begin_at_whole_units() {
        let mut shots = Shots::default();
        shots.push(Shot { from: Position { x: 129, y: 127 }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.from), Some(Position { x: 256, y: 0 }));
        shots.push(Shot { from: Position { x: i32::MAX, y: i32::MIN }, ..Shot::default() });
        assert_eq!(shots.newest().map(|shot| shot.from), Some(Position::of_units(65_535, 0)), "on the grid");
    }
}
