//! How the network of a maze does, over time.

use std::collections::BTreeMap;

use coplay::peer_world::{PeerWorldStats, WorldSiteId};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;

use crate::scene::{Graph, Line};

/// How many numbers are kept: half a minute.
const SAMPLES: usize = 120;
/// How often they are taken.
pub(super) const EVERY: TimeDelta = TimeDelta::from_millis(250);
/// How many that are in a second.
const PER_SECOND: f32 = 4.0;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct History {
    next: Option<Time>,
    trips: BTreeMap<WorldSiteId, Vec<f32>>,
    lost: Vec<f32>,
    sent: Vec<f32>,
    received: Vec<f32>,
    before: PeerWorldStats,
}

impl History {
    /// Takes the next numbers when it is time.
    pub(super) fn look(&mut self, now: Time, game: &MazeSite) {
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + EVERY);
            self.take(now, game);
        }
    }

    fn take(&mut self, now: Time, game: &MazeSite) {
        let world = game.world();
        let peers: BTreeMap<WorldSiteId, _> =
            world.peers().filter_map(|site| Some((site, world.peer_stats(now, site)?))).collect();
        self.trips.retain(|site, _| peers.contains_key(site));
        for (site, peer) in &peers {
            let trip = peer.rtt.map_or(0.0, |rtt| rtt.as_millis_f64() as f32);
            push(self.trips.entry(*site).or_default(), trip);
        }
        let worst = peers.values().map(|peer| peer.loss_share * 100.0).fold(0.0, f32::max);
        let stats = game.stats();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f32 * PER_SECOND;
        push(&mut self.lost, worst);
        push(&mut self.sent, rate(stats.updates_sent, self.before.updates_sent));
        push(&mut self.received, rate(stats.updates_received, self.before.updates_received));
        self.before = stats;
    }

    /// All of them; round trips by the names of those at the other end. Of what only others can cause nothing is told where there are none.
    pub(super) fn graph(&self, name: impl Fn(WorldSiteId) -> String) -> Graph {
        let mut lines: Vec<Line> = self
            .trips
            .iter()
            .map(|(site, values)| line(format!("round trip, {}", name(*site)), "ms", values, 50.0))
            .collect();
        if !lines.is_empty() {
            lines.push(line("lost at worst".into(), "%", &self.lost, 10.0));
            lines.push(line("updates that came".into(), "/s", &self.received, 50.0));
        }
        lines.push(line("updates sent".into(), "/s", &self.sent, 50.0));
        Graph { lines }
    }
}

/// One more number; the oldest is forgotten.
pub(super) fn push(values: &mut Vec<f32>, value: f32) {
    if values.len() == SAMPLES {
        values.remove(0);
    }
    values.push(value);
}

/// A line of numbers that go up to `least` or more.
pub(super) fn line(name: String, unit: &str, values: &[f32], least: f32) -> Line {
    let now = format!("{:.0} {unit}", values.last().copied().unwrap_or(0.0));
    let top = values.iter().copied().fold(least, f32::max);
    Line { name, now, top, values: values.to_vec(), span: SAMPLES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::pair;

    #[test]
    fn each_of_the_others_has_a_line() {
        let (now, [game, _]) = pair::played(3);
        let mut history = History::default();
        history.look(now, &game);
        history.look(now, &game);
        let graph = history.graph(|site| format!("site {}", site.0));
        let names: Vec<&str> = graph.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["round trip, site 2", "lost at worst", "updates that came", "updates sent"]);
        assert_eq!(graph.lines[0].now, "2 ms");
        assert!(graph.lines.iter().all(|line| line.values.len() == 1), "not yet time for more");
        assert!(graph.lines[2].values[0] > 0.0);
    }
}
