//! Draws figures.

use super::axis::AxisLayout;
use super::canvas::SvgCanvas;
use super::text::{spread_labels, text_width};
use super::{BoundLine, Figure, Panel, Series, SeriesShape, SeriesStyle};

/// How wide a figure is.
const FIGURE_WIDTH: f64 = 880.0;
/// How high the inner part of a panel is, alone in its row and beside others.
const PANEL_HEIGHT: f64 = 300.0;
const SMALL_PANEL_HEIGHT: f64 = 220.0;
/// The size of most words, and how far lines of them are apart.
const FONT_SIZE: f64 = 13.0;
const LINE_HEIGHT: f64 = 18.0;
/// The room of a title.
const TITLE_HEIGHT: f64 = 22.0;
/// Around everything.
const FIGURE_MARGIN: f64 = 12.0;
/// Between panels side by side.
const PANEL_GAP: f64 = 20.0;
/// To the right of an axis, for half of its last number.
const RIGHT_MARGIN: f64 = 18.0;
/// More points than these are not marked one by one.
const MAX_MARKERS: usize = 45;
/// Marks that are closer together than this hide each other.
const MARKER_OVERLAP: f64 = 4.0;

/// A figure as SVG, with a style in it.
pub(super) fn draw_figure(figure: &Figure, style: &str) -> String {
    let mut canvas = SvgCanvas::default();
    let mut ink = SvgCanvas::default();
    let mut y = FIGURE_MARGIN;
    if figure.panels.len() > 1 {
        y += draw_legend(&mut ink, &figure.panels, y);
    }
    let columns = figure.columns.min(figure.panels.len()).max(1);
    let wide = (FIGURE_WIDTH - 2.0 * FIGURE_MARGIN - PANEL_GAP * (columns as f64 - 1.0)) / columns as f64;
    let high = if columns > 1 || figure.panels.len() > 2 { SMALL_PANEL_HEIGHT } else { PANEL_HEIGHT };
    for row in figure.panels.chunks(columns) {
        let above = row.iter().map(header_height).fold(0.0, f64::max);
        for (at, panel) in row.iter().enumerate() {
            let x = FIGURE_MARGIN + at as f64 * (wide + PANEL_GAP);
            let room = PanelRect { left: x, right: x + wide, top: y + above, bottom: y + above + high };
            draw_panel(&mut ink, panel, room, figure.panels.len() == 1);
            draw_panel_header(&mut ink, panel, (x, y));
        }
        y += above + high + 50.0;
    }
    canvas.rect("ground", (0.0, 0.0), (FIGURE_WIDTH, y));
    canvas.append(ink);
    canvas.finish((FIGURE_WIDTH, y), &figure.title, style)
}

/// The place of a panel: of its words, too, to the left and right; of what is between its axes alone, from top to bottom.
#[derive(Clone, Copy)]
struct PanelRect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// What all panels have in common, above them; how high that is.
fn draw_legend(canvas: &mut SvgCanvas, panels: &[Panel], top: f64) -> f64 {
    let mut known: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !series.name.is_empty() && known.iter().all(|other| other.name != series.name) {
            known.push(series);
        }
    }
    if known.len() < 2 {
        return 0.0;
    }
    let (mut x, mut y) = (FIGURE_MARGIN, top + FONT_SIZE);
    for series in known {
        let wide = 30.0 + text_width(&series.name, FONT_SIZE) + 22.0;
        if x > FIGURE_MARGIN && x + wide > FIGURE_WIDTH - FIGURE_MARGIN {
            (x, y) = (FIGURE_MARGIN, y + LINE_HEIGHT);
        }
        draw_legend_sample(canvas, series, (x, y - 4.5));
        canvas.text((x + 30.0, y), series.style.css_class(), &series.name);
        x += wide;
    }
    y - top + LINE_HEIGHT
}

/// A piece of a line, as in the panels.
fn draw_legend_sample(canvas: &mut SvgCanvas, series: &Series, (x, y): (f64, f64)) {
    let class = series.style.css_class();
    match series.shape {
        SeriesShape::Bars | SeriesShape::Band => canvas.rect(&format!("bar {class}"), (x + 4.0, y - 5.0), (16.0, 10.0)),
        SeriesShape::Points => draw_marker(canvas, series.style, (x + 12.0, y)),
        SeriesShape::Line | SeriesShape::Steps | SeriesShape::Dashed => {
            canvas.line((x, y), (x + 24.0, y), &line_class(series));
            if has_markers(series) {
                draw_marker(canvas, series.style, (x + 12.0, y));
            }
        }
    }
}

