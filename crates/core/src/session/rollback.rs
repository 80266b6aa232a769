//! The rollback schedule: rollbacks run between frames, where no frame waits for them.
//!
//! A misprediction could be rolled back when the next frame begins, but then the resimulation would delay that frame.
//! So the rollback runs before that frame, as late as its measured cost allows: all mispredictions found until then
//! share one rollback.

use super::Session;
use super::phase::{FramePhase, Phase, SimulationTarget};
use super::request::Request;
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
    pub(super) fn begin(&mut self, now: Instant, frames: i64) {
        self.running = Some((now, frames));
    }

    /// Ends the measurement of a rollback, because the machine has caught up.
    pub(super) fn end(&mut self, now: Instant) {
        let Some((began, frames)) = self.running.take() else { return };
        let per_frame = (now - began) / frames.max(1);
        self.cost_per_frame += (per_frame - self.cost_per_frame) / 4;
    }

    /// Returns the estimated duration of a rollback of this many frames, with a margin of 25 %.
    fn estimated_cost(&self, frames: i64) -> TimeDelta {
        self.cost_per_frame * frames * 5 / 4
    }
}

impl Session {
    /// Returns when to begin a rollback so that the next frame need not wait for it; [`Instant::FAR_FUTURE`] if there
    /// is nothing to roll back, or a rollback has already run before the next frame.
    pub(super) fn next_rollback_time(&self) -> Instant {
        let Some(mispredicted) =
            self.first_misprediction.filter(|_| self.rollback_scheduler.done_before != Some(self.frame))
        else {
            return Instant::FAR_FUTURE;
        };
        self.next_frame_time() - self.rollback_scheduler.estimated_cost(self.frame - mispredicted)
    }

    /// Begins a rollback if its time has come, and returns the request to load the state before the misprediction.
    pub(super) fn roll_back_if_due(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.next_rollback_time() > now {
            return None;
        }
        let mispredicted = self.first_misprediction.take()?;
        self.rollback_scheduler.done_before = Some(self.frame);
        self.phase = Phase::Running(FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, is_saved: true });
        Some(self.begin_rollback(now, mispredicted))
    }

    /// Ends a rollback that ran before the next frame began.
    pub(super) fn finish_early_rollback(&mut self, now: Instant) {
        self.rollback_scheduler.end(now);
        self.phase = Phase::Running(FramePhase::Idle);
    }
}
