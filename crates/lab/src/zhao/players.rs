//! Pacing with more than two players. The paper assumes two sites and leaves more sites to its journal version.

use coplay_sim::session_experiment::SessionExperiment;

use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{constant_rtt_link, max_or_zero};
use crate::papers::ZHAO;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `players` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "players",
    title: "Pacing with 2, 3, 4 and 8 players",
    summary: "Repeats `pacing` with our scheme and up to eight sites in a full mesh. More players reduce neither the speed nor the evenness of the game.",
    paper: &ZHAO,
    paper_figures: "beyond Figures 1 and 2; the paper leaves more than two players to its journal version",
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

fn measure(seed: u64, frames: u32, (sites, prediction_window, rtt_ms): (usize, u32, f64)) -> PlayersPoint {
    let outcome = SessionExperiment {
        seed,
        sites,
        prediction_window,
        input_delay: INPUT_DELAY,
        frames,
        ..SessionExperiment::new(constant_rtt_link(rtt_ms))
    }
    .run();
    PlayersPoint {
        sites,
        prediction_window,
        rtt_ms,
        frame_ms: max_or_zero(outcome.mean_frame_ms.iter().copied()),
        deviation_ms: outcome.worst_deviation_ms(),
        synchrony_ms: outcome.synchrony_ms,
        bytes_per_frame: outcome.bytes_per_frame,
        is_consistent: outcome.is_complete && outcome.states_equal,
    }
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let round_trips: &[f64] = context.full_or_short(
        &[0.0, 50.0, 100.0, 150.0, 190.0, 200.0, 250.0, 300.0, 350.0, 400.0],
        &[0.0, 100.0, 190.0, 300.0],
    );
    let frames = context.full_or_short(3_600, 600);
    let jobs: Vec<(usize, u32, f64)> = SITES
        .into_iter()
        .flat_map(|sites| PREDICTION_WINDOWS.map(|prediction_window| (sites, prediction_window)))
        .flat_map(|(sites, prediction_window)| {
            round_trips.iter().map(move |rtt_ms| (sites, prediction_window, *rtt_ms))
        })
        .collect();
    let seed = context.seed;
    let points = context.run_jobs(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2, 3, 4, 8, in a full mesh");
    findings.add_parameter("input delay", "6 frames at 60 per second");
    findings.add_parameter("prediction window", "0 and 8 frames");
    findings.add_parameter("link", "the same constant delay between all sites, no loss");
    findings.add_parameter("frames per run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[PlayersPoint]) -> DataTable {
    let columns = [
        "sites",
        "prediction_window",
        "rtt_ms",
        "frame_ms",
        "deviation_ms",
        "synchrony_ms",
        "bytes_per_frame_and_link",
    ];
    let mut table = DataTable::new(
        "players",
        "Frame time and deviation at the worst site, synchrony of the first two sites, and payload, by number of sites",
        &columns,
    );
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
    let panel = |prediction_window: u32, title: &str, y: PlotAxis, part: fn(&PlayersPoint) -> f64| {
        let x = PlotAxis::new("round-trip time, ms").with_min(0.0).with_max(400.0);
        let bound = f64::from(INPUT_DELAY + prediction_window) * 2.0 * PERIOD_MS;
        let mut panel = Panel::new(&format!("{title}, prediction window {prediction_window}"), x, y);
        if bound < 400.0 {
            panel = panel.vertical_bound(bound, "lockstep bound: RTT = 2 × input delay");
        }
        for (sites, style) in SITES.into_iter().zip(SeriesStyle::SEQUENCE) {
            let line =
                points.iter().filter(|point| point.sites == sites && point.prediction_window == prediction_window);
            panel = panel.line(&format!("{sites} sites"), style, line.map(|point| (point.rtt_ms, part(point))));
        }
        panel
    };
    let frame = |prediction_window| {
        panel(
            prediction_window,
            "Frame time",
            PlotAxis::new("ms, slowest site").with_min(15.0).with_max(35.0),
            |point| point.frame_ms,
        )
    };
    let deviation = |prediction_window| {
        panel(
            prediction_window,
            "Deviation of the frame time",
            PlotAxis::new("ms, least even site").with_min(0.0).with_max(1.0),
            |point| point.deviation_ms,
        )
    };
    let caption = "Mean frame time of the slowest of 2, 3, 4 or 8 sites, and mean absolute deviation of the frame time at the least even one. The lines coincide: a mesh of eight sites is as fast and as even as two sites.";
    Figure::new(
        "players",
        "Frame time and its deviation by number of sites",
        caption,
        vec![frame(0), frame(8), deviation(0), deviation(8)],
    )
    .columns(2)
}

fn claims(findings: &mut Findings, points: &[PlayersPoint]) {
    let in_range = |point: &&PlayersPoint| point.rtt_ms <= 190.0 || point.prediction_window == 8;
    let frame_ms = max_or_zero(points.iter().filter(in_range).map(|point| point.frame_ms));
    let deviation_ms = max_or_zero(points.iter().filter(in_range).map(|point| point.deviation_ms));
    findings.add_claim(
        "2 to 8 players run at full speed (mean frame time within 0.05 ms of the frame period) and evenly (deviation below 1 ms): with prediction window 0 up to RTT 190 ms, with prediction window 8 up to RTT 400 ms",
        "two players, up to RTT 140 ms",
        format!("at the worst site of all runs {frame_ms:.2} ms per frame, deviation {deviation_ms:.2} ms"),
        (frame_ms - PERIOD_MS).abs() < 0.05 && deviation_ms < 1.0,
    );
    let sound = points.iter().all(|point| point.is_consistent);
    findings.add_claim(
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
