//! The experiments of Gautier, Diot and Kurose: how far apart the views of a world without a server are.

pub mod bursts;
pub mod moments;
mod path;
mod play;
pub mod quiet;
pub mod rate;
pub mod reckonable;
pub mod thinning;

use coplay::time::TimeDelta;
use coplay_maze::Terms;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};

use crate::findings::Findings;

/// A maze in which everybody is near enough to be told of everybody: the paper knows no regions.
const TERMS: Terms = Terms { seed: 0, side: 8, bucket: 4, delay: 15 };

/// Updates in a second, from the most that the paper tried down to one.
const RATES: [u32; 11] = [28, 25, 20, 15, 10, 7, 5, 4, 3, 2, 1];
/// The same, for tests.
const FEW_RATES: [u32; 5] = [28, 20, 5, 2, 1];

/// The three ways that the paper played over: name, delay, and part that is lost.
const WAYS: [(&str, i64, f64); 3] = [("LAN", 0, 0.0), ("100 ms, 4 % lost", 100, 0.04), ("175 ms, 40 % lost", 175, 0.4)];

/// One of the paper's three.
fn way(number: usize) -> LinkConfig {
    let (_, delay_ms, loss) = WAYS[number];
    if delay_ms == 0 {
        return LinkConfig::lan();
    }
    LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(delay_ms - 4)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(4) },
        reorder: true,
        loss: Loss::Independent(loss),
        ..LinkConfig::default()
    }
}

/// What all of them have in common.
fn common(findings: &mut Findings) {
    findings.parameter("buckets", "40 ms; playout delay 150 ms; given up after 1 s");
    findings.parameter("avatars", "radius 32 units; 32 units per 40 ms along straight lines and circles; ninjas");
    findings.parameter("maze", "8 by 8 cells of 512 units: everybody is told of everybody, as in the paper");
    findings.note("Drift is the distance between the owner's own view of its avatar, which it delays as everybody does, and the other's view of it at the same instant. Between two views the owner's avatar is taken to be on its way, so that clocks that are a millisecond apart do not count as a whole bucket. The paper looks at one pair of players; all pairs are taken together here, since their links are alike. Avatars that are given up on are not seen, and do not count.");
}

/// The mean, and the half width of its 90 % confidence interval, from the means of parts.
fn mean_of_parts(parts: &[f64]) -> (f64, f64) {
    let count = parts.len().max(1) as f64;
    let mean = parts.iter().sum::<f64>() / count;
    let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, 1.645 * (variance / count).sqrt())
}
