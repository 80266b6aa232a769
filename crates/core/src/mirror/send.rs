//! What goes to other mirrors.

use super::{Mirror, Source};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BufferFull, ClockEcho, MAX_DATAGRAM, MirrorDatagram, MirrorItem, StreamStatus};

/// Things to be told to single mirrors that are kept waiting.
const MAX_CONTROL: usize = 8_192;
/// Everybody is told how far we are so often.
pub(super) const BEACON: TimeDelta = TimeDelta::from_millis(100);
/// Events of a source that are asked for at a time.
const MAX_ASKED: usize = 256;
/// After an answer is late for so long it is asked again.
const SLACK: TimeDelta = TimeDelta::from_millis(10);
/// No event is asked for less often than this.
const SELDOM: TimeDelta = TimeDelta::from_secs(1);

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To everybody: [`Mirror::peers`].
    All,
    /// To one mirror.
    One(Source),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: To,
    /// Its bytes in the buffer.
    pub len: usize,
}

/// Something to be told to one mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    Event(Source, u64),
    Piece(Source, u32),
    /// How far we are, at once.
    Beacon,
}

impl Mirror {
    pub(super) fn push_control(&mut self, to: Source, what: Control) {
        if self.control.len() < MAX_CONTROL {
            self.control.push_back((to, what));
        }
    }

