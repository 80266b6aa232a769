//! Download of a snapshot, block by block. Each block is checked when it is complete.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::download_window::DownloadWindow;
use super::snapshot::{block_count, block_digest, block_range, decompress_block, snapshot_digest};
use super::{BLOCK_SIZE, MAX_PARTS_PER_BLOCK, PART_SIZE};
use crate::spectator_feed::message::{BlockRequests, SnapshotChunk, SnapshotOffer};
use crate::time::{Instant, TimeDelta};

/// Largest number of blocks downloaded at a time.
const MAX_OPEN_BLOCKS: usize = 48;

#[derive(Debug)]
pub(super) struct SnapshotDownload {
    offer: SnapshotOffer,
    state: Vec<u8>,
    /// Digest of each completed block, by block number; 0 for the others.
    block_digests: Vec<u64>,
    /// Number of blocks that are not complete.
    blocks_left: usize,
    open_blocks: Vec<OpenBlock>,
    /// The first block that was never requested.
    next_block: u32,
    pending_requests: VecDeque<PartRequest>,
    /// Number of parts of the block whose size became known most recently; 4 at first. As many parts are requested of a
    /// block of unknown size.
    typical_parts: usize,
}

/// A block that was requested and is not complete.
#[derive(Debug)]
struct OpenBlock {
    block: u32,
    /// Transfer encoding; `None` before the first part has arrived.
    encoding: Option<BlockEncoding>,
    /// Bit mask of the parts received.
    received_parts: u16,
    /// Bit mask of the parts in flight: requested, not received, not timed out.
    requested_parts: u16,
    /// Bit mask of the parts with a request that was given up. Their arrival gives no round-trip sample.
    retried_parts: u16,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockEncoding {
    digest: u64,
    is_raw: bool,
    size: u16,
}

#[derive(Clone, Copy, Debug)]
struct PartRequest {
    block: u32,
    part: u8,
    sent_at: Instant,
}

/// Effect of a received part on the download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// The part belongs to no open block or to another snapshot, has an invalid number or length, or was received
    /// before.
    Ignored,
    /// The part was stored. If it completed its block, the block passed its check.
    Accepted,
    /// The block failed its check, or its parts disagree on its encoding. The whole block is requested again.
    BlockCorrupt,
}

impl SnapshotDownload {
    /// Creates the download of `offer` and allocates the whole state. The caller has checked the offered size.
    pub(super) fn new(offer: SnapshotOffer) -> Self {
        let blocks = block_count(offer.size as usize);
        Self {
            offer,
            state: vec![0; offer.size as usize],
            block_digests: vec![0; blocks],
            blocks_left: blocks,
            open_blocks: Vec::new(),
            next_block: 0,
            pending_requests: VecDeque::new(),
            typical_parts: 4,
        }
    }

    pub(super) fn offer(&self) -> &SnapshotOffer {
        &self.offer
    }

    pub(super) fn state(&self) -> &[u8] {
        &self.state
    }

    /// Returns whether `other` offers the same snapshot, so that the completed blocks remain valid.
    pub(super) fn is_same_snapshot(&self, other: &SnapshotOffer) -> bool {
        let id = |offer: &SnapshotOffer| (offer.next_frame, offer.size, offer.state_hash, offer.digest);
        id(&self.offer) == id(other)
    }

    /// Continues the download with `offer`, which is of the same snapshot. If the snapshot id differs, as at another
    /// source, all parts in flight are requested again.
    pub(super) fn resume(&mut self, offer: SnapshotOffer) {
        if self.offer.snapshot_id != offer.snapshot_id {
            self.offer = offer;
            self.forget_requests();
        }
    }

    /// Marks all parts in flight as not requested, because the source will not send them.
    pub(super) fn forget_requests(&mut self) {
        self.pending_requests.clear();
        for open in &mut self.open_blocks {
            open.retried_parts |= core::mem::take(&mut open.requested_parts);
        }
    }

    /// Returns the fraction of blocks that are complete, 0 to 1.
    pub(super) fn progress(&self) -> f32 {
        1.0 - self.blocks_left as f32 / self.block_digests.len().max(1) as f32
    }

    pub(super) fn is_complete(&self) -> bool {
        self.blocks_left == 0
    }

    /// Returns whether the digest of the complete state is the offered one.
    pub(super) fn matches_digest(&self) -> bool {
        snapshot_digest(self.state.len(), self.block_digests.iter().copied()) == self.offer.digest
    }

    /// Returns when the oldest request in flight times out; `None` if none is in flight.
    pub(super) fn retry_at(&self, flow: &DownloadWindow) -> Option<Instant> {
        self.pending_requests.front().map(|request| request.sent_at + self.retry_timeout(flow))
    }

