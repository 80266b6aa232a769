//! Snapshot store: each state is copied once, compressed block by block on first request, and shared by all downloads.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCK_SIZE, PART_SIZE, digest, mix};
use crate::frame::Frame;

/// Largest number of snapshots kept. A new one takes the place of the oldest one without downloads.
const MAX_SNAPSHOTS: usize = 3;

/// A saved state that a feed offers to subscribers.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) number: u16,
    pub(super) next_frame: Frame,
    pub(super) state_hash: u64,
    pub(super) digest: u64,
    /// Number of subscribers that download this snapshot.
    downloads: u32,
    /// Whether the snapshot is no longer offered. Downloads in progress continue.
    is_retired: bool,
    state: Vec<u8>,
    blocks: Vec<SnapshotBlock>,
}

#[derive(Debug)]
struct SnapshotBlock {
    digest: u64,
    packed: PackedBlock,
}

/// Transfer encoding of a block.
#[derive(Debug)]
enum PackedBlock {
    /// Not compressed yet, because no subscriber has requested the block.
    Pending,
    /// Sent uncompressed, because compression would save 1/16 of the size or less.
    Raw,
    Compressed(Box<[u8]>),
}

/// A part of a block in its transfer encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPart<'a> {
    pub(super) digest: u64,
    pub(super) is_raw: bool,
    pub(super) size: u16,
    pub(super) bytes: &'a [u8],
}

impl Snapshot {
    pub(super) fn size(&self) -> u32 {
        self.state.len() as u32
    }

    /// Returns a part of a block in its transfer encoding: empty beyond the block's end, `None` when the snapshot has
    /// no such block.
    pub(super) fn part(&mut self, block: u32, part: u8) -> Option<BlockPart<'_>> {
        let at = block as usize;
        let state = self.state.get(at.checked_mul(BLOCK_SIZE)?..)?;
        let raw = &state[..state.len().min(BLOCK_SIZE)];
        let block = self.blocks.get_mut(at)?;
        if matches!(block.packed, PackedBlock::Pending) {
            block.packed = compress_block(raw);
        }
        let (stored, is_raw) = match &block.packed {
            PackedBlock::Compressed(bytes) => (&**bytes, false),
            _ => (raw, true),
        };
        let begin = (usize::from(part) * PART_SIZE).min(stored.len());
        let bytes = &stored[begin..stored.len().min(begin + PART_SIZE)];
        Some(BlockPart { digest: block.digest, is_raw, size: stored.len() as u16, bytes })
    }
}

/// Compresses a block if that saves more than 1/16 of its size.
fn compress_block(raw: &[u8]) -> PackedBlock {
    let mut buf = [0; lz4_flex::block::get_maximum_output_size(BLOCK_SIZE)];
    match lz4_flex::block::compress_into(raw, &mut buf) {
        Ok(len) if len < raw.len() - raw.len() / 16 => PackedBlock::Compressed(buf[..len].into()),
        _ => PackedBlock::Raw,
    }
}

/// Reverses [`compress_block`]. `out` has the block's uncompressed length. Returns `false` if `stored` does not decode
/// to that length.
pub(super) fn decompress_block(stored: &[u8], raw: bool, out: &mut [u8]) -> bool {
    if raw {
        let fits = stored.len() == out.len();
        if fits {
            out.copy_from_slice(stored);
        }
        return fits;
    }
    lz4_flex::block::decompress_into(stored, out).is_ok_and(|len| len == out.len())
}

/// Returns the digest of a state of `size` bytes, computed from the digests of its blocks.
pub(super) fn snapshot_digest(size: usize, blocks: impl Iterator<Item = u64>) -> u64 {
    blocks.fold(mix(1, size as u64), mix)
}

pub(super) fn block_digest(bytes: &[u8]) -> u64 {
    digest(0, bytes)
}

/// Snapshots of a feed, oldest first, at most [`MAX_SNAPSHOTS`].
#[derive(Debug, Default)]
pub(super) struct SnapshotStore {
    snapshots: Vec<Snapshot>,
    last_number: u16,
}

impl SnapshotStore {
    /// Returns whether a new snapshot can be stored, possibly in place of one without downloads.
    pub(super) fn has_room(&self) -> bool {
        self.snapshots.len() < MAX_SNAPSHOTS || self.snapshots.iter().any(|snapshot| snapshot.downloads == 0)
    }

    pub(super) fn newest(&self) -> Option<&Snapshot> {
        self.snapshots.last().filter(|snapshot| !snapshot.is_retired)
    }

    pub(super) fn by_number(&mut self, number: u16) -> Option<&mut Snapshot> {
        self.snapshots.iter_mut().find(|snapshot| snapshot.number == number)
    }

