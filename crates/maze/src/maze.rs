//! The maze: walls, collisions with them and line of sight.

use std::ops::RangeInclusive;

use crate::direction::{Direction, MazeCell};
use crate::generate::BlockGrid;
use crate::position::{GRID_SIZE, Position, UNIT};
use crate::rng::Rng;

/// Distance from the middle of a wall to the middle of the next, in units. The corridor between the two walls is 480
/// units wide, which is 7.5 avatars.
pub const CELL_SIZE: i32 = 512;

/// Half the thickness of a wall, in units.
pub(crate) const WALL_HALF_THICKNESS: i32 = 16;

/// Largest offset of a spawn point from the centre of its cell along each axis, in units.
const SPAWN_SPREAD: u16 = 160;

const CELL_SIZE_FIXED: i32 = CELL_SIZE * UNIT;
const WALL_HALF_THICKNESS_FIXED: i32 = WALL_HALF_THICKNESS * UNIT;

/// Maze in the middle of the grid, generated from a seed. Outside its cells everything is wall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maze {
    seed: u64,
    cells_per_side: u8,
    blocks: BlockGrid,
}

/// Point where a ray hits a wall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RayHit {
    /// Reach of the ray: the wall is at `from` + `reach` × `direction` / `scale`, the arguments of [`Maze::cast_ray`].
    pub(crate) reach: i64,
    /// Side of the wall that the ray hits: the direction in which this face looks.
    pub(crate) face: Direction,
}

impl Maze {
    /// Permitted number of cells per side. The largest maze fills the grid.
    pub const SIDE_RANGE: RangeInclusive<u8> = 4..=128;

    /// Generates the maze of this seed. `side` is the number of cells per side, clamped to
    /// [`SIDE_RANGE`](Self::SIDE_RANGE).
    pub fn new(seed: u64, side: u8) -> Self {
        let side = side.clamp(*Self::SIDE_RANGE.start(), *Self::SIDE_RANGE.end());
        Self { seed, cells_per_side: side, blocks: BlockGrid::generate(seed, side) }
    }

    /// Returns the seed from which the maze was generated, which also determines its spawn points.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of cells per side, within [`SIDE_RANGE`](Self::SIDE_RANGE).
    pub fn cells_per_side(&self) -> u8 {
        self.cells_per_side
    }

    /// Returns the north-west corner of the maze on the grid.
    pub fn corner(&self) -> Position {
        let before = (GRID_SIZE - i32::from(self.cells_per_side) * CELL_SIZE) / 2;
        Position::from_units(before, before)
    }

    /// Returns whether a cell has a wall on its `direction` side. Cells are counted from the north-west corner; outside
    /// the maze everything is wall.
    pub fn has_wall_at(&self, cell_x: u8, cell_y: u8, direction: Direction) -> bool {
        self.has_wall((cell_x.into(), cell_y.into()), direction)
    }

    pub(crate) fn has_wall(&self, cell: MazeCell, direction: Direction) -> bool {
        self.blocks.has_wall(cell, direction)
    }

    /// Returns whether there is a post at the north-west corner of the cell at this column and row.
    pub(crate) fn has_post(&self, column: i32, row: i32) -> bool {
        self.blocks.is_solid(2 * column, 2 * row)
    }

    /// Returns the cell that contains a position. The middle line of a wall belongs to the cell to the east or south of
    /// it. A position outside the maze gives a cell outside the maze.
    pub(crate) fn cell_at(&self, position: Position) -> MazeCell {
        let (x, y) = self.relative_to_corner(position);
        (x.div_euclid(CELL_SIZE_FIXED), y.div_euclid(CELL_SIZE_FIXED))
    }

    pub(crate) fn cell_centre(&self, (x, y): MazeCell) -> Position {
        let corner = self.corner();
        Position {
            x: corner.x + x * CELL_SIZE_FIXED + CELL_SIZE_FIXED / 2,
            y: corner.y + y * CELL_SIZE_FIXED + CELL_SIZE_FIXED / 2,
        }
    }

    /// Returns whether a circle of `radius` units around the position overlaps no wall. The circle may touch a wall.
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

    /// Returns whether there is no wall between two positions.
    pub fn has_line_of_sight(&self, from: Position, to: Position) -> bool {
        const SCALE: i64 = 1 << 20;
        let direction = (i64::from(to.x) - i64::from(from.x), i64::from(to.y) - i64::from(from.y));
        self.cast_ray(from, direction, SCALE, SCALE).is_none()
    }

    /// Returns the spawn point with this number: a random position in a random cell, drawn from the maze's seed and
    /// `number`. An avatar there touches no wall.
    pub fn spawn_point(&self, number: u64) -> Position {
        let mut rng = Rng::from_parts(&[self.seed, number]);
        let side = u32::from(self.cells_per_side);
        let middle = self.cell_centre((rng.below(side) as i32, rng.below(side) as i32));
        Position { x: middle.x + rng.symmetric(SPAWN_SPREAD) * UNIT, y: middle.y + rng.symmetric(SPAWN_SPREAD) * UNIT }
    }

