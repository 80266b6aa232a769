//! How long a button takes from the finger to the machines: the own one, and everybody else's.
//!
//! Judged from what sites do, not from what their sessions say. A button is pressed when a site samples an input that differs from the
//! one before it. It shows at a site when the machine steps its frame with it for the first time, be that fresh or a repair.

use std::collections::VecDeque;

use coplay::input::InputWord;
use coplay::time::{Instant, TimeDelta};

use crate::session_network::SiteEvent;

/// Presses of which not everybody took notice yet; more than can be under way.
const MAX_PENDING_PRESSES: usize = 1_024;

/// Watches the buttons of a session in which each site owns the same bits of its own player.
#[derive(Debug)]
pub struct InputLatencyMeter {
    mask: InputWord,
    /// Presses for frames before this one do not count.
    first_frame: u32,
    held_inputs: Vec<InputWord>,
    /// By site that pressed and site that looks.
    pending: Vec<Vec<VecDeque<PendingPress>>>,
    latencies: Vec<Vec<LatencySum>>,
}

/// A button that somewhere does not show yet.
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
    /// Watches so many sites' buttons from a frame on.
    pub fn new(sites: usize, mask: InputWord, from: u32) -> Self {
        Self {
            mask,
            first_frame: from,
            held_inputs: vec![0; sites],
            pending: vec![vec![VecDeque::new(); sites]; sites],
            latencies: vec![vec![LatencySum::default(); sites]; sites],
        }
    }

    /// Takes notice of what a site did.
    pub fn on_event(&mut self, happened: &SiteEvent<'_>) {
        match *happened {
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
                let waits = &mut self.latencies[player][site];
                waits.sum += at - press.at;
                waits.count += 1;
            }
        }
    }

    /// The mean time, in milliseconds, until what `from` pressed showed at `to`.
    pub fn mean_latency_ms(&self, from: usize, to: usize) -> f64 {
        let waits = self.latencies[from][to];
        waits.sum.as_millis_f64() / waits.count.max(1) as f64
    }
}
