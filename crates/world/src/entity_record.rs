//! What is known of an object: who owns it, where it stands, how often it fell.
//!
//! Every event about an object is a fact that holds by itself: "it stands there", "it hit and fell so often, as we counted". Of facts
//! that contradict each other one is newer, and says so. So a being is the same in whatever order facts are learned and however often, two
//! mirrors that were apart put together what they know, and nothing has to be undone.

use std::collections::BTreeMap;

use coplay::mirror::SourceId;
use coplay_maze::{Avatar, Score};

/// The most servers whose counts of one object are kept: the greatest counts, whatever the order in which they were learned.
pub(crate) const MAX_COUNTING_SERVERS: usize = 256;

/// Who owns an object, and for the how manieth time it changed hands. The higher one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnershipEpoch {
    /// Grows whenever somebody takes the object over.
    pub epoch: u32,
    /// The server that took it, in that run of its.
    pub owner: SourceId,
}

/// Where an object stands, as its owner says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whose word it is.
    pub ownership: OwnershipEpoch,
    /// When, in ticks of the world.
    pub tick: u32,
    /// What there is to know of it at that tick; `None` if it has left.
    pub avatar: Option<Avatar>,
}

impl Placement {
    /// The later one counts. Who leaves in the tick in which it was still told of has left.
    fn version(&self) -> (OwnershipEpoch, u32, bool) {
        (self.ownership, self.tick, self.avatar.is_none())
    }
}

/// How much a count is worth: those that are worth least go first where there are too many.
pub(crate) fn count_weight(count: Score) -> u64 {
    u64::from(count.hits) + u64::from(count.falls)
}

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityRecord {
    /// What it is called, by whose word.
    name: Option<(OwnershipEpoch, String)>,
    placement: Option<Placement>,
    /// How often it hit and fell, as each server counted.
    counts: BTreeMap<SourceId, Score>,
    /// What these come to: hits and falls.
    total: [u64; 2],
}

