//! Draws figures.

use super::axis::Laid;
use super::canvas::Canvas;
use super::text::{spread, width};
use super::{Figure, Ink, Mark, Panel, Series, Shape};

/// How wide a figure is.
const WIDTH: f64 = 880.0;
/// How high the inner part of a panel is, alone in its row and beside others.
const HEIGHT: f64 = 300.0;
const SMALL_HEIGHT: f64 = 220.0;
/// The size of most words, and how far lines of them are apart.
const SIZE: f64 = 13.0;
const ROW: f64 = 18.0;
/// The room of a title.
const TITLE: f64 = 22.0;
/// Around everything.
const EDGE: f64 = 12.0;
/// Between panels side by side.
const GAP: f64 = 20.0;
/// To the right of an axis, for half of its last number.
const SPARE: f64 = 18.0;
/// More points than these are not marked one by one.
const MOST_DOTS: usize = 45;
/// Marks that are closer together than this hide each other.
const TOUCHING: f64 = 4.0;

/// A figure as SVG, with a style in it.
pub(super) fn figure(figure: &Figure, style: &str) -> String {
    let mut canvas = Canvas::default();
    let mut ink = Canvas::default();
    let mut y = EDGE;
    if figure.panels.len() > 1 {
        y += legend(&mut ink, &figure.panels, y);
    }
    let columns = figure.columns.min(figure.panels.len()).max(1);
    let wide = (WIDTH - 2.0 * EDGE - GAP * (columns as f64 - 1.0)) / columns as f64;
    let high = if columns > 1 || figure.panels.len() > 2 { SMALL_HEIGHT } else { HEIGHT };
    for row in figure.panels.chunks(columns) {
        let above = row.iter().map(head).fold(0.0, f64::max);
        for (at, panel) in row.iter().enumerate() {
            let x = EDGE + at as f64 * (wide + GAP);
            let room = Room { left: x, right: x + wide, top: y + above, bottom: y + above + high };
            draw_panel(&mut ink, panel, room, figure.panels.len() == 1);
            draw_head(&mut ink, panel, (x, y));
        }
        y += above + high + 50.0;
    }
    canvas.box_of("ground", (0.0, 0.0), (WIDTH, y));
    canvas.append(ink);
    canvas.finish((WIDTH, y), &figure.title, style)
}

/// The place of a panel: of its words, too, to the left and right; of what is between its axes alone, from top to bottom.
#[derive(Clone, Copy)]
struct Room {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// What all panels have in common, above them; how high that is.
fn legend(canvas: &mut Canvas, panels: &[Panel], top: f64) -> f64 {
    let mut known: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !series.name.is_empty() && known.iter().all(|other| other.name != series.name) {
            known.push(series);
        }
    }
    if known.len() < 2 {
        return 0.0;
    }
    let (mut x, mut y) = (EDGE, top + SIZE);
    for series in known {
        let wide = 30.0 + width(&series.name, SIZE) + 22.0;
        if x > EDGE && x + wide > WIDTH - EDGE {
            (x, y) = (EDGE, y + ROW);
        }
        sample(canvas, series, (x, y - 4.5));
        canvas.text((x + 30.0, y), series.ink.class(), &series.name);
        x += wide;
    }
    y - top + ROW
}

/// A piece of a line, as in the panels.
fn sample(canvas: &mut Canvas, series: &Series, (x, y): (f64, f64)) {
    let class = series.ink.class();
    match series.shape {
        Shape::Bars | Shape::Band => canvas.box_of(&format!("bar {class}"), (x + 4.0, y - 5.0), (16.0, 10.0)),
        Shape::Points => dot(canvas, series.ink, (x + 12.0, y)),
        Shape::Line | Shape::Steps | Shape::Dashed => {
            canvas.line((x, y), (x + 24.0, y), &line_class(series));
            if is_dotted(series) {
                dot(canvas, series.ink, (x + 12.0, y));
            }
        }
    }
}

