//! Time series of a shared game, for the network graph.

use std::collections::BTreeMap;

use coplay::time::TimeDelta;
use coplay_net::runner::Status;

use crate::scene::{Graph, GraphLine};

/// Largest number of samples that are kept per series: 30 s of them at one status of the runner per 250 ms.
const MAX_SAMPLES: usize = 120;

/// Recent samples of round-trip time per peer, resimulated frames and stall time.
#[derive(Debug, Default)]
pub(super) struct SessionHistory {
    round_trips: BTreeMap<u8, Vec<f32>>,
    resimulated_frames: Vec<f32>,
    stall_ms: Vec<f32>,
    last_resimulated: u64,
    last_stalled: TimeDelta,
}

impl SessionHistory {
    /// Appends a sample to each series. Counters are sampled as their growth since the last call.
    pub(super) fn sample(&mut self, status: &Status) {
        self.round_trips.retain(|site, _| status.peers.iter().any(|(peer, _)| peer == site));
        for (site, peer) in &status.peers {
            push_sample(self.round_trips.entry(*site).or_default(), peer.rtt.as_millis_f64() as f32);
        }
        // The counters of a new session start at 0.
        let new_resimulated = status.stats.resimulated.saturating_sub(self.last_resimulated);
        let new_stall_ms = (status.stats.stall_time - self.last_stalled).as_millis_f64().max(0.0);
        (self.last_resimulated, self.last_stalled) = (status.stats.resimulated, status.stats.stall_time);
        push_sample(&mut self.resimulated_frames, new_resimulated as f32);
        push_sample(&mut self.stall_ms, new_stall_ms as f32);
    }

    /// Returns the graph of all series. `name` returns the name of a site's player.
    pub(super) fn graph(&self, name: impl Fn(u8) -> String) -> Graph {
        let round_trips = self
            .round_trips
            .iter()
            .map(|(site, values)| graph_line(format!("round trip, {}", name(*site)), "ms", values, 50.0));
        let session = [
            graph_line("resimulated".into(), "frames/0.25 s", &self.resimulated_frames, 10.0),
            graph_line("stall time".into(), "ms/0.25 s", &self.stall_ms, 20.0),
        ];
        Graph { lines: round_trips.chain(session).collect() }
    }
}

fn push_sample(values: &mut Vec<f32>, value: f32) {
    if values.len() == MAX_SAMPLES {
        values.remove(0);
    }
    values.push(value);
}

fn graph_line(name: String, unit: &str, values: &[f32], min_axis: f32) -> GraphLine {
    let current = format!("{:.0} {unit}", values.last().copied().unwrap_or(0.0));
    let axis_max = values.iter().copied().fold(min_axis, f32::max);
    GraphLine { name, current: current.trim_end().into(), axis_max, values: values.to_vec(), capacity: MAX_SAMPLES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::session::{PeerStats, Stats};

    #[test]
    fn samples_are_differences_since_the_last_status() {
        let status = |resimulated, rtt| Status {
            stats: Stats { resimulated, ..Stats::default() },
            peers: vec![(1, PeerStats { rtt: TimeDelta::from_millis(rtt), ..PeerStats::default() })],
            ..Status::default()
        };
        let mut history = SessionHistory::default();
        [(5, 20), (7, 80), (1, 30)]
            .into_iter()
            .for_each(|(resimulated, rtt)| history.sample(&status(resimulated, rtt)));
        let graph = history.graph(|site| format!("site {site}"));
        assert_eq!(
            graph.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
            ["round trip, site 1", "resimulated", "stall time"]
        );
        assert_eq!(graph.lines[0].values, [20.0, 80.0, 30.0]);
        assert_eq!((graph.lines[0].axis_max, graph.lines[0].current.as_str()), (80.0, "30 ms"));
        assert_eq!(graph.lines[1].values, [5.0, 2.0, 0.0], "the counters of a new session start at 0");
        history.sample(&Status::default());
        assert_eq!(history.graph(|_| String::new()).lines.len(), 2, "a peer that is gone has no line");
    }
}
