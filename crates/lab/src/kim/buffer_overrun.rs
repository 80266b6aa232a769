//! Buffer overrun without the input gate: the problem that the paper's forward threshold solves.
//!
//! As long as a site waits for inputs before each step (the gate), no site can send faster than the others play, and no
//! buffer can overrun. This experiment therefore models the paper's buffers without that gate: each site plays a
//! command of the other site at the rate of its own clock. In one of the two variants, both sites pause when a buffer
//! crosses a threshold. The engine, which has the gate, runs for comparison.

use std::collections::VecDeque;

use coplay::time::TimeDelta;

use super::buffer::INITIAL_DELAY_FRAMES;
use super::testbed::{ONE_WAY_DELAY_MS, Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{max_or_zero, min_or_infinity};
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// Catalog entry of the `overrun` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "overrun",
    title: "Overrun and starvation without the input gate",
    summary: "The clocks of two sites differ by 1 %. If each site plays at its own clock rate, the fast site's buffer runs empty and the slow site's overruns, until a threshold makes both sites pause. In the engine, where a step waits for inputs and all sites share one pacing plan, neither happens.",
    paper: &KIM,
    paper_figures: "section 3.4 (thresholds)",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

const PERIOD_MS: f64 = 1_000.0 / 60.0;
/// Relative clock error of the second site, which runs fast.
const CLOCK_SKEW: f64 = 0.01;
/// Forward threshold of the paper, in frames: the largest buffer level, which equation 4 gives as the initial delay
/// plus the round-trip time (300 + 130 ms).
const FORWARD_THRESHOLD: f64 = 26.0;
/// Backward threshold of the paper: buffer level, in frames, below which a site is about to starve.
const STARVATION_THRESHOLD: f64 = 1.0;

/// The paper's buffers at two sites without the input gate. All times are in milliseconds.
struct UngatedModel {
    /// Time at which each site plays its next command.
    next_ms: [f64; 2],
    periods_ms: [f64; 2],
    /// Arrival times of commands in flight, by receiving site.
    in_flight: [VecDeque<f64>; 2],
    buffers: [f64; 2],
    /// Whether the sites pause when a buffer crosses a threshold.
    has_thresholds: bool,
    trace: UngatedTrace,
}

/// Buffer levels in frames over time, and times of the pauses. All times are in seconds.
#[derive(Clone, Debug, Default)]
struct UngatedTrace {
    buffers: [Vec<(f64, f64)>; 2],
    pauses: Vec<f64>,
}

impl UngatedModel {
    fn new(thresholds: bool) -> Self {
        Self {
            next_ms: [0.0; 2],
            periods_ms: [PERIOD_MS, PERIOD_MS / (1.0 + CLOCK_SKEW)],
            in_flight: Default::default(),
            // The commands collected during the initial delay. Nothing is in flight at the start.
            buffers: [f64::from(INITIAL_DELAY_FRAMES); 2],
            has_thresholds: thresholds,
            trace: UngatedTrace::default(),
        }
    }

    /// Runs the model for `seconds` seconds of model time.
    fn run(mut self, seconds: f64) -> UngatedTrace {
        loop {
            let site = if self.next_ms[0] <= self.next_ms[1] { 0 } else { 1 };
            let now = self.next_ms[site];
            if now > seconds * 1_000.0 {
                return self.trace;
            }
            self.deliver(now);
            self.play_command(site, now);
            self.next_ms[site] += self.periods_ms[site];
            if self.has_thresholds
                && self.buffers.iter().any(|frames| *frames < STARVATION_THRESHOLD || *frames > FORWARD_THRESHOLD)
            {
                self.pause_all(now);
            }
        }
    }

    fn deliver(&mut self, now: f64) {
        for (queue, buffer) in self.in_flight.iter_mut().zip(&mut self.buffers) {
            while queue.front().is_some_and(|at| *at <= now) {
                queue.pop_front();
                *buffer += 1.0;
            }
        }
    }

    /// Plays a command of the other site, if one is buffered, and sends a command.
    fn play_command(&mut self, site: usize, now: f64) {
        self.buffers[site] = (self.buffers[site] - 1.0).max(0.0);
        self.in_flight[1 - site].push_back(now + ONE_WAY_DELAY_MS);
        self.trace.buffers[site].push((now / 1_000.0, self.buffers[site]));
    }

    /// Pauses both sites and restarts them together, after the initial delay and with the initial buffers.
    fn pause_all(&mut self, now: f64) {
        self.trace.pauses.push(now / 1_000.0);
        let fresh = Self::new(true);
        self.in_flight = fresh.in_flight;
        self.buffers = fresh.buffers;
        self.next_ms = [now + f64::from(INITIAL_DELAY_FRAMES) * PERIOD_MS; 2];
    }
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let (seed, seconds) = (context.seed, context.full_or_short(60, 30));
    let unlimited = UngatedModel::new(false).run(seconds as f64);
    let limited = UngatedModel::new(true).run(seconds as f64);
    let mut testbed = Testbed {
        duration: TimeDelta::from_secs(seconds),
        skew_ppm: Some(CLOCK_SKEW * 1e6),
        ..Testbed::new(seed, INITIAL_DELAY_FRAMES, 0.0)
    };
    testbed.game.seed = seed;
    let gated = context.run_jobs(1.0, &[testbed], Testbed::run).remove(0);
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2; the second site's clock runs 1 % fast");
    findings.add_parameter("initial delay", "0.3 s");
    findings.add_parameter("link", "65 ms in each direction, no loss");
    findings.add_parameter(
        "thresholds",
        "all sites pause when a buffer holds fewer than 1 frame or more than 26 (equation 4)",
    );
    findings.add_parameter("time", format!("{seconds} s"));
    findings.add_note(
        "The model of the paper's buffers without the input gate is compared with the engine, which has the gate, at the same clock rates.",
    );
    findings.tables.push(table(&unlimited, &limited, &gated));
    findings.figures.push(figure(&unlimited, &limited, &gated));
    claims(&mut findings, &unlimited, &limited, &gated);
    findings
}

fn table(unlimited: &UngatedTrace, limited: &UngatedTrace, gated: &TestbedTrace) -> DataTable {
    let mut table = DataTable::new(
        "overrun",
        "Smallest and largest buffer level, and pauses, by variant",
        &["variant", "min_frames", "max_frames", "pauses"],
    );
    let mut row = |name: &str, buffers: &[Vec<(f64, f64)>; 2], pauses: usize| {
        let all = || buffers.iter().flatten().map(|(_, frames)| *frames);
        table.add_row([
            name.into(),
            number(min_or_infinity(all()), 0),
            number(max_or_zero(all()), 0),
            number(pauses as f64, 0),
        ]);
    };
    row("without gate and thresholds", &unlimited.buffers, unlimited.pauses.len());
    row("without gate, with thresholds", &limited.buffers, limited.pauses.len());
    row("with gate (the engine)", &gated.buffers, gated.pauses.len());
    table
}

/// Thins a series of 1,200 or more points to 600 to 900 points for the plot. Returns shorter series unchanged.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().step_by((points.len() / 600).max(1)).copied().collect()
}

