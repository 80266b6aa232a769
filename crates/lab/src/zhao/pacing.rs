//! Figures 1 and 2: evenness of the frame times at a site, and synchrony between two sites, over the round-trip time.
//!
//! The paper's own scheme runs as published: Algorithms 3 and 4, a send timer of 20 ms, thread slices of 10 ms. Its
//! frames start in BeginFrameTiming, where the paper logs them. The frames of our scheme start just before the step.

mod real_run;

use coplay_sim::session_experiment::{SessionExperiment, SessionMeasurements};

use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{constant_rtt_link, max_or_zero, mean, min_or_infinity};
use crate::papers::ZHAO;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::real_run::PacingStats;
use crate::table::{DataTable, number};

/// Catalog entry of the `pacing` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "pacing",
    title: "Smoothness and synchrony over the round-trip time",
    summary: "Measures how even the frame times are, and how far apart two sites start the same frame, at RTT 0 to 400 ms. \
            The published scheme becomes uneven well below the lockstep bound: RTT 200 ms, twice the input delay. Our scheme is even up to the bound; beyond it, it slows down evenly without prediction and keeps full speed with prediction.",
    paper: &ZHAO,
    paper_figures: "Figures 1 and 2",
    expected_seconds: 10.0,
    run,
    real_run: Some(real_run::run),
};

/// Input delay of all schemes, in frames.
const INPUT_DELAY: u32 = 6;
/// Frame period at 60 frames per second.
const PERIOD_MS: f64 = 1_000.0 / 60.0;
/// Largest round-trip time at which lockstep runs at full speed: twice the input delay. Beyond it, inputs arrive too
/// late.
const MAX_LOCKSTEP_RTT_MS: f64 = 2.0 * INPUT_DELAY as f64 * PERIOD_MS;
/// Deviation of the frame time from which we call a game rough. The paper's game stays below it up to RTT 130 ms.
const ROUGH_DEVIATION_MS: f64 = 5.0;
/// Deviation of the frame time above which we call a game uneven.
const UNEVEN_DEVIATION_MS: f64 = 1.0;
/// Deviation of the frame time below which we call our pacing even.
const EVEN_DEVIATION_MS: f64 = 0.5;
/// Largest difference of the mean frame time from the frame period that counts as full speed.
const FULL_SPEED_TOLERANCE_MS: f64 = 0.02;
/// Number of averaged runs of the paper's scheme, whose results vary with the seed.
const PAPER_RUNS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// The paper's scheme as published.
    Paper,
    /// Our scheme, with this prediction window in frames.
    Ours(u32),
}

const SCHEMES: [Scheme; 4] = [Scheme::Paper, Scheme::Ours(0), Scheme::Ours(8), Scheme::Ours(16)];

impl Scheme {
    fn name(self) -> String {
        match self {
            Self::Paper => "published scheme".into(),
            Self::Ours(prediction_window) => format!("ours, prediction window {prediction_window}"),
        }
    }

    fn style(self) -> SeriesStyle {
        match self {
            Self::Paper => SeriesStyle::Paper,
            Self::Ours(0) => SeriesStyle::First,
            Self::Ours(8) => SeriesStyle::Second,
            Self::Ours(_) => SeriesStyle::Third,
        }
    }
}

/// Measurement of one scheme at one round-trip time.
#[derive(Clone, Copy, Debug)]
struct PacingPoint {
    scheme: Scheme,
    rtt_ms: f64,
    stats: PacingStats,
    /// Whether every site stepped every frame, and all sites had equal states.
    is_consistent: bool,
}

fn round_trips(context: &ExperimentContext<'_>) -> Vec<f64> {
    let fine = (0..=20).map(|tens| f64::from(tens) * 10.0);
    let full: Vec<f64> = fine.chain([210.0, 220.0, 230.0, 240.0, 250.0, 300.0, 350.0, 400.0]).collect();
    let short = vec![0.0, 50.0, 90.0, 130.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0, 240.0, 300.0, 400.0];
    context.full_or_short(full, short)
}

fn frames(context: &ExperimentContext<'_>) -> u32 {
    context.full_or_short(3_600, 1_200)
}

