//! Playout pacing: presents received frames at an even rate, a few frames behind the players, and fast-forwards when
//! further behind.

use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// Interval over which the frame rate of the game is measured.
const RATE_MEASUREMENT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Largest factor by which playout slows down to follow a slow game. Playout of an even slower game stutters.
const MAX_SLOWDOWN: i64 = 4;
/// Largest extension of the time between two presented frames, in percent.
const MAX_RATE_REDUCTION: i64 = 5;
/// Largest reduction of the time between two presented frames, in percent. The measured rate needs seconds to follow a
/// game that speeds up, and faster playout looks better than a skipped second.
const MAX_RATE_INCREASE: i64 = 25;

/// Pacer of a spectator: decides when the next frame is stepped, and whether it is presented.
#[derive(Debug)]
pub(super) struct PlayoutPacer {
    nominal_period: TimeDelta,
    /// Smoothed measurement of the time between two frames of the game.
    measured_period: TimeDelta,
    measurement_start: Option<(Instant, Frame)>,
    /// Frames that should be left in the buffer when the next batch arrives.
    target_buffer: u32,
    /// Number of frames by which a live spectator's distance to the source's newest frame may exceed the sum of the
    /// target buffer and one batch. Beyond it the spectator fast-forwards.
    catch_up_threshold: u32,
    /// Frames per batch of the source. The frames of a batch arrive together.
    batch_frames: u32,
    is_live: bool,
    next_frame_at: Instant,
    /// Frames left in the buffer when a batch arrived, as a moving average in 1/16 frames.
    smoothed_buffer: i64,
    /// Time at which the buffer was found empty when a frame was due; `None` once playout has resumed.
    starved_since: Option<Instant>,
}

/// Decision of the pacer about the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlayoutStep {
    /// Do not step a frame yet.
    Wait,
    /// Step the frame without presenting it.
    CatchUp,
    /// Step the frame and present it.
    Present,
}

impl PlayoutPacer {
    pub(super) fn new(nominal_period: TimeDelta, target_buffer: u32, catch_up_threshold: u32) -> Self {
        Self {
            nominal_period,
            measured_period: nominal_period,
            measurement_start: None,
            target_buffer,
            catch_up_threshold,
            batch_frames: 6,
            is_live: false,
            next_frame_at: Instant::from_nanos(i64::MIN),
            smoothed_buffer: i64::from(target_buffer) * 16,
            starved_since: None,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Sets the number of frames per batch of the source.
    pub(super) fn on_batch(&mut self, frames: u8) {
        self.batch_frames = u32::from(frames).max(1);
    }

    /// Leaves the live state, so that playout catches up before it presents frames again.
    pub(super) fn restart(&mut self) {
        (self.is_live, self.measurement_start) = (false, None);
    }

    /// Updates the average buffer level and the measured frame rate when frames arrive. `newest` is the frame after the
    /// source's last frame, `ready` the number of frames that were in the buffer before the arrival.
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

    /// Decides about the next frame, which is `behind` frames before the end of the source's frames, with `ready`
    /// frames in the buffer.
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

    /// Returns whether playout has run out of frames and waits until the buffer has refilled.
    pub(super) fn is_starved(&self) -> bool {
        self.starved_since.is_some()
    }

    /// Schedules the next frame after one was presented at `now`. The time between the two frames is the measured
    /// period, reduced by 1 % for each frame by which the average buffer level exceeds the target, up to 25 %, or
    /// extended by 1 % for each frame by which it falls short, up to 5 %.
    pub(super) fn on_presented(&mut self, now: Instant) {
        let error = self.smoothed_buffer / 16 - i64::from(self.target_buffer);
        let percent = error.clamp(-MAX_RATE_REDUCTION, MAX_RATE_INCREASE);
        let step = self.measured_period - self.measured_period * percent / 100;
        self.next_frame_at = (self.next_frame_at + step).max(now - self.measured_period);
    }

    /// Returns when to call [`step`](Self::step) again; `None` when only the arrival of a frame changes the decision.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a game whose frame rate doubles after 5 s, in batches of 6 frames. Returns the number of frames that were
    /// stepped without being presented after these 5 s, and the largest distance to the newest frame.
    fn play_a_game_that_speeds_up() -> (u32, u32) {
        let ms = |ms: i64| Instant::ZERO + TimeDelta::from_millis(ms);
        let mut playout = PlayoutPacer::new(TimeDelta::from_nanos(16_666_667), 6, 60);
        let (mut newest, mut next, mut skipped, mut max_behind) = (0_u32, 0_u32, 0, 0);
        for now in 0..15_000 {
            let frames = if now < 5_000 { now * 30 / 1_000 } else { 150 + (now - 5_000) * 60 / 1_000 } as u32;
            if frames - newest >= 6 {
                playout.on_frames(ms(now), Frame::new(frames), newest - next);
                newest = frames;
            }
            loop {
                match playout.step(ms(now), newest - next, newest - next) {
                    PlayoutStep::Wait => break,
                    PlayoutStep::CatchUp => skipped += u32::from(now > 5_000),
                    PlayoutStep::Present => playout.on_presented(ms(now)),
                }
                next += 1;
            }
            max_behind = max_behind.max(newest - next);
        }
        (skipped, max_behind)
    }

    #[test]
    fn live_spectator_follows_a_game_that_speeds_up() {
        let (skipped, max_behind) = play_a_game_that_speeds_up();
        assert_eq!(skipped, 0, "frames are not presented");
        assert!(max_behind < 50, "{max_behind} frames behind");
    }
}
