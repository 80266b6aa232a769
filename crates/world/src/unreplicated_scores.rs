//! Scores that this server counted and that perhaps no other server knows yet. Players do not see them, because a crash
//! of this server would lose them.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::EntityId;
use coplay_maze::Score;

/// Largest number of counts per entity that wait for replication. If there are more, the newest count replaces the one
/// before it.
const MAX_PENDING_COUNTS: usize = 16;

/// Scores that this server counted and that perhaps no other server knows yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreplicatedScores {
    by_entity: BTreeMap<EntityId, PendingScore>,
}

#[derive(Clone, Debug)]
struct PendingScore {
    /// Our count as far as another server knows it.
    replicated: Score,
    /// Counts issued after `replicated`, with the sequence numbers of their events, oldest first.
    pending: VecDeque<(u64, Score)>,
}

impl UnreplicatedScores {
    /// Notes that our count of an entity is about to grow beyond `count`.
    pub(crate) fn on_increase(&mut self, entity: EntityId, count: Score) {
        self.by_entity.entry(entity).or_insert(PendingScore { replicated: count, pending: VecDeque::new() });
    }

    /// Notes that a count was issued as the event with this sequence number.
    pub(crate) fn on_published(&mut self, entity: EntityId, count: Score, seq: u64) {
        if let Some(score) = self.by_entity.get_mut(&entity) {
            score.pending.truncate(MAX_PENDING_COUNTS - 1);
            score.pending.push_back((seq, count));
        }
    }

    /// Notes that another server has all our events up to `seq`. `counted` returns our present count of an entity.
    pub(crate) fn on_replicated(&mut self, seq: u64, counted: impl Fn(EntityId) -> Score) {
        self.by_entity.retain(|entity, score| {
            while let Some((_, count)) = score.pending.front().filter(|(issued, _)| *issued <= seq) {
                score.replicated = *count;
                score.pending.pop_front();
            }
            counted(*entity) != score.replicated
        });
    }

    /// Returns the part of our count of an entity that another server knows.
    pub(crate) fn replicated_score(&self, entity: EntityId, counted: Score) -> Score {
        self.by_entity.get(&entity).map_or(counted, |score| score.replicated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn unreplicated_scores_are_withheld_and_bounded() {
        let (entity, count) = (EntityId { site: WorldSiteId(1), index: 0 }, |hits| Score { hits, falls: 0 });
        let mut scores = UnreplicatedScores::default();
        for hits in 1..=1_000 {
            scores.on_increase(entity, count(hits - 1));
            scores.on_published(entity, count(hits), hits.into());
        }
        let known = |scores: &mut UnreplicatedScores, seq| {
            scores.on_replicated(seq, |_| count(1_000));
            scores.replicated_score(entity, count(1_000)).hits
        };
        assert_eq!(scores.by_entity[&entity].pending.len(), MAX_PENDING_COUNTS);
        assert_eq!([0, 3, 999].map(|seq| known(&mut scores, seq)), [0, 3, MAX_PENDING_COUNTS as u32 - 1]);
        assert_eq!((known(&mut scores, 1_000), scores.by_entity.len()), (1_000, 0));
    }
}
