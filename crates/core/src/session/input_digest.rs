//! A rolling hash of one site's inputs.
//!
//! Inputs may arrive through a third site, which could forge them. So every site sends, with the hash of its state, a
//! hash of all inputs that it has given so far. A site that holds forged inputs detects them with the first such hash
//! for a later frame that it receives directly. The hash is SHA-256, truncated to 64 bits, over the input changes since
//! the previous compared frame and the hash at that frame. A third site cannot find other inputs with the same hash
//! while the game runs.

use sha2::{Digest, Sha256};

use crate::frame::Frame;
use crate::input::{MAX_BLOCKS, PackedInputPart, Stream};

/// The rolling hash of one site's inputs. It is computed in intervals, each of which ends with a compared frame.
#[derive(Clone, Debug)]
pub(super) struct InputDigest {
    hasher: Sha256,
    last_input: [PackedInputPart; MAX_BLOCKS],
    /// The frame of the last input change; the start of the interval if the input has not changed in it.
    last_change: Frame,
    /// The first frame whose input the hash includes.
    first_frame: Frame,
    /// End of the inputs that the hash includes.
    end: Frame,
    /// The hash at the end of the previous interval, 0 before the first one; `None` if this site joined later and does
    /// not know it yet.
    last_value: Option<u64>,
}

impl InputDigest {
    /// Creates the hash of a stream that begins with this frame.
    pub(super) fn new(first: Frame) -> Self {
        Self {
            hasher: Sha256::new(),
            last_input: [[0; 16]; MAX_BLOCKS],
            last_change: first,
            first_frame: first,
            end: first,
            last_value: Some(0),
        }
    }

    /// Creates the hash of a stream whose earlier inputs are not known.
    pub(super) fn with_unknown_start(first: Frame) -> Self {
        Self { last_value: None, ..Self::new(first) }
    }

    /// Continues after `frame` with `value`, which the site itself sent as the hash of its inputs up to and including
    /// `frame`.
    pub(super) fn adopt(&mut self, stream: &Stream, frame: Frame, value: u64) {
        let next = Self::new(frame.next());
        let blocks = stream.block_count();
        *self = Self { last_value: Some(value), ..next };
        if let Some(known) = stream.value_blocks(frame) {
            self.last_input[..blocks].copy_from_slice(known);
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.last_value.is_some()
    }

    /// Adds the inputs before `until`, all of which must be known. `absent` returns whether the site gives no input for
    /// a frame; its input then counts as neutral.
    pub(super) fn advance(&mut self, stream: &Stream, until: Frame, absent: impl Fn(Frame) -> bool) {
        const NEUTRAL: &[PackedInputPart] = &[[0; 16]; MAX_BLOCKS];
        let blocks = stream.block_count();
        while self.end < until {
            let frame = self.end;
            self.end = frame.next();
            let input = stream.value_blocks(frame).filter(|_| !absent(frame)).unwrap_or(&NEUTRAL[..blocks]);
            if input != &self.last_input[..blocks] {
                self.last_input[..blocks].copy_from_slice(input);
                self.hash_change(frame, stream.width());
            }
        }
    }

    /// Hashes a change in few bytes, because hashing is expensive: the distance to the previous change and the new
    /// value.
    fn hash_change(&mut self, frame: Frame, width: usize) {
        let since = (frame - self.last_change).clamp(0, i64::from(u16::MAX)) as u16;
        self.last_change = frame;
        self.hasher.update(since.to_le_bytes());
        self.hasher.update(&self.last_input.as_flattened()[..width]);
    }

    /// Ends the interval at a compared frame, up to which the inputs must have been added, and returns the hash.
    /// Returns `None` if the frame is before the first frame, or if the hash at the end of the previous interval is
    /// unknown.
    pub(super) fn close_interval(&mut self, frame: Frame) -> Option<u64> {
        if frame < self.first_frame {
            return None;
        }
        self.last_change = self.end;
        let mut changes = core::mem::take(&mut self.hasher);
        changes.update(self.last_value?.to_le_bytes());
        let hash = <[u8; 32]>::from(changes.finalize());
        self.last_value = hash.first_chunk().copied().map(u64::from_le_bytes);
        self.last_value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(values: &[u8]) -> Stream {
        let mut stream = Stream::new(1, Frame::ZERO);
        values.iter().for_each(|value| stream.push(&[*value]));
        stream
    }

    fn digest_value(values: &[u8], cuts: &[u32]) -> Option<u64> {
        let (stream, mut digest) = (stream(values), InputDigest::new(Frame::ZERO));
        cuts.iter().for_each(|cut| digest.advance(&stream, Frame::new(*cut), |_| false));
        digest.close_interval(Frame::new(values.len() as u32))
    }

    #[test]
    fn digest_depends_on_every_input_and_not_on_batching() {
        let inputs = [0, 0, 5, 5, 7, 7, 7, 0];
        assert_eq!(digest_value(&inputs, &[8]), digest_value(&inputs, &[1, 3, 3, 8]));
        for at in 0..inputs.len() {
            let mut forged = inputs;
            forged[at] ^= 1;
            assert_ne!(digest_value(&forged, &[8]), digest_value(&inputs, &[8]), "input {at}");
        }
    }

    #[test]
    fn digests_stay_different_after_one_different_input() {
        let digests = [[1, 1, 0, 0], [2, 1, 0, 0]].map(|inputs| {
            let (stream, mut digest) = (stream(&inputs), InputDigest::new(Frame::ZERO));
            digest.advance(&stream, Frame::new(2), |_| false);
            digest.close_interval(Frame::new(1));
            digest.advance(&stream, Frame::new(4), |_| false);
            digest.close_interval(Frame::new(3))
        });
        assert_ne!(digests[0], digests[1]);
    }
}
