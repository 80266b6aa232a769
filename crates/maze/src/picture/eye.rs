//! Who looks: from a place in the maze to a place in the picture, and back.

use super::Camera;
use super::canvas::Canvas;
use crate::maze::Maze;
use crate::place::{FINE, Position};

/// How high eyes are above the floor, in units.
pub(super) const EYE_HEIGHT: f32 = 76.0;

/// What is nearer than this is not seen, in units.
const NEAREST: f32 = 24.0;

/// East and south, in units.
pub(super) type Plane = [f32; 2];

/// An eye: where it is, where it looks, and how large things are in its picture.
pub(super) struct Eye {
    /// Where it is, from the corner of the maze: large numbers would be less exact.
    pub(super) place: Plane,
    pub(super) forward: Plane,
    pub(super) right: Plane,
    /// Pixels of something that is as far away as it is large.
    pub(super) focus: f32,
    /// The pixel in the middle.
    pub(super) middle: [f32; 2],
}

/// Where in the picture something is.
pub(super) struct Seen {
    /// How far away it is, as walls measure it, in units.
    pub(super) depth: f32,
    /// In which column its middle is.
    pub(super) x: f32,
    /// From it to the eye.
    pub(super) back: Plane,
}

impl Eye {
    pub(super) fn new(maze: &Maze, camera: Camera, canvas: &Canvas) -> Self {
        let angle = f32::from(camera.heading) / 32_768.0 * std::f32::consts::PI;
        let forward = [angle.cos(), angle.sin()];
        let (width, height) = (canvas.width() as f32, canvas.height() as f32);
        Self {
            place: plane(maze, camera.position),
            forward,
            right: [-forward[1], forward[0]],
            // Neither too wide nor too narrow a view in a picture of an unusual shape.
            focus: height.clamp(width / 2.2, width / 1.3),
            middle: [width / 2.0, height / 2.0],
        }
    }

    /// Which way a column looks; it gets one unit forward.
    pub(super) fn ray(&self, column: usize) -> Plane {
        let aside = (column as f32 + 0.5 - self.middle[0]) / self.focus;
        [self.forward[0] + self.right[0] * aside, self.forward[1] + self.right[1] * aside]
    }

    /// What is so far away along a ray.
    pub(super) fn at(&self, ray: Plane, depth: f32) -> Plane {
        [self.place[0] + ray[0] * depth, self.place[1] + ray[1] * depth]
    }

    /// The row in which something at this height and depth is.
    pub(super) fn row(&self, height: f32, depth: f32) -> f32 {
        self.middle[1] + (EYE_HEIGHT - height) * self.focus / depth
    }

    /// How many pixels something of this size has there.
    pub(super) fn size(&self, units: f32, depth: f32) -> f32 {
        units * self.focus / depth
    }

    /// Where a place is in the picture, if it is in front.
    pub(super) fn see(&self, maze: &Maze, position: Position) -> Option<Seen> {
        let there = plane(maze, position);
        let way = [there[0] - self.place[0], there[1] - self.place[1]];
        let depth = dot(way, self.forward);
        let distance = dot(way, way).sqrt();
        let aside = dot(way, self.right);
        (depth > NEAREST).then(|| Seen {
            depth,
            x: self.middle[0] + self.size(aside, depth),
            back: [-way[0] / distance, -way[1] / distance],
        })
    }
}

/// A position in units from the corner of the maze.
pub(super) fn plane(maze: &Maze, position: Position) -> Plane {
    let corner = maze.corner();
    let units = |at: i32, corner: i32| (i64::from(at) - i64::from(corner)) as f32 / FINE as f32;
    [units(position.x, corner.x), units(position.y, corner.y)]
}

pub(super) fn dot(one: Plane, other: Plane) -> f32 {
    one[0] * other[0] + one[1] * other[1]
}
