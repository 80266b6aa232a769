//! Encoding of datagrams to other mirrors: new events, requests, queued unicast messages and beacons.

use super::{Mirror, SourceId};
use crate::clock::ClockEcho;
use crate::codec::{BufferFull, MAX_DATAGRAM};
use crate::mirror::message::{MirrorDatagramWriter, MirrorItem, StreamStatus};
use crate::time::{Instant, TimeDelta};

/// Maximum number of queued unicast messages; further ones are discarded.
const MAX_QUEUED_CONTROL: usize = 8_192;
/// Interval of beacons, the status datagrams to all mirrors.
pub(super) const BEACON_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Maximum number of missing events per source that are requested at a time.
const MAX_REQUESTED_EVENTS: usize = 256;
/// Time added to the expected response time before a request is repeated.
const RESPONSE_SLACK: TimeDelta = TimeDelta::from_millis(10);
/// Maximum interval between requests for the same event, unless the expected response time is longer.
const MAX_REQUEST_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// Recipients of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorDestination {
    /// All mirrors in [`Mirror::peers`].
    All,
    /// The mirror with this source id.
    One(SourceId),
}

/// A datagram that [`Mirror::poll_transmit`] has encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorTransmit {
    /// Recipients to which the host program must send the datagram.
    pub to: MirrorDestination,
    /// Length in bytes; the datagram is at the beginning of the buffer.
    pub len: usize,
}

/// A queued message to one mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnicastMessage {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    Event(SourceId, u64),
    Piece(SourceId, u32),
    /// Status of the streams, sent to one mirror ahead of the next periodic beacon.
    Beacon,
}

impl Mirror {
    pub(super) fn push_control(&mut self, to: SourceId, control: UnicastMessage) {
        if self.control_queue.len() < MAX_QUEUED_CONTROL {
            self.control_queue.push_back((to, control));
        }
    }

