//! Equal work for two engines with prediction: coplay and ggrs in virtual time, on a network with delay and loss.
//!
//! Every site runs a [`machine`] of 4 KiB. Links have a constant delay and lose datagrams at random. Clocks are exact,
//! but sites start at random times within a frame. Inputs, links and start times come from the same seeds for both
//! engines.
//!
//! * [`machine`]: the machine that is stepped, saved and loaded.
//! * [`host_program`]: the host program of either engine, which owns the machine and counts frames.
//! * [`network`]: sites, links and virtual time.
//! * [`coplay_site`], [`ggrs_site`]: the engines, each driven according to its documentation.
//! * [`required_resimulation`]: the number of frames that any engine has to resimulate.
//! * [`host_replay`]: a replay of the host programs without an engine, whose cost is subtracted.
//! * [`measure`]: the measurements.

use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, LinkConfig, Loss};
use coplay_links::random::Random;

use crate::workload::FRAME_RATE;

pub mod coplay_site;
pub mod ggrs_site;
pub mod host_program;
pub mod host_replay;
pub mod machine;
pub mod measure;
pub mod network;
pub mod required_resimulation;

/// Frame period: 16.67 ms.
pub const FRAME_PERIOD: TimeDelta = TimeDelta::from_nanos(1_000_000_000 / FRAME_RATE as i64);

/// Conditions of a benchmarked session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchCase {
    /// Number of sites with one player each, all connected with each other.
    pub sites: usize,
    /// Round-trip time in milliseconds.
    pub rtt_ms: u32,
    /// Independent packet loss in percent.
    pub loss_percent: u32,
    /// Input delay in frames (`input_delay` of ggrs).
    pub input_delay: u32,
    /// Prediction window in frames (`max_prediction` of ggrs).
    pub prediction_window: u32,
    /// Seed of inputs, packet loss and start times.
    pub seed: u64,
}

impl BenchCase {
    /// Returns the link from one site to another: half of the round-trip time as delay, and the loss.
    pub fn link(&self) -> LinkConfig {
        let loss = match self.loss_percent {
            0 => Loss::None,
            percent => Loss::Independent(f64::from(percent) / 100.0),
        };
        let rtt = TimeDelta::from_millis(self.rtt_ms.into());
        LinkConfig { delay: Delay::Constant(rtt / 2), loss, ..LinkConfig::default() }
    }

    /// Returns the random start time of a site, within the first frame period.
    pub fn start_time(&self, site: usize) -> Instant {
        let mut random = Random::stream(self.seed, &format!("beginning {site}"));
        Instant::ZERO + FRAME_PERIOD.scale(random.unit())
    }

    /// Returns the number of links between all sites, each in one direction.
    pub fn link_count(&self) -> usize {
        self.sites * (self.sites - 1)
    }
}
