//! Sealing of messages for a group that shares a key: the mesh's multicast packets and the messages between world
//! servers.
//!
//! Each message is encrypted with XChaCha20-Poly1305. The nonce consists of a *run id*, which every run of a program
//! draws at random, and the message's number in that run:
//!
//! ```text
//! nonce   run id 16 bytes, number 8 bytes (little-endian)
//! sealed  the content, encrypted, and a tag of 16 bytes
//! ```
//!
//! Guarantees:
//! - No nonce repeats, also across restarts: a [`Sealer`] numbers its messages, and no two sealers have the same run
//!   id.
//! - Only a holder of the key can create a message that opens. The group's members are not distinguished: each of them
//!   can create a message that seems to come from another.
//! - What the caller passes as associated data is authenticated with the message, not sent.
//! - [`ReplayFilter`] accepts each number of a run at most once.
//!
//! The caller frames the messages: run id, number and sender travel in its own header.

mod replay_filter;

pub use replay_filter::ReplayFilter;

use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};

use crate::key::random_bytes;

/// Random number of one run of a program. It makes the nonces of this run differ from those of any earlier run.
pub type RunId = [u8; 16];

/// Bytes that sealing adds to the content.
pub const TAG_LEN: usize = 16;

/// Sealing end: encrypts and numbers the messages of one run.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    run_id: RunId,
    next_number: u64,
}

impl Sealer {
    /// Creates the sealer of a run whose first message has the number `first`.
    pub fn new(key: &[u8; 32], run_id: RunId, first: u64) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()), run_id, next_number: first }
    }

    /// Draws the run id of a new run.
    pub fn random_run_id() -> RunId {
        random_bytes()
    }

    /// Returns the run id.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// Returns the number of the next message.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Appends `content` to `message`, sealed under the next number. Returns `None`, and leaves the message as it is,
    /// if the content is longer than the cipher allows (256 GiB) or all numbers are used up.
    pub fn seal(&mut self, associated_data: &[u8], content: &[u8], message: &mut Vec<u8>) -> Option<()> {
        let number = self.next_number;
        self.next_number = number.checked_add(1)?;
        let start = message.len();
        message.extend_from_slice(content);
        let sealed =
            self.cipher.encrypt_in_place_detached(&nonce(&self.run_id, number), associated_data, &mut message[start..]);
        match sealed {
            Ok(tag) => message.extend_from_slice(&tag),
            Err(_) => message.truncate(start),
        }
        sealed.ok().map(|_| ())
    }
}

/// Opening end: decrypts the messages of all runs that share the key.
pub struct Opener {
    cipher: XChaCha20Poly1305,
}

impl Opener {
    /// Creates the opener of a group's messages.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()) }
    }

    /// Returns the content of a sealed message; `None` if it was sealed with another key, run, number or associated
    /// data, or was changed. The message may be a replay.
    pub fn open(&self, run_id: &RunId, number: u64, associated_data: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (content, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_LEN)?)?;
        let mut content = content.to_vec();
        let nonce = nonce(run_id, number);
        let tag = Tag::from_slice(tag);
        self.cipher.decrypt_in_place_detached(&nonce, associated_data, &mut content, tag).ok()?;
        Some(content)
    }
}

fn nonce(run_id: &RunId, number: u64) -> XNonce {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(run_id);
    nonce[16..].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of appendix A.3.1 of draft-irtf-cfrg-xchacha-03: its nonce is 40 to 57, so the run id is 40 to
    /// 4f and the number 50 to 57.
    #[test]
    fn a_message_is_sealed_as_in_the_published_test_vector() {
        let key = std::array::from_fn(|at| 0x80 + at as u8);
        let run_id = std::array::from_fn(|at| 0x40 + at as u8);
        let number = u64::from_le_bytes(std::array::from_fn(|at| 0x50 + at as u8));
        let associated_data = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let content = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
            sunscreen would be it.";
        let mut message = Vec::new();
        Sealer::new(&key, run_id, number).seal(&associated_data, content, &mut message).unwrap();
        assert_eq!(message[..8], [0xbd, 0x6d, 0x17, 0x9d, 0x3e, 0x83, 0xd4, 0x3b]);
        let tag = [0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79, 0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a, 0xcf, 0x49];
        assert_eq!(message[message.len() - TAG_LEN..], tag);
        assert_eq!(Opener::new(&key).open(&run_id, number, &associated_data, &message).unwrap(), content);
    }

    #[test]
    fn a_message_opens_only_unchanged_and_where_it_belongs() {
        let (key, run_id) = ([1; 32], [2; 16]);
        let (mut sealer, opener) = (Sealer::new(&key, run_id, 5), Opener::new(&key));
        let mut message = b"header".to_vec();
        sealer.seal(b"topic", b"content", &mut message).unwrap();
        assert_eq!((&message[..6], sealer.next_number()), (&b"header"[..], 6));
        let sealed = &message[6..];
        assert_eq!(opener.open(&run_id, 5, b"topic", sealed).as_deref(), Some(&b"content"[..]));
        assert_eq!(opener.open(&run_id, 6, b"topic", sealed), None, "another number");
        assert_eq!(opener.open(&[3; 16], 5, b"topic", sealed), None, "another run");
        assert_eq!(opener.open(&run_id, 5, b"other", sealed), None, "another topic");
        assert_eq!(Opener::new(&[4; 32]).open(&run_id, 5, b"topic", sealed), None, "another key");
        for len in 0..sealed.len() {
            assert_eq!(opener.open(&run_id, 5, b"topic", &sealed[..len]), None, "{len} bytes");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(opener.open(&run_id, 5, b"topic", &changed), None, "byte {at}");
        }
    }

    #[test]
    fn a_run_ends_with_its_numbers() {
        let mut sealer = Sealer::new(&[1; 32], [2; 16], u64::MAX);
        let mut message = Vec::new();
        assert_eq!(sealer.seal(&[], b"content", &mut message), None);
        assert!(message.is_empty());
    }
}
