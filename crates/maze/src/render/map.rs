//! Map of the maze, with north at the top.

use super::canvas::Canvas;
use super::colour::{LinearColour, mix, scale, to_light};
use super::projection::{ScreenPoint, to_maze_point};
use super::surface::region_palette;
use super::{Camera, Shape, Sprite};
use crate::angle::{degrees, shortest_turn};
use crate::direction::Direction;
use crate::direction::MazeCell;
use crate::maze::{CELL_SIZE, Maze, WALL_HALF_THICKNESS};
use crate::position::{Position, UNIT};
use crate::rules::{AVATAR_RADIUS, MazeRules};

/// Minimum side of a displayed cell, in pixels. A map whose cells would be smaller shows only a part of the maze.
const MIN_CELL_PIXELS: usize = 5;

/// Minimum number of displayed cells per side. To show them, cells may be smaller than [`MIN_CELL_PIXELS`].
const MIN_CELLS: i32 = 4;

/// Range of the displayed field of view, in units.
const SIGHT_RANGE: u32 = 1_300;
/// Half the angle of the displayed field of view.
const SIGHT_HALF_ANGLE: u16 = degrees(38);

const GROUND_LIGHT: LinearColour = [0.05, 0.06, 0.09];
const WALL_LIGHT: LinearColour = [0.72, 0.75, 0.82];
const OWN_LIGHT: LinearColour = [1.0, 1.0, 1.0];

/// Antialiasing samples per pixel and axis for small shapes.
const SAMPLES_PER_AXIS: i32 = 4;

/// Draws a map with north at the top, all sprites and a mark for the player. If the maze is too large for the canvas,
/// the map shows the part around the player.
pub fn draw_map(rules: &MazeRules, me: Camera, sprites: &[Sprite], canvas: &mut Canvas) {
    if canvas.is_empty() {
        return;
    }
    let layout = MapLayout::new(&rules.maze, me, canvas);
    layout.draw_ground(canvas);
    layout.draw_sight(me, canvas);
    layout.draw_walls(canvas);
    for sprite in sprites {
        layout.draw_sprite(sprite, canvas);
    }
    layout.draw_arrow(me.position, me.heading, 1.9, OWN_LIGHT, canvas);
    layout.draw_arrow(me.position, me.heading, 1.2, [0.1, 0.35, 0.9], canvas);
}

/// Section of the maze that the map shows, and its place on the canvas.
struct MapLayout<'a> {
    maze: &'a Maze,
    /// North-west displayed cell.
    first_cell: MazeCell,
    /// Number of displayed cells per side.
    cells_shown: i32,
    /// Left edge of the map, in pixels.
    left: f32,
    /// Top edge of the map, in pixels.
    top: f32,
    /// Side of a cell, in pixels.
    cell_pixels: f32,
}

impl<'a> MapLayout<'a> {
    fn new(maze: &'a Maze, me: Camera, canvas: &Canvas) -> Self {
        let side = i32::from(maze.cells_per_side());
        let pixels = canvas.width().min(canvas.height());
        let shown = side.min((pixels.saturating_sub(1) / MIN_CELL_PIXELS) as i32).max(MIN_CELLS);
        // The last wall needs a pixel.
        let cell = (pixels as f32 - 1.0) / shown as f32;
        // Whole pixels if there are enough of them, so that all cells look alike.
        let cell = if cell >= MIN_CELL_PIXELS as f32 { cell.floor() } else { cell };
        let own_cell = maze.cell_at(me.position);
        let first = |at: i32| (at - shown / 2).clamp(0, (side - shown).max(0));
        let margin = |size: usize| ((size as f32 - cell * shown as f32) / 2.0).floor();
        let (left, top) = (margin(canvas.width()), margin(canvas.height()));
        let first_cell = (first(own_cell.0), first(own_cell.1));
        Self { maze, first_cell, cells_shown: shown, left, top, cell_pixels: cell }
    }

    fn cells(&self) -> impl Iterator<Item = MazeCell> + use<> {
        let (first, shown) = (self.first_cell, self.cells_shown);
        (0..shown * shown).map(move |at| (first.0 + at % shown, first.1 + at / shown))
    }

