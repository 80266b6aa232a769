//! Who hit whom. Whoever is hit counts it, nobody else; so every hit is decided once, and the score is what all tallies say together.
//!
//! A tally is as long as a record at the most, and loses no hit for it: where there is no room for all who shot, those of a site that hit
//! least are counted together as its [`OTHER_AVATARS`], and where there is no room for all sites, those that hit least as [`OTHER_SITES`]. So falls
//! and hits are always as many.
//!
//! ```text
//! name    1 how long, then its letters
//! falls   1 how many avatars were hit; then of each, in order: its number 1, how often
//! hits    site by site, in order: the site 4 (low byte first), how many of it but one 1; then of each, in order: its number 1, how often
//! ```
//!
//! How often is seven bits to a byte, the lowest first, and never 0. A tally has one encoding, and bytes that are none are refused.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, MAX_RECORD_SIZE, WorldSiteId};

use crate::site::MAX_AVATARS;

/// The most letters of a name, in bytes.
pub const MAX_NAME_LEN: usize = 24;
/// The number of all avatars of a site that have no line of their own.
pub const OTHER_AVATARS: u8 = u8::MAX;
/// All avatars of sites that have no line of their own.
pub const OTHER_SITES: EntityId = EntityId { site: WorldSiteId(u32::MAX), index: OTHER_AVATARS };
/// More hits are not counted: nobody ever gets there.
const MAX_HITS: u32 = 1 << 24;
/// So many sites always have a line of their own: a group has no more.
const MAX_LISTED_SITES: usize = 64;
/// The most bytes of how often somebody was hit.
const MAX_COUNT_LEN: usize = 4;

const _: () = assert!(
    1 + MAX_NAME_LEN + 1 + MAX_AVATARS * (1 + MAX_COUNT_LEN) + MAX_LISTED_SITES * (4 + 1 + 1 + MAX_COUNT_LEN)
        <= MAX_RECORD_SIZE
        && MAX_HITS < 1 << (7 * MAX_COUNT_LEN)
);

/// What one site counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoreRecord {
    /// What this site is called, which is what its person is called.
    name: String,
    /// How often each of its avatars was hit.
    falls: BTreeMap<u8, u32>,
    /// By whom they were hit, and how often.
    hits: BTreeMap<EntityId, u32>,
}

/// An avatar's line in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// How often it hit somebody.
    pub hits: u32,
    /// How often it was hit.
    pub falls: u32,
}

impl ScoreRecord {
    /// Nobody was hit yet.
    pub fn new(name: &str) -> Self {
        let mut tally = Self::default();
        tally.set_name(name);
        tally
    }

    /// From now on the site is called this.
    pub fn set_name(&mut self, name: &str) {
        self.name = sanitized_name(name).into();
        self.compact();
    }

    /// How often avatars of the site were hit in all.
    pub fn total_falls(&self) -> u32 {
        total_count(&self.falls).min(u32::MAX.into()) as u32
    }

    /// One of ours was hit by somebody.
    pub fn record_hit(&mut self, index: u8, by: EntityId) {
        if usize::from(index) < MAX_AVATARS && self.total_falls() < MAX_HITS {
            add_count(&mut self.falls, index, 1);
            add_count(&mut self.hits, by, 1);
            self.compact();
        }
    }

    /// With what was counted before we were started anew. Where that is more than can be, nobody counted it.
    pub fn combined_with(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        if self.total_falls() + before.total_falls() <= MAX_HITS {
            before.falls.iter().for_each(|(index, times)| add_count(&mut sum.falls, *index, *times));
            before.hits.iter().for_each(|(by, times)| add_count(&mut sum.hits, *by, *times));
            sum.compact();
        }
        sum
    }

    /// Takes over what somebody else remembers of the same row of hits, if it remembers more. As a whole, since who shot may have
    /// been counted with others there, and must not be counted twice; so it stays as short as a record.
    pub fn replace_if_larger(&mut self, other: Self) {
        if other.total_falls() > self.total_falls() {
            *self = other;
        }
    }

    /// Puts together who hit least until it is short enough for a record.
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

