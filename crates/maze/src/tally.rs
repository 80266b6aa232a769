//! Who hit whom. Whoever is hit counts it, nobody else; so every hit is decided once, and the score is what all tallies say together.

use std::collections::BTreeMap;

use coplay::bucket::{EntityId, MAX_RECORD, Site};

/// The most letters of a name, in bytes.
pub const MAX_NAME: usize = 24;
/// The most avatars of a site, and of others by which a site is hit, that are counted: so many fit into a record.
const MAX_FALLS: usize = 64;
const MAX_HITS: usize = 80;

/// What one site counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// What this site is called, which is what its person is called.
    pub name: String,
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

impl Tally {
    /// Nobody was hit yet.
    pub fn new(name: &str) -> Self {
        let mut tally = Self::default();
        tally.set_name(name);
        tally
    }

    /// From now on the site is called this.
    pub fn set_name(&mut self, name: &str) {
        self.name = shortened(name).into();
    }

    /// One of ours was hit by somebody.
    pub fn on_hit(&mut self, index: u8, by: EntityId) {
        if self.falls.contains_key(&index) || self.falls.len() < MAX_FALLS {
            count(&mut self.falls, index, 1);
        }
        if self.hits.contains_key(&by) || self.hits.len() < MAX_HITS {
            count(&mut self.hits, by, 1);
        }
    }

    /// With what was counted before we were started anew.
    pub fn and(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        before.falls.iter().for_each(|(index, times)| count(&mut sum.falls, *index, *times));
        before.hits.iter().for_each(|(by, times)| count(&mut sum.hits, *by, *times));
        sum
    }

    /// Takes over what somebody else remembers of the same row of hits, if it remembers more.
    pub fn learn(&mut self, other: &Self) {
        let more = |ours: &mut u32, theirs: u32| *ours = (*ours).max(theirs);
        other.falls.iter().for_each(|(index, times)| more(self.falls.entry(*index).or_default(), *times));
        other.hits.iter().for_each(|(by, times)| more(self.hits.entry(*by).or_default(), *times));
    }

    /// As it is put down for all to know.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.name.len() as u8];
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.push(self.falls.len().min(MAX_FALLS) as u8);
        for (index, count) in self.falls.iter().take(MAX_FALLS) {
            bytes.push(*index);
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        for (by, count) in self.hits.iter().take(MAX_HITS) {
            bytes.extend_from_slice(&by.site.0.to_le_bytes());
            bytes.push(by.index);
            bytes.extend_from_slice(&count.to_le_bytes()[..3]);
        }
        bytes
    }

    /// What somebody put down; `None` if nobody would.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first()?;
        let (name, rest) = rest.split_at_checked((*len).into())?;
        let name =
            str::from_utf8(name).ok().filter(|name| name.len() <= MAX_NAME && !name.contains(char::is_control))?;
        let (count, rest) = rest.split_first()?;
        let (falls, hits) = rest.split_at_checked(usize::from(*count) * 5)?;
        let falls = falls.as_chunks::<5>().0.iter().map(|[index, count @ ..]| (*index, u32::from_le_bytes(*count)));
        let (hits, []) = hits.as_chunks::<8>() else { return None };
        let hits = hits.iter().map(|[a, b, c, d, index, count @ ..]| {
            let site = Site(u32::from_le_bytes([*a, *b, *c, *d]));
            (EntityId { site, index: *index }, u32::from_le_bytes([count[0], count[1], count[2], 0]))
        });
        Some(Self { name: name.into(), falls: falls.collect(), hits: hits.collect() })
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, times: u32) {
    let counted = counts.entry(key).or_default();
    *counted = counted.saturating_add(times);
}

const _: () = assert!(1 + MAX_NAME + 1 + MAX_FALLS * 5 + MAX_HITS * 8 <= MAX_RECORD);

/// A name that is not too long, without what is no letter.
fn shortened(name: &str) -> &str {
    let name = name.split(char::is_control).next().unwrap_or_default().trim();
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

/// What all tallies say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scores {
    by_entity: BTreeMap<EntityId, Score>,
    names: BTreeMap<Site, String>,
}

