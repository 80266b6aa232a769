//! Code that is written byte by byte.

/// Bytes that will be at some address.
pub(super) struct Assembler {
    origin: u16,
    bytes: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(origin: u16) -> Self {
        Self { origin, bytes: Vec::new() }
    }

    /// Where the next byte goes.
    pub(super) fn address(&self) -> u16 {
        self.origin + self.bytes.len() as u16
    }

    pub(super) fn emit(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A branch of two bytes, back to where something was.
    pub(super) fn emit_branch(&mut self, op: u8, to: u16) {
        let by = i32::from(to) - i32::from(self.address()) - 2;
        let by = i8::try_from(by).expect("a branch is short");
        self.emit(&[op, by as u8]);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
