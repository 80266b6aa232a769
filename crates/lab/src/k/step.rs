//! Figure 16: the way becomes longer in the middle of a game.

use coplay::time::TimeDelta;

use super::buffer::{DELAY, lost};
use super::stand::{Stand, Trace};
use crate::bench::Bench;
use crate::catalog::KIM;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::{lossy, mean, ms};
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "step",
    title: "A way that becomes longer",
    shows: "One site's way out becomes longer at once, from 30 to 200 ms, and the other's from 100 to 200 ms: buffers shrink by as much, the sites resynchronise, and the game goes on at full speed with what is left.",
    paper: &KIM,
    figures: "Figure 16",
    seconds: 1.0,
    run,
    real: None,
};

const LOSS: f64 = 0.008;
/// One-way delays before and after, by site.
const WAYS_MS: [(f64, f64); 2] = [(30.0, 200.0), (100.0, 200.0)];
/// What the ways become longer by on average, in frames.
const LONGER: f64 = (170.0 + 100.0) / 2.0 * 0.06;
const STEP_S: f64 = 20.0;
const SLICE_S: f64 = 0.1;

fn run(bench: &mut Bench<'_>) -> Findings {
    let seed = bench.seed;
    let seconds = bench.either(60, 50);
    let stand = |loss: f64| {
        let mut stand = Stand { time: TimeDelta::from_secs(seconds), ..Stand::new(seed, DELAY, loss) };
        let way = |delay_ms: f64| lossy(2.0 * delay_ms, loss);
        stand.changes = (0..2)
            .flat_map(|site| {
                [(TimeDelta::ZERO, site, way(WAYS_MS[site].0)), (ms(STEP_S * 1_000.0), site, way(WAYS_MS[site].1))]
            })
            .collect();
        stand
    };
    let traces = bench.spread(1.0, &[0.0, LOSS], |loss| (*loss, stand(*loss).watch()));
    let mut findings = Findings::default();
    findings.parameter("sites", "2");
    findings.parameter("initial delay", "0.3 s: a lag of 18 frames");
    findings
        .parameter("link", "one way 30 ms, the other 100 ms; both 200 ms from 20 s on; 0 and 0.8 % independent loss");
    findings.parameter("time", format!("{seconds} s"));
    findings.note("Where the two ways differ no clock can know it: the sites begin their frames half of the difference apart, and both buffers hold the same.");
    findings.tables.push(table(&traces));
    findings.figures.push(figure(&traces));
    claims(&mut findings, &traces);
    findings
}

/// What a buffer holds on average between two times.
fn held(trace: &Trace, site: usize, from_s: f64, until_s: f64) -> f64 {
    let inside = trace.buffers[site].iter().filter(|(at, _)| (from_s..until_s).contains(at)).map(|(_, frames)| *frames);
    mean(&inside.collect::<Vec<f64>>())
}

fn table(traces: &[(f64, Trace)]) -> Table {
    let columns =
        ["loss_percent", "site", "before_frames", "after_frames", "pauses", "stalled_frames", "frames_per_second"];
    let mut table = Table::new("step", "What the buffers hold before and after", &columns);
    for (loss, trace) in traces {
        for site in 0..2 {
            table.row([
                number(loss * 100.0, 1),
                whole(site as i64),
                number(held(trace, site, 5.0, STEP_S), 2),
                number(held(trace, site, STEP_S + 10.0, trace.seconds), 2),
                whole(trace.pauses.len() as i64),
                whole(trace.stalls as i64),
                number(trace.frames_per_second(), 2),
            ]);
        }
    }
    table
}

fn figure(traces: &[(f64, Trace)]) -> Figure {
    let names = ["way to it 100, then 200 ms", "way to it 30, then 200 ms"];
    let panels = traces.iter().map(|(loss, trace)| {
        let time = Axis::new("time, s").from(0.0).to(trace.seconds);
        let mut panel = Panel::new(&lost(*loss), time, Axis::new("frames in the buffer").from(0.0));
        for (site, ink) in [Ink::First, Ink::Paper].into_iter().enumerate() {
            let summary = trace.summary(site, SLICE_S);
            panel = panel.band(ink, summary.iter().map(|(at, least, _, most)| (*at, least.max(0.0), *most))).line(
                names[site],
                ink,
                summary.iter().map(|(at, _, mean, _)| (*at, *mean)),
            );
        }
        let paused = trace.pauses.iter().map(|(at, _)| (*at, 0.0));
        panel.points("all pause", Ink::Words, paused).vertical(STEP_S, "the ways become longer")
    });
    let caption = "Both buffers lose what the ways have become longer by. Without loss the game goes on with what is left; with loss there is no time left to ask \
                   (three ways of 200 ms are longer than 0.3 s), so every loss that hits a change is answered by a pause.";
    Figure::new("step", "After a step of the delay (K, Figure 16)", caption, panels.collect())
}

fn claims(findings: &mut Findings, traces: &[(f64, Trace)]) {
    let [(_, clean), (_, lossy)] = traces else { return };
    let shrunk: Vec<f64> =
        (0..2).map(|site| held(clean, site, 5.0, STEP_S) - held(clean, site, STEP_S + 10.0, clean.seconds)).collect();
    findings.claim(
        "buffers shrink by what the ways have become longer by",
        "downsizing of buffer",
        format!(
            "{:.1} and {:.1} frames; 135 ms, which is what they have become longer by on average, are {LONGER:.1}",
            shrunk[0], shrunk[1]
        ),
        shrunk.iter().all(|shrunk| (shrunk - LONGER).abs() < 1.0),
    );
    findings.claim(
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
    findings.claim(
        "all sites compute the same",
        "assumed",
        if sound { "every state equal" } else { "states differ" },
        sound,
    );
}
