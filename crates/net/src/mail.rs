//! Short messages between two peers that arrive, in order, over datagrams that may not: names, terms, chat.
//!
//! Not for the game itself, where what is late is of no use. A message is cut into parts, parts are numbered and acknowledged up to the
//! first that is missing, and what is not acknowledged is sent again. Whoever starts anew begins another *epoch*, so that nothing of
//! before is mistaken for something of now; and is told with every part how far back parts still come, so that it does not wait for
//! what the one before it has heard. Everything is bounded.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use crate::key::random;

/// The first byte of every datagram of this family.
pub const PART: u8 = 0x40;
const HEARD: u8 = 0x41;

/// Before the bytes of a part: what it is, epoch, number, flags, and how many parts before it are not acknowledged either.
const HEAD: usize = 1 + 4 + 4 + 1 + 1;
const LAST: u8 = 1;
const FIRST: u8 = 2;
/// What fits into one datagram beside the head, whatever carries it.
const PART_LEN: usize = 1_000;
/// The longest message.
pub const MAX_MESSAGE: usize = 16 * 1024;
/// Parts that wait to be acknowledged, and parts kept ahead of one that is missing.
const MAX_WAITING: usize = 256;
const MAX_AHEAD: u32 = 64;
/// Parts under way at once.
const WINDOW: usize = 16;
const AGAIN: TimeDelta = TimeDelta::from_millis(200);
/// To who is not heard of for so long parts go less often: it may be gone.
const SILENT: TimeDelta = TimeDelta::from_secs(3);
const SELDOM: TimeDelta = TimeDelta::from_secs(2);

/// One end of the mail between two peers.
#[derive(Debug)]
pub struct Mail {
    epoch: u32,
    /// The number of the first part that waits, and the parts.
    first: u32,
    waiting: VecDeque<Part>,
    /// The epoch of the other end, and the number of the next part of it.
    theirs: Option<u32>,
    next: u32,
    ahead: BTreeMap<u32, (u8, Vec<u8>)>,
    message: Vec<u8>,
    /// What comes is the rest of a message whose beginning we do not have.
    skips: bool,
    owes_ack: bool,
    /// Since when parts are sent and nothing is heard.
    silent: Option<Instant>,
    inbox: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Part {
    flags: u8,
    bytes: Vec<u8>,
    /// When it is to be sent, again or for the first time.
    due: Instant,
}

/// The message is longer than [`MAX_MESSAGE`], or too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Default for Mail {
    fn default() -> Self {
        Self::new()
    }
}

impl Mail {
    /// Nothing was said yet.
    pub fn new() -> Self {
        Self {
            epoch: u32::from_le_bytes(random()),
            first: 0,
            waiting: VecDeque::new(),
            theirs: None,
            next: 0,
            ahead: BTreeMap::new(),
            message: Vec::new(),
            skips: false,
            owes_ack: false,
            silent: None,
            inbox: VecDeque::new(),
        }
    }

