//! Short messages between two peers that arrive, in order, over datagrams that may not: names, terms, chat.
//!
//! Not for the game itself, where what is late is of no use. A message is cut into parts, parts are numbered and acknowledged up to the
//! first that is missing, and what is not acknowledged is sent again. Whoever starts anew begins another *epoch*, so that nothing of
//! before is mistaken for something of now; and is told with every part how far back parts still come, so that it does not wait for
//! what the one before it has heard. Everything is bounded.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use crate::key::random_bytes;

/// The first byte of every datagram of this family.
pub const FRAGMENT: u8 = 0x40;
const ACK: u8 = 0x41;

/// Before the bytes of a part: what it is, epoch, number, flags, and how many parts before it are not acknowledged either.
const HEADER_LEN: usize = 1 + 4 + 4 + 1 + 1;
const FLAG_LAST: u8 = 1;
const FLAG_FIRST: u8 = 2;
/// What fits into one datagram beside the head, whatever carries it.
const MAX_FRAGMENT_LEN: usize = 1_000;
/// The longest message.
pub const MAX_MESSAGE_LEN: usize = 16 * 1024;
/// Parts that wait to be acknowledged, and parts kept ahead of one that is missing.
const MAX_QUEUED: usize = 256;
const MAX_OUT_OF_ORDER: u32 = 64;
/// Parts under way at once.
const MAX_IN_FLIGHT: usize = 16;
const RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// To who is not heard of for so long parts go less often: it may be gone.
const SILENCE_THRESHOLD: TimeDelta = TimeDelta::from_secs(3);
const SLOW_RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_secs(2);

/// One end of the mail between two peers.
#[derive(Debug)]
pub struct Channel {
    stream_id: u32,
    /// The number of the first part that waits, and the parts.
    first_unacked: u32,
    send_queue: VecDeque<Fragment>,
    /// The epoch of the other end, and the number of the next part of it.
    peer_stream_id: Option<u32>,
    next_expected: u32,
    out_of_order: BTreeMap<u32, (u8, Vec<u8>)>,
    partial_message: Vec<u8>,
    /// What comes is the rest of a message whose beginning we do not have.
    is_skipping: bool,
    is_ack_pending: bool,
    /// Since when parts are sent and nothing is heard.
    silent_since: Option<Instant>,
    inbox: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Fragment {
    flags: u8,
    bytes: Vec<u8>,
    /// When it is to be sent, again or for the first time.
    due: Instant,
}

/// The message is longer than [`MAX_MESSAGE_LEN`], or too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQueueError;

impl Default for Channel {
    fn default() -> Self {
        Self::new()
    }
}

impl Channel {
    /// Nothing was said yet.
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