fn measure(seed: u64, frames: u32, scheme: Scheme, rtt_ms: f64) -> PacingPoint {
    let runs: Vec<(PacingStats, bool)> = match scheme {
        Scheme::Ours(prediction_window) => {
            let game = SessionExperiment {
                seed,
                prediction_window,
                input_delay: INPUT_DELAY,
                frames,
                ..SessionExperiment::new(constant_rtt_link(rtt_ms))
            };
            vec![pacing_stats(&game.run(), SessionMeasurements::worst_deviation_ms)]
        }
        // The other site follows the pace of site 0, and the paper shows site 0.
        Scheme::Paper => (0..PAPER_RUNS)
            .map(|run| SessionExperiment {
                seed: seed + run,
                input_delay: INPUT_DELAY,
                frames,
                ..SessionExperiment::as_published(constant_rtt_link(rtt_ms))
            })
            .map(|game| pacing_stats(&game.run(), |outcome| outcome.deviation_ms[0]))
            .collect(),
    };
    let of = |part: fn(&PacingStats) -> f64| mean(&runs.iter().map(|(stats, _)| part(stats)).collect::<Vec<f64>>());
    let stats = PacingStats {
        frame_ms: of(|stats| stats.frame_ms),
        deviation_ms: of(|stats| stats.deviation_ms),
        synchrony_ms: of(|stats| stats.synchrony_ms),
    };
    PacingPoint { scheme, rtt_ms, stats, is_consistent: runs.iter().all(|(_, is_consistent)| *is_consistent) }
}

fn pacing_stats(outcome: &SessionMeasurements, deviation: fn(&SessionMeasurements) -> f64) -> (PacingStats, bool) {
    let stats = PacingStats {
        frame_ms: outcome.mean_frame_ms[0],
        deviation_ms: deviation(outcome),
        synchrony_ms: outcome.synchrony_ms,
    };
    (stats, outcome.is_complete && outcome.states_equal)
}

fn simulated_points(context: &mut ExperimentContext<'_>, part: f64) -> Vec<PacingPoint> {
    let round_trips = round_trips(context);
    let jobs: Vec<(Scheme, f64)> =
        SCHEMES.into_iter().flat_map(|scheme| round_trips.iter().map(move |rtt_ms| (scheme, *rtt_ms))).collect();
    let (seed, frames) = (context.seed, frames(context));
    context.run_jobs(part, &jobs, |(scheme, rtt_ms)| measure(seed, frames, *scheme, *rtt_ms))
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let points = simulated_points(context, 1.0);
    let mut findings = findings(context, &points);
    claims(&mut findings, &points);
    findings
}

fn findings(context: &ExperimentContext<'_>, points: &[PacingPoint]) -> Findings {
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("input delay", format!("{INPUT_DELAY} frames at 60 per second: 100 ms"));
    findings.add_parameter("link", "constant delay, RTT 0 to 400 ms, no loss");
    findings.add_parameter("frames per run", format!("{} after one second of warm-up", frames(context)));
    findings.add_parameter("inputs", "2 bytes, changing every 8 frames on average");
    findings.add_parameter(
        "published scheme",
        format!("Algorithms 3 and 4, send timer 20 ms, thread delay 0 to 10 ms, step 10 ms; mean of {PAPER_RUNS} runs"),
    );
    findings.add_parameter("clocks", "offset by up to 10,000 s, up to 50 ppm fast or slow");
    findings.add_note("A frame of the published scheme starts in BeginFrameTiming, where the paper logs it, so part of the wait for inputs falls inside the frame and is not visible. A frame of our scheme starts just before its step, so the whole wait is visible.");
    findings.add_note("The published scheme samples the input when a frame begins and waits for the other site's inputs before the step. This adds up to one frame of input delay, so at high RTT the scheme's mean frame time is slightly below RTT / 2 / 6 frames.");
    findings.add_note("With growing RTT, the published scheme becomes uneven more gradually here than in the paper's text. The simulation models the timers, thread slices and pacing of the scheme, but no other timing errors of the two PCs that the paper measured.");
    findings.add_note(&format!("In the claims, a game is even and at full speed if the deviation of the frame time is below {EVEN_DEVIATION_MS} ms, the mean frame time is within {FULL_SPEED_TOLERANCE_MS} ms of the frame period, and the two sites start a frame less than 1 ms apart on average."));
    findings.add_note(
        "The paper's values are taken from its text; the paper does not give the numbers behind its figures.",
    );
    findings.tables.push(table(points));
    findings.figures.push(smoothness_figure(points, &[]));
    findings.figures.push(synchrony_figure(points, &[]));
    findings
}

fn table(points: &[PacingPoint]) -> DataTable {
    let columns = ["scheme", "rtt_ms", "frame_ms", "frames_per_second", "deviation_ms", "synchrony_ms"];
    let mut table = DataTable::new(
        "pacing",
        "Frame time, deviation and synchrony by scheme and round-trip time (Figures 1 and 2)",
        &columns,
    );
    for PacingPoint { scheme, rtt_ms, stats, .. } in points {
        table.add_row([
            scheme.name().into(),
            number(*rtt_ms, 0),
            number(stats.frame_ms, 3),
            number(1_000.0 / stats.frame_ms, 2),
            number(stats.deviation_ms, 3),
            number(stats.synchrony_ms, 3),
        ]);
    }
    table
}

