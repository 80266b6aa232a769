//! Figures as SVG: lines, steps, points, bands and bars on linear or logarithmic axes.
//!
//! A figure has one or several panels. In a single panel, the labels of the series stand to the right of the plot area,
//! near their last points; several panels share a legend above them. The label of a vertical bound stands above its
//! line. The label of a horizontal bound stands above or below its line, on the side with fewer data points. So labels
//! cover little data. The colours are distinguishable with colour blindness, and marker shapes accompany them on points
//! and on lines with few points.
//!
//! The drawing uses CSS classes instead of colours: a page defines the colours of the classes for light and dark
//! backgrounds ([`style`]); an SVG file embeds its own style.

mod axis;
mod canvas;
mod draw;
pub mod style;
mod text;

pub use axis::PlotAxis;
pub(crate) use canvas::escape_xml;
pub use style::SeriesStyle;

/// One or several panels with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without the extension.
    pub name: String,
    /// Title in the report, and label of the SVG for screen readers.
    pub title: String,
    /// Caption below the figure in the report.
    pub caption: String,
    /// Panels, in reading order.
    pub panels: Vec<Panel>,
    /// Largest number of panels side by side.
    pub columns: usize,
}

/// Two axes and the series between them.
#[derive(Clone, Debug)]
pub struct Panel {
    pub(crate) title: String,
    pub(crate) x: PlotAxis,
    pub(crate) y: PlotAxis,
    pub(crate) series: Vec<Series>,
    pub(crate) bounds: Vec<BoundLine>,
}

/// A named data series of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: SeriesStyle,
    pub(crate) shape: SeriesShape,
    /// Points as x, y, and y of the upper edge of a band. All other shapes repeat y.
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

/// A line that marks a limit, not data.
#[derive(Clone, Debug)]
pub(crate) enum BoundLine {
    Vertical { at: f64, label: String },
    Horizontal { at: f64, label: String },
}

impl Figure {
    /// Creates a figure of panels stacked in one column.
    pub fn new(name: &str, title: &str, caption: &str, panels: Vec<Panel>) -> Self {
        Self { name: name.into(), title: title.into(), caption: caption.into(), panels, columns: 1 }
    }

    /// Sets the largest number of panels side by side, at least 1.
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns.max(1);
        self
    }

    /// Returns the SVG without a style, for a page that includes [`style::page_css`].
    pub fn to_inline_svg(&self) -> String {
        draw::draw_figure(self, "")
    }

    /// Returns a stand-alone SVG with colours for a light background.
    pub fn to_svg(&self) -> String {
        draw::draw_figure(self, &style::file_css())
    }
}

impl Panel {
    /// Creates a panel without series and bounds.
    pub fn new(title: &str, x: PlotAxis, y: PlotAxis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), bounds: Vec::new() }
    }

    fn add_series(mut self, name: &str, style: SeriesStyle, shape: SeriesShape, points: Vec<[f64; 3]>) -> Self {
        self.series.push(Series { name: name.into(), style, shape, points });
        self
    }

    /// Adds a line through the points.
    pub fn line(self, name: &str, style: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, style, SeriesShape::Line, finite_points(points))
    }

    /// Adds a dashed line, for data obtained in another way than those of the solid lines.
    pub fn dashed(self, name: &str, style: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, style, SeriesShape::Dashed, finite_points(points))
    }

    /// Adds a step line that keeps each value until the next point.
    pub fn steps(self, name: &str, style: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, style, SeriesShape::Steps, finite_points(points))
    }

    /// Adds points without a line.
    pub fn points(self, name: &str, style: SeriesStyle, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.add_series(name, style, SeriesShape::Points, finite_points(points))
    }

    /// Adds a band from points of x, lower edge and upper edge. The band has no label, because it belongs to the line
    /// of the same style.
    pub fn band(self, style: SeriesStyle, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        self.add_series("", style, SeriesShape::Band, points.into_iter().map(|(x, low, high)| [x, low, high]).collect())
    }

    /// Adds a series with one bar for each category of the x axis, in their order.
    pub fn bars(self, name: &str, style: SeriesStyle, heights: impl IntoIterator<Item = f64>) -> Self {
        let points = heights.into_iter().enumerate().map(|(at, height)| (at as f64, height));
        self.add_series(name, style, SeriesShape::Bars, finite_points(points))
    }

    /// Adds a labelled vertical line that marks a limit at the x value `at`.
    pub fn vertical_bound(mut self, at: f64, label: &str) -> Self {
        self.bounds.push(BoundLine::Vertical { at, label: label.into() });
        self
    }

    /// Adds a labelled horizontal line that marks a limit at the y value `at`.
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
