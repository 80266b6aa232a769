//! What things cost.

use std::time::{Duration, Instant};

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use serde::{Deserialize, Serialize};

/// What one thing takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingPercentiles {
    /// One in ten takes less, in nanoseconds: what the machine itself takes, however busy the computer is with other things.
    pub p10_ns: u64,
    /// Half of them take less, in nanoseconds.
    pub median_ns: u64,
    /// Nineteen out of twenty take less, in nanoseconds. More than the machine's own fault where the computer is busy.
    pub p95_ns: u64,
}

/// What a machine costs on this computer. What it never did is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredCosts {
    /// To step a frame that is seen and heard.
    pub step_rendered: TimingPercentiles,
    /// To step one that is not.
    pub step_headless: TimingPercentiles,
    /// To save.
    pub save: TimingPercentiles,
    /// To load.
    pub load: TimingPercentiles,
    /// To hash.
    pub hash: TimingPercentiles,
    /// Bytes of the longest state.
    pub state_bytes: u64,
}

impl MeasuredCosts {
    /// As a session wants to know it. Both kinds of steps are one there, and the dearer counts.
    pub fn median_costs(&self) -> MachineCosts {
        self.costs_from(|timing| timing.median_ns)
    }

    /// Likewise, when nobody else wants the computer.
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

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct TimingSamples {
    pub(super) step_rendered: Vec<Duration>,
    pub(super) step_headless: Vec<Duration>,
    pub(super) save: Vec<Duration>,
    pub(super) load: Vec<Duration>,
    pub(super) hash: Vec<Duration>,
    pub(super) state_bytes: u64,
}

/// Does it, and notes how long it took.
pub(super) fn time_call<T>(samples: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    samples.push(begun.elapsed());
    done
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
    let at = |percent: usize| samples.get(samples.len() * percent / 100).map_or(0, |time| time.as_nanos() as u64);
    TimingPercentiles { p10_ns: at(10), median_ns: at(50), p95_ns: at(95) }
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