    /// Returns how long to wait for a part. The wait is shorter while no further part can be requested, because then
    /// only a timeout reveals a loss.
    fn retry_timeout(&self, flow: &DownloadWindow) -> TimeDelta {
        if self.has_unrequested_parts() { flow.retry_timeout() } else { flow.tail_retry_timeout() }
    }

    pub(super) fn memory(&self) -> usize {
        let open: usize = self.open_blocks.iter().map(|open| open.bytes.capacity()).sum();
        self.state.capacity()
            + self.block_digests.capacity() * 8
            + self.pending_requests.capacity() * size_of::<PartRequest>()
            + open
    }

    /// Returns whether a request packet is due: a request has timed out, or parts are left to request and the
    /// congestion window has room for four of them. Room for one is enough if a quarter of the window is free or
    /// nothing is in flight.
    pub(super) fn should_request(&self, now: Instant, flow: &DownloadWindow) -> bool {
        if self.retry_at(flow).is_some_and(|at| at <= now) {
            return true;
        }
        let room = flow.congestion_window().saturating_sub(self.pending_requests.len() * PART_SIZE);
        let enough = room >= 4 * PART_SIZE
            || (room >= PART_SIZE && (room >= flow.congestion_window() / 4 || self.pending_requests.is_empty()));
        enough && self.has_unrequested_parts()
    }

    /// Returns whether a part can be requested that is neither received nor in flight.
    fn has_unrequested_parts(&self) -> bool {
        let has_missing = |open: &OpenBlock| {
            parts_mask(open.encoding, self.typical_parts) & !open.received_parts & !open.requested_parts != 0
        };
        let can_open =
            (self.next_block as usize) < self.block_digests.len() && self.open_blocks.len() < MAX_OPEN_BLOCKS;
        can_open || self.open_blocks.iter().any(has_missing)
    }

    /// Gives up the requests that timed out, and returns the parts to request now, as many as the congestion window and
    /// one packet have room for. Reports timeouts to `flow`.
    pub(super) fn request_parts(&mut self, now: Instant, flow: &mut DownloadWindow) -> BlockRequests {
        let (pending_before, retry) = (self.pending_requests.len(), self.retry_timeout(flow));
        while let Some(expired) =
            self.pending_requests.front().copied().filter(|request| now - request.sent_at >= retry)
        {
            self.pending_requests.pop_front();
            self.expire_request(expired);
        }
        if self.pending_requests.len() < pending_before {
            flow.on_timeout();
        }
        let mut requests = BlockRequests::default();
        let max_in_flight = flow.congestion_window() / PART_SIZE;
        for open in &mut self.open_blocks {
            request_block_parts(
                open,
                now,
                max_in_flight,
                self.typical_parts,
                &mut self.pending_requests,
                &mut requests,
            );
        }
        while self.pending_requests.len() < max_in_flight
            && self.open_blocks.len() < MAX_OPEN_BLOCKS
            && (self.next_block as usize) < self.block_digests.len()
        {
            let mut open = OpenBlock {
                block: self.next_block,
                encoding: None,
                received_parts: 0,
                requested_parts: 0,
                retried_parts: 0,
                bytes: Vec::new(),
            };
            if !request_block_parts(
                &mut open,
                now,
                max_in_flight,
                self.typical_parts,
                &mut self.pending_requests,
                &mut requests,
            ) {
                break;
            }
            self.open_blocks.push(open);
            self.next_block += 1;
        }
        requests
    }

    fn expire_request(&mut self, request: PartRequest) {
        if let Some(open) = self.open_blocks.iter_mut().find(|open| open.block == request.block) {
            open.requested_parts &= !(1 << request.part);
            open.retried_parts |= 1 << request.part;
        }
    }

