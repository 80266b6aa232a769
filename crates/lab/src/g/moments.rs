//! Figure 2: drift over time, and what was lost meanwhile.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_maze::drift::{Pair, Summary};
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};

use super::play::{Match, Outcome};
use crate::bench::Bench;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "moments",
    title: "Drift while updates get lost",
    shows: "As long as updates come, others see an avatar where its owner sees it. When some in a row are missing they reckon, and are hardly wrong: an avatar walks lines and circles.",
    paper: &GAUTIER,
    figures: "Figure 2",
    seconds: 3.0,
    run,
    real: None,
};

/// Seconds that are drawn.
const SHOWN_S: f64 = 40.0;

fn run(bench: &mut Bench<'_>) -> Findings {
    let seconds = bench.either(300, 60);
    let link = |loss| LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(60)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(3) },
        reorder: true,
        loss,
        ..LinkConfig::default()
    };
    let seed = bench.seed;
    let losses = [Loss::None, Loss::bursts(0.08, 4.0)];
    let games =
        bench.spread(1.0, &losses, |loss| Match::new(seed, UpdatePolicy::fixed(25), link(*loss), seconds).play());
    let (clean, lossy) = (&games[0], &games[1]);
    let mut findings = Findings::default();
    super::common(&mut findings);
    findings.parameter("sites", "5, a ninja each, 25 updates a second");
    findings.parameter("link", "60 ms, 3 ms mean jitter; no loss, and 8 % in bursts of 4 on average");
    findings.parameter("time", format!("{seconds} s after 5 s of warming up"));
    findings.tables.push(table(lossy));
    findings.figures.push(figure(&lossy.pairs[0]));
    claims(&mut findings, clean, lossy);
    findings
}

/// What was seen where so many updates in a row were missing.
fn around(outcome: &Outcome, missing: std::ops::RangeInclusive<u32>) -> Summary {
    let samples = outcome.pairs.iter().flat_map(|pair| &pair.samples);
    Summary::of(samples.filter(|sample| missing.contains(&sample.missing)).map(|sample| sample.units))
}

fn table(outcome: &Outcome) -> Table {
    let columns = ["missing_in_a_row", "samples", "mean_units", "p90_units", "most_units", "under_50_percent"];
    let mut table = Table::new("moments", "Drift around gaps of so many updates", &columns);
    for missing in 0..=12 {
        let summary = around(outcome, missing..=missing);
        table.row([
            whole(missing),
            whole(summary.count as i64),
            number(summary.mean, 2),
            number(summary.p90, 2),
            number(summary.most, 2),
            number(summary.under_50 * 100.0, 2),
        ]);
    }
    table
}

fn figure(pair: &Pair) -> Figure {
    let begin = pair.samples.first().map_or(0, |sample| sample.at);
    let at = |at: i64| (at - begin) as f64 / 1e9;
    let shown: Vec<_> = pair.samples.iter().take_while(|sample| at(sample.at) < SHOWN_S).collect();
    let axis = || Axis::new("time, s").from(0.0).to(SHOWN_S);
    let panels = vec![
        Panel::new("Distance between the two views", axis(), Axis::new("units").from(0.0))
            .points("", Ink::First, shown.iter().map(|sample| (at(sample.at), sample.units)))
            .horizontal(50.0, "50 units"),
        Panel::new("Updates missing in a row", axis(), Axis::new("updates").from(0.0)).steps(
            "",
            Ink::Paper,
            shown.iter().map(|sample| (at(sample.at), f64::from(sample.missing))),
        ),
    ];
    let caption = "Another's view of an avatar against its owner's, view by view (above), and how many updates in a row were missing around that moment (below). \
                   Where nothing is drawn the avatar was dead.";
    Figure::new("moments", "Drift and consecutive losses over time (G, Figure 2)", caption, panels)
}

fn claims(findings: &mut Findings, clean: &Outcome, lossy: &Outcome) {
    let without = Summary::of(clean.units());
    findings.claim(
        "without loss an avatar is seen where it is",
        "no drift in the best case",
        format!("{:.2} units on average", without.mean),
        without.count > 1_000 && without.mean < 2.0,
    );
    let bursts = around(lossy, 3..=5);
    findings.claim(
        "3 to 5 updates missing in a row: under 50 units in 90 % of the cases",
        "under 50 units in 90 %",
        format!("{:.1} % of {} views; {:.1} units on average", bursts.under_50 * 100.0, bursts.count, bursts.mean),
        bursts.count > 100 && bursts.under_50 >= 0.9,
    );
    let off = clean.clocks.0.max(lossy.clocks.0);
    findings.claim(
        "clocks are known to 10 ms",
        "10 ms is what it needs",
        format!("{off:.2} ms off at worst"),
        off < 10.0,
    );
}
