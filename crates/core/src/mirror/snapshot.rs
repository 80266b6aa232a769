//! Snapshots: the part of the state that comes from one source's events, for a mirror that can no longer get all the
//! events that it lacks.

use alloc::vec::Vec;

use super::send::UnicastMessage;
use super::{MAX_SEQ, Mirror, MirrorEvent, MirrorRequest, PendingRequest, SourceId};
use crate::codec::{BufferFull, ByteReader};
use crate::mirror::message::{MAX_PIECE_LEN, MirrorDatagramWriter, MirrorItem};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Time without requests after which a served snapshot is discarded. The next request creates a new one.
const SNAPSHOT_LIFETIME: TimeDelta = TimeDelta::from_secs(3);
/// Maximum number of concurrent downloads together with the requests that wait for the host program.
const MAX_DOWNLOADS: usize = 4;
/// Maximum number of snapshots served at a time.
const MAX_SERVED_SNAPSHOTS: usize = 16;
/// Time after which an oversized snapshot may be requested from the host program again: creating a snapshot is
/// expensive, and an oversized one is unlikely to shrink soon.
const OVERSIZED_RETRY_INTERVAL: TimeDelta = TimeDelta::from_secs(30);
/// Number of pieces that one request asks for.
const PIECES_PER_REQUEST: u8 = 32;
/// Number of requests without progress after which the download from a mirror is abandoned.
const MAX_PIECE_ATTEMPTS: u32 = 8;
/// Number of requests for an event after which this mirror assumes that no mirror can send the event.
const MAX_EVENT_ATTEMPTS: u32 = 6;

/// Header of a snapshot: the events that the snapshot includes, and a lower bound on the issue times of all later ones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SnapshotHead {
    settled: u64,
    time_floor: Option<GroupInstant>,
    settled_bits: Vec<u8>,
}

/// A snapshot with its header, as served to other mirrors.
#[derive(Debug)]
pub(super) struct ServedSnapshot {
    version: u32,
    settled: u64,
    bytes: Vec<u8>,
    last_requested_at: Instant,
}

impl ServedSnapshot {
    /// Returns the sequence number up to which the snapshot includes all events.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A snapshot that this mirror is downloading.
#[derive(Debug)]
pub(super) struct MirrorDownload {
    from: SourceId,
    version: u32,
    total_size: usize,
    bytes: Vec<u8>,
    /// Whether each piece has been received.
    received_pieces: Vec<bool>,
    /// Index of the first missing piece.
    first_missing: usize,
    /// Index after the last piece that the newest request asked for.
    requested_end: usize,
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
            requested_end: 0,
            next_request_at: now,
            attempts: 0,
        }
    }

    fn start(&mut self, version: u32, total_size: usize) {
        (self.version, self.total_size, self.first_missing) = (version, total_size, 0);
        self.bytes = alloc::vec![0; total_size];
        self.received_pieces = alloc::vec![false; total_size.div_ceil(MAX_PIECE_LEN)];
    }

    /// Stores a piece. Returns whether the snapshot is complete.
    fn insert_piece(&mut self, now: Instant, piece: usize, bytes: &[u8]) -> bool {
        let start = piece * MAX_PIECE_LEN;
        let len = self.total_size.saturating_sub(start).min(MAX_PIECE_LEN);
        if piece >= self.received_pieces.len() || bytes.len() != len {
            return false;
        }
        self.bytes[start..start + len].copy_from_slice(bytes);
        self.received_pieces[piece] = true;
        let before = self.first_missing;
        while self.received_pieces.get(self.first_missing) == Some(&true) {
            self.first_missing += 1;
        }
        if self.first_missing > before {
            self.attempts = 0;
        }
        // The next request is due when all requested pieces have arrived. The last piece may arrive before others.
        if self.first_missing >= self.requested_end {
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
        let (settled, time_floor) = (reader.u64().ok()?, reader.u64().ok()? as i64);
        let len = usize::from(reader.u16().ok()?);
        let settled_bits = reader.take(len).ok()?.to_vec();
        let is_valid = settled <= MAX_SEQ - super::MAX_UNSETTLED && len <= super::MAX_UNSETTLED as usize / 8;
        let time_floor = (time_floor > i64::MIN).then(|| GroupInstant::from_nanos(time_floor));
        is_valid.then_some(Self { settled, time_floor, settled_bits })
    }
}

