//! Axes: label, range, scale and ticks.

/// An axis of a panel: label, scale and range.
#[derive(Clone, Debug)]
pub struct PlotAxis {
    pub(super) label: String,
    scale: AxisScale,
    min: Option<f64>,
    max: Option<f64>,
    categories: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AxisScale {
    Linear,
    Logarithmic,
}

/// An axis whose value range is laid out between two positions of the drawing.
#[derive(Clone, Debug)]
pub(super) struct AxisLayout {
    scale: AxisScale,
    value_range: (f64, f64),
    position_range: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
}

/// Approximate number of ticks of a linear axis.
const TARGET_TICKS: f64 = 6.0;

impl PlotAxis {
    /// Creates a linear axis over the range of the data, extended to ticks. The axis starts at 0 if the smallest value
    /// is positive and below 70 % of the largest.
    pub fn new(label: &str) -> Self {
        Self { label: label.into(), scale: AxisScale::Linear, min: None, max: None, categories: Vec::new() }
    }

    /// Creates a logarithmic axis over the range of the positive data, extended to ticks.
    pub fn logarithmic(label: &str) -> Self {
        Self { scale: AxisScale::Logarithmic, ..Self::new(label) }
    }

    /// Creates an axis of category names, at the values 0, 1, 2 and so on.
    pub fn categorical(label: &str, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let last = names.len() as f64 - 0.5;
        Self { categories: names, ..Self::new(label).with_min(-0.5).with_max(last) }
    }

    /// Fixes the lower end of the range.
    pub fn with_min(mut self, low: f64) -> Self {
        self.min = Some(low);
        self
    }

    /// Fixes the upper end of the range.
    pub fn with_max(mut self, high: f64) -> Self {
        self.max = Some(high);
        self
    }

    /// Lays the axis out between two positions. Its range covers `values`, except at an end that was fixed.
    pub(super) fn layout(&self, values: impl Iterator<Item = f64>, positions: (f64, f64)) -> AxisLayout {
        let usable = |value: &f64| value.is_finite() && (self.scale == AxisScale::Linear || *value > 0.0);
        let (least, most) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
        let (low, high) = (self.min.unwrap_or(least), self.max.unwrap_or(most));
        match self.scale {
            AxisScale::Linear => self.layout_linear(low, high, positions),
            AxisScale::Logarithmic => self.layout_logarithmic(low, high, positions),
        }
    }

    fn layout_linear(&self, low: f64, high: f64, positions: (f64, f64)) -> AxisLayout {
        let starts_near_zero = self.min.is_none() && low > 0.0 && low < 0.7 * high;
        let low = if starts_near_zero { 0.0 } else { low };
        let span = if high > low { high - low } else { low.abs().max(1.0) };
        let step = nice_step(span / TARGET_TICKS);
        let low = if self.min.is_some() { low } else { (low / step).floor() * step };
        let high = if self.max.is_some() { high.max(low + step / 2.0) } else { ((low + span) / step).ceil() * step };
        let ticks = if self.categories.is_empty() {
            let first = (low / step - 1e-9).ceil() as i64;
            let last = (high / step + 1e-9).floor() as i64;
            (first..=last).map(|number| number as f64 * step).map(|at| (at, linear_label(at, step))).collect()
        } else {
            self.categories.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect()
        };
        AxisLayout { scale: self.scale, value_range: (low, high), position_range: positions, ticks }
    }

    fn layout_logarithmic(&self, low: f64, high: f64, positions: (f64, f64)) -> AxisLayout {
        let high = high.max(low * 1.01);
        let decades = (high / low).log10();
        let multiples: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
        let all: Vec<f64> = (first..=last)
            .flat_map(|power| multiples.iter().map(move |multiple| multiple * 10f64.powi(power)))
            .collect();
        let below = all.iter().rev().find(|tick| **tick <= low * 1.001).copied();
        let above = all.iter().find(|tick| **tick >= high * 0.999).copied();
        let low = self.min.or(below).unwrap_or(low);
        let high = self.max.or(above).unwrap_or(high);
        let ticks = all.into_iter().filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001);
        let ticks = ticks.map(|tick| (tick, logarithmic_label(tick))).collect();
        AxisLayout { scale: self.scale, value_range: (low, high), position_range: positions, ticks }
    }
}

impl AxisLayout {
    /// Returns the position of a value, clamped to the ends of the axis.
    pub(super) fn position(&self, value: f64) -> f64 {
        let (low, high) = self.value_range;
        let part = match self.scale {
            AxisScale::Linear => (value - low) / (high - low),
            AxisScale::Logarithmic => (value.max(1e-300) / low).ln() / (high / low).ln(),
        };
        let (from, to) = self.position_range;
        from + part.clamp(0.0, 1.0) * (to - from)
    }

