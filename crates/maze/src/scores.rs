//! Scores. The victim's site counts each hit, and no other site does; so every hit is decided once, and the score is
//! the sum of all score records.
//!
//! A score record is at most as long as a gossip record ([`MAX_RECORD_SIZE`]), but still counts every hit. If not all
//! shooters fit, shooters of a site with the fewest hits are counted together, as that site's [`OTHER_AVATARS`]. If not
//! all sites fit either, the shooters with the fewest hits are counted together as [`OTHER_SITES`]. So the totals of
//! falls and hits are always equal.
//!
//! ```text
//! name    1 length, then its bytes
//! falls   1 number of avatars that were hit; then of each, in order: its index 1, count
//! hits    site by site, in order: the site 4 (little-endian), number of its shooters less one 1; then of each, in
//!         order: its index 1, count
//! ```
//!
//! A count is a varint of seven bits per byte, lowest first, and never 0. A record has exactly one encoding, and the
//! decoder rejects all other bytes.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, MAX_RECORD_SIZE, WorldSiteId};

use crate::avatar::MAX_AVATARS;

/// Maximum length of a site's name, in bytes.
pub const MAX_NAME_LEN: usize = 24;
/// Index under which a record counts together those shooters of a site that have no count of their own.
pub const OTHER_AVATARS: u8 = u8::MAX;
/// Id under which a record counts together the shooters that have neither a count of their own nor a part in their
/// site's [`OTHER_AVATARS`].
pub const OTHER_SITES: EntityId = EntityId { site: WorldSiteId(u32::MAX), index: OTHER_AVATARS };
/// Largest number of hits that a site counts in one game. Further hits are ignored.
const MAX_HITS: u32 = 1 << 24;
/// Largest number of sites for which a record never needs [`OTHER_SITES`]: a mesh has no more sites.
const MAX_LISTED_SITES: usize = 64;
/// Maximum encoded length of a count, in bytes.
const MAX_COUNT_LEN: usize = 4;

const _: () = assert!(
    1 + MAX_NAME_LEN + 1 + MAX_AVATARS * (1 + MAX_COUNT_LEN) + MAX_LISTED_SITES * (4 + 1 + 1 + MAX_COUNT_LEN)
        <= MAX_RECORD_SIZE
        && MAX_HITS < 1 << (7 * MAX_COUNT_LEN)
);

/// Score record of one site: the hits on its avatars, which this site alone counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoreRecord {
    /// Name of the site, which is the name of its player.
    name: String,
    /// Number of falls of each avatar of the site, by index.
    falls: BTreeMap<u8, u32>,
    /// Number of hits on the site's avatars by each shooter.
    hits: BTreeMap<EntityId, u32>,
}

/// Score of an avatar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Number of hits that the avatar scored.
    pub hits: u32,
    /// Number of times that the avatar was hit.
    pub falls: u32,
}

impl ScoreRecord {
    /// Creates a record without hits. The name is cut as by [`set_name`](Self::set_name).
    pub fn new(name: &str) -> Self {
        let mut record = Self::default();
        record.set_name(name);
        record
    }

    /// Sets the name of the site: trimmed, and cut at the first control character and at [`MAX_NAME_LEN`] bytes.
    pub fn set_name(&mut self, name: &str) {
        self.name = sanitized_name(name).into();
        self.compact();
    }

    /// Returns the total number of falls of the site's avatars.
    pub fn total_falls(&self) -> u32 {
        total_count(&self.falls).min(u32::MAX.into()) as u32
    }

    /// Counts a hit on our avatar `index` by another avatar. Ignores hits beyond 2^24 in total, and an index of 64 or
    /// more.
    pub fn record_hit(&mut self, index: u8, by: EntityId) {
        if usize::from(index) < MAX_AVATARS && self.total_falls() < MAX_HITS {
            add_count(&mut self.falls, index, 1);
            add_count(&mut self.hits, by, 1);
            self.compact();
        }
    }

