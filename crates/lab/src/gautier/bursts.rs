//! Figures 6 and 7: how much is lost, and how many in a row.

use coplay::peer_world::UpdatePolicy;
use coplay_sim::link::{LinkConfig, Loss};

use super::path_replay::{AvatarPath, mean_drift_of_all, record_paths};
use super::{SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "bursts",
    title: "Losses, one by one and in a row",
    summary: "Losses that come one by one are reckoned over. Losses in a row are what hurts: a tenth lost five at a time is as bad as far more lost one by one.",
    paper: &GAUTIER,
    paper_figures: "Figures 6 and 7",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// Part that is lost, mean burst, name, colour, and in which of the two figures.
const LOSS_CASES: [(f64, f64, &str, SeriesStyle, usize); 6] = [
    (0.0, 1.0, "no loss", SeriesStyle::Second, 0),
    (0.1, 1.0, "10 %", SeriesStyle::First, 0),
    (0.3, 1.0, "30 %", SeriesStyle::Paper, 0),
    (0.1, 1.0, "10 %, one by one", SeriesStyle::First, 1),
    (0.1, 5.0, "10 %, bursts of 5", SeriesStyle::Fifth, 1),
    (0.3, 1.0, "30 %, one by one", SeriesStyle::Paper, 1),
];

fn link_with_loss(loss: f64, burst: f64) -> LinkConfig {
    let loss = match burst {
        _ if loss == 0.0 => Loss::None,
        1.0 => Loss::Independent(loss),
        _ => Loss::bursts(loss, burst),
    };
    LinkConfig { loss, ..LinkConfig::lan() }
}

/// Which of [`LOSS_CASES`], the rate, the mean drift.
type BurstPoint = (usize, u32, f64);

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = bench.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = bench.full_or_short(300, 100);
    let seed = bench.seed;
    let paths: Vec<AvatarPath> = record_paths(seed, seconds, UpdatePolicy::fixed(28), &LinkConfig::lan());
    let jobs: Vec<(usize, u32)> =
        (0..LOSS_CASES.len()).flat_map(|which| rates.iter().map(move |rate| (which, *rate))).collect();
    let points: Vec<BurstPoint> = bench.run_jobs(1.0, &jobs, |(which, rate)| {
        let (loss, burst, ..) = LOSS_CASES[*which];
        (*which, *rate, mean_drift_of_all(&paths, seed, UpdatePolicy::fixed(*rate), &link_with_loss(loss, burst)))
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("trace", format!("the walks of five ninjas of {seconds} s on a LAN, thinned"));
    findings.add_parameter("loss", "0, 10 and 30 % independent; 10 % with a mean burst of 5 (Gilbert)");
    let mut table = DataTable::new(
        "bursts",
        "Mean drift of a thinned trace with losses",
        &["loss_percent", "mean_burst", "updates_per_second", "mean_units"],
    );
    for (which, rate, mean) in points.iter().filter(|(which, ..)| ![3, 5].contains(which)) {
        let (loss, burst, ..) = LOSS_CASES[*which];
        table.add_row([number(loss * 100.0, 0), number(burst, 0), integer(*rate), number(*mean, 3)]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn figure(points: &[BurstPoint]) -> Figure {
    let panels = ["How much is lost (Figure 6)", "How many in a row (Figure 7)"].into_iter().enumerate().map(
        |(number, title)| {
            let x = PlotAxis::new("updates a second").with_min(0.0).with_max(28.0);
            let panel = Panel::new(title, x, PlotAxis::new("mean drift, units").with_min(0.0));
            LOSS_CASES.iter().enumerate().filter(|(_, (.., of))| *of == number).fold(
                panel,
                |panel, (which, (_, _, name, ink, _))| {
                    panel.line(
                        name,
                        *ink,
                        points.iter().filter(|(of, ..)| *of == which).map(|(_, rate, mean)| (f64::from(*rate), *mean)),
                    )
                },
            )
        },
    );
    let caption = "The same walks, told at lower rates over links that lose more (left), and that lose as much in bursts (right).";
    Figure::new("bursts", "Drift with losses, one by one and in bursts (G, Figures 6 and 7)", caption, panels.collect())
        .columns(2)
}

fn claims(findings: &mut Findings, points: &[BurstPoint]) {
    let at = |which: usize, rate: u32| {
        points.iter().find(|(of, at, _)| *of == which && *at == rate).map_or(f64::NAN, |(_, _, mean)| *mean)
    };
    findings.add_claim(
        "independent loss changes little where updates come often",
        "the curves are not far apart",
        format!(
            "at 20 a second {:.2} units without, {:.2} with 10 %, {:.2} with 30 %",
            at(0, 20),
            at(1, 20),
            at(2, 20)
        ),
        at(2, 20) - at(0, 20) < 16.0,
    );
    let ratio = |rate: u32| at(4, rate) / at(2, rate);
    let worse = [20, 28].into_iter().all(|rate| at(4, rate) > at(1, rate) * 1.5);
    findings.add_claim(
        "a tenth lost in bursts of 5 is far worse than a tenth lost one by one",
        "significantly higher",
        format!("at 20 a second {:.2} units against {:.2}", at(4, 20), at(1, 20)),
        worse,
    );
    findings.add_claim(
        "10 % lost in bursts of 5 is worse than 30 % lost one by one where updates are quick, and not where they are slow",
        "similar",
        format!(
            "at 20 a second {:.2} and {:.2} units, a factor of {:.2}; at 5 a second {:.2} and {:.2}, a factor of {:.2}",
            at(4, 20),
            at(2, 20),
            ratio(20),
            at(4, 5),
            at(2, 5),
            ratio(5)
        ),
        ratio(20) > 1.0 && ratio(5) < 1.0,
    );
    findings.add_note("One by one means each by itself here, so that now and then two are lost in a row; in the paper the one after a loss always arrives. Which of the two is worse depends on how long an avatar keeps its course. At 20 updates a second one lost update leaves a gap of 100 ms, which is hardly ever a turn, and five in a row leave one of 300 ms, which often is. At 5 a second one lost update leaves 400 ms and is as bad as any; five in a row leave more than a second, after which an avatar is given up on and does not count.");
}
