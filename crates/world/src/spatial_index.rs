//! Where everybody is in the present tick, and who is near whom.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;
use coplay_maze::{Avatar, CELL_SIZE, Position, Rules, UNIT};

/// Everybody who is in the world, as reckoned for the present tick.
#[derive(Clone, Debug, Default)]
pub struct SpatialIndex {
    avatars: BTreeMap<EntityId, Avatar>,
    /// Who is in which cell, by rows and columns of cells.
    cells: Vec<(Cell, IndexedAvatar)>,
}

/// The row and the column of a cell.
type Cell = (i32, i32);

/// Somebody in a cell.
#[derive(Clone, Copy, Debug)]
pub struct IndexedAvatar {
    /// Who it is.
    pub entity: EntityId,
    /// Where.
    pub position: Position,
    /// Whether it lives.
    pub is_alive: bool,
}

impl SpatialIndex {
    /// Somebody is as told.
    pub fn insert(&mut self, entity: EntityId, avatar: Avatar) {
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
    pub fn extrapolate_tick(&mut self, rules: &Rules, but: impl Fn(EntityId) -> bool) {
        for (_, avatar) in self.avatars.iter_mut().filter(|(entity, _)| !but(**entity)) {
            rules.extrapolate_tick(avatar);
        }
    }

    /// Notes where everybody is, for [`around`](Self::around).
    pub fn rebuild_cells(&mut self) {
        self.cells.clear();
        self.cells.extend(self.avatars.iter().map(|(entity, avatar)| {
            let placed = IndexedAvatar { entity: *entity, position: avatar.position, is_alive: avatar.is_alive() };
            (cell_of(avatar.position), placed)
        }));
        self.cells.sort_unstable_by_key(|(cell, placed)| (*cell, placed.entity));
    }

    /// Who is in the cells around a place, so many cells each way, as of when [`sort`](Self::rebuild_cells) was last called.
    pub fn nearby(&self, place: Position, reach: i32) -> impl Iterator<Item = IndexedAvatar> {
        let (row, column) = cell_of(place);
        (row - reach..=row + reach).flat_map(move |row| {
            let from = self.cells.partition_point(|(cell, _)| *cell < (row, column - reach));
            let in_reach = move |(cell, _): &&(Cell, IndexedAvatar)| *cell <= (row, column + reach);
            self.cells[from..].iter().take_while(in_reach).map(|(_, placed)| *placed)
        })
    }
}

fn cell_of(place: Position) -> Cell {
    (place.y.div_euclid(CELL_SIZE * UNIT), place.x.div_euclid(CELL_SIZE * UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Maze;

    #[test]
    fn nearby_returns_the_avatars_of_surrounding_cells() {
        let rules = Rules::new(Maze::new(7, 16));
        let mut field = SpatialIndex::default();
        for number in 0..120 {
            field.insert(EntityId { site: WorldSiteId(number), index: 0 }, rules.spawn_avatar(&[], number.into()));
        }
        field.rebuild_cells();
        let mut found = 0;
        for ((_, one), reach) in field.iter().zip([0, 1, 4].into_iter().cycle()) {
            let mut around: Vec<EntityId> = field.nearby(one.position, reach).map(|placed| placed.entity).collect();
            around.sort();
            let (row, column) = cell_of(one.position);
            let is_there = |(_, other): &(EntityId, &Avatar)| {
                let (other_row, other_column) = cell_of(other.position);
                (row - other_row).abs() <= reach && (column - other_column).abs() <= reach
            };
            let expected: Vec<EntityId> = field.iter().filter(is_there).map(|(entity, _)| entity).collect();
            assert_eq!(around, expected);
            found += around.len();
        }
        assert!(found > 500, "only {found}");
        field.remove(EntityId { site: WorldSiteId(0), index: 0 });
        field.rebuild_cells();
        let gone = field.nearby(Position::default(), 1_000).any(|placed| placed.entity.site == WorldSiteId(0));
        assert!(!gone && field.nearby(Position::default(), 1_000).count() == 119);
    }
}
