//! What goes to other mirrors.

use super::{Mirror, SourceId};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BufferFull, ClockEcho, MAX_DATAGRAM, MirrorDatagram, MirrorItem, StreamStatus};

/// Things to be told to single mirrors that are kept waiting.
const MAX_QUEUED_CONTROL: usize = 8_192;
/// Everybody is told how far we are so often.
pub(super) const BEACON_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Events of a source that are asked for at a time.
const MAX_REQUESTED_EVENTS: usize = 256;
/// After an answer is late for so long it is asked again.
const RESPONSE_SLACK: TimeDelta = TimeDelta::from_millis(10);
/// No event is asked for less often than this.
const MAX_REQUEST_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorDestination {
    /// To everybody: [`Mirror::peers`].
    All,
    /// To one mirror.
    One(SourceId),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorTransmit {
    /// To whom.
    pub to: MirrorDestination,
    /// Its bytes in the buffer.
    pub len: usize,
}

/// Something to be told to one mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MirrorControl {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    Event(SourceId, u64),
    Piece(SourceId, u32),
    /// How far we are, at once.
    Beacon,
}

impl Mirror {
    pub(super) fn push_control(&mut self, to: SourceId, what: MirrorControl) {
        if self.control_queue.len() < MAX_QUEUED_CONTROL {
            self.control_queue.push_back((to, what));
        }
    }

    /// The next datagram to be sent, if there is one. The buffer should have room for [`MAX_DATAGRAM`] bytes.
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
            let mut datagram = MirrorDatagram::new(buf).ok()?;
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

    /// Our events that nobody was told of yet, as many as fit.
    fn encode_new_events(&mut self, buf: &mut [u8]) -> Option<usize> {
        let me = self.config.source;
        let own = self.streams.get(&me)?;
        let last = own.newest();
        if self.last_sent_seq >= last || self.peers.is_empty() {
            self.last_sent_seq = last;
            return None;
        }
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let first = self.last_sent_seq + 1;
        for seq in first..=last {
            let Some(event) = own.event(seq) else { continue };
            if datagram.put(&MirrorItem::Event(event.event_ref(me, seq))).is_err() {
                break;
            }
            self.last_sent_seq = seq;
        }
        // Where not even one fits, none will.
        if self.last_sent_seq < first {
            self.last_sent_seq = last;
            return None;
        }
        Some(datagram.len())
    }

    /// Asks somebody for what is missing.
    fn request_missing(&mut self, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        while let Some(of) = self.first_due_source() {
            let asked = self.encode_event_request(of, buf);
            if asked.is_some() {
                return asked;
            }
        }
        None
    }

    fn first_due_source(&self) -> Option<SourceId> {
        self.requestable_events().find(|(_, missing)| missing.next_request_at <= self.now).map(|(source, _)| source)
    }

    /// What may be asked for: not what comes with a snapshot.
    fn requestable_events(&self) -> impl Iterator<Item = (SourceId, &super::stream::MissingEvent)> {
        let streams = self.streams.iter().filter(|(source, _)| !self.downloads.contains_key(source));
        streams.flat_map(|(source, stream)| {
            stream.missing().iter().take(MAX_REQUESTED_EVENTS).map(|missing| (*source, missing))
        })
    }

    fn encode_event_request(&mut self, of: SourceId, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        let now = self.now;
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let first = self.streams.get(&of)?.missing().iter().find(|missing| missing.next_request_at <= now).copied()?;
        let target = self.choose_provider(of, first.seq, first.attempts);
        let takes = target
            .and_then(|target| self.peers.get(&target))
            .map_or(MAX_REQUEST_INTERVAL, super::MirrorPeer::expected_response_time)
            + RESPONSE_SLACK;
        let mut asked: Option<(u64, u8)> = None;
        let mut count = 0;
        for missing in self.streams.get_mut(&of)?.missing_mut().iter_mut().take(MAX_REQUESTED_EVENTS) {
            if missing.next_request_at > now {
                continue;
            }
            match &mut asked {
                Some((first, count)) if missing.seq == *first + u64::from(*count) && *count < u8::MAX => *count += 1,
                _ => {
                    let before = asked.replace((missing.seq, 1));
                    if before.is_some_and(|(first, count)| {
                        datagram.put(&MirrorItem::EventRequest { source: of, first, count }).is_err()
                    }) {
                        asked = None;
                        break;
                    }
                }
            }
            count += 1;
            missing.last_requested_at = Some(now);
            missing.next_request_at =
                now + (takes * (1 << (missing.attempts / 2).min(4))).min(MAX_REQUEST_INTERVAL.max(takes));
            missing.attempts += 1;
        }
        if let Some((first, count)) = asked {
            // What does not fit is asked for the next time.
            _ = datagram.put(&MirrorItem::EventRequest { source: of, first, count });
        }
        let target = target.filter(|_| !datagram.is_empty())?;
        self.stats.requested += count;
        self.holds.on_change();
        Some((target, datagram.len()))
    }

