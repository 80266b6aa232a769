//! Positions of all avatars, indexed by cell.

use coplay::peer_world::EntityId;
use coplay_maze::{CELL_SIZE, Position, UNIT};

/// Avatars by cell, as of the last tick.
#[derive(Clone, Debug, Default)]
pub struct SpatialIndex {
    /// Avatars by cell, sorted by row and column.
    cells: Vec<(IndexCell, IndexedAvatar)>,
}

/// Row and column of a cell.
type IndexCell = (i32, i32);

/// Entry of the index, as of the last call of [`SpatialIndex::rebuild`].
#[derive(Clone, Copy, Debug)]
pub struct IndexedAvatar {
    /// Entity to which the avatar belongs.
    pub entity: EntityId,
    /// Position when the index was rebuilt.
    pub position: Position,
    /// Whether the avatar was alive when the index was rebuilt.
    pub is_alive: bool,
}

impl SpatialIndex {
    /// Sorts these avatars into cells, in place of the earlier ones.
    pub fn rebuild(&mut self, avatars: impl Iterator<Item = IndexedAvatar>) {
        self.cells.clear();
        self.cells.extend(avatars.map(|indexed| (cell_of(indexed.position), indexed)));
        self.cells.sort_unstable_by_key(|(cell, indexed)| (*cell, indexed.entity));
    }

    /// Returns the avatars in the cells around a position, `reach` cells in each direction.
    pub fn nearby(&self, position: Position, reach: i32) -> impl Iterator<Item = IndexedAvatar> {
        let (row, column) = cell_of(position);
        (row - reach..=row + reach).flat_map(move |row| {
            let from = self.cells.partition_point(|(cell, _)| *cell < (row, column - reach));
            let in_reach = move |(cell, _): &&(IndexCell, IndexedAvatar)| *cell <= (row, column + reach);
            self.cells[from..].iter().take_while(in_reach).map(|(_, indexed)| *indexed)
        })
    }

    /// Returns all avatars.
    pub fn iter(&self) -> impl Iterator<Item = IndexedAvatar> {
        self.cells.iter().map(|(_, indexed)| *indexed)
    }
}

fn cell_of(position: Position) -> IndexCell {
    (position.y.div_euclid(CELL_SIZE * UNIT), position.x.div_euclid(CELL_SIZE * UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::{Maze, MazeRules};

    #[test]
    fn nearby_returns_the_avatars_of_surrounding_cells() {
        let rules = MazeRules::new(Maze::new(7, 16));
        let indexed = |number: u32| IndexedAvatar {
            entity: EntityId { site: WorldSiteId(number), index: 0 },
            position: rules.spawn_avatar(&[], number.into()).position,
            is_alive: true,
        };
        let all: Vec<IndexedAvatar> = (0..120).map(indexed).collect();
        let mut index = SpatialIndex::default();
        index.rebuild(all.iter().copied());
        let mut found = 0;
        for (one, reach) in all.iter().zip([0, 1, 4].into_iter().cycle()) {
            let mut around: Vec<EntityId> = index.nearby(one.position, reach).map(|indexed| indexed.entity).collect();
            around.sort();
            let (row, column) = cell_of(one.position);
            let is_near = |other: &&IndexedAvatar| {
                let (other_row, other_column) = cell_of(other.position);
                (row - other_row).abs() <= reach && (column - other_column).abs() <= reach
            };
            let expected: Vec<EntityId> = all.iter().filter(is_near).map(|other| other.entity).collect();
            assert_eq!(around, expected);
            found += around.len();
        }
        assert!(found > 500, "only {found}");
        index.rebuild(all[1..].iter().copied());
        assert!(index.nearby(Position::default(), 1_000).count() == 119 && index.iter().count() == 119);
    }
}
