//! Beyond the paper: sites that speak only when others would be wrong, and as often as the network carries.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_maze::drift::Summary;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss, Rate};

use super::play::Match;
use crate::bench::Bench;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Cell, Table, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "quiet",
    title: "Speaking only when others would be wrong",
    shows: "An avatar that reckons itself as others do, and tells only where they would be wrong, needs a fraction of the updates; and where the network is full, who speaks less is understood better.",
    paper: &GAUTIER,
    figures: "beyond the paper: it names congestion control and reckoning at the source as next steps",
    seconds: 8.0,
    run,
    real: None,
};

/// What is compared: how it sends, name, colour.
const SENDINGS: [(UpdatePolicy, &str, Ink); 4] = [
    (UpdatePolicy::fixed(25), "fixed, 25 a second", Ink::Paper),
    (UpdatePolicy::adaptive(5, 25), "adaptive rate", Ink::First),
    (UpdatePolicy::dead_reckoned(8), "reckoned at the source", Ink::Second),
    (UpdatePolicy { is_adaptive: true, ..UpdatePolicy::dead_reckoned(8) }, "both (the default)", Ink::Fourth),
];

const LINKS: [&str; 3] = ["LAN", "60 ms, 5 % lost", "full: 60 ms, 1.8 kB/s"];

fn link(number: usize) -> LinkConfig {
    let far = LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(60)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(3) },
        reorder: true,
        ..LinkConfig::default()
    };
    match number {
        0 => LinkConfig::lan(),
        1 => LinkConfig { loss: Loss::Independent(0.05), ..far },
        // Less than four ninjas need that speak 25 times a second.
        _ => LinkConfig { rate: Some(Rate { bytes_per_second: 1_800, queue_bytes: 1_200 }), ..far },
    }
}

struct Point {
    link: usize,
    sending: usize,
    drift: Summary,
    updates: f64,
    bytes: f64,
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let seconds = bench.either(200, 60);
    let seed = bench.seed;
    let jobs: Vec<(usize, usize)> =
        (0..LINKS.len()).flat_map(|link| (0..SENDINGS.len()).map(move |sending| (link, sending))).collect();
    let points = bench.spread(1.0, &jobs, |(number, sending)| {
        let game = Match { ninjas: 4, sites: 3, ..Match::new(seed, SENDINGS[*sending].0, link(*number), seconds) };
        let outcome = game.play();
        Point {
            link: *number,
            sending: *sending,
            drift: Summary::of(outcome.units()),
            updates: outcome.updates_per_second,
            bytes: outcome.bytes_per_second,
        }
    });
    let mut findings = Findings::default();
    super::common(&mut findings);
    findings.parameter("sites", "3, four ninjas each");
    findings.parameter(
        "links",
        "LAN; 60 ms with 5 % loss; 60 ms with a bottleneck that 25 updates a second of four ninjas do not fit through",
    );
    findings.parameter("reckoned at the source", "told when others would be more than 8 units wrong, and 4 times a second anyway; changes are repeated where updates get lost");
    findings.parameter("adaptive rate", "between 5 and 25 a second, by what receivers report as lost or late");
    findings.parameter("time", format!("{seconds} s each"));
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[Point]) -> Table {
    let columns = [
        "link",
        "sending",
        "updates_per_second",
        "bytes_per_second_to_a_site",
        "mean_units",
        "p90_units",
        "under_50_percent",
    ];
    let mut table = Table::new("quiet", "Updates, bytes and drift", &columns);
    for point in points {
        table.row([
            Cell::Text(LINKS[point.link].into()),
            Cell::Text(SENDINGS[point.sending].1.into()),
            number(point.updates, 2),
            number(point.bytes, 0),
            number(point.drift.mean, 3),
            number(point.drift.p90, 2),
            number(point.drift.under_50 * 100.0, 2),
        ]);
    }
    table
}

fn figure(points: &[Point]) -> Figure {
    let panel = |title: &str, y: &str, part: fn(&Point) -> f64| {
        let panel = Panel::new(title, Axis::of_names("", LINKS), Axis::new(y).from(0.0));
        SENDINGS.iter().enumerate().fold(panel, |panel, (sending, (_, name, ink))| {
            panel.bars(name, *ink, points.iter().filter(|point| point.sending == sending).map(part))
        })
    };
    let panels = vec![
        panel("Updates of an avatar", "a second", |point| point.updates),
        panel("Mean drift", "units", |point| point.drift.mean),
    ];
    let caption = "Twelve ninjas at three sites. Fewer updates cost next to no drift where the network is good, and where it is full they save it.";
    Figure::new(
        "quiet",
        "Reckoning at the source and an adaptive rate, against the paper's fixed rate",
        caption,
        panels,
    )
    .columns(2)
}

fn claims(findings: &mut Findings, points: &[Point]) {
    let of = |link: usize, sending: usize| {
        points.iter().find(|point| point.link == link && point.sending == sending).expect("all of them were played")
    };
    for link in [0, 1] {
        let (fixed, quiet) = (of(link, 0), of(link, 2));
        findings.claim(
            &format!("{}: reckoned at the source, a third of the updates is enough", LINKS[link]),
            "named as a next step",
            format!(
                "{:.1} updates a second against {:.1}, {:.2} units against {:.2}",
                quiet.updates, fixed.updates, quiet.drift.mean, fixed.drift.mean
            ),
            quiet.updates <= fixed.updates / 3.0 && quiet.drift.mean < 16.0,
        );
    }
    let (fixed, adaptive, reckoned, both) = (of(2, 0), of(2, 1), of(2, 2), of(2, 3));
    findings.claim(
        "where the network is full, an adaptive rate and reckoning at the source each drift less than a fixed rate",
        "named as a next step",
        format!(
            "{:.1} units fixed, {:.1} adaptive, {:.1} reckoned, {:.1} with both",
            fixed.drift.mean, adaptive.drift.mean, reckoned.drift.mean, both.drift.mean
        ),
        [adaptive, reckoned, both].iter().all(|ours| ours.drift.mean < fixed.drift.mean / 2.0),
    );
}
