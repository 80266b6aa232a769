//! Paints a scene into a window with egui.

use eframe::egui::{
    Align2, Color32, CornerRadius, FontId, Painter, Pos2, Rect, Sense, Stroke, StrokeKind, TextureHandle, Ui, Vec2,
    pos2, vec2,
};

use super::{CAPTION_HEIGHT, GAP, GRAPH_HEIGHT, STATUS_HEIGHT};
use crate::layout::{Scaling, column_count, fit_picture};
use crate::palette::{ACCENT, BACKGROUND, BORDER, DIM_TEXT, GRAPH_COLOURS, PANEL, TEXT};
use crate::scene::{Dial, Graph, GraphLine, Label, Overlay, Scene, UiCommand};

const fn colour([red, green, blue]: [u8; 3]) -> Color32 {
    Color32::from_rgb(red, green, blue)
}

fn font(size: f32) -> FontId {
    FontId::proportional(size)
}

const CORNER_RADIUS: CornerRadius = CornerRadius::same(6);
/// Height of the row of dials, in points.
const DIAL_ROW_HEIGHT: f32 = 40.0;
/// Height of a table row, in points.
const TABLE_ROW_HEIGHT: f32 = 22.0;

/// Paints a whole scene. `keys` is the text at the right end of the status line. `send` receives the commands that the
/// pointer causes.
pub(super) fn paint_scene(
    ui: &mut Ui,
    scene: &Scene,
    keys: &str,
    textures: &[TextureHandle],
    scaling: Scaling,
    send: impl Fn(UiCommand),
) {
    let area = ui.max_rect();
    let painter = ui.painter().clone();
    painter.rect_filled(area, 0.0, colour(BACKGROUND));
    let dial = if scene.dials.is_empty() { 0.0 } else { DIAL_ROW_HEIGHT };
    let graph = if scene.graph.is_some() { GRAPH_HEIGHT - DIAL_ROW_HEIGHT + dial } else { 0.0 };
    let below = STATUS_HEIGHT + graph;
    let pictures = Rect::from_min_max(area.min, pos2(area.max.x, (area.max.y - below).max(area.min.y)));
    paint_screens(&painter, scene, textures, scaling, pictures);
    paint_table(&painter, scene, pictures);
    if let Some(graph) = &scene.graph {
        let area = Rect::from_min_max(pos2(area.min.x, pictures.max.y), pos2(area.max.x, area.max.y - STATUS_HEIGHT))
            .shrink(GAP);
        let (lines, dials) = area.split_top_bottom_at_y(area.max.y - dial);
        paint_graph(&painter, graph, lines.with_max_y(lines.max.y - GAP));
        paint_dials(ui, scene, dials, &send);
    }
    paint_status(&painter, scene, keys, Rect::from_min_max(pos2(area.min.x, area.max.y - STATUS_HEIGHT), area.max));
    if let Some(overlay) = &scene.overlay {
        painter.rect_filled(area, 0.0, Color32::from_black_alpha(150));
        let copy = if scene.clipboard_text.is_some() { "   Ctrl+C copy ticket" } else { "" };
        paint_overlay(&painter, overlay, copy, area);
    }
    if let Some(toast) = &scene.toast {
        paint_toast(&painter, toast, pictures);
    }
    paint_chat(&painter, scene, pictures);
}

/// Paints the chat lines at the lower left of the pictures, and below them the draft.
fn paint_chat(painter: &Painter, scene: &Scene, area: Rect) {
    let draft = scene.chat_draft.as_ref().map(|text| (format!("> {text}_"), ACCENT));
    let lines = draft.into_iter().chain(scene.chat.iter().rev().map(|line| (line.clone(), TEXT)));
    let mut bottom = area.max.y - GAP;
    for (line, text_colour) in lines {
        let text = painter.layout(line, font(15.0), colour(text_colour), (area.width() - 48.0).max(80.0));
        let size = text.size() + vec2(16.0, 8.0);
        let rect = Rect::from_min_size(pos2(area.min.x + GAP, bottom - size.y), size);
        if rect.min.y < area.min.y {
            return;
        }
        painter.rect_filled(rect, CORNER_RADIUS, colour(PANEL).gamma_multiply(0.85));
        painter.galley(rect.min + vec2(8.0, 4.0), text, colour(text_colour));
        bottom = rect.min.y - 2.0;
    }
}

