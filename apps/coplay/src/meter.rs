//! How many of something there are in a second, of late.

use std::time::{Duration, Instant};

/// How often the number is told anew.
const SPAN: Duration = Duration::from_secs(1);

/// Counts.
#[derive(Debug)]
pub struct Meter {
    since: Instant,
    count: u32,
    told: f64,
}

impl Meter {
    /// Counts from now on.
    pub fn new(now: Instant) -> Self {
        Self { since: now, count: 0, told: 0.0 }
    }

    /// One more.
    pub fn tick(&mut self, now: Instant) {
        self.count += 1;
        let passed = now.saturating_duration_since(self.since);
        if passed >= SPAN {
            self.told = f64::from(self.count) / passed.as_secs_f64();
            (self.since, self.count) = (now, 0);
        }
    }

    /// In a second.
    pub fn per_second(&self) -> f64 {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_per_second() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        (1..=120).for_each(|n| meter.tick(start + Duration::from_millis(n * 10)));
        assert!((meter.per_second() - 100.0).abs() < 0.01);
    }
}
