//! Schedule of frames, which start at fixed intervals even if single frames take longer. If a frame is more than 100 ms
//! late, the schedule restarts.

use std::time::{Duration, Instant};

/// Delay of a frame beyond which the schedule restarts from now, in place of a burst of frames that catches up.
const RESYNC_THRESHOLD: Duration = Duration::from_millis(100);

/// Start time of the frame that was scheduled last, and the period of frames at normal speed.
#[derive(Debug)]
pub struct FrameTimer {
    period: Duration,
    next_frame_time: Instant,
}

impl FrameTimer {
    /// Creates a schedule of frames `period` apart that starts now.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self { period, next_frame_time: now }
    }

    /// Advances the schedule by one frame at `speed` times the normal speed, and returns the start of that frame, which
    /// may have passed by at most 100 ms.
    pub fn next_frame_time(&mut self, now: Instant, speed: u32) -> Instant {
        self.next_frame_time += self.period / speed.max(1);
        if now > self.next_frame_time + RESYNC_THRESHOLD {
            self.next_frame_time = now;
        }
        self.next_frame_time
    }

    /// Sleeps until the start of the next frame, at `speed` times the normal speed.
    pub fn wait(&mut self, speed: u32) {
        sleep_until(self.next_frame_time(Instant::now(), speed));
    }
}

/// Sleeps until `deadline`, without spinning.
pub fn sleep_until(deadline: Instant) {
    let mut now = Instant::now();
    while now < deadline {
        std::thread::sleep(deadline - now);
        now = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_frame_keeps_the_schedule_and_long_sleep_resets_it() {
        let (start, period) = (Instant::now(), Duration::from_millis(10));
        let mut timer = FrameTimer::new(start, period);
        assert_eq!(timer.next_frame_time(start + period * 3, 1), start + period);
        assert_eq!(timer.next_frame_time(start + period * 3, 1), start + period * 2);
        assert_eq!(timer.next_frame_time(start + period * 3, 2), start + period * 5 / 2);
        let awake = start + Duration::from_secs(5);
        assert_eq!(timer.next_frame_time(awake, 1), awake);
    }
}