    /// Returns whether a value is inside the value range, up to rounding errors.
    pub(super) fn contains(&self, value: f64) -> bool {
        let slack = (self.value_range.1 - self.value_range.0) * 1e-9;
        (self.value_range.0 - slack..=self.value_range.1 + slack).contains(&value)
    }

    /// Returns the position from which bars rise: that of the value 0, or the lower end of a logarithmic axis.
    pub(super) fn baseline(&self) -> f64 {
        self.position(if self.scale == AxisScale::Linear { 0.0 } else { self.value_range.0 })
    }
}

/// Rounds a step up to 1, 2, 2.5, 5 or 10 times a power of ten.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let multiple = step / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| multiple <= nice * 1.000_001).unwrap_or(10.0);
    nice * power
}

fn linear_label(at: f64, step: f64) -> String {
    let decimals = (0..6).find(|decimals| is_whole(step * 10f64.powi(*decimals))).unwrap_or(6) as usize;
    let at = if at.abs() < step / 2.0 { 0.0 } else { at };
    with_thousands(&format!("{at:.decimals$}"))
}

fn logarithmic_label(at: f64) -> String {
    let decimals = (-at.log10().floor()).max(0.0) as usize;
    with_thousands(&format!("{at:.decimals$}"))
}

fn is_whole(number: f64) -> bool {
    (number - number.round()).abs() < 1e-6
}

/// Inserts thousands separators: 12345 becomes 12,345.
fn with_thousands(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, part) = rest.split_once('.').map_or((rest, None), |(whole, part)| (whole, Some(part)));
    let groups: Vec<&str> = (0..whole.len().div_ceil(3))
        .rev()
        .map(|group| {
            let end = whole.len() - group * 3;
            &whole[end.saturating_sub(3)..end]
        })
        .collect();
    let part = part.map_or_else(String::new, |part| format!(".{part}"));
    format!("{sign}{}{part}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick_labels(axis: &PlotAxis, values: &[f64]) -> Vec<String> {
        axis.layout(values.iter().copied(), (0.0, 100.0)).ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_at_round_numbers() {
        assert_eq!(tick_labels(&PlotAxis::new("x"), &[3.0, 397.0]), ["0", "100", "200", "300", "400"]);
        assert_eq!(
            tick_labels(&PlotAxis::new("x"), &[16.6, 16.9]),
            ["16.60", "16.65", "16.70", "16.75", "16.80", "16.85", "16.90"]
        );
        assert_eq!(
            tick_labels(&PlotAxis::new("x").with_min(0.0).with_max(5_000.0), &[]),
            ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]
        );
        assert_eq!(tick_labels(&PlotAxis::new("x"), &[-20.0, 15.0]), ["−20", "−10", "0", "10", "20"]);
        assert_eq!(
            tick_labels(&PlotAxis::logarithmic("x"), &[0.02, 300.0]),
            ["0.01", "0.1", "1", "10", "100", "1,000"]
        );
        assert_eq!(tick_labels(&PlotAxis::logarithmic("x"), &[3.0, 40.0]), ["2", "5", "10", "20", "50"]);
        assert_eq!(tick_labels(&PlotAxis::categorical("x", ["a", "b"]), &[]), ["a", "b"]);
    }

    #[test]
    fn any_value_maps_inside_the_axis() {
        for values in [&[][..], &[0.0], &[5.0, 5.0], &[f64::NAN, f64::INFINITY], &[-1.0]] {
            for axis in [PlotAxis::new("x"), PlotAxis::logarithmic("x"), PlotAxis::new("x").with_min(3.0).with_max(3.0)]
            {
                let layout = axis.layout(values.iter().copied(), (10.0, 90.0));
                for value in [-1e9, 0.0, 1.0, 1e9] {
                    assert!((10.0..=90.0).contains(&layout.position(value)), "{axis:?} {values:?}");
                }
                assert!(layout.ticks.len() < 20, "{layout:?}");
            }
        }
    }

    #[test]
    fn logarithmic_axis_spaces_equal_ratios_equally() {
        let layout = PlotAxis::logarithmic("x").layout([1.0, 100.0].into_iter(), (0.0, 100.0));
        assert_eq!((layout.position(1.0), layout.position(10.0), layout.position(100.0)), (0.0, 50.0, 100.0));
    }
}
