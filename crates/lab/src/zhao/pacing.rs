//! Figures 1 and 2: how evenly frames follow each other at one site, and how close together two sites are, over the round-trip time.
//!
//! The paper's own scheme is run as published: Algorithms 3 and 4, a send timer of 20 ms, thread slices of 10 ms. It logs a frame's start in
//! BeginFrameTiming, ours just before the step.

mod real_run;

use coplay_sim::session_experiment::{SessionExperiment as Game, SessionMeasurements};

use crate::bench::ExperimentContext;
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{constant_rtt_link, max_or_zero, mean, min_or_infinity};
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::real_run::PacingStats;
use crate::table::{DataTable, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "pacing",
    title: "Smoothness and synchrony over the round-trip time",
    summary: "How evenly frames follow each other, and how close together two sites begin the same frame, from a cable to the other end of the world. \
            The paper's scheme becomes rough well before the bound of any such scheme; ours is even up to it, slows down evenly beyond it, and with guessing goes on past it.",
    paper: &ZHAO,
    paper_figures: "Figures 1 and 2",
    expected_seconds: 10.0,
    run,
    real_run: Some(real_run::run),
};

/// The local lag of all schemes, in frames.
const INPUT_DELAY: u32 = 6;
/// A frame's time.
const PERIOD_MS: f64 = 1_000.0 / 60.0;
/// Beyond this round trip an input cannot be there in time: twice the lag.
const MAX_LOCKSTEP_RTT_MS: f64 = 2.0 * INPUT_DELAY as f64 * PERIOD_MS;
/// The paper calls a game usable as long as it deviates by less than this.
const ROUGH_DEVIATION_MS: f64 = 5.0;
/// From here on unevenness is seen.
const UNEVEN_DEVIATION_MS: f64 = 1.0;
/// Ours is called even below this.
const EVEN_DEVIATION_MS: f64 = 0.5;
/// At full speed: no further from the period than this.
const FULL_SPEED_TOLERANCE_MS: f64 = 0.02;
/// The paper's scheme depends on luck: this many runs are averaged.
const PAPER_RUNS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// As published.
    Paper,
    /// Ours, with so many frames that may be guessed.
    Ours(u32),
}

const SCHEMES: [Scheme; 4] = [Scheme::Paper, Scheme::Ours(0), Scheme::Ours(8), Scheme::Ours(16)];

