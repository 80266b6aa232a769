//! Character grid of a terminal, and the escape sequences that update one grid to the next.

use std::io::Write;

/// Colour as red, green, blue.
pub(super) type Rgb = [u8; 3];

/// Character cell of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) glyph: char,
    pub(super) foreground: Rgb,
    pub(super) background: Rgb,
}

/// Number of colours that a terminal supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColourDepth {
    /// 24-bit colour.
    TrueColour,
    /// The 256 colours of xterm.
    Xterm256,
}

/// Cells of a whole terminal screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) columns: usize,
    pub(super) rows: usize,
    cells: Vec<Cell>,
}

const EMPTY: Cell = Cell { glyph: ' ', foreground: [200; 3], background: [0; 3] };

impl Grid {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, rows, cells: vec![EMPTY; columns * rows] }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(EMPTY);
    }

    pub(super) fn at(&self, x: usize, y: usize) -> Cell {
        self.cells[y * self.columns + x]
    }

    /// Sets a cell. Positions outside the grid are ignored.
    pub(super) fn set(&mut self, x: usize, y: usize, cell: Cell) {
        if x < self.columns && y < self.rows {
            self.cells[y * self.columns + x] = cell;
        }
    }

    /// Writes text from a position to the right. Text beyond the grid is clipped.
    pub(super) fn write(&mut self, x: usize, y: usize, text: &str, foreground: Rgb, background: Rgb) {
        for (at, glyph) in text.chars().enumerate() {
            self.set(x + at, y, Cell { glyph, foreground, background });
        }
    }

    /// Dims all cells, so that an overlay stands out.
    pub(super) fn dim(&mut self) {
        for cell in &mut self.cells {
            cell.foreground = cell.foreground.map(|part| part / 3);
            cell.background = cell.background.map(|part| part / 3);
        }
    }

    /// Returns the characters without colours, row by row.
    pub(super) fn text(&self) -> String {
        let row = |cells: &[Cell]| cells.iter().map(|cell| cell.glyph).collect::<String>().trim_end().to_owned() + "\n";
        self.cells.chunks(self.columns.max(1)).map(row).collect()
    }

    /// Appends the bytes that turn `before` into this grid. Only cells that differ are sent; all cells are sent if
    /// there is no `before` or its size differs.
    pub(super) fn write_diff(&self, before: Option<&Self>, colours: ColourDepth, out: &mut Vec<u8>) {
        let before = before.filter(|before| (before.columns, before.rows) == (self.columns, self.rows));
        let (mut pen, mut cursor): (Option<(Rgb, Rgb)>, _) = (None, None);
        for y in 0..self.rows {
            for x in 0..self.columns {
                let cell = self.at(x, y);
                if before.is_some_and(|before| before.at(x, y) == cell) {
                    continue;
                }
                // Writing to a vector cannot fail.
                if cursor != Some((x, y)) {
                    _ = write!(out, "\x1b[{};{}H", y + 1, x + 1);
                }
                let (old_foreground, old_background) =
                    pen.map_or((None, None), |(foreground, background)| (Some(foreground), Some(background)));
                if old_foreground != Some(cell.foreground) {
                    write_colour(out, 38, cell.foreground, colours);
                }
                if old_background != Some(cell.background) {
                    write_colour(out, 48, cell.background, colours);
                }
                let mut buffer = [0; 4];
                out.extend_from_slice(cell.glyph.encode_utf8(&mut buffer).as_bytes());
                (pen, cursor) = (Some((cell.foreground, cell.background)), Some((x + 1, y)));
            }
        }
        if pen.is_some() {
            out.extend_from_slice(b"\x1b[0m");
        }
    }
}

fn write_colour(out: &mut Vec<u8>, sgr_code: u8, [red, green, blue]: Rgb, colours: ColourDepth) {
    _ = match colours {
        ColourDepth::TrueColour => write!(out, "\x1b[{sgr_code};2;{red};{green};{blue}m"),
        ColourDepth::Xterm256 => write!(out, "\x1b[{sgr_code};5;{}m", nearest_xterm_colour([red, green, blue])),
    };
}

/// Returns the index of the nearest of xterm's 256 colours: one of a 6 × 6 × 6 cube or one of 24 greys.
fn nearest_xterm_colour(rgb: Rgb) -> u8 {
    const STEPS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let distance = |other: [i32; 3]| -> i32 { rgb.iter().zip(other).map(|(a, b)| (i32::from(*a) - b).pow(2)).sum() };
    let step = |part: u8| (0..6).min_by_key(|step| (STEPS[*step] - i32::from(part)).abs()).unwrap_or(0);
    let cube = rgb.map(step);
    let mean = rgb.iter().map(|part| i32::from(*part)).sum::<i32>() / 3;
    let grey = ((mean - 3) / 10).clamp(0, 23);
    if distance([8 + 10 * grey; 3]) < distance(cube.map(|step| STEPS[step])) {
        return 232 + grey as u8;
    }
    16 + (36 * cube[0] + 6 * cube[1] + cube[2]) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff_text(grid: &Grid, before: Option<&Grid>, colours: ColourDepth) -> String {
        let mut out = vec![];
        grid.write_diff(before, colours, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_changed_cells_are_sent() {
        let before = Grid::new(10, 3);
        assert_eq!(diff_text(&before, Some(&before), ColourDepth::TrueColour), "");
        let mut after = before.clone();
        after.write(2, 1, "ab", [1, 2, 3], [4, 5, 6]);
        after.set(9, 2, Cell { glyph: 'z', foreground: [1, 2, 3], background: [0; 3] });
        let expected = "\x1b[2;3H\x1b[38;2;1;2;3m\x1b[48;2;4;5;6mab\x1b[3;10H\x1b[48;2;0;0;0mz\x1b[0m";
        assert_eq!(diff_text(&after, Some(&before), ColourDepth::TrueColour), expected);
    }

    #[test]
    fn resized_grid_is_redrawn_completely() {
        let text = diff_text(&Grid::new(4, 2), Some(&Grid::new(5, 2)), ColourDepth::Xterm256);
        assert_eq!(text.matches(' ').count(), 8);
    }

    #[test]
    fn xterm_colours_are_the_nearest() {
        assert_eq!(
            (nearest_xterm_colour([0; 3]), nearest_xterm_colour([255; 3]), nearest_xterm_colour([255, 0, 0])),
            (16, 231, 196)
        );
        assert_eq!((nearest_xterm_colour([128; 3]), nearest_xterm_colour([10, 9, 11])), (244, 232));
    }

    #[test]
    fn text_outside_the_grid_is_clipped() {
        let mut grid = Grid::new(3, 1);
        grid.write(1, 0, "abc", [0; 3], [0; 3]);
        grid.write(0, 5, "abc", [0; 3], [0; 3]);
        assert_eq!(grid.text(), " ab\n");
    }
}