/// The room above a panel for its title, for the label of its upright axis, and for what its vertical bounds are called.
fn head(panel: &Panel) -> f64 {
    let title = if panel.title.is_empty() { 0.0 } else { TITLE };
    let label = if panel.y.label.is_empty() { 0.0 } else { ROW };
    let bounds = panel.marks.iter().filter(|mark| matches!(mark, Mark::Vertical { .. })).count();
    title + label + ROW * bounds as f64 + 14.0
}

fn draw_panel(canvas: &mut Canvas, panel: &Panel, room: Room, alone: bool) {
    let values = |coordinate: usize| {
        panel.series.iter().flat_map(move |series| series.points.iter().map(move |point| point[coordinate]))
    };
    let bounds =
        panel.marks.iter().filter_map(|mark| if let Mark::Horizontal { at, .. } = mark { Some(*at) } else { None });
    let y = panel.y.lay(values(1).chain(values(2)).chain(bounds), (room.bottom, room.top));
    let words = y.ticks.iter().map(|(_, words)| width(words, SIZE)).fold(0.0, f64::max);
    let labels = if alone { label_room(panel) } else { SPARE };
    let inner = Room { left: room.left + words + 10.0, right: room.right - labels, ..room };
    let x = panel.x.lay(values(0), (inner.left, inner.right));
    draw_axes(canvas, panel, inner, &x, &y);
    for series in &panel.series {
        draw_series(canvas, panel, series, (&x, &y));
    }
    for at in 0..panel.series.len() {
        draw_dots(canvas, panel, at, (&x, &y));
    }
    draw_bounds(canvas, panel, inner, &x);
    for mark in &panel.marks {
        draw_mark(canvas, (panel, mark), inner, (&x, &y));
    }
    if alone {
        draw_labels(canvas, panel, inner, &x, &y);
    }
}

fn has_labels(panel: &Panel) -> bool {
    panel.series.iter().filter(|series| !series.name.is_empty()).count() > 1
}

fn label_room(panel: &Panel) -> f64 {
    let wide = |series: &Series| label_gap(series) + width(&series.name, SIZE) + 6.0;
    if has_labels(panel) { panel.series.iter().map(wide).fold(0.0, f64::max) } else { SPARE }
}

/// From the end of the axis to the name of what was drawn.
fn label_gap(series: &Series) -> f64 {
    if has_leader(series) { 20.0 } else { 36.0 }
}

/// Whether it has an end from which a line leads to its name.
fn has_leader(series: &Series) -> bool {
    !matches!(series.shape, Shape::Bars | Shape::Points)
}

/// The title of a panel and the label of its upright axis, from a place on downwards.
fn draw_head(canvas: &mut Canvas, panel: &Panel, (x, mut y): (f64, f64)) {
    if !panel.title.is_empty() {
        canvas.text((x, y + 14.0), "title", &panel.title);
        y += TITLE;
    }
    canvas.text((x, y + SIZE), "faint", &panel.y.label);
}

/// What vertical bounds are called, above them.
fn draw_bounds(canvas: &mut Canvas, panel: &Panel, inner: Room, x: &Laid) {
    let bounds = panel
        .marks
        .iter()
        .filter_map(|mark| if let Mark::Vertical { at, label } = mark { Some((*at, label)) } else { None });
    for (number, (at, label)) in bounds.enumerate() {
        let half = width(label, SIZE) / 2.0;
        let place = x.place(at).min(inner.right - half).max(inner.left + half);
        canvas.text((place, inner.top - 6.0 - ROW * number as f64), "middle", label);
    }
}

fn draw_axes(canvas: &mut Canvas, panel: &Panel, inner: Room, x: &Laid, y: &Laid) {
    for (at, words) in &y.ticks {
        let place = y.place(*at);
        canvas.line((inner.left, place), (inner.right, place), "grid");
        canvas.text((inner.left - 6.0, place + 4.5), "faint end", words);
    }
    canvas.line((inner.left, inner.bottom), (inner.right, inner.bottom), "base");
    let widest = x.ticks.iter().map(|(_, words)| width(words, SIZE)).fold(0.0, f64::max) + 10.0;
    let apart = (inner.right - inner.left) / (x.ticks.len().max(2) - 1) as f64;
    let every = (widest / apart).ceil().max(1.0) as usize;
    for (at, words) in x.ticks.iter().step_by(every) {
        let place = x.place(*at);
        canvas.line((place, inner.bottom), (place, inner.bottom + 4.0), "base");
        canvas.text((place, inner.bottom + 18.0), "faint middle", words);
    }
    let middle = (inner.left + inner.right) / 2.0;
    canvas.text((middle, inner.bottom + 36.0), "faint middle", &panel.x.label);
}

