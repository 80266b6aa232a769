//! Draws a scene into a character grid. A cell is about twice as high as wide, so the upper half block shows two square
//! pixels: the foreground colour above, the background colour below.

use super::grid::{Cell, Grid, Rgb};
use crate::layout::{Scaling, column_count, fit_picture};
use crate::palette::{ACCENT, BACKGROUND, DIM_TEXT, GRAPH_COLOURS, PANEL, TEXT};
use crate::scene::{Dial, Graph, Label, Overlay, Scene, Screen, TableRow};

/// Number of cell rows of a graph, without its title.
const GRAPH_ROWS: usize = 5;
/// Smallest size of a readable grid, in columns and rows.
const MIN_SIZE: (usize, usize) = (40, 12);
/// Characters for 0 to 8 filled eighths of a cell, from the bottom.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a whole scene, in place of the former content of the grid. `keys` is the text at the right end of the status
/// line.
pub(super) fn draw_scene(scene: &Scene, keys: &str, grid: &mut Grid) {
    grid.clear();
    let below = 1 + usize::from(!scene.dials.is_empty()) + scene.graph.as_ref().map_or(0, |_| GRAPH_ROWS + 1);
    // In a small terminal pictures take precedence over graph and dials.
    let below = if grid.rows >= below + 8 { below } else { grid.rows.min(1) };
    let top = grid.rows - below;
    draw_screens(scene, grid, top);
    let mut y = top;
    if below > 1 {
        if let Some(graph) = &scene.graph {
            draw_graph(graph, grid, y);
            y += GRAPH_ROWS + 1;
        }
        if !scene.dials.is_empty() {
            draw_dials(&scene.dials, scene.selected_dial, grid, y);
        }
    }
    draw_table(scene, grid, top);
    draw_status(scene, keys, grid);
    if let Some(toast) = &scene.toast {
        draw_toast(toast, grid, top);
    }
    if let Some(overlay) = &scene.overlay {
        grid.dim();
        draw_overlay(overlay, grid);
    }
    draw_chat(scene, grid, top);
}

/// Draws a warning if the grid is too small to be readable.
pub(super) fn draw_size_warning(grid: &mut Grid) {
    if grid.columns < MIN_SIZE.0 || grid.rows < MIN_SIZE.1 {
        draw_toast(&format!("terminal too small: needs {} columns, {} rows", MIN_SIZE.0, MIN_SIZE.1), grid, grid.rows);
    }
}

/// Draws the chat lines at the lower left of the pictures, and below them the draft.
fn draw_chat(scene: &Scene, grid: &mut Grid, rows: usize) {
    let draft = scene.chat_draft.as_ref().map(|text| format!("> {text}_"));
    let lines: Vec<&String> = scene.chat.iter().chain(&draft).collect();
    let first = rows.saturating_sub(lines.len());
    for (at, line) in lines.iter().enumerate() {
        // A long draft shows its end, a long chat line its beginning.
        let room = grid.columns.saturating_sub(4);
        let excess = line.chars().count().saturating_sub(room);
        let is_draft = draft.is_some() && at + 1 == lines.len();
        let text: String = line.chars().skip(if is_draft { excess } else { 0 }).take(room).collect();
        grid.write(1, first + at, &format!(" {text} "), if is_draft { ACCENT } else { TEXT }, PANEL);
    }
}

fn draw_screens(scene: &Scene, grid: &mut Grid, rows: usize) {
    let Some(first) = scene.screens.first() else { return };
    let across = column_count((grid.columns as f32, rows as f32 * 2.0), scene.screens.len(), first.aspect);
    let down = scene.screens.len().div_ceil(across).max(1);
    let (width, height) = (grid.columns / across, rows / down);
    for (at, screen) in scene.screens.iter().enumerate() {
        let (x, y) = (at % across * width, at / across * height);
        let caption = usize::from(!screen.caption.is_empty() && height > 4);
        if caption > 0 {
            let text: String = screen.caption.chars().take(width).collect();
            grid.write(x + (width - text.chars().count()) / 2, y, &text, TEXT, BACKGROUND);
        }
        draw_screen(screen, grid, (x, y + caption), (width, height - caption));
    }
}

fn draw_screen(screen: &Screen, grid: &mut Grid, (left, top): (usize, usize), (width, height): (usize, usize)) {
    let rect = fit_picture((width as f32, height as f32 * 2.0), screen.height, screen.aspect, Scaling::Fractional);
    let (across, down) = (rect.width.round() as usize, (rect.height / 2.0).round() as usize * 2);
    if across == 0 || down == 0 || screen.width == 0 || screen.height == 0 {
        return;
    }
    let (x0, y0) = (left + rect.x as usize, top + rect.y as usize / 2);
    for y in 0..down / 2 {
        for x in 0..across {
            let foreground = mean_colour(screen, (x, across), (y * 2, down));
            let background = mean_colour(screen, (x, across), (y * 2 + 1, down));
            grid.set(x0 + x, y0 + y, Cell { glyph: '▀', foreground, background });
        }
    }
    for label in &screen.labels {
        draw_label(label, grid, (x0, y0), (across, down / 2));
    }
}

