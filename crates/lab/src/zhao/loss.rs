//! Packets that get lost, one by one and in bursts: named by the paper for its journal version.

use coplay_sim::link::{LinkConfig, Loss};
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
    name: "loss",
    title: "Packet loss, one by one and in bursts",
    summary: "What 0 to 20 % of lost packets do to a game over 100 ms: every packet repeats what is not acknowledged, so a loss costs no round trip, and guessing hides what is left.",
    paper: &ZHAO,
    paper_figures: "beyond the paper: its journal version names packet losses",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const RTT_MS: f64 = 100.0;
/// Packets lost in a row, on average.
const MEAN_BURST_PACKETS: f64 = 4.0;
const PERIOD_MS: f64 = 1_000.0 / 60.0;

/// Window, mean burst, name and colour.
const VARIANTS: [(u32, f64, &str, SeriesStyle); 4] = [
    (0, 1.0, "window 0, one by one", SeriesStyle::First),
    (0, MEAN_BURST_PACKETS, "window 0, bursts of 4", SeriesStyle::Fifth),
    (8, 1.0, "window 8, one by one", SeriesStyle::Second),
    (8, MEAN_BURST_PACKETS, "window 8, bursts of 4", SeriesStyle::Fourth),
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

fn measure(seed: u64, frames: u32, (way, loss): (usize, f64)) -> LossPoint {
    let (window, burst, ..) = VARIANTS[way];
    let loss_kind = match burst {
        _ if loss == 0.0 => Loss::None,
        1.0 => Loss::Independent(loss),
        _ => Loss::bursts(loss, burst),
    };
    let link = LinkConfig { loss: loss_kind, ..constant_rtt_link(RTT_MS) };
    let outcome = Game { seed, prediction_window: window, frames, ..Game::new(link) }.run();
    LossPoint {
        variant: way,
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

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let losses: &[f64] =
        bench.full_or_short(&[0.0, 0.01, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2], &[0.0, 0.05, 0.2]);
    let frames = bench.full_or_short(3_600, 1_200);
    let jobs: Vec<(usize, f64)> =
        (0..VARIANTS.len()).flat_map(|way| losses.iter().map(move |loss| (way, *loss))).collect();
    let seed = bench.seed;
    let points = bench.run_jobs(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("local lag", "6 frames at 60 per second");
    findings.add_parameter("link", "RTT 100 ms, constant");
    findings.add_parameter("loss", "0 to 20 %, independent, and in bursts of 4 packets on average (Gilbert)");
    findings.add_parameter("frames a run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[LossPoint]) -> DataTable {
    let columns = [
        "window",
        "mean_burst_packets",
        "loss_percent",
        "stalled_percent",
        "frame_ms",
        "deviation_ms",
        "again_per_100_frames",
        "bytes_per_packet",
        "packets_per_frame",
    ];
    let mut table = DataTable::new("loss", "What loss costs", &columns);
    for point in points {
        let (window, burst, ..) = VARIANTS[point.variant];
        table.add_row([
            integer(window),
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
        let x = PlotAxis::new("packets lost, %").with_min(0.0).with_max(20.0);
        VARIANTS.iter().enumerate().fold(Panel::new(title, x, y), |panel, (way, (_, _, name, ink))| {
            let line = points.iter().filter(|point| point.variant == way);
            panel.line(name, *ink, line.map(|point| (point.loss * 100.0, part(point))))
        })
    };
    let panels = vec![
        panel("Frames that wait", PlotAxis::new("% of all").with_min(0.0), |point| point.stalled_fraction * 100.0),
        panel("Deviation of the frame time", PlotAxis::new("ms, the worse site").with_min(0.0), |point| {
            point.deviation_ms
        }),
        panel("Payload of a packet", PlotAxis::new("bytes").with_min(0.0), |point| point.bytes_per_packet),
        panel("Frames stepped once more", PlotAxis::new("for 100 frames, the worse site").with_min(0.0), |point| {
            point.resimulated_per_100_frames
        }),
    ];
    let caption = "A lag of 6 frames has three to spare over the 50 ms of the way: it takes three packets lost in a row to make a frame wait. \
                   With a window of 8 frames hardly anything waits; what arrives late is repaired. Packets stay as small as without loss.";
    Figure::new("loss", "Loss, one by one and in bursts", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, points: &[LossPoint]) {
    let of = |way: usize, loss: f64| points.iter().find(move |point| point.variant == way && point.loss == loss);
    let value = |way: usize, loss: f64, part: fn(&LossPoint) -> f64| of(way, loss).map_or(f64::INFINITY, part);
    let waits = value(0, 0.05, |point| point.stalled_fraction * 100.0);
    findings.add_claim(
        "5 % independent loss at RTT 100 costs hardly a frame, without guessing",
        "left to its journal version",
        format!("{waits:.2} % of the frames wait"),
        waits < 1.0,
    );
    let (slow, rough) = (value(2, 0.2, |point| point.frame_ms), value(2, 0.2, |point| point.deviation_ms));
    findings.add_claim(
        "with a window of 8 frames 20 % independent loss is neither slow nor uneven",
        "left to its journal version",
        format!("{slow:.2} ms a frame, deviation {rough:.3} ms"),
        (slow - PERIOD_MS).abs() < 0.05 && rough < 0.5,
    );
    let smooth =
        max_or_zero(points.iter().filter(|point| point.stalled_fraction < 0.001).map(|point| point.packets_per_frame));
    let packets = max_or_zero(points.iter().map(|point| point.packets_per_frame));
    findings.add_claim(
        "no packet is sent because another was lost; only who waits for somebody says so now and then",
        "sends what is new, by a timer",
        format!("{smooth:.3} packets for each frame and link where hardly a frame waits, {packets:.3} at worst"),
        smooth < 1.005 && packets < 1.1,
    );
    let sound = points.iter().all(|point| point.is_consistent);
    findings.add_claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
