//! Figure 4: the difference between motion timers over time, with the paper's method and with clocks.

use coplay::motion::MotionConfig;
use coplay::time::TimeDelta;

use super::motion_walk::{JITTER_SHARE, LINKS, MOTION_PATHS, MotionWalk, OBSERVER_PAIRS, TimerSample, WalkTrace};
use crate::bench::ExperimentContext;
use crate::catalog::LI;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "timers",
    title: "Motion timers after a command",
    summary: "Each command makes a pulse: the player is ahead of the server, and the server of whoever looks on. Slower here and faster there, they come together without a jump; with clocks sooner, and to the end.",
    paper: &LI,
    paper_figures: "Figure 4",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 3] = [SeriesStyle::First, SeriesStyle::Second, SeriesStyle::Third];
/// The two methods that are compared.
const METHODS: [&str; 2] = ["paper", "clocks"];
/// Where the paper sees differences as gone.
const CONVERGED_MS: f64 = 5.0;
/// The longest way, of which the paper speaks.
const OVERSEAS_LINK: usize = 2;
const RTT_MS: f64 = 160.0;

/// Which way, path, method, and whether delays vary.
type TimerCase = (usize, usize, usize, bool);

/// What came of all walks of a case.
struct TimerOutcome {
    case: TimerCase,
    timer_discrepancies: [f64; 3],
    position_discrepancies: [f64; 3],
    /// The most that timers of each pair were apart.
    max_difference_ms: [f64; 3],
    /// After how long timers of each pair were within [`CONVERGED_MS`] for good, nine times of ten.
    convergence_s: [f64; 3],
    min_timer_speed: f64,
    max_timer_speed: f64,
    /// What clients say of their own discrepancy, and what it was, all walks together.
    reported_and_actual: (f64, f64),
    /// One of the walks, to be drawn.
    samples: Vec<TimerSample>,
}

fn method_config(method: usize) -> MotionConfig {
    [MotionConfig::paper(1), MotionConfig::clocks(1)][method]
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let walks = bench.full_or_short(30, 8);
    let seed = bench.seed;
    let mut cases: Vec<TimerCase> = Vec::new();
    for path in 0..MOTION_PATHS.len() {
        for way in 0..LINKS.len() {
            cases.extend([0, 1].into_iter().flat_map(|method| [(way, path, method, false), (way, path, method, true)]));
        }
    }
    let outcomes = bench.run_jobs(0.95, &cases, |(way, path, method, varies)| {
        let jitter = if *varies { JITTER_SHARE } else { 0.0 };
        let walk = |number: u64| {
            let seed = seed.wrapping_mul(1_000).wrapping_add(number);
            MotionWalk { seed, link: *way, motion_path: *path, config: method_config(*method), jitter }.run()
        };
        TimerOutcome::from_walks((*way, *path, *method, *varies), &(0..walks).map(walk).collect::<Vec<WalkTrace>>())
    });
    let unbuffered = bench.run_jobs(0.05, &[0, 1], |method| {
        let config = MotionConfig { combine_interval: TimeDelta::ZERO, ..method_config(*method) };
        MotionWalk { seed, link: OVERSEAS_LINK, motion_path: 1, config, jitter: 0.0 }.run().timer_discrepancies()
    });
    let mut findings = Findings::default();
    findings.add_parameter("ways", "round trips of 0.64, 10 and 160 ms between the server and each of A and B");
    findings.add_parameter("jitter", "none; and exponential, 5 % of the delay on average, with overtaking");
    findings.add_parameter(
        "paths",
        "linear: one command; zig-zag: one every 2.2 s; circular: one every 0.5 s; 1 unit a second",
    );
    findings.add_parameter("clocks", "any offset, up to 50 ppm fast or slow; frames of 1/60 s, each at its own time");
    findings.add_parameter("walks", format!("{walks} of 6.6 s for each case, after 5 s of warming up"));
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
    findings.add_note("The paper does not say when A begins to move nor what Td is then. Here A moves at once; 50 ms later the command is sent, and Td is RT_accum and those 50 ms, so that timers meet. Td of B is −RT_accum and what the server says it is on the leg; (6) has the other sign for B, which is behind.");
    findings.add_note("Timers are compared on the newest leg that anybody is on. Who has not heard of it is at its beginning. D of timers is in milliseconds times seconds for each command; D of places, the integral over the distance between where the two take the object to be, in thousandths of a unit times seconds.");
    findings.add_note("With clocks three things differ: A slows down from the command on and not from the sending on; B catches up at twice the speed and not at one and a half; and both know from clocks how far the server is, where the paper goes by half a round trip and stays wrong by half of what the two directions differ by until the next command.");
}

