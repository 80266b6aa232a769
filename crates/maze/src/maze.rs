//! The maze: walls, what they stop, and what they hide.

use std::ops::RangeInclusive;

use crate::angle::QUARTER_TURN;
use crate::generate::{BlockGrid, Cell};
use crate::position::{Position, UNIT};
use crate::rng::Rng;

/// Units of the grid, each way.
pub const GRID_SIZE: i32 = 65_536;

/// Units from the middle of a wall to the middle of the next: a corridor is as wide as eight avatars, less the walls.
pub const CELL_SIZE: i32 = 512;

/// Half of what a wall is thick, in units.
pub(crate) const WALL_HALF_THICKNESS: i32 = 16;

/// Places to start from are at most so far from the middle of their cell, in units.
const SPAWN_SPREAD: u16 = 160;

const CELL_SIZE_FIXED: i32 = CELL_SIZE * UNIT;
const WALL_HALF_THICKNESS_FIXED: i32 = WALL_HALF_THICKNESS * UNIT;

/// One of the four ways out of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Heading 0.
    East,
    /// A quarter turn to the right of it.
    South,
    /// Half a turn.
    West,
    /// A quarter turn to the left.
    North,
}

impl Direction {
    /// All of them, clockwise.
    pub const ALL: [Self; 4] = [Self::East, Self::South, Self::West, Self::North];

    /// The heading that leads this way.
    pub fn heading(self) -> u16 {
        self as u16 * QUARTER_TURN
    }

    /// How far it leads east and south.
    pub(crate) fn offset(self) -> (i32, i32) {
        match self {
            Self::East => (1, 0),
            Self::South => (0, 1),
            Self::West => (-1, 0),
            Self::North => (0, -1),
        }
    }

    /// The cell that it leads to.
    pub(crate) fn neighbour(self, (x, y): Cell) -> Cell {
        let (east, south) = self.offset();
        (x + east, y + south)
    }
}

/// A maze in the middle of the grid, which follows from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maze {
    seed: u64,
    cells_per_side: u8,
    blocks: BlockGrid,
}

/// Where a ray meets a wall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RayHit {
    /// How often the ray's scale fits into the way there, as asked.
    pub(crate) reach: i64,
    /// The face that it meets looks this way.
    pub(crate) face: Direction,
}

impl Maze {
    /// How many cells each way a maze can have: up to the whole grid.
    pub const SIDE_RANGE: RangeInclusive<u8> = 4..=128;

    /// The maze of this seed, with so many cells each way: as many as [`SIDES`](Self::SIDE_RANGE) allow.
    pub fn new(seed: u64, side: u8) -> Self {
        let side = side.clamp(*Self::SIDE_RANGE.start(), *Self::SIDE_RANGE.end());
        Self { seed, cells_per_side: side, blocks: BlockGrid::generate(seed, side) }
    }

    /// What it follows from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Cells each way.
    pub fn cells_per_side(&self) -> u8 {
        self.cells_per_side
    }

    /// Where its north-west corner is.
    pub fn corner(&self) -> Position {
        let before = (GRID_SIZE - i32::from(self.cells_per_side) * CELL_SIZE) / 2;
        Position::from_units(before, before)
    }

    /// Whether a cell, counted from the north-west, has a wall on this side. Outside everything is wall.
    pub fn has_wall_at(&self, cell_x: u8, cell_y: u8, direction: Direction) -> bool {
        self.has_wall((cell_x.into(), cell_y.into()), direction)
    }

    pub(crate) fn has_wall(&self, cell: Cell, direction: Direction) -> bool {
        self.blocks.has_wall(cell, direction)
    }

    /// Whether there is a post where the walls before this column and row of cells cross.
    pub(crate) fn has_post(&self, column: i32, row: i32) -> bool {
        self.blocks.is_solid(2 * column, 2 * row)
    }

    /// The cell that a place is in; the middle of a wall belongs to the one after it.
    pub(crate) fn cell_at(&self, position: Position) -> Cell {
        let (x, y) = self.relative_to_corner(position);
        (x.div_euclid(CELL_SIZE_FIXED), y.div_euclid(CELL_SIZE_FIXED))
    }

    /// The middle of a cell.
    pub(crate) fn cell_centre(&self, (x, y): Cell) -> Position {
        let corner = self.corner();
        Position {
            x: corner.x + x * CELL_SIZE_FIXED + CELL_SIZE_FIXED / 2,
            y: corner.y + y * CELL_SIZE_FIXED + CELL_SIZE_FIXED / 2,
        }
    }

