//! Figures as SVG: lines, steps, points, bands and bars on linear or logarithmic axes.
//!
//! A figure has one panel or several. What a line means stands at its end where there is room for it, and otherwise above all panels; what a bound
//! means stands above its line. So words never cover what was measured. Colours can be told apart by everybody, and shapes go with them.
//!
//! The drawing names classes, not colours: a page gives them colours for light and for dark ([`style`]), a file brings its own.

mod axis;
mod canvas;
mod draw;
pub mod style;
mod text;

pub use axis::PlotAxis;
pub(crate) use canvas::escape_xml;
pub use style::SeriesStyle;

/// What is shown together.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What its files are called.
    pub name: String,
    /// What it is.
    pub title: String,
    /// What there is to see in it.
    pub caption: String,
    /// Its panels.
    pub panels: Vec<Panel>,
    /// How many of them are side by side.
    pub columns: usize,
}

/// Two axes and what is between them.
#[derive(Clone, Debug)]
pub struct Panel {
    pub(crate) title: String,
    pub(crate) x: PlotAxis,
    pub(crate) y: PlotAxis,
    pub(crate) series: Vec<Series>,
    pub(crate) bounds: Vec<BoundLine>,
}

/// What was measured of one thing.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: SeriesStyle,
    pub(crate) shape: SeriesShape,
    /// Where it is: x, y, and the other end of a band.
    pub(crate) points: Vec<[f64; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesShape {
    Line,
    Dashed,
    Steps,
    Points,
    Band,
    Bars,
}

/// Something that was not measured.
#[derive(Clone, Debug)]
pub(crate) enum BoundLine {
    Vertical { at: f64, label: String },
    Horizontal { at: f64, label: String },
}

impl Figure {
    /// A figure of these panels, one below the other.
    pub fn new(name: &str, title: &str, caption: &str, panels: Vec<Panel>) -> Self {
        Self { name: name.into(), title: title.into(), caption: caption.into(), panels, columns: 1 }
    }

    /// With so many panels side by side.
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.max(1);
        self
    }

    /// To be put into a page that has the [style](style::page_css).
    pub fn to_inline_svg(&self) -> String {
        draw::draw_figure(self, "")
    }

    /// A file of its own, with colours for a light background.
    pub fn to_svg(&self) -> String {
        draw::draw_figure(self, &style::file_css())
    }
}

impl Panel {
    /// A panel with nothing in it.
    pub fn new(title: &str, x: PlotAxis, y: PlotAxis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), bounds: Vec::new() }
    }

    fn add_series(mut self, name: &str, ink: SeriesStyle, shape: SeriesShape, points: Vec<[f64; 3]>) -> Self {
        self.series.push(Series { name: name.into(), style: ink, shape, points });
        self
    }

    /// A line through these points.
    pub fn line(self, name: &str, ink: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, ink, SeriesShape::Line, finite_points(points))
    }

    /// A line of dashes: what was not measured in the same way as the others.
    pub fn dashed(self, name: &str, ink: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, ink, SeriesShape::Dashed, finite_points(points))
    }

    /// A line that stays where it is until the next point.
    pub fn steps(self, name: &str, ink: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, ink, SeriesShape::Steps, finite_points(points))
    }

    /// These points alone.
    pub fn points(self, name: &str, ink: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, ink, SeriesShape::Points, finite_points(points))
    }

    /// All between two lines, as x, one end and the other. It has no name: it belongs to a line of the same colour.
    pub fn band(self, ink: SeriesStyle, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        self.add_series("", ink, SeriesShape::Band, points.into_iter().map(|(x, low, high)| [x, low, high]).collect())
    }

    /// A bar for each of the names along the x axis.
    pub fn bars(self, name: &str, ink: SeriesStyle, heights: impl IntoIterator<Item = f64>) -> Self {
        let points = heights.into_iter().enumerate().map(|(at, height)| (at as f64, height));
        self.add_series(name, ink, SeriesShape::Bars, finite_points(points))
    }

    /// A bound from bottom to top.
    pub fn vertical_bound(mut self, at: f64, label: &str) -> Self {
        self.bounds.push(BoundLine::Vertical { at, label: label.into() });
        self
    }

    /// A bound from left to right.
    pub fn horizontal_bound(mut self, at: f64, label: &str) -> Self {
        self.bounds.push(BoundLine::Horizontal { at, label: label.into() });
        self
    }
}

fn finite_points(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<[f64; 3]> {
    points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).map(|(x, y)| [x, y, y]).collect()
}

#[cfg(test)]
mod tests;
