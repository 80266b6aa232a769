//! The pacing experiment with real processes of the program, compared with virtual time.

use super::{
    INPUT_DELAY, PacingPoint, ROUGH_DEVIATION_MS, Scheme, claims, findings, points_of_scheme, simulated_points,
    smoothness_figure, synchrony_figure,
};
use crate::bench::ExperimentContext;
use crate::findings::Findings;
use crate::numbers::{max_or_zero, mean};
use crate::real_run::{PacingStats, RealRunner, RealSession};
use crate::table::{DataTable, integer, number};

/// Round-trip times of the real sessions.
const REAL_RTTS_MS: [f64; 12] = [0.0, 40.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0, 190.0, 240.0, 300.0, 400.0];
/// Number of frames per real session.
const REAL_FRAMES: u32 = 900;
/// Largest round-trip time of the real sessions at which the input delay covers the one-way delay.
const MAX_SMOOTH_RTT_MS: f64 = 190.0;
/// Prediction windows of the real sessions, in frames.
const REAL_PREDICTION_WINDOWS: [u32; 2] = [0, 16];

pub(super) fn run(context: &mut ExperimentContext<'_>, runner: &mut dyn RealRunner) -> Result<Findings, String> {
    let points = simulated_points(context, 0.02);
    let mut measured = Vec::new();
    let each = 0.98 / (REAL_PREDICTION_WINDOWS.len() * REAL_RTTS_MS.len()) as f64;
    for prediction_window in REAL_PREDICTION_WINDOWS {
        for rtt_ms in REAL_RTTS_MS {
            let starts = runner.run_session(&RealSession {
                rtt_ms,
                input_delay: INPUT_DELAY,
                prediction_window,
                frames: REAL_FRAMES,
            })?;
            // Both processes ended without an error, so their states were equal.
            measured.push(PacingPoint {
                scheme: Scheme::Ours(prediction_window),
                rtt_ms,
                stats: starts.pacing_stats(),
                is_consistent: true,
            });
            context.add_progress(each);
        }
    }
    let mut findings = findings(context, &points);
    claims(&mut findings, &points);
    findings.figures = vec![smoothness_figure(&points, &measured), synchrony_figure(&points, &measured)];
    findings.tables.push(comparison_table(&points, &measured));
    real_run_claims(&mut findings, &points, &measured);
    add_comparison_notes(&mut findings, &points, &measured);
    findings.add_parameter("real runs", format!("two processes of this program over UDP on this computer, at the NES frame rate of 60.10 per second; {REAL_FRAMES} frames per run after 60 frames of warm-up"));
    findings.add_note(
        "Other load on the computer disturbs the real runs. Their numbers are reliable only on an idle computer.",
    );
    Ok(findings)
}

/// Returns the simulated point with the scheme and round-trip time of a real one; `None` if these were not simulated.
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
    let mut table = DataTable::new(
        "pacing-real",
        "Frame time, deviation and synchrony on real sockets and in virtual time",
        &columns,
    );
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

/// Returns the mean and the largest absolute difference of one statistic between real and simulated sessions.
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
    let mut add_note = |name: &str, part: fn(&PacingStats) -> f64| {
        let (mean_difference, max_difference) = mean_and_max_difference(points, measured, part);
        let note = format!(
            "{name}: the results on real sockets and in virtual time differ by {mean_difference:.2} ms on average and by {max_difference:.2} ms at most."
        );
        findings.add_note(&note);
    };
    add_note("Mean frame time", |stats| stats.frame_ms);
    add_note("Deviation of the frame time", |stats| stats.deviation_ms);
    add_note("Synchrony of the two sites", |stats| stats.synchrony_ms);
}

fn real_run_claims(findings: &mut Findings, points: &[PacingPoint], measured: &[PacingPoint]) {
    let (_, max_difference) = mean_and_max_difference(points, measured, |stats| stats.frame_ms);
    findings.add_claim(
        "the mean frame time on real sockets differs from that in virtual time by less than 1 ms",
        "not compared",
        format!("by {max_difference:.2} ms at most"),
        max_difference < 1.0,
    );
    let below: Vec<&PacingPoint> =
        points_of_scheme(measured, Scheme::Ours(0)).filter(|point| point.rtt_ms <= MAX_SMOOTH_RTT_MS).collect();
    let deviation_ms = max_or_zero(below.iter().map(|point| point.stats.deviation_ms));
    findings.add_claim(
        "on real sockets, with prediction window 0 and RTT up to 190 ms, the deviation of the frame time stays below 5 ms",
        "deviation under 5 ms up to RTT 130 ms",
        format!("{deviation_ms:.2} ms at most"),
        deviation_ms < ROUGH_DEVIATION_MS,
    );
    let synchrony_ms = max_or_zero(below.iter().map(|point| point.stats.synchrony_ms));
    findings.add_claim(
        "on real sockets, with prediction window 0 and RTT up to 190 ms, the two sites start a frame less than 10 ms apart on average",
        "under 10 ms up to RTT 130 ms",
        format!("{synchrony_ms:.2} ms at most"),
        synchrony_ms < 10.0,
    );
}
