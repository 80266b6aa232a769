//! Time series of the round trip to the server and of the discrepancy between displayed and authoritative positions,
//! for the network graph of a server world.

use coplay::time::Instant as Time;
use coplay_world::{CONSISTENCY_TOLERANCE, Client};

use crate::maze::peer_history::{SAMPLE_INTERVAL, graph_line, push_sample};
use crate::scene::Graph;

/// Recent samples of the round-trip time, of the discrepancy D of the player's avatar, of the mean D of the other
/// avatars, and of the share of avatars whose D is tolerated.
#[derive(Debug, Default)]
pub(super) struct ServerHistory {
    next_sample: Option<Time>,
    round_trips: Vec<f32>,
    own_discrepancy: Vec<f32>,
    others_discrepancy: Vec<f32>,
    tolerated_percent: Vec<f32>,
}

impl ServerHistory {
    /// Appends a sample to each series if the last one is [`SAMPLE_INTERVAL`] old.
    pub(super) fn sample_if_due(&mut self, now: Time, client: &Client) {
        if self.next_sample.is_none_or(|next| now >= next) {
            self.next_sample = Some(now + SAMPLE_INTERVAL);
            self.sample(client);
        }
    }

    fn sample(&mut self, client: &Client) {
        let [own, others] = [true, false].map(|is_own| {
            let of = client.consistencies().filter(|(entity, _)| (client.own_entity() == Some(*entity)) == is_own);
            average(of.map(|(_, consistency)| consistency.discrepancy))
        });
        let tolerated =
            client.consistencies().map(|(_, consistency)| if consistency.is_tolerated() { 100.0 } else { 0.0 });
        push_sample(&mut self.round_trips, client.rtt().map_or(0.0, |rtt| rtt.as_millis_f64() as f32));
        push_sample(&mut self.own_discrepancy, own.unwrap_or(0.0));
        push_sample(&mut self.others_discrepancy, others.unwrap_or(0.0));
        push_sample(&mut self.tolerated_percent, average(tolerated).unwrap_or(100.0));
    }

    /// Returns the graph of all series. D in their names is the discrepancy, as in the score table.
    pub(super) fn graph(&self) -> Graph {
        let tolerance = CONSISTENCY_TOLERANCE as f32;
        let of = |whose: &str| format!("{whose} (limit {tolerance:.0})");
        let lines = vec![
            graph_line("round trip".into(), "ms", &self.round_trips, 50.0),
            graph_line(of("your D"), "unit·s", &self.own_discrepancy, tolerance),
            graph_line(of("others' mean D"), "unit·s", &self.others_discrepancy, tolerance),
            graph_line("avatars below the limit".into(), "%", &self.tolerated_percent, 100.0),
        ];
        Graph { lines }
    }
}

/// Returns the mean of the values, or `None` if there are none.
fn average(values: impl Iterator<Item = f64>) -> Option<f32> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), one| (sum + one, count + 1));
    (count > 0).then(|| (sum / f64::from(count)) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;

    #[test]
    fn average_of_nothing_is_none() {
        assert_eq!(average([30.0, 10.0].into_iter()), Some(20.0));
        assert_eq!(average([].into_iter()), None);
    }

    #[test]
    fn samples_are_taken_at_the_interval() {
        let client = Client::new(Time::ZERO, "Ada", 1);
        let mut history = ServerHistory::default();
        for at in [0, 100, 300] {
            history.sample_if_due(Time::ZERO + TimeDelta::from_millis(at), &client);
        }
        let graph = history.graph();
        let names: Vec<&str> = graph.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["round trip", "your D (limit 64)", "others' mean D (limit 64)", "avatars below the limit"]);
        assert!(graph.lines.iter().all(|line| line.values.len() == 2 && line.axis_max >= 50.0));
        assert_eq!(graph.lines[3].current, "100 %");
    }
}
