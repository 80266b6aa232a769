//! Handling of datagrams from other mirrors: presence, events, stream status, requests, clock echoes and snapshots.

use super::send::UnicastMessage;
use super::stream::InsertOutcome;
use super::{EventStream, GtdMeasure, MAX_SOURCES, Mirror, MirrorEvent, RemoteMirror, SourceId};
use crate::clock::ClockEcho;
use crate::clock::RoundTrip;
use crate::codec::DecodeError;
use crate::mirror::message::{EncodedEvent, MirrorItem, MirrorItems, StreamStatus};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Time after a mirror's goodbye for which its datagrams are ignored, because they may have been sent before the
/// goodbye.
const LEAVE_QUARANTINE: TimeDelta = TimeDelta::from_secs(2);

impl Mirror {
    /// Handles a datagram from the mirror `from`, whose id the host program must have authenticated.
    pub fn handle_datagram(&mut self, now: Instant, from: SourceId, bytes: &[u8]) {
        self.now = self.now.max(now);
        self.stats.received.0 += 1;
        self.stats.received.1 += bytes.len() as u64;
        if from == self.config.source || !self.mark_present(from) {
            return;
        }
        self.holds.on_change();
        if self.handle_items(from, bytes).is_err() {
            self.stats.malformed += 1;
        }
    }

    /// Marks a mirror as present. Returns false if it left less than [`LEAVE_QUARANTINE`] ago, or if there are too many
    /// peers.
    fn mark_present(&mut self, from: SourceId) -> bool {
        let now = self.now;
        self.ensure_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left_at.is_some_and(|left_at| now - left_at < LEAVE_QUARANTINE) {
            return false;
        }
        (peer.last_received_at, peer.left_at) = (now, None);
        if !core::mem::replace(&mut peer.is_present, true) {
            self.evict_absent_source();
            self.ensure_stream(from);
            self.push_event(MirrorEvent::PeerJoined(from));
            self.next_beacon = now;
        }
        true
    }

    /// Returns the stream of a source, and creates the stream if necessary. `None` if there are [`MAX_SOURCES`] other
    /// streams.
    fn ensure_stream(&mut self, source: SourceId) -> Option<&mut EventStream> {
        if self.streams.len() >= MAX_SOURCES && !self.streams.contains_key(&source) {
            return None;
        }
        Some(self.streams.entry(source).or_insert_with(EventStream::new))
    }

    /// Makes room for a present mirror if there are [`MAX_SOURCES`] streams: discards the stream of the absent source
    /// with the oldest time floor.
    fn evict_absent_source(&mut self) {
        if self.streams.len() < MAX_SOURCES {
            return;
        }
        let absent = self.streams.iter().filter(|(source, _)| !self.is_present(**source));
        let oldest = absent.min_by_key(|(_, stream)| stream.time_floor()).map(|(source, _)| *source);
        if let Some(source) = oldest {
            self.streams.remove(&source);
            self.downloads.remove(&source);
            self.peers.values_mut().for_each(|peer| peer.forget_source(source));
            self.push_event(MirrorEvent::SourceForgotten(source));
        }
    }

    fn handle_items(&mut self, from: SourceId, bytes: &[u8]) -> Result<(), DecodeError> {
        for item in MirrorItems::new(bytes)? {
            match item? {
                MirrorItem::Event(event) => self.on_event(&event),
                MirrorItem::Heartbeat { at, last_event } => self.on_heartbeat(from, at, last_event),
                MirrorItem::StreamStatus(have) => self.on_stream_status(from, have),
                MirrorItem::EventRequest { source, first, count } => self.on_event_request(from, source, first, count),
                MirrorItem::GroupTime(offset) => self.with_peer(from, |peer| peer.group_time_offset = offset),
                MirrorItem::Probe(sent) => self.push_control(from, UnicastMessage::Echo { sent, received: self.now }),
                MirrorItem::Echo(echo) => self.on_echo(from, echo),
                MirrorItem::SnapshotRequest { source, first_piece, count, .. } => {
                    self.on_piece_request(from, source, first_piece, count)
                }
                MirrorItem::SnapshotPiece { source, version, total_len, piece, bytes } => {
                    self.on_piece(from, source, (version, total_len, piece), bytes);
                }
                MirrorItem::Leave => self.on_leave(from),
            }
        }
        Ok(())
    }

    pub(super) fn with_peer(&mut self, source: SourceId, change: impl FnOnce(&mut RemoteMirror)) {
        if let Some(peer) = self.peers.get_mut(&source) {
            change(peer);
        }
    }

    fn on_event(&mut self, event: &EncodedEvent<'_>) {
        let (now, source) = (self.now, event.source);
        if source == self.config.source {
            return;
        }
        let Some(stream) = self.ensure_stream(source) else { return };
        match stream.insert(now, event) {
            InsertOutcome::Duplicate => self.stats.duplicates += 1,
            InsertOutcome::NoRoom => self.stats.refused += 1,
            InsertOutcome::New => {
                self.enqueue(source, event.seq);
                self.sample_gtd(event.issued_at);
            }
        }
    }

    /// Passes a GTD sample to the drop policy when an event issued at `at` arrives, unless deliveries are sampled.
    fn sample_gtd(&mut self, at: GroupInstant) {
        if !self.dropper.uses_gtd_samples() {
            return;
        }
        match self.config.measure {
            GtdMeasure::Arrival => self.on_sample(self.age(at)),
            GtdMeasure::Waiting => {
                let oldest = self.streams.values().filter_map(EventStream::oldest_pending).min();
                self.on_sample(self.age(oldest.map_or(at, |oldest| oldest.min(at))));
            }
            GtdMeasure::Delivery => {}
        }
    }

    fn on_heartbeat(&mut self, from: SourceId, at: GroupInstant, last_event: u64) {
        let now = self.now;
        if let Some(stream) = self.ensure_stream(from) {
            stream.on_heartbeat(now, last_event, at);
        }
    }

    /// Stores a peer's status of a stream, if this mirror keeps that stream. If the source itself sent the status, or
    /// if the source is absent, also creates the stream and expects its events up to the newest one in the status.
    fn on_stream_status(&mut self, from: SourceId, have: StreamStatus) {
        let (now, source) = (self.now, have.source);
        let is_third_party = source == self.config.source || (self.is_present(source) && source != from);
        if !is_third_party && let Some(stream) = self.ensure_stream(source) {
            stream.expect(now, have.newest);
        }
        if self.streams.contains_key(&source) {
            self.with_peer(from, |peer| peer.on_stream_status(have));
        }
    }

    fn on_event_request(&mut self, from: SourceId, source: SourceId, first: u64, count: u8) {
        let Some(stream) = self.streams.get(&source) else { return };
        let requested = first..first.saturating_add(count.into());
        let available: alloc::vec::Vec<u64> = requested.filter(|seq| stream.event(*seq).is_some()).collect();
        if first < stream.base() {
            self.push_control(from, UnicastMessage::Beacon);
        }
        available.into_iter().for_each(|seq| self.push_control(from, UnicastMessage::Event(source, seq)));
    }

    fn on_echo(&mut self, from: SourceId, echo: ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    fn on_leave(&mut self, from: SourceId) {
        let now = self.now;
        self.with_peer(from, |peer| {
            peer.left_at = Some(now);
            peer.is_present = false;
            peer.group_time_offset = None;
        });
        self.push_event(MirrorEvent::PeerLeft(from));
    }
}
