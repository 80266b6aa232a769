//! Known state of a world: the result of all updates, whatever the order in which they arrived.
//!
//! # Expiry
//!
//! The owner of an entity sends updates several times a second. So an entity without an update for [`RETENTION_TICKS`]
//! is not in the world, whichever server owned it and whether it left or not: as the world's time goes on, all servers
//! forget its placement and name, and keep only its score. A server acquires an entity in an epoch that is no lower
//! than the tick. So a player that returns later overrides everything that was asserted about it before, even on a
//! server that has not forgotten it. An update that arrives after more than [`RETENTION_TICKS`], such as from a server
//! that was away, expires at the next check. Of the counts of hits and falls of departed entities only the 8,192
//! largest are kept. Each count is judged by itself, so the order in which the counts arrive makes no difference.

use std::collections::BTreeMap;

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{MazeRules, Score};

use crate::entity_record::{EntityRecord, MAX_COUNTING_SERVERS, OwnershipEpoch, Placement, count_weight};
use crate::entity_update::{
    EntityUpdate, Reader, Update, parse_name, put_avatar, put_entity, put_score, put_short_bytes,
};

/// Largest number of entities in a world. Updates of further ones are ignored.
pub const MAX_ENTITIES: usize = 16_384;
/// Number of known entities at which no new player is admitted. The room from there to [`MAX_ENTITIES`] is for players
/// that other servers admit at the same time.
const ADMISSION_LIMIT: usize = MAX_ENTITIES - 1_024;
/// Largest number of counts of departed entities that are kept, each by one server of one entity.
const MAX_DEPARTED_COUNTS: usize = 8_192;
/// Number of ticks without an update after which only the score of an entity is kept: five minutes.
pub const RETENTION_TICKS: u32 = 30_000;

/// Known state of all entities of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityStore {
    records: BTreeMap<EntityId, EntityRecord>,
}

impl EntityStore {
    /// Returns the known state of an entity; `None` if nothing is known of it.
    pub fn get(&self, entity: EntityId) -> Option<&EntityRecord> {
        self.records.get(&entity)
    }

