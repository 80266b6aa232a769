//! Real runs: sessions of the program in real time over real sockets, for the experiments that support them.
//!
//! The calling program starts the processes and reads their frame logs. This module computes the pacing statistics from
//! the start times of the frames.

use crate::numbers::{mean, mean_absolute_deviation};

/// Starter of real sessions, implemented by the calling program.
pub trait RealRunner {
    /// Runs a session of two sites, and returns the times at which both sites started each measured frame, or an error
    /// message.
    fn run_session(&mut self, game: &RealSession) -> Result<FrameStarts, String>;
}

/// Settings of a real session, in which bots play at two sites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RealSession {
    /// Round-trip time of the link, half of it in each direction.
    pub rtt_ms: f64,
    /// Input delay in frames.
    pub input_delay: u32,
    /// Prediction window in frames.
    pub prediction_window: u32,
    /// Number of frames to measure, after a warm-up that the runner chooses.
    pub frames: u32,
}

/// Start times of the same frames at two sites, on one clock, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct FrameStarts(pub [Vec<i64>; 2]);

/// Pacing statistics of a session: the numbers of Zhao et al., Figures 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingStats {
    /// Mean frame time at the first site, in milliseconds. The frame time is the time between two successive frame
    /// starts.
    pub frame_ms: f64,
    /// Mean absolute deviation of the frame time from its mean, at the site where it is greater. For the published
    /// scheme of Zhao et al., it is that of the first site.
    pub deviation_ms: f64,
    /// Mean absolute difference between the two sites' starts of the same frame.
    pub synchrony_ms: f64,
}

impl FrameStarts {
    /// Computes the pacing statistics over all recorded frames.
    pub fn pacing_stats(&self) -> PacingStats {
        let frame_times =
            |starts: &[i64]| starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect::<Vec<f64>>();
        let [first, second] = &self.0;
        let differences: Vec<f64> =
            first.iter().zip(second).map(|(one, other)| (one - other).abs() as f64 / 1e6).collect();
        PacingStats {
            frame_ms: mean(&frame_times(first)),
            deviation_ms: mean_absolute_deviation(&frame_times(first))
                .max(mean_absolute_deviation(&frame_times(second))),
            synchrony_ms: mean(&differences),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_stats_are_computed_from_frame_starts() {
        let stats =
            FrameStarts([vec![0, 10_000_000, 30_000_000], vec![1_000_000, 12_000_000, 27_000_000]]).pacing_stats();
        assert_eq!((stats.frame_ms, stats.deviation_ms, stats.synchrony_ms), (15.0, 5.0, 2.0));
    }
}
