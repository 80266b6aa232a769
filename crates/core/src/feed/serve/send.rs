//! What leaves, and in which order: answers, what is new, and, as far as the budget goes, what was asked for.

use super::super::BEAT;
use super::super::slot::Slot;
use super::{Copy, Feed, Reply};
use crate::frame::Frame;
use crate::session::Transmit;
use crate::time::{Instant, TimeDelta};
use crate::wire::{
    ByteWriter, CloseReason, FeedMessage, MAX_DATAGRAM, SnapshotChunk, SnapshotOffer, Subscribed, put_frames_header,
};

/// A record up to this size is sent a second time, with the next one: a lost packet costs no round trip then.
const REPEATED: usize = 100;
/// What was saved up of a budget can be spent at once as far as it is not older than this.
const BURST: TimeDelta = TimeDelta::from_millis(20);
/// So many who wait for their share are passed over in one call.
const PASSED_OVER: usize = 16;

impl Feed {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        assert!(buf.len() >= MAX_DATAGRAM, "a buffer for datagrams holds {MAX_DATAGRAM} bytes");
        let now = self.own_time(now);
        self.pass_time(now);
        let transmit =
            self.send_reply(buf).or_else(|| self.send_live(now, buf)).or_else(|| self.send_bulk(now, buf))?;
        self.stats.packets_out += 1;
        self.stats.bytes_out += transmit.len as u64;
        Some(transmit)
    }

    fn send_reply(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let session = self.config.session;
        while let Some((to, reply)) = self.replies.pop_front() {
            let message = match reply {
                Reply::Challenge => FeedMessage::Challenge { session_id: session, token: self.token(to) },
                Reply::Bye(reason) => FeedMessage::Closed { session_id: session, reason },
                Reply::Welcome => FeedMessage::Subscribed(Subscribed {
                    session_id: session,
                    oldest_frame: self.oldest().unwrap_or_default().number(),
                    end_frame: self.history.end().or(self.next).unwrap_or_default().number(),
                    batch_frames: self.config.batch as u8,
                }),
                Reply::Offer(number) => match self.snapshots.by_number(number) {
                    None => continue,
                    Some(snapshot) => FeedMessage::SnapshotOffer(SnapshotOffer {
                        session_id: session,
                        snapshot_id: number,
                        next_frame: snapshot.next.number(),
                        size: snapshot.size(),
                        state_hash: snapshot.hash,
                        digest: snapshot.digest,
                    }),
                },
            };
            let len = message.encode(buf).expect("an answer fits into a packet");
            return Some(Transmit { to, len });
        }
        None
    }

    /// What is new, to one after the other.
    fn send_live(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        while self.turns > 0 {
            self.turns -= 1;
            self.turn = (self.turn + 1) % self.slots.len();
            if let Some(len) = self.take_turn(now, self.turn, buf) {
                return Some(Transmit { to: self.slots[self.turn].addr, len });
            }
        }
        None
    }

    fn take_turn(&mut self, now: Instant, at: usize, buf: &mut [u8]) -> Option<usize> {
        let slot = &self.slots[at];
        if !slot.taken {
            return None;
        }
        if let Some(reason) = self.too_much(now, slot) {
            self.remove(at, Some(reason));
            let bye = FeedMessage::Closed { session_id: self.config.session, reason };
            return bye.encode(buf).ok();
        }
        let end = self.history.end().unwrap_or_default();
        let new = end - slot.sent;
        let worth_it = new >= i64::from(self.config.batch) << slot.level || (new > 0 && slot.level == 0);
        if !worth_it && now - slot.served < BEAT {
            return None;
        }
        let (level, sent) = (slot.level, slot.sent);
        if self.copy.of != Some((sent, end, level)) {
            self.make_copy(sent, end, level);
        }
        buf[..self.copy.len].copy_from_slice(&self.copy.bytes[..self.copy.len]);
        let slot = &mut self.slots[at];
        (slot.sent, slot.served) = (self.copy.next.max(sent), now);
        Some(self.copy.len)
    }

    /// Why somebody is dropped, if he is.
    fn too_much(&self, now: Instant, slot: &Slot) -> Option<CloseReason> {
        let behind = self.config.settings.rate.period() * (self.history.end().unwrap_or_default() - slot.next);
        if now - slot.heard.max(self.awake_since) > self.config.silence {
            Some(CloseReason::Silent)
        } else {
            let late = now - slot.since > self.config.catch_up_within;
            let slow = if slot.caught_up { slot.is_too_slow(now, behind) } else { late };
            slow.then_some(CloseReason::TooSlow)
        }
    }

    /// Makes the packet for all who have got everything before `sent`. Who has got less than the last seconds must ask.
    fn make_copy(&mut self, sent: Frame, end: Frame, level: u8) {
        let most = i64::from(self.config.batch) * 16;
        let newest = self.history.find(Frame::new(end.number().saturating_sub(1))).map(|kept| kept.first);
        let mut from = if end - sent > most { newest.unwrap_or(end) } else { sent };
        let before = from.checked_sub(1).and_then(|before| self.history.find(before));
        if let Some(kept) = before.filter(|kept| kept.bytes.len() <= REPEATED && from < end) {
            from = kept.first;
        }
        let mut bytes = self.copy.bytes;
        let (len, next) = self.put_frames(&mut bytes, level, from, end);
        self.copy = Copy { of: Some((sent, end, level)), next, len, bytes };
    }

    /// Writes as many frames of `from..until` as fit, and returns the frame after the last.
    fn put_frames(&self, buf: &mut [u8], level: u8, from: Frame, until: Frame) -> (usize, Frame) {
        let mut writer = ByteWriter::new(&mut buf[..MAX_DATAGRAM]);
        let first = self.history.find(from).map_or(from, |kept| kept.first);
        let end = self.history.end().or(self.next).unwrap_or_default();
        put_frames_header(&mut writer, self.ended, level, end.number(), first.number()).expect("room for a head");
        let mut at = first;
        while at < until {
            let Some(kept) = self.history.find(at) else { break };
            if writer.len() + 1 + kept.bytes.len() > MAX_DATAGRAM {
                break;
            }
            writer.u8(0).and_then(|()| writer.put(kept.bytes)).expect("room for a record");
            at = kept.first + kept.count;
        }
        (writer.len(), at)
    }

    /// What was asked for, to one after the other, as far as the budget goes.
    fn send_bulk(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.bulk_at > now {
            return None;
        }
        let mut share_at = Instant::FAR_FUTURE;
        let mut passed_over = 0;
        while passed_over < PASSED_OVER.min(self.bulk.len()) {
            let at = self.bulk.pop_front()? as usize;
            let slot = &mut self.slots[at];
            if !slot.taken || !slot.wants_anything() {
                slot.queued = false;
                continue;
            }
            self.bulk.push_back(at as u32);
            if slot.bulk_at > now {
                share_at = share_at.min(slot.bulk_at);
                passed_over += 1;
                continue;
            }
            if let Some(len) = self.put_bulk(at, buf) {
                self.spend(now, at, len);
                return Some(Transmit { to: self.slots[at].addr, len });
            }
        }
        self.share_at = share_at.max(now);
        None
    }

    fn spend(&mut self, now: Instant, at: usize, len: usize) {
        let cost = |rate: u32| TimeDelta::from_nanos(len as i64 * 1_000_000_000 / i64::from(rate.max(1)));
        self.bulk_at = self.bulk_at.max(now - BURST) + cost(self.config.most_bytes_per_second);
        let slot = &mut self.slots[at];
        slot.bulk_at = slot.bulk_at.max(now - BURST) + cost(self.config.most_bytes_per_second_each);
        self.stats.bulk_out += len as u64;
    }

    /// Missed frames come first: they are what others wait for.
    fn put_bulk(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        if let Some((from, until)) = self.slots[at].first_span() {
            let (len, next) = self.put_frames(buf, self.slots[at].level, from, until);
            // What is not there any more cannot be sent; whoever misses it asks again and is told so.
            self.slots[at].on_span_sent(if next > from { next } else { until });
            return (next > from).then_some(len);
        }
        let (block, part) = self.slots[at].take_want()?;
        let number = self.slots[at].snapshot?;
        let found = self.snapshots.by_number(number)?.part(block, part)?;
        let (hash, raw, size, bytes) = (found.hash, found.raw, found.size, found.bytes);
        let chunk =
            SnapshotChunk { snapshot_id: number, block, block_hash: hash, is_raw: raw, block_len: size, part, bytes };
        (!bytes.is_empty()).then(|| FeedMessage::SnapshotChunk(chunk).encode(buf).expect("a part fits into a packet"))
    }
}
