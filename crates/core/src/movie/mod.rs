//! A game on record: its settings, where it starts, and the inputs of every frame. Nothing else is needed to play it again.
//!
//! A [`ByteWriter`] turns confirmed inputs into bytes that the host program appends to a file or sends to a watcher; a [`ByteReader`] turns
//! them back. State hashes on the way ([`ByteWriter::push_hash`]) let whoever plays it prove that the machine did the same
//! ([`HashComparison`]), and marks hold whatever else happened to the machine between two frames (a reset, another disc).
//!
//! The bytes are for bad days. They come in blocks with a checksum each, at most [`MAX_BLOCK_FRAMES`] frames long, that need nothing
//! from the block before: what is cut off anywhere is good up to its last whole block, and what is damaged is told, never
//! played. The checksum of the header is the seed of all others, so a block out of another movie is noticed, too.
//!
//! ```text
//! "COPLAYMV"  version u8  block …
//! block       kind u8  payload length u16  place u32  frames u16  payload  XXH64 u64
//!
//! kind 1      header, always the first; place: the first frame; payload: settings as in a hello, then 0 for power-on,
//!             or 1 and the length of the state
//! kind 2      a piece of the state before the first frame; place: its offset
//! kind 3      inputs; place: the first frame; payload: tokens
//! kind 4      the end, nothing follows; place: the frame after the last
//! ```
//!
//! Tokens are the change tokens that travel in packets (`input::code`), over the packed words of all players; before the first
//! frame of a block stands neutral input. A token that changes nothing says that, after the frames it skips, something else
//! follows: 0 and the hash (u64) of the state after the last frame, or 1, a length and a mark. So a frame in which
//! nothing changes costs nothing.
//!
//! # Example
//!
//! ```
//! use coplay::frame::{Frame, FrameRate};
//! use coplay::id::SiteSet;
//! use coplay::input::Ownership;
//! use coplay::movie::{Entry, Reader, Start, Writer};
//! use coplay::session::{Absent, GameId, MachineId, Settings, Starvation};
//!
//! let settings = Settings {
//!     game: GameId { name: "sum".into(), hash: [1; 32] },
//!     machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames: 0 },
//!     rate: FrameRate::per_second(60).unwrap(),
//!     lag: 6,
//!     window: 0,
//!     auto: false,
//!     absent: Absent::Nothing,
//!     starvation: Starvation::Wait,
//!     compare_every: 60,
//!     sites: 2,
//!     starters: SiteSet::first(2),
//!     ownership: Ownership::one_each(2, 0xffff),
//! };
//! let mut file = vec![];
//! let mut writer = Writer::new(&settings, Start::PowerOn).unwrap();
//! for number in 0..1_000 {
//!     writer.push(Frame::new(number), &[u128::from(number / 8 % 4), 0]).unwrap();
//!     while let Some(bytes) = writer.poll_bytes() {
//!         file.extend_from_slice(bytes);
//!     }
//! }
//! writer.finish().unwrap();
//! file.extend_from_slice(writer.poll_bytes().unwrap());
//!
//! let (mut reader, mut rest, mut frames) = (Reader::new(), &file[..], 0);
//! loop {
//!     rest = &rest[reader.push(rest)..];
//!     match reader.poll().unwrap() {
//!         Some(Entry::Header { settings: recorded, .. }) => assert_eq!(*recorded, settings),
//!         Some(Entry::Frame { frame, words }) => {
//!             assert_eq!(words, [u128::from(frame.number() / 8 % 4), 0]);
//!             frames += 1;
//!         }
//!         Some(Entry::End { .. }) => break,
//!         Some(_) => {}
//!         None if rest.is_empty() => reader.end(), // no more bytes will come: the next poll says what that means
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
pub use writer::{MovieStart, MovieStartError, MovieWriteError, MovieWriter};

use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::{InputLayout, Ownership};
use crate::session::Settings;

/// The first bytes of every movie.
pub const MAGIC: [u8; 8] = *b"COPLAYMV";
/// The version of the format.
pub const VERSION: u8 = 1;
/// The largest state that a movie can start with, in bytes.
pub const MAX_STATE_SIZE: usize = 64 << 20;
/// The longest mark, in bytes.
pub const MAX_MARK_SIZE: usize = 255;

/// What follows a token that changes nothing.
const HASH_TAG: u8 = 0;
const MARK_TAG: u8 = 1;

/// How the words of all players are packed: a movie knows no sites, so one layout has the bits of all of them.
fn merged_layout(settings: &Settings) -> InputLayout {
    let ownership = &settings.ownership;
    let mut all = Ownership::new(ownership.players());
    let one = SiteId::new(0).expect("there is always a site 0");
    for player in 0..ownership.players() {
        let mask = SiteId::first(crate::id::MAX_SITES).fold(0, |mask, site| mask | ownership.mask(site, player));
        all.assign(one, player, mask).expect("nobody else owns anything");
    }
    all.layout(one)
}

/// Compares the hashes in a movie with those of the machine that plays it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashComparison {
    /// How many hashes were compared.
    pub compared: u64,
    /// The last frame after which the states were equal, before any were not.
    pub last_equal: Option<Frame>,
    /// The first frame after which they were not: the machine went astray between the two.
    pub first_mismatch: Option<Frame>,
}

impl HashComparison {
    /// Takes in the hash of [`Entry::HashCheck`] and ours after the same frame; `false` if they differ.
    pub fn on_hash(&mut self, frame: Frame, recorded: u64, ours: u64) -> bool {
        self.compared += 1;
        match recorded == ours {
            true if self.first_mismatch.is_none() => self.last_equal = Some(frame),
            true => {}
            false => _ = self.first_mismatch.get_or_insert(frame),
        }
        recorded == ours
    }

    /// Whether nothing differed so far.
    pub fn is_equal(&self) -> bool {
        self.first_mismatch.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_mismatch_and_last_equal_frame_are_kept() {
        let mut checked = HashComparison::default();
        for (number, ours) in [(59, 1), (119, 2), (179, 0), (239, 4), (299, 0)] {
            checked.on_hash(Frame::new(number), u64::from(number + 1) / 60, ours);
        }
        assert!(!checked.is_equal());
        assert_eq!((checked.last_equal, checked.first_mismatch), (Some(Frame::new(119)), Some(Frame::new(179))));
        assert_eq!(checked.compared, 5);
    }
}