fn paint_screens(painter: &Painter, scene: &Scene, textures: &[TextureHandle], scaling: Scaling, area: Rect) {
    let Some(first) = scene.screens.first() else { return };
    let across = column_count((area.width(), area.height()), scene.screens.len(), first.aspect);
    let down = scene.screens.len().div_ceil(across).max(1);
    let size = vec2(area.width() / across as f32, area.height() / down as f32);
    for (at, (screen, texture)) in scene.screens.iter().zip(textures).enumerate() {
        let corner = area.min + vec2((at % across) as f32 * size.x, (at / across) as f32 * size.y);
        let mut rect = Rect::from_min_size(corner, size);
        if !screen.caption.is_empty() {
            let middle = pos2(rect.center().x, rect.min.y + CAPTION_HEIGHT / 2.0);
            painter.text(middle, Align2::CENTER_CENTER, &screen.caption, font(15.0), colour(TEXT));
            rect.min.y += CAPTION_HEIGHT;
        }
        let scaling = if screen.is_smooth { Scaling::Fractional } else { scaling };
        // Integer scaling counts physical pixels of the display.
        let scale = painter.ctx().pixels_per_point();
        let fitted = fit_picture((rect.width() * scale, rect.height() * scale), screen.height, screen.aspect, scaling);
        let corner = rect.min + vec2(fitted.x, fitted.y) / scale;
        let picture = Rect::from_min_size(corner, vec2(fitted.width, fitted.height) / scale);
        let all = Rect::from_min_max(Pos2::ZERO, pos2(1.0, 1.0));
        painter.image(texture.id(), picture, all, Color32::WHITE);
        let inside = painter.with_clip_rect(picture);
        screen.labels.iter().for_each(|label| paint_label(&inside, label, picture));
    }
}

/// Paints a label on a picture, with a shadow that keeps it readable on any background.
fn paint_label(painter: &Painter, label: &Label, picture: Rect) {
    let anchor = picture.min + vec2(label.x * picture.width(), label.y * picture.height());
    for (shift, text_colour) in
        [(vec2(1.0, 1.0), BACKGROUND), (vec2(-1.0, 1.0), BACKGROUND), (vec2(0.0, 0.0), label.colour)]
    {
        painter.text(anchor + shift, Align2::CENTER_BOTTOM, &label.text, font(15.0), colour(text_colour));
    }
}

/// Paints the table in the upper left corner, if all of it fits into the area.
fn paint_table(painter: &Painter, Scene { table, table_header: header, .. }: &Scene, area: Rect) {
    let layout = |text: &str, text_colour: [u8; 3]| {
        painter.layout_no_wrap(text.to_owned(), font(TABLE_ROW_HEIGHT * 0.65), colour(text_colour))
    };
    let rows: Vec<_> = table
        .iter()
        .map(|entry| {
            let text_colour = if entry.is_own { ACCENT } else { TEXT };
            (layout(&entry.name, text_colour), layout(&entry.value, text_colour), entry.colour)
        })
        .collect();
    let names = rows.iter().map(|(name, ..)| name.size().x).fold(0.0, f32::max);
    let values = rows.iter().map(|(_, value, _)| value.size().x).fold(0.0, f32::max);
    let head = painter.layout_no_wrap((*header).to_owned(), font(TABLE_ROW_HEIGHT * 0.5), colour(DIM_TEXT));
    let above = if header.is_empty() { 0.0 } else { TABLE_ROW_HEIGHT * 0.8 };
    let width = (names + values + 62.0).max(head.size().x + 24.0);
    let size = vec2(width, above + TABLE_ROW_HEIGHT * rows.len() as f32 + 12.0);
    let rect = Rect::from_min_size(area.min + vec2(GAP, GAP) * 2.0, size);
    if rows.is_empty() || !area.contains_rect(rect) {
        return;
    }
    painter.rect_filled(rect, CORNER_RADIUS, colour(PANEL).gamma_multiply(0.75));
    painter.galley(pos2(rect.max.x - 12.0 - head.size().x, rect.min.y + 6.0), head, colour(DIM_TEXT));
    for (at, (name, value, marker)) in rows.into_iter().enumerate() {
        let y = rect.min.y + 6.0 + above + TABLE_ROW_HEIGHT * (at as f32 + 0.5);
        painter.circle_filled(pos2(rect.min.x + 16.0, y), 5.0, colour(marker));
        let up = name.size().y / 2.0;
        painter.galley(pos2(rect.min.x + 30.0, y - up), name, colour(TEXT));
        painter.galley(pos2(rect.max.x - 12.0 - value.size().x, y - up), value, colour(TEXT));
    }
}

