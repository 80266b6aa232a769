//! When frames begin: at fixed distances, whatever the frames before took.

use std::time::{Duration, Instant};

/// Who is later than this starts anew instead of hurrying after.
const RESYNC_THRESHOLD: Duration = Duration::from_millis(100);

/// The plan of frames.
#[derive(Debug)]
pub struct FrameTimer {
    period: Duration,
    next_frame_time: Instant,
}

impl FrameTimer {
    /// Frames at this distance, the first at once.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self { period, next_frame_time: now }
    }

    /// When the next frame begins, at so many times the usual speed.
    pub fn next_frame_time(&mut self, now: Instant, speed: u32) -> Instant {
        self.next_frame_time += self.period / speed.max(1);
        if now > self.next_frame_time + RESYNC_THRESHOLD {
            self.next_frame_time = now;
        }
        self.next_frame_time
    }

    /// Waits for that.
    pub fn wait(&mut self, speed: u32) {
        sleep_until(self.next_frame_time(Instant::now(), speed));
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
    fn late_frame_keeps_the_schedule_and_long_sleep_resets_it() {
        let (start, period) = (Instant::now(), Duration::from_millis(10));
        let mut pace = FrameTimer::new(start, period);
        assert_eq!(pace.next_frame_time(start + period * 3, 1), start + period);
        assert_eq!(pace.next_frame_time(start + period * 3, 1), start + period * 2);
        assert_eq!(pace.next_frame_time(start + period * 3, 2), start + period * 5 / 2);
        let awake = start + Duration::from_secs(5);
        assert_eq!(pace.next_frame_time(awake, 1), awake);
    }
}
