//! What walls, floor and ceiling have in common: colours of the regions, fog, lamplight, and lines of joints.

use super::colour::{LinearColour, mix};
use crate::direction::MazeCell;

/// Depth at which half of the light is lost in fog, in units.
const FOG_HALF_DISTANCE: f32 = 1_900.0;
const FOG_LIGHT: LinearColour = [0.030, 0.036, 0.060];

/// Side of a square region of walls with the same colours, in cells.
const REGION_CELLS: i32 = 3;

/// Colours of the walls of a region, for orientation: bricks and light strip.
const REGION_PALETTE: [(LinearColour, LinearColour); 5] = [
    ([0.36, 0.43, 0.58], [0.25, 0.65, 1.00]), // slate
    ([0.58, 0.38, 0.30], [1.00, 0.40, 0.20]), // brick
    ([0.36, 0.50, 0.38], [0.35, 1.00, 0.45]), // moss
    ([0.56, 0.50, 0.36], [1.00, 0.80, 0.25]), // sand
    ([0.48, 0.37, 0.56], [0.85, 0.40, 1.00]), // heather
];

pub(super) fn region_palette((x, y): MazeCell) -> (LinearColour, LinearColour) {
    // Neighbouring regions differ, also across corners.
    let number = x.div_euclid(REGION_CELLS) + 2 * y.div_euclid(REGION_CELLS);
    REGION_PALETTE[number.rem_euclid(REGION_PALETTE.len() as i32) as usize]
}

/// Returns the share of light, from 0 to 1, that fog leaves at a depth in units.
pub(super) fn visibility(depth: f32) -> f32 {
    let part = depth / FOG_HALF_DISTANCE;
    1.0 / (1.0 + part * part)
}

/// Mixes light with the colour of the fog. `clearness` is the share of the light that remains.
pub(super) fn apply_fog(light: LinearColour, clearness: f32) -> LinearColour {
    mix(FOG_LIGHT, light, clearness)
}

/// Returns the brightness factor at this squared distance from a lamp, in squared units.
pub(super) fn lamplight(square: f32) -> f32 {
    0.42 + 0.95 / (1.0 + square * (1.0 / 34_000.0))
}

/// Rounds down. The standard function is a call on many processors, and this one runs for every pixel.
pub(super) fn floor_to_i32(at: f32) -> i32 {
    let towards_zero = at as i32;
    towards_zero - i32::from(towards_zero as f32 > at)
}

/// Antialiased straight line, which may be narrower than a pixel.
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

    /// Returns the share of a pixel that the line covers, given the distance from the line's middle to the pixel's
    /// centre, in units.
    pub(super) fn coverage(&self, distance: f32) -> f32 {
        ((self.half_width - distance) * self.pixels_per_unit + 0.5).max(0.0).min(self.max_coverage)
    }
}
