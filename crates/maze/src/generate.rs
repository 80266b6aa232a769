//! How a maze is made: a tree of corridors, so that there is a way from everywhere to everywhere; then most dead ends are opened, and
//! some rooms, so that there is a way round, and nobody is cornered for long.

use crate::maze::Direction;
use crate::rng::Rng;

/// Of so many dead ends one stays.
const DEAD_ENDS_PER_KEPT: u32 = 5;

/// There is a room for so many cells.
const CELLS_PER_ROOM: u32 = 16;

/// The maze as solid and open blocks. Cells and what is between them alternate: the block of cell `k` is `2k + 1`, the walls
/// before and after it are `2k` and `2k + 2`, and where walls cross there is a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockGrid {
    blocks_per_side: i32,
    solid_blocks: Vec<bool>,
}

/// The column and row of a cell.
pub(crate) type Cell = (i32, i32);

impl BlockGrid {
    /// A maze of so many cells each way.
    pub(crate) fn generate(seed: u64, side: u8) -> Self {
        let mut luck = Rng::new(seed);
        let mut blocks = Self::all_walls(side);
        blocks.carve_spanning_tree(&mut luck);
        blocks.open_dead_ends(&mut luck);
        blocks.open_rooms(&mut luck);
        blocks
    }

    /// Cells that are shut off from each other.
    fn all_walls(side: u8) -> Self {
        let across = 2 * i32::from(side) + 1;
        let solid = (0..across * across).map(|at| at % across % 2 == 0 || at / across % 2 == 0).collect();
        Self { blocks_per_side: across, solid_blocks: solid }
    }

    /// Whether there is a wall or a post. Outside everything is solid.
    pub(crate) fn is_solid(&self, column: i32, row: i32) -> bool {
        let inside = 0..self.blocks_per_side;
        !inside.contains(&column) || !inside.contains(&row) || self.solid_blocks[self.index(column, row)]
    }

    /// Whether there is a wall on that side of a cell.
    pub(crate) fn has_wall(&self, (x, y): Cell, direction: Direction) -> bool {
        let (east, south) = direction.offset();
        self.is_solid(2 * x + 1 + east, 2 * y + 1 + south)
    }

    fn index(&self, column: i32, row: i32) -> usize {
        (row * self.blocks_per_side + column) as usize
    }

    fn cells_per_side(&self) -> i32 {
        self.blocks_per_side / 2
    }

    fn has_cell(&self, (x, y): Cell) -> bool {
        let inside = 0..self.cells_per_side();
        inside.contains(&x) && inside.contains(&y)
    }

    /// Takes the wall away, unless it is the outer one.
    fn remove_wall(&mut self, cell: Cell, direction: Direction) {
        if self.has_cell(direction.neighbour(cell)) {
            let (east, south) = direction.offset();
            let index = self.index(2 * cell.0 + 1 + east, 2 * cell.1 + 1 + south);
            self.solid_blocks[index] = false;
        }
    }

    /// Walks on into cells that were not visited yet, and back where there is none.
    fn carve_spanning_tree(&mut self, luck: &mut Rng) {
        let side = self.cells_per_side();
        let mut visited = vec![false; (side * side) as usize];
        let place = |(x, y): Cell| (y * side + x) as usize;
        let mut trail = vec![self.random_cell(luck, 1)];
        visited[place(trail[0])] = true;
        while let Some(here) = trail.last().copied() {
            let fresh = self.directions_where(|blocks, direction| {
                let there = direction.neighbour(here);
                blocks.has_cell(there) && !visited[place(there)]
            });
            if fresh.is_empty() {
                trail.pop();
                continue;
            }
            let direction = *luck.pick(&fresh);
            self.remove_wall(here, direction);
            visited[place(direction.neighbour(here))] = true;
            trail.push(direction.neighbour(here));
        }
    }

    fn open_dead_ends(&mut self, luck: &mut Rng) {
        for at in 0..self.cells_per_side() * self.cells_per_side() {
            let cell = (at % self.cells_per_side(), at / self.cells_per_side());
            let walls = self.directions_where(|blocks, direction| blocks.has_wall(cell, direction));
            let inner = self.directions_where(|blocks, direction| {
                blocks.has_wall(cell, direction) && blocks.has_cell(direction.neighbour(cell))
            });
            if walls.len() == 3 && !inner.is_empty() && !luck.one_in(DEAD_ENDS_PER_KEPT) {
                self.remove_wall(cell, *luck.pick(&inner));
            }
        }
    }

    /// Rooms of two or three cells each way. The posts stay, as pillars to hide behind.
    fn open_rooms(&mut self, luck: &mut Rng) {
        for _ in 0..(self.cells_per_side() * self.cells_per_side()) as u32 / CELLS_PER_ROOM {
            let (wide, high) = (2 + luck.below(2) as i32, 2 + luck.below(2) as i32);
            let corner = self.random_cell(luck, wide.max(high));
            for at in 0..wide * high {
                let (x, y) = (at % wide, at / wide);
                let cell = (corner.0 + x, corner.1 + y);
                if x + 1 < wide {
                    self.remove_wall(cell, Direction::East);
                }
                if y + 1 < high {
                    self.remove_wall(cell, Direction::South);
                }
            }
        }
    }

    /// A cell with this much room to the east and south, itself included.
    fn random_cell(&self, luck: &mut Rng, room: i32) -> Cell {
        let places = (self.cells_per_side() - room + 1) as u32;
        (luck.below(places) as i32, luck.below(places) as i32)
    }

    fn directions_where(&self, wanted: impl Fn(&Self, Direction) -> bool) -> Vec<Direction> {
        Direction::ALL.into_iter().filter(|direction| wanted(self, *direction)).collect()
    }
}
