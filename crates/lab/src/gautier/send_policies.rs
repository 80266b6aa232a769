//! Beyond the paper: sites that speak only when others would be wrong, and as often as the network carries.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_maze::drift::DriftSummary;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss, Rate};

use super::maze_match::MazeMatch;
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, TableCell, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "quiet",
    title: "Speaking only when others would be wrong",
    summary: "An avatar that reckons itself as others do, and tells only where they would be wrong, needs a fraction of the updates; and where the network is full, who speaks less is understood better.",
    paper: &GAUTIER,
    paper_figures: "beyond the paper: it names congestion control and reckoning at the source as next steps",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// What is compared: how it sends, name, colour.
const SEND_POLICIES: [(UpdatePolicy, &str, SeriesStyle); 4] = [
    (UpdatePolicy::fixed(25), "fixed, 25 a second", SeriesStyle::Paper),
    (UpdatePolicy::adaptive(5, 25), "adaptive rate", SeriesStyle::First),
    (UpdatePolicy::dead_reckoned(8), "reckoned at the source", SeriesStyle::Second),
    (UpdatePolicy { is_adaptive: true, ..UpdatePolicy::dead_reckoned(8) }, "both (the default)", SeriesStyle::Fourth),
];

const LINK_NAMES: [&str; 3] = ["LAN", "60 ms, 5 % lost", "full: 60 ms, 1.8 kB/s"];

fn link_config(number: usize) -> LinkConfig {
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

struct SendPolicyPoint {
    link: usize,
    send_policy: usize,
    drift: DriftSummary,
    updates_per_second: f64,
    bytes_per_second: f64,
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let seconds = bench.full_or_short(200, 60);
    let seed = bench.seed;
    let jobs: Vec<(usize, usize)> =
        (0..LINK_NAMES.len()).flat_map(|link| (0..SEND_POLICIES.len()).map(move |sending| (link, sending))).collect();
    let points = bench.run_jobs(1.0, &jobs, |(number, sending)| {
        let game = MazeMatch {
            ninjas: 4,
            sites: 3,
            ..MazeMatch::new(seed, SEND_POLICIES[*sending].0, link_config(*number), seconds)
        };
        let outcome = game.run();
        SendPolicyPoint {
            link: *number,
            send_policy: *sending,
            drift: DriftSummary::from_distances(outcome.drifts()),
            updates_per_second: outcome.updates_per_second,
            bytes_per_second: outcome.bytes_per_second,
        }
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "3, four ninjas each");
    findings.add_parameter(
        "links",
        "LAN; 60 ms with 5 % loss; 60 ms with a bottleneck that 25 updates a second of four ninjas do not fit through",
    );
    findings.add_parameter("reckoned at the source", "told when others would be more than 8 units wrong, and 4 times a second anyway; changes are repeated where updates get lost");
    findings.add_parameter("adaptive rate", "between 5 and 25 a second, by what receivers report as lost or late");
    findings.add_parameter("time", format!("{seconds} s each"));
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[SendPolicyPoint]) -> DataTable {
    let columns = [
        "link",
        "sending",
        "updates_per_second",
        "bytes_per_second_to_a_site",
        "mean_units",
        "p90_units",
        "under_50_percent",
    ];
    let mut table = DataTable::new("quiet", "Updates, bytes and drift", &columns);
    for point in points {
        table.add_row([
            TableCell::Text(LINK_NAMES[point.link].into()),
            TableCell::Text(SEND_POLICIES[point.send_policy].1.into()),
            number(point.updates_per_second, 2),
            number(point.bytes_per_second, 0),
            number(point.drift.mean, 3),
            number(point.drift.p90, 2),
            number(point.drift.share_under_50 * 100.0, 2),
        ]);
    }
    table
}

fn figure(points: &[SendPolicyPoint]) -> Figure {
    let panel = |title: &str, y: &str, part: fn(&SendPolicyPoint) -> f64| {
        let panel = Panel::new(title, PlotAxis::categorical("", LINK_NAMES), PlotAxis::new(y).with_min(0.0));
        SEND_POLICIES.iter().enumerate().fold(panel, |panel, (sending, (_, name, ink))| {
            panel.bars(name, *ink, points.iter().filter(|point| point.send_policy == sending).map(part))
        })
    };
    let panels = vec![
        panel("Updates of an avatar", "a second", |point| point.updates_per_second),
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

fn claims(findings: &mut Findings, points: &[SendPolicyPoint]) {
    let of = |link: usize, sending: usize| {
        points.iter().find(|point| point.link == link && point.send_policy == sending).expect("all of them were played")
    };
    for link in [0, 1] {
        let (fixed, quiet) = (of(link, 0), of(link, 2));
        findings.add_claim(
            &format!("{}: reckoned at the source, a third of the updates is enough", LINK_NAMES[link]),
            "named as a next step",
            format!(
                "{:.1} updates a second against {:.1}, {:.2} units against {:.2}",
                quiet.updates_per_second, fixed.updates_per_second, quiet.drift.mean, fixed.drift.mean
            ),
            quiet.updates_per_second <= fixed.updates_per_second / 3.0 && quiet.drift.mean < 16.0,
        );
    }
    let (fixed, adaptive, reckoned, both) = (of(2, 0), of(2, 1), of(2, 2), of(2, 3));
    findings.add_claim(
        "where the network is full, an adaptive rate and reckoning at the source each drift less than a fixed rate",
        "named as a next step",
        format!(
            "{:.1} units fixed, {:.1} adaptive, {:.1} reckoned, {:.1} with both",
            fixed.drift.mean, adaptive.drift.mean, reckoned.drift.mean, both.drift.mean
        ),
        [adaptive, reckoned, both].iter().all(|ours| ours.drift.mean < fixed.drift.mean / 2.0),
    );
}
