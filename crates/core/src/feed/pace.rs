//! When a frame that was received is given out: evenly, a little behind, and fast when far behind.

use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// The rate of the game is measured over this time.
const MEASURED: TimeDelta = TimeDelta::from_secs(1);
/// A game slower than its rate by more than this stutters here as well.
const SLOWEST: i64 = 4;

/// The pace of one who watches.
#[derive(Debug)]
pub(super) struct Pace {
    rate: TimeDelta,
    /// The time from one frame to the next, as the game goes.
    period: TimeDelta,
    mark: Option<(Instant, Frame)>,
    /// So many frames are to be left when the next come.
    spare: u32,
    /// So many frames behind what is wanted are made up for at once.
    far: u32,
    /// Frames that come at once.
    batch: u32,
    live: bool,
    due: Instant,
    /// How many were left when the last ones came, smoothed, in 1/16 frames.
    left: i64,
    /// Nothing has been left since then.
    empty: Option<Instant>,
}

/// What to do with the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Not yet.
    Wait,
    /// Give it out, as one of many.
    Hurry,
    /// Give it out, to be shown.
    Show,
}

impl Pace {
    pub(super) fn new(rate: TimeDelta, spare: u32, far: u32) -> Self {
        Self {
            rate,
            period: rate,
            mark: None,
            spare,
            far,
            batch: 6,
            live: false,
            due: Instant::from_nanos(i64::MIN),
            left: i64::from(spare) * 16,
            empty: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// A source puts so many frames into a batch.
    pub(super) fn on_batch(&mut self, frames: u8) {
        self.batch = u32::from(frames).max(1);
    }

    /// Not live any more.
    pub(super) fn restart(&mut self) {
        (self.live, self.mark) = (false, None);
    }

    /// Frames have come up to `newest`, while `ready` were left.
    pub(super) fn on_frames(&mut self, now: Instant, newest: Frame, ready: u32) {
        self.left += (i64::from(ready) * 16 - self.left) / 4;
        let Some((since, frame)) = self.mark else {
            self.mark = Some((now, newest));
            return;
        };
        let (time, frames) = (now - since, newest - frame);
        if time >= MEASURED {
            if frames > 0 {
                let measured = (time / frames).clamp(self.rate - self.rate / 50, self.rate * SLOWEST);
                self.period = (self.period * 3 + measured) / 4;
            }
            self.mark = Some((now, newest));
        }
    }

    /// What to do now, with `ready` frames here and the players `behind` frames ahead, as far as is known.
    pub(super) fn step(&mut self, now: Instant, ready: u32, behind: u32) -> Step {
        let wanted = self.spare + self.batch;
        if !self.live && behind > wanted {
            return if ready > 0 { Step::Hurry } else { Step::Wait };
        }
        if self.live && behind > wanted + self.far {
            self.restart();
            return self.step(now, ready, behind);
        }
        if !self.live {
            (self.live, self.due, self.left) = (true, now, i64::from(self.spare) * 16);
        }
        if ready == 0 {
            if self.due <= now {
                self.empty.get_or_insert(now);
            }
            return Step::Wait;
        }
        if let Some(since) = self.empty {
            if ready < self.spare && now - since < self.period * i64::from(self.spare) {
                return Step::Wait;
            }
            (self.empty, self.due) = (None, now);
        }
        if self.due <= now { Step::Show } else { Step::Wait }
    }

    /// Whether the next frame should have been shown already.
    pub(super) fn is_starving(&self) -> bool {
        self.empty.is_some()
    }

    /// A frame was given out to be shown.
    pub(super) fn on_shown(&mut self, now: Instant) {
        let error = self.left / 16 - i64::from(self.spare);
        let percent = error.clamp(-5, 5);
        let step = self.period - self.period * percent / 100;
        self.due = (self.due + step).max(now - self.period);
    }

    /// When to ask again, with so many frames here.
    pub(super) fn next(&self, now: Instant, ready: u32, behind: u32) -> Option<Instant> {
        if ready == 0 {
            return (self.live && self.empty.is_none()).then_some(self.due.max(now));
        }
        match self.empty {
            Some(since) if ready < self.spare => Some(since + self.period * i64::from(self.spare)),
            _ if self.live && behind <= self.spare + self.batch + self.far => Some(self.due.max(now)),
            _ => Some(now),
        }
    }
}