impl Scores {
    /// Adds up what all sites counted.
    pub fn of(tallies: impl Iterator<Item = (Site, Tally)>) -> Self {
        let mut scores = Self::default();
        for (site, tally) in tallies {
            scores.names.insert(site, tally.name);
            for (index, count) in &tally.falls {
                let falls = &mut scores.by_entity.entry(EntityId { site, index: *index }).or_default().falls;
                *falls = falls.saturating_add(*count);
            }
            for (by, count) in &tally.hits {
                let hits = &mut scores.by_entity.entry(*by).or_default().hits;
                *hits = hits.saturating_add(*count);
            }
        }
        scores
    }

    /// What a site is called.
    pub fn call(&mut self, site: Site, name: &str) {
        self.names.insert(site, name.into());
    }

    /// Somebody was hit by somebody so often.
    pub fn add(&mut self, whom: EntityId, by: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(whom).or_default().falls;
        *falls = falls.saturating_add(times);
        let hits = &mut self.by_entity.entry(by).or_default().hits;
        *hits = hits.saturating_add(times);
    }

    /// Somebody was not hit by somebody after all, or that is not to be told yet.
    pub fn take_back(&mut self, whom: EntityId, by: EntityId, times: u32) {
        let falls = &mut self.by_entity.entry(whom).or_default().falls;
        *falls = falls.saturating_sub(times);
        let hits = &mut self.by_entity.entry(by).or_default().hits;
        *hits = hits.saturating_sub(times);
    }

    /// An avatar's line.
    pub fn get(&self, entity: EntityId) -> Score {
        self.by_entity.get(&entity).copied().unwrap_or_default()
    }

    /// What an avatar is called: the person by name, ninjas after theirs.
    pub fn name(&self, entity: EntityId) -> String {
        let name = self.names.get(&entity.site).map_or("", String::as_str);
        let name = if name.is_empty() { "somebody" } else { name };
        if entity.index == 0 { name.into() } else { format!("{name}'s ninja {}", entity.index) }
    }

    /// All who hit somebody or were hit, the best first.
    pub fn table(&self) -> Vec<(EntityId, Score)> {
        let mut table: Vec<(EntityId, Score)> =
            self.by_entity.iter().map(|(entity, score)| (*entity, *score)).collect();
        table.sort_by_key(|(entity, score)| (core::cmp::Reverse(score.hits), score.falls, *entity));
        table
    }

    /// Hits in all.
    pub fn hits(&self) -> u32 {
        self.by_entity.values().fold(0, |sum, score| sum.saturating_add(score.hits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(site: u32, index: u8) -> EntityId {
        EntityId { site: Site(site), index }
    }

    #[test]
    fn what_is_put_down_comes_back() {
        let mut tally = Tally::new("Ada\u{7}Lovelace");
        assert_eq!(tally.name, "Ada");
        for n in 0..300u32 {
            tally.on_hit((n % 70) as u8, entity(n % 90, 1));
        }
        let bytes = tally.to_bytes();
        assert!(bytes.len() <= MAX_RECORD);
        assert_eq!(Tally::from_bytes(&bytes), Some(tally));
        for cut in 0..bytes.len() {
            _ = Tally::from_bytes(&bytes[..cut]);
        }
        assert_eq!(Tally::from_bytes(&[]), None);
        assert_eq!(Tally::from_bytes(&[1, 7, 0]), None, "no letter");
    }

    #[test]
    fn the_score_is_what_all_say_together() {
        let (mut one, mut two) = (Tally::new("one"), Tally::new(""));
        one.on_hit(0, entity(2, 0));
        one.on_hit(0, entity(2, 3));
        two.on_hit(3, entity(1, 0));
        let mut before = Tally::new("one");
        before.on_hit(0, entity(2, 0));
        let mut base = Tally::default();
        base.learn(&before);
        base.learn(&before);
        let scores = Scores::of([(Site(1), one.and(&base)), (Site(2), two)].into_iter());
        assert_eq!(scores.get(entity(1, 0)), Score { hits: 1, falls: 3 });
        assert_eq!(scores.get(entity(2, 0)), Score { hits: 2, falls: 0 });
        assert_eq!(scores.get(entity(2, 3)), Score { hits: 1, falls: 1 });
        assert_eq!(scores.table()[0].0, entity(2, 0));
        assert_eq!(scores.name(entity(2, 3)), "somebody's ninja 3");
        assert_eq!(scores.hits(), 4);
    }
}
