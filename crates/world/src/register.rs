//! Everything that is known of a world: what all events come to, in whatever order they were learned.
//!
//! # What is forgotten
//!
//! Who is in the world is told of several times a second. So of whom nothing was told for [long](KEPT) is not in it, whoever owned it and
//! whether it said goodbye or not: where it stood and what it was called is forgotten by all servers as the world's time goes on, and only
//! its score stays. Who takes an object over does so in an epoch that is no lower than the tick: so who comes back after that counts more than
//! all that was said of it before, also where that is still known, and what is learned late, or from a server that was away, is older than
//! [`KEPT`] and forgotten with the next look. Of scores of those who are gone the greatest are kept, each count by itself, which is the same in
//! whatever order they are learned.

use std::collections::BTreeMap;

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{Rules, Score};

use crate::being::{Being, MAX_COUNTS, Stand, Term, weight};
use crate::deed::{Deed, Fact, Reader, name, put_avatar, put_entity, put_score, put_short};

/// The most objects of a world; who claims more is mistaken.
pub const MAX_BEINGS: usize = 16_384;
/// With so many objects nobody new is let in: those whom other servers let in at the same time have room, too.
const FULL: usize = MAX_BEINGS - 1_024;
/// Of those who are gone so many counts are kept.
const MAX_PAST: usize = 8_192;
/// Of whom nothing was told for so many ticks, five minutes, only the score is known.
pub const KEPT: u32 = 30_000;

/// All objects of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    beings: BTreeMap<EntityId, Being>,
}

impl Register {
    /// What is known of an object.
    pub fn get(&self, entity: EntityId) -> Option<&Being> {
        self.beings.get(&entity)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, &Being)> {
        self.beings.iter().map(|(entity, being)| (*entity, being))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.beings.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.beings.is_empty()
    }

    /// Learns what a server says. Whether that was news.
    pub fn learn(&mut self, said_by: SourceId, deed: Deed) -> bool {
        let Some(being) = self.being(deed.entity) else { return false };
        match deed.fact {
            Fact::Named { epoch, name } => being.is_called(Term { epoch, owner: said_by }, name),
            Fact::Stands { epoch, tick, avatar } => {
                being.stands(Stand { term: Term { epoch, owner: said_by }, tick, avatar })
            }
            Fact::Counted(count) => being.counts(said_by, count),
        }
    }

    /// Whether nobody new is let in.
    pub fn is_full(&self) -> bool {
        self.beings.len() >= FULL
    }

    /// Whether an object may come, because there is room for it or it is known already.
    pub fn has_room_for(&self, entity: EntityId) -> bool {
        !self.is_full() || self.beings.contains_key(&entity)
    }

    fn being(&mut self, entity: EntityId) -> Option<&mut Being> {
        let has_room = self.beings.len() < MAX_BEINGS || self.beings.contains_key(&entity);
        has_room.then(|| self.beings.entry(entity).or_default())
    }

    /// How often an object hit and fell.
    pub fn score(&self, entity: EntityId) -> Score {
        self.get(entity).map_or_else(Score::default, Being::score)
    }

    /// The same, as one server counted.
    pub fn counted(&self, entity: EntityId, counted_by: SourceId) -> Score {
        self.get(entity).map_or_else(Score::default, |being| being.counted(counted_by))
    }

    /// Forgets, given the tick, what was not told of for long, and of scores what is too much. Who does not stand anywhere any more.
    pub fn forget(&mut self, tick: u32) -> Vec<EntityId> {
        let oldest = tick.saturating_sub(KEPT);
        let gone = self.beings.iter_mut().filter_map(|(entity, being)| being.forget_before(oldest).then_some(*entity));
        let gone = gone.collect();
        self.forget_counts();
        self.beings.retain(|_, being| *being != Being::default());
        gone
    }

    fn forget_counts(&mut self) {
        let past = self.beings.iter().filter(|(_, being)| being.is_past());
        let counts = past.flat_map(|(entity, being)| {
            being.all_counts().map(|(counted_by, count)| (weight(count), *entity, counted_by))
        });
        let mut counts: Vec<_> = counts.collect();
        let Some(most) = counts.len().checked_sub(MAX_PAST).filter(|most| *most > 0) else { return };
        counts.select_nth_unstable(most);
        for (_, entity, counted_by) in &counts[..most] {
            self.beings.get_mut(entity).into_iter().for_each(|being| being.forget_count(*counted_by));
        }
    }

    /// A number that is the same wherever the same is known.
    pub fn digest(&self, rules: &Rules) -> u64 {
        xxh64(0, &self.to_bytes(rules))
    }

