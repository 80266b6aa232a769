//! Borrowed pictures of machines, as RGBA pixels.

/// A picture as rows of pixels, from top to bottom and from left to right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picture<'a> {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Display aspect ratio, width divided by height. The pixels of old machines are rarely square.
    pub aspect: f32,
    /// Four bytes per pixel: red, green, blue and 255.
    pub rgba: &'a [u8],
}
