//! The experiments of Gautier, Diot and Kurose: how far apart the views of a world without a server are.

pub mod bursts;
pub mod drift_over_time;
mod maze_match;
mod path_replay;
pub mod reckonable;
pub mod regions;
pub mod send_policies;
pub mod thinning;
pub mod update_rate;

use coplay::time::TimeDelta;
use coplay_maze::MazeSettings;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};

use crate::findings::Findings;

/// A maze in which everybody is near enough to be told of everybody: the paper knows no regions.
const MAZE_SETTINGS: MazeSettings =
    MazeSettings { seed: 0, cells_per_side: 8, bucket_ticks: 4, playout_delay_ticks: 15 };

/// Updates in a second, from the most that the paper tried down to one.
const UPDATE_RATES: [u32; 11] = [28, 25, 20, 15, 10, 7, 5, 4, 3, 2, 1];
/// The same, for tests.
const SHORT_UPDATE_RATES: [u32; 5] = [28, 20, 5, 2, 1];

/// A way that is played over.
struct LinkCase {
    name: &'static str,
    delay_ms: i64,
    /// The part of all updates that is lost.
    loss: f64,
    /// Whether they are lost in outages, or one by one.
    has_outages: bool,
}

const fn link_case(name: &'static str, delay_ms: i64, lost: f64, outages: bool) -> LinkCase {
    LinkCase { name, delay_ms, loss: lost, has_outages: outages }
}

/// The three ways of the paper, and its third if losses came one by one.
///
/// The paper says of its network that for "a few seconds to a few tens of minutes" nothing came through at times, leaves out the worst of that, and finds that what matters
/// of losses is how many come in a row. So the part that was lost over its bad link was lost in outages.
const LINK_CASES: [LinkCase; 4] = [
    link_case("LAN", 0, 0.0, false),
    link_case("100 ms, 4 % lost", 100, 0.04, false),
    link_case("175 ms, 40 % lost in outages", 175, 0.4, true),
    link_case("175 ms, 40 % lost one by one", 175, 0.4, false),
];

/// How long an outage lasts, on average: the least that the paper says.
const MEAN_OUTAGE: TimeDelta = TimeDelta::from_secs(2);

impl LinkCase {
    fn link(&self) -> LinkConfig {
        if self.delay_ms == 0 {
            return LinkConfig::lan();
        }
        let loss = match self.has_outages {
            true => Loss::Outages { part: self.loss, mean: MEAN_OUTAGE },
            false => Loss::Independent(self.loss),
        };
        LinkConfig {
            delay: Delay::Constant(TimeDelta::from_millis(self.delay_ms - 4)),
            jitter: Jitter::Exponential { mean: TimeDelta::from_millis(4) },
            reorder: true,
            loss,
            ..LinkConfig::default()
        }
    }

    /// How losses come, for a table.
    fn loss_pattern(&self) -> &'static str {
        if self.has_outages { "outages" } else { "one by one" }
    }
}

/// What all of them have in common.
fn add_common_parameters(findings: &mut Findings) {
    findings.add_parameter("buckets", "40 ms; playout delay 150 ms; given up after 1 s");
    findings.add_parameter("avatars", "radius 32 units; 32 units per 40 ms along straight lines and circles; ninjas");
    findings.add_parameter("maze", "8 by 8 cells of 512 units: everybody is told of everybody, as in the paper");
    findings.add_note("Drift is the distance between the owner's own view of its avatar, which it delays as everybody does, and the other's view of it at the same instant. Between two views the owner's avatar is taken to be on its way, so that clocks that are a millisecond apart do not count as a whole bucket. The paper looks at one pair of players; all pairs are taken together here, since their links are alike. Avatars that are given up on are not seen, and do not count.");
}

/// The mean, and the half width of its 90 % confidence interval, from the means of parts.
fn mean_with_confidence(parts: &[f64]) -> (f64, f64) {
    let count = parts.len().max(1) as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, 1.645 * (variance / count).sqrt())
}
