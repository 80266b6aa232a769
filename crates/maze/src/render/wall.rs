//! Walls: bricks and a light strip.

use super::colour::{LinearColour, add, mix, scale};
use super::projection::{Projection, ScreenPoint};
use super::surface::{AntialiasedLine, apply_fog, floor_to_i32, lamplight, region_palette, visibility};
use crate::direction::Direction;
use crate::direction::MazeCell;
use crate::maze::{CELL_SIZE, Maze, WALL_HALF_THICKNESS};
use crate::position::{Position, UNIT};

/// Height of the walls and of the ceiling, in units.
pub(super) const CEILING_HEIGHT: f32 = CEILING_HEIGHT_UNITS as f32;
const CEILING_HEIGHT_UNITS: usize = 240;

/// Number of layers of bricks in a wall.
const BRICK_LAYERS: usize = 6;
/// Height of a brick with its joint, in units.
const BRICK_HEIGHT: f32 = CEILING_HEIGHT / BRICK_LAYERS as f32;
/// Length of a brick with its joint, in units.
const BRICK_LENGTH: f32 = 120.0;
/// Half the width of a joint, in units.
const JOINT_HALF_WIDTH: f32 = 1.6;

/// Height of the middle of the light strip above the floor, in units.
const STRIP_HEIGHT: f32 = 150.0;
/// Half the width of the light strip, in units.
const STRIP_HALF_WIDTH: f32 = 4.0;

/// Values of a wall that depend on the height alone, for every unit of height.
static HEIGHT_PROFILE: [HeightProfile; CEILING_HEIGHT_UNITS + 1] = build_height_profile();

#[derive(Clone, Copy)]
struct HeightProfile {
    /// Brightness factor: lower at the foot of a wall and right under the ceiling.
    shade: f32,
    /// Brightness of the light strip's glow.
    glow: f32,
    /// Approximate squared distance to the nearest lamp without the component along the wall, in squared units.
    lamp_distance_squared: f32,
}

const fn build_height_profile() -> [HeightProfile; CEILING_HEIGHT_UNITS + 1] {
    let mut profile = [HeightProfile { shade: 0.0, glow: 0.0, lamp_distance_squared: 0.0 }; CEILING_HEIGHT_UNITS + 1];
    let mut height = 0;
    while height <= CEILING_HEIGHT_UNITS {
        profile[height] = profile_at(height as f32);
        height += 1;
    }
    profile
}

const fn profile_at(height: f32) -> HeightProfile {
    let below = CEILING_HEIGHT - height;
    let edge = if height < below * 1.5 { height } else { below * 1.5 };
    let beside = (height - STRIP_HEIGHT) / 16.0;
    HeightProfile {
        shade: 1.0 - 0.45 / (1.0 + edge * edge / 260.0),
        glow: 0.34 / (1.0 + beside * beside),
        lamp_distance_squared: 9_000.0 + below * below * 0.6,
    }
}

/// Visible wall in one column of the picture, with the values that are constant in the column.
pub(super) struct WallColumn {
    pub(super) depth: f32,
    /// Height of wall that a pixel covers, in units.
    units_per_pixel: f32,
    visibility: f32,
    brick_light: LinearColour,
    strip_glow: LinearColour,
    strip_light: LinearColour,
    /// Squared distance along the wall to the nearest lamp, in squared units.
    lamp_distance_squared: f32,
    layers: [BrickLayer; BRICK_LAYERS],
    joints: AntialiasedLine,
    strip: AntialiasedLine,
}

/// Layer of bricks in one column of the picture.
#[derive(Clone, Copy)]
struct BrickLayer {
    /// Random brightness factor of the brick, from 0.9 to 1.1.
    shade: f32,
    /// Share of a pixel's width that a joint covers.
    joint_coverage: f32,
}

impl WallColumn {
    /// Finds the wall that a ray from the camera hits first.
    pub(super) fn cast(maze: &Maze, from: Position, eye: &Projection, ray: ScreenPoint) -> Self {
        const SCALE: f32 = 65_536.0;
        let direction = ((ray[0] * SCALE) as i64, (ray[1] * SCALE) as i64);
        let hit = maze.cast_ray(from, direction, SCALE as i64, i64::MAX - 1);
        let (reach, face) = hit.map_or((0, Direction::East), |hit| (hit.reach, hit.face));
        Self::new(eye, ray, (reach as f32 / UNIT as f32).max(1.0), face)
    }

