//! What all sites of a maze agree on.

use crate::Maze;

/// The maze, and how it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The maze follows from this.
    pub seed: u64,
    /// Cells on each side of it.
    pub side: u8,
    /// Ticks in a bucket.
    pub bucket: u16,
    /// Ticks that everybody waits.
    pub delay: u16,
}

/// The rules and the layout of states and tallies are these.
const VERSION: u8 = 2;

impl Default for Terms {
    /// The paper's bucket and delay, and a maze for a handful of people.
    fn default() -> Self {
        Self { seed: 1, side: 12, bucket: 4, delay: 15 }
    }
}

impl Terms {
    /// The longest bucket, and the longest delay, in ticks.
    pub const MOST_TICKS: u16 = 100;

    /// Whether there can be such a maze.
    pub fn are_sane(&self) -> bool {
        let sane = |ticks| (1..=Self::MOST_TICKS).contains(&ticks);
        Maze::SIDES.contains(&self.side) && sane(self.bucket) && sane(self.delay)
    }

    /// As they are told.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.side];
        bytes.extend_from_slice(&self.bucket.to_le_bytes());
        bytes.extend_from_slice(&self.delay.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// What was told; `None` if it is of another version, or no maze at all.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, side, a, b, c, d, seed @ ..] = bytes else { return None };
        let terms = Self {
            seed: u64::from_le_bytes(seed.try_into().ok()?),
            side: *side,
            bucket: u16::from_le_bytes([*a, *b]),
            delay: u16::from_le_bytes([*c, *d]),
        };
        terms.are_sane().then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_and_others_are_refused() {
        let terms = Terms { seed: 77, side: 30, bucket: 8, delay: 20 };
        let bytes = terms.to_bytes();
        assert_eq!(Terms::from_bytes(&bytes), Some(terms));
        assert_eq!(Terms::from_bytes(&bytes[..13]), None);
        assert_eq!(Terms::from_bytes(&Terms { side: 3, ..terms }.to_bytes()), None);
        assert_eq!(Terms::from_bytes(&[&[VERSION + 1][..], &bytes[1..]].concat()), None);
    }

    #[test]
    fn what_is_sane_makes_a_game_and_nothing_else_does() {
        use crate::Game;
        use coplay::peer_world::{UpdatePolicy, WorldSiteId};
        use coplay::time::Instant;
        for ticks in [0, 1, Terms::MOST_TICKS, Terms::MOST_TICKS + 1] {
            for terms in [Terms { bucket: ticks, ..Terms::default() }, Terms { delay: ticks, ..Terms::default() }] {
                let game = Game::new(Instant::ZERO, WorldSiteId(1), true, &terms, UpdatePolicy::default(), (None, 1));
                assert_eq!(game.is_ok(), terms.are_sane(), "{terms:?}");
                assert_eq!(Terms::from_bytes(&terms.to_bytes()).is_some(), terms.are_sane());
            }
        }
    }
}
