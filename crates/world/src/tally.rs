//! How consistent what a player saw was, over a whole game.

use coplay::time::{Instant, TimeDelta};

use crate::client::Client;

/// How often it is looked at.
const EVERY: TimeDelta = TimeDelta::from_millis(500);

/// What discrepancies came to: of the player's own avatar, and of all that it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    next: Option<Instant>,
    own: Sum,
    all: Sum,
    /// How many of all were as consistent as they should be.
    tolerated: u64,
}

/// Of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    sum: f64,
    count: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn average(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Tally {
    /// Looks at what a player sees, when it is time.
    pub fn look(&mut self, now: Instant, client: &Client) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + EVERY);
        for (entity, consistency) in client.consistencies() {
            let one = Sum { sum: consistency.discrepancy, count: 1 };
            self.all.add(one);
            self.tolerated += u64::from(consistency.is_tolerated());
            if client.me() == Some(entity) {
                self.own.add(one);
            }
        }
    }

    /// What others saw counts, too.
    pub fn add(&mut self, other: &Self) {
        self.own.add(other.own);
        self.all.add(other.all);
        self.tolerated += other.tolerated;
    }

    /// D of the player's own avatar on average, in units times seconds; nothing if it was never known.
    pub fn own(&self) -> Option<f64> {
        self.own.average()
    }

    /// D of all that was seen on average, in units times seconds; nothing if it was never known.
    pub fn average(&self) -> Option<f64> {
        self.all.average()
    }

    /// The share of them that was as consistent as it should be, from 0 to 1; nothing if it was never known.
    pub fn tolerated(&self) -> Option<f64> {
        (self.all.count > 0).then(|| self.tolerated as f64 / self.all.count as f64)
    }
}
