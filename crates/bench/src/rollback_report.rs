//! Engines that guess: both under all conditions, row by row.

use coplay_bench::rollback::machine::STATE_BYTES;
use coplay_bench::rollback::measure::{MeasuredRun, RollbackResult, SPAN_SECONDS, WARM_UP, median};
use coplay_bench::rollback::{BenchCase, coplay_site, ggrs_site};
use coplay_bench::stopwatch::nanos_per_count;
use coplay_bench::workload::{FRAME_RATE, HASH_INTERVAL, MEAN_HOLD_FRAMES};

use crate::goals;

/// All randomness comes from this.
const SEED: u64 = 1;

/// Both engines under the same conditions.
pub(crate) struct RollbackRow {
    pub(crate) case: BenchCase,
    pub(crate) ours: RollbackResult,
    pub(crate) ggrs: RollbackResult,
}

impl RollbackRow {
    /// The engines take turns, span by span, on a machine that is noisy.
    fn measure(case: BenchCase, spans: u32, nanos_per_count: f64) -> Self {
        let (mut ours, mut ggrs) =
            (MeasuredRun::<coplay_site::CoplaySite>::new(case), MeasuredRun::<ggrs_site::GgrsSite>::new(case));
        for _ in 0..spans {
            ours.measure_span(nanos_per_count);
            ggrs.measure_span(nanos_per_count);
        }
        Self { case, ours: ours.into_result(), ggrs: ggrs.into_result() }
    }

    /// How many times as long as in ours it takes in ggrs: the median of all turns.
    pub(crate) fn median_time_ratio(&self) -> f64 {
        median(self.ours.engine_nanos.iter().zip(&self.ggrs.engine_nanos).map(|(ours, ggrs)| ggrs / ours))
    }
}

/// Which rows, and for how long.
pub(crate) struct RollbackPlan {
    pub(crate) is_quick: bool,
    pub(crate) spans: u32,
}

/// Measures all rows, prints them, and says which goals they meet.
pub(crate) fn measure_and_print(sites: &[usize], plan: &RollbackPlan) {
    preface(plan.spans);
    let nanos = nanos_per_count();
    let mut rows: Vec<RollbackRow> = Vec::new();
    for case in cases(sites, plan.is_quick) {
        if rows.last().is_none_or(|row| row.case.sites != case.sites) {
            head(case.sites);
        }
        rows.push(RollbackRow::measure(case, plan.spans, nanos));
        print(&rows[rows.len() - 1]);
    }
    goals::print(&rows);
}

/// All conditions; the last row of two sites has a lag that makes up for the longest way.
fn cases(sites: &[usize], quick: bool) -> Vec<BenchCase> {
    let (windows, trips, losses): (&[u32], &[u32], &[u32]) = match quick {
        true => (&[8], &[0, 200, 400], &[0, 20]),
        false => (&[8, 16], &[0, 100, 200, 300, 400], &[0, 5, 20]),
    };
    let mut cases = Vec::new();
    for &sites in sites {
        let case = |rtt_ms, loss_percent, lag, window| BenchCase {
            sites,
            rtt_ms,
            loss_percent,
            input_delay: lag,
            prediction_window: window,
            seed: SEED,
        };
        for &window in windows {
            for &rtt_ms in trips {
                cases.extend(losses.iter().map(|&loss| case(rtt_ms, loss, 2, window)));
            }
        }
        if sites == 2 {
            cases.push(case(400, 0, 8, 8));
        }
    }
    cases
}

fn preface(spans: u32) {
    let (warm, seconds) = (WARM_UP.as_secs_f64(), spans * SPAN_SECONDS);
    println!("What guessing costs: each site plays with all others, in virtual time, over links that delay and lose.");
    println!(
        "Inputs of 2 bytes that stay for {MEAN_HOLD_FRAMES} frames on average; states of {STATE_BYTES} bytes; {FRAME_RATE} frames per second."
    );
    println!("Clocks are exact; sites begin at random times. Both engines have the same inputs, links and beginnings.");
    println!(
        "{seconds} virtual seconds after {warm} to warm up; then it is checked that all states belong to the inputs."
    );
    println!();
    println!("Time is that inside the engine: the stopwatch stands still while states are copied and frames stepped,");
    println!(
        "and what takes a millisecond at once is left out, because the thread was put aside. Then all that the host"
    );
    println!(
        "programs did is done without an engine, with the same queues and as many starts and stops of the stopwatch,"
    );
    println!(
        "and subtracted. The engines take turns of {SPAN_SECONDS} virtual seconds; medians of all turns are compared."
    );
    println!(
        "ggrs reads a virtual clock, too, which is cheaper than a real one. coplay is woken by every datagram and"
    );
    println!("compares states every {HASH_INTERVAL} frames; ggrs is called once per tick and compares none.");
    println!();
    println!("  ns/frame   per frame and site; every frame is confirmed in the end");
    println!("  x          times as much as coplay");
    println!("  allocs     per tick (a sixtieth of a second) and site");
    println!("  dgrams     per tick and link (one way between two sites), and so are bytes, those of payloads");
    println!("  again      frames stepped again, per 100 frames");
    println!("  must       those that had to be: changes that came late, times the frames guessed until then");
    println!("  stalls     ticks without a frame, per 100");
    println!(
        "  +-again    by how much sites differ in frames stepped again; +-frame: by how many frames they are apart"
    );
}

const COLUMNS: [&str; 11] =
    ["ns/frame", "x", "allocs", "dgrams", "bytes", "again", "must", "stalls", "fps", "+-again", "+-frame"];

fn head(sites: usize) {
    println!();
    line(&format!("{sites} players"), "", COLUMNS.map(String::from));
}

fn print(row: &RollbackRow) {
    line(&label(&row.case), "coplay", cells(&row.ours, 1.0));
    line("", "ggrs", cells(&row.ggrs, row.median_time_ratio()));
    for (name, outcome) in [("coplay", &row.ours), ("ggrs", &row.ggrs)] {
        if let Some(trouble) = &outcome.error {
            println!("    {name}: {trouble}");
        }
    }
}

/// A row's conditions in short.
pub(crate) fn label(case: &BenchCase) -> String {
    let BenchCase { rtt_ms, loss_percent, input_delay: lag, prediction_window: window, .. } = case;
    format!("rtt {rtt_ms:>3} loss {loss_percent:>2} % lag {lag} window {window:>2}")
}

fn cells(outcome: &RollbackResult, times: f64) -> [String; 11] {
    [
        format!("{:.0}", outcome.median_nanos()),
        format!("{times:.1}"),
        format!("{:.2}", outcome.allocations),
        format!("{:.3}", outcome.datagrams),
        format!("{:.1}", outcome.bytes),
        format!("{:.1}", outcome.resimulated),
        format!("{:.1}", outcome.required_resimulated),
        format!("{:.2}", outcome.stalls),
        format!("{:.2}", outcome.fps),
        format!("{:.1}", outcome.spread_resimulated),
        format!("{}", outcome.spread_frames),
    ]
}

fn line(conditions: &str, engine: &str, cells: [String; 11]) {
    let widths = [10, 6, 9, 8, 8, 8, 8, 8, 7, 9, 9];
    let cells: String = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    println!("{conditions:<34}{engine:<7}{cells}");
}
