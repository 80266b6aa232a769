//! Time series of a serverless maze, for the network graph.

use std::collections::BTreeMap;

use coplay::peer_world::{PeerWorldStats, WorldSiteId};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;

use crate::scene::{Graph, GraphLine};

/// Largest number of samples kept per series: those of the last 30 s.
const MAX_SAMPLES: usize = 120;
/// Interval between samples of all series.
pub(super) const SAMPLE_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Samples per second; the inverse of [`SAMPLE_INTERVAL`].
const SAMPLES_PER_SECOND: f32 = 4.0;

/// Recent samples of the round-trip time to each peer, the highest update loss of a peer, and the updates sent and
/// received per second.
#[derive(Debug, Default)]
pub(super) struct PeerHistory {
    next_sample: Option<Time>,
    round_trips: BTreeMap<WorldSiteId, Vec<f32>>,
    loss_percent: Vec<f32>,
    updates_sent: Vec<f32>,
    updates_received: Vec<f32>,
    last_stats: PeerWorldStats,
}

impl PeerHistory {
    /// Appends a sample to each series if the last one is [`SAMPLE_INTERVAL`] old.
    pub(super) fn sample_if_due(&mut self, now: Time, game: &MazeSite) {
        if self.next_sample.is_none_or(|next| now >= next) {
            self.next_sample = Some(now + SAMPLE_INTERVAL);
            self.sample(now, game);
        }
    }

    fn sample(&mut self, now: Time, game: &MazeSite) {
        let world = game.world();
        let peers: BTreeMap<WorldSiteId, _> =
            world.peers().filter_map(|site| Some((site, world.peer_stats(now, site)?))).collect();
        self.round_trips.retain(|site, _| peers.contains_key(site));
        for (site, peer) in &peers {
            let rtt_ms = peer.rtt.map_or(0.0, |rtt| rtt.as_millis_f64() as f32);
            push_sample(self.round_trips.entry(*site).or_default(), rtt_ms);
        }
        let worst = peers.values().map(|peer| peer.loss_share * 100.0).fold(0.0, f32::max);
        let stats = game.stats();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f32 * SAMPLES_PER_SECOND;
        push_sample(&mut self.loss_percent, worst);
        push_sample(&mut self.updates_sent, rate(stats.updates_sent, self.last_stats.updates_sent));
        push_sample(&mut self.updates_received, rate(stats.updates_received, self.last_stats.updates_received));
        self.last_stats = stats;
    }

    /// Returns the graph of all series, with one round-trip line per peer. Loss and received updates are omitted if
    /// there are no peers. `name` returns the name of a site.
    pub(super) fn graph(&self, name: impl Fn(WorldSiteId) -> String) -> Graph {
        let mut lines: Vec<GraphLine> = self
            .round_trips
            .iter()
            .map(|(site, values)| graph_line(format!("round trip, {}", name(*site)), "ms", values, 50.0))
            .collect();
        if !lines.is_empty() {
            lines.push(graph_line("worst update loss".into(), "%", &self.loss_percent, 10.0));
            lines.push(graph_line("updates received".into(), "/s", &self.updates_received, 50.0));
        }
        lines.push(graph_line("updates sent".into(), "/s", &self.updates_sent, 50.0));
        Graph { lines }
    }
}

/// Appends a sample and removes the oldest one beyond the limit.
pub(super) fn push_sample(values: &mut Vec<f32>, value: f32) {
    if values.len() == MAX_SAMPLES {
        values.remove(0);
    }
    values.push(value);
}

/// Builds a graph line whose axis reaches the largest value, and at least `min_axis`.
pub(super) fn graph_line(name: String, unit: &str, values: &[f32], min_axis: f32) -> GraphLine {
    let current = format!("{:.0} {unit}", values.last().copied().unwrap_or(0.0));
    let axis_max = values.iter().copied().fold(min_axis, f32::max);
    GraphLine { name, current, axis_max, values: values.to_vec(), capacity: MAX_SAMPLES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::test_pair;

    #[test]
    fn each_peer_has_a_round_trip_line() {
        let (now, [game, _]) = test_pair::play_pair(3);
        let mut history = PeerHistory::default();
        history.sample_if_due(now, &game);
        history.sample_if_due(now, &game);
        let graph = history.graph(|site| format!("site {}", site.0));
        let names: Vec<&str> = graph.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["round trip, site 2", "worst update loss", "updates received", "updates sent"]);
        assert_eq!(graph.lines[0].current, "2 ms");
        assert!(graph.lines.iter().all(|line| line.values.len() == 1), "the second sample is not due yet");
        assert!(graph.lines[2].values[0] > 0.0);
    }
}
