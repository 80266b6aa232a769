//! The maze: brick walls with a light strip, a polished floor, lamps on the ceiling.
//!
//! A picture has many pixels, so values that are constant within a column or a row are computed once per column or row.

use super::canvas::Canvas;
use super::colour::LinearColour;
use super::floor_and_ceiling::ScreenRow;
use super::projection::{Projection, ScreenPoint};
use super::wall::{CEILING_HEIGHT, WallColumn};
use crate::maze::Maze;
use crate::position::Position;

/// Paints every pixel of the canvas, and stores the depth of the wall in each column.
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
    ray: ScreenPoint,
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

/// Returns the light that the floor reflects in one pixel: the mirrored wall, or the mirrored ceiling above the wall.
fn reflection_light(
    eye: &Projection,
    ray: ScreenPoint,
    wall: &WallColumn,
    column: usize,
    bottom: f32,
    row: &ScreenRow,
    canvas: &Canvas,
) -> LinearColour {
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
