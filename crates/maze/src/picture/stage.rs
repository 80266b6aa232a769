//! The maze itself: walls of brick with a line of light, a polished floor, lamps above.
//!
//! A picture has many pixels, so whatever is the same in a column or in a row is computed once for it.

use super::canvas::Canvas;
use super::colour::{Light, mixed};
use super::eye::{Eye, Plane};
use super::level::Row;
use super::wall::{CEILING, Wall};
use crate::carve::Cell;
use crate::maze::Maze;
use crate::place::Position;

/// Light that is lost on the way is half after so many units.
const HALF_FOG: f32 = 1_900.0;
const FOG: Light = [0.030, 0.036, 0.060];

/// Cells of a region, each way.
const REGION: i32 = 3;

/// What the walls of a region look like, so that people find their way: bricks, and the line of light.
const REGIONS: [(Light, Light); 5] = [
    ([0.36, 0.43, 0.58], [0.25, 0.65, 1.00]), // slate
    ([0.58, 0.38, 0.30], [1.00, 0.40, 0.20]), // brick
    ([0.36, 0.50, 0.38], [0.35, 1.00, 0.45]), // moss
    ([0.56, 0.50, 0.36], [1.00, 0.80, 0.25]), // sand
    ([0.48, 0.37, 0.56], [0.85, 0.40, 1.00]), // heather
];

/// Paints every pixel, and remembers how far away walls are.
pub(super) fn draw(maze: &Maze, from: Position, eye: &Eye, canvas: &mut Canvas) {
    let rows: Vec<Row> = (0..canvas.height()).map(|row| Row::new(eye, row as f32 + 0.5)).collect();
    for column in 0..canvas.width() {
        let ray = eye.ray(column);
        let wall = Wall::meet(maze, from, eye, ray);
        canvas.set_depth(column, wall.depth);
        draw_column(maze, eye, ray, &wall, column, &rows, canvas);
    }
}

fn draw_column(maze: &Maze, eye: &Eye, ray: Plane, wall: &Wall, column: usize, rows: &[Row], canvas: &mut Canvas) {
    let (top, bottom) = (eye.row(CEILING, wall.depth), eye.row(0.0, wall.depth));
    for (at, row) in rows.iter().enumerate() {
        let light = if row.y < top {
            row.ceiling(eye, ray)
        } else if row.y > bottom {
            let mirrored = mirrored(eye, ray, wall, column, bottom, row, canvas);
            row.floor(maze, eye, ray, mirrored)
        } else {
            wall.light(wall.height(bottom - row.y))
        };
        canvas.paint(column, at, light);
    }
}

/// What the floor mirrors there: a wall is as it is above the floor, and what is above it is a part of the ceiling.
fn mirrored(eye: &Eye, ray: Plane, wall: &Wall, column: usize, bottom: f32, row: &Row, canvas: &Canvas) -> Light {
    let height = wall.height(row.y - bottom);
    let above = 2.0 * bottom - row.y;
    if height >= CEILING {
        row.mirrored_ceiling(eye, ray)
    } else if above >= 0.0 {
        canvas.light(column, above as usize)
    } else {
        wall.light(height)
    }
}

pub(super) fn region((x, y): Cell) -> (Light, Light) {
    // Neighbours differ, also across corners.
    let number = x.div_euclid(REGION) + 2 * y.div_euclid(REGION);
    REGIONS[number.rem_euclid(REGIONS.len() as i32) as usize]
}

/// How much of a light is left after this way.
pub(super) fn clearness(depth: f32) -> f32 {
    let part = depth / HALF_FOG;
    1.0 / (1.0 + part * part)
}

/// What is far away is lost in the dark.
pub(super) fn foggy(light: Light, clearness: f32) -> Light {
    mixed(FOG, light, clearness)
}

/// How light it is at this square of a distance from a lamp.
pub(super) fn lamplight(square: f32) -> f32 {
    0.42 + 0.95 / (1.0 + square * (1.0 / 34_000.0))
}

/// The whole number before it. What the language has for this is a function call on many processors, and there is one for every pixel.
pub(super) fn whole(at: f32) -> i32 {
    let towards_zero = at as i32;
    towards_zero - i32::from(towards_zero as f32 > at)
}

/// Lines, where a pixel may cover more of the world than a line does.
pub(super) struct Lines {
    half_width: f32,
    per_unit: f32,
    most: f32,
}

impl Lines {
    pub(super) fn new(half_width: f32, pixel: f32) -> Self {
        let per_unit = 1.0 / pixel.max(0.001);
        Self { half_width, per_unit, most: (2.0 * half_width * per_unit).min(1.0) }
    }

    /// How much of a pixel is line, if the nearest is so far from its middle.
    pub(super) fn covered(&self, distance: f32) -> f32 {
        ((self.half_width - distance) * self.per_unit + 0.5).max(0.0).min(self.most)
    }
}
