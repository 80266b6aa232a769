//! Buffer of pixels into which pictures are drawn.

use super::colour::{LinearColour, to_colour, to_light};

/// Opaque picture: rows of RGBA pixels, from the top.
#[derive(Clone, Debug)]
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
    /// Depth of the wall in each column, in units; infinite until a view is drawn.
    column_depth: Vec<f32>,
}

impl Canvas {
    /// Creates a black canvas of this size, in pixels.
    pub fn new(width: usize, height: usize) -> Self {
        let mut canvas = Self { width: 0, height: 0, pixels: Vec::new(), column_depth: Vec::new() };
        canvas.resize(width, height);
        canvas
    }

    /// Resizes the canvas, and clears it to black if the size changes.
    pub fn resize(&mut self, width: usize, height: usize) {
        if (width, height) != (self.width, self.height) {
            (self.width, self.height) = (width, height);
            self.pixels.clear();
            self.pixels.extend([0, 0, 0, 255].iter().cycle().take(4 * width * height));
            self.column_depth.clear();
            self.column_depth.resize(width, f32::INFINITY);
        }
    }

    /// Returns the width, in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height, in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the pixels row by row from the top, in four bytes each: red, green, blue, 255.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// Copies another canvas onto this one, its top left corner at (`left`, `top`). Clips the part that does not fit.
    pub fn paste(&mut self, other: &Canvas, left: usize, top: usize) {
        let wide = other.width.min(self.width.saturating_sub(left));
        for row in 0..other.height.min(self.height.saturating_sub(top)) {
            let from = 4 * row * other.width;
            let to = 4 * ((top + row) * self.width + left);
            self.pixels[to..to + 4 * wide].copy_from_slice(&other.pixels[from..from + 4 * wide]);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pixels.is_empty()
    }

    pub(super) fn column_depth(&self, column: usize) -> f32 {
        self.column_depth[column]
    }

    pub(super) fn set_column_depth(&mut self, column: usize, depth: f32) {
        self.column_depth[column] = depth;
    }

    /// Returns the index of a pixel's first byte; `None` if the pixel is off the canvas.
    fn index(&self, x: i32, y: i32) -> Option<usize> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        (x < self.width && y < self.height).then(|| 4 * (y * self.width + x))
    }

    /// Sets a pixel, which must be on the canvas.
    pub(super) fn paint(&mut self, x: usize, y: usize, light: LinearColour) {
        let at = 4 * (y * self.width + x);
        self.pixels[at..at + 3].copy_from_slice(&to_colour(light));
    }

    /// Returns the light of a pixel, which must be on the canvas.
    pub(super) fn light_at(&self, x: usize, y: usize) -> LinearColour {
        let at = 4 * (y * self.width + x);
        to_light([self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]])
    }

    /// Blends a pixel with `light`; a `share` of 1 replaces the pixel. Ignores pixels off the canvas.
    pub(super) fn blend(&mut self, x: i32, y: i32, light: LinearColour, share: f32) {
        self.modify_pixel(x, y, |old, new| old + (new - old) * share, light);
    }

    /// Adds light to a pixel, up to full brightness. Ignores pixels off the canvas.
    pub(super) fn add_light(&mut self, x: i32, y: i32, light: LinearColour) {
        self.modify_pixel(x, y, |old, new| old + new, light);
    }

    fn modify_pixel(&mut self, x: i32, y: i32, blend: impl Fn(f32, f32) -> f32, light: LinearColour) {
        let Some(at) = self.index(x, y) else { return };
        for (byte, part) in self.pixels[at..at + 3].iter_mut().zip(light) {
            *byte = (blend(f32::from(*byte) / 255.0, part) * 255.0) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paste_clips_to_the_canvas() {
        let mut picture = Canvas::new(4, 3);
        let mut inset = Canvas::new(2, 2);
        (0..4).for_each(|at| inset.paint(at % 2, at / 2, [1.0; 3]));
        picture.paste(&inset, 3, 1);
        picture.paste(&inset, 9, 9);
        let white: Vec<usize> = (0..12).filter(|at| picture.pixels()[4 * at] == 255).collect();
        assert_eq!(white, [7, 11]);
    }

    #[test]
    fn drawing_outside_the_canvas_is_ignored() {
        let mut picture = Canvas::new(2, 2);
        for (x, y) in [(-1, 0), (0, -1), (2, 0), (0, 2), (i32::MIN, i32::MAX)] {
            picture.blend(x, y, [1.0; 3], 1.0);
            picture.add_light(x, y, [1.0; 3]);
        }
        assert!(picture.pixels().chunks(4).all(|pixel| pixel == [0, 0, 0, 255]));
    }
}
