//! Avatars: spheres with a face, and their remains.

use super::canvas::Canvas;
use super::colour::{Colour, LinearColour, add, mix, scale, to_light};
use super::projection::{Projected, Projection, ScreenPoint, dot};
use super::surface::{apply_fog, visibility};
use crate::rules::AVATAR_RADIUS;

/// Height of the centre of a living avatar above the floor, in units: the sphere floats a little.
const CENTRE_HEIGHT: f32 = 46.0;

/// Ratio of height to width of a dead avatar.
const REMAINS_FLATNESS: f32 = 0.4;

const SPHERE_RADIUS: f32 = AVATAR_RADIUS as f32;

/// Antialiasing samples per pixel and axis, so that edges are smooth also in small pictures.
const SAMPLES_PER_AXIS: i32 = 3;

/// Point on a sphere of radius 1, in the avatar's own frame: forward, right, up.
type SurfacePoint = [f32; 3];

/// Draws a living avatar that looks along `heading`.
pub(super) fn draw_avatar(eye: &Projection, seen: &Projected, colour: Colour, heading: u16, canvas: &mut Canvas) {
    let angle = f32::from(heading) / 32_768.0 * std::f32::consts::PI;
    let front = [angle.cos(), angle.sin()];
    let colour = to_light(colour);
    draw_shadow(eye, seen, SPHERE_RADIUS, canvas);
    draw_sphere(eye, seen, CENTRE_HEIGHT, 1.0, canvas, |normal| {
        let right = [-front[1], front[0]];
        let flat = [normal[0], normal[1]];
        let skin = [dot(flat, front), dot(flat, right), normal[2]];
        apply_lighting(face_colour(skin, colour), normal, seen.to_eye)
    });
}

/// Draws a dead avatar: a flattened grey sphere with a touch of its colour.
pub(super) fn draw_remains(eye: &Projection, seen: &Projected, colour: Colour, canvas: &mut Canvas) {
    let ashes = mix([0.16, 0.16, 0.17], to_light(colour), 0.25);
    draw_shadow(eye, seen, SPHERE_RADIUS * 1.1, canvas);
    draw_sphere(eye, seen, SPHERE_RADIUS * REMAINS_FLATNESS, REMAINS_FLATNESS, canvas, |normal| {
        apply_lighting(ashes, normal, seen.to_eye)
    });
}

/// Draws a sphere with its centre `height` units above the floor; `flat` is the ratio of its height to its width.
/// `light` returns the colour for a surface normal (east, south, up).
fn draw_sphere(
    eye: &Projection,
    seen: &Projected,
    height: f32,
    flat: f32,
    canvas: &mut Canvas,
    light: impl Fn([f32; 3]) -> LinearColour,
) {
    let (radius, middle) = (eye.screen_size(SPHERE_RADIUS, seen.depth), eye.screen_row(height, seen.depth));
    let aside = [seen.to_eye[1], -seen.to_eye[0]];
    let clearness = visibility(seen.depth);
    let colour_at = |across: f32, down: f32| {
        let square = across * across + down * down;
        (square < 1.0).then(|| {
            let near = (1.0 - square).sqrt();
            let towards: ScreenPoint = std::array::from_fn(|axis| aside[axis] * across + seen.to_eye[axis] * near);
            apply_fog(light([towards[0], towards[1], -down]), clearness)
        })
    };
    let tall = (radius * flat).max(0.5);
    for_each_visible_pixel(seen, canvas, [seen.x, middle], [radius, tall], |canvas, x, y| {
        let mut total = [0.0; 3];
        let mut count = 0;
        for sample in 0..SAMPLES_PER_AXIS * SAMPLES_PER_AXIS {
            let within = |part: i32| (part as f32 + 0.5) / SAMPLES_PER_AXIS as f32;
            let across = (x as f32 + within(sample % SAMPLES_PER_AXIS) - seen.x) / radius;
            let down = (y as f32 + within(sample / SAMPLES_PER_AXIS) - middle) / tall;
            if let Some(light) = colour_at(across, down) {
                total = add(total, light);
                count += 1;
            }
        }
        if count > 0 {
            canvas.blend(
                x,
                y,
                scale(total, 1.0 / count as f32),
                count as f32 / (SAMPLES_PER_AXIS * SAMPLES_PER_AXIS) as f32,
            );
        }
    });
}

/// Visits the pixels of the rectangle around `middle` with half the width and height `reach`, except in columns where a
/// wall is in front of the object.
pub(super) fn for_each_visible_pixel(
    seen: &Projected,
    canvas: &mut Canvas,
    middle: [f32; 2],
    reach: [f32; 2],
    mut visit: impl FnMut(&mut Canvas, i32, i32),
) {
    let range = |axis: usize, end: usize| {
        let first = (middle[axis] - reach[axis]).floor().clamp(0.0, end as f32) as i32;
        let last = (middle[axis] + reach[axis]).ceil().clamp(0.0, end as f32) as i32;
        first..last
    };
    for x in range(0, canvas.width()).filter(|x| *x >= 0) {
        if canvas.column_depth(x as usize) > seen.depth {
            range(1, canvas.height()).for_each(|y| visit(canvas, x, y));
        }
    }
}

fn draw_shadow(eye: &Projection, seen: &Projected, size: f32, canvas: &mut Canvas) {
    let middle = eye.screen_row(0.0, seen.depth);
    let wide = eye.screen_size(size, seen.depth) * 1.15;
    let high = middle - eye.screen_row(0.0, seen.depth + size);
    for_each_visible_pixel(seen, canvas, [seen.x, middle], [wide, high], |canvas, x, y| {
        let (across, down) = ((x as f32 + 0.5 - seen.x) / wide, (y as f32 + 0.5 - middle) / high);
        let inside = (1.0 - across * across - down * down).max(0.0);
        canvas.blend(x, y, [0.0; 3], 0.75 * inside.sqrt());
    });
}

/// Lights a surface of colour `skin` from above and from the camera, with a highlight. `back` points to the camera.
fn apply_lighting(skin: LinearColour, normal: [f32; 3], back: ScreenPoint) -> LinearColour {
    let facing = dot([normal[0], normal[1]], back);
    let from_above = normal[2] * 0.80 + facing * 0.60;
    let gleam =
        (normal[2] * 0.62 + facing * 0.72 + dot([normal[0], normal[1]], [back[1], -back[0]]) * -0.30).max(0.0).powi(28);
    let shade = 0.30 + 0.78 * from_above.max(0.0);
    add(scale(skin, shade), [0.55 * gleam; 3])
}

/// Returns the surface colour of an avatar at a point: eyes that look forward, a mouth, else the player's colour.
fn face_colour(skin: SurfacePoint, colour: LinearColour) -> LinearColour {
    let [front, right, up] = skin;
    // The face is symmetric.
    let towards = |spot: SurfacePoint| front * spot[0] + right.abs() * spot[1] + up * spot[2];
    let (eye, pupil) = (towards([0.80, 0.42, 0.43]), towards([0.86, 0.34, 0.38]));
    if pupil > 0.982 {
        [0.05, 0.05, 0.08]
    } else if eye > 0.935 {
        [0.98, 0.98, 1.0]
    } else if is_mouth(skin) {
        scale(colour, 0.16)
    } else {
        colour
    }
}

fn is_mouth([front, right, up]: SurfacePoint) -> bool {
    let lower_edge = -0.52 + right * right * 0.9;
    front > 0.4 && right.abs() < 0.48 && up > lower_edge && up < -0.22 + right * right * 0.35
}
