//! Figure 3: drift against how often sites speak.

use coplay::peer_world::UpdatePolicy;

use super::maze_match::MazeMatch;
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "rate",
    title: "Drift against the rate of updates",
    summary: "From 28 updates a second down to 5 it hardly matters how often a site speaks; below that an avatar turns more often than it tells. What is lost matters more.",
    paper: &GAUTIER,
    paper_figures: "Figure 3",
    expected_seconds: 20.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 4] = [SeriesStyle::Second, SeriesStyle::First, SeriesStyle::Paper, SeriesStyle::Fifth];

/// Mean drift at a rate over one of the ways, the half width of its confidence interval, and how far clocks were off.
struct RatePoint {
    link_case: usize,
    rate: u32,
    mean_drift: f64,
    confidence_half_width: f64,
    clock_error_ms: f64,
    /// The part of all pairs that have heard each other of late.
    known_clocks: f64,
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = bench.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = bench.full_or_short(200, 40);
    let jobs: Vec<(usize, u32)> =
        (0..LINK_CASES.len()).flat_map(|way| rates.iter().map(move |rate| (way, *rate))).collect();
    let seed = bench.seed;
    let points = bench.run_jobs(1.0, &jobs, |(way, rate)| {
        let outcome = MazeMatch::new(seed, UpdatePolicy::fixed(*rate), LINK_CASES[*way].link(), seconds).run();
        let (mean, half) = outcome.mean_drift();
        let (clocks_off_ms, clocks_known) = outcome.clock_error;
        RatePoint {
            link_case: *way,
            rate: *rate,
            mean_drift: mean,
            confidence_half_width: half,
            clock_error_ms: clocks_off_ms,
            known_clocks: clocks_known,
        }
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, a ninja each");
    findings.add_parameter("links", "LAN; 100 ms with 4 % loss; 175 ms with 40 % loss, in outages of 2 s on average and one by one; 4 ms mean jitter");
    findings.add_parameter("time", format!("{seconds} s for each rate and link"));
    findings.add_note("The longest way takes more than the playout delay, so every update over it is late and every view is reckoned. How the 40 % are lost decides the shape of its curve. The paper tells of a network that delivered nothing for seconds and more, and of losses in a row as what matters; so its losses are outages here, which last as long however often a site speaks. Then the curve is flat, as the paper's is, at nearly the same height: an outage is what drifts, not the rate, and it does so for a second, after which the avatar is given up on, as in the paper. The same part lost one by one gives another curve: a site that speaks 28 times a second is heard 17 times a second, which is next to no drift, and every step down to 5 costs something.");
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[RatePoint]) -> DataTable {
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
    let mut table = DataTable::new("rate", "Mean drift at each rate", &columns);
    for point in points {
        let way = &LINK_CASES[point.link_case];
        table.add_row([
            integer(way.delay_ms),
            number(way.loss * 100.0, 0),
            way.loss_pattern().into(),
            integer(point.rate),
            number(point.mean_drift, 3),
            number(point.confidence_half_width, 3),
            number(point.clock_error_ms, 3),
            number(point.known_clocks, 2),
        ]);
    }
    table
}

fn figure(points: &[RatePoint]) -> Figure {
    let x = PlotAxis::new("updates a second").with_min(0.0).with_max(28.0);
    let panel = Panel::new("Mean drift", x, PlotAxis::new("units").with_min(0.0));
    let panel = (0..LINK_CASES.len()).fold(panel, |panel, way| {
        let of_way = || points.iter().filter(move |point| point.link_case == way);
        panel
            .band(
                STYLES[way],
                of_way().map(|point| {
                    (
                        f64::from(point.rate),
                        point.mean_drift - point.confidence_half_width,
                        point.mean_drift + point.confidence_half_width,
                    )
                }),
            )
            .line(LINK_CASES[way].name, STYLES[way], of_way().map(|point| (f64::from(point.rate), point.mean_drift)))
    });
    let panel = panel.horizontal_bound(32.0, "").vertical_bound(5.0, "");
    let caption = "Mean distance between an avatar's own view of itself and the others' view of it, with 90 % confidence. \
                   The paper's three ways are flat down to about 5 updates a second and rise below; what is lost one by one is reckoned over if a site speaks often. Dotted: the radius of an avatar, and 5 updates a second.";
    Figure::new("rate", "Drift against the rate of updates (G, Figure 3)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[RatePoint]) {
    let at = |way: usize, rate: u32| {
        points
            .iter()
            .find(|point| point.link_case == way && point.rate == rate)
            .map_or(f64::NAN, |point| point.mean_drift)
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
        findings.add_claim(
            &format!("{}: flat from 28 down to 5 updates a second, and rising below", LINK_CASES[way].name),
            "flat to about 5, at less than 50 units, then rising",
            curve(way),
            at(way, 5) - at(way, 28) < 16.0 && at(way, 5) < 50.0 && rises(way),
        );
    }
    let alone = |rate| at(3, rate) < at(2, rate) / 2.0;
    findings.add_claim(
        "lost one by one, 40 % is next to nothing at 28 updates a second, and as bad as in outages at 5",
        "losses in a row are what matters",
        curve(3),
        alone(28) && alone(20) && at(3, 5) > at(2, 5) * 0.8 && rises(3),
    );
    let often = points
        .iter()
        .filter(|point| point.rate >= 10 && !LINK_CASES[point.link_case].has_outages)
        .map(|point| point.mean_drift)
        .fold(0.0, f64::max);
    findings.add_claim(
        "from 10 updates a second on an avatar is seen within its own radius where there are no outages",
        "under 50 units",
        format!("{often:.1} units at most"),
        often < 32.0,
    );
    let off = points.iter().map(|point| point.clock_error_ms);
    let lan = points.iter().filter(|point| point.link_case == 0).map(|point| point.clock_error_ms).fold(0.0, f64::max);
    let all = off.fold(0.0, f64::max);
    findings.add_claim(
        "clocks of those who are heard are known to 10 ms everywhere, and to 1 ms on the LAN",
        "10 ms is what it needs",
        format!("{all:.2} ms off at worst, {lan:.3} ms on the LAN"),
        all < 10.0 && lan < 1.0 && points.iter().all(|point| point.known_clocks > 0.5),
    );
}
