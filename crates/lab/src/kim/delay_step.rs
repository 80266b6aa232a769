//! Figure 16: the link delay increases in the middle of a game.

use coplay::time::TimeDelta;

use super::buffer::{INITIAL_DELAY_FRAMES, loss_label};
use super::testbed::{Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{lossy_link, mean, ms};
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `step` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "step",
    title: "Sudden increase of the link delay",
    summary: "The one-way delay from one site jumps from 30 to 200 ms, that from the other site from 100 to 200 ms. Both buffers shrink by the mean increase of the delays, and the game continues with the smaller buffers: at nearly full speed without packet loss, and with pauses with packet loss.",
    paper: &KIM,
    paper_figures: "Figure 16",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

const LOSS: f64 = 0.008;
/// One-way delays of the outgoing links before and after the step, by sending site.
const ONE_WAY_DELAYS_MS: [(f64, f64); 2] = [(30.0, 200.0), (100.0, 200.0)];
/// Mean increase of the one-way delays, in frames.
const MEAN_INCREASE_FRAMES: f64 = (170.0 + 100.0) / 2.0 * 0.06;
const STEP_S: f64 = 20.0;
const SLICE_S: f64 = 0.1;

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seed = context.seed;
    let seconds = context.full_or_short(60, 50);
    let testbed = |loss: f64| {
        let mut testbed =
            Testbed { duration: TimeDelta::from_secs(seconds), ..Testbed::new(seed, INITIAL_DELAY_FRAMES, loss) };
        let link = |delay_ms: f64| lossy_link(2.0 * delay_ms, loss);
        testbed.link_changes = (0..2)
            .flat_map(|site| {
                [
                    (TimeDelta::ZERO, site, link(ONE_WAY_DELAYS_MS[site].0)),
                    (ms(STEP_S * 1_000.0), site, link(ONE_WAY_DELAYS_MS[site].1)),
                ]
            })
            .collect();
        testbed
    };
    let traces = context.run_jobs(1.0, &[0.0, LOSS], |loss| (*loss, testbed(*loss).run()));
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("initial delay", "0.3 s: an input delay of 18 frames");
    findings.add_parameter(
        "link",
        "30 ms in one direction, 100 ms in the other; after 20 s 200 ms in both; 0 and 0.8 % independent loss",
    );
    findings.add_parameter("time", format!("{seconds} s"));
    findings.add_note("Clock synchronisation cannot detect a difference between the delays of the two directions. The sites begin their frames half of that difference apart, and both buffers hold the same number of frames.");
    findings.tables.push(table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

/// Returns the mean buffer level of a site between two times, in frames.
fn mean_buffer(trace: &TestbedTrace, site: usize, from_s: f64, until_s: f64) -> f64 {
    let inside = trace.buffers[site].iter().filter(|(at, _)| (from_s..until_s).contains(at)).map(|(_, frames)| *frames);
    mean(&inside.collect::<Vec<f64>>())
}

fn table(traces: &[(f64, TestbedTrace)]) -> DataTable {
    let columns = [
        "loss_percent",
        "site",
        "buffer_before_frames",
        "buffer_after_frames",
        "pauses",
        "stalled_frames",
        "frames_per_second",
    ];
    let mut table =
        DataTable::new("step", "Mean buffer level of each site before and after the delays increase", &columns);
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
    let names = ["incoming delay 100, then 200 ms", "incoming delay 30, then 200 ms"];
    let panels = traces.iter().map(|(loss, trace)| {
        let time = PlotAxis::new("time, s").with_min(0.0).with_max(trace.seconds);
        let mut panel = Panel::new(&loss_label(*loss), time, PlotAxis::new("frames in the buffer").with_min(0.0));
        for (site, style) in [SeriesStyle::First, SeriesStyle::Paper].into_iter().enumerate() {
            let summary = trace.summary(site, SLICE_S);
            panel = panel.band(style, summary.iter().map(|(at, min, _, max)| (*at, min.max(0.0), *max))).line(
                names[site],
                style,
                summary.iter().map(|(at, _, mean, _)| (*at, *mean)),
            );
        }
        let paused = trace.pauses.iter().map(|(at, _)| (*at, 0.0));
        panel.points("pause of all sites", SeriesStyle::PaperText, paused).vertical_bound(STEP_S, "the delays increase")
    });
    let caption = "Commands in the buffers: mean (line), minimum and maximum (band) per 0.1 s. Both buffers shrink by the mean increase of the delays. Without packet loss the game continues with the smaller buffers. With packet loss, too little time is left to recover a lost command \
                   (three one-way delays of 200 ms exceed the initial delay of 0.3 s), so losses of input changes cause pauses.";
    Figure::new(
        "step",
        "Buffer contents before and after the delays increase (K, Figure 16)",
        caption,
        panels.collect(),
    )
}

fn claims(findings: &mut Findings, traces: &[(f64, TestbedTrace)]) {
    let [(_, clean), (_, lossy)] = traces else { return };
    let shrunk: Vec<f64> = (0..2)
        .map(|site| mean_buffer(clean, site, 5.0, STEP_S) - mean_buffer(clean, site, STEP_S + 10.0, clean.seconds))
        .collect();
    findings.add_claim(
        "both buffers shrink by the mean increase of the delays, within 1 frame",
        "the buffer is downsized",
        format!(
            "{:.1} and {:.1} frames; the mean increase of 135 ms is {MEAN_INCREASE_FRAMES:.1} frames",
            shrunk[0], shrunk[1]
        ),
        shrunk.iter().all(|shrunk| (shrunk - MEAN_INCREASE_FRAMES).abs() < 1.0),
    );
    findings.add_claim(
        "the game continues after the delays increase: over the whole run at more than 58.5 frames per second and with at most 3 pauses without loss, at more than 50 frames per second and with pauses with loss",
        "the sites resynchronise",
        format!(
            "{} pauses with loss, {} without; {:.1} frames per second without loss, {:.1} with loss",
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
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
