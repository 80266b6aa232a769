//! Hashes pictures, and converts them from the three pixel formats of libretro to RGBA.

use xxhash_rust::xxh3::Xxh3;

/// Maximum width and height of a picture, in pixels.
const MAX_SIDE: usize = 4_096;

/// Pixel format of a core. A pixel is an integer in the host's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PixelFormat {
    /// 16 bits, the top bit unused. The default of libretro.
    #[default]
    Rgb1555,
    /// 32 bits, the top eight unused.
    Xrgb8888,
    /// 16 bits: 5 red, 6 green, 5 blue.
    Rgb565,
}

impl PixelFormat {
    /// Returns the format with this libretro number; `None` if there is no such format.
    pub(super) fn from_libretro(number: u32) -> Option<Self> {
        [Self::Rgb1555, Self::Xrgb8888, Self::Rgb565].get(number as usize).copied()
    }

    pub(super) fn bytes_per_pixel(self) -> usize {
        if self == Self::Xrgb8888 { 4 } else { 2 }
    }
}

/// The last picture of a core, converted to RGBA.
#[derive(Default)]
pub(super) struct VideoFrame {
    pub(super) format: PixelFormat,
    /// Rotation in counterclockwise quarter turns.
    pub(super) quarter_turns: u32,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) rgba: Vec<u8>,
    /// Whether a picture was converted since this flag was last cleared.
    pub(super) has_new_picture: bool,
    /// Hash of width and pixels of the last picture passed to [`hash_picture`](Self::hash_picture).
    pub(super) digest: u64,
    rotation_buffer: Vec<u8>,
}

impl VideoFrame {
    /// Returns whether both sides have 1 to [`MAX_SIDE`] pixels, and `pitch`, the bytes from one row to the next, holds
    /// a whole row and is at most 256 KiB.
    pub(super) fn is_valid_size(&self, width: usize, height: usize, pitch: usize) -> bool {
        let sides = 1..=MAX_SIDE;
        sides.contains(&width)
            && sides.contains(&height)
            && pitch >= width * self.format.bytes_per_pixel()
            && pitch <= 64 * MAX_SIDE
    }

    /// Converts a picture whose size passed [`is_valid_size`](Self::is_valid_size) to RGBA and rotates it by
    /// `quarter_turns`. `row` returns the bytes of one row.
    pub(super) fn convert_picture<'a>(&mut self, width: usize, height: usize, row: impl Fn(usize) -> &'a [u8]) {
        self.rgba.resize(width * height * 4, 0);
        for (y, out) in self.rgba.chunks_exact_mut(width * 4).enumerate() {
            convert_row(self.format, row(y), out);
        }
        (self.width, self.height, self.has_new_picture) = (width, height, true);
        for _ in 0..self.quarter_turns % 4 {
            self.rotate_quarter();
        }
    }

    /// Hashes a picture into `digest` without converting it.
    pub(super) fn hash_picture<'a>(&mut self, width: usize, height: usize, row: impl Fn(usize) -> &'a [u8]) {
        let mut hash = Xxh3::new();
        hash.update(&(width as u64).to_le_bytes());
        for y in 0..height {
            hash.update(row(y));
        }
        self.digest = hash.digest();
    }

    /// Rotates the picture by a quarter turn counterclockwise.
    fn rotate_quarter(&mut self) {
        let (width, height) = (self.height, self.width);
        self.rotation_buffer.clear();
        for y in 0..height {
            let column = self.width - 1 - y;
            let pixels = (0..width).map(|x| (x * self.width + column) * 4);
            pixels.for_each(|at| self.rotation_buffer.extend_from_slice(&self.rgba[at..at + 4]));
        }
        std::mem::swap(&mut self.rgba, &mut self.rotation_buffer);
        (self.width, self.height) = (width, height);
    }
}