/// Draws a label on a picture, clipped to the picture.
fn draw_label(label: &Label, grid: &mut Grid, (left, top): (usize, usize), (width, height): (usize, usize)) {
    let text: Vec<char> = format!(" {} ", label.text).chars().collect();
    let middle = (label.x * width as f32) as isize;
    let row = ((label.y * height as f32) as isize - 1).clamp(0, height.saturating_sub(1) as isize) as usize;
    for (at, glyph) in text.iter().enumerate() {
        let x = middle - text.len() as isize / 2 + at as isize;
        if let Some(x) = usize::try_from(x).ok().filter(|x| *x < width) {
            grid.set(left + x, top + row, Cell { glyph: *glyph, foreground: label.colour, background: PANEL });
        }
    }
}

/// Draws the table in the upper left corner, unless it would cover more than half of the columns.
fn draw_table(Scene { table, table_header: header, .. }: &Scene, grid: &mut Grid, rows: usize) {
    let widest =
        |part: fn(&TableRow) -> &String| table.iter().map(|entry| part(entry).chars().count()).max().unwrap_or(0);
    let (names, values) = (widest(|entry| &entry.name), widest(|entry| &entry.value));
    // The header spans the name column, too, so that it rarely widens the table.
    let names = names.max(header.chars().count().saturating_sub(values + 2));
    if (names + values + 7) * 2 > grid.columns {
        return;
    }
    let max_rows = rows.saturating_sub(2) / 2;
    let has_header = !header.is_empty() && !table.is_empty() && max_rows > 0;
    if has_header {
        grid.write(1, 1, &format!("   {header:>0$} ", names + 2 + values), DIM_TEXT, PANEL);
    }
    let top = 1 + usize::from(has_header);
    for (at, entry) in table.iter().enumerate().take(max_rows) {
        let text = format!("   {:<names$}  {:>values$} ", entry.name, entry.value);
        grid.write(1, top + at, &text, if entry.is_own { ACCENT } else { TEXT }, PANEL);
        grid.set(2, top + at, Cell { glyph: '●', foreground: entry.colour, background: PANEL });
    }
}

/// Returns the mean colour of the part of a picture that pixel (`x`, `y`) covers when the picture is scaled to `across`
/// × `down` pixels.
fn mean_colour(screen: &Screen, (x, across): (usize, usize), (y, down): (usize, usize)) -> Rgb {
    let span = |at: usize, of: usize, size: usize| {
        let (from, to) = (at * size / of, (at + 1) * size / of);
        from..to.max(from + 1).min(size)
    };
    let (mut sum, mut count) = ([0u32; 3], 0);
    for row in span(y, down, screen.height) {
        for column in span(x, across, screen.width) {
            let pixel = screen.pixel(column, row);
            sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += u32::from(part));
            count += 1;
        }
    }
    sum.map(|sum| (sum / count.max(1)) as u8)
}

fn draw_graph(graph: &Graph, grid: &mut Grid, top: usize) {
    let width = grid.columns / graph.lines.len().max(1);
    for (at, line) in graph.lines.iter().enumerate() {
        let (left, foreground) = (at * width, GRAPH_COLOURS[at % GRAPH_COLOURS.len()]);
        let title: String = format!("{} {}", line.name, line.current).chars().take(width.saturating_sub(1)).collect();
        grid.write(left + 1, top, &title, foreground, BACKGROUND);
        let columns = width.saturating_sub(2);
        let shown = line.values.len().min(columns);
        let newest = line.values.iter().skip(line.values.len() - shown);
        for (x, value) in (columns - shown..).zip(newest) {
            let part = (value / line.axis_max.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0);
            let eighths = (part * (GRAPH_ROWS * 8) as f32).round() as usize;
            for row in 0..GRAPH_ROWS {
                let filled = eighths.saturating_sub((GRAPH_ROWS - 1 - row) * 8).min(8);
                grid.set(left + 1 + x, top + 1 + row, Cell { glyph: BARS[filled], foreground, background: PANEL });
            }
        }
    }
}

