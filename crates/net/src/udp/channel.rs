//! A secured way between two peers: every datagram is encrypted, authenticated and taken once.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use coplay::time::Instant;
use snow::StatelessTransportState;

use super::replay::Seen;
use super::{DATA, TAG};
use crate::key::PeerKey;

/// What a datagram of data has in front: its kind, the number that the receiver gave the channel, and its own.
pub(super) const HEAD: usize = 9;

/// One end of a channel. Sending and receiving do not wait for each other.
#[derive(Debug)]
pub struct Channel {
    /// Who is at the other end.
    pub peer: PeerKey,
    /// What the other end calls the channel.
    theirs: u32,
    cipher: StatelessTransportState,
    sent: AtomicU64,
    seen: Mutex<Seen>,
    addr: Mutex<SocketAddr>,
    /// When a genuine datagram last came, in nanoseconds.
    heard: AtomicI64,
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It came before, or is too old to tell.
    Again,
    /// It was not made by the peer, or damaged on the way.
    Forged,
}

impl Channel {
    pub(super) fn new(
        now: Instant,
        peer: PeerKey,
        theirs: u32,
        cipher: StatelessTransportState,
        addr: SocketAddr,
    ) -> Self {
        Self {
            peer,
            theirs,
            cipher,
            sent: AtomicU64::new(0),
            seen: Mutex::new(Seen::new()),
            addr: Mutex::new(addr),
            heard: AtomicI64::new(now.as_nanos()),
        }
    }

    /// Where the peer was last heard.
    pub fn addr(&self) -> SocketAddr {
        *self.addr.lock().expect("nobody panics with it")
    }

    /// When it was.
    pub fn heard(&self) -> Instant {
        Instant::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// Puts a datagram into `out`, ready to be sent to [`addr`](Self::addr); says how long it is, or `None` if there is no room.
    pub fn seal(&self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let (head, body) = out.split_at_mut_checked(HEAD)?;
        head[0] = DATA;
        head[1..5].copy_from_slice(&self.theirs.to_le_bytes());
        head[5..9].copy_from_slice(&(number as u32).to_le_bytes());
        let len = self.cipher.write_message(number, bytes, body).ok()?;
        Some(HEAD + len)
    }

    /// Opens a datagram of data into `out`; says how long its content is.
    pub(super) fn open(&self, now: Instant, from: SocketAddr, bytes: &[u8], out: &mut [u8]) -> Result<usize, Refused> {
        let (head, body) = bytes.split_at_checked(HEAD).filter(|(_, body)| body.len() >= TAG).ok_or(Refused::Forged)?;
        let low = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
        let mut seen = self.seen.lock().expect("nobody panics with it");
        let number = seen.widen(low);
        if !seen.is_new(number) {
            return Err(Refused::Again);
        }
        let len = self.cipher.read_message(number, body, out).map_err(|_| Refused::Forged)?;
        let newest = seen.note(number);
        drop(seen);
        self.heard.store(now.as_nanos(), Ordering::Relaxed);
        // A peer is where its newest datagram came from: it may have moved.
        if newest {
            *self.addr.lock().expect("nobody panics with it") = from;
        }
        Ok(len)
    }
}
