//! The part of the state that comes from one source's events, for who lacks more of them than anybody has kept.

use alloc::vec::Vec;

use super::send::Control;
use super::{MAX_SEQ, Mirror, Notice, Request, Source, Wanted};
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{BufferFull, ByteReader, MAX_PIECE_LEN, MirrorDatagram, MirrorItem};

/// A snapshot that nobody asks for is let go of after this, and another one is made for who comes then.
const KEPT: TimeDelta = TimeDelta::from_secs(3);
/// So many snapshots are fetched at a time, at the most.
const MAX_DOWNLOADS: usize = 4;
/// Snapshots that are given at a time.
const MAX_GIVEN: usize = 16;
/// What was too long for a snapshot is not asked for again for so long: it costs much, and becomes no shorter soon.
const TOO_LONG: TimeDelta = TimeDelta::from_secs(30);
/// Pieces that are asked for at a time.
const AT_ONCE: u8 = 32;
/// So often in vain, and somebody else is asked.
const PATIENCE: u32 = 8;
/// An event that was asked for so often in vain nobody has.
const HOPELESS: u32 = 6;

/// What is known of a part of the state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    settled: u64,
    floor: Option<GroupInstant>,
    done: Vec<u8>,
}

/// A snapshot for others.
#[derive(Debug)]
pub(super) struct Given {
    version: u32,
    settled: u64,
    bytes: Vec<u8>,
    asked: Instant,
}

impl Given {
    /// How far it goes.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A snapshot that is under way to us.
#[derive(Debug)]
pub(super) struct Download {
    from: Source,
    version: u32,
    total: usize,
    bytes: Vec<u8>,
    /// Which pieces are here.
    here: Vec<bool>,
    /// All pieces before this one are here.
    first: usize,
    next: Instant,
    times: u32,
}

impl Download {
    fn new(now: Instant, from: Source) -> Self {
        Self { from, version: 0, total: 0, bytes: Vec::new(), here: Vec::new(), first: 0, next: now, times: 0 }
    }

    fn begin(&mut self, version: u32, total: usize) {
        (self.version, self.total, self.first) = (version, total, 0);
        self.bytes = alloc::vec![0; total];
        self.here = alloc::vec![false; total.div_ceil(MAX_PIECE_LEN)];
    }

    /// Takes in a piece. Whether all are here.
    fn put(&mut self, now: Instant, piece: usize, bytes: &[u8]) -> bool {
        let from = piece * MAX_PIECE_LEN;
        let len = self.total.saturating_sub(from).min(MAX_PIECE_LEN);
        if piece >= self.here.len() || bytes.len() != len {
            return false;
        }
        self.bytes[from..from + len].copy_from_slice(bytes);
        self.here[piece] = true;
        let before = self.first;
        while self.here.get(self.first) == Some(&true) {
            self.first += 1;
        }
        if self.first > before {
            self.times = 0;
        }
        // The next ones while the last are under way.
        if piece + 1 == (before / usize::from(AT_ONCE) + 1) * usize::from(AT_ONCE) {
            self.next = now;
        }
        self.first == self.here.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.here.capacity()
    }
}

impl Head {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.settled.to_le_bytes());
        let floor = self.floor.map_or(i64::MIN, GroupInstant::as_nanos);
        bytes.extend_from_slice(&floor.to_le_bytes());
        bytes.extend_from_slice(&(self.done.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.done);
    }

    fn read(reader: &mut ByteReader<'_>) -> Option<Self> {
        let (settled, floor) = (reader.u64().ok()?, reader.u64().ok()? as i64);
        let len = usize::from(reader.u16().ok()?);
        let done = reader.take(len).ok()?.to_vec();
        let sane = settled <= MAX_SEQ - super::WINDOW && len <= super::WINDOW as usize / 8;
        let floor = (floor > i64::MIN).then(|| GroupInstant::from_nanos(floor));
        sane.then_some(Self { settled, floor, done })
    }
}

