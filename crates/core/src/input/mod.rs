//! Inputs: what a player does in a frame, who owns which bits of it, and how it is kept, packed and recovered.
//!
//! A game takes one [`InputWord`] of up to 128 bits per player and frame. Every site owns a set of those bits ([`Ownership`]; the sets
//! are disjoint), and only owned bits travel. A [`EventStream`] is one site's contribution over time, bounded; [`code`](self) turns a
//! stretch of it into bytes that cost something only where the input changes; [`Recovery`] decides how much of it rides in each
//! packet.

pub(crate) mod delta_codec;
mod ownership;
mod recovery;
mod stream;

pub(crate) use delta_codec::{MAX_WIDTH, get_change, put_change};
pub use ownership::{InputLayout, Ownership, OwnershipError};
pub use recovery::Recovery;
pub(crate) use recovery::{InputSender, missing_ranges, relayable_end, write_with_length};
pub(crate) use stream::MAX_BLOCKS;
pub use stream::{STREAM_CAPACITY, Stream, StreamError};

/// The most players a game can have: eight with a pad, as many as there can be sites, and one whose word everybody has a part of, for what
/// is done to the machine itself (pause, reset).
pub const MAX_PLAYERS: usize = 9;

/// Part of a packed input, padded with zeros. Blocks of fixed size are copied without a call, and most inputs need only one.
pub(crate) type PackedInputBlock = [u8; 16];

/// One player's input in one frame: 16 buttons and four 16-bit axes fit, with room to spare.
pub type InputWord = u128;