impl EntityRecord {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", |(_, name)| name)
    }

    /// Whose word the name is, and the name.
    pub fn name_and_ownership(&self) -> Option<&(OwnershipEpoch, String)> {
        self.name.as_ref()
    }

    /// Where it stands.
    pub fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// Who owns it.
    pub fn ownership(&self) -> Option<OwnershipEpoch> {
        self.placement.as_ref().map(|stand| stand.ownership)
    }

    /// Learns what it is called. Whether that was news.
    pub fn set_name(&mut self, term: OwnershipEpoch, name: String) -> bool {
        let is_news = self.name.as_ref().is_none_or(|(known, _)| *known < term);
        if is_news {
            self.name = Some((term, name));
        }
        is_news
    }

    /// Learns where it stands. Whether that was news.
    pub fn set_placement(&mut self, stand: Placement) -> bool {
        let is_news = self.placement.as_ref().is_none_or(|known| known.version() < stand.version());
        if is_news {
            self.placement = Some(stand);
        }
        is_news
    }

    /// Learns how often it hit and fell, as one server counts. Whether that was news.
    pub fn counts(&mut self, counted_by: SourceId, count: Score) -> bool {
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

    /// How often it hit and fell, as one server counts.
    pub fn count_by(&self, counted_by: SourceId) -> Score {
        self.counts.get(&counted_by).copied().unwrap_or_default()
    }

    /// How often it hit and fell, and who counted it.
    pub fn all_counts(&self) -> impl ExactSizeIterator<Item = (SourceId, Score)> {
        self.counts.iter().map(|(counted_by, count)| (*counted_by, *count))
    }

    /// How often it hit and fell in all.
    pub fn score(&self) -> Score {
        let [hits, falls] = self.total.map(|sum| sum.min(u32::MAX.into()) as u32);
        Score { hits, falls }
    }

    /// Forgets what one server counted.
    pub(crate) fn remove_count(&mut self, counted_by: SourceId) {
        let Score { hits, falls } = self.counts.remove(&counted_by).unwrap_or_default();
        self.total = [self.total[0] - u64::from(hits), self.total[1] - u64::from(falls)];
    }

    /// Forgets where it stood before a tick, and with that what it was called; its score stays. Whether it had stood anywhere.
    pub(crate) fn expire_before(&mut self, tick: u32) -> bool {
        let stood = self.placement.take_if(|stand| stand.tick < tick).is_some();
        if self.placement.is_none() {
            // No epoch is lower than the tick in which it began.
            self.name.take_if(|(term, _)| term.epoch < tick);
        }
        stood
    }

    /// Whether only its score is known.
    pub(crate) fn is_score_only(&self) -> bool {
        self.placement.is_none() && self.name.is_none()
    }

    /// What is known of it by the word of one server.
    pub fn asserted_by(&self, source: SourceId) -> Self {
        let mut said = Self {
            name: self.name.clone().filter(|(term, _)| term.owner == source),
            placement: self.placement.clone().filter(|stand| stand.ownership.owner == source),
            ..Self::default()
        };
        said.counts(source, self.count_by(source));
        said
    }

    /// Learns all that somebody else knows of it. Whether anything of that was news.
    pub fn merge(&mut self, other: Self) -> bool {
        let mut is_news = false;
        for (counted_by, count) in other.all_counts() {
            is_news |= self.counts(counted_by, count);
        }
        is_news |= other.placement.is_some_and(|stand| self.set_placement(stand));
        is_news | other.name.is_some_and(|(term, name)| self.set_name(term, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::{Maze, Rules};

    fn placement(epoch: u32, owner: u32, tick: u32) -> Placement {
        Placement { ownership: OwnershipEpoch { epoch, owner: SourceId(owner) }, tick, avatar: None }
    }

    fn score(hits: u32, falls: u32) -> Score {
        Score { hits, falls }
    }

    /// Something that can be learned.
    type UpdateFn = Box<dyn Fn(&mut EntityRecord)>;

    /// Everything that can be learned of a being in a little war between two servers.
    fn updates() -> Vec<UpdateFn> {
        let avatar = Some(Rules::new(Maze::new(7, 8)).spawn_avatar(&[], 1));
        let stands = [
            placement(1, 5, 100),
            placement(1, 5, 140),
            placement(2, 4, 120),
            placement(2, 6, 110),
            placement(1, 5, 900),
        ];
        let counts = [(5, 1, 0), (5, 2, 2), (4, 1, 1), (6, 0, 3)];
        let mut facts: Vec<UpdateFn> = Vec::new();
        for stand in stands.into_iter().chain([Placement { avatar, ..placement(2, 6, 110) }]) {
            facts.push(Box::new(move |being| _ = being.set_placement(stand.clone())));
        }
        for (source, hits, falls) in counts {
            facts.push(Box::new(move |being| _ = being.counts(SourceId(source), score(hits, falls))));
        }
        for (epoch, owner, name) in [(1, 5, "Ada"), (2, 4, "Bob"), (2, 6, "Eve")] {
            let term = OwnershipEpoch { epoch, owner: SourceId(owner) };
            facts.push(Box::new(move |being| _ = being.set_name(term, name.into())));
        }
        facts
    }

    #[test]
    fn updates_commute_and_are_idempotent() {
        let facts = updates();
        let learned = |order: &mut dyn Iterator<Item = usize>| {
            let mut being = EntityRecord::default();
            order.for_each(|at| facts[at](&mut being));
            being
        };
        let all = learned(&mut (0..facts.len()));
        assert_eq!(
            all.placement(),
            Some(&placement(2, 6, 110)),
            "the higher term counts, whatever the tick, and then who left"
        );
        assert_eq!(all.name(), "Eve");
        assert_eq!(all.score(), score(3, 6));
        for first in 0..facts.len() {
            let turned = |at: usize| (at * 7 + first) % facts.len();
            assert_eq!(learned(&mut (0..facts.len()).map(turned)), all);
            assert_eq!(learned(&mut (0..facts.len()).rev().chain(0..facts.len())), all, "twice is once");
            let mut one = learned(&mut (0..first));
            assert!(one.merge(learned(&mut (first..facts.len()))));
            assert_eq!(one, all, "apart and put together");
            assert!(!one.merge(all.clone()));
        }
    }

    /// Counts of more servers than are remembered, some of them again and again, and in any order.
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
        let learned = |turn: u32| {
            let (mut one, mut other) = (EntityRecord::default(), EntityRecord::default());
            for (at, (source, count)) in counts(turn).enumerate() {
                if at % 3 == 0 { &mut one } else { &mut other }.counts(source, count);
            }
            one.merge(other);
            one
        };
        let all = learned(0);
        assert_eq!(all.all_counts().len(), MAX_COUNTING_SERVERS);
        for turn in 0..40 {
            let being = learned(turn);
            assert_eq!(being, all, "the order makes no difference");
            let sum = being
                .all_counts()
                .fold(Score::default(), |sum, (_, one)| score(sum.hits + one.hits, sum.falls + one.falls));
            assert_eq!(being.score(), sum);
        }
    }

    #[test]
    fn forged_counts_do_not_overflow() {
        let mut being = EntityRecord::default();
        (0..3).for_each(|source| _ = being.counts(SourceId(source), score(u32::MAX, u32::MAX)));
        assert_eq!(being.score(), score(u32::MAX, u32::MAX));
    }
}
