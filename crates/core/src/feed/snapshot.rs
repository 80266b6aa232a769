//! States to begin with: copied once, compressed block by block when first asked for, shared by all who ask.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCK, PART, digest, mix};
use crate::frame::Frame;

/// So many snapshots are kept at most: the newest, and those that somebody still downloads.
const MOST: usize = 3;

/// One state.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) number: u16,
    pub(super) next: Frame,
    pub(super) hash: u64,
    pub(super) digest: u64,
    /// How many are downloading it.
    users: u32,
    /// Whoever asks now must not get it.
    retired: bool,
    state: Vec<u8>,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    hash: u64,
    packed: Packed,
}

/// How a block travels.
#[derive(Debug)]
enum Packed {
    /// Nobody has asked for it yet.
    Unknown,
    /// As it is: it does not get smaller.
    Raw,
    Compressed(Box<[u8]>),
}

/// A part of a block, as it travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) hash: u64,
    pub(super) raw: bool,
    pub(super) size: u16,
    pub(super) bytes: &'a [u8],
}

impl Snapshot {
    pub(super) fn size(&self) -> u32 {
        self.state.len() as u32
    }

    /// A part of a block; `None` when there is no such block.
    pub(super) fn part(&mut self, block: u32, part: u8) -> Option<Part<'_>> {
        let at = block as usize;
        let state = self.state.get(at.checked_mul(BLOCK)?..)?;
        let raw = &state[..state.len().min(BLOCK)];
        let block = self.blocks.get_mut(at)?;
        if matches!(block.packed, Packed::Unknown) {
            block.packed = pack(raw);
        }
        let (stored, is_raw) = match &block.packed {
            Packed::Compressed(bytes) => (&**bytes, false),
            _ => (raw, true),
        };
        let begin = (usize::from(part) * PART).min(stored.len());
        let bytes = &stored[begin..stored.len().min(begin + PART)];
        Some(Part { hash: block.hash, raw: is_raw, size: stored.len() as u16, bytes })
    }
}

/// Compresses a block if that is of any use.
fn pack(raw: &[u8]) -> Packed {
    let mut buf = [0; lz4_flex::block::get_maximum_output_size(BLOCK)];
    match lz4_flex::block::compress_into(raw, &mut buf) {
        Ok(len) if len < raw.len() - raw.len() / 16 => Packed::Compressed(buf[..len].into()),
        _ => Packed::Raw,
    }
}

/// Undoes what [`pack`] did; `out` has the length that the block must have.
pub(super) fn unpack(stored: &[u8], raw: bool, out: &mut [u8]) -> bool {
    if raw {
        let fits = stored.len() == out.len();
        if fits {
            out.copy_from_slice(stored);
        }
        return fits;
    }
    lz4_flex::block::decompress_into(stored, out).is_ok_and(|len| len == out.len())
}

/// The digest of a state, from those of its blocks.
pub(super) fn digest_of_blocks(size: usize, blocks: impl Iterator<Item = u64>) -> u64 {
    blocks.fold(mix(1, size as u64), mix)
}

/// The digest of a block.
pub(super) fn digest_of_block(bytes: &[u8]) -> u64 {
    digest(0, bytes)
}

/// The snapshots of a feed.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    kept: Vec<Snapshot>,
    made: u16,
}

impl Snapshots {
    /// Whether there is room for a new one, perhaps in the place of one that nobody needs.
    pub(super) fn has_room(&self) -> bool {
        self.kept.len() < MOST || self.kept.iter().any(|snapshot| snapshot.users == 0)
    }

    pub(super) fn newest(&self) -> Option<&Snapshot> {
        self.kept.last().filter(|snapshot| !snapshot.retired)
    }

    pub(super) fn by_number(&mut self, number: u16) -> Option<&mut Snapshot> {
        self.kept.iter_mut().find(|snapshot| snapshot.number == number)
    }

    pub(super) fn by_digest(&self, digest: u64) -> Option<&Snapshot> {
        self.kept.iter().find(|snapshot| snapshot.digest == digest && !snapshot.retired)
    }