/// The room above a panel for its title, for the label of its upright axis, and for what its vertical bounds are called.
fn header_height(panel: &Panel) -> f64 {
    let title = if panel.title.is_empty() { 0.0 } else { TITLE_HEIGHT };
    let label = if panel.y.label.is_empty() { 0.0 } else { LINE_HEIGHT };
    let bounds = panel.bounds.iter().filter(|mark| matches!(mark, BoundLine::Vertical { .. })).count();
    title + label + LINE_HEIGHT * bounds as f64 + 14.0
}

fn draw_panel(canvas: &mut SvgCanvas, panel: &Panel, room: PanelRect, alone: bool) {
    let values = |coordinate: usize| {
        panel.series.iter().flat_map(move |series| series.points.iter().map(move |point| point[coordinate]))
    };
    let bounds = panel
        .bounds
        .iter()
        .filter_map(|mark| if let BoundLine::Horizontal { at, .. } = mark { Some(*at) } else { None });
    let y = panel.y.layout(values(1).chain(values(2)).chain(bounds), (room.bottom, room.top));
    let words = y.ticks.iter().map(|(_, words)| text_width(words, FONT_SIZE)).fold(0.0, f64::max);
    let labels = if alone { label_column_width(panel) } else { RIGHT_MARGIN };
    let inner = PanelRect { left: room.left + words + 10.0, right: room.right - labels, ..room };
    let x = panel.x.layout(values(0), (inner.left, inner.right));
    draw_axes(canvas, panel, inner, &x, &y);
    for series in &panel.series {
        draw_series(canvas, panel, series, (&x, &y));
    }
    for at in 0..panel.series.len() {
        draw_markers(canvas, panel, at, (&x, &y));
    }
    draw_bound_labels(canvas, panel, inner, &x);
    for mark in &panel.bounds {
        draw_bound(canvas, (panel, mark), inner, (&x, &y));
    }
    if alone {
        draw_series_labels(canvas, panel, inner, &x, &y);
    }
}

fn has_labels(panel: &Panel) -> bool {
    panel.series.iter().filter(|series| !series.name.is_empty()).count() > 1
}

fn label_column_width(panel: &Panel) -> f64 {
    let wide = |series: &Series| label_gap(series) + text_width(&series.name, FONT_SIZE) + 6.0;
    if has_labels(panel) { panel.series.iter().map(wide).fold(0.0, f64::max) } else { RIGHT_MARGIN }
}

/// From the end of the axis to the name of what was drawn.
fn label_gap(series: &Series) -> f64 {
    if has_leader(series) { 20.0 } else { 36.0 }
}

/// Whether it has an end from which a line leads to its name.
fn has_leader(series: &Series) -> bool {
    !matches!(series.shape, SeriesShape::Bars | SeriesShape::Points)
}

/// The title of a panel and the label of its upright axis, from a place on downwards.
fn draw_panel_header(canvas: &mut SvgCanvas, panel: &Panel, (x, mut y): (f64, f64)) {
    if !panel.title.is_empty() {
        canvas.text((x, y + 14.0), "title", &panel.title);
        y += TITLE_HEIGHT;
    }
    canvas.text((x, y + FONT_SIZE), "faint", &panel.y.label);
}

/// What vertical bounds are called, above them.
fn draw_bound_labels(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout) {
    let bounds = panel
        .bounds
        .iter()
        .filter_map(|mark| if let BoundLine::Vertical { at, label } = mark { Some((*at, label)) } else { None });
    for (number, (at, label)) in bounds.enumerate() {
        let half = text_width(label, FONT_SIZE) / 2.0;
        let place = x.position(at).min(inner.right - half).max(inner.left + half);
        canvas.text((place, inner.top - 6.0 - LINE_HEIGHT * number as f64), "middle", label);
    }
}

