//! Horizontal surfaces: a floor of polished tiles, and a ceiling of plates with lamps.

use super::colour::{LinearColour, add, mix, scale};
use super::projection::{EYE_HEIGHT, Projection, ScreenPoint};
use super::surface::{AntialiasedLine, apply_fog, floor_to_i32, lamplight, region_palette, visibility};
use super::wall::CEILING_HEIGHT;
use crate::direction::Direction;
use crate::direction::MazeCell;
use crate::maze::{CELL_SIZE, Maze, WALL_HALF_THICKNESS};

/// Side of the floor tiles and ceiling plates, in units. A cell holds whole tiles.
const TILE_SIZE: f32 = 128.0;
/// Half the width of a joint between tiles or plates, in units.
const JOINT_HALF_WIDTH: f32 = 1.5;

/// Half the width of a lamp, in units. Each cell has a lamp in its centre.
const LAMP_HALF_WIDTH: f32 = 52.0;

const LAMP_LIGHT: LinearColour = [1.0, 0.97, 0.88];
const FLOOR_LIGHT: LinearColour = [0.30, 0.31, 0.35];
const CEILING_LIGHT: LinearColour = [0.17, 0.18, 0.22];

const CELL_SIDE: f32 = CELL_SIZE as f32;

/// Values that are constant for the horizontal surfaces in one row of the picture.
pub(super) struct ScreenRow {
    /// Vertical centre of the row's pixels, in pixels from the top.
    pub(super) y: f32,
    /// Visible surface: the ceiling above the centre of the picture, the floor below it.
    direct: PlaneRow,
    /// Ceiling as the floor reflects it in this row.
    reflected: PlaneRow,
    /// Share of reflected light in the floor's light, which grows with a flatter viewing angle.
    reflectivity: f32,
    /// Relative deviation of light and dark tiles from the mean brightness, which fades with distance.
    tile_contrast: f32,
}

struct PlaneRow {
    depth: f32,
    visibility: f32,
    joints: AntialiasedLine,
    /// Change of the lamp's share of light per unit across its edge.
    lamp_edge_sharpness: f32,
}

/// Point on the floor or ceiling, relative to its cell.
struct TilePoint {
    cell: MazeCell,
    /// Eastward offset from the centre of the cell, in units.
    x: f32,
    /// Southward offset from the centre of the cell, in units.
    y: f32,
    /// Column plus row of the tile in the cell: even for a light floor tile, odd for a dark one.
    tile_index: i32,
    /// Distance to the nearest joint, in units.
    joint_distance: f32,
}

impl ScreenRow {
    pub(super) fn new(eye: &Projection, y: f32) -> Self {
        let below = y - eye.centre[1];
        let height = if below > 0.0 { EYE_HEIGHT } else { CEILING_HEIGHT - EYE_HEIGHT };
        let depth = row_depth(eye, height, below);
        // A distant pixel of the floor covers much more ground forward than aside.
        let pixel = depth / eye.focal_length * if below > 0.0 { 0.6 + 0.6 * depth / EYE_HEIGHT } else { 2.0 };
        let beyond = row_depth(eye, EYE_HEIGHT + CEILING_HEIGHT, below);
        let flat = depth / (depth + 3.0 * EYE_HEIGHT);
        Self {
            y,
            direct: PlaneRow::new(depth, pixel),
            reflected: PlaneRow::new(beyond, 2.0 * beyond / eye.focal_length),
            reflectivity: 0.06 + 0.34 * flat * flat,
            tile_contrast: 0.06 * TILE_SIZE / (TILE_SIZE + 4.0 * pixel),
        }
    }

    pub(super) fn ceiling(&self, eye: &Projection, ray: ScreenPoint) -> LinearColour {
        self.direct.ceiling(eye, ray)
    }

    pub(super) fn reflected_ceiling(&self, eye: &Projection, ray: ScreenPoint) -> LinearColour {
        self.reflected.ceiling(eye, ray)
    }

