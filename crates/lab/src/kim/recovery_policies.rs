//! Compares all recovery policies at several loss rates and round-trip times: the time until a lost input is recovered,
//! and the cost in bytes and packets. The results justify the default policy.

use coplay::id::SiteId;
use coplay::input::{InputWord, Recovery};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::session_experiment::SessionExperiment;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};

use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{lossy_link, max_or_zero, mean, quantile};
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// Catalog entry of the `policies` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "policies",
    title: "Comparison of the recovery policies",
    summary: "Measures the extra delay of inputs under loss, and the cost in bytes and packets, for four recovery policies: redundant (repeats every unacknowledged input), history and classic (request lost inputs), and adaptive, the default (repeats inputs within a byte budget). The inputs are those of pads, or of analog sticks that change almost every frame.",
    paper: &KIM,
    paper_figures: "beyond Figures 10 to 14, with more recovery policies, loss rates and round-trip times",
    expected_seconds: 15.0,
    run,
    real_run: None,
};

/// Compared recovery policies, the default first.
const POLICIES: [(Recovery, &str, SeriesStyle); 4] = [
    (Recovery::Adaptive, "adaptive (default)", SeriesStyle::First),
    (Recovery::Redundant, "redundant", SeriesStyle::Second),
    (Recovery::History, "history", SeriesStyle::Fourth),
    (Recovery::Classic, "classic", SeriesStyle::Paper),
];
/// Input patterns: name, probability of a change per frame, and bit mask of the changing bits.
const INPUTS: [(&str, f64, InputWord); 2] = [("pad", 1.0 / 8.0, 0xffff), ("sticks", 0.9, (1 << 80) - 1)];
/// Input delay in frames: 1 s, so that every input is recovered in time, no site stalls, and all policies run under the
/// same conditions.
const INPUT_DELAY: u32 = 60;
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct PolicyPoint {
    input: usize,
    policy: usize,
    rtt_ms: f64,
    loss: f64,
    /// Delay of inputs beyond the one-way delay, mean over all inputs.
    late_mean_ms: f64,
    /// Delay beyond the one-way delay, mean over the inputs that count as lost by [`LATE_THRESHOLD_MS`].
    late_if_lost_ms: f64,
    /// Delay beyond the one-way delay, 99.9th percentile over all inputs.
    late_p999_ms: f64,
    bytes_per_frame: f64,
    packets_per_frame: f64,
}

/// Sampling times of inputs, and the delays until the other site knew them.
struct InputDelays {
    /// Frame and sampling time of each input, by the site that sampled it.
    sampled: [Vec<(u32, Instant)>; 2],
    /// Number of each site's inputs known at the other site.
    known_count: [usize; 2],
    delays_ms: Vec<f64>,
}

impl InputDelays {
    fn on_event(&mut self, event: &SiteEvent<'_>) {
        if let SiteEvent::Sampled { site, at, frame, .. } = *event {
            self.sampled[site].push((frame, at));
        }
    }

    /// Records the delay of every input that has become known since the last call.
    fn update_known(&mut self, network: &SessionNetwork) {
        for from in 0..2 {
            let end = first_unknown_frame(network, 1 - from, from);
            while let Some((_, at)) =
                self.sampled[from].get(self.known_count[from]).filter(|(frame, _)| i64::from(*frame) < end)
            {
                self.delays_ms.push((network.now() - *at).as_millis_f64());
                self.known_count[from] += 1;
            }
        }
    }
}

/// Returns the first frame for which site `at` lacks the input of site `of`.
fn first_unknown_frame(network: &SessionNetwork, at: usize, of: usize) -> i64 {
    let site = &network.nodes[at];
    let other = SiteId::first(2).nth(of).expect("there are two sites");
    let ahead =
        site.session.peer_stats(site.clock.local(network.now()), other).map_or(0, |stats| stats.buffered_frames);
    i64::from(site.session.stats().frame.number()) + ahead
}

/// Frame period in milliseconds, rounded up. An input whose delay exceeds the one-way delay by more than half of this
/// period counts as lost.
const LATE_THRESHOLD_MS: f64 = 17.0;

fn measure(seed: u64, seconds: i64, (input, policy, rtt_ms, loss): (usize, usize, f64, f64)) -> PolicyPoint {
    let (_, change_probability, mask) = INPUTS[input];
    let game = SessionExperiment {
        seed,
        input_delay: INPUT_DELAY,
        recovery: POLICIES[policy].0,
        input_change_probability: change_probability,
        input_mask: mask,
        ..SessionExperiment::new(lossy_link(rtt_ms, loss))
    };
    let mut network = game.build_network();
    let mut delays = InputDelays { sampled: Default::default(), known_count: [0; 2], delays_ms: Vec::new() };
    let warm = Instant::ZERO + TimeDelta::from_secs(5);
    network.run_until(warm, &mut |event| delays.on_event(&event));
    delays.update_known(&network);
    delays.delays_ms.clear();
    let before = traffic(&network);
    while network.now() < warm + TimeDelta::from_secs(seconds) {
        let next = network.now() + POLL_INTERVAL;
        network.run_until(next, &mut |event| delays.on_event(&event));
        delays.update_known(&network);
    }
    let [frames, packets, bytes] = std::array::from_fn(|at| traffic(&network)[at] - before[at]);
    let late: Vec<f64> = delays.delays_ms.iter().map(|delay| (delay - rtt_ms / 2.0).max(0.0)).collect();
    let lost: Vec<f64> = late.iter().copied().filter(|late| *late > LATE_THRESHOLD_MS / 2.0).collect();
    PolicyPoint {
        input,
        policy,
        rtt_ms,
        loss,
        late_mean_ms: mean(&late),
        late_if_lost_ms: mean(&lost),
        late_p999_ms: quantile(&late, 0.999),
        bytes_per_frame: bytes / frames,
        packets_per_frame: packets / frames,
    }
}

