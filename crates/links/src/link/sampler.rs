//! Delay and jitter sampling. The base delay is stored in the form that is fastest to draw from.

use std::sync::Arc;

use coplay::time::TimeDelta;

use super::{Delay, Jitter};
use crate::random::{LogNormal, Random};

/// A [`Delay`] with its parameters precomputed, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) enum DelaySampler {
    Constant(TimeDelta),
    Normal { mean: f64, sd: f64 },
    LogNormal(LogNormal),
    Recorded(Arc<[TimeDelta]>),
}

impl DelaySampler {
    pub(super) fn new(delay: &Delay) -> Self {
        match delay {
            Delay::Constant(delay) => Self::Constant(*delay),
            Delay::Normal { mean, sd } => Self::Normal { mean: nanos(*mean), sd: nanos(*sd) },
            Delay::LogNormal { mean, sd } => Self::LogNormal(LogNormal::new(nanos(*mean), nanos(*sd))),
            Delay::Recorded(delays) if delays.is_empty() => Self::Constant(TimeDelta::ZERO),
            Delay::Recorded(delays) => Self::Recorded(delays.clone()),
        }
    }

    /// Returns the base delay of the packet with this number, counted from 0 since the creation of the link.
    pub(super) fn sample(&self, number: u64, random: &mut Random) -> TimeDelta {
        match self {
            Self::Recorded(delays) => delays[(number % delays.len() as u64) as usize].max(TimeDelta::ZERO),
            _ => self.sample_for_copy(random),
        }
    }

    /// Returns the base delay of a duplicate. A recorded delay is picked at random, because a duplicate has no number.
    pub(super) fn sample_for_copy(&self, random: &mut Random) -> TimeDelta {
        let delay = match self {
            Self::Constant(delay) => *delay,
            Self::Normal { mean, sd } => from_nanos(random.normal(*mean, *sd)),
            Self::LogNormal(distribution) => from_nanos(distribution.sample(random)),
            Self::Recorded(delays) => *random.pick(delays),
        };
        delay.max(TimeDelta::ZERO)
    }
}

impl Jitter {
    /// Returns the delay to add to one packet, never negative.
    pub(super) fn sample(&self, random: &mut Random) -> TimeDelta {
        match self {
            Self::None => TimeDelta::ZERO,
            Self::Uniform(max) => TimeDelta::from_nanos(random.range(0..=max.as_nanos().max(0))),
            Self::Exponential { mean } => from_nanos(random.exponential(nanos(*mean))).max(TimeDelta::ZERO),
        }
    }
}

fn nanos(delta: TimeDelta) -> f64 {
    delta.as_nanos() as f64
}

fn from_nanos(nanos: f64) -> TimeDelta {
    TimeDelta::from_nanos(nanos as i64)
}
