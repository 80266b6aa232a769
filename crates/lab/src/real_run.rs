//! The field: the program itself, in real time over real sockets, for experiments that can be done there, too.
//!
//! How the program is started is for whoever is asked; what is made of its logs is here.

use crate::numbers::{mean, mean_absolute_deviation};

/// Somebody who can run the program.
pub trait RealRunner {
    /// Two sites play; says when they began each frame, or why not.
    fn run_session(&mut self, game: &RealSession) -> Result<FrameStarts, String>;
}

/// A game in the field: two sites with bots for players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RealSession {
    /// The round trip of the link, half of it in each direction.
    pub rtt_ms: f64,
    /// Local lag in frames.
    pub input_delay: u32,
    /// Frames that may be guessed.
    pub prediction_window: u32,
    /// How many frames are played.
    pub frames: u32,
}

/// When each of two sites began the same frames, on one clock, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct FrameStarts(pub [Vec<i64>; 2]);

/// What that comes to: the numbers of Zhao et al., Figures 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingStats {
    /// Mean time from one frame to the next at the first site.
    pub frame_ms: f64,
    /// Mean absolute deviation of it, at the worse site.
    pub deviation_ms: f64,
    /// Mean absolute difference between the two sites' starts of the same frame.
    pub synchrony_ms: f64,
}

impl FrameStarts {
    /// What it comes to.
    pub fn pacing_stats(&self) -> PacingStats {
        let times =
            |starts: &[i64]| starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect::<Vec<f64>>();
        let [first, second] = &self.0;
        let apart: Vec<f64> = first.iter().zip(second).map(|(one, other)| (one - other).abs() as f64 / 1e6).collect();
        PacingStats {
            frame_ms: mean(&times(first)),
            deviation_ms: mean_absolute_deviation(&times(first)).max(mean_absolute_deviation(&times(second))),
            synchrony_ms: mean(&apart),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_stats_are_computed_from_frame_starts() {
        let pace =
            FrameStarts([vec![0, 10_000_000, 30_000_000], vec![1_000_000, 12_000_000, 27_000_000]]).pacing_stats();
        assert_eq!((pace.frame_ms, pace.deviation_ms, pace.synchrony_ms), (15.0, 5.0, 2.0));
    }
}
