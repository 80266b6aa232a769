//! Figures 11 to 14: size of the packets with requests or resends, number of requests, and number of packets, with
//! history and with classic retransmission.

use coplay::input::Recovery;
use coplay::time::TimeDelta;

use super::testbed::{Testbed, TestbedTrace, TracedPacket};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{max_or_zero, mean};
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `packets` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "packets",
    title: "Number and size of packets with history and classic retransmission",
    summary: "With history retransmission, the regular packets carry requests and resends. So the number of packets does not grow with loss, and a packet with a request or a resend is a few bytes longer. Classic retransmission sends an extra packet for every request and for every resend.",
    paper: &KIM,
    paper_figures: "Figures 11, 12, 13 and 14",
    expected_seconds: 2.0,
    run,
    real_run: None,
};

/// Initial delay: 1 s, so that nearly every lost input is recovered in time and the sites hardly ever pause.
const INITIAL_DELAY_FRAMES: u32 = 60;
const LOSSES: [f64; 4] = [0.0, 0.01, 0.05, 0.1];
const POLICIES: [(Recovery, &str, SeriesStyle); 2] =
    [(Recovery::History, "history", SeriesStyle::First), (Recovery::Classic, "classic", SeriesStyle::Paper)];

/// Trace of one recovery policy at one loss rate.
struct PolicyRun {
    policy: usize,
    loss: f64,
    trace: TestbedTrace,
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seed = context.seed;
    let seconds = context.full_or_short(60, 30);
    let jobs: Vec<(usize, f64)> = (0..POLICIES.len()).flat_map(|policy| LOSSES.map(|loss| (policy, loss))).collect();
    let runs = context.run_jobs(1.0, &jobs, |(policy, loss)| {
        let mut testbed =
            Testbed { duration: TimeDelta::from_secs(seconds), ..Testbed::new(seed, INITIAL_DELAY_FRAMES, *loss) };
        testbed.game.recovery = POLICIES[*policy].0;
        PolicyRun { policy: *policy, loss: *loss, trace: testbed.run() }
    });
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter(
        "initial delay",
        "1 s: an input delay of 60 frames, so that the sites hardly ever pause and both policies run under the same conditions",
    );
    findings.add_parameter("link", "65 ms in each direction; 0, 1, 5 and 10 % independent loss");
    findings.add_parameter("inputs", "2 bytes, changing every 8 frames on average");
    findings.add_parameter("time", format!("{seconds} s"));
    findings.add_note("A site fills a gap without a request if the change counter in the next packet proves that no input changed in the gap. So there are fewer requests than lost packets.");
    findings.tables.push(table(&runs));
    findings.figures.push(sizes_figure(&runs));
    findings.figures.push(counts_figure(&runs));
    claims(&mut findings, &runs);
    findings
}

fn trace_of(runs: &[PolicyRun], policy: usize, loss: f64) -> &TestbedTrace {
    let found = runs.iter().find(|run| run.policy == policy && run.loss == loss);
    &found.expect("every policy was run with every loss").trace
}

/// Returns the packets of both sites, scaled to one minute of frames (3,600 per site).
fn packets_per_minute(trace: &TestbedTrace) -> f64 {
    let frames = f64::from(trace.frames[0] + trace.frames[1]);
    trace.packets.len() as f64 / frames.max(1.0) * 7_200.0
}

fn mean_bytes(trace: &TestbedTrace, filter: fn(&TracedPacket) -> bool) -> f64 {
    mean(&trace.packets.iter().filter(|packet| filter(packet)).map(|packet| packet.bytes as f64).collect::<Vec<f64>>())
}

fn table(runs: &[PolicyRun]) -> DataTable {
    let columns = [
        "policy",
        "loss_percent",
        "packets",
        "packets_per_frame_and_link",
        "requests",
        "resends",
        "mean_bytes",
        "mean_bytes_without_request_or_resend",
        "mean_bytes_with_request_or_resend",
        "max_bytes",
        "pauses",
        "frames_per_second",
    ];
    let mut table = DataTable::new(
        "packets",
        "Number and size of the packets of both sites, by recovery policy and loss",
        &columns,
    );
    for PolicyRun { policy, loss, trace } in runs {
        let frames = f64::from(trace.frames[0] + trace.frames[1]);
        let count =
            |filter: fn(&TracedPacket) -> bool| trace.packets.iter().filter(|packet| filter(packet)).count() as i64;
        table.add_row([
            POLICIES[*policy].1.into(),
            number(loss * 100.0, 0),
            integer(trace.packets.len() as i64),
            number(trace.packets.len() as f64 / frames, 4),
            integer(count(|packet| packet.has_request)),
            integer(count(|packet| packet.has_answer)),
            number(mean_bytes(trace, |_| true), 2),
            number(mean_bytes(trace, |packet| !packet.has_request && !packet.has_answer), 2),
            number(mean_bytes(trace, |packet| packet.has_request || packet.has_answer), 2),
            number(max_or_zero(trace.packets.iter().map(|packet| packet.bytes as f64)), 0),
            integer(trace.pauses.len() as i64),
            number(trace.frames_per_second(), 2),
        ]);
    }
    table
}

