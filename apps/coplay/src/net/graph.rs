//! How the network does, over time.

use std::collections::BTreeMap;

use coplay::time::TimeDelta;
use coplay_net::runner::Status;

use crate::scene::{Graph, Line};

/// How many numbers are kept: they come four times a second, so half a minute.
const SAMPLES: usize = 120;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct History {
    trips: BTreeMap<u8, Vec<f32>>,
    again: Vec<f32>,
    waited: Vec<f32>,
    resimulated: u64,
    stalled: TimeDelta,
}

impl History {
    /// Takes the next numbers.
    pub(super) fn take(&mut self, status: &Status) {
        self.trips.retain(|site, _| status.peers.iter().any(|(there, _)| there == site));
        for (site, peer) in &status.peers {
            push(self.trips.entry(*site).or_default(), peer.rtt.as_millis_f64() as f32);
        }
        // A new session counts from nothing.
        let again = status.stats.resimulated.saturating_sub(self.resimulated);
        let waited = (status.stats.stall_time - self.stalled).as_millis_f64().max(0.0);
        (self.resimulated, self.stalled) = (status.stats.resimulated, status.stats.stall_time);
        push(&mut self.again, again as f32);
        push(&mut self.waited, waited as f32);
    }

    /// All of them; round trips by the names of those at the other end.
    pub(super) fn graph(&self, name: impl Fn(u8) -> String) -> Graph {
        let trips =
            self.trips.iter().map(|(site, values)| line(format!("round trip, {}", name(*site)), "ms", values, 50.0));
        let ours = [
            line("frames repaired".into(), "", &self.again, 10.0),
            line("time waited".into(), "ms", &self.waited, 20.0),
        ];
        Graph { lines: trips.chain(ours).collect() }
    }
}

fn push(values: &mut Vec<f32>, value: f32) {
    if values.len() == SAMPLES {
        values.remove(0);
    }
    values.push(value);
}

fn line(name: String, unit: &str, values: &[f32], least: f32) -> Line {
    let now = format!("{:.0} {unit}", values.last().copied().unwrap_or(0.0));
    let top = values.iter().copied().fold(least, f32::max);
    Line { name, now: now.trim_end().into(), top, values: values.to_vec(), span: SAMPLES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::session::{PeerStats, Stats};

    #[test]
    fn numbers_are_what_was_added_since_the_last() {
        let status = |resimulated, rtt| Status {
            stats: Stats { resimulated, ..Stats::default() },
            peers: vec![(1, PeerStats { rtt: TimeDelta::from_millis(rtt), ..PeerStats::default() })],
            ..Status::default()
        };
        let mut history = History::default();
        [(5, 20), (7, 80), (1, 30)].into_iter().for_each(|(again, rtt)| history.take(&status(again, rtt)));
        let graph = history.graph(|site| format!("site {site}"));
        assert_eq!(
            graph.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
            ["round trip, site 1", "frames repaired", "time waited"]
        );
        assert_eq!(graph.lines[0].values, [20.0, 80.0, 30.0]);
        assert_eq!((graph.lines[0].top, graph.lines[0].now.as_str()), (80.0, "30 ms"));
        assert_eq!(graph.lines[1].values, [5.0, 2.0, 0.0], "a new session counts from nothing");
        history.take(&Status::default());
        assert_eq!(history.graph(|_| String::new()).lines.len(), 2, "who is gone has no line");
    }
}
