//! Overrun, with the gate off: what the paper's forward threshold is for.
//!
//! While stepping waits for inputs no site can send quicker than the others play, and a buffer cannot overrun. So the paper's buffers are modelled
//! here without that gate: each site plays a command of the other whenever its own clock says so, and only thresholds hold it back.

use std::collections::VecDeque;

use coplay::time::TimeDelta;

use super::buffer::INITIAL_DELAY_FRAMES;
use super::testbed::{ONE_WAY_DELAY_MS, Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::catalog::KIM;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{max_or_zero, min_or_infinity};
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "overrun",
    title: "Overrun and starvation without the gate",
    summary: "Two sites whose clocks differ by one percent. Where each plays by its own clock, the quick one's buffer runs dry and the slow one's runs over, until a threshold makes all pause. Where stepping waits for inputs, and pace follows one plan, nothing of that can happen.",
    paper: &KIM,
    paper_figures: "section 3.4: thresholds",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

const PERIOD_MS: f64 = 1_000.0 / 60.0;
/// The second site's clock is too fast by so much.
const CLOCK_SKEW: f64 = 0.01;
/// Frames that a buffer holds at most (equation 4): initial delay and round trip.
const FORWARD_THRESHOLD: f64 = 26.0;
/// With fewer than these it is about to run out.
const STARVATION_THRESHOLD: f64 = 1.0;

/// The model.
struct UngatedModel {
    /// When each site plays its next command.
    next_ms: [f64; 2],
    periods_ms: [f64; 2],
    /// When commands arrive, by the site that they go to.
    in_flight: [VecDeque<f64>; 2],
    buffers: [f64; 2],
    /// Whether the sites pause when a buffer passes a threshold.
    has_thresholds: bool,
    trace: UngatedTrace,
}

/// What was seen of it.
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
            // What was gathered in the initial delay; nothing is under way when they begin.
            buffers: [f64::from(INITIAL_DELAY_FRAMES); 2],
            has_thresholds: thresholds,
            trace: UngatedTrace::default(),
        }
    }

    /// Runs for so many seconds.
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

    /// A site plays a command of the other, if there is one, and sends one of its own.
    fn play_command(&mut self, site: usize, now: f64) {
        self.buffers[site] = (self.buffers[site] - 1.0).max(0.0);
        self.in_flight[1 - site].push_back(now + ONE_WAY_DELAY_MS);
        self.trace.buffers[site].push((now / 1_000.0, self.buffers[site]));
    }

    /// All stop, and begin again together with the buffers of the beginning.
    fn pause_all(&mut self, now: f64) {
        self.trace.pauses.push(now / 1_000.0);
        let fresh = Self::new(true);
        self.in_flight = fresh.in_flight;
        self.buffers = fresh.buffers;
        self.next_ms = [now + f64::from(INITIAL_DELAY_FRAMES) * PERIOD_MS; 2];
    }
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let (seed, seconds) = (bench.seed, bench.full_or_short(60, 30));
    let free = UngatedModel::new(false).run(seconds as f64);
    let held = UngatedModel::new(true).run(seconds as f64);
    let mut stand = Testbed {
        duration: TimeDelta::from_secs(seconds),
        skew_ppm: Some(CLOCK_SKEW * 1e6),
        ..Testbed::new(seed, INITIAL_DELAY_FRAMES, 0.0)
    };
    stand.game.seed = seed;
    let gated = bench.run_jobs(1.0, &[stand], Testbed::run).remove(0);
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2, of which the second's clock is 1 % too fast");
    findings.add_parameter("initial delay", "0.3 s");
    findings.add_parameter("link", "65 ms in each direction, no loss");
    findings.add_parameter("thresholds", "less than 1 frame, more than 26 (equation 4 in commands)");
    findings.add_parameter("time", format!("{seconds} s"));
    findings.add_note(
        "A model of the paper's buffers with the gate off, beside the engine with it on and the same clocks.",
    );
    findings.tables.push(table(&free, &held, &gated));
    findings.figures.push(figure(&free, &held, &gated));
    claims(&mut findings, &free, &held, &gated);
    findings
}