fn draw_axes(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout, y: &AxisLayout) {
    for (at, words) in &y.ticks {
        let place = y.position(*at);
        canvas.line((inner.left, place), (inner.right, place), "grid");
        canvas.text((inner.left - 6.0, place + 4.5), "faint end", words);
    }
    canvas.line((inner.left, inner.bottom), (inner.right, inner.bottom), "base");
    let widest = x.ticks.iter().map(|(_, words)| text_width(words, FONT_SIZE)).fold(0.0, f64::max) + 10.0;
    let apart = (inner.right - inner.left) / (x.ticks.len().max(2) - 1) as f64;
    let every = (widest / apart).ceil().max(1.0) as usize;
    for (at, words) in x.ticks.iter().step_by(every) {
        let place = x.position(*at);
        canvas.line((place, inner.bottom), (place, inner.bottom + 4.0), "base");
        canvas.text((place, inner.bottom + 18.0), "faint middle", words);
    }
    let middle = (inner.left + inner.right) / 2.0;
    canvas.text((middle, inner.bottom + 36.0), "faint middle", &panel.x.label);
}

fn draw_bound(
    canvas: &mut SvgCanvas,
    (panel, mark): (&Panel, &BoundLine),
    inner: PanelRect,
    (x, y): (&AxisLayout, &AxisLayout),
) {
    match mark {
        BoundLine::Vertical { at, .. } if x.contains(*at) => {
            canvas.line((x.position(*at), inner.top - 2.0), (x.position(*at), inner.bottom), "bound");
        }
        BoundLine::Horizontal { at, label } if y.contains(*at) => {
            let place = y.position(*at);
            canvas.line((inner.left, place), (inner.right, place), "bound");
            let left = inner.left + 6.0;
            let reach = (left, left + text_width(label, FONT_SIZE));
            let [above, below] = [(place - LINE_HEIGHT, place), (place, place + LINE_HEIGHT)]
                .map(|rows| count_points_in(panel, reach, rows, (x, y)));
            let is_below = below < above && place + LINE_HEIGHT < inner.bottom;
            canvas.text((left, if is_below { place + 15.0 } else { place - 6.0 }), "halo", label);
        }
        _ => {}
    }
}

/// How many points are in a box.
fn count_points_in(
    panel: &Panel,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
    (x, y): (&AxisLayout, &AxisLayout),
) -> usize {
    let is_in = |point: &&[f64; 3]| {
        (left..right).contains(&x.position(point[0])) && (top..bottom).contains(&y.position(point[1]))
    };
    panel.series.iter().flat_map(|series| &series.points).filter(is_in).count()
}

fn line_class(series: &Series) -> String {
    let dashed = if series.shape == SeriesShape::Dashed { " dashed" } else { "" };
    let thin = if series.points.len() > MAX_MARKERS { " thin" } else { "" };
    format!("line {}{dashed}{thin}", series.style.css_class())
}

fn has_markers(series: &Series) -> bool {
    series.shape == SeriesShape::Line && series.points.len() <= MAX_MARKERS
}

fn draw_series(canvas: &mut SvgCanvas, panel: &Panel, series: &Series, (x, y): (&AxisLayout, &AxisLayout)) {
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|point| (x.position(point[0]), y.position(point[1]))).collect();
    match series.shape {
        SeriesShape::Line | SeriesShape::Dashed => canvas.path(&line_class(series), &places),
        SeriesShape::Steps => canvas.path(&line_class(series), &step_points(&places)),
        SeriesShape::Points => {}
        SeriesShape::Band => {
            let back = series.points.iter().rev().map(|point| (x.position(point[0]), y.position(point[2])));
            let around: Vec<(f64, f64)> = places.iter().copied().chain(back).collect();
            canvas.area(&format!("band {}", series.style.css_class()), &around);
        }
        SeriesShape::Bars => draw_bars(canvas, panel, series, (x, y)),
    }
}