    /// Returns the sum of this record and of `before`, the counts from before this site restarted. Ignores `before` if
    /// the sum exceeds 2^24 falls.
    pub fn combined_with(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        if self.total_falls() + before.total_falls() <= MAX_HITS {
            before.falls.iter().for_each(|(index, times)| add_count(&mut sum.falls, *index, *times));
            before.hits.iter().for_each(|(by, times)| add_count(&mut sum.hits, *by, *times));
            sum.compact();
        }
        sum
    }

    /// Replaces this record by another site's copy of the same record if the copy counts more falls. Does not merge the
    /// counts one by one: the copy may count a shooter together with others, whose hits would then be counted twice.
    pub fn replace_if_larger(&mut self, other: Self) {
        if other.total_falls() > self.total_falls() {
            *self = other;
        }
    }

    /// Counts the shooters with the fewest hits together until the record fits into [`MAX_RECORD_SIZE`].
    fn compact(&mut self) {
        while self.encoded_len() > MAX_RECORD_SIZE {
            let whole = self.site_with_most_shooters().map(|site| (site, self.lowest_shooter_of(site)));
            let (from, to) = match whole {
                Some((site, least)) => (least, EntityId { site, index: OTHER_AVATARS }),
                None => (self.lowest_shooter(), OTHER_SITES),
            };
            let times = self.hits.remove(&from).unwrap_or_default();
            add_count(&mut self.hits, to, times);
        }
    }

    /// Returns the site with the most shooters in the record; `None` if no site has more than one.
    fn site_with_most_shooters(&self) -> Option<WorldSiteId> {
        let sites = group_by_site(&self.hits).map(|(site, lines)| (lines.len(), site));
        sites.max().filter(|(lines, _)| *lines > 1).map(|(_, site)| site)
    }

    /// Returns that shooter of a site which has the fewest hits, among those with a count of their own.
    fn lowest_shooter_of(&self, site: WorldSiteId) -> EntityId {
        let (first, last) = (EntityId { site, index: 0 }, EntityId { site, index: OTHER_AVATARS });
        let own = self.hits.range(first..last).map(|(by, times)| (*times, *by));
        own.min().map_or(first, |(_, by)| by)
    }

    /// Returns the shooter with the fewest hits, other than [`OTHER_SITES`].
    fn lowest_shooter(&self) -> EntityId {
        let own = self.hits.iter().filter(|(by, _)| **by != OTHER_SITES).map(|(by, times)| (*times, *by));
        own.min().map_or(OTHER_SITES, |(_, by)| by)
    }

    fn encoded_len(&self) -> usize {
        let lines = |counts: &mut dyn Iterator<Item = &u32>| counts.map(|times| 1 + count_len(*times)).sum::<usize>();
        let sites = group_by_site(&self.hits).count();
        1 + self.name.len() + 1 + lines(&mut self.falls.values()) + sites * 5 + lines(&mut self.hits.values())
    }

    /// Encodes the record in at most [`MAX_RECORD_SIZE`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.name.len() as u8];
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.push(self.falls.len() as u8);
        self.falls.iter().for_each(|(index, times)| put_count(&mut bytes, *index, *times));
        for (site, lines) in group_by_site(&self.hits) {
            bytes.extend_from_slice(&site.0.to_le_bytes());
            bytes.push((lines.len() - 1) as u8);
            lines.iter().for_each(|(index, times)| put_count(&mut bytes, *index, *times));
        }
        bytes
    }

    /// Decodes a record; `None` if the bytes are no valid encoding, or if the totals of falls and hits differ.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = ScoreReader { bytes };
        let name = reader.name()?;
        let count = reader.byte()?.into();
        let falls = reader.counts(count)?;
        let mut hits = BTreeMap::new();
        let mut last = None;
        while !reader.bytes.is_empty() {
            let site = reader.site().filter(|site| last < Some(*site))?;
            let count = usize::from(reader.byte()?) + 1;
            hits.extend(reader.counts(count)?.into_iter().map(|(index, times)| (EntityId { site, index }, times)));
            last = Some(site);
        }
        let is_in_bounds =
            falls.keys().all(|index| usize::from(*index) < MAX_AVATARS) && bytes.len() <= MAX_RECORD_SIZE;
        let is_balanced = total_count(&falls) == total_count(&hits) && total_count(&falls) <= MAX_HITS.into();
        (is_in_bounds && is_balanced).then_some(Self { name, falls, hits })
    }

    /// Returns the approximate heap size in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.name.capacity() + (self.falls.len() + self.hits.len()) * size_of::<(EntityId, u32)>()
    }
}

