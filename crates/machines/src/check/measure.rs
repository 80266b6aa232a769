//! What things cost.

use std::time::{Duration, Instant};

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use serde::{Deserialize, Serialize};

/// What one thing takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// One in ten takes less, in nanoseconds: what the machine itself takes, however busy the computer is with other things.
    pub p10_ns: u64,
    /// Half of them take less, in nanoseconds.
    pub median_ns: u64,
    /// Nineteen out of twenty take less, in nanoseconds. More than the machine's own fault where the computer is busy.
    pub p95_ns: u64,
}

/// What a machine costs on this computer. What it never did is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// To step a frame that is seen and heard.
    pub fresh: Timing,
    /// To step one that is not.
    pub unseen: Timing,
    /// To save.
    pub save: Timing,
    /// To load.
    pub load: Timing,
    /// To hash.
    pub hash: Timing,
    /// Bytes of the longest state.
    pub state_bytes: u64,
}

impl Measured {
    /// As a session wants to know it. Both kinds of steps are one there, and the dearer counts.
    pub fn costs(&self) -> MachineCosts {
        self.costs_by(|timing| timing.median_ns)
    }

    /// Likewise, when nobody else wants the computer.
    pub fn costs_at_best(&self) -> MachineCosts {
        self.costs_by(|timing| timing.p10_ns)
    }

    fn costs_by(&self, nanos: fn(Timing) -> u64) -> MachineCosts {
        let delta = |timing| TimeDelta::from_nanos(nanos(timing).min(i64::MAX as u64) as i64);
        MachineCosts { step: delta(self.fresh).max(delta(self.unseen)), save: delta(self.save), load: delta(self.load) }
    }
}

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) fresh: Vec<Duration>,
    pub(super) unseen: Vec<Duration>,
    pub(super) save: Vec<Duration>,
    pub(super) load: Vec<Duration>,
    pub(super) hash: Vec<Duration>,
    pub(super) state_bytes: u64,
}

/// Does it, and notes how long it took.
pub(super) fn timed<T>(samples: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    samples.push(begun.elapsed());
    done
}

impl Samples {
    pub(super) fn measured(mut self) -> Measured {
        Measured {
            fresh: timing(&mut self.fresh),
            unseen: timing(&mut self.unseen),
            save: timing(&mut self.save),
            load: timing(&mut self.load),
            hash: timing(&mut self.hash),
            state_bytes: self.state_bytes,
        }
    }
}

fn timing(samples: &mut [Duration]) -> Timing {
    samples.sort_unstable();
    let at = |percent: usize| samples.get(samples.len() * percent / 100).map_or(0, |time| time.as_nanos() as u64);
    Timing { p10_ns: at(10), median_ns: at(50), p95_ns: at(95) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_call_changes_no_median() {
        let mut samples: Vec<Duration> = (1..=99).map(Duration::from_nanos).collect();
        samples.push(Duration::from_secs(1));
        samples.reverse();
        assert_eq!(timing(&mut samples), Timing { p10_ns: 11, median_ns: 51, p95_ns: 96 });
        assert_eq!(timing(&mut []), Timing::default());
    }
}
