//! A minimal game that shows whether servers agree. Each object hashes its events in order, except those that a later
//! event replaced.

use std::collections::{BTreeMap, BTreeSet};

use coplay::mirror::NewEvent;

use crate::toy_machine::mix_hash;

/// Kind of an event, which decides about obsolescence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Sets the position: replaces moves and nudges, and is replaceable.
    Move,
    /// Shifts the position: is replaceable, but replaces nothing.
    Nudge,
    /// Acts at the current position: neither replaces nor is replaceable.
    Action,
    /// Restarts the object: replaces moves and nudges, and is not replaceable.
    Reset,
}

/// An event that a server issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedEvent {
    /// Key of the object that the event concerns; 0 for none.
    pub key: u64,
    /// Effect of the event on its object.
    pub kind: EventKind,
    /// Random value that enters the hash of the object.
    pub value: u64,
}

impl EventKind {
    const ALL: [Self; 4] = [Self::Move, Self::Nudge, Self::Action, Self::Reset];

    /// Returns whether an event of this kind makes earlier replaceable events of its object obsolete.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Move | Self::Reset)
    }

    /// Returns whether later events of the object may make an event of this kind obsolete.
    pub fn is_replaceable(self) -> bool {
        matches!(self, Self::Move | Self::Nudge)
    }
}

impl IssuedEvent {
    /// Encodes kind and value in 9 bytes, padded with zeros to `len` bytes. The key is not part of the payload.
    pub fn payload(&self, len: usize) -> Vec<u8> {
        let kind = EventKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8;
        let mut payload = vec![kind];
        payload.extend_from_slice(&self.value.to_le_bytes());
        payload.resize(len.max(payload.len()), 0);
        payload
    }

    /// Returns the event in the form that [`Mirror::issue`](coplay::mirror::Mirror::issue) takes.
    pub fn to_issue<'a>(&self, payload: &'a [u8]) -> NewEvent<'a> {
        let Self { key, kind, .. } = *self;
        NewEvent { key, replaces: kind.replaces(), is_replaceable: kind.is_replaceable(), payload }
    }

    fn decode(key: u64, payload: &[u8]) -> Self {
        let kind = EventKind::ALL[usize::from(payload[0]) % EventKind::ALL.len()];
        let value = u64::from_le_bytes(payload[1..9].try_into().expect("eight bytes"));
        Self { key, kind, value }
    }
}

/// Returns the byte at index `at` of the padding that enlarges a snapshot.
fn padding_byte(at: usize) -> u8 {
    (at * 31 + (at >> 8)) as u8
}

/// Hash seed of a position that a move sets, so that it differs from the neutral position 0.
const MOVE_HASH_SEED: u64 = 0x5851_f42d_4c95_7f2d;

/// An object of the game, which hashes its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestObject {
    /// Hash of all actions and resets, in order, and of the position at each action.
    action_hash: u64,
    /// Position: hash of the last move and of the nudges after it; 0 right after an action or a reset.
    placement_hash: u64,
    /// Sequence number of the event applied last.
    last_seq: u64,
}

/// Objects of one source, and its events without an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    objects: BTreeMap<u64, TestObject>,
    /// Events without an object, as (sequence number, value). Their order does not matter.
    loose: BTreeSet<(u64, u64)>,
}

impl TestObject {
    fn apply(&mut self, issued: &IssuedEvent) {
        match issued.kind {
            EventKind::Move => self.placement_hash = mix_hash(MOVE_HASH_SEED, issued.value),
            EventKind::Nudge => self.placement_hash = mix_hash(self.placement_hash, issued.value),
            EventKind::Action => {
                self.action_hash = mix_hash(mix_hash(self.action_hash, self.placement_hash), issued.value);
                self.placement_hash = 0;
            }
            EventKind::Reset => {
                self.action_hash = mix_hash(self.action_hash, issued.value);
                self.placement_hash = 0;
            }
        }
    }
}

impl SourceState {
    /// Applies an event. Returns whether it came in order among the events of its object, and for the first time.
    /// Events without an object have no order.
    pub fn apply(&mut self, seq: u64, issued: &IssuedEvent) -> bool {
        if issued.key == 0 {
            return self.loose.insert((seq, issued.value));
        }
        let object = self.objects.entry(issued.key).or_default();
        object.apply(issued);
        let in_order = seq > object.last_seq;
        object.last_seq = seq;
        in_order
    }