fn draw_mark(canvas: &mut Canvas, (panel, mark): (&Panel, &Mark), inner: Room, (x, y): (&Laid, &Laid)) {
    match mark {
        Mark::Vertical { at, .. } if x.holds(*at) => {
            canvas.line((x.place(*at), inner.top - 2.0), (x.place(*at), inner.bottom), "bound");
        }
        Mark::Horizontal { at, label } if y.holds(*at) => {
            let place = y.place(*at);
            canvas.line((inner.left, place), (inner.right, place), "bound");
            let left = inner.left + 6.0;
            let reach = (left, left + width(label, SIZE));
            let [above, below] =
                [(place - ROW, place), (place, place + ROW)].map(|rows| crowd(panel, reach, rows, (x, y)));
            let is_below = below < above && place + ROW < inner.bottom;
            canvas.text((left, if is_below { place + 15.0 } else { place - 6.0 }), "halo", label);
        }
        _ => {}
    }
}

/// How many points are in a box.
fn crowd(panel: &Panel, (left, right): (f64, f64), (top, bottom): (f64, f64), (x, y): (&Laid, &Laid)) -> usize {
    let is_in =
        |point: &&[f64; 3]| (left..right).contains(&x.place(point[0])) && (top..bottom).contains(&y.place(point[1]));
    panel.series.iter().flat_map(|series| &series.points).filter(is_in).count()
}

fn line_class(series: &Series) -> String {
    let dashed = if series.shape == Shape::Dashed { " dashed" } else { "" };
    let thin = if series.points.len() > MOST_DOTS { " thin" } else { "" };
    format!("line {}{dashed}{thin}", series.ink.class())
}

fn is_dotted(series: &Series) -> bool {
    series.shape == Shape::Line && series.points.len() <= MOST_DOTS
}

fn draw_series(canvas: &mut Canvas, panel: &Panel, series: &Series, (x, y): (&Laid, &Laid)) {
    let places: Vec<(f64, f64)> = series.points.iter().map(|point| (x.place(point[0]), y.place(point[1]))).collect();
    match series.shape {
        Shape::Line | Shape::Dashed => canvas.path(&line_class(series), &places),
        Shape::Steps => canvas.path(&line_class(series), &stairs(&places)),
        Shape::Points => {}
        Shape::Band => {
            let back = series.points.iter().rev().map(|point| (x.place(point[0]), y.place(point[2])));
            let around: Vec<(f64, f64)> = places.iter().copied().chain(back).collect();
            canvas.area(&format!("band {}", series.ink.class()), &around);
        }
        Shape::Bars => draw_bars(canvas, panel, series, (x, y)),
    }
}

/// Marks the points of a series. Where lines lie on each other they take turns, so that all of them can be seen.
fn draw_dots(canvas: &mut Canvas, panel: &Panel, at: usize, (x, y): (&Laid, &Laid)) {
    let series = &panel.series[at];
    let is_marked = |series: &Series| series.shape == Shape::Points || is_dotted(series);
    if !is_marked(series) {
        return;
    }
    for (number, point) in series.points.iter().enumerate() {
        let place = (x.place(point[0]), y.place(point[1]));
        let is_here = |other: &[f64; 3]| (x.place(other[0]) - place.0).hypot(y.place(other[1]) - place.1) < TOUCHING;
        let meets = |other: &Series| is_dotted(other) && other.points.iter().any(is_here);
        let before = panel.series[..at].iter().filter(|other| meets(other)).count();
        let after = panel.series[at + 1..].iter().filter(|other| meets(other)).count();
        if series.points.len() > MOST_DOTS {
            canvas.circle(&format!("speck {}", series.ink.class()), place, 2.0);
        } else if series.shape == Shape::Points || number % (before + 1 + after) == before {
            dot(canvas, series.ink, place);
        }
    }
}