    /// Whether a datagram is for [`handle_datagram`](Self::handle_datagram).
    pub fn is_mail(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(PART | HEARD)))
    }

    /// Whether everything that was sent is known to have arrived.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Full> {
        let parts = message.len().div_ceil(PART_LEN).max(1);
        if message.len() > MAX_MESSAGE || self.waiting.len() + parts > MAX_WAITING {
            return Err(Full);
        }
        for number in 0..parts {
            let end = (number * PART_LEN + PART_LEN).min(message.len());
            let bytes = message[number * PART_LEN..end].to_vec();
            let flags = if number == 0 { FIRST } else { 0 } | if number + 1 == parts { LAST } else { 0 };
            self.waiting.push_back(Part { flags, bytes, due: Instant::ZERO });
        }
        Ok(())
    }

    /// The next message that came.
    pub fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.inbox.pop_front()
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(theirs) = self.theirs.filter(|_| std::mem::take(&mut self.owes_ack)) {
            return Some([&[HEARD][..], &theirs.to_le_bytes(), &self.next.to_le_bytes()].concat());
        }
        let again = self.again(now);
        let at = self.waiting.iter().take(WINDOW).position(|part| part.due <= now)?;
        let number = self.first.wrapping_add(at as u32);
        let part = &mut self.waiting[at];
        part.due = now + again;
        self.silent.get_or_insert(now);
        let head = [&[PART][..], &self.epoch.to_le_bytes(), &number.to_le_bytes(), &[part.flags, at as u8]];
        Some([&head.concat()[..], &part.bytes].concat())
    }

    fn again(&self, now: Instant) -> TimeDelta {
        if self.silent.is_some_and(|since| now - since > SILENT) { SELDOM } else { AGAIN }
    }

    /// When there is something to send at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.waiting.iter().take(WINDOW).map(|part| part.due).min();
        if self.owes_ack { Some(Instant::ZERO) } else { due }
    }

    /// Takes a datagram of this family. What makes no sense changes nothing.
    pub fn handle_datagram(&mut self, bytes: &[u8]) {
        let number = |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let (Some(epoch), Some(number)) = (number(1), number(5)) else { return };
        self.silent = None;
        match bytes[0] {
            HEARD if epoch == self.epoch => self.on_heard(number),
            PART if bytes.len() >= HEAD && bytes.len() <= HEAD + PART_LEN => {
                self.on_part(epoch, number, (bytes[9], bytes[10]), &bytes[HEAD..]);
            }
            _ => {}
        }
    }

    fn on_heard(&mut self, next: u32) {
        let heard = next.wrapping_sub(self.first) as usize;
        if heard <= self.waiting.len() {
            self.waiting.drain(..heard);
            self.first = next;
        }
    }

    fn on_part(&mut self, epoch: u32, number: u32, (flags, back): (u8, u8), bytes: &[u8]) {
        if self.theirs != Some(epoch) {
            self.theirs = Some(epoch);
            self.ahead.clear();
            self.begin_at(0);
        }
        self.owes_ack = true;
        // What is before that was heard by who was here before us, and does not come again.
        let first = number.wrapping_sub(u32::from(back));
        if first.wrapping_sub(self.next) as i32 > 0 {
            self.begin_at(first);
        }
        if number.wrapping_sub(self.next) < MAX_AHEAD {
            self.ahead.insert(number, (flags, bytes.to_vec()));
        }
        // Who does not read its messages does not get more.
        while self.inbox.len() < MAX_WAITING
            && let Some((flags, bytes)) = self.ahead.remove(&self.next)
        {
            self.next = self.next.wrapping_add(1);
            self.put_together(flags, &bytes);
        }
    }

    fn begin_at(&mut self, next: u32) {
        self.next = next;
        self.ahead.retain(|number, _| number.wrapping_sub(next) < MAX_AHEAD);
        self.message.clear();
        self.skips = true;
    }

    fn put_together(&mut self, flags: u8, bytes: &[u8]) {
        if flags & FIRST != 0 {
            self.message.clear();
            self.skips = false;
        }
        if self.skips {
            return;
        }
        self.message.extend_from_slice(bytes);
        if self.message.len() > MAX_MESSAGE {
            self.message.clear();
            self.skips = true;
        } else if flags & LAST != 0 {
            self.inbox.push_back(std::mem::take(&mut self.message));
            self.skips = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two ends talk for a while; of every datagram `lost` says whether it is.
    fn run(one: &mut Mail, other: &mut Mail, mut lost: impl FnMut() -> bool) -> Vec<Vec<u8>> {
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
        [0, 1, 5, 999, 1_000, 1_001, 5_000, MAX_MESSAGE].map(|len| (0..len).map(|at| (at * 7) as u8).collect()).to_vec()
    }

    #[test]
    fn messages_arrive_in_order_whatever_is_lost() {
        for percent in [0, 20, 60] {
            let (mut one, mut other, mut luck) = (Mail::new(), Mail::new(), 1u32);
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
    fn who_starts_anew_is_understood() {
        let (mut one, mut other) = (Mail::new(), Mail::new());
        one.send(b"before").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"before"]);
        let mut one = Mail::new();
        one.send(b"after").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"after"]);
    }

    #[test]
    fn who_starts_anew_hears_what_was_not_heard_before() {
        let (mut one, mut other) = (Mail::new(), Mail::new());
        (0..100).for_each(|_| one.send(b"heard").unwrap());
        assert_eq!(run(&mut one, &mut other, || false).len(), 100);
        // A part of a long message is heard, and then nobody is there any more.
        one.send(&[7; 3 * PART_LEN]).unwrap();
        let part = one.poll_transmit(Instant::ZERO).unwrap();
        other.handle_datagram(&part);
        one.handle_datagram(&other.poll_transmit(Instant::ZERO).unwrap());
        one.send(b"new").unwrap();
        let mut other = Mail::new();
        other.send(b"hello").unwrap();
        assert_eq!(run(&mut one, &mut other, || false), [b"new"], "the rest of a message is none");
        assert!(one.is_idle() && other.is_idle());
    }

    /// Who is gone must not be sent the same for ever as if it were there.
    #[test]
    fn who_is_silent_is_sent_little() {
        let (mut one, mut other) = (Mail::new(), Mail::new());
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
    fn too_much_is_refused() {
        let mut mail = Mail::new();
        assert_eq!(mail.send(&[0; MAX_MESSAGE + 1]), Err(Full));
        let sent = (0..1_000).take_while(|_| mail.send(b"word").is_ok()).count();
        assert_eq!(sent, MAX_WAITING);
    }

    #[test]
    fn nonsense_changes_nothing() {
        let (mut one, mut other) = (Mail::new(), Mail::new());
        one.send(b"hello").unwrap();
        let part = one.poll_transmit(Instant::ZERO).unwrap();
        (1..10).for_each(|len| other.handle_datagram(&part[..len]));
        other.handle_datagram(&[&[PART][..], &[9; 8], &[1], &[7; PART_LEN + 1]].concat());
        assert_eq!(other.poll_message(), None);
        one.handle_datagram(&[&[HEARD][..], &one.epoch.to_le_bytes(), &9u32.to_le_bytes()].concat());
        assert!(!one.is_idle(), "nobody can have heard what was not said");
    }
}