/// Returns the cumulative count of matching packets over time, both sites together.
fn cumulative_count(trace: &TestbedTrace, filter: fn(&TracedPacket) -> bool) -> Vec<(f64, f64)> {
    let times = trace.packets.iter().filter(|packet| filter(packet)).map(|packet| packet.at_s);
    let steps = times.enumerate().map(|(count, at)| (at, count as f64 + 1.0));
    let mut steps: Vec<(f64, f64)> = [(0.0, 0.0)].into_iter().chain(steps).collect();
    steps.push((trace.seconds, steps.len() as f64 - 1.0));
    steps
}

fn sizes_figure(runs: &[PolicyRun]) -> Figure {
    let time = || PlotAxis::new("time, s").with_min(0.0);
    let mut size_panel =
        Panel::new("Size of packets with requests or resends", time(), PlotAxis::new("bytes of payload").with_min(0.0));
    let mut requests_panel =
        Panel::new("Cumulative requests", time(), PlotAxis::new("packets with requests").with_min(0.0));
    for (loss, style) in [(0.01, SeriesStyle::First), (0.05, SeriesStyle::Paper)] {
        let trace = trace_of(runs, 0, loss);
        let name = format!("{:.0} % loss", loss * 100.0);
        let history = trace.packets.iter().filter(|packet| packet.has_request || packet.has_answer);
        size_panel = size_panel.points(&name, style, history.map(|packet| (packet.at_s, packet.bytes as f64)));
        requests_panel = requests_panel.steps(&name, style, cumulative_count(trace, |packet| packet.has_request));
    }
    let plain = mean_bytes(trace_of(runs, 0, 0.0), |_| true);
    let size_panel = size_panel.horizontal_bound(plain, "mean of all packets without loss");
    let caption = "History retransmission at 1 and 5 % loss, both sites together. Left: size of every packet with a request or a resend. Right: cumulative number of packets with requests.";
    Figure::new(
        "packets-history",
        "Size of packets with requests or resends, and number of requests (K, Figures 11 and 12)",
        caption,
        vec![size_panel, requests_panel],
    )
    .columns(2)
}

fn counts_figure(runs: &[PolicyRun]) -> Figure {
    let names = || PlotAxis::categorical("packet loss", LOSSES.map(|loss| format!("{:.0} %", loss * 100.0)));
    let mut all = Panel::new("All packets", names(), PlotAxis::new("per 3,600 frames, both sites").with_min(0.0));
    let mut extra = Panel::new(
        "Extra packets caused by loss",
        names(),
        PlotAxis::new("per 3,600 frames, both sites").with_min(0.0),
    );
    for (policy, (_, name, style)) in POLICIES.into_iter().enumerate() {
        let count = |loss: f64| packets_per_minute(trace_of(runs, policy, loss));
        all = all.bars(name, style, LOSSES.map(count));
        extra = extra.bars(name, style, LOSSES.map(|loss| (count(loss) - count(0.0)).max(0.0)));
    }
    let caption = "With history, the number of packets is the same as without loss. Classic retransmission adds a packet for each request and each resend.";
    Figure::new("packets-counts", "Number of packets by loss (K, Figures 13 and 14)", caption, vec![all, extra])
        .columns(2)
}

fn claims(findings: &mut Findings, runs: &[PolicyRun]) {
    let count = |policy: usize, loss: f64| packets_per_minute(trace_of(runs, policy, loss));
    let clean = count(0, 0.0);
    let history = max_or_zero(LOSSES.map(|loss| (count(0, loss) / clean - 1.0).abs()));
    findings.add_claim(
        "with history, up to 10 % loss changes the number of packets by less than 0.2 %",
        "packets are sent in a uniform manner",
        format!("by at most {:.2} %", history * 100.0),
        history < 0.002,
    );
    let classic = LOSSES.map(|loss| count(1, loss) / clean);
    findings.add_claim(
        "with classic retransmission the number of packets grows with loss",
        "the number of packets increases",
        format!(
            "{:+.1} %, {:+.1} % and {:+.1} % at 1, 5 and 10 % loss",
            (classic[1] - 1.0) * 100.0,
            (classic[2] - 1.0) * 100.0,
            (classic[3] - 1.0) * 100.0
        ),
        classic.windows(2).all(|pair| pair[1] > pair[0]) && classic[3] > 1.02,
    );
    let plain = mean_bytes(trace_of(runs, 0, 0.0), |_| true);
    let longer = [0.01, 0.05]
        .map(|loss| mean_bytes(trace_of(runs, 0, loss), |packet| packet.has_request || packet.has_answer) - plain);
    findings.add_claim(
        "a packet with a request or a resend is on average less than 16 bytes longer than a packet without loss",
        "a request adds several bytes",
        format!("{:.1} bytes longer at 1 % loss, {:.1} bytes longer at 5 %", longer[0], longer[1]),
        longer.iter().all(|bytes| *bytes < 16.0),
    );
    let requests = [0.01, 0.05, 0.1].map(|loss| trace_of(runs, 0, loss).requests());
    findings.add_claim(
        "with history, the number of packets with requests grows with loss",
        "more requests at 5 % than at 1 %",
        format!("{}, {} and {} packets with requests at 1, 5 and 10 % loss", requests[0], requests[1], requests[2]),
        requests[0] > 0 && requests.windows(2).all(|pair| pair[1] > pair[0]),
    );
    let sound = runs.iter().all(|run| run.trace.states_equal);
    findings.add_claim(
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
