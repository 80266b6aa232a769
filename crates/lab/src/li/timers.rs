//! Figure 4: differences between motion timers over time, with the paper's method and with synchronised clocks.

use coplay::motion::MotionConfig;
use coplay::time::TimeDelta;

use super::motion_walk::{JITTER_SHARE, LINKS, MOTION_PATHS, MotionWalk, OBSERVER_PAIRS, TimerSample, WalkTrace};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::LI;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// Catalog entry of the `timers` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "timers",
    title: "Motion timers after a command",
    summary: "Each command causes a pulse of the timer differences: the player is ahead of the server, and the server is ahead of an observing player. The player slows down and the observer speeds up, so their timers converge with the server's without a jump. With synchronised clocks the timers converge sooner.",
    paper: &LI,
    paper_figures: "Figure 4",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 3] = [SeriesStyle::First, SeriesStyle::Second, SeriesStyle::Third];
/// Compared methods: the paper's, and ours with synchronised clocks, by their names in the table.
const METHODS: [&str; 2] = ["paper", "synchronised clocks"];
/// Difference up to which we consider two timers converged. The paper states no value.
const CONVERGED_MS: f64 = 5.0;
/// Index in [`LINKS`] of the link with the longest round-trip time, on which the paper focuses.
const OVERSEAS_LINK: usize = 2;
const RTT_MS: f64 = 160.0;

/// Link, path and method indices, and whether the delay has jitter.
type TimerCase = (usize, usize, usize, bool);

/// Results of all walks of a case.
struct TimerOutcome {
    case: TimerCase,
    timer_discrepancies: [f64; 3],
    position_discrepancies: [f64; 3],
    /// Largest timer difference of each pair, over all walks.
    max_difference_ms: [f64; 3],
    /// 90th percentile of the time from a command until the timers of each pair stay within [`CONVERGED_MS`] up to the
    /// next command.
    convergence_s: [f64; 3],
    min_timer_speed: f64,
    max_timer_speed: f64,
    /// Discrepancy that B's client reports, and the actual one, for the last averaging window of each walk, summed over
    /// all walks, in unit-seconds.
    reported_and_actual: (f64, f64),
    /// Samples of the first walk, for the plot.
    samples: Vec<TimerSample>,
}

fn method_config(method: usize) -> MotionConfig {
    [MotionConfig::paper(1), MotionConfig::clocks(1)][method]
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let walks = context.full_or_short(30, 8);
    let seed = context.seed;
    let mut cases: Vec<TimerCase> = Vec::new();
    for path in 0..MOTION_PATHS.len() {
        for link in 0..LINKS.len() {
            cases.extend(
                [0, 1].into_iter().flat_map(|method| [(link, path, method, false), (link, path, method, true)]),
            );
        }
    }
    let outcomes = context.run_jobs(0.95, &cases, |(link, path, method, has_jitter)| {
        let jitter = if *has_jitter { JITTER_SHARE } else { 0.0 };
        let walk = |number: u64| {
            let seed = seed.wrapping_mul(1_000).wrapping_add(number);
            MotionWalk { seed, link: *link, motion_path: *path, config: method_config(*method), jitter }.run()
        };
        TimerOutcome::from_walks(
            (*link, *path, *method, *has_jitter),
            &(0..walks).map(walk).collect::<Vec<WalkTrace>>(),
        )
    });
    let unbuffered = context.run_jobs(0.05, &[0, 1], |method| {
        let config = MotionConfig { combine_interval: TimeDelta::ZERO, ..method_config(*method) };
        MotionWalk { seed, link: OVERSEAS_LINK, motion_path: 1, config, jitter: 0.0 }.run().timer_discrepancies()
    });
    let mut findings = Findings::default();
    findings.add_parameter("links", "RTT 0.64, 10 and 160 ms between the server and each of A and B");
    findings.add_parameter("jitter", "none; and exponential, mean 5 % of the delay, with reordering");
    findings.add_parameter(
        "paths",
        "linear: one command; zig-zag: one every 2.2 s; circular: one every 0.5 s; speed 1 unit per second",
    );
    findings.add_parameter(
        "clocks",
        "offset by up to 1,000 s, up to 50 ppm fast or slow; frames of 1/60 s, not aligned between the sites",
    );
    findings.add_parameter("walks", format!("{walks} of 6.6 s per case, after 5 s of warm-up"));
    add_notes(&mut findings);
    findings.tables.push(table(&outcomes));
    findings.figures.push(all_cases_figure(&outcomes));
    findings.figures.push(methods_figure(&outcomes));
    paper_claims(&mut findings, &outcomes);
    our_claims(&mut findings, &outcomes);
    unbuffered_claim(&mut findings, &unbuffered);
    findings
}

