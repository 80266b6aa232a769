//! Figure 16: the way becomes longer in the middle of a game.

use coplay::time::TimeDelta;

use super::buffer::{INITIAL_DELAY_FRAMES, loss_label};
use super::testbed::{Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::catalog::KIM;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{lossy_link, mean, ms};
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "step",
    title: "A way that becomes longer",
    summary: "One site's way out becomes longer at once, from 30 to 200 ms, and the other's from 100 to 200 ms: buffers shrink by as much, the sites resynchronise, and the game goes on at full speed with what is left.",
    paper: &KIM,
    paper_figures: "Figure 16",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

const LOSS: f64 = 0.008;
/// One-way delays before and after, by site.
const ONE_WAY_DELAYS_MS: [(f64, f64); 2] = [(30.0, 200.0), (100.0, 200.0)];
/// What the ways become longer by on average, in frames.
const MEAN_INCREASE_FRAMES: f64 = (170.0 + 100.0) / 2.0 * 0.06;
const STEP_S: f64 = 20.0;
const SLICE_S: f64 = 0.1;

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let seed = bench.seed;
    let seconds = bench.full_or_short(60, 50);
    let stand = |loss: f64| {
        let mut stand =
            Testbed { duration: TimeDelta::from_secs(seconds), ..Testbed::new(seed, INITIAL_DELAY_FRAMES, loss) };
        let way = |delay_ms: f64| lossy_link(2.0 * delay_ms, loss);
        stand.link_changes = (0..2)
            .flat_map(|site| {
                [
                    (TimeDelta::ZERO, site, way(ONE_WAY_DELAYS_MS[site].0)),
                    (ms(STEP_S * 1_000.0), site, way(ONE_WAY_DELAYS_MS[site].1)),
                ]
            })
            .collect();
        stand
    };
    let traces = bench.run_jobs(1.0, &[0.0, LOSS], |loss| (*loss, stand(*loss).run()));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("initial delay", "0.3 s: a lag of 18 frames");
    findings.add_parameter(
        "link",
        "one way 30 ms, the other 100 ms; both 200 ms from 20 s on; 0 and 0.8 % independent loss",
    );
    findings.add_parameter("time", format!("{seconds} s"));
    findings.add_note("Where the two ways differ no clock can know it: the sites begin their frames half of the difference apart, and both buffers hold the same.");
    findings.tables.push(table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

/// What a buffer holds on average between two times.
fn mean_buffer(trace: &TestbedTrace, site: usize, from_s: f64, until_s: f64) -> f64 {
    let inside = trace.buffers[site].iter().filter(|(at, _)| (from_s..until_s).contains(at)).map(|(_, frames)| *frames);
    mean(&inside.collect::<Vec<f64>>())
}

fn table(traces: &[(f64, TestbedTrace)]) -> DataTable {
    let columns =
        ["loss_percent", "site", "before_frames", "after_frames", "pauses", "stalled_frames", "frames_per_second"];
    let mut table = DataTable::new("step", "What the buffers hold before and after", &columns);
    for (loss, trace) in traces {
        for site in 0..2 {
            table.add_row([
                number(loss * 100.0, 1),
                integer(site as i64),
                number(mean_buffer(trace, site, 5.0, STEP_S), 2),
                number(mean_buffer(trace, site, STEP_S + 10.0, trace.seconds), 2),
                integer(trace.pauses.len() as i64),
                integer(trace.stalled_frames as i64),
                number(trace.frames_per_second(), 2),
            ]);
        }
    }
    table
}

fn figure(traces: &[(f64, TestbedTrace)]) -> Figure {
    let names = ["way to it 100, then 200 ms", "way to it 30, then 200 ms"];
    let panels = traces.iter().map(|(loss, trace)| {
        let time = PlotAxis::new("time, s").with_min(0.0).with_max(trace.seconds);
        let mut panel = Panel::new(&loss_label(*loss), time, PlotAxis::new("frames in the buffer").with_min(0.0));
        for (site, ink) in [SeriesStyle::First, SeriesStyle::Paper].into_iter().enumerate() {
            let summary = trace.summary(site, SLICE_S);
            panel = panel.band(ink, summary.iter().map(|(at, least, _, most)| (*at, least.max(0.0), *most))).line(
                names[site],
                ink,
                summary.iter().map(|(at, _, mean, _)| (*at, *mean)),
            );
        }
        let paused = trace.pauses.iter().map(|(at, _)| (*at, 0.0));
        panel.points("all pause", SeriesStyle::PaperText, paused).vertical_bound(STEP_S, "the ways become longer")
    });
    let caption = "Both buffers lose what the ways have become longer by. Without loss the game goes on with what is left; with loss there is no time left to ask \
                   (three ways of 200 ms are longer than 0.3 s), so every loss that hits a change is answered by a pause.";
    Figure::new("step", "After a step of the delay (K, Figure 16)", caption, panels.collect())
}

fn claims(findings: &mut Findings, traces: &[(f64, TestbedTrace)]) {
    let [(_, clean), (_, lossy)] = traces else { return };
    let shrunk: Vec<f64> = (0..2)
        .map(|site| mean_buffer(clean, site, 5.0, STEP_S) - mean_buffer(clean, site, STEP_S + 10.0, clean.seconds))
        .collect();
    findings.add_claim(
        "buffers shrink by what the ways have become longer by",
        "downsizing of buffer",
        format!(
            "{:.1} and {:.1} frames; 135 ms, which is what they have become longer by on average, are {MEAN_INCREASE_FRAMES:.1}",
            shrunk[0], shrunk[1]
        ),
        shrunk.iter().all(|shrunk| (shrunk - MEAN_INCREASE_FRAMES).abs() < 1.0),
    );
    findings.add_claim(
        "the sites resynchronise, and go on",
        "resynchronisation",
        format!(
            "{} pauses with loss, {} without; {:.1} and {:.1} frames per second",
            lossy.pauses.len(),
            clean.pauses.len(),
            lossy.frames_per_second(),
            clean.frames_per_second()
        ),
        !lossy.pauses.is_empty()
            && clean.pauses.len() <= 3
            && clean.frames_per_second() > 58.5
            && lossy.frames_per_second() > 50.0,
    );
    let sound = traces.iter().all(|(_, trace)| trace.states_equal);
    findings.add_claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
