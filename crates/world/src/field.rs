//! Where everybody is in the present tick, and who is near whom.

use std::collections::BTreeMap;

use coplay::bucket::{EntityId, Reckoner};
use coplay_maze::{Avatar, CELL, FINE, Position, Rules};

/// Everybody who is in the world, as reckoned for the present tick.
#[derive(Clone, Debug, Default)]
pub struct Field {
    avatars: BTreeMap<EntityId, Avatar>,
    /// Who is in each cell.
    cells: BTreeMap<(i32, i32), Vec<Placed>>,
}

/// Somebody in a cell.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Who it is.
    pub entity: EntityId,
    /// Where.
    pub position: Position,
    /// Whether it lives.
    pub is_alive: bool,
}

impl Field {
    /// Somebody is as told.
    pub fn put(&mut self, entity: EntityId, avatar: Avatar) {
        self.avatars.insert(entity, avatar);
    }

    /// Somebody is not there any more.
    pub fn remove(&mut self, entity: EntityId) {
        self.avatars.remove(&entity);
    }

    /// Somebody as it is now.
    pub fn get(&self, entity: EntityId) -> Option<&Avatar> {
        self.avatars.get(&entity)
    }

    /// Everybody.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, &Avatar)> + Clone {
        self.avatars.iter().map(|(entity, avatar)| (*entity, avatar))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.avatars.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.avatars.is_empty()
    }

    /// A tick passes for all but some: they go on as they do.
    pub fn go_on(&mut self, rules: &Rules, but: impl Fn(EntityId) -> bool) {
        for (_, avatar) in self.avatars.iter_mut().filter(|(entity, _)| !but(**entity)) {
            *avatar = rules.ahead(avatar, 1);
        }
    }

    /// Notes where everybody is, for [`around`](Self::around).
    pub fn sort(&mut self) {
        self.cells.values_mut().for_each(Vec::clear);
        for (entity, avatar) in &self.avatars {
            let placed = Placed { entity: *entity, position: avatar.position, is_alive: avatar.is_alive() };
            self.cells.entry(cell(avatar.position)).or_default().push(placed);
        }
        self.cells.retain(|_, here| !here.is_empty());
    }

    /// Who is in the cells around a place, so many cells each way, as of when [`sort`](Self::sort) was last called.
    pub fn around(&self, place: Position, reach: i32) -> impl Iterator<Item = Placed> {
        let (x, y) = cell(place);
        let rows = (y - reach..=y + reach).flat_map(move |y| (x - reach..=x + reach).map(move |x| (x, y)));
        rows.filter_map(|cell| self.cells.get(&cell)).flatten().copied()
    }
}

fn cell(place: Position) -> (i32, i32) {
    (place.x.div_euclid(CELL * FINE), place.y.div_euclid(CELL * FINE))
}
