//! Numbers for people, for traces and for the lab.

use crate::time::TimeDelta;

/// The histogram has so many steps of this length; the last holds all that took longer.
pub const GTD_BUCKETS: usize = 500;
/// The length of a step.
pub const GTD_BUCKET_WIDTH: TimeDelta = TimeDelta::from_millis(1);

/// A mirror in numbers, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorStats {
    /// Events that were issued here.
    pub issued: u64,
    /// Events that were delivered, our own included.
    pub delivered: u64,
    /// Those of them that took longer than the policy's threshold.
    pub over_threshold: u64,
    /// Those that came after one that is later in the total order.
    pub out_of_order: u64,
    /// Obsolete events that were here and not delivered.
    pub dropped: u64,
    /// Obsolete events that were missing and not waited for.
    pub skipped: u64,
    /// Events that were given up though they are not obsolete.
    pub abandoned: u64,
    /// Events that were asked for again, each time counted.
    pub requested: u64,
    /// Events that were sent again because somebody asked.
    pub retransmitted: u64,
    /// Events that came and were known.
    pub duplicates: u64,
    /// Events for which there was no room.
    pub refused: u64,
    /// Snapshots that were given to others, and taken over.
    pub snapshots: (u64, u64),
    /// Datagrams that were handed out, and their bytes.
    pub sent: (u64, u64),
    /// Datagrams that came, and their bytes.
    pub received: (u64, u64),
    /// Datagrams that were no message.
    pub malformed: u64,
    /// How long events of others took, all together, in nanoseconds: more than a [`TimeDelta`] holds.
    gtd_sum_ns: u128,
    /// How long the quickest took.
    pub gtd_min: TimeDelta,
    /// How long the slowest took.
    pub gtd_max: TimeDelta,
    /// How many took how long, in steps of [`STEP`]; events of others only.
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
    /// An event of somebody else took so long.
    pub(super) fn on_gtd(&mut self, gtd: TimeDelta, threshold: TimeDelta) {
        self.over_threshold += u64::from(gtd > threshold);
        self.gtd_sum_ns += gtd.as_nanos().max(0) as u128;
        self.gtd_min = self.gtd_min.min(gtd);
        self.gtd_max = self.gtd_max.max(gtd);
        let step = (gtd.as_nanos().max(0) / GTD_BUCKET_WIDTH.as_nanos()) as usize;
        self.gtd_histogram[step.min(GTD_BUCKETS - 1)] += 1;
    }

    /// Events of others that were delivered.
    pub fn remote_delivered(&self) -> u64 {
        self.gtd_histogram.iter().sum()
    }

    /// How long events of others took on average.
    pub fn gtd_mean(&self) -> Option<TimeDelta> {
        let mean = self.gtd_sum_ns.checked_div(self.remote_delivered().into())?;
        Some(TimeDelta::from_nanos(mean as i64))
    }

    /// How long they took all together, in seconds.
    pub fn gtd_sum_s(&self) -> f64 {
        self.gtd_sum_ns as f64 / 1e9
    }

    /// This part of all events of others, in thousandths, took no longer; to the next step.
    pub fn gtd_quantile(&self, thousandths: u32) -> Option<TimeDelta> {
        let wanted = (self.remote_delivered() * u64::from(thousandths)).div_ceil(1_000).max(1);
        let mut sum = 0;
        let step = self.gtd_histogram.iter().position(|count| {
            sum += *count;
            sum >= wanted
        })?;
        Some(GTD_BUCKET_WIDTH * (step as i64 + 1))
    }
}

/// Another mirror in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MirrorPeerStats {
    /// Smoothed round-trip time.
    pub rtt: Option<TimeDelta>,
    /// Its mean deviation.
    pub jitter: TimeDelta,
    /// By how much its clock is ahead of ours.
    pub clock_offset: Option<TimeDelta>,
    /// Its events that are here and not delivered.
    pub backlog: usize,
    /// Its events that are missing.
    pub missing: usize,
    /// All its events up to this one are settled here.
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

    /// At 15,000 events a second this is what three and a half days, and half a year, come to.
    #[test]
    fn gtd_counters_do_not_overflow() {
        let mut stats = MirrorStats { gtd_sum_ns: i64::MAX as u128, ..MirrorStats::default() };
        stats.gtd_histogram[50] = u32::MAX.into();
        stats.on_gtd(TimeDelta::from_millis(50), TimeDelta::from_millis(90));
        assert_eq!(stats.remote_delivered(), 1 << 32);
        assert!(stats.gtd_sum_s() > TimeDelta::MAX.as_secs_f64());
    }
}
