//! Records that reach every site eventually, also those of departed sites: one short record per site, written by that
//! site alone.
//!
//! A record has a version and the newest version wins. A site sends its own record; the other sites send it on request
//! and, while its owner is silent or absent, to every peer that reports an older version. Records therefore need no
//! ordering and no acknowledgement, and after the last change all sites that are connected, directly or through others,
//! come to hold the same records. Counts in the records can be summed over all sites if a single site counts each
//! occurrence: for example, the site of the victim counts a hit.
//!
//! A record received from a site other than its owner is third-party information and may be forged. A site accepts it
//! only while the owner is silent, absent or without a known record, and only up to a version that the owner can still
//! exceed. The owner of a forged record adopts the forgery like any record from before the owner's last start, and the
//! owner's next version supersedes it. If the store is full, a new record of a present site displaces that of an absent
//! one, and a new record of an absent site is not stored.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::WorldSiteId;
use crate::hash::xxh64;

/// Maximum size of a record in bytes: it fits in one datagram.
pub const MAX_RECORD_SIZE: usize = 1_000;
/// Maximum number of stored records; this site's own may exceed it by one.
const MAX_RECORDS: usize = 1_024;

/// Number of low bits of a version that hold a hash of the contents. The hash distinguishes different contents that a
/// site has published before and after a restart with the same number of changes.
const CONTENT_HASH_BITS: u32 = 12;
const CONTENT_HASH_MASK: u32 = (1 << CONTENT_HASH_BITS) - 1;
/// Maximum change count, at which the count saturates.
const MAX_CHANGES: u32 = u32::MAX >> CONTENT_HASH_BITS;
/// Maximum change count accepted from a third party, which leaves at least as many changes to the owner.
const MAX_THIRD_PARTY_CHANGES: u32 = MAX_CHANGES / 2;
/// Maximum advance over a known change count accepted from a third party. At five changes per second 65,536 changes
/// take over 3 h, and other sites learn of changes long before.
const MAX_THIRD_PARTY_ADVANCE: u32 = 1 << 16;

fn content_hash(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32 & CONTENT_HASH_MASK
}

/// Builds the version of contents that were changed `changes` times.
pub(super) fn make_version(changes: u32, bytes: &[u8]) -> u32 {
    changes.min(MAX_CHANGES) << CONTENT_HASH_BITS | content_hash(bytes)
}

fn change_count(version: u32) -> u32 {
    version >> CONTENT_HASH_BITS
}

/// A record that one site publishes and all sites receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRecord {
    /// Change count in the upper bits, hash of the contents in the low 12 bits.
    pub version: u32,
    /// Contents in the game's encoding, at most [`MAX_RECORD_SIZE`] bytes.
    pub bytes: Vec<u8>,
}

/// Comparison of the local version of a record with a peer's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionComparison {
    /// The peer has an older version.
    PeerOutdated,
    /// This site has an older version.
    LocalOutdated,
    Equal,
}

/// A claim by a peer that a version of a record exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordClaim {
    pub(super) site: WorldSiteId,
    pub(super) version: u32,
    pub(super) source: ClaimSource,
}

/// Sender of a claim, relative to the owner of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimSource {
    /// The owner of the record.
    Owner,
    /// A site that does not own the record.
    ThirdParty,
    /// A site that does not own the record, about this site's record from before its last start.
    ThirdPartyAboutSelf,
}

