//! Figure 5: one trace replayed at lower update rates, compared with separate games at each rate.

use coplay::peer_world::UpdatePolicy;

use super::maze_match::MazeMatch;
use super::path_replay::{mean_drift_of_all, record_paths};
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `thinning` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "thinning",
    title: "One thinned trace compared with separate games",
    summary: "The paths of one game, replayed at lower update rates, show about the same drift as separate games played at those rates. So one trace is enough to study losses.",
    paper: &GAUTIER,
    paper_figures: "Figure 5",
    expected_seconds: 12.0,
    run,
    real_run: None,
};

/// The two links that the paper compares: the LAN and the bad link.
const COMPARED_LINKS: [(usize, SeriesStyle); 2] = [(0, SeriesStyle::Second), (2, SeriesStyle::Paper)];

/// Index of the link, update rate per second, and mean drift in units of the thinned trace and of a separate game.
type ThinningPoint = (usize, u32, f64, f64);

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = context.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = context.full_or_short(120, 40);
    let jobs: Vec<(usize, u32)> =
        COMPARED_LINKS.iter().flat_map(|(link, _)| rates.iter().map(move |rate| (*link, *rate))).collect();
    let seed = context.seed;
    let links: Vec<usize> = COMPARED_LINKS.iter().map(|(link, _)| *link).collect();
    let paths = context
        .run_jobs(0.1, &links, |link| record_paths(seed, seconds, UpdatePolicy::fixed(28), &LINK_CASES[*link].link()));
    let points: Vec<ThinningPoint> = context.run_jobs(0.9, &jobs, |(link, rate)| {
        let of_link = &paths[links.iter().position(|of| of == link).unwrap_or(0)];
        let thinned = mean_drift_of_all(of_link, seed, UpdatePolicy::fixed(*rate), &LINK_CASES[*link].link());
        let played =
            MazeMatch::new(seed + u64::from(*rate), UpdatePolicy::fixed(*rate), LINK_CASES[*link].link(), seconds)
                .run()
                .mean_drift()
                .0;
        (*link, *rate, thinned, played)
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("thinned", "the paths of the five ninjas of one game per link, recorded at 28 updates per second and replayed at each rate");
    findings.add_parameter("separate", "one game per rate, each with its own seed and maze");
    findings.add_parameter("time", format!("{seconds} s per run"));
    let mut table = DataTable::new(
        "thinning",
        "Mean drift of a thinned trace and of separate games, by link and update rate",
        &["loss_percent", "updates_per_second", "thinned_drift_units", "separate_drift_units"],
    );
    for (link, rate, thinned, played) in &points {
        table.add_row([
            number(LINK_CASES[*link].loss * 100.0, 0),
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
    let x = PlotAxis::new("updates per second").with_min(0.0).with_max(28.0);
    let panel = COMPARED_LINKS.iter().fold(
        Panel::new("Mean drift", x, PlotAxis::new("units").with_min(0.0)),
        |panel, (link, style)| {
            let of_link = || points.iter().filter(move |(of, ..)| of == link);
            let name = LINK_CASES[*link].name;
            panel
                .line(
                    &format!("{name}: thinned"),
                    *style,
                    of_link().map(|(_, rate, thinned, _)| (f64::from(*rate), *thinned)),
                )
                .points(
                    &format!("{name}: separate"),
                    *style,
                    of_link().map(|(_, rate, _, played)| (f64::from(*rate), *played)),
                )
        },
    );
    let caption = "Lines: one trace per link of 28 updates per second, thinned to lower rates. Points: separate games, one per rate.";
    Figure::new("thinning", "Mean drift of a thinned trace and of separate games (G, Figure 5)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[ThinningPoint]) {
    for (link, _) in COMPARED_LINKS {
        let of_link: Vec<&ThinningPoint> = points.iter().filter(|(of, ..)| *of == link).collect();
        let differences = of_link.iter().map(|(_, _, thinned, played)| (thinned - played).abs());
        let worst_ratio = of_link.iter().map(|(_, _, thinned, played)| (thinned + 8.0) / (played + 8.0));
        let worst = worst_ratio.map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max);
        let mean = differences.sum::<f64>() / of_link.len().max(1) as f64;
        findings.add_claim(
            &format!(
                "{}: at every rate, the drift of a thinned trace plus 8 units is within a factor of 1.6 of that of a separate game plus 8 units",
                LINK_CASES[link].name
            ),
            "good agreement on the LAN, not quite as good at high loss",
            format!("difference of {mean:.1} units on average, factor of {worst:.2} at worst"),
            worst < 1.6,
        );
    }
}