fn paint_graph(painter: &Painter, graph: &Graph, area: Rect) {
    let count = graph.lines.len().max(1) as f32;
    let width = (area.width() - GAP * (count - 1.0)) / count;
    for (at, line) in graph.lines.iter().enumerate() {
        let left = area.min.x + (width + GAP) * at as f32;
        let frame = Rect::from_min_size(pos2(left, area.min.y), vec2(width, area.height()));
        paint_line(painter, line, colour(GRAPH_COLOURS[at % GRAPH_COLOURS.len()]), frame);
    }
}

fn paint_line(painter: &Painter, line: &GraphLine, line_colour: Color32, frame: Rect) {
    painter.rect(frame, CORNER_RADIUS, colour(PANEL), Stroke::new(1.0, colour(BORDER)), StrokeKind::Inside);
    let title = frame.min + vec2(10.0, 6.0);
    painter.text(title, Align2::LEFT_TOP, &line.name, font(13.0), colour(DIM_TEXT));
    painter.text(pos2(frame.max.x - 10.0, title.y), Align2::RIGHT_TOP, &line.current, font(13.0), line_colour);
    let plot = Rect::from_min_max(frame.min + vec2(8.0, 28.0), frame.max - vec2(8.0, 8.0));
    if !plot.is_positive() {
        return;
    }
    for part in [0.0, 0.5, 1.0] {
        let y = plot.max.y - plot.height() * part;
        painter.hline(plot.x_range(), y, Stroke::new(1.0, colour(BORDER)));
    }
    // The newest value is at the right edge, also while there are few values.
    let count = line.values.len().max(line.capacity).max(2);
    let first = count - line.values.len();
    let point = |(at, value): (usize, &f32)| {
        let part = (value / line.axis_max.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0);
        plot.left_bottom() + vec2(plot.width() * (first + at) as f32 / (count - 1) as f32, -plot.height() * part)
    };
    painter.line(line.values.iter().enumerate().map(point).collect(), Stroke::new(1.5, line_colour));
}

fn paint_dials(ui: &mut Ui, scene: &Scene, area: Rect, send: &impl Fn(UiCommand)) {
    let count = scene.dials.len().max(1) as f32;
    let width = (area.width() - GAP * (count - 1.0)) / count;
    for (at, dial) in scene.dials.iter().enumerate() {
        let corner = pos2(area.min.x + (width + GAP) * at as f32, area.min.y);
        let frame = Rect::from_min_size(corner, vec2(width, area.height()));
        if let Some(to) = paint_dial(ui, dial, at, at == scene.selected_dial, frame) {
            send(UiCommand::SetDial { dial: at, value: to });
        }
    }
}

/// Paints a dial as a slider. Returns the new value if the pointer changed it.
fn paint_dial(ui: &mut Ui, dial: &Dial, at: usize, is_selected: bool, frame: Rect) -> Option<u32> {
    let response = ui.interact(frame, ui.scope_id().with(("dial", at)), Sense::click_and_drag());
    let painter = ui.painter();
    let edge = if is_selected { colour(ACCENT) } else { colour(BORDER) };
    painter.rect(frame, CORNER_RADIUS, colour(PANEL), Stroke::new(1.0, edge), StrokeKind::Inside);
    painter.text(frame.min + vec2(10.0, 5.0), Align2::LEFT_TOP, dial.name, font(13.0), colour(DIM_TEXT));
    let value = format!("{} {}", dial.value, dial.unit);
    painter.text(pos2(frame.max.x - 10.0, frame.min.y + 5.0), Align2::RIGHT_TOP, value, font(13.0), colour(TEXT));
    let (left, right, y) = (frame.min.x + 12.0, frame.max.x - 12.0, frame.max.y - 10.0);
    let knob = left + (right - left) * dial.value as f32 / dial.max.max(1) as f32;
    painter.hline(left..=right, y, Stroke::new(3.0, colour(BORDER)));
    painter.hline(left..=knob, y, Stroke::new(3.0, colour(ACCENT)));
    painter.circle_filled(pos2(knob, y), if response.hovered() { 7.0 } else { 5.5 }, colour(ACCENT));
    let pointed = response.interact_pointer_pos().filter(|_| response.dragged() || response.clicked())?;
    let part = ((pointed.x - left) / (right - left).max(1.0)).clamp(0.0, 1.0);
    let steps = (part * dial.max as f32 / dial.step.max(1) as f32).round() as u32;
    Some((steps * dial.step.max(1)).min(dial.max)).filter(|to| *to != dial.value)
}