    pub(super) fn by_digest(&self, digest: u64) -> Option<&Snapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.digest == digest && !snapshot.is_retired)
    }

    /// Stores a copy of the state before frame `next`, in place of the oldest snapshot without downloads. Returns
    /// `false` when there is no room or the state has 4 GiB or more.
    pub(super) fn insert(&mut self, next: Frame, state: &[u8], hash: u64) -> bool {
        if !self.has_room() || u32::try_from(state.len()).is_err() {
            return false;
        }
        let spare = match self.snapshots.iter().position(|snapshot| snapshot.downloads == 0) {
            Some(at) => Some(self.snapshots.remove(at).state),
            None => None,
        };
        let mut copy = spare.unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(state);
        let block = |bytes: &[u8]| SnapshotBlock { digest: block_digest(bytes), packed: PackedBlock::Pending };
        let blocks: Vec<SnapshotBlock> = copy.chunks(BLOCK_SIZE).map(block).collect();
        let digest = snapshot_digest(copy.len(), blocks.iter().map(|block| block.digest));
        self.last_number = self.last_number.wrapping_add(1);
        self.snapshots.push(Snapshot {
            number: self.last_number,
            next_frame: next,
            state_hash: hash,
            digest,
            downloads: 0,
            is_retired: false,
            state: copy,
            blocks,
        });
        true
    }

    /// Stops offering all snapshots stored so far.
    pub(super) fn retire_all(&mut self) {
        self.snapshots.iter_mut().for_each(|snapshot| snapshot.is_retired = true);
    }

    /// Counts a subscriber that begins to download snapshot `number`, which the store then keeps.
    pub(super) fn add_download(&mut self, number: u16) {
        if let Some(snapshot) = self.by_number(number) {
            snapshot.downloads += 1;
        }
    }

    /// Counts a subscriber that no longer downloads snapshot `number`. A snapshot without downloads can be replaced.
    pub(super) fn remove_download(&mut self, number: u16) {
        if let Some(snapshot) = self.by_number(number) {
            snapshot.downloads = snapshot.downloads.saturating_sub(1);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let packed = |block: &SnapshotBlock| match &block.packed {
            PackedBlock::Compressed(bytes) => bytes.len(),
            _ => 0,
        };
        let one = |snapshot: &Snapshot| {
            let blocks: usize = snapshot.blocks.iter().map(packed).sum();
            snapshot.state.capacity() + snapshot.blocks.capacity() * size_of::<SnapshotBlock>() + blocks
        };
        self.snapshots.iter().map(one).sum()
    }
}

/// Returns the number of blocks of a state of `size` bytes.
pub(super) fn block_count(size: usize) -> usize {
    size.div_ceil(BLOCK_SIZE)
}

/// Returns the byte range of a block in a state of `size` bytes.
pub(super) fn block_range(size: usize, block: usize) -> core::ops::Range<usize> {
    (block * BLOCK_SIZE).min(size)..((block + 1) * BLOCK_SIZE).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn random_bytes(len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| mix(9, at) as u8).collect()
    }

    fn fetch_block(snapshot: &mut Snapshot, block: u32) -> (Vec<u8>, bool, u64) {
        let mut stored = Vec::new();
        let BlockPart { size, is_raw: raw, digest: hash, .. } = snapshot.part(block, 0).unwrap();
        for part in 0..(size as usize).div_ceil(PART_SIZE) {
            stored.extend_from_slice(snapshot.part(block, part as u8).unwrap().bytes);
        }
        assert_eq!(stored.len(), usize::from(size));
        (stored, raw, hash)
    }

    #[test]
    fn blocks_round_trip_compressed_and_raw() {
        for (state, packs) in [(random_bytes(40_000), false), (vec![7; 40_000], true), (Vec::new(), false)] {
            let mut snapshots = SnapshotStore::default();
            assert!(snapshots.insert(Frame::new(5), &state, 1));
            let digest = snapshots.newest().unwrap().digest;
            let snapshot = snapshots.by_number(1).unwrap();
            let mut hashes = Vec::new();
            for block in 0..block_count(state.len()) {
                let range = block_range(state.len(), block);
                let (stored, raw, hash) = fetch_block(snapshot, block as u32);
                assert_eq!(raw, !packs);
                let mut out = vec![0; range.len()];
                assert!(decompress_block(&stored, raw, &mut out));
                assert_eq!(out, state[range]);
                assert_eq!(block_digest(&out), hash);
                hashes.push(hash);
                assert!(!decompress_block(&stored, raw, &mut vec![0; out.len() - 1]), "buffer too short");
                assert!(!decompress_block(&stored, raw, &mut vec![0; out.len() + 1]), "buffer too long");
            }
            assert_eq!(snapshot_digest(state.len(), hashes.into_iter()), digest);
            assert!(snapshot.part(block_count(state.len()) as u32, 0).is_none());
            assert!(snapshot.part(u32::MAX, 255).is_none());
        }
    }

    #[test]
    fn snapshot_being_downloaded_is_kept() {
        let mut snapshots = SnapshotStore::default();
        for number in 1..=3 {
            assert!(snapshots.insert(Frame::new(number), &[number as u8], 0));
            snapshots.add_download(number as u16);
        }
        assert!(!snapshots.has_room() && !snapshots.insert(Frame::new(4), &[4], 0));
        snapshots.remove_download(2);
        assert!(snapshots.insert(Frame::new(4), &[4], 0));
        assert!(snapshots.by_number(2).is_none() && snapshots.by_number(1).is_some());
        assert_eq!(snapshots.newest().unwrap().next_frame, Frame::new(4));
    }
}
