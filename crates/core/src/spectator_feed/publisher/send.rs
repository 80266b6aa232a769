//! Sending: replies first, then live frames, then requested bulk data within the byte budgets.

use super::super::KEEP_ALIVE_INTERVAL;
use super::super::subscriber::Subscriber;
use super::{Feed, LivePacket, PendingReply};
use crate::codec::Transmit;
use crate::codec::{ByteWriter, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::spectator_feed::message::{
    CloseReason, FeedMessage, SnapshotChunk, SnapshotOffer, Subscribed, put_frames_header,
};
use crate::time::{Instant, TimeDelta};

/// Largest record, in bytes, that is sent a second time, with the next record, so that one lost packet costs no round
/// trip.
const MAX_REPEATED_RECORD_SIZE: usize = 100;
/// Time for which unused bulk budget is saved. It may be spent in one burst.
const BULK_BURST: TimeDelta = TimeDelta::from_millis(20);
/// Largest number of subscribers without budget that one call of `send_bulk` skips.
const MAX_PASSED_OVER: usize = 16;

impl Feed {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes. Returns its
    /// destination and length; `None` when nothing is due.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        assert!(buf.len() >= MAX_DATAGRAM, "the datagram buffer must hold {MAX_DATAGRAM} bytes");
        let now = self.advance_clock(now);
        self.run_timers(now);
        let transmit =
            self.send_reply(buf).or_else(|| self.send_live(now, buf)).or_else(|| self.send_bulk(now, buf))?;
        self.stats.packets_out += 1;
        self.stats.bytes_out += transmit.len as u64;
        Some(transmit)
    }

    fn send_reply(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let session = self.config.session;
        while let Some((to, reply)) = self.pending_replies.pop_front() {
            let message = match reply {
                PendingReply::Challenge => FeedMessage::Challenge { session_id: session, token: self.token(to) },
                PendingReply::Bye(reason) => FeedMessage::Closed { session_id: session, reason },
                PendingReply::Welcome => FeedMessage::Subscribed(Subscribed {
                    session_id: session,
                    oldest_frame: self.oldest_frame().unwrap_or_default().number(),
                    end_frame: self.history.end().or(self.next_frame).unwrap_or_default().number(),
                    batch_frames: self.config.batch_frames as u8,
                }),
                PendingReply::Offer(number) => match self.snapshots.by_number(number) {
                    None => continue,
                    Some(snapshot) => FeedMessage::SnapshotOffer(SnapshotOffer {
                        session_id: session,
                        snapshot_id: number,
                        next_frame: snapshot.next_frame.number(),
                        size: snapshot.size(),
                        state_hash: snapshot.state_hash,
                        digest: snapshot.digest,
                    }),
                },
            };
            let len = message.encode(buf).expect("reply fits into a packet");
            return Some(Transmit { to, len });
        }
        None
    }

    /// Writes a live packet or a close message for the next subscriber of the live round that needs one.
    fn send_live(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        while self.live_turns_left > 0 {
            self.live_turns_left -= 1;
            self.live_cursor = (self.live_cursor + 1) % self.subscribers.len();
            if let Some(len) = self.send_live_to(now, self.live_cursor, buf) {
                return Some(Transmit { to: self.subscribers[self.live_cursor].addr, len });
            }
        }
        None
    }

    fn send_live_to(&mut self, now: Instant, at: usize, buf: &mut [u8]) -> Option<usize> {
        let slot = &self.subscribers[at];
        if !slot.is_occupied {
            return None;
        }
        if let Some(reason) = self.drop_reason(now, slot) {
            self.remove_subscriber(at, Some(reason));
            let bye = FeedMessage::Closed { session_id: self.config.session, reason };
            return bye.encode(buf).ok();
        }
        let end = self.history.end().unwrap_or_default();
        let new = end - slot.live_sent_end;
        let worth_it =
            new >= i64::from(self.config.batch_frames) << slot.thinning_level || (new > 0 && slot.thinning_level == 0);
        if !worth_it && now - slot.last_sent_at < KEEP_ALIVE_INTERVAL {
            return None;
        }
        let (level, sent) = (slot.thinning_level, slot.live_sent_end);
        if self.live_packet.key != Some((sent, end, level)) {
            self.build_live_packet(sent, end, level);
        }
        buf[..self.live_packet.len].copy_from_slice(&self.live_packet.bytes[..self.live_packet.len]);
        let slot = &mut self.subscribers[at];
        (slot.live_sent_end, slot.last_sent_at) = (self.live_packet.end.max(sent), now);
        Some(self.live_packet.len)
    }

    /// Returns the reason for which a subscriber must be dropped now; `None` if it may stay.
    fn drop_reason(&self, now: Instant, slot: &Subscriber) -> Option<CloseReason> {
        let behind = self.config.settings.rate.period() * (self.history.end().unwrap_or_default() - slot.next_frame);
        if now - slot.last_received_at.max(self.awake_since) > self.config.silence_timeout {
            Some(CloseReason::Silent)
        } else {
            let late = now - slot.catching_up_since > self.config.catch_up_timeout;
            let slow = if slot.has_caught_up { slot.is_too_slow(now, behind) } else { late };
            slow.then_some(CloseReason::TooSlow)
        }
    }

    /// Builds the live packet for every subscriber at thinning level `level` that was sent all frames before `sent`.
    /// `end` is the end of the history. If more than 16 batches are unsent, only the newest record is new in the
    /// packet, and the subscriber must request the rest. The packet also repeats the record before its first new one,
    /// if the repeated record is short.
    fn build_live_packet(&mut self, sent: Frame, end: Frame, level: u8) {
        let most = i64::from(self.config.batch_frames) * 16;
        let newest = self.history.find(Frame::new(end.number().saturating_sub(1))).map(|kept| kept.first);
        let mut from = if end - sent > most { newest.unwrap_or(end) } else { sent };
        let before = from.checked_sub(1).and_then(|before| self.history.find(before));
        if let Some(kept) = before.filter(|kept| kept.bytes.len() <= MAX_REPEATED_RECORD_SIZE && from < end) {
            from = kept.first;
        }
        let mut bytes = self.live_packet.bytes;
        let (len, next) = self.put_frames(&mut bytes, level, from, end);
        self.live_packet = LivePacket { key: Some((sent, end, level)), end: next, len, bytes };
    }

    /// Encodes the records with the frames `from..until`, as many as fit into a datagram, after a header that states
    /// the subscriber's thinning level `level`. Returns the length in bytes and the frame after the last encoded one.
    fn put_frames(&self, buf: &mut [u8], level: u8, from: Frame, until: Frame) -> (usize, Frame) {
        let mut writer = ByteWriter::new(&mut buf[..MAX_DATAGRAM]);
        let first = self.history.find(from).map_or(from, |kept| kept.first);
        let end = self.history.end().or(self.next_frame).unwrap_or_default();
        put_frames_header(&mut writer, self.has_ended, level, end.number(), first.number())
            .expect("header fits into a packet");
        let mut at = first;
        while at < until {
            let Some(kept) = self.history.find(at) else { break };
            if writer.len() + 1 + kept.bytes.len() > MAX_DATAGRAM {
                break;
            }
            writer.u8(0).and_then(|()| writer.put(kept.bytes)).expect("record fits into the rest of the packet");
            at = kept.first + kept.count;
        }
        (writer.len(), at)
    }

    /// Writes requested data for the next subscriber in the bulk queue with budget left, if the feed has budget left.
    fn send_bulk(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.bulk_allowed_at > now {
            return None;
        }
        let mut share_at = Instant::FAR_FUTURE;
        let mut passed_over = 0;
        while passed_over < MAX_PASSED_OVER.min(self.bulk_queue.len()) {
            let at = self.bulk_queue.pop_front()? as usize;
            let slot = &mut self.subscribers[at];
            if !slot.is_occupied || !slot.has_wants() {
                slot.is_queued = false;
                continue;
            }
            self.bulk_queue.push_back(at as u32);
            if slot.bulk_allowed_at > now {
                share_at = share_at.min(slot.bulk_allowed_at);
                passed_over += 1;
                continue;
            }
            if let Some(len) = self.put_bulk(at, buf) {
                self.charge_bulk_budget(now, at, len);
                return Some(Transmit { to: self.subscribers[at].addr, len });
            }
        }
        self.share_allowed_at = share_at.max(now);
        None
    }

    fn charge_bulk_budget(&mut self, now: Instant, at: usize, len: usize) {
        let cost = |rate: u32| TimeDelta::from_nanos(len as i64 * 1_000_000_000 / i64::from(rate.max(1)));
        self.bulk_allowed_at = self.bulk_allowed_at.max(now - BULK_BURST) + cost(self.config.max_bulk_rate);
        let slot = &mut self.subscribers[at];
        slot.bulk_allowed_at =
            slot.bulk_allowed_at.max(now - BULK_BURST) + cost(self.config.max_bulk_rate_per_spectator);
        self.stats.bulk_out += len as u64;
    }

    /// Writes requested frames or else a requested snapshot part for the subscriber in slot `at`. Frames come first,
    /// because playout waits for them.
    fn put_bulk(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        if let Some((from, until)) = self.subscribers[at].first_span() {
            let (len, next) = self.put_frames(buf, self.subscribers[at].thinning_level, from, until);
            // The history may have dropped these frames. The subscriber then requests them again and is dropped as too
            // old.
            self.subscribers[at].on_span_sent(if next > from { next } else { until });
            return (next > from).then_some(len);
        }
        let (block, part) = self.subscribers[at].take_wanted_part()?;
        let number = self.subscribers[at].snapshot?;
        let found = self.snapshots.by_number(number)?.part(block, part)?;
        let (hash, raw, size, bytes) = (found.digest, found.is_raw, found.size, found.bytes);
        let chunk =
            SnapshotChunk { snapshot_id: number, block, block_hash: hash, is_raw: raw, block_len: size, part, bytes };
        (!bytes.is_empty()).then(|| FeedMessage::SnapshotChunk(chunk).encode(buf).expect("part fits into a packet"))
    }
}
