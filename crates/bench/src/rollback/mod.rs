//! The same work for two engines that guess: coplay and ggrs in virtual time, on a network with delay and loss.
//!
//! Every site runs a [`machine`] of 4 KiB. Links have a constant delay and lose datagrams at random; clocks are exact,
//! but sites begin at random times within a frame. Inputs, links and beginnings come from the same seeds for both
//! engines.
//!
//! * [`machine`]: what is computed, saved and loaded.
//! * [`host`]: a host program without an engine, which keeps the books.
//! * [`world`]: sites, links and virtual time.
//! * [`ours`], [`peer`]: coplay and ggrs, each driven as its documentation says.
//! * [`forecast`]: how many frames have to be stepped again, whatever the engine.
//! * [`host_replay`]: the host programs once more, without an engine, to be subtracted.
//! * [`measure`]: all of it in numbers.

use coplay::time::{Instant, TimeDelta};
use coplay_sim::link::{Delay, LinkConfig, Loss};
use coplay_sim::random::Random;

use crate::workload::FRAME_RATE;

pub mod coplay_site;
pub mod ggrs_site;
pub mod host_program;
pub mod host_replay;
pub mod machine;
pub mod measure;
pub mod network;
pub mod required_resimulation;

/// The time from one frame to the next.
pub const FRAME_PERIOD: TimeDelta = TimeDelta::from_nanos(1_000_000_000 / FRAME_RATE as i64);

/// Under which conditions a game is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchCase {
    /// How many sites play, one player each, each connected with all others.
    pub sites: usize,
    /// The time there and back, in milliseconds.
    pub rtt_ms: u32,
    /// The part of all datagrams that is lost, in per cent, each whatever becomes of the others.
    pub loss_percent: u32,
    /// Frames from taking an input to its effect (`input_delay` of ggrs).
    pub input_delay: u32,
    /// Frames that may be guessed (`max_prediction` of ggrs).
    pub prediction_window: u32,
    /// All randomness comes from this.
    pub seed: u64,
}

impl BenchCase {
    /// One direction between two sites.
    pub fn link(&self) -> LinkConfig {
        let loss = match self.loss_percent {
            0 => Loss::None,
            percent => Loss::Independent(f64::from(percent) / 100.0),
        };
        let there_and_back = TimeDelta::from_millis(self.rtt_ms.into());
        LinkConfig { delay: Delay::Constant(there_and_back / 2), loss, ..LinkConfig::default() }
    }

    /// When a site begins: at any time within the first frame.
    pub fn start_time(&self, site: usize) -> Instant {
        let mut luck = Random::stream(self.seed, &format!("beginning {site}"));
        Instant::ZERO + FRAME_PERIOD.scale(luck.unit())
    }

    /// Links, each of which goes one way.
    pub fn link_count(&self) -> usize {
        self.sites * (self.sites - 1)
    }
}
