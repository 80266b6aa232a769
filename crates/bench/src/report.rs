//! The tables.

use crate::measure::{Row, Subject, WARM_UP};
use coplay_bench::work::{COMPARE_EVERY, LAG, RATE};

/// Says what the numbers mean.
pub(crate) fn preface(frames: u32, rounds: usize) {
    println!("{frames} frames, median of {rounds} rounds");
    let _ = (WARM_UP, COMPARE_EVERY, LAG, RATE);
}

/// One table for so many sites.
pub(crate) fn table(sites: usize, rows: &[Row]) {
    let base = &rows[0];
    println!("\n{sites} sites");
    for row in rows {
        println!(
            "{:24} {:9.1} ({:9.1}-{:9.1}) {:6.1}x {:10.0} {:6.1}x {:8.2} {:8.2} {:6.3}",
            row.subject.name(),
            row.median_nanos(),
            row.nanos[0],
            row.nanos[row.nanos.len() - 1],
            row.median_nanos() / base.median_nanos(),
            row.instructions.unwrap_or(f64::NAN),
            row.instructions.unwrap_or(f64::NAN) / base.instructions.unwrap_or(f64::NAN),
            row.allocations,
            row.bytes_per_link,
            row.datagrams_per_link
        );
    }
    let _ = Subject::ALL;
}
