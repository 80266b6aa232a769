//! Axes: what they are called, from where to where they go, and at which numbers they have ticks.

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(super) label: String,
    scale: Scale,
    low: Option<f64>,
    high: Option<f64>,
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

/// An axis with both of its ends, laid out between two places.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    scale: Scale,
    ends: (f64, f64),
    places: (f64, f64),
    pub(super) ticks: Vec<(f64, String)>,
}

/// A linear axis has about so many ticks.
const TICKS: f64 = 6.0;

impl Axis {
    /// An axis from the least to the most that there is, and from nothing if that is near.
    pub fn new(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Linear, low: None, high: None, names: Vec::new() }
    }

    /// An axis on which every step is a multiple.
    pub fn logarithmic(label: &str) -> Self {
        Self { scale: Scale::Logarithmic, ..Self::new(label) }
    }

    /// An axis of names instead of numbers.
    pub fn of_names(label: &str, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let last = names.len() as f64 - 0.5;
        Self { names, ..Self::new(label).from(-0.5).to(last) }
    }

    /// From this number on.
    pub fn from(mut self, low: f64) -> Self {
        self.low = Some(low);
        self
    }

    /// Up to this number.
    pub fn to(mut self, high: f64) -> Self {
        self.high = Some(high);
        self
    }

    /// Lays it out between two places, for these values.
    pub(super) fn lay(&self, values: impl Iterator<Item = f64>, places: (f64, f64)) -> Laid {
        let usable = |value: &f64| value.is_finite() && (self.scale == Scale::Linear || *value > 0.0);
        let (least, most) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
        let (low, high) = (self.low.unwrap_or(least), self.high.unwrap_or(most));
        match self.scale {
            Scale::Linear => self.lay_linear(low, high, places),
            Scale::Logarithmic => self.lay_logarithmic(low, high, places),
        }
    }

    fn lay_linear(&self, low: f64, high: f64, places: (f64, f64)) -> Laid {
        let near_nothing = self.low.is_none() && low > 0.0 && low < 0.7 * high;
        let low = if near_nothing { 0.0 } else { low };
        let span = if high > low { high - low } else { low.abs().max(1.0) };
        let step = nice_step(span / TICKS);
        let low = if self.low.is_some() { low } else { (low / step).floor() * step };
        let high = if self.high.is_some() { high.max(low + step / 2.0) } else { ((low + span) / step).ceil() * step };
        let ticks = if self.names.is_empty() {
            let first = (low / step - 1e-9).ceil() as i64;
            let last = (high / step + 1e-9).floor() as i64;
            (first..=last).map(|number| number as f64 * step).map(|at| (at, linear_words(at, step))).collect()
        } else {
            self.names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect()
        };
        Laid { scale: self.scale, ends: (low, high), places, ticks }
    }

    fn lay_logarithmic(&self, low: f64, high: f64, places: (f64, f64)) -> Laid {
        let high = high.max(low * 1.01);
        let decades = (high / low).log10();
        let heads: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32 + 1);
        let all: Vec<f64> =
            (first..=last).flat_map(|power| heads.iter().map(move |head| head * 10f64.powi(power))).collect();
        let below = all.iter().rev().find(|tick| **tick <= low * 1.001).copied();
        let above = all.iter().find(|tick| **tick >= high * 0.999).copied();
        let low = self.low.or(below).unwrap_or(low);
        let high = self.high.or(above).unwrap_or(high);
        let ticks = all.into_iter().filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001);
        let ticks = ticks.map(|tick| (tick, logarithmic_words(tick))).collect();
        Laid { scale: self.scale, ends: (low, high), places, ticks }
    }
}

impl Laid {
    /// The place of a value; what lies outside is at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (low, high) = self.ends;
        let part = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic => (value.max(1e-300) / low).ln() / (high / low).ln(),
        };
        let (from, to) = self.places;
        from + part.clamp(0.0, 1.0) * (to - from)
    }

    /// Whether a value is on it.
    pub(super) fn holds(&self, value: f64) -> bool {
        let slack = (self.ends.1 - self.ends.0) * 1e-9;
        (self.ends.0 - slack..=self.ends.1 + slack).contains(&value)
    }

    /// Where bars stand.
    pub(super) fn bottom(&self) -> f64 {
        self.place(if self.scale == Scale::Linear { 0.0 } else { self.ends.0 })
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let head = step / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| head <= nice * 1.000_001).unwrap_or(10.0);
    nice * power
}

fn linear_words(at: f64, step: f64) -> String {
    let decimals = (0..6).find(|decimals| is_whole(step * 10f64.powi(*decimals))).unwrap_or(6) as usize;
    let at = if at.abs() < step / 2.0 { 0.0 } else { at };
    with_thousands(&format!("{at:.decimals$}"))
}

fn logarithmic_words(at: f64) -> String {
    let decimals = (-at.log10().floor()).max(0.0) as usize;
    with_thousands(&format!("{at:.decimals$}"))
}

fn is_whole(number: f64) -> bool {
    (number - number.round()).abs() < 1e-6
}

/// 12345 is 12,345.
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

    fn words(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.lay(values.iter().copied(), (0.0, 100.0)).ticks.into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn ticks_are_at_round_numbers() {
        assert_eq!(words(&Axis::new("x"), &[3.0, 397.0]), ["0", "100", "200", "300", "400"]);
        assert_eq!(
            words(&Axis::new("x"), &[16.6, 16.9]),
            ["16.60", "16.65", "16.70", "16.75", "16.80", "16.85", "16.90"]
        );
        assert_eq!(
            words(&Axis::new("x").from(0.0).to(5_000.0), &[]),
            ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]
        );
        assert_eq!(words(&Axis::new("x"), &[-20.0, 15.0]), ["−20", "−10", "0", "10", "20"]);
        assert_eq!(words(&Axis::logarithmic("x"), &[0.02, 300.0]), ["0.01", "0.1", "1", "10", "100", "1,000"]);
        assert_eq!(words(&Axis::logarithmic("x"), &[3.0, 40.0]), ["2", "5", "10", "20", "50"]);
        assert_eq!(words(&Axis::of_names("x", ["a", "b"]), &[]), ["a", "b"]);
    }

    #[test]
    fn whatever_is_asked_for_has_a_place() {
        for values in [&[][..], &[0.0], &[5.0, 5.0], &[f64::NAN, f64::INFINITY], &[-1.0]] {
            for axis in [Axis::new("x"), Axis::logarithmic("x"), Axis::new("x").from(3.0).to(3.0)] {
                let laid = axis.lay(values.iter().copied(), (10.0, 90.0));
                for value in [-1e9, 0.0, 1.0, 1e9] {
                    assert!((10.0..=90.0).contains(&laid.place(value)), "{axis:?} {values:?}");
                }
                assert!(laid.ticks.len() < 20, "{laid:?}");
            }
        }
    }

    #[test]
    fn a_logarithmic_axis_has_equal_steps_for_equal_multiples() {
        let laid = Axis::logarithmic("x").lay([1.0, 100.0].into_iter(), (0.0, 100.0));
        assert_eq!((laid.place(1.0), laid.place(10.0), laid.place(100.0)), (0.0, 50.0, 100.0));
    }
}
