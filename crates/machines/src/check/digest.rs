//! What is seen of a machine, small enough to be compared with that of another, here or in another process.

use coplay::hash::xxh64;
use coplay::session::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::machine::Machine;

/// Pages and regions that are named in a report.
const NAMED: usize = 8;

/// A machine after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) hash: u64,
    pub(super) picture: u64,
}

impl Look {
    pub(super) fn at(machine: &mut dyn Machine) -> Self {
        let hash = machine.hash();
        Self::with(hash, machine)
    }

    /// Of a machine that has been hashed already.
    pub(super) fn with(hash: u64, machine: &dyn Machine) -> Self {
        Self { hash, picture: xxh3_64(machine.picture().rgba) }
    }
}

/// A named part of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) len: u64,
    /// A hash of each page.
    pub(super) pages: Vec<u32>,
}

/// All named parts of a machine's state.
pub(super) fn regions(machine: &mut dyn Machine) -> Vec<Region> {
    let mut regions = Vec::new();
    machine.regions(&mut |name, bytes| {
        let pages = bytes.chunks(PAGE_SIZE as usize).map(|page| xxh64(0, page) as u32).collect();
        regions.push(Region { name: name.into(), len: bytes.len() as u64, pages });
    });
    regions
}

/// A part of the state that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionDifference {
    /// Its name.
    pub name: String,
    /// The addresses at which the first few pages begin that differ; a page has 256 bytes.
    pub pages_at: Vec<u64>,
    /// How many pages differ.
    pub pages: usize,
    /// Bytes of the part.
    pub bytes: u64,
}

/// The parts that differ, the first few. A part that one machine does not have differs as a whole.
pub(super) fn differences(ours: &[Region], theirs: &[Region]) -> Vec<RegionDifference> {
    let none = Region { name: String::new(), len: 0, pages: Vec::new() };
    let longer =
        (0..ours.len().max(theirs.len())).map(|at| (ours.get(at).unwrap_or(&none), theirs.get(at).unwrap_or(&none)));
    let differing = longer.filter_map(|(our, their)| {
        let count = our.pages.len().max(their.pages.len());
        let pages: Vec<usize> = (0..count).filter(|page| our.pages.get(*page) != their.pages.get(*page)).collect();
        (!pages.is_empty()).then(|| RegionDifference {
            name: if our.name.is_empty() { their.name.clone() } else { our.name.clone() },
            pages_at: pages.iter().take(NAMED).map(|page| *page as u64 * u64::from(PAGE_SIZE)).collect(),
            pages: pages.len(),
            bytes: our.len.max(their.len),
        })
    });
    differing.take(NAMED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, pages: &[u32]) -> Region {
        Region { name: name.into(), len: pages.len() as u64 * 256, pages: pages.to_vec() }
    }

    #[test]
    fn what_differs_is_named_and_nothing_else() {
        let ours = [region("ram", &[1, 2, 3]), region("oam", &[1])];
        assert_eq!(differences(&ours, &ours), []);
        let theirs = [region("ram", &[1, 9, 3, 4]), region("oam", &[1]), region("more", &[5])];
        let found = differences(&ours, &theirs);
        assert_eq!((found.len(), found[0].name.as_str(), &found[0].pages_at[..]), (2, "ram", &[256, 768][..]));
        assert_eq!((found[1].name.as_str(), found[1].pages), ("more", 1));
        let many: Vec<u32> = (0..100).collect();
        let found = differences(&[region("ram", &many)], &[region("ram", &[7; 100])]);
        assert_eq!((found[0].pages, found[0].pages_at.len()), (99, NAMED));
    }
}