fn add_notes(findings: &mut Findings) {
    findings.add_note("The paper does not state when A begins to move, nor the initial Td, the estimated lead of a timer over the server's. Here A moves immediately and sends the command 50 ms later; its Td is RT_accum plus those 50 ms, so that the timers converge. Td of B is −RT_accum plus the server's reported time on the segment. Equation (6) is applied to B with the opposite sign, since B is behind the server.");
    findings.add_note("A segment is the motion from one command to the next. Timers are compared on the newest segment that any observer has begun. The timer of an observer that has not begun that segment counts as 0. The discrepancy of timers is the time integral of their absolute difference, in millisecond-seconds per command. The discrepancy of positions is the time integral of the distance between the two observers' positions of the object, in milliunit-seconds per command.");
    findings.add_note("The method with synchronised clocks differs from the paper's in three points. A slows down as soon as it moves, not only after it has sent the command. B catches up at 2 times real time, not at 1.5. Both compute the server's timer from synchronised clocks. The paper's method estimates the delay as half a round trip, so an error of half the difference between the delays of the two directions remains until the next command.");
}

impl TimerOutcome {
    fn from_walks(case: TimerCase, walks: &[WalkTrace]) -> Self {
        let mean = |of: fn(&WalkTrace) -> [f64; 3]| {
            let mut sum = [0.0; 3];
            walks.iter().for_each(|trace| sum.iter_mut().zip(of(trace)).for_each(|(sum, value)| *sum += value));
            sum.map(|sum| sum / walks.len().max(1) as f64)
        };
        let most = |pair: usize| {
            walks.iter().flat_map(|trace| &trace.samples).map(|sample| sample.timers_ms[pair]).fold(0.0, f64::max)
        };
        Self {
            case,
            timer_discrepancies: mean(WalkTrace::timer_discrepancies),
            position_discrepancies: mean(WalkTrace::position_discrepancies),
            max_difference_ms: [0, 1, 2].map(most),
            convergence_s: [0, 1, 2].map(|pair| convergence_time(walks, pair)),
            min_timer_speed: walks.iter().map(|trace| trace.min_timer_speed).fold(1.0, f64::min),
            max_timer_speed: walks.iter().map(|trace| trace.max_timer_speed).fold(1.0, f64::max),
            reported_and_actual: walks
                .iter()
                .fold((0.0, 0.0), |sum, trace| (sum.0 + trace.reported_discrepancy, sum.1 + trace.actual_discrepancy)),
            samples: walks.first().map(|trace| trace.samples.clone()).unwrap_or_default(),
        }
    }
}

/// Returns the 90th percentile, over all commands, of the time from a command until the timers of a pair stay within
/// [`CONVERGED_MS`] up to the next command.
fn convergence_time(walks: &[WalkTrace], pair: usize) -> f64 {
    let mut times = Vec::new();
    for trace in walks {
        let mut last: f64 = 0.0;
        for (at, sample) in trace.samples.iter().enumerate() {
            if sample.timers_ms[pair] > CONVERGED_MS {
                last = sample.since_command_s;
            }
            let is_end = trace.samples.get(at + 1).is_none_or(|next| next.since_command_s < sample.since_command_s);
            if is_end {
                times.push(std::mem::take(&mut last));
            }
        }
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 9 / 10).or(times.last()).copied().unwrap_or(f64::NAN)
}