fn points_of_scheme(points: &[PacingPoint], scheme: Scheme) -> impl Iterator<Item = &PacingPoint> {
    points.iter().filter(move |point| point.scheme == scheme)
}

/// Returns a panel with one line per scheme over the round-trip time, and dashed lines for real runs.
fn pacing_panel(
    title: &str,
    y: PlotAxis,
    points: &[PacingPoint],
    real_points: &[PacingPoint],
    part: fn(&PacingStats) -> f64,
) -> Panel {
    let x = PlotAxis::new("round-trip time, ms").with_min(0.0).with_max(400.0);
    let mut panel =
        Panel::new(title, x, y).vertical_bound(MAX_LOCKSTEP_RTT_MS, "lockstep bound: RTT = 2 × input delay");
    for scheme in SCHEMES {
        let line = points_of_scheme(points, scheme).map(|point| (point.rtt_ms, part(&point.stats)));
        panel = panel.line(&scheme.name(), scheme.style(), line);
    }
    let real =
        |scheme: Scheme| points_of_scheme(real_points, scheme).map(move |point| (point.rtt_ms, part(&point.stats)));
    for scheme in SCHEMES.into_iter().filter(|scheme| points_of_scheme(real_points, *scheme).next().is_some()) {
        let style = if scheme == Scheme::Ours(0) { SeriesStyle::Fifth } else { SeriesStyle::Fourth };
        panel = panel.dashed(&format!("{}, real sockets", scheme.name()), style, real(scheme)).points(
            "",
            style,
            real(scheme),
        );
    }
    panel
}

fn smoothness_figure(points: &[PacingPoint], real_points: &[PacingPoint]) -> Figure {
    let frame = pacing_panel(
        "Mean frame time",
        PlotAxis::new("ms").with_min(15.0).with_max(35.0),
        points,
        real_points,
        |stats| stats.frame_ms,
    )
    .points(
        "values in the paper's text",
        SeriesStyle::PaperText,
        [(0.0, 17.0), (90.0, 17.0), (130.0, 17.0), (140.0, 17.0), (160.0, 20.0)],
    )
    .dashed(
        "RTT / 2 / 6 frames",
        SeriesStyle::PaperText,
        [(MAX_LOCKSTEP_RTT_MS, PERIOD_MS), (400.0, 400.0 / 2.0 / f64::from(INPUT_DELAY))],
    );
    let deviation = pacing_panel(
        "Mean absolute deviation of the frame time",
        PlotAxis::new("ms").with_min(0.0).with_max(20.0),
        points,
        real_points,
        |stats| stats.deviation_ms,
    )
    .points("values in the paper's text", SeriesStyle::PaperText, [(90.0, 0.0), (130.0, 5.0), (150.0, 11.0)])
    .horizontal_bound(ROUGH_DEVIATION_MS, "5 ms, not reached in the paper up to RTT 130 ms");
    let caption = "Mean frame time of the first site, and mean absolute deviation of the frame time (published scheme: at the first site; our scheme: at the worse site). The published scheme becomes uneven at about RTT 140 ms. \
                   Our scheme with prediction window 0 is even up to the lockstep bound; beyond it, a frame takes no longer than the input delay requires. Prediction windows of 8 and 16 frames keep full speed up to RTT 400 ms. \
                   Crosses are values from the paper's text: frame time 17 ms up to RTT 140 ms and 20 ms at 160 ms; deviation almost 0 ms up to RTT 90 ms, under 5 ms up to 130 ms, 11 ms or more above 140 ms.";
    Figure::new(
        "pacing-smoothness",
        "Frame time and its deviation over the round-trip time (Z, Figure 1)",
        caption,
        vec![frame, deviation],
    )
}

fn synchrony_figure(points: &[PacingPoint], real_points: &[PacingPoint]) -> Figure {
    let apart = pacing_panel(
        "Mean absolute difference between two sites' starts of the same frame",
        PlotAxis::logarithmic("ms").with_min(0.001).with_max(100.0),
        points,
        real_points,
        |stats| stats.synchrony_ms.max(0.001),
    )
    .points("values in the paper's text", SeriesStyle::PaperText, [(130.0, 10.0), (140.0, 15.0)])
    .horizontal_bound(1.0, "1 ms");
    let caption = "Mean absolute difference between two sites' starts of the same frame, on a logarithmic scale. The paper reports under 10 ms up to RTT 130 ms and about 15 ms at 140 ms (crosses). \
                   Up to the lockstep bound, our two sites start a frame less than 1 ms apart.";
    Figure::new(
        "pacing-synchrony",
        "Synchrony between two sites over the round-trip time (Z, Figure 2)",
        caption,
        vec![apart],
    )
}

