//! Code that is written byte by byte.

/// Bytes that will be at some address.
pub(super) struct Code {
    origin: u16,
    bytes: Vec<u8>,
}

impl Code {
    pub(super) fn new(origin: u16) -> Self {
        Self { origin, bytes: Vec::new() }
    }

    /// Where the next byte goes.
    pub(super) fn here(&self) -> u16 {
        self.origin + self.bytes.len() as u16
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A branch of two bytes, back to where something was.
    pub(super) fn branch(&mut self, op: u8, to: u16) {
        let by = i32::from(to) - i32::from(self.here()) - 2;
        let by = i8::try_from(by).expect("a branch is short");
        self.put(&[op, by as u8]);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
