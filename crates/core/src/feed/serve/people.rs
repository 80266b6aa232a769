//! Who watches: how they come, what they ask for, and how they go.

use super::super::BEAT;
use super::super::event::FeedEvent;
use super::super::mix;
use super::super::slot::Slot;
use super::{Feed, MOST_REPLIES, Reply};
use crate::frame::Frame;
use crate::id::Addr;
use crate::time::{Instant, TimeDelta};
use crate::wire::{CloseReason, DecodeError, FeedAck, FeedMessage, SnapshotRequest, Subscribe};

/// Those dropped last who are remembered.
pub(super) const MOST_DROPPED: usize = 64;
/// Who waits for a snapshot gets an old one if no new one has come for so long.
const WAIT_FOR_NEW: TimeDelta = TimeDelta::from_secs(1);
/// One who asks to watch is answered this often.
const WELCOME_EVERY: TimeDelta = TimeDelta::from_millis(100);

impl Feed {
    /// Takes in a datagram. Anything can be handed in: what is of no use is dropped and counted.
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.own_time(now);
        self.stats.packets_in += 1;
        match FeedMessage::decode(bytes) {
            Ok(FeedMessage::Subscribe(watch)) => self.handle_watch(now, from, &watch),
            Ok(FeedMessage::Ack(ack)) => self.handle_ack(now, from, &ack),
            Ok(FeedMessage::SnapshotRequest(get)) => self.handle_get(now, from, &get),
            Ok(FeedMessage::Unsubscribe { session_id: session }) => match self.place(from, session) {
                Some(at) => self.remove(at, None),
                None => self.stats.strangers += 1,
            },
            // The answer is shorter than what asked for it, by far.
            Err(DecodeError::Version(_)) if bytes.len() > 16 => self.reply(from, Reply::Bye(CloseReason::Version)),
            _ => self.stats.malformed += 1,
        }
    }

    /// The place of one who watches and is heard from there.
    fn place(&self, from: Addr, session: u64) -> Option<usize> {
        let at = self.places.get(&from).filter(|_| session == self.config.session)?;
        Some(*at as usize)
    }

    pub(super) fn token(&self, addr: Addr) -> u64 {
        mix(mix(mix(self.config.secret, addr.0), self.config.session), self.config.secret).max(1)
    }

    fn reply(&mut self, to: Addr, reply: Reply) {
        if self.replies.len() < MOST_REPLIES {
            self.replies.push_back((to, reply));
        }
    }

    fn handle_watch(&mut self, now: Instant, from: Addr, watch: &Subscribe) {
        if watch.session_id != self.config.session {
            self.stats.strangers += 1;
        } else if watch.token != self.token(from) {
            self.reply(from, Reply::Challenge);
        } else if watch.settings_digest != self.settings {
            self.reply(from, Reply::Bye(CloseReason::Settings));
        } else if watch.first_frame.is_some_and(|first| Some(Frame::new(first)) < self.oldest()) {
            if let Some(at) = self.place(from, watch.session_id) {
                self.remove(at, Some(CloseReason::TooOld));
            }
            self.reply(from, Reply::Bye(CloseReason::TooOld));
        } else if let Some(at) = self.seat(now, from) {
            self.welcome(now, at, watch);
        } else {
            self.stats.refused += 1;
            self.reply(from, Reply::Bye(CloseReason::Full));
        }
    }

    pub(super) fn oldest(&self) -> Option<Frame> {
        self.history.oldest().or(self.next)
    }

    /// The place of one who may watch, a new one if need be.
    fn seat(&mut self, now: Instant, addr: Addr) -> Option<usize> {
        if let Some(at) = self.places.get(&addr) {
            return Some(*at as usize);
        }
        if self.places.len() >= self.config.most_watchers {
            return None;
        }
        let at = match self.free.pop() {
            Some(at) => {
                let slot = &mut self.slots[at as usize];
                let queued = slot.queued;
                *slot = Slot::new(now, addr);
                slot.queued = queued;
                at
            }
            None => {
                self.slots.push(Slot::new(now, addr));
                self.slots.len() as u32 - 1
            }
        };
        if self.places.is_empty() {
            self.next_beat = now + BEAT;
        }
        self.places.insert(addr, at);
        self.dropped.retain(|(dropped, _)| *dropped != addr);
        self.stats.came += 1;
        self.events.push(FeedEvent::Came { addr });
        Some(at as usize)
    }

    fn welcome(&mut self, now: Instant, at: usize, watch: &Subscribe) {
        let end = self.history.end().or(self.next).unwrap_or_default();
        let slot = &mut self.slots[at];
        slot.heard = now;
        if now - slot.welcomed < WELCOME_EVERY {
            return;
        }
        slot.welcomed = now;
        slot.forget_wants();
        slot.sent = end;
        slot.next = watch.first_frame.map_or(end, Frame::new);
        if slot.caught_up {
            (slot.caught_up, slot.level, slot.since) = (false, 0, now);
        }
        let addr = slot.addr;
        self.reply(addr, Reply::Welcome);
        match watch.first_frame {
            Some(_) => self.release_snapshot(at),
            None => self.find_snapshot(now, at, watch.known_snapshot),
        }
    }

    /// A snapshot for one who asks: the one of which he has some, or a new one, or, if he has waited, an old one.
    fn find_snapshot(&mut self, now: Instant, at: usize, have: Option<u64>) {
        let known = have.and_then(|digest| self.snapshots.by_digest(digest)).filter(|known| self.can_join(known.next));
        if let Some(number) = known.map(|known| known.number) {
            return self.offer(at, number);
        }
        let slot = &mut self.slots[at];
        self.waiting += usize::from(slot.waiting.is_none());
        let waited = now - *slot.waiting.get_or_insert(now);
        let age = self.snapshots.newest().map(|newest| self.next.unwrap_or_default() - newest.next);
        let fresh = age.is_some_and(|age| age <= i64::from(self.config.snapshot_age));
        if fresh || waited >= WAIT_FOR_NEW || !self.snapshots.has_room() {
            self.offer_newest(now, at);
        }
    }

    /// Whether all frames from this one on can be had.
    fn can_join(&self, next: Frame) -> bool {
        self.oldest().is_none_or(|oldest| oldest <= next)
    }

    /// Whether all frames before this one are pushed.
    pub(super) fn has_reached(&self, next: Frame) -> bool {
        self.next.is_none_or(|pushed| pushed >= next)
    }

    pub(super) fn offer_newest(&mut self, now: Instant, at: usize) {
        let joinable = |next: Frame| self.can_join(next) && self.has_reached(next);
        let newest = self.snapshots.newest().filter(|newest| joinable(newest.next));
        if let Some(number) = newest.map(|newest| newest.number) {
            self.slots[at].heard = now;
            self.offer(at, number);
        }
    }

    fn offer(&mut self, at: usize, number: u16) {
        if self.slots[at].snapshot != Some(number) {
            self.release_snapshot(at);
            self.snapshots.hold(number);
            self.slots[at].snapshot = Some(number);
        }
        self.waiting -= usize::from(self.slots[at].waiting.take().is_some());
        let addr = self.slots[at].addr;
        self.reply(addr, Reply::Offer(number));
    }

    fn release_snapshot(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.forget_parts();
        self.waiting -= usize::from(slot.waiting.take().is_some());
        if let Some(number) = slot.snapshot.take() {
            self.snapshots.release(number);
        }
    }

    fn handle_ack(&mut self, now: Instant, from: Addr, ack: &FeedAck) {
        let Some(at) = self.place(from, ack.session_id) else { return self.on_stranger(from, ack.session_id) };
        let end = self.history.end().unwrap_or_default();
        let oldest = self.oldest().unwrap_or_default();
        let period = self.config.settings.rate.period();
        if !ack.is_fetching_snapshot {
            self.release_snapshot(at);
        }
        let slot = &mut self.slots[at];
        slot.heard = now;
        slot.next = Frame::new(ack.next_frame).min(end.max(slot.next));
        let behind = period * (end - slot.next).max(0);
        if !ack.is_fetching_snapshot {
            slot.on_behind(now, behind);
        }
        if !slot.on_spans(Frame::new(ack.next_frame), &ack.missing, oldest, end) {
            self.drop(at, CloseReason::TooOld);
        } else {
            self.queue(at);
        }
    }

    fn handle_get(&mut self, now: Instant, from: Addr, get: &SnapshotRequest) {
        let Some(at) = self.place(from, get.session_id) else { return self.on_stranger(from, get.session_id) };
        self.slots[at].heard = now;
        if self.slots[at].snapshot != Some(get.snapshot_id) && !self.take_up(at, get.snapshot_id) {
            return self.drop(at, CloseReason::TooOld);
        }
        self.slots[at].on_wants(&get.blocks);
        self.queue(at);
    }

    /// Somebody goes on with a snapshot that was not kept for him, but may be there; `false` when it is not.
    fn take_up(&mut self, at: usize, number: u16) -> bool {
        if self.snapshots.by_number(number).is_none() {
            return false;
        }
        self.release_snapshot(at);
        self.snapshots.hold(number);
        self.slots[at].snapshot = Some(number);
        true
    }

    /// Somebody who does not watch thinks that he does: perhaps he did not hear that he was dropped. The answer is shorter than what
    /// he said.
    fn on_stranger(&mut self, from: Addr, session: u64) {
        self.stats.strangers += 1;
        if session == self.config.session {
            let known = self.dropped.iter().find(|(addr, _)| *addr == from);
            self.reply(from, Reply::Bye(known.map_or(CloseReason::Silent, |(_, reason)| *reason)));
        }
    }

    /// Nobody is served any more: whoever watches turns to another source.
    pub fn dismiss(&mut self) {
        self.config.most_watchers = 0;
        for at in 0..self.slots.len() {
            if self.slots[at].taken {
                self.drop(at, CloseReason::Full);
            }
        }
    }

    /// Puts one who wants something into the queue, once.
    fn queue(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if !slot.queued && slot.wants_anything() {
            slot.queued = true;
            self.bulk.push_back(at as u32);
            self.share_at = self.now;
        }
    }

    /// Drops one who watches, and tells him why.
    fn drop(&mut self, at: usize, reason: CloseReason) {
        let addr = self.slots[at].addr;
        self.remove(at, Some(reason));
        self.reply(addr, Reply::Bye(reason));
    }

    pub(super) fn remove(&mut self, at: usize, reason: Option<CloseReason>) {
        self.release_snapshot(at);
        let slot = &mut self.slots[at];
        slot.taken = false;
        slot.forget_wants();
        let addr = slot.addr;
        self.places.remove(&addr);
        self.free.push(at as u32);
        self.stats.silent += u64::from(reason == Some(CloseReason::Silent));
        self.stats.too_slow += u64::from(matches!(reason, Some(CloseReason::TooSlow | CloseReason::TooOld)));
        self.events.push(FeedEvent::Gone { addr, reason });
        if let Some(reason) = reason {
            if self.dropped.len() == MOST_DROPPED {
                self.dropped.pop_front();
            }
            self.dropped.push_back((addr, reason));
        }
    }
}
