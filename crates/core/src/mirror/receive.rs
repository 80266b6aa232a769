//! What comes from other mirrors.

use super::send::Control;
use super::stream::Taken;
use super::{MAX_SOURCES, Measure, Mirror, Notice, Peer, Source, Stream};
use crate::clock::RoundTrip;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{ClockEcho, DecodeError, EventRef, MirrorItem, MirrorItems, StreamStatus};

/// Who said goodbye is deaf to what was still under way for so long.
const FAREWELL: TimeDelta = TimeDelta::from_secs(2);

impl Mirror {
    /// Takes in a datagram from a mirror; the network vouches for who that is.
    pub fn handle_datagram(&mut self, now: Instant, from: Source, bytes: &[u8]) {
        self.now = self.now.max(now);
        self.stats.received.0 += 1;
        self.stats.received.1 += bytes.len() as u64;
        if from == self.config.source || !self.hear(from) {
            return;
        }
        self.holds.on_change();
        if self.read(from, bytes).is_err() {
            self.stats.malformed += 1;
        }
    }

    /// Notes that a mirror is here. Not if it has just left, or if there are too many.
    fn hear(&mut self, from: Source) -> bool {
        let now = self.now;
        self.learn_of_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left.is_some_and(|left| now - left < FAREWELL) {
            return false;
        }
        (peer.heard, peer.left) = (now, None);
        if !core::mem::replace(&mut peer.is_here, true) {
            self.make_room();
            self.learn_of(from);
            self.tell(Notice::Came(from));
            self.next_beacon = now;
        }
        true
    }

    /// There is such a source.
    fn learn_of(&mut self, source: Source) -> Option<&mut Stream> {
        if self.streams.len() >= MAX_SOURCES && !self.streams.contains_key(&source) {
            return None;
        }
        Some(self.streams.entry(source).or_insert_with(Stream::new))
    }

    /// For somebody who is here: forgets a source that is not, and of which the least is known to have happened lately.
    fn make_room(&mut self) {
        if self.streams.len() < MAX_SOURCES {
            return;
        }
        let gone = self.streams.iter().filter(|(source, _)| !self.is_here(**source));
        let oldest = gone.min_by_key(|(_, stream)| stream.floor()).map(|(source, _)| *source);
        if let Some(source) = oldest {
            self.streams.remove(&source);
            self.downloads.remove(&source);
            self.peers.values_mut().for_each(|peer| peer.on_forgotten(source));
            self.tell(Notice::Forgot(source));
        }
    }

    fn read(&mut self, from: Source, bytes: &[u8]) -> Result<(), DecodeError> {
        for item in MirrorItems::new(bytes)? {
            match item? {
                MirrorItem::Event(happening) => self.on_event(&happening),
                MirrorItem::Heartbeat { at, last_event: last } => self.on_alive(from, at, last),
                MirrorItem::StreamStatus(have) => self.on_have(from, have),
                MirrorItem::EventRequest { source: of, first, count } => self.on_ask(from, of, first, count),
                MirrorItem::GroupTime(ahead) => self.with_peer(from, |peer| peer.group_ahead = ahead),
                MirrorItem::Probe(sent) => self.push_control(from, Control::Echo { sent, received: self.now }),
                MirrorItem::Echo(echo) => self.on_echo(from, echo),
                MirrorItem::SnapshotRequest { source: of, first_piece: piece, count, .. } => {
                    self.on_want(from, of, piece, count)
                }
                MirrorItem::SnapshotPiece { source: of, version, total_len: total, piece, bytes } => {
                    self.on_piece(from, of, (version, total, piece), bytes);
                }
                MirrorItem::Leave => self.on_bye(from),
            }
        }
        Ok(())
    }

    pub(super) fn with_peer(&mut self, source: Source, change: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.peers.get_mut(&source) {
            change(peer);
        }
    }

    fn on_event(&mut self, happening: &EventRef<'_>) {
        let (now, source) = (self.now, happening.source);
        if source == self.config.source {
            return;
        }
        let Some(stream) = self.learn_of(source) else { return };
        match stream.insert(now, happening) {
            Taken::Known => self.stats.known += 1,
            Taken::Refused => self.stats.refused += 1,
            Taken::New => {
                self.enqueue(source, happening.seq);
                self.measure(happening.issued_at);
            }
        }
    }

    /// An event arrived: how long do events take?
    fn measure(&mut self, at: GroupInstant) {
        if !self.dropper.listens() {
            return;
        }
        match self.config.measure {
            Measure::Arrival => self.on_sample(self.age(at)),
            Measure::Waiting => {
                let oldest = self.streams.values().filter_map(Stream::oldest).min();
                self.on_sample(self.age(oldest.map_or(at, |oldest| oldest.min(at))));
            }
            Measure::Delivery => {}
        }
    }

    fn on_alive(&mut self, from: Source, at: GroupInstant, last: u64) {
        let now = self.now;
        if let Some(stream) = self.learn_of(from) {
            stream.on_alive(now, last, at);
        }
    }

    /// Who is here tells how far it is itself; of who is not, others do.
    fn on_have(&mut self, from: Source, have: StreamStatus) {
        let (now, of) = (self.now, have.source);
        let is_others_to_tell = of == self.config.source || (self.is_here(of) && of != from);
        if !is_others_to_tell && let Some(stream) = self.learn_of(of) {
            stream.expect(now, have.newest);
        }
        if self.streams.contains_key(&of) {
            self.with_peer(from, |peer| peer.on_have(have));
        }
    }

    fn on_ask(&mut self, from: Source, of: Source, first: u64, count: u8) {
        let Some(stream) = self.streams.get(&of) else { return };
        let wanted = first..first.saturating_add(count.into());
        let here: alloc::vec::Vec<u64> = wanted.filter(|seq| stream.event(*seq).is_some()).collect();
        if first < stream.base() {
            self.push_control(from, Control::Beacon);
        }
        here.into_iter().for_each(|seq| self.push_control(from, Control::Event(of, seq)));
    }

    fn on_echo(&mut self, from: Source, echo: ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    fn on_bye(&mut self, from: Source) {
        let now = self.now;
        self.with_peer(from, |peer| {
            peer.left = Some(now);
            peer.is_here = false;
            peer.group_ahead = None;
        });
        self.tell(Notice::Left(from));
    }
}
