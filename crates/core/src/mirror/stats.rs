//! Statistics of a mirror, for display, for traces and for the lab.

use crate::time::TimeDelta;

/// Number of buckets in the GTD histogram. The last bucket also counts every GTD above its range.
pub const GTD_BUCKETS: usize = 500;
/// Width of a bucket of the GTD histogram.
pub const GTD_BUCKET_WIDTH: TimeDelta = TimeDelta::from_millis(1);

/// Statistics of a mirror since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorStats {
    /// Events issued by this mirror.
    pub issued: u64,
    /// Delivered events, this mirror's own included.
    pub delivered: u64,
    /// Delivered events of other mirrors with a GTD above [`DropPolicy::threshold`](super::DropPolicy::threshold).
    pub over_threshold: u64,
    /// Events delivered after one that is later in the total order; 0 in correlated order.
    pub out_of_order: u64,
    /// Obsolete events that were received and not delivered.
    pub dropped: u64,
    /// Obsolete events that were dropped before they arrived.
    pub skipped: u64,
    /// Dropped events that are not obsolete, under [`DropPolicy::TwoCurve`](super::DropPolicy::TwoCurve) only.
    pub abandoned: u64,
    /// Missing events requested from other mirrors; every repeated request counts again.
    pub requested: u64,
    /// Events retransmitted on request.
    pub retransmitted: u64,
    /// Received events that had arrived before or were already settled.
    pub duplicates: u64,
    /// Received events that were discarded because they are more than 4,096 events ahead of the last settled one.
    pub refused: u64,
    /// Snapshots created for other mirrors, and snapshots installed here.
    pub snapshots: (u64, u64),
    /// Datagrams that [`Mirror::poll_transmit`](super::Mirror::poll_transmit) returned, and their bytes. A datagram to
    /// all peers counts once.
    pub sent: (u64, u64),
    /// Received datagrams, including ignored ones, and their bytes.
    pub received: (u64, u64),
    /// Received datagrams that could not be decoded.
    pub malformed: u64,
    /// Sum of the GTD of all delivered events of other mirrors, in nanoseconds. The sum can exceed [`TimeDelta::MAX`].
    gtd_sum_ns: u128,
    /// Smallest GTD of a delivered event of another mirror; [`TimeDelta::MAX`] before the first.
    pub gtd_min: TimeDelta,
    /// Largest GTD of a delivered event of another mirror; 0 before the first.
    pub gtd_max: TimeDelta,
    /// Histogram of the GTD of delivered events of other mirrors, in buckets of [`GTD_BUCKET_WIDTH`].
    pub gtd_histogram: [u64; GTD_BUCKETS],
}

impl Default for MirrorStats {
    fn default() -> Self {
        Self {
            issued: 0,
            delivered: 0,
            over_threshold: 0,
            out_of_order: 0,
            dropped: 0,
            skipped: 0,
            abandoned: 0,
            requested: 0,
            retransmitted: 0,
            duplicates: 0,
            refused: 0,
            snapshots: (0, 0),
            sent: (0, 0),
            received: (0, 0),
            malformed: 0,
            gtd_sum_ns: 0,
            gtd_min: TimeDelta::MAX,
            gtd_max: TimeDelta::ZERO,
            gtd_histogram: [0; GTD_BUCKETS],
        }
    }
}

impl MirrorStats {
    /// Records the GTD of a delivered event of another mirror.
    pub(super) fn on_gtd(&mut self, gtd: TimeDelta, threshold: TimeDelta) {
        self.over_threshold += u64::from(gtd > threshold);
        self.gtd_sum_ns += gtd.as_nanos().max(0) as u128;
        self.gtd_min = self.gtd_min.min(gtd);
        self.gtd_max = self.gtd_max.max(gtd);
        let bucket = (gtd.as_nanos().max(0) / GTD_BUCKET_WIDTH.as_nanos()) as usize;
        self.gtd_histogram[bucket.min(GTD_BUCKETS - 1)] += 1;
    }

