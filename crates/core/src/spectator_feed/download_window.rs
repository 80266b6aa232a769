//! Congestion control for downloads: limits the requested bytes in flight to about as many as fill the link.
//!
//! After BBR (Cardwell et al., 2016): the window is the best recent delivery rate times the minimum round-trip time,
//! plus some headroom. Loss alone does not shrink the window, so a lossy link is still used fully.

use super::PART_SIZE;
use crate::time::{Instant, TimeDelta};

/// Number of delivery-rate samples kept. The window follows the highest of them.
const RATE_SAMPLES: usize = 8;
/// Smallest congestion window, in bytes.
const MIN_CONGESTION_WINDOW: u64 = 8 * PART_SIZE as u64;
/// Largest congestion window, in bytes.
const MAX_CONGESTION_WINDOW: u64 = 512 * PART_SIZE as u64;
/// Shortest interval over which the delivery rate is measured.
const MIN_RATE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// Congestion window of a download, and the delivery rate and round-trip time from which it follows.
#[derive(Debug)]
pub(super) struct DownloadWindow {
    rtt_min: Option<TimeDelta>,
    smoothed_rtt: TimeDelta,
    congestion_window: u64,
    interval_start: Instant,
    interval_bytes: u64,
    rate_samples: [u64; RATE_SAMPLES],
    sample_count: usize,
}

impl DownloadWindow {
    pub(super) fn new(now: Instant) -> Self {
        let rtt = TimeDelta::from_millis(200);
        Self {
            rtt_min: None,
            smoothed_rtt: rtt,
            congestion_window: MIN_CONGESTION_WINDOW,
            interval_start: now,
            interval_bytes: 0,
            rate_samples: [0; RATE_SAMPLES],
            sample_count: 0,
        }
    }

    /// Records the round-trip time of a request that was sent only once.
    pub(super) fn on_rtt(&mut self, sample: TimeDelta) {
        let sample = sample.max(TimeDelta::from_millis(1));
        self.smoothed_rtt = if self.rtt_min.is_none() { sample } else { (self.smoothed_rtt * 7 + sample) / 8 };
        self.rtt_min = Some(self.rtt_min.map_or(sample, |least| least.min(sample)));
    }

    /// Sets the first round-trip estimate when the subscribe request was sent several times. `sample` is the time from
    /// the last request to the answer. If the answer was to an earlier request, the true round-trip time is longer, and
    /// later samples will show it.
    pub(super) fn set_initial_rtt(&mut self, sample: TimeDelta) {
        self.smoothed_rtt = sample.clamp(TimeDelta::from_millis(50), TimeDelta::from_secs(2));
    }

    /// Handles a timeout of requests. Before the first unambiguous sample, the estimated round-trip time grows by half,
    /// up to 2 s, because the true one may be longer and repeated requests never yield an unambiguous sample.
    pub(super) fn on_timeout(&mut self) {
        if self.rtt_min.is_none() {
            self.smoothed_rtt = (self.smoothed_rtt * 3 / 2).min(TimeDelta::from_secs(2));
        }
    }

    /// Records a round-trip sample that may belong to a different request. The sample does not lower the minimum.
    pub(super) fn on_ambiguous_rtt(&mut self, sample: TimeDelta) {
        self.smoothed_rtt = (self.smoothed_rtt * 7 + sample) / 8;
    }

    /// Counts requested bytes that arrived, and updates the window at the end of each measurement interval.
    pub(super) fn on_bytes(&mut self, now: Instant, bytes: usize) {
        self.interval_bytes += bytes as u64;
        let rtt = self.rtt_min.unwrap_or(self.smoothed_rtt);
        let span = now - self.interval_start;
        if span < rtt.max(MIN_RATE_INTERVAL) {
            return;
        }
        let rate = self.interval_bytes * 1_000_000 / (span.as_micros().max(1) as u64);
        let best = self.rate_samples.iter().copied().max().unwrap_or(0);
        self.rate_samples[self.sample_count % RATE_SAMPLES] = rate;
        self.sample_count += 1;
        let in_flight = best.max(rate) * rtt.as_micros().max(0) as u64 / 1_000_000;
        let headroom = if rate * 10 > best * 11 { in_flight } else { in_flight / 2 };
        self.congestion_window =
            (in_flight + headroom + 4 * PART_SIZE as u64).clamp(MIN_CONGESTION_WINDOW, MAX_CONGESTION_WINDOW);
        (self.interval_start, self.interval_bytes) = (now, 0);
    }

    /// Restarts the rate measurement. While nothing is in flight, the arrival rate says nothing about the link.
    pub(super) fn on_idle(&mut self, now: Instant) {
        (self.interval_start, self.interval_bytes) = (now, 0);
    }

    /// Returns the number of requested bytes that may be in flight.
    pub(super) fn congestion_window(&self) -> usize {
        self.congestion_window as usize
    }

    /// Returns the time after which an unanswered request is repeated.
    pub(super) fn retry_timeout(&self) -> TimeDelta {
        (self.smoothed_rtt * 3 / 2 + TimeDelta::from_millis(100))
            .clamp(TimeDelta::from_millis(150), TimeDelta::from_secs(3))
    }

    /// Returns the retry timeout for the end of a download. It is at most [`retry_timeout`](Self::retry_timeout),
    /// because nothing else is left to request and the link is about to fall idle.
    pub(super) fn tail_retry_timeout(&self) -> TimeDelta {
        (self.smoothed_rtt * 9 / 8 + TimeDelta::from_millis(30)).min(self.retry_timeout())
    }

    /// Returns the longest delay by which one packet may overtake another before the other counts as lost.
    pub(super) fn reordering_tolerance(&self) -> TimeDelta {
        (self.smoothed_rtt / 8 + TimeDelta::from_millis(5)).min(TimeDelta::from_millis(50))
    }
}
