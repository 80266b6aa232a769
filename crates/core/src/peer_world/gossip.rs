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

use super::WorldSiteId;
use crate::hash::xxh64;

/// The most bytes of a record: it fits in one datagram.
pub const MAX_RECORD_SIZE: usize = 1_000;
/// The most sites of which a record is kept, besides ours.
const MAX_RECORDS: usize = 1_024;

/// The lowest bits of a version are a mark of what it says: who was started anew may have put down something else as often as before.
const CONTENT_HASH_BITS: u32 = 12;
const CONTENT_HASH_MASK: u32 = (1 << CONTENT_HASH_BITS) - 1;
/// More changes are not counted.
const MAX_CHANGES: u32 = u32::MAX >> CONTENT_HASH_BITS;
/// Hearsay is believed up to so many changes: whoever it is about has as many left.
const MAX_THIRD_PARTY_CHANGES: u32 = MAX_CHANGES / 2;
/// And where a record is known, up to so many more: nobody changes so much out of our sight. At five changes in a second that takes hours.
const MAX_THIRD_PARTY_ADVANCE: u32 = 1 << 16;

fn content_hash(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32 & CONTENT_HASH_MASK
}

/// The version of what was changed so often, and says this.
pub(super) fn make_version(changes: u32, bytes: &[u8]) -> u32 {
    changes.min(MAX_CHANGES) << CONTENT_HASH_BITS | content_hash(bytes)
}

fn change_count(version: u32) -> u32 {
    version >> CONTENT_HASH_BITS
}

/// What a site has put down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// How often it was changed, and a mark of what it says.
    pub version: u32,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What is to be done about a version that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionComparison {
    /// It has an older one.
    PeerOutdated,
    /// We have an older one.
    LocalOutdated,
    Equal,
}

/// A version of a record that somebody has.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordClaim {
    pub(super) site: WorldSiteId,
    pub(super) version: u32,
    pub(super) source: ClaimSource,
}

/// Who tells of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimSource {
    /// The site whose record it is.
    Owner,
    /// Somebody else.
    ThirdParty,
    /// Somebody else, and the record is ours, from before we were started.
    ThirdPartyAboutSelf,
}

impl RecordClaim {
    /// Whether somebody could have got to this version, if that one was last known to have made so many changes.
    fn is_credible(self, known: Option<u32>) -> bool {
        let changes = change_count(self.version);
        match self.source {
            ClaimSource::Owner => true,
            ClaimSource::ThirdParty
                if known.is_some_and(|known| changes > known.saturating_add(MAX_THIRD_PARTY_ADVANCE)) =>
            {
                false
            }
            ClaimSource::ThirdParty | ClaimSource::ThirdPartyAboutSelf => changes <= MAX_THIRD_PARTY_CHANGES,
        }
    }
}

/// A record, and how we know.
#[derive(Debug)]
struct GossipEntry {
    record: SiteRecord,
    /// Whether the site was ever heard itself.
    is_first_hand: bool,
}

/// All records that we know of.
#[derive(Debug, Default)]
pub(super) struct GossipStore {
    entries: BTreeMap<WorldSiteId, GossipEntry>,
    /// The site whose version was told last: they are told in turn.
    last_digest_site: Option<WorldSiteId>,
    /// How often anything in here was changed.
    revision: u64,
}

impl GossipStore {
    pub(super) fn get(&self, site: WorldSiteId) -> Option<&SiteRecord> {
        self.entries.get(&site).map(|entry| &entry.record)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorldSiteId, &SiteRecord)> {
        self.entries.iter().map(|(site, entry)| (*site, &entry.record))
    }

