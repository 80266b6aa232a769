//! Beyond the paper: sites that send an update only when the other sites' dead reckoning would be wrong, or at a rate
//! that the network can carry, or both.

use coplay::peer_world::UpdatePolicy;
use coplay::time::TimeDelta;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use coplay_maze::drift::DriftSummary;

use super::maze_match::MazeMatch;
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, TableCell, number};

/// Catalog entry of the `quiet` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "quiet",
    title: "Updates only when dead reckoning would be wrong",
    summary: "If a site dead-reckons its own avatars as the other sites do, and sends an update only when the result would be wrong, a fraction of the updates is enough. On a congested network, sending less also reduces drift.",
    paper: &GAUTIER,
    paper_figures: "beyond the paper, which lists congestion control and dead reckoning at the source as future work",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// Compared update policies, with label and style.
const SEND_POLICIES: [(UpdatePolicy, &str, SeriesStyle); 4] = [
    (UpdatePolicy::fixed(25), "fixed, 25 per second", SeriesStyle::Paper),
    (UpdatePolicy::adaptive(5, 25), "adaptive rate", SeriesStyle::First),
    (UpdatePolicy::dead_reckoned(8), "dead-reckoned at the source", SeriesStyle::Second),
    (UpdatePolicy { is_adaptive: true, ..UpdatePolicy::dead_reckoned(8) }, "both (the default)", SeriesStyle::Fourth),
];

const LINK_NAMES: [&str; 3] = ["LAN", "60 ms, 5 % loss", "congested: 60 ms, 1.8 kB/s"];

fn link_config(number: usize) -> LinkConfig {
    let wan = LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(60)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(3) },
        reorder: true,
        ..LinkConfig::default()
    };
    match number {
        0 => LinkConfig::lan(),
        1 => LinkConfig { loss: Loss::Independent(0.05), ..wan },
        // Less than the updates of four ninjas need at 25 per second.
        _ => LinkConfig { rate: Some(Rate { bytes_per_second: 1_800, queue_bytes: 1_200 }), ..wan },
    }
}

struct SendPolicyPoint {
    link: usize,
    send_policy: usize,
    drift: DriftSummary,
    updates_per_second: f64,
    bytes_per_second: f64,
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seconds = context.full_or_short(200, 60);
    let seed = context.seed;
    let jobs: Vec<(usize, usize)> = (0..LINK_NAMES.len())
        .flat_map(|link| (0..SEND_POLICIES.len()).map(move |send_policy| (link, send_policy)))
        .collect();
    let points = context.run_jobs(1.0, &jobs, |(number, send_policy)| {
        let game = MazeMatch {
            ninjas: 4,
            sites: 3,
            ..MazeMatch::new(seed, SEND_POLICIES[*send_policy].0, link_config(*number), seconds)
        };
        let outcome = game.run();
        SendPolicyPoint {
            link: *number,
            send_policy: *send_policy,
            drift: DriftSummary::from_distances(outcome.drifts()),
            updates_per_second: outcome.updates_per_second,
            bytes_per_second: outcome.bytes_per_second,
        }
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "3, with four ninjas each");
    findings.add_parameter(
        "links",
        "LAN; 60 ms with 5 % loss; 60 ms with a bottleneck below the rate of four ninjas at 25 updates per second",
    );
    findings.add_parameter("dead-reckoned at the source", "an update is sent when the other sites' position would be more than 8 units wrong, and at least 4 times per second; changes are repeated where updates get lost");
    findings.add_parameter(
        "adaptive rate",
        "between 5 and 25 per second, controlled by the receivers' reports of lost and late updates",
    );
    findings.add_parameter("time", format!("{seconds} s per run"));
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[SendPolicyPoint]) -> DataTable {
    let columns = [
        "link",
        "update_policy",
        "updates_per_second",
        "bytes_per_second_to_a_site",
        "mean_drift_units",
        "p90_drift_units",
        "under_50_units_percent",
    ];
    let mut table = DataTable::new("quiet", "Updates, bytes and drift by link and update policy", &columns);
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
        SEND_POLICIES.iter().enumerate().fold(panel, |panel, (send_policy, (_, name, style))| {
            panel.bars(name, *style, points.iter().filter(|point| point.send_policy == send_policy).map(part))
        })
    };
    let panels = vec![
        panel("Updates per avatar", "per second", |point| point.updates_per_second),
        panel("Mean drift", "units", |point| point.drift.mean),
    ];
    let caption = "Twelve ninjas at three sites. On a good network, fewer updates cause almost no extra drift. On a congested network, fewer updates reduce the drift.";
    Figure::new("quiet", "Updates and drift by update policy", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, points: &[SendPolicyPoint]) {
    let of = |link: usize, send_policy: usize| {
        points
            .iter()
            .find(|point| point.link == link && point.send_policy == send_policy)
            .expect("every policy ran on every link")
    };
    for link in [0, 1] {
        let (fixed, reckoned) = (of(link, 0), of(link, 2));
        findings.add_claim(
            &format!("{}: with dead reckoning at the source, at most a third of the updates of the fixed rate are sent, and the mean drift is below 16 units", LINK_NAMES[link]),
            "listed as future work",
            format!(
                "{:.1} updates per avatar and second ({:.1} with the fixed rate), mean drift {:.2} units ({:.2})",
                reckoned.updates_per_second, fixed.updates_per_second, reckoned.drift.mean, fixed.drift.mean
            ),
            reckoned.updates_per_second <= fixed.updates_per_second / 3.0 && reckoned.drift.mean < 16.0,
        );
    }
    let (fixed, adaptive, reckoned, both) = (of(2, 0), of(2, 1), of(2, 2), of(2, 3));
    findings.add_claim(
        "on a congested link, the mean drift with an adaptive rate, with dead reckoning at the source and with both is less than half of that with a fixed rate",
        "listed as future work",
        format!(
            "{:.1} units with a fixed rate, {:.1} with an adaptive rate, {:.1} with dead reckoning at the source, {:.1} with both",
            fixed.drift.mean, adaptive.drift.mean, reckoned.drift.mean, both.drift.mean
        ),
        [adaptive, reckoned, both].iter().all(|ours| ours.drift.mean < fixed.drift.mean / 2.0),
    );
}
