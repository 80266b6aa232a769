//! The part of the state that comes from one source's events, for who lacks more of them than anybody has kept.

use alloc::vec::Vec;

use super::send::MirrorControl;
use super::{MAX_SEQ, Mirror, MirrorEvent, MirrorRequest, PendingRequest, SourceId};
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{BufferFull, ByteReader, MAX_PIECE_LEN, MirrorDatagram, MirrorItem};

/// A snapshot that nobody asks for is let go of after this, and another one is made for who comes then.
const SNAPSHOT_LIFETIME: TimeDelta = TimeDelta::from_secs(3);
/// So many snapshots are fetched at a time, at the most.
const MAX_DOWNLOADS: usize = 4;
/// Snapshots that are given at a time.
const MAX_SERVED_SNAPSHOTS: usize = 16;
/// What was too long for a snapshot is not asked for again for so long: it costs much, and becomes no shorter soon.
const OVERSIZED_RETRY_INTERVAL: TimeDelta = TimeDelta::from_secs(30);
/// Pieces that are asked for at a time.
const PIECES_PER_REQUEST: u8 = 32;
/// So often in vain, and somebody else is asked.
const MAX_PIECE_ATTEMPTS: u32 = 8;
/// An event that was asked for so often in vain nobody has.
const MAX_EVENT_ATTEMPTS: u32 = 6;

/// What is known of a part of the state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SnapshotHead {
    settled: u64,
    time_floor: Option<GroupInstant>,
    settled_bits: Vec<u8>,
}

/// A snapshot for others.
#[derive(Debug)]
pub(super) struct ServedSnapshot {
    version: u32,
    settled: u64,
    bytes: Vec<u8>,
    last_requested_at: Instant,
}

impl ServedSnapshot {
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
pub(super) struct MirrorDownload {
    from: SourceId,
    version: u32,
    total_size: usize,
    bytes: Vec<u8>,
    /// Which pieces are here.
    received_pieces: Vec<bool>,
    /// All pieces before this one are here.
    first_missing: usize,
    next_request_at: Instant,
    attempts: u32,
}

impl MirrorDownload {
    fn new(now: Instant, from: SourceId) -> Self {
        Self {
            from,
            version: 0,
            total_size: 0,
            bytes: Vec::new(),
            received_pieces: Vec::new(),
            first_missing: 0,
            next_request_at: now,
            attempts: 0,
        }
    }

    fn start(&mut self, version: u32, total: usize) {
        (self.version, self.total_size, self.first_missing) = (version, total, 0);
        self.bytes = alloc::vec![0; total];
        self.received_pieces = alloc::vec![false; total.div_ceil(MAX_PIECE_LEN)];
    }

    /// Takes in a piece. Whether all are here.
    fn insert_piece(&mut self, now: Instant, piece: usize, bytes: &[u8]) -> bool {
        let from = piece * MAX_PIECE_LEN;
        let len = self.total_size.saturating_sub(from).min(MAX_PIECE_LEN);
        if piece >= self.received_pieces.len() || bytes.len() != len {
            return false;
        }
        self.bytes[from..from + len].copy_from_slice(bytes);
        self.received_pieces[piece] = true;
        let before = self.first_missing;
        while self.received_pieces.get(self.first_missing) == Some(&true) {
            self.first_missing += 1;
        }
        if self.first_missing > before {
            self.attempts = 0;
        }
        // The next ones while the last are under way.
        if piece + 1 == (before / usize::from(PIECES_PER_REQUEST) + 1) * usize::from(PIECES_PER_REQUEST) {
            self.next_request_at = now;
        }
        self.first_missing == self.received_pieces.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.received_pieces.capacity()
    }
}

impl SnapshotHead {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.settled.to_le_bytes());
        let floor = self.time_floor.map_or(i64::MIN, GroupInstant::as_nanos);
        bytes.extend_from_slice(&floor.to_le_bytes());
        bytes.extend_from_slice(&(self.settled_bits.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.settled_bits);
    }

    fn read(reader: &mut ByteReader<'_>) -> Option<Self> {
        let (settled, floor) = (reader.u64().ok()?, reader.u64().ok()? as i64);
        let len = usize::from(reader.u16().ok()?);
        let done = reader.take(len).ok()?.to_vec();
        let sane = settled <= MAX_SEQ - super::MAX_UNSETTLED && len <= super::MAX_UNSETTLED as usize / 8;
        let floor = (floor > i64::MIN).then(|| GroupInstant::from_nanos(floor));
        sane.then_some(Self { settled, time_floor: floor, settled_bits: done })
    }
}

