//! Known state of an entity: its name, owner, placement and score.
//!
//! Every update of an entity is an absolute statement: "it is there", "it has this many hits and falls by our count".
//! If two updates contradict each other, one of them has the higher version and wins. So a record is the same whatever
//! the order and repetition of updates, two mirrors that were apart merge what they know, and nothing has to be undone.

use std::collections::BTreeMap;

use coplay::mirror::SourceId;
use coplay_maze::{Avatar, Score};

/// Largest number of servers whose counts of one entity are kept. If there are more, the largest counts are kept,
/// whatever the order in which they arrived.
pub(crate) const MAX_COUNTING_SERVERS: usize = 256;

/// Ownership of an entity. Of two ownerships, the one with the higher epoch wins, or the one with the higher owner if
/// the epochs are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnershipEpoch {
    /// Epoch, which grows whenever a server acquires the entity.
    pub epoch: u32,
    /// Run of the server that acquired the entity.
    pub owner: SourceId,
}

/// Placement of an entity, as asserted by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Ownership under which the placement is asserted.
    pub ownership: OwnershipEpoch,
    /// World tick of the state.
    pub tick: u32,
    /// State of the avatar in that tick; `None` if it has left the world.
    pub avatar: Option<Avatar>,
}

impl Placement {
    /// Returns the version: of two placements, the one with the higher version wins. A departure wins over a state of
    /// the same ownership and tick.
    fn version(&self) -> (OwnershipEpoch, u32, bool) {
        (self.ownership, self.tick, self.avatar.is_none())
    }
}

/// Returns the weight of a count: where there are too many counts, the lightest are dropped first.
pub(crate) fn count_weight(count: Score) -> u64 {
    u64::from(count.hits) + u64::from(count.falls)
}

/// Known state of an entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityRecord {
    /// Name, with the ownership under which it is asserted.
    name: Option<(OwnershipEpoch, String)>,
    placement: Option<Placement>,
    /// Hits and falls, as counted by each server.
    counts: BTreeMap<SourceId, Score>,
    /// Sums of the counts: hits and falls.
    total: [u64; 2],
}

