//! Figure 5: one trace told more seldom, against games that are played at each rate.

use coplay::peer_world::UpdatePolicy;

use super::maze_match::MazeMatch;
use super::path_replay::{mean_drift_of_all, record_paths};
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "thinning",
    title: "One trace thinned, against separate games",
    summary: "The walk of one game, told again at lower rates, drifts as games do that are played at those rates: so one trace is enough to study losses.",
    paper: &GAUTIER,
    paper_figures: "Figure 5",
    expected_seconds: 12.0,
    run,
    real_run: None,
};

/// The two ways that the paper compares: the LAN, and the bad one.
const COMPARED_LINKS: [(usize, SeriesStyle); 2] = [(0, SeriesStyle::Second), (2, SeriesStyle::Paper)];

/// Way, rate, drift of the thinned trace, and of a game.
type ThinningPoint = (usize, u32, f64, f64);

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = bench.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = bench.full_or_short(120, 40);
    let jobs: Vec<(usize, u32)> =
        COMPARED_LINKS.iter().flat_map(|(way, _)| rates.iter().map(move |rate| (*way, *rate))).collect();
    let seed = bench.seed;
    let ways: Vec<usize> = COMPARED_LINKS.iter().map(|(way, _)| *way).collect();
    let paths = bench
        .run_jobs(0.1, &ways, |way| record_paths(seed, seconds, UpdatePolicy::fixed(28), &LINK_CASES[*way].link()));
    let points: Vec<ThinningPoint> = bench.run_jobs(0.9, &jobs, |(way, rate)| {
        let of_way = &paths[ways.iter().position(|of| of == way).unwrap_or(0)];
        let thinned = mean_drift_of_all(of_way, seed, UpdatePolicy::fixed(*rate), &LINK_CASES[*way].link());
        let played =
            MazeMatch::new(seed + u64::from(*rate), UpdatePolicy::fixed(*rate), LINK_CASES[*way].link(), seconds)
                .run()
                .mean_drift()
                .0;
        (*way, *rate, thinned, played)
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("thinned", "the walks of five ninjas that told of themselves 28 times a second");
    findings.add_parameter("separate", "a game of its own, with another seed and maze, for each rate");
    findings.add_parameter("time", format!("{seconds} s each"));
    let mut table = DataTable::new(
        "thinning",
        "Mean drift of a thinned trace and of separate games",
        &["loss_percent", "updates_per_second", "thinned_units", "separate_units"],
    );
    for (way, rate, thinned, played) in &points {
        table.add_row([
            number(LINK_CASES[*way].loss * 100.0, 0),
            integer(*rate),
            number(*thinned, 3),
            number(*played, 3),
        ]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn figure(points: &[ThinningPoint]) -> Figure {
    let x = PlotAxis::new("updates a second").with_min(0.0).with_max(28.0);
    let panel = COMPARED_LINKS.iter().fold(
        Panel::new("Mean drift", x, PlotAxis::new("units").with_min(0.0)),
        |panel, (way, ink)| {
            let of_way = || points.iter().filter(move |(of, ..)| of == way);
            let name = LINK_CASES[*way].name;
            panel
                .line(
                    &format!("{name}: thinned"),
                    *ink,
                    of_way().map(|(_, rate, thinned, _)| (f64::from(*rate), *thinned)),
                )
                .points(
                    &format!("{name}: separate"),
                    *ink,
                    of_way().map(|(_, rate, _, played)| (f64::from(*rate), *played)),
                )
        },
    );
    let caption = "Lines: one trace of 28 updates a second, of which fewer are told. Points: games that were played at that rate.";
    Figure::new("thinning", "Thinning one trace against separate games (G, Figure 5)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[ThinningPoint]) {
    for (way, _) in COMPARED_LINKS {
        let of_way: Vec<&ThinningPoint> = points.iter().filter(|(of, ..)| *of == way).collect();
        let apart = of_way.iter().map(|(_, _, thinned, played)| (thinned - played).abs());
        let worst_ratio = of_way.iter().map(|(_, _, thinned, played)| (thinned + 8.0) / (played + 8.0));
        let worst = worst_ratio.map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max);
        let mean = apart.sum::<f64>() / of_way.len().max(1) as f64;
        findings.add_claim(
            &format!("{}: a thinned trace drifts as separate games do", LINK_CASES[way].name),
            "good agreement without loss, less with much",
            format!("{mean:.1} units apart on average, a factor of {worst:.2} at worst"),
            worst < 1.6,
        );
    }
}