impl Scheme {
    fn name(self) -> String {
        match self {
            Self::Paper => "as published".into(),
            Self::Ours(window) => format!("ours, window {window}"),
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

/// What one scheme does at one round trip.
#[derive(Clone, Copy, Debug)]
struct PacingPoint {
    scheme: Scheme,
    rtt_ms: f64,
    stats: PacingStats,
    /// Every frame was stepped, everywhere to the same states.
    is_consistent: bool,
}

fn round_trips(bench: &ExperimentContext<'_>) -> Vec<f64> {
    let fine = (0..=20).map(|tens| f64::from(tens) * 10.0);
    let full: Vec<f64> = fine.chain([210.0, 220.0, 230.0, 240.0, 250.0, 300.0, 350.0, 400.0]).collect();
    let short = vec![0.0, 50.0, 90.0, 130.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0, 240.0, 300.0, 400.0];
    bench.full_or_short(full, short)
}

fn frames(bench: &ExperimentContext<'_>) -> u32 {
    bench.full_or_short(3_600, 1_200)
}

fn measure(seed: u64, frames: u32, scheme: Scheme, rtt_ms: f64) -> PacingPoint {
    let runs: Vec<(PacingStats, bool)> = match scheme {
        Scheme::Ours(window) => {
            let game = Game {
                seed,
                prediction_window: window,
                input_delay: INPUT_DELAY,
                frames,
                ..Game::new(constant_rtt_link(rtt_ms))
            };
            vec![pacing_stats(&game.run(), SessionMeasurements::worst_deviation_ms)]
        }
        // Site 0 is the one whose pace the other follows, and the one that the paper shows.
        Scheme::Paper => (0..PAPER_RUNS)
            .map(|run| Game {
                seed: seed + run,
                input_delay: INPUT_DELAY,
                frames,
                ..Game::as_published(constant_rtt_link(rtt_ms))
            })
            .map(|game| pacing_stats(&game.run(), |outcome| outcome.deviation_ms[0]))
            .collect(),
    };
    let of = |part: fn(&PacingStats) -> f64| mean(&runs.iter().map(|(pace, _)| part(pace)).collect::<Vec<f64>>());
    let pace = PacingStats {
        frame_ms: of(|pace| pace.frame_ms),
        deviation_ms: of(|pace| pace.deviation_ms),
        synchrony_ms: of(|pace| pace.synchrony_ms),
    };
    PacingPoint { scheme, rtt_ms, stats: pace, is_consistent: runs.iter().all(|(_, sound)| *sound) }
}

fn pacing_stats(outcome: &SessionMeasurements, deviation: fn(&SessionMeasurements) -> f64) -> (PacingStats, bool) {
    let pace = PacingStats {
        frame_ms: outcome.mean_frame_ms[0],
        deviation_ms: deviation(outcome),
        synchrony_ms: outcome.synchrony_ms,
    };
    (pace, outcome.is_complete && outcome.states_equal)
}

fn simulated_points(bench: &mut ExperimentContext<'_>, part: f64) -> Vec<PacingPoint> {
    let round_trips = round_trips(bench);
    let jobs: Vec<(Scheme, f64)> =
        SCHEMES.into_iter().flat_map(|scheme| round_trips.iter().map(move |rtt_ms| (scheme, *rtt_ms))).collect();
    let (seed, frames) = (bench.seed, frames(bench));
    bench.run_jobs(part, &jobs, |(scheme, rtt_ms)| measure(seed, frames, *scheme, *rtt_ms))
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let points = simulated_points(bench, 1.0);
    let mut findings = findings(bench, &points);
    claims(&mut findings, &points);
    findings
}

fn findings(bench: &ExperimentContext<'_>, points: &[PacingPoint]) -> Findings {
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("local lag", format!("{INPUT_DELAY} frames at 60 per second: 100 ms"));
    findings.add_parameter("link", "constant delay, RTT 0 to 400 ms, no loss");
    findings.add_parameter("frames a run", format!("{} after one second of warming up", frames(bench)));
    findings.add_parameter("inputs", "2 bytes, changing every 8 frames on average");
    findings.add_parameter(
        "as published",
        format!("Algorithms 3 and 4, send timer 20 ms, thread delay 0 to 10 ms, step 10 ms; mean of {PAPER_RUNS} runs"),
    );
    findings.add_parameter("clocks", "offset by hours, ±50 ppm");
    findings.add_note("The paper logs a frame's start in BeginFrameTiming, where waiting for inputs partly hides inside the frame; ours is logged just before the step, where nothing hides.");
    findings.add_note("As published, an input is taken when a frame begins, and the wait for others comes before the step: that is worth up to a frame of lag more, which is why its mean frame time is a little below RTT / 2 / lag at the far end.");
    findings.add_note("Its threshold is less steep here than in the paper's text: the simulated computers have its timers, slices and pacing, but no other troubles of two PCs of 2008.");
    findings.add_note("The paper's values are those of its text: its figures are not in it as numbers.");
    findings.tables.push(table(points));
    findings.figures.push(smoothness_figure(points, &[]));
    findings.figures.push(synchrony_figure(points, &[]));
    findings
}

fn table(points: &[PacingPoint]) -> DataTable {
    let columns = ["scheme", "rtt_ms", "frame_ms", "frames_per_second", "deviation_ms", "synchrony_ms"];
    let mut table = DataTable::new("pacing", "Figures 1 and 2 in numbers", &columns);
    for PacingPoint { scheme, rtt_ms, stats: pace, .. } in points {
        table.add_row([
            scheme.name().into(),
            number(*rtt_ms, 0),
            number(pace.frame_ms, 3),
            number(1_000.0 / pace.frame_ms, 2),
            number(pace.deviation_ms, 3),
            number(pace.synchrony_ms, 3),
        ]);
    }
    table
}

fn points_of_scheme(points: &[PacingPoint], scheme: Scheme) -> impl Iterator<Item = &PacingPoint> {
    points.iter().filter(move |point| point.scheme == scheme)
}

/// A panel with a line for each scheme.
fn pacing_panel(
    title: &str,
    y: PlotAxis,
    points: &[PacingPoint],
    field: &[PacingPoint],
    part: fn(&PacingStats) -> f64,
) -> Panel {
    let x = PlotAxis::new("round-trip time, ms").with_min(0.0).with_max(400.0);
    let mut panel =
        Panel::new(title, x, y).vertical_bound(MAX_LOCKSTEP_RTT_MS, "bound of any such scheme: RTT = 2 × lag");
    for scheme in SCHEMES {
        let line = points_of_scheme(points, scheme).map(|point| (point.rtt_ms, part(&point.stats)));
        panel = panel.line(&scheme.name(), scheme.style(), line);
    }
    let real = |scheme: Scheme| points_of_scheme(field, scheme).map(move |point| (point.rtt_ms, part(&point.stats)));
    for scheme in SCHEMES.into_iter().filter(|scheme| points_of_scheme(field, *scheme).next().is_some()) {
        let ink = if scheme == Scheme::Ours(0) { SeriesStyle::Fifth } else { SeriesStyle::Fourth };
        panel =
            panel.dashed(&format!("{}, real sockets", scheme.name()), ink, real(scheme)).points("", ink, real(scheme));
    }
    panel
}

fn smoothness_figure(points: &[PacingPoint], field: &[PacingPoint]) -> Figure {
    let frame =
        pacing_panel("Mean frame time", PlotAxis::new("ms").with_min(15.0).with_max(35.0), points, field, |pace| {
            pace.frame_ms
        })
        .points(
            "the paper's words",
            SeriesStyle::PaperText,
            [(0.0, 17.0), (90.0, 17.0), (130.0, 17.0), (140.0, 17.0), (160.0, 20.0)],
        )
        .dashed(
            "RTT / 2 / lag",
            SeriesStyle::PaperText,
            [(MAX_LOCKSTEP_RTT_MS, PERIOD_MS), (400.0, 400.0 / 2.0 / f64::from(INPUT_DELAY))],
        );
    let deviation = pacing_panel(
        "Mean absolute deviation of the frame time",
        PlotAxis::new("ms").with_min(0.0).with_max(20.0),
        points,
        field,
        |pace| pace.deviation_ms,
    )
    .points("the paper's words", SeriesStyle::PaperText, [(90.0, 0.0), (130.0, 5.0), (150.0, 11.0)])
    .horizontal_bound(ROUGH_DEVIATION_MS, "rough, says the paper");
    let caption = "Frame time and its deviation at one site, over the round-trip time. As published, the game leaves its even pace at about 140 ms; \
                   ours is even up to the bound with window 0 and slows down evenly behind it, as little as the lag allows; windows of 8 and 16 frames go on at full speed. \
                   Crosses are values that the paper names in its text (17 ms, almost 0 ms to RTT 90, under 5 ms to 130, over 11 ms behind it, 20 ms at 160).";
    Figure::new("pacing-smoothness", "Frame rate and smoothness (Z, Figure 1)", caption, vec![frame, deviation])
}

fn synchrony_figure(points: &[PacingPoint], field: &[PacingPoint]) -> Figure {
    let apart = pacing_panel(
        "Starts of the same frame at two sites, mean absolute difference",
        PlotAxis::logarithmic("ms").with_min(0.001).with_max(100.0),
        points,
        field,
        |pace| pace.synchrony_ms.max(0.001),
    )
    .points("the paper's words", SeriesStyle::PaperText, [(130.0, 10.0), (140.0, 15.0)])
    .horizontal_bound(1.0, "1 ms");
    let caption = "How far apart two sites begin the same frame, on a logarithmic scale. The paper names under 10 ms up to RTT 130 and about 15 ms at 140 (crosses). \
                   Ours stay within a fraction of a millisecond.";
    Figure::new("pacing-synchrony", "Synchrony between two sites (Z, Figure 2)", caption, vec![apart])
}

/// The first round trip at which the paper's scheme deviates by more than this.
fn first_rtt_above_deviation(points: &[PacingPoint], deviation_ms: f64) -> f64 {
    let past = points_of_scheme(points, Scheme::Paper).find(|point| point.stats.deviation_ms > deviation_ms);
    past.map_or(f64::INFINITY, |point| point.rtt_ms)
}

fn is_smooth(point: &PacingPoint) -> bool {
    point.is_consistent
        && (point.stats.frame_ms - PERIOD_MS).abs() < FULL_SPEED_TOLERANCE_MS
        && point.stats.deviation_ms < EVEN_DEVIATION_MS
        && point.stats.synchrony_ms < 1.0
}

/// Up to which round trip a scheme is at full speed and even.
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
        "as published, the game is smooth to RTT 130, and unevenness sets in at about 140",
        "deviation under 5 ms to RTT 130, over 11 ms past 140",
        format!("at most {early:.1} ms to RTT 130, over {UNEVEN_DEVIATION_MS:.0} ms from RTT {uneven:.0} on, over {ROUGH_DEVIATION_MS:.0} ms from {rough:.0} on"),
        early < UNEVEN_DEVIATION_MS && (140.0..=150.0).contains(&uneven) && rough <= 180.0,
    );
    for (window, least_reach) in [(0, 190.0), (8, 400.0), (16, 400.0)] {
        let reach = max_smooth_rtt(points, Scheme::Ours(window));
        findings.add_claim(
            &format!("window {window} is even and at full speed to RTT {least_reach:.0} or more"),
            "RTT 140; its successor, with guessing: RTT 230",
            format!("RTT {reach:.0}"),
            reach >= least_reach,
        );
    }
    let below: Vec<f64> = SCHEMES[1..]
        .iter()
        .flat_map(|scheme| points_of_scheme(points, *scheme))
        .filter(|point| point.rtt_ms < MAX_LOCKSTEP_RTT_MS - 1.0)
        .map(|point| point.stats.synchrony_ms)
        .collect();
    findings.add_claim(
        "below the threshold both sites begin a frame within 1 ms of each other",
        "under 10 ms to RTT 130, about 15 ms at 140",
        format!("{:.3} ms on average, {:.3} ms at worst", mean(&below), max_or_zero(below.iter().copied())),
        max_or_zero(below.iter().copied()) < 1.0,
    );
    let beyond: Vec<f64> = points_of_scheme(points, Scheme::Ours(0))
        .filter(|point| point.rtt_ms > MAX_LOCKSTEP_RTT_MS + 1.0)
        .map(|point| point.stats.frame_ms / (point.rtt_ms / 2.0 / f64::from(INPUT_DELAY)))
        .collect();
    let rough = max_or_zero(points_of_scheme(points, Scheme::Ours(0)).map(|point| point.stats.deviation_ms));
    findings.add_claim(
        "beyond the bound window 0 is as fast as the lag allows (RTT / 2 / lag), and even",
        "50 frames per second at RTT 160, uneven",
        format!(
            "{:.1} % of the most that is possible, deviation at most {rough:.2} ms",
            100.0 / max_or_zero(beyond.iter().copied())
        ),
        max_or_zero(beyond.iter().copied()) < 1.02
            && min_or_infinity(beyond.iter().copied()) > 0.98
            && rough < EVEN_DEVIATION_MS,
    );
    findings.add_claim(
        "whatever the round trip, all sites compute the same",
        "assumed",
        if points.iter().all(|point| point.is_consistent) { "every state of every run equal" } else { "states differ" },
        points.iter().all(|point| point.is_consistent),
    );
}
