//! More than two: the paper assumes two sites and leaves the rest to its journal version.

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
    name: "players",
    title: "2, 3, 4 and 8 players",
    shows: "The same as `pacing` with more sites, each connected to each: more players cost neither speed nor evenness.",
    paper: &ZHAO,
    figures: "beyond Figures 1 and 2: its journal version names multiple players",
    seconds: 20.0,
    run,
    real: None,
};

const SITES: [usize; 4] = [2, 3, 4, 8];
const WINDOWS: [u32; 2] = [0, 8];
const LAG: u32 = 6;
const PERIOD_MS: f64 = 1_000.0 / 60.0;

#[derive(Clone, Copy, Debug)]
struct Point {
    sites: usize,
    window: u32,
    rtt_ms: f64,
    frame_ms: f64,
    deviation_ms: f64,
    synchrony_ms: f64,
    bytes_per_frame: f64,
    sound: bool,
}

fn measure(seed: u64, frames: u32, (sites, window, rtt_ms): (usize, u32, f64)) -> Point {
    let outcome = Game { seed, sites, window, lag: LAG, frames, ..Game::new(rtt(rtt_ms)) }.run();
    Point {
        sites,
        window,
        rtt_ms,
        frame_ms: most(outcome.frame_ms.iter().copied()),
        deviation_ms: outcome.worst_deviation_ms(),
        synchrony_ms: outcome.synchrony_ms,
        bytes_per_frame: outcome.bytes_per_frame,
        sound: outcome.complete && outcome.states_equal,
    }
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let round_trips: &[f64] =
        bench.either(&[0.0, 50.0, 100.0, 150.0, 190.0, 200.0, 250.0, 300.0, 350.0, 400.0], &[0.0, 100.0, 190.0, 300.0]);
    let frames = bench.either(3_600, 600);
    let jobs: Vec<(usize, u32, f64)> = SITES
        .into_iter()
        .flat_map(|sites| WINDOWS.map(|window| (sites, window)))
        .flat_map(|(sites, window)| round_trips.iter().map(move |rtt_ms| (sites, window, *rtt_ms)))
        .collect();
    let seed = bench.seed;
    let points = bench.spread(1.0, &jobs, |job| measure(seed, frames, *job));
    let mut findings = Findings::default();
    findings.parameter("sites", "2, 3, 4, 8, each connected to each");
    findings.parameter("local lag", "6 frames at 60 per second");
    findings.parameter("window", "0 and 8 frames");
    findings.parameter("link", "the same constant delay between all, no loss");
    findings.parameter("frames a run", frames.to_string());
    findings.tables.push(table(&points));
    findings.figures.push(figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[Point]) -> Table {
    let columns = ["sites", "window", "rtt_ms", "frame_ms", "deviation_ms", "synchrony_ms", "bytes_per_frame_and_link"];
    let mut table = Table::new("players", "Pace by number of sites, the worst site of each", &columns);
    for point in points {
        table.row([
            whole(point.sites as i64),
            whole(point.window),
            number(point.rtt_ms, 0),
            number(point.frame_ms, 3),
            number(point.deviation_ms, 3),
            number(point.synchrony_ms, 3),
            number(point.bytes_per_frame, 2),
        ]);
    }
    table
}

fn figure(points: &[Point]) -> Figure {
    let panel = |window: u32, title: &str, y: Axis, part: fn(&Point) -> f64| {
        let x = Axis::new("round-trip time, ms").from(0.0).to(400.0);
        let bound = f64::from(LAG + window) * 2.0 * PERIOD_MS;
        let mut panel = Panel::new(&format!("{title}, window {window}"), x, y);
        if bound < 400.0 {
            panel = panel.vertical(bound, "RTT = 2 × lag");
        }
        for (sites, ink) in SITES.into_iter().zip(Ink::RANGE) {
            let line = points.iter().filter(|point| point.sites == sites && point.window == window);
            panel = panel.line(&format!("{sites} sites"), ink, line.map(|point| (point.rtt_ms, part(point))));
        }
        panel
    };
    let frame = |window| {
        panel(window, "Frame time", Axis::new("ms, the slowest site").from(15.0).to(35.0), |point| point.frame_ms)
    };
    let deviation = |window| {
        panel(window, "Deviation", Axis::new("ms, the least even site").from(0.0).to(1.0), |point| point.deviation_ms)
    };
    let caption = "Two to eight sites, the worst of them shown. The lines lie on each other: a mesh of eight is as fast and as even as two.";
    Figure::new("players", "Pace by number of players", caption, vec![frame(0), frame(8), deviation(0), deviation(8)])
        .columns(2)
}

fn claims(findings: &mut Findings, points: &[Point]) {
    let near = |point: &&Point| point.rtt_ms <= 190.0 || point.window == 8;
    let slow = most(points.iter().filter(near).map(|point| point.frame_ms));
    let rough = most(points.iter().filter(near).map(|point| point.deviation_ms));
    findings.claim(
        "2 to 8 players at full speed and even: window 0 to RTT 190, window 8 to RTT 400",
        "two players, RTT 140",
        format!("{slow:.2} ms a frame, deviation {rough:.2} ms at the worst site of all runs"),
        (slow - PERIOD_MS).abs() < 0.05 && rough < 1.0,
    );
    let sound = points.iter().all(|point| point.sound);
    findings.claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
