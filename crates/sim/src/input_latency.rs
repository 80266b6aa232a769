//! Input latency: the time from a button press to its first effect on the local machine and on each remote machine.
//!
//! The meter observes the sites' actions and does not trust the sessions' reports. A press is a sampled input that
//! differs from the one before it. It takes effect at a site when the site's machine first steps the frame of the press
//! with the new input, in a fresh step or in a resimulation.

use std::collections::VecDeque;

use coplay::input::InputWord;
use coplay::time::{Instant, TimeDelta};

use crate::session_network::SiteEvent;

/// Largest number of presses of one site that may wait to take effect at one site, more than can be in flight. Beyond
/// it the oldest press is discarded.
const MAX_PENDING_PRESSES: usize = 1_024;

/// Meter of the input latency of a session in which each site owns the same bits of its own player.
#[derive(Debug)]
pub struct InputLatencyMeter {
    mask: InputWord,
    /// First frame whose presses count. The frame of a press is the one in which it takes effect.
    first_frame: u32,
    held_inputs: Vec<InputWord>,
    /// Presses that wait to take effect, by the pressing site, then by the observing site.
    pending: Vec<Vec<VecDeque<PendingPress>>>,
    latencies: Vec<Vec<LatencySum>>,
}

/// A press that has not taken effect at one site yet.
#[derive(Clone, Copy, Debug)]
struct PendingPress {
    at: Instant,
    frame: u32,
    input: InputWord,
}

#[derive(Clone, Copy, Debug, Default)]
struct LatencySum {
    sum: TimeDelta,
    count: i64,
}

impl InputLatencyMeter {
    /// Creates a meter for `sites` sites, each of which owns the input bits in `mask`. Only presses that take effect in
    /// frame `from` or later count.
    pub fn new(sites: usize, mask: InputWord, from: u32) -> Self {
        Self {
            mask,
            first_frame: from,
            held_inputs: vec![0; sites],
            pending: vec![vec![VecDeque::new(); sites]; sites],
            latencies: vec![vec![LatencySum::default(); sites]; sites],
        }
    }

    /// Records a press or its effect from an event of a site. Other events are ignored.
    pub fn on_event(&mut self, event: &SiteEvent<'_>) {
        match *event {
            SiteEvent::Sampled { site, at, frame, words } => self.on_sample(site, at, frame, words[site] & self.mask),
            SiteEvent::Stepped { site, at, frame, words, .. } => self.on_step(site, at, frame, words),
            _ => {}
        }
    }

    fn on_sample(&mut self, site: usize, at: Instant, frame: u32, word: InputWord) {
        if std::mem::replace(&mut self.held_inputs[site], word) == word || frame < self.first_frame {
            return;
        }
        for open in &mut self.pending[site] {
            open.push_back(PendingPress { at, frame, input: word });
            if open.len() > MAX_PENDING_PRESSES {
                open.pop_front();
            }
        }
    }

    fn on_step(&mut self, site: usize, at: Instant, frame: u32, words: &[InputWord]) {
        for (player, word) in words.iter().enumerate() {
            let open = &mut self.pending[player][site];
            let Some(shown) = open.iter().position(|press| press.frame == frame && press.input == word & self.mask)
            else {
                continue;
            };
            if let Some(press) = open.remove(shown) {
                let latency = &mut self.latencies[player][site];
                latency.sum += at - press.at;
                latency.count += 1;
            }
        }
    }

    /// Returns the mean time, in milliseconds, from a press at `from` to its first effect at `to`; 0 if no press took
    /// effect there.
    pub fn mean_latency_ms(&self, from: usize, to: usize) -> f64 {
        let latency = self.latencies[from][to];
        latency.sum.as_millis_f64() / latency.count.max(1) as f64
    }
}
