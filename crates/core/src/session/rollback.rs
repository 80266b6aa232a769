//! Repairs in good time: between frames, where nobody waits for them.
//!
//! A guess that turns out wrong could be repaired when the next frame begins; but then that frame is late by what the repair takes. It is
//! done before, just early enough: inputs that come until then are repaired together.

use super::event::Request;
use super::{FramePhase, Phase, Session, SimulationTarget};
use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// How long repairs take.
#[derive(Debug, Default)]
pub(super) struct RollbackScheduler {
    /// Since when one is under way, and of how many frames.
    running: Option<(Instant, i64)>,
    /// What one took of late, for each frame of it.
    cost_per_frame: TimeDelta,
    /// The frame before which there was one: what comes after that waits until the frame begins.
    done_before: Option<Frame>,
}

impl RollbackScheduler {
    pub(super) fn begin(&mut self, now: Instant, frames: i64) {
        self.running = Some((now, frames));
    }

    /// The machine is where it should be.
    pub(super) fn end(&mut self, now: Instant) {
        let Some((began, frames)) = self.running.take() else { return };
        let each = (now - began) / frames.max(1);
        self.cost_per_frame += (each - self.cost_per_frame) / 4;
    }

    /// What a repair of so many frames will take, with a quarter to spare.
    fn estimated_cost(&self, frames: i64) -> TimeDelta {
        self.cost_per_frame * frames * 5 / 4
    }
}

impl Session {
    /// When to begin with a repair, so that the next frame need not wait for it.
    pub(super) fn next_rollback_time(&self) -> Instant {
        let Some(wrong) = self.first_misprediction.filter(|_| self.rollback_scheduler.done_before != Some(self.frame))
        else {
            return Instant::FAR_FUTURE;
        };
        self.next_frame_time() - self.rollback_scheduler.estimated_cost(self.frame - wrong)
    }

    /// Begins with a repair if it is time.
    pub(super) fn roll_back_if_due(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.next_rollback_time() > now {
            return None;
        }
        let wrong = self.first_misprediction.take()?;
        self.rollback_scheduler.done_before = Some(self.frame);
        self.phase = Phase::Running(FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, is_saved: true });
        Some(self.begin_rollback(now, wrong))
    }

    /// The machine is where it should be before the next frame.
    pub(super) fn finish_early_rollback(&mut self, now: Instant) {
        self.rollback_scheduler.end(now);
        self.phase = Phase::Running(FramePhase::Idle);
    }
}
