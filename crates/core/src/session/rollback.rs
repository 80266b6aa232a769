//! The rollback schedule: rollbacks run between frames, where no frame waits for them.
//!
//! A misprediction could be rolled back when the next frame begins, but then the resimulation would delay that frame.
//! So the rollback runs before that frame, as late as its measured cost allows: all mispredictions found until then
//! share one rollback.

use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// Measured cost of rollbacks, which determines when the next one begins.
#[derive(Debug, Default)]
pub(super) struct RollbackScheduler {
    /// Start of the running rollback, and its number of frames to resimulate.
    running: Option<(Instant, i64)>,
    /// Moving average of the duration per resimulated frame.
    cost_per_frame: TimeDelta,
    /// The frame before which a rollback has run. Later mispredictions wait until that frame begins.
    done_before: Option<Frame>,
}

impl RollbackScheduler {
    /// Begins a rollback of this many frames. `before` is the next frame if it has not begun.
    pub(super) fn begin(&mut self, now: Instant, frames: i64, before: Option<Frame>) {
        self.running = Some((now, frames));
        self.done_before = before.or(self.done_before);
    }

    /// Ends the measurement of a rollback, because the machine has caught up.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        let Some((began, frames)) = self.running.take() else { return };
        let per_frame = (now - began) / frames.max(1);
        self.cost_per_frame += (per_frame - self.cost_per_frame) / 4;
    }

    /// Returns whether a rollback has already run before a frame.
    pub(super) fn is_done_before(&self, frame: Frame) -> bool {
        self.done_before == Some(frame)
    }

    /// Returns the estimated duration of a rollback of this many frames, with a margin of 25 %.
    pub(super) fn estimated_cost(&self, frames: i64) -> TimeDelta {
        self.cost_per_frame * frames * 5 / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_follows_measured_cost_with_margin() {
        let mut rollbacks = RollbackScheduler::default();
        for start in 0..40 {
            let began = Instant::ZERO + TimeDelta::from_secs(start);
            rollbacks.begin(began, 4, Some(Frame::new(9)));
            rollbacks.end(began + TimeDelta::from_millis(8));
        }
        let cost = rollbacks.estimated_cost(4);
        assert!(cost > TimeDelta::from_micros(9_900) && cost <= TimeDelta::from_millis(10), "{cost}");
        assert!(rollbacks.is_done_before(Frame::new(9)) && !rollbacks.is_done_before(Frame::new(10)));
        rollbacks.begin(Instant::ZERO, 1, None);
        assert!(rollbacks.is_done_before(Frame::new(9)), "a rollback within a frame does not count");
    }
}