    /// Encodes the next datagram to send into `buf`, which should have room for [`MAX_DATAGRAM`] bytes. `None` if
    /// nothing is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<MirrorTransmit> {
        self.now = self.now.max(now);
        if self.has_left {
            return None;
        }
        self.collect_garbage();
        let room = buf.len().min(MAX_DATAGRAM);
        let Some(transmit) = self.next_datagram(&mut buf[..room]) else {
            self.refresh_holds();
            return None;
        };
        self.stats.sent.0 += 1;
        self.stats.sent.1 += transmit.len as u64;
        Some(transmit)
    }

    fn next_datagram(&mut self, buf: &mut [u8]) -> Option<MirrorTransmit> {
        if let Some(len) = self.encode_new_events(buf) {
            return Some(MirrorTransmit { to: MirrorDestination::All, len });
        }
        if self.is_leaving {
            self.has_left = true;
            let mut datagram = MirrorDatagramWriter::new(buf).ok()?;
            datagram.put(&MirrorItem::Leave).ok()?;
            return Some(MirrorTransmit { to: MirrorDestination::All, len: datagram.len() });
        }
        if let Some((to, len)) = self.request_missing(buf) {
            return Some(MirrorTransmit { to: MirrorDestination::One(to), len });
        }
        if let Some((to, len)) = self.encode_piece_request(buf) {
            return Some(MirrorTransmit { to: MirrorDestination::One(to), len });
        }
        while let Some((to, _)) = self.control_queue.front().copied() {
            if let Some(len) = self.encode_control(to, buf).ok()? {
                return Some(MirrorTransmit { to: MirrorDestination::One(to), len });
            }
        }
        if self.now >= self.next_beacon && !self.peers.is_empty() {
            self.next_beacon = self.now + BEACON_INTERVAL;
            return Some(MirrorTransmit { to: MirrorDestination::All, len: self.encode_beacon(buf).ok()? });
        }
        None
    }

    /// Encodes as many new events of this mirror as fit and returns the length of the datagram. `None` without new
    /// events or without peers, or if the first new event does not fit alone; all new events then count as sent.
    fn encode_new_events(&mut self, buf: &mut [u8]) -> Option<usize> {
        let own_source = self.config.source;
        let own = self.streams.get(&own_source)?;
        let last = own.newest();
        if self.last_sent_seq >= last || self.peers.is_empty() {
            self.last_sent_seq = last;
            return None;
        }
        let mut datagram = MirrorDatagramWriter::new(buf).ok()?;
        let first = self.last_sent_seq + 1;
        for seq in first..=last {
            let Some(event) = own.event(seq) else { continue };
            if datagram.put(&MirrorItem::Event(event.to_encoded(own_source, seq))).is_err() {
                break;
            }
            self.last_sent_seq = seq;
        }
        // An event that does not fit alone will never fit.
        if self.last_sent_seq < first {
            self.last_sent_seq = last;
            return None;
        }
        Some(datagram.len())
    }

    /// Encodes the next due request for missing events and returns its recipient and length. `None` if no request is
    /// due that a present mirror may answer.
    fn request_missing(&mut self, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        while let Some(source) = self.first_due_source() {
            let request = self.encode_event_request(source, buf);
            if request.is_some() {
                return request;
            }
        }
        None
    }

    fn first_due_source(&self) -> Option<SourceId> {
        self.requestable_events().find(|(_, missing)| missing.next_request_at <= self.now).map(|(source, _)| source)
    }

    /// Returns the missing events that may be requested, at most [`MAX_REQUESTED_EVENTS`] per source. Sources whose
    /// snapshot is being downloaded are left out.
    fn requestable_events(&self) -> impl Iterator<Item = (SourceId, &super::stream::MissingEvent)> {
        let streams = self.streams.iter().filter(|(source, _)| !self.downloads.contains_key(source));
        streams.flat_map(|(source, stream)| {
            stream.missing().iter().take(MAX_REQUESTED_EVENTS).map(|missing| (*source, missing))
        })
    }

    fn encode_event_request(&mut self, source: SourceId, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        let now = self.now;
        let mut datagram = MirrorDatagramWriter::new(buf).ok()?;
        let first =
            self.streams.get(&source)?.missing().iter().find(|missing| missing.next_request_at <= now).copied()?;
        let target = self.choose_provider(source, first.seq, first.attempts);
        let response_time = target
            .and_then(|target| self.peers.get(&target))
            .map_or(MAX_REQUEST_INTERVAL, super::RemoteMirror::expected_response_time)
            + RESPONSE_SLACK;
        let mut range: Option<(u64, u8)> = None;
        let mut count = 0;
        for missing in self.streams.get_mut(&source)?.missing_mut().iter_mut().take(MAX_REQUESTED_EVENTS) {
            if missing.next_request_at > now {
                continue;
            }
            match &mut range {
                Some((first, count)) if missing.seq == *first + u64::from(*count) && *count < u8::MAX => *count += 1,
                _ => {
                    let before = range.replace((missing.seq, 1));
                    if before.is_some_and(|(first, count)| {
                        datagram.put(&MirrorItem::EventRequest { source, first, count }).is_err()
                    }) {
                        range = None;
                        break;
                    }
                }
            }
            count += 1;
            missing.last_requested_at = Some(now);
            missing.next_request_at = now
                + (response_time * (1 << (missing.attempts / 2).min(4))).min(MAX_REQUEST_INTERVAL.max(response_time));
            missing.attempts += 1;
        }
        if let Some((first, count)) = range {
            // Events that do not fit are requested at their next attempt.
            _ = datagram.put(&MirrorItem::EventRequest { source, first, count });
        }
        let target = target.filter(|_| !datagram.is_empty())?;
        self.stats.requested += count;
        self.holds.on_change();
        Some((target, datagram.len()))
    }

    /// Chooses the mirror to request an event from: the event's source, or, on every fourth attempt and while the
    /// source is absent, another present mirror that has the event. If no other mirror has it, returns the source, or
    /// `None` if the source is absent.
    fn choose_provider(&self, event_source: SourceId, seq: u64, attempts: u32) -> Option<SourceId> {
        let others = || {
            self.peers.iter().filter(|(source, peer)| {
                peer.is_present && **source != event_source && peer.can_serve_event(event_source, seq)
            })
        };
        let is_source_present = self.is_present(event_source);
        if is_source_present && attempts % 4 != 3 {
            return Some(event_source);
        }
        let count = others().count().max(1);
        others().nth(attempts as usize % count).map(|(source, _)| *source).or(is_source_present.then_some(event_source))
    }

    /// Removes the messages queued for one mirror from the queue and encodes them, as far as they fit; looks past at
    /// most 64 messages for other mirrors. Returns `None` if none of them has any content, because the events or
    /// snapshots that they name are no longer kept.
    fn encode_control(&mut self, to: SourceId, buf: &mut [u8]) -> Result<Option<usize>, BufferFull> {
        let mut datagram = MirrorDatagramWriter::new(buf)?;
        let mut index = 0;
        while let Some((recipient, control)) = self.control_queue.get(index).copied() {
            if recipient != to {
                index += 1;
                if index > 64 {
                    break;
                }
                continue;
            }
            // A message that does not fit alone will never fit.
            if self.put_control(control, &mut datagram).is_err() && !datagram.is_empty() {
                break;
            }
            self.control_queue.remove(index);
        }
        Ok((!datagram.is_empty()).then(|| datagram.len()))
    }

    fn put_control(
        &mut self,
        control: UnicastMessage,
        datagram: &mut MirrorDatagramWriter<'_>,
    ) -> Result<(), BufferFull> {
        match control {
            UnicastMessage::Probe => datagram.put(&MirrorItem::Probe(self.now)),
            // A peer that measures this mirror's clock also needs the group time.
            UnicastMessage::Echo { sent, received } => {
                datagram.put(&MirrorItem::Echo(ClockEcho { sent, received, answered: self.now }))?;
                datagram.put(&MirrorItem::GroupTime(self.group_time.offset()))
            }
            UnicastMessage::Event(source, seq) => {
                match self.streams.get(&source).and_then(|stream| stream.event(seq)) {
                    Some(event) => {
                        datagram.put(&MirrorItem::Event(event.to_encoded(source, seq)))?;
                        self.stats.retransmitted += 1;
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            UnicastMessage::Piece(source, piece) => self.put_piece(source, piece, datagram),
            UnicastMessage::Beacon => self.put_stream_statuses(datagram),
        }
    }

    /// Encodes the beacon: the group time, a heartbeat if the group time is known, and the status of the streams. No
    /// event issued afterwards is older than the time in the heartbeat.
    fn encode_beacon(&mut self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = MirrorDatagramWriter::new(buf)?;
        datagram.put(&MirrorItem::GroupTime(self.group_time.offset()))?;
        if let Some(at) = self.group_time.to_group(self.now) {
            self.issue_floor = self.issue_floor.max(at);
            let last = self.streams.get(&self.config.source).map_or(0, super::EventStream::newest);
            datagram.put(&MirrorItem::Heartbeat { at: self.issue_floor, last_event: last })?;
        }
        self.put_stream_statuses(&mut datagram)?;
        Ok(datagram.len())
    }

    /// Appends the status of the streams as far as it fits: this mirror's own, then those of present sources, then
    /// those of absent sources in rotation.
    fn put_stream_statuses(&mut self, datagram: &mut MirrorDatagramWriter<'_>) -> Result<(), BufferFull> {
        let own_source = self.config.source;
        let others = self.streams.keys().filter(|source| **source != own_source && self.is_present(**source));
        let present = self.streams.keys().filter(|source| **source == own_source).chain(others);
        let is_absent = |source: &&SourceId| !self.is_present(**source);
        let last_sent = self.last_status_source;
        let is_next = |source: &&SourceId| last_sent.is_none_or(|last_sent| **source > last_sent);
        let next = self.streams.keys().filter(is_absent).filter(is_next);
        let wrapped = self.streams.keys().filter(is_absent).filter(|source| !is_next(source));
        let mut last = last_sent;
        for source in present.chain(next).chain(wrapped) {
            let Some(have) = self.stream_status(*source) else { continue };
            if datagram.put(&MirrorItem::StreamStatus(have)).is_err() {
                break;
            }
            if !self.is_present(*source) {
                last = Some(*source);
            }
        }
        self.last_status_source = last;
        Ok(())
    }

    fn stream_status(&self, source: SourceId) -> Option<StreamStatus> {
        let stream = self.streams.get(&source)?;
        Some(StreamStatus { source, oldest: stream.base(), settled_end: stream.settled(), newest: stream.newest() })
    }

    /// Returns the time by which the host program must poll again if no datagram arrives before.
    pub fn poll_timeout(&self) -> Instant {
        if self.has_left {
            return Instant::FAR_FUTURE;
        }
        let request = self.requestable_events().map(|(_, missing)| missing.next_request_at).min();
        let download = self.next_piece_request_at();
        let soonest = [request, download, self.next_hold_at()].into_iter().flatten().min();
        soonest.map_or(self.next_beacon, |soonest| soonest.min(self.next_beacon))
    }
}