impl Mirror {
    /// What the host program is to do next.
    pub fn poll_request(&mut self, now: Instant) -> Option<MirrorRequest> {
        self.now = self.now.max(now);
        while let Some(wanted) = self.pending_requests.pop_front() {
            match wanted {
                PendingRequest::Snapshot(of) => return Some(MirrorRequest::Snapshot { of }),
                PendingRequest::Install { of, head, bytes } => {
                    if self.install(of, &head) {
                        return Some(MirrorRequest::Install { of, bytes });
                    }
                }
            }
        }
        None
    }

    /// The part of the state that was asked for with [`MirrorRequest::Snapshot`], as it is now.
    pub fn handle_snapshot(&mut self, now: Instant, of: SourceId, state: &[u8]) {
        self.now = self.now.max(now);
        let Some(stream) = self.streams.get(&of) else { return };
        let head = SnapshotHead {
            settled: stream.settled(),
            time_floor: stream.time_floor(),
            settled_bits: stream.settled_bits(),
        };
        let mut bytes = Vec::with_capacity(state.len() + head.settled_bits.len() + 16);
        head.write(&mut bytes);
        bytes.extend_from_slice(state);
        if bytes.len() > self.config.max_snapshot_size {
            self.oversized.insert(of, self.now);
            return self.push_event(MirrorEvent::SnapshotTooLong { of, len: bytes.len() });
        }
        if self.served_snapshots.len() >= MAX_SERVED_SNAPSHOTS && !self.served_snapshots.contains_key(&of) {
            return;
        }
        let next = self.served_snapshots.get(&of).map_or(1, |given| given.version.wrapping_add(1));
        let version = (next ^ (self.stats.snapshots.0 as u32 & 0xffff) << 8).max(1);
        self.stats.snapshots.0 += 1;
        self.served_snapshots
            .insert(of, ServedSnapshot { version, settled: head.settled, bytes, last_requested_at: self.now });
    }

    /// Somebody wants pieces of a snapshot.
    pub(super) fn on_piece_request(&mut self, from: SourceId, of: SourceId, piece: u32, count: u8) {
        let Some(stream) = self.streams.get(&of) else { return };
        let now = self.now;
        // Whoever takes over a snapshot must be able to go on from there. Who began with another one begins anew when it sees a piece of this.
        let is_good = |given: &ServedSnapshot| given.settled + 1 >= stream.base();
        let Some(given) = self.served_snapshots.get_mut(&of).filter(|given| is_good(given)) else {
            let is_asked = |wanted: &PendingRequest| matches!(wanted, PendingRequest::Snapshot(other) if *other == of);
            let is_vain = self.oversized.contains_key(&of);
            if !is_vain
                && !self.pending_requests.iter().any(is_asked)
                && self.pending_requests.len() < MAX_SERVED_SNAPSHOTS
            {
                self.pending_requests.push_back(PendingRequest::Snapshot(of));
            }
            return;
        };
        given.last_requested_at = now;
        let pieces = given.bytes.len().div_ceil(MAX_PIECE_LEN) as u32;
        for piece in (piece..piece.saturating_add(count.into())).take_while(|piece| *piece < pieces) {
            self.push_control(from, MirrorControl::Piece(of, piece));
        }
    }

    pub(super) fn put_piece(
        &self,
        of: SourceId,
        piece: u32,
        datagram: &mut MirrorDatagram<'_>,
    ) -> Result<(), BufferFull> {
        let Some(given) = self.served_snapshots.get(&of) else { return Ok(()) };
        let Some(bytes) = given.bytes.chunks(MAX_PIECE_LEN).nth(piece as usize) else { return Ok(()) };
        let (version, total) = (given.version, given.bytes.len() as u32);
        datagram.put(&MirrorItem::SnapshotPiece { source: of, version, total_len: total, piece, bytes })
    }

    pub(super) fn on_piece(
        &mut self,
        from: SourceId,
        of: SourceId,
        (version, total, piece): (u32, u32, u32),
        bytes: &[u8],
    ) {
        let (now, most) = (self.now, self.config.max_snapshot_size);
        let Some(download) = self.downloads.get_mut(&of).filter(|download| download.from == from) else { return };
        if total as usize > most || total == 0 {
            return;
        }
        if download.version != version {
            download.start(version, total as usize);
        }
        if download.total_size == total as usize && download.insert_piece(now, piece as usize, bytes) {
            self.finish_download(of);
        }
    }