    /// Returns the number of delivered events of other mirrors.
    pub fn remote_delivered(&self) -> u64 {
        self.gtd_histogram.iter().sum()
    }

    /// Returns the mean GTD of the delivered events of other mirrors; `None` before the first.
    pub fn gtd_mean(&self) -> Option<TimeDelta> {
        let mean = self.gtd_sum_ns.checked_div(self.remote_delivered().into())?;
        Some(TimeDelta::from_nanos(mean as i64))
    }

    /// Returns the sum of the GTD of the delivered events of other mirrors, in seconds.
    pub fn gtd_sum_s(&self) -> f64 {
        self.gtd_sum_ns as f64 / 1e9
    }

    /// Returns the GTD that `thousandths` of 1,000 delivered events of other mirrors did not exceed, as the upper end
    /// of its bucket in the histogram, at most 500 ms. `None` before the first delivery.
    pub fn gtd_quantile(&self, thousandths: u32) -> Option<TimeDelta> {
        let rank = (self.remote_delivered() * u64::from(thousandths)).div_ceil(1_000).max(1);
        let mut sum = 0;
        let bucket = self.gtd_histogram.iter().position(|count| {
            sum += *count;
            sum >= rank
        })?;
        Some(GTD_BUCKET_WIDTH * (bucket as i64 + 1))
    }
}

/// Statistics of a peer's clock and event stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MirrorPeerStats {
    /// Smoothed round-trip time; `None` before the first measurement.
    pub rtt: Option<TimeDelta>,
    /// Mean deviation of the round-trip time.
    pub jitter: TimeDelta,
    /// Offset of the peer's clock from the local clock, positive if the peer's clock is ahead; `None` until it is
    /// measured.
    pub clock_offset: Option<TimeDelta>,
    /// Number of the peer's events after `settled` that have arrived or are already settled.
    pub backlog: usize,
    /// Number of the peer's events that are known to exist and have not arrived.
    pub missing: usize,
    /// Sequence number up to which all events of the peer are settled here.
    pub settled: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gtd_quantiles_match_the_histogram() {
        let mut stats = MirrorStats::default();
        assert_eq!((stats.gtd_mean(), stats.gtd_quantile(500)), (None, None));
        for millis in 1..=100 {
            stats.on_gtd(TimeDelta::from_millis(millis), TimeDelta::from_millis(90));
        }
        stats.on_gtd(TimeDelta::from_secs(9), TimeDelta::from_millis(90));
        assert_eq!((stats.remote_delivered(), stats.over_threshold), (101, 11));
        assert_eq!(stats.gtd_quantile(500), Some(TimeDelta::from_millis(52)));
        assert_eq!(stats.gtd_quantile(1_000), Some(TimeDelta::from_millis(500)));
        assert_eq!(stats.gtd_mean(), Some(TimeDelta::from_nanos(14_050_000_000 / 101)));
        assert!((stats.gtd_sum_s() - 14.05).abs() < 1e-9);
        assert_eq!((stats.gtd_min, stats.gtd_max), (TimeDelta::from_millis(1), TimeDelta::from_secs(9)));
    }

    /// At 15,000 events per second with a GTD of 50 ms, the counter passes 2³² after 3.3 days and the sum passes
    /// [`TimeDelta::MAX`] after 142 days.
    #[test]
    fn gtd_counters_do_not_overflow() {
        let mut stats = MirrorStats { gtd_sum_ns: i64::MAX as u128, ..MirrorStats::default() };
        stats.gtd_histogram[50] = u32::MAX.into();
        stats.on_gtd(TimeDelta::from_millis(50), TimeDelta::from_millis(90));
        assert_eq!(stats.remote_delivered(), 1 << 32);
        assert!(stats.gtd_sum_s() > TimeDelta::MAX.as_secs_f64());
    }
}
