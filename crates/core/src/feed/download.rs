//! A snapshot on its way to here, block by block, each checked when it is complete.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::flow::Flow;
use super::snapshot::{block_range, blocks_of, digest_of_block, digest_of_blocks, unpack};
use super::{BLOCK, PART, PARTS};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BlockRequests, SnapshotChunk, SnapshotOffer};

/// The most blocks that are incomplete at a time.
const MOST_OPEN: usize = 48;

/// The snapshot that is downloaded.
#[derive(Debug)]
pub(super) struct Download {
    offer: SnapshotOffer,
    state: Vec<u8>,
    /// The digests of the blocks that are here.
    hashes: Vec<u64>,
    /// Blocks that are not here.
    left: usize,
    open: Vec<Open>,
    /// The first block that was not begun.
    next: u32,
    asked: VecDeque<Asked>,
    /// How many parts the newest block has whose size is known: the next will not be much different.
    usual_parts: usize,
}

/// A block that is incomplete.
#[derive(Debug)]
struct Open {
    block: u32,
    /// How it travels, once some of it is here.
    kind: Option<Kind>,
    /// One bit for each part that is here, for each that is under way, and for each that was asked for more than once.
    got: u16,
    asked: u16,
    again: u16,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    hash: u64,
    raw: bool,
    size: u16,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    block: u32,
    part: u8,
    at: Instant,
}

/// What came of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was not needed, or makes no sense.
    Useless,
    /// It was.
    Useful,
    /// Its block is not what it should be, and is begun anew.
    Bad,
}

impl Download {
    /// Begins to download what is offered, whose size was found acceptable.
    pub(super) fn new(offer: SnapshotOffer) -> Self {
        let blocks = blocks_of(offer.size as usize);
        Self {
            offer,
            state: vec![0; offer.size as usize],
            hashes: vec![0; blocks],
            left: blocks,
            open: Vec::new(),
            next: 0,
            asked: VecDeque::new(),
            usual_parts: 4,
        }
    }

    pub(super) fn offer(&self) -> &SnapshotOffer {
        &self.offer
    }

    pub(super) fn state(&self) -> &[u8] {
        &self.state
    }

    /// Whether another offer is of the same snapshot, so that what is here can be used.
    pub(super) fn is_same(&self, other: &SnapshotOffer) -> bool {
        let id = |offer: &SnapshotOffer| (offer.next_frame, offer.size, offer.state_hash, offer.digest);
        id(&self.offer) == id(other)
    }

    /// Goes on with the same snapshot, perhaps from elsewhere.
    pub(super) fn resume(&mut self, offer: SnapshotOffer) {
        if self.offer.snapshot_id != offer.snapshot_id {
            self.offer = offer;
            self.forget_asked();
        }
    }

    /// What was asked for will not come.
    pub(super) fn forget_asked(&mut self) {
        self.asked.clear();
        for open in &mut self.open {
            open.again |= core::mem::take(&mut open.asked);
        }
    }

    /// How much is here, 0 to 1.
    pub(super) fn progress(&self) -> f32 {
        1.0 - self.left as f32 / self.hashes.len().max(1) as f32
    }

    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Whether all of it together is what was offered.
    pub(super) fn is_sound(&self) -> bool {
        digest_of_blocks(self.state.len(), self.hashes.iter().copied()) == self.offer.digest
    }

    /// When something is asked for again, if it does not come before.
    pub(super) fn retry_at(&self, flow: &Flow) -> Option<Instant> {
        self.asked.front().map(|asked| asked.at + self.patience(flow))
    }

    /// How long to wait for a part. Of the last ones a loss shows only by its lateness, and all the rest waits for them.
    fn patience(&self, flow: &Flow) -> TimeDelta {
        if self.has_unasked() { flow.retry() } else { flow.retry_last() }
    }

    pub(super) fn memory(&self) -> usize {
        let open: usize = self.open.iter().map(|open| open.bytes.capacity()).sum();
        self.state.capacity() + self.hashes.capacity() * 8 + self.asked.capacity() * size_of::<Asked>() + open
    }

    /// Whether enough can be asked for to be worth a packet.
    pub(super) fn is_worth_asking(&self, now: Instant, flow: &Flow) -> bool {
        if self.retry_at(flow).is_some_and(|at| at <= now) {
            return true;
        }
        let room = flow.window().saturating_sub(self.asked.len() * PART);
        let enough = room >= 4 * PART || (room >= PART && (room >= flow.window() / 4 || self.asked.is_empty()));
        enough && self.has_unasked()
    }

    /// Whether something is neither here nor under way.
    fn has_unasked(&self) -> bool {
        let unasked = |open: &Open| all_parts(open.kind, self.usual_parts) & !open.got & !open.asked != 0;
        let can_open = (self.next as usize) < self.hashes.len() && self.open.len() < MOST_OPEN;
        can_open || self.open.iter().any(unasked)
    }