    /// The site with the most lines, if one has more than one.
    fn site_with_most_shooters(&self) -> Option<WorldSiteId> {
        let sites = group_by_site(&self.hits).map(|(site, lines)| (lines.len(), site));
        sites.max().filter(|(lines, _)| *lines > 1).map(|(_, site)| site)
    }

    /// Who of a site hit least, and still has a line of its own.
    fn lowest_shooter_of(&self, site: WorldSiteId) -> EntityId {
        let (first, last) = (EntityId { site, index: 0 }, EntityId { site, index: OTHER_AVATARS });
        let own = self.hits.range(first..last).map(|(by, times)| (*times, *by));
        own.min().map_or(first, |(_, by)| by)
    }

    /// Who hit least of all.
    fn lowest_shooter(&self) -> EntityId {
        let own = self.hits.iter().filter(|(by, _)| **by != OTHER_SITES).map(|(by, times)| (*times, *by));
        own.min().map_or(OTHER_SITES, |(_, by)| by)
    }

    /// The length of its bytes.
    fn encoded_len(&self) -> usize {
        let lines = |counts: &mut dyn Iterator<Item = &u32>| counts.map(|times| 1 + count_len(*times)).sum::<usize>();
        let sites = group_by_site(&self.hits).count();
        1 + self.name.len() + 1 + lines(&mut self.falls.values()) + sites * 5 + lines(&mut self.hits.values())
    }

    /// As it is put down for all to know.
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

    /// What somebody put down; `None` if nobody would.
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
        let is_ours = falls.keys().all(|index| usize::from(*index) < MAX_AVATARS) && bytes.len() <= MAX_RECORD_SIZE;
        let is_sound = total_count(&falls) == total_count(&hits) && total_count(&falls) <= MAX_HITS.into();
        (is_ours && is_sound).then_some(Self { name, falls, hits })
    }

    /// Bytes on the heap, roughly.
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

    /// So many lines, in order.
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
                // A last byte of nothing could be left out.
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

