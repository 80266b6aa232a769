//! How the way to the server does, and how far what is seen is from what is there, over time.

use coplay::time::Instant as Time;
use coplay_world::{CONSISTENCY_TOLERANCE, Client};

use crate::maze::graph::{EVERY, line, push};
use crate::scene::Graph;

/// Numbers over time.
#[derive(Debug, Default)]
pub(super) struct History {
    next: Option<Time>,
    trips: Vec<f32>,
    own: Vec<f32>,
    others: Vec<f32>,
    tolerated: Vec<f32>,
}

impl History {
    /// Takes the next numbers when it is time.
    pub(super) fn look(&mut self, now: Time, client: &Client) {
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + EVERY);
            self.take(client);
        }
    }

    fn take(&mut self, client: &Client) {
        let [own, others] = [true, false].map(|is_own| {
            let of = client.consistencies().filter(|(entity, _)| (client.own_entity() == Some(*entity)) == is_own);
            average(of.map(|(_, consistency)| consistency.discrepancy))
        });
        let tolerated = client.consistencies().map(|(_, known)| if known.is_tolerated() { 100.0 } else { 0.0 });
        push(&mut self.trips, client.rtt().map_or(0.0, |rtt| rtt.as_millis_f64() as f32));
        push(&mut self.own, own.unwrap_or(0.0));
        push(&mut self.others, others.unwrap_or(0.0));
        push(&mut self.tolerated, average(tolerated).unwrap_or(100.0));
    }

    /// All of them. D is what it is called in the table, too.
    pub(super) fn graph(&self) -> Graph {
        let tolerance = CONSISTENCY_TOLERANCE as f32;
        let of = |whose: &str| format!("D of {whose}, up to {tolerance:.0}");
        let lines = vec![
            line("round trip".into(), "ms", &self.trips, 50.0),
            line(of("you"), "unit·s", &self.own, tolerance),
            line(of("others"), "unit·s", &self.others, tolerance),
            line("seen where they are".into(), "%", &self.tolerated, 100.0),
        ];
        Graph { lines }
    }
}

/// Of what is known, and of nothing else.
fn average(known: impl Iterator<Item = f64>) -> Option<f32> {
    let (sum, count) = known.fold((0.0, 0u32), |(sum, count), one| (sum + one, count + 1));
    (count > 0).then(|| (sum / f64::from(count)) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;

    #[test]
    fn of_whom_nothing_is_known_does_not_count() {
        assert_eq!(average([30.0, 10.0].into_iter()), Some(20.0));
        assert_eq!(average([].into_iter()), None);
    }

    #[test]
    fn numbers_are_taken_when_it_is_time() {
        let client = Client::new(Time::ZERO, "Ada", 1);
        let mut history = History::default();
        for at in [0, 100, 300] {
            history.look(Time::ZERO + TimeDelta::from_millis(at), &client);
        }
        let graph = history.graph();
        let names: Vec<&str> = graph.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["round trip", "D of you, up to 64", "D of others, up to 64", "seen where they are"]);
        assert!(graph.lines.iter().all(|line| line.values.len() == 2 && line.top >= 50.0));
        assert_eq!(graph.lines[3].now, "100 %");
    }
}
