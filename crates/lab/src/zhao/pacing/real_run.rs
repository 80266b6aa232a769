//! The same with the program's own processes, beside virtual time, and how far apart the two are.

use super::{
    INPUT_DELAY, PacingPoint, ROUGH_DEVIATION_MS, Scheme, claims, findings, points_of_scheme, simulated_points,
    smoothness_figure, synchrony_figure,
};
use crate::bench::ExperimentContext;
use crate::findings::Findings;
use crate::numbers::{max_or_zero, mean};
use crate::real_run::{PacingStats, RealRunner, RealSession};
use crate::table::{DataTable, integer, number};

/// Round trips in the field.
const REAL_RTTS_MS: [f64; 12] = [0.0, 40.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0, 190.0, 240.0, 300.0, 400.0];
/// Frames of one game in the field.
const REAL_FRAMES: u32 = 900;
/// Up to here the lag covers the way.
const MAX_SMOOTH_RTT_MS: f64 = 190.0;
/// The windows that are played with.
const REAL_PREDICTION_WINDOWS: [u32; 2] = [0, 16];

pub(super) fn run(bench: &mut ExperimentContext<'_>, field: &mut dyn RealRunner) -> Result<Findings, String> {
    let points = simulated_points(bench, 0.02);
    let mut measured = Vec::new();
    let each = 0.98 / (REAL_PREDICTION_WINDOWS.len() * REAL_RTTS_MS.len()) as f64;
    for window in REAL_PREDICTION_WINDOWS {
        for rtt_ms in REAL_RTTS_MS {
            let starts = field.run_session(&RealSession {
                rtt_ms,
                input_delay: INPUT_DELAY,
                prediction_window: window,
                frames: REAL_FRAMES,
            })?;
            // Both have ended well, which they do only if their states were equal.
            measured.push(PacingPoint {
                scheme: Scheme::Ours(window),
                rtt_ms,
                stats: starts.pacing_stats(),
                is_consistent: true,
            });
            bench.add_progress(each);
        }
    }
    let mut findings = findings(bench, &points);
    claims(&mut findings, &points);
    findings.figures = vec![smoothness_figure(&points, &measured), synchrony_figure(&points, &measured)];
    findings.tables.push(comparison_table(&points, &measured));
    real_run_claims(&mut findings, &points, &measured);
    add_comparison_notes(&mut findings, &points, &measured);
    findings.add_parameter("in the field", format!("two processes of this program over UDP on this computer, the NES's own rate (60.10 per second), {REAL_FRAMES} frames a run, the first 60 left out"));
    findings.add_note(
        "In the field everything else that the computer does counts, too: these numbers are worth what its idleness is.",
    );
    Ok(findings)
}

/// The virtual point that a real one belongs to.
fn simulated_counterpart<'a>(points: &'a [PacingPoint], real: &PacingPoint) -> Option<&'a PacingPoint> {
    points_of_scheme(points, real.scheme).find(|point| point.rtt_ms == real.rtt_ms)
}

fn comparison_table(points: &[PacingPoint], measured: &[PacingPoint]) -> DataTable {
    let columns = [
        "scheme",
        "rtt_ms",
        "frame_virtual_ms",
        "frame_real_ms",
        "deviation_virtual_ms",
        "deviation_real_ms",
        "synchrony_virtual_ms",
        "synchrony_real_ms",
    ];
    let mut table = DataTable::new("pacing-real", "Real sockets beside virtual time", &columns);
    for real in measured {
        let Some(point) = simulated_counterpart(points, real) else { continue };
        table.add_row([
            real.scheme.name().into(),
            integer(real.rtt_ms as i64),
            number(point.stats.frame_ms, 3),
            number(real.stats.frame_ms, 3),
            number(point.stats.deviation_ms, 3),
            number(real.stats.deviation_ms, 3),
            number(point.stats.synchrony_ms, 3),
            number(real.stats.synchrony_ms, 3),
        ]);
    }
    table
}

/// How far apart the two are in one number: on average, and at most.
fn mean_and_max_difference(
    points: &[PacingPoint],
    measured: &[PacingPoint],
    part: fn(&PacingStats) -> f64,
) -> (f64, f64) {
    let difference = |real: &PacingPoint| {
        simulated_counterpart(points, real).map(|point| (part(&real.stats) - part(&point.stats)).abs())
    };
    let differences: Vec<f64> = measured.iter().filter_map(difference).collect();
    (mean(&differences), max_or_zero(differences))
}

fn add_comparison_notes(findings: &mut Findings, points: &[PacingPoint], measured: &[PacingPoint]) {
    let mut tell = |name: &str, part: fn(&PacingStats) -> f64| {
        let (usual, worst) = mean_and_max_difference(points, measured, part);
        let words = format!(
            "{name} on real sockets and in virtual time: {usual:.2} ms apart on average, {worst:.2} ms at most."
        );
        findings.add_note(&words);
    };
    tell("Frame time", |pace| pace.frame_ms);
    tell("Deviation", |pace| pace.deviation_ms);
    tell("Synchrony", |pace| pace.synchrony_ms);
}

fn real_run_claims(findings: &mut Findings, points: &[PacingPoint], measured: &[PacingPoint]) {
    let (_, worst) = mean_and_max_difference(points, measured, |pace| pace.frame_ms);
    findings.add_claim(
        "on real sockets the frame time is that of virtual time",
        "not compared",
        format!("{worst:.2} ms apart at most"),
        worst < 1.0,
    );
    let below: Vec<&PacingPoint> =
        points_of_scheme(measured, Scheme::Ours(0)).filter(|point| point.rtt_ms <= MAX_SMOOTH_RTT_MS).collect();
    let rough = max_or_zero(below.iter().map(|point| point.stats.deviation_ms));
    findings.add_claim(
        "on real sockets window 0 is smooth, as the paper has it, to RTT 190",
        "deviation under 5 ms to RTT 130",
        format!("{rough:.2} ms at most"),
        rough < ROUGH_DEVIATION_MS,
    );
    let apart = max_or_zero(below.iter().map(|point| point.stats.synchrony_ms));
    findings.add_claim(
        "and both sites begin a frame close together",
        "under 10 ms to RTT 130",
        format!("{apart:.2} ms at most"),
        apart < 10.0,
    );
}
