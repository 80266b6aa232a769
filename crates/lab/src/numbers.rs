//! Small things that all experiments do with numbers.

use coplay::time::TimeDelta;
use coplay_sim::link::{LinkConfig, Loss};

/// The mean; nothing of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The papers' "average deviation": the mean absolute difference from the mean.
pub fn mean_absolute_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len().max(1) as f64
}

/// The largest; nothing of nothing.
pub fn max_or_zero(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

/// The smallest.
pub fn min_or_infinity(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The value that this part of all, from 0 to 1, does not pass.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// So many milliseconds.
pub fn ms(millis: f64) -> TimeDelta {
    TimeDelta::from_nanos((millis * 1e6).round() as i64)
}

/// A link of this round trip.
pub fn constant_rtt_link(rtt_ms: f64) -> LinkConfig {
    LinkConfig::constant_rtt(ms(rtt_ms))
}

/// A link of this round trip that loses this part of all packets, each by itself.
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
