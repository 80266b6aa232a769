//! Directions along the axes of the grid, and the cells that they connect.

use crate::angle::QUARTER_TURN;

/// Column and row of a cell, counted from 0 at the north-west corner of the maze.
pub(crate) type MazeCell = (i32, i32);

/// Side of a cell, or direction along the axes of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards larger x; heading 0.
    East,
    /// Towards larger y; a quarter turn to the right of east.
    South,
    /// Towards smaller x; half a turn from east.
    West,
    /// Towards smaller y; a quarter turn to the left of east.
    North,
}

impl Direction {
    /// All directions, clockwise from east.
    pub const ALL: [Self; 4] = [Self::East, Self::South, Self::West, Self::North];

    /// Returns the direction as a heading: 0 for east, one quarter turn for south, two for west, three for north.
    pub fn heading(self) -> u16 {
        self as u16 * QUARTER_TURN
    }

    /// Returns the step to the neighbouring cell in this direction: (east, south), in cells.
    pub(crate) fn offset(self) -> (i32, i32) {
        match self {
            Self::East => (1, 0),
            Self::South => (0, 1),
            Self::West => (-1, 0),
            Self::North => (0, -1),
        }
    }

    /// Returns the next cell in this direction, which may lie outside the maze.
    pub(crate) fn neighbour(self, (x, y): MazeCell) -> MazeCell {
        let (east, south) = self.offset();
        (x + east, y + south)
    }
}
