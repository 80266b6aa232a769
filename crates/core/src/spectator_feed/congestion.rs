//! How much to ask for at once: about what is under way on a line that is just full.
//!
//! After BBR (Cardwell et al., 2016): the best rate of late times the least round trip, and a little more. Loss by itself does not
//! slow it down, so a bad line is used as well as it can be.

use super::PART_SIZE;
use crate::time::{Instant, TimeDelta};

/// Times over which the rate is measured that are remembered.
const RATE_SAMPLES: usize = 8;
/// The least and the most to be under way, in bytes.
const MIN_CONGESTION_WINDOW: u64 = 8 * PART_SIZE as u64;
const MAX_CONGESTION_WINDOW: u64 = 512 * PART_SIZE as u64;
/// No rate is measured over less time.
const MIN_RATE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// The measured line from a source.
#[derive(Debug)]
pub(super) struct CongestionControl {
    rtt_min: Option<TimeDelta>,
    smoothed_rtt: TimeDelta,
    congestion_window: u64,
    interval_start: Instant,
    interval_bytes: u64,
    rate_samples: [u64; RATE_SAMPLES],
    sample_count: usize,
}

impl CongestionControl {
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

    /// Something came this long after it was asked for.
    pub(super) fn on_rtt(&mut self, sample: TimeDelta) {
        let sample = sample.max(TimeDelta::from_millis(1));
        self.smoothed_rtt = if self.rtt_min.is_none() { sample } else { (self.smoothed_rtt * 7 + sample) / 8 };
        self.rtt_min = Some(self.rtt_min.map_or(sample, |least| least.min(sample)));
    }

    /// The first answer came this long after the last of several questions; which one was answered is not known. If it was an earlier
    /// one the way is longer, and that will show.
    pub(super) fn set_initial_rtt(&mut self, sample: TimeDelta) {
        self.smoothed_rtt = sample.clamp(TimeDelta::from_millis(50), TimeDelta::from_secs(2));
    }

    /// Something did not come. As long as the round trip is not known for sure it may be longer than we think; what is asked for
    /// twice would never tell.
    pub(super) fn on_timeout(&mut self) {
        if self.rtt_min.is_none() {
            self.smoothed_rtt = (self.smoothed_rtt * 3 / 2).min(TimeDelta::from_secs(2));
        }
    }

    /// Something came this long after it was asked for, if it was not something else.
    pub(super) fn on_ambiguous_rtt(&mut self, sample: TimeDelta) {
        self.smoothed_rtt = (self.smoothed_rtt * 7 + sample) / 8;
    }

    /// Something that was asked for came.
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
        let under_way = best.max(rate) * rtt.as_micros().max(0) as u64 / 1_000_000;
        let more = if rate * 10 > best * 11 { under_way } else { under_way / 2 };
        self.congestion_window =
            (under_way + more + 4 * PART_SIZE as u64).clamp(MIN_CONGESTION_WINDOW, MAX_CONGESTION_WINDOW);
        (self.interval_start, self.interval_bytes) = (now, 0);
    }

    /// Nothing is under way: this time says nothing about the line.
    pub(super) fn on_idle(&mut self, now: Instant) {
        (self.interval_start, self.interval_bytes) = (now, 0);
    }

    /// How many bytes may be under way.
    pub(super) fn congestion_window(&self) -> usize {
        self.congestion_window as usize
    }

    /// What does not come for so long is asked for again.
    pub(super) fn retry_timeout(&self) -> TimeDelta {
        (self.smoothed_rtt * 3 / 2 + TimeDelta::from_millis(100))
            .clamp(TimeDelta::from_millis(150), TimeDelta::from_secs(3))
    }

    /// The same where nothing else is to be asked for, so that the line is about to be idle.
    pub(super) fn tail_retry_timeout(&self) -> TimeDelta {
        (self.smoothed_rtt * 9 / 8 + TimeDelta::from_millis(30)).min(self.retry_timeout())
    }

    /// By so much may one packet overtake another.
    pub(super) fn reordering_tolerance(&self) -> TimeDelta {
        (self.smoothed_rtt / 8 + TimeDelta::from_millis(5)).min(TimeDelta::from_millis(50))
    }
}