    /// All of it as bytes.
    pub fn to_bytes(&self, rules: &Rules) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (entity, being) in &self.beings {
            put_entity(&mut bytes, *entity);
            put_name(&mut bytes, being.naming());
            put_stand(&mut bytes, rules, being.stand());
            bytes.extend_from_slice(&(being.all_counts().len() as u32).to_le_bytes());
            for (counted_by, count) in being.all_counts() {
                bytes.extend_from_slice(&counted_by.0.to_le_bytes());
                put_score(&mut bytes, count);
            }
        }
        bytes
    }

    /// What is known by the word of one server.
    pub fn said_by(&self, source: SourceId) -> Self {
        let said = self.beings.iter().map(|(entity, being)| (*entity, being.said_by(source)));
        Self { beings: said.filter(|(_, being)| *being != Being::default()).collect() }
    }

    /// Reads what another knows; `None` if nobody would say so.
    pub fn from_bytes(bytes: &[u8], rules: &Rules) -> Option<Self> {
        let (mut register, mut reader) = (Self::default(), Reader(bytes));
        while !reader.rest().is_empty() {
            let entity = reader.entity()?;
            *register.being(entity)? = read_being(&mut reader, rules)?;
        }
        Some(register)
    }

    /// Learns all that another knows. Of which objects that was news.
    pub fn merge(&mut self, other: Self) -> Vec<EntityId> {
        let mut news = Vec::new();
        for (entity, known) in other.beings {
            if self.being(entity).is_some_and(|being| being.merge(known)) {
                news.push(entity);
            }
        }
        news
    }
}

fn put_term(bytes: &mut Vec<u8>, term: Term) {
    bytes.extend_from_slice(&term.epoch.to_le_bytes());
    bytes.extend_from_slice(&term.owner.0.to_le_bytes());
}

fn read_term(reader: &mut Reader<'_>) -> Option<Term> {
    Some(Term { epoch: reader.number()?, owner: SourceId(reader.number()?) })
}

fn put_name(bytes: &mut Vec<u8>, naming: Option<&(Term, String)>) {
    let Some((term, name)) = naming else { return bytes.push(0) };
    bytes.push(1);
    put_term(bytes, *term);
    put_short(bytes, name.as_bytes());
}

fn put_stand(bytes: &mut Vec<u8>, rules: &Rules, stand: Option<&Stand>) {
    let Some(stand) = stand else { return bytes.push(0) };
    bytes.push(1);
    put_term(bytes, stand.term);
    bytes.extend_from_slice(&stand.tick.to_le_bytes());
    let mut state = Vec::new();
    stand.avatar.iter().for_each(|avatar| put_avatar(&mut state, rules, avatar));
    put_short(bytes, &state);
}