fn figure(unlimited: &UngatedTrace, limited: &UngatedTrace, gated: &TestbedTrace) -> Figure {
    let panel = |title: &str, buffers: &[Vec<(f64, f64)>; 2], pauses: Vec<f64>| {
        Panel::new(
            title,
            PlotAxis::new("time, s").with_min(0.0).with_max(gated.seconds),
            PlotAxis::new("frames in the buffer").with_min(0.0).with_max(60.0),
        )
        .steps("buffer of the slow site", SeriesStyle::First, thinned(&buffers[0]))
        .steps("buffer of the fast site", SeriesStyle::Paper, thinned(&buffers[1]))
        .points("pause of all sites", SeriesStyle::PaperText, pauses.into_iter().map(|at| (at, 0.0)))
        .horizontal_bound(FORWARD_THRESHOLD, "forward threshold")
    };
    let panels = vec![
        panel("Without gate and thresholds", &unlimited.buffers, vec![]),
        panel("Without gate, with thresholds", &limited.buffers, limited.pauses.clone()),
        panel("With gate: the engine", &gated.buffers, vec![]),
    ];
    let caption = "Without the gate, the fast site plays more commands than it receives, and the slow site receives more than it plays. With thresholds, both sites pause repeatedly. With the engine's pacing plan and input gate, no buffer starves or overruns, and no site pauses.";
    Figure::new("overrun", "Buffer contents with and without the input gate (K, section 3.4)", caption, panels)
}

fn claims(findings: &mut Findings, unlimited: &UngatedTrace, limited: &UngatedTrace, gated: &TestbedTrace) {
    let all = |buffers: &[Vec<(f64, f64)>; 2]| {
        let frames = || buffers.iter().flatten().map(|(_, frames)| *frames);
        (min_or_infinity(frames()), max_or_zero(frames()))
    };
    let (min_level, max_level) = all(&unlimited.buffers);
    findings.add_claim(
        "without the gate one buffer runs empty and the other exceeds the forward threshold",
        "starvation and overrun are expected",
        format!("{min_level:.0} frames in one buffer, {max_level:.0} in the other; the forward threshold is {FORWARD_THRESHOLD:.0}"),
        min_level < STARVATION_THRESHOLD && max_level > FORWARD_THRESHOLD,
    );
    let (_, limited_max) = all(&limited.buffers);
    findings.add_claim(
        "with thresholds the sites pause, and no buffer exceeds the forward threshold by more than 1 frame",
        "players stop temporarily and resume",
        format!("{} pauses, at most {limited_max:.0} frames", limited.pauses.len()),
        !limited.pauses.is_empty() && limited_max <= FORWARD_THRESHOLD + 1.0,
    );
    let (gated_min, gated_max) = all(&gated.buffers);
    findings.add_claim(
        "with the gate and one pacing plan, no buffer runs empty or exceeds the forward threshold, and no site pauses",
        "not in the paper",
        format!("{gated_min:.0} to {gated_max:.0} frames, {} pauses", gated.pauses.len()),
        gated_min >= STARVATION_THRESHOLD
            && gated_max <= FORWARD_THRESHOLD
            && gated.pauses.is_empty()
            && gated.states_equal,
    );
}
