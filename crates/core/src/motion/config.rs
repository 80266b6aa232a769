//! What is chosen before anything moves.

use super::Pace;
use crate::time::TimeDelta;

/// How simulators are kept in step with the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As the paper does it: by half of round trips, smoothed, and counting down.
    Paper,
    /// By clocks: who knows the server's knows exactly how far its simulator is.
    Clocks,
}

/// How motion is shared. The server and all its clients should have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Which run of its program this is: later ones have greater numbers, so that nobody takes one for another.
    pub run: u32,
    /// How simulators are kept in step.
    pub method: Method,
    /// Commands given within this time are combined into one.
    pub buffer: TimeDelta,
    /// How much slower and faster than time simulators may run.
    pub pace: Pace,
    /// The share of a command's age that the server makes up for by being quicker, from 0 to 1. Its client makes up for the rest by being
    /// slower. Only by clocks.
    pub share: f64,
    /// Corrections of where something is are seen at this speed, in units a second; at once if there is none.
    pub glide: Option<f64>,
    /// Who is further off than this, or would be seen to be corrected for longer, is put right at once: no gradual correction is worth so much time.
    pub leap: TimeDelta,
    /// What discrepancies are measured over.
    pub window: TimeDelta,
    /// The discrepancy that is tolerated in that time, in units times seconds: ξ.
    pub tolerance: f64,
}

/// Why nothing can move like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Commands are buffered for longer than a second, or for less than no time.
    Buffer,
    /// A pace that goes back, stands still, or is more than eight times as fast.
    Pace,
    /// The share is no share, or is wanted without clocks.
    Share,
    /// Corrections do not get on.
    Glide,
    /// The leap, or the window, is shorter than 100 ms or longer than a minute.
    Times,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Buffer => "commands are buffered for up to a second",
            Self::Pace => {
                "simulators run at more than 0 and less than 1 when slow, and at more than 1 and up to 8 when fast"
            }
            Self::Share => "the server makes up for between 0 and 1 of a command's age, and only by clocks",
            Self::Glide => "corrections go at more than 0 units a second",
            Self::Times => "the leap and the window take between 100 ms and a minute",
        })
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// The paper's: half and one and a half times as fast, by half of round trips; put right at once where somebody was wrong.
    pub const fn paper(run: u32) -> Self {
        Self { method: Method::Paper, pace: Pace::PAPER, glide: None, ..Self::clocks(run) }
    }

    /// Ours: by clocks, up to twice as fast. The server's share is nothing: it is what makes all pairs together best, since who has to catch
    /// up with the server would have to catch up with its share, too.
    pub const fn clocks(run: u32) -> Self {
        Self {
            run,
            method: Method::Clocks,
            buffer: TimeDelta::from_millis(50),
            pace: Pace::OURS,
            share: 0.0,
            glide: Some(10.0),
            leap: TimeDelta::from_secs(1),
            window: TimeDelta::from_secs(2),
            tolerance: 0.5,
        }
    }

    /// Whether anything can move like that.
    pub fn check(&self) -> Result<(), ConfigError> {
        let times = TimeDelta::from_millis(100)..=TimeDelta::from_secs(60);
        if !(TimeDelta::ZERO..=TimeDelta::from_secs(1)).contains(&self.buffer) {
            Err(ConfigError::Buffer)
        } else if !self.pace.is_sane() {
            Err(ConfigError::Pace)
        } else if !(0.0..=1.0).contains(&self.share) || (self.share > 0.0 && self.method == Method::Paper) {
            Err(ConfigError::Share)
        } else if self.glide.is_some_and(|speed| speed.is_nan() || speed <= 0.0) {
            Err(ConfigError::Glide)
        } else if !times.contains(&self.leap) || !times.contains(&self.window) {
            Err(ConfigError::Times)
        } else {
            Ok(())
        }
    }
}