impl TimerOutcome {
    fn from_walks(case: TimerCase, walks: &[WalkTrace]) -> Self {
        let mean = |of: fn(&WalkTrace) -> [f64; 3]| {
            let mut sum = [0.0; 3];
            walks.iter().for_each(|seen| sum.iter_mut().zip(of(seen)).for_each(|(sum, value)| *sum += value));
            sum.map(|sum| sum / walks.len().max(1) as f64)
        };
        let most = |pair: usize| {
            walks.iter().flat_map(|seen| &seen.samples).map(|look| look.timers_ms[pair]).fold(0.0, f64::max)
        };
        Self {
            case,
            timer_discrepancies: mean(WalkTrace::timer_discrepancies),
            position_discrepancies: mean(WalkTrace::position_discrepancies),
            max_difference_ms: [0, 1, 2].map(most),
            convergence_s: [0, 1, 2].map(|pair| convergence_time(walks, pair)),
            min_timer_speed: walks.iter().map(|seen| seen.min_timer_speed).fold(1.0, f64::min),
            max_timer_speed: walks.iter().map(|seen| seen.max_timer_speed).fold(1.0, f64::max),
            reported_and_actual: walks
                .iter()
                .fold((0.0, 0.0), |sum, seen| (sum.0 + seen.reported_discrepancy, sum.1 + seen.actual_discrepancy)),
            samples: walks.first().map(|seen| seen.samples.clone()).unwrap_or_default(),
        }
    }
}

