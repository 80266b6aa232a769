//! Ranges of lost inputs, as a receiver requests them.

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};

/// Largest number of ranges of lost inputs that one packet requests.
pub const MAX_MISSING_RANGES: usize = 8;

/// Ranges of lost frames, as pairs of frame counts: frames held before the range, frames missing. The first pair counts
/// from the acknowledgement, each other one from the end of the previous range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MissingRanges {
    ranges: [(u16, u16); MAX_MISSING_RANGES],
    len: u8,
}

impl MissingRanges {
    /// Adds a range of `missing` lost frames that follow `held` received ones. Returns `false` when there is no room or
    /// a length exceeds 16 bits.
    pub fn push(&mut self, held: u32, missing: u32) -> bool {
        let (Ok(held), Ok(missing)) = (u16::try_from(held), u16::try_from(missing)) else { return false };
        let Some(slot) = self.ranges.get_mut(usize::from(self.len)) else { return false };
        *slot = (held, missing);
        self.len += 1;
        true
    }

    /// Iterates over the ranges in the order in which they were added, lowest frames first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges[..usize::from(self.len)].iter().map(|(held, missing)| (u32::from(*held), u32::from(*missing)))
    }

    /// Returns whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn encode(&self, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        writer.u8(self.len)?;
        for (held, missing) in self.iter() {
            writer.varint(held)?;
            writer.varint(missing)?;
        }
        Ok(())
    }

    /// Decodes ranges; fails if there are none, or one is empty.
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, DecodeError> {
        let mut ranges = Self::default();
        let count = reader.u8()?;
        for _ in 0..count {
            let (held, missing) = (reader.varint()?, reader.varint()?);
            if missing == 0 || !ranges.push(held, missing) {
                return Err(DecodeError::Malformed);
            }
        }
        if ranges.is_empty() { Err(DecodeError::Malformed) } else { Ok(ranges) }
    }
}
