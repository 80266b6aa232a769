//! Reliable, ordered delivery of short messages between two peers over unreliable datagrams: names, settings, chat.
//!
//! The channel is not meant for game input, which is useless when late. A message is split into fragments. Fragments
//! are numbered and acknowledged cumulatively, and unacknowledged ones are retransmitted. A restarted site chooses
//! another random *stream id*, so that no old fragment is mistaken for a new one. Every fragment also states how many
//! unacknowledged fragments precede it, so that a restarted receiver does not wait for fragments that its previous run
//! acknowledged. Every buffer is bounded.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use crate::key::random_bytes;

/// First byte of a fragment datagram.
pub const FRAGMENT: u8 = 0x40;
/// First byte of an acknowledgement datagram.
const ACK: u8 = 0x41;

/// Length of a fragment header, in bytes: type, stream id, number, flags, and the number of unacknowledged fragments
/// before it.
const HEADER_LEN: usize = 1 + 4 + 4 + 1 + 1;
const FLAG_LAST: u8 = 1;
const FLAG_FIRST: u8 = 2;
/// Maximum payload of one fragment in bytes, which fits into a datagram of any transport.
const MAX_FRAGMENT_LEN: usize = 1_000;
/// Maximum length of a message, in bytes.
pub const MAX_MESSAGE_LEN: usize = 16 * 1024;
/// Maximum number of unacknowledged fragments in the send queue, and of received messages that are not read yet.
const MAX_QUEUED: usize = 256;
/// Number of fragments, counted from the next expected one, that are buffered if they arrive out of order. Later
/// fragments are dropped.
const MAX_OUT_OF_ORDER: u32 = 64;
/// Maximum number of fragments in flight: sent, and not acknowledged.
const MAX_IN_FLIGHT: usize = 16;
const RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Time without a reply after which fragments are retransmitted less often, because the peer may be gone.
const SILENCE_THRESHOLD: TimeDelta = TimeDelta::from_secs(3);
const SLOW_RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_secs(2);

/// One end of a reliable channel to one peer. It does no I/O and reads no clock.
#[derive(Debug)]
pub struct Channel {
    stream_id: u32,
    /// Number of the first fragment in `send_queue`.
    first_unacked: u32,
    send_queue: VecDeque<Fragment>,
    /// Stream id in the peer's last fragment; `None` before the first one.
    peer_stream_id: Option<u32>,
    /// Number of the fragment that comes next in the peer's stream.
    next_expected: u32,
    out_of_order: BTreeMap<u32, (u8, Vec<u8>)>,
    partial_message: Vec<u8>,
    /// Whether fragments are skipped until one begins a message: between two messages, and while the current message is
    /// too long or lacks its beginning.
    is_skipping: bool,
    is_ack_pending: bool,
    /// Time of the first fragment that was sent after the peer's last datagram; `None` if none was sent since then.
    silent_since: Option<Instant>,
    inbox: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Fragment {
    flags: u8,
    bytes: Vec<u8>,
    /// Time of the next transmission.
    due: Instant,
}

/// Error of [`Channel::send`]: the message exceeds [`MAX_MESSAGE_LEN`], or the send queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueueError;

impl Default for Channel {
    fn default() -> Self {
        Self::new()
    }
}

impl Channel {
    /// Returns a channel with a random stream id.
    pub fn new() -> Self {
        Self {
            stream_id: u32::from_le_bytes(random_bytes()),
            first_unacked: 0,
            send_queue: VecDeque::new(),
            peer_stream_id: None,
            next_expected: 0,
            out_of_order: BTreeMap::new(),
            partial_message: Vec::new(),
            is_skipping: false,
            is_ack_pending: false,
            silent_since: None,
            inbox: VecDeque::new(),
        }
    }

