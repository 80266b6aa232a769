//! The rollback report: both engines under all conditions, row by row.

use coplay_bench::rollback::machine::STATE_BYTES;
use coplay_bench::rollback::measure::{MeasuredRun, RollbackResult, SPAN_SECONDS, WARM_UP, median};
use coplay_bench::rollback::{BenchCase, coplay_site, ggrs_site};
use coplay_bench::stopwatch::nanos_per_count;
use coplay_bench::workload::{FRAME_RATE, HASH_INTERVAL, MEAN_HOLD_FRAMES};

/// Seed of inputs, packet loss and start times.
const SEED: u64 = 1;

/// Results of both engines under the same conditions.
pub(crate) struct RollbackRow {
    pub(crate) case: BenchCase,
    pub(crate) ours: RollbackResult,
    pub(crate) ggrs: RollbackResult,
}

impl RollbackRow {
    /// Measures both engines in turns, span by span, because the speed of the computer varies.
    fn measure(case: BenchCase, spans: u32, nanos_per_count: f64) -> Self {
        let (mut ours, mut ggrs) =
            (MeasuredRun::<coplay_site::CoplaySite>::new(case), MeasuredRun::<ggrs_site::GgrsSite>::new(case));
        for _ in 0..spans {
            ours.measure_span(nanos_per_count);
            ggrs.measure_span(nanos_per_count);
        }
        Self { case, ours: ours.into_result(), ggrs: ggrs.into_result() }
    }

    /// Returns the median, over all spans, of the time in ggrs divided by the time in coplay.
    pub(crate) fn median_time_ratio(&self) -> f64 {
        median(self.ours.engine_nanos.iter().zip(&self.ggrs.engine_nanos).map(|(ours, ggrs)| ggrs / ours))
    }
}

/// Extent of the rollback report.
pub(crate) struct ReportExtent {
    /// Whether the report has fewer rows, that is, fewer combinations of RTT, packet loss and prediction window.
    pub(crate) is_quick: bool,
    /// Number of measured spans per row and engine.
    pub(crate) spans: u32,
}

/// Measures, prints and returns all rows.
pub(crate) fn measure_and_print(sites: &[usize], plan: &ReportExtent) -> Vec<RollbackRow> {
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
    rows
}

/// Returns the conditions of all rows. The last row of two sites has an input delay that, together with the prediction
/// window, covers the one-way delay of the longest RTT.
fn cases(sites: &[usize], quick: bool) -> Vec<BenchCase> {
    let (windows, rtts, losses): (&[u32], &[u32], &[u32]) = match quick {
        true => (&[8], &[0, 200, 400], &[0, 20]),
        false => (&[8, 16], &[0, 100, 200, 300, 400], &[0, 5, 20]),
    };
    let mut cases = Vec::new();
    for &sites in sites {
        let case = |rtt_ms, loss_percent, input_delay, prediction_window| BenchCase {
            sites,
            rtt_ms,
            loss_percent,
            input_delay,
            prediction_window,
            seed: SEED,
        };
        for &window in windows {
            for &rtt_ms in rtts {
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
    println!("Cost of rollback: every site plays with all others, in virtual time, over links with delay and loss.");
    println!("Inputs of 2 bytes, held for {MEAN_HOLD_FRAMES} frames on average; states of {STATE_BYTES} bytes;");
    println!("{FRAME_RATE} frames per second.");
    println!(
        "Clocks are exact; sites start at random times. Both engines have the same inputs, links and start times."
    );
    println!("{seconds} virtual seconds after a warm-up of {warm} s; then all states are checked against the inputs.");
    println!();
    println!(
        "Only time inside the engine counts: the stopwatch is stopped while states are copied and frames stepped."
    );
    println!(
        "Calls of about 1 ms or more are left out, because the thread was preempted. Then the actions of the host"
    );
    println!("programs are replayed without an engine, with the same queues and as many starts and stops of the");
    println!(
        "stopwatch; their cost is subtracted. The engines take turns of {SPAN_SECONDS} virtual seconds; medians are compared."
    );
    println!(
        "ggrs reads a virtual clock, too, which is cheaper than a real one. coplay is woken by every datagram and"
    );
    println!("compares states every {HASH_INTERVAL} frames; ggrs is called once per tick and compares none.");
    println!();
    println!("  ns/frame   nanoseconds in the engine per frame and site; every frame is confirmed in the end");
    println!("  x          ns/frame divided by that of coplay; median over the turns");
    println!("  allocs     allocations in the engine per tick (a sixtieth of a second) and site");
    println!(
        "  dgrams     datagrams per tick and link (from one site to another)\n  bytes      payload bytes per tick and link"
    );
    println!("  resim      resimulated frames per 100 frames");
    println!("  min        minimum of resim for any engine: frames stepped with predictions that proved wrong");
    println!("  stalls     ticks without a frame, per 100 ticks\n  fps        frames per virtual second");
    println!(
        "  +-resim    difference in resim between the sites with the most and the fewest\n  +-frame    difference in stepped frames between the foremost and the last site at the end"
    );
}

const COLUMNS: [&str; 11] =
    ["ns/frame", "x", "allocs", "dgrams", "bytes", "resim", "min", "stalls", "fps", "+-resim", "+-frame"];

fn head(sites: usize) {
    println!();
    line(&format!("{sites} players"), "", COLUMNS.map(String::from));
}

fn print(row: &RollbackRow) {
    line(&label(&row.case), "coplay", cells(&row.ours, 1.0));
    line("", "ggrs", cells(&row.ggrs, row.median_time_ratio()));
    for (name, result) in [("coplay", &row.ours), ("ggrs", &row.ggrs)] {
        if let Some(error) = &result.error {
            println!("    {name}: {error}");
        }
    }
}

/// Formats the conditions of a row, except the number of sites.
pub(crate) fn label(case: &BenchCase) -> String {
    let BenchCase { rtt_ms, loss_percent, input_delay, prediction_window, .. } = case;
    format!("rtt {rtt_ms:>3} loss {loss_percent:>2} % delay {input_delay} window {prediction_window:>2}")
}

fn cells(result: &RollbackResult, times: f64) -> [String; 11] {
    [
        format!("{:.0}", result.median_nanos()),
        format!("{times:.1}"),
        format!("{:.2}", result.allocations),
        format!("{:.3}", result.datagrams),
        format!("{:.1}", result.bytes),
        format!("{:.1}", result.resimulated),
        format!("{:.1}", result.required_resimulated),
        format!("{:.2}", result.stalls),
        format!("{:.2}", result.fps),
        format!("{:.1}", result.spread_resimulated),
        format!("{}", result.spread_frames),
    ]
}

fn line(conditions: &str, engine: &str, cells: [String; 11]) {
    let widths = [10, 6, 9, 8, 8, 8, 8, 8, 7, 9, 9];
    let cells: String = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    println!("{conditions:<36}{engine:<7}{cells}");
}