    /// Applies an encoded event, as delivered by the engine, with the result of [`SourceState::apply`].
    pub fn apply_payload(&mut self, seq: u64, key: u64, payload: &[u8]) -> bool {
        self.apply(seq, &IssuedEvent::decode(key, payload))
    }

    /// Returns the sequence number of the last event applied to an object; 0 for none.
    pub fn last_seq(&self, key: u64) -> u64 {
        self.objects.get(&key).map_or(0, |object| object.last_seq)
    }

    /// Returns the keys of all objects, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.objects.keys().copied()
    }

    /// Returns the sequence numbers of the applied events without an object, in ascending order.
    pub fn loose(&self) -> impl Iterator<Item = u64> + '_ {
        self.loose.iter().map(|(seq, _)| *seq)
    }

    /// Encodes the state with `bulk` bytes of padding in front.
    pub fn save(&self, bulk: usize) -> Vec<u8> {
        let mut bytes = (bulk as u64).to_le_bytes().to_vec();
        bytes.extend((0..bulk).map(padding_byte));
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for (key, TestObject { action_hash, placement_hash, last_seq }) in &self.objects {
            [*key, *action_hash, *placement_hash, *last_seq]
                .iter()
                .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        for (seq, value) in &self.loose {
            [*seq, *value].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        bytes
    }

    /// Decodes the state. Returns the empty state if the padding is wrong, or if the bytes end before the number of
    /// objects.
    pub fn load(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let Some((bulk, bytes)) = bytes.split_at_checked(8).map(|(bulk, rest)| (word(bulk) as usize, rest)) else {
            return Self::default();
        };
        let Some((filled, bytes)) = bytes.split_at_checked(bulk) else { return Self::default() };
        if !filled.iter().copied().eq((0..bulk).map(padding_byte)) {
            return Self::default();
        }
        let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
        let Some((count, words)) = words.split_first() else { return Self::default() };
        let (objects, loose) = words.split_at((*count as usize * 4).min(words.len()));
        let object = |of: &[u64]| (of[0], TestObject { action_hash: of[1], placement_hash: of[2], last_seq: of[3] });
        Self {
            objects: objects.chunks_exact(4).map(object).collect(),
            loose: loose.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
        }
    }

    /// Hashes the state, except for the sequence numbers of events that concern an object.
    pub fn hash(&self) -> u64 {
        let objects = self.objects.iter().fold(0, |hash, (key, object)| {
            mix_hash(mix_hash(mix_hash(hash, *key), object.action_hash), object.placement_hash)
        });
        self.loose.iter().fold(objects, |hash, (seq, value)| mix_hash(mix_hash(hash, *seq), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_event_gives_the_same_state_with_or_without_replaceable_ones() {
        let issued = |kind, value| IssuedEvent { key: 1, kind, value };
        for replacing in [EventKind::Move, EventKind::Reset] {
            let mut with = SourceState::default();
            with.apply(1, &issued(EventKind::Action, 9));
            let mut without = with.clone();
            with.apply(2, &issued(EventKind::Move, 5));
            with.apply(3, &issued(EventKind::Nudge, 6));
            assert!(with.apply(4, &issued(replacing, 7)) && without.apply(4, &issued(replacing, 7)));
            assert_eq!(with.hash(), without.hash());
            assert_eq!((SourceState::load(&with.save(0)), SourceState::load(&with.save(99))), (with.clone(), with));
        }
    }

    #[test]
    fn event_order_and_actions_change_the_state_hash() {
        let fold = |kinds: &[(EventKind, u64)]| {
            let mut part = SourceState::default();
            for (at, (kind, value)) in kinds.iter().enumerate() {
                assert!(part.apply(at as u64 + 1, &IssuedEvent { key: 1, kind: *kind, value: *value }));
            }
            part.hash()
        };
        use EventKind::{Action, Move, Nudge};
        let all = [
            fold(&[(Move, 1), (Action, 2)]),
            fold(&[(Action, 2), (Move, 1)]),
            fold(&[(Action, 2)]),
            fold(&[(Move, 1), (Nudge, 2)]),
            fold(&[(Nudge, 2), (Move, 1)]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let mut part = SourceState::default();
        assert!(part.apply(2, &IssuedEvent { key: 1, kind: Action, value: 1 }));
        assert!(!part.apply(1, &IssuedEvent { key: 1, kind: Action, value: 1 }), "out of order");
        assert!(part.apply(3, &IssuedEvent { key: 0, kind: Action, value: 1 }));
        assert!(!part.apply(3, &IssuedEvent { key: 0, kind: Action, value: 1 }), "twice");
    }
}
