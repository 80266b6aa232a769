//! Comparing states: the newest digests of one site, kept until the others' come.

use alloc::boxed::Box;

use crate::frame::Frame;

/// Digests kept: as many as the sites can be frames apart, so that no two of interest share a place.
const KEPT: usize = 256;

/// The newest digests of one site's states.
#[derive(Debug)]
pub(super) struct Digests {
    kept: Box<[Option<(Frame, u64)>; KEPT]>,
    newest: Option<(Frame, u64)>,
}

impl Default for Digests {
    fn default() -> Self {
        Self { kept: Box::new([None; KEPT]), newest: None }
    }
}

impl Digests {
    /// Keeps a digest; `false` if that of this frame is kept already.
    pub(super) fn insert(&mut self, frame: Frame, digest: u64) -> bool {
        let news = self.get(frame).is_none();
        if news {
            self.replace(frame, digest);
        }
        news
    }

    /// Keeps a digest in place of what was kept for this frame.
    pub(super) fn replace(&mut self, frame: Frame, digest: u64) {
        self.kept[Self::place(frame)] = Some((frame, digest));
        if self.newest.is_none_or(|(newest, _)| frame >= newest) {
            self.newest = Some((frame, digest));
        }
    }

    pub(super) fn get(&self, frame: Frame) -> Option<u64> {
        self.kept[Self::place(frame)].filter(|(kept, _)| *kept == frame).map(|(_, digest)| digest)
    }

    fn place(frame: Frame) -> usize {
        frame.number() as usize % KEPT
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.kept)
    }

    pub(super) fn newest(&self) -> Option<(Frame, u64)> {
        self.newest
    }
}
