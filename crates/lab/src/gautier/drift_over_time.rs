//! Figure 2: drift over time, and what was lost meanwhile.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_maze::drift::{DriftSeries, DriftSummary};
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};

use super::maze_match::{MatchOutcome, MazeMatch};
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "moments",
    title: "Drift while updates get lost",
    summary: "As long as updates come, others see an avatar where its owner sees it. When some in a row are missing they reckon, and are hardly wrong: an avatar walks lines and circles.",
    paper: &GAUTIER,
    paper_figures: "Figure 2",
    expected_seconds: 3.0,
    run,
    real_run: None,
};

/// Seconds that are drawn.
const PLOTTED_SECONDS: f64 = 40.0;

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let seconds = bench.full_or_short(300, 60);
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
        bench.run_jobs(1.0, &losses, |loss| MazeMatch::new(seed, UpdatePolicy::fixed(25), link(*loss), seconds).run());
    let (clean, lossy) = (&games[0], &games[1]);
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, a ninja each, 25 updates a second");
    findings.add_parameter("link", "60 ms, 3 ms mean jitter; no loss, and 8 % in bursts of 4 on average");
    findings.add_parameter("time", format!("{seconds} s after 5 s of warming up"));
    findings.tables.push(table(lossy));
    findings.figures.push(figure(&lossy.pairs[0]));
    claims(&mut findings, clean, lossy);
    findings
}

/// What was seen where so many updates in a row were missing.
fn drift_with_missing(outcome: &MatchOutcome, missing: std::ops::RangeInclusive<u32>) -> DriftSummary {
    let samples = outcome.pairs.iter().flat_map(|pair| &pair.samples);
    DriftSummary::from_distances(
        samples.filter(|sample| missing.contains(&sample.missing_updates)).map(|sample| sample.distance),
    )
}

fn table(outcome: &MatchOutcome) -> DataTable {
    let columns = ["missing_in_a_row", "samples", "mean_units", "p90_units", "most_units", "under_50_percent"];
    let mut table = DataTable::new("moments", "Drift around gaps of so many updates", &columns);
    for missing in 0..=12 {
        let summary = drift_with_missing(outcome, missing..=missing);
        table.add_row([
            integer(missing),
            integer(summary.count as i64),
            number(summary.mean, 2),
            number(summary.p90, 2),
            number(summary.max, 2),
            number(summary.share_under_50 * 100.0, 2),
        ]);
    }
    table
}

fn figure(pair: &DriftSeries) -> Figure {
    let begin = pair.samples.first().map_or(0, |sample| sample.at);
    let at = |at: i64| (at - begin) as f64 / 1e9;
    let shown: Vec<_> = pair.samples.iter().take_while(|sample| at(sample.at) < PLOTTED_SECONDS).collect();
    let axis = || PlotAxis::new("time, s").with_min(0.0).with_max(PLOTTED_SECONDS);
    let panels = vec![
        Panel::new("Distance between the two views", axis(), PlotAxis::new("units").with_min(0.0))
            .points("", SeriesStyle::First, shown.iter().map(|sample| (at(sample.at), sample.distance)))
            .horizontal_bound(50.0, "50 units"),
        Panel::new("Updates missing in a row", axis(), PlotAxis::new("updates").with_min(0.0)).steps(
            "",
            SeriesStyle::Paper,
            shown.iter().map(|sample| (at(sample.at), f64::from(sample.missing_updates))),
        ),
    ];
    let caption = "Another's view of an avatar against its owner's, view by view (above), and how many updates in a row were missing around that moment (below). \
                   Where nothing is drawn the avatar was dead.";
    Figure::new("moments", "Drift and consecutive losses over time (G, Figure 2)", caption, panels)
}

fn claims(findings: &mut Findings, clean: &MatchOutcome, lossy: &MatchOutcome) {
    let without = DriftSummary::from_distances(clean.drifts());
    findings.add_claim(
        "without loss an avatar is seen where it is",
        "no drift in the best case",
        format!("{:.2} units on average", without.mean),
        without.count > 1_000 && without.mean < 2.0,
    );
    let bursts = drift_with_missing(lossy, 3..=5);
    findings.add_claim(
        "3 to 5 updates missing in a row: under 50 units in 90 % of the cases",
        "under 50 units in 90 %",
        format!(
            "{:.1} % of {} views; {:.1} units on average",
            bursts.share_under_50 * 100.0,
            bursts.count,
            bursts.mean
        ),
        bursts.count > 100 && bursts.share_under_50 >= 0.9,
    );
    let off = clean.clock_error.0.max(lossy.clock_error.0);
    findings.add_claim(
        "clocks are known to 10 ms",
        "10 ms is what it needs",
        format!("{off:.2} ms off at worst"),
        off < 10.0,
    );
}