    /// How often anything in here was changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts down something new of ourselves. What is too long is cut off.
    pub(super) fn set_own(&mut self, me: WorldSiteId, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD_SIZE)].to_vec();
        let version = make_version(change_count(self.version_of(me)) + 1, &bytes);
        self.insert(me, GossipEntry { record: SiteRecord { version, bytes }, is_first_hand: true });
    }

    /// Puts down something of ourselves that is to be [posted](Self::post) later: until then it counts as what we had.
    pub(super) fn draft_own(&mut self, me: WorldSiteId, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD_SIZE)].to_vec();
        self.insert(
            me,
            GossipEntry { record: SiteRecord { version: self.version_of(me), bytes }, is_first_hand: true },
        );
    }

    fn insert(&mut self, of: WorldSiteId, entry: GossipEntry) {
        self.entries.insert(of, entry);
        self.revision += 1;
    }

    /// Takes over a record if it is [wanted](Self::wants) and its version is its own. Whether it was.
    pub(super) fn merge(&mut self, told: RecordClaim, bytes: &[u8], is_here: impl Fn(WorldSiteId) -> bool) -> bool {
        let RecordClaim { site: of, version, source: by } = told;
        if content_hash(bytes) != version & CONTENT_HASH_MASK || !self.should_accept(told, &is_here) {
            return false;
        }
        if !self.entries.contains_key(&of) && self.is_full() {
            self.evict_absent(is_here);
        }
        let heard = by == ClaimSource::Owner || self.entries.get(&of).is_some_and(|known| known.is_first_hand);
        self.insert(of, GossipEntry { record: SiteRecord { version, bytes: bytes.to_vec() }, is_first_hand: heard });
        true
    }

    /// Whether a version is newer than ours, can be believed, and finds room: also in place of others, if its site is here.
    pub(super) fn should_accept(&self, told: RecordClaim, is_here: impl Fn(WorldSiteId) -> bool) -> bool {
        let known = self.get(told.site).map(|record| record.version);
        if known.is_some_and(|known| known >= told.version) || !told.is_credible(known.map(change_count)) {
            return false;
        }
        let takes_a_place = || is_here(told.site) && self.entries.keys().any(|site| !is_here(*site));
        known.is_some() || !self.is_full() || takes_a_place()
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= MAX_RECORDS
    }

    /// Lets go of a record of somebody who is not here: rather of one who was never heard.
    fn evict_absent(&mut self, is_here: impl Fn(WorldSiteId) -> bool) {
        let gone = self.entries.iter().filter(|(site, _)| !is_here(**site));
        if let Some((site, _)) = gone.min_by_key(|(_, entry)| entry.is_first_hand) {
            let site = *site;
            self.entries.remove(&site);
        }
    }

    fn version_of(&self, of: WorldSiteId) -> u32 {
        self.get(of).map_or(0, |record| record.version)
    }

    /// Who lacks something, if somebody has this version of a record.
    pub(super) fn compare_version(&self, of: WorldSiteId, version: u32) -> VersionComparison {
        match self.version_of(of).cmp(&version) {
            core::cmp::Ordering::Greater => VersionComparison::PeerOutdated,
            core::cmp::Ordering::Less => VersionComparison::LocalOutdated,
            core::cmp::Ordering::Equal => VersionComparison::Equal,
        }
    }

    /// The next version to be told, in turn.
    pub(super) fn next_digest(&mut self) -> Option<(WorldSiteId, u32)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.last_digest_site.and_then(|told| self.entries.range((Excluded(told), Unbounded)).next());
        let (site, entry) = after.or_else(|| self.entries.iter().next())?;
        self.last_digest_site = Some(*site);
        Some((*site, entry.record.version))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes on the heap, roughly.
    pub(super) fn memory(&self) -> usize {
        self.entries.values().map(|entry| entry.record.bytes.capacity() + size_of::<(WorldSiteId, GossipEntry)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: WorldSiteId = WorldSiteId(1);
    const OTHER: WorldSiteId = WorldSiteId(2);

    fn claim(of: WorldSiteId, changes: u32, by: ClaimSource, bytes: &[u8]) -> RecordClaim {
        RecordClaim { site: of, version: make_version(changes, bytes), source: by }
    }

    /// Somebody tells of a record that was changed so often, while nobody is here.
    fn merge_claim(ledger: &mut GossipStore, of: WorldSiteId, changes: u32, by: ClaimSource) -> bool {
        ledger.merge(claim(of, changes, by, b"said"), b"said", |_| false)
    }

    #[test]
    fn newest_version_wins_whoever_sends_it() {
        let mut ledger = GossipStore::default();
        ledger.set_own(ME, b"one");
        ledger.set_own(ME, b"two");
        assert_eq!(change_count(ledger.get(ME).unwrap().version), 2);
        let mut anew = GossipStore::default();
        anew.set_own(ME, b"one");
        anew.set_own(ME, b"three");
        assert_ne!(ledger.compare_version(ME, anew.get(ME).unwrap().version), VersionComparison::Equal);
        assert!(
            merge_claim(&mut ledger, OTHER, 5, ClaimSource::ThirdParty)
                && !merge_claim(&mut ledger, OTHER, 4, ClaimSource::Owner)
        );
        assert_eq!(ledger.get(OTHER).unwrap().bytes, b"said");
        assert_eq!(ledger.compare_version(OTHER, make_version(6, b"")), VersionComparison::LocalOutdated);
        assert_eq!(ledger.compare_version(OTHER, make_version(5, b"said")), VersionComparison::Equal);
        assert_eq!(ledger.compare_version(OTHER, 0), VersionComparison::PeerOutdated);
        assert_eq!(ledger.compare_version(WorldSiteId(3), 1), VersionComparison::LocalOutdated);
    }

    #[test]
    fn version_with_wrong_content_hash_is_rejected() {
        let mut ledger = GossipStore::default();
        let forged = RecordClaim { version: u32::MAX, ..claim(OTHER, 1, ClaimSource::Owner, b"x") };
        assert!(content_hash(b"x") != CONTENT_HASH_MASK && !ledger.merge(forged, b"x", |_| true));
        assert!(ledger.merge(claim(OTHER, 1, ClaimSource::Owner, b"x"), b"x", |_| true));
    }

    #[test]
    fn owner_overrides_forged_third_party_record() {
        let mut ledger = GossipStore::default();
        assert!(
            !merge_claim(&mut ledger, OTHER, MAX_CHANGES, ClaimSource::ThirdParty),
            "nobody could say anything newer"
        );
        assert!(merge_claim(&mut ledger, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdParty));
        let mut slandered = GossipStore::default();
        slandered.set_own(OTHER, b"true");
        assert!(!merge_claim(&mut slandered, OTHER, MAX_CHANGES, ClaimSource::ThirdPartyAboutSelf));
        assert!(merge_claim(&mut slandered, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdPartyAboutSelf));
        slandered.set_own(OTHER, b"true");
        let SiteRecord { version, bytes } = slandered.get(OTHER).unwrap();
        let own = RecordClaim { site: OTHER, version: *version, source: ClaimSource::Owner };
        assert!(ledger.merge(own, bytes, |_| true), "its next version is above that");
        assert!(
            !merge_claim(&mut ledger, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdParty),
            "and hearsay does not get there again"
        );
    }

    #[test]
    fn third_party_version_advance_is_limited_for_known_sites() {
        let mut ledger = GossipStore::default();
        assert!(merge_claim(&mut ledger, OTHER, 7, ClaimSource::Owner));
        assert!(!merge_claim(&mut ledger, OTHER, 8 + MAX_THIRD_PARTY_ADVANCE, ClaimSource::ThirdParty));
        assert!(merge_claim(&mut ledger, OTHER, 7 + MAX_THIRD_PARTY_ADVANCE, ClaimSource::ThirdParty));
        assert!(merge_claim(&mut ledger, OTHER, MAX_CHANGES, ClaimSource::Owner), "unless it says so itself");
    }

    #[test]
    fn change_count_saturates_without_wrapping() {
        let mut ledger = GossipStore::default();
        merge_claim(&mut ledger, ME, MAX_CHANGES, ClaimSource::Owner);
        ledger.set_own(ME, b"one more");
        assert_eq!(change_count(ledger.get(ME).unwrap().version), MAX_CHANGES);
    }

    #[test]
    fn digests_rotate_over_all_sites() {
        let mut ledger = GossipStore::default();
        assert_eq!(ledger.next_digest(), None);
        for site in [7, 3, 5] {
            merge_claim(&mut ledger, WorldSiteId(site), site, ClaimSource::Owner);
        }
        let told: Vec<u32> = (0..4).map(|_| change_count(ledger.next_digest().unwrap().1)).collect();
        assert_eq!(told, [3, 5, 7, 3]);
    }

    #[test]
    fn record_count_and_size_are_bounded() {
        let mut ledger = GossipStore::default();
        let long = [0; MAX_RECORD_SIZE];
        for site in 0..5_000 {
            ledger.merge(claim(WorldSiteId(site), 1, ClaimSource::ThirdParty, &long), &long, |_| false);
        }
        assert_eq!(ledger.len(), MAX_RECORDS);
        ledger.set_own(WorldSiteId(9_999), &[0; 5_000]);
        assert_eq!(ledger.get(WorldSiteId(9_999)).unwrap().bytes.len(), MAX_RECORD_SIZE);
        assert!(ledger.len() <= MAX_RECORDS + 1);
    }

    #[test]
    fn present_site_always_gets_room_and_forged_sites_are_evicted_first() {
        let mut ledger = GossipStore::default();
        ledger.set_own(ME, b"us");
        assert!(merge_claim(&mut ledger, OTHER, 1, ClaimSource::Owner), "it was here, and left");
        (10_000..20_000).for_each(|site| _ = merge_claim(&mut ledger, WorldSiteId(site), 1, ClaimSource::ThirdParty));
        let late = |site: u32| claim(WorldSiteId(site), 1, ClaimSource::Owner, b"late");
        let is_here = |site: WorldSiteId| site == ME || (100..2_000).contains(&site.0);
        assert!(!merge_claim(&mut ledger, WorldSiteId(99), 1, ClaimSource::ThirdParty), "hearsay takes nobody's place");
        for site in 100..1_122 {
            assert!(ledger.merge(late(site), b"late", is_here), "{site}");
            assert!(ledger.get(OTHER).is_some(), "made-up sites go before who was heard");
        }
        assert!(ledger.merge(late(1_122), b"late", is_here) && ledger.get(OTHER).is_none());
        assert!(!ledger.merge(late(1_123), b"late", is_here), "all others are here");
        assert!(ledger.len() == MAX_RECORDS && ledger.get(ME).is_some());
    }
}