struct ScoreReader<'a> {
    bytes: &'a [u8],
}

impl ScoreReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    fn site(&mut self) -> Option<WorldSiteId> {
        let (site, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(WorldSiteId(u32::from_le_bytes(*site)))
    }

    fn name(&mut self) -> Option<String> {
        let len = self.byte()?;
        let (name, rest) = self.bytes.split_at_checked(len.into())?;
        self.bytes = rest;
        let name = str::from_utf8(name).ok()?;
        (name.len() <= MAX_NAME_LEN && !name.contains(char::is_control)).then(|| name.into())
    }

    /// Reads `count` pairs of index and number; `None` if the indices do not increase or a pair is invalid.
    fn counts(&mut self, count: usize) -> Option<BTreeMap<u8, u32>> {
        let mut lines = BTreeMap::new();
        for _ in 0..count {
            let index = self.byte().filter(|index| lines.last_key_value().is_none_or(|(last, _)| last < index))?;
            lines.insert(index, self.count()?);
        }
        Some(lines)
    }

    fn count(&mut self) -> Option<u32> {
        let mut times = 0;
        for at in 0..MAX_COUNT_LEN {
            let byte = self.byte()?;
            times |= u32::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                // A zero last byte is a longer encoding of the same count.
                return (byte != 0).then_some(times);
            }
        }
        None
    }
}

fn put_count(bytes: &mut Vec<u8>, index: u8, mut times: u32) {
    bytes.push(index);
    while times >= 0x80 {
        bytes.push(times as u8 | 0x80);
        times >>= 7;
    }
    bytes.push(times as u8);
}

