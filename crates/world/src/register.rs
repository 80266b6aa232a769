//! Everything that is known of a world: what all events come to, in whatever order they were learned.

use std::collections::BTreeMap;

use coplay::bucket::{EntityId, Reckoner};
use coplay::hash::xxh64;
use coplay::mirror::Source;
use coplay_maze::{Rules, Scores};

use crate::being::{Being, MAX_FALLS, Stand, Term};
use crate::deed::{Deed, Fact, Reader, name, put_avatar, put_entity, put_short};

/// The most objects of a world; who claims more is mistaken.
pub const MAX_BEINGS: usize = 16_384;

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
    pub fn learn(&mut self, said_by: Source, deed: Deed) -> bool {
        let Some(being) = self.being(deed.entity) else { return false };
        match deed.fact {
            Fact::Named { epoch, name } => being.is_called(Term { epoch, owner: said_by }, name),
            Fact::Stands { epoch, tick, avatar } => {
                being.stands(Stand { term: Term { epoch, owner: said_by }, tick, avatar })
            }
            Fact::Fell { by, times } => being.fell(said_by, by, times),
        }
    }

    /// Whether there is room for an object, or it is known already.
    pub fn has_room_for(&self, entity: EntityId) -> bool {
        self.beings.len() < MAX_BEINGS || self.beings.contains_key(&entity)
    }

    fn being(&mut self, entity: EntityId) -> Option<&mut Being> {
        self.has_room_for(entity).then(|| self.beings.entry(entity).or_default())
    }

    /// Who hit whom. `uncertain` are falls that are not to be counted yet.
    pub fn scores(&self, uncertain: &BTreeMap<(EntityId, EntityId), u32>) -> Scores {
        let mut scores = Scores::default();
        for (entity, being) in &self.beings {
            scores.call(entity.site, being.name());
            for (_, by, times) in being.falls() {
                scores.add(*entity, by, times);
            }
        }
        for ((whom, by), times) in uncertain {
            scores.take_back(*whom, *by, *times);
        }
        scores
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
            bytes.extend_from_slice(&(being.falls().count() as u32).to_le_bytes());
            for (counted_by, by, times) in being.falls() {
                bytes.extend_from_slice(&counted_by.0.to_le_bytes());
                put_entity(&mut bytes, by);
                bytes.extend_from_slice(&times.to_le_bytes());
            }
        }
        bytes
    }

    /// What is known by the word of one server.
    pub fn said_by(&self, source: Source) -> Self {
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
    Some(Term { epoch: reader.number()?, owner: Source(reader.number()?) })
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
    for _ in 0..reader.number().filter(|falls| *falls as usize <= MAX_FALLS)? {
        let (counted_by, by, times) = (reader.number()?, reader.entity()?, reader.number()?);
        being.fell(Source(counted_by), by, times);
    }
    Some(being)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::bucket::Site;
    use coplay_maze::Maze;

    fn entity(number: u32) -> EntityId {
        EntityId { site: Site(number), index: 0 }
    }

    fn known() -> (Register, Rules) {
        let (mut register, rules) = (Register::default(), Rules::new(Maze::new(7, 8)));
        for (source, number, epoch) in [(1, 10, 1), (1, 11, 1), (2, 12, 1), (2, 10, 2), (3, 13, 1)] {
            let avatar = (number != 13).then(|| rules.newcomer(&[], number.into()));
            let facts = [
                Fact::Named { epoch, name: format!("player {number}") },
                Fact::Stands { epoch, tick: 100 * source, avatar },
                Fact::Fell { by: entity(number + 1), times: epoch },
            ];
            for fact in facts {
                assert!(register.learn(Source(source), Deed { entity: entity(number), fact }));
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
            whole.merge(register.said_by(Source(source)));
        }
        assert_eq!(whole, register);
        assert_eq!(whole.digest(&rules), register.digest(&rules));
        let scores = register.scores(&BTreeMap::new());
        assert_eq!((scores.get(entity(10)).falls, scores.get(entity(11)).hits), (3, 3));
        assert_eq!(scores.name(entity(12)), "player 12");
        let uncertain = BTreeMap::from([((entity(10), entity(11)), 2)]);
        assert_eq!(register.scores(&uncertain).get(entity(11)).hits, 1);
    }
}
