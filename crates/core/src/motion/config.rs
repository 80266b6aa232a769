//! What is chosen before anything moves.

use super::TimerRate;
use crate::time::TimeDelta;

/// How simulators are kept in step with the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// As the paper does it: by half of round trips, smoothed, and counting down.
    Paper,
    /// By clocks: who knows the server's knows exactly how far its simulator is.
    Clocks,
}

/// How motion is shared. The server and all its clients should have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionConfig {
    /// Which run of its program this is: later ones have greater numbers, so that nobody takes one for another.
    pub incarnation: u32,
    /// How simulators are kept in step.
    pub method: SyncMethod,
    /// Commands given within this time are combined into one.
    pub combine_interval: TimeDelta,
    /// How much slower and faster than time simulators may run.
    pub timer_rate: TimerRate,
    /// The share of a command's age that the server makes up for by being quicker, from 0 to 1. Its client makes up for the rest by being
    /// slower. Only by clocks.
    pub server_share: f64,
    /// Corrections of where something is are seen at this speed, in units a second; at once if there is none.
    pub correction_speed: Option<f64>,
    /// Who is further off than this, or would be seen to be corrected for longer, is put right at once: no gradual correction is worth so much time.
    pub snap_threshold: TimeDelta,
    /// What discrepancies are measured over.
    pub averaging_window: TimeDelta,
    /// The discrepancy that is tolerated in that time, in units times seconds: ξ.
    pub tolerance: f64,
}

/// Why nothing can move like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionConfigError {
    /// Commands are buffered for longer than a second, or for less than no time.
    CombineInterval,
    /// A pace that goes back, stands still, or is more than eight times as fast.
    TimerRate,
    /// The share is no share, or is wanted without clocks.
    ServerShare,
    /// Corrections do not get on.
    CorrectionSpeed,
    /// The leap, or the window, is shorter than 100 ms or longer than a minute.
    Durations,
}

impl core::fmt::Display for MotionConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::CombineInterval => "commands are buffered for up to a second",
            Self::TimerRate => {
                "simulators run at more than 0 and less than 1 when slow, and at more than 1 and up to 8 when fast"
            }
            Self::ServerShare => "the server makes up for between 0 and 1 of a command's age, and only by clocks",
            Self::CorrectionSpeed => "corrections go at more than 0 units a second",
            Self::Durations => "the leap and the window take between 100 ms and a minute",
        })
    }
}

impl core::error::Error for MotionConfigError {}

impl MotionConfig {
    /// The paper's: half and one and a half times as fast, by half of round trips; put right at once where somebody was wrong.
    pub const fn paper(run: u32) -> Self {
        Self { method: SyncMethod::Paper, timer_rate: TimerRate::PAPER, correction_speed: None, ..Self::clocks(run) }
    }

    /// Ours: by clocks, up to twice as fast. The server's share is nothing: it is what makes all pairs together best, since who has to catch
    /// up with the server would have to catch up with its share, too.
    pub const fn clocks(run: u32) -> Self {
        Self {
            incarnation: run,
            method: SyncMethod::Clocks,
            combine_interval: TimeDelta::from_millis(50),
            timer_rate: TimerRate::OURS,
            server_share: 0.0,
            correction_speed: Some(10.0),
            snap_threshold: TimeDelta::from_secs(1),
            averaging_window: TimeDelta::from_secs(2),
            tolerance: 0.5,
        }
    }

    /// Whether anything can move like that.
    pub fn check(&self) -> Result<(), MotionConfigError> {
        let times = TimeDelta::from_millis(100)..=TimeDelta::from_secs(60);
        if !(TimeDelta::ZERO..=TimeDelta::from_secs(1)).contains(&self.combine_interval) {
            Err(MotionConfigError::CombineInterval)
        } else if !self.timer_rate.is_valid() {
            Err(MotionConfigError::TimerRate)
        } else if !(0.0..=1.0).contains(&self.server_share)
            || (self.server_share > 0.0 && self.method == SyncMethod::Paper)
        {
            Err(MotionConfigError::ServerShare)
        } else if self.correction_speed.is_some_and(|speed| speed.is_nan() || speed <= 0.0) {
            Err(MotionConfigError::CorrectionSpeed)
        } else if !times.contains(&self.snap_threshold) || !times.contains(&self.averaging_window) {
            Err(MotionConfigError::Durations)
        } else {
            Ok(())
        }
    }
}