/// Returns the frames, packets and bytes that both sites together have stepped and sent so far.
fn traffic(network: &SessionNetwork) -> [f64; 3] {
    let of = |number: usize| {
        let site = &network.nodes[number];
        let other = SiteId::first(2).nth(1 - number).expect("there are two sites");
        let peer = site.session.peer_stats(site.clock.local(network.now()), other).unwrap_or_default();
        [f64::from(site.session.stats().frame.number()), peer.packets_out as f64, peer.bytes_out as f64]
    };
    let (one, other) = (of(0), of(1));
    std::array::from_fn(|at| one[at] + other[at])
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seed = context.seed;
    let round_trips: &[f64] = context.full_or_short(&[20.0, 50.0, 100.0, 150.0, 200.0, 300.0], &[100.0, 200.0]);
    let losses: &[f64] = context.full_or_short(&[0.0, 0.01, 0.02, 0.05, 0.1, 0.2], &[0.0, 0.05]);
    let seconds = context.full_or_short(60, 20);
    let jobs: Vec<(usize, usize, f64, f64)> = (0..INPUTS.len())
        .flat_map(|input| (0..POLICIES.len()).map(move |policy| (input, policy)))
        .flat_map(|(input, policy)| {
            round_trips.iter().flat_map(move |rtt| losses.iter().map(move |loss| (input, policy, *rtt, *loss)))
        })
        .collect();
    let points = context.run_jobs(1.0, &jobs, |job| measure(seed, seconds, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter(
        "input delay",
        "60 frames, so that no site stalls and all policies run under the same conditions",
    );
    findings.add_parameter("link", "constant delay, independent loss");
    findings.add_parameter("pad", "2 bytes, changing every 8 frames on average");
    findings.add_parameter("sticks", "10 bytes, changing in 9 frames of 10");
    findings.add_parameter("time", format!("{seconds} s per run"));
    findings.add_note(
        "The extra delay of an input is the time from its sampling until the other site knows it, minus the one-way delay.",
    );
    findings.tables.push(table(&points));
    findings.figures.push(loss_figure(&points));
    findings.figures.push(rtt_figure(&points));
    claims(&mut findings, &points);
    findings
}

fn table(points: &[PolicyPoint]) -> DataTable {
    let columns = [
        "inputs",
        "policy",
        "rtt_ms",
        "loss_percent",
        "extra_delay_mean_ms",
        "extra_delay_if_lost_ms",
        "extra_delay_p999_ms",
        "bytes_per_frame",
        "packets_per_frame",
    ];
    let mut table = DataTable::new(
        "policies",
        "Extra delay of inputs, and traffic, by inputs, policy, round-trip time and loss",
        &columns,
    );
    for point in points {
        table.add_row([
            INPUTS[point.input].0.into(),
            POLICIES[point.policy].1.into(),
            number(point.rtt_ms, 0),
            number(point.loss * 100.0, 0),
            number(point.late_mean_ms, 2),
            number(point.late_if_lost_ms, 1),
            number(point.late_p999_ms, 1),
            number(point.bytes_per_frame, 2),
            number(point.packets_per_frame, 4),
        ]);
    }
    table
}

/// Function from a point to its x value; `None` if the point is not plotted.
type XValue<'a> = &'a dyn Fn(&PolicyPoint) -> Option<f64>;

fn panels(points: &[PolicyPoint], x: &PlotAxis, shown: XValue<'_>) -> Vec<Panel> {
    let panel = |input: usize, title: &str, y: &str, part: fn(&PolicyPoint) -> f64| {
        let title = format!("{}: {title}", INPUTS[input].0);
        POLICIES.iter().enumerate().fold(
            Panel::new(&title, x.clone(), PlotAxis::new(y).with_min(0.0)),
            |panel, (policy, (_, name, style))| {
                let line = points.iter().filter(|point| point.input == input && point.policy == policy);
                panel.line(name, *style, line.filter_map(|point| shown(point).map(|x| (x, part(point)))))
            },
        )
    };
    (0..INPUTS.len())
        .flat_map(|input| {
            [
                panel(input, "extra delay, 99.9th percentile", "ms beyond the one-way delay", |point| {
                    point.late_p999_ms
                }),
                panel(input, "payload", "bytes per frame and link", |point| point.bytes_per_frame),
            ]
        })
        .collect()
}

fn loss_figure(points: &[PolicyPoint]) -> Figure {
    let shown = |point: &PolicyPoint| (point.rtt_ms == 100.0).then_some(point.loss * 100.0);
    let panels = panels(points, &PlotAxis::new("packet loss, %").with_min(0.0), &shown);
    let caption = "Extra delay of inputs (99.9th percentile) and payload at RTT 100 ms. A single lost packet delays inputs by one or two frames with the policies that repeat inputs (adaptive, redundant), and by a round trip or more with those that request them (history, classic). \
                   With pads, all policies send similarly few bytes. With sticks, which change almost every frame, it is expensive to repeat every input, and the adaptive policy stays within its byte budget.";
    Figure::new("policies-loss", "Extra delay and payload of each recovery policy over packet loss", caption, panels)
        .columns(2)
}

fn rtt_figure(points: &[PolicyPoint]) -> Figure {
    let shown = |point: &PolicyPoint| (point.loss == 0.05).then_some(point.rtt_ms);
    let panels = panels(points, &PlotAxis::new("round-trip time, ms").with_min(0.0), &shown);
    let caption = "Extra delay of inputs (99.9th percentile) and payload at 5 % loss. The longer the round trip, the more time it takes to request a lost input (history, classic), and the more unacknowledged inputs a packet repeats (adaptive, redundant).";
    Figure::new(
        "policies-rtt",
        "Extra delay and payload of each recovery policy over the round-trip time",
        caption,
        panels,
    )
    .columns(2)
}

fn claims(findings: &mut Findings, points: &[PolicyPoint]) {
    let counterpart = |point: &PolicyPoint, policy: usize| {
        points.iter().find(|other| {
            other.policy == policy
                && other.input == point.input
                && other.rtt_ms == point.rtt_ms
                && other.loss == point.loss
        })
    };
    let default = || points.iter().filter(|point| point.policy == 0);
    let pads = || default().filter(|point| point.input == 0);
    let later = max_or_zero(
        pads().filter_map(|point| counterpart(point, 1).map(|best| point.late_p999_ms - best.late_p999_ms)),
    );
    findings.add_claim(
        "for pads the 99.9th percentile of the extra delay is less than 1 ms longer with the default than with the redundant policy",
        "not compared",
        format!("at most {later:.1} ms longer"),
        later < 1.0,
    );
    let speedups = pads().filter(|point| point.loss >= 0.05 && point.rtt_ms >= 100.0);
    let speedups: Vec<f64> = speedups
        .filter_map(|point| counterpart(point, 2).map(|history| history.late_p999_ms / point.late_p999_ms.max(1.0)))
        .collect();
    let min_speedup = crate::numbers::min_or_infinity(speedups.iter().copied());
    findings.add_claim(
        "for pads at RTT 100 ms or more and 5 % loss or more, the 99.9th percentile of the extra delay with the default is less than half of that with history",
        "history: about three one-way delays and two intervals",
        format!("with history at least {min_speedup:.1} times as long as with the default"),
        min_speedup > 2.0,
    );
    let extra_bytes = max_or_zero(
        pads().filter_map(|point| counterpart(point, 2).map(|history| point.bytes_per_frame - history.bytes_per_frame)),
    );
    findings.add_claim(
        "for pads the default costs less than 8 bytes per frame more than history",
        "history: several bytes per request",
        format!("at most {extra_bytes:.1} bytes per frame more than history"),
        extra_bytes < 8.0,
    );
    let sticks = max_or_zero(default().filter(|point| point.input == 1).map(|point| point.bytes_per_frame));
    let redundant = max_or_zero(
        points.iter().filter(|point| point.input == 1 && point.policy == 1).map(|point| point.bytes_per_frame),
    );
    findings.add_claim(
        "with sticks the default sends less than 150 bytes per frame and link in every run, and its maximum is less than that of the redundant policy divided by 1.3",
        "not compared",
        format!("at most {sticks:.0} bytes per frame and link; the redundant policy sends up to {redundant:.0}"),
        sticks < 150.0 && sticks < redundant / 1.3,
    );
    let classic = max_or_zero(
        points.iter().filter(|point| point.policy == 3 && point.loss == 0.05).map(|point| point.packets_per_frame),
    );
    let others = max_or_zero(
        points.iter().filter(|point| point.policy != 3 && point.loss <= 0.1).map(|point| point.packets_per_frame),
    );
    findings.add_claim(
        "at 5 % loss, the classic policy sends more than 1.02 packets per frame and link in its worst run; up to 10 % loss, every other policy sends less than 1.005 in every run",
        "classic: increase in packet numbers",
        format!("classic up to {classic:.3} packets per frame and link at 5 % loss; the others at most {others:.3}, up to 10 % loss"),
        others < 1.005 && classic > 1.02,
    );
}
