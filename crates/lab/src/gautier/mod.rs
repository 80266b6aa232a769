//! Experiments of Gautier, Diot and Kurose: drift between the sites' views of a world without a server, and its
//! traffic.

pub mod bursts;
pub mod drift_over_time;
mod maze_match;
pub mod nearby_traffic;
mod path_replay;
pub mod reckonable;
pub mod send_policies;
pub mod thinned_replay;
pub mod update_rate;

use coplay::time::TimeDelta;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_maze::MazeSettings;

use crate::findings::Findings;

/// Settings of the maze, of which each experiment changes the seed, and `regions` the size. It is so small that all
/// avatars are near each other and all sites receive all updates, as in the paper, which has no regions.
const MAZE_SETTINGS: MazeSettings =
    MazeSettings { seed: 0, cells_per_side: 8, bucket_ticks: 4, playout_delay_ticks: 15 };

/// Update rates per avatar and second, from the paper's highest down to one.
const UPDATE_RATES: [u32; 11] = [28, 25, 20, 15, 10, 7, 5, 4, 3, 2, 1];
/// Update rates per avatar and second of the short experiments.
const SHORT_UPDATE_RATES: [u32; 5] = [28, 20, 5, 2, 1];

/// Conditions of the links between all sites, used by several experiments.
struct LinkCase {
    name: &'static str,
    delay_ms: i64,
    /// Fraction of packets lost; in replays of recorded paths, of updates only.
    loss: f64,
    /// Whether the losses are outages; otherwise they are independent.
    has_outages: bool,
}

const fn link_case(name: &'static str, delay_ms: i64, loss: f64, has_outages: bool) -> LinkCase {
    LinkCase { name, delay_ms, loss, has_outages }
}

/// The paper's three links, and its third link with independent losses.
///
/// The paper reports that at times its network delivered nothing for "a few seconds to a few tens of minutes". It
/// excludes the worst of these times and finds that the number of consecutive losses matters most. So the losses of the
/// paper's bad link are modelled as outages.
const LINK_CASES: [LinkCase; 4] = [
    link_case("LAN", 0, 0.0, false),
    link_case("100 ms, 4 % loss", 100, 0.04, false),
    link_case("175 ms, 40 % loss in outages", 175, 0.4, true),
    link_case("175 ms, 40 % independent loss", 175, 0.4, false),
];

/// Mean duration of an outage, the low end of the paper's range.
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

    /// Returns the loss pattern as a table label.
    fn loss_pattern(&self) -> &'static str {
        if self.has_outages { "outages" } else { "independent" }
    }
}

/// Adds the parameters and notes that all experiments of this paper share, except `regions`.
fn add_common_parameters(findings: &mut Findings) {
    findings.add_parameter("buckets", "40 ms; playout delay 150 ms; avatars without updates for 1 s are hidden");
    findings.add_parameter(
        "avatars",
        "radius 32 units; speed 32 units per 40 ms along straight lines and circles; played by software (ninjas)",
    );
    findings.add_parameter("maze", "8 by 8 cells of 512 units: every site sends to every other site, as in the paper");
    findings.add_note("Drift is the distance between the owner's view of its avatar and another site's view of that avatar at the same instant. Both views are delayed by the playout delay. Between two of the owner's views the avatar's position is interpolated, so a clock error of a millisecond does not count as a whole bucket. The paper measures one pair of players; here all pairs are combined, since their links are equal. Views in which the avatar is hidden do not count.");
}

/// Returns the mean of these values and the half width of its 90 % confidence interval.
fn mean_with_confidence(parts: &[f64]) -> (f64, f64) {
    let count = parts.len().max(1) as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, 1.645 * (variance / count).sqrt())
}
