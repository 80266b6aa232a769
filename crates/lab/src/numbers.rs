//! Statistics and link helpers shared by the experiments.

use coplay::time::TimeDelta;
use coplay_links::link::{LinkConfig, Loss};

/// Returns the mean, or 0 for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the "average deviation" of Zhao et al.: the mean absolute difference of the values from their mean; 0 for an
/// empty slice.
pub fn mean_absolute_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len().max(1) as f64
}

/// Returns the largest value, but at least 0; 0 for an empty iterator.
pub fn max_or_zero(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

/// Returns the smallest value, or infinity for an empty iterator.
pub fn min_or_infinity(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the quantile of the values at the fraction `part`, from 0 (the smallest) to 1 (the largest), without
/// interpolation: the sorted value whose index is nearest to `part` × (count − 1). Returns 0 for an empty slice.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (part * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// Converts milliseconds to a [`TimeDelta`].
pub fn ms(millis: f64) -> TimeDelta {
    TimeDelta::from_nanos((millis * 1e6).round() as i64)
}

/// Returns link conditions with a constant round-trip time, half of it in each direction, and no loss.
pub fn constant_rtt_link(rtt_ms: f64) -> LinkConfig {
    LinkConfig::constant_rtt(ms(rtt_ms))
}

/// Returns link conditions with a constant round-trip time, half of it in each direction, in which each packet is lost
/// independently with probability `loss`.
pub fn lossy_link(rtt_ms: f64, loss: f64) -> LinkConfig {
    LinkConfig { loss: if loss > 0.0 { Loss::Independent(loss) } else { Loss::None }, ..constant_rtt_link(rtt_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_known_values() {
        let values = [3.0, 1.0, 2.0, 10.0];
        assert_eq!((mean(&values), mean_absolute_deviation(&values)), (4.0, 3.0));
        assert_eq!(
            (max_or_zero(values), min_or_infinity(values), quantile(&values, 0.0), quantile(&values, 1.0)),
            (10.0, 1.0, 1.0, 10.0)
        );
        assert_eq!((mean(&[]), quantile(&[], 0.5), max_or_zero([])), (0.0, 0.0, 0.0));
    }
}
