//! What goes between servers is sealed: whoever can reach them, or runs a router between them, is none of them.
//!
//! ```text
//! source   4    who it is from
//! run     16    a number that this run of the server drew
//! number   8    of this message in the run
//! content       sealed by XChaCha20-Poly1305; all before it is authenticated with it
//! ```
//!
//! A message is taken once: numbers of a run only grow.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use coplay::mirror::Source;
use coplay_net::key::{Secret, random};

const HEAD: usize = 4 + 16 + 8;
/// Runs that are remembered; a world has far fewer.
const MAX_RUNS: usize = 1_024;

/// Seals what we say.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    source: Source,
    run: [u8; 16],
    number: u64,
}

/// Opens what others say.
pub struct Opener {
    cipher: XChaCha20Poly1305,
    newest: BTreeMap<(Source, [u8; 16]), u64>,
}

fn cipher(secret: &Secret) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&secret.derive("world servers").into())
}

impl Sealer {
    /// For a server of the world with this secret.
    pub fn new(secret: &Secret, source: Source) -> Self {
        Self { cipher: cipher(secret), source, run: random(), number: 0 }
    }

    /// Seals something.
    ///
    /// # Panics
    /// Never: nothing is too long to be sealed.
    pub fn seal(&mut self, content: &[u8]) -> Vec<u8> {
        self.number += 1;
        let mut message = Vec::with_capacity(HEAD + content.len() + 16);
        message.extend_from_slice(&self.source.0.to_le_bytes());
        message.extend_from_slice(&self.run);
        message.extend_from_slice(&self.number.to_le_bytes());
        let payload = Payload { msg: content, aad: &message[..4] };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&message[4..HEAD]), payload).expect("it is short");
        message.extend_from_slice(&sealed);
        message
    }
}

impl Opener {
    /// For a server of the world with this secret.
    pub fn new(secret: &Secret) -> Self {
        Self { cipher: cipher(secret), newest: BTreeMap::new() }
    }

    /// Who said what; `None` if it is not from a server of this world, or was taken before.
    pub fn open(&mut self, message: &[u8]) -> Option<(Source, Vec<u8>)> {
        let (head, sealed) = message.split_at_checked(HEAD)?;
        let source = Source(u32::from_le_bytes(*head.first_chunk()?));
        let (run, number) = (*head[4..].first_chunk()?, u64::from_le_bytes(*head[20..].first_chunk()?));
        let payload = Payload { msg: sealed, aad: &head[..4] };
        let content = self.cipher.decrypt(XNonce::from_slice(&head[4..]), payload).ok()?;
        if self.newest.len() >= MAX_RUNS && !self.newest.contains_key(&(source, run)) {
            self.newest.clear();
        }
        let newest = self.newest.entry((source, run)).or_default();
        if number <= *newest {
            return None;
        }
        *newest = number;
        Some((source, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_is_heard_and_only_once() {
        let (secret, other) = (Secret::from_text("one"), Secret::from_text("other"));
        let mut sealer = Sealer::new(&secret, Source(7));
        let mut opener = Opener::new(&secret);
        let [first, second] = [b"first", b"secnd"].map(|content| sealer.seal(content));
        assert_eq!(opener.open(&first), Some((Source(7), b"first".to_vec())));
        assert_eq!(opener.open(&first), None, "once");
        assert_eq!(Opener::new(&other).open(&second), None, "a stranger");
        for at in 0..second.len() {
            let mut forged = second.clone();
            forged[at] ^= 1;
            assert_eq!(opener.open(&forged), None, "byte {at}");
        }
        assert_eq!(opener.open(&second[..20]), None);
        assert_eq!(opener.open(&second), Some((Source(7), b"secnd".to_vec())));
    }
}