impl RecordClaim {
    /// Returns whether the claimed version is credible. Every version from the owner is. The change count in a version
    /// from a third party is limited to [`MAX_THIRD_PARTY_CHANGES`] and, unless the record is this site's own, to
    /// [`MAX_THIRD_PARTY_ADVANCE`] above `known`, the change count of the stored version.
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

/// A record, and whether its owner has sent it.
#[derive(Debug)]
struct GossipEntry {
    record: SiteRecord,
    /// Whether the owner itself has ever sent a version of this record.
    is_first_hand: bool,
}

/// Records of all known sites, including this site's own.
#[derive(Debug, Default)]
pub(super) struct GossipStore {
    entries: BTreeMap<WorldSiteId, GossipEntry>,
    /// Owner of the record whose version [`next_digest`](Self::next_digest) returned last: beacons rotate over all
    /// records.
    last_digest_site: Option<WorldSiteId>,
    /// Number of times that any record was stored.
    revision: u64,
}

impl GossipStore {
    pub(super) fn get(&self, site: WorldSiteId) -> Option<&SiteRecord> {
        self.entries.get(&site).map(|entry| &entry.record)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorldSiteId, &SiteRecord)> {
        self.entries.iter().map(|(site, entry)| (*site, &entry.record))
    }

    /// Returns the number of times that any record was stored.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Stores the next version of this site's record. Bytes beyond [`MAX_RECORD_SIZE`] are cut off.
    pub(super) fn set_own(&mut self, own_site: WorldSiteId, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD_SIZE)].to_vec();
        let version = make_version(change_count(self.version_of(own_site)) + 1, &bytes);
        self.insert(own_site, GossipEntry { record: SiteRecord { version, bytes }, is_first_hand: true });
    }

    /// Stores new contents of this site's record under its current version, until [`set_own`](Self::set_own) stores
    /// them as the next version. Bytes beyond [`MAX_RECORD_SIZE`] are cut off.
    pub(super) fn draft_own(&mut self, own_site: WorldSiteId, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_RECORD_SIZE)].to_vec();
        self.insert(
            own_site,
            GossipEntry { record: SiteRecord { version: self.version_of(own_site), bytes }, is_first_hand: true },
        );
    }

    fn insert(&mut self, site: WorldSiteId, entry: GossipEntry) {
        self.entries.insert(site, entry);
        self.revision += 1;
    }

    /// Stores a claimed record if it is [acceptable](Self::should_accept) and its version matches its contents. Returns
    /// whether it was stored.
    pub(super) fn merge(&mut self, claim: RecordClaim, bytes: &[u8], is_present: impl Fn(WorldSiteId) -> bool) -> bool {
        let RecordClaim { site, version, source } = claim;
        if content_hash(bytes) != version & CONTENT_HASH_MASK || !self.should_accept(claim, &is_present) {
            return false;
        }
        if !self.entries.contains_key(&site) && self.is_full() {
            self.evict_absent(is_present);
        }
        let is_first_hand =
            source == ClaimSource::Owner || self.entries.get(&site).is_some_and(|known| known.is_first_hand);
        self.insert(site, GossipEntry { record: SiteRecord { version, bytes: bytes.to_vec() }, is_first_hand });
        true
    }

    /// Returns whether the claimed version is newer than the local one and credible, and the store has room for the
    /// record. The record of a present site may displace that of an absent one.
    pub(super) fn should_accept(&self, claim: RecordClaim, is_present: impl Fn(WorldSiteId) -> bool) -> bool {
        let known = self.get(claim.site).map(|record| record.version);
        if known.is_some_and(|known| known >= claim.version) || !claim.is_credible(known.map(change_count)) {
            return false;
        }
        let can_displace = || is_present(claim.site) && self.entries.keys().any(|site| !is_present(*site));
        known.is_some() || !self.is_full() || can_displace()
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= MAX_RECORDS
    }

    /// Drops the record of an absent site, preferably one that its owner never sent.
    fn evict_absent(&mut self, is_present: impl Fn(WorldSiteId) -> bool) {
        let absent = self.entries.iter().filter(|(site, _)| !is_present(**site));
        if let Some((site, _)) = absent.min_by_key(|(_, entry)| entry.is_first_hand) {
            let site = *site;
            self.entries.remove(&site);
        }
    }

    fn version_of(&self, site: WorldSiteId) -> u32 {
        self.get(site).map_or(0, |record| record.version)
    }

    /// Compares the local version of a record with a peer's `version`.
    pub(super) fn compare_version(&self, site: WorldSiteId, version: u32) -> VersionComparison {
        match self.version_of(site).cmp(&version) {
            core::cmp::Ordering::Greater => VersionComparison::PeerOutdated,
            core::cmp::Ordering::Less => VersionComparison::LocalOutdated,
            core::cmp::Ordering::Equal => VersionComparison::Equal,
        }
    }

    /// Returns the next digest in rotation over all records: the owner of a record and its version. `None` if there are
    /// no records.
    pub(super) fn next_digest(&mut self) -> Option<(WorldSiteId, u32)> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.last_digest_site.and_then(|last| self.entries.range((Excluded(last), Unbounded)).next());
        let (site, entry) = after.or_else(|| self.entries.iter().next())?;
        self.last_digest_site = Some(*site);
        Some((*site, entry.record.version))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the approximate heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.entries.values().map(|entry| entry.record.bytes.capacity() + size_of::<(WorldSiteId, GossipEntry)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: WorldSiteId = WorldSiteId(1);
    const OTHER: WorldSiteId = WorldSiteId(2);

    fn claim(site: WorldSiteId, changes: u32, source: ClaimSource, bytes: &[u8]) -> RecordClaim {
        RecordClaim { site, version: make_version(changes, bytes), source }
    }

    /// Merges a record with the change count `changes` while no site is present.
    fn merge_claim(store: &mut GossipStore, site: WorldSiteId, changes: u32, source: ClaimSource) -> bool {
        store.merge(claim(site, changes, source, b"said"), b"said", |_| false)
    }

    #[test]
    fn newest_version_wins_from_any_sender() {
        let mut store = GossipStore::default();
        store.set_own(ME, b"one");
        store.set_own(ME, b"two");
        assert_eq!(change_count(store.get(ME).unwrap().version), 2);
        let mut restarted = GossipStore::default();
        restarted.set_own(ME, b"one");
        restarted.set_own(ME, b"three");
        assert_ne!(store.compare_version(ME, restarted.get(ME).unwrap().version), VersionComparison::Equal);
        assert!(
            merge_claim(&mut store, OTHER, 5, ClaimSource::ThirdParty)
                && !merge_claim(&mut store, OTHER, 4, ClaimSource::Owner)
        );
        assert_eq!(store.get(OTHER).unwrap().bytes, b"said");
        assert_eq!(store.compare_version(OTHER, make_version(6, b"")), VersionComparison::LocalOutdated);
        assert_eq!(store.compare_version(OTHER, make_version(5, b"said")), VersionComparison::Equal);
        assert_eq!(store.compare_version(OTHER, 0), VersionComparison::PeerOutdated);
        assert_eq!(store.compare_version(WorldSiteId(3), 1), VersionComparison::LocalOutdated);
    }

    #[test]
    fn version_with_wrong_content_hash_is_rejected() {
        let mut store = GossipStore::default();
        let forged = RecordClaim { version: u32::MAX, ..claim(OTHER, 1, ClaimSource::Owner, b"x") };
        assert!(content_hash(b"x") != CONTENT_HASH_MASK && !store.merge(forged, b"x", |_| true));
        assert!(store.merge(claim(OTHER, 1, ClaimSource::Owner, b"x"), b"x", |_| true));
    }

    #[test]
    fn owner_overrides_forged_third_party_record() {
        let mut store = GossipStore::default();
        assert!(
            !merge_claim(&mut store, OTHER, MAX_CHANGES, ClaimSource::ThirdParty),
            "the owner could not exceed the maximum change count"
        );
        assert!(merge_claim(&mut store, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdParty));
        let mut owner = GossipStore::default();
        owner.set_own(OTHER, b"true");
        assert!(!merge_claim(&mut owner, OTHER, MAX_CHANGES, ClaimSource::ThirdPartyAboutSelf));
        assert!(merge_claim(&mut owner, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdPartyAboutSelf));
        owner.set_own(OTHER, b"true");
        let SiteRecord { version, bytes } = owner.get(OTHER).unwrap();
        let own = RecordClaim { site: OTHER, version: *version, source: ClaimSource::Owner };
        assert!(store.merge(own, bytes, |_| true), "the owner's next version must supersede the forged one");
        assert!(
            !merge_claim(&mut store, OTHER, MAX_THIRD_PARTY_CHANGES, ClaimSource::ThirdParty),
            "a third party must not exceed the owner's version"
        );
    }

    #[test]
    fn third_party_version_advance_is_limited_for_known_sites() {
        let mut store = GossipStore::default();
        assert!(merge_claim(&mut store, OTHER, 7, ClaimSource::Owner));
        assert!(!merge_claim(&mut store, OTHER, 8 + MAX_THIRD_PARTY_ADVANCE, ClaimSource::ThirdParty));
        assert!(merge_claim(&mut store, OTHER, 7 + MAX_THIRD_PARTY_ADVANCE, ClaimSource::ThirdParty));
        assert!(merge_claim(&mut store, OTHER, MAX_CHANGES, ClaimSource::Owner), "the owner itself is not limited");
    }

    #[test]
    fn change_count_saturates_without_wrapping() {
        let mut store = GossipStore::default();
        merge_claim(&mut store, ME, MAX_CHANGES, ClaimSource::Owner);
        store.set_own(ME, b"one more");
        assert_eq!(change_count(store.get(ME).unwrap().version), MAX_CHANGES);
    }

    #[test]
    fn digests_rotate_over_all_sites() {
        let mut store = GossipStore::default();
        assert_eq!(store.next_digest(), None);
        for site in [7, 3, 5] {
            merge_claim(&mut store, WorldSiteId(site), site, ClaimSource::Owner);
        }
        let digests: Vec<u32> = (0..4).map(|_| change_count(store.next_digest().unwrap().1)).collect();
        assert_eq!(digests, [3, 5, 7, 3]);
    }

    #[test]
    fn record_count_and_size_are_bounded() {
        let mut store = GossipStore::default();
        let long = [0; MAX_RECORD_SIZE];
        for site in 0..5_000 {
            store.merge(claim(WorldSiteId(site), 1, ClaimSource::ThirdParty, &long), &long, |_| false);
        }
        assert_eq!(store.len(), MAX_RECORDS);
        store.set_own(WorldSiteId(9_999), &[0; 5_000]);
        assert_eq!(store.get(WorldSiteId(9_999)).unwrap().bytes.len(), MAX_RECORD_SIZE);
        assert!(store.len() <= MAX_RECORDS + 1);
    }

    #[test]
    fn present_site_always_gets_room_and_forged_sites_are_evicted_first() {
        let mut store = GossipStore::default();
        store.set_own(ME, b"us");
        assert!(merge_claim(&mut store, OTHER, 1, ClaimSource::Owner), "the site was present and has left");
        (10_000..20_000).for_each(|site| _ = merge_claim(&mut store, WorldSiteId(site), 1, ClaimSource::ThirdParty));
        let late = |site: u32| claim(WorldSiteId(site), 1, ClaimSource::Owner, b"late");
        let is_present = |site: WorldSiteId| site == ME || (100..2_000).contains(&site.0);
        assert!(
            !merge_claim(&mut store, WorldSiteId(99), 1, ClaimSource::ThirdParty),
            "a third-party record must not displace another"
        );
        for site in 100..1_122 {
            assert!(store.merge(late(site), b"late", is_present), "{site}");
            assert!(store.get(OTHER).is_some(), "forged records must be evicted before first-hand ones");
        }
        assert!(store.merge(late(1_122), b"late", is_present) && store.get(OTHER).is_none());
        assert!(!store.merge(late(1_123), b"late", is_present), "the owners of all records are present");
        assert!(store.len() == MAX_RECORDS && store.get(ME).is_some());
    }
}
