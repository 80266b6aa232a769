//! What we counted and no other server may know of yet: a player is not told of it, because it would be lost with us.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::EntityId;
use coplay_maze::Score;

/// Of one object so many counts wait for another server to know them; where there are more, some are known together with later ones.
const MOST_WAITING: usize = 16;

/// Of whom we counted what no other server may know of yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    by_entity: BTreeMap<EntityId, Doubt>,
}

#[derive(Clone, Debug)]
struct Doubt {
    /// What we had counted as far as another server knows it.
    sure: Score,
    /// What was told since, with the numbers of the events, the oldest first.
    told: VecDeque<(u64, Score)>,
}

impl Doubts {
    /// We count more of an object than this.
    pub(crate) fn on_more(&mut self, entity: EntityId, than: Score) {
        self.by_entity.entry(entity).or_insert(Doubt { sure: than, told: VecDeque::new() });
    }

    /// The others are told of a count with the event of this number.
    pub(crate) fn on_told(&mut self, entity: EntityId, count: Score, seq: u64) {
        if let Some(doubt) = self.by_entity.get_mut(&entity) {
            doubt.told.truncate(MOST_WAITING - 1);
            doubt.told.push_back((seq, count));
        }
    }

    /// Another server has all our events up to this one. `counted` is what we count of an object by now.
    pub(crate) fn on_known(&mut self, seq: u64, counted: impl Fn(EntityId) -> Score) {
        self.by_entity.retain(|entity, doubt| {
            while let Some((_, count)) = doubt.told.front().filter(|(told, _)| *told <= seq) {
                doubt.sure = *count;
                doubt.told.pop_front();
            }
            counted(*entity) != doubt.sure
        });
    }

    /// What another server knows of what we count of an object.
    pub(crate) fn sure(&self, entity: EntityId, counted: Score) -> Score {
        self.by_entity.get(&entity).map_or(counted, |doubt| doubt.sure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn what_nobody_else_knows_is_doubted_and_however_much_that_is_it_is_bounded() {
        let (entity, count) = (EntityId { site: WorldSiteId(1), index: 0 }, |hits| Score { hits, falls: 0 });
        let mut doubts = Doubts::default();
        for hits in 1..=1_000 {
            doubts.on_more(entity, count(hits - 1));
            doubts.on_told(entity, count(hits), hits.into());
        }
        let known = |doubts: &mut Doubts, seq| {
            doubts.on_known(seq, |_| count(1_000));
            doubts.sure(entity, count(1_000)).hits
        };
        assert_eq!(doubts.by_entity[&entity].told.len(), MOST_WAITING);
        assert_eq!([0, 3, 999].map(|seq| known(&mut doubts, seq)), [0, 3, MOST_WAITING as u32 - 1]);
        assert_eq!((known(&mut doubts, 1_000), doubts.by_entity.len()), (1_000, 0));
    }
}
