//! Messages to the source: subscriptions, acknowledgements and requests for missing data.

use super::super::KEEP_ALIVE_INTERVAL;
use super::super::event::SourceError;
use super::{FrameRequest, LoadStage, SourceConnection, Spectator};
use crate::codec::MAX_DATAGRAM;
use crate::codec::Transmit;
use crate::frame::Frame;
use crate::spectator_feed::message::{BlockRequests, FeedAck, FeedMessage, FrameRanges, SnapshotRequest, Subscribe};
use crate::time::{Instant, TimeDelta};

/// Largest number of requested frame ranges in flight.
const MAX_PENDING_REQUESTS: usize = 32;
/// Retry interval after the first subscribe request. It grows with each attempt, up to four times this value.
const SUBSCRIBE_RETRY_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Shortest interval between two packets with requests for missing data.
const MIN_REQUEST_INTERVAL: TimeDelta = TimeDelta::from_millis(10);

impl Spectator {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes. Returns its
    /// destination and length; `None` when nothing is due.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        assert!(buf.len() >= MAX_DATAGRAM, "the datagram buffer must hold {MAX_DATAGRAM} bytes");
        let now = self.advance_clock(now);
        self.check_silence(now);
        let message = match self.connection {
            SourceConnection::Closed => return None,
            SourceConnection::Leaving(left) => self.next_leave_message(left),
            SourceConnection::Subscribing => self.subscribe(now)?,
            SourceConnection::Subscribed => self.next_message(now)?,
        };
        let (len, to) = (message.encode(buf).expect("message fits into a packet"), self.source()?);
        self.stats.packets_out += 1;
        self.stats.bytes_out += len as u64;
        Some(Transmit { to, len })
    }

    fn check_silence(&mut self, now: Instant) {
        if !matches!(self.connection, SourceConnection::Subscribing | SourceConnection::Subscribed) {
            return;
        }
        if now - self.last_received_from_any_at > self.config.give_up_timeout {
            self.give_up(SourceError::Silent);
        } else if now - self.last_received_at > self.config.silence_timeout {
            self.switch_source(now, SourceError::Silent, (self.source + 1) % self.config.sources.len().max(1));
        }
    }

    fn next_leave_message(&mut self, left: u8) -> FeedMessage<'static> {
        self.connection = if left > 1 { SourceConnection::Leaving(left - 1) } else { SourceConnection::Closed };
        FeedMessage::Unsubscribe { session_id: self.config.session }
    }

    /// Returns when to repeat the subscribe request.
    pub(super) fn next_subscribe_at(&self) -> Instant {
        self.last_subscribe_at + SUBSCRIBE_RETRY_INTERVAL * i64::from(self.subscribe_attempts.clamp(1, 4))
    }

    fn subscribe(&mut self, now: Instant) -> Option<FeedMessage<'static>> {
        if now < self.next_subscribe_at() {
            return None;
        }
        self.last_subscribe_at = now;
        self.subscribe_attempts += 1;
        if self.subscribe_attempts == 1 {
            self.first_subscribe_at = now;
        }
        let from = (self.load_stage != LoadStage::Downloading).then(|| self.records.contiguous_end().number());
        let have = self.download.as_ref().filter(|_| from.is_none()).map(|download| download.offer().digest);
        let (session, settings, token) = (self.config.session, self.settings_digest, self.token);
        Some(FeedMessage::Subscribe(Subscribe {
            session_id: session,
            settings_digest: settings,
            token,
            first_frame: from,
            known_snapshot: have,
        }))
    }

    /// Returns the next message to the source while subscribed: a repeated subscribe request, a request for snapshot
    /// parts, or an acknowledgement with a request for frames.
    fn next_message(&mut self, now: Instant) -> Option<FeedMessage<'static>> {
        let session = self.config.session;
        if self.load_stage == LoadStage::Downloading && self.download.is_none() {
            return self.subscribe(now);
        }
        if let Some((snapshot, wants)) = self.request_parts(now) {
            self.last_sent_at = now;
            return Some(FeedMessage::SnapshotRequest(SnapshotRequest {
                session_id: session,
                snapshot_id: snapshot,
                blocks: wants,
            }));
        }
        let spans = if now - self.last_sent_at >= MIN_REQUEST_INTERVAL {
            self.request_frames(now)
        } else {
            FrameRanges::default()
        };
        if spans.is_empty() && now < self.last_ack_at + KEEP_ALIVE_INTERVAL {
            return None;
        }
        (self.last_ack_at, self.last_sent_at) = (now, now);
        let fetching = self.load_stage == LoadStage::Downloading;
        Some(FeedMessage::Ack(FeedAck {
            session_id: session,
            next_frame: self.records.contiguous_end().number(),
            is_fetching_snapshot: fetching,
            missing: spans,
        }))
    }

    /// Returns the snapshot id and the parts to request now; `None` if no request is due.
    fn request_parts(&mut self, now: Instant) -> Option<(u16, BlockRequests)> {
        if now - self.last_sent_at < MIN_REQUEST_INTERVAL {
            return None;
        }
        let download = self.download.as_mut().filter(|_| self.load_stage == LoadStage::Downloading)?;
        if !download.should_request(now, &self.congestion) {
            return None;
        }
        let wants = download.request_parts(now, &mut self.congestion);
        self.stats.requested_parts += wants.iter().map(|(_, parts)| u64::from(parts.count_ones())).sum::<u64>();
        (!wants.is_empty()).then_some((download.offer().snapshot_id, wants))
    }

    /// Returns the missing frames to request now, as far as the congestion window and the buffer allow. Requests that
    /// timed out are repeated.
    fn request_frames(&mut self, now: Instant) -> FrameRanges {
        let retry = self.congestion.retry_timeout();
        self.pending_requests.retain(|request| now - request.sent_at < retry);
        let mut spans = FrameRanges::default();
        if self.records.is_full() && self.records.ready_frames() > 0 {
            return spans;
        }
        if self.pending_requests.is_empty() && self.load_stage != LoadStage::Downloading {
            self.congestion.on_idle(now);
        }
        let mut room = self.frame_request_budget();
        let (mut prev_end, mut from) = (self.records.contiguous_end(), self.records.contiguous_end());
        while room > 0 && !spans.is_full() && self.pending_requests.len() < MAX_PENDING_REQUESTS {
            let Some((first, until)) = self.next_missing_span(from) else { break };
            let until = until.min(first + room as u32);
            spans.push((first - prev_end) as u32, (until - first) as u32);
            self.pending_requests.push_back(FrameRequest { first, end: until, sent_at: now, is_answered: false });
            self.stats.requested_frames += (until - first) as u64;
            room -= until - first;
            (prev_end, from) = (until, until);
        }
        spans
    }

    /// Returns how many more frames may be requested before some arrive or time out.
    fn frame_request_budget(&self) -> i64 {
        let in_flight: i64 = self.pending_requests.iter().map(|request| request.end - request.first).sum();
        let most = (self.congestion.congestion_window() * 16 / self.mean_frame_bytes.max(16)).clamp(60, 6_000) as i64;
        if self.pending_requests.len() < MAX_PENDING_REQUESTS { most - in_flight } else { 0 }
    }

    /// Returns the next range of frames, at or after `from`, that is neither received nor in flight.
    fn next_missing_span(&self, from: Frame) -> Option<(Frame, Frame)> {
        let mut from = from;
        loop {
            let (first, until) = self.records.next_gap(from, self.source_end)?;
            let covers = |request: &&FrameRequest| request.first <= first && first < request.end;
            match self.pending_requests.iter().find(covers) {
                Some(request) => from = request.end,
                None => {
                    let ahead = self
                        .pending_requests
                        .iter()
                        .map(|request| request.first)
                        .filter(|request| *request > first)
                        .min();
                    return Some((first, ahead.map_or(until, |ahead| ahead.min(until))));
                }
            }
        }
    }

    /// Returns when the next message to the source is due.
    pub(super) fn next_send_at(&self) -> Instant {
        if self.load_stage == LoadStage::Downloading && self.download.is_none() {
            return self.next_subscribe_at();
        }
        let next_request = self.last_sent_at + MIN_REQUEST_INTERVAL;
        let keep_alive = self.last_ack_at + KEEP_ALIVE_INTERVAL;
        let parts = match &self.download {
            Some(download)
                if self.load_stage == LoadStage::Downloading && download.should_request(self.now, &self.congestion) =>
            {
                next_request
            }
            Some(download) if self.load_stage == LoadStage::Downloading => {
                download.retry_at(&self.congestion).map_or(next_request, |at| at.max(next_request))
            }
            _ => keep_alive,
        };
        let missing = self.records.contiguous_end() < self.source_end
            && !(self.records.is_full() && self.records.ready_frames() > 0);
        let frames = match self.pending_requests.front() {
            _ if !missing => keep_alive,
            None => next_request,
            Some(_)
                if self.frame_request_budget() > 0
                    && self.next_missing_span(self.records.contiguous_end()).is_some() =>
            {
                next_request
            }
            Some(request) => (request.sent_at + self.congestion.retry_timeout()).max(next_request),
        };
        keep_alive.min(parts).min(frames)
    }
}
