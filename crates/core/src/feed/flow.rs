//! How much to ask for at once: about what is under way on a line that is just full.
//!
//! After BBR (Cardwell et al., 2016): the best rate of late times the least round trip, and a little more. Loss by itself does not
//! slow it down, so a bad line is used as well as it can be.

use super::PART;
use crate::time::{Instant, TimeDelta};

/// Times over which the rate is measured that are remembered.
const SPANS: usize = 8;
/// The least and the most to be under way, in bytes.
const LEAST: u64 = 8 * PART as u64;
const MOST: u64 = 512 * PART as u64;
/// No rate is measured over less time.
const SHORTEST: TimeDelta = TimeDelta::from_millis(50);

/// The measured line from a source.
#[derive(Debug)]
pub(super) struct Flow {
    rtt_min: Option<TimeDelta>,
    rtt: TimeDelta,
    window: u64,
    since: Instant,
    bytes: u64,
    rates: [u64; SPANS],
    spans: usize,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Self {
        let rtt = TimeDelta::from_millis(200);
        Self { rtt_min: None, rtt, window: LEAST, since: now, bytes: 0, rates: [0; SPANS], spans: 0 }
    }

    /// Something came this long after it was asked for.
    pub(super) fn on_rtt(&mut self, sample: TimeDelta) {
        let sample = sample.max(TimeDelta::from_millis(1));
        self.rtt = if self.rtt_min.is_none() { sample } else { (self.rtt * 7 + sample) / 8 };
        self.rtt_min = Some(self.rtt_min.map_or(sample, |least| least.min(sample)));
    }

    /// The first answer came this long after the last of several questions; which one was answered is not known. If it was an earlier
    /// one the way is longer, and that will show.
    pub(super) fn on_first_answer(&mut self, sample: TimeDelta) {
        self.rtt = sample.clamp(TimeDelta::from_millis(50), TimeDelta::from_secs(2));
    }

    /// Something did not come. As long as the round trip is not known for sure it may be longer than we think; what is asked for
    /// twice would never tell.
    pub(super) fn on_late(&mut self) {
        if self.rtt_min.is_none() {
            self.rtt = (self.rtt * 3 / 2).min(TimeDelta::from_secs(2));
        }
    }

    /// Something came this long after it was asked for, if it was not something else.
    pub(super) fn on_doubtful_rtt(&mut self, sample: TimeDelta) {
        self.rtt = (self.rtt * 7 + sample) / 8;
    }

    /// Something that was asked for came.
    pub(super) fn on_bytes(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as u64;
        let rtt = self.rtt_min.unwrap_or(self.rtt);
        let span = now - self.since;
        if span < rtt.max(SHORTEST) {
            return;
        }
        let rate = self.bytes * 1_000_000 / (span.as_micros().max(1) as u64);
        let best = self.rates.iter().copied().max().unwrap_or(0);
        self.rates[self.spans % SPANS] = rate;
        self.spans += 1;
        let under_way = best.max(rate) * rtt.as_micros().max(0) as u64 / 1_000_000;
        let more = if rate * 10 > best * 11 { under_way } else { under_way / 2 };
        self.window = (under_way + more + 4 * PART as u64).clamp(LEAST, MOST);
        (self.since, self.bytes) = (now, 0);
    }

    /// Nothing is under way: this time says nothing about the line.
    pub(super) fn on_idle(&mut self, now: Instant) {
        (self.since, self.bytes) = (now, 0);
    }

    /// How many bytes may be under way.
    pub(super) fn window(&self) -> usize {
        self.window as usize
    }

    /// What does not come for so long is asked for again.
    pub(super) fn retry(&self) -> TimeDelta {
        (self.rtt * 3 / 2 + TimeDelta::from_millis(100)).clamp(TimeDelta::from_millis(150), TimeDelta::from_secs(3))
    }

    /// The same where nothing else is to be asked for, so that the line is about to be idle.
    pub(super) fn retry_last(&self) -> TimeDelta {
        (self.rtt * 9 / 8 + TimeDelta::from_millis(30)).min(self.retry())
    }

    /// By so much may one packet overtake another.
    pub(super) fn slack(&self) -> TimeDelta {
        (self.rtt / 8 + TimeDelta::from_millis(5)).min(TimeDelta::from_millis(50))
    }
}
