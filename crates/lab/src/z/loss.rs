//! Packets that get lost, one by one and in bursts: named by the paper for its journal version.

use coplay_sim::link::{LinkConfig, Loss};
use coplay_sim::measure::Experiment as Game;

use crate::bench::Bench;
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{most, rtt};
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "loss",
    title: "Packet loss, one by one and in bursts",
    shows: "What 0 to 20 % of lost packets do to a game over 100 ms: every packet repeats what is not acknowledged, so a loss costs no round trip, and guessing hides what is left.",
    paper: &ZHAO,
    figures: "beyond the paper: its journal version names packet losses",
    seconds: 8.0,
    run,
    real: None,
};

const RTT_MS: f64 = 100.0;
/// Packets lost in a row, on average.
const BURST: f64 = 4.0;
const PERIOD_MS: f64 = 1_000.0 / 60.0;

/// Window, mean burst, name and colour.
const WAYS: [(u32, f64, &str, Ink); 4] = [
    (0, 1.0, "window 0, one by one", Ink::First),
    (0, BURST, "window 0, bursts of 4", Ink::Fifth),
    (8, 1.0, "window 8, one by one", Ink::Second),
    (8, BURST, "window 8, bursts of 4", Ink::Fourth),
];

#[derive(Clone, Copy, Debug)]
struct Point {
    way: usize,
    loss: f64,
    stalled: f64,
    frame_ms: f64,
    deviation_ms: f64,
    bytes_per_packet: f64,
    packets_per_frame: f64,
    again: f64,
    sound: bool,
}

fn measure(seed: u64, frames: u32, (way, loss): (usize, f64)) -> Point {
    let (window, burst, ..) = WAYS[way];
    let loss_kind = match burst {
        _ if loss == 0.0 => Loss::None,
        1.0 => Loss::Independent(loss),
        _ => Loss::bursts(loss, burst),
    };
    let link = LinkConfig { loss: loss_kind, ..rtt(RTT_MS) };
    let outcome = Game { seed, window, frames, ..Game::new(link) }.run();
    Point {
        way,
        loss,
        stalled: outcome.stalls,
        frame_ms: outcome.frame_ms[0],
        deviation_ms: outcome.worst_deviation_ms(),
        bytes_per_packet: outcome.bytes_per_packet,
        packets_per_frame: outcome.packets_per_frame,
        again: most(outcome.resimulated.iter().copied()),
        sound: outcome.complete && outcome.states_equal,
    }
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let losses: &[f64] = bench.either(&[0.0, 0.01, 0.02, 0.05, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2], &[0.0, 0.05, 0.2]);
    let frames = bench.either(3_600, 1_200);
    let jobs: Vec<(usize, f64)> = (0..WAYS.len()).flat_map(|way| losses.iter().map(move |loss| (way, *loss))).collect();
    let seed = bench.seed;
    let points = bench.spread(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.parameter("sites", "2");
    findings.parameter("local lag", "6 frames at 60 per second");
    findings.parameter("link", "RTT 100 ms, constant");
    findings.parameter("loss", "0 to 20 %, independent, and in bursts of 4 packets on average (Gilbert)");
    findings.parameter("frames a run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[Point]) -> Table {
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
    let mut table = Table::new("loss", "What loss costs", &columns);
    for point in points {
        let (window, burst, ..) = WAYS[point.way];
        table.row([
            whole(window),
            number(burst, 0),
            number(point.loss * 100.0, 0),
            number(point.stalled * 100.0, 2),
            number(point.frame_ms, 3),
            number(point.deviation_ms, 3),
            number(point.again, 2),
            number(point.bytes_per_packet, 2),
            number(point.packets_per_frame, 4),
        ]);
    }
    table
}

fn figure(points: &[Point]) -> Figure {
    let panel = |title: &str, y: Axis, part: fn(&Point) -> f64| {
        let x = Axis::new("packets lost, %").from(0.0).to(20.0);
        WAYS.iter().enumerate().fold(Panel::new(title, x, y), |panel, (way, (_, _, name, ink))| {
            let line = points.iter().filter(|point| point.way == way);
            panel.line(name, *ink, line.map(|point| (point.loss * 100.0, part(point))))
        })
    };
    let panels = vec![
        panel("Frames that wait", Axis::new("% of all").from(0.0), |point| point.stalled * 100.0),
        panel("Deviation of the frame time", Axis::new("ms, the worse site").from(0.0), |point| point.deviation_ms),
        panel("Payload of a packet", Axis::new("bytes").from(0.0), |point| point.bytes_per_packet),
        panel("Frames stepped once more", Axis::new("for 100 frames, the worse site").from(0.0), |point| point.again),
    ];
    let caption = "A lag of 6 frames has three to spare over the 50 ms of the way: it takes three packets lost in a row to make a frame wait. \
                   With a window of 8 frames hardly anything waits; what arrives late is repaired. Packets stay as small as without loss.";
    Figure::new("loss", "Loss, one by one and in bursts", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, points: &[Point]) {
    let of = |way: usize, loss: f64| points.iter().find(move |point| point.way == way && point.loss == loss);
    let value = |way: usize, loss: f64, part: fn(&Point) -> f64| of(way, loss).map_or(f64::INFINITY, part);
    let waits = value(0, 0.05, |point| point.stalled * 100.0);
    findings.claim(
        "5 % independent loss at RTT 100 costs hardly a frame, without guessing",
        "left to its journal version",
        format!("{waits:.2} % of the frames wait"),
        waits < 1.0,
    );
    let (slow, rough) = (value(2, 0.2, |point| point.frame_ms), value(2, 0.2, |point| point.deviation_ms));
    findings.claim(
        "with a window of 8 frames 20 % independent loss is neither slow nor uneven",
        "left to its journal version",
        format!("{slow:.2} ms a frame, deviation {rough:.3} ms"),
        (slow - PERIOD_MS).abs() < 0.05 && rough < 0.5,
    );
    let smooth = most(points.iter().filter(|point| point.stalled < 0.001).map(|point| point.packets_per_frame));
    let packets = most(points.iter().map(|point| point.packets_per_frame));
    findings.claim(
        "no packet is sent because another was lost; only who waits for somebody says so now and then",
        "sends what is new, by a timer",
        format!("{smooth:.3} packets for each frame and link where hardly a frame waits, {packets:.3} at worst"),
        smooth < 1.005 && packets < 1.1,
    );
    let sound = points.iter().all(|point| point.sound);
    findings.claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
