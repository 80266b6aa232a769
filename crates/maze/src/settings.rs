//! What all sites of a maze agree on.

use crate::Maze;

/// The maze, and how it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MazeSettings {
    /// The maze follows from this.
    pub seed: u64,
    /// Cells on each side of it.
    pub cells_per_side: u8,
    /// Ticks in a bucket.
    pub bucket_ticks: u16,
    /// Ticks that everybody waits.
    pub playout_delay_ticks: u16,
}

/// The rules and the layout of states and tallies are these.
const VERSION: u8 = 2;

impl Default for MazeSettings {
    /// The paper's bucket and delay, and a maze for a handful of people.
    fn default() -> Self {
        Self { seed: 1, cells_per_side: 12, bucket_ticks: 4, playout_delay_ticks: 15 }
    }
}

impl MazeSettings {
    /// The longest bucket, and the longest delay, in ticks.
    pub const MAX_TICKS: u16 = 100;

    /// Whether there can be such a maze.
    pub fn is_valid(&self) -> bool {
        let sane = |ticks| (1..=Self::MAX_TICKS).contains(&ticks);
        Maze::SIDE_RANGE.contains(&self.cells_per_side) && sane(self.bucket_ticks) && sane(self.playout_delay_ticks)
    }

    /// As they are told.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.cells_per_side];
        bytes.extend_from_slice(&self.bucket_ticks.to_le_bytes());
        bytes.extend_from_slice(&self.playout_delay_ticks.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// What was told; `None` if it is of another version, or no maze at all.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, side, a, b, c, d, seed @ ..] = bytes else { return None };
        let terms = Self {
            seed: u64::from_le_bytes(seed.try_into().ok()?),
            cells_per_side: *side,
            bucket_ticks: u16::from_le_bytes([*a, *b]),
            playout_delay_ticks: u16::from_le_bytes([*c, *d]),
        };
        terms.is_valid().then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_and_invalid_ones_are_rejected() {
        let terms = MazeSettings { seed: 77, cells_per_side: 30, bucket_ticks: 8, playout_delay_ticks: 20 };
        let bytes = terms.to_bytes();
        assert_eq!(MazeSettings::from_bytes(&bytes), Some(terms));
        assert_eq!(MazeSettings::from_bytes(&bytes[..13]), None);
        assert_eq!(MazeSettings::from_bytes(&MazeSettings { cells_per_side: 3, ..terms }.to_bytes()), None);
        assert_eq!(MazeSettings::from_bytes(&[&[VERSION + 1][..], &bytes[1..]].concat()), None);
    }

    #[test]
    fn only_valid_settings_start_a_site() {
        use crate::MazeSite;
        use coplay::peer_world::{UpdatePolicy, WorldSiteId};
        use coplay::time::Instant;
        for ticks in [0, 1, MazeSettings::MAX_TICKS, MazeSettings::MAX_TICKS + 1] {
            for terms in [
                MazeSettings { bucket_ticks: ticks, ..MazeSettings::default() },
                MazeSettings { playout_delay_ticks: ticks, ..MazeSettings::default() },
            ] {
                let game =
                    MazeSite::new(Instant::ZERO, WorldSiteId(1), true, &terms, UpdatePolicy::default(), (None, 1));
                assert_eq!(game.is_ok(), terms.is_valid(), "{terms:?}");
                assert_eq!(MazeSettings::from_bytes(&terms.to_bytes()).is_some(), terms.is_valid());
            }
        }
    }
}