    /// Returns the light of the floor, blended with its reflection.
    pub(super) fn floor(
        &self,
        maze: &Maze,
        eye: &Projection,
        ray: ScreenPoint,
        mirrored: LinearColour,
    ) -> LinearColour {
        let spot = TilePoint::new(eye.point_on_ray(ray, self.direct.depth));
        let joint = self.direct.joints.coverage(spot.joint_distance);
        let checks = if spot.tile_index % 2 == 0 { 1.0 + self.tile_contrast } else { 1.0 - self.tile_contrast };
        let lit = lamplight(spot.x * spot.x + spot.y * spot.y + 6_000.0) * corner_shade(maze, &spot);
        let tint = mix(FLOOR_LIGHT, region_palette(spot.cell).0, 0.35);
        let own = scale(tint, lit * checks * (1.0 - 0.35 * joint));
        mix(apply_fog(own, self.direct.visibility), mirrored, self.reflectivity)
    }
}

/// Returns the depth at which a row `below` pixels under the picture's centre, or above it if negative, meets a
/// horizontal surface `height` units below or above the camera.
fn row_depth(eye: &Projection, height: f32, below: f32) -> f32 {
    height * eye.focal_length / below.abs().max(0.01)
}

impl PlaneRow {
    fn new(depth: f32, pixel: f32) -> Self {
        Self {
            depth,
            visibility: visibility(depth),
            joints: AntialiasedLine::new(JOINT_HALF_WIDTH, pixel),
            lamp_edge_sharpness: 1.0 / (pixel + 2.0),
        }
    }

    fn ceiling(&self, eye: &Projection, ray: ScreenPoint) -> LinearColour {
        let spot = TilePoint::new(eye.point_on_ray(ray, self.depth));
        let beyond = spot.x.abs().max(spot.y.abs()) - LAMP_HALF_WIDTH;
        let lamp = (0.5 - beyond * self.lamp_edge_sharpness).clamp(0.0, 1.0);
        let far = beyond.max(0.0);
        let glow = 0.30 / (1.0 + far * far * (1.0 / 1_600.0));
        let plate = scale(CEILING_LIGHT, 1.0 - 0.4 * self.joints.coverage(spot.joint_distance));
        apply_fog(mix(add(plate, scale(LAMP_LIGHT, glow)), LAMP_LIGHT, lamp), self.visibility)
    }
}

impl TilePoint {
    fn new(point: ScreenPoint) -> Self {
        let cell = point.map(|at| floor_to_i32(at * (1.0 / CELL_SIDE)));
        let [x, y] = std::array::from_fn(|axis| point[axis] - cell[axis] as f32 * CELL_SIDE);
        let [tile_x, tile_y] = [x, y].map(|at| (at * (1.0 / TILE_SIZE)) as i32);
        let to_joint = |at: f32, tile: i32| {
            let within = at - tile as f32 * TILE_SIZE;
            within.min(TILE_SIZE - within)
        };
        Self {
            cell: (cell[0], cell[1]),
            x: x - CELL_SIDE / 2.0,
            y: y - CELL_SIDE / 2.0,
            tile_index: tile_x + tile_y,
            joint_distance: to_joint(x, tile_x).min(to_joint(y, tile_y)),
        }
    }
}

/// Returns the brightness factor of the floor, which is lower near a wall.
fn corner_shade(maze: &Maze, spot: &TilePoint) -> f32 {
    let shade = |at: f32, before: Direction, after: Direction| {
        let gap = CELL_SIDE / 2.0 - WALL_HALF_THICKNESS as f32 - at.abs();
        if gap > 90.0 || !maze.has_wall(spot.cell, if at < 0.0 { before } else { after }) {
            return 1.0;
        }
        1.0 - 0.5 / (1.0 + gap.max(0.0) * gap.max(0.0) * (1.0 / 300.0))
    };
    shade(spot.x, Direction::West, Direction::East) * shade(spot.y, Direction::North, Direction::South)
}
