//! Encoding of entity updates, the events that servers send each other.
//!
//! ```text
//! field  bytes   contents
//! kind       1   1 name, 2 placement, 3 removed, 5 score
//! entity     5   site 4, index 1
//! name           epoch 4, the name
//! placement      epoch 4, tick 4, the avatar
//! removed        epoch 4, tick 4
//! score          hits 4, falls 4
//! ```

use coplay::peer_world::{DeadReckoning, EntityId, MAX_STATE_SIZE, WorldSiteId};
use coplay_maze::{Avatar, MAX_NAME_LEN, MazeRules, Score};

const KIND_NAME: u8 = 1;
const KIND_PLACEMENT: u8 = 2;
const KIND_REMOVED: u8 = 3;
const KIND_SCORE: u8 = 5;

/// Maximum encoded length of an update, in bytes.
pub const MAX_UPDATE_LEN: usize = 1 + 5 + 8 + MAX_STATE_SIZE;

/// Update of an entity, as asserted by the server that issues the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityUpdate {
    /// Entity that the update is about.
    pub entity: EntityId,
    /// Name, placement or score that the server asserts.
    pub update: Update,
}

/// Asserted state of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Name of the entity.
    Name {
        /// Ownership epoch in which the owner asserts the name.
        epoch: u32,
        /// The name: at most [`MAX_NAME_LEN`] bytes, without control characters.
        name: String,
    },
    /// State of the entity's avatar in a tick, or its departure.
    Placement {
        /// Ownership epoch in which the owner asserts the placement.
        epoch: u32,
        /// World tick of the state.
        tick: u32,
        /// State of the avatar; `None` if it has left the world.
        avatar: Option<Avatar>,
    },
    /// Total hits and falls of the entity, as counted by the issuing server.
    Score(Score),
}

impl Update {
    /// Returns the kind; a departure counts as a placement. Of the updates of one kind that one server issues about one
    /// entity, the newest supersedes the others: it contains all information of the earlier ones.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Name { .. } => KIND_NAME,
            Self::Placement { .. } => KIND_PLACEMENT,
            Self::Score(_) => KIND_SCORE,
        }
    }
}

impl EntityUpdate {
    /// Encodes the update, in at most [`MAX_UPDATE_LEN`] bytes.
    pub fn to_bytes(&self, rules: &MazeRules) -> Vec<u8> {
        let is_removed = matches!(self.update, Update::Placement { avatar: None, .. });
        let mut bytes = vec![if is_removed { KIND_REMOVED } else { self.update.kind() }];
        put_entity(&mut bytes, self.entity);
        match &self.update {
            Update::Name { epoch, name } => {
                bytes.extend_from_slice(&epoch.to_le_bytes());
                bytes.extend_from_slice(name.as_bytes());
            }
            Update::Placement { epoch, tick, avatar } => {
                bytes.extend_from_slice(&epoch.to_le_bytes());
                bytes.extend_from_slice(&tick.to_le_bytes());
                avatar.iter().for_each(|avatar| put_avatar(&mut bytes, rules, avatar));
            }
            Update::Score(score) => put_score(&mut bytes, *score),
        }
        bytes
    }

    /// Decodes an update; `None` if it is malformed or contains an invalid name or avatar.
    pub fn from_bytes(bytes: &[u8], rules: &MazeRules) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ([kind], entity) = (reader.take()?, reader.entity()?);
        let update = match kind {
            KIND_NAME => Update::Name { epoch: reader.u32()?, name: parse_name(reader.rest())? },
            KIND_PLACEMENT | KIND_REMOVED => {
                let (epoch, tick, rest) = (reader.u32()?, reader.u32()?, reader.rest());
                let avatar = if kind == KIND_REMOVED { None } else { Some(rules.decode(rest)?) };
                (kind == KIND_PLACEMENT || rest.is_empty()).then_some(Update::Placement { epoch, tick, avatar })?
            }
            KIND_SCORE => {
                let score = reader.score()?;
                reader.rest().is_empty().then_some(Update::Score(score))?
            }
            _ => return None,
        };
        Some(Self { entity, update })
    }
}

/// Parses a name; `None` if it is too long, not UTF-8, or contains control characters.
pub(crate) fn parse_name(bytes: &[u8]) -> Option<String> {
    let name = str::from_utf8(bytes).ok()?;
    (name.len() <= MAX_NAME_LEN && !name.contains(char::is_control)).then(|| name.into())
}

pub(crate) fn put_entity(bytes: &mut Vec<u8>, entity: EntityId) {
    bytes.extend_from_slice(&entity.site.0.to_le_bytes());
    bytes.push(entity.index);
}

pub(crate) fn put_avatar(bytes: &mut Vec<u8>, rules: &MazeRules, avatar: &Avatar) {
    let mut state = [0; MAX_STATE_SIZE];
    let len = rules.encode(avatar, &mut state).unwrap_or_default();
    bytes.extend_from_slice(&state[..len]);
}

pub(crate) fn put_score(bytes: &mut Vec<u8>, score: Score) {
    bytes.extend_from_slice(&score.hits.to_le_bytes());
    bytes.extend_from_slice(&score.falls.to_le_bytes());
}

/// Appends `short`, which must not exceed 255 bytes, preceded by its length in one byte.
pub(crate) fn put_short_bytes(bytes: &mut Vec<u8>, short: &[u8]) {
    bytes.push(short.len() as u8);
    bytes.extend_from_slice(short);
}

/// Reader that takes fields from the front of the remaining bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn entity(&mut self) -> Option<EntityId> {
        let [a, b, c, d, index] = self.take()?;
        Some(EntityId { site: WorldSiteId(u32::from_le_bytes([a, b, c, d])), index })
    }

    pub(crate) fn score(&mut self) -> Option<Score> {
        Some(Score { hits: self.u32()?, falls: self.u32()? })
    }

    /// Takes a byte string preceded by its length in one byte.
    pub(crate) fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let [len] = self.take()?;
        let (short, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        Some(short)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::Maze;

    #[test]
    fn updates_round_trip_and_invalid_ones_are_rejected() {
        let rules = MazeRules::new(Maze::new(7, 8));
        let entity = EntityId { site: WorldSiteId(0x0102_0304), index: 5 };
        let avatar = rules.spawn_avatar(&[], 3);
        let updates = [
            Update::Name { epoch: 2, name: "Ada".into() },
            Update::Placement { epoch: 3, tick: 70_000, avatar: Some(avatar) },
            Update::Placement { epoch: 4, tick: 70_001, avatar: None },
            Update::Score(Score { hits: 12, falls: 3 }),
        ];
        for update in updates {
            let entity_update = EntityUpdate { entity, update };
            let bytes = entity_update.to_bytes(&rules);
            assert!(bytes.len() <= MAX_UPDATE_LEN);
            assert_eq!(EntityUpdate::from_bytes(&bytes, &rules), Some(entity_update.clone()));
            for cut in 0..bytes.len() {
                assert_ne!(EntityUpdate::from_bytes(&bytes[..cut], &rules), Some(entity_update.clone()));
            }
        }
        assert_eq!(EntityUpdate::from_bytes(&[9; 20], &rules), None);
        let control_character = [KIND_NAME, 1, 0, 0, 0, 0, 2, 0, 0, 0, 7];
        assert_eq!(EntityUpdate::from_bytes(&control_character, &rules), None);
    }
}
