//! What we counted and no other server may know of yet: a player is not told of it, because it would be lost with us.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::EntityId;
use coplay_maze::Score;

/// Of one object so many counts wait for another server to know them; where there are more, some are known together with later ones.
const MAX_PENDING_COUNTS: usize = 16;

/// Of whom we counted what no other server may know of yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreplicatedScores {
    by_entity: BTreeMap<EntityId, PendingScore>,
}

#[derive(Clone, Debug)]
struct PendingScore {
    /// What we had counted as far as another server knows it.
    replicated: Score,
    /// What was told since, with the numbers of the events, the oldest first.
    pending: VecDeque<(u64, Score)>,
}

impl UnreplicatedScores {
    /// We count more of an object than this.
    pub(crate) fn on_increase(&mut self, entity: EntityId, than: Score) {
        self.by_entity.entry(entity).or_insert(PendingScore { replicated: than, pending: VecDeque::new() });
    }

    /// The others are told of a count with the event of this number.
    pub(crate) fn on_published(&mut self, entity: EntityId, count: Score, seq: u64) {
        if let Some(doubt) = self.by_entity.get_mut(&entity) {
            doubt.pending.truncate(MAX_PENDING_COUNTS - 1);
            doubt.pending.push_back((seq, count));
        }
    }

    /// Another server has all our events up to this one. `counted` is what we count of an object by now.
    pub(crate) fn on_replicated(&mut self, seq: u64, counted: impl Fn(EntityId) -> Score) {
        self.by_entity.retain(|entity, doubt| {
            while let Some((_, count)) = doubt.pending.front().filter(|(told, _)| *told <= seq) {
                doubt.replicated = *count;
                doubt.pending.pop_front();
            }
            counted(*entity) != doubt.replicated
        });
    }

    /// What another server knows of what we count of an object.
    pub(crate) fn replicated_score(&self, entity: EntityId, counted: Score) -> Score {
        self.by_entity.get(&entity).map_or(counted, |doubt| doubt.replicated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn unreplicated_scores_are_withheld_and_bounded() {
        let (entity, count) = (EntityId { site: WorldSiteId(1), index: 0 }, |hits| Score { hits, falls: 0 });
        let mut doubts = UnreplicatedScores::default();
        for hits in 1..=1_000 {
            doubts.on_increase(entity, count(hits - 1));
            doubts.on_published(entity, count(hits), hits.into());
        }
        let known = |doubts: &mut UnreplicatedScores, seq| {
            doubts.on_replicated(seq, |_| count(1_000));
            doubts.replicated_score(entity, count(1_000)).hits
        };
        assert_eq!(doubts.by_entity[&entity].pending.len(), MAX_PENDING_COUNTS);
        assert_eq!([0, 3, 999].map(|seq| known(&mut doubts, seq)), [0, 3, MAX_PENDING_COUNTS as u32 - 1]);
        assert_eq!((known(&mut doubts, 1_000), doubts.by_entity.len()), (1_000, 0));
    }
}
