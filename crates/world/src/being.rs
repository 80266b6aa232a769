//! What is known of an object: who owns it, where it stands, how often it fell.
//!
//! Every event about an object is a fact that holds by itself: "it stands there", "it fell by that one's shots so often". Of facts
//! that contradict each other one is newer, and says so. So a being is the same in whatever order facts are learned and however often, two
//! mirrors that were apart put together what they know, and nothing has to be undone.

use std::collections::BTreeMap;

use coplay::bucket::EntityId;
use coplay::mirror::Source;
use coplay_maze::Avatar;

/// The most that is remembered of who hit one object, by whose count.
pub(crate) const MAX_FALLS: usize = 4_096;

/// Who owns an object, and for the how manieth time it changed hands. The higher one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// Grows whenever somebody takes the object over.
    pub epoch: u32,
    /// The server that took it, in that run of its.
    pub owner: Source,
}

/// Where an object stands, as its owner says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Whose word it is.
    pub term: Term,
    /// When, in ticks of the world.
    pub tick: u32,
    /// What there is to know of it at that tick; `None` if it has left.
    pub avatar: Option<Avatar>,
}

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Being {
    /// What it is called, by whose word.
    name: Option<(Term, String)>,
    stand: Option<Stand>,
    /// How often it fell by whom, as each server counted while it owned the object.
    falls: BTreeMap<(Source, EntityId), u32>,
}

impl Being {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", |(_, name)| name)
    }

    /// Whose word the name is, and the name.
    pub fn naming(&self) -> Option<&(Term, String)> {
        self.name.as_ref()
    }

    /// Where it stands.
    pub fn stand(&self) -> Option<&Stand> {
        self.stand.as_ref()
    }

    /// Who owns it.
    pub fn term(&self) -> Option<Term> {
        self.stand.as_ref().map(|stand| stand.term)
    }

    /// Learns what it is called. Whether that was news.
    pub fn is_called(&mut self, term: Term, name: String) -> bool {
        let is_news = self.name.as_ref().is_none_or(|(known, _)| *known < term);
        if is_news {
            self.name = Some((term, name));
        }
        is_news
    }

    /// Learns where it stands. Whether that was news.
    pub fn stands(&mut self, stand: Stand) -> bool {
        let is_news = self.stand.as_ref().is_none_or(|known| (known.term, known.tick) < (stand.term, stand.tick));
        if is_news {
            self.stand = Some(stand);
        }
        is_news
    }

    /// Learns how often it fell by somebody's shots, as one server counts. Whether that was news.
    pub fn fell(&mut self, counted_by: Source, by: EntityId, times: u32) -> bool {
        if self.falls.len() >= MAX_FALLS && !self.falls.contains_key(&(counted_by, by)) {
            return false;
        }
        let known = self.falls.entry((counted_by, by)).or_default();
        let is_news = *known < times;
        *known = (*known).max(times);
        is_news
    }

    /// How often it fell by whom, as one server counts.
    pub fn counted(&self, counted_by: Source, by: EntityId) -> u32 {
        self.falls.get(&(counted_by, by)).copied().unwrap_or_default()
    }

    /// How often it fell, by whom, and who counted it.
    pub fn falls(&self) -> impl Iterator<Item = (Source, EntityId, u32)> {
        self.falls.iter().map(|((counted_by, by), times)| (*counted_by, *by, *times))
    }

    /// What is known of it by the word of one server.
    pub fn said_by(&self, source: Source) -> Self {
        Self {
            name: self.name.clone().filter(|(term, _)| term.owner == source),
            stand: self.stand.clone().filter(|stand| stand.term.owner == source),
            falls: self
                .falls
                .iter()
                .filter(|((counted_by, _), _)| *counted_by == source)
                .map(|(of, times)| (*of, *times))
                .collect(),
        }
    }

    /// Learns all that somebody else knows of it. Whether anything of that was news.
    pub fn merge(&mut self, other: Self) -> bool {
        let mut is_news = other.stand.is_some_and(|stand| self.stands(stand));
        for ((counted_by, by), times) in other.falls {
            is_news |= self.fell(counted_by, by, times);
        }
        is_news | other.name.is_some_and(|(term, name)| self.is_called(term, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::bucket::Site;

    const BY: EntityId = EntityId { site: Site(9), index: 1 };

    fn stand(epoch: u32, owner: u32, tick: u32) -> Stand {
        Stand { term: Term { epoch, owner: Source(owner) }, tick, avatar: None }
    }

    /// Something that can be learned.
    type Lesson = Box<dyn Fn(&mut Being)>;

    /// Everything that can be learned of a being in a little war between two servers.
    fn facts() -> Vec<Lesson> {
        let stands = [stand(1, 5, 100), stand(1, 5, 140), stand(2, 4, 120), stand(2, 6, 110), stand(1, 5, 900)];
        let falls = [(5, 1), (5, 2), (4, 1), (6, 3)];
        let mut facts: Vec<Lesson> = Vec::new();
        for stand in stands {
            facts.push(Box::new(move |being| _ = being.stands(stand.clone())));
        }
        for (source, times) in falls {
            facts.push(Box::new(move |being| _ = being.fell(Source(source), BY, times)));
        }
        for (epoch, owner, name) in [(1, 5, "Ada"), (2, 4, "Bob"), (2, 6, "Eve")] {
            let term = Term { epoch, owner: Source(owner) };
            facts.push(Box::new(move |being| _ = being.is_called(term, name.into())));
        }
        facts
    }

    #[test]
    fn the_order_of_what_is_learned_makes_no_difference() {
        let facts = facts();
        let learned = |order: &mut dyn Iterator<Item = usize>| {
            let mut being = Being::default();
            order.for_each(|at| facts[at](&mut being));
            being
        };
        let all = learned(&mut (0..facts.len()));
        assert_eq!(all.stand(), Some(&stand(2, 6, 110)), "the higher term counts, whatever the tick");
        assert_eq!(all.name(), "Eve");
        assert_eq!(all.falls().map(|(.., times)| times).sum::<u32>(), 6);
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
}
