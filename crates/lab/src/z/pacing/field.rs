//! The same with the program's own processes, beside virtual time, and how far apart the two are.

use super::{LAG, Point, ROUGH_MS, Scheme, claims, findings, of, smoothness, synchrony, virtual_points};
use crate::bench::Bench;
use crate::field::{Field, Game, Pace};
use crate::findings::Findings;
use crate::numbers::{mean, most};
use crate::table::{Table, number, whole};

/// Round trips in the field.
const FIELD_RTTS: [f64; 12] = [0.0, 40.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0, 190.0, 240.0, 300.0, 400.0];
/// Frames of one game in the field.
const FIELD_FRAMES: u32 = 900;
/// Up to here the lag covers the way.
const REACH_MS: f64 = 190.0;
/// The windows that are played with.
const FIELD_WINDOWS: [u32; 2] = [0, 16];

pub(super) fn run(bench: &mut Bench<'_>, field: &mut dyn Field) -> Result<Findings, String> {
    let points = virtual_points(bench, 0.02);
    let mut measured = Vec::new();
    let each = 0.98 / (FIELD_WINDOWS.len() * FIELD_RTTS.len()) as f64;
    for window in FIELD_WINDOWS {
        for rtt_ms in FIELD_RTTS {
            let starts = field.play(&Game { rtt_ms, lag: LAG, window, frames: FIELD_FRAMES })?;
            // Both have ended well, which they do only if their states were equal.
            measured.push(Point { scheme: Scheme::Ours(window), rtt_ms, pace: starts.pace(), sound: true });
            bench.on_part(each);
        }
    }
    let mut findings = findings(bench, &points);
    claims(&mut findings, &points);
    findings.figures = vec![smoothness(&points, &measured), synchrony(&points, &measured)];
    findings.tables.push(beside(&points, &measured));
    field_claims(&mut findings, &points, &measured);
    compare(&mut findings, &points, &measured);
    findings.parameter("in the field", format!("two processes of this program over UDP on this computer, the NES's own rate (60.10 per second), {FIELD_FRAMES} frames a run, the first 60 left out"));
    findings.note(
        "In the field everything else that the computer does counts, too: these numbers are worth what its idleness is.",
    );
    Ok(findings)
}

/// The virtual point that a real one belongs to.
fn twin<'a>(points: &'a [Point], real: &Point) -> Option<&'a Point> {
    of(points, real.scheme).find(|point| point.rtt_ms == real.rtt_ms)
}

fn beside(points: &[Point], measured: &[Point]) -> Table {
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
    let mut table = Table::new("pacing-real", "Real sockets beside virtual time", &columns);
    for real in measured {
        let Some(point) = twin(points, real) else { continue };
        table.row([
            real.scheme.name().into(),
            whole(real.rtt_ms as i64),
            number(point.pace.frame_ms, 3),
            number(real.pace.frame_ms, 3),
            number(point.pace.deviation_ms, 3),
            number(real.pace.deviation_ms, 3),
            number(point.pace.synchrony_ms, 3),
            number(real.pace.synchrony_ms, 3),
        ]);
    }
    table
}

/// How far apart the two are in one number: on average, and at most.
fn apart(points: &[Point], measured: &[Point], part: fn(&Pace) -> f64) -> (f64, f64) {
    let difference = |real: &Point| twin(points, real).map(|point| (part(&real.pace) - part(&point.pace)).abs());
    let differences: Vec<f64> = measured.iter().filter_map(difference).collect();
    (mean(&differences), most(differences))
}

fn compare(findings: &mut Findings, points: &[Point], measured: &[Point]) {
    let mut tell = |name: &str, part: fn(&Pace) -> f64| {
        let (usual, worst) = apart(points, measured, part);
        let words = format!(
            "{name} on real sockets and in virtual time: {usual:.2} ms apart on average, {worst:.2} ms at most."
        );
        findings.note(&words);
    };
    tell("Frame time", |pace| pace.frame_ms);
    tell("Deviation", |pace| pace.deviation_ms);
    tell("Synchrony", |pace| pace.synchrony_ms);
}

fn field_claims(findings: &mut Findings, points: &[Point], measured: &[Point]) {
    let (_, worst) = apart(points, measured, |pace| pace.frame_ms);
    findings.claim(
        "on real sockets the frame time is that of virtual time",
        "not compared",
        format!("{worst:.2} ms apart at most"),
        worst < 1.0,
    );
    let below: Vec<&Point> = of(measured, Scheme::Ours(0)).filter(|point| point.rtt_ms <= REACH_MS).collect();
    let rough = most(below.iter().map(|point| point.pace.deviation_ms));
    findings.claim(
        "on real sockets window 0 is smooth, as the paper has it, to RTT 190",
        "deviation under 5 ms to RTT 130",
        format!("{rough:.2} ms at most"),
        rough < ROUGH_MS,
    );
    let apart = most(below.iter().map(|point| point.pace.synchrony_ms));
    findings.claim(
        "and both sites begin a frame close together",
        "under 10 ms to RTT 130",
        format!("{apart:.2} ms at most"),
        apart < 10.0,
    );
}
