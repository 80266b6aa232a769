//! Blocks: the pieces of a movie that are whole or not there at all.

use crate::hash::xxh64;
use crate::wire::{BufferFull, ByteReader, ByteWriter, DecodeError};

/// The most frames in one block, ten seconds at 60 per second: what is lost at most when a recording breaks off.
pub const MAX_BLOCK_FRAMES: u16 = 600;
/// The most bytes in one block besides its head and its checksum.
pub(super) const MAX_PAYLOAD: usize = 4_096;
/// Bytes before the payload.
pub(super) const BLOCK_HEAD_SIZE: usize = 9;
/// Bytes after the payload.
pub(super) const CHECKSUM_SIZE: usize = 8;
/// The longest block.
pub(super) const MAX_BLOCK_SIZE: usize = BLOCK_HEAD_SIZE + MAX_PAYLOAD + CHECKSUM_SIZE;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Header = 1,
    State = 2,
    Inputs = 3,
    End = 4,
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub(super) kind: BlockKind,
    /// Bytes of payload.
    pub(super) payload_len: usize,
    /// The first frame, or where a piece of the state belongs.
    pub(super) position: u32,
    /// How many frames there are in it.
    pub(super) frames: u16,
}

impl BlockHead {
    /// Writes the head into the front of a block whose payload is in place, and the checksum behind it; returns the bytes in all.
    pub(super) fn seal(self, seed: u64, block: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(block);
        writer.u8(self.kind as u8)?;
        writer.put(&(self.payload_len as u16).to_le_bytes())?;
        writer.put(&self.position.to_le_bytes())?;
        writer.put(&self.frames.to_le_bytes())?;
        let (summed, rest) = block.split_at_mut_checked(BLOCK_HEAD_SIZE + self.payload_len).ok_or(BufferFull)?;
        *rest.first_chunk_mut().ok_or(BufferFull)? = xxh64(seed, summed).to_le_bytes();
        Ok(self.size())
    }

    /// Reads a head, which no checksum has proved yet. [`DecodeError::Truncated`] asks for more bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let (kind, len) = (reader.u8()?, usize::from(reader.u16()?));
        let (place, frames) = (reader.u32()?, reader.u16()?);
        let kind = [BlockKind::Header, BlockKind::State, BlockKind::Inputs, BlockKind::End]
            .into_iter()
            .find(|known| *known as u8 == kind);
        let kind = kind.ok_or(DecodeError::Malformed)?;
        let frames_fit = frames <= if kind == BlockKind::Inputs { MAX_BLOCK_FRAMES } else { 0 };
        match frames_fit && len <= MAX_PAYLOAD && place.checked_add(u32::from(frames)).is_some() {
            true => Ok(Self { kind, payload_len: len, position: place, frames }),
            false => Err(DecodeError::Malformed),
        }
    }

    /// Bytes of the whole block.
    pub(super) fn size(self) -> usize {
        BLOCK_HEAD_SIZE + self.payload_len + CHECKSUM_SIZE
    }
}

/// The checksum of a whole block, if it is right.
pub(super) fn verify_checksum(seed: u64, block: &[u8]) -> Option<u64> {
    let (summed, sum) = block.split_last_chunk()?;
    let sum = u64::from_le_bytes(*sum);
    (sum == xxh64(seed, summed)).then_some(sum)
}
