//! Blocks: the units of a movie file. A block that is incomplete or has a wrong checksum is rejected as a whole.

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::hash::xxh64;

/// Largest number of frames in a block: ten seconds at 60 frames per second. An interrupted recording loses the frames
/// of its unfinished block, at most this many, if all finished bytes were written to the file.
pub const MAX_BLOCK_FRAMES: u16 = 600;
/// Largest payload of a block in bytes, without head and checksum.
pub(super) const MAX_PAYLOAD: usize = 4_096;
/// Size of the block head in bytes, before the payload.
pub(super) const BLOCK_HEAD_SIZE: usize = 9;
/// Size of the checksum in bytes, after the payload.
pub(super) const CHECKSUM_SIZE: usize = 8;
/// Largest size of a block in bytes.
pub(super) const MAX_BLOCK_SIZE: usize = BLOCK_HEAD_SIZE + MAX_PAYLOAD + CHECKSUM_SIZE;

/// Kind of a block, encoded in its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Header = 1,
    State = 2,
    Inputs = 3,
    End = 4,
}

/// Block head: the fields before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub(super) kind: BlockKind,
    /// Payload size in bytes.
    pub(super) payload_len: usize,
    /// For inputs, the first frame of the block; for the header, the first frame of the movie; for a piece of the
    /// state, its byte offset in the state; for the end, the frame after the last.
    pub(super) position: u32,
    /// Number of frames in the block; 0 unless it holds inputs.
    pub(super) frames: u16,
}

impl BlockHead {
    /// Writes the head in front of a payload that is already in `block`, and the checksum behind it. Returns the size
    /// of the block.
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

    /// Decodes a head before its checksum is verified. [`DecodeError::Truncated`] means that more bytes are needed.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let (kind, len) = (reader.u8()?, usize::from(reader.u16()?));
        let (position, frames) = (reader.u32()?, reader.u16()?);
        let kind = [BlockKind::Header, BlockKind::State, BlockKind::Inputs, BlockKind::End]
            .into_iter()
            .find(|known| *known as u8 == kind);
        let kind = kind.ok_or(DecodeError::Malformed)?;
        let frames_fit = frames <= if kind == BlockKind::Inputs { MAX_BLOCK_FRAMES } else { 0 };
        match frames_fit && len <= MAX_PAYLOAD && position.checked_add(u32::from(frames)).is_some() {
            true => Ok(Self { kind, payload_len: len, position, frames }),
            false => Err(DecodeError::Malformed),
        }
    }

    /// Returns the size of the whole block in bytes.
    pub(super) fn size(self) -> usize {
        BLOCK_HEAD_SIZE + self.payload_len + CHECKSUM_SIZE
    }
}

/// Returns the checksum of a whole block if it is correct.
pub(super) fn verify_checksum(seed: u64, block: &[u8]) -> Option<u64> {
    let (summed, sum) = block.split_last_chunk()?;
    let sum = u64::from_le_bytes(*sum);
    (sum == xxh64(seed, summed)).then_some(sum)
}
