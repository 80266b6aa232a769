//! Figure 2: drift and consecutive losses over time.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_maze::drift::{DriftSeries, DriftSummary};

use super::maze_match::{MatchOutcome, MazeMatch};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `moments` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "moments",
    title: "Drift while updates get lost",
    summary: "While updates arrive, the other sites see an avatar where its owner sees it. When consecutive updates are missing, the sites dead-reckon with little error, since an avatar moves along lines and circles.",
    paper: &GAUTIER,
    paper_figures: "Figure 2",
    expected_seconds: 3.0,
    run,
    real_run: None,
};

/// Length of the plotted part of the game, in seconds.
const PLOTTED_SECONDS: f64 = 40.0;

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seconds = context.full_or_short(300, 60);
    let link = |loss| LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(60)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(3) },
        reorder: true,
        loss,
        ..LinkConfig::default()
    };
    let seed = context.seed;
    let losses = [Loss::None, Loss::bursts(0.08, 4.0)];
    let outcomes = context
        .run_jobs(1.0, &losses, |loss| MazeMatch::new(seed, UpdatePolicy::fixed(25), link(*loss), seconds).run());
    let (clean, lossy) = (&outcomes[0], &outcomes[1]);
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, one ninja each, 25 updates per second");
    findings.add_parameter("link", "60 ms, 3 ms mean jitter; no loss, and 8 % in bursts of 4 on average");
    findings.add_parameter("time", format!("{seconds} s after 5 s of warm-up"));
    findings.tables.push(table(lossy));
    findings.figures.push(figure(&lossy.pairs[0]));
    claims(&mut findings, clean, lossy);
    findings
}

/// Returns a summary of the drift in all views, over all avatars and sites, that fall into a run of missing updates
/// whose length is in `missing`. Length 0 means that no update is missing around the view.
fn drift_with_missing(outcome: &MatchOutcome, missing: std::ops::RangeInclusive<u32>) -> DriftSummary {
    let samples = outcome.pairs.iter().flat_map(|pair| &pair.samples);
    DriftSummary::from_distances(
        samples.filter(|sample| missing.contains(&sample.missing_updates)).map(|sample| sample.distance),
    )
}

fn table(outcome: &MatchOutcome) -> DataTable {
    let columns = [
        "consecutive_missing",
        "samples",
        "mean_drift_units",
        "p90_drift_units",
        "max_drift_units",
        "under_50_units_percent",
    ];
    let mut table = DataTable::new("moments", "Drift by number of consecutive missing updates", &columns);
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
    let start = pair.samples.first().map_or(0, |sample| sample.at);
    let at = |at: i64| (at - start) as f64 / 1e9;
    let plotted: Vec<_> = pair.samples.iter().take_while(|sample| at(sample.at) < PLOTTED_SECONDS).collect();
    let axis = || PlotAxis::new("time, s").with_min(0.0).with_max(PLOTTED_SECONDS);
    let panels = vec![
        Panel::new("Drift of one site's view of one avatar", axis(), PlotAxis::new("units").with_min(0.0))
            .points("", SeriesStyle::First, plotted.iter().map(|sample| (at(sample.at), sample.distance)))
            .horizontal_bound(50.0, "50 units"),
        Panel::new("Consecutive missing updates", axis(), PlotAxis::new("updates").with_min(0.0)).steps(
            "",
            SeriesStyle::Paper,
            plotted.iter().map(|sample| (at(sample.at), f64::from(sample.missing_updates))),
        ),
    ];
    let caption = "One avatar as another site sees it, with 8 % loss in bursts. Above: drift, the distance between that site's view of the avatar and the owner's view at the same instant. Below: number of consecutive updates that the site does not receive around that instant. \
                   Points are missing where the views are not compared, for example while the avatar is dead.";
    Figure::new("moments", "Drift and consecutive missing updates over time (G, Figure 2)", caption, panels)
}

fn claims(findings: &mut Findings, clean: &MatchOutcome, lossy: &MatchOutcome) {
    let without = DriftSummary::from_distances(clean.drifts());
    findings.add_claim(
        "without loss the mean drift is below 2 units",
        "no drift in the best case",
        format!("{:.2} units on average", without.mean),
        without.count > 1_000 && without.mean < 2.0,
    );
    let bursts = drift_with_missing(lossy, 3..=5);
    findings.add_claim(
        "with 3 to 5 consecutive updates missing, the drift is under 50 units in at least 90 % of the views",
        "under 50 units in 90 % of the cases",
        format!(
            "{:.1} % of {} views; {:.1} units on average",
            bursts.share_under_50 * 100.0,
            bursts.count,
            bursts.mean
        ),
        bursts.count > 100 && bursts.share_under_50 >= 0.9,
    );
    let clock_error_ms = clean.clock_error.0.max(lossy.clock_error.0);
    findings.add_claim(
        "the error of every clock estimate is less than 10 ms",
        "clocks must agree within 10 ms",
        format!("{clock_error_ms:.2} ms error at worst"),
        clock_error_ms < 10.0,
    );
}
