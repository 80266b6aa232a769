//! Everything that is known of a world: what all events come to, in whatever order they were learned.
//!
//! # What is forgotten
//!
//! Who is in the world is told of several times a second. So of whom nothing was told for [long](RETENTION_TICKS) is not in it, whoever owned it and
//! whether it said goodbye or not: where it stood and what it was called is forgotten by all servers as the world's time goes on, and only
//! its score stays. Who takes an object over does so in an epoch that is no lower than the tick: so who comes back after that counts more than
//! all that was said of it before, also where that is still known, and what is learned late, or from a server that was away, is older than
//! [`RETENTION_TICKS`] and forgotten with the next look. Of scores of those who are gone the greatest are kept, each count by itself, which is the same in
//! whatever order they are learned.

use std::collections::BTreeMap;

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{Rules, Score};

use crate::entity_record::{EntityRecord, MAX_COUNTING_SERVERS, OwnershipEpoch, Placement, count_weight};
use crate::entity_update::{
    EntityUpdate, Reader, Update, parse_name, put_avatar, put_entity, put_score, put_short_bytes,
};

/// The most objects of a world; who claims more is mistaken.
pub const MAX_ENTITIES: usize = 16_384;
/// With so many objects nobody new is let in: those whom other servers let in at the same time have room, too.
const ADMISSION_LIMIT: usize = MAX_ENTITIES - 1_024;
/// Of those who are gone so many counts are kept.
const MAX_DEPARTED_COUNTS: usize = 8_192;
/// Of whom nothing was told for so many ticks, five minutes, only the score is known.
pub const RETENTION_TICKS: u32 = 30_000;

/// All objects of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityStore {
    records: BTreeMap<EntityId, EntityRecord>,
}

impl EntityStore {
    /// What is known of an object.
    pub fn get(&self, entity: EntityId) -> Option<&EntityRecord> {
        self.records.get(&entity)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, &EntityRecord)> {
        self.records.iter().map(|(entity, being)| (*entity, being))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Learns what a server says. Whether that was news.
    pub fn apply(&mut self, said_by: SourceId, deed: EntityUpdate) -> bool {
        let Some(being) = self.record_mut(deed.entity) else { return false };
        match deed.update {
            Update::Name { epoch, name } => being.set_name(OwnershipEpoch { epoch, owner: said_by }, name),
            Update::Placement { epoch, tick, avatar } => {
                being.set_placement(Placement { ownership: OwnershipEpoch { epoch, owner: said_by }, tick, avatar })
            }
            Update::Score(count) => being.counts(said_by, count),
        }
    }

    /// Whether nobody new is let in.
    pub fn is_full(&self) -> bool {
        self.records.len() >= ADMISSION_LIMIT
    }

    /// Whether an object may come, because there is room for it or it is known already.
    pub fn has_room_for(&self, entity: EntityId) -> bool {
        !self.is_full() || self.records.contains_key(&entity)
    }

    fn record_mut(&mut self, entity: EntityId) -> Option<&mut EntityRecord> {
        let has_room = self.records.len() < MAX_ENTITIES || self.records.contains_key(&entity);
        has_room.then(|| self.records.entry(entity).or_default())
    }

    /// How often an object hit and fell.
    pub fn score(&self, entity: EntityId) -> Score {
        self.get(entity).map_or_else(Score::default, EntityRecord::score)
    }

    /// The same, as one server counted.
    pub fn count_by(&self, entity: EntityId, counted_by: SourceId) -> Score {
        self.get(entity).map_or_else(Score::default, |being| being.count_by(counted_by))
    }

    /// Forgets, given the tick, what was not told of for long, and of scores what is too much. Who does not stand anywhere any more.
    pub fn expire(&mut self, tick: u32) -> Vec<EntityId> {
        let oldest = tick.saturating_sub(RETENTION_TICKS);
        let gone = self.records.iter_mut().filter_map(|(entity, being)| being.expire_before(oldest).then_some(*entity));
        let gone = gone.collect();
        self.evict_departed_counts();
        self.records.retain(|_, being| *being != EntityRecord::default());
        gone
    }

    fn evict_departed_counts(&mut self) {
        let past = self.records.iter().filter(|(_, being)| being.is_score_only());
        let counts = past.flat_map(|(entity, being)| {
            being.all_counts().map(|(counted_by, count)| (count_weight(count), *entity, counted_by))
        });
        let mut counts: Vec<_> = counts.collect();
        let Some(most) = counts.len().checked_sub(MAX_DEPARTED_COUNTS).filter(|most| *most > 0) else { return };
        counts.select_nth_unstable(most);
        for (_, entity, counted_by) in &counts[..most] {
            self.records.get_mut(entity).into_iter().for_each(|being| being.remove_count(*counted_by));
        }
    }

    /// A number that is the same wherever the same is known.
    pub fn digest(&self, rules: &Rules) -> u64 {
        xxh64(0, &self.to_bytes(rules))
    }

    /// All of it as bytes.
    pub fn to_bytes(&self, rules: &Rules) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (entity, being) in &self.records {
            put_entity(&mut bytes, *entity);
            put_name(&mut bytes, being.name_and_ownership());
            put_placement(&mut bytes, rules, being.placement());
            bytes.extend_from_slice(&(being.all_counts().len() as u32).to_le_bytes());
            for (counted_by, count) in being.all_counts() {
                bytes.extend_from_slice(&counted_by.0.to_le_bytes());
                put_score(&mut bytes, count);
            }
        }
        bytes
    }