fn paint_status(painter: &Painter, scene: &Scene, keys: &str, area: Rect) {
    painter.rect_filled(area, 0.0, colour(PANEL));
    let y = area.center().y;
    painter.text(pos2(area.min.x + 12.0, y), Align2::LEFT_CENTER, &scene.status, font(13.0), colour(DIM_TEXT));
    painter.text(pos2(area.max.x - 12.0, y), Align2::RIGHT_CENTER, keys, font(13.0), colour(DIM_TEXT));
}

fn paint_toast(painter: &Painter, toast: &str, area: Rect) {
    let text = painter.layout(toast.into(), font(15.0), colour(BACKGROUND), (area.width() - 48.0).max(80.0));
    let size = text.size() + vec2(28.0, 14.0);
    let rect = Rect::from_center_size(pos2(area.center().x, area.max.y - 20.0 - size.y / 2.0), size);
    painter.rect_filled(rect, CornerRadius::same(14), colour(ACCENT));
    painter.galley(rect.min + vec2(14.0, 7.0), text, colour(BACKGROUND));
}

fn paint_overlay(painter: &Painter, overlay: &Overlay, copy: &str, area: Rect) {
    // The font shrinks where there is little room.
    let rows = overlay.rows.len() as f32;
    let row = ((area.height() - 150.0) / rows.max(1.0)).clamp(14.0, 30.0);
    let size = row * 0.55 + 1.0;
    let layout = |text: &str, size: f32, text_colour: [u8; 3]| {
        painter.layout_no_wrap(text.to_owned(), font(size), colour(text_colour))
    };
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| layout(text, size, TEXT).size().x).fold(0.0, f32::max)
    };
    let left = widest(&mut overlay.rows.iter().map(|(left, _)| left));
    let right = widest(&mut overlay.rows.iter().map(|(_, right)| right));
    let footer = layout(&format!("{}{copy}", overlay.footer), 12.0, DIM_TEXT);
    let inner = (left + 28.0 + right).max(footer.size().x).max(160.0);
    let tail = if overlay.footer.is_empty() { 0.0 } else { 34.0 };
    let head = if overlay.rows.is_empty() { 0.0 } else { 14.0 };
    let panel = Vec2::new(inner + 56.0, 64.0 + head + rows * row + tail);
    let rect = Rect::from_center_size(area.center(), panel.min(area.size()));
    painter.rect(rect, CornerRadius::same(10), colour(PANEL), Stroke::new(1.0, colour(BORDER)), StrokeKind::Inside);
    let inside = rect.shrink(28.0);
    if overlay.rows.is_empty() {
        painter.text(rect.center(), Align2::CENTER_CENTER, &overlay.title, font(22.0), colour(ACCENT));
        return;
    }
    painter.text(pos2(inside.min.x, rect.min.y + 20.0), Align2::LEFT_TOP, &overlay.title, font(22.0), colour(ACCENT));
    let top = rect.min.y + 20.0 + 26.0 + head;
    for (at, (first, second)) in overlay.rows.iter().enumerate() {
        let y = top + row * (at as f32 + 0.5);
        let is_selected = overlay.selected == Some(at);
        if is_selected {
            let bar = Rect::from_center_size(pos2(rect.center().x, y), vec2(rect.width() - 28.0, row));
            painter.rect_filled(bar, CORNER_RADIUS, colour(ACCENT));
        }
        let (bright, soft) = if is_selected { (BACKGROUND, BACKGROUND) } else { (TEXT, DIM_TEXT) };
        painter.text(pos2(inside.min.x, y), Align2::LEFT_CENTER, first, font(size), colour(bright));
        painter.text(pos2(inside.min.x + left + 28.0, y), Align2::LEFT_CENTER, second, font(size), colour(soft));
    }
    painter.galley(pos2(inside.min.x, rect.max.y - 34.0), footer, colour(DIM_TEXT));
}