    /// What to ask for now.
    pub(super) fn ask(&mut self, now: Instant, flow: &mut Flow) -> BlockRequests {
        let (asked, retry) = (self.asked.len(), self.patience(flow));
        while let Some(late) = self.asked.front().copied().filter(|asked| now - asked.at >= retry) {
            self.asked.pop_front();
            self.forget(late);
        }
        if self.asked.len() < asked {
            flow.on_late();
        }
        let mut wants = BlockRequests::default();
        let most = flow.window() / PART;
        for open in &mut self.open {
            ask_of(open, now, most, self.usual_parts, &mut self.asked, &mut wants);
        }
        while self.asked.len() < most && self.open.len() < MOST_OPEN && (self.next as usize) < self.hashes.len() {
            let mut open = Open { block: self.next, kind: None, got: 0, asked: 0, again: 0, bytes: Vec::new() };
            if !ask_of(&mut open, now, most, self.usual_parts, &mut self.asked, &mut wants) {
                break;
            }
            self.open.push(open);
            self.next += 1;
        }
        wants
    }

    fn forget(&mut self, asked: Asked) {
        if let Some(open) = self.open.iter_mut().find(|open| open.block == asked.block) {
            open.asked &= !(1 << asked.part);
            open.again |= 1 << asked.part;
        }
    }

    /// Takes in a part.
    pub(super) fn on_chunk(&mut self, now: Instant, chunk: &SnapshotChunk<'_>, flow: &mut Flow) -> Outcome {
        let kind = Kind { hash: chunk.block_hash, raw: chunk.is_raw, size: chunk.block_len };
        let place = usize::from(chunk.part) * PART;
        let len = usize::from(chunk.block_len).saturating_sub(place).min(PART);
        let fits = usize::from(chunk.block_len) <= BLOCK && usize::from(chunk.part) < PARTS && chunk.bytes.len() == len;
        let Some(at) = self.open.iter().position(|open| open.block == chunk.block) else { return Outcome::Useless };
        if chunk.snapshot_id != self.offer.snapshot_id || !fits || len == 0 {
            return Outcome::Useless;
        }
        if self.open[at].kind.is_some_and(|known| known != kind) {
            return self.begin_anew(at);
        }
        self.on_arrival(now, chunk.block, chunk.part, flow);
        let open = &mut self.open[at];
        if open.got >> chunk.part & 1 != 0 {
            return Outcome::Useless;
        }
        if open.kind.is_none() {
            open.kind = Some(kind);
            self.usual_parts = usize::from(kind.size).div_ceil(PART);
            open.bytes = vec![0; usize::from(kind.size)];
            self.asked
                .retain(|asked| asked.block != chunk.block || usize::from(asked.part) * PART < usize::from(kind.size));
        }
        let open = &mut self.open[at];
        open.bytes[place..place + len].copy_from_slice(chunk.bytes);
        open.got |= 1 << chunk.part;
        flow.on_bytes(now, chunk.bytes.len());
        if open.got == all_parts(Some(kind), PARTS) { self.finish(at, kind) } else { Outcome::Useful }
    }

    /// What was asked for well before what has just come is lost.
    fn on_arrival(&mut self, now: Instant, block: u32, part: u8, flow: &mut Flow) {
        let Some(at) = self.asked.iter().position(|asked| (asked.block, asked.part) == (block, part)) else { return };
        let Some(came) = self.asked.remove(at) else { return };
        if let Some(open) = self.open.iter_mut().find(|open| open.block == block) {
            open.asked &= !(1 << part);
            // Of what was asked for twice nobody knows which one was answered.
            if open.again >> part & 1 == 0 {
                flow.on_rtt(now - came.at);
            }
        }
        let slack = flow.slack();
        while let Some(lost) = self.asked.front().copied().filter(|asked| asked.at + slack < came.at) {
            self.asked.pop_front();
            self.forget(lost);
        }
    }

    fn begin_anew(&mut self, at: usize) -> Outcome {
        let open = &mut self.open[at];
        (open.kind, open.got, open.asked, open.again, open.bytes) = (None, 0, 0, u16::MAX, Vec::new());
        let block = open.block;
        self.asked.retain(|asked| asked.block != block);
        Outcome::Bad
    }

    /// A block is complete: takes it over if it is what it should be.
    fn finish(&mut self, at: usize, kind: Kind) -> Outcome {
        let block = self.open[at].block as usize;
        let out = &mut self.state[block_range(self.offer.size as usize, block)];
        if !unpack(&self.open[at].bytes, kind.raw, out) || digest_of_block(out) != kind.hash {
            return self.begin_anew(at);
        }
        self.hashes[block] = kind.hash;
        self.left -= 1;
        self.open.remove(at);
        self.asked.retain(|asked| asked.block as usize != block);
        Outcome::Useful
    }
}

/// Every part of a block; as many as is usual, as long as its size is not known.
fn all_parts(kind: Option<Kind>, usual: usize) -> u16 {
    let parts = kind.map_or(usual, |kind| usize::from(kind.size).div_ceil(PART));
    ((1u32 << parts.min(16)) - 1) as u16
}

/// Asks for what is missing of a block; `false` when there is no room for any of it.
fn ask_of(
    open: &mut Open,
    now: Instant,
    most: usize,
    usual: usize,
    asked: &mut VecDeque<Asked>,
    wants: &mut BlockRequests,
) -> bool {
    let mut any = false;
    let missing = all_parts(open.kind, usual) & !open.got & !open.asked;
    for part in (0..PARTS as u8).filter(|part| missing >> part & 1 != 0) {
        if asked.len() >= most || !wants.push_part(open.block, part) {
            break;
        }
        asked.push_back(Asked { block: open.block, part, at: now });
        open.asked |= 1 << part;
        any = true;
    }
    any
}
