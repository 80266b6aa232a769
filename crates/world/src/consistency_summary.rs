//! Consistency of a player's view over a whole game.

use coplay::time::{Instant, TimeDelta};

use crate::client::Client;

/// Interval between samples.
const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

/// Mean discrepancies of the player's own avatar and of all displayed avatars. Summaries of several players can be
/// merged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConsistencySummary {
    next_sample: Option<Instant>,
    own_discrepancy: RunningMean,
    all_discrepancies: RunningMean,
    /// Number of samples of all displayed avatars within the tolerance.
    tolerated: u64,
}

/// Running mean of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RunningMean {
    sum: f64,
    count: u64,
}

impl RunningMean {
    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl ConsistencySummary {
    /// Adds a sample of the consistency of each avatar that a client displays, at most every 500 ms.
    pub fn sample(&mut self, now: Instant, client: &Client) {
        if self.next_sample.is_some_and(|next| now < next) {
            return;
        }
        self.next_sample = Some(now + SAMPLE_INTERVAL);
        for (entity, consistency) in client.consistencies() {
            let one = RunningMean { sum: consistency.discrepancy, count: 1 };
            self.all_discrepancies.merge(one);
            self.tolerated += u64::from(consistency.is_tolerated());
            if client.own_entity() == Some(entity) {
                self.own_discrepancy.merge(one);
            }
        }
    }

    /// Adds the samples of another summary.
    pub fn merge(&mut self, other: &Self) {
        self.own_discrepancy.merge(other.own_discrepancy);
        self.all_discrepancies.merge(other.all_discrepancies);
        self.tolerated += other.tolerated;
    }

    /// Returns the mean D of the player's own avatar, in units times seconds; `None` without samples.
    pub fn own_discrepancy(&self) -> Option<f64> {
        self.own_discrepancy.mean()
    }

    /// Returns the mean D of all displayed avatars, in units times seconds; `None` without samples.
    pub fn mean_discrepancy(&self) -> Option<f64> {
        self.all_discrepancies.mean()
    }

    /// Returns the share of samples of all displayed avatars within the tolerance, from 0 to 1; `None` without samples.
    pub fn tolerated(&self) -> Option<f64> {
        (self.all_discrepancies.count > 0).then(|| self.tolerated as f64 / self.all_discrepancies.count as f64)
    }
}