    /// Follows a ray from block to block until it hits a wall. The points of the ray are `from` + `reach` × `direction`
    /// / `scale`, where `reach` grows from 0. Returns `None` if the ray hits no wall within a reach of `limit`. A ray
    /// that starts in a wall hits it at reach 0.
    pub(crate) fn cast_ray(&self, from: Position, direction: (i64, i64), scale: i64, limit: i64) -> Option<RayHit> {
        let (x, y) = self.relative_to_corner(from);
        let (mut column, mut row) = (block_at(x), block_at(y));
        let mut hit = RayHit { reach: 0, face: Direction::East };
        while !self.blocks.is_solid(column, row) {
            let east = ray_exit(x, direction.0, column, scale);
            let south = ray_exit(y, direction.1, row, scale);
            hit.reach = east.min(south);
            if hit.reach > limit {
                return None;
            }
            if east <= south {
                column += direction.0.signum() as i32;
                hit.face = if direction.0 > 0 { Direction::West } else { Direction::East };
            } else {
                row += direction.1.signum() as i32;
                hit.face = if direction.1 > 0 { Direction::North } else { Direction::South };
            }
        }
        Some(hit)
    }

    /// Returns a position relative to the north-west corner of the maze, in 1/[`UNIT`] units.
    fn relative_to_corner(&self, position: Position) -> (i32, i32) {
        let corner = self.corner();
        (position.x.saturating_sub(corner.x), position.y.saturating_sub(corner.y))
    }
}

/// Returns the column or row of the block at `at`, a distance from the west or north edge of the maze in 1/[`UNIT`]
/// units.
fn block_at(at: i32) -> i32 {
    let shifted = at.saturating_add(WALL_HALF_THICKNESS_FIXED);
    let beyond_the_wall = shifted.rem_euclid(CELL_SIZE_FIXED) >= 2 * WALL_HALF_THICKNESS_FIXED;
    2 * shifted.div_euclid(CELL_SIZE_FIXED) + i32::from(beyond_the_wall)
}

/// Returns where a column or row of blocks begins, as a distance from the west or north edge of the maze in 1/[`UNIT`]
/// units.
fn block_start(block: i32) -> i64 {
    let wall = i64::from(block.div_euclid(2)) * i64::from(CELL_SIZE_FIXED);
    wall + i64::from(if block.rem_euclid(2) == 0 { -WALL_HALF_THICKNESS_FIXED } else { WALL_HALF_THICKNESS_FIXED })
}

/// Returns the reach at which a ray leaves a column or row of blocks, given one coordinate of the ray's start and of
/// its direction; `i64::MAX` if the ray does not move along this axis.
fn ray_exit(at: i32, direction: i64, block: i32, scale: i64) -> i64 {
    if direction == 0 {
        return i64::MAX;
    }
    let edge = if direction > 0 { block_start(block + 1) } else { block_start(block) };
    (edge - i64::from(at)) * scale / direction
}

/// Returns the square of the distance from a position to the nearest point of a block, in squared 1/[`UNIT`] units.
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

    /// Returns the number of walls of each cell, row by row.
    fn wall_counts(maze: &Maze) -> Vec<usize> {
        let side = i32::from(maze.cells_per_side());
        let walls =
            |at| Direction::ALL.iter().filter(|direction| maze.has_wall((at % side, at / side), **direction)).count();
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
            let mut finder = PathFinder::new(usize::MAX);
            for x in 0..=last {
                for y in 0..=last {
                    let east = x < last && maze.has_wall((x, y), Direction::East);
                    assert_eq!(east, x < last && maze.has_wall((x + 1, y), Direction::West));
                }
                assert!(maze.has_wall((x, 0), Direction::North) && maze.has_wall((x, last), Direction::South));
                assert!(maze.has_wall((0, x), Direction::West) && maze.has_wall((last, x), Direction::East));
                for to in [(x, 0), (x, last), (0, x), (last, x), (x, x)] {
                    assert_eq!(finder.find(&maze, (0, 0), to).last().copied().unwrap_or((0, 0)), to);
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
        assert!(!maze.is_free(at(0, 0), 0), "a point inside a wall is free");
        assert!(!maze.is_free(at(-99_999, 0), 32) && !maze.is_free(Position { x: i32::MIN, y: i32::MAX }, 255));
    }

    #[test]
    fn position_is_free_iff_no_wall_is_within_the_radius() {
        let maze = Maze::new(7, 6);
        let mut rng = Rng::new(1);
        let mut counts = [0; 2];
        for _ in 0..2_000 {
            let middle = maze.cell_centre((rng.below(6) as i32, rng.below(6) as i32));
            let position =
                Position { x: middle.x + rng.symmetric(256) * UNIT, y: middle.y + rng.symmetric(256) * UNIT };
            let within = |radius: i32| {
                let offsets = (-radius..=radius).flat_map(move |x| (-radius..=radius).map(move |y| (x, y)));
                let inside = offsets.filter(move |(x, y)| x * x + y * y < radius * radius);
                inside.map(|(x, y)| Position { x: position.x + x * UNIT, y: position.y + y * UNIT })
            };
            let free = maze.is_free(position, 32);
            counts[usize::from(free)] += 1;
            assert!(!free || within(32).all(|point| maze.is_free(point, 0)));
            assert!(free || within(34).any(|point| !maze.is_free(point, 0)));
        }
        assert!(counts.iter().all(|count| *count > 100), "too few samples of one case: {counts:?}");
    }

    #[test]
    fn walls_block_line_of_sight() {
        let maze = Maze::new(7, 12);
        for at in 0..144 {
            let cell = (at % 12, at / 12);
            for direction in Direction::ALL {
                let neighbour = direction.neighbour(cell);
                let seen = maze.has_line_of_sight(maze.cell_centre(cell), maze.cell_centre(neighbour));
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
            let points: std::collections::BTreeSet<_> = (0..1_000).map(|number| maze.spawn_point(number)).collect();
            assert!(points.iter().all(|position| maze.is_free(*position, 32)));
            assert!(points.len() > 990);
        }
    }
}
