//! Reads numbers from a script. Missing bytes at its end count as zero.

/// The unread rest of a script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptReader<'a> {
    rest: &'a [u8],
}

impl<'a> ScriptReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }

    /// Returns `len` bytes, or as many as are left.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Returns a byte string, whose length is in the next byte.
    pub(crate) fn string(&mut self) -> Vec<u8> {
        let len = self.u8();
        self.take(usize::from(len)).to_vec()
    }
}