fn draw_dials(dials: &[Dial], chosen: usize, grid: &mut Grid, y: usize) {
    let mut x = 1;
    for (at, dial) in dials.iter().enumerate() {
        let text = format!(" {} {} {} ", dial.name, dial.value, dial.unit);
        let (foreground, background) = if at == chosen { (BACKGROUND, ACCENT) } else { (TEXT, PANEL) };
        grid.write(x, y, &text, foreground, background);
        x += text.chars().count() + 1;
    }
}

fn draw_status(scene: &Scene, keys: &str, grid: &mut Grid) {
    let Some(y) = grid.rows.checked_sub(1) else { return };
    grid.write(0, y, &" ".repeat(grid.columns), DIM_TEXT, PANEL);
    grid.write(1, y, &scene.status, DIM_TEXT, PANEL);
    let width = keys.chars().count() + 1;
    if grid.columns > scene.status.chars().count() + width + 2 {
        grid.write(grid.columns - width, y, keys, DIM_TEXT, PANEL);
    }
}

fn draw_toast(toast: &str, grid: &mut Grid, rows: usize) {
    let text: String = format!("  {toast}  ").chars().take(grid.columns).collect();
    grid.write((grid.columns - text.chars().count()) / 2, rows.saturating_sub(2), &text, BACKGROUND, ACCENT);
}

