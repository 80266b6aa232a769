//! Shots and blasts: light that is added to the picture.

use super::avatars::for_each_visible_pixel;
use super::canvas::Canvas;
use super::colour::{Colour, LinearColour, mix, scale, to_light};
use super::projection::{Projected, Projection};
use crate::rng::Rng;

/// Height at which shots fly, in units.
const SHOT_HEIGHT: f32 = 52.0;

/// Radius of the glow around a shot, in units.
const SHOT_GLOW_RADIUS: f32 = 34.0;

/// Number of sparks of a blast.
const SPARK_COUNT: u64 = 36;
/// Largest distance that a spark flies from the avatar, in units.
const SPARK_RANGE: f32 = 130.0;
/// Ticks for which a blast is visible.
const BLAST_TICKS: u32 = 90;

/// Draws a shot as a ball of light.
pub(super) fn draw_shot(eye: &Projection, seen: &Projected, colour: Colour, canvas: &mut Canvas) {
    draw_glow(eye, seen, [0.0, SHOT_HEIGHT], SHOT_GLOW_RADIUS, to_light(colour), canvas);
    draw_glow(eye, seen, [0.0, SHOT_HEIGHT], SHOT_GLOW_RADIUS * 0.4, [1.0; 3], canvas);
    // Light on the floor.
    draw_glow(eye, seen, [0.0, 0.0], SHOT_GLOW_RADIUS * 0.8, scale(to_light(colour), 0.25), canvas);
}

/// Draws a flash and flying sparks, `ticks` ticks after an avatar was hit; nothing from [`BLAST_TICKS`] on.
pub(super) fn draw_blast(eye: &Projection, seen: &Projected, colour: Colour, ticks: u32, canvas: &mut Canvas) {
    if ticks >= BLAST_TICKS {
        return;
    }
    let age = ticks as f32 / BLAST_TICKS as f32;
    let colour = to_light(colour);
    draw_glow(eye, seen, [0.0, 44.0], 60.0 + 120.0 * age, scale([1.0, 0.55, 0.2], (1.0 - age).powi(4)), canvas);
    draw_glow(eye, seen, [0.0, 44.0], 40.0 + 60.0 * age, scale([1.0, 0.95, 0.8], (1.0 - 2.0 * age).max(0.0)), canvas);
    let flown = SPARK_RANGE * (1.0 - (1.0 - age) * (1.0 - age));
    for spark in 0..SPARK_COUNT {
        let (aside, up, heat) = spark_direction(spark);
        let fallen = 90.0 * age * age;
        let offset = [aside * flown, (44.0 + up * flown - fallen).max(3.0)];
        let light = mix(mix([1.0, 0.9, 0.6], colour, (age * 2.5).min(1.0)), [0.4, 0.1, 0.05], age * heat);
        draw_glow(eye, seen, offset, 11.0 * (1.0 - age) + 2.0, scale(light, 1.0 - age * age), canvas);
    }
}

/// Returns the flight of a spark (aside, up) as a share of [`SPARK_RANGE`], and a factor from 0 to 1 for how quickly
/// the spark cools.
fn spark_direction(spark: u64) -> (f32, f32, f32) {
    let mut rng = Rng::from_parts(&[spark]);
    let mut part = || rng.below(1_000) as f32 / 1_000.0;
    let (angle, reach) = (part() * std::f32::consts::TAU, 0.3 + 0.7 * part());
    (angle.cos() * reach, angle.sin() * reach, part())
}

/// Draws a round light of radius `size`, at an offset aside from an object and a height above the floor, all in units.
fn draw_glow(
    eye: &Projection,
    seen: &Projected,
    [aside, height]: [f32; 2],
    size: f32,
    light: LinearColour,
    canvas: &mut Canvas,
) {
    let middle = [seen.x + eye.screen_size(aside, seen.depth), eye.screen_row(height, seen.depth)];
    let radius = eye.screen_size(size, seen.depth).max(0.8);
    for_each_visible_pixel(seen, canvas, middle, [radius; 2], |canvas, x, y| {
        let (across, down) = ((x as f32 + 0.5 - middle[0]) / radius, (y as f32 + 0.5 - middle[1]) / radius);
        let inside = (1.0 - across * across - down * down).max(0.0);
        canvas.add_light(x, y, scale(light, inside * inside));
    });
}
