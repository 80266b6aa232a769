//! Conditions of a link: delay, jitter, reordering, loss, duplication, and a bottleneck.

use std::sync::Arc;

use coplay::time::TimeDelta;

/// Conditions in one direction of a path. The default is a perfect link. To change one condition of a preset, write
/// `LinkConfig { reorder: true, ..LinkConfig::wifi() }`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// One-way delay of a packet before jitter.
    pub delay: Delay,
    /// Random delay added to the base delay of each packet, duplicates included.
    pub jitter: Jitter,
    /// Whether a packet may overtake packets that were sent before it. If not, it arrives no earlier than they and
    /// their duplicates.
    pub reorder: bool,
    /// Model that decides which packets are lost.
    pub loss: Loss,
    /// Probability that a packet that is not lost arrives twice. The duplicate has a delay of its own.
    pub duplicate: f64,
    /// Bottleneck of the path; `None` if the rate is unlimited.
    pub rate: Option<Rate>,
}

/// Base delay of a packet, before jitter. A delay below zero counts as zero.
#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    /// The same delay for every packet.
    Constant(TimeDelta),
    /// Normal distribution, cut off at zero.
    Normal {
        /// Mean of the distribution before it is cut off at zero.
        mean: TimeDelta,
        /// Standard deviation of the distribution before it is cut off at zero.
        sd: TimeDelta,
    },
    /// [Log-normal distribution](crate::random::LogNormal), with the long tail of measured delays.
    LogNormal {
        /// Mean of the base delay.
        mean: TimeDelta,
        /// Standard deviation of the base delay.
        sd: TimeDelta,
    },
    /// Recorded delays: the n-th packet sent over the link has the n-th delay, and the sequence repeats after its end.
    /// A duplicate takes a random one of them. An empty sequence is no delay.
    Recorded(Arc<[TimeDelta]>),
}

/// Random delay added to the base delay of each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Jitter {
    /// No added delay.
    #[default]
    None,
    /// Uniformly distributed between zero and this delay.
    Uniform(TimeDelta),
    /// Exponentially distributed.
    Exponential {
        /// Mean of the added delay.
        mean: TimeDelta,
    },
}

/// Model of packet loss in one direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability, independently of the others.
    Independent(f64),
    /// Bursts of loss: the two-state chain of Gilbert and Elliott. The link starts in the good state and may change its
    /// state before each packet.
    Bursty {
        /// Probability, per packet, to go from good to bad.
        enter: f64,
        /// Probability, per packet, to go from bad to good.
        leave: f64,
        /// Probability to lose a packet in the bad state.
        bad: f64,
        /// Probability to lose a packet in the good state.
        good: f64,
    },
    /// Outages: every packet sent during an outage is lost, and none between two. The link starts without an outage.
    Outages {
        /// Mean fraction of the time that is outage, below 1.
        part: f64,
        /// Mean length of an outage; lengths are exponentially distributed.
        mean: TimeDelta,
    },
}

/// Bottleneck of a path with a drop-tail queue in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Rate in bytes per second. Zero counts as one.
    pub bytes_per_second: u64,
    /// Queue capacity in bytes, including the rest of the packet being sent. A packet that need not wait always passes.
    pub queue_bytes: u64,
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(TimeDelta::ZERO)
    }
}

impl Loss {
    /// Creates bursts in which every packet is lost, and between which none is. On average the fraction `mean_loss` of
    /// all packets is lost, `mean_burst` packets in a row. A `mean_burst` below 1 counts as 1.
    ///
    /// At least one packet arrives between two bursts. A `mean_loss` that is too high for that makes bursts longer than
    /// `mean_burst`.
    ///
    /// # Panics
    /// Unless 0 ≤ `mean_loss` < 1.
    pub fn bursts(mean_loss: f64, mean_burst: f64) -> Self {
        assert!((0.0..1.0).contains(&mean_loss), "mean loss {mean_loss} is not in 0.0..1.0");
        let lost_per_arrived = mean_loss / (1.0 - mean_loss);
        let mean_burst = mean_burst.max(1.0).max(lost_per_arrived);
        Self::Bursty { enter: lost_per_arrived / mean_burst, leave: 1.0 / mean_burst, bad: 1.0, good: 0.0 }
    }
}

impl Rate {
    /// Returns the time that sending `bytes` takes, rounded down to the nanosecond.
    pub(super) fn time_for(self, bytes: u64) -> TimeDelta {
        let nanos = bytes.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1);
        TimeDelta::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }
}
