//! Figure 3: drift over the update rate.

use coplay::peer_world::UpdatePolicy;

use super::maze_match::MazeMatch;
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `rate` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "rate",
    title: "Drift over the update rate",
    summary: "From 28 updates per second down to 5, the update rate hardly affects the drift. Below 5 the drift rises, since an avatar turns more often than its site sends updates. Loss affects the drift more than the rate does.",
    paper: &GAUTIER,
    paper_figures: "Figure 3",
    expected_seconds: 20.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 4] = [SeriesStyle::Second, SeriesStyle::First, SeriesStyle::Paper, SeriesStyle::Fifth];

/// Result at one update rate over one link: mean drift in units, the half width of its 90 % confidence interval, and
/// the accuracy of the clock estimates.
struct RatePoint {
    link_case: usize,
    rate: u32,
    mean_drift: f64,
    confidence_half_width: f64,
    clock_error_ms: f64,
    /// Fraction of site pairs in which the first site knows the second, that is, recently received its datagrams.
    known_clocks: f64,
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = context.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = context.full_or_short(200, 40);
    let jobs: Vec<(usize, u32)> =
        (0..LINK_CASES.len()).flat_map(|link| rates.iter().map(move |rate| (link, *rate))).collect();
    let seed = context.seed;
    let points = context.run_jobs(1.0, &jobs, |(link, rate)| {
        let outcome = MazeMatch::new(seed, UpdatePolicy::fixed(*rate), LINK_CASES[*link].link(), seconds).run();
        let (mean, confidence_half_width) = outcome.mean_drift();
        let (clock_error_ms, known_clocks) = outcome.clock_error;
        RatePoint {
            link_case: *link,
            rate: *rate,
            mean_drift: mean,
            confidence_half_width,
            clock_error_ms,
            known_clocks,
        }
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, one ninja each");
    findings.add_parameter("links", "LAN; 100 ms with 4 % loss; 175 ms with 40 % loss, in outages of 2 s on average and independent; 4 ms mean jitter");
    findings.add_parameter("time", format!("{seconds} s for each rate and link"));
    findings.add_note("The delay of the links with 175 ms exceeds the playout delay, so every update over them is late and every view is dead-reckoned. The pattern of the 40 % loss determines the shape of the curve. The paper reports a network that delivered nothing for seconds and more, and finds that consecutive losses matter. So the losses of this link are modelled as outages, whose duration does not depend on the update rate. The curve is then flat, like the paper's, at nearly the same height: the outages cause the drift, not the rate. An outage causes drift for at most one second; then the avatar is hidden, as in the paper. Independent losses of 40 % give another curve: of 28 updates per second 17 arrive, so there is almost no drift, and the drift grows with every reduction of the rate.");
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[RatePoint]) -> DataTable {
    let columns = [
        "delay_ms",
        "loss_percent",
        "loss_pattern",
        "updates_per_second",
        "mean_drift_units",
        "confidence_90_units",
        "clock_error_ms",
        "known_peers_fraction",
    ];
    let mut table = DataTable::new("rate", "Mean drift and clock error by link and update rate", &columns);
    for point in points {
        let link = &LINK_CASES[point.link_case];
        table.add_row([
            integer(link.delay_ms),
            number(link.loss * 100.0, 0),
            link.loss_pattern().into(),
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
    let x = PlotAxis::new("updates per second").with_min(0.0).with_max(28.0);
    let panel = Panel::new("Mean drift", x, PlotAxis::new("units").with_min(0.0));
    let panel = (0..LINK_CASES.len()).fold(panel, |panel, link| {
        let of_link = || points.iter().filter(move |point| point.link_case == link);
        panel
            .band(
                STYLES[link],
                of_link().map(|point| {
                    (
                        f64::from(point.rate),
                        point.mean_drift - point.confidence_half_width,
                        point.mean_drift + point.confidence_half_width,
                    )
                }),
            )
            .line(LINK_CASES[link].name, STYLES[link], of_link().map(|point| (f64::from(point.rate), point.mean_drift)))
    });
    let panel = panel.horizontal_bound(32.0, "radius of an avatar").vertical_bound(5.0, "5 updates per second");
    let caption = "Mean distance between the owner's view of an avatar and the other sites' views of it, with 90 % confidence intervals (bands). \
                   The curves of the paper's three links (the first three) are flat down to about 5 updates per second and rise below 5. At high rates, dead reckoning hides independent losses.";
    Figure::new("rate", "Drift over the update rate (G, Figure 3)", caption, vec![panel])
}

fn claims(findings: &mut Findings, points: &[RatePoint]) {
    let at = |link: usize, rate: u32| {
        points
            .iter()
            .find(|point| point.link_case == link && point.rate == rate)
            .map_or(f64::NAN, |point| point.mean_drift)
    };
    let curve = |link| {
        format!(
            "{:.1} units at 28 per second, {:.1} at 5, {:.1} at 2, {:.1} at 1",
            at(link, 28),
            at(link, 5),
            at(link, 2),
            at(link, 1)
        )
    };
    let rises = |link| at(link, 1) > at(link, 5) + 32.0 && at(link, 1) > at(link, 5) * 2.0;
    for link in [0, 1, 2] {
        findings.add_claim(
            &format!(
                "{}: from 28 down to 5 updates per second the mean drift grows by less than 16 units and stays below 50; at 1 per second it is more than twice as large as at 5, and more than 32 units larger",
                LINK_CASES[link].name
            ),
            "flat from 28 down to about 5 per second, at less than 50 units; rising below",
            curve(link),
            at(link, 5) - at(link, 28) < 16.0 && at(link, 5) < 50.0 && rises(link),
        );
    }
    let below_half = |rate| at(3, rate) < at(2, rate) / 2.0;
    findings.add_claim(
        "40 % independent loss causes less than half the drift of 40 % loss in outages at 28 and 20 updates per second, and over 80 % of that drift at 5; at 1 per second its drift is more than twice as large as at 5, and more than 32 units larger",
        "consecutive losses matter for the drift",
        curve(3),
        below_half(28) && below_half(20) && at(3, 5) > at(2, 5) * 0.8 && rises(3),
    );
    let max_drift = points
        .iter()
        .filter(|point| point.rate >= 10 && !LINK_CASES[point.link_case].has_outages)
        .map(|point| point.mean_drift)
        .fold(0.0, f64::max);
    findings.add_claim(
        "at 10 or more updates per second and without outages, the mean drift is below the avatar's radius of 32 units",
        "under 50 units",
        format!("{max_drift:.1} units at most"),
        max_drift < 32.0,
    );
    let errors = points.iter().map(|point| point.clock_error_ms);
    let lan = points.iter().filter(|point| point.link_case == 0).map(|point| point.clock_error_ms).fold(0.0, f64::max);
    let all = errors.fold(0.0, f64::max);
    findings.add_claim(
        "clock estimates of known peers are wrong by less than 10 ms on all links and by less than 1 ms on the LAN, and sites know over half of their peers",
        "clocks must agree within 10 ms",
        format!("by at most {all:.2} ms, on the LAN by at most {lan:.3} ms"),
        all < 10.0 && lan < 1.0 && points.iter().all(|point| point.known_clocks > 0.5),
    );
}