/// Returns the encoded length of a count, in bytes.
fn count_len(times: u32) -> usize {
    (u32::BITS - times.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Groups the shooters by site, in order of the site ids. Each site comes with the index and hits of its shooters.
fn group_by_site(hits: &BTreeMap<EntityId, u32>) -> impl Iterator<Item = (WorldSiteId, Vec<(u8, u32)>)> {
    let mut rest = hits.iter().peekable();
    std::iter::from_fn(move || {
        let site = rest.peek()?.0.site;
        let lines = std::iter::from_fn(|| rest.next_if(|(by, _)| by.site == site));
        Some((site, lines.map(|(by, times)| (by.index, *times)).collect()))
    })
}

fn add_count<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, times: u32) {
    let counted = counts.entry(key).or_default();
    *counted = counted.saturating_add(times);
}

fn total_count<K>(counts: &BTreeMap<K, u32>) -> u64 {
    counts.values().copied().map(u64::from).sum()
}

/// Cuts a name at the first control character, trims it and limits it to [`MAX_NAME_LEN`] bytes.
fn sanitized_name(name: &str) -> &str {
    let name = name.split(char::is_control).next().unwrap_or_default().trim();
    let end = (0..=MAX_NAME_LEN.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

/// Scores of all avatars, summed from score records or counted hit by hit, and the names of the sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoreboard {
    by_entity: BTreeMap<EntityId, Score>,
    names: BTreeMap<WorldSiteId, String>,
}

impl Scoreboard {
    /// Sums the records of all sites. A shooter of a site without a record may be forged, and counts as
    /// [`OTHER_SITES`].
    pub fn from_records(records: impl Iterator<Item = (WorldSiteId, ScoreRecord)>) -> Self {
        let mut scores = Self::default();
        let records: Vec<(WorldSiteId, ScoreRecord)> = records.collect();
        scores.names.extend(records.iter().map(|(site, record)| (*site, record.name.clone())));
        for (site, record) in records {
            for (index, count) in &record.falls {
                let falls = &mut scores.by_entity.entry(EntityId { site, index: *index }).or_default().falls;
                *falls = falls.saturating_add(*count);
            }
            for (by, count) in &record.hits {
                let by = if scores.names.contains_key(&by.site) { *by } else { OTHER_SITES };
                let hits = &mut scores.by_entity.entry(by).or_default().hits;
                *hits = hits.saturating_add(*count);
            }
        }
        scores
    }

    /// Returns the approximate heap size in bytes.
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.names.values().map(|name| name.capacity() + size_of::<(WorldSiteId, String)>()).sum();
        names + self.by_entity.len() * size_of::<(EntityId, Score)>()
    }

    /// Sets the displayed name of a site.
    pub fn set_name(&mut self, site: WorldSiteId, name: &str) {
        self.names.insert(site, name.into());
    }

    /// Adds `times` hits of a shooter on a victim.
    pub fn add_hits(&mut self, victim: EntityId, shooter: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(victim).or_default().falls;
        *falls = falls.saturating_add(times);
        let hits = &mut self.by_entity.entry(shooter).or_default().hits;
        *hits = hits.saturating_add(times);
    }

    /// Subtracts `times` hits of a shooter on a victim, down to 0 at the lowest.
    pub fn subtract_hits(&mut self, victim: EntityId, shooter: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(victim).or_default().falls;
        *falls = falls.saturating_sub(times);
        let hits = &mut self.by_entity.entry(shooter).or_default().hits;
        *hits = hits.saturating_sub(times);
    }

    /// Returns the score of an avatar; zero if it neither scored nor was hit.
    pub fn score(&self, entity: EntityId) -> Score {
        self.by_entity.get(&entity).copied().unwrap_or_default()
    }

    /// Returns the displayed name of an avatar: the name of its site for avatar 0, that name and the index for a ninja.
    /// A site without a name is an "unnamed player". The combined count of a site's [`OTHER_AVATARS`] is named after
    /// the site, and that of [`OTHER_SITES`] is "other players".
    pub fn display_name(&self, entity: EntityId) -> String {
        let name = self.names.get(&entity.site).map_or("", String::as_str);
        let name = if name.is_empty() { "unnamed player" } else { name };
        match entity.index {
            0 => name.into(),
            _ if entity == OTHER_SITES => "other players".into(),
            OTHER_AVATARS => format!("{name}'s other avatars"),
            index => format!("{name}'s ninja {index}"),
        }
    }

    /// Returns all avatars that scored or were hit: most hits first, then fewest falls.
    pub fn ranking(&self) -> Vec<(EntityId, Score)> {
        let mut table: Vec<(EntityId, Score)> =
            self.by_entity.iter().map(|(entity, score)| (*entity, *score)).collect();
        table.sort_by_key(|(entity, score)| (core::cmp::Reverse(score.hits), score.falls, *entity));
        table
    }

    /// Returns the number of hits of all avatars together.
    pub fn total_hits(&self) -> u32 {
        self.by_entity.values().fold(0, |sum, score| sum.saturating_add(score.hits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(site: u32, index: u8) -> EntityId {
        EntityId { site: WorldSiteId(site), index }
    }

    /// Returns the number of hits by the shooters of each site in a record.
    fn hits_by_site(record: &ScoreRecord) -> BTreeMap<WorldSiteId, u32> {
        let mut sites = BTreeMap::new();
        record.hits.iter().for_each(|(by, times)| add_count(&mut sites, by.site, *times));
        sites
    }

    /// Asserts that a record fits into [`MAX_RECORD_SIZE`] and round-trips. Returns its number of hits.
    fn assert_round_trip(record: &ScoreRecord) -> u32 {
        let bytes = record.to_bytes();
        assert_eq!(bytes.len(), record.encoded_len());
        assert!(bytes.len() <= MAX_RECORD_SIZE, "{} bytes", bytes.len());
        assert_eq!(ScoreRecord::from_bytes(&bytes).as_ref(), Some(record));
        assert_eq!(total_count(&record.hits), total_count(&record.falls), "hits and falls differ");
        record.total_falls()
    }

    #[test]
    fn record_round_trips() {
        let mut record = ScoreRecord::new("Ada\u{7}Lovelace");
        assert_eq!(record.name, "Ada");
        for n in 0..9_000u32 {
            record.record_hit((n % 64) as u8, entity(n % 90, 1));
        }
        assert_eq!(assert_round_trip(&record), 9_000);
        let expected = (0..90).map(|site| (entity(site, 1), 100)).collect();
        assert_eq!(record.hits, expected, "a shooter of 90 has no count of its own");
    }

    #[test]
    fn every_site_of_the_largest_mesh_keeps_its_hits() {
        let mut record = ScoreRecord::new(&"n".repeat(MAX_NAME_LEN));
        let mut expected = BTreeMap::new();
        for n in 0..12_000u32 {
            let by = entity(0xff00_0000 + n % 63, (n / 63 % 32) as u8);
            record.record_hit((n % 61 % 32) as u8, by);
            add_count(&mut expected, by.site, 1);
            if n % 1_000 == 0 {
                assert_round_trip(&record);
            }
        }
        assert_eq!(assert_round_trip(&record), 12_000);
        assert_eq!(hits_by_site(&record), expected);
        assert!(record.hits.len() > 90, "only {} counts: more were merged than necessary", record.hits.len());
    }

    #[test]
    fn top_shooters_keep_their_own_count() {
        let mut record = ScoreRecord::default();
        for n in 0..64 * 31 * 2u32 {
            record.record_hit(0, entity(n % 64, 0));
            record.record_hit(0, entity(n % 64, 1 + (n / 64 % 31) as u8));
        }
        assert!((0..64).all(|site| record.hits[&entity(site, 0)] == 62));
        assert_round_trip(&record);
    }

    #[test]
    fn record_stays_bounded_for_any_number_of_shooters() {
        let mut record = ScoreRecord::default();
        for n in 0..5_000u32 {
            record.record_hit(0, entity(n, n as u8));
        }
        assert_eq!(assert_round_trip(&record), 5_000);
        assert!(record.hits[&OTHER_SITES] > 4_000 && record.hits.len() > MAX_LISTED_SITES);
    }

    #[test]
    fn restarts_neither_lose_nor_double_count_hits() {
        let (mut published, mut before) = (ScoreRecord::default(), ScoreRecord::default());
        let mut expected = BTreeMap::new();
        for life in 1..=6u32 {
            let mut record = ScoreRecord::new("restarted");
            for n in 0..1_000u32 {
                let by = entity(n % 60, (life * 5 + n / 60) as u8);
                record.record_hit((n % 7) as u8, by);
                add_count(&mut expected, by.site, 1);
                // Other sites remember states published at any time, and not in order.
                before.replace_if_larger(ScoreRecord::from_bytes(&published.to_bytes()).unwrap());
                before.replace_if_larger(ScoreRecord::new("nothing"));
                if n % 100 == 99 {
                    assert_round_trip(&record.combined_with(&before));
                }
            }
            published = record.combined_with(&before);
            assert_eq!(assert_round_trip(&published), life * 1_000);
            assert_eq!(hits_by_site(&published), expected);
        }
    }

    #[test]
    fn learned_record_stays_within_the_size_limit() {
        let mut before = ScoreRecord::default();
        for round in 1..40u32 {
            let mut other = ScoreRecord::default();
            (0..round * 20).for_each(|n| other.record_hit(0, entity(round * 1_000 + n % 100, 0)));
            before.replace_if_larger(other);
            assert!(before.encoded_len() <= MAX_RECORD_SIZE);
        }
        let mut absurd = before.clone();
        absurd.falls.insert(0, MAX_HITS);
        absurd.hits = BTreeMap::from([(entity(1, 1), MAX_HITS)]);
        before.replace_if_larger(absurd);
        let mut own = ScoreRecord::new("own");
        own.record_hit(0, entity(2, 0));
        assert_eq!(own.combined_with(&before), own, "counts beyond the maximum are added");
    }

    #[test]
    fn invalid_records_are_rejected() {
        let assert_rejected = |bytes: &[u8]| assert_eq!(ScoreRecord::from_bytes(bytes), None, "{bytes:?}");
        assert!(ScoreRecord::from_bytes(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 2]).is_some());
        assert_rejected(&[]);
        assert_rejected(&[1, 7, 0]);
        assert_rejected(&[0, 1, 5, 2]);
        assert_rejected(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 3]);
        assert_rejected(&[0, 1, 5, 0, 9, 0, 0, 0, 0, 7, 0]);
        assert_rejected(&[0, 1, 64, 2, 9, 0, 0, 0, 0, 7, 2]);
        assert_rejected(&[0, 1, 5, 0x82, 0, 9, 0, 0, 0, 0, 7, 2]);
        assert_rejected(&[0, 1, 5, 2, 9, 0, 0, 0, 1, 7, 1, 7, 1]);
        assert_rejected(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 1, 8, 0, 0, 0, 0, 7, 1]);
        assert_rejected(&[0, 2, 5, 1, 4, 1, 9, 0, 0, 0, 0, 7, 2]);
    }

    #[test]
    fn every_record_has_one_encoding() {
        let mut record = ScoreRecord::new("Ada");
        (0..400u32).for_each(|n| record.record_hit((n % 3) as u8, entity(n % 7, (n % 5) as u8)));
        let bytes = record.to_bytes();
        let mut rng = crate::rng::Rng::new(8);
        let mut decoded = 0;
        for _ in 0..200_000 {
            let mut bytes = bytes.clone();
            for _ in 0..=rng.below(2) {
                let at = rng.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            bytes.truncate(bytes.len() - rng.below(2) as usize);
            if let Some(record) = ScoreRecord::from_bytes(&bytes) {
                assert_eq!(record.to_bytes(), bytes, "a record has two encodings");
                decoded += 1;
            }
        }
        assert!(decoded > 100, "only {decoded} were decoded");
    }

    #[test]
    fn hits_by_unknown_sites_count_for_other_sites() {
        let mut record = ScoreRecord::new("one");
        record.record_hit(0, entity(2, 0));
        record.record_hit(0, entity(77, 3));
        let scores =
            Scoreboard::from_records([(WorldSiteId(1), record), (WorldSiteId(2), ScoreRecord::new("two"))].into_iter());
        let lines: Vec<EntityId> = scores.ranking().into_iter().map(|(entity, _)| entity).collect();
        assert_eq!(lines, [entity(2, 0), OTHER_SITES, entity(1, 0)]);
        assert_eq!((scores.total_hits(), scores.display_name(OTHER_SITES)), (2, "other players".into()));
        assert_eq!(scores.display_name(entity(2, OTHER_AVATARS)), "two's other avatars");
    }

    #[test]
    fn scoreboard_sums_all_records() {
        let (mut one, mut two) = (ScoreRecord::new("one"), ScoreRecord::new(""));
        one.record_hit(0, entity(2, 0));
        one.record_hit(0, entity(2, 3));
        two.record_hit(3, entity(1, 0));
        let mut before = ScoreRecord::new("one");
        before.record_hit(0, entity(2, 0));
        let mut base = ScoreRecord::default();
        base.replace_if_larger(before.clone());
        base.replace_if_larger(before);
        let scores =
            Scoreboard::from_records([(WorldSiteId(1), one.combined_with(&base)), (WorldSiteId(2), two)].into_iter());
        assert_eq!(scores.score(entity(1, 0)), Score { hits: 1, falls: 3 });
        assert_eq!(scores.score(entity(2, 0)), Score { hits: 2, falls: 0 });
        assert_eq!(scores.score(entity(2, 3)), Score { hits: 1, falls: 1 });
        assert_eq!(scores.ranking()[0].0, entity(2, 0));
        assert_eq!(scores.display_name(entity(2, 3)), "unnamed player's ninja 3");
        assert_eq!(scores.total_hits(), 4);
    }
}
