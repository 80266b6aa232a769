//! Stalls and cost under packet loss, independent and in bursts. The paper leaves packet loss to its journal version.

use coplay_links::link::{LinkConfig, Loss};
use coplay_sim::session_experiment::SessionExperiment;

use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{constant_rtt_link, max_or_zero};
use crate::papers::ZHAO;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `loss` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "loss",
    title: "Packet loss, independent and in bursts",
    summary: "Measures stalls, pacing and traffic of a game at RTT 100 ms with 0 to 20 % packet loss. Packets repeat unacknowledged inputs, so a lost input arrives with a later packet and need not be requested. Prediction hides the remaining delay.",
    paper: &ZHAO,
    paper_figures: "beyond the paper, which leaves packet loss to its journal version",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const RTT_MS: f64 = 100.0;
/// Mean number of consecutive packets lost in a burst.
const MEAN_BURST_PACKETS: f64 = 4.0;
const PERIOD_MS: f64 = 1_000.0 / 60.0;

/// Compared variants: prediction window in frames, mean burst in packets, label and style.
const VARIANTS: [(u32, f64, &str, SeriesStyle); 4] = [
    (0, 1.0, "prediction window 0, independent loss", SeriesStyle::First),
    (0, MEAN_BURST_PACKETS, "prediction window 0, loss in bursts of 4", SeriesStyle::Fifth),
    (8, 1.0, "prediction window 8, independent loss", SeriesStyle::Second),
    (8, MEAN_BURST_PACKETS, "prediction window 8, loss in bursts of 4", SeriesStyle::Fourth),
];

#[derive(Clone, Copy, Debug)]
struct LossPoint {
    variant: usize,
    loss: f64,
    stalled_fraction: f64,
    frame_ms: f64,
    deviation_ms: f64,
    bytes_per_packet: f64,
    packets_per_frame: f64,
    resimulated_per_100_frames: f64,
    is_consistent: bool,
}

