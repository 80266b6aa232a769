//! A snapshot on its way to here, block by block, each checked when it is complete.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::congestion::CongestionControl;
use super::snapshot::{block_count, block_digest, block_range, decompress_block, snapshot_digest};
use super::{BLOCK_SIZE, MAX_PARTS_PER_BLOCK, PART_SIZE};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BlockRequests, SnapshotChunk, SnapshotOffer};

/// The most blocks that are incomplete at a time.
const MAX_OPEN_BLOCKS: usize = 48;

/// The snapshot that is downloaded.
#[derive(Debug)]
pub(super) struct SnapshotDownload {
    offer: SnapshotOffer,
    state: Vec<u8>,
    /// The digests of the blocks that are here.
    block_digests: Vec<u64>,
    /// Blocks that are not here.
    blocks_left: usize,
    open_blocks: Vec<OpenBlock>,
    /// The first block that was not begun.
    next_block: u32,
    pending_requests: VecDeque<PartRequest>,
    /// How many parts the newest block has whose size is known: the next will not be much different.
    typical_parts: usize,
}

/// A block that is incomplete.
#[derive(Debug)]
struct OpenBlock {
    block: u32,
    /// How it travels, once some of it is here.
    encoding: Option<BlockEncoding>,
    /// One bit for each part that is here, for each that is under way, and for each that was asked for more than once.
    received_parts: u16,
    requested_parts: u16,
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

/// What came of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// It was not needed, or makes no sense.
    Ignored,
    /// It was.
    Accepted,
    /// Its block is not what it should be, and is begun anew.
    BlockCorrupt,
}

impl SnapshotDownload {
    /// Begins to download what is offered, whose size was found acceptable.
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

    /// Whether another offer is of the same snapshot, so that what is here can be used.
    pub(super) fn is_same_snapshot(&self, other: &SnapshotOffer) -> bool {
        let id = |offer: &SnapshotOffer| (offer.next_frame, offer.size, offer.state_hash, offer.digest);
        id(&self.offer) == id(other)
    }

    /// Goes on with the same snapshot, perhaps from elsewhere.
    pub(super) fn resume(&mut self, offer: SnapshotOffer) {
        if self.offer.snapshot_id != offer.snapshot_id {
            self.offer = offer;
            self.forget_requests();
        }
    }

    /// What was asked for will not come.
    pub(super) fn forget_requests(&mut self) {
        self.pending_requests.clear();
        for open in &mut self.open_blocks {
            open.retried_parts |= core::mem::take(&mut open.requested_parts);
        }
    }

    /// How much is here, 0 to 1.
    pub(super) fn progress(&self) -> f32 {
        1.0 - self.blocks_left as f32 / self.block_digests.len().max(1) as f32
    }

    pub(super) fn is_complete(&self) -> bool {
        self.blocks_left == 0
    }

    /// Whether all of it together is what was offered.
    pub(super) fn matches_digest(&self) -> bool {
        snapshot_digest(self.state.len(), self.block_digests.iter().copied()) == self.offer.digest
    }

    /// When something is asked for again, if it does not come before.
    pub(super) fn retry_at(&self, flow: &CongestionControl) -> Option<Instant> {
        self.pending_requests.front().map(|asked| asked.sent_at + self.retry_timeout(flow))
    }

    /// How long to wait for a part. Of the last ones a loss shows only by its lateness, and all the rest waits for them.
    fn retry_timeout(&self, flow: &CongestionControl) -> TimeDelta {
        if self.has_unrequested_parts() { flow.retry_timeout() } else { flow.tail_retry_timeout() }
    }

    pub(super) fn memory(&self) -> usize {
        let open: usize = self.open_blocks.iter().map(|open| open.bytes.capacity()).sum();
        self.state.capacity()
            + self.block_digests.capacity() * 8
            + self.pending_requests.capacity() * size_of::<PartRequest>()
            + open
    }

    /// Whether enough can be asked for to be worth a packet.
    pub(super) fn should_request(&self, now: Instant, flow: &CongestionControl) -> bool {
        if self.retry_at(flow).is_some_and(|at| at <= now) {
            return true;
        }
        let room = flow.congestion_window().saturating_sub(self.pending_requests.len() * PART_SIZE);
        let enough = room >= 4 * PART_SIZE
            || (room >= PART_SIZE && (room >= flow.congestion_window() / 4 || self.pending_requests.is_empty()));
        enough && self.has_unrequested_parts()
    }

    /// Whether something is neither here nor under way.
    fn has_unrequested_parts(&self) -> bool {
        let unasked = |open: &OpenBlock| {
            parts_mask(open.encoding, self.typical_parts) & !open.received_parts & !open.requested_parts != 0
        };
        let can_open =
            (self.next_block as usize) < self.block_digests.len() && self.open_blocks.len() < MAX_OPEN_BLOCKS;
        can_open || self.open_blocks.iter().any(unasked)
    }