impl Mirror {
    /// What the host program is to do next.
    pub fn poll_request(&mut self, now: Instant) -> Option<Request> {
        self.now = self.now.max(now);
        while let Some(wanted) = self.requests.pop_front() {
            match wanted {
                Wanted::Snapshot(of) => return Some(Request::Snapshot { of }),
                Wanted::Install { of, head, bytes } => {
                    if self.install(of, &head) {
                        return Some(Request::Install { of, bytes });
                    }
                }
            }
        }
        None
    }

    /// The part of the state that was asked for with [`Request::Snapshot`], as it is now.
    pub fn handle_snapshot(&mut self, now: Instant, of: Source, state: &[u8]) {
        self.now = self.now.max(now);
        let Some(stream) = self.streams.get(&of) else { return };
        let head = Head { settled: stream.settled(), floor: stream.floor(), done: stream.done_bits() };
        let mut bytes = Vec::with_capacity(state.len() + head.done.len() + 16);
        head.write(&mut bytes);
        bytes.extend_from_slice(state);
        if bytes.len() > self.config.snapshot {
            self.too_long.insert(of, self.now);
            return self.tell(Notice::TooLong { of, len: bytes.len() });
        }
        if self.given.len() >= MAX_GIVEN && !self.given.contains_key(&of) {
            return;
        }
        let next = self.given.get(&of).map_or(1, |given| given.version.wrapping_add(1));
        let version = (next ^ (self.stats.snapshots.0 as u32 & 0xffff) << 8).max(1);
        self.stats.snapshots.0 += 1;
        self.given.insert(of, Given { version, settled: head.settled, bytes, asked: self.now });
    }

    /// Somebody wants pieces of a snapshot.
    pub(super) fn on_want(&mut self, from: Source, of: Source, piece: u32, count: u8) {
        let Some(stream) = self.streams.get(&of) else { return };
        let now = self.now;
        // Whoever takes over a snapshot must be able to go on from there. Who began with another one begins anew when it sees a piece of this.
        let is_good = |given: &Given| given.settled + 1 >= stream.base();
        let Some(given) = self.given.get_mut(&of).filter(|given| is_good(given)) else {
            let is_asked = |wanted: &Wanted| matches!(wanted, Wanted::Snapshot(other) if *other == of);
            let is_vain = self.too_long.contains_key(&of);
            if !is_vain && !self.requests.iter().any(is_asked) && self.requests.len() < MAX_GIVEN {
                self.requests.push_back(Wanted::Snapshot(of));
            }
            return;
        };
        given.asked = now;
        let pieces = given.bytes.len().div_ceil(MAX_PIECE_LEN) as u32;
        for piece in (piece..piece.saturating_add(count.into())).take_while(|piece| *piece < pieces) {
            self.push_control(from, Control::Piece(of, piece));
        }
    }

    pub(super) fn put_piece(
        &self,
        of: Source,
        piece: u32,
        datagram: &mut MirrorDatagram<'_>,
    ) -> Result<(), BufferFull> {
        let Some(given) = self.given.get(&of) else { return Ok(()) };
        let Some(bytes) = given.bytes.chunks(MAX_PIECE_LEN).nth(piece as usize) else { return Ok(()) };
        let (version, total) = (given.version, given.bytes.len() as u32);
        datagram.put(&MirrorItem::SnapshotPiece { source: of, version, total_len: total, piece, bytes })
    }

    pub(super) fn on_piece(
        &mut self,
        from: Source,
        of: Source,
        (version, total, piece): (u32, u32, u32),
        bytes: &[u8],
    ) {
        let (now, most) = (self.now, self.config.snapshot);
        let Some(download) = self.downloads.get_mut(&of).filter(|download| download.from == from) else { return };
        if total as usize > most || total == 0 {
            return;
        }
        if download.version != version {
            download.begin(version, total as usize);
        }
        if download.total == total as usize && download.put(now, piece as usize, bytes) {
            self.finish(of);
        }
    }