    /// The next datagram to be sent, if there is one. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        self.now = self.now.max(now);
        if self.is_gone {
            return None;
        }
        self.tidy();
        let room = buf.len().min(MAX_DATAGRAM);
        let Some(transmit) = self.next_datagram(&mut buf[..room]) else {
            self.look_ahead();
            return None;
        };
        self.stats.sent.0 += 1;
        self.stats.sent.1 += transmit.len as u64;
        Some(transmit)
    }

    fn next_datagram(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(len) = self.news(buf) {
            return Some(Transmit { to: To::All, len });
        }
        if self.leaving {
            self.is_gone = true;
            let mut datagram = MirrorDatagram::new(buf).ok()?;
            datagram.put(&MirrorItem::Leave).ok()?;
            return Some(Transmit { to: To::All, len: datagram.len() });
        }
        if let Some((to, len)) = self.ask(buf) {
            return Some(Transmit { to: To::One(to), len });
        }
        if let Some((to, len)) = self.ask_for_snapshot(buf) {
            return Some(Transmit { to: To::One(to), len });
        }
        while let Some((to, _)) = self.control.front().copied() {
            if let Some(len) = self.control_for(to, buf).ok()? {
                return Some(Transmit { to: To::One(to), len });
            }
        }
        if self.now >= self.next_beacon && !self.peers.is_empty() {
            self.next_beacon = self.now + BEACON;
            return Some(Transmit { to: To::All, len: self.beacon(buf).ok()? });
        }
        None
    }

    /// Our events that nobody was told of yet, as many as fit.
    fn news(&mut self, buf: &mut [u8]) -> Option<usize> {
        let me = self.config.source;
        let own = self.streams.get(&me)?;
        let last = own.newest();
        if self.sent >= last || self.peers.is_empty() {
            self.sent = last;
            return None;
        }
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let first = self.sent + 1;
        for seq in first..=last {
            let Some(event) = own.event(seq) else { continue };
            if datagram.put(&MirrorItem::Event(event.happening(me, seq))).is_err() {
                break;
            }
            self.sent = seq;
        }
        // Where not even one fits, none will.
        if self.sent < first {
            self.sent = last;
            return None;
        }
        Some(datagram.len())
    }

    /// Asks somebody for what is missing.
    fn ask(&mut self, buf: &mut [u8]) -> Option<(Source, usize)> {
        while let Some(of) = self.first_due() {
            let asked = self.ask_for(of, buf);
            if asked.is_some() {
                return asked;
            }
        }
        None
    }

    fn first_due(&self) -> Option<Source> {
        self.askable().find(|(_, missing)| missing.next <= self.now).map(|(source, _)| source)
    }

    /// What may be asked for: not what comes with a snapshot.
    fn askable(&self) -> impl Iterator<Item = (Source, &super::stream::Missing)> {
        let streams = self.streams.iter().filter(|(source, _)| !self.downloads.contains_key(source));
        streams.flat_map(|(source, stream)| stream.missing().iter().take(MAX_ASKED).map(|missing| (*source, missing)))
    }

    fn ask_for(&mut self, of: Source, buf: &mut [u8]) -> Option<(Source, usize)> {
        let now = self.now;
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let first = self.streams.get(&of)?.missing().iter().find(|missing| missing.next <= now).copied()?;
        let target = self.who_gives(of, first.seq, first.times);
        let takes = target.and_then(|target| self.peers.get(&target)).map_or(SELDOM, super::Peer::answer_time) + SLACK;
        let mut asked: Option<(u64, u8)> = None;
        let mut count = 0;
        for missing in self.streams.get_mut(&of)?.missing_mut().iter_mut().take(MAX_ASKED) {
            if missing.next > now {
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
            missing.asked = Some(now);
            missing.next = now + (takes * (1 << (missing.times / 2).min(4))).min(SELDOM.max(takes));
            missing.times += 1;
        }
        if let Some((first, count)) = asked {
            // What does not fit is asked for the next time.
            _ = datagram.put(&MirrorItem::EventRequest { source: of, first, count });
        }
        let target = target.filter(|_| !datagram.is_empty())?;
        self.stats.asked += count;
        self.holds.on_change();
        Some((target, datagram.len()))
    }

    /// Who is asked for an event: its source if that is here, and sometimes, or if it is not, somebody else who has it.
    fn who_gives(&self, of: Source, seq: u64, times: u32) -> Option<Source> {
        let others =
            || self.peers.iter().filter(|(source, peer)| peer.is_here && **source != of && peer.can_give(of, seq));
        let is_here = self.is_here(of);
        if is_here && times % 4 != 3 {
            return Some(of);
        }
        let count = others().count().max(1);
        others().nth(times as usize % count).map(|(source, _)| *source).or(is_here.then_some(of))
    }

    /// All that one mirror is to be told, as far as it fits; nothing if there is nothing to say any more.
    fn control_for(&mut self, to: Source, buf: &mut [u8]) -> Result<Option<usize>, BufferFull> {
        let mut datagram = MirrorDatagram::new(buf)?;
        let mut at = 0;
        while let Some((for_whom, control)) = self.control.get(at).copied() {
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
            self.control.remove(at);
        }
        Ok((!datagram.is_empty()).then(|| datagram.len()))
    }

    fn put_control(&mut self, control: Control, datagram: &mut MirrorDatagram<'_>) -> Result<(), BufferFull> {
        match control {
            Control::Probe => datagram.put(&MirrorItem::Probe(self.now)),
            // Who wants to know our clock wants to know the group's time, too.
            Control::Echo { sent, received } => {
                datagram.put(&MirrorItem::Echo(ClockEcho { sent, received, answered: self.now }))?;
                datagram.put(&MirrorItem::GroupTime(self.time.ahead()))
            }
            Control::Event(of, seq) => match self.streams.get(&of).and_then(|stream| stream.event(seq)) {
                Some(event) => {
                    datagram.put(&MirrorItem::Event(event.happening(of, seq)))?;
                    self.stats.resent += 1;
                    Ok(())
                }
                None => Ok(()),
            },
            Control::Piece(of, piece) => self.put_piece(of, piece, datagram),
            Control::Beacon => self.put_haves(datagram),
        }
    }

    /// How far we are, for everybody.
    fn beacon(&mut self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = MirrorDatagram::new(buf)?;
        datagram.put(&MirrorItem::GroupTime(self.time.ahead()))?;
        if let Some(at) = self.time.at(self.now) {
            self.last_at = self.last_at.max(at);
            let last = self.streams.get(&self.config.source).map_or(0, super::Stream::newest);
            datagram.put(&MirrorItem::Heartbeat { at: self.last_at, last_event: last })?;
        }
        self.put_haves(&mut datagram)?;
        Ok(datagram.len())
    }

    /// What we have of ourselves, then of those who are here, then of those who are gone, in turn, as far as it fits.
    fn put_haves(&mut self, datagram: &mut MirrorDatagram<'_>) -> Result<(), BufferFull> {
        let me = self.config.source;
        let others = self.streams.keys().filter(|source| **source != me && self.is_here(**source));
        let here = self.streams.keys().filter(|source| **source == me).chain(others);
        let gone = |source: &&Source| !self.is_here(**source);
        let told = self.told;
        let is_next = |source: &&Source| told.is_none_or(|told| **source > told);
        let next = self.streams.keys().filter(gone).filter(is_next);
        let again = self.streams.keys().filter(gone).filter(|source| !is_next(source));
        let mut last = told;
        for of in here.chain(next).chain(again) {
            let Some(have) = self.have(*of) else { continue };
            if datagram.put(&MirrorItem::StreamStatus(have)).is_err() {
                break;
            }
            if !self.is_here(*of) {
                last = Some(*of);
            }
        }
        self.told = last;
        Ok(())
    }

    fn have(&self, of: Source) -> Option<StreamStatus> {
        let stream = self.streams.get(&of)?;
        Some(StreamStatus { source: of, oldest: stream.base(), settled_end: stream.settled(), newest: stream.newest() })
    }

    /// When to come back at the latest, if nothing comes.
    pub fn poll_timeout(&self) -> Instant {
        if self.is_gone {
            return Instant::FAR_FUTURE;
        }
        let ask = self.askable().map(|(_, missing)| missing.next).min();
        let download = self.next_want();
        let soonest = [ask, download, self.next_hold()].into_iter().flatten().min();
        soonest.map_or(self.next_beacon, |soonest| soonest.min(self.next_beacon))
    }
}