fn convert_row(format: PixelFormat, row: &[u8], out: &mut [u8]) {
    let out = out.chunks_exact_mut(4);
    match format {
        PixelFormat::Xrgb8888 => row.chunks_exact(4).zip(out).for_each(|(pixel, out)| {
            let pixel = u32::from_ne_bytes([pixel[0], pixel[1], pixel[2], pixel[3]]);
            out.copy_from_slice(&[(pixel >> 16) as u8, (pixel >> 8) as u8, pixel as u8, 255]);
        }),
        PixelFormat::Rgb565 => row.chunks_exact(2).zip(out).for_each(|(pixel, out)| {
            let pixel = u16::from_ne_bytes([pixel[0], pixel[1]]);
            let green = (pixel >> 5 & 0x3f) as u8;
            out.copy_from_slice(&[
                expand_5_to_8_bits(pixel >> 11),
                green << 2 | green >> 4,
                expand_5_to_8_bits(pixel),
                255,
            ]);
        }),
        PixelFormat::Rgb1555 => row.chunks_exact(2).zip(out).for_each(|(pixel, out)| {
            let pixel = u16::from_ne_bytes([pixel[0], pixel[1]]);
            out.copy_from_slice(&[
                expand_5_to_8_bits(pixel >> 10),
                expand_5_to_8_bits(pixel >> 5),
                expand_5_to_8_bits(pixel),
                255,
            ]);
        }),
    }
}

/// Expands a colour value, the low five bits of `bits`, to eight bits.
fn expand_5_to_8_bits(bits: u16) -> u8 {
    let bits = (bits & 0x1f) as u8;
    bits << 3 | bits >> 2
}

/// Returns the pixels of an opaque black picture.
pub(super) fn black_rgba(width: usize, height: usize) -> Vec<u8> {
    [0, 0, 0, 255].repeat(width * height)
}

/// Clamps a size announced by a core to 1 to [`MAX_SIDE`] pixels per side.
pub(super) fn clamp_size(width: u32, height: u32) -> (usize, usize) {
    ((width as usize).clamp(1, MAX_SIDE), (height as usize).clamp(1, MAX_SIDE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted_frame(format: u32, turns: u32, pixels: &[u8], width: usize) -> VideoFrame {
        let mut video = VideoFrame {
            format: PixelFormat::from_libretro(format).unwrap(),
            quarter_turns: turns,
            ..VideoFrame::default()
        };
        let pitch = width * video.format.bytes_per_pixel();
        video.convert_picture(width, pixels.len() / pitch, |y| &pixels[y * pitch..][..pitch]);
        video
    }

    #[test]
    fn all_pixel_formats_convert_to_the_same_rgba() {
        let orange = [255, 132, 0, 255];
        assert_eq!(converted_frame(0, 0, &(31u16 << 10 | 16 << 5).to_ne_bytes(), 1).rgba, orange);
        assert_eq!(converted_frame(1, 0, &0x00ff_8400u32.to_ne_bytes(), 1).rgba, orange);
        assert_eq!(converted_frame(2, 0, &(31u16 << 11 | 33 << 5).to_ne_bytes(), 1).rgba, [255, 134, 0, 255]);
        assert!(PixelFormat::from_libretro(3).is_none());
    }

    #[test]
    fn quarter_turn_rotates_counterclockwise() {
        let pixels: Vec<u8> = [1u32, 2, 3, 4, 5, 6].iter().flat_map(|pixel| pixel.to_ne_bytes()).collect();
        let video = converted_frame(1, 1, &pixels, 3);
        assert_eq!((video.width, video.height), (2, 3));
        let blue: Vec<u8> = video.rgba.chunks(4).map(|pixel| pixel[2]).collect();
        assert_eq!(blue, [3, 6, 2, 5, 1, 4]);
        assert_eq!(converted_frame(1, 4, &pixels, 3).rgba, converted_frame(1, 0, &pixels, 3).rgba);
    }

    #[test]
    fn invalid_picture_sizes_are_rejected() {
        let video = VideoFrame::default();
        assert!(video.is_valid_size(256, 240, 512) && video.is_valid_size(256, 240, 1024));
        assert!(!video.is_valid_size(256, 240, 511) && !video.is_valid_size(0, 240, 512));
        assert!(!video.is_valid_size(5_000, 240, 10_000) && !video.is_valid_size(256, 240, usize::MAX));
    }
}
