//! Figure 10: what is in the buffers while packets get lost.

use super::testbed::{Testbed, TestbedTrace};
use crate::bench::ExperimentContext;
use crate::catalog::KIM;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "buffer",
    title: "Buffer contents over time",
    summary: "With an initial delay of 0.3 s there is time to ask for what was lost and to get it: the buffer sags with every loss and fills up again, and the game never stops.",
    paper: &KIM,
    paper_figures: "Figure 10",
    expected_seconds: 1.0,
    run,
    real_run: None,
};

/// 0.3 s at 60 frames per second.
pub const INITIAL_DELAY_FRAMES: u32 = 18;
/// The paper's rates of loss, and none at all beside them.
const LOSSES: [(f64, SeriesStyle); 3] =
    [(0.0, SeriesStyle::Second), (0.01, SeriesStyle::First), (0.05, SeriesStyle::Paper)];
/// The buffer is shown in slices of so many seconds.
const SLICE_S: f64 = 0.25;

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let seed = bench.seed;
    let seconds = bench.full_or_short(60, 20);
    let time = coplay::time::TimeDelta::from_secs(seconds);
    let traces = bench.run_jobs(1.0, &LOSSES, |(loss, _)| {
        (*loss, Testbed { duration: time, ..Testbed::new(seed, INITIAL_DELAY_FRAMES, *loss) }.run())
    });
    let mut findings = Findings::default();
    findings.add_parameter("sites", "2");
    findings.add_parameter("initial delay", "0.3 s: a lag of 18 frames at 60 per second");
    findings.add_parameter("link", "65 ms in each direction; 0, 1 and 5 % independent loss");
    findings.add_parameter("recovery", "history: requests and answers ride in normal packets");
    findings.add_parameter("time", format!("{seconds} s after 3 s of warming up"));
    findings.add_note("The paper does not say how long its link is: 65 ms is what its results imply, for a loss costs about three one-way delays and two intervals.");
    findings.tables.push(table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

fn table(traces: &[(f64, TestbedTrace)]) -> DataTable {
    let columns = ["loss_percent", "site", "at_s", "least_frames", "mean_frames", "most_frames"];
    let mut table = DataTable::new("buffer", "Frames in each buffer, in slices of a quarter of a second", &columns);
    for (loss, trace) in traces {
        for site in 0..2 {
            for (at, least, mean, most) in trace.summary(site, SLICE_S) {
                table.add_row([
                    number(loss * 100.0, 1),
                    integer(site as i64),
                    number(at, 3),
                    number(least, 0),
                    number(mean, 2),
                    number(most, 0),
                ]);
            }
        }
    }
    table
}

/// How much is lost, in words.
pub(super) fn loss_label(loss: f64) -> String {
    if loss > 0.0 { format!("{} % loss", loss * 100.0) } else { "no loss".into() }
}

fn figure(traces: &[(f64, TestbedTrace)]) -> Figure {
    let panels = traces.iter().zip(LOSSES).map(|((loss, trace), (_, ink))| {
        let summary = trace.summary(0, SLICE_S);
        Panel::new(
            &loss_label(*loss),
            PlotAxis::new("time, s").with_min(0.0).with_max(trace.seconds),
            PlotAxis::new("frames in the buffer").with_min(0.0).with_max(20.0),
        )
        .band(ink, summary.iter().map(|(at, least, _, most)| (*at, *least, *most)))
        .line("", ink, summary.iter().map(|(at, _, mean, _)| (*at, *mean)))
        .horizontal_bound(1.0, "starvation")
    });
    let caption = "Commands of the other site that are here and not played yet: mean (line), least and most (band) in each quarter of a second. \
                   A loss empties the buffer by the time that it takes to ask and to be answered, not further.";
    Figure::new("buffer", "Buffer contents with 0, 1 and 5 % loss (K, Figure 10)", caption, panels.collect())
}

fn claims(findings: &mut Findings, traces: &[(f64, TestbedTrace)]) {
    for (loss, trace) in traces.iter().filter(|(loss, _)| *loss > 0.0) {
        findings.add_claim(
            &format!("at 0.3 s and {:.0} % loss the buffer is stable", loss * 100.0),
            "stable",
            format!(
                "never below {:.0} frames, {} pauses, {} frames waited, {:.2} frames per second",
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
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