    /// Returns whether a datagram belongs to a reliable channel, by its first byte; if so, it is for
    /// [`handle_datagram`](Self::handle_datagram).
    pub fn is_channel_datagram(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(FRAGMENT | ACK)))
    }

    /// Returns whether the peer has acknowledged every queued message.
    pub fn is_idle(&self) -> bool {
        self.send_queue.is_empty()
    }

    /// Queues a message for transmission. Fails if it exceeds [`MAX_MESSAGE_LEN`] or the send queue lacks room for its
    /// fragments.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendQueueError> {
        let parts = message.len().div_ceil(MAX_FRAGMENT_LEN).max(1);
        if message.len() > MAX_MESSAGE_LEN || self.send_queue.len() + parts > MAX_QUEUED {
            return Err(SendQueueError);
        }
        for number in 0..parts {
            let end = (number * MAX_FRAGMENT_LEN + MAX_FRAGMENT_LEN).min(message.len());
            let bytes = message[number * MAX_FRAGMENT_LEN..end].to_vec();
            let flags = if number == 0 { FLAG_FIRST } else { 0 } | if number + 1 == parts { FLAG_LAST } else { 0 };
            self.send_queue.push_back(Fragment { flags, bytes, due: Instant::ZERO });
        }
        Ok(())
    }

    /// Returns the next complete message from the peer, in the order of sending; `None` if there is none.
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.inbox.pop_front()
    }

    /// Returns the next datagram that is due at `now`: a pending acknowledgement, then new and unacknowledged
    /// fragments; `None` if none is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(peer_stream_id) = self.peer_stream_id.filter(|_| std::mem::take(&mut self.is_ack_pending)) {
            return Some([&[ACK][..], &peer_stream_id.to_le_bytes(), &self.next_expected.to_le_bytes()].concat());
        }
        let interval = self.retransmit_interval(now);
        let at = self.send_queue.iter().take(MAX_IN_FLIGHT).position(|part| part.due <= now)?;
        let number = self.first_unacked.wrapping_add(at as u32);
        let part = &mut self.send_queue[at];
        part.due = now + interval;
        self.silent_since.get_or_insert(now);
        let head = [&[FRAGMENT][..], &self.stream_id.to_le_bytes(), &number.to_le_bytes(), &[part.flags, at as u8]];
        Some([&head.concat()[..], &part.bytes].concat())
    }

    fn retransmit_interval(&self, now: Instant) -> TimeDelta {
        if self.silent_since.is_some_and(|since| now - since > SILENCE_THRESHOLD) {
            SLOW_RETRANSMIT_INTERVAL
        } else {
            RETRANSMIT_INTERVAL
        }
    }

    /// Returns the time of the next transmission; `None` if nothing is unacknowledged and no acknowledgement is
    /// pending.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.send_queue.iter().take(MAX_IN_FLIGHT).map(|part| part.due).min();
        if self.is_ack_pending { Some(Instant::ZERO) } else { due }
    }

    /// Handles a fragment or an acknowledgement from the peer. A malformed datagram has no effect on the messages.
    pub fn handle_datagram(&mut self, bytes: &[u8]) {
        let number = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let (Some(stream_id), Some(number)) = (number(1), number(5)) else { return };
        self.silent_since = None;
        match bytes[0] {
            ACK if stream_id == self.stream_id => self.on_ack(number),
            FRAGMENT if bytes.len() >= HEADER_LEN && bytes.len() <= HEADER_LEN + MAX_FRAGMENT_LEN => {
                self.on_fragment(stream_id, number, (bytes[9], bytes[10]), &bytes[HEADER_LEN..]);
            }
            _ => {}
        }
    }

    fn on_ack(&mut self, next: u32) {
        let acked = next.wrapping_sub(self.first_unacked) as usize;
        if acked <= self.send_queue.len() {
            self.send_queue.drain(..acked);
            self.first_unacked = next;
        }
    }

    fn on_fragment(&mut self, stream_id: u32, number: u32, (flags, unacked_before): (u8, u8), bytes: &[u8]) {
        if self.peer_stream_id != Some(stream_id) {
            self.peer_stream_id = Some(stream_id);
            self.out_of_order.clear();
            self.restart_at(0);
        }
        self.is_ack_pending = true;
        // The peer does not retransmit earlier fragments: a previous run of this site acknowledged them.
        let first = number.wrapping_sub(u32::from(unacked_before));
        if first.wrapping_sub(self.next_expected) as i32 > 0 {
            self.restart_at(first);
        }
        if number.wrapping_sub(self.next_expected) < MAX_OUT_OF_ORDER {
            self.out_of_order.insert(number, (flags, bytes.to_vec()));
        }
        // While `MAX_QUEUED` messages are unread, further fragments are not acknowledged.
        while self.inbox.len() < MAX_QUEUED
            && let Some((flags, bytes)) = self.out_of_order.remove(&self.next_expected)
        {
            self.next_expected = self.next_expected.wrapping_add(1);
            self.reassemble(flags, &bytes);
        }
    }

    fn restart_at(&mut self, next: u32) {
        self.next_expected = next;
        self.out_of_order.retain(|number, _| number.wrapping_sub(next) < MAX_OUT_OF_ORDER);
        self.partial_message.clear();
        self.is_skipping = true;
    }

    fn reassemble(&mut self, flags: u8, bytes: &[u8]) {
        if flags & FLAG_FIRST != 0 {
            self.partial_message.clear();
            self.is_skipping = false;
        }
        if self.is_skipping {
            return;
        }
        self.partial_message.extend_from_slice(bytes);
        if self.partial_message.len() > MAX_MESSAGE_LEN {
            self.partial_message.clear();
            self.is_skipping = true;
        } else if flags & FLAG_LAST != 0 {
            self.inbox.push_back(std::mem::take(&mut self.partial_message));
            self.is_skipping = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs two ends for 40 s; `lost` decides for each datagram whether it is lost. Returns the messages that `other`
    /// got.
    fn run(one: &mut Channel, other: &mut Channel, mut lost: impl FnMut() -> bool) -> Vec<Vec<u8>> {
        let mut received = Vec::new();
        for millis in 0..4_000 {
            let now = Instant::ZERO + TimeDelta::from_millis(millis * 10);
            while let Some(bytes) = one.poll_transmit(now) {
                if !lost() {
                    other.handle_datagram(&bytes);
                }
            }
            while let Some(bytes) = other.poll_transmit(now) {
                if !lost() {
                    one.handle_datagram(&bytes);
                }
            }
            received.extend(std::iter::from_fn(|| other.poll_message()));
        }
        received
    }

    fn messages() -> Vec<Vec<u8>> {
        [0, 1, 5, 999, 1_000, 1_001, 5_000, MAX_MESSAGE_LEN]
            .map(|len| (0..len).map(|at| (at * 7) as u8).collect())
            .to_vec()
    }

    #[test]
    fn messages_arrive_in_order_despite_packet_loss() {
        for percent in [0, 20, 60] {
            let (mut one, mut other, mut random) = (Channel::new(), Channel::new(), 1u32);
            messages().iter().for_each(|message| one.send(message).unwrap());
            let received = run(&mut one, &mut other, || {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 16) % 100 < percent
            });
            assert!(received == messages(), "{percent} % lost");
            assert!(one.is_idle() && one.poll_timeout().is_none());
        }
    }

    #[test]
    fn restarted_sender_is_received() {
        let (mut one, mut other) = (Channel::new(), Channel::new());
        one.send(b"before").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"before"]);
        let mut one = Channel::new();
        one.send(b"after").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"after"]);
    }

    #[test]
    fn restarted_receiver_gets_unacknowledged_messages() {
        let (mut one, mut other) = (Channel::new(), Channel::new());
        (0..100).for_each(|_| one.send(b"acked").unwrap());
        assert_eq!(run(&mut one, &mut other, || false).len(), 100);
        // The receiver gets one fragment of a long message, and then vanishes.
        one.send(&[7; 3 * MAX_FRAGMENT_LEN]).unwrap();
        let part = one.poll_transmit(Instant::ZERO).unwrap();
        other.handle_datagram(&part);
        one.handle_datagram(&other.poll_transmit(Instant::ZERO).unwrap());
        one.send(b"new").unwrap();
        let mut other = Channel::new();
        other.send(b"hello").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"new"], "the rest of an incomplete message is skipped");
        assert!(one.is_idle() && other.is_idle());
    }

    /// A silent peer must not get retransmissions at the full rate for ever.
    #[test]
    fn retransmission_slows_down_for_silent_peer() {
        let (mut one, mut other) = (Channel::new(), Channel::new());
        one.send(b"hello").unwrap();
        let mut sent = 0;
        for millis in 0..2_300 {
            let now = Instant::ZERO + TimeDelta::from_millis(millis * 10);
            let due = one.poll_timeout().is_some_and(|due| due <= now);
            let is_sent = one.poll_transmit(now).is_some();
            assert_eq!(is_sent, due, "a datagram is sent exactly when due");
            sent += usize::from(is_sent);
        }
        assert!((20..30).contains(&sent), "{sent} datagrams in 23 seconds");
        assert_eq!(run(&mut one, &mut other, || false), [b"hello"], "a returning peer gets the message");
    }

    #[test]
    fn oversized_message_and_full_queue_are_rejected() {
        let mut channel = Channel::new();
        assert_eq!(channel.send(&[0; MAX_MESSAGE_LEN + 1]), Err(SendQueueError));
        let sent = (0..1_000).take_while(|_| channel.send(b"word").is_ok()).count();
        assert_eq!(sent, MAX_QUEUED);
    }

    #[test]
    fn malformed_datagrams_are_ignored() {
        let (mut one, mut other) = (Channel::new(), Channel::new());
        one.send(b"hello").unwrap();
        let part = one.poll_transmit(Instant::ZERO).unwrap();
        (1..10).for_each(|len| other.handle_datagram(&part[..len]));
        other.handle_datagram(&[&[FRAGMENT][..], &[9; 8], &[1], &[7; MAX_FRAGMENT_LEN + 1]].concat());
        assert_eq!(other.poll_message(), None);
        one.handle_datagram(&[&[ACK][..], &one.stream_id.to_le_bytes(), &9u32.to_le_bytes()].concat());
        assert!(!one.is_idle(), "unsent fragments cannot be acknowledged");
    }
}
