//! Figure 10: buffer contents under packet loss.

use super::testbed::{Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::KIM;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `buffer` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "buffer",
    title: "Buffer contents over time",
    summary: "An initial delay (input delay) of 0.3 s leaves time to request a lost command and to receive it. The buffer level drops after a loss and recovers, and the game never stops.",
    paper: &KIM,
    paper_figures: "Figure 10",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

/// Initial delay: 0.3 s at 60 frames per second.
pub const INITIAL_DELAY_FRAMES: u32 = 18;
/// Compared loss rates, each with a style: none, and those of the paper.
const LOSSES: [(f64, SeriesStyle); 3] =
    [(0.0, SeriesStyle::Second), (0.01, SeriesStyle::First), (0.05, SeriesStyle::Paper)];
/// Length of a time slice of the plot and the table, in seconds.
const SLICE_S: f64 = 0.25;

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let seed = context.seed;
    let seconds = context.full_or_short(60, 20);
    let duration = coplay::time::TimeDelta::from_secs(seconds);
    let traces = context.run_jobs(1.0, &LOSSES, |(loss, _)| {
        (*loss, Testbed { duration, ..Testbed::new(seed, INITIAL_DELAY_FRAMES, *loss) }.run())
    });
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("initial delay", "0.3 s: an input delay of 18 frames at 60 per second");
    findings.add_parameter("link", "65 ms in each direction; 0, 1 and 5 % independent loss");
    findings.add_parameter("recovery", "history: regular packets carry requests and resends");
    findings.add_parameter("time", format!("{seconds} s after 3 s of warm-up"));
    findings.add_note("The paper does not state the delay of its link. Its results fit one-way delays of 56 to 88 ms, since recovering a lost command takes about three one-way delays and two send intervals. We use 65 ms.");
    findings.tables.push(table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

fn table(traces: &[(f64, TestbedTrace)]) -> DataTable {
    let columns = ["loss_percent", "site", "time_s", "min_frames", "mean_frames", "max_frames"];
    let mut table = DataTable::new("buffer", "Frames in the buffer of each site, per time slice of 0.25 s", &columns);
    for (loss, trace) in traces {
        for site in 0..2 {
            for (at, min, mean, max) in trace.summary(site, SLICE_S) {
                table.add_row([
                    number(loss * 100.0, 1),
                    integer(site as i64),
                    number(at, 3),
                    number(min, 0),
                    number(mean, 2),
                    number(max, 0),
                ]);
            }
        }
    }
    table
}

/// Formats a loss rate as a label of a panel.
pub(super) fn loss_label(loss: f64) -> String {
    if loss > 0.0 { format!("{} % loss", loss * 100.0) } else { "no loss".into() }
}

fn figure(traces: &[(f64, TestbedTrace)]) -> Figure {
    let panels = traces.iter().zip(LOSSES).map(|((loss, trace), (_, style))| {
        let summary = trace.summary(0, SLICE_S);
        Panel::new(
            &loss_label(*loss),
            PlotAxis::new("time, s").with_min(0.0).with_max(trace.seconds),
            PlotAxis::new("frames in the buffer").with_min(0.0).with_max(20.0),
        )
        .band(style, summary.iter().map(|(at, min, _, max)| (*at, *min, *max)))
        .line("", style, summary.iter().map(|(at, _, mean, _)| (*at, *mean)))
        .horizontal_bound(1.0, "starvation: fewer than 1 frame")
    });
    let caption = "Commands that the first site has received and not yet played: mean (line), minimum and maximum (band) per 0.25 s. \
                   A lost command lowers the buffer level until its resend arrives.";
    Figure::new("buffer", "Buffer contents with 0, 1 and 5 % loss (K, Figure 10)", caption, panels.collect())
}

fn claims(findings: &mut Findings, traces: &[(f64, TestbedTrace)]) {
    for (loss, trace) in traces.iter().filter(|(loss, _)| *loss > 0.0) {
        findings.add_claim(
            &format!("with an initial delay of 0.3 s and {:.0} % loss, no site pauses or stalls, and the game runs at 60 frames per second", loss * 100.0),
            "the buffer is stable",
            format!(
                "at least {:.0} frames buffered, {} pauses, {} stalled frames, {:.2} frames per second",
                trace.min_buffer(),
                trace.pauses.len(),
                trace.stalled_frames,
                trace.frames_per_second()
            ),
            trace.pauses.is_empty() && trace.stalled_frames == 0 && (trace.frames_per_second() - 60.0).abs() < 0.1,
        );
    }
    let sound = traces.iter().all(|(_, trace)| trace.states_equal);
    findings.add_claim(
        "all sites compute the same states",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
