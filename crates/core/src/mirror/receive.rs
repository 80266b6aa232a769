//! What comes from other mirrors.

use super::send::MirrorControl;
use super::stream::InsertOutcome;
use super::{EventStream, GtdMeasure, MAX_SOURCES, Mirror, MirrorEvent, MirrorPeer, SourceId};
use crate::clock::RoundTrip;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{ClockEcho, DecodeError, EventRef, MirrorItem, MirrorItems, StreamStatus};

/// Who said goodbye is deaf to what was still under way for so long.
const LEAVE_QUARANTINE: TimeDelta = TimeDelta::from_secs(2);

impl Mirror {
    /// Takes in a datagram from a mirror; the network vouches for who that is.
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

    /// Notes that a mirror is here. Not if it has just left, or if there are too many.
    fn mark_present(&mut self, from: SourceId) -> bool {
        let now = self.now;
        self.ensure_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left_at.is_some_and(|left| now - left < LEAVE_QUARANTINE) {
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

    /// There is such a source.
    fn ensure_stream(&mut self, source: SourceId) -> Option<&mut EventStream> {
        if self.streams.len() >= MAX_SOURCES && !self.streams.contains_key(&source) {
            return None;
        }
        Some(self.streams.entry(source).or_insert_with(EventStream::new))
    }

    /// For somebody who is here: forgets a source that is not, and of which the least is known to have happened lately.
    fn evict_absent_source(&mut self) {
        if self.streams.len() < MAX_SOURCES {
            return;
        }
        let gone = self.streams.iter().filter(|(source, _)| !self.is_present(**source));
        let oldest = gone.min_by_key(|(_, stream)| stream.time_floor()).map(|(source, _)| *source);
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
                MirrorItem::Event(happening) => self.on_event(&happening),
                MirrorItem::Heartbeat { at, last_event: last } => self.on_alive(from, at, last),
                MirrorItem::StreamStatus(have) => self.on_have(from, have),
                MirrorItem::EventRequest { source: of, first, count } => self.on_event_request(from, of, first, count),
                MirrorItem::GroupTime(ahead) => self.with_peer(from, |peer| peer.group_time_offset = ahead),
                MirrorItem::Probe(sent) => self.push_control(from, MirrorControl::Echo { sent, received: self.now }),
                MirrorItem::Echo(echo) => self.on_echo(from, echo),
                MirrorItem::SnapshotRequest { source: of, first_piece: piece, count, .. } => {
                    self.on_piece_request(from, of, piece, count)
                }
                MirrorItem::SnapshotPiece { source: of, version, total_len: total, piece, bytes } => {
                    self.on_piece(from, of, (version, total, piece), bytes);
                }
                MirrorItem::Leave => self.on_bye(from),
            }
        }
        Ok(())
    }

    pub(super) fn with_peer(&mut self, source: SourceId, change: impl FnOnce(&mut MirrorPeer)) {
        if let Some(peer) = self.peers.get_mut(&source) {
            change(peer);
        }
    }

    fn on_event(&mut self, happening: &EventRef<'_>) {
        let (now, source) = (self.now, happening.source);
        if source == self.config.source {
            return;
        }
        let Some(stream) = self.ensure_stream(source) else { return };
        match stream.insert(now, happening) {
            InsertOutcome::Duplicate => self.stats.duplicates += 1,
            InsertOutcome::NoRoom => self.stats.refused += 1,
            InsertOutcome::New => {
                self.enqueue(source, happening.seq);
                self.sample_gtd(happening.issued_at);
            }
        }
    }

    /// An event arrived: how long do events take?
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

    fn on_alive(&mut self, from: SourceId, at: GroupInstant, last: u64) {
        let now = self.now;
        if let Some(stream) = self.ensure_stream(from) {
            stream.on_alive(now, last, at);
        }
    }

    /// Who is here tells how far it is itself; of who is not, others do.
    fn on_have(&mut self, from: SourceId, have: StreamStatus) {
        let (now, of) = (self.now, have.source);
        let is_others_to_tell = of == self.config.source || (self.is_present(of) && of != from);
        if !is_others_to_tell && let Some(stream) = self.ensure_stream(of) {
            stream.expect(now, have.newest);
        }
        if self.streams.contains_key(&of) {
            self.with_peer(from, |peer| peer.on_have(have));
        }
    }

    fn on_event_request(&mut self, from: SourceId, of: SourceId, first: u64, count: u8) {
        let Some(stream) = self.streams.get(&of) else { return };
        let wanted = first..first.saturating_add(count.into());
        let here: alloc::vec::Vec<u64> = wanted.filter(|seq| stream.event(*seq).is_some()).collect();
        if first < stream.base() {
            self.push_control(from, MirrorControl::Beacon);
        }
        here.into_iter().for_each(|seq| self.push_control(from, MirrorControl::Event(of, seq)));
    }

    fn on_echo(&mut self, from: SourceId, echo: ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    fn on_bye(&mut self, from: SourceId) {
        let now = self.now;
        self.with_peer(from, |peer| {
            peer.left_at = Some(now);
            peer.is_present = false;
            peer.group_time_offset = None;
        });
        self.push_event(MirrorEvent::PeerLeft(from));
    }
}