    /// Converts a point in the maze to pixels on the canvas.
    fn to_pixel(&self, [east, south]: ScreenPoint) -> [f32; 2] {
        let along = |units: f32, first: i32| (units / CELL_SIZE as f32 - first as f32) * self.cell_pixels;
        [self.left + along(east, self.first_cell.0), self.top + along(south, self.first_cell.1)]
    }

    /// Converts a pixel to the position that the map shows there.
    fn to_position(&self, x: f32, y: f32) -> Position {
        let corner = self.maze.corner();
        let parts =
            |pixel: f32, first: i32| ((pixel / self.cell_pixels + first as f32) * (CELL_SIZE * UNIT) as f32) as i32;
        Position {
            x: corner.x.saturating_add(parts(x - self.left, self.first_cell.0)),
            y: corner.y.saturating_add(parts(y - self.top, self.first_cell.1)),
        }
    }

    fn to_pixels(&self, units: f32) -> f32 {
        units * self.cell_pixels / CELL_SIZE as f32
    }

    fn draw_ground(&self, canvas: &mut Canvas) {
        self.fill(0.0, 0.0, canvas.width() as f32, canvas.height() as f32, GROUND_LIGHT, canvas);
        for cell in self.cells() {
            let [left, top] = self.to_pixel([(cell.0 * CELL_SIZE) as f32, (cell.1 * CELL_SIZE) as f32]);
            self.fill(
                left,
                top,
                self.cell_pixels,
                self.cell_pixels,
                mix(GROUND_LIGHT, region_palette(cell).0, 0.30),
                canvas,
            );
        }
    }

    /// Brightens the part of the map that the player sees, up to [`SIGHT_RANGE`] and [`SIGHT_HALF_ANGLE`].
    fn draw_sight(&self, me: Camera, canvas: &mut Canvas) {
        let [x, y] = self.to_pixel(to_maze_point(self.maze, me.position));
        let reach = self.to_pixels(SIGHT_RANGE as f32);
        for_each_pixel_around([x, y], reach, canvas, |canvas, x, y| {
            let position = self.to_position(x as f32 + 0.5, y as f32 + 0.5);
            let distance = me.position.distance(position);
            let is_ahead =
                || shortest_turn(me.heading, me.position.bearing_to(position)).unsigned_abs() < SIGHT_HALF_ANGLE;
            if distance < SIGHT_RANGE && is_ahead() && self.maze.has_line_of_sight(me.position, position) {
                canvas.blend(x, y, [0.9, 0.95, 1.0], 0.22 * (1.0 - distance as f32 / SIGHT_RANGE as f32));
            }
        });
    }

    fn draw_walls(&self, canvas: &mut Canvas) {
        let thick = self.to_pixels(2.0 * WALL_HALF_THICKNESS as f32).round().max(1.0);
        for cell in self.cells() {
            let [left, top] = self.to_pixel([(cell.0 * CELL_SIZE) as f32, (cell.1 * CELL_SIZE) as f32]);
            let before = |at: f32| at - (thick / 2.0).floor();
            let (length, right, bottom) = (self.cell_pixels + thick, left + self.cell_pixels, top + self.cell_pixels);
            let mut wall = |direction, x: f32, y: f32, wide, high| {
                if self.maze.has_wall(cell, direction) {
                    self.fill(before(x), before(y), wide, high, WALL_LIGHT, canvas);
                }
            };
            wall(Direction::North, left, top, length, thick);
            wall(Direction::South, left, bottom, length, thick);
            wall(Direction::West, left, top, thick, length);
            wall(Direction::East, right, top, thick, length);
            if self.maze.has_post(cell.0, cell.1) {
                self.fill(before(left), before(top), thick, thick, WALL_LIGHT, canvas);
            }
        }
    }

    fn fill(&self, left: f32, top: f32, wide: f32, high: f32, light: LinearColour, canvas: &mut Canvas) {
        let pixels = |from: f32, size: f32, end: usize| {
            let within = |at: f32| (at.round().max(0.0) as usize).min(end);
            within(from)..within(from + size)
        };
        for y in pixels(top, high, canvas.height()) {
            pixels(left, wide, canvas.width()).for_each(|x| canvas.paint(x, y, light));
        }
    }