    fn finish_download(&mut self, of: SourceId) {
        let Some(download) = self.downloads.remove(&of) else { return };
        let mut reader = ByteReader::new(&download.bytes);
        if let Some(head) = SnapshotHead::read(&mut reader) {
            let bytes = reader.rest().to_vec();
            self.pending_requests.push_back(PendingRequest::Install { of, head, bytes });
        }
    }

    /// Takes over how far somebody else was. Not if we are further by now.
    fn install(&mut self, of: SourceId, head: &SnapshotHead) -> bool {
        let now = self.now;
        let Some(stream) = self.streams.get_mut(&of).filter(|stream| stream.settled() < head.settled) else {
            return false;
        };
        stream.restart_from_snapshot(now, head.settled, &head.settled_bits, head.time_floor);
        let open: Vec<u64> = stream.open_events().collect();
        self.ready.retain(|(source, _)| *source != of);
        open.into_iter().for_each(|seq| self.enqueue(of, seq));
        self.stats.snapshots.1 += 1;
        true
    }

    /// Begins to ask for snapshots where events alone do not help.
    pub(super) fn request_snapshots(&mut self) {
        let now = self.now;
        let sources: Vec<SourceId> = self.streams.keys().copied().collect();
        for of in sources.into_iter().filter(|of| *of != self.config.source) {
            if self.downloads.len() + self.pending_requests.len() >= MAX_DOWNLOADS {
                break;
            }
            if self.downloads.contains_key(&of) || self.is_installing(of) {
                continue;
            }
            if let Some(from) = self.snapshot_provider(of) {
                self.downloads.insert(of, MirrorDownload::new(now, from));
            }
        }
        self.abandon_downloads();
        self.served_snapshots.retain(|_, given| now - given.last_requested_at < SNAPSHOT_LIFETIME);
        self.oversized.retain(|_, since| now - *since < OVERSIZED_RETRY_INTERVAL);
    }

    fn abandon_downloads(&mut self) {
        let vain = self.downloads.iter().filter(|(_, download)| download.attempts >= MAX_PIECE_ATTEMPTS);
        let vain: Vec<(SourceId, SourceId)> = vain.map(|(of, download)| (*of, download.from)).collect();
        for (of, from) in vain {
            self.downloads.remove(&of);
            self.push_event(MirrorEvent::SnapshotUnavailable { of, from });
        }
    }

    fn is_installing(&self, of: SourceId) -> bool {
        self.pending_requests
            .iter()
            .any(|wanted| matches!(wanted, PendingRequest::Install { of: other, .. } if *other == of))
    }

    /// Who is further than events can bring us.
    fn snapshot_provider(&self, of: SourceId) -> Option<SourceId> {
        let stream = self.streams.get(&of)?;
        let next = stream.settled() + 1;
        if let Some(peer) = self.peers.get(&of).filter(|peer| peer.is_present) {
            return peer.have(of).filter(|have| have.oldest > next).map(|_| of);
        }
        let is_hopeless =
            stream.missing().first().is_some_and(|first| first.seq == next && first.attempts >= MAX_EVENT_ATTEMPTS);
        let others = || self.peers.iter().filter(|(_, peer)| peer.is_present);
        if !is_hopeless && others().any(|(_, peer)| peer.can_serve_event(of, next)) {
            return None;
        }
        let further = others().filter_map(|(source, peer)| peer.have(of).map(|have| (have.settled_end, *source)));
        further.filter(|(settled, _)| *settled >= next).max().map(|(_, source)| source)
    }

    pub(super) fn next_piece_request_at(&self) -> Option<Instant> {
        self.downloads.values().map(|download| download.next_request_at).min()
    }

    pub(super) fn encode_piece_request(&mut self, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        let now = self.now;
        let (of, download) = self.downloads.iter_mut().find(|(_, download)| download.next_request_at <= now)?;
        let takes = self
            .peers
            .get(&download.from)
            .map_or(TimeDelta::from_millis(200), super::MirrorPeer::expected_response_time);
        download.next_request_at = now + takes + TimeDelta::from_millis(30);
        download.attempts += 1;
        let mut datagram = MirrorDatagram::new(buf).ok()?;
        let piece = download.first_missing as u32;
        datagram
            .put(&MirrorItem::SnapshotRequest {
                source: *of,
                version: download.version,
                first_piece: piece,
                count: PIECES_PER_REQUEST,
            })
            .ok()?;
        Some((download.from, datagram.len()))
    }
}
