//! Measures the time of steps, saves, loads and hashes.

use std::time::{Duration, Instant};

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use serde::{Deserialize, Serialize};

/// Percentiles of the time of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingPercentiles {
    /// 10th percentile, in nanoseconds. It approximates the machine's own cost even on a busy computer.
    pub p10_ns: u64,
    /// Median, in nanoseconds.
    pub median_ns: u64,
    /// 95th percentile, in nanoseconds. On a busy computer it exceeds the machine's own cost.
    pub p95_ns: u64,
}

/// Costs of a machine on this computer. An operation that was never measured has the cost 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredCosts {
    /// Time to step a rendered frame.
    #[serde(rename = "fresh")]
    pub step_rendered: TimingPercentiles,
    /// Time to step a frame that is not rendered.
    #[serde(rename = "unseen")]
    pub step_headless: TimingPercentiles,
    /// Time to save a state.
    pub save: TimingPercentiles,
    /// Time to load a state.
    pub load: TimingPercentiles,
    /// Time to hash a state.
    pub hash: TimingPercentiles,
    /// Length in bytes of the longest state that was saved.
    pub state_bytes: u64,
}

impl MeasuredCosts {
    /// Returns the median costs for a session. The step cost is the higher one of rendered steps and steps that are not
    /// rendered.
    pub fn median_costs(&self) -> MachineCosts {
        self.costs_from(|timing| timing.median_ns)
    }

    /// Returns the costs for a session like [`median_costs`](Self::median_costs), but from the 10th percentiles, as an
    /// estimate of the costs on an idle computer.
    pub fn best_case_costs(&self) -> MachineCosts {
        self.costs_from(|timing| timing.p10_ns)
    }

    fn costs_from(&self, nanos: fn(TimingPercentiles) -> u64) -> MachineCosts {
        let delta = |timing| TimeDelta::from_nanos(nanos(timing).min(i64::MAX as u64) as i64);
        MachineCosts {
            step: delta(self.step_rendered).max(delta(self.step_headless)),
            save: delta(self.save),
            load: delta(self.load),
        }
    }
}

/// Durations measured so far, per operation.
#[derive(Debug, Default)]
pub(super) struct TimingSamples {
    pub(super) step_rendered: Vec<Duration>,
    pub(super) step_headless: Vec<Duration>,
    pub(super) save: Vec<Duration>,
    pub(super) load: Vec<Duration>,
    pub(super) hash: Vec<Duration>,
    pub(super) state_bytes: u64,
}

/// Runs `work` and adds its duration to `samples`.
pub(super) fn time_call<T>(samples: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    samples.push(started.elapsed());
    result
}

impl TimingSamples {
    pub(super) fn summarize(mut self) -> MeasuredCosts {
        MeasuredCosts {
            step_rendered: percentiles(&mut self.step_rendered),
            step_headless: percentiles(&mut self.step_headless),
            save: percentiles(&mut self.save),
            load: percentiles(&mut self.load),
            hash: percentiles(&mut self.hash),
            state_bytes: self.state_bytes,
        }
    }
}

fn percentiles(samples: &mut [Duration]) -> TimingPercentiles {
    samples.sort_unstable();
    let percentile =
        |percent: usize| samples.get(samples.len() * percent / 100).map_or(0, |time| time.as_nanos() as u64);
    TimingPercentiles { p10_ns: percentile(10), median_ns: percentile(50), p95_ns: percentile(95) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_call_does_not_change_the_median() {
        let mut samples: Vec<Duration> = (1..=99).map(Duration::from_nanos).collect();
        samples.push(Duration::from_secs(1));
        samples.reverse();
        assert_eq!(percentiles(&mut samples), TimingPercentiles { p10_ns: 11, median_ns: 51, p95_ns: 96 });
        assert_eq!(percentiles(&mut []), TimingPercentiles::default());
    }
}