fn table(outcomes: &[TimerOutcome]) -> DataTable {
    let columns = [
        "path",
        "rtt_ms",
        "jitter_percent",
        "method",
        "pair",
        "timer_discrepancy_ms_s",
        "position_discrepancy_milliunit_s",
        "max_timer_difference_ms",
        "convergence_p90_s",
    ];
    let mut table = DataTable::new(
        "timers",
        "Discrepancy per command, largest timer difference, and time to converge, by pair of observers",
        &columns,
    );
    for outcome in outcomes {
        let (link, path, method, has_jitter) = outcome.case;
        for (pair, name) in OBSERVER_PAIRS.iter().enumerate() {
            table.add_row([
                MOTION_PATHS[path].0.into(),
                number(LINKS[link].1 as f64 / 1e3, 2),
                number(if has_jitter { JITTER_SHARE * 100.0 } else { 0.0 }, 0),
                METHODS[method].into(),
                (*name).into(),
                number(outcome.timer_discrepancies[pair], 3),
                number(outcome.position_discrepancies[pair], 3),
                number(outcome.max_difference_ms[pair], 1),
                number(outcome.convergence_s[pair], 3),
            ]);
        }
    }
    table
}

fn outcome_of(outcomes: &[TimerOutcome], case: TimerCase) -> &TimerOutcome {
    outcomes.iter().find(|outcome| outcome.case == case).expect("every case was run")
}

fn all_cases_figure(outcomes: &[TimerOutcome]) -> Figure {
    let mut panels = Vec::new();
    for (path, (path_name, _)) in MOTION_PATHS.iter().enumerate() {
        for (link, (_, rtt_us)) in LINKS.iter().enumerate() {
            let outcome = outcome_of(outcomes, (link, path, 0, true));
            let title = format!("{path_name}, RTT {} ms", *rtt_us as f64 / 1e3);
            let x = PlotAxis::new("time, s").with_min(0.0).with_max(if path == 0 { 1.0 } else { 5.0 });
            let panel = Panel::new(&title, x, PlotAxis::new("timer difference, ms").with_min(0.0));
            let points = |pair: usize| {
                let every = if path == 0 { 2 } else { 8 };
                outcome.samples.iter().step_by(every).map(move |sample| (sample.at_s, sample.timers_ms[pair]))
            };
            let within = |(at, _): &(f64, f64)| *at <= if path == 0 { 1.0 } else { 5.0 };
            panels.push((0..3).fold(panel, |panel, pair| {
                panel.line(OBSERVER_PAIRS[pair], STYLES[pair], points(pair).filter(within))
            }));
        }
    }
    let caption = "Absolute differences between the motion timers of each pair, with the paper's method and jitter, one walk per panel. A is the moving player, B an observing player. Every command causes a pulse. Between pulses a small difference remains, because the delay is estimated from round trips.";
    Figure::new("timers", "Differences between motion timers over time (L, Figure 4)", caption, panels).columns(3)
}

fn methods_figure(outcomes: &[TimerOutcome]) -> Figure {
    let panels = OBSERVER_PAIRS.iter().enumerate().map(|(pair, name)| {
        let x = PlotAxis::new("time after the command, s").with_min(0.0).with_max(0.6);
        let panel = Panel::new(name, x, PlotAxis::new("timer difference, ms").with_min(0.0).with_max(RTT_MS));
        let line = |method: usize| {
            let samples = &outcome_of(outcomes, (OVERSEAS_LINK, 0, method, true)).samples;
            samples.iter().filter(|sample| sample.at_s <= 0.6).map(move |sample| (sample.at_s, sample.timers_ms[pair]))
        };
        panel
            .line("paper's method", SeriesStyle::Paper, line(0))
            .line("synchronised clocks", SeriesStyle::First, line(1))
            .vertical_bound(0.45, "0.45 s")
    });
    let caption = "Timer differences after one command on the linear path, at RTT 160 ms with jitter. Dotted: the 0.45 s after which the paper reports convergence of A and the server.";
    Figure::new(
        "timers-beside",
        "Timer differences with the paper's method and with synchronised clocks",
        caption,
        panels.collect(),
    )
    .columns(3)
}

