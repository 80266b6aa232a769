//! The maze itself: walls of brick with a line of light, a polished floor, lamps above.
//!
//! A picture has many pixels, so whatever is the same in a column or in a row is computed once for it.

use super::canvas::Canvas;
use super::colour::{Light, mix};
use super::floor_and_ceiling::ScreenRow;
use super::projection::{Point, Projection};
use super::wall::{CEILING_HEIGHT, WallColumn};
use crate::generate::Cell;
use crate::maze::Maze;
use crate::position::Position;

/// Light that is lost on the way is half after so many units.
const FOG_HALF_DISTANCE: f32 = 1_900.0;
const FOG_LIGHT: Light = [0.030, 0.036, 0.060];

/// Cells of a region, each way.
const REGION_CELLS: i32 = 3;

/// What the walls of a region look like, so that people find their way: bricks, and the line of light.
const REGION_PALETTE: [(Light, Light); 5] = [
    ([0.36, 0.43, 0.58], [0.25, 0.65, 1.00]), // slate
    ([0.58, 0.38, 0.30], [1.00, 0.40, 0.20]), // brick
    ([0.36, 0.50, 0.38], [0.35, 1.00, 0.45]), // moss
    ([0.56, 0.50, 0.36], [1.00, 0.80, 0.25]), // sand
    ([0.48, 0.37, 0.56], [0.85, 0.40, 1.00]), // heather
];

/// Paints every pixel, and remembers how far away walls are.
pub(super) fn draw_maze(maze: &Maze, from: Position, eye: &Projection, canvas: &mut Canvas) {
    let rows: Vec<ScreenRow> = (0..canvas.height()).map(|row| ScreenRow::new(eye, row as f32 + 0.5)).collect();
    for column in 0..canvas.width() {
        let ray = eye.column_ray(column);
        let wall = WallColumn::cast(maze, from, eye, ray);
        canvas.set_column_depth(column, wall.depth);
        draw_column(maze, eye, ray, &wall, column, &rows, canvas);
    }
}

fn draw_column(
    maze: &Maze,
    eye: &Projection,
    ray: Point,
    wall: &WallColumn,
    column: usize,
    rows: &[ScreenRow],
    canvas: &mut Canvas,
) {
    let (top, bottom) = (eye.screen_row(CEILING_HEIGHT, wall.depth), eye.screen_row(0.0, wall.depth));
    for (at, row) in rows.iter().enumerate() {
        let light = if row.y < top {
            row.ceiling(eye, ray)
        } else if row.y > bottom {
            let mirrored = reflection_light(eye, ray, wall, column, bottom, row, canvas);
            row.floor(maze, eye, ray, mirrored)
        } else {
            wall.light_at_height(wall.height_of_pixels(bottom - row.y))
        };
        canvas.paint(column, at, light);
    }
}

/// What the floor mirrors there: a wall is as it is above the floor, and what is above it is a part of the ceiling.
fn reflection_light(
    eye: &Projection,
    ray: Point,
    wall: &WallColumn,
    column: usize,
    bottom: f32,
    row: &ScreenRow,
    canvas: &Canvas,
) -> Light {
    let height = wall.height_of_pixels(row.y - bottom);
    let above = 2.0 * bottom - row.y;
    if height >= CEILING_HEIGHT {
        row.reflected_ceiling(eye, ray)
    } else if above >= 0.0 {
        canvas.light_at(column, above as usize)
    } else {
        wall.light_at_height(height)
    }
}

pub(super) fn region_palette((x, y): Cell) -> (Light, Light) {
    // Neighbours differ, also across corners.
    let number = x.div_euclid(REGION_CELLS) + 2 * y.div_euclid(REGION_CELLS);
    REGION_PALETTE[number.rem_euclid(REGION_PALETTE.len() as i32) as usize]
}

/// How much of a light is left after this way.
pub(super) fn visibility(depth: f32) -> f32 {
    let part = depth / FOG_HALF_DISTANCE;
    1.0 / (1.0 + part * part)
}

/// What is far away is lost in the dark.
pub(super) fn apply_fog(light: Light, clearness: f32) -> Light {
    mix(FOG_LIGHT, light, clearness)
}

/// How light it is at this square of a distance from a lamp.
pub(super) fn lamplight(square: f32) -> f32 {
    0.42 + 0.95 / (1.0 + square * (1.0 / 34_000.0))
}

/// The whole number before it. What the language has for this is a function call on many processors, and there is one for every pixel.
pub(super) fn floor_to_i32(at: f32) -> i32 {
    let towards_zero = at as i32;
    towards_zero - i32::from(towards_zero as f32 > at)
}

/// Lines, where a pixel may cover more of the world than a line does.
pub(super) struct AntialiasedLine {
    half_width: f32,
    pixels_per_unit: f32,
    max_coverage: f32,
}

impl AntialiasedLine {
    pub(super) fn new(half_width: f32, pixel: f32) -> Self {
        let per_unit = 1.0 / pixel.max(0.001);
        Self { half_width, pixels_per_unit: per_unit, max_coverage: (2.0 * half_width * per_unit).min(1.0) }
    }

    /// How much of a pixel is line, if the nearest is so far from its middle.
    pub(super) fn coverage(&self, distance: f32) -> f32 {
        ((self.half_width - distance) * self.pixels_per_unit + 0.5).max(0.0).min(self.max_coverage)
    }
}
