//! What a machine shows.

/// A picture, row by row from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picture<'a> {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Width divided by height as it is meant to be seen: pixels of old machines are seldom square.
    pub aspect: f32,
    /// Red, green, blue and 255 of every pixel.
    pub rgba: &'a [u8],
}