/// Marks the points of a series. Where lines lie on each other they take turns, so that all of them can be seen.
fn draw_markers(canvas: &mut SvgCanvas, panel: &Panel, at: usize, (x, y): (&AxisLayout, &AxisLayout)) {
    let series = &panel.series[at];
    let is_marked = |series: &Series| series.shape == SeriesShape::Points || has_markers(series);
    if !is_marked(series) {
        return;
    }
    for (number, point) in series.points.iter().enumerate() {
        let place = (x.position(point[0]), y.position(point[1]));
        let is_here =
            |other: &[f64; 3]| (x.position(other[0]) - place.0).hypot(y.position(other[1]) - place.1) < MARKER_OVERLAP;
        let meets = |other: &Series| has_markers(other) && other.points.iter().any(is_here);
        let before = panel.series[..at].iter().filter(|other| meets(other)).count();
        let after = panel.series[at + 1..].iter().filter(|other| meets(other)).count();
        if series.points.len() > MAX_MARKERS {
            canvas.circle(&format!("speck {}", series.style.css_class()), place, 2.0);
        } else if series.shape == SeriesShape::Points || number % (before + 1 + after) == before {
            draw_marker(canvas, series.style, place);
        }
    }
}

/// From each place straight on, then up or down to the next.
fn step_points(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = places.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    places.first().copied().into_iter().chain(corners).collect()
}

fn draw_bars(canvas: &mut SvgCanvas, panel: &Panel, series: &Series, (x, y): (&AxisLayout, &AxisLayout)) {
    let beside: Vec<&Series> = panel.series.iter().filter(|other| other.shape == SeriesShape::Bars).collect();
    let bar = beside.iter().position(|other| std::ptr::eq(*other, series)).unwrap_or(0);
    let bars = beside.len();
    let all = (x.position(1.0) - x.position(0.0)).abs();
    let all = if all > 0.0 { all * 0.76 } else { 120.0 };
    let wide = all / bars as f64;
    for [at, height, _] in &series.points {
        let left = x.position(*at) - all / 2.0 + bar as f64 * wide;
        let (top, bottom) = (y.position(*height), y.baseline());
        let class = format!("bar {}", series.style.css_class());
        if top < bottom {
            canvas.rect(&class, (left + 1.0, top), ((wide - 2.0).max(1.0), bottom - top));
        }
    }
}

/// A mark at a place: every ink has a shape of its own.
fn draw_marker(canvas: &mut SvgCanvas, ink: SeriesStyle, (x, y): (f64, f64)) {
    let class = format!("dot {}", ink.css_class());
    let around = |turns: &[(f64, f64)]| turns.iter().map(|(dx, dy)| (x + dx, y + dy)).collect::<Vec<_>>();
    match ink {
        SeriesStyle::First | SeriesStyle::Fifth => canvas.circle(&class, (x, y), 3.6),
        SeriesStyle::Paper => canvas.rect(&class, (x - 3.4, y - 3.4), (6.8, 6.8)),
        SeriesStyle::Second => canvas.area(&class, &around(&[(0.0, -4.6), (4.2, 3.2), (-4.2, 3.2)])),
        SeriesStyle::Third => canvas.area(&class, &around(&[(0.0, -4.8), (4.8, 0.0), (0.0, 4.8), (-4.8, 0.0)])),
        SeriesStyle::Fourth => canvas.area(&class, &around(&[(0.0, 4.6), (4.2, -3.2), (-4.2, -3.2)])),
        SeriesStyle::PaperText => {
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
fn draw_series_labels(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout, y: &AxisLayout) {
    if !has_labels(panel) {
        return;
    }
    let named: Vec<&Series> =
        panel.series.iter().filter(|series| !series.name.is_empty() && !series.points.is_empty()).collect();
    let ends: Vec<(f64, f64)> = named.iter().map(|series| last_point(series, x, y)).collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let places = spread_labels(&wanted, LINE_HEIGHT - 1.0, (inner.top, inner.bottom));
    for ((series, (end_x, end_y)), place) in named.iter().zip(&ends).zip(places) {
        if has_leader(series) {
            canvas.path("leader", &[(end_x + 4.0, *end_y), (inner.right + 8.0, *end_y), (inner.right + 16.0, place)]);
        } else {
            draw_legend_sample(canvas, series, (inner.right + 8.0, place));
        }
        canvas.text((inner.right + label_gap(series), place + 4.5), series.style.css_class(), &series.name);
    }
}

fn last_point(series: &Series, x: &AxisLayout, y: &AxisLayout) -> (f64, f64) {
    let last = series.points.last().copied().unwrap_or_default();
    (x.position(last[0]), y.position(last[1]))
}
