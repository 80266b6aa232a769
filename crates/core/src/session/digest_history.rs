//! Digest history: the digests of one site's newest frames, kept for the comparison with those of other sites.

use alloc::boxed::Box;

use crate::frame::Frame;

/// Number of slots: the largest distance between two sites in frames, so that no two frames that are still compared
/// share one.
const MAX_DIGESTS: usize = 256;

/// A site's digest of a frame: the folded hash of its state after the frame, and the rolling hash of all its inputs up
/// to and including the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameDigest {
    pub(super) state_hash: u32,
    pub(super) input_digest: u64,
}

/// Ring of the newest digests of one site, by frame. `T` is a [`FrameDigest`], or a single hash.
#[derive(Debug)]
pub(super) struct DigestHistory<T = u64> {
    slots: Box<[Option<(Frame, T)>; MAX_DIGESTS]>,
    newest: Option<(Frame, T)>,
}

impl<T: Copy> Default for DigestHistory<T> {
    fn default() -> Self {
        Self { slots: Box::new([None; MAX_DIGESTS]), newest: None }
    }
}

impl<T: Copy> DigestHistory<T> {
    /// Stores a digest. Returns `false` and keeps the stored one if there is a digest of this frame already.
    pub(super) fn insert(&mut self, frame: Frame, digest: T) -> bool {
        let is_new = self.get(frame).is_none();
        if is_new {
            self.replace(frame, digest);
        }
        is_new
    }

    /// Stores a digest, and replaces the stored one of this frame if there is one.
    pub(super) fn replace(&mut self, frame: Frame, digest: T) {
        self.slots[Self::slot(frame)] = Some((frame, digest));
        if self.newest.is_none_or(|(newest, _)| frame >= newest) {
            self.newest = Some((frame, digest));
        }
    }

    pub(super) fn get(&self, frame: Frame) -> Option<T> {
        self.slots[Self::slot(frame)].filter(|(kept, _)| *kept == frame).map(|(_, digest)| digest)
    }

    fn slot(frame: Frame) -> usize {
        frame.number() as usize % MAX_DIGESTS
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(super) fn newest(&self) -> Option<(Frame, T)> {
        self.newest
    }
}

/// Folds a state hash to the 32 bits that packets carry.
pub(super) fn fold_hash(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}
