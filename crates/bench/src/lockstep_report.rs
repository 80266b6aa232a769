//! Prints the lockstep report on standard output.

use coplay_bench::workload::{FRAME_RATE, HASH_INTERVAL, INPUT_DELAY, MEAN_HOLD_FRAMES};

use crate::lockstep_measure::{LockstepRow, MeasuredEngine, WARM_UP_FRAMES};

/// Prints an explanation of the measurement and of the columns.
pub(crate) fn preface(frames: u32, rounds: usize) {
    println!("Cost of a frame at one site, without a game; all sites in one thread, no delay between them.");
    println!("Inputs of 2 bytes, held for {MEAN_HOLD_FRAMES} frames on average; input delay {INPUT_DELAY};");
    println!("{FRAME_RATE} frames per virtual second.");
    println!(
        "{frames} frames after a warm-up of {WARM_UP_FRAMES}; medians of {rounds} rounds; the engines take turns."
    );
    println!("coplay compares states every {HASH_INTERVAL} frames; ggrs in lockstep mode (max_prediction 0) cannot.");
    println!();
    for subject in MeasuredEngine::ALL {
        println!("  {:<15} {}", subject.name(), subject.about());
    }
    println!();
    println!(
        "  ns      nanoseconds per frame and site, median and (min-max) of the rounds\n          (instructions and allocations are per frame and site, too)\n  engine  cost without that of the driver"
    );
    println!("  x       engine cost divided by that of coplay");
    println!("  /link   per frame and direction between two sites; payload bytes only");
}

/// Prints the table for sessions of `sites` sites.
pub(crate) fn table(sites: usize, rows: &[LockstepRow]) {
    let columns = [
        "ns",
        "(min-max)",
        "engine",
        "x",
        "instructions",
        "engine",
        "x",
        "allocations",
        "bytes/link",
        "datagrams/link",
    ];
    println!();
    line(&format!("{sites} sites"), columns.map(String::from));
    for row in rows {
        line(row.subject.name(), cells(row, &rows[0], &rows[1]));
    }
}

fn cells(row: &LockstepRow, driver: &LockstepRow, ours: &LockstepRow) -> [String; 10] {
    let nanos = |row: &LockstepRow| row.median_nanos() - driver.median_nanos();
    let instructions = |row: &LockstepRow| row.instructions.zip(driver.instructions).map(|(all, driver)| all - driver);
    let format_count = |count: Option<f64>| count.map_or("-".into(), |count| format!("{count:.0}"));
    let more_instructions =
        instructions(row).zip(instructions(ours)).map_or("-".into(), |(one, ours)| times(one, ours));
    let bytes = if row.bytes_per_link > 0.0 { format!("{:.1}", row.bytes_per_link) } else { "-".into() };
    [
        format!("{:.0}", row.median_nanos()),
        format!("({:.0}-{:.0})", row.nanos[0], row.nanos[row.nanos.len() - 1]),
        format!("{:.0}", nanos(row)),
        times(nanos(row), nanos(ours)),
        format_count(row.instructions),
        format_count(instructions(row)),
        more_instructions,
        format!("{:.2}", row.allocations),
        bytes,
        format!("{:.2}", row.datagrams_per_link),
    ]
}

fn times(cost: f64, ours: f64) -> String {
    format!("{:.1}", cost / ours)
}

fn line(name: &str, cells: [String; 10]) {
    let widths = [7, 15, 8, 6, 14, 8, 6, 13, 12, 16];
    let cells: String = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
    println!("{name:<15}{cells}");
}