fn table(free: &UngatedTrace, held: &UngatedTrace, gated: &TestbedTrace) -> DataTable {
    let mut table =
        DataTable::new("overrun", "Frames in the buffers", &["way", "least_frames", "most_frames", "pauses"]);
    let mut row = |name: &str, buffers: &[Vec<(f64, f64)>; 2], pauses: usize| {
        let all = || buffers.iter().flatten().map(|(_, frames)| *frames);
        table.add_row([
            name.into(),
            number(min_or_infinity(all()), 0),
            number(max_or_zero(all()), 0),
            number(pauses as f64, 0),
        ]);
    };
    row("gate off, no thresholds", &free.buffers, free.pauses.len());
    row("gate off, thresholds", &held.buffers, held.pauses.len());
    row("gate on (the engine)", &gated.buffers, gated.pauses.len());
    table
}

/// Few enough points to be drawn.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().step_by((points.len() / 600).max(1)).copied().collect()
}

fn figure(free: &UngatedTrace, held: &UngatedTrace, gated: &TestbedTrace) -> Figure {
    let panel = |title: &str, buffers: &[Vec<(f64, f64)>; 2], pauses: Vec<f64>| {
        Panel::new(
            title,
            PlotAxis::new("time, s").with_min(0.0).with_max(gated.seconds),
            PlotAxis::new("frames in the buffer").with_min(0.0).with_max(60.0),
        )
        .steps("at the slow site", SeriesStyle::First, thinned(&buffers[0]))
        .steps("at the quick site", SeriesStyle::Paper, thinned(&buffers[1]))
        .points("all pause", SeriesStyle::PaperText, pauses.into_iter().map(|at| (at, 0.0)))
        .horizontal_bound(FORWARD_THRESHOLD, "forward threshold")
    };
    let panels = vec![
        panel("Gate off, no thresholds", &free.buffers, vec![]),
        panel("Gate off, thresholds", &held.buffers, held.pauses.clone()),
        panel("Gate on: the engine", &gated.buffers, vec![]),
    ];
    let caption = "By its own clock the quick site plays more than it gets and the slow one gets more than it plays. Thresholds make all pause again and again; the engine's plan and gate make that needless.";
    Figure::new("overrun", "Overrun and starvation (K, section 3.4)", caption, panels)
}

fn claims(findings: &mut Findings, free: &UngatedTrace, held: &UngatedTrace, gated: &TestbedTrace) {
    let all = |buffers: &[Vec<(f64, f64)>; 2]| {
        let frames = || buffers.iter().flatten().map(|(_, frames)| *frames);
        (min_or_infinity(frames()), max_or_zero(frames()))
    };
    let (dry, over) = all(&free.buffers);
    findings.add_claim(
        "without the gate one buffer runs dry and the other over",
        "starvation and overrun",
        format!("{dry:.0} and {over:.0} frames, where {FORWARD_THRESHOLD:.0} are the most that fit"),
        dry < STARVATION_THRESHOLD && over > FORWARD_THRESHOLD,
    );
    let (_, kept) = all(&held.buffers);
    findings.add_claim(
        "thresholds prevent that by pausing",
        "stop temporarily and resume",
        format!("{} pauses, never more than {kept:.0} frames", held.pauses.len()),
        !held.pauses.is_empty() && kept <= FORWARD_THRESHOLD + 1.0,
    );
    let (low, high) = all(&gated.buffers);
    findings.add_claim(
        "with the gate, on one plan, neither happens",
        "no such thing in it",
        format!("{low:.0} to {high:.0} frames, {} pauses", gated.pauses.len()),
        low >= STARVATION_THRESHOLD && high <= FORWARD_THRESHOLD && gated.pauses.is_empty() && gated.states_equal,
    );
}
