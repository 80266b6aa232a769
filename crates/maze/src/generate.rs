//! Maze generation: a spanning tree of corridors connects all cells; then most dead ends and some rooms are opened, so
//! that there are loops and no avatar is cornered for long.

use crate::direction::{Direction, MazeCell};
use crate::rng::Rng;

/// Number of dead ends of which, on average, one stays closed.
const DEAD_ENDS_PER_KEPT: u32 = 5;

/// Number of cells of the maze per room that is opened.
const CELLS_PER_ROOM: u32 = 16;

/// The maze as a grid of solid and open blocks. Along each axis, cells and walls alternate: the block of cell `k` is
/// `2k + 1`, the walls before and after it are `2k` and `2k + 2`. Where two lines of walls cross there is a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockGrid {
    blocks_per_side: i32,
    solid_blocks: Vec<bool>,
}

impl BlockGrid {
    /// Generates the walls of a maze of `side` × `side` cells.
    pub(crate) fn generate(seed: u64, side: u8) -> Self {
        let mut rng = Rng::new(seed);
        let mut blocks = Self::all_walls(side);
        blocks.carve_spanning_tree(&mut rng);
        blocks.open_dead_ends(&mut rng);
        blocks.open_rooms(&mut rng);
        blocks
    }

    /// Returns a grid in which every cell is walled in.
    fn all_walls(side: u8) -> Self {
        let across = 2 * i32::from(side) + 1;
        let solid = (0..across * across).map(|at| at % across % 2 == 0 || at / across % 2 == 0).collect();
        Self { blocks_per_side: across, solid_blocks: solid }
    }

    /// Returns whether a block is a wall or a post. Outside the maze every block is solid.
    pub(crate) fn is_solid(&self, column: i32, row: i32) -> bool {
        let inside = 0..self.blocks_per_side;
        !inside.contains(&column) || !inside.contains(&row) || self.solid_blocks[self.index(column, row)]
    }

    /// Returns whether there is a wall on the `direction` side of a cell.
    pub(crate) fn has_wall(&self, (x, y): MazeCell, direction: Direction) -> bool {
        let (east, south) = direction.offset();
        self.is_solid(2 * x + 1 + east, 2 * y + 1 + south)
    }

    fn index(&self, column: i32, row: i32) -> usize {
        (row * self.blocks_per_side + column) as usize
    }

    fn cells_per_side(&self) -> i32 {
        self.blocks_per_side / 2
    }

    fn has_cell(&self, (x, y): MazeCell) -> bool {
        let inside = 0..self.cells_per_side();
        inside.contains(&x) && inside.contains(&y)
    }

    /// Removes the wall on the `direction` side of a cell, unless it is an outer wall.
    fn remove_wall(&mut self, cell: MazeCell, direction: Direction) {
        if self.has_cell(direction.neighbour(cell)) {
            let (east, south) = direction.offset();
            let index = self.index(2 * cell.0 + 1 + east, 2 * cell.1 + 1 + south);
            self.solid_blocks[index] = false;
        }
    }

    /// Carves a spanning tree by depth-first search: steps into an unvisited neighbour of the present cell, or back if
    /// there is none.
    fn carve_spanning_tree(&mut self, rng: &mut Rng) {
        let side = self.cells_per_side();
        let mut visited = vec![false; (side * side) as usize];
        let index = |(x, y): MazeCell| (y * side + x) as usize;
        let mut trail = vec![self.random_cell(rng, 1)];
        visited[index(trail[0])] = true;
        while let Some(cell) = trail.last().copied() {
            let unvisited = self.directions_where(|blocks, direction| {
                let neighbour = direction.neighbour(cell);
                blocks.has_cell(neighbour) && !visited[index(neighbour)]
            });
            if unvisited.is_empty() {
                trail.pop();
                continue;
            }
            let direction = *rng.pick(&unvisited);
            self.remove_wall(cell, direction);
            visited[index(direction.neighbour(cell))] = true;
            trail.push(direction.neighbour(cell));
        }
    }

    fn open_dead_ends(&mut self, rng: &mut Rng) {
        for at in 0..self.cells_per_side() * self.cells_per_side() {
            let cell = (at % self.cells_per_side(), at / self.cells_per_side());
            let walls = self.directions_where(|blocks, direction| blocks.has_wall(cell, direction));
            let inner = self.directions_where(|blocks, direction| {
                blocks.has_wall(cell, direction) && blocks.has_cell(direction.neighbour(cell))
            });
            if walls.len() == 3 && !inner.is_empty() && !rng.one_in(DEAD_ENDS_PER_KEPT) {
                self.remove_wall(cell, *rng.pick(&inner));
            }
        }
    }

    /// Opens rooms of two or three cells per side. The posts stay as pillars to hide behind.
    fn open_rooms(&mut self, rng: &mut Rng) {
        for _ in 0..(self.cells_per_side() * self.cells_per_side()) as u32 / CELLS_PER_ROOM {
            let (wide, high) = (2 + rng.below(2) as i32, 2 + rng.below(2) as i32);
            let corner = self.random_cell(rng, wide.max(high));
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

    /// Picks a random cell that is the north-west corner of a square of `room` × `room` cells of the maze.
    fn random_cell(&self, rng: &mut Rng, room: i32) -> MazeCell {
        let choices = (self.cells_per_side() - room + 1) as u32;
        (rng.below(choices) as i32, rng.below(choices) as i32)
    }

    fn directions_where(&self, predicate: impl Fn(&Self, Direction) -> bool) -> Vec<Direction> {
        Direction::ALL.into_iter().filter(|direction| predicate(self, *direction)).collect()
    }
}