/// The time after a command from which on a pair is within [`CONVERGED_MS`] until the next one: nine times of ten it is no longer.
fn convergence_time(walks: &[WalkTrace], pair: usize) -> f64 {
    let mut times = Vec::new();
    for seen in walks {
        let mut last: f64 = 0.0;
        for (at, look) in seen.samples.iter().enumerate() {
            if look.timers_ms[pair] > CONVERGED_MS {
                last = look.since_command_s;
            }
            let is_end = seen.samples.get(at + 1).is_none_or(|next| next.since_command_s < look.since_command_s);
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
        "timers_ms_s",
        "places_milliunits_s",
        "most_ms",
        "gone_s",
    ];
    let mut table = DataTable::new("timers", "Discrepancy for each command, the most, and when it is gone", &columns);
    for outcome in outcomes {
        let (way, path, method, varies) = outcome.case;
        for (pair, name) in OBSERVER_PAIRS.iter().enumerate() {
            table.add_row([
                MOTION_PATHS[path].0.into(),
                number(LINKS[way].1 as f64 / 1e3, 2),
                number(if varies { JITTER_SHARE * 100.0 } else { 0.0 }, 0),
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
    outcomes.iter().find(|outcome| outcome.case == case).expect("all cases were walked")
}

fn all_cases_figure(outcomes: &[TimerOutcome]) -> Figure {
    let mut panels = Vec::new();
    for (path, (path_name, _)) in MOTION_PATHS.iter().enumerate() {
        for (way, (_, rtt_us)) in LINKS.iter().enumerate() {
            let outcome = outcome_of(outcomes, (way, path, 0, true));
            let title = format!("{path_name}, {} ms", *rtt_us as f64 / 1e3);
            let x = PlotAxis::new("s").with_min(0.0).with_max(if path == 0 { 1.0 } else { 5.0 });
            let panel = Panel::new(&title, x, PlotAxis::new("ms").with_min(0.0));
            let points = |pair: usize| {
                let every = if path == 0 { 2 } else { 8 };
                outcome.samples.iter().step_by(every).map(move |look| (look.at_s, look.timers_ms[pair]))
            };
            let within = |(at, _): &(f64, f64)| *at <= if path == 0 { 1.0 } else { 5.0 };
            panels.push((0..3).fold(panel, |panel, pair| {
                panel.line(OBSERVER_PAIRS[pair], STYLES[pair], points(pair).filter(within))
            }));
        }
    }
    let caption = "The paper's method with jitter, one walk each. Every command makes a pulse, and between pulses a small difference stays that the measured round trip did not tell.";
    Figure::new("timers", "Differences between motion timers (L, Figure 4)", caption, panels).columns(3)
}

fn methods_figure(outcomes: &[TimerOutcome]) -> Figure {
    let panels = OBSERVER_PAIRS.iter().enumerate().map(|(pair, name)| {
        let x = PlotAxis::new("seconds after the command").with_min(0.0).with_max(0.6);
        let panel = Panel::new(name, x, PlotAxis::new("ms").with_min(0.0).with_max(RTT_MS));
        let line = |method: usize| {
            let looks = &outcome_of(outcomes, (OVERSEAS_LINK, 0, method, true)).samples;
            looks.iter().filter(|look| look.at_s <= 0.6).map(move |look| (look.at_s, look.timers_ms[pair]))
        };
        panel
            .line("paper's method", SeriesStyle::Paper, line(0))
            .line("with clocks", SeriesStyle::First, line(1))
            .vertical_bound(0.45, "0.45 s")
    });
    let caption = "One command over 160 ms. Dotted: when the paper's differences are gone.";
    Figure::new("timers-beside", "The paper's method and clocks", caption, panels.collect()).columns(3)
}

fn paper_claims(findings: &mut Findings, outcomes: &[TimerOutcome]) {
    let overseas = || (0..MOTION_PATHS.len()).map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, false)));
    let list = |of: &dyn Fn(&TimerOutcome) -> f64, decimals: usize| {
        overseas().map(|outcome| format!("{:.decimals$}", of(outcome))).collect::<Vec<_>>().join(", ")
    };
    findings.add_claim(
        "160 ms, the paper's method: when the server hears of a command A is ahead by about half a round trip",
        "about half of the round trip",
        format!("{} ms on the three paths", list(&|outcome| outcome.max_difference_ms[0], 0)),
        overseas().all(|outcome| (0.4..0.65).contains(&(outcome.max_difference_ms[0] / RTT_MS))),
    );
    findings.add_claim(
        "160 ms, the paper's method: A and the server are within 5 ms 0.45 s after a command",
        "about 0.45 s",
        format!("after {} s", list(&|outcome| outcome.convergence_s[0], 2)),
        overseas().all(|outcome| outcome.convergence_s[0] < 0.45),
    );
    findings.add_claim(
        "160 ms, the paper's method: A and B are never further apart than about a round trip",
        "about a single round trip",
        format!("{} ms at most; {:.0} ms with jitter", list(&|outcome| outcome.max_difference_ms[2], 0), {
            let varying = (0..MOTION_PATHS.len())
                .map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, true)).max_difference_ms[2]);
            varying.fold(0.0, f64::max)
        }),
        (0..MOTION_PATHS.len())
            .all(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, 0, true)).max_difference_ms[2] < RTT_MS * 1.1),
    );
}