    /// What to ask for now.
    pub(super) fn request_parts(&mut self, now: Instant, flow: &mut CongestionControl) -> BlockRequests {
        let (asked, retry) = (self.pending_requests.len(), self.retry_timeout(flow));
        while let Some(late) = self.pending_requests.front().copied().filter(|asked| now - asked.sent_at >= retry) {
            self.pending_requests.pop_front();
            self.expire_request(late);
        }
        if self.pending_requests.len() < asked {
            flow.on_timeout();
        }
        let mut wants = BlockRequests::default();
        let most = flow.congestion_window() / PART_SIZE;
        for open in &mut self.open_blocks {
            request_block_parts(open, now, most, self.typical_parts, &mut self.pending_requests, &mut wants);
        }
        while self.pending_requests.len() < most
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
            if !request_block_parts(&mut open, now, most, self.typical_parts, &mut self.pending_requests, &mut wants) {
                break;
            }
            self.open_blocks.push(open);
            self.next_block += 1;
        }
        wants
    }

    fn expire_request(&mut self, asked: PartRequest) {
        if let Some(open) = self.open_blocks.iter_mut().find(|open| open.block == asked.block) {
            open.requested_parts &= !(1 << asked.part);
            open.retried_parts |= 1 << asked.part;
        }
    }

    /// Takes in a part.
    pub(super) fn on_chunk(
        &mut self,
        now: Instant,
        chunk: &SnapshotChunk<'_>,
        flow: &mut CongestionControl,
    ) -> PartOutcome {
        let kind = BlockEncoding { digest: chunk.block_hash, is_raw: chunk.is_raw, size: chunk.block_len };
        let place = usize::from(chunk.part) * PART_SIZE;
        let len = usize::from(chunk.block_len).saturating_sub(place).min(PART_SIZE);
        let fits = usize::from(chunk.block_len) <= BLOCK_SIZE
            && usize::from(chunk.part) < MAX_PARTS_PER_BLOCK
            && chunk.bytes.len() == len;
        let Some(at) = self.open_blocks.iter().position(|open| open.block == chunk.block) else {
            return PartOutcome::Ignored;
        };
        if chunk.snapshot_id != self.offer.snapshot_id || !fits || len == 0 {
            return PartOutcome::Ignored;
        }
        if self.open_blocks[at].encoding.is_some_and(|known| known != kind) {
            return self.restart_block(at);
        }
        self.on_arrival(now, chunk.block, chunk.part, flow);
        let open = &mut self.open_blocks[at];
        if open.received_parts >> chunk.part & 1 != 0 {
            return PartOutcome::Ignored;
        }
        if open.encoding.is_none() {
            open.encoding = Some(kind);
            self.typical_parts = usize::from(kind.size).div_ceil(PART_SIZE);
            open.bytes = vec![0; usize::from(kind.size)];
            self.pending_requests.retain(|asked| {
                asked.block != chunk.block || usize::from(asked.part) * PART_SIZE < usize::from(kind.size)
            });
        }
        let open = &mut self.open_blocks[at];
        open.bytes[place..place + len].copy_from_slice(chunk.bytes);
        open.received_parts |= 1 << chunk.part;
        flow.on_bytes(now, chunk.bytes.len());
        if open.received_parts == parts_mask(Some(kind), MAX_PARTS_PER_BLOCK) {
            self.finish_block(at, kind)
        } else {
            PartOutcome::Accepted
        }
    }

    /// What was asked for well before what has just come is lost.
    fn on_arrival(&mut self, now: Instant, block: u32, part: u8, flow: &mut CongestionControl) {
        let Some(at) = self.pending_requests.iter().position(|asked| (asked.block, asked.part) == (block, part)) else {
            return;
        };
        let Some(came) = self.pending_requests.remove(at) else { return };
        if let Some(open) = self.open_blocks.iter_mut().find(|open| open.block == block) {
            open.requested_parts &= !(1 << part);
            // Of what was asked for twice nobody knows which one was answered.
            if open.retried_parts >> part & 1 == 0 {
                flow.on_rtt(now - came.sent_at);
            }
        }
        let slack = flow.reordering_tolerance();
        while let Some(lost) =
            self.pending_requests.front().copied().filter(|asked| asked.sent_at + slack < came.sent_at)
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
        self.pending_requests.retain(|asked| asked.block != block);
        PartOutcome::BlockCorrupt
    }

    /// A block is complete: takes it over if it is what it should be.
    fn finish_block(&mut self, at: usize, kind: BlockEncoding) -> PartOutcome {
        let block = self.open_blocks[at].block as usize;
        let out = &mut self.state[block_range(self.offer.size as usize, block)];
        if !decompress_block(&self.open_blocks[at].bytes, kind.is_raw, out) || block_digest(out) != kind.digest {
            return self.restart_block(at);
        }
        self.block_digests[block] = kind.digest;
        self.blocks_left -= 1;
        self.open_blocks.remove(at);
        self.pending_requests.retain(|asked| asked.block as usize != block);
        PartOutcome::Accepted
    }
}

/// Every part of a block; as many as is usual, as long as its size is not known.
fn parts_mask(kind: Option<BlockEncoding>, usual: usize) -> u16 {
    let parts = kind.map_or(usual, |kind| usize::from(kind.size).div_ceil(PART_SIZE));
    ((1u32 << parts.min(16)) - 1) as u16
}

/// Asks for what is missing of a block; `false` when there is no room for any of it.
fn request_block_parts(
    open: &mut OpenBlock,
    now: Instant,
    most: usize,
    usual: usize,
    asked: &mut VecDeque<PartRequest>,
    wants: &mut BlockRequests,
) -> bool {
    let mut any = false;
    let missing = parts_mask(open.encoding, usual) & !open.received_parts & !open.requested_parts;
    for part in (0..MAX_PARTS_PER_BLOCK as u8).filter(|part| missing >> part & 1 != 0) {
        if asked.len() >= most || !wants.push_part(open.block, part) {
            break;
        }
        asked.push_back(PartRequest { block: open.block, part, sent_at: now });
        open.requested_parts |= 1 << part;
        any = true;
    }
    any
}