fn paper_claims(findings: &mut Findings, outcomes: &[TimerOutcome]) {
    let overseas = || (0..MOTION_PATHS.len()).map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, false)));
    let list = |of: &dyn Fn(&TimerOutcome) -> f64, decimals: usize| {
        overseas().map(|outcome| format!("{:.decimals$}", of(outcome))).collect::<Vec<_>>().join(", ")
    };
    findings.add_claim(
        "at RTT 160 ms without jitter, with the paper's method, the largest difference between A and the server is 0.4 to 0.65 round trips on every path",
        "about half of the round trip",
        format!("{} ms on the linear, zig-zag and circular path", list(&|outcome| outcome.max_difference_ms[0], 0)),
        overseas().all(|outcome| (0.4..0.65).contains(&(outcome.max_difference_ms[0] / RTT_MS))),
    );
    findings.add_claim(
        "at RTT 160 ms without jitter, with the paper's method, A and the server converge to 5 ms within 0.45 s of a command, in 90 % of the cases on every path",
        "about 0.45 s",
        format!("after {} s on the linear, zig-zag and circular path", list(&|outcome| outcome.convergence_s[0], 2)),
        overseas().all(|outcome| outcome.convergence_s[0] < 0.45),
    );
    findings.add_claim(
        "at RTT 160 ms with jitter and the paper's method, the timers of A and B differ by less than 1.1 round trips",
        "about a single round trip",
        format!(
            "at most {} ms on the three paths without jitter, {:.0} ms with jitter",
            list(&|outcome| outcome.max_difference_ms[2], 0),
            {
                let varying = (0..MOTION_PATHS.len())
                    .map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, true)).max_difference_ms[2]);
                varying.fold(0.0, f64::max)
            }
        ),
        (0..MOTION_PATHS.len())
            .all(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, true)).max_difference_ms[2] < RTT_MS * 1.1),
    );
}

