//! Settings of a motion server and its clients, their presets and bounds.

use super::TimerRate;
use crate::time::TimeDelta;

/// Method by which a client keeps its simulators in step with the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// As in the paper: the client estimates the delay to the server as the smoothed half of the round-trip time.
    Paper,
    /// With synchronized clocks: the client computes from the server's clock how far the server's simulator is on its
    /// segment.
    Clocks,
}

/// Settings of a motion server or client. All but `incarnation` should be equal at the server and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionConfig {
    /// Number of this run of the program. Later runs have greater numbers, so that the peers can tell them apart.
    pub incarnation: u32,
    /// Method by which a client keeps its simulators in step with the server's.
    pub method: SyncMethod,
    /// Time after a command within which a client combines further commands with it. The client then sends the result.
    pub combine_interval: TimeDelta,
    /// Bounds of the simulators' speed relative to real time.
    pub timer_rate: TimerRate,
    /// Share of a command's age at its arrival that the server compensates by running faster, from 0 to 1. The client
    /// that issued the command compensates the rest by running slower. Must be 0 with [`SyncMethod::Paper`].
    pub server_share: f64,
    /// Maximum speed at which corrections are displayed, in units per second; `None` displays them at once.
    pub correction_speed: Option<f64>,
    /// Time by which a simulator may be behind, and maximum duration of a displayed correction. A correction beyond
    /// this limit is made at once, because a gradual one would take too long.
    pub snap_threshold: TimeDelta,
    /// Time by which the server's timer on a segment may differ from the duration that the owner reports when it ends
    /// the segment. In sum, the owner cannot move further ahead than that; if it tries to, or reports another path, the
    /// server overrules it. With `None`, the server believes its clients.
    pub owner_tolerance: Option<TimeDelta>,
    /// Window over which discrepancies are measured.
    pub averaging_window: TimeDelta,
    /// Tolerated discrepancy over the averaging window, in units times seconds: ξ.
    pub tolerance: f64,
}

/// Reason why the settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionConfigError {
    /// `combine_interval` is negative or above 1 s.
    CombineInterval,
    /// `slowest` is not above 0 and below 1, or `fastest` is not above 1 and at most 8.
    TimerRate,
    /// `server_share` is not within 0 to 1, or is above 0 with [`SyncMethod::Paper`].
    ServerShare,
    /// `correction_speed` is not above 0.
    CorrectionSpeed,
    /// `snap_threshold` or `averaging_window` is below 100 ms or above 1 min.
    Durations,
}

impl core::fmt::Display for MotionConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::CombineInterval => "combine interval must be between 0 and 1 s",
            Self::TimerRate => "slowest timer rate must be above 0 and below 1, fastest above 1 and at most 8",
            Self::ServerShare => "server share must be between 0 and 1; without synchronized clocks it must be 0",
            Self::CorrectionSpeed => "correction speed must be above 0 units per second",
            Self::Durations => "snap threshold and averaging window must be between 100 ms and 1 min",
        })
    }
}

impl core::error::Error for MotionConfigError {}

impl MotionConfig {
    /// Returns the paper's settings: timers at 0.5 to 1.5 times real time, the delay estimated from halves of round
    /// trips, corrections displayed at once.
    pub const fn paper(incarnation: u32) -> Self {
        Self {
            method: SyncMethod::Paper,
            timer_rate: TimerRate::PAPER,
            correction_speed: None,
            ..Self::clocks(incarnation)
        }
    }

    /// Returns settings with synchronized clocks, which are not in the paper: timers at 0.5 to 2 times real time,
    /// corrections displayed at up to 10 units per second. The server share is 0, because the clients that follow the
    /// server would have to run faster to catch up with the server's share, too.
    pub const fn clocks(incarnation: u32) -> Self {
        Self {
            incarnation,
            method: SyncMethod::Clocks,
            combine_interval: TimeDelta::from_millis(50),
            timer_rate: TimerRate::OURS,
            server_share: 0.0,
            correction_speed: Some(10.0),
            snap_threshold: TimeDelta::from_secs(1),
            owner_tolerance: None,
            averaging_window: TimeDelta::from_secs(2),
            tolerance: 0.5,
        }
    }

    /// Checks the settings against the bounds that the variants of [`MotionConfigError`] state.
    pub fn check(&self) -> Result<(), MotionConfigError> {
        let durations = TimeDelta::from_millis(100)..=TimeDelta::from_secs(60);
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
        } else if !durations.contains(&self.snap_threshold) || !durations.contains(&self.averaging_window) {
            Err(MotionConfigError::Durations)
        } else {
            Ok(())
        }
    }
}
