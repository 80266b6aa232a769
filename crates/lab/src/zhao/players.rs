//! More than two: the paper assumes two sites and leaves the rest to its journal version.

use coplay_sim::session_experiment::SessionExperiment as Game;

use crate::bench::ExperimentContext;
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{constant_rtt_link, max_or_zero};
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "players",
    title: "2, 3, 4 and 8 players",
    summary: "The same as `pacing` with more sites, each connected to each: more players cost neither speed nor evenness.",
    paper: &ZHAO,
    paper_figures: "beyond Figures 1 and 2: its journal version names multiple players",
    expected_seconds: 20.0,
    run,
    real_run: None,
};

const SITES: [usize; 4] = [2, 3, 4, 8];
const PREDICTION_WINDOWS: [u32; 2] = [0, 8];
const INPUT_DELAY: u32 = 6;
const PERIOD_MS: f64 = 1_000.0 / 60.0;

#[derive(Clone, Copy, Debug)]
struct PlayersPoint {
    sites: usize,
    prediction_window: u32,
    rtt_ms: f64,
    frame_ms: f64,
    deviation_ms: f64,
    synchrony_ms: f64,
    bytes_per_frame: f64,
    is_consistent: bool,
}

fn measure(seed: u64, frames: u32, (sites, window, rtt_ms): (usize, u32, f64)) -> PlayersPoint {
    let outcome = Game {
        seed,
        sites,
        prediction_window: window,
        input_delay: INPUT_DELAY,
        frames,
        ..Game::new(constant_rtt_link(rtt_ms))
    }
    .run();
    PlayersPoint {
        sites,
        prediction_window: window,
        rtt_ms,
        frame_ms: max_or_zero(outcome.mean_frame_ms.iter().copied()),
        deviation_ms: outcome.worst_deviation_ms(),
        synchrony_ms: outcome.synchrony_ms,
        bytes_per_frame: outcome.bytes_per_frame,
        is_consistent: outcome.is_complete && outcome.states_equal,
    }
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let round_trips: &[f64] = bench.full_or_short(
        &[0.0, 50.0, 100.0, 150.0, 190.0, 200.0, 250.0, 300.0, 350.0, 400.0],
        &[0.0, 100.0, 190.0, 300.0],
    );
    let frames = bench.full_or_short(3_600, 600);
    let jobs: Vec<(usize, u32, f64)> = SITES
        .into_iter()
        .flat_map(|sites| PREDICTION_WINDOWS.map(|window| (sites, window)))
        .flat_map(|(sites, window)| round_trips.iter().map(move |rtt_ms| (sites, window, *rtt_ms)))
        .collect();
    let seed = bench.seed;
    let points = bench.run_jobs(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2, 3, 4, 8, each connected to each");
    findings.add_parameter("local lag", "6 frames at 60 per second");
    findings.add_parameter("window", "0 and 8 frames");
    findings.add_parameter("link", "the same constant delay between all, no loss");
    findings.add_parameter("frames a run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[PlayersPoint]) -> DataTable {
    let columns = ["sites", "window", "rtt_ms", "frame_ms", "deviation_ms", "synchrony_ms", "bytes_per_frame_and_link"];
    let mut table = DataTable::new("players", "Pace by number of sites, the worst site of each", &columns);
    for point in points {
        table.add_row([
            integer(point.sites as i64),
            integer(point.prediction_window),
            number(point.rtt_ms, 0),
            number(point.frame_ms, 3),
            number(point.deviation_ms, 3),
            number(point.synchrony_ms, 3),
            number(point.bytes_per_frame, 2),
        ]);
    }
    table
}

fn figure(points: &[PlayersPoint]) -> Figure {
    let panel = |window: u32, title: &str, y: PlotAxis, part: fn(&PlayersPoint) -> f64| {
        let x = PlotAxis::new("round-trip time, ms").with_min(0.0).with_max(400.0);
        let bound = f64::from(INPUT_DELAY + window) * 2.0 * PERIOD_MS;
        let mut panel = Panel::new(&format!("{title}, window {window}"), x, y);
        if bound < 400.0 {
            panel = panel.vertical_bound(bound, "RTT = 2 × lag");
        }
        for (sites, ink) in SITES.into_iter().zip(SeriesStyle::SEQUENCE) {
            let line = points.iter().filter(|point| point.sites == sites && point.prediction_window == window);
            panel = panel.line(&format!("{sites} sites"), ink, line.map(|point| (point.rtt_ms, part(point))));
        }
        panel
    };
    let frame = |window| {
        panel(window, "Frame time", PlotAxis::new("ms, the slowest site").with_min(15.0).with_max(35.0), |point| {
            point.frame_ms
        })
    };
    let deviation = |window| {
        panel(window, "Deviation", PlotAxis::new("ms, the least even site").with_min(0.0).with_max(1.0), |point| {
            point.deviation_ms
        })
    };
    let caption = "Two to eight sites, the worst of them shown. The lines lie on each other: a mesh of eight is as fast and as even as two.";
    Figure::new("players", "Pace by number of players", caption, vec![frame(0), frame(8), deviation(0), deviation(8)])
        .columns(2)
}

fn claims(findings: &mut Findings, points: &[PlayersPoint]) {
    let near = |point: &&PlayersPoint| point.rtt_ms <= 190.0 || point.prediction_window == 8;
    let slow = max_or_zero(points.iter().filter(near).map(|point| point.frame_ms));
    let rough = max_or_zero(points.iter().filter(near).map(|point| point.deviation_ms));
    findings.add_claim(
        "2 to 8 players at full speed and even: window 0 to RTT 190, window 8 to RTT 400",
        "two players, RTT 140",
        format!("{slow:.2} ms a frame, deviation {rough:.2} ms at the worst site of all runs"),
        (slow - PERIOD_MS).abs() < 0.05 && rough < 1.0,
    );
    let sound = points.iter().all(|point| point.is_consistent);
    findings.add_claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
