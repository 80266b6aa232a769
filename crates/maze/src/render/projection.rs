//! Projection from positions in the maze to pixels, and back.

use super::Camera;
use super::canvas::Canvas;
use crate::maze::Maze;
use crate::position::{Position, UNIT};

/// Height of the camera above the floor, in units.
pub(super) const EYE_HEIGHT: f32 = 76.0;

/// Depth below which objects are not drawn, in units.
const NEAR_CLIP: f32 = 24.0;

/// Point on the floor plan, in units east and south of the corner of the maze; or a horizontal vector (east, south).
pub(super) type ScreenPoint = [f32; 2];

/// Perspective projection: position and direction of the camera, and the scale of the picture.
pub(super) struct Projection {
    /// Position of the camera relative to the corner of the maze: smaller numbers are more precise in floating point.
    pub(super) position: ScreenPoint,
    pub(super) forward: ScreenPoint,
    pub(super) right: ScreenPoint,
    /// Pixels per unit of size at a depth of one unit.
    pub(super) focal_length: f32,
    /// Centre of the picture, in pixels.
    pub(super) centre: [f32; 2],
}

/// Place of an object in the picture.
pub(super) struct Projected {
    /// Depth of the object along the viewing direction, in units. Depths of walls are measured alike.
    pub(super) depth: f32,
    /// Column of the object's centre, in pixels from the left.
    pub(super) x: f32,
    /// Unit vector from the object to the camera.
    pub(super) to_eye: ScreenPoint,
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
            // Keeps the field of view within bounds in a picture of an unusual shape.
            focal_length: height.clamp(width / 2.2, width / 1.3),
            centre: [width / 2.0, height / 2.0],
        }
    }

    /// Returns the ray from the camera through the centre of a column. Its component along the viewing direction is 1.
    pub(super) fn column_ray(&self, column: usize) -> ScreenPoint {
        let aside = (column as f32 + 0.5 - self.centre[0]) / self.focal_length;
        [self.forward[0] + self.right[0] * aside, self.forward[1] + self.right[1] * aside]
    }

    /// Returns the point on a ray at a depth in units.
    pub(super) fn point_on_ray(&self, ray: ScreenPoint, depth: f32) -> ScreenPoint {
        [self.position[0] + ray[0] * depth, self.position[1] + ray[1] * depth]
    }

    /// Returns the row of a point at this height above the floor and this depth, in pixels from the top.
    pub(super) fn screen_row(&self, height: f32, depth: f32) -> f32 {
        self.centre[1] + (EYE_HEIGHT - height) * self.focal_length / depth
    }

    /// Converts a size in units at this depth to pixels.
    pub(super) fn screen_size(&self, units: f32, depth: f32) -> f32 {
        units * self.focal_length / depth
    }

    /// Projects a position; `None` if it is behind the camera or nearer than [`NEAR_CLIP`].
    pub(super) fn project(&self, maze: &Maze, position: Position) -> Option<Projected> {
        let point = to_maze_point(maze, position);
        let offset = [point[0] - self.position[0], point[1] - self.position[1]];
        let depth = dot(offset, self.forward);
        let distance = dot(offset, offset).sqrt();
        let aside = dot(offset, self.right);
        (depth > NEAR_CLIP).then(|| Projected {
            depth,
            x: self.centre[0] + self.screen_size(aside, depth),
            to_eye: [-offset[0] / distance, -offset[1] / distance],
        })
    }
}

/// Converts a position to units from the north-west corner of the maze.
pub(super) fn to_maze_point(maze: &Maze, position: Position) -> ScreenPoint {
    let corner = maze.corner();
    let units = |at: i32, corner: i32| (i64::from(at) - i64::from(corner)) as f32 / UNIT as f32;
    [units(position.x, corner.x), units(position.y, corner.y)]
}

pub(super) fn dot(one: ScreenPoint, other: ScreenPoint) -> f32 {
    one[0] * other[0] + one[1] * other[1]
}