    /// Whether somebody of this radius (in units) can be there.
    pub fn is_free(&self, position: Position, radius: u8) -> bool {
        let (x, y) = self.relative_to_corner(position);
        let radius = i32::from(radius) * UNIT;
        let blocks = |at: i32| block_at(at.saturating_sub(radius))..=block_at(at.saturating_add(radius));
        !blocks(y).any(|row| {
            blocks(x).any(|column| {
                self.blocks.is_solid(column, row) && squared_gap((x, y), column, row) < i64::from(radius).pow(2)
            })
        }) && !self.blocks.is_solid(block_at(x), block_at(y))
    }

    /// Whether there is no wall between two places.
    pub fn has_line_of_sight(&self, from: Position, to: Position) -> bool {
        const SCALE: i64 = 1 << 20;
        let way = (i64::from(to.x) - i64::from(from.x), i64::from(to.y) - i64::from(from.y));
        self.cast_ray(from, way, SCALE, SCALE).is_none()
    }

    /// A place to start from; every number has its own. It is never in a wall.
    pub fn spawn_point(&self, number: u64) -> Position {
        let mut luck = Rng::from_parts(&[self.seed, number]);
        let side = u32::from(self.cells_per_side);
        let middle = self.cell_centre((luck.below(side) as i32, luck.below(side) as i32));
        Position {
            x: middle.x + luck.symmetric(SPAWN_SPREAD) * UNIT,
            y: middle.y + luck.symmetric(SPAWN_SPREAD) * UNIT,
        }
    }

    /// Follows a ray from block to block until it meets a wall: where `reach` × `way` / `scale` from its start is, with a reach of at
    /// most `limit`.
    pub(crate) fn cast_ray(&self, from: Position, way: (i64, i64), scale: i64, limit: i64) -> Option<RayHit> {
        let (x, y) = self.relative_to_corner(from);
        let (mut column, mut row) = (block_at(x), block_at(y));
        let mut meeting = RayHit { reach: 0, face: Direction::East };
        while !self.blocks.is_solid(column, row) {
            let east = ray_exit(x, way.0, column, scale);
            let south = ray_exit(y, way.1, row, scale);
            meeting.reach = east.min(south);
            if meeting.reach > limit {
                return None;
            }
            if east <= south {
                column += way.0.signum() as i32;
                meeting.face = if way.0 > 0 { Direction::West } else { Direction::East };
            } else {
                row += way.1.signum() as i32;
                meeting.face = if way.1 > 0 { Direction::North } else { Direction::South };
            }
        }
        Some(meeting)
    }

    /// A place as seen from the corner of the maze.
    fn relative_to_corner(&self, position: Position) -> (i32, i32) {
        let corner = self.corner();
        (position.x.saturating_sub(corner.x), position.y.saturating_sub(corner.y))
    }
}

/// The block that a coordinate is in.
fn block_at(at: i32) -> i32 {
    let shifted = at.saturating_add(WALL_HALF_THICKNESS_FIXED);
    let beyond_the_wall = shifted.rem_euclid(CELL_SIZE_FIXED) >= 2 * WALL_HALF_THICKNESS_FIXED;
    2 * shifted.div_euclid(CELL_SIZE_FIXED) + i32::from(beyond_the_wall)
}

/// Where a block begins.
fn block_start(block: i32) -> i64 {
    let wall = i64::from(block.div_euclid(2)) * i64::from(CELL_SIZE_FIXED);
    wall + i64::from(if block.rem_euclid(2) == 0 { -WALL_HALF_THICKNESS_FIXED } else { WALL_HALF_THICKNESS_FIXED })
}

/// The reach with which a ray leaves its block along one axis.
fn ray_exit(at: i32, way: i64, block: i32, scale: i64) -> i64 {
    if way == 0 {
        return i64::MAX;
    }
    let edge = if way > 0 { block_start(block + 1) } else { block_start(block) };
    (edge - i64::from(at)) * scale / way
}