fn draw_overlay(overlay: &Overlay, grid: &mut Grid) {
    let len = |text: &str| text.chars().count();
    let left = overlay.rows.iter().map(|(left, _)| len(left)).max().unwrap_or(0);
    let right = overlay.rows.iter().map(|(_, right)| len(right)).max().unwrap_or(0);
    let inner = (left + 3 + right).max(len(&overlay.footer)).max(len(&overlay.title));
    let width = (inner + 4).min(grid.columns);
    let footer_rows = if overlay.footer.is_empty() { 0 } else { 2 };
    let gap = usize::from(!overlay.rows.is_empty());
    // In a small terminal rows take precedence over padding and footer.
    let padding = usize::from(grid.rows > overlay.rows.len() + 4 + footer_rows + gap);
    let height = (overlay.rows.len() + 1 + 2 * padding + footer_rows * padding + gap * padding).min(grid.rows);
    let (x, y) = ((grid.columns - width) / 2, (grid.rows - height) / 2);
    for row in y..y + height {
        grid.write(x, row, &" ".repeat(width), TEXT, PANEL);
    }
    let mut at = y + padding;
    grid.write(x + 2, at, &overlay.title, ACCENT, PANEL);
    at += 1 + gap * padding;
    for (index, (first, second)) in overlay.rows.iter().enumerate().take(height) {
        let (foreground, background) =
            if overlay.selected == Some(index) { (BACKGROUND, ACCENT) } else { (TEXT, PANEL) };
        let text = format!(" {first:<left$}   {second:<pad$} ", pad = inner.saturating_sub(left + 3));
        grid.write(x + 1, at, &text.chars().take(width.saturating_sub(2)).collect::<String>(), foreground, background);
        at += 1;
    }
    if footer_rows * padding > 0 {
        grid.write(x + 2, at + 1, &overlay.footer, DIM_TEXT, PANEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::GraphLine;

    fn screen(width: usize, height: usize, colour: impl Fn(usize, usize) -> Rgb) -> Screen {
        let pixel = |at: usize| {
            let [red, green, blue] = colour(at % width, at / width);
            [red, green, blue, 255]
        };
        let rgba = (0..width * height).flat_map(pixel).collect();
        Screen { width, height, aspect: width as f32 / height as f32, rgba, ..Screen::default() }
    }

    #[test]
    fn cell_shows_two_pixels() {
        let mut grid = Grid::new(4, 3);
        let picture = screen(4, 4, |x, y| [x as u8 * 10, y as u8 * 10, 0]);
        draw_scene(&Scene { screens: vec![picture], ..Scene::default() }, "", &mut grid);
        assert_eq!(grid.at(2, 1), Cell { glyph: '▀', foreground: [20, 20, 0], background: [20, 30, 0] });
    }

    #[test]
    fn picture_keeps_its_aspect_and_is_centred() {
        let mut grid = Grid::new(80, 25);
        draw_scene(&Scene { screens: vec![screen(256, 240, |_, _| [255; 3])], ..Scene::default() }, "", &mut grid);
        let lit = |x, y| grid.at(x, y).glyph == '▀';
        let (across, down) = ((0..80).filter(|x| lit(*x, 12)).count(), (0..24).filter(|y| lit(40, *y)).count());
        assert_eq!((across, down), (51, 24)); // 24 rows are 48 pixels high; 48 × 256 / 240 = 51
        assert!(!lit(13, 12) && lit(15, 12) && lit(64, 12) && !lit(66, 12));
    }

    #[test]
    fn downscaled_pixels_are_averaged() {
        let mut grid = Grid::new(8, 5);
        draw_scene(
            &Scene { screens: vec![screen(64, 64, |x, _| [if x % 2 == 0 { 200 } else { 0 }; 3])], ..Scene::default() },
            "",
            &mut grid,
        );
        assert_eq!(grid.at(4, 2).foreground, [100; 3]);
    }

    #[test]
    fn labels_are_drawn_on_pictures_and_table_in_the_corner() {
        let mut grid = Grid::new(60, 21);
        let label = |text: &str, x| Label { text: text.into(), x, y: 0.5, colour: [1, 2, 3] };
        let picture =
            Screen { labels: vec![label("Ann", 0.5), label("Benjamin", 0.0)], ..screen(60, 40, |_, _| [9; 3]) };
        let entry = TableRow { name: "you".into(), value: "3".into(), colour: [4, 5, 6], is_own: true };
        draw_scene(&Scene { screens: vec![picture], table: vec![entry], ..Scene::default() }, "", &mut grid);
        assert_eq!((grid.at(30, 9).glyph, grid.at(30, 9).foreground), ('n', [1, 2, 3]));
        assert_eq!((grid.at(0, 9).glyph, grid.at(4, 9).glyph), ('a', ' '), "text outside the picture is clipped");
        assert_eq!((grid.at(2, 1).glyph, grid.at(2, 1).foreground), ('●', [4, 5, 6]));
        assert!(grid.text().contains("you  3"), "{}", grid.text());
    }

    #[test]
    fn table_header_is_dim_and_right_aligned_with_values() {
        let mut grid = Grid::new(60, 21);
        let entry = TableRow { name: "you".into(), value: "0 : 3".into(), ..TableRow::default() };
        let screens = vec![screen(60, 40, |_, _| [9; 3])];
        draw_scene(
            &Scene { screens, table: vec![entry], table_header: "hits : falls", ..Scene::default() },
            "",
            &mut grid,
        );
        let text = grid.text();
        let line = |words: &str| text.lines().position(|line| line.contains(words)).expect(words);
        assert_eq!((line("hits : falls"), line("0 : 3")), (1, 2), "{text}");
        assert_eq!(grid.at(5, 1).foreground, DIM_TEXT);
        let end = |y| (0..60).rev().find(|x| grid.at(*x, y).background == PANEL && grid.at(*x, y).glyph != ' ');
        assert_eq!(end(1), end(2), "{text}");
        let mut alone = Grid::new(60, 21);
        draw_scene(&Scene { table_header: "hits : falls", ..Scene::default() }, "", &mut alone);
        assert!(!alone.text().contains("hits"), "an empty table has no header");
    }

    #[test]
    fn pictures_graph_dials_and_chat_all_fit() {
        let mut grid = Grid::new(120, 40);
        let line = GraphLine {
            name: "round trip".into(),
            current: "80 ms".into(),
            axis_max: 10.0,
            values: vec![10.0; 300],
            capacity: 300,
        };
        let scene = Scene {
            screens: vec![
                screen(8, 8, |_, _| [9; 3]),
                Screen { caption: "site 1".into(), ..screen(8, 8, |_, _| [9; 3]) },
            ],
            graph: Some(Graph { lines: vec![line] }),
            dials: vec![Dial { name: "loss", unit: "%", value: 1, max: 20, step: 1 }],
            status: "60 fps".into(),
            overlay: None,
            toast: Some("hello".into()),
            chat: vec!["Ann: good luck".into()],
            chat_draft: Some("have f".into()),
            ..Scene::default()
        };
        draw_scene(&scene, "? keys", &mut grid);
        let text = grid.text();
        for word in ["Ann: good luck", "> have f_", "site 1", "round trip 80 ms", "loss 1 %", "60 fps", "hello", "█"]
        {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
    }

    #[test]
    fn drawing_never_panics_at_any_grid_size() {
        let overlay = Overlay { title: "Keys".into(), rows: vec![("a".into(), "b".into()); 30], ..Overlay::default() };
        let label = Label { text: "player".into(), x: 2.0, y: -1.0, colour: [9; 3] };
        let scene = Scene {
            screens: vec![Screen { labels: vec![label], ..screen(8, 8, |_, _| [9; 3]) }],
            table: vec![TableRow { name: "player".into(), ..TableRow::default() }; 40],
            graph: Some(Graph::default()),
            overlay: Some(overlay),
            toast: Some("a long word about something".into()),
            chat: vec!["something".into(); 9],
            chat_draft: Some("and more".into()),
            ..Scene::default()
        };
        for (columns, rows) in [(0, 0), (1, 1), (2, 30), (200, 1), (300, 100)] {
            draw_scene(&scene, "? keys", &mut Grid::new(columns, rows));
        }
    }
}