fn measure(seed: u64, frames: u32, (variant, loss): (usize, f64)) -> LossPoint {
    let (prediction_window, burst, ..) = VARIANTS[variant];
    let loss_kind = match burst {
        _ if loss == 0.0 => Loss::None,
        1.0 => Loss::Independent(loss),
        _ => Loss::bursts(loss, burst),
    };
    let link = LinkConfig { loss: loss_kind, ..constant_rtt_link(RTT_MS) };
    let outcome = SessionExperiment { seed, prediction_window, frames, ..SessionExperiment::new(link) }.run();
    LossPoint {
        variant,
        loss,
        stalled_fraction: outcome.stall_ratio,
        frame_ms: outcome.mean_frame_ms[0],
        deviation_ms: outcome.worst_deviation_ms(),
        bytes_per_packet: outcome.bytes_per_packet,
        packets_per_frame: outcome.packets_per_frame,
        resimulated_per_100_frames: max_or_zero(outcome.resimulated_per_100.iter().copied()),
        is_consistent: outcome.is_complete && outcome.states_equal,
    }
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let losses: &[f64] =
        context.full_or_short(&[0.0, 0.01, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2], &[0.0, 0.05, 0.2]);
    let frames = context.full_or_short(3_600, 1_200);
    let jobs: Vec<(usize, f64)> =
        (0..VARIANTS.len()).flat_map(|variant| losses.iter().map(move |loss| (variant, *loss))).collect();
    let seed = context.seed;
    let points = context.run_jobs(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("input delay", "6 frames at 60 per second");
    findings.add_parameter("link", "RTT 100 ms, constant");
    findings.add_parameter("loss", "0 to 20 %, independent, and in bursts of 4 packets on average (Gilbert)");
    findings.add_parameter("frames per run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[LossPoint]) -> DataTable {
    let columns = [
        "prediction_window",
        "mean_burst_packets",
        "loss_percent",
        "stalled_percent",
        "frame_ms",
        "deviation_ms",
        "resimulated_per_100_frames",
        "bytes_per_packet",
        "packets_per_frame",
    ];
    let mut table = DataTable::new("loss", "Stalls, pacing and traffic by packet loss", &columns);
    for point in points {
        let (prediction_window, burst, ..) = VARIANTS[point.variant];
        table.add_row([
            integer(prediction_window),
            number(burst, 0),
            number(point.loss * 100.0, 0),
            number(point.stalled_fraction * 100.0, 2),
            number(point.frame_ms, 3),
            number(point.deviation_ms, 3),
            number(point.resimulated_per_100_frames, 2),
            number(point.bytes_per_packet, 2),
            number(point.packets_per_frame, 4),
        ]);
    }
    table
}

fn figure(points: &[LossPoint]) -> Figure {
    let panel = |title: &str, y: PlotAxis, part: fn(&LossPoint) -> f64| {
        let x = PlotAxis::new("packet loss, %").with_min(0.0).with_max(20.0);
        VARIANTS.iter().enumerate().fold(Panel::new(title, x, y), |panel, (variant, (_, _, name, style))| {
            let line = points.iter().filter(|point| point.variant == variant);
            panel.line(name, *style, line.map(|point| (point.loss * 100.0, part(point))))
        })
    };
    let panels = vec![
        panel("Stalled frames", PlotAxis::new("% of frames").with_min(0.0), |point| point.stalled_fraction * 100.0),
        panel("Deviation of the frame time", PlotAxis::new("ms, worse site").with_min(0.0), |point| point.deviation_ms),
        panel("Payload per packet", PlotAxis::new("bytes").with_min(0.0), |point| point.bytes_per_packet),
        panel("Resimulated frames", PlotAxis::new("per 100 frames, worse site").with_min(0.0), |point| {
            point.resimulated_per_100_frames
        }),
    ];
    let caption = "The input delay of 6 frames exceeds the one-way delay of 50 ms by 3 frames, so without prediction a frame stalls only after three consecutive packet losses. \
                   With a prediction window of 8 frames, hardly any frame stalls; rollbacks correct the frames whose inputs were late.";
    Figure::new("loss", "Stalls, deviation, payload and resimulation over packet loss", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, points: &[LossPoint]) {
    let of =
        |variant: usize, loss: f64| points.iter().find(move |point| point.variant == variant && point.loss == loss);
    let value = |variant: usize, loss: f64, part: fn(&LossPoint) -> f64| of(variant, loss).map_or(f64::INFINITY, part);
    let stalled = value(0, 0.05, |point| point.stalled_fraction * 100.0);
    findings.add_claim(
        "without prediction, 5 % independent loss at RTT 100 ms stalls under 1 % of the frames",
        "left to the paper's journal version",
        format!("{stalled:.2} % of the frames stall"),
        stalled < 1.0,
    );
    let (frame_ms, deviation_ms) = (value(2, 0.2, |point| point.frame_ms), value(2, 0.2, |point| point.deviation_ms));
    findings.add_claim(
        "with a prediction window of 8 frames and 20 % independent loss, the game runs at full speed (mean frame time within 0.05 ms of the frame period), with a deviation below 0.5 ms",
        "left to the paper's journal version",
        format!("{frame_ms:.2} ms per frame, deviation {deviation_ms:.3} ms"),
        (frame_ms - PERIOD_MS).abs() < 0.05 && deviation_ms < 0.5,
    );
    let smooth =
        max_or_zero(points.iter().filter(|point| point.stalled_fraction < 0.001).map(|point| point.packets_per_frame));
    let packets = max_or_zero(points.iter().map(|point| point.packets_per_frame));
    findings.add_claim(
        "lost packets trigger no extra packets: where under 0.1 % of the frames stall, less than 1.005 packets are sent per frame and link, and less than 1.1 in every run",
        "a timer sends the new inputs",
        format!("{smooth:.3} packets per frame and link where under 0.1 % of the frames stall, at most {packets:.3} in any run"),
        smooth < 1.005 && packets < 1.1,
    );
    let sound = points.iter().all(|point| point.is_consistent);
    findings.add_claim(
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