    /// Who is asked for an event: its source if that is here, and sometimes, or if it is not, somebody else who has it.
    fn choose_provider(&self, of: SourceId, seq: u64, times: u32) -> Option<SourceId> {
        let others = || {
            self.peers
                .iter()
                .filter(|(source, peer)| peer.is_present && **source != of && peer.can_serve_event(of, seq))
        };
        let is_here = self.is_present(of);
        if is_here && times % 4 != 3 {
            return Some(of);
        }
        let count = others().count().max(1);
        others().nth(times as usize % count).map(|(source, _)| *source).or(is_here.then_some(of))
    }

    /// All that one mirror is to be told, as far as it fits; nothing if there is nothing to say any more.
    fn encode_control(&mut self, to: SourceId, buf: &mut [u8]) -> Result<Option<usize>, BufferFull> {
        let mut datagram = MirrorDatagram::new(buf)?;
        let mut at = 0;
        while let Some((for_whom, control)) = self.control_queue.get(at).copied() {
            if for_whom != to {
                at += 1;
                if at > 64 {
                    break;
                }
                continue;
            }
            // What does not even fit alone never will.
            if self.put_control(control, &mut datagram).is_err() && !datagram.is_empty() {
                break;
            }
            self.control_queue.remove(at);
        }
        Ok((!datagram.is_empty()).then(|| datagram.len()))
    }

    fn put_control(&mut self, control: MirrorControl, datagram: &mut MirrorDatagram<'_>) -> Result<(), BufferFull> {
        match control {
            MirrorControl::Probe => datagram.put(&MirrorItem::Probe(self.now)),
            // Who wants to know our clock wants to know the group's time, too.
            MirrorControl::Echo { sent, received } => {
                datagram.put(&MirrorItem::Echo(ClockEcho { sent, received, answered: self.now }))?;
                datagram.put(&MirrorItem::GroupTime(self.group_time.offset()))
            }
            MirrorControl::Event(of, seq) => match self.streams.get(&of).and_then(|stream| stream.event(seq)) {
                Some(event) => {
                    datagram.put(&MirrorItem::Event(event.event_ref(of, seq)))?;
                    self.stats.retransmitted += 1;
                    Ok(())
                }
                None => Ok(()),
            },
            MirrorControl::Piece(of, piece) => self.put_piece(of, piece, datagram),
            MirrorControl::Beacon => self.put_haves(datagram),
        }
    }

    /// How far we are, for everybody.
    fn encode_beacon(&mut self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = MirrorDatagram::new(buf)?;
        datagram.put(&MirrorItem::GroupTime(self.group_time.offset()))?;
        if let Some(at) = self.group_time.to_group(self.now) {
            self.issue_floor = self.issue_floor.max(at);
            let last = self.streams.get(&self.config.source).map_or(0, super::EventStream::newest);
            datagram.put(&MirrorItem::Heartbeat { at: self.issue_floor, last_event: last })?;
        }
        self.put_haves(&mut datagram)?;
        Ok(datagram.len())
    }

    /// What we have of ourselves, then of those who are here, then of those who are gone, in turn, as far as it fits.
    fn put_haves(&mut self, datagram: &mut MirrorDatagram<'_>) -> Result<(), BufferFull> {
        let me = self.config.source;
        let others = self.streams.keys().filter(|source| **source != me && self.is_present(**source));
        let here = self.streams.keys().filter(|source| **source == me).chain(others);
        let gone = |source: &&SourceId| !self.is_present(**source);
        let told = self.last_have_source;
        let is_next = |source: &&SourceId| told.is_none_or(|told| **source > told);
        let next = self.streams.keys().filter(gone).filter(is_next);
        let again = self.streams.keys().filter(gone).filter(|source| !is_next(source));
        let mut last = told;
        for of in here.chain(next).chain(again) {
            let Some(have) = self.have_of(*of) else { continue };
            if datagram.put(&MirrorItem::StreamStatus(have)).is_err() {
                break;
            }
            if !self.is_present(*of) {
                last = Some(*of);
            }
        }
        self.last_have_source = last;
        Ok(())
    }

    fn have_of(&self, of: SourceId) -> Option<StreamStatus> {
        let stream = self.streams.get(&of)?;
        Some(StreamStatus { source: of, oldest: stream.base(), settled_end: stream.settled(), newest: stream.newest() })
    }

    /// When to come back at the latest, if nothing comes.
    pub fn poll_timeout(&self) -> Instant {
        if self.has_left {
            return Instant::FAR_FUTURE;
        }
        let ask = self.requestable_events().map(|(_, missing)| missing.next_request_at).min();
        let download = self.next_piece_request_at();
        let soonest = [ask, download, self.next_hold_at()].into_iter().flatten().min();
        soonest.map_or(self.next_beacon, |soonest| soonest.min(self.next_beacon))
    }
}