/// Returns the smallest measured round-trip time at which the published scheme exceeds this deviation; infinity if it
/// never does.
fn first_rtt_above_deviation(points: &[PacingPoint], deviation_ms: f64) -> f64 {
    let first = points_of_scheme(points, Scheme::Paper).find(|point| point.stats.deviation_ms > deviation_ms);
    first.map_or(f64::INFINITY, |point| point.rtt_ms)
}

fn is_smooth(point: &PacingPoint) -> bool {
    point.is_consistent
        && (point.stats.frame_ms - PERIOD_MS).abs() < FULL_SPEED_TOLERANCE_MS
        && point.stats.deviation_ms < EVEN_DEVIATION_MS
        && point.stats.synchrony_ms < 1.0
}

/// Returns the largest round-trip time up to which all measured points of a scheme are [smooth](is_smooth); 0 if not
/// even the first is.
fn max_smooth_rtt(points: &[PacingPoint], scheme: Scheme) -> f64 {
    max_or_zero(points_of_scheme(points, scheme).take_while(|point| is_smooth(point)).map(|point| point.rtt_ms))
}

fn claims(findings: &mut Findings, points: &[PacingPoint]) {
    let [uneven, rough] =
        [UNEVEN_DEVIATION_MS, ROUGH_DEVIATION_MS].map(|deviation_ms| first_rtt_above_deviation(points, deviation_ms));
    let early = max_or_zero(
        points_of_scheme(points, Scheme::Paper)
            .filter(|point| point.rtt_ms <= 130.0)
            .map(|point| point.stats.deviation_ms),
    );
    findings.add_claim(
        "the deviation of the published scheme is below 1 ms up to RTT 130 ms, first above 1 ms at RTT 140 to 150 ms, and above 5 ms at RTT 180 ms or less",
        "deviation under 5 ms up to RTT 130 ms, 11 ms or more above 140 ms",
        format!("deviation at most {early:.1} ms up to RTT 130 ms, first above {UNEVEN_DEVIATION_MS:.0} ms at RTT {uneven:.0} ms, first above {ROUGH_DEVIATION_MS:.0} ms at RTT {rough:.0} ms"),
        early < UNEVEN_DEVIATION_MS && (140.0..=150.0).contains(&uneven) && rough <= 180.0,
    );
    for (prediction_window, required_rtt) in [(0, 190.0), (8, 400.0), (16, 400.0)] {
        let max_rtt = max_smooth_rtt(points, Scheme::Ours(prediction_window));
        findings.add_claim(
            &format!(
                "with prediction window {prediction_window}, our game is even and at full speed up to RTT {required_rtt:.0} ms or more"
            ),
            "up to RTT 140 ms; with prediction, in a later system of the authors: up to RTT 230 ms",
            format!("up to RTT {max_rtt:.0} ms"),
            max_rtt >= required_rtt,
        );
    }
    let below: Vec<f64> = SCHEMES[1..]
        .iter()
        .flat_map(|scheme| points_of_scheme(points, *scheme))
        .filter(|point| point.rtt_ms < MAX_LOCKSTEP_RTT_MS - 1.0)
        .map(|point| point.stats.synchrony_ms)
        .collect();
    findings.add_claim(
        "below the lockstep bound, our two sites start a frame less than 1 ms apart on average in every run",
        "under 10 ms up to RTT 130 ms, about 15 ms at 140 ms",
        format!(
            "{:.3} ms on average over the runs, {:.3} ms in the worst run",
            mean(&below),
            max_or_zero(below.iter().copied())
        ),
        max_or_zero(below.iter().copied()) < 1.0,
    );
    let beyond: Vec<f64> = points_of_scheme(points, Scheme::Ours(0))
        .filter(|point| point.rtt_ms > MAX_LOCKSTEP_RTT_MS + 1.0)
        .map(|point| point.stats.frame_ms / (point.rtt_ms / 2.0 / f64::from(INPUT_DELAY)))
        .collect();
    let rough = max_or_zero(points_of_scheme(points, Scheme::Ours(0)).map(|point| point.stats.deviation_ms));
    findings.add_claim(
        "with prediction window 0, the mean frame time beyond the lockstep bound is within 2 % of RTT / 2 / 6 frames, and the deviation is below 0.5 ms at every RTT",
        "50 frames per second at RTT 160 ms; deviation 11 ms or more above RTT 140 ms",
        format!(
            "at least {:.1} % of the frame rate that the input delay allows, deviation at most {rough:.2} ms",
            100.0 / max_or_zero(beyond.iter().copied())
        ),
        max_or_zero(beyond.iter().copied()) < 1.02
            && min_or_infinity(beyond.iter().copied()) > 0.98
            && rough < EVEN_DEVIATION_MS,
    );
    findings.add_claim(
        "at every round-trip time, all sites compute the same states",
        "assumed",
        if points.iter().all(|point| point.is_consistent) { "every state of every run equal" } else { "states differ" },
        points.iter().all(|point| point.is_consistent),
    );
}
