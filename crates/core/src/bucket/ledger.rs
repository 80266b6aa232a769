//! What must get to everybody in the end, also from those who have left: one short record of every site, written by that site alone.
//!
//! A record has a version, and the newest counts; everybody passes on what others do not have. So records need no order and no
//! acknowledgement, and after the last change all who can hear each other, by whatever way, have the same ones. What is counted up in them
//! can be added up over all sites: who was hit is known by who was hit.
//!
//! What somebody tells of another is hearsay, and may be made up. It is believed only as long as the other does not speak for itself, and
//! only so far that the other can always put down something newer: who was slandered takes over what it is told, like anything from before
//! it was started, and its next version is above that. Nor does hearsay take anybody's place: who is here always finds room.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Site;
use crate::hash::xxh64;

/// The most bytes of a record: it fits in one datagram.
pub const MAX_RECORD: usize = 1_000;
/// The most sites of which a record is kept, besides ours.
const MAX_RECORDS: usize = 1_024;

/// The lowest bits of a version are a mark of what it says: who was started anew may have put down something else as often as before.
const MARK_BITS: u32 = 12;
const MARK: u32 = (1 << MARK_BITS) - 1;
/// More changes are not counted.
const MOST_CHANGES: u32 = u32::MAX >> MARK_BITS;
/// Hearsay is believed up to so many changes: whoever it is about has as many left.
const MOST_HEARSAY: u32 = MOST_CHANGES / 2;
/// And where a record is known, up to so many more: nobody changes so much out of our sight. At five changes in a second that takes hours.
const MOST_LEAP: u32 = 1 << 16;

fn mark(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32 & MARK
}

/// The version of what was changed so often, and says this.
pub(super) fn version(changes: u32, bytes: &[u8]) -> u32 {
    changes.min(MOST_CHANGES) << MARK_BITS | mark(bytes)
}

fn changes(version: u32) -> u32 {
    version >> MARK_BITS
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

/// A version of a record that somebody has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) of: Site,
    pub(super) version: u32,
    pub(super) by: Teller,
}

/// Who tells of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teller {
    /// The site whose record it is.
    Itself,
    /// Somebody else.
    Another,
    /// Somebody else, and the record is ours, from before we were started.
    Reminder,
}

impl Told {
    /// Whether somebody could have got to this version, if that one was last known to have made so many changes.
    fn is_credible(self, known: Option<u32>) -> bool {
        let changes = changes(self.version);
        match self.by {
            Teller::Itself => true,
            Teller::Another if known.is_some_and(|known| changes > known.saturating_add(MOST_LEAP)) => false,
            Teller::Another | Teller::Reminder => changes <= MOST_HEARSAY,
        }
    }
}

/// A record, and how we know.
#[derive(Debug)]
struct Entry {
    record: Record,
    /// Whether the site was ever heard itself.
    heard: bool,
}

/// All records that we know of.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Site, Entry>,
    /// The site whose version was told last: they are told in turn.
    told: Option<Site>,
    /// How often anything in here was changed.
    revision: u64,
}

impl Ledger {
    pub(super) fn get(&self, site: Site) -> Option<&Record> {
        self.entries.get(&site).map(|entry| &entry.record)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Site, &Record)> {
        self.entries.iter().map(|(site, entry)| (*site, &entry.record))
    }

