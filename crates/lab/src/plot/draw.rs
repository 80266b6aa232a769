//! Draws figures as SVG. All lengths are in SVG units.

use super::axis::AxisLayout;
use super::canvas::SvgCanvas;
use super::text::{spread_labels, text_width};
use super::{BoundLine, Figure, Panel, Series, SeriesShape, SeriesStyle};

const FIGURE_WIDTH: f64 = 880.0;
/// Height of a plot area in a figure of one panel or of two stacked panels.
const PANEL_HEIGHT: f64 = 300.0;
/// Height of a plot area in all other figures.
const SMALL_PANEL_HEIGHT: f64 = 220.0;
/// Font size of most text.
const FONT_SIZE: f64 = 13.0;
/// Distance between text lines.
const LINE_HEIGHT: f64 = 18.0;
/// Height of a panel title.
const TITLE_HEIGHT: f64 = 22.0;
/// Margin on each side of the figure.
const FIGURE_MARGIN: f64 = 12.0;
/// Gap between panels side by side.
const PANEL_GAP: f64 = 20.0;
/// Space to the right of the x axis, for half of its last tick label.
const RIGHT_MARGIN: f64 = 18.0;
/// Number of points above which a line has no markers, and points are drawn as specks.
const MAX_MARKERS: usize = 45;
/// Distance below which two markers overlap.
const MARKER_OVERLAP: f64 = 4.0;

/// Draws a figure as SVG, with `style` embedded.
pub(super) fn draw_figure(figure: &Figure, style: &str) -> String {
    let mut canvas = SvgCanvas::default();
    let mut contents = SvgCanvas::default();
    let mut y = FIGURE_MARGIN;
    if figure.panels.len() > 1 {
        y += draw_legend(&mut contents, &figure.panels, y);
    }
    let columns = figure.columns.min(figure.panels.len()).max(1);
    let width = (FIGURE_WIDTH - 2.0 * FIGURE_MARGIN - PANEL_GAP * (columns as f64 - 1.0)) / columns as f64;
    let height = if columns > 1 || figure.panels.len() > 2 { SMALL_PANEL_HEIGHT } else { PANEL_HEIGHT };
    for row in figure.panels.chunks(columns) {
        let above = row.iter().map(header_height).fold(0.0, f64::max);
        for (index, panel) in row.iter().enumerate() {
            let x = FIGURE_MARGIN + index as f64 * (width + PANEL_GAP);
            let rect = PanelRect { left: x, right: x + width, top: y + above, bottom: y + above + height };
            draw_panel(&mut contents, panel, rect, figure.panels.len() == 1);
            draw_panel_header(&mut contents, panel, (x, y));
        }
        y += above + height + 50.0;
    }
    canvas.rect("ground", (0.0, 0.0), (FIGURE_WIDTH, y));
    canvas.append(contents);
    canvas.finish((FIGURE_WIDTH, y), &figure.title, style)
}

/// Position of a panel. Between `left` and `right` are the plot area and the labels beside it; between `top` and
/// `bottom` is the plot area alone. A parameter `inner` is the plot area alone.
#[derive(Clone, Copy)]
struct PanelRect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Draws the common legend of all panels above them and returns its height; 0 if fewer than two series have names.
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
        let width = 30.0 + text_width(&series.name, FONT_SIZE) + 22.0;
        if x > FIGURE_MARGIN && x + width > FIGURE_WIDTH - FIGURE_MARGIN {
            (x, y) = (FIGURE_MARGIN, y + LINE_HEIGHT);
        }
        draw_legend_sample(canvas, series, (x, y - 4.5));
        canvas.text((x + 30.0, y), series.style.css_class(), &series.name);
        x += width;
    }
    y - top + LINE_HEIGHT
}

/// Draws the sample of a series beside its name in a legend.
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

/// Returns the height that a panel needs above its plot area for its title, the label of its y axis and the labels of
/// its vertical bounds.
fn header_height(panel: &Panel) -> f64 {
    let title = if panel.title.is_empty() { 0.0 } else { TITLE_HEIGHT };
    let label = if panel.y.label.is_empty() { 0.0 } else { LINE_HEIGHT };
    let bounds = panel.bounds.iter().filter(|bound| matches!(bound, BoundLine::Vertical { .. })).count();
    title + label + LINE_HEIGHT * bounds as f64 + 14.0
}

