//! How consistent what a player saw was, over a whole game.

use coplay::time::{Instant, TimeDelta};

use crate::client::Client;

/// How often it is looked at.
const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

/// What discrepancies came to: of the player's own avatar, and of all that it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConsistencySummary {
    next_sample: Option<Instant>,
    own_discrepancy: RunningMean,
    all_discrepancies: RunningMean,
    /// How many of all were as consistent as they should be.
    tolerated: u64,
}

/// Of some numbers.
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
    /// Looks at what a player sees, when it is time.
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

    /// What others saw counts, too.
    pub fn merge(&mut self, other: &Self) {
        self.own_discrepancy.merge(other.own_discrepancy);
        self.all_discrepancies.merge(other.all_discrepancies);
        self.tolerated += other.tolerated;
    }

    /// D of the player's own avatar on average, in units times seconds; nothing if it was never known.
    pub fn own_discrepancy(&self) -> Option<f64> {
        self.own_discrepancy.mean()
    }

    /// D of all that was seen on average, in units times seconds; nothing if it was never known.
    pub fn mean_discrepancy(&self) -> Option<f64> {
        self.all_discrepancies.mean()
    }

    /// The share of them that was as consistent as it should be, from 0 to 1; nothing if it was never known.
    pub fn tolerated(&self) -> Option<f64> {
        (self.all_discrepancies.count > 0).then(|| self.tolerated as f64 / self.all_discrepancies.count as f64)
    }
}
