//! How the network does, over time.

use std::collections::BTreeMap;

use coplay::time::TimeDelta;
use coplay_net::runner::Status;

use crate::scene::{Graph, GraphLine};

/// How many numbers are kept: they come four times a second, so half a minute.
const MAX_SAMPLES: usize = 120;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct SessionHistory {
    round_trips: BTreeMap<u8, Vec<f32>>,
    resimulated_frames: Vec<f32>,
    stall_ms: Vec<f32>,
    last_resimulated: u64,
    last_stalled: TimeDelta,
}

impl SessionHistory {
    /// Takes the next numbers.
    pub(super) fn sample(&mut self, status: &Status) {
        self.round_trips.retain(|site, _| status.peers.iter().any(|(there, _)| there == site));
        for (site, peer) in &status.peers {
            push_sample(self.round_trips.entry(*site).or_default(), peer.rtt.as_millis_f64() as f32);
        }
        // A new session counts from nothing.
        let again = status.stats.resimulated.saturating_sub(self.last_resimulated);
        let waited = (status.stats.stall_time - self.last_stalled).as_millis_f64().max(0.0);
        (self.last_resimulated, self.last_stalled) = (status.stats.resimulated, status.stats.stall_time);
        push_sample(&mut self.resimulated_frames, again as f32);
        push_sample(&mut self.stall_ms, waited as f32);
    }

    /// All of them; round trips by the names of those at the other end.
    pub(super) fn graph(&self, name: impl Fn(u8) -> String) -> Graph {
        let trips = self
            .round_trips
            .iter()
            .map(|(site, values)| graph_line(format!("round trip, {}", name(*site)), "ms", values, 50.0));
        let ours = [
            graph_line("frames repaired".into(), "", &self.resimulated_frames, 10.0),
            graph_line("time waited".into(), "ms", &self.stall_ms, 20.0),
        ];
        Graph { lines: trips.chain(ours).collect() }
    }
}

fn push_sample(values: &mut Vec<f32>, value: f32) {
    if values.len() == MAX_SAMPLES {
        values.remove(0);
    }
    values.push(value);
}

fn graph_line(name: String, unit: &str, values: &[f32], least: f32) -> GraphLine {
    let now = format!("{:.0} {unit}", values.last().copied().unwrap_or(0.0));
    let top = values.iter().copied().fold(least, f32::max);
    GraphLine { name, current: now.trim_end().into(), axis_max: top, values: values.to_vec(), capacity: MAX_SAMPLES }
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
        [(5, 20), (7, 80), (1, 30)].into_iter().for_each(|(again, rtt)| history.sample(&status(again, rtt)));
        let graph = history.graph(|site| format!("site {site}"));
        assert_eq!(
            graph.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
            ["round trip, site 1", "frames repaired", "time waited"]
        );
        assert_eq!(graph.lines[0].values, [20.0, 80.0, 30.0]);
        assert_eq!((graph.lines[0].axis_max, graph.lines[0].current.as_str()), (80.0, "30 ms"));
        assert_eq!(graph.lines[1].values, [5.0, 2.0, 0.0], "a new session counts from nothing");
        history.sample(&Status::default());
        assert_eq!(history.graph(|_| String::new()).lines.len(), 2, "who is gone has no line");
    }
}