    /// Whether a datagram is for [`handle_datagram`](Self::handle_datagram).
    pub fn is_channel_datagram(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(FRAGMENT | ACK)))
    }

    /// Whether everything that was sent is known to have arrived.
    pub fn is_idle(&self) -> bool {
        self.send_queue.is_empty()
    }

    /// Sends a message.
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

    /// The next message that came.
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.inbox.pop_front()
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(theirs) = self.peer_stream_id.filter(|_| std::mem::take(&mut self.is_ack_pending)) {
            return Some([&[ACK][..], &theirs.to_le_bytes(), &self.next_expected.to_le_bytes()].concat());
        }
        let again = self.retransmit_interval(now);
        let at = self.send_queue.iter().take(MAX_IN_FLIGHT).position(|part| part.due <= now)?;
        let number = self.first_unacked.wrapping_add(at as u32);
        let part = &mut self.send_queue[at];
        part.due = now + again;
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

    /// When there is something to send at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.send_queue.iter().take(MAX_IN_FLIGHT).map(|part| part.due).min();
        if self.is_ack_pending { Some(Instant::ZERO) } else { due }
    }

    /// Takes a datagram of this family. What makes no sense changes nothing.
    pub fn handle_datagram(&mut self, bytes: &[u8]) {
        let number = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let (Some(epoch), Some(number)) = (number(1), number(5)) else { return };
        self.silent_since = None;
        match bytes[0] {
            ACK if epoch == self.stream_id => self.on_ack(number),
            FRAGMENT if bytes.len() >= HEADER_LEN && bytes.len() <= HEADER_LEN + MAX_FRAGMENT_LEN => {
                self.on_fragment(epoch, number, (bytes[9], bytes[10]), &bytes[HEADER_LEN..]);
            }
            _ => {}
        }
    }

    fn on_ack(&mut self, next: u32) {
        let heard = next.wrapping_sub(self.first_unacked) as usize;
        if heard <= self.send_queue.len() {
            self.send_queue.drain(..heard);
            self.first_unacked = next;
        }
    }

    fn on_fragment(&mut self, epoch: u32, number: u32, (flags, back): (u8, u8), bytes: &[u8]) {
        if self.peer_stream_id != Some(epoch) {
            self.peer_stream_id = Some(epoch);
            self.out_of_order.clear();
            self.restart_at(0);
        }
        self.is_ack_pending = true;
        // What is before that was heard by who was here before us, and does not come again.
        let first = number.wrapping_sub(u32::from(back));
        if first.wrapping_sub(self.next_expected) as i32 > 0 {
            self.restart_at(first);
        }
        if number.wrapping_sub(self.next_expected) < MAX_OUT_OF_ORDER {
            self.out_of_order.insert(number, (flags, bytes.to_vec()));
        }
        // Who does not read its messages does not get more.
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

    /// Lets two ends talk for a while; of every datagram `lost` says whether it is.
    fn run(one: &mut Channel, other: &mut Channel, mut lost: impl FnMut() -> bool) -> Vec<Vec<u8>> {
        let mut came = Vec::new();
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
            came.extend(std::iter::from_fn(|| other.poll_message()));
        }
        came
    }

    fn messages() -> Vec<Vec<u8>> {
        [0, 1, 5, 999, 1_000, 1_001, 5_000, MAX_MESSAGE_LEN]
            .map(|len| (0..len).map(|at| (at * 7) as u8).collect())
            .to_vec()
    }

    #[test]
    fn messages_arrive_in_order_despite_packet_loss() {
        for percent in [0, 20, 60] {
            let (mut one, mut other, mut luck) = (Channel::new(), Channel::new(), 1u32);
            messages().iter().for_each(|message| one.send(message).unwrap());
            let came = run(&mut one, &mut other, || {
                luck = luck.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (luck >> 16) % 100 < percent
            });
            assert!(came == messages(), "{percent} % lost");
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
        (0..100).for_each(|_| one.send(b"heard").unwrap());
        assert_eq!(run(&mut one, &mut other, || false).len(), 100);
        // A part of a long message is heard, and then nobody is there any more.
        one.send(&[7; 3 * MAX_FRAGMENT_LEN]).unwrap();
        let part = one.poll_transmit(Instant::ZERO).unwrap();
        other.handle_datagram(&part);
        one.handle_datagram(&other.poll_transmit(Instant::ZERO).unwrap());
        one.send(b"new").unwrap();
        let mut other = Channel::new();
        other.send(b"hello").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"new"], "the rest of a message is none");
        assert!(one.is_idle() && other.is_idle());
    }

    /// Who is gone must not be sent the same for ever as if it were there.
    #[test]
    fn retransmission_slows_down_for_silent_peer() {
        let (mut one, mut other) = (Channel::new(), Channel::new());
        one.send(b"hello").unwrap();
        let mut sent = 0;
        for millis in 0..2_300 {
            let now = Instant::ZERO + TimeDelta::from_millis(millis * 10);
            let due = one.poll_timeout().is_some_and(|due| due <= now);
            let is_sent = one.poll_transmit(now).is_some();
            assert_eq!(is_sent, due, "what is due is sent, and nothing else");
            sent += usize::from(is_sent);
        }
        assert!((20..30).contains(&sent), "{sent} datagrams in 23 seconds");
        assert_eq!(run(&mut one, &mut other, || false), [b"hello"], "when it is back it is told");
    }

    #[test]
    fn oversized_message_and_full_queue_are_rejected() {
        let mut mail = Channel::new();
        assert_eq!(mail.send(&[0; MAX_MESSAGE_LEN + 1]), Err(SendQueueError));
        let sent = (0..1_000).take_while(|_| mail.send(b"word").is_ok()).count();
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
        assert!(!one.is_idle(), "nobody can have heard what was not said");
    }
}
