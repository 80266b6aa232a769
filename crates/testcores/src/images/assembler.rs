//! A minimal assembler: code is emitted byte by byte.

/// Machine code that begins at a given address.
pub(super) struct Assembler {
    origin: u16,
    bytes: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(origin: u16) -> Self {
        Self { origin, bytes: Vec::new() }
    }

    /// Returns the address of the next emitted byte.
    pub(super) fn address(&self) -> u16 {
        self.origin + self.bytes.len() as u16
    }

    pub(super) fn emit(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Emits a two-byte branch to an earlier address, at most 128 bytes before the end of the branch.
    pub(super) fn emit_branch(&mut self, op: u8, to: u16) {
        let offset = i32::from(to) - i32::from(self.address()) - 2;
        let offset = i8::try_from(offset).expect("the branch is in range");
        self.emit(&[op, offset as u8]);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
