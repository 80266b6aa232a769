//! Repairs in good time: between frames, where nobody waits for them.
//!
//! A guess that turns out wrong could be repaired when the next frame begins; but then that frame is late by what the repair takes. It is
//! done before, just early enough: inputs that come until then are repaired together.

use super::event::Request;
use super::{Aim, Phase, Session, Step};
use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// How long repairs take.
#[derive(Debug, Default)]
pub(super) struct Mending {
    /// Since when one is under way, and of how many frames.
    began: Option<(Instant, i64)>,
    /// What one took of late, for each frame of it.
    each: TimeDelta,
    /// The frame before which there was one: what comes after that waits until the frame begins.
    before: Option<Frame>,
}

impl Mending {
    pub(super) fn begin(&mut self, now: Instant, frames: i64) {
        self.began = Some((now, frames));
    }

    /// The machine is where it should be.
    pub(super) fn end(&mut self, now: Instant) {
        let Some((began, frames)) = self.began.take() else { return };
        let each = (now - began) / frames.max(1);
        self.each += (each - self.each) / 4;
    }

    /// What a repair of so many frames will take, with a quarter to spare.
    fn estimate(&self, frames: i64) -> TimeDelta {
        self.each * frames * 5 / 4
    }
}

impl Session {
    /// When to begin with a repair, so that the next frame need not wait for it.
    pub(super) fn next_mend(&self) -> Instant {
        let Some(wrong) = self.wrong.filter(|_| self.mending.before != Some(self.frame)) else {
            return Instant::FAR_FUTURE;
        };
        self.next_begin() - self.mending.estimate(self.frame - wrong)
    }

    /// Begins with a repair if it is time.
    pub(super) fn mend(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.next_mend() > now {
            return None;
        }
        let wrong = self.wrong.take()?;
        self.mending.before = Some(self.frame);
        self.phase = Phase::Running(Step::Run { aim: Aim::Rest, saved: true });
        Some(self.repair(now, wrong))
    }

    /// The machine is where it should be before the next frame.
    pub(super) fn rest(&mut self, now: Instant) {
        self.mending.end(now);
        self.phase = Phase::Running(Step::Rest);
    }
}
