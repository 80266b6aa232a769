//! Measures events per second, averaged over intervals of at least 1 s.

use std::time::{Duration, Instant};

/// Shortest interval over which the rate is averaged.
const AVERAGING_WINDOW: Duration = Duration::from_secs(1);

/// Meter of events per second.
#[derive(Debug)]
pub struct RateMeter {
    window_start: Instant,
    count: u32,
    rate: f64,
}

impl RateMeter {
    /// Creates a meter that counts from now on.
    pub fn new(now: Instant) -> Self {
        Self { window_start: now, count: 0, rate: 0.0 }
    }

    /// Counts one event at `now`, and updates the rate once per interval.
    pub fn count_event(&mut self, now: Instant) {
        self.count += 1;
        let elapsed = now.saturating_duration_since(self.window_start);
        if elapsed >= AVERAGING_WINDOW {
            self.rate = f64::from(self.count) / elapsed.as_secs_f64();
            (self.window_start, self.count) = (now, 0);
        }
    }

    /// Returns the events per second in the last complete interval; 0 before the first is complete.
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