impl Mirror {
    /// Returns the next request to the host program. Skips the installation of a snapshot that this mirror is no longer
    /// behind.
    pub fn poll_request(&mut self, now: Instant) -> Option<MirrorRequest> {
        self.now = self.now.max(now);
        while let Some(request) = self.pending_requests.pop_front() {
            match request {
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

    /// Takes the state that was requested with [`MirrorRequest::Snapshot`] and serves it to other mirrors. A snapshot
    /// above [`max_snapshot_size`](super::MirrorConfig::max_snapshot_size) is discarded with
    /// [`MirrorEvent::SnapshotTooLong`]. While the snapshots of 16 sources are served, one of a further source is
    /// ignored.
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
        let next = self.served_snapshots.get(&of).map_or(1, |served| served.version.wrapping_add(1));
        let version = (next ^ (self.stats.snapshots.0 as u32 & 0xffff) << 8).max(1);
        self.stats.snapshots.0 += 1;
        self.served_snapshots
            .insert(of, ServedSnapshot { version, settled: head.settled, bytes, last_requested_at: self.now });
    }

    /// Queues the requested pieces of a snapshot for a peer. If no snapshot is served from which a mirror could
    /// continue, requests one from the host program instead, unless the last one was oversized.
    pub(super) fn on_piece_request(&mut self, from: SourceId, of: SourceId, first_piece: u32, count: u8) {
        let Some(stream) = self.streams.get(&of) else { return };
        let now = self.now;
        // A mirror that installs a snapshot must be able to continue with the events after it. A mirror that has begun
        // to download another version starts over when it receives a piece of this one.
        let is_usable = |served: &ServedSnapshot| served.settled + 1 >= stream.base();
        let Some(served) = self.served_snapshots.get_mut(&of).filter(|served| is_usable(served)) else {
            let is_pending =
                |request: &PendingRequest| matches!(request, PendingRequest::Snapshot(other) if *other == of);
            let is_oversized = self.oversized.contains_key(&of);
            if !is_oversized
                && !self.pending_requests.iter().any(is_pending)
                && self.pending_requests.len() < MAX_SERVED_SNAPSHOTS
            {
                self.pending_requests.push_back(PendingRequest::Snapshot(of));
            }
            return;
        };
        served.last_requested_at = now;
        let pieces = served.bytes.len().div_ceil(MAX_PIECE_LEN) as u32;
        for piece in (first_piece..first_piece.saturating_add(count.into())).take_while(|piece| *piece < pieces) {
            self.push_control(from, UnicastMessage::Piece(of, piece));
        }
    }

    pub(super) fn put_piece(
        &self,
        of: SourceId,
        piece: u32,
        datagram: &mut MirrorDatagramWriter<'_>,
    ) -> Result<(), BufferFull> {
        let Some(served) = self.served_snapshots.get(&of) else { return Ok(()) };
        let Some(bytes) = served.bytes.chunks(MAX_PIECE_LEN).nth(piece as usize) else { return Ok(()) };
        let (version, total_len) = (served.version, served.bytes.len() as u32);
        datagram.put(&MirrorItem::SnapshotPiece { source: of, version, total_len, piece, bytes })
    }

    pub(super) fn on_piece(
        &mut self,
        from: SourceId,
        of: SourceId,
        (version, total_len, piece): (u32, u32, u32),
        bytes: &[u8],
    ) {
        let (now, max_size) = (self.now, self.config.max_snapshot_size);
        let Some(download) = self.downloads.get_mut(&of).filter(|download| download.from == from) else { return };
        if total_len as usize > max_size || total_len == 0 {
            return;
        }
        if download.version != version {
            download.start(version, total_len as usize);
        }
        if download.total_size == total_len as usize && download.insert_piece(now, piece as usize, bytes) {
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

    /// Takes over the settled events of a snapshot that the host program installs. Returns false if this mirror is not
    /// behind the snapshot any more.
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

    /// Starts downloads of snapshots where events alone cannot close the gap, abandons failed downloads and discards
    /// expired snapshots.
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
        self.served_snapshots.retain(|_, served| now - served.last_requested_at < SNAPSHOT_LIFETIME);
        self.oversized.retain(|_, since| now - *since < OVERSIZED_RETRY_INTERVAL);
    }

    fn abandon_downloads(&mut self) {
        let failed = self.downloads.iter().filter(|(_, download)| download.attempts >= MAX_PIECE_ATTEMPTS);
        let failed: Vec<(SourceId, SourceId)> = failed.map(|(of, download)| (*of, download.from)).collect();
        for (of, from) in failed {
            self.downloads.remove(&of);
            self.push_event(MirrorEvent::SnapshotUnavailable { of, from });
        }
    }

    fn is_installing(&self, of: SourceId) -> bool {
        self.pending_requests
            .iter()
            .any(|request| matches!(request, PendingRequest::Install { of: other, .. } if *other == of))
    }

    /// Returns the mirror to download a snapshot from. `None` if events alone can close the gap, or no present peer has
    /// a later state.
    fn snapshot_provider(&self, of: SourceId) -> Option<SourceId> {
        let stream = self.streams.get(&of)?;
        let next = stream.settled() + 1;
        if let Some(peer) = self.peers.get(&of).filter(|peer| peer.is_present) {
            return peer.stream_status(of).filter(|have| have.oldest > next).map(|_| of);
        }
        let is_hopeless =
            stream.missing().first().is_some_and(|first| first.seq == next && first.attempts >= MAX_EVENT_ATTEMPTS);
        let others = || self.peers.iter().filter(|(_, peer)| peer.is_present);
        if !is_hopeless && others().any(|(_, peer)| peer.can_serve_event(of, next)) {
            return None;
        }
        let further =
            others().filter_map(|(source, peer)| peer.stream_status(of).map(|have| (have.settled_end, *source)));
        further.filter(|(settled, _)| *settled >= next).max().map(|(_, source)| source)
    }

    pub(super) fn next_piece_request_at(&self) -> Option<Instant> {
        self.downloads.values().map(|download| download.next_request_at).min()
    }

    pub(super) fn encode_piece_request(&mut self, buf: &mut [u8]) -> Option<(SourceId, usize)> {
        let now = self.now;
        let (of, download) = self.downloads.iter_mut().find(|(_, download)| download.next_request_at <= now)?;
        let response_time = self
            .peers
            .get(&download.from)
            .map_or(TimeDelta::from_millis(200), super::RemoteMirror::expected_response_time);
        download.next_request_at = now + response_time + TimeDelta::from_millis(30);
        download.attempts += 1;
        let mut datagram = MirrorDatagramWriter::new(buf).ok()?;
        let first_piece = download.first_missing as u32;
        download.requested_end = download.first_missing + usize::from(PIECES_PER_REQUEST);
        datagram
            .put(&MirrorItem::SnapshotRequest {
                source: *of,
                version: download.version,
                first_piece,
                count: PIECES_PER_REQUEST,
            })
            .ok()?;
        Some((download.from, datagram.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::MirrorConfig;
    use super::*;
    use crate::codec::MAX_DATAGRAM;
    use crate::mirror::message::MirrorItems;

    const PROVIDER: SourceId = SourceId(1);
    /// Number of pieces of the downloaded snapshot.
    const PIECES: u32 = 197;
    /// Number of requests for all pieces, if none is requested twice.
    const REQUESTS: u32 = PIECES.div_ceil(PIECES_PER_REQUEST as u32);
    /// Round-trip time, below the time after which a request is repeated.
    const RTT: TimeDelta = TimeDelta::from_millis(100);

    /// Returns the next request, if one is due: its first piece and the number of pieces.
    fn next_request(mirror: &mut Mirror) -> Option<(u32, u8)> {
        let mut buf = [0; MAX_DATAGRAM];
        let (_, len) = mirror.encode_piece_request(&mut buf)?;
        MirrorItems::new(&buf[..len]).unwrap().flatten().find_map(|item| match item {
            MirrorItem::SnapshotRequest { first_piece, count, .. } => Some((first_piece, count)),
            _ => None,
        })
    }

    /// Downloads a snapshot without loss. Returns the number of requests and the duration. The first piece of every
    /// request arrives later than the others by `delay`.
    fn download(delay: TimeDelta) -> (u32, TimeDelta) {
        let mut mirror = Mirror::new(Instant::ZERO, MirrorConfig::new(SourceId(2))).unwrap();
        mirror.downloads.insert(PROVIDER, MirrorDownload::new(Instant::ZERO, PROVIDER));
        let (mut requests, mut in_flight) = (0, Vec::new());
        while mirror.downloads.contains_key(&PROVIDER) {
            let now = mirror.now;
            let arrived: Vec<(Instant, u32)> = in_flight.extract_if(.., |(at, _)| *at <= now).collect();
            for (_, piece) in arrived {
                let header = (1, PIECES * MAX_PIECE_LEN as u32, piece);
                mirror.on_piece(PROVIDER, PROVIDER, header, &[0; MAX_PIECE_LEN]);
            }
            if let Some((first, count)) = next_request(&mut mirror) {
                requests += 1;
                let requested = (first..first + u32::from(count)).take_while(|piece| *piece < PIECES);
                let arrival = |piece| now + RTT + if piece == first { delay } else { TimeDelta::ZERO };
                in_flight.extend(requested.map(|piece| (arrival(piece), piece)));
            }
            mirror.now += TimeDelta::from_millis(1);
        }
        (requests, mirror.now - Instant::ZERO)
    }

    #[test]
    fn pieces_that_arrive_out_of_order_are_not_requested_twice() {
        for delay in [TimeDelta::ZERO, TimeDelta::from_millis(5)] {
            let (requests, duration) = download(delay);
            assert_eq!(requests, REQUESTS, "{delay}");
            let expected = (RTT + delay) * i64::from(REQUESTS) + TimeDelta::from_millis(1);
            assert_eq!(duration, expected, "every request must follow the last piece of the one before it: {delay}");
        }
    }
}
