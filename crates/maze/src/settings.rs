//! Settings that must be equal at all sites of a maze.

use crate::Maze;

/// Settings of a maze that all its sites share: the maze itself and the timing of the peer world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MazeSettings {
    /// Seed from which the walls and the spawn points are generated.
    pub seed: u64,
    /// Number of cells on each side of the maze, within [`Maze::SIDE_RANGE`].
    pub cells_per_side: u8,
    /// Length of a bucket, in ticks of 10 ms (T in the paper): updates issued in one bucket are displayed together.
    pub bucket_ticks: u16,
    /// Number of ticks of 10 ms from the end of a bucket until its view is displayed (Δ in the paper).
    pub playout_delay_ticks: u16,
}

/// Version of the rules and of the encoding of states and score records. Sites of different versions cannot share a
/// maze.
const VERSION: u8 = 2;

impl Default for MazeSettings {
    /// Returns the paper's bucket (40 ms) and playout delay (150 ms), and a maze of 12 × 12 cells with seed 1.
    fn default() -> Self {
        Self { seed: 1, cells_per_side: 12, bucket_ticks: 4, playout_delay_ticks: 15 }
    }
}

impl MazeSettings {
    /// Longest bucket and longest playout delay, in ticks.
    pub const MAX_TICKS: u16 = 100;

    /// Returns whether the side of the maze is within [`Maze::SIDE_RANGE`], and bucket and playout delay are 1 to
    /// [`MAX_TICKS`](Self::MAX_TICKS) ticks.
    pub fn is_valid(&self) -> bool {
        let sane = |ticks| (1..=Self::MAX_TICKS).contains(&ticks);
        Maze::SIDE_RANGE.contains(&self.cells_per_side) && sane(self.bucket_ticks) && sane(self.playout_delay_ticks)
    }

    /// Encodes the settings in 14 bytes, a version byte first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.cells_per_side];
        bytes.extend_from_slice(&self.bucket_ticks.to_le_bytes());
        bytes.extend_from_slice(&self.playout_delay_ticks.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// Decodes settings; `None` if the length or the version is wrong or the settings are not [valid](Self::is_valid).
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, side, a, b, c, d, seed @ ..] = bytes else { return None };
        let settings = Self {
            seed: u64::from_le_bytes(seed.try_into().ok()?),
            cells_per_side: *side,
            bucket_ticks: u16::from_le_bytes([*a, *b]),
            playout_delay_ticks: u16::from_le_bytes([*c, *d]),
        };
        settings.is_valid().then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_and_invalid_ones_are_rejected() {
        let settings = MazeSettings { seed: 77, cells_per_side: 30, bucket_ticks: 8, playout_delay_ticks: 20 };
        let bytes = settings.to_bytes();
        assert_eq!(MazeSettings::from_bytes(&bytes), Some(settings));
        assert_eq!(MazeSettings::from_bytes(&bytes[..13]), None);
        assert_eq!(MazeSettings::from_bytes(&MazeSettings { cells_per_side: 3, ..settings }.to_bytes()), None);
        assert_eq!(MazeSettings::from_bytes(&[&[VERSION + 1][..], &bytes[1..]].concat()), None);
    }

    #[test]
    fn only_valid_settings_start_a_site() {
        use crate::MazeSite;
        use coplay::peer_world::{UpdatePolicy, WorldSiteId};
        use coplay::time::Instant;
        for ticks in [0, 1, MazeSettings::MAX_TICKS, MazeSettings::MAX_TICKS + 1] {
            for settings in [
                MazeSettings { bucket_ticks: ticks, ..MazeSettings::default() },
                MazeSettings { playout_delay_ticks: ticks, ..MazeSettings::default() },
            ] {
                let game =
                    MazeSite::new(Instant::ZERO, WorldSiteId(1), true, &settings, UpdatePolicy::default(), (None, 1));
                assert_eq!(game.is_ok(), settings.is_valid(), "{settings:?}");
                assert_eq!(MazeSettings::from_bytes(&settings.to_bytes()).is_some(), settings.is_valid());
            }
        }
    }
}
