//! Comparing states: the newest digests of one site, kept until the others' come.

use alloc::boxed::Box;

use crate::frame::Frame;

/// Digests kept: as many as the sites can be frames apart, so that no two of interest share a place.
const MAX_DIGESTS: usize = 256;

/// What a site tells of a frame: the hash of its state, folded, and that of all its inputs so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameDigest {
    pub(super) state_hash: u32,
    pub(super) input_digest: u64,
}

/// The newest digests of one site's states.
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
    /// Keeps a digest; `false` if that of this frame is kept already.
    pub(super) fn insert(&mut self, frame: Frame, digest: T) -> bool {
        let news = self.get(frame).is_none();
        if news {
            self.replace(frame, digest);
        }
        news
    }

    /// Keeps a digest in place of what was kept for this frame.
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

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(super) fn newest(&self) -> Option<(Frame, T)> {
        self.newest
    }
}