impl EntityRecord {
    /// Returns the name; empty if none is known.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", |(_, name)| name)
    }

    /// Returns the name, with the ownership under which it is asserted; `None` if none is known.
    pub fn name_and_ownership(&self) -> Option<&(OwnershipEpoch, String)> {
        self.name.as_ref()
    }

    /// Returns the placement of the highest version; `None` if none is known or it has expired.
    pub fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Returns the ownership under which the placement is asserted; `None` without a placement.
    pub fn ownership(&self) -> Option<OwnershipEpoch> {
        self.placement.as_ref().map(|placement| placement.ownership)
    }

    /// Sets the name if its ownership is higher than that of the known name. Returns whether the name was set.
    pub fn set_name(&mut self, ownership: OwnershipEpoch, name: String) -> bool {
        let is_new = self.name.as_ref().is_none_or(|(known, _)| *known < ownership);
        if is_new {
            self.name = Some((ownership, name));
        }
        is_new
    }

    /// Sets the placement if its version is higher than that of the known placement. Returns whether the placement was
    /// set.
    pub fn set_placement(&mut self, placement: Placement) -> bool {
        let is_new = self.placement.as_ref().is_none_or(|known| known.version() < placement.version());
        if is_new {
            self.placement = Some(placement);
        }
        is_new
    }

    /// Records the hits and falls that one server counted, each if it is higher than known. Beyond 256 servers, drops
    /// the smallest count. Returns whether the hits or falls were higher than known.
    pub fn record_count(&mut self, counted_by: SourceId, count: Score) -> bool {
        let known = self.count_by(counted_by);
        let most = Score { hits: known.hits.max(count.hits), falls: known.falls.max(count.falls) };
        if most == known {
            return false;
        }
        self.counts.insert(counted_by, most);
        self.total[0] += u64::from(most.hits - known.hits);
        self.total[1] += u64::from(most.falls - known.falls);
        if self.counts.len() > MAX_COUNTING_SERVERS
            && let Some((_, least)) = self.counts.iter().map(|(source, count)| (count_weight(*count), *source)).min()
        {
            self.remove_count(least);
        }
        true
    }

    /// Returns the hits and falls that one server counted; 0 if its count is not known.
    pub fn count_by(&self, counted_by: SourceId) -> Score {
        self.counts.get(&counted_by).copied().unwrap_or_default()
    }

    /// Returns the hits and falls that each server counted, with the server.
    pub fn all_counts(&self) -> impl ExactSizeIterator<Item = (SourceId, Score)> {
        self.counts.iter().map(|(counted_by, count)| (*counted_by, *count))
    }

    /// Returns the sums of the hits and falls that all servers counted.
    pub fn score(&self) -> Score {
        let [hits, falls] = self.total.map(|sum| sum.min(u32::MAX.into()) as u32);
        Score { hits, falls }
    }

    /// Drops the count of one server.
    pub(crate) fn remove_count(&mut self, counted_by: SourceId) {
        let Score { hits, falls } = self.counts.remove(&counted_by).unwrap_or_default();
        self.total = [self.total[0] - u64::from(hits), self.total[1] - u64::from(falls)];
    }

    /// Drops a placement from before a tick. Without a placement, also drops a name from an epoch before that tick; the
    /// score stays. Returns whether a placement was dropped.
    pub(crate) fn expire_before(&mut self, tick: u32) -> bool {
        let has_expired = self.placement.take_if(|placement| placement.tick < tick).is_some();
        if self.placement.is_none() {
            // No epoch is lower than the tick in which it began.
            self.name.take_if(|(ownership, _)| ownership.epoch < tick);
        }
        has_expired
    }

    /// Returns whether neither a placement nor a name is known.
    pub(crate) fn is_score_only(&self) -> bool {
        self.placement.is_none() && self.name.is_none()
    }

    /// Returns the part of the record that one server asserts: name and placement as owner, and its own count.
    pub fn asserted_by(&self, source: SourceId) -> Self {
        let mut asserted = Self {
            name: self.name.clone().filter(|(ownership, _)| ownership.owner == source),
            placement: self.placement.clone().filter(|placement| placement.ownership.owner == source),
            ..Self::default()
        };
        asserted.record_count(source, self.count_by(source));
        asserted
    }

    /// Merges the state that another server knows. Returns whether anything was new.
    pub fn merge(&mut self, other: Self) -> bool {
        let mut is_new = false;
        for (counted_by, count) in other.all_counts() {
            is_new |= self.record_count(counted_by, count);
        }
        is_new |= other.placement.is_some_and(|placement| self.set_placement(placement));
        is_new | other.name.is_some_and(|(ownership, name)| self.set_name(ownership, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::{Maze, MazeRules};

    fn placement(epoch: u32, owner: u32, tick: u32) -> Placement {
        Placement { ownership: OwnershipEpoch { epoch, owner: SourceId(owner) }, tick, avatar: None }
    }

    fn score(hits: u32, falls: u32) -> Score {
        Score { hits, falls }
    }

    /// Function that applies one update to a record.
    type UpdateFn = Box<dyn Fn(&mut EntityRecord)>;

    /// Returns placement, count and name updates of one entity from servers 5, 4 and 6. Server 5 owns it in epoch 1;
    /// servers 4 and 6 both claim epoch 2.
    fn updates() -> Vec<UpdateFn> {
        let avatar = Some(MazeRules::new(Maze::new(7, 8)).spawn_avatar(&[], 1));
        let placements = [
            placement(1, 5, 100),
            placement(1, 5, 140),
            placement(2, 4, 120),
            placement(2, 6, 110),
            placement(1, 5, 900),
        ];
        let counts = [(5, 1, 0), (5, 2, 2), (4, 1, 1), (6, 0, 3)];
        let mut updates: Vec<UpdateFn> = Vec::new();
        for placement in placements.into_iter().chain([Placement { avatar, ..placement(2, 6, 110) }]) {
            updates.push(Box::new(move |record| _ = record.set_placement(placement.clone())));
        }
        for (source, hits, falls) in counts {
            updates.push(Box::new(move |record| _ = record.record_count(SourceId(source), score(hits, falls))));
        }
        for (epoch, owner, name) in [(1, 5, "Ada"), (2, 4, "Bob"), (2, 6, "Eve")] {
            let ownership = OwnershipEpoch { epoch, owner: SourceId(owner) };
            updates.push(Box::new(move |record| _ = record.set_name(ownership, name.into())));
        }
        updates
    }

    #[test]
    fn updates_commute_and_are_idempotent() {
        let updates = updates();
        let applied = |order: &mut dyn Iterator<Item = usize>| {
            let mut record = EntityRecord::default();
            order.for_each(|at| updates[at](&mut record));
            record
        };
        let all = applied(&mut (0..updates.len()));
        assert_eq!(
            all.placement(),
            Some(&placement(2, 6, 110)),
            "the higher ownership does not win, whatever the tick, and then the departure"
        );
        assert_eq!(all.name(), "Eve");
        assert_eq!(all.score(), score(3, 6));
        for first in 0..updates.len() {
            let turned = |at: usize| (at * 7 + first) % updates.len();
            assert_eq!(applied(&mut (0..updates.len()).map(turned)), all);
            assert_eq!(applied(&mut (0..updates.len()).rev().chain(0..updates.len())), all, "a repetition changes it");
            let mut one = applied(&mut (0..first));
            assert!(one.merge(applied(&mut (first..updates.len()))));
            assert_eq!(one, all, "merging two parts differs");
            assert!(!one.merge(all.clone()));
        }
    }

    /// If more servers count than are kept, the same counts remain in any order of arrival.
    #[test]
    fn largest_counts_are_kept_in_any_order() {
        let sources = MAX_COUNTING_SERVERS as u32 + 60;
        let counts = |turn: u32| {
            (0..3 * sources).map(move |at| {
                let mixed = at.wrapping_mul(7_919).wrapping_add(turn * 31) % (3 * sources);
                let (source, step) = (mixed % sources, mixed / sources);
                (SourceId(source), score(source * 37 % 101 + step, source % 5 + 2 * step))
            })
        };
        let applied = |turn: u32| {
            let (mut one, mut other) = (EntityRecord::default(), EntityRecord::default());
            for (at, (source, count)) in counts(turn).enumerate() {
                if at % 3 == 0 { &mut one } else { &mut other }.record_count(source, count);
            }
            one.merge(other);
            one
        };
        let all = applied(0);
        assert_eq!(all.all_counts().len(), MAX_COUNTING_SERVERS);
        for turn in 0..40 {
            let record = applied(turn);
            assert_eq!(record, all, "the order makes a difference");
            let sum = record
                .all_counts()
                .fold(Score::default(), |sum, (_, one)| score(sum.hits + one.hits, sum.falls + one.falls));
            assert_eq!(record.score(), sum);
        }
    }

    #[test]
    fn forged_counts_do_not_overflow() {
        let mut record = EntityRecord::default();
        (0..3).for_each(|source| _ = record.record_count(SourceId(source), score(u32::MAX, u32::MAX)));
        assert_eq!(record.score(), score(u32::MAX, u32::MAX));
    }
}