    /// Returns all known entities, ordered by id, with their states.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, &EntityRecord)> {
        self.records.iter().map(|(entity, record)| (*entity, record))
    }

    /// Returns the number of known entities, including departed ones whose score is kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether no entity is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Applies an update of a server. Returns whether it changed anything.
    pub fn apply(&mut self, source: SourceId, entity_update: EntityUpdate) -> bool {
        let Some(record) = self.record_mut(entity_update.entity) else { return false };
        match entity_update.update {
            Update::Name { epoch, name } => record.set_name(OwnershipEpoch { epoch, owner: source }, name),
            Update::Placement { epoch, tick, avatar } => {
                record.set_placement(Placement { ownership: OwnershipEpoch { epoch, owner: source }, tick, avatar })
            }
            Update::Score(count) => record.record_count(source, count),
        }
    }

    /// Returns whether at least 15,360 entities are known, so that no new players are admitted.
    pub fn is_full(&self) -> bool {
        self.records.len() >= ADMISSION_LIMIT
    }

    /// Returns whether an entity may join, because there is room or it is already known.
    pub fn has_room_for(&self, entity: EntityId) -> bool {
        !self.is_full() || self.records.contains_key(&entity)
    }

    fn record_mut(&mut self, entity: EntityId) -> Option<&mut EntityRecord> {
        let has_room = self.records.len() < MAX_ENTITIES || self.records.contains_key(&entity);
        has_room.then(|| self.records.entry(entity).or_default())
    }

    /// Returns the hits and falls of an entity, summed over the counts of all servers.
    pub fn score(&self, entity: EntityId) -> Score {
        self.get(entity).map_or_else(Score::default, EntityRecord::score)
    }

    /// Returns the hits and falls of an entity as one server counted them.
    pub fn count_by(&self, entity: EntityId, counted_by: SourceId) -> Score {
        self.get(entity).map_or_else(Score::default, |record| record.count_by(counted_by))
    }

    /// Drops the placements and names that have expired at this tick, and the smallest scores of departed entities
    /// beyond the limit. Returns the entities that lost their placement.
    pub fn expire(&mut self, tick: u32) -> Vec<EntityId> {
        let oldest = tick.saturating_sub(RETENTION_TICKS);
        let gone =
            self.records.iter_mut().filter_map(|(entity, record)| record.expire_before(oldest).then_some(*entity));
        let gone = gone.collect();
        self.evict_departed_counts();
        self.records.retain(|_, record| *record != EntityRecord::default());
        gone
    }

    fn evict_departed_counts(&mut self) {
        let departed = self.records.iter().filter(|(_, record)| record.is_score_only());
        let counts = departed.flat_map(|(entity, record)| {
            record.all_counts().map(|(counted_by, count)| (count_weight(count), *entity, counted_by))
        });
        let mut counts: Vec<_> = counts.collect();
        let Some(excess) = counts.len().checked_sub(MAX_DEPARTED_COUNTS).filter(|excess| *excess > 0) else { return };
        counts.select_nth_unstable(excess);
        for (_, entity, counted_by) in &counts[..excess] {
            self.records.get_mut(entity).into_iter().for_each(|record| record.remove_count(*counted_by));
        }
    }

    /// Returns a hash of the known state. Equal states have equal hashes.
    pub fn digest(&self, rules: &MazeRules) -> u64 {
        xxh64(0, &self.to_bytes(rules))
    }

    /// Encodes the known state, for a snapshot or a digest.
    pub fn to_bytes(&self, rules: &MazeRules) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (entity, record) in &self.records {
            put_entity(&mut bytes, *entity);
            put_name(&mut bytes, record.name_and_ownership());
            put_placement(&mut bytes, rules, record.placement());
            bytes.extend_from_slice(&(record.all_counts().len() as u32).to_le_bytes());
            for (counted_by, count) in record.all_counts() {
                bytes.extend_from_slice(&counted_by.0.to_le_bytes());
                put_score(&mut bytes, count);
            }
        }
        bytes
    }

    /// Returns the part of the known state that one server asserts, without entities of which it asserts nothing.
    pub fn asserted_by(&self, source: SourceId) -> Self {
        let asserted = self.records.iter().map(|(entity, record)| (*entity, record.asserted_by(source)));
        Self { records: asserted.filter(|(_, record)| *record != EntityRecord::default()).collect() }
    }

    /// Decodes a known state; `None` if it is malformed or has more than [`MAX_ENTITIES`] entities.
    pub fn from_bytes(bytes: &[u8], rules: &MazeRules) -> Option<Self> {
        let (mut store, mut reader) = (Self::default(), Reader(bytes));
        while !reader.rest().is_empty() {
            let entity = reader.entity()?;
            *store.record_mut(entity)? = read_record(&mut reader, rules)?;
        }
        Some(store)
    }

    /// Merges the state that another server knows. Returns the entities that changed.
    pub fn merge(&mut self, other: Self) -> Vec<EntityId> {
        let mut changed = Vec::new();
        for (entity, known) in other.records {
            if self.record_mut(entity).is_some_and(|record| record.merge(known)) {
                changed.push(entity);
            }
        }
        changed
    }
}

fn put_ownership(bytes: &mut Vec<u8>, ownership: OwnershipEpoch) {
    bytes.extend_from_slice(&ownership.epoch.to_le_bytes());
    bytes.extend_from_slice(&ownership.owner.0.to_le_bytes());
}

fn read_ownership(reader: &mut Reader<'_>) -> Option<OwnershipEpoch> {
    Some(OwnershipEpoch { epoch: reader.u32()?, owner: SourceId(reader.u32()?) })
}

fn put_name(bytes: &mut Vec<u8>, name: Option<&(OwnershipEpoch, String)>) {
    let Some((ownership, name)) = name else { return bytes.push(0) };
    bytes.push(1);
    put_ownership(bytes, *ownership);
    put_short_bytes(bytes, name.as_bytes());
}

fn put_placement(bytes: &mut Vec<u8>, rules: &MazeRules, placement: Option<&Placement>) {
    let Some(placement) = placement else { return bytes.push(0) };
    bytes.push(1);
    put_ownership(bytes, placement.ownership);
    bytes.extend_from_slice(&placement.tick.to_le_bytes());
    let mut state = Vec::new();
    placement.avatar.iter().for_each(|avatar| put_avatar(&mut state, rules, avatar));
    put_short_bytes(bytes, &state);
}

