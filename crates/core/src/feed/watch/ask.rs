//! What is said to a source: what has come, and what is missing.

use super::super::BEAT;
use super::super::event::Trouble;
use super::{Asked, Contact, Stage, Watcher};
use crate::frame::Frame;
use crate::session::Transmit;
use crate::time::{Instant, TimeDelta};
use crate::wire::{BlockRequests, FeedAck, FeedMessage, FrameRanges, MAX_DATAGRAM, SnapshotRequest, Subscribe};

/// Stretches of frames that are under way because they were asked for.
const MOST_ASKED: usize = 32;
/// Who asks to watch asks again after this, and less and less often.
const ASK_AGAIN: TimeDelta = TimeDelta::from_millis(250);
/// Packets that ask for something are at least this far apart.
const BREATH: TimeDelta = TimeDelta::from_millis(10);

impl Watcher {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        assert!(buf.len() >= MAX_DATAGRAM, "a buffer for datagrams holds {MAX_DATAGRAM} bytes");
        let now = self.own_time(now);
        self.watch_silence(now);
        let message = match self.contact {
            Contact::Over => return None,
            Contact::Leaving(left) => self.say_goodbye(left),
            Contact::Asking => self.ask_to_watch(now)?,
            Contact::Watching => self.ask(now)?,
        };
        let (len, to) = (message.encode(buf).expect("what a watcher says fits into a packet"), self.source()?);
        self.stats.packets_out += 1;
        self.stats.bytes_out += len as u64;
        Some(Transmit { to, len })
    }

    fn watch_silence(&mut self, now: Instant) {
        if !matches!(self.contact, Contact::Asking | Contact::Watching) {
            return;
        }
        if now - self.heard_any > self.config.give_up_after {
            self.stop(Trouble::Silent);
        } else if now - self.heard > self.config.silence {
            self.turn_to(now, Trouble::Silent, (self.source + 1) % self.config.from.len().max(1));
        }
    }

    fn say_goodbye(&mut self, left: u8) -> FeedMessage<'static> {
        self.contact = if left > 1 { Contact::Leaving(left - 1) } else { Contact::Over };
        FeedMessage::Unsubscribe { session_id: self.config.session }
    }

    /// When to ask again to watch.
    pub(super) fn ask_at(&self) -> Instant {
        self.asked_to_watch + ASK_AGAIN * i64::from(self.attempts.clamp(1, 4))
    }

    fn ask_to_watch(&mut self, now: Instant) -> Option<FeedMessage<'static>> {
        if now < self.ask_at() {
            return None;
        }
        self.asked_to_watch = now;
        self.attempts += 1;
        if self.attempts == 1 {
            self.first_asked = now;
        }
        let from = (self.stage != Stage::Fetch).then(|| self.store.end().number());
        let have = self.download.as_ref().filter(|_| from.is_none()).map(|download| download.offer().digest);
        let (session, settings, token) = (self.config.session, self.settings, self.token);
        Some(FeedMessage::Subscribe(Subscribe {
            session_id: session,
            settings_digest: settings,
            token,
            first_frame: from,
            known_snapshot: have,
        }))
    }

    /// What a watcher says to its source.
    fn ask(&mut self, now: Instant) -> Option<FeedMessage<'static>> {
        let session = self.config.session;
        if self.stage == Stage::Fetch && self.download.is_none() {
            return self.ask_to_watch(now);
        }
        if let Some((snapshot, wants)) = self.ask_parts(now) {
            self.sent_at = now;
            return Some(FeedMessage::SnapshotRequest(SnapshotRequest {
                session_id: session,
                snapshot_id: snapshot,
                blocks: wants,
            }));
        }
        let spans = if now - self.sent_at >= BREATH { self.ask_frames(now) } else { FrameRanges::default() };
        if spans.is_empty() && now < self.acked_at + BEAT {
            return None;
        }
        (self.acked_at, self.sent_at) = (now, now);
        let fetching = self.stage == Stage::Fetch;
        Some(FeedMessage::Ack(FeedAck {
            session_id: session,
            next_frame: self.store.end().number(),
            is_fetching_snapshot: fetching,
            missing: spans,
        }))
    }

    /// The parts of a snapshot to ask for now.
    fn ask_parts(&mut self, now: Instant) -> Option<(u16, BlockRequests)> {
        if now - self.sent_at < BREATH {
            return None;
        }
        let download = self.download.as_mut().filter(|_| self.stage == Stage::Fetch)?;
        if !download.is_worth_asking(now, &self.flow) {
            return None;
        }
        let wants = download.ask(now, &mut self.flow);
        self.stats.asked_parts += wants.iter().map(|(_, parts)| u64::from(parts.count_ones())).sum::<u64>();
        (!wants.is_empty()).then_some((download.offer().snapshot_id, wants))
    }

    /// The frames to ask for now: what should have come, as far as the line and our memory allow.
    fn ask_frames(&mut self, now: Instant) -> FrameRanges {
        let retry = self.flow.retry();
        self.asked.retain(|asked| now - asked.at < retry);
        let mut spans = FrameRanges::default();
        if self.store.is_full() && self.store.ready() > 0 {
            return spans;
        }
        if self.asked.is_empty() && self.stage != Stage::Fetch {
            self.flow.on_idle(now);
        }
        let mut room = self.room_for_frames();
        let (mut told, mut from) = (self.store.end(), self.store.end());
        while room > 0 && !spans.is_full() && self.asked.len() < MOST_ASKED {
            let Some((first, until)) = self.next_missing(from) else { break };
            let until = until.min(first + room as u32);
            spans.push((first - told) as u32, (until - first) as u32);
            self.asked.push_back(Asked { first, until, at: now, came: false });
            self.stats.asked_frames += (until - first) as u64;
            room -= until - first;
            (told, from) = (until, until);
        }
        spans
    }

    /// How many more frames can be under way.
    fn room_for_frames(&self) -> i64 {
        let under_way: i64 = self.asked.iter().map(|asked| asked.until - asked.first).sum();
        let most = (self.flow.window() * 16 / self.frame_bytes.max(16)).clamp(60, 6_000) as i64;
        if self.asked.len() < MOST_ASKED { most - under_way } else { 0 }
    }

    /// The next stretch that is neither here nor under way.
    fn next_missing(&self, from: Frame) -> Option<(Frame, Frame)> {
        let mut from = from;
        loop {
            let (first, until) = self.store.gap(from, self.newest)?;
            let covers = |asked: &&Asked| asked.first <= first && first < asked.until;
            match self.asked.iter().find(covers) {
                Some(asked) => from = asked.until,
                None => {
                    let ahead = self.asked.iter().map(|asked| asked.first).filter(|asked| *asked > first).min();
                    return Some((first, ahead.map_or(until, |ahead| ahead.min(until))));
                }
            }
        }
    }

    /// When there is something to say to our source.
    pub(super) fn next_ask(&self) -> Instant {
        if self.stage == Stage::Fetch && self.download.is_none() {
            return self.ask_at();
        }
        let breath = self.sent_at + BREATH;
        let beat = self.acked_at + BEAT;
        let parts = match &self.download {
            Some(download) if self.stage == Stage::Fetch && download.is_worth_asking(self.now, &self.flow) => breath,
            Some(download) if self.stage == Stage::Fetch => {
                download.retry_at(&self.flow).map_or(breath, |at| at.max(breath))
            }
            _ => beat,
        };
        let missing = self.store.end() < self.newest && !(self.store.is_full() && self.store.ready() > 0);
        let frames = match self.asked.front() {
            _ if !missing => beat,
            None => breath,
            Some(_) if self.room_for_frames() > 0 && self.next_missing(self.store.end()).is_some() => breath,
            Some(asked) => (asked.at + self.flow.retry()).max(breath),
        };
        beat.min(parts).min(frames)
    }
}
