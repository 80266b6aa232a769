//! What a source says, and what becomes of a source.

use super::super::batch::check;
use super::super::download::{Download, Outcome};
use super::super::event::{Trouble, WatchEvent};
use super::super::flow::Flow;
use super::{Contact, Stage, Start, Watcher};
use crate::frame::Frame;
use crate::id::Addr;
use crate::time::Instant;
use crate::wire::{CloseReason, FeedFrames, FeedMessage, SnapshotChunk, SnapshotOffer, Subscribed};

/// Hashes that wait for their frames.
const MOST_HASHES: usize = 16;
/// A packet that is overtaken by others knows of no more frames fewer than this.
const OVERTAKING: i64 = 600;
/// Blocks of one source that may be wrong, as by a fault on the way.
const MOST_BAD: u32 = 8;
/// Refusals by each source that are taken before we give up.
const MOST_REFUSALS: usize = 3;

impl Watcher {
    /// Takes in a datagram. Anything can be handed in: what is of no use is dropped and counted.
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.own_time(now);
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes.len() as u64;
        if self.source() != Some(from) {
            self.stats.strangers += 1;
            return;
        }
        let session = self.config.session;
        match FeedMessage::decode(bytes) {
            Ok(FeedMessage::Challenge { session_id: theirs, token }) if theirs == session => self.on_challenge(token),
            Ok(FeedMessage::Subscribed(welcome)) if welcome.session_id == session => {
                self.on_welcome(now, from, &welcome)
            }
            Ok(FeedMessage::SnapshotOffer(offer)) if offer.session_id == session => self.on_offer(now, offer),
            Ok(FeedMessage::Closed { session_id: theirs, reason }) if theirs == session => self.on_bye(now, reason),
            Ok(FeedMessage::Frames(frames)) => self.on_frames(now, &frames),
            Ok(FeedMessage::SnapshotChunk(chunk)) => self.on_chunk(now, &chunk),
            Ok(
                FeedMessage::Challenge { .. }
                | FeedMessage::Subscribed(_)
                | FeedMessage::SnapshotOffer(_)
                | FeedMessage::Closed { .. },
            ) => self.stats.strangers += 1,
            _ => self.stats.malformed += 1,
        }
    }

    fn hear(&mut self, now: Instant) {
        (self.heard, self.heard_any) = (now, now);
    }

    fn on_challenge(&mut self, token: u64) {
        if self.contact == Contact::Asking && self.token != token {
            (self.token, self.attempts) = (token, 0);
            self.asked_to_watch = Instant::from_nanos(i64::MIN);
        }
    }

    fn on_welcome(&mut self, now: Instant, from: Addr, welcome: &Subscribed) {
        if !matches!(self.contact, Contact::Asking | Contact::Watching) {
            return;
        }
        self.hear(now);
        self.pace.on_batch(welcome.batch_frames);
        if self.contact == Contact::Asking {
            (self.contact, self.joined) = (Contact::Watching, true);
            self.flow = Flow::new(now);
            match self.attempts {
                1 => self.flow.on_rtt(now - self.first_asked),
                _ => self.flow.on_first_answer(now - self.asked_to_watch),
            }
            self.asked.clear();
            self.newest = Frame::new(welcome.end_frame).max(self.store.end());
            let end = self.store.end();
            self.hashes.retain(|(frame, _)| *frame < end);
            self.unproven = (self.stage == Stage::Run && self.store.begin() > Frame::ZERO).then_some((end, now));
            self.events.push(WatchEvent::Joined { source: from });
        }
    }

    fn on_offer(&mut self, now: Instant, offer: SnapshotOffer) {
        if self.contact != Contact::Watching || self.stage != Stage::Fetch {
            return;
        }
        self.hear(now);
        if offer.size as usize > self.config.max_state {
            return self.refuse(now, Trouble::TooLarge { size: offer.size });
        }
        match &mut self.download {
            Some(download) if download.is_same(&offer) => download.resume(offer),
            _ => {
                self.store.reset(Frame::new(offer.next_frame));
                self.hashes.clear();
                self.asked.clear();
                self.download = Some(Download::new(offer));
            }
        }
        self.flow.on_idle(now);
        self.check_download(now);
    }

    fn on_bye(&mut self, now: Instant, reason: CloseReason) {
        if !matches!(self.contact, Contact::Asking | Contact::Watching) {
            return;
        }
        self.hear(now);
        match reason {
            CloseReason::TooSlow if self.contact == Contact::Watching => self.stop(Trouble::Refused(reason)),
            // We were cut off for a while.
            CloseReason::Silent => self.contact = Contact::Asking,
            CloseReason::TooOld if self.config.start == Start::Snapshot => self.start_over(now, reason),
            _ => self.refuse(now, Trouble::Refused(reason)),
        }
    }

    /// What we need is not to be had: a newer state is.
    fn start_over(&mut self, now: Instant, reason: CloseReason) {
        if self.stage == Stage::Fetch && self.download.is_none() {
            return self.refuse(now, Trouble::Refused(reason));
        }
        self.stage = Stage::Fetch;
        self.download = None;
        self.refuse_by(now, Trouble::Refused(reason), self.source);
    }

    /// The frames of this source do not follow from those that an earlier contact brought: the players went on without each other, and the
    /// source plays another game. Its state counts.
    pub(super) fn load_anew(&mut self, now: Instant) {
        (self.stage, self.download) = (Stage::Fetch, None);
        self.refuse_by(now, Trouble::OtherGame, self.source);
    }

    /// Our source is of no use: another one is tried, if it was not one time too many.
    fn refuse(&mut self, now: Instant, reason: Trouble) {
        let next = (self.source + 1) % self.config.from.len().max(1);
        self.refuse_by(now, reason, next);
    }

    fn refuse_by(&mut self, now: Instant, reason: Trouble, next: usize) {
        self.refusals += 1;
        if self.refusals >= MOST_REFUSALS * self.config.from.len().max(1) {
            return self.stop(reason);
        }
        self.turn_to(now, reason, next);
        // Not at once, so that two who do not get along do not talk all the time.
        (self.asked_to_watch, self.first_asked, self.attempts) = (now, now, 1);
    }

    pub(super) fn turn_to(&mut self, now: Instant, reason: Trouble, next: usize) {
        if next != self.source {
            (self.source, self.token) = (next, 0);
            if let Some(to) = self.source() {
                self.events.push(WatchEvent::SourceChanged { to, reason });
            }
        }
        self.contact = Contact::Asking;
        (self.heard, self.attempts, self.bad_blocks, self.level, self.ended) = (now, 0, 0, 0, false);
        self.asked_to_watch = Instant::from_nanos(i64::MIN);
        if let Some(download) = &mut self.download {
            download.forget_asked();
        }
    }

    pub(super) fn stop(&mut self, reason: Trouble) {
        self.contact = Contact::Over;
        self.events.push(WatchEvent::Dropped { reason });
    }

    fn on_frames(&mut self, now: Instant, frames: &FeedFrames<'_>) {
        if self.contact != Contact::Watching {
            return;
        }
        self.hear(now);
        if frames.thinning_level != self.level {
            self.level = frames.thinning_level;
            self.events.push(WatchEvent::Slowed { batches: 1 << frames.thinning_level });
        }
        let (end, ready) = (self.store.end(), self.store.ready());
        let newest = Frame::new(frames.end_frame);
        // One packet may overtake another; but what is far from all that others say is a fault.
        if newest > self.newest || self.newest - newest > OVERTAKING {
            self.newest = newest;
            self.pace.on_frames(now, newest, ready);
        }
        self.ended = frames.is_ended && newest >= self.newest;
        if self.stage == Stage::Fetch && self.download.is_none() {
            return;
        }
        for record in frames.records.iter() {
            if check(self.layout.width(), &record).is_err() {
                self.stats.malformed += 1;
                return;
            }
            self.frame_bytes += (16 * (record.changes.len() + 4) / record.frame_count as usize) / 16;
            self.frame_bytes -= self.frame_bytes / 16;
            if let Some((frame, hash)) = record.state_hash {
                self.keep_hash(Frame::new(frame), hash);
            }
            if self.store.insert(&record) {
                self.on_record(now, Frame::new(record.first_frame), record.changes.len() + 4);
            }
        }
        if self.store.end() > end {
            self.asked.retain(|asked| asked.until > self.store.end());
        }
    }

    /// A record came that was of use: perhaps it was asked for.
    fn on_record(&mut self, now: Instant, first: Frame, bytes: usize) {
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.first <= first && first < asked.until) else {
            return;
        };
        if !core::mem::replace(&mut asked.came, true) {
            self.flow.on_doubtful_rtt(now - asked.at);
        }
        self.flow.on_bytes(now, bytes);
    }

    fn keep_hash(&mut self, frame: Frame, hash: u64) {
        if frame < self.store.begin() || self.hashes.iter().any(|(known, _)| *known == frame) {
            return;
        }
        if self.hashes.len() == MOST_HASHES {
            self.hashes.pop_front();
        }
        self.hashes.push_back((frame, hash));
    }

    fn on_chunk(&mut self, now: Instant, chunk: &SnapshotChunk<'_>) {
        let Some(download) = self.download.as_mut().filter(|_| self.stage == Stage::Fetch) else { return };
        if self.contact != Contact::Watching {
            return;
        }
        (self.heard, self.heard_any) = (now, now);
        self.stats.parts += 1;
        match download.on_chunk(now, chunk, &mut self.flow) {
            Outcome::Bad => {
                self.stats.bad_blocks += 1;
                self.bad_blocks += 1;
                if self.bad_blocks >= MOST_BAD {
                    self.refuse_snapshot(now);
                }
            }
            Outcome::Useful => self.check_download(now),
            Outcome::Useless => {}
        }
    }

    fn check_download(&mut self, now: Instant) {
        let Some(download) = self.download.as_ref().filter(|download| download.is_complete()) else { return };
        if download.is_sound() {
            self.stage = Stage::Load;
            // Our source need not keep it for us any longer.
            self.acked_at = Instant::from_nanos(i64::MIN);
        } else {
            self.refuse_snapshot(now);
        }
    }

    pub(super) fn refuse_snapshot(&mut self, now: Instant) {
        (self.stage, self.download) = (Stage::Fetch, None);
        self.refuse(now, Trouble::BadSnapshot);
    }
}
