//! What must get to everybody in the end, also from those who have left: one short record of every site, written by that site alone.
//!
//! A record has a version, and the newest counts; everybody passes on what others do not have. So records need no order and no
//! acknowledgement, and after the last change all who can hear each other, by whatever way, have the same ones. What is counted up in them
//! can be added up over all sites: who was hit is known by who was hit.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Site;
use crate::hash::xxh64;

/// The most bytes of a record: it fits in one datagram.
pub const MAX_RECORD: usize = 1_000;
/// The most sites of which a record is kept.
const MAX_RECORDS: usize = 1_024;

/// The lowest bits of a version are a mark of what it says: who was started anew may have put down something else as often as before.
const MARK_BITS: u32 = 12;

fn mark(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32 & ((1 << MARK_BITS) - 1)
}

/// What a site has put down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How often it was changed, and a mark of what it says.
    pub version: u32,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What is to be done about a version that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// It has an older one.
    Theirs,
    /// We have an older one.
    Ours,
    Nobodys,
}

/// All records that we know of.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    records: BTreeMap<Site, Record>,
    /// The site whose version was told last: they are told in turn.
    told: Option<Site>,
}

impl Ledger {
    pub(super) fn get(&self, site: Site) -> Option<&Record> {
        self.records.get(&site)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Site, &Record)> {
        self.records.iter().map(|(site, record)| (*site, record))
    }

    /// Puts down something new of ourselves. What is too long is cut off.
    pub(super) fn post(&mut self, me: Site, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD)].to_vec();
        let changes = self.records.get(&me).map_or(0, |record| record.version >> MARK_BITS);
        let version = (changes.saturating_add(1) << MARK_BITS) | mark(&bytes);
        self.records.insert(me, Record { version, bytes });
    }

    /// Takes over a record if it is newer. Whether it was.
    pub(super) fn learn(&mut self, of: Site, version: u32, bytes: &[u8]) -> bool {
        let is_new = match self.records.get(&of) {
            Some(known) => known.version < version,
            None => self.records.len() < MAX_RECORDS,
        };
        if is_new {
            self.records.insert(of, Record { version, bytes: bytes.to_vec() });
        }
        is_new
    }

    /// Who lacks something, if somebody has this version of a record.
    pub(super) fn compare(&self, of: Site, version: u32) -> Lack {
        let ours = self.records.get(&of).map_or(0, |record| record.version);
        match ours.cmp(&version) {
            core::cmp::Ordering::Greater => Lack::Theirs,
            core::cmp::Ordering::Less => Lack::Ours,
            core::cmp::Ordering::Equal => Lack::Nobodys,
        }
    }

    /// The next version to be told, in turn.
    pub(super) fn next_digest(&mut self) -> Option<(Site, u32)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.told.and_then(|told| self.records.range((Excluded(told), Unbounded)).next());
        let (site, record) = after.or_else(|| self.records.iter().next())?;
        self.told = Some(*site);
        Some((*site, record.version))
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes on the heap, roughly.
    pub(super) fn memory(&self) -> usize {
        self.records.values().map(|record| record.bytes.capacity() + size_of::<(Site, Record)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Site = Site(1);
    const OTHER: Site = Site(2);

    #[test]
    fn the_newest_version_counts_whoever_tells_it() {
        let mut ledger = Ledger::default();
        ledger.post(ME, b"one");
        ledger.post(ME, b"two");
        assert_eq!(ledger.get(ME).unwrap().version >> MARK_BITS, 2);
        let mut anew = Ledger::default();
        anew.post(ME, b"one");
        anew.post(ME, b"three");
        assert_ne!(ledger.compare(ME, anew.get(ME).unwrap().version), Lack::Nobodys);
        assert!(ledger.learn(OTHER, 5, b"five") && !ledger.learn(OTHER, 4, b"four"));
        assert_eq!(ledger.get(OTHER).unwrap().bytes, b"five");
        assert_eq!(ledger.compare(OTHER, 6), Lack::Ours);
        assert_eq!(ledger.compare(OTHER, 5), Lack::Nobodys);
        assert_eq!(ledger.compare(OTHER, 0), Lack::Theirs);
        assert_eq!(ledger.compare(Site(3), 1), Lack::Ours);
    }

    #[test]
    fn all_versions_are_told_in_turn() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.next_digest(), None);
        for site in [7, 3, 5] {
            ledger.learn(Site(site), site, b"");
        }
        let told: Vec<u32> = (0..4).map(|_| ledger.next_digest().unwrap().1).collect();
        assert_eq!(told, [3, 5, 7, 3]);
    }

    #[test]
    fn no_number_of_sites_fills_the_memory() {
        let mut ledger = Ledger::default();
        for site in 0..5_000 {
            ledger.learn(Site(site), 1, &[0; MAX_RECORD]);
        }
        assert_eq!(ledger.len(), MAX_RECORDS);
        ledger.post(Site(9_999), &[0; 5_000]);
        assert_eq!(ledger.get(Site(9_999)).unwrap().bytes.len(), MAX_RECORD);
    }
}