    /// What is known by the word of one server.
    pub fn asserted_by(&self, source: SourceId) -> Self {
        let said = self.records.iter().map(|(entity, being)| (*entity, being.asserted_by(source)));
        Self { records: said.filter(|(_, being)| *being != EntityRecord::default()).collect() }
    }

    /// Reads what another knows; `None` if nobody would say so.
    pub fn from_bytes(bytes: &[u8], rules: &Rules) -> Option<Self> {
        let (mut register, mut reader) = (Self::default(), Reader(bytes));
        while !reader.rest().is_empty() {
            let entity = reader.entity()?;
            *register.record_mut(entity)? = read_record(&mut reader, rules)?;
        }
        Some(register)
    }

    /// Learns all that another knows. Of which objects that was news.
    pub fn merge(&mut self, other: Self) -> Vec<EntityId> {
        let mut news = Vec::new();
        for (entity, known) in other.records {
            if self.record_mut(entity).is_some_and(|being| being.merge(known)) {
                news.push(entity);
            }
        }
        news
    }
}

fn put_ownership(bytes: &mut Vec<u8>, term: OwnershipEpoch) {
    bytes.extend_from_slice(&term.epoch.to_le_bytes());
    bytes.extend_from_slice(&term.owner.0.to_le_bytes());
}

fn read_ownership(reader: &mut Reader<'_>) -> Option<OwnershipEpoch> {
    Some(OwnershipEpoch { epoch: reader.u32()?, owner: SourceId(reader.u32()?) })
}

fn put_name(bytes: &mut Vec<u8>, naming: Option<&(OwnershipEpoch, String)>) {
    let Some((term, name)) = naming else { return bytes.push(0) };
    bytes.push(1);
    put_ownership(bytes, *term);
    put_short_bytes(bytes, name.as_bytes());
}

fn put_placement(bytes: &mut Vec<u8>, rules: &Rules, stand: Option<&Placement>) {
    let Some(stand) = stand else { return bytes.push(0) };
    bytes.push(1);
    put_ownership(bytes, stand.ownership);
    bytes.extend_from_slice(&stand.tick.to_le_bytes());
    let mut state = Vec::new();
    stand.avatar.iter().for_each(|avatar| put_avatar(&mut state, rules, avatar));
    put_short_bytes(bytes, &state);
}

