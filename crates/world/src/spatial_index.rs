//! Positions of all avatars in the present tick, indexed by cell.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;
use coplay_maze::{Avatar, CELL_SIZE, MazeRules, Position, UNIT};

/// All avatars in the world, in their states of the present tick: those of this server simulated, the others
/// extrapolated.
#[derive(Clone, Debug, Default)]
pub struct SpatialIndex {
    avatars: BTreeMap<EntityId, Avatar>,
    /// Avatars by cell, sorted by row and column.
    cells: Vec<(IndexCell, IndexedAvatar)>,
}

/// Row and column of a cell.
type IndexCell = (i32, i32);

/// Entry of the index, as of the last call of [`SpatialIndex::rebuild_cells`].
#[derive(Clone, Copy, Debug)]
pub struct IndexedAvatar {
    /// Entity to which the avatar belongs.
    pub entity: EntityId,
    /// Position when the cells were rebuilt.
    pub position: Position,
    /// Whether the avatar was alive when the cells were rebuilt.
    pub is_alive: bool,
}

impl SpatialIndex {
    /// Inserts or replaces the state of an avatar. The cells keep the old one until they are rebuilt.
    pub fn insert(&mut self, entity: EntityId, avatar: Avatar) {
        self.avatars.insert(entity, avatar);
    }

    /// Removes an avatar. The cells keep it until they are rebuilt.
    pub fn remove(&mut self, entity: EntityId) {
        self.avatars.remove(&entity);
    }

    /// Returns the present state of an avatar; `None` if it is not in the world.
    pub fn get(&self, entity: EntityId) -> Option<&Avatar> {
        self.avatars.get(&entity)
    }

    /// Returns all avatars with their entities, ordered by entity.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, &Avatar)> + Clone {
        self.avatars.iter().map(|(entity, avatar)| (*entity, avatar))
    }

    /// Returns the number of avatars.
    pub fn len(&self) -> usize {
        self.avatars.len()
    }

    /// Returns whether there are no avatars.
    pub fn is_empty(&self) -> bool {
        self.avatars.is_empty()
    }

    /// Extrapolates all avatars by one tick, except the excluded ones.
    pub fn extrapolate_tick(&mut self, rules: &MazeRules, is_excluded: impl Fn(EntityId) -> bool) {
        for (_, avatar) in self.avatars.iter_mut().filter(|(entity, _)| !is_excluded(**entity)) {
            rules.extrapolate_tick(avatar);
        }
    }

    /// Sorts the present avatars into cells, for [`nearby`](Self::nearby).
    pub fn rebuild_cells(&mut self) {
        self.cells.clear();
        self.cells.extend(self.avatars.iter().map(|(entity, avatar)| {
            let indexed = IndexedAvatar { entity: *entity, position: avatar.position, is_alive: avatar.is_alive() };
            (cell_of(avatar.position), indexed)
        }));
        self.cells.sort_unstable_by_key(|(cell, indexed)| (*cell, indexed.entity));
    }

    /// Returns the avatars in the cells around a position, `reach` cells in each direction, as of the last call of
    /// [`rebuild_cells`](Self::rebuild_cells).
    pub fn nearby(&self, position: Position, reach: i32) -> impl Iterator<Item = IndexedAvatar> {
        let (row, column) = cell_of(position);
        (row - reach..=row + reach).flat_map(move |row| {
            let from = self.cells.partition_point(|(cell, _)| *cell < (row, column - reach));
            let in_reach = move |(cell, _): &&(IndexCell, IndexedAvatar)| *cell <= (row, column + reach);
            self.cells[from..].iter().take_while(in_reach).map(|(_, indexed)| *indexed)
        })
    }
}

fn cell_of(position: Position) -> IndexCell {
    (position.y.div_euclid(CELL_SIZE * UNIT), position.x.div_euclid(CELL_SIZE * UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Maze;

    #[test]
    fn nearby_returns_the_avatars_of_surrounding_cells() {
        let rules = MazeRules::new(Maze::new(7, 16));
        let mut index = SpatialIndex::default();
        for number in 0..120 {
            index.insert(EntityId { site: WorldSiteId(number), index: 0 }, rules.spawn_avatar(&[], number.into()));
        }
        index.rebuild_cells();
        let mut found = 0;
        for ((_, one), reach) in index.iter().zip([0, 1, 4].into_iter().cycle()) {
            let mut around: Vec<EntityId> = index.nearby(one.position, reach).map(|indexed| indexed.entity).collect();
            around.sort();
            let (row, column) = cell_of(one.position);
            let is_near = |(_, other): &(EntityId, &Avatar)| {
                let (other_row, other_column) = cell_of(other.position);
                (row - other_row).abs() <= reach && (column - other_column).abs() <= reach
            };
            let expected: Vec<EntityId> = index.iter().filter(is_near).map(|(entity, _)| entity).collect();
            assert_eq!(around, expected);
            found += around.len();
        }
        assert!(found > 500, "only {found}");
        index.remove(EntityId { site: WorldSiteId(0), index: 0 });
        index.rebuild_cells();
        let removed_found =
            index.nearby(Position::default(), 1_000).any(|indexed| indexed.entity.site == WorldSiteId(0));
        assert!(!removed_found && index.nearby(Position::default(), 1_000).count() == 119);
    }
}
