//! Subscriptions: joining, requests for frames and snapshots, and leaving.

use super::super::KEEP_ALIVE_INTERVAL;
use super::super::event::FeedEvent;
use super::super::mix;
use super::super::subscriber::Subscriber;
use super::{Feed, MAX_PENDING_REPLIES, PendingReply};
use crate::codec::DecodeError;
use crate::frame::Frame;
use crate::id::Addr;
use crate::spectator_feed::message::{CloseReason, FeedAck, FeedMessage, SnapshotRequest, Subscribe};
use crate::time::{Instant, TimeDelta};

/// Number of dropped subscribers whose address and reason the feed remembers.
pub(super) const MAX_REMEMBERED_DROPS: usize = 64;
/// Time for which a subscriber waits for a new snapshot before it gets an old one.
const NEW_SNAPSHOT_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Shortest interval between two answers to the subscribe requests of one subscriber.
const WELCOME_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

impl Feed {
    /// Handles a datagram from any sender. Malformed datagrams and those of other sessions are dropped and counted. One
    /// of another protocol version that is longer than 16 bytes is answered with [`CloseReason::Version`].
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.advance_clock(now);
        self.stats.packets_in += 1;
        match FeedMessage::decode(bytes) {
            Ok(FeedMessage::Subscribe(subscribe)) => self.handle_subscribe(now, from, &subscribe),
            Ok(FeedMessage::Ack(ack)) => self.handle_ack(now, from, &ack),
            Ok(FeedMessage::SnapshotRequest(request)) => self.handle_snapshot_request(now, from, &request),
            Ok(FeedMessage::Unsubscribe { session_id: session }) => match self.slot_of(from, session) {
                Some(at) => self.remove_subscriber(at, None),
                None => self.stats.unknown_senders += 1,
            },
            // The reply of 10 bytes is shorter than the request, so it amplifies nothing.
            Err(DecodeError::Version(_)) if bytes.len() > 16 => {
                self.queue_reply(from, PendingReply::Bye(CloseReason::Version))
            }
            _ => self.stats.malformed += 1,
        }
    }

    /// Returns the slot of the subscriber at `from`, if `session` is the feed's session.
    fn slot_of(&self, from: Addr, session: u64) -> Option<usize> {
        let at = self.slot_by_addr.get(&from).filter(|_| session == self.config.session)?;
        Some(*at as usize)
    }

    pub(super) fn token(&self, addr: Addr) -> u64 {
        mix(mix(mix(self.config.secret, addr.0), self.config.session), self.config.secret).max(1)
    }

    fn queue_reply(&mut self, to: Addr, reply: PendingReply) {
        if self.pending_replies.len() < MAX_PENDING_REPLIES {
            self.pending_replies.push_back((to, reply));
        }
    }

    fn handle_subscribe(&mut self, now: Instant, from: Addr, subscribe: &Subscribe) {
        if subscribe.session_id != self.config.session {
            self.stats.unknown_senders += 1;
        } else if subscribe.token != self.token(from) {
            self.queue_reply(from, PendingReply::Challenge);
        } else if subscribe.settings_digest != self.settings_digest {
            self.queue_reply(from, PendingReply::Bye(CloseReason::Settings));
        } else if subscribe.first_frame.is_some_and(|first| Some(Frame::new(first)) < self.oldest_frame()) {
            if let Some(at) = self.slot_of(from, subscribe.session_id) {
                self.remove_subscriber(at, Some(CloseReason::TooOld));
            }
            self.queue_reply(from, PendingReply::Bye(CloseReason::TooOld));
        } else if let Some(at) = self.find_or_add_subscriber(now, from) {
            self.welcome(now, at, subscribe);
        } else {
            self.stats.refused += 1;
            self.queue_reply(from, PendingReply::Bye(CloseReason::Full));
        }
    }

    pub(super) fn oldest_frame(&self) -> Option<Frame> {
        self.history.oldest_frame().or(self.next_frame)
    }

    /// Returns the slot of the subscriber at `addr`, which is added if it is new; `None` when the feed is full.
    fn find_or_add_subscriber(&mut self, now: Instant, addr: Addr) -> Option<usize> {
        if let Some(at) = self.slot_by_addr.get(&addr) {
            return Some(*at as usize);
        }
        if self.slot_by_addr.len() >= self.config.max_spectators {
            return None;
        }
        let at = match self.free_slots.pop() {
            Some(at) => {
                let slot = &mut self.subscribers[at as usize];
                let queued = slot.is_queued;
                *slot = Subscriber::new(now, addr);
                slot.is_queued = queued;
                at
            }
            None => {
                self.subscribers.push(Subscriber::new(now, addr));
                self.subscribers.len() as u32 - 1
            }
        };
        if self.slot_by_addr.is_empty() {
            self.next_keep_alive = now + KEEP_ALIVE_INTERVAL;
        }
        self.slot_by_addr.insert(addr, at);
        self.recently_dropped.retain(|(dropped, _)| *dropped != addr);
        self.stats.total_joined += 1;
        self.events.push(FeedEvent::Joined { addr });
        Some(at as usize)
    }

    fn welcome(&mut self, now: Instant, at: usize, subscribe: &Subscribe) {
        let end = self.history.end().or(self.next_frame).unwrap_or_default();
        let slot = &mut self.subscribers[at];
        slot.last_received_at = now;
        if now - slot.welcomed_at < WELCOME_INTERVAL {
            return;
        }
        slot.welcomed_at = now;
        slot.clear_wants();
        slot.live_sent_end = end;
        slot.next_frame = subscribe.first_frame.map_or(end, Frame::new);
        if slot.has_caught_up {
            (slot.has_caught_up, slot.thinning_level, slot.catching_up_since) = (false, 0, now);
        }
        let addr = slot.addr;
        self.queue_reply(addr, PendingReply::Welcome);
        match subscribe.first_frame {
            Some(_) => self.release_snapshot(at),
            None => self.assign_snapshot(now, at, subscribe.known_snapshot),
        }
    }

    /// Offers a snapshot: the one that the subscriber has partly downloaded, else one within the maximum age, else,
    /// after a wait of 1 s or if a new one has no room, an old one. Otherwise the subscriber waits for a new one.
    fn assign_snapshot(&mut self, now: Instant, at: usize, have: Option<u64>) {
        let known = have
            .and_then(|digest| self.snapshots.by_digest(digest))
            .filter(|known| self.has_frames_from(known.next_frame));
        if let Some(number) = known.map(|known| known.number) {
            return self.offer_snapshot(at, number);
        }
        let slot = &mut self.subscribers[at];
        self.awaiting_snapshot += usize::from(slot.awaiting_snapshot_since.is_none());
        let waited = now - *slot.awaiting_snapshot_since.get_or_insert(now);
        let age = self.snapshots.newest().map(|newest| self.next_frame.unwrap_or_default() - newest.next_frame);
        let fresh = age.is_some_and(|age| age <= i64::from(self.config.max_snapshot_age));
        if fresh || waited >= NEW_SNAPSHOT_TIMEOUT || !self.snapshots.has_room() {
            self.offer_newest(now, at);
        }
    }

    /// Returns whether all frames from `next` on are kept.
    fn has_frames_from(&self, next: Frame) -> bool {
        self.oldest_frame().is_none_or(|oldest| oldest <= next)
    }

    /// Returns whether all frames before `next` were pushed.
    pub(super) fn has_reached(&self, next: Frame) -> bool {
        self.next_frame.is_none_or(|pushed| pushed >= next)
    }

    pub(super) fn offer_newest(&mut self, now: Instant, at: usize) {
        let joinable = |next: Frame| self.has_frames_from(next) && self.has_reached(next);
        let newest = self.snapshots.newest().filter(|newest| joinable(newest.next_frame));
        if let Some(number) = newest.map(|newest| newest.number) {
            self.subscribers[at].last_received_at = now;
            self.offer_snapshot(at, number);
        }
    }

    fn offer_snapshot(&mut self, at: usize, number: u16) {
        if self.subscribers[at].snapshot != Some(number) {
            self.release_snapshot(at);
            self.snapshots.add_download(number);
            self.subscribers[at].snapshot = Some(number);
        }
        self.awaiting_snapshot -= usize::from(self.subscribers[at].awaiting_snapshot_since.take().is_some());
        let addr = self.subscribers[at].addr;
        self.queue_reply(addr, PendingReply::Offer(number));
    }

    fn release_snapshot(&mut self, at: usize) {
        let slot = &mut self.subscribers[at];
        slot.clear_wanted_parts();
        self.awaiting_snapshot -= usize::from(slot.awaiting_snapshot_since.take().is_some());
        if let Some(number) = slot.snapshot.take() {
            self.snapshots.remove_download(number);
        }
    }

    fn handle_ack(&mut self, now: Instant, from: Addr, ack: &FeedAck) {
        let Some(at) = self.slot_of(from, ack.session_id) else { return self.on_unknown_sender(from, ack.session_id) };
        let end = self.history.end().unwrap_or_default();
        let oldest = self.oldest_frame().unwrap_or_default();
        let period = self.config.settings.rate.period();
        if !ack.is_fetching_snapshot {
            self.release_snapshot(at);
        }
        let slot = &mut self.subscribers[at];
        slot.last_received_at = now;
        slot.next_frame = Frame::new(ack.next_frame).min(end.max(slot.next_frame));
        let behind = period * (end - slot.next_frame).max(0);
        if !ack.is_fetching_snapshot {
            slot.update_throttle(now, behind);
        }
        if !slot.on_missing_spans(Frame::new(ack.next_frame), &ack.missing, oldest, end) {
            self.drop_subscriber(at, CloseReason::TooOld);
        } else {
            self.queue_bulk(at);
        }
    }

    fn handle_snapshot_request(&mut self, now: Instant, from: Addr, request: &SnapshotRequest) {
        let Some(at) = self.slot_of(from, request.session_id) else {
            return self.on_unknown_sender(from, request.session_id);
        };
        self.subscribers[at].last_received_at = now;
        if self.subscribers[at].snapshot != Some(request.snapshot_id) && !self.resume_snapshot(at, request.snapshot_id)
        {
            return self.drop_subscriber(at, CloseReason::TooOld);
        }
        self.subscribers[at].on_wanted_parts(&request.blocks);
        self.queue_bulk(at);
    }

    /// Reserves snapshot `number` for a subscriber that requests parts of it without a reservation. Returns `false`
    /// when the snapshot is no longer stored.
    fn resume_snapshot(&mut self, at: usize, number: u16) -> bool {
        if self.snapshots.by_number(number).is_none() {
            return false;
        }
        self.release_snapshot(at);
        self.snapshots.add_download(number);
        self.subscribers[at].snapshot = Some(number);
        true
    }

    /// Counts an acknowledgement or snapshot request of a sender that is not subscribed, and answers it with a close
    /// message, because an earlier one may have been lost. The reason is that of the drop, or `Silent` if the drop is
    /// not remembered. A datagram of another session gets no answer. The close message of 10 bytes is shorter than the
    /// datagram that it answers.
    fn on_unknown_sender(&mut self, from: Addr, session: u64) {
        self.stats.unknown_senders += 1;
        if session == self.config.session {
            let known = self.recently_dropped.iter().find(|(addr, _)| *addr == from);
            self.queue_reply(from, PendingReply::Bye(known.map_or(CloseReason::Silent, |(_, reason)| *reason)));
        }
    }

    /// Drops all subscribers and accepts no new ones, so that they switch to another source.
    pub fn drop_all(&mut self) {
        self.config.max_spectators = 0;
        for at in 0..self.subscribers.len() {
            if self.subscribers[at].is_occupied {
                self.drop_subscriber(at, CloseReason::Full);
            }
        }
    }

    /// Adds a subscriber with open requests to the bulk queue, unless it is already there.
    fn queue_bulk(&mut self, at: usize) {
        let slot = &mut self.subscribers[at];
        if !slot.is_queued && slot.has_wants() {
            slot.is_queued = true;
            self.bulk_queue.push_back(at as u32);
            self.share_allowed_at = self.now;
        }
    }

    /// Removes a subscriber and queues the close message with the reason.
    fn drop_subscriber(&mut self, at: usize, reason: CloseReason) {
        let addr = self.subscribers[at].addr;
        self.remove_subscriber(at, Some(reason));
        self.queue_reply(addr, PendingReply::Bye(reason));
    }

    pub(super) fn remove_subscriber(&mut self, at: usize, reason: Option<CloseReason>) {
        self.release_snapshot(at);
        let slot = &mut self.subscribers[at];
        slot.is_occupied = false;
        slot.clear_wants();
        let addr = slot.addr;
        self.slot_by_addr.remove(&addr);
        self.free_slots.push(at as u32);
        self.stats.dropped_silent += u64::from(reason == Some(CloseReason::Silent));
        self.stats.dropped_slow += u64::from(matches!(reason, Some(CloseReason::TooSlow | CloseReason::TooOld)));
        self.events.push(FeedEvent::Left { addr, reason });
        if let Some(reason) = reason {
            if self.recently_dropped.len() == MAX_REMEMBERED_DROPS {
                self.recently_dropped.pop_front();
            }
            self.recently_dropped.push_back((addr, reason));
        }
    }
}
