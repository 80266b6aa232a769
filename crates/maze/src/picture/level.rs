//! What is level: a floor of polished tiles, and a ceiling of plates with lamps.

use super::colour::{Light, mixed, scaled, sum};
use super::eye::{EYE_HEIGHT, Eye, Plane};
use super::stage::{Lines, clearness, foggy, lamplight, region, whole};
use super::wall::CEILING;
use crate::carve::Cell;
use crate::maze::{CELL, Direction, HALF_WALL, Maze};

/// Tiles of the floor and plates of the ceiling, and half of what is between two of them, in units. They fit into cells.
const TILE: f32 = 128.0;
const HALF_JOINT: f32 = 1.5;

/// Lamps are in the middle of cells: half of their width, in units.
const HALF_LAMP: f32 = 52.0;

const LAMP: Light = [1.0, 0.97, 0.88];
const FLOOR: Light = [0.30, 0.31, 0.35];
const PLATE: Light = [0.17, 0.18, 0.22];

const SIDE: f32 = CELL as f32;

/// What is the same for all that is level in a row of the picture.
pub(super) struct Row {
    /// The middle of its pixels.
    pub(super) y: f32,
    /// What the row shows: the ceiling above the middle, the floor below it.
    own: Level,
    /// What the floor mirrors.
    mirrored: Level,
    /// How much it does: the more the flatter one looks at it.
    mirror: f32,
    /// How much tiles differ; far away they do not.
    checks: f32,
}

struct Level {
    depth: f32,
    clearness: f32,
    joints: Lines,
    /// How soft the edges of lamps are.
    per_edge: f32,
}

/// A place in its cell.
struct Spot {
    cell: Cell,
    /// From the middle of the cell.
    x: f32,
    y: f32,
    /// Which tile of the cell, and how far it is to the next joint.
    tile: i32,
    to_joint: f32,
}

impl Row {
    pub(super) fn new(eye: &Eye, y: f32) -> Self {
        let below = y - eye.middle[1];
        let height = if below > 0.0 { EYE_HEIGHT } else { CEILING - EYE_HEIGHT };
        let depth = depth(eye, height, below);
        // A pixel of the floor far away covers much more forward than aside.
        let pixel = depth / eye.focus * if below > 0.0 { 0.6 + 0.6 * depth / EYE_HEIGHT } else { 2.0 };
        let beyond = self::depth(eye, EYE_HEIGHT + CEILING, below);
        let flat = depth / (depth + 3.0 * EYE_HEIGHT);
        Self {
            y,
            own: Level::new(depth, pixel),
            mirrored: Level::new(beyond, 2.0 * beyond / eye.focus),
            mirror: 0.06 + 0.34 * flat * flat,
            checks: 0.06 * TILE / (TILE + 4.0 * pixel),
        }
    }

    pub(super) fn ceiling(&self, eye: &Eye, ray: Plane) -> Light {
        self.own.ceiling(eye, ray)
    }

    pub(super) fn mirrored_ceiling(&self, eye: &Eye, ray: Plane) -> Light {
        self.mirrored.ceiling(eye, ray)
    }

    /// The floor, which mirrors what is above it.
    pub(super) fn floor(&self, maze: &Maze, eye: &Eye, ray: Plane, mirrored: Light) -> Light {
        let spot = Spot::new(eye.at(ray, self.own.depth));
        let joint = self.own.joints.covered(spot.to_joint);
        let checks = if spot.tile % 2 == 0 { 1.0 + self.checks } else { 1.0 - self.checks };
        let lit = lamplight(spot.x * spot.x + spot.y * spot.y + 6_000.0) * corner_shade(maze, &spot);
        let tint = mixed(FLOOR, region(spot.cell).0, 0.35);
        let own = scaled(tint, lit * checks * (1.0 - 0.35 * joint));
        mixed(foggy(own, self.own.clearness), mirrored, self.mirror)
    }
}

/// How far away a row looks at something so far above or below the eye.
fn depth(eye: &Eye, height: f32, below: f32) -> f32 {
    height * eye.focus / below.abs().max(0.01)
}

impl Level {
    fn new(depth: f32, pixel: f32) -> Self {
        Self {
            depth,
            clearness: clearness(depth),
            joints: Lines::new(HALF_JOINT, pixel),
            per_edge: 1.0 / (pixel + 2.0),
        }
    }

    fn ceiling(&self, eye: &Eye, ray: Plane) -> Light {
        let spot = Spot::new(eye.at(ray, self.depth));
        let beyond = spot.x.abs().max(spot.y.abs()) - HALF_LAMP;
        let lamp = (0.5 - beyond * self.per_edge).clamp(0.0, 1.0);
        let far = beyond.max(0.0);
        let glow = 0.30 / (1.0 + far * far * (1.0 / 1_600.0));
        let plate = scaled(PLATE, 1.0 - 0.4 * self.joints.covered(spot.to_joint));
        foggy(mixed(sum(plate, scaled(LAMP, glow)), LAMP, lamp), self.clearness)
    }
}

impl Spot {
    fn new(place: Plane) -> Self {
        let cell = place.map(|at| whole(at * (1.0 / SIDE)));
        let [x, y] = std::array::from_fn(|axis| place[axis] - cell[axis] as f32 * SIDE);
        let [tile_x, tile_y] = [x, y].map(|at| (at * (1.0 / TILE)) as i32);
        let to_joint = |at: f32, tile: i32| {
            let within = at - tile as f32 * TILE;
            within.min(TILE - within)
        };
        Self {
            cell: (cell[0], cell[1]),
            x: x - SIDE / 2.0,
            y: y - SIDE / 2.0,
            tile: tile_x + tile_y,
            to_joint: to_joint(x, tile_x).min(to_joint(y, tile_y)),
        }
    }
}

/// It is darker where the floor meets a wall.
fn corner_shade(maze: &Maze, spot: &Spot) -> f32 {
    let shade = |at: f32, before: Direction, after: Direction| {
        let gap = SIDE / 2.0 - HALF_WALL as f32 - at.abs();
        if gap > 90.0 || !maze.has_wall(spot.cell, if at < 0.0 { before } else { after }) {
            return 1.0;
        }
        1.0 - 0.5 / (1.0 + gap.max(0.0) * gap.max(0.0) * (1.0 / 300.0))
    };
    shade(spot.x, Direction::West, Direction::East) * shade(spot.y, Direction::North, Direction::South)
}