    /// Stores a received part. The part that completes a block triggers the block's check.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        flow: &mut DownloadWindow,
    ) -> PartOutcome {
        let encoding = BlockEncoding { digest: chunk.block_hash, is_raw: chunk.is_raw, size: chunk.block_len };
        let offset = usize::from(chunk.part) * PART_SIZE;
        let len = usize::from(chunk.block_len).saturating_sub(offset).min(PART_SIZE);
        let fits = usize::from(chunk.block_len) <= BLOCK_SIZE
            && usize::from(chunk.part) < MAX_PARTS_PER_BLOCK
            && chunk.bytes.len() == len;
        let Some(at) = self.open_blocks.iter().position(|open| open.block == chunk.block) else {
            return PartOutcome::Ignored;
        };
        if chunk.snapshot_id != self.offer.snapshot_id || !fits || len == 0 {
            return PartOutcome::Ignored;
        }
        if self.open_blocks[at].encoding.is_some_and(|known| known != encoding) {
            return self.restart_block(at);
        }
        self.on_arrival(now, chunk.block, chunk.part, flow);
        let open = &mut self.open_blocks[at];
        if open.received_parts >> chunk.part & 1 != 0 {
            return PartOutcome::Ignored;
        }
        if open.encoding.is_none() {
            open.encoding = Some(encoding);
            self.typical_parts = usize::from(encoding.size).div_ceil(PART_SIZE);
            open.bytes = vec![0; usize::from(encoding.size)];
            self.pending_requests.retain(|request| {
                request.block != chunk.block || usize::from(request.part) * PART_SIZE < usize::from(encoding.size)
            });
        }
        let open = &mut self.open_blocks[at];
        open.bytes[offset..offset + len].copy_from_slice(chunk.bytes);
        open.received_parts |= 1 << chunk.part;
        flow.on_bytes(now, chunk.bytes.len());
        if open.received_parts == parts_mask(Some(encoding), MAX_PARTS_PER_BLOCK) {
            self.finish_block(at, encoding)
        } else {
            PartOutcome::Accepted
        }
    }

    /// Removes the request that a received part answers, and records its round-trip time unless the part was requested
    /// before. Requests that were sent before this one by more than the reordering tolerance count as lost.
    fn on_arrival(&mut self, now: Instant, block: u32, part: u8, flow: &mut DownloadWindow) {
        let Some(at) = self.pending_requests.iter().position(|request| (request.block, request.part) == (block, part))
        else {
            return;
        };
        let Some(answered) = self.pending_requests.remove(at) else { return };
        if let Some(open) = self.open_blocks.iter_mut().find(|open| open.block == block) {
            open.requested_parts &= !(1 << part);
            // A part that was requested twice gives no round-trip sample: either request may have been answered.
            if open.retried_parts >> part & 1 == 0 {
                flow.on_rtt(now - answered.sent_at);
            }
        }
        let slack = flow.reordering_tolerance();
        while let Some(lost) =
            self.pending_requests.front().copied().filter(|request| request.sent_at + slack < answered.sent_at)
        {
            self.pending_requests.pop_front();
            self.expire_request(lost);
        }
    }

    fn restart_block(&mut self, at: usize) -> PartOutcome {
        let open = &mut self.open_blocks[at];
        (open.encoding, open.received_parts, open.requested_parts, open.retried_parts, open.bytes) =
            (None, 0, 0, u16::MAX, Vec::new());
        let block = open.block;
        self.pending_requests.retain(|request| request.block != block);
        PartOutcome::BlockCorrupt
    }

    /// Decompresses a complete block into the state. If the block is malformed or its digest differs, its download
    /// restarts.
    fn finish_block(&mut self, at: usize, encoding: BlockEncoding) -> PartOutcome {
        let block = self.open_blocks[at].block as usize;
        let out = &mut self.state[block_range(self.offer.size as usize, block)];
        if !decompress_block(&self.open_blocks[at].bytes, encoding.is_raw, out) || block_digest(out) != encoding.digest
        {
            return self.restart_block(at);
        }
        self.block_digests[block] = encoding.digest;
        self.blocks_left -= 1;
        self.open_blocks.remove(at);
        self.pending_requests.retain(|request| request.block as usize != block);
        PartOutcome::Accepted
    }
}

/// Returns the mask of all parts of a block. A block of unknown size is assumed to have `typical_parts` parts.
fn parts_mask(encoding: Option<BlockEncoding>, typical_parts: usize) -> u16 {
    let parts = encoding.map_or(typical_parts, |encoding| usize::from(encoding.size).div_ceil(PART_SIZE));
    ((1u32 << parts.min(16)) - 1) as u16
}

/// Requests the missing parts of a block, as far as the window and the packet have room. Returns whether any was
/// requested.
fn request_block_parts(
    open: &mut OpenBlock,
    now: Instant,
    max_in_flight: usize,
    typical_parts: usize,
    pending: &mut VecDeque<PartRequest>,
    requests: &mut BlockRequests,
) -> bool {
    let mut any = false;
    let missing = parts_mask(open.encoding, typical_parts) & !open.received_parts & !open.requested_parts;
    for part in (0..MAX_PARTS_PER_BLOCK as u8).filter(|part| missing >> part & 1 != 0) {
        if pending.len() >= max_in_flight || !requests.push_part(open.block, part) {
            break;
        }
        pending.push_back(PartRequest { block: open.block, part, sent_at: now });
        open.requested_parts |= 1 << part;
        any = true;
    }
    any
}
