//! Algorithms 3 (EndFrameTiming) and 4 (BeginFrameTiming) of Zhao et al., line by line.

use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// A slave's knowledge of the master when a frame of the slave begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasterObservation {
    /// LastRcvFrame\[0\]: the newest frame for which the master's input has arrived.
    pub last_received: Frame,
    /// MasterRcvTime: arrival time of that input.
    pub received_at: Instant,
    /// The smoothed round-trip time to the master.
    pub rtt: TimeDelta,
}

/// Pacer after Algorithms 3 and 4 of Zhao et al. All fields except `next_start` have the paper's names.
#[derive(Debug)]
pub struct ZhaoPacer {
    time_per_frame: TimeDelta,
    buf_frame: u32,
    adjust_time_delta: TimeDelta,
    curr_frame_start: Instant,
    next_start: Instant,
}

impl ZhaoPacer {
    /// Creates a pacer for frames of `time_per_frame`, with the first frame at `start`. `buf_frame` is the paper's
    /// input delay in frames; a session passes input delay plus prediction window.
    pub fn new(time_per_frame: TimeDelta, buf_frame: u32, start: Instant) -> Self {
        Self {
            time_per_frame,
            buf_frame,
            adjust_time_delta: TimeDelta::ZERO,
            curr_frame_start: start,
            next_start: start,
        }
    }

    /// Returns the local time at which the next frame is to begin.
    pub fn next_start(&self) -> Instant {
        self.next_start
    }

    /// Returns TimePerFrame, the nominal time between two frames.
    pub fn period(&self) -> TimeDelta {
        self.time_per_frame
    }

    /// Begins `frame` at `curr_time` (Algorithm 4): adds the slave's distance from the master's frame times to the
    /// length of the frame. `master` is `None` at the master itself, before the master's first input has arrived, and
    /// where Algorithm 4 is not used.
    pub fn begin_frame_timing(&mut self, curr_time: Instant, frame: Frame, master: Option<MasterObservation>) {
        self.curr_frame_start = curr_time;
        let sync_adjust_time_delta = match master {
            None => TimeDelta::ZERO,
            Some(master) => {
                let ahead = (frame - master.last_received) + i64::from(self.buf_frame);
                self.time_per_frame * ahead - (curr_time - (master.received_at - master.rtt / 2))
            }
        };
        self.adjust_time_delta += sync_adjust_time_delta;
    }

    /// Ends the frame at `curr_time` and sets the start of the next one (Algorithm 3). After a frame that ran long, the
    /// next begins at once and is shorter by the excess.
    pub fn end_frame_timing(&mut self, curr_time: Instant) {
        let curr_frame_end = self.curr_frame_start + self.time_per_frame + self.adjust_time_delta;
        if curr_frame_end < curr_time {
            self.adjust_time_delta = curr_frame_end - curr_time;
            self.next_start = curr_time;
        } else {
            self.adjust_time_delta = TimeDelta::ZERO;
            self.next_start = curr_frame_end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: TimeDelta = TimeDelta::from_millis(16);

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn long_frame_is_repaid_by_the_next_and_short_frame_waits() {
        let mut paper = ZhaoPacer::new(PERIOD, 6, at(0));
        paper.begin_frame_timing(at(0), Frame::new(0), None);
        paper.end_frame_timing(at(20));
        assert_eq!(paper.next_start(), at(20), "4 ms too long: the next frame starts at once");
        paper.begin_frame_timing(at(20), Frame::new(1), None);
        paper.end_frame_timing(at(22));
        assert_eq!(paper.next_start(), at(32), "the next frame is 4 ms shorter");
    }

    #[test]
    fn slave_follows_master() {
        // The master's input for frame 16 (its frame 10) arrived at 1,000 ms with an RTT of 40 ms, so the master began
        // frame 10 at 980 ms.
        let master = MasterObservation {
            last_received: Frame::new(16),
            received_at: at(1_000),
            rtt: TimeDelta::from_millis(40),
        };
        let mut slave = ZhaoPacer::new(PERIOD, 6, at(0));
        // The master begins frame 12 at 980 + 2·16 = 1,012 ms. The slave begins it at 1,004 ms, 8 ms early.
        slave.begin_frame_timing(at(1_004), Frame::new(12), Some(master));
        slave.end_frame_timing(at(1_005));
        assert_eq!(slave.next_start(), at(1_004) + PERIOD + TimeDelta::from_millis(8));
    }
}
