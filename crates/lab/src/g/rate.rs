//! Figure 3: drift against how often sites speak.

use coplay::peer_world::UpdatePolicy;

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
    name: "rate",
    title: "Drift against the rate of updates",
    shows: "From 28 updates a second down to 5 it hardly matters how often a site speaks; below that an avatar turns more often than it tells. What is lost matters more.",
    paper: &GAUTIER,
    figures: "Figure 3",
    seconds: 20.0,
    run,
    real: None,
};

const INKS: [Ink; 4] = [Ink::Second, Ink::First, Ink::Paper, Ink::Fifth];

/// Mean drift at a rate over one of the ways, the half width of its confidence interval, and how far clocks were off.
struct Point {
    way: usize,
    rate: u32,
    mean: f64,
    half: f64,
    clocks_off_ms: f64,
    /// The part of all pairs that have heard each other of late.
    clocks_known: f64,
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let rates: &[u32] = bench.either(&RATES, &FEW_RATES);
    let seconds = bench.either(200, 40);
    let jobs: Vec<(usize, u32)> = (0..WAYS.len()).flat_map(|way| rates.iter().map(move |rate| (way, *rate))).collect();
    let seed = bench.seed;
    let points = bench.spread(1.0, &jobs, |(way, rate)| {
        let outcome = Match::new(seed, UpdatePolicy::fixed(*rate), WAYS[*way].link(), seconds).play();
        let (mean, half) = outcome.mean();
        let (clocks_off_ms, clocks_known) = outcome.clocks;
        Point { way: *way, rate: *rate, mean, half, clocks_off_ms, clocks_known }
    });
    let mut findings = Findings::default();
    super::common(&mut findings);
    findings.parameter("sites", "5, a ninja each");
    findings.parameter("links", "LAN; 100 ms with 4 % loss; 175 ms with 40 % loss, in outages of 2 s on average and one by one; 4 ms mean jitter");
    findings.parameter("time", format!("{seconds} s for each rate and link"));
    findings.note("The longest way takes more than the playout delay, so every update over it is late and every view is reckoned. How the 40 % are lost decides the shape of its curve. The paper tells of a network that delivered nothing for seconds and more, and of losses in a row as what matters; so its losses are outages here, which last as long however often a site speaks. Then the curve is flat, as the paper's is, at nearly the same height: an outage is what drifts, not the rate, and it does so for a second, after which the avatar is given up on, as in the paper. The same part lost one by one gives another curve: a site that speaks 28 times a second is heard 17 times a second, which is next to no drift, and every step down to 5 costs something.");
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[Point]) -> Table {
    let columns = [
        "delay_ms",
        "loss_percent",
        "losses",
        "updates_per_second",
        "mean_units",
        "confidence_90_units",
        "clocks_off_ms",
        "clocks_known",
    ];
    let mut table = Table::new("rate", "Mean drift at each rate", &columns);
    for point in points {
        let way = &WAYS[point.way];
        table.row([
            whole(way.delay_ms),
            number(way.lost * 100.0, 0),
            way.losses().into(),
            whole(point.rate),
            number(point.mean, 3),
            number(point.half, 3),
            number(point.clocks_off_ms, 3),
            number(point.clocks_known, 2),
        ]);
    }
    table
}

fn figure(points: &[Point]) -> Figure {
    let x = Axis::new("updates a second").from(0.0).to(28.0);
    let panel = Panel::new("Mean drift", x, Axis::new("units").from(0.0));
    let panel = (0..WAYS.len()).fold(panel, |panel, way| {
        let of_way = || points.iter().filter(move |point| point.way == way);
        panel
            .band(
                INKS[way],
                of_way().map(|point| (f64::from(point.rate), point.mean - point.half, point.mean + point.half)),
            )
            .line(WAYS[way].name, INKS[way], of_way().map(|point| (f64::from(point.rate), point.mean)))
    });
    let panel = panel.horizontal(32.0, "").vertical(5.0, "");
    let caption = "Mean distance between an avatar's own view of itself and the others' view of it, with 90 % confidence. \
                   The paper's three ways are flat down to about 5 updates a second and rise below; what is lost one by one is reckoned over if a site speaks often. Dotted: the radius of an avatar, and 5 updates a second.";
    Figure::new("rate", "Drift against the rate of updates (G, Figure 3)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[Point]) {
    let at = |way: usize, rate: u32| {
        points.iter().find(|point| point.way == way && point.rate == rate).map_or(f64::NAN, |point| point.mean)
    };
    let curve = |way| {
        format!(
            "{:.1} units at 28, {:.1} at 5, {:.1} at 2, {:.1} at 1",
            at(way, 28),
            at(way, 5),
            at(way, 2),
            at(way, 1)
        )
    };
    let rises = |way| at(way, 1) > at(way, 5) + 32.0 && at(way, 1) > at(way, 5) * 2.0;
    for way in [0, 1, 2] {
        findings.claim(
            &format!("{}: flat from 28 down to 5 updates a second, and rising below", WAYS[way].name),
            "flat to about 5, at less than 50 units, then rising",
            curve(way),
            at(way, 5) - at(way, 28) < 16.0 && at(way, 5) < 50.0 && rises(way),
        );
    }
    let alone = |rate| at(3, rate) < at(2, rate) / 2.0;
    findings.claim(
        "lost one by one, 40 % is next to nothing at 28 updates a second, and as bad as in outages at 5",
        "losses in a row are what matters",
        curve(3),
        alone(28) && alone(20) && at(3, 5) > at(2, 5) * 0.8 && rises(3),
    );
    let often = points
        .iter()
        .filter(|point| point.rate >= 10 && !WAYS[point.way].outages)
        .map(|point| point.mean)
        .fold(0.0, f64::max);
    findings.claim(
        "from 10 updates a second on an avatar is seen within its own radius where there are no outages",
        "under 50 units",
        format!("{often:.1} units at most"),
        often < 32.0,
    );
    let off = points.iter().map(|point| point.clocks_off_ms);
    let lan = points.iter().filter(|point| point.way == 0).map(|point| point.clocks_off_ms).fold(0.0, f64::max);
    let all = off.fold(0.0, f64::max);
    findings.claim(
        "clocks of those who are heard are known to 10 ms everywhere, and to 1 ms on the LAN",
        "10 ms is what it needs",
        format!("{all:.2} ms off at worst, {lan:.3} ms on the LAN"),
        all < 10.0 && lan < 1.0 && points.iter().all(|point| point.clocks_known > 0.5),
    );
}
