//! Who looks: from a place in the maze to a place in the picture, and back.

use super::Camera;
use super::canvas::Canvas;
use crate::maze::Maze;
use crate::position::{Position, UNIT};

/// How high eyes are above the floor, in units.
pub(super) const EYE_HEIGHT: f32 = 76.0;

/// What is nearer than this is not seen, in units.
const NEAR_CLIP: f32 = 24.0;

/// East and south, in units.
pub(super) type Point = [f32; 2];

/// An eye: where it is, where it looks, and how large things are in its picture.
pub(super) struct Projection {
    /// Where it is, from the corner of the maze: large numbers would be less exact.
    pub(super) position: Point,
    pub(super) forward: Point,
    pub(super) right: Point,
    /// Pixels of something that is as far away as it is large.
    pub(super) focal_length: f32,
    /// The pixel in the middle.
    pub(super) centre: [f32; 2],
}

/// Where in the picture something is.
pub(super) struct Projected {
    /// How far away it is, as walls measure it, in units.
    pub(super) depth: f32,
    /// In which column its middle is.
    pub(super) x: f32,
    /// From it to the eye.
    pub(super) to_eye: Point,
}

impl Projection {
    pub(super) fn new(maze: &Maze, camera: Camera, canvas: &Canvas) -> Self {
        let angle = f32::from(camera.heading) / 32_768.0 * std::f32::consts::PI;
        let forward = [angle.cos(), angle.sin()];
        let (width, height) = (canvas.width() as f32, canvas.height() as f32);
        Self {
            position: to_maze_point(maze, camera.position),
            forward,
            right: [-forward[1], forward[0]],
            // Neither too wide nor too narrow a view in a picture of an unusual shape.
            focal_length: height.clamp(width / 2.2, width / 1.3),
            centre: [width / 2.0, height / 2.0],
        }
    }

    /// Which way a column looks; it gets one unit forward.
    pub(super) fn column_ray(&self, column: usize) -> Point {
        let aside = (column as f32 + 0.5 - self.centre[0]) / self.focal_length;
        [self.forward[0] + self.right[0] * aside, self.forward[1] + self.right[1] * aside]
    }

    /// What is so far away along a ray.
    pub(super) fn point_on_ray(&self, ray: Point, depth: f32) -> Point {
        [self.position[0] + ray[0] * depth, self.position[1] + ray[1] * depth]
    }

    /// The row in which something at this height and depth is.
    pub(super) fn screen_row(&self, height: f32, depth: f32) -> f32 {
        self.centre[1] + (EYE_HEIGHT - height) * self.focal_length / depth
    }

    /// How many pixels something of this size has there.
    pub(super) fn screen_size(&self, units: f32, depth: f32) -> f32 {
        units * self.focal_length / depth
    }

    /// Where a place is in the picture, if it is in front.
    pub(super) fn project(&self, maze: &Maze, position: Position) -> Option<Projected> {
        let there = to_maze_point(maze, position);
        let way = [there[0] - self.position[0], there[1] - self.position[1]];
        let depth = dot(way, self.forward);
        let distance = dot(way, way).sqrt();
        let aside = dot(way, self.right);
        (depth > NEAR_CLIP).then(|| Projected {
            depth,
            x: self.centre[0] + self.screen_size(aside, depth),
            to_eye: [-way[0] / distance, -way[1] / distance],
        })
    }
}

/// A position in units from the corner of the maze.
pub(super) fn to_maze_point(maze: &Maze, position: Position) -> Point {
    let corner = maze.corner();
    let units = |at: i32, corner: i32| (i64::from(at) - i64::from(corner)) as f32 / UNIT as f32;
    [units(position.x, corner.x), units(position.y, corner.y)]
}

pub(super) fn dot(one: Point, other: Point) -> f32 {
    one[0] * other[0] + one[1] * other[1]
}