fn read_record(reader: &mut Reader<'_>, rules: &MazeRules) -> Option<EntityRecord> {
    let mut record = EntityRecord::default();
    if reader.take()? == [1] {
        record.set_name(read_ownership(reader)?, parse_name(reader.short_bytes()?)?);
    }
    if reader.take()? == [1] {
        let (ownership, tick) = (read_ownership(reader)?, reader.u32()?);
        let avatar = match reader.short_bytes()? {
            [] => None,
            state => Some(rules.decode(state)?),
        };
        record.set_placement(Placement { ownership, tick, avatar });
    }
    for _ in 0..reader.u32().filter(|counts| *counts as usize <= MAX_COUNTING_SERVERS)? {
        let (counted_by, count) = (SourceId(reader.u32()?), reader.score()?);
        record.record_count(counted_by, count);
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_links::random::Random;
    use coplay_maze::{Avatar, Maze};

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    fn sample_store() -> (EntityStore, MazeRules) {
        let (mut store, rules) = (EntityStore::default(), MazeRules::new(Maze::new(7, 8)));
        for (source, number, epoch) in [(1, 10, 1), (1, 11, 1), (2, 12, 1), (2, 10, 2), (3, 13, 1)] {
            let avatar = (number != 13).then(|| rules.spawn_avatar(&[], number.into()));
            let updates = [
                Update::Name { epoch, name: format!("player {number}") },
                Update::Placement { epoch, tick: 100 * source, avatar },
                Update::Score(Score { hits: source, falls: epoch }),
            ];
            for update in updates {
                assert!(store.apply(SourceId(source), EntityUpdate { entity: entity(number), update }));
            }
        }
        (store, rules)
    }

    #[test]
    fn store_round_trips_and_garbage_is_rejected() {
        let (store, rules) = sample_store();
        let bytes = store.to_bytes(&rules);
        assert_eq!(EntityStore::from_bytes(&bytes, &rules), Some(store.clone()));
        for cut in 1..bytes.len() {
            assert_ne!(EntityStore::from_bytes(&bytes[..cut], &rules), Some(store.clone()));
        }
        let mut flipped = bytes.clone();
        for at in 0..flipped.len() {
            flipped[at] ^= 0x55;
            _ = EntityStore::from_bytes(&flipped, &rules);
        }
    }

    #[test]
    fn merging_all_sources_restores_the_store() {
        let (store, rules) = sample_store();
        let mut whole = EntityStore::default();
        for source in [3, 1, 2] {
            whole.merge(store.asserted_by(SourceId(source)));
        }
        assert_eq!(whole, store);
        assert_eq!(whole.digest(&rules), store.digest(&rules));
        assert_eq!(store.score(entity(10)), Score { hits: 3, falls: 3 });
        assert_eq!(store.get(entity(12)).map(EntityRecord::name), Some("player 12"));
    }

    fn placement_update(entity: EntityId, epoch: u32, tick: u32, avatar: Option<Avatar>) -> EntityUpdate {
        EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } }
    }

    fn add_departed(store: &mut EntityStore, number: u32, tick: u32, score: u32) {
        let (entity, source) = (entity(number), SourceId(1));
        store.apply(source, EntityUpdate { entity, update: Update::Name { epoch: tick, name: "Ada".into() } });
        store.apply(source, placement_update(entity, tick, tick, None));
        store.apply(source, EntityUpdate { entity, update: Update::Score(Score { hits: score, falls: 0 }) });
    }

    #[test]
    fn departed_players_free_their_room() {
        let mut store = EntityStore::default();
        let most = ADMISSION_LIMIT as u32;
        (0..most).for_each(|number| add_departed(&mut store, number, 100, 0));
        assert!(store.is_full() && !store.has_room_for(entity(most)) && store.has_room_for(entity(0)));
        assert_eq!(store.expire(100 + RETENTION_TICKS), []);
        assert!(store.is_full());
        assert_eq!(store.expire(101 + RETENTION_TICKS).len(), ADMISSION_LIMIT);
        assert!(store.is_empty());
        // The same if all departed players have scores, of which the smallest are dropped.
        (0..most).for_each(|number| add_departed(&mut store, number, 100, 1 + number));
        store.expire(101 + RETENTION_TICKS);
        assert_eq!(store.len(), MAX_DEPARTED_COUNTS);
        assert_eq!(store.score(entity(0)), Score::default());
        assert_eq!(store.score(entity(most - 1)).hits, most);
        assert!(!store.is_full());
    }

    fn random_below(rng: &mut Random, most: u32) -> u32 {
        rng.below(most.into()) as u32
    }

    /// Returns a random history of a world whose players come and go: tick, asserting server and update.
    fn random_history(rng: &mut Random, rules: &MazeRules) -> Vec<(u32, SourceId, EntityUpdate)> {
        let (mut history, mut counts) = (Vec::new(), BTreeMap::new());
        for number in 0..12 {
            let (entity, mut tick) = (entity(number), random_below(rng, RETENTION_TICKS));
            for _ in 0..1 + random_below(rng, 4) {
                let (epoch, source) = (tick, SourceId(1 + random_below(rng, 3)));
                history.push((
                    tick,
                    source,
                    EntityUpdate { entity, update: Update::Name { epoch, name: format!("{epoch}") } },
                ));
                for _ in 0..1 + random_below(rng, 4) {
                    let avatar = Some(rules.spawn_avatar(&[], tick.into()));
                    history.push((tick, source, placement_update(entity, epoch, tick, avatar)));
                    tick += 25;
                }
                if random_below(rng, 3) == 0 {
                    let count: &mut Score = counts.entry((number, source)).or_default();
                    count.hits += 1;
                    history.push((tick, source, EntityUpdate { entity, update: Update::Score(*count) }));
                }
                // In half the cases the player leaves in the tick of its last placement.
                tick -= 25 * random_below(rng, 2);
                history.push((tick, source, placement_update(entity, epoch, tick, None)));
                tick += 1 + random_below(rng, 3 * RETENTION_TICKS / 2);
            }
        }
        history.sort_by_key(|(tick, ..)| *tick);
        history
    }

    #[test]
    fn late_updates_do_not_revive_expired_entities() {
        let (mut rng, rules) = (Random::new(5), MazeRules::new(Maze::new(7, 8)));
        for _ in 0..60 {
            let history = random_history(&mut rng, &rules);
            let end = history.last().map_or(0, |(tick, ..)| *tick);
            let delayed = |rng: &mut Random, most: u32| {
                let mut received: Vec<_> =
                    history.iter().map(|update| (update.0 + random_below(rng, most), update.clone())).collect();
                received.sort_by_key(|(at, _)| *at);
                received
            };
            // Updates arrive at once, soon, after minutes, or from a server that was away for longer than the
            // retention.
            let stores = [1, 100, RETENTION_TICKS, 4 * RETENTION_TICKS].map(|most| {
                let (mut store, mut now) = (EntityStore::default(), 0);
                for (at, (tick, source, entity_update)) in delayed(&mut rng, most) {
                    while now + 100 < at {
                        now += 100;
                        store.expire(now);
                    }
                    let entity = entity_update.entity;
                    store.apply(source, entity_update);
                    if tick + RETENTION_TICKS < at {
                        store.expire(at);
                        assert!(
                            store
                                .get(entity)
                                .and_then(EntityRecord::placement)
                                .is_none_or(|placement| placement.tick + RETENTION_TICKS >= at)
                        );
                    }
                }
                store.expire(end + RETENTION_TICKS);
                store.expire(end + 4 * RETENTION_TICKS + 1);
                store
            });
            assert!(stores[0].iter().all(|(_, record)| record.is_score_only()));
            assert!(stores.iter().all(|store| *store == stores[0]), "{stores:#?}");
        }
    }

    /// A player that has returned stays, although a server that was away still asserts its earlier departure.
    #[test]
    fn returning_player_overrides_a_stale_departure() {
        let rules = MazeRules::new(Maze::new(7, 8));
        let (mut away, mut present) = (EntityStore::default(), EntityStore::default());
        add_departed(&mut away, 1, 100, 0);
        let back =
            placement_update(entity(1), 2 * RETENTION_TICKS, 2 * RETENTION_TICKS, Some(rules.spawn_avatar(&[], 1)));
        assert!(present.apply(SourceId(2), back));
        for _ in 0..2 {
            present.merge(away.clone());
            away.merge(present.clone());
        }
        assert_eq!((away.expire(2 * RETENTION_TICKS), present.expire(2 * RETENTION_TICKS)), (vec![], vec![]));
        assert!(
            away == present
                && present
                    .get(entity(1))
                    .and_then(EntityRecord::placement)
                    .is_some_and(|placement| placement.avatar.is_some())
        );
    }
}