/// The bytes of how often.
fn count_len(times: u32) -> usize {
    (u32::BITS - times.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Lines that belong to one site after the other.
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

/// A name that is not too long, without what is no letter.
fn sanitized_name(name: &str) -> &str {
    let name = name.split(char::is_control).next().unwrap_or_default().trim();
    let end = (0..=MAX_NAME_LEN.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

/// What all tallies say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scoreboard {
    by_entity: BTreeMap<EntityId, Score>,
    names: BTreeMap<WorldSiteId, String>,
}

impl Scoreboard {
    /// Adds up what all sites counted. Who is of a site that counts nothing itself may be made up, and is [`OTHER_SITES`].
    pub fn from_records(tallies: impl Iterator<Item = (WorldSiteId, ScoreRecord)>) -> Self {
        let mut scores = Self::default();
        let tallies: Vec<(WorldSiteId, ScoreRecord)> = tallies.collect();
        scores.names.extend(tallies.iter().map(|(site, tally)| (*site, tally.name.clone())));
        for (site, tally) in tallies {
            for (index, count) in &tally.falls {
                let falls = &mut scores.by_entity.entry(EntityId { site, index: *index }).or_default().falls;
                *falls = falls.saturating_add(*count);
            }
            for (by, count) in &tally.hits {
                let by = if scores.names.contains_key(&by.site) { *by } else { OTHER_SITES };
                let hits = &mut scores.by_entity.entry(by).or_default().hits;
                *hits = hits.saturating_add(*count);
            }
        }
        scores
    }

    /// Bytes on the heap, roughly.
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.names.values().map(|name| name.capacity() + size_of::<(WorldSiteId, String)>()).sum();
        names + self.by_entity.len() * size_of::<(EntityId, Score)>()
    }

    /// What a site is called.
    pub fn set_name(&mut self, site: WorldSiteId, name: &str) {
        self.names.insert(site, name.into());
    }

    /// Somebody was hit by somebody so often.
    pub fn add_hits(&mut self, whom: EntityId, by: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(whom).or_default().falls;
        *falls = falls.saturating_add(times);
        let hits = &mut self.by_entity.entry(by).or_default().hits;
        *hits = hits.saturating_add(times);
    }

    /// Somebody was not hit by somebody after all, or that is not to be told yet.
    pub fn subtract_hits(&mut self, whom: EntityId, by: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(whom).or_default().falls;
        *falls = falls.saturating_sub(times);
        let hits = &mut self.by_entity.entry(by).or_default().hits;
        *hits = hits.saturating_sub(times);
    }

    /// An avatar's line.
    pub fn score(&self, entity: EntityId) -> Score {
        self.by_entity.get(&entity).copied().unwrap_or_default()
    }

    /// What an avatar is called: the person by name, ninjas after theirs.
    pub fn display_name(&self, entity: EntityId) -> String {
        let name = self.names.get(&entity.site).map_or("", String::as_str);
        let name = if name.is_empty() { "somebody" } else { name };
        match entity.index {
            0 => name.into(),
            _ if entity == OTHER_SITES => "others".into(),
            OTHER_AVATARS => format!("{name}'s others"),
            index => format!("{name}'s ninja {index}"),
        }
    }

    /// All who hit somebody or were hit, the best first.
    pub fn ranking(&self) -> Vec<(EntityId, Score)> {
        let mut table: Vec<(EntityId, Score)> =
            self.by_entity.iter().map(|(entity, score)| (*entity, *score)).collect();
        table.sort_by_key(|(entity, score)| (core::cmp::Reverse(score.hits), score.falls, *entity));
        table
    }

    /// Hits in all.
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

    /// Of a site's tally, how often each site hit.
    fn hits_by_site(tally: &ScoreRecord) -> BTreeMap<WorldSiteId, u32> {
        let mut sites = BTreeMap::new();
        tally.hits.iter().for_each(|(by, times)| add_count(&mut sites, by.site, *times));
        sites
    }

    /// What is put down fits, and comes back as it was; how many hits that is.
    fn assert_round_trip(tally: &ScoreRecord) -> u32 {
        let bytes = tally.to_bytes();
        assert_eq!(bytes.len(), tally.encoded_len());
        assert!(bytes.len() <= MAX_RECORD_SIZE, "{} bytes", bytes.len());
        assert_eq!(ScoreRecord::from_bytes(&bytes).as_ref(), Some(tally));
        assert_eq!(total_count(&tally.hits), total_count(&tally.falls), "whoever fell was hit by somebody");
        tally.total_falls()
    }

    #[test]
    fn record_round_trips() {
        let mut tally = ScoreRecord::new("Ada\u{7}Lovelace");
        assert_eq!(tally.name, "Ada");
        for n in 0..9_000u32 {
            tally.record_hit((n % 64) as u8, entity(n % 90, 1));
        }
        assert_eq!(assert_round_trip(&tally), 9_000);
        let expected = (0..90).map(|site| (entity(site, 1), 100)).collect();
        assert_eq!(tally.hits, expected, "each of 90 has its own line");
    }

    #[test]
    fn every_site_of_the_largest_mesh_keeps_its_hits() {
        let mut tally = ScoreRecord::new(&"n".repeat(MAX_NAME_LEN));
        let mut expected = BTreeMap::new();
        for n in 0..12_000u32 {
            let by = entity(0xff00_0000 + n % 63, (n / 63 % 32) as u8);
            tally.record_hit((n % 61 % 32) as u8, by);
            add_count(&mut expected, by.site, 1);
            if n % 1_000 == 0 {
                assert_round_trip(&tally);
            }
        }
        assert_eq!(assert_round_trip(&tally), 12_000);
        assert_eq!(hits_by_site(&tally), expected);
        assert!(tally.hits.len() > 90, "{} lines: no more are put together than must be", tally.hits.len());
    }

    #[test]
    fn top_shooters_keep_their_own_count() {
        let mut tally = ScoreRecord::default();
        for n in 0..64 * 31 * 2u32 {
            tally.record_hit(0, entity(n % 64, 0));
            tally.record_hit(0, entity(n % 64, 1 + (n / 64 % 31) as u8));
        }
        assert!((0..64).all(|site| tally.hits[&entity(site, 0)] == 62));
        assert_round_trip(&tally);
    }

    #[test]
    fn record_stays_bounded_for_any_number_of_shooters() {
        let mut tally = ScoreRecord::default();
        for n in 0..5_000u32 {
            tally.record_hit(0, entity(n, n as u8));
        }
        assert_eq!(assert_round_trip(&tally), 5_000);
        assert!(tally.hits[&OTHER_SITES] > 4_000 && tally.hits.len() > MAX_LISTED_SITES);
    }

    #[test]
    fn restarts_neither_lose_nor_double_count_hits() {
        let (mut told, mut before) = (ScoreRecord::default(), ScoreRecord::default());
        let mut expected = BTreeMap::new();
        for life in 1..=6u32 {
            let mut tally = ScoreRecord::new("again");
            for n in 0..1_000u32 {
                let by = entity(n % 60, (life * 5 + n / 60) as u8);
                tally.record_hit((n % 7) as u8, by);
                add_count(&mut expected, by.site, 1);
                // Others remember what was told at any time, and not in order.
                before.replace_if_larger(ScoreRecord::from_bytes(&told.to_bytes()).unwrap());
                before.replace_if_larger(ScoreRecord::new("nothing"));
                if n % 100 == 99 {
                    assert_round_trip(&tally.combined_with(&before));
                }
            }
            told = tally.combined_with(&before);
            assert_eq!(assert_round_trip(&told), life * 1_000);
            assert_eq!(hits_by_site(&told), expected);
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
        assert_eq!(own.combined_with(&before), own, "more than can be is no more than nothing");
    }

    #[test]
    fn invalid_records_are_rejected() {
        let refused = |bytes: &[u8]| assert_eq!(ScoreRecord::from_bytes(bytes), None, "{bytes:?}");
        assert!(ScoreRecord::from_bytes(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 2]).is_some());
        refused(&[]);
        refused(&[1, 7, 0]);
        refused(&[0, 1, 5, 2]);
        refused(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 3]);
        refused(&[0, 1, 5, 0, 9, 0, 0, 0, 0, 7, 0]);
        refused(&[0, 1, 64, 2, 9, 0, 0, 0, 0, 7, 2]);
        refused(&[0, 1, 5, 0x82, 0, 9, 0, 0, 0, 0, 7, 2]);
        refused(&[0, 1, 5, 2, 9, 0, 0, 0, 1, 7, 1, 7, 1]);
        refused(&[0, 1, 5, 2, 9, 0, 0, 0, 0, 7, 1, 8, 0, 0, 0, 0, 7, 1]);
        refused(&[0, 2, 5, 1, 4, 1, 9, 0, 0, 0, 0, 7, 2]);
    }

    #[test]
    fn every_record_has_one_encoding() {
        let mut tally = ScoreRecord::new("Ada");
        (0..400u32).for_each(|n| tally.record_hit((n % 3) as u8, entity(n % 7, (n % 5) as u8)));
        let bytes = tally.to_bytes();
        let mut luck = crate::rng::Rng::new(8);
        let mut understood = 0;
        for _ in 0..200_000 {
            let mut bytes = bytes.clone();
            for _ in 0..=luck.below(2) {
                let at = luck.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << luck.below(8);
            }
            bytes.truncate(bytes.len() - luck.below(2) as usize);
            if let Some(tally) = ScoreRecord::from_bytes(&bytes) {
                assert_eq!(tally.to_bytes(), bytes, "one tally, one encoding");
                understood += 1;
            }
        }
        assert!(understood > 100, "{understood} were understood");
    }

    #[test]
    fn hits_by_unknown_sites_count_for_other_sites() {
        let mut tally = ScoreRecord::new("one");
        tally.record_hit(0, entity(2, 0));
        tally.record_hit(0, entity(77, 3));
        let scores =
            Scoreboard::from_records([(WorldSiteId(1), tally), (WorldSiteId(2), ScoreRecord::new("two"))].into_iter());
        let lines: Vec<EntityId> = scores.ranking().into_iter().map(|(entity, _)| entity).collect();
        assert_eq!(lines, [entity(2, 0), OTHER_SITES, entity(1, 0)]);
        assert_eq!((scores.total_hits(), scores.display_name(OTHER_SITES)), (2, "others".into()));
        assert_eq!(scores.display_name(entity(2, OTHER_AVATARS)), "two's others");
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
        assert_eq!(scores.display_name(entity(2, 3)), "somebody's ninja 3");
        assert_eq!(scores.total_hits(), 4);
    }
}