fn read_record(reader: &mut Reader<'_>, rules: &Rules) -> Option<EntityRecord> {
    let mut being = EntityRecord::default();
    if reader.take()? == [1] {
        being.set_name(read_ownership(reader)?, parse_name(reader.short_bytes()?)?);
    }
    if reader.take()? == [1] {
        let (term, tick) = (read_ownership(reader)?, reader.u32()?);
        let avatar = match reader.short_bytes()? {
            [] => None,
            state => Some(rules.decode(state)?),
        };
        being.set_placement(Placement { ownership: term, tick, avatar });
    }
    for _ in 0..reader.u32().filter(|counts| *counts as usize <= MAX_COUNTING_SERVERS)? {
        let (counted_by, count) = (SourceId(reader.u32()?), reader.score()?);
        being.counts(counted_by, count);
    }
    Some(being)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::{Avatar, Maze};
    use coplay_sim::random::Random;

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    fn sample_store() -> (EntityStore, Rules) {
        let (mut register, rules) = (EntityStore::default(), Rules::new(Maze::new(7, 8)));
        for (source, number, epoch) in [(1, 10, 1), (1, 11, 1), (2, 12, 1), (2, 10, 2), (3, 13, 1)] {
            let avatar = (number != 13).then(|| rules.spawn_avatar(&[], number.into()));
            let facts = [
                Update::Name { epoch, name: format!("player {number}") },
                Update::Placement { epoch, tick: 100 * source, avatar },
                Update::Score(Score { hits: source, falls: epoch }),
            ];
            for fact in facts {
                assert!(register.apply(SourceId(source), EntityUpdate { entity: entity(number), update: fact }));
            }
        }
        (register, rules)
    }

    #[test]
    fn store_round_trips_and_garbage_is_rejected() {
        let (register, rules) = sample_store();
        let bytes = register.to_bytes(&rules);
        assert_eq!(EntityStore::from_bytes(&bytes, &rules), Some(register.clone()));
        for cut in 1..bytes.len() {
            assert_ne!(EntityStore::from_bytes(&bytes[..cut], &rules), Some(register.clone()));
        }
        let mut flipped = bytes.clone();
        for at in 0..flipped.len() {
            flipped[at] ^= 0x55;
            _ = EntityStore::from_bytes(&flipped, &rules);
        }
    }

    #[test]
    fn merging_all_sources_restores_the_store() {
        let (register, rules) = sample_store();
        let mut whole = EntityStore::default();
        for source in [3, 1, 2] {
            whole.merge(register.asserted_by(SourceId(source)));
        }
        assert_eq!(whole, register);
        assert_eq!(whole.digest(&rules), register.digest(&rules));
        assert_eq!(register.score(entity(10)), Score { hits: 3, falls: 3 });
        assert_eq!(register.get(entity(12)).map(EntityRecord::name), Some("player 12"));
    }

    fn placement_update(entity: EntityId, epoch: u32, tick: u32, avatar: Option<Avatar>) -> EntityUpdate {
        EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } }
    }

    fn add_departed(register: &mut EntityStore, number: u32, tick: u32, score: u32) {
        let (entity, source) = (entity(number), SourceId(1));
        register.apply(source, EntityUpdate { entity, update: Update::Name { epoch: tick, name: "Ada".into() } });
        register.apply(source, placement_update(entity, tick, tick, None));
        register.apply(source, EntityUpdate { entity, update: Update::Score(Score { hits: score, falls: 0 }) });
    }

    #[test]
    fn departed_players_free_their_room() {
        let mut register = EntityStore::default();
        let most = ADMISSION_LIMIT as u32;
        (0..most).for_each(|number| add_departed(&mut register, number, 100, 0));
        assert!(register.is_full() && !register.has_room_for(entity(most)) && register.has_room_for(entity(0)));
        assert_eq!(register.expire(100 + RETENTION_TICKS), []);
        assert!(register.is_full());
        assert_eq!(register.expire(101 + RETENTION_TICKS).len(), ADMISSION_LIMIT);
        assert!(register.is_empty());
        // Also not if all of them have a score, of which the least go.
        (0..most).for_each(|number| add_departed(&mut register, number, 100, 1 + number));
        register.expire(101 + RETENTION_TICKS);
        assert_eq!(register.len(), MAX_DEPARTED_COUNTS);
        assert_eq!(register.score(entity(0)), Score::default());
        assert_eq!(register.score(entity(most - 1)).hits, most);
        assert!(!register.is_full());
    }

    fn random_below(luck: &mut Random, most: u32) -> u32 {
        luck.below(most.into()) as u32
    }

    /// What happens in a world whose players come and go: when it is told, by whom, and what.
    fn random_history(luck: &mut Random, rules: &Rules) -> Vec<(u32, SourceId, EntityUpdate)> {
        let (mut told, mut counts) = (Vec::new(), BTreeMap::new());
        for number in 0..12 {
            let (entity, mut tick) = (entity(number), random_below(luck, RETENTION_TICKS));
            for _ in 0..1 + random_below(luck, 4) {
                let (epoch, source) = (tick, SourceId(1 + random_below(luck, 3)));
                told.push((
                    tick,
                    source,
                    EntityUpdate { entity, update: Update::Name { epoch, name: format!("{epoch}") } },
                ));
                for _ in 0..1 + random_below(luck, 4) {
                    let avatar = Some(rules.spawn_avatar(&[], tick.into()));
                    told.push((tick, source, placement_update(entity, epoch, tick, avatar)));
                    tick += 25;
                }
                if random_below(luck, 3) == 0 {
                    let count: &mut Score = counts.entry((number, source)).or_default();
                    count.hits += 1;
                    told.push((tick, source, EntityUpdate { entity, update: Update::Score(*count) }));
                }
                // As often as not in the tick in which it was still told of.
                tick -= 25 * random_below(luck, 2);
                told.push((tick, source, placement_update(entity, epoch, tick, None)));
                tick += 1 + random_below(luck, 3 * RETENTION_TICKS / 2);
            }
        }
        told.sort_by_key(|(tick, ..)| *tick);
        told
    }

    #[test]
    fn late_updates_do_not_revive_expired_entities() {
        let (mut luck, rules) = (Random::new(5), Rules::new(Maze::new(7, 8)));
        for _ in 0..60 {
            let told = random_history(&mut luck, &rules);
            let end = told.last().map_or(0, |(tick, ..)| *tick);
            let late = |luck: &mut Random, most: u32| {
                let mut heard: Vec<_> =
                    told.iter().map(|fact| (fact.0 + random_below(luck, most), fact.clone())).collect();
                heard.sort_by_key(|(at, _)| *at);
                heard
            };
            // At once, soon, after minutes, and from one that was away for longer than anything is kept.
            let registers = [1, 100, RETENTION_TICKS, 4 * RETENTION_TICKS].map(|most| {
                let (mut register, mut now) = (EntityStore::default(), 0);
                for (at, (tick, source, deed)) in late(&mut luck, most) {
                    while now + 100 < at {
                        now += 100;
                        register.expire(now);
                    }
                    let entity = deed.entity;
                    register.apply(source, deed);
                    if tick + RETENTION_TICKS < at {
                        register.expire(at);
                        assert!(
                            register
                                .get(entity)
                                .and_then(EntityRecord::placement)
                                .is_none_or(|stand| stand.tick + RETENTION_TICKS >= at)
                        );
                    }
                }
                register.expire(end + RETENTION_TICKS);
                register.expire(end + 4 * RETENTION_TICKS + 1);
                register
            });
            assert!(registers[0].iter().all(|(_, being)| being.is_score_only()));
            assert!(registers.iter().all(|register| *register == registers[0]), "{registers:#?}");
        }
    }

    /// A server that was away still knows what all others forgot, also that somebody left who is back by now.
    #[test]
    fn returning_player_overrides_a_stale_departure() {
        let rules = Rules::new(Maze::new(7, 8));
        let (mut away, mut here) = (EntityStore::default(), EntityStore::default());
        add_departed(&mut away, 1, 100, 0);
        let back =
            placement_update(entity(1), 2 * RETENTION_TICKS, 2 * RETENTION_TICKS, Some(rules.spawn_avatar(&[], 1)));
        assert!(here.apply(SourceId(2), back));
        for _ in 0..2 {
            here.merge(away.clone());
            away.merge(here.clone());
        }
        assert_eq!((away.expire(2 * RETENTION_TICKS), here.expire(2 * RETENTION_TICKS)), (vec![], vec![]));
        assert!(
            away == here
                && here.get(entity(1)).and_then(EntityRecord::placement).is_some_and(|stand| stand.avatar.is_some())
        );
    }
}
