//! Comparing states: the newest digests of one site, kept until the others' come.

use crate::frame::Frame;

/// Digests kept; the sites are never further apart than a few frames, so a few are plenty.
const KEPT: usize = 8;

/// The newest digests of one site's states.
#[derive(Debug, Default)]
pub(super) struct Digests {
    kept: [Option<(Frame, u32)>; KEPT],
    next: usize,
}

impl Digests {
    /// Keeps a digest; `false` if that of this frame is kept already.
    pub(super) fn insert(&mut self, frame: Frame, digest: u32) -> bool {
        if self.get(frame).is_some() {
            return false;
        }
        self.kept[self.next % KEPT] = Some((frame, digest));
        self.next = (self.next + 1) % KEPT;
        true
    }

    pub(super) fn get(&self, frame: Frame) -> Option<u32> {
        self.kept.iter().flatten().find(|(kept, _)| *kept == frame).map(|(_, digest)| *digest)
    }

    pub(super) fn newest(&self) -> Option<(Frame, u32)> {
        self.kept.iter().flatten().max_by_key(|(frame, _)| *frame).copied()
    }
}
