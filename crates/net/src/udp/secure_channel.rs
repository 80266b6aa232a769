//! A secured way between two peers: every datagram is encrypted, authenticated and taken once.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use coplay::time::Instant;
use snow::StatelessTransportState;

use super::replay::ReplayFilter;
use super::{DATA, TAG_LEN};
use crate::key::PeerKey;

/// What a datagram of data has in front: its kind, the number that the receiver gave the channel, and its own.
pub(super) const HEADER_LEN: usize = 9;

/// One end of a channel. Sending and receiving do not wait for each other.
#[derive(Debug)]
pub struct SecureChannel {
    /// Who is at the other end.
    pub peer: PeerKey,
    /// What the other end calls the channel.
    remote_index: u32,
    cipher: StatelessTransportState,
    next_number: AtomicU64,
    replay_filter: Mutex<ReplayFilter>,
    addr: Mutex<SocketAddr>,
    /// When a genuine datagram last came, in nanoseconds.
    last_received: AtomicI64,
}

/// Why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecryptError {
    /// It came before, or is too old to tell.
    Replayed,
    /// It was not made by the peer, or damaged on the way.
    Forged,
}

impl SecureChannel {
    pub(super) fn new(
        now: Instant,
        peer: PeerKey,
        theirs: u32,
        cipher: StatelessTransportState,
        addr: SocketAddr,
    ) -> Self {
        Self {
            peer,
            remote_index: theirs,
            cipher,
            next_number: AtomicU64::new(0),
            replay_filter: Mutex::new(ReplayFilter::new()),
            addr: Mutex::new(addr),
            last_received: AtomicI64::new(now.as_nanos()),
        }
    }

    /// Where the peer was last heard.
    pub fn addr(&self) -> SocketAddr {
        *self.addr.lock().expect("nobody panics with it")
    }

    /// When it was.
    pub fn last_received(&self) -> Instant {
        Instant::from_nanos(self.last_received.load(Ordering::Relaxed))
    }

    /// Puts a datagram into `out`, ready to be sent to [`addr`](Self::addr); says how long it is, or `None` if there is no room.
    pub fn seal(&self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (head, body) = out.split_at_mut_checked(HEADER_LEN)?;
        head[0] = DATA;
        head[1..5].copy_from_slice(&self.remote_index.to_le_bytes());
        head[5..9].copy_from_slice(&(number as u32).to_le_bytes());
        let len = self.cipher.write_message(number, bytes, body).ok()?;
        Some(HEADER_LEN + len)
    }

    /// Opens a datagram of data into `out`; says how long its content is.
    pub(super) fn open(
        &self,
        now: Instant,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<usize, DecryptError> {
        let (head, body) =
            bytes.split_at_checked(HEADER_LEN).filter(|(_, body)| body.len() >= TAG_LEN).ok_or(DecryptError::Forged)?;
        let low = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
        let mut seen = self.replay_filter.lock().expect("nobody panics with it");
        let number = seen.expand_number(low);
        if !seen.is_new(number) {
            return Err(DecryptError::Replayed);
        }
        let len = self.cipher.read_message(number, body, out).map_err(|_| DecryptError::Forged)?;
        let newest = seen.record(number);
        drop(seen);
        self.last_received.store(now.as_nanos(), Ordering::Relaxed);
        // A peer is where its newest datagram came from: it may have moved.
        if newest {
            *self.addr.lock().expect("nobody panics with it") = from;
        }
        Ok(len)
    }
}
