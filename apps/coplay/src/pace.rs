//! When frames begin: at fixed distances, whatever the frames before took.

use std::time::{Duration, Instant};

/// Who is later than this starts anew instead of hurrying after.
const LATE: Duration = Duration::from_millis(100);

/// The plan of frames.
#[derive(Debug)]
pub struct Pace {
    period: Duration,
    next: Instant,
}

impl Pace {
    /// Frames at this distance, the first at once.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self { period, next: now }
    }

    /// When the next frame begins, at so many times the usual speed.
    pub fn next(&mut self, now: Instant, speed: u32) -> Instant {
        self.next += self.period / speed.max(1);
        if now > self.next + LATE {
            self.next = now;
        }
        self.next
    }

    /// Waits for that.
    pub fn wait(&mut self, speed: u32) {
        sleep_until(self.next(Instant::now(), speed));
    }
}

/// Sleeps until an instant; does not spin.
pub fn sleep_until(at: Instant) {
    let mut now = Instant::now();
    while now < at {
        std::thread::sleep(at - now);
        now = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_frame_does_not_delay_the_plan_but_a_long_sleep_does() {
        let (start, period) = (Instant::now(), Duration::from_millis(10));
        let mut pace = Pace::new(start, period);
        assert_eq!(pace.next(start + period * 3, 1), start + period);
        assert_eq!(pace.next(start + period * 3, 1), start + period * 2);
        assert_eq!(pace.next(start + period * 3, 2), start + period * 5 / 2);
        let awake = start + Duration::from_secs(5);
        assert_eq!(pace.next(awake, 1), awake);
    }
}
