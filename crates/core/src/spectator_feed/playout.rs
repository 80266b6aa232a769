//! When a frame that was received is given out: evenly, a little behind, and fast when far behind.

use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// The rate of the game is measured over this time.
const RATE_MEASUREMENT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// A game slower than its rate by more than this stutters here as well.
const MAX_SLOWDOWN: i64 = 4;

/// The pace of one who watches.
#[derive(Debug)]
pub(super) struct PlayoutPacer {
    nominal_period: TimeDelta,
    /// The time from one frame to the next, as the game goes.
    measured_period: TimeDelta,
    measurement_start: Option<(Instant, Frame)>,
    /// So many frames are to be left when the next come.
    target_buffer: u32,
    /// So many frames behind what is wanted are made up for at once.
    catch_up_threshold: u32,
    /// Frames that come at once.
    batch_frames: u32,
    is_live: bool,
    next_frame_at: Instant,
    /// How many were left when the last ones came, smoothed, in 1/16 frames.
    smoothed_buffer: i64,
    /// Nothing has been left since then.
    starved_since: Option<Instant>,
}

/// What to do with the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayoutStep {
    /// Not yet.
    Wait,
    /// Give it out, as one of many.
    CatchUp,
    /// Give it out, to be shown.
    Present,
}

impl PlayoutPacer {
    pub(super) fn new(rate: TimeDelta, spare: u32, far: u32) -> Self {
        Self {
            nominal_period: rate,
            measured_period: rate,
            measurement_start: None,
            target_buffer: spare,
            catch_up_threshold: far,
            batch_frames: 6,
            is_live: false,
            next_frame_at: Instant::from_nanos(i64::MIN),
            smoothed_buffer: i64::from(spare) * 16,
            starved_since: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// A source puts so many frames into a batch.
    pub(super) fn on_batch(&mut self, frames: u8) {
        self.batch_frames = u32::from(frames).max(1);
    }

    /// Not live any more.
    pub(super) fn restart(&mut self) {
        (self.is_live, self.measurement_start) = (false, None);
    }

    /// Frames have come up to `newest`, while `ready` were left.
    pub(super) fn on_frames(&mut self, now: Instant, newest: Frame, ready: u32) {
        self.smoothed_buffer += (i64::from(ready) * 16 - self.smoothed_buffer) / 4;
        let Some((since, frame)) = self.measurement_start else {
            self.measurement_start = Some((now, newest));
            return;
        };
        let (time, frames) = (now - since, newest - frame);
        if time >= RATE_MEASUREMENT_INTERVAL {
            if frames > 0 {
                let measured = (time / frames)
                    .clamp(self.nominal_period - self.nominal_period / 50, self.nominal_period * MAX_SLOWDOWN);
                self.measured_period = (self.measured_period * 3 + measured) / 4;
            }
            self.measurement_start = Some((now, newest));
        }
    }

    /// What to do now, with `ready` frames here and the players `behind` frames ahead, as far as is known.
    pub(super) fn step(&mut self, now: Instant, ready: u32, behind: u32) -> PlayoutStep {
        let wanted = self.target_buffer + self.batch_frames;
        if !self.is_live && behind > wanted {
            return if ready > 0 { PlayoutStep::CatchUp } else { PlayoutStep::Wait };
        }
        if self.is_live && behind > wanted + self.catch_up_threshold {
            self.restart();
            return self.step(now, ready, behind);
        }
        if !self.is_live {
            (self.is_live, self.next_frame_at, self.smoothed_buffer) = (true, now, i64::from(self.target_buffer) * 16);
        }
        if ready == 0 {
            if self.next_frame_at <= now {
                self.starved_since.get_or_insert(now);
            }
            return PlayoutStep::Wait;
        }
        if let Some(since) = self.starved_since {
            if ready < self.target_buffer && now - since < self.measured_period * i64::from(self.target_buffer) {
                return PlayoutStep::Wait;
            }
            (self.starved_since, self.next_frame_at) = (None, now);
        }
        if self.next_frame_at <= now { PlayoutStep::Present } else { PlayoutStep::Wait }
    }

    /// Whether the next frame should have been shown already.
    pub(super) fn is_starved(&self) -> bool {
        self.starved_since.is_some()
    }

    /// A frame was given out to be shown.
    pub(super) fn on_presented(&mut self, now: Instant) {
        let error = self.smoothed_buffer / 16 - i64::from(self.target_buffer);
        let percent = error.clamp(-5, 5);
        let step = self.measured_period - self.measured_period * percent / 100;
        self.next_frame_at = (self.next_frame_at + step).max(now - self.measured_period);
    }

    /// When to ask again, with so many frames here.
    pub(super) fn next_step_at(&self, now: Instant, ready: u32, behind: u32) -> Option<Instant> {
        if ready == 0 {
            return (self.is_live && self.starved_since.is_none()).then_some(self.next_frame_at.max(now));
        }
        match self.starved_since {
            Some(since) if ready < self.target_buffer => {
                Some(since + self.measured_period * i64::from(self.target_buffer))
            }
            _ if self.is_live && behind <= self.target_buffer + self.batch_frames + self.catch_up_threshold => {
                Some(self.next_frame_at.max(now))
            }
            _ => Some(now),
        }
    }
}