fn our_claims(findings: &mut Findings, outcomes: &[TimerOutcome]) {
    let pairs = || {
        outcomes.iter().filter(|outcome| outcome.case.2 == 0).map(|paper| {
            let (link, path, _, has_jitter) = paper.case;
            (paper, outcome_of(outcomes, (link, path, 1, has_jitter)))
        })
    };
    // Samples are a millisecond apart, so smaller values cannot be distinguished from zero.
    const RESOLUTION: f64 = 0.002;
    let worst = |of: fn(&TimerOutcome) -> [f64; 3]| {
        let ratios = pairs().flat_map(move |(paper, ours)| {
            [0, 1, 2].map(|pair| (of(ours)[pair] - RESOLUTION).max(0.0) / of(paper)[pair].max(RESOLUTION))
        });
        ratios.fold(0.0, f64::max)
    };
    findings.add_claim(
        "with synchronised clocks no pair has a greater discrepancy than with the paper's method, for any of the three links and paths, with or without jitter",
        "only the paper's method is tested",
        format!(
            "at most {:.2} of the discrepancy with the paper's method for timers, {:.2} for positions",
            worst(|outcome| outcome.timer_discrepancies),
            worst(|outcome| outcome.position_discrepancies)
        ),
        worst(|outcome| outcome.timer_discrepancies) <= 1.0 && worst(|outcome| outcome.position_discrepancies) <= 1.0,
    );
    for has_jitter in [false, true] {
        let (mut paper_sum, mut ours_sum, mut worst) = ([0.0; 3], [0.0; 3], 0.0f64);
        for (paper, ours) in pairs().filter(|(paper, _)| paper.case.0 == OVERSEAS_LINK && paper.case.3 == has_jitter) {
            for pair in 0..3 {
                paper_sum[pair] += paper.timer_discrepancies[pair] / MOTION_PATHS.len() as f64;
                ours_sum[pair] += ours.timer_discrepancies[pair] / MOTION_PATHS.len() as f64;
                worst = worst.max(ours.timer_discrepancies[pair] / paper.timer_discrepancies[pair]);
            }
        }
        let three = |sums: [f64; 3]| sums.map(|sum| format!("{sum:.1}")).join(", ");
        findings.add_claim(
            &format!(
                "at RTT 160 ms {} jitter, the timer discrepancy of every pair with synchronised clocks is below 80 % of that with the paper's method, on every path",
                if has_jitter { "with" } else { "without" }
            ),
            &format!("the paper's method, simulated: {} ms·s per command for the three pairs", three(paper_sum)),
            format!("{} ms·s per command for the three pairs; at most {worst:.2} of that with the paper's method", three(ours_sum)),
            worst < 0.8,
        );
    }
    let convergence_s = |method: usize| {
        (0..MOTION_PATHS.len())
            .map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, method, true)).convergence_s[2])
            .fold(0.0, f64::max)
    };
    findings.add_claim(
        "at RTT 160 ms with jitter, A and B converge to 5 ms within 0.45 s of a command with synchronised clocks, in 90 % of the cases on every path, sooner than with the paper's method",
        "small differences remain",
        format!(
            "after {:.2} s in 90 % of the cases; with the paper's method after {:.2} s, limited by the next command",
            convergence_s(1),
            convergence_s(0)
        ),
        convergence_s(1) < 0.45 && convergence_s(1) < convergence_s(0),
    );
    let ours = || outcomes.iter().filter(|outcome| outcome.case.2 == 1);
    let (slowest, fastest) = ours().fold((1.0f64, 1.0f64), |(slowest, fastest), outcome| {
        (slowest.min(outcome.min_timer_speed), fastest.max(outcome.max_timer_speed))
    });
    findings.add_claim(
        "with synchronised clocks, no timer runs backwards, slower than 0.49 times or faster than 2.01 times real time",
        "0.5 and 1.5 times real time",
        format!("between {slowest:.2} and {fastest:.2} times real time"),
        slowest > 0.49 && fastest < 2.01,
    );
    let reported_and_actual = outcome_of(outcomes, (OVERSEAS_LINK, 2, 1, true)).reported_and_actual;
    findings.add_claim(
        "with synchronised clocks, on circular walks at RTT 160 ms with jitter, the discrepancy that a client reports is within 10 % of the actual one",
        "no measurement described",
        format!(
            "{:.3} reported and {:.3} actual, in unit-seconds, summed over all walks",
            reported_and_actual.0, reported_and_actual.1
        ),
        (reported_and_actual.0 - reported_and_actual.1).abs() < reported_and_actual.1 * 0.1,
    );
}

/// Adds the claim about walks without jitter in which A sends each command at once. There A slows down from the command
/// on with both methods.
fn unbuffered_claim(findings: &mut Findings, unbuffered: &[[f64; 3]]) {
    let (paper, ours) = (unbuffered[0], unbuffered[1]);
    let three = |values: [f64; 3]| values.map(|value| format!("{value:.1}")).join(", ");
    findings.add_claim(
        "at RTT 160 ms without jitter and without combining commands, synchronised clocks give A and the server less than 1.02 times the discrepancy with the paper's method, the other pairs less than 0.8 times",
        &format!("the paper's method, simulated: {} ms·s per command for the three pairs", three(paper)),
        format!("{} ms·s per command for the three pairs", three(ours)),
        ours[0] < paper[0] * 1.02 && ours[1] < paper[1] * 0.8 && ours[2] < paper[2] * 0.8,
    );
}
