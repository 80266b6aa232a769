//! Numbers over time, for the graph.

use coplay::time::{Instant, TimeDelta};

use super::world::World;
use crate::scene::{Graph, Line};

/// Numbers are this far apart.
const SAMPLE_EVERY: TimeDelta = TimeDelta::from_millis(100);
/// How many are kept: half a minute.
const SAMPLES: usize = 300;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct History {
    next: Instant,
    resimulated: u64,
    stalled: TimeDelta,
    lines: [Vec<f32>; 4],
}

impl History {
    /// Takes the next numbers, if it is time.
    pub(super) fn look(&mut self, now: Instant, world: &World) {
        if now < self.next {
            return;
        }
        self.next = now + SAMPLE_EVERY;
        let stats = [0, 1].map(|site: usize| world.sites[site].session.stats());
        let link = world.sites[0].session.peer_stats(now, world.sites[1].session.site()).unwrap_or_default();
        let resimulated = stats[0].resimulated + stats[1].resimulated;
        let stalled = stats[0].stall_time + stats[1].stall_time;
        // A new session counts from nothing.
        let again = resimulated.saturating_sub(self.resimulated);
        let waited = (stalled - self.stalled).as_millis_f64().max(0.0);
        (self.resimulated, self.stalled) = (resimulated, stalled);
        let numbers = [link.rtt.as_millis_f64(), again as f64, waited, world.apart.as_millis_f64()];
        for (line, number) in self.lines.iter_mut().zip(numbers) {
            if line.len() == SAMPLES {
                line.remove(0);
            }
            line.push(number as f32);
        }
    }

    /// All of them.
    pub(super) fn graph(&self) -> Graph {
        let line = |at: usize, name: &str, unit: &str, least: f32| {
            let values = &self.lines[at];
            let now = values.last().copied().unwrap_or(0.0);
            // The axis grows in doublings, so that it seldom jumps.
            let highest = values.iter().copied().fold(0.0, f32::max);
            let top =
                std::iter::successors(Some(least), |top| Some(top * 2.0)).find(|top| *top >= highest).unwrap_or(least);
            Line { name: name.into(), now: format!("{now:.1} {unit}"), top, values: values.clone(), span: SAMPLES }
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