    fn draw_sprite(&self, sprite: &Sprite, canvas: &mut Canvas) {
        let light = to_light(sprite.colour);
        match sprite.shape {
            Shape::Avatar { heading } => {
                self.draw_arrow(sprite.position, heading, 1.7, scale(light, 0.15), canvas);
                self.draw_arrow(sprite.position, heading, 1.2, light, canvas);
            }
            Shape::Shot => self.draw_dot(sprite.position, 0.45, mix(light, [1.0; 3], 0.5), canvas),
            Shape::Dead { .. } => self.draw_cross(sprite.position, light, canvas),
        }
    }

    /// Returns the radius of a marker in pixels: `times` the radius of an avatar, which counts as at least 2 pixels and
    /// 26 % of a cell.
    fn marker_radius(&self, times: f32) -> f32 {
        self.to_pixels(f32::from(AVATAR_RADIUS)).max(self.cell_pixels * 0.26).max(2.0) * times
    }

    /// Draws a triangle with a notch, which points along `heading`.
    fn draw_arrow(&self, position: Position, heading: u16, times: f32, light: LinearColour, canvas: &mut Canvas) {
        let angle = f32::from(heading) / 32_768.0 * std::f32::consts::PI;
        let (cosine, sine) = (angle.cos(), angle.sin());
        self.draw_shape(position, self.marker_radius(times), light, canvas, |x, y| {
            let (along, aside) = (x * cosine + y * sine, y * cosine - x * sine);
            let width = (1.0 - along) * 0.5;
            along < 1.0 && aside.abs() < width && along > -0.8 + 0.45 * (1.0 - aside.abs() / 0.9)
        });
    }

    fn draw_dot(&self, position: Position, times: f32, light: LinearColour, canvas: &mut Canvas) {
        self.draw_shape(position, self.marker_radius(times).max(1.0), light, canvas, |x, y| x * x + y * y < 1.0);
    }

    fn draw_cross(&self, position: Position, light: LinearColour, canvas: &mut Canvas) {
        self.draw_shape(position, self.marker_radius(1.0), scale(light, 0.75), canvas, |x, y| {
            let (one, other) = ((x + y).abs(), (x - y).abs());
            one.min(other) < 0.32 && one.max(other) < 1.25
        });
    }

    /// Fills a shape with antialiasing. `is_inside` takes coordinates relative to `position`, where 1 is `radius`
    /// pixels.
    fn draw_shape(
        &self,
        position: Position,
        radius: f32,
        light: LinearColour,
        canvas: &mut Canvas,
        is_inside: impl Fn(f32, f32) -> bool,
    ) {
        let [middle_x, middle_y] = self.to_pixel(to_maze_point(self.maze, position));
        for_each_pixel_around([middle_x, middle_y], radius, canvas, |canvas, x, y| {
            let within = |part: i32| (part as f32 + 0.5) / SAMPLES_PER_AXIS as f32;
            let inside = (0..SAMPLES_PER_AXIS * SAMPLES_PER_AXIS).filter(|sample| {
                let (x, y) =
                    (x as f32 + within(sample % SAMPLES_PER_AXIS), y as f32 + within(sample / SAMPLES_PER_AXIS));
                is_inside((x - middle_x) / radius, (y - middle_y) / radius)
            });
            let share = inside.count() as f32 / (SAMPLES_PER_AXIS * SAMPLES_PER_AXIS) as f32;
            canvas.blend(x, y, light, share);
        });
    }
}

/// Visits the pixels of the canvas within `reach` pixels of `middle` along each axis.
fn for_each_pixel_around(
    middle: [f32; 2],
    reach: f32,
    canvas: &mut Canvas,
    mut visit: impl FnMut(&mut Canvas, i32, i32),
) {
    let range = |axis: usize, end: usize| {
        let clamped = |at: f32| at.clamp(0.0, end as f32) as i32;
        clamped((middle[axis] - reach).floor())..clamped((middle[axis] + reach).ceil())
    };
    for y in range(1, canvas.height()) {
        range(0, canvas.width()).for_each(|x| visit(canvas, x, y));
    }
}
