//! Sealing of messages between servers: an attacker that can reach the servers, or runs a router between them, but does
//! not know the secret, cannot act as a server.
//!
//! ```text
//! source     4    sender
//! run       16    random number of the sender's run
//! sequence   8    number of the message in the run
//! payload         sealed by [`coplay_net::seal`]; the header and the topic are authenticated with it
//! ```
//!
//! [`ReplayGuard`](crate::replay_guard::ReplayGuard) rejects replayed messages.

use coplay::mirror::SourceId;
use coplay_net::key::Secret;
use coplay_net::seal::{Opener, RunId, Sealer, TAG_LEN};

const HEADER_LEN: usize = 4 + 16 + 8;

/// One run of a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerRun {
    /// Id that the server drew at random for this run.
    pub source: SourceId,
    run: RunId,
}

/// Topic of a message. A message cannot be used for another topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Hello, by which servers find and verify each other.
    Hello,
    /// Datagram for the mirrors of all servers.
    All,
    /// Datagram for the mirror of one server.
    One(SourceId),
}

impl Topic {
    /// Returns the additional data that the cipher authenticates with a message from `source`: the topic and the
    /// source.
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

/// Decrypted message that a server of this world sealed. It may be a replay of an old message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedMessage {
    /// Server run that sealed the message.
    pub from: ServerRun,
    /// Number of the message in the sender's run, from 1.
    pub sequence: u64,
    /// Decrypted contents.
    pub payload: Vec<u8>,
}

/// Sealing end: encrypts and numbers the messages of this server run.
pub struct ServerSealer {
    sealer: Sealer,
    source: SourceId,
}

/// Opening end: decrypts the messages of other servers.
pub struct ServerOpener {
    opener: Opener,
}

fn key(secret: &Secret) -> [u8; 32] {
    secret.derive("world servers")
}

impl ServerSealer {
    /// Creates the sealer of a new server run, in the world with this secret.
    pub fn new(secret: &Secret, source: SourceId) -> Self {
        Self { sealer: Sealer::new(&key(secret), Sealer::random_run_id(), 1), source }
    }

    /// Encrypts and numbers a message.
    ///
    /// # Panics
    /// Never: no message exceeds the limit of the cipher.
    pub fn seal(&mut self, topic: Topic, payload: &[u8]) -> Vec<u8> {
        let source = self.source.0.to_le_bytes();
        let mut message = Vec::with_capacity(HEADER_LEN + payload.len() + TAG_LEN);
        message.extend_from_slice(&source);
        message.extend_from_slice(&self.sealer.run_id());
        message.extend_from_slice(&self.sealer.next_number().to_le_bytes());
        self.sealer.seal(&topic.associated_data(source), payload, &mut message).expect("the message is short enough");
        message
    }
}

impl ServerOpener {
    /// Creates the opener for messages of the world with this secret.
    pub fn new(secret: &Secret) -> Self {
        Self { opener: Opener::new(&key(secret)) }
    }

    /// Opens a message; `None` if it was sealed with another secret or for another topic, or was changed.
    pub fn open(&self, topic: Topic, message: &[u8]) -> Option<OpenedMessage> {
        let (header, sealed) = message.split_at_checked(HEADER_LEN)?;
        let source = *header.first_chunk()?;
        let (run, sequence) = (*header[4..].first_chunk()?, u64::from_le_bytes(*header[20..].first_chunk()?));
        let payload = self.opener.open(&run, sequence, &topic.associated_data(source), sealed)?;
        Some(OpenedMessage { from: ServerRun { source: SourceId(u32::from_le_bytes(source)), run }, sequence, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_open_only_with_the_secret_and_for_their_topic() {
        let (secret, other) = (Secret::from_text("one"), Secret::from_text("other"));
        let mut sealer = ServerSealer::new(&secret, SourceId(7));
        let opener = ServerOpener::new(&secret);
        let [first, second] = [b"first", b"secnd"].map(|payload| sealer.seal(Topic::One(SourceId(3)), payload));
        let open = |message: &[u8]| opener.open(Topic::One(SourceId(3)), message);
        let opened = open(&first).expect("the message opens");
        assert_eq!((opened.from.source, opened.sequence, &opened.payload[..]), (SourceId(7), 1, &b"first"[..]));
        assert_eq!(open(&second).map(|second| (second.from, second.sequence)), Some((opened.from, 2)));
        for other_topic in [Topic::Hello, Topic::All, Topic::One(SourceId(4))] {
            assert_eq!(opener.open(other_topic, &second), None, "{other_topic:?}");
        }
        let other_opener = ServerOpener::new(&other);
        assert_eq!(other_opener.open(Topic::One(SourceId(3)), &second), None, "opened with another secret");
        for at in 0..second.len() {
            let mut forged = second.clone();
            forged[at] ^= 1;
            assert_eq!(open(&forged), None, "byte {at} is not authenticated");
        }
        assert_eq!(open(&second[..20]), None);
    }

    /// The expected bytes come from another implementation of the cipher (PyCryptodome).
    #[test]
    fn a_message_has_known_bytes() {
        let mut sealer = ServerSealer { sealer: Sealer::new(&[1; 32], [5; 16], 1), source: SourceId(7) };
        let known = [
            0x07, 0x00, 0x00, 0x00, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05,
            0x05, 0x05, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0xfe, 0xeb, 0x5e, 0x57, 0xdb, 0x95, 0x66,
            0x98, 0x1e, 0x75, 0x75, 0xb6, 0xff, 0x9f, 0xcc, 0x9a, 0x4c, 0xa3, 0xa0, 0x60,
        ];
        assert_eq!(sealer.seal(Topic::One(SourceId(3)), b"hello"), known);
    }
}