    /// Copies a state; `false` when there is no room.
    pub(super) fn set(&mut self, next: Frame, state: &[u8], hash: u64) -> bool {
        if !self.has_room() || u32::try_from(state.len()).is_err() {
            return false;
        }
        let spare = match self.kept.iter().position(|snapshot| snapshot.users == 0) {
            Some(at) => Some(self.kept.remove(at).state),
            None => None,
        };
        let mut copy = spare.unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(state);
        let block = |bytes: &[u8]| Block { hash: digest_of_block(bytes), packed: Packed::Unknown };
        let blocks: Vec<Block> = copy.chunks(BLOCK).map(block).collect();
        let digest = digest_of_blocks(copy.len(), blocks.iter().map(|block| block.hash));
        self.made = self.made.wrapping_add(1);
        self.kept.push(Snapshot {
            number: self.made,
            next,
            hash,
            digest,
            users: 0,
            retired: false,
            state: copy,
            blocks,
        });
        true
    }

    /// Gives out none of those that are here any more.
    pub(super) fn retire(&mut self) {
        self.kept.iter_mut().for_each(|snapshot| snapshot.retired = true);
    }

    /// Somebody begins to download it.
    pub(super) fn hold(&mut self, number: u16) {
        if let Some(snapshot) = self.by_number(number) {
            snapshot.users += 1;
        }
    }

    /// Somebody is done with it.
    pub(super) fn release(&mut self, number: u16) {
        if let Some(snapshot) = self.by_number(number) {
            snapshot.users = snapshot.users.saturating_sub(1);
        }
    }

    pub(super) fn memory(&self) -> usize {
        let packed = |block: &Block| match &block.packed {
            Packed::Compressed(bytes) => bytes.len(),
            _ => 0,
        };
        let one = |snapshot: &Snapshot| {
            let blocks: usize = snapshot.blocks.iter().map(packed).sum();
            snapshot.state.capacity() + snapshot.blocks.capacity() * size_of::<Block>() + blocks
        };
        self.kept.iter().map(one).sum()
    }
}

/// How many blocks a state of this size has.
pub(super) fn blocks_of(size: usize) -> usize {
    size.div_ceil(BLOCK)
}

/// The bytes of a block of a state of this size.
pub(super) fn block_range(size: usize, block: usize) -> core::ops::Range<usize> {
    (block * BLOCK).min(size)..((block + 1) * BLOCK).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| mix(9, at) as u8).collect()
    }

    fn fetch(snapshot: &mut Snapshot, block: u32) -> (Vec<u8>, bool, u64) {
        let mut stored = Vec::new();
        let Part { size, raw, hash, .. } = snapshot.part(block, 0).unwrap();
        for part in 0..(size as usize).div_ceil(PART) {
            stored.extend_from_slice(snapshot.part(block, part as u8).unwrap().bytes);
        }
        assert_eq!(stored.len(), usize::from(size));
        (stored, raw, hash)
    }

    #[test]
    fn blocks_come_back_compressed_or_not() {
        for (state, packs) in [(noise(40_000), false), (vec![7; 40_000], true), (Vec::new(), false)] {
            let mut snapshots = Snapshots::default();
            assert!(snapshots.set(Frame::new(5), &state, 1));
            let digest = snapshots.newest().unwrap().digest;
            let snapshot = snapshots.by_number(1).unwrap();
            let mut hashes = Vec::new();
            for block in 0..blocks_of(state.len()) {
                let range = block_range(state.len(), block);
                let (stored, raw, hash) = fetch(snapshot, block as u32);
                assert_eq!(raw, !packs);
                let mut out = vec![0; range.len()];
                assert!(unpack(&stored, raw, &mut out));
                assert_eq!(out, state[range]);
                assert_eq!(digest_of_block(&out), hash);
                hashes.push(hash);
                assert!(!unpack(&stored, raw, &mut vec![0; out.len() - 1]), "not into less");
                assert!(!unpack(&stored, raw, &mut vec![0; out.len() + 1]), "not into more");
            }
            assert_eq!(digest_of_blocks(state.len(), hashes.into_iter()), digest);
            assert!(snapshot.part(blocks_of(state.len()) as u32, 0).is_none());
            assert!(snapshot.part(u32::MAX, 255).is_none());
        }
    }

    #[test]
    fn what_somebody_downloads_stays() {
        let mut snapshots = Snapshots::default();
        for number in 1..=3 {
            assert!(snapshots.set(Frame::new(number), &[number as u8], 0));
            snapshots.hold(number as u16);
        }
        assert!(!snapshots.has_room() && !snapshots.set(Frame::new(4), &[4], 0));
        snapshots.release(2);
        assert!(snapshots.set(Frame::new(4), &[4], 0));
        assert!(snapshots.by_number(2).is_none() && snapshots.by_number(1).is_some());
        assert_eq!(snapshots.newest().unwrap().next, Frame::new(4));
    }
}
