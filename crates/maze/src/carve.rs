//! How a maze is made: a tree of corridors, so that there is a way from everywhere to everywhere; then most dead ends are opened, and
//! some rooms, so that there is a way round, and nobody is cornered for long.

use crate::luck::Luck;
use crate::maze::Direction;

/// Of so many dead ends one stays.
const DEAD_ENDS: u32 = 5;

/// There is a room for so many cells.
const CELLS_PER_ROOM: u32 = 16;

/// The maze as solid and open blocks. Cells and what is between them alternate: the block of cell `k` is `2k + 1`, the walls
/// before and after it are `2k` and `2k + 2`, and where walls cross there is a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    across: i32,
    solid: Vec<bool>,
}

/// The column and row of a cell.
pub(crate) type Cell = (i32, i32);

impl Blocks {
    /// A maze of so many cells each way.
    pub(crate) fn carve(seed: u64, side: u8) -> Self {
        let mut luck = Luck::new(seed);
        let mut blocks = Self::closed(side);
        blocks.grow_tree(&mut luck);
        blocks.open_dead_ends(&mut luck);
        blocks.open_rooms(&mut luck);
        blocks
    }

    /// Cells that are shut off from each other.
    fn closed(side: u8) -> Self {
        let across = 2 * i32::from(side) + 1;
        let solid = (0..across * across).map(|at| at % across % 2 == 0 || at / across % 2 == 0).collect();
        Self { across, solid }
    }

    /// Whether there is a wall or a post. Outside everything is solid.
    pub(crate) fn is_solid(&self, column: i32, row: i32) -> bool {
        let inside = 0..self.across;
        !inside.contains(&column) || !inside.contains(&row) || self.solid[self.index(column, row)]
    }

    /// Whether there is a wall on that side of a cell.
    pub(crate) fn has_wall(&self, (x, y): Cell, direction: Direction) -> bool {
        let (east, south) = direction.step();
        self.is_solid(2 * x + 1 + east, 2 * y + 1 + south)
    }

    fn index(&self, column: i32, row: i32) -> usize {
        (row * self.across + column) as usize
    }

    fn side(&self) -> i32 {
        self.across / 2
    }

    fn has_cell(&self, (x, y): Cell) -> bool {
        let inside = 0..self.side();
        inside.contains(&x) && inside.contains(&y)
    }

    /// Takes the wall away, unless it is the outer one.
    fn open(&mut self, cell: Cell, direction: Direction) {
        if self.has_cell(direction.from(cell)) {
            let (east, south) = direction.step();
            let index = self.index(2 * cell.0 + 1 + east, 2 * cell.1 + 1 + south);
            self.solid[index] = false;
        }
    }

    /// Walks on into cells that were not visited yet, and back where there is none.
    fn grow_tree(&mut self, luck: &mut Luck) {
        let side = self.side();
        let mut visited = vec![false; (side * side) as usize];
        let place = |(x, y): Cell| (y * side + x) as usize;
        let mut trail = vec![self.any_cell(luck, 1)];
        visited[place(trail[0])] = true;
        while let Some(here) = trail.last().copied() {
            let fresh = self.directions(|blocks, direction| {
                let there = direction.from(here);
                blocks.has_cell(there) && !visited[place(there)]
            });
            if fresh.is_empty() {
                trail.pop();
                continue;
            }
            let direction = *luck.pick(&fresh);
            self.open(here, direction);
            visited[place(direction.from(here))] = true;
            trail.push(direction.from(here));
        }
    }

    fn open_dead_ends(&mut self, luck: &mut Luck) {
        for at in 0..self.side() * self.side() {
            let cell = (at % self.side(), at / self.side());
            let walls = self.directions(|blocks, direction| blocks.has_wall(cell, direction));
            let inner = self.directions(|blocks, direction| {
                blocks.has_wall(cell, direction) && blocks.has_cell(direction.from(cell))
            });
            if walls.len() == 3 && !inner.is_empty() && !luck.one_in(DEAD_ENDS) {
                self.open(cell, *luck.pick(&inner));
            }
        }
    }

    /// Rooms of two or three cells each way. The posts stay, as pillars to hide behind.
    fn open_rooms(&mut self, luck: &mut Luck) {
        for _ in 0..(self.side() * self.side()) as u32 / CELLS_PER_ROOM {
            let (wide, high) = (2 + luck.below(2) as i32, 2 + luck.below(2) as i32);
            let corner = self.any_cell(luck, wide.max(high));
            for at in 0..wide * high {
                let (x, y) = (at % wide, at / wide);
                let cell = (corner.0 + x, corner.1 + y);
                if x + 1 < wide {
                    self.open(cell, Direction::East);
                }
                if y + 1 < high {
                    self.open(cell, Direction::South);
                }
            }
        }
    }

    /// A cell with this much room to the east and south, itself included.
    fn any_cell(&self, luck: &mut Luck, room: i32) -> Cell {
        let places = (self.side() - room + 1) as u32;
        (luck.below(places) as i32, luck.below(places) as i32)
    }

    fn directions(&self, wanted: impl Fn(&Self, Direction) -> bool) -> Vec<Direction> {
        Direction::ALL.into_iter().filter(|direction| wanted(self, *direction)).collect()
    }
}
