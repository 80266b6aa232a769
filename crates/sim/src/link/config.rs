//! The conditions of a link.

use std::sync::Arc;

use coplay::time::TimeDelta;

/// The conditions in one direction of a path. The default is a perfect link; to change one thing about a
/// preset, write `LinkConfig { reorder: true, ..LinkConfig::wifi() }`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// How long a packet is under way.
    pub delay: Delay,
    /// What is added to the delay of each packet.
    pub jitter: Jitter,
    /// Whether a packet with a shorter delay may overtake. If not, it waits for those sent before it, copies included.
    pub reorder: bool,
    /// Which packets never arrive.
    pub loss: Loss,
    /// The probability that a packet that is not lost arrives twice. The copy has a delay of its own.
    pub duplicate: f64,
    /// The bottleneck of the path, if it has one.
    pub rate: Option<Rate>,
}

/// How long a packet is under way. A delay below zero counts as zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Constant(TimeDelta),
    /// The bell curve, cut off at zero.
    Normal {
        /// The mean, before the cut-off.
        mean: TimeDelta,
        /// The standard deviation, before the cut-off.
        sd: TimeDelta,
    },
    /// The [long tail](crate::random::LogNormal) that measured delays have.
    LogNormal {
        /// The mean of the delays.
        mean: TimeDelta,
        /// The standard deviation of the delays.
        sd: TimeDelta,
    },
    /// As measured: the n-th packet sent over the link has the n-th delay, and after the last comes the first again. A
    /// copy has any one of them. None at all is no delay.
    Recorded(Arc<[TimeDelta]>),
}

/// What is added to the delay of each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// Anything between nothing and this, all equally likely.
    Uniform(TimeDelta),
    /// Mostly little, sometimes much.
    Exponential {
        /// The mean of what is added.
        mean: TimeDelta,
    },
}

/// Which packets never arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// All arrive.
    #[default]
    None,
    /// Each is lost with this probability, whatever becomes of the others.
    Independent(f64),
    /// In bursts: the chain of two states of Gilbert and Elliott. The link begins in the good state, and before each
    /// packet it may change to the other.
    Bursty {
        /// The probability, per packet, to go from good to bad.
        enter: f64,
        /// The probability, per packet, to go from bad to good.
        leave: f64,
        /// The probability to lose a packet in the bad state.
        bad: f64,
        /// The probability to lose a packet in the good state.
        good: f64,
    },
    /// In outages: for a while all are lost, however many are sent, and between two of them none. The link begins well.
    Outages {
        /// The part of the time that is outage, below 1.
        part: f64,
        /// How long one lasts, on average; how long is exponential.
        mean: TimeDelta,
    },
}

/// The narrowest place of a path, and the queue in front of it, which drops what it cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How fast it sends. Zero counts as one.
    pub bytes_per_second: u64,
    /// How much may wait, counting what is left of the packet being sent. A packet that need not wait always passes.
    pub queue_bytes: u64,
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(TimeDelta::ZERO)
    }
}

impl Loss {
    /// Bursts in which every packet is lost, and between which none is: `mean_loss` of all packets, `mean_burst` in a row.
    ///
    /// Bursts are made longer than asked where so much loss needs it, for at least one packet between two bursts arrives.
    ///
    /// # Panics
    /// Unless 0 ≤ `mean_loss` < 1.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Self {
        assert!((0.0..1.0).contains(&mean_loss), "a mean loss of {mean_loss}");
        let lost_per_arrived = mean_loss / (1.0 - mean_loss);
        let mean_burst = mean_burst.max(1.0).max(lost_per_arrived);
        Self::Bursty { enter: lost_per_arrived / mean_burst, leave: 1.0 / mean_burst, bad: 1.0, good: 0.0 }
    }
}

impl Rate {
    /// How long sending so much takes, rounded down to the nanosecond.
    pub(super) fn time_for(self, bytes: u64) -> TimeDelta {
        let nanos = bytes.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1);
        TimeDelta::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}