/// From each place straight on, then up or down to the next.
fn stairs(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = places.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    places.first().copied().into_iter().chain(corners).collect()
}

fn draw_bars(canvas: &mut Canvas, panel: &Panel, series: &Series, (x, y): (&Laid, &Laid)) {
    let beside: Vec<&Series> = panel.series.iter().filter(|other| other.shape == Shape::Bars).collect();
    let bar = beside.iter().position(|other| std::ptr::eq(*other, series)).unwrap_or(0);
    let bars = beside.len();
    let all = (x.place(1.0) - x.place(0.0)).abs();
    let all = if all > 0.0 { all * 0.76 } else { 120.0 };
    let wide = all / bars as f64;
    for [at, height, _] in &series.points {
        let left = x.place(*at) - all / 2.0 + bar as f64 * wide;
        let (top, bottom) = (y.place(*height), y.bottom());
        let class = format!("bar {}", series.ink.class());
        if top < bottom {
            canvas.box_of(&class, (left + 1.0, top), ((wide - 2.0).max(1.0), bottom - top));
        }
    }
}

/// A mark at a place: every ink has a shape of its own.
fn dot(canvas: &mut Canvas, ink: Ink, (x, y): (f64, f64)) {
    let class = format!("dot {}", ink.class());
    let around = |turns: &[(f64, f64)]| turns.iter().map(|(dx, dy)| (x + dx, y + dy)).collect::<Vec<_>>();
    match ink {
        Ink::First | Ink::Fifth => canvas.circle(&class, (x, y), 3.6),
        Ink::Paper => canvas.box_of(&class, (x - 3.4, y - 3.4), (6.8, 6.8)),
        Ink::Second => canvas.area(&class, &around(&[(0.0, -4.6), (4.2, 3.2), (-4.2, 3.2)])),
        Ink::Third => canvas.area(&class, &around(&[(0.0, -4.8), (4.8, 0.0), (0.0, 4.8), (-4.8, 0.0)])),
        Ink::Fourth => canvas.area(&class, &around(&[(0.0, 4.6), (4.2, -3.2), (-4.2, -3.2)])),
        Ink::Words => {
            let (a, b) = (5.0, 1.6);
            let star = [
                (0.0, -b),
                (a - b, -a),
                (a, b - a),
                (b, 0.0),
                (a, a - b),
                (a - b, a),
                (0.0, b),
                (b - a, a),
                (-a, a - b),
                (-b, 0.0),
                (-a, b - a),
                (b - a, -a),
            ];
            canvas.area(&class, &around(&star));
        }
    }
}

/// What each line means, at its end.
fn draw_labels(canvas: &mut Canvas, panel: &Panel, inner: Room, x: &Laid, y: &Laid) {
    if !has_labels(panel) {
        return;
    }
    let named: Vec<&Series> =
        panel.series.iter().filter(|series| !series.name.is_empty() && !series.points.is_empty()).collect();
    let ends: Vec<(f64, f64)> = named.iter().map(|series| end(series, x, y)).collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let places = spread(&wanted, ROW - 1.0, (inner.top, inner.bottom));
    for ((series, (end_x, end_y)), place) in named.iter().zip(&ends).zip(places) {
        if has_leader(series) {
            canvas.path("leader", &[(end_x + 4.0, *end_y), (inner.right + 8.0, *end_y), (inner.right + 16.0, place)]);
        } else {
            sample(canvas, series, (inner.right + 8.0, place));
        }
        canvas.text((inner.right + label_gap(series), place + 4.5), series.ink.class(), &series.name);
    }
}

fn end(series: &Series, x: &Laid, y: &Laid) -> (f64, f64) {
    let last = series.points.last().copied().unwrap_or_default();
    (x.place(last[0]), y.place(last[1]))
}