/// The square of the distance from a place to the nearest of a block.
fn squared_gap((x, y): (i32, i32), column: i32, row: i32) -> i64 {
    let gap = |at: i32, block: i32| {
        let at = i64::from(at);
        (block_start(block) - at).max(at - block_start(block + 1)).max(0)
    };
    gap(x, column).pow(2) + gap(y, row).pow(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathFinder;

    /// How many walls each cell has.
    fn wall_counts(maze: &Maze) -> Vec<usize> {
        let side = i32::from(maze.cells_per_side());
        let walls = |at| Direction::ALL.iter().filter(|way| maze.has_wall((at % side, at / side), **way)).count();
        (0..side * side).map(walls).collect()
    }

    #[test]
    fn seed_determines_the_maze() {
        assert_eq!(Maze::new(7, 12), Maze::new(7, 12));
        assert_ne!(Maze::new(7, 12).blocks, Maze::new(8, 12).blocks);
        assert_eq!(Maze::new(7, 0).cells_per_side(), 4);
        assert_eq!(Maze::new(7, 255).cells_per_side(), 128);
    }

    #[test]
    fn every_cell_is_reachable_and_walls_are_symmetric() {
        for (seed, side) in [(1, 4), (2, 5), (3, 12), (4, 33), (5, 128)] {
            let maze = Maze::new(seed, side);
            let last = i32::from(side) - 1;
            let mut way = PathFinder::new(usize::MAX);
            for x in 0..=last {
                for y in 0..=last {
                    let east = x < last && maze.has_wall((x, y), Direction::East);
                    assert_eq!(east, x < last && maze.has_wall((x + 1, y), Direction::West));
                }
                assert!(maze.has_wall((x, 0), Direction::North) && maze.has_wall((x, last), Direction::South));
                assert!(maze.has_wall((0, x), Direction::West) && maze.has_wall((last, x), Direction::East));
                for to in [(x, 0), (x, last), (0, x), (last, x), (x, x)] {
                    assert_eq!(way.find(&maze, (0, 0), to).last().copied().unwrap_or((0, 0)), to);
                }
            }
        }
    }

    #[test]
    fn maze_has_loops_rooms_and_few_dead_ends() {
        for seed in 0..20 {
            let walls = wall_counts(&Maze::new(seed, 16));
            let dead_ends = walls.iter().filter(|count| **count == 3).count();
            let open = walls.iter().filter(|count| **count == 0).count();
            assert!(walls.iter().all(|count| *count < 4));
            assert!(dead_ends <= 16, "{dead_ends} dead ends of 256 cells");
            assert!((2..80).contains(&open), "{open} cells without a wall");
            let openings: usize = walls.iter().map(|count| 4 - count).sum::<usize>() / 2;
            assert!(openings > 256 + 20, "a tree has 255 openings, this has {openings}");
        }
    }

    #[test]
    fn is_free_respects_the_radius() {
        let maze = Maze::new(7, 4);
        let corner = maze.corner();
        let at = |east: i32, south: i32| Position { x: corner.x + east, y: corner.y + south };
        let touching = (WALL_HALF_THICKNESS + 32) * UNIT;
        assert!(maze.is_free(at(touching, touching), 32));
        assert!(!maze.is_free(at(touching - 1, touching), 32));
        assert!(!maze.is_free(at(touching, touching - 1), 32));
        assert!(!maze.is_free(at(0, 0), 0), "in the wall");
        assert!(!maze.is_free(at(-99_999, 0), 32) && !maze.is_free(Position { x: i32::MIN, y: i32::MAX }, 255));
    }

    #[test]
    fn position_is_free_iff_no_wall_is_within_the_radius() {
        let maze = Maze::new(7, 6);
        let mut luck = Rng::new(1);
        let mut counts = [0; 2];
        for _ in 0..2_000 {
            let middle = maze.cell_centre((luck.below(6) as i32, luck.below(6) as i32));
            let place = Position { x: middle.x + luck.symmetric(256) * UNIT, y: middle.y + luck.symmetric(256) * UNIT };
            let within = |radius: i32| {
                let offsets = (-radius..=radius).flat_map(move |x| (-radius..=radius).map(move |y| (x, y)));
                let inside = offsets.filter(move |(x, y)| x * x + y * y < radius * radius);
                inside.map(|(x, y)| Position { x: place.x + x * UNIT, y: place.y + y * UNIT })
            };
            let free = maze.is_free(place, 32);
            counts[usize::from(free)] += 1;
            assert!(!free || within(32).all(|point| maze.is_free(point, 0)));
            assert!(free || within(34).any(|point| !maze.is_free(point, 0)));
        }
        assert!(counts.iter().all(|count| *count > 100), "both cases were tried: {counts:?}");
    }

    #[test]
    fn walls_block_line_of_sight() {
        let maze = Maze::new(7, 12);
        for at in 0..144 {
            let cell = (at % 12, at / 12);
            for direction in Direction::ALL {
                let there = direction.neighbour(cell);
                let seen = maze.has_line_of_sight(maze.cell_centre(cell), maze.cell_centre(there));
                assert_eq!(seen, !maze.has_wall(cell, direction), "{cell:?} {direction:?}");
            }
        }
        let middle = maze.cell_centre((3, 3));
        assert!(maze.has_line_of_sight(middle, middle));
        assert!(!maze.has_line_of_sight(middle, Position { x: i32::MAX, y: i32::MIN }));
        assert!(!maze.has_line_of_sight(Position { x: i32::MIN, y: i32::MIN }, middle));
    }

    #[test]
    fn spawn_points_are_free_and_distinct() {
        for side in [4, 16, 128] {
            let maze = Maze::new(3, side);
            let places: std::collections::BTreeSet<_> = (0..1_000).map(|number| maze.spawn_point(number)).collect();
            assert!(places.iter().all(|place| maze.is_free(*place, 32)));
            assert!(places.len() > 990);
        }
    }
}