fn draw_panel(canvas: &mut SvgCanvas, panel: &Panel, rect: PanelRect, alone: bool) {
    let values = |coordinate: usize| {
        panel.series.iter().flat_map(move |series| series.points.iter().map(move |point| point[coordinate]))
    };
    let bounds = panel
        .bounds
        .iter()
        .filter_map(|bound| if let BoundLine::Horizontal { at, .. } = bound { Some(*at) } else { None });
    let y = panel.y.layout(values(1).chain(values(2)).chain(bounds), (rect.bottom, rect.top));
    let tick_width = y.ticks.iter().map(|(_, label)| text_width(label, FONT_SIZE)).fold(0.0, f64::max);
    let right = if alone { label_column_width(panel) } else { RIGHT_MARGIN };
    let inner = PanelRect { left: rect.left + tick_width + 10.0, right: rect.right - right, ..rect };
    let x = panel.x.layout(values(0), (inner.left, inner.right));
    draw_axes(canvas, panel, inner, &x, &y);
    for series in &panel.series {
        draw_series(canvas, panel, series, (&x, &y));
    }
    for index in 0..panel.series.len() {
        draw_markers(canvas, panel, index, (&x, &y));
    }
    draw_bound_labels(canvas, panel, inner, &x);
    for bound in &panel.bounds {
        draw_bound(canvas, (panel, bound), inner, (&x, &y));
    }
    if alone {
        draw_series_labels(canvas, panel, inner, &x, &y);
    }
}

fn has_labels(panel: &Panel) -> bool {
    panel.series.iter().filter(|series| !series.name.is_empty()).count() > 1
}

fn label_column_width(panel: &Panel) -> f64 {
    let width = |series: &Series| label_gap(series) + text_width(&series.name, FONT_SIZE) + 6.0;
    if has_labels(panel) { panel.series.iter().map(width).fold(0.0, f64::max) } else { RIGHT_MARGIN }
}

/// Returns the gap between the end of the x axis and the label of a series.
fn label_gap(series: &Series) -> f64 {
    if has_leader(series) { 20.0 } else { 36.0 }
}

/// Returns whether a leader line connects the last point of a series with its label.
fn has_leader(series: &Series) -> bool {
    !matches!(series.shape, SeriesShape::Bars | SeriesShape::Points)
}

/// Draws the title of a panel and the label of its y axis, downwards from a position.
fn draw_panel_header(canvas: &mut SvgCanvas, panel: &Panel, (x, mut y): (f64, f64)) {
    if !panel.title.is_empty() {
        canvas.text((x, y + 14.0), "title", &panel.title);
        y += TITLE_HEIGHT;
    }
    canvas.text((x, y + FONT_SIZE), "faint", &panel.y.label);
}

/// Draws the label of each vertical bound above its line.
fn draw_bound_labels(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout) {
    let bounds = panel
        .bounds
        .iter()
        .filter_map(|bound| if let BoundLine::Vertical { at, label } = bound { Some((*at, label)) } else { None });
    for (number, (at, label)) in bounds.enumerate() {
        let half = text_width(label, FONT_SIZE) / 2.0;
        let position = x.position(at).min(inner.right - half).max(inner.left + half);
        canvas.text((position, inner.top - 6.0 - LINE_HEIGHT * number as f64), "middle", label);
    }
}

fn draw_axes(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout, y: &AxisLayout) {
    for (at, label) in &y.ticks {
        let position = y.position(*at);
        canvas.line((inner.left, position), (inner.right, position), "grid");
        canvas.text((inner.left - 6.0, position + 4.5), "faint end", label);
    }
    canvas.line((inner.left, inner.bottom), (inner.right, inner.bottom), "base");
    let widest = x.ticks.iter().map(|(_, label)| text_width(label, FONT_SIZE)).fold(0.0, f64::max) + 10.0;
    let apart = (inner.right - inner.left) / (x.ticks.len().max(2) - 1) as f64;
    let every = (widest / apart).ceil().max(1.0) as usize;
    for (at, label) in x.ticks.iter().step_by(every) {
        let position = x.position(*at);
        canvas.line((position, inner.bottom), (position, inner.bottom + 4.0), "base");
        canvas.text((position, inner.bottom + 18.0), "faint middle", label);
    }
    let middle = (inner.left + inner.right) / 2.0;
    canvas.text((middle, inner.bottom + 36.0), "faint middle", &panel.x.label);
}

fn draw_bound(
    canvas: &mut SvgCanvas,
    (panel, bound): (&Panel, &BoundLine),
    inner: PanelRect,
    (x, y): (&AxisLayout, &AxisLayout),
) {
    match bound {
        BoundLine::Vertical { at, .. } if x.contains(*at) => {
            canvas.line((x.position(*at), inner.top - 2.0), (x.position(*at), inner.bottom), "bound");
        }
        BoundLine::Horizontal { at, label } if y.contains(*at) => {
            let position = y.position(*at);
            canvas.line((inner.left, position), (inner.right, position), "bound");
            let left = inner.left + 6.0;
            let reach = (left, left + text_width(label, FONT_SIZE));
            let [above, below] = [(position - LINE_HEIGHT, position), (position, position + LINE_HEIGHT)]
                .map(|rows| count_points_in(panel, reach, rows, (x, y)));
            let is_below = below < above && position + LINE_HEIGHT < inner.bottom;
            canvas.text((left, if is_below { position + 15.0 } else { position - 6.0 }), "halo", label);
        }
        _ => {}
    }
}