fn read_being(reader: &mut Reader<'_>, rules: &Rules) -> Option<Being> {
    let mut being = Being::default();
    if reader.take()? == [1] {
        being.is_called(read_term(reader)?, name(reader.short()?)?);
    }
    if reader.take()? == [1] {
        let (term, tick) = (read_term(reader)?, reader.number()?);
        let avatar = match reader.short()? {
            [] => None,
            state => Some(rules.decode(state)?),
        };
        being.stands(Stand { term, tick, avatar });
    }
    for _ in 0..reader.number().filter(|counts| *counts as usize <= MAX_COUNTS)? {
        let (counted_by, count) = (SourceId(reader.number()?), reader.score()?);
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

    fn known() -> (Register, Rules) {
        let (mut register, rules) = (Register::default(), Rules::new(Maze::new(7, 8)));
        for (source, number, epoch) in [(1, 10, 1), (1, 11, 1), (2, 12, 1), (2, 10, 2), (3, 13, 1)] {
            let avatar = (number != 13).then(|| rules.newcomer(&[], number.into()));
            let facts = [
                Fact::Named { epoch, name: format!("player {number}") },
                Fact::Stands { epoch, tick: 100 * source, avatar },
                Fact::Counted(Score { hits: source, falls: epoch }),
            ];
            for fact in facts {
                assert!(register.learn(SourceId(source), Deed { entity: entity(number), fact }));
            }
        }
        (register, rules)
    }

    #[test]
    fn it_comes_back_from_bytes_and_garbage_does_not() {
        let (register, rules) = known();
        let bytes = register.to_bytes(&rules);
        assert_eq!(Register::from_bytes(&bytes, &rules), Some(register.clone()));
        for cut in 1..bytes.len() {
            assert_ne!(Register::from_bytes(&bytes[..cut], &rules), Some(register.clone()));
        }
        let mut flipped = bytes.clone();
        for at in 0..flipped.len() {
            flipped[at] ^= 0x55;
            _ = Register::from_bytes(&flipped, &rules);
        }
    }

    #[test]
    fn what_all_said_comes_to_all_that_is_known() {
        let (register, rules) = known();
        let mut whole = Register::default();
        for source in [3, 1, 2] {
            whole.merge(register.said_by(SourceId(source)));
        }
        assert_eq!(whole, register);
        assert_eq!(whole.digest(&rules), register.digest(&rules));
        assert_eq!(register.score(entity(10)), Score { hits: 3, falls: 3 });
        assert_eq!(register.get(entity(12)).map(Being::name), Some("player 12"));
    }

    fn stands(entity: EntityId, epoch: u32, tick: u32, avatar: Option<Avatar>) -> Deed {
        Deed { entity, fact: Fact::Stands { epoch, tick, avatar } }
    }

    fn gone(register: &mut Register, number: u32, tick: u32, score: u32) {
        let (entity, source) = (entity(number), SourceId(1));
        register.learn(source, Deed { entity, fact: Fact::Named { epoch: tick, name: "Ada".into() } });
        register.learn(source, stands(entity, tick, tick, None));
        register.learn(source, Deed { entity, fact: Fact::Counted(Score { hits: score, falls: 0 }) });
    }

    #[test]
    fn a_world_does_not_fill_up_with_those_who_were_there() {
        let mut register = Register::default();
        let most = FULL as u32;
        (0..most).for_each(|number| gone(&mut register, number, 100, 0));
        assert!(register.is_full() && !register.has_room_for(entity(most)) && register.has_room_for(entity(0)));
        assert_eq!(register.forget(100 + KEPT), []);
        assert!(register.is_full());
        assert_eq!(register.forget(101 + KEPT).len(), FULL);
        assert!(register.is_empty());
        // Also not if all of them have a score, of which the least go.
        (0..most).for_each(|number| gone(&mut register, number, 100, 1 + number));
        register.forget(101 + KEPT);
        assert_eq!(register.len(), MAX_PAST);
        assert_eq!(register.score(entity(0)), Score::default());
        assert_eq!(register.score(entity(most - 1)).hits, most);
        assert!(!register.is_full());
    }

    fn below(luck: &mut Random, most: u32) -> u32 {
        luck.below(most.into()) as u32
    }

    /// What happens in a world whose players come and go: when it is told, by whom, and what.
    fn history(luck: &mut Random, rules: &Rules) -> Vec<(u32, SourceId, Deed)> {
        let (mut told, mut counts) = (Vec::new(), BTreeMap::new());
        for number in 0..12 {
            let (entity, mut tick) = (entity(number), below(luck, KEPT));
            for _ in 0..1 + below(luck, 4) {
                let (epoch, source) = (tick, SourceId(1 + below(luck, 3)));
                told.push((tick, source, Deed { entity, fact: Fact::Named { epoch, name: format!("{epoch}") } }));
                for _ in 0..1 + below(luck, 4) {
                    let avatar = Some(rules.newcomer(&[], tick.into()));
                    told.push((tick, source, stands(entity, epoch, tick, avatar)));
                    tick += 25;
                }
                if below(luck, 3) == 0 {
                    let count: &mut Score = counts.entry((number, source)).or_default();
                    count.hits += 1;
                    told.push((tick, source, Deed { entity, fact: Fact::Counted(*count) }));
                }
                // As often as not in the tick in which it was still told of.
                tick -= 25 * below(luck, 2);
                told.push((tick, source, stands(entity, epoch, tick, None)));
                tick += 1 + below(luck, 3 * KEPT / 2);
            }
        }
        told.sort_by_key(|(tick, ..)| *tick);
        told
    }

    #[test]
    fn who_was_forgotten_does_not_come_back_by_what_is_learned_late() {
        let (mut luck, rules) = (Random::new(5), Rules::new(Maze::new(7, 8)));
        for _ in 0..60 {
            let told = history(&mut luck, &rules);
            let end = told.last().map_or(0, |(tick, ..)| *tick);
            let late = |luck: &mut Random, most: u32| {
                let mut heard: Vec<_> = told.iter().map(|fact| (fact.0 + below(luck, most), fact.clone())).collect();
                heard.sort_by_key(|(at, _)| *at);
                heard
            };
            // At once, soon, after minutes, and from one that was away for longer than anything is kept.
            let registers = [1, 100, KEPT, 4 * KEPT].map(|most| {
                let (mut register, mut now) = (Register::default(), 0);
                for (at, (tick, source, deed)) in late(&mut luck, most) {
                    while now + 100 < at {
                        now += 100;
                        register.forget(now);
                    }
                    let entity = deed.entity;
                    register.learn(source, deed);
                    if tick + KEPT < at {
                        register.forget(at);
                        assert!(
                            register.get(entity).and_then(Being::stand).is_none_or(|stand| stand.tick + KEPT >= at)
                        );
                    }
                }
                register.forget(end + KEPT);
                register.forget(end + 4 * KEPT + 1);
                register
            });
            assert!(registers[0].iter().all(|(_, being)| being.is_past()));
            assert!(registers.iter().all(|register| *register == registers[0]), "{registers:#?}");
        }
    }

    /// A server that was away still knows what all others forgot, also that somebody left who is back by now.
    #[test]
    fn who_is_back_is_believed_also_by_who_remembers_that_it_left() {
        let rules = Rules::new(Maze::new(7, 8));
        let (mut away, mut here) = (Register::default(), Register::default());
        gone(&mut away, 1, 100, 0);
        let back = stands(entity(1), 2 * KEPT, 2 * KEPT, Some(rules.newcomer(&[], 1)));
        assert!(here.learn(SourceId(2), back));
        for _ in 0..2 {
            here.merge(away.clone());
            away.merge(here.clone());
        }
        assert_eq!((away.forget(2 * KEPT), here.forget(2 * KEPT)), (vec![], vec![]));
        assert!(away == here && here.get(entity(1)).and_then(Being::stand).is_some_and(|stand| stand.avatar.is_some()));
    }
}