    fn finish(&mut self, of: Source) {
        let Some(download) = self.downloads.remove(&of) else { return };
        let mut reader = ByteReader::new(&download.bytes);
        if let Some(head) = Head::read(&mut reader) {
            let bytes = reader.rest().to_vec();
            self.requests.push_back(Wanted::Install { of, head, bytes });
        }
    }

    /// Takes over how far somebody else was. Not if we are further by now.
    fn install(&mut self, of: Source, head: &Head) -> bool {
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&of).filter(|stream| stream.settled() < head.settled) else {
            return false;
        };
        stream.restart(now, head.settled, &head.done, head.floor);
        let open: Vec<u64> = stream.open().collect();
        self.ready.retain(|(source, _)| *source != of);
        open.into_iter().for_each(|seq| self.enqueue(of, seq));
        self.stats.snapshots.1 += 1;
        true
    }

    /// Begins to ask for snapshots where events alone do not help.
    pub(super) fn look_for_snapshots(&mut self) {
        let now = self.now;
        let sources: Vec<Source> = self.streams.keys().copied().collect();
        for of in sources.into_iter().filter(|of| *of != self.config.source) {
            if self.downloads.len() + self.requests.len() >= MAX_DOWNLOADS {
                break;
            }
            if self.downloads.contains_key(&of) || self.is_installing(of) {
                continue;
            }
            if let Some(from) = self.who_has_a_snapshot(of) {
                self.downloads.insert(of, Download::new(now, from));
            }
        }
        self.give_up_downloads();
        self.given.retain(|_, given| now - given.asked < KEPT);
        self.too_long.retain(|_, since| now - *since < TOO_LONG);
    }

    fn give_up_downloads(&mut self) {
        let vain = self.downloads.iter().filter(|(_, download)| download.times >= PATIENCE);
        let vain: Vec<(Source, Source)> = vain.map(|(of, download)| (*of, download.from)).collect();
        for (of, from) in vain {
            self.downloads.remove(&of);
            self.tell(Notice::NoSnapshot { of, from });
        }
    }

    fn is_installing(&self, of: Source) -> bool {
        self.requests.iter().any(|wanted| matches!(wanted, Wanted::Install { of: other, .. } if *other == of))
    }

    /// Who is further than events can bring us.
    fn who_has_a_snapshot(&self, of: Source) -> Option<Source> {
        let stream = self.streams.get(&of)?;
        let next = stream.settled() + 1;
        if let Some(peer) = self.peers.get(&of).filter(|peer| peer.is_here) {
            return peer.have(of).filter(|have| have.oldest > next).map(|_| of);
        }
        let is_hopeless = stream.missing().first().is_some_and(|first| first.seq == next && first.times >= HOPELESS);
        let others = || self.peers.iter().filter(|(_, peer)| peer.is_here);
        if !is_hopeless && others().any(|(_, peer)| peer.can_give(of, next)) {
            return None;
        }
        let further = others().filter_map(|(source, peer)| peer.have(of).map(|have| (have.settled_end, *source)));
        further.filter(|(settled, _)| *settled >= next).max().map(|(_, source)| source)
    }

    pub(super) fn next_want(&self) -> Option<Instant> {
        self.downloads.values().map(|download| download.next).min()
    }

    pub(super) fn ask_for_snapshot(&mut self, buf: &mut [u8]) -> Option<(Source, usize)> {
        let now = self.now;
        let (of, download) = self.downloads.iter_mut().find(|(_, download)| download.next <= now)?;
        let takes = self.peers.get(&download.from).map_or(TimeDelta::from_millis(200), super::Peer::answer_time);
        download.next = now + takes + TimeDelta::from_millis(30);
        download.times += 1;
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let piece = download.first as u32;
        datagram
            .put(&MirrorItem::SnapshotRequest {
                source: *of,
                version: download.version,
                first_piece: piece,
                count: AT_ONCE,
            })
            .ok()?;
        Some((download.from, datagram.len()))
    }
}
