//! Figures 6 and 7: drift by loss rate and by mean number of consecutive losses.

use coplay::peer_world::UpdatePolicy;
use coplay_links::link::{LinkConfig, Loss};

use super::path_replay::{AvatarPath, mean_drift_of_all, record_paths};
use super::{SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `bursts` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "bursts",
    title: "Independent and consecutive losses",
    summary: "Dead reckoning hides independent losses. Consecutive losses cause the drift: at 20 updates per second, 10 % loss in bursts of five causes more drift than 30 % independent loss.",
    paper: &GAUTIER,
    paper_figures: "Figures 6 and 7",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// Compared cases: loss rate, mean burst in updates, label, style, and panel (0 for Figure 6, 1 for Figure 7).
const LOSS_CASES: [(f64, f64, &str, SeriesStyle, usize); 6] = [
    (0.0, 1.0, "no loss", SeriesStyle::Second, 0),
    (0.1, 1.0, "10 % loss", SeriesStyle::First, 0),
    (0.3, 1.0, "30 % loss", SeriesStyle::Paper, 0),
    (0.1, 1.0, "10 % independent loss", SeriesStyle::First, 1),
    (0.1, 5.0, "10 % loss in bursts of 5", SeriesStyle::Fifth, 1),
    (0.3, 1.0, "30 % independent loss", SeriesStyle::Paper, 1),
];

fn link_with_loss(loss: f64, burst: f64) -> LinkConfig {
    let loss = match burst {
        _ if loss == 0.0 => Loss::None,
        1.0 => Loss::Independent(loss),
        _ => Loss::bursts(loss, burst),
    };
    LinkConfig { loss, ..LinkConfig::lan() }
}

/// Index into [`LOSS_CASES`], update rate per second, and mean drift in units.
type BurstPoint = (usize, u32, f64);

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = context.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = context.full_or_short(300, 100);
    let seed = context.seed;
    let paths: Vec<AvatarPath> = record_paths(seed, seconds, UpdatePolicy::fixed(28), &LinkConfig::lan());
    let jobs: Vec<(usize, u32)> =
        (0..LOSS_CASES.len()).flat_map(|case| rates.iter().map(move |rate| (case, *rate))).collect();
    let points: Vec<BurstPoint> = context.run_jobs(1.0, &jobs, |(case, rate)| {
        let (loss, burst, ..) = LOSS_CASES[*case];
        (*case, *rate, mean_drift_of_all(&paths, seed, UpdatePolicy::fixed(*rate), &link_with_loss(loss, burst)))
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings
        .add_parameter("trace", format!("the paths of five ninjas over {seconds} s on a LAN, thinned to each rate"));
    findings.add_parameter("loss", "0, 10 and 30 % independent; 10 % with a mean burst of 5 (Gilbert)");
    let mut table = DataTable::new(
        "bursts",
        "Mean drift of a thinned trace by loss and update rate",
        &["loss_percent", "mean_burst_updates", "updates_per_second", "mean_drift_units"],
    );
    for (case, rate, mean) in points.iter().filter(|(case, ..)| ![3, 5].contains(case)) {
        let (loss, burst, ..) = LOSS_CASES[*case];
        table.add_row([number(loss * 100.0, 0), number(burst, 0), integer(*rate), number(*mean, 3)]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn figure(points: &[BurstPoint]) -> Figure {
    let panels =
        ["By loss rate (Figure 6)", "By burst length (Figure 7)"].into_iter().enumerate().map(|(number, title)| {
            let x = PlotAxis::new("updates per second").with_min(0.0).with_max(28.0);
            let panel = Panel::new(title, x, PlotAxis::new("mean drift, units").with_min(0.0));
            LOSS_CASES.iter().enumerate().filter(|(_, (.., of))| *of == number).fold(
                panel,
                |panel, (case, (_, _, name, style, _))| {
                    panel.line(
                        name,
                        *style,
                        points.iter().filter(|(of, ..)| *of == case).map(|(_, rate, mean)| (f64::from(*rate), *mean)),
                    )
                },
            )
        });
    let caption = "Mean drift of the same recorded paths, replayed at each update rate over links with independent losses (left) and over links with independent losses or bursts (right).";
    Figure::new("bursts", "Mean drift by loss rate and burst length (G, Figures 6 and 7)", caption, panels.collect())
        .columns(2)
}

fn claims(findings: &mut Findings, points: &[BurstPoint]) {
    let at = |case: usize, rate: u32| {
        points.iter().find(|(of, at, _)| *of == case && *at == rate).map_or(f64::NAN, |(_, _, mean)| *mean)
    };
    findings.add_claim(
        "at 20 updates per second, 30 % independent loss adds less than 16 units to the mean drift without loss",
        "the curves are not far apart",
        format!("{:.2} units without loss, {:.2} with 10 % loss, {:.2} with 30 %", at(0, 20), at(1, 20), at(2, 20)),
        at(2, 20) - at(0, 20) < 16.0,
    );
    let ratio = |rate: u32| at(4, rate) / at(2, rate);
    let worse = [20, 28].into_iter().all(|rate| at(4, rate) > at(1, rate) * 1.5);
    findings.add_claim(
        "at 20 and 28 updates per second, 10 % loss in bursts of 5 causes over 1.5 times the drift of 10 % independent loss",
        "significantly higher drift",
        format!("at 20 per second {:.2} units with bursts, {:.2} with independent loss", at(4, 20), at(1, 20)),
        worse,
    );
    findings.add_claim(
        "10 % loss in bursts of 5 causes more drift than 30 % independent loss at 20 updates per second, and less at 5",
        "similar drift",
        format!(
            "at 20 per second {:.2} and {:.2} units, a factor of {:.2}; at 5 per second {:.2} and {:.2}, a factor of {:.2}",
            at(4, 20),
            at(2, 20),
            ratio(20),
            at(4, 5),
            at(2, 5),
            ratio(5)
        ),
        ratio(20) > 1.0 && ratio(5) < 1.0,
    );
    findings.add_note("Independent losses can hit two updates in a row; in the paper the update after a loss always arrives. Which loss pattern causes more drift depends on how long an avatar keeps its course. At 20 updates per second a single loss leaves a gap of 100 ms, which rarely contains a turn; five consecutive losses leave 300 ms, which often does. At 5 updates per second a single loss leaves 400 ms, which is as bad as a longer gap; five consecutive losses leave more than a second, after which the avatar is hidden and does not count.");
}