/// Returns the number of data points of a panel inside a box of positions.
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
    let positions: Vec<(f64, f64)> =
        series.points.iter().map(|point| (x.position(point[0]), y.position(point[1]))).collect();
    match series.shape {
        SeriesShape::Line | SeriesShape::Dashed => canvas.path(&line_class(series), &positions),
        SeriesShape::Steps => canvas.path(&line_class(series), &step_points(&positions)),
        SeriesShape::Points => {}
        SeriesShape::Band => {
            let back = series.points.iter().rev().map(|point| (x.position(point[0]), y.position(point[2])));
            let around: Vec<(f64, f64)> = positions.iter().copied().chain(back).collect();
            canvas.area(&format!("band {}", series.style.css_class()), &around);
        }
        SeriesShape::Bars => draw_bars(canvas, panel, series, (x, y)),
    }
}

/// Draws the markers of a series. Where lines coincide their markers alternate, so that each line stays visible.
fn draw_markers(canvas: &mut SvgCanvas, panel: &Panel, index: usize, (x, y): (&AxisLayout, &AxisLayout)) {
    let series = &panel.series[index];
    let is_marked = |series: &Series| series.shape == SeriesShape::Points || has_markers(series);
    if !is_marked(series) {
        return;
    }
    for (number, point) in series.points.iter().enumerate() {
        let position = (x.position(point[0]), y.position(point[1]));
        let overlaps = |other: &[f64; 3]| {
            (x.position(other[0]) - position.0).hypot(y.position(other[1]) - position.1) < MARKER_OVERLAP
        };
        let overlaps_series = |other: &Series| has_markers(other) && other.points.iter().any(overlaps);
        let before = panel.series[..index].iter().filter(|other| overlaps_series(other)).count();
        let after = panel.series[index + 1..].iter().filter(|other| overlaps_series(other)).count();
        if series.points.len() > MAX_MARKERS {
            canvas.circle(&format!("speck {}", series.style.css_class()), position, 2.0);
        } else if series.shape == SeriesShape::Points || number % (before + 1 + after) == before {
            draw_marker(canvas, series.style, position);
        }
    }
}

/// Returns the corners of a step line: horizontally to the next point, then vertically.
fn step_points(positions: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = positions.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    positions.first().copied().into_iter().chain(corners).collect()
}

fn draw_bars(canvas: &mut SvgCanvas, panel: &Panel, series: &Series, (x, y): (&AxisLayout, &AxisLayout)) {
    let beside: Vec<&Series> = panel.series.iter().filter(|other| other.shape == SeriesShape::Bars).collect();
    let bar = beside.iter().position(|other| std::ptr::eq(*other, series)).unwrap_or(0);
    let bars = beside.len();
    let all = (x.position(1.0) - x.position(0.0)).abs();
    let all = if all > 0.0 { all * 0.76 } else { 120.0 };
    let width = all / bars as f64;
    for [at, height, _] in &series.points {
        let left = x.position(*at) - all / 2.0 + bar as f64 * width;
        let (top, bottom) = (y.position(*height), y.baseline());
        let class = format!("bar {}", series.style.css_class());
        if top < bottom {
            canvas.rect(&class, (left + 1.0, top), ((width - 2.0).max(1.0), bottom - top));
        }
    }
}

/// Draws a marker. Every style has its own shape, except that [`SeriesStyle::Fifth`] shares the circle of
/// [`SeriesStyle::First`].
fn draw_marker(canvas: &mut SvgCanvas, style: SeriesStyle, (x, y): (f64, f64)) {
    let class = format!("dot {}", style.css_class());
    let around = |turns: &[(f64, f64)]| turns.iter().map(|(dx, dy)| (x + dx, y + dy)).collect::<Vec<_>>();
    match style {
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

/// Draws the name of each series to the right of the plot area, near its last point, if more than one series has a
/// name.
fn draw_series_labels(canvas: &mut SvgCanvas, panel: &Panel, inner: PanelRect, x: &AxisLayout, y: &AxisLayout) {
    if !has_labels(panel) {
        return;
    }
    let named: Vec<&Series> =
        panel.series.iter().filter(|series| !series.name.is_empty() && !series.points.is_empty()).collect();
    let ends: Vec<(f64, f64)> = named.iter().map(|series| last_point(series, x, y)).collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let positions = spread_labels(&wanted, LINE_HEIGHT - 1.0, (inner.top, inner.bottom));
    for ((series, (end_x, end_y)), position) in named.iter().zip(&ends).zip(positions) {
        if has_leader(series) {
            canvas
                .path("leader", &[(end_x + 4.0, *end_y), (inner.right + 8.0, *end_y), (inner.right + 16.0, position)]);
        } else {
            draw_legend_sample(canvas, series, (inner.right + 8.0, position));
        }
        canvas.text((inner.right + label_gap(series), position + 4.5), series.style.css_class(), &series.name);
    }
}

fn last_point(series: &Series, x: &AxisLayout, y: &AxisLayout) -> (f64, f64) {
    let last = series.points.last().copied().unwrap_or_default();
    (x.position(last[0]), y.position(last[1]))
}
