//! The smallest game that can tell whether servers agree: objects that remember everything that happened to them, in its order.

use std::collections::{BTreeMap, BTreeSet};

use coplay::mirror::NewEvent;

use crate::toy::mix;

/// What can happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is somewhere else: replaces other moves and nudges, and can be replaced.
    Move,
    /// It is a little further: can be replaced, but replaces nothing.
    Nudge,
    /// It does something that counts, wherever it was: neither.
    Deed,
    /// It begins anew: replaces moves and nudges, and cannot be replaced.
    Reset,
}

/// An event as it was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// About what.
    pub key: u64,
    /// What happened.
    pub kind: Kind,
    /// How.
    pub value: u64,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Move, Self::Nudge, Self::Deed, Self::Reset];

    /// Whether it makes useless what came before.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Move | Self::Reset)
    }

    /// Whether it can be made useless.
    pub fn is_replaceable(self) -> bool {
        matches!(self, Self::Move | Self::Nudge)
    }
}

impl Issued {
    /// As bytes, so many of them.
    pub fn payload(&self, len: usize) -> Vec<u8> {
        let kind = Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8;
        let mut payload = vec![kind];
        payload.extend_from_slice(&self.value.to_le_bytes());
        payload.resize(len.max(payload.len()), 0);
        payload
    }

    /// What the engine is told.
    pub fn issue<'a>(&self, payload: &'a [u8]) -> NewEvent<'a> {
        let Self { key, kind, .. } = *self;
        NewEvent { key, replaces: kind.replaces(), is_replaceable: kind.is_replaceable(), payload }
    }

    fn read(key: u64, payload: &[u8]) -> Self {
        let kind = Kind::ALL[usize::from(payload[0]) % Kind::ALL.len()];
        let value = u64::from_le_bytes(payload[1..9].try_into().expect("eight bytes"));
        Self { key, kind, value }
    }
}

/// What makes a snapshot longer than it need be.
fn filling(at: usize) -> u8 {
    (at * 31 + (at >> 8)) as u8
}

/// Where nothing was that moved.
const MOVED: u64 = 0x5851_f42d_4c95_7f2d;

/// An object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// All that counted, in its order.
    done: u64,
    /// Where it is since then.
    place: u64,
    /// The last event that was folded in.
    last: u64,
}

/// The objects of one source, and what is about none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    objects: BTreeMap<u64, Object>,
    /// Events without an object; their order does not matter.
    loose: BTreeSet<(u64, u64)>,
}

impl Object {
    fn fold(&mut self, issued: &Issued) {
        match issued.kind {
            Kind::Move => self.place = mix(MOVED, issued.value),
            Kind::Nudge => self.place = mix(self.place, issued.value),
            Kind::Deed => {
                self.done = mix(mix(self.done, self.place), issued.value);
                self.place = 0;
            }
            Kind::Reset => {
                self.done = mix(self.done, issued.value);
                self.place = 0;
            }
        }
    }
}

impl Part {
    /// Folds in an event. Whether it came in its order, and for the first time.
    pub fn fold(&mut self, seq: u64, issued: &Issued) -> bool {
        if issued.key == 0 {
            return self.loose.insert((seq, issued.value));
        }
        let object = self.objects.entry(issued.key).or_default();
        object.fold(issued);
        let in_order = seq > object.last;
        object.last = seq;
        in_order
    }

    /// Folds in an event as it comes from the engine.
    pub fn take(&mut self, seq: u64, key: u64, payload: &[u8]) -> bool {
        self.fold(seq, &Issued::read(key, payload))
    }

    /// The last event of each object that was folded in.
    pub fn last(&self, key: u64) -> u64 {
        self.objects.get(&key).map_or(0, |object| object.last)
    }

    /// The objects there are.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.objects.keys().copied()
    }

    /// Events without an object.
    pub fn loose(&self) -> impl Iterator<Item = u64> + '_ {
        self.loose.iter().map(|(seq, _)| *seq)
    }

    /// As bytes, and as many more.
    pub fn save(&self, bulk: usize) -> Vec<u8> {
        let mut bytes = (bulk as u64).to_le_bytes().to_vec();
        bytes.extend((0..bulk).map(filling));
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for (key, Object { done, place, last }) in &self.objects {
            [*key, *done, *place, *last].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        for (seq, value) in &self.loose {
            [*seq, *value].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        bytes
    }

    /// From bytes; nothing if they are not as they were saved.
    pub fn load(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let Some((bulk, bytes)) = bytes.split_at_checked(8).map(|(bulk, rest)| (word(bulk) as usize, rest)) else {
            return Self::default();
        };
        let Some((filled, bytes)) = bytes.split_at_checked(bulk) else { return Self::default() };
        if !filled.iter().copied().eq((0..bulk).map(filling)) {
            return Self::default();
        }
        let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
        let Some((count, words)) = words.split_first() else { return Self::default() };
        let (objects, loose) = words.split_at((*count as usize * 4).min(words.len()));
        let object = |of: &[u64]| (of[0], Object { done: of[1], place: of[2], last: of[3] });
        Self {
            objects: objects.chunks_exact(4).map(object).collect(),
            loose: loose.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
        }
    }

    /// All of it as one number.
    pub fn hash(&self) -> u64 {
        let objects =
            self.objects.iter().fold(0, |hash, (key, object)| mix(mix(mix(hash, *key), object.done), object.place));
        self.loose.iter().fold(objects, |hash, (seq, value)| mix(mix(hash, *seq), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_game_keeps_what_the_theorem_asks_for() {
        let issued = |kind, value| Issued { key: 1, kind, value };
        for replacing in [Kind::Move, Kind::Reset] {
            let mut with = Part::default();
            with.fold(1, &issued(Kind::Deed, 9));
            let mut without = with.clone();
            with.fold(2, &issued(Kind::Move, 5));
            with.fold(3, &issued(Kind::Nudge, 6));
            assert!(with.fold(4, &issued(replacing, 7)) && without.fold(4, &issued(replacing, 7)));
            assert_eq!(with.hash(), without.hash());
            assert_eq!((Part::load(&with.save(0)), Part::load(&with.save(99))), (with.clone(), with));
        }
    }

    #[test]
    fn order_and_deeds_count() {
        let fold = |kinds: &[(Kind, u64)]| {
            let mut part = Part::default();
            for (at, (kind, value)) in kinds.iter().enumerate() {
                assert!(part.fold(at as u64 + 1, &Issued { key: 1, kind: *kind, value: *value }));
            }
            part.hash()
        };
        use Kind::{Deed, Move, Nudge};
        let all = [
            fold(&[(Move, 1), (Deed, 2)]),
            fold(&[(Deed, 2), (Move, 1)]),
            fold(&[(Deed, 2)]),
            fold(&[(Move, 1), (Nudge, 2)]),
            fold(&[(Nudge, 2), (Move, 1)]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let mut part = Part::default();
        assert!(part.fold(2, &Issued { key: 1, kind: Deed, value: 1 }));
        assert!(!part.fold(1, &Issued { key: 1, kind: Deed, value: 1 }), "out of order");
        assert!(part.fold(3, &Issued { key: 0, kind: Deed, value: 1 }));
        assert!(!part.fold(3, &Issued { key: 0, kind: Deed, value: 1 }), "twice");
    }
}
