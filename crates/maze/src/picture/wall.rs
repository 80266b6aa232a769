//! Walls: bricks, and a line of light.

use super::colour::{Light, mixed, scaled, sum};
use super::eye::{Eye, Plane};
use super::stage::{Lines, clearness, foggy, lamplight, region, whole};
use crate::carve::Cell;
use crate::maze::{CELL, Direction, HALF_WALL, Maze};
use crate::place::{FINE, Position};

/// How high walls are, in units.
pub(super) const CEILING: f32 = UNITS as f32;
const UNITS: usize = 240;

/// Layers of bricks; a brick's height and length, and half of what is between two of them, in units.
const LAYERS: usize = 6;
const BRICK_HEIGHT: f32 = CEILING / LAYERS as f32;
const BRICK_LENGTH: f32 = 120.0;
const HALF_JOINT: f32 = 1.6;

/// The line of light along the walls: its height, and half of its width, in units.
const LINE_HEIGHT: f32 = 150.0;
const HALF_LINE: f32 = 4.0;

/// What depends on the height alone, for every unit of it.
static PROFILE: [Profile; UNITS + 1] = profile();

#[derive(Clone, Copy)]
struct Profile {
    /// It is darker at the foot of a wall, and right under the ceiling.
    shade: f32,
    /// Light of the line beside it.
    glow: f32,
    /// The square of the distance to a lamp, but for what is aside.
    from_lamp: f32,
}

const fn profile() -> [Profile; UNITS + 1] {
    let mut profile = [Profile { shade: 0.0, glow: 0.0, from_lamp: 0.0 }; UNITS + 1];
    let mut height = 0;
    while height <= UNITS {
        profile[height] = profile_at(height as f32);
        height += 1;
    }
    profile
}

const fn profile_at(height: f32) -> Profile {
    let below = CEILING - height;
    let edge = if height < below * 1.5 { height } else { below * 1.5 };
    let beside = (height - LINE_HEIGHT) / 16.0;
    Profile {
        shade: 1.0 - 0.45 / (1.0 + edge * edge / 260.0),
        glow: 0.34 / (1.0 + beside * beside),
        from_lamp: 9_000.0 + below * below * 0.6,
    }
}

/// The wall that a column of the picture shows.
pub(super) struct Wall {
    pub(super) depth: f32,
    /// How much of the wall a pixel covers, upwards.
    pixel: f32,
    clearness: f32,
    bricks: Light,
    glow: Light,
    bright: Light,
    /// The square of the distance along the wall to the next lamp.
    from_lamp: f32,
    layers: [Layer; LAYERS],
    joints: Lines,
    line: Lines,
}

/// What is in a layer of bricks at one place along the wall.
#[derive(Clone, Copy)]
struct Layer {
    /// No two bricks look quite alike.
    shade: f32,
    /// How much of it is not brick.
    joint: f32,
}

impl Wall {
    /// Follows a ray to a wall.
    pub(super) fn meet(maze: &Maze, from: Position, eye: &Eye, ray: Plane) -> Self {
        const SCALE: f32 = 65_536.0;
        let way = ((ray[0] * SCALE) as i64, (ray[1] * SCALE) as i64);
        let meeting = maze.cast(from, way, SCALE as i64, i64::MAX - 1);
        let (reach, face) = meeting.map_or((0, Direction::East), |meeting| (meeting.reach, meeting.face));
        Self::new(eye, ray, (reach as f32 / FINE as f32).max(1.0), face)
    }

    fn new(eye: &Eye, ray: Plane, depth: f32, face: Direction) -> Self {
        let point = eye.at(ray, depth);
        let is_east_or_west = matches!(face, Direction::East | Direction::West);
        let (along, towards) = if is_east_or_west { (point[1], ray[0]) } else { (point[0], ray[1]) };
        let (bricks, line) = region(cell_before(point, face));
        let pixel = depth / eye.focus;
        // Looked at from the side, a pixel covers more of it.
        let slant = (ray[0].hypot(ray[1]) / towards.abs().max(0.02)).min(20.0);
        let aside = along - CELL as f32 * (whole(along / CELL as f32) as f32 + 0.5);
        Self {
            depth,
            pixel,
            clearness: clearness(depth),
            bricks: scaled(bricks, brightness(face)),
            glow: line,
            bright: mixed(line, [1.0; 3], 0.35),
            from_lamp: aside * aside,
            layers: layers(along, &Lines::new(HALF_JOINT, pixel * slant)),
            joints: Lines::new(HALF_JOINT, pixel),
            line: Lines::new(HALF_LINE, pixel),
        }
    }

    /// How high so many pixels of it are, in units.
    pub(super) fn height(&self, pixels: f32) -> f32 {
        pixels * self.pixel
    }

    /// What it looks like at a height.
    pub(super) fn light(&self, height: f32) -> Light {
        let profile = PROFILE[(height as usize).min(UNITS)];
        let number = ((height * (1.0 / BRICK_HEIGHT)) as usize).min(LAYERS - 1);
        let layer = self.layers[number];
        let within = height - number as f32 * BRICK_HEIGHT;
        let joint = self.joints.covered(within.min(BRICK_HEIGHT - within)).max(layer.joint);
        let lit = lamplight(self.from_lamp + profile.from_lamp) * profile.shade;
        let stone = scaled(self.bricks, layer.shade * (1.0 - 0.45 * joint) * lit);
        let light = sum(stone, scaled(self.glow, profile.glow));
        let line = self.line.covered((height - LINE_HEIGHT).abs());
        foggy(if line > 0.0 { mixed(light, self.bright, line) } else { light }, self.clearness)
    }
}

/// Every second layer begins with half a brick.
fn layers(along: f32, joints: &Lines) -> [Layer; LAYERS] {
    std::array::from_fn(|layer| {
        let along = along + layer as f32 * BRICK_LENGTH * 0.5;
        let brick = whole(along / BRICK_LENGTH);
        let within = along - brick as f32 * BRICK_LENGTH;
        let shade = 0.90 + 0.20 * speckle(brick, layer as i32);
        Layer { shade, joint: joints.covered(within.min(BRICK_LENGTH - within)) }
    })
}

/// A number from 0 to 1 for each brick.
fn speckle(one: i32, other: i32) -> f32 {
    let mixed = (one as u32).wrapping_mul(0x9e37_79b1) ^ (other as u32).wrapping_mul(0x85eb_ca77);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    ((mixed ^ mixed >> 13) & 0xff) as f32 / 255.0
}

/// The cell that the face of a wall looks into.
fn cell_before(point: Plane, face: Direction) -> Cell {
    let (east, south) = face.step();
    let cell = |at: f32, step: i32| whole((at + (step * (HALF_WALL + 1)) as f32) / CELL as f32);
    (cell(point[0], east), cell(point[1], south))
}

/// Walls that look different ways are lit differently, so that corners show.
fn brightness(face: Direction) -> f32 {
    match face {
        Direction::South => 1.0,
        Direction::West => 0.86,
        Direction::East => 0.78,
        Direction::North => 0.66,
    }
}