    /// How often anything in here was changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts down something new of ourselves. What is too long is cut off.
    pub(super) fn post(&mut self, me: Site, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD)].to_vec();
        let version = version(changes(self.version(me)) + 1, &bytes);
        self.put(me, Entry { record: Record { version, bytes }, heard: true });
    }

    /// Puts down something of ourselves that is to be [posted](Self::post) later: until then it counts as what we had.
    pub(super) fn draft(&mut self, me: Site, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD)].to_vec();
        self.put(me, Entry { record: Record { version: self.version(me), bytes }, heard: true });
    }

    fn put(&mut self, of: Site, entry: Entry) {
        self.entries.insert(of, entry);
        self.revision += 1;
    }

    /// Takes over a record if it is [wanted](Self::wants) and its version is its own. Whether it was.
    pub(super) fn learn(&mut self, told: Told, bytes: &[u8], is_here: impl Fn(Site) -> bool) -> bool {
        let Told { of, version, by } = told;
        if mark(bytes) != version & MARK || !self.wants(told, &is_here) {
            return false;
        }
        if !self.entries.contains_key(&of) && self.is_full() {
            self.forget_one(is_here);
        }
        let heard = by == Teller::Itself || self.entries.get(&of).is_some_and(|known| known.heard);
        self.put(of, Entry { record: Record { version, bytes: bytes.to_vec() }, heard });
        true
    }

    /// Whether a version is newer than ours, can be believed, and finds room: also in place of others, if its site is here.
    pub(super) fn wants(&self, told: Told, is_here: impl Fn(Site) -> bool) -> bool {
        let known = self.get(told.of).map(|record| record.version);
        if known.is_some_and(|known| known >= told.version) || !told.is_credible(known.map(changes)) {
            return false;
        }
        let takes_a_place = || is_here(told.of) && self.entries.keys().any(|site| !is_here(*site));
        known.is_some() || !self.is_full() || takes_a_place()
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= MAX_RECORDS
    }

    /// Lets go of a record of somebody who is not here: rather of one who was never heard.
    fn forget_one(&mut self, is_here: impl Fn(Site) -> bool) {
        let gone = self.entries.iter().filter(|(site, _)| !is_here(**site));
        if let Some((site, _)) = gone.min_by_key(|(_, entry)| entry.heard) {
            let site = *site;
            self.entries.remove(&site);
        }
    }

    fn version(&self, of: Site) -> u32 {
        self.get(of).map_or(0, |record| record.version)
    }

    /// Who lacks something, if somebody has this version of a record.
    pub(super) fn compare(&self, of: Site, version: u32) -> Lack {
        match self.version(of).cmp(&version) {
            core::cmp::Ordering::Greater => Lack::Theirs,
            core::cmp::Ordering::Less => Lack::Ours,
            core::cmp::Ordering::Equal => Lack::Nobodys,
        }
    }

    /// The next version to be told, in turn.
    pub(super) fn next_digest(&mut self) -> Option<(Site, u32)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.told.and_then(|told| self.entries.range((Excluded(told), Unbounded)).next());
        let (site, entry) = after.or_else(|| self.entries.iter().next())?;
        self.told = Some(*site);
        Some((*site, entry.record.version))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes on the heap, roughly.
    pub(super) fn memory(&self) -> usize {
        self.entries.values().map(|entry| entry.record.bytes.capacity() + size_of::<(Site, Entry)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Site = Site(1);
    const OTHER: Site = Site(2);

    fn told(of: Site, changes: u32, by: Teller, bytes: &[u8]) -> Told {
        Told { of, version: version(changes, bytes), by }
    }

    /// Somebody tells of a record that was changed so often, while nobody is here.
    fn learn(ledger: &mut Ledger, of: Site, changes: u32, by: Teller) -> bool {
        ledger.learn(told(of, changes, by, b"said"), b"said", |_| false)
    }

    #[test]
    fn the_newest_version_counts_whoever_tells_it() {
        let mut ledger = Ledger::default();
        ledger.post(ME, b"one");
        ledger.post(ME, b"two");
        assert_eq!(changes(ledger.get(ME).unwrap().version), 2);
        let mut anew = Ledger::default();
        anew.post(ME, b"one");
        anew.post(ME, b"three");
        assert_ne!(ledger.compare(ME, anew.get(ME).unwrap().version), Lack::Nobodys);
        assert!(learn(&mut ledger, OTHER, 5, Teller::Another) && !learn(&mut ledger, OTHER, 4, Teller::Itself));
        assert_eq!(ledger.get(OTHER).unwrap().bytes, b"said");
        assert_eq!(ledger.compare(OTHER, version(6, b"")), Lack::Ours);
        assert_eq!(ledger.compare(OTHER, version(5, b"said")), Lack::Nobodys);
        assert_eq!(ledger.compare(OTHER, 0), Lack::Theirs);
        assert_eq!(ledger.compare(Site(3), 1), Lack::Ours);
    }

    #[test]
    fn a_version_without_its_mark_is_refused() {
        let mut ledger = Ledger::default();
        let forged = Told { version: u32::MAX, ..told(OTHER, 1, Teller::Itself, b"x") };
        assert!(mark(b"x") != MARK && !ledger.learn(forged, b"x", |_| true));
        assert!(ledger.learn(told(OTHER, 1, Teller::Itself, b"x"), b"x", |_| true));
    }

    #[test]
    fn no_slander_lasts() {
        let mut ledger = Ledger::default();
        assert!(!learn(&mut ledger, OTHER, MOST_CHANGES, Teller::Another), "nobody could say anything newer");
        assert!(learn(&mut ledger, OTHER, MOST_HEARSAY, Teller::Another));
        let mut slandered = Ledger::default();
        slandered.post(OTHER, b"true");
        assert!(!learn(&mut slandered, OTHER, MOST_CHANGES, Teller::Reminder));
        assert!(learn(&mut slandered, OTHER, MOST_HEARSAY, Teller::Reminder));
        slandered.post(OTHER, b"true");
        let Record { version, bytes } = slandered.get(OTHER).unwrap();
        let own = Told { of: OTHER, version: *version, by: Teller::Itself };
        assert!(ledger.learn(own, bytes, |_| true), "its next version is above that");
        assert!(!learn(&mut ledger, OTHER, MOST_HEARSAY, Teller::Another), "and hearsay does not get there again");
    }

    #[test]
    fn who_is_known_does_not_leap() {
        let mut ledger = Ledger::default();
        assert!(learn(&mut ledger, OTHER, 7, Teller::Itself));
        assert!(!learn(&mut ledger, OTHER, 8 + MOST_LEAP, Teller::Another));
        assert!(learn(&mut ledger, OTHER, 7 + MOST_LEAP, Teller::Another));
        assert!(learn(&mut ledger, OTHER, MOST_CHANGES, Teller::Itself), "unless it says so itself");
    }

    #[test]
    fn changes_are_counted_up_to_the_last_and_not_from_the_beginning_again() {
        let mut ledger = Ledger::default();
        learn(&mut ledger, ME, MOST_CHANGES, Teller::Itself);
        ledger.post(ME, b"one more");
        assert_eq!(changes(ledger.get(ME).unwrap().version), MOST_CHANGES);
    }

    #[test]
    fn all_versions_are_told_in_turn() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.next_digest(), None);
        for site in [7, 3, 5] {
            learn(&mut ledger, Site(site), site, Teller::Itself);
        }
        let told: Vec<u32> = (0..4).map(|_| changes(ledger.next_digest().unwrap().1)).collect();
        assert_eq!(told, [3, 5, 7, 3]);
    }

    #[test]
    fn no_number_of_sites_fills_the_memory() {
        let mut ledger = Ledger::default();
        let long = [0; MAX_RECORD];
        for site in 0..5_000 {
            ledger.learn(told(Site(site), 1, Teller::Another, &long), &long, |_| false);
        }
        assert_eq!(ledger.len(), MAX_RECORDS);
        ledger.post(Site(9_999), &[0; 5_000]);
        assert_eq!(ledger.get(Site(9_999)).unwrap().bytes.len(), MAX_RECORD);
        assert!(ledger.len() <= MAX_RECORDS + 1);
    }

    #[test]
    fn who_is_here_finds_room_and_made_up_sites_go_first() {
        let mut ledger = Ledger::default();
        ledger.post(ME, b"us");
        assert!(learn(&mut ledger, OTHER, 1, Teller::Itself), "it was here, and left");
        (10_000..20_000).for_each(|site| _ = learn(&mut ledger, Site(site), 1, Teller::Another));
        let late = |site: u32| told(Site(site), 1, Teller::Itself, b"late");
        let is_here = |site: Site| site == ME || (100..2_000).contains(&site.0);
        assert!(!learn(&mut ledger, Site(99), 1, Teller::Another), "hearsay takes nobody's place");
        for site in 100..1_122 {
            assert!(ledger.learn(late(site), b"late", is_here), "{site}");
            assert!(ledger.get(OTHER).is_some(), "made-up sites go before who was heard");
        }
        assert!(ledger.learn(late(1_122), b"late", is_here) && ledger.get(OTHER).is_none());
        assert!(!ledger.learn(late(1_123), b"late", is_here), "all others are here");
        assert!(ledger.len() == MAX_RECORDS && ledger.get(ME).is_some());
    }
}
