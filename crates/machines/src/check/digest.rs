//! Hashes of a machine's state, regions and picture, small enough to compare between processes.

use coplay::hash::xxh64;
use coplay::session::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::machine::Machine;

/// Maximum number of regions in a mismatch, and of page offsets per region.
const MAX_REPORTED: usize = 8;

/// Hashes of a machine's state and picture after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineDigest {
    pub(super) state_hash: u64,
    pub(super) picture_hash: u64,
}

impl MachineDigest {
    pub(super) fn of_machine(machine: &mut dyn Machine) -> Self {
        let hash = machine.hash();
        Self::with_state_hash(hash, machine)
    }

    /// Creates the digest of a machine whose state hash was already computed.
    pub(super) fn with_state_hash(hash: u64, machine: &dyn Machine) -> Self {
        Self { state_hash: hash, picture_hash: xxh3_64(machine.picture().rgba) }
    }
}

/// Length and page hashes of a named region of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionDigest {
    pub(super) name: String,
    pub(super) len: u64,
    /// Hash of each page of 256 bytes.
    pub(super) page_hashes: Vec<u32>,
}

/// Returns the digests of all regions of a machine's state.
pub(super) fn region_digests(machine: &mut dyn Machine) -> Vec<RegionDigest> {
    let mut regions = Vec::new();
    machine.regions(&mut |name, bytes| {
        let pages = bytes.chunks(PAGE_SIZE as usize).map(|page| xxh64(0, page) as u32).collect();
        regions.push(RegionDigest { name: name.into(), len: bytes.len() as u64, page_hashes: pages });
    });
    regions
}

/// A region of the state that differs between two instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionMismatch {
    /// Name that the machine gives to the region.
    pub name: String,
    /// Offsets of the first differing pages in the region, in bytes; at most 8. A page has 256 bytes.
    #[serde(rename = "pages_at")]
    pub page_offsets: Vec<u64>,
    /// Number of all differing pages.
    #[serde(rename = "pages")]
    pub mismatched_pages: usize,
    /// Length of the region in bytes; the longer one if the lengths differ.
    #[serde(rename = "bytes")]
    pub region_bytes: u64,
}

/// Returns the first differing regions, at most 8. Regions are paired by their position. A region that one machine
/// lacks differs as a whole.
pub(super) fn region_mismatches(ours: &[RegionDigest], theirs: &[RegionDigest]) -> Vec<RegionMismatch> {
    let empty = RegionDigest { name: String::new(), len: 0, page_hashes: Vec::new() };
    let pairs =
        (0..ours.len().max(theirs.len())).map(|at| (ours.get(at).unwrap_or(&empty), theirs.get(at).unwrap_or(&empty)));
    let mismatches = pairs.filter_map(|(ours_region, theirs_region)| {
        let count = ours_region.page_hashes.len().max(theirs_region.page_hashes.len());
        let pages: Vec<usize> = (0..count)
            .filter(|page| ours_region.page_hashes.get(*page) != theirs_region.page_hashes.get(*page))
            .collect();
        (!pages.is_empty()).then(|| RegionMismatch {
            name: if ours_region.name.is_empty() { theirs_region.name.clone() } else { ours_region.name.clone() },
            page_offsets: pages.iter().take(MAX_REPORTED).map(|page| *page as u64 * u64::from(PAGE_SIZE)).collect(),
            mismatched_pages: pages.len(),
            region_bytes: ours_region.len.max(theirs_region.len),
        })
    });
    mismatches.take(MAX_REPORTED).collect()
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
