//! Movies: recordings of a game that hold its settings, its starting point and the inputs of every frame. Besides the
//! machine and the game itself, nothing else is needed for a replay.
//!
//! A [`MovieWriter`] encodes confirmed inputs as bytes, which the host program appends to a file. A [`MovieReader`]
//! decodes them. State hashes between the inputs ([`MovieWriter::push_hash`]) let a replay verify that its machine
//! computes the same states ([`HashComparison`]). Marks record everything else that happened to the machine between two
//! frames (a reset, another disc).
//!
//! The format tolerates damage. A movie consists of blocks of at most [`MAX_BLOCK_FRAMES`] frames. Each block has a
//! checksum and decodes without the block before it. A truncated movie is valid up to its last whole block, and a
//! damaged block is reported, never played. The checksum of the header seeds all other checksums, so a block from a
//! movie with a different header is detected, too.
//!
//! ```text
//! "COPLAYMV"  version u8  block …
//! block       kind u8  payload length u16  position u32  frames u16  payload  XXH64 u64
//!
//! kind 1      header, always the first; position: the first frame; payload: settings as in a hello, then 0 for
//!             power-on, or 1 and the length of the state
//! kind 2      a piece of the state before the first frame; position: its offset
//! kind 3      inputs; position: the first frame; payload: tokens
//! kind 4      the end, nothing follows; position: the frame after the last
//! ```
//!
//! Tokens are the change tokens of the packets (`input::delta_codec`), over the packed words of all players. Every
//! block starts from neutral input. A token without a change means that, after the frames it skips, an extra item
//! follows: 0 and the hash (u64) of the state after the last frame, or 1, a length and a mark. A frame without a change
//! takes no bytes, because tokens count such frames, and the head of the block counts all frames.
//!
//! # Example
//!
//! ```
//! use coplay::frame::{Frame, FrameRate};
//! use coplay::movie::{MovieEntry, MovieReader, MovieStartPoint, MovieWriter};
//! use coplay::session::{GameId, MachineId, Settings};
//!
//! let rate = FrameRate::per_second(60).unwrap();
//! let game = Settings::builder(GameId::new("sum", [1; 32]), MachineId::new("adder", "1"), rate);
//! let settings = game.lockstep().build().unwrap();
//! let mut file = vec![];
//! let mut writer = MovieWriter::new(&settings, MovieStartPoint::PowerOn).unwrap();
//! for number in 0..1_000 {
//!     writer.push(Frame::new(number), &[u128::from(number / 8 % 4), 0]).unwrap();
//!     while let Some(bytes) = writer.poll_bytes() {
//!         file.extend_from_slice(bytes);
//!     }
//! }
//! writer.finish().unwrap();
//! file.extend_from_slice(writer.poll_bytes().unwrap());
//!
//! let (mut reader, mut rest, mut frames) = (MovieReader::new(), &file[..], 0);
//! loop {
//!     rest = &rest[reader.push(rest)..];
//!     match reader.poll().unwrap() {
//!         Some(MovieEntry::Header { settings: recorded, .. }) => assert_eq!(*recorded, settings),
//!         Some(MovieEntry::Frame { frame, words }) => {
//!             assert_eq!(words, [u128::from(frame.number() / 8 % 4), 0]);
//!             frames += 1;
//!         }
//!         Some(MovieEntry::End { .. }) => break,
//!         Some(_) => {}
//!         None if rest.is_empty() => reader.end_input(), // no more bytes follow; the next poll returns an error
//!         None => {}
//!     }
//! }
//! assert_eq!(frames, 1_000);
//! ```

mod block;
mod reader;
mod writer;

pub use block::MAX_BLOCK_FRAMES;
pub use reader::{MovieEntry, MovieError, MovieReader};
pub use writer::{MovieStartError, MovieStartPoint, MovieWriteError, MovieWriter};

use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::{InputLayout, Ownership};
use crate::settings::Settings;

/// First bytes of every movie.
pub const MAGIC: [u8; 8] = *b"COPLAYMV";
/// Format version that the writer writes, the only one that the reader accepts.
pub const VERSION: u8 = 1;
/// Largest state that a movie can start from, in bytes.
pub const MAX_STATE_SIZE: usize = 64 << 20;
/// Largest size of a mark, in bytes.
pub const MAX_MARK_SIZE: usize = 255;

/// Tag of a state hash that follows a token without a change.
const HASH_TAG: u8 = 0;
const MARK_TAG: u8 = 1;

/// Returns the input layout of a movie: the bits of all sites, merged into one layout, because a movie does not
/// distinguish sites.
fn merged_layout(settings: &Settings) -> InputLayout {
    let ownership = &settings.ownership;
    let mut all = Ownership::new(ownership.players());
    let merged_site = SiteId::new(0).expect("site 0 is valid");
    for player in 0..ownership.players() {
        let mask = SiteId::first(crate::id::MAX_SITES).fold(0, |mask, site| mask | ownership.mask(site, player));
        all.assign(merged_site, player, mask).expect("the merged ownership has a single owner");
    }
    all.layout(merged_site)
}

/// Result of comparing the hashes in a movie with those of the machine that replays it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashComparison {
    /// Number of hashes compared so far.
    pub compared: u64,
    /// Last frame with equal states before the first mismatch; `None` if no compared states were equal before it.
    pub last_equal: Option<Frame>,
    /// First frame with different states; `None` if there is none. The machine diverged between `last_equal` and this
    /// frame.
    pub first_mismatch: Option<Frame>,
}

impl HashComparison {
    /// Compares the hash of [`MovieEntry::Hash`] with the local hash after the same frame. Returns whether they are
    /// equal.
    pub fn on_hash(&mut self, frame: Frame, recorded: u64, ours: u64) -> bool {
        self.compared += 1;
        match recorded == ours {
            true if self.first_mismatch.is_none() => self.last_equal = Some(frame),
            true => {}
            false => _ = self.first_mismatch.get_or_insert(frame),
        }
        recorded == ours
    }

    /// Returns whether no compared hash differed, which holds also before the first comparison.
    pub fn is_equal(&self) -> bool {
        self.first_mismatch.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_mismatch_and_last_equal_frame_are_kept() {
        let mut comparison = HashComparison::default();
        for (number, ours) in [(59, 1), (119, 2), (179, 0), (239, 4), (299, 0)] {
            comparison.on_hash(Frame::new(number), u64::from(number + 1) / 60, ours);
        }
        assert!(!comparison.is_equal());
        assert_eq!((comparison.last_equal, comparison.first_mismatch), (Some(Frame::new(119)), Some(Frame::new(179))));
        assert_eq!(comparison.compared, 5);
    }
}
