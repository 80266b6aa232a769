//! Messages from the source, and the choice of another source when one fails.

use super::super::batch::validate_record;
use super::super::download::{PartOutcome, SnapshotDownload};
use super::super::download_window::DownloadWindow;
use super::super::event::{SourceError, SpectatorEvent};
use super::{LoadStage, SourceConnection, Spectator, SpectatorStart};
use crate::frame::Frame;
use crate::id::Addr;
use crate::spectator_feed::message::{CloseReason, FeedFrames, FeedMessage, SnapshotChunk, SnapshotOffer, Subscribed};
use crate::time::Instant;

/// Largest number of state hashes that wait for their frames to be stepped.
const MAX_PENDING_HASHES: usize = 16;
/// Largest number of frames by which the end stated in a reordered packet can be older than the newest stated end.
const MAX_REORDERED_FRAMES: i64 = 600;
/// Number of corrupt blocks after which a source's snapshot is rejected. Fewer can be transmission errors.
const MAX_BAD_BLOCKS: u32 = 8;
/// Number of refusals per configured source after which the spectator gives up. Refusals by all sources are added up,
/// from the time at which the spectator last became live.
const MAX_REFUSALS_PER_SOURCE: usize = 3;

impl Spectator {
    /// Handles a datagram from any sender. Datagrams that are malformed or not from the current source are dropped and
    /// counted.
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.advance_clock(now);
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes.len() as u64;
        if self.source() != Some(from) {
            self.stats.unknown_senders += 1;
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
            ) => self.stats.unknown_senders += 1,
            _ => self.stats.malformed += 1,
        }
    }

    fn on_source_received(&mut self, now: Instant) {
        (self.last_received_at, self.last_received_from_any_at) = (now, now);
    }

    fn on_challenge(&mut self, token: u64) {
        if self.connection == SourceConnection::Subscribing && self.token != token {
            (self.token, self.subscribe_attempts) = (token, 0);
            self.last_subscribe_at = Instant::from_nanos(i64::MIN);
        }
    }

    fn on_welcome(&mut self, now: Instant, from: Addr, welcome: &Subscribed) {
        if !matches!(self.connection, SourceConnection::Subscribing | SourceConnection::Subscribed) {
            return;
        }
        self.on_source_received(now);
        self.playout.on_batch(welcome.batch_frames);
        if self.connection == SourceConnection::Subscribing {
            (self.connection, self.has_joined) = (SourceConnection::Subscribed, true);
            self.congestion = DownloadWindow::new(now);
            match self.subscribe_attempts {
                1 => self.congestion.on_rtt(now - self.first_subscribe_at),
                _ => self.congestion.set_initial_rtt(now - self.last_subscribe_at),
            }
            self.pending_requests.clear();
            self.source_end = Frame::new(welcome.end_frame).max(self.records.contiguous_end());
            let end = self.records.contiguous_end();
            self.pending_hashes.retain(|(frame, _)| *frame < end);
            self.unverified = (self.load_stage == LoadStage::Running && self.records.next_frame() > Frame::ZERO)
                .then_some((end, now));
            self.events.push(SpectatorEvent::Joined { source: from });
        }
    }

    fn on_offer(&mut self, now: Instant, offer: SnapshotOffer) {
        if self.connection != SourceConnection::Subscribed || self.load_stage != LoadStage::Downloading {
            return;
        }
        self.on_source_received(now);
        if offer.size as usize > self.config.max_snapshot_size {
            return self.reject_source(now, SourceError::SnapshotTooLarge { size: offer.size });
        }
        match &mut self.download {
            Some(download) if download.is_same_snapshot(&offer) => download.resume(offer),
            _ => {
                self.records.reset(Frame::new(offer.next_frame));
                self.pending_hashes.clear();
                self.pending_requests.clear();
                self.download = Some(SnapshotDownload::new(offer));
            }
        }
        self.congestion.on_idle(now);
        self.check_download(now);
    }

    fn on_bye(&mut self, now: Instant, reason: CloseReason) {
        if !matches!(self.connection, SourceConnection::Subscribing | SourceConnection::Subscribed) {
            return;
        }
        self.on_source_received(now);
        match reason {
            CloseReason::TooSlow if self.connection == SourceConnection::Subscribed => {
                self.give_up(SourceError::Refused(reason))
            }
            // The link was interrupted for a while: subscribe again.
            CloseReason::Silent => self.connection = SourceConnection::Subscribing,
            CloseReason::TooOld if self.config.start == SpectatorStart::Snapshot => {
                self.restart_from_snapshot(now, reason)
            }
            _ => self.reject_source(now, SourceError::Refused(reason)),
        }
    }

    /// Restarts from a newer snapshot, because the source no longer has the frames that this spectator needs. If the
    /// spectator was still waiting for the offer of a snapshot, it tries the next source instead.
    fn restart_from_snapshot(&mut self, now: Instant, reason: CloseReason) {
        if self.load_stage == LoadStage::Downloading && self.download.is_none() {
            return self.reject_source(now, SourceError::Refused(reason));
        }
        self.load_stage = LoadStage::Downloading;
        self.download = None;
        self.reject_source_for(now, SourceError::Refused(reason), self.source);
    }

    /// Downloads the state of the current source, because the source's frames do not continue the game that the
    /// spectator has stepped: the players were split, and the source follows a different game. The source's state
    /// replaces the spectator's.
    pub(super) fn reload_snapshot(&mut self, now: Instant) {
        (self.load_stage, self.download) = (LoadStage::Downloading, None);
        self.reject_source_for(now, SourceError::DifferentGame, self.source);
    }

    /// Switches to the next source, or gives up after too many refusals.
    fn reject_source(&mut self, now: Instant, reason: SourceError) {
        let next = (self.source + 1) % self.config.sources.len().max(1);
        self.reject_source_for(now, reason, next);
    }

    fn reject_source_for(&mut self, now: Instant, reason: SourceError, next: usize) {
        self.refusals += 1;
        if self.refusals >= MAX_REFUSALS_PER_SOURCE * self.config.sources.len().max(1) {
            return self.give_up(reason);
        }
        self.switch_source(now, reason, next);
        // Delays the next attempt, so that an incompatible pair does not exchange packets without pause.
        (self.last_subscribe_at, self.first_subscribe_at, self.subscribe_attempts) = (now, now, 1);
    }

    pub(super) fn switch_source(&mut self, now: Instant, reason: SourceError, next: usize) {
        if next != self.source {
            (self.source, self.token) = (next, 0);
            if let Some(to) = self.source() {
                self.events.push(SpectatorEvent::SourceChanged { to, reason });
            }
        }
        self.connection = SourceConnection::Subscribing;
        (self.last_received_at, self.subscribe_attempts, self.bad_blocks, self.thinning_level, self.has_ended) =
            (now, 0, 0, 0, false);
        self.last_subscribe_at = Instant::from_nanos(i64::MIN);
        if let Some(download) = &mut self.download {
            download.forget_requests();
        }
    }

    pub(super) fn give_up(&mut self, reason: SourceError) {
        self.connection = SourceConnection::Closed;
        self.events.push(SpectatorEvent::Dropped { reason });
    }

    fn on_frames(&mut self, now: Instant, frames: &FeedFrames<'_>) {
        if self.connection != SourceConnection::Subscribed {
            return;
        }
        self.on_source_received(now);
        if frames.thinning_level != self.thinning_level {
            self.thinning_level = frames.thinning_level;
            self.events.push(SpectatorEvent::Slowed { batches: 1 << frames.thinning_level });
        }
        let (end, ready) = (self.records.contiguous_end(), self.records.ready_frames());
        let newest = Frame::new(frames.end_frame);
        // A reordered packet states a slightly older end frame, which is ignored. A much older end frame means that the
        // earlier value was wrong.
        if newest > self.source_end || self.source_end - newest > MAX_REORDERED_FRAMES {
            self.source_end = newest;
            self.playout.on_frames(now, newest, ready);
        }
        self.has_ended = frames.is_ended && newest >= self.source_end;
        if self.load_stage == LoadStage::Downloading && self.download.is_none() {
            return;
        }
        for record in frames.records.iter() {
            if validate_record(self.layout.width(), &record).is_err() {
                self.stats.malformed += 1;
                return;
            }
            self.mean_frame_bytes += (16 * (record.changes.len() + 4) / record.frame_count as usize) / 16;
            self.mean_frame_bytes -= self.mean_frame_bytes / 16;
            if let Some((frame, hash)) = record.state_hash {
                self.store_hash(Frame::new(frame), hash);
            }
            if self.records.insert(&record) {
                self.on_record(now, Frame::new(record.first_frame), record.changes.len() + 4);
            }
        }
        if self.records.contiguous_end() > end {
            self.pending_requests.retain(|request| request.end > self.records.contiguous_end());
        }
    }

    /// Updates the congestion window with a stored record, if the record was requested.
    fn on_record(&mut self, now: Instant, first: Frame, bytes: usize) {
        let Some(request) =
            self.pending_requests.iter_mut().find(|request| request.first <= first && first < request.end)
        else {
            return;
        };
        if !core::mem::replace(&mut request.is_answered, true) {
            self.congestion.on_ambiguous_rtt(now - request.sent_at);
        }
        self.congestion.on_bytes(now, bytes);
    }

    fn store_hash(&mut self, frame: Frame, hash: u64) {
        if frame < self.records.next_frame() || self.pending_hashes.iter().any(|(known, _)| *known == frame) {
            return;
        }
        if self.pending_hashes.len() == MAX_PENDING_HASHES {
            self.pending_hashes.pop_front();
        }
        self.pending_hashes.push_back((frame, hash));
    }

    fn on_chunk(&mut self, now: Instant, chunk: &SnapshotChunk<'_>) {
        let Some(download) = self.download.as_mut().filter(|_| self.load_stage == LoadStage::Downloading) else {
            return;
        };
        if self.connection != SourceConnection::Subscribed {
            return;
        }
        (self.last_received_at, self.last_received_from_any_at) = (now, now);
        self.stats.received_parts += 1;
        match download.on_chunk(now, chunk, &mut self.congestion) {
            PartOutcome::BlockCorrupt => {
                self.stats.bad_blocks += 1;
                self.bad_blocks += 1;
                if self.bad_blocks >= MAX_BAD_BLOCKS {
                    self.reject_snapshot(now);
                }
            }
            PartOutcome::Accepted => self.check_download(now),
            PartOutcome::Ignored => {}
        }
    }

    fn check_download(&mut self, now: Instant) {
        let Some(download) = self.download.as_ref().filter(|download| download.is_complete()) else { return };
        if download.matches_digest() {
            self.load_stage = LoadStage::ReadyToLoad;
            // Acknowledge at once, so that the source can release the snapshot.
            self.last_ack_at = Instant::from_nanos(i64::MIN);
        } else {
            self.reject_snapshot(now);
        }
    }

    pub(super) fn reject_snapshot(&mut self, now: Instant) {
        (self.load_stage, self.download) = (LoadStage::Downloading, None);
        self.reject_source(now, SourceError::BadSnapshot);
    }
}
