//! Figure 5: one trace told more seldom, against games that are played at each rate.

use coplay::peer_world::UpdatePolicy;

use super::path::{record, replay_all};
use super::play::Match;
use super::{FEW_RATES, RATES, WAYS};
use crate::bench::Bench;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "thinning",
    title: "One trace thinned, against separate games",
    shows: "The walk of one game, told again at lower rates, drifts as games do that are played at those rates: so one trace is enough to study losses.",
    paper: &GAUTIER,
    figures: "Figure 5",
    seconds: 12.0,
    run,
    real: None,
};

/// The two ways that the paper compares: the LAN, and the bad one.
const COMPARED: [(usize, Ink); 2] = [(0, Ink::Second), (2, Ink::Paper)];

/// Way, rate, drift of the thinned trace, and of a game.
type Point = (usize, u32, f64, f64);

fn run(bench: &mut Bench<'_>) -> Findings {
    let rates: &[u32] = bench.either(&RATES, &FEW_RATES);
    let seconds = bench.either(120, 40);
    let jobs: Vec<(usize, u32)> =
        COMPARED.iter().flat_map(|(way, _)| rates.iter().map(move |rate| (*way, *rate))).collect();
    let seed = bench.seed;
    let ways: Vec<usize> = COMPARED.iter().map(|(way, _)| *way).collect();
    let paths = bench.spread(0.1, &ways, |way| record(seed, seconds, UpdatePolicy::fixed(28), &WAYS[*way].link()));
    let points: Vec<Point> = bench.spread(0.9, &jobs, |(way, rate)| {
        let of_way = &paths[ways.iter().position(|of| of == way).unwrap_or(0)];
        let thinned = replay_all(of_way, seed, UpdatePolicy::fixed(*rate), &WAYS[*way].link());
        let played =
            Match::new(seed + u64::from(*rate), UpdatePolicy::fixed(*rate), WAYS[*way].link(), seconds).play().mean().0;
        (*way, *rate, thinned, played)
    });
    let mut findings = Findings::default();
    super::common(&mut findings);
    findings.parameter("thinned", "the walks of five ninjas that told of themselves 28 times a second");
    findings.parameter("separate", "a game of its own, with another seed and maze, for each rate");
    findings.parameter("time", format!("{seconds} s each"));
    let mut table = Table::new(
        "thinning",
        "Mean drift of a thinned trace and of separate games",
        &["loss_percent", "updates_per_second", "thinned_units", "separate_units"],
    );
    for (way, rate, thinned, played) in &points {
        table.row([number(WAYS[*way].lost * 100.0, 0), whole(*rate), number(*thinned, 3), number(*played, 3)]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn figure(points: &[Point]) -> Figure {
    let x = Axis::new("updates a second").from(0.0).to(28.0);
    let panel = COMPARED.iter().fold(Panel::new("Mean drift", x, Axis::new("units").from(0.0)), |panel, (way, ink)| {
        let of_way = || points.iter().filter(move |(of, ..)| of == way);
        let name = WAYS[*way].name;
        panel
            .line(&format!("{name}: thinned"), *ink, of_way().map(|(_, rate, thinned, _)| (f64::from(*rate), *thinned)))
            .points(
                &format!("{name}: separate"),
                *ink,
                of_way().map(|(_, rate, _, played)| (f64::from(*rate), *played)),
            )
    });
    let caption = "Lines: one trace of 28 updates a second, of which fewer are told. Points: games that were played at that rate.";
    Figure::new("thinning", "Thinning one trace against separate games (G, Figure 5)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[Point]) {
    for (way, _) in COMPARED {
        let of_way: Vec<&Point> = points.iter().filter(|(of, ..)| *of == way).collect();
        let apart = of_way.iter().map(|(_, _, thinned, played)| (thinned - played).abs());
        let worst_ratio = of_way.iter().map(|(_, _, thinned, played)| (thinned + 8.0) / (played + 8.0));
        let worst = worst_ratio.map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max);
        let mean = apart.sum::<f64>() / of_way.len().max(1) as f64;
        findings.claim(
            &format!("{}: a thinned trace drifts as separate games do", WAYS[way].name),
            "good agreement without loss, less with much",
            format!("{mean:.1} units apart on average, a factor of {worst:.2} at worst"),
            worst < 1.6,
        );
    }
}
