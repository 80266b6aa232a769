//! How many of something there are in a second, of late.

use std::time::{Duration, Instant};

/// How often the number is told anew.
const AVERAGING_WINDOW: Duration = Duration::from_secs(1);

/// Counts.
#[derive(Debug)]
pub struct RateMeter {
    window_start: Instant,
    count: u32,
    rate: f64,
}

impl RateMeter {
    /// Counts from now on.
    pub fn new(now: Instant) -> Self {
        Self { window_start: now, count: 0, rate: 0.0 }
    }

    /// One more.
    pub fn count_event(&mut self, now: Instant) {
        self.count += 1;
        let passed = now.saturating_duration_since(self.window_start);
        if passed >= AVERAGING_WINDOW {
            self.rate = f64::from(self.count) / passed.as_secs_f64();
            (self.window_start, self.count) = (now, 0);
        }
    }

    /// In a second.
    pub fn per_second(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_events_per_second() {
        let start = Instant::now();
        let mut meter = RateMeter::new(start);
        (1..=120).for_each(|n| meter.count_event(start + Duration::from_millis(n * 10)));
        assert!((meter.per_second() - 100.0).abs() < 0.01);
    }
}
