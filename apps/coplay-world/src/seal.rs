//! What goes between servers is sealed: whoever can reach them, or runs a router between them, is none of them.
//!
//! ```text
//! source   4    who it is from
//! run     16    a number that this run of the server drew
//! number   8    of this message in the run
//! content       sealed by XChaCha20-Poly1305; all before it, and what it is for, is authenticated with it
//! ```
//!
//! Whether a message is no recording is for [`Acquaintances`](crate::replay_guard::ReplayGuard) to say.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use coplay::mirror::SourceId;
use coplay_net::key::{Secret, random_bytes};

const HEADER_LEN: usize = 4 + 16 + 8;

/// A run of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerRun {
    /// Who it is.
    pub source: SourceId,
    run: [u8; 16],
}

/// What a message is for. It cannot be taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// So that others know of us.
    Hello,
    /// For the mirrors of all.
    All,
    /// For the mirror of one.
    One(SourceId),
}

impl Topic {
    /// What is authenticated with a message.
    fn associated_data(self, source: [u8; 4]) -> [u8; 9] {
        let (kind, target) = match self {
            Self::Hello => (0, 0),
            Self::All => (1, 0),
            Self::One(target) => (2, target.0),
        };
        let mut bytes = [kind; 9];
        bytes[1..5].copy_from_slice(&source);
        bytes[5..].copy_from_slice(&target.to_le_bytes());
        bytes
    }
}

/// A message that only a server of this world can have sealed, now or at any time before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedMessage {
    /// Who said it.
    pub from: ServerRun,
    /// The how manieth of that run it is.
    pub sequence: u64,
    /// What it says.
    pub payload: Vec<u8>,
}

/// Seals what we say.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    source: SourceId,
    run: [u8; 16],
    sequence: u64,
}

/// Opens what others say.
pub struct Opener {
    cipher: XChaCha20Poly1305,
}

fn cipher(secret: &Secret) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&secret.derive("world servers").into())
}

impl Sealer {
    /// For a server of the world with this secret.
    pub fn new(secret: &Secret, source: SourceId) -> Self {
        Self { cipher: cipher(secret), source, run: random_bytes(), sequence: 0 }
    }

    /// Seals something.
    ///
    /// # Panics
    /// Never: nothing is too long to be sealed.
    pub fn seal(&mut self, topic: Topic, content: &[u8]) -> Vec<u8> {
        self.sequence += 1;
        let source = self.source.0.to_le_bytes();
        let mut message = Vec::with_capacity(HEADER_LEN + content.len() + 16);
        message.extend_from_slice(&source);
        message.extend_from_slice(&self.run);
        message.extend_from_slice(&self.sequence.to_le_bytes());
        let payload = Payload { msg: content, aad: &topic.associated_data(source) };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&message[4..HEADER_LEN]), payload).expect("it is short");
        message.extend_from_slice(&sealed);
        message
    }
}

impl Opener {
    /// For a server of the world with this secret.
    pub fn new(secret: &Secret) -> Self {
        Self { cipher: cipher(secret) }
    }

    /// Who said what; `None` if it is not from a server of this world, or for something else.
    pub fn open(&self, topic: Topic, message: &[u8]) -> Option<OpenedMessage> {
        let (head, sealed) = message.split_at_checked(HEADER_LEN)?;
        let source = *head.first_chunk()?;
        let (run, number) = (*head[4..].first_chunk()?, u64::from_le_bytes(*head[20..].first_chunk()?));
        let payload = Payload { msg: sealed, aad: &topic.associated_data(source) };
        let content = self.cipher.decrypt(XNonce::from_slice(&head[4..]), payload).ok()?;
        Some(OpenedMessage {
            from: ServerRun { source: SourceId(u32::from_le_bytes(source)), run },
            sequence: number,
            payload: content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_open_only_with_the_secret_and_for_their_topic() {
        let (secret, other) = (Secret::from_text("one"), Secret::from_text("other"));
        let mut sealer = Sealer::new(&secret, SourceId(7));
        let opener = Opener::new(&secret);
        let [first, second] = [b"first", b"secnd"].map(|content| sealer.seal(Topic::One(SourceId(3)), content));
        let open = |message: &[u8]| opener.open(Topic::One(SourceId(3)), message);
        let opened = open(&first).expect("it is ours");
        assert_eq!((opened.from.source, opened.sequence, &opened.payload[..]), (SourceId(7), 1, &b"first"[..]));
        assert_eq!(open(&second).map(|second| (second.from, second.sequence)), Some((opened.from, 2)));
        for elsewhere in [Topic::Hello, Topic::All, Topic::One(SourceId(4))] {
            assert_eq!(opener.open(elsewhere, &second), None, "{elsewhere:?}");
        }
        assert_eq!(Opener::new(&other).open(Topic::One(SourceId(3)), &second), None, "a stranger");
        for at in 0..second.len() {
            let mut forged = second.clone();
            forged[at] ^= 1;
            assert_eq!(open(&forged), None, "byte {at}");
        }
        assert_eq!(open(&second[..20]), None);
    }
}
