//! Every recovery policy over loss and round trip: how long a lost input takes, and what that costs. From this the default is justified.

use coplay::id::SiteId;
use coplay::input::{InputWord, Recovery};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::session_experiment::SessionExperiment as Game;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};

use crate::bench::ExperimentContext;
use crate::catalog::KIM;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{lossy_link, max_or_zero, mean, quantile};
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "policies",
    title: "Every recovery policy",
    summary: "How much later than without loss inputs are known, and how many bytes and packets that costs: repeating everything, asking by history, asking classically, and the default, which repeats while that is cheap. For a pad, and for sticks that never rest.",
    paper: &KIM,
    paper_figures: "beyond Figures 10 to 14: every policy, loss and round trip",
    expected_seconds: 15.0,
    run,
    real_run: None,
};

/// The policies, with the default first.
const POLICIES: [(Recovery, &str, SeriesStyle); 4] = [
    (Recovery::Adaptive, "adaptive (default)", SeriesStyle::First),
    (Recovery::Redundant, "redundant", SeriesStyle::Second),
    (Recovery::History, "history", SeriesStyle::Fourth),
    (Recovery::Classic, "classic", SeriesStyle::Paper),
];
/// What is pressed: name, chance of a change in a frame, bits.
const INPUTS: [(&str, f64, InputWord); 2] = [("pad", 1.0 / 8.0, 0xffff), ("sticks", 0.9, (1 << 80) - 1)];
/// Long enough for everything to come back in time, so that nobody waits and all are compared alike: a second.
const INPUT_DELAY: u32 = 60;
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct PolicyPoint {
    input: usize,
    policy: usize,
    rtt_ms: f64,
    loss: f64,
    /// How much later than after the way inputs were known: the mean of all, the mean of those that were late, and the most but for one in a thousand.
    late_mean_ms: f64,
    late_if_lost_ms: f64,
    late_p999_ms: f64,
    bytes_per_frame: f64,
    packets_per_frame: f64,
}

/// When inputs were given, and when they were known elsewhere.
struct InputDelays {
    /// By site that gave them, from a frame on.
    sampled: [Vec<(u32, Instant)>; 2],
    /// How many of them are known at the other site.
    known_count: [usize; 2],
    delays_ms: Vec<f64>,
}

impl InputDelays {
    fn on_event(&mut self, happened: &SiteEvent<'_>) {
        if let SiteEvent::Sampled { site, at, frame, .. } = *happened {
            self.sampled[site].push((frame, at));
        }
    }

    /// Looks at what is known by now.
    fn update_known(&mut self, world: &SessionNetwork) {
        for from in 0..2 {
            let end = first_unknown_frame(world, 1 - from, from);
            while let Some((_, at)) =
                self.sampled[from].get(self.known_count[from]).filter(|(frame, _)| i64::from(*frame) < end)
            {
                self.delays_ms.push((world.now() - *at).as_millis_f64());
                self.known_count[from] += 1;
            }
        }
    }
}

/// The first frame for which a site does not know another's input.
fn first_unknown_frame(world: &SessionNetwork, at: usize, of: usize) -> i64 {
    let site = &world.sites[at];
    let other = SiteId::first(2).nth(of).expect("there are two sites");
    let ahead = site.session.peer_stats(site.clock.local(world.now()), other).map_or(0, |stats| stats.buffered_frames);
    i64::from(site.session.stats().frame.number()) + ahead
}

/// Later than this is not the way alone: a frame.
const LATE_THRESHOLD_MS: f64 = 17.0;

