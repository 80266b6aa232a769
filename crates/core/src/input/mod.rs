//! Inputs: ownership of input bits, and storage, encoding and recovery of inputs.
//!
//! A game takes one [`InputWord`] of up to 128 bits per player and frame. Every site owns a set of those bits
//! ([`Ownership`]; the sets are disjoint), and only owned bits are sent. A [`Stream`] holds one site's inputs over time
//! in bounded memory. `delta_codec` encodes a range of frames so that only changes of the input take bytes.
//! [`Recovery`] decides how many inputs each packet repeats.

pub(crate) mod delta_codec;
mod missing_ranges;
mod ownership;
mod recovery;
mod stream;

pub(crate) use delta_codec::{MAX_WIDTH, get_change, put_change};
pub use missing_ranges::{MAX_MISSING_RANGES, MissingRanges};
pub use ownership::{InputLayout, Ownership, OwnershipError};
pub use recovery::Recovery;
pub(crate) use recovery::{InputSender, SendPlan, missing_ranges, relayable_end, write_with_length};
pub(crate) use stream::MAX_BLOCKS;
pub use stream::{STREAM_CAPACITY, Stream, StreamError};

/// Largest number of players in a game: eight with a pad, as many as there can be sites, and the control player, a word
/// that all sites share for commands to the machine itself (pause, reset).
pub const MAX_PLAYERS: usize = 9;

/// Sixteen bytes of a packed input, padded with zeros. Blocks of fixed size are copied without a function call, and
/// most inputs need only one.
pub(crate) type PackedInputPart = [u8; 16];

/// One player's input in one frame. Of its 128 bits, a pad with 16 buttons and four 16-bit axes needs 80.
pub type InputWord = u128;