fn our_claims(findings: &mut Findings, outcomes: &[TimerOutcome]) {
    let pairs = || {
        outcomes.iter().filter(|outcome| outcome.case.2 == 0).map(|paper| {
            let (way, path, _, varies) = paper.case;
            (paper, outcome_of(outcomes, (way, path, 1, varies)))
        })
    };
    // Looks are a millisecond apart: what is less than this cannot be told from nothing.
    const NOTHING: f64 = 0.002;
    let worst = |of: fn(&TimerOutcome) -> [f64; 3]| {
        let ratios = pairs().flat_map(move |(paper, ours)| {
            [0, 1, 2].map(|pair| (of(ours)[pair] - NOTHING).max(0.0) / of(paper)[pair].max(NOTHING))
        });
        ratios.fold(0.0, f64::max)
    };
    findings.add_claim(
        "with clocks no pair has a greater discrepancy in any of the nine cases, with jitter or without",
        "its own method",
        format!(
            "at most {:.2} of the paper's between timers, {:.2} between places",
            worst(|outcome| outcome.timer_discrepancies),
            worst(|outcome| outcome.position_discrepancies)
        ),
        worst(|outcome| outcome.timer_discrepancies) <= 1.0 && worst(|outcome| outcome.position_discrepancies) <= 1.0,
    );
    for varies in [false, true] {
        let (mut paper_sum, mut ours_sum, mut worst) = ([0.0; 3], [0.0; 3], 0.0f64);
        for (paper, ours) in pairs().filter(|(paper, _)| paper.case.0 == OVERSEAS_LINK && paper.case.3 == varies) {
            for pair in 0..3 {
                paper_sum[pair] += paper.timer_discrepancies[pair] / MOTION_PATHS.len() as f64;
                ours_sum[pair] += ours.timer_discrepancies[pair] / MOTION_PATHS.len() as f64;
                worst = worst.max(ours.timer_discrepancies[pair] / paper.timer_discrepancies[pair]);
            }
        }
        let three = |sums: [f64; 3]| sums.map(|sum| format!("{sum:.1}")).join(", ");
        findings.add_claim(
            &format!(
                "160 ms, {} jitter: with clocks every pair has less on every path",
                if varies { "with" } else { "without" }
            ),
            &format!("its own method: {} ms·s a command", three(paper_sum)),
            format!("{} ms·s a command; at most {worst:.2} of the paper's", three(ours_sum)),
            worst < 0.8,
        );
    }
    let gone = |method: usize| {
        (0..MOTION_PATHS.len())
            .map(|path| outcome_of(outcomes, (OVERSEAS_LINK, path, method, true)).convergence_s[2])
            .fold(0.0, f64::max)
    };
    findings.add_claim(
        "160 ms with jitter: with clocks A and B are within 5 ms sooner",
        "small differences stay",
        format!(
            "after {:.2} s nine times of ten; the paper's method after {:.2} s, the next command at the latest",
            gone(1),
            gone(0)
        ),
        gone(1) < 0.45 && gone(1) < gone(0),
    );
    let ours = || outcomes.iter().filter(|outcome| outcome.case.2 == 1);
    let (slowest, fastest) = ours().fold((1.0f64, 1.0f64), |(slowest, fastest), outcome| {
        (slowest.min(outcome.min_timer_speed), fastest.max(outcome.max_timer_speed))
    });
    findings.add_claim(
        "with clocks nobody ever goes back, slower than half or faster than twice the motion",
        "half and one and a half",
        format!("between {slowest:.2} and {fastest:.2}"),
        slowest > 0.49 && fastest < 2.01,
    );
    let told = outcome_of(outcomes, (OVERSEAS_LINK, 2, 1, true)).reported_and_actual;
    findings.add_claim(
        "what a client says of its own discrepancy is what it was",
        "nothing is said of measuring it",
        format!("{:.3} told and {:.3} true, in units times seconds, of all circular walks over 160 ms", told.0, told.1),
        (told.0 - told.1).abs() < told.1 * 0.1,
    );
}

/// What is left of it where there is nothing to slow down early for, and no jitter to be misled by.
fn unbuffered_claim(findings: &mut Findings, unbuffered: &[[f64; 3]]) {
    let (paper, ours) = (unbuffered[0], unbuffered[1]);
    let three = |values: [f64; 3]| values.map(|value| format!("{value:.1}")).join(", ");
    findings.add_claim(
        "160 ms without jitter and without combining: A and the server are as far apart as with the paper's method, the other pairs less",
        &format!("its own method: {} ms·s a command", three(paper)),
        format!("{} ms·s a command", three(ours)),
        ours[0] < paper[0] * 1.02 && ours[1] < paper[1] * 0.8 && ours[2] < paper[2] * 0.8,
    );
}