fn measure(seed: u64, seconds: i64, (input, policy, rtt_ms, loss): (usize, usize, f64, f64)) -> PolicyPoint {
    let (_, restlessness, mask) = INPUTS[input];
    let game = Game {
        seed,
        input_delay: INPUT_DELAY,
        recovery: POLICIES[policy].0,
        input_change_probability: restlessness,
        input_mask: mask,
        ..Game::new(lossy_link(rtt_ms, loss))
    };
    let mut world = game.build_network();
    let mut delays = InputDelays { sampled: Default::default(), known_count: [0; 2], delays_ms: Vec::new() };
    let warm = Instant::ZERO + TimeDelta::from_secs(5);
    world.run_until(warm, &mut |happened| delays.on_event(&happened));
    delays.update_known(&world);
    delays.delays_ms.clear();
    let before = traffic(&world);
    while world.now() < warm + TimeDelta::from_secs(seconds) {
        let next = world.now() + POLL_INTERVAL;
        world.run_until(next, &mut |happened| delays.on_event(&happened));
        delays.update_known(&world);
    }
    let [frames, packets, bytes] = std::array::from_fn(|at| traffic(&world)[at] - before[at]);
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

/// Frames, packets and bytes of both sites.
fn traffic(world: &SessionNetwork) -> [f64; 3] {
    let of = |number: usize| {
        let site = &world.sites[number];
        let other = SiteId::first(2).nth(1 - number).expect("there are two sites");
        let peer = site.session.peer_stats(site.clock.local(world.now()), other).unwrap_or_default();
        [f64::from(site.session.stats().frame.number()), peer.packets_out as f64, peer.bytes_out as f64]
    };
    let (one, other) = (of(0), of(1));
    std::array::from_fn(|at| one[at] + other[at])
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let seed = bench.seed;
    let round_trips: &[f64] = bench.full_or_short(&[20.0, 50.0, 100.0, 150.0, 200.0, 300.0], &[100.0, 200.0]);
    let losses: &[f64] = bench.full_or_short(&[0.0, 0.01, 0.02, 0.05, 0.1, 0.2], &[0.0, 0.05]);
    let seconds = bench.full_or_short(60, 20);
    let jobs: Vec<(usize, usize, f64, f64)> = (0..INPUTS.len())
        .flat_map(|input| (0..POLICIES.len()).map(move |policy| (input, policy)))
        .flat_map(|(input, policy)| {
            round_trips.iter().flat_map(move |rtt| losses.iter().map(move |loss| (input, policy, *rtt, *loss)))
        })
        .collect();
    let points = bench.run_jobs(1.0, &jobs, |job| measure(seed, seconds, *job));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("lag", "60 frames, so that nobody ever waits and all policies are compared alike");
    findings.add_parameter("link", "constant delay, independent loss");
    findings.add_parameter("pad", "2 bytes, changing every 8 frames on average");
    findings.add_parameter("sticks", "10 bytes, changing in 9 frames of 10");
    findings.add_parameter("time", format!("{seconds} s a run"));
    findings.add_note("Late is what comes on top of the way: the time from the moment when an input is taken until the other site knows it, less the one-way delay.");
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
        "late_mean_ms",
        "late_if_lost_ms",
        "late_999_in_1000_ms",
        "bytes_per_frame",
        "packets_per_frame",
    ];
    let mut table = DataTable::new("policies", "What each policy gives and costs", &columns);
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

/// Which of all points are shown, and as what.
type XValue<'a> = &'a dyn Fn(&PolicyPoint) -> Option<f64>;

fn panels(points: &[PolicyPoint], x: &PlotAxis, shown: XValue<'_>) -> Vec<Panel> {
    let panel = |input: usize, title: &str, y: &str, part: fn(&PolicyPoint) -> f64| {
        let title = format!("{}: {title}", INPUTS[input].0);
        POLICIES.iter().enumerate().fold(
            Panel::new(&title, x.clone(), PlotAxis::new(y).with_min(0.0)),
            |panel, (policy, (_, name, ink))| {
                let line = points.iter().filter(|point| point.input == input && point.policy == policy);
                panel.line(name, *ink, line.filter_map(|point| shown(point).map(|x| (x, part(point)))))
            },
        )
    };
    (0..INPUTS.len())
        .flat_map(|input| {
            [
                panel(input, "late, but for one in 1,000", "ms after the way", |point| point.late_p999_ms),
                panel(input, "payload", "bytes per frame and link", |point| point.bytes_per_frame),
            ]
        })
        .collect()
}

fn loss_figure(points: &[PolicyPoint]) -> Figure {
    let shown = |point: &PolicyPoint| (point.rtt_ms == 100.0).then_some(point.loss * 100.0);
    let panels = panels(points, &PlotAxis::new("packets lost, %").with_min(0.0), &shown);
    let caption = "At a round trip of 100 ms. Repeating makes a loss cost a frame or two, asking costs a round trip and more; for a pad both cost the same few bytes. \
                   For sticks that never rest, repeating everything is dear and the default keeps to its budget.";
    Figure::new("policies-loss", "Every policy over loss", caption, panels).columns(2)
}

fn rtt_figure(points: &[PolicyPoint]) -> Figure {
    let shown = |point: &PolicyPoint| (point.loss == 0.05).then_some(point.rtt_ms);
    let panels = panels(points, &PlotAxis::new("round-trip time, ms").with_min(0.0), &shown);
    let caption = "At 5 % loss. The longer the way, the more asking costs in time and repeating in bytes.";
    Figure::new("policies-rtt", "Every policy over the round-trip time", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, points: &[PolicyPoint]) {
    let like = |point: &PolicyPoint, policy: usize| {
        points.iter().find(|other| {
            other.policy == policy
                && other.input == point.input
                && other.rtt_ms == point.rtt_ms
                && other.loss == point.loss
        })
    };
    let default = || points.iter().filter(|point| point.policy == 0);
    let pads = || default().filter(|point| point.input == 0);
    let later =
        max_or_zero(pads().filter_map(|point| like(point, 1).map(|best| point.late_p999_ms - best.late_p999_ms)));
    findings.add_claim(
        "for pads the default loses no time to the policy that repeats everything",
        "not compared",
        format!("at most {later:.1} ms later"),
        later < 1.0,
    );
    let quicker = pads().filter(|point| point.loss >= 0.05 && point.rtt_ms >= 100.0);
    let quicker: Vec<f64> = quicker
        .filter_map(|point| like(point, 2).map(|history| history.late_p999_ms / point.late_p999_ms.max(1.0)))
        .collect();
    let least_quicker = crate::numbers::min_or_infinity(quicker.iter().copied());
    findings.add_claim(
        "and is several times quicker than asking, from RTT 100 and 5 % loss on",
        "history: about three one-way delays and two intervals",
        format!("{least_quicker:.1} times or more"),
        least_quicker > 2.0,
    );
    let dearer = max_or_zero(
        pads().filter_map(|point| like(point, 2).map(|history| point.bytes_per_frame - history.bytes_per_frame)),
    );
    findings.add_claim(
        "for which it pays with a few bytes a frame",
        "history: a few bytes a packet",
        format!("at most {dearer:.1} bytes a frame more than history"),
        dearer < 8.0,
    );
    let sticks = max_or_zero(default().filter(|point| point.input == 1).map(|point| point.bytes_per_frame));
    let redundant = max_or_zero(
        points.iter().filter(|point| point.input == 1 && point.policy == 1).map(|point| point.bytes_per_frame),
    );
    findings.add_claim(
        "where repeating would be dear the default keeps to its budget",
        "not compared",
        format!("{sticks:.0} bytes a frame at most, where repeating everything takes {redundant:.0}"),
        sticks < 150.0 && sticks < redundant / 1.3,
    );
    let classic = max_or_zero(
        points.iter().filter(|point| point.policy == 3 && point.loss == 0.05).map(|point| point.packets_per_frame),
    );
    let others = max_or_zero(
        points.iter().filter(|point| point.policy != 3 && point.loss <= 0.1).map(|point| point.packets_per_frame),
    );
    findings.add_claim(
        "no policy but the classic one needs packets of its own",
        "classic: increase in packet numbers",
        format!("{others:.3} packets a frame at most up to 10 % loss, classic {classic:.3} at 5 %"),
        others < 1.005 && classic > 1.02,
    );
}
