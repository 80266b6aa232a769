//! Figure 15: with an initial delay that is too short, the sites must resynchronise even at low loss.

use coplay::session::StarvationPolicy;
use coplay::time::TimeDelta;

use super::buffer::INITIAL_DELAY_FRAMES;
use super::testbed::{Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::quantile;
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `resync` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "resync",
    title: "Resynchronisation with an initial delay of 0.2 s",
    summary: "With an initial delay of 0.2 s a lost command is recovered too late. Even at 0.8 % loss the buffers run empty, and all sites pause together until the buffers are refilled. With an initial delay of 0.3 s, no site pauses.",
    paper: &KIM,
    paper_figures: "Figure 15",
    expected_seconds: 2.0,
    run,
    real_run: None,
};

const LOSS: f64 = 0.008;
/// The short initial delay: 0.2 s at 60 frames per second.
const SHORT_DELAY_FRAMES: u32 = 12;
const SLICE_S: f64 = 0.1;

/// Compared variants: initial delay in frames, starvation policy and label.
const VARIANTS: [(u32, StarvationPolicy, &str); 3] = [
    (SHORT_DELAY_FRAMES, StarvationPolicy::Pause, "initial delay 0.2 s, all sites pause"),
    (SHORT_DELAY_FRAMES, StarvationPolicy::Wait, "initial delay 0.2 s, each site waits"),
    (INITIAL_DELAY_FRAMES, StarvationPolicy::Pause, "initial delay 0.3 s, all sites pause"),
];

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seed = context.seed;
    let seconds = context.full_or_short(120, 60);
    let traces = context.run_jobs(1.0, &VARIANTS, |(delay, starvation, name)| {
        let mut testbed = Testbed { duration: TimeDelta::from_secs(seconds), ..Testbed::new(seed, *delay, LOSS) };
        testbed.game.starvation = *starvation;
        (*name, testbed.run())
    });
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("initial delay", "0.2 s (an input delay of 12 frames), and 0.3 s for comparison");
    findings.add_parameter("link", "65 ms in each direction, 0.8 % independent loss");
    findings.add_parameter("time", format!("{seconds} s"));
    findings.tables.push(table(&traces));
    findings.tables.push(pauses_table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

fn table(traces: &[(&str, TestbedTrace)]) -> DataTable {
    let columns = ["variant", "pauses", "stalled_frames", "stalled_s", "min_buffer_frames", "frames_per_second"];
    let mut table =
        DataTable::new("resync", "Pauses, stalls and frame rate by initial delay and starvation policy", &columns);
    for (name, trace) in traces {
        table.add_row([
            (*name).into(),
            integer(trace.pauses.len() as i64),
            integer(trace.stalled_frames as i64),
            number(trace.stalled_s, 2),
            number(trace.min_buffer(), 0),
            number(trace.frames_per_second(), 2),
        ]);
    }
    table
}

fn pauses_table(traces: &[(&str, TestbedTrace)]) -> DataTable {
    let mut table =
        DataTable::new("resync-pauses", "Pauses reported by the first site", &["variant", "time_s", "duration_s"]);
    for (name, trace) in traces {
        for (at, duration) in &trace.pauses {
            table.add_row([(*name).into(), number(*at, 3), number(*duration, 3)]);
        }
    }
    table
}

fn figure(traces: &[(&str, TestbedTrace)]) -> Figure {
    let shown = |trace: &TestbedTrace| trace.seconds.min(40.0);
    let panels = traces.iter().zip([SeriesStyle::Paper, SeriesStyle::First, SeriesStyle::Second]).map(
        |((name, trace), style)| {
            let summary: Vec<_> = trace.summary(0, SLICE_S).into_iter().filter(|(at, ..)| *at < shown(trace)).collect();
            let paused = trace.pauses.iter().filter(|(at, _)| *at < shown(trace)).map(|(at, _)| (*at, 0.0));
            Panel::new(
                name,
                PlotAxis::new("time, s").with_min(0.0).with_max(shown(trace)),
                PlotAxis::new("frames in the buffer").with_min(0.0).with_max(20.0),
            )
            .band(style, summary.iter().map(|(at, min, _, max)| (*at, min.max(0.0), *max)))
            .line("", style, summary.iter().map(|(at, _, mean, _)| (*at, *mean)))
            .points("pause of all sites", SeriesStyle::PaperText, paused)
        },
    );
    let caption = "Commands in the first site's buffer during the first 40 s: mean (line), minimum and maximum (band) per 0.1 s. With an initial delay of 0.2 s, the loss of an input change empties the buffer. In the first panel all sites then pause (crosses) and continue with refilled buffers. With 0.3 s, lost input changes are recovered in time.";
    Figure::new(
        "resync",
        "Buffer contents with initial delays of 0.2 and 0.3 s at 0.8 % loss (K, Figure 15)",
        caption,
        panels.collect(),
    )
}

fn claims(findings: &mut Findings, traces: &[(&str, TestbedTrace)]) {
    let [short, waiting, long] = traces else { return };
    findings.add_claim(
        "with an initial delay of 0.2 s and 0.8 % loss, the sites pause to resynchronise",
        "the sites resynchronise, even at low loss",
        format!("{} pauses in {:.0} s", short.1.pauses.len(), short.1.seconds),
        !short.1.pauses.is_empty(),
    );
    findings.add_claim(
        "with an initial delay of 0.3 s and 0.8 % loss, no site pauses or stalls",
        "an initial delay of 0.3 s is the most suitable",
        format!("{} pauses, {} stalled frames", long.1.pauses.len(), long.1.stalled_frames),
        long.1.pauses.is_empty() && long.1.stalled_frames == 0,
    );
    let durations: Vec<f64> = short.1.pauses.iter().map(|(_, duration)| *duration).collect();
    findings.add_claim(
        "with an initial delay of 0.2 s, every pause lasts at most 0.5 s",
        "players stop temporarily and resume after the buffering delay",
        format!("median duration {:.2} s", quantile(&durations, 0.5)),
        durations.iter().all(|duration| *duration <= 0.5),
    );
    let (paused, waited) = (short.1.frames_per_second(), waiting.1.frames_per_second());
    findings.add_claim(
        "with an initial delay of 0.2 s, the frame rate is at least as high if each site only waits for its missing inputs as if all sites pause",
        "not compared",
        format!("{waited:.2} frames per second with waiting sites, {paused:.2} with pauses"),
        waited >= paused,
    );
    let sound = traces.iter().all(|(_, trace)| trace.states_equal);
    findings.add_claim(
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
