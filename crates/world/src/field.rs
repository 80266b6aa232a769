//! Where everybody is in the present tick, and who is near whom.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;
use coplay_maze::{Avatar, CELL, FINE, Position, Rules};

/// Everybody who is in the world, as reckoned for the present tick.
#[derive(Clone, Debug, Default)]
pub struct Field {
    avatars: BTreeMap<EntityId, Avatar>,
    /// Who is in which cell, by rows and columns of cells.
    cells: Vec<(Cell, Placed)>,
}

/// The row and the column of a cell.
type Cell = (i32, i32);

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
            rules.go_on(avatar);
        }
    }

    /// Notes where everybody is, for [`around`](Self::around).
    pub fn sort(&mut self) {
        self.cells.clear();
        self.cells.extend(self.avatars.iter().map(|(entity, avatar)| {
            let placed = Placed { entity: *entity, position: avatar.position, is_alive: avatar.is_alive() };
            (cell(avatar.position), placed)
        }));
        self.cells.sort_unstable_by_key(|(cell, placed)| (*cell, placed.entity));
    }

    /// Who is in the cells around a place, so many cells each way, as of when [`sort`](Self::sort) was last called.
    pub fn around(&self, place: Position, reach: i32) -> impl Iterator<Item = Placed> {
        let (row, column) = cell(place);
        (row - reach..=row + reach).flat_map(move |row| {
            let from = self.cells.partition_point(|(cell, _)| *cell < (row, column - reach));
            let in_reach = move |(cell, _): &&(Cell, Placed)| *cell <= (row, column + reach);
            self.cells[from..].iter().take_while(in_reach).map(|(_, placed)| *placed)
        })
    }
}

fn cell(place: Position) -> Cell {
    (place.y.div_euclid(CELL * FINE), place.x.div_euclid(CELL * FINE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Maze;

    #[test]
    fn who_is_around_is_who_is_in_the_cells_around() {
        let rules = Rules::new(Maze::new(7, 16));
        let mut field = Field::default();
        for number in 0..120 {
            field.put(EntityId { site: WorldSiteId(number), index: 0 }, rules.newcomer(&[], number.into()));
        }
        field.sort();
        let mut found = 0;
        for ((_, one), reach) in field.iter().zip([0, 1, 4].into_iter().cycle()) {
            let mut around: Vec<EntityId> = field.around(one.position, reach).map(|placed| placed.entity).collect();
            around.sort();
            let (row, column) = cell(one.position);
            let is_there = |(_, other): &(EntityId, &Avatar)| {
                let (other_row, other_column) = cell(other.position);
                (row - other_row).abs() <= reach && (column - other_column).abs() <= reach
            };
            let expected: Vec<EntityId> = field.iter().filter(is_there).map(|(entity, _)| entity).collect();
            assert_eq!(around, expected);
            found += around.len();
        }
        assert!(found > 500, "only {found}");
        field.remove(EntityId { site: WorldSiteId(0), index: 0 });
        field.sort();
        let gone = field.around(Position::default(), 1_000).any(|placed| placed.entity.site == WorldSiteId(0));
        assert!(!gone && field.around(Position::default(), 1_000).count() == 119);
    }
}
