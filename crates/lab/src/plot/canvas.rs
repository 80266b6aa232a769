//! Writes SVG elements.

use std::fmt::Write as _;

/// The SVG elements written so far, from the bottom to the top of the drawing.
#[derive(Debug, Default)]
pub(super) struct SvgCanvas(String);

impl SvgCanvas {
    fn write_element(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.0.write_fmt(arguments).expect("writing to a string cannot fail");
        self.0.push('\n');
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        self.write_element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>",
            escape_xml(text)
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.path(class, &[from, to]);
    }

    /// Draws a line through the points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        self.write_element(format_args!("<path class=\"{class}\" d=\"{}\"/>", path_data(points)));
    }

    /// Fills the polygon with these corners.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        self.write_element(format_args!("<path class=\"{class}\" d=\"{}Z\"/>", path_data(points)));
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.write_element(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        self.write_element(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"));
    }

    /// Appends the elements of another canvas on top.
    pub(super) fn append(&mut self, other: Self) {
        self.0 += &other.0;
    }

    /// Returns an SVG document of this size, with `title` as its label and `style` before the elements.
    pub(super) fn finish(self, (width, height): (f64, f64), title: &str, style: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n{style}\n{}</svg>\n",
            escape_xml(title),
            self.0
        )
    }
}

fn path_data(points: &[(f64, f64)]) -> String {
    let mut data = String::with_capacity(points.len() * 12);
    for (index, (x, y)) in points.iter().enumerate() {
        write!(data, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }).expect("writing to a string cannot fail");
    }
    data
}

/// Escapes text for XML and HTML.
pub(crate) fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
