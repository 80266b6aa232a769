//! Numbers over time, for the graph.

use coplay::time::{Instant, TimeDelta};

use super::site_pair::SitePair;
use crate::scene::{Graph, GraphLine};

/// Numbers are this far apart.
const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// How many are kept: half a minute.
const MAX_SAMPLES: usize = 300;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct DemoHistory {
    next_sample: Instant,
    last_resimulated: u64,
    last_stalled: TimeDelta,
    series: [Vec<f32>; 4],
}

impl DemoHistory {
    /// Takes the next numbers, if it is time.
    pub(super) fn sample_if_due(&mut self, now: Instant, world: &SitePair) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE_INTERVAL;
        let stats = [0, 1].map(|site: usize| world.sites[site].session.stats());
        let link = world.sites[0].session.peer_stats(now, world.sites[1].session.site()).unwrap_or_default();
        let resimulated = stats[0].resimulated + stats[1].resimulated;
        let stalled = stats[0].stall_time + stats[1].stall_time;
        // A new session counts from nothing.
        let again = resimulated.saturating_sub(self.last_resimulated);
        let waited = (stalled - self.last_stalled).as_millis_f64().max(0.0);
        (self.last_resimulated, self.last_stalled) = (resimulated, stalled);
        let numbers = [link.rtt.as_millis_f64(), again as f64, waited, world.frame_start_skew.as_millis_f64()];
        for (line, number) in self.series.iter_mut().zip(numbers) {
            if line.len() == MAX_SAMPLES {
                line.remove(0);
            }
            line.push(number as f32);
        }
    }

    /// All of them.
    pub(super) fn graph(&self) -> Graph {
        let line = |at: usize, name: &str, unit: &str, least: f32| {
            let values = &self.series[at];
            let now = values.last().copied().unwrap_or(0.0);
            // The axis grows in doublings, so that it seldom jumps.
            let highest = values.iter().copied().fold(0.0, f32::max);
            let top =
                std::iter::successors(Some(least), |top| Some(top * 2.0)).find(|top| *top >= highest).unwrap_or(least);
            GraphLine {
                name: name.into(),
                current: format!("{now:.1} {unit}"),
                axis_max: top,
                values: values.clone(),
                capacity: MAX_SAMPLES,
            }
        };
        let lines = vec![
            line(0, "round trip", "ms", 100.0),
            line(1, "played again", "frames", 20.0),
            line(2, "waited", "ms", 20.0),
            line(3, "sites apart", "ms", 5.0),
        ];
        Graph { lines }
    }
}
