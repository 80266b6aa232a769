//! Time series of the demo's link and pacing, for the graph under the pictures.

use coplay::time::{Instant, TimeDelta};

use super::site_pair::SitePair;
use crate::scene::{Graph, GraphLine};

/// Shortest time between two samples.
const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Largest number of samples that are kept per series: those of the last 30 s.
const MAX_SAMPLES: usize = 300;

/// Recent samples: round-trip time; frames resimulated and time stalled since the previous sample, by both sites
/// together; skew of frame starts.
#[derive(Debug, Default)]
pub(super) struct DemoHistory {
    next_sample: Instant,
    last_resimulated: u64,
    last_stalled: TimeDelta,
    series: [Vec<f32>; 4],
}

impl DemoHistory {
    /// Takes a sample if the previous one is [`SAMPLE_INTERVAL`] old.
    pub(super) fn sample_if_due(&mut self, now: Instant, pair: &SitePair) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE_INTERVAL;
        let stats = [0, 1].map(|site: usize| pair.sites[site].session.stats());
        let link = pair.sites[0].session.peer_stats(now, pair.sites[1].session.site()).unwrap_or_default();
        let resimulated = stats[0].resimulated + stats[1].resimulated;
        let stalled = stats[0].stall_time + stats[1].stall_time;
        // The counters of a new session start at 0.
        let new_resimulated = resimulated.saturating_sub(self.last_resimulated);
        let new_stall_ms = (stalled - self.last_stalled).as_millis_f64().max(0.0);
        (self.last_resimulated, self.last_stalled) = (resimulated, stalled);
        let values =
            [link.rtt.as_millis_f64(), new_resimulated as f64, new_stall_ms, pair.frame_start_skew.as_millis_f64()];
        for (series, value) in self.series.iter_mut().zip(values) {
            if series.len() == MAX_SAMPLES {
                series.remove(0);
            }
            series.push(value as f32);
        }
    }

    /// Returns the graph of all series.
    pub(super) fn graph(&self) -> Graph {
        let line = |index: usize, name: &str, unit: &str, min_axis: f32| {
            let values = &self.series[index];
            let now = values.last().copied().unwrap_or(0.0);
            // The axis grows by doubling, so that it changes seldom.
            let highest = values.iter().copied().fold(0.0, f32::max);
            let mut axes = std::iter::successors(Some(min_axis), |axis| Some(axis * 2.0));
            let axis_max = axes.find(|axis| *axis >= highest).unwrap_or(min_axis);
            GraphLine {
                name: name.into(),
                current: format!("{now:.1} {unit}"),
                axis_max,
                values: values.clone(),
                capacity: MAX_SAMPLES,
            }
        };
        let lines = vec![
            line(0, "round trip", "ms", 100.0),
            line(1, "resimulated", "frames/0.1 s", 20.0),
            line(2, "stalled", "ms/0.1 s", 20.0),
            line(3, "frame start skew", "ms", 5.0),
        ];
        Graph { lines }
    }
}
