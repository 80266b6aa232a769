//! Secured channel between two peers: every datagram is encrypted, authenticated, and accepted at most once.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use coplay::time::Instant;
use snow::StatelessTransportState;

use super::{DATA, TAG_LEN};
use crate::key::PeerKey;
use crate::seal::ReplayFilter;

/// Length of a data header, in bytes: type, the receiver's channel number, and the packet number.
pub(super) const HEADER_LEN: usize = 9;

/// One end of an encrypted channel to a peer. Sending and receiving do not block each other.
#[derive(Debug)]
pub struct SecureChannel {
    /// Public key that the peer proved in the handshake.
    pub peer: PeerKey,
    /// Number that the peer chose for the channel; every datagram to the peer carries this number.
    remote_index: u32,
    cipher: StatelessTransportState,
    next_number: AtomicU64,
    replay_filter: Mutex<ReplayFilter>,
    addr: Mutex<SocketAddr>,
    /// Arrival time of the last authentic datagram in nanoseconds; at first the time of the handshake.
    last_received: AtomicI64,
}

/// Reason why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecryptError {
    /// The datagram was received before, or is too old to decide.
    Replayed,
    /// The datagram is too short, not from the peer, or damaged in transit.
    Forged,
}

impl SecureChannel {
    pub(super) fn new(
        now: Instant,
        peer: PeerKey,
        remote_index: u32,
        cipher: StatelessTransportState,
        addr: SocketAddr,
    ) -> Self {
        Self {
            peer,
            remote_index,
            cipher,
            next_number: AtomicU64::new(0),
            replay_filter: Mutex::new(ReplayFilter::new()),
            addr: Mutex::new(addr),
            last_received: AtomicI64::new(now.as_nanos()),
        }
    }

    /// Returns the address from which the newest datagram of the peer came; at first that of the handshake.
    pub fn addr(&self) -> SocketAddr {
        *self.addr.lock().expect("no thread panics while holding it")
    }

    /// Returns the arrival time of the last authentic datagram, or the time of the handshake if none has arrived.
    pub fn last_received(&self) -> Instant {
        Instant::from_nanos(self.last_received.load(Ordering::Relaxed))
    }

    /// Seals a datagram into `out`, to be sent to [`addr`](Self::addr). Returns its length, or `None` if `out` is too
    /// short.
    pub fn seal(&self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (head, body) = out.split_at_mut_checked(HEADER_LEN)?;
        head[0] = DATA;
        head[1..5].copy_from_slice(&self.remote_index.to_le_bytes());
        head[5..9].copy_from_slice(&(number as u32).to_le_bytes());
        let len = self.cipher.write_message(number, bytes, body).ok()?;
        Some(HEADER_LEN + len)
    }

    /// Opens a data datagram into `out`. Returns the length of its content.
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
        let mut replay_filter = self.replay_filter.lock().expect("no thread panics while holding it");
        let number = replay_filter.expand_number(low);
        if !replay_filter.is_new(number) {
            return Err(DecryptError::Replayed);
        }
        let len = self.cipher.read_message(number, body, out).map_err(|_| DecryptError::Forged)?;
        let newest = replay_filter.record(number);
        drop(replay_filter);
        self.last_received.store(now.as_nanos(), Ordering::Relaxed);
        // The newest datagram determines the peer's address: the peer may have moved.
        if newest {
            *self.addr.lock().expect("no thread panics while holding it") = from;
        }
        Ok(len)
    }
}