    fn new(eye: &Projection, ray: ScreenPoint, depth: f32, face: Direction) -> Self {
        let point = eye.point_on_ray(ray, depth);
        let is_east_or_west = matches!(face, Direction::East | Direction::West);
        let (along, towards) = if is_east_or_west { (point[1], ray[0]) } else { (point[0], ray[1]) };
        let (bricks, strip) = region_palette(faced_cell(point, face));
        let pixel = depth / eye.focal_length;
        // At a slanted angle, a pixel covers more of the wall.
        let slant = (ray[0].hypot(ray[1]) / towards.abs().max(0.02)).min(20.0);
        let aside = along - CELL_SIZE as f32 * (floor_to_i32(along / CELL_SIZE as f32) as f32 + 0.5);
        Self {
            depth,
            units_per_pixel: pixel,
            visibility: visibility(depth),
            brick_light: scale(bricks, face_brightness(face)),
            strip_glow: strip,
            strip_light: mix(strip, [1.0; 3], 0.35),
            lamp_distance_squared: aside * aside,
            layers: brick_layers(along, &AntialiasedLine::new(JOINT_HALF_WIDTH, pixel * slant)),
            joints: AntialiasedLine::new(JOINT_HALF_WIDTH, pixel),
            strip: AntialiasedLine::new(STRIP_HALF_WIDTH, pixel),
        }
    }

    /// Converts pixels to height, in units.
    pub(super) fn height_of_pixels(&self, pixels: f32) -> f32 {
        pixels * self.units_per_pixel
    }

    /// Returns the light of the wall at a height in units.
    pub(super) fn light_at_height(&self, height: f32) -> LinearColour {
        let profile = HEIGHT_PROFILE[(height as usize).min(CEILING_HEIGHT_UNITS)];
        let number = ((height * (1.0 / BRICK_HEIGHT)) as usize).min(BRICK_LAYERS - 1);
        let layer = self.layers[number];
        let within = height - number as f32 * BRICK_HEIGHT;
        let joint = self.joints.coverage(within.min(BRICK_HEIGHT - within)).max(layer.joint_coverage);
        let lit = lamplight(self.lamp_distance_squared + profile.lamp_distance_squared) * profile.shade;
        let stone = scale(self.brick_light, layer.shade * (1.0 - 0.45 * joint) * lit);
        let light = add(stone, scale(self.strip_glow, profile.glow));
        let strip = self.strip.coverage((height - STRIP_HEIGHT).abs());
        apply_fog(if strip > 0.0 { mix(light, self.strip_light, strip) } else { light }, self.visibility)
    }
}

/// Returns the layers of bricks at a distance `along` the wall. Every second layer is shifted by half a brick.
fn brick_layers(along: f32, joints: &AntialiasedLine) -> [BrickLayer; BRICK_LAYERS] {
    std::array::from_fn(|layer| {
        let along = along + layer as f32 * BRICK_LENGTH * 0.5;
        let brick = floor_to_i32(along / BRICK_LENGTH);
        let within = along - brick as f32 * BRICK_LENGTH;
        let shade = 0.90 + 0.20 * brick_noise(brick, layer as i32);
        BrickLayer { shade, joint_coverage: joints.coverage(within.min(BRICK_LENGTH - within)) }
    })
}

/// Returns a pseudo-random number from 0 to 1 for the brick at these coordinates.
fn brick_noise(one: i32, other: i32) -> f32 {
    let mixed = (one as u32).wrapping_mul(0x9e37_79b1) ^ (other as u32).wrapping_mul(0x85eb_ca77);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    ((mixed ^ mixed >> 13) & 0xff) as f32 / 255.0
}

/// Returns the cell that the face of a wall looks into.
fn faced_cell(point: ScreenPoint, face: Direction) -> MazeCell {
    let (east, south) = face.offset();
    let cell = |at: f32, step: i32| floor_to_i32((at + (step * (WALL_HALF_THICKNESS + 1)) as f32) / CELL_SIZE as f32);
    (cell(point[0], east), cell(point[1], south))
}

/// Returns the brightness factor of a wall face. It depends on the direction, so that corners are visible.
fn face_brightness(face: Direction) -> f32 {
    match face {
        Direction::South => 1.0,
        Direction::West => 0.86,
        Direction::East => 0.78,
        Direction::North => 0.66,
    }
}
