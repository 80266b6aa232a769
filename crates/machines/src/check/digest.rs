//! What is seen of a machine, small enough to be compared with that of another, here or in another process.

use coplay::hash::xxh64;
use coplay::session::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::machine::Machine;

/// Pages and regions that are named in a report.
const MAX_REPORTED: usize = 8;

/// A machine after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameDigest {
    pub(super) state_hash: u64,
    pub(super) picture_hash: u64,
}

impl FrameDigest {
    pub(super) fn of_machine(machine: &mut dyn Machine) -> Self {
        let hash = machine.hash();
        Self::with_state_hash(hash, machine)
    }

    /// Of a machine that has been hashed already.
    pub(super) fn with_state_hash(hash: u64, machine: &dyn Machine) -> Self {
        Self { state_hash: hash, picture_hash: xxh3_64(machine.picture().rgba) }
    }
}

/// A named part of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionDigest {
    pub(super) name: String,
    pub(super) len: u64,
    /// A hash of each page.
    pub(super) page_hashes: Vec<u32>,
}

/// All named parts of a machine's state.
pub(super) fn region_digests(machine: &mut dyn Machine) -> Vec<RegionDigest> {
    let mut regions = Vec::new();
    machine.regions(&mut |name, bytes| {
        let pages = bytes.chunks(PAGE_SIZE as usize).map(|page| xxh64(0, page) as u32).collect();
        regions.push(RegionDigest { name: name.into(), len: bytes.len() as u64, page_hashes: pages });
    });
    regions
}

/// A part of the state that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionMismatch {
    /// Its name.
    pub name: String,
    /// The addresses at which the first few pages begin that differ; a page has 256 bytes.
    pub page_offsets: Vec<u64>,
    /// How many pages differ.
    pub mismatched_pages: usize,
    /// Bytes of the part.
    pub region_bytes: u64,
}

/// The parts that differ, the first few. A part that one machine does not have differs as a whole.
pub(super) fn region_mismatches(ours: &[RegionDigest], theirs: &[RegionDigest]) -> Vec<RegionMismatch> {
    let none = RegionDigest { name: String::new(), len: 0, page_hashes: Vec::new() };
    let longer =
        (0..ours.len().max(theirs.len())).map(|at| (ours.get(at).unwrap_or(&none), theirs.get(at).unwrap_or(&none)));
    let differing = longer.filter_map(|(our, their)| {
        let count = our.page_hashes.len().max(their.page_hashes.len());
        let pages: Vec<usize> =
            (0..count).filter(|page| our.page_hashes.get(*page) != their.page_hashes.get(*page)).collect();
        (!pages.is_empty()).then(|| RegionMismatch {
            name: if our.name.is_empty() { their.name.clone() } else { our.name.clone() },
            page_offsets: pages.iter().take(MAX_REPORTED).map(|page| *page as u64 * u64::from(PAGE_SIZE)).collect(),
            mismatched_pages: pages.len(),
            region_bytes: our.len.max(their.len),
        })
    });
    differing.take(MAX_REPORTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_region(name: &str, pages: &[u32]) -> RegionDigest {
        RegionDigest { name: name.into(), len: pages.len() as u64 * 256, page_hashes: pages.to_vec() }
    }

    #[test]
    fn only_mismatched_regions_and_pages_are_listed() {
        let ours = [test_region("ram", &[1, 2, 3]), test_region("oam", &[1])];
        assert_eq!(region_mismatches(&ours, &ours), []);
        let theirs = [test_region("ram", &[1, 9, 3, 4]), test_region("oam", &[1]), test_region("more", &[5])];
        let found = region_mismatches(&ours, &theirs);
        assert_eq!((found.len(), found[0].name.as_str(), &found[0].page_offsets[..]), (2, "ram", &[256, 768][..]));
        assert_eq!((found[1].name.as_str(), found[1].mismatched_pages), ("more", 1));
        let many: Vec<u32> = (0..100).collect();
        let found = region_mismatches(&[test_region("ram", &many)], &[test_region("ram", &[7; 100])]);
        assert_eq!((found[0].mismatched_pages, found[0].page_offsets.len()), (99, MAX_REPORTED));
    }
}
