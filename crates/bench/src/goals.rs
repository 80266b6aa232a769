//! Goals for coplay in the rows of the rollback report.

use coplay_bench::workload::FRAME_RATE;

use crate::rollback_report::{RollbackRow, label};

/// Amount, in frames per second, by which coplay's frame rate may fall short of its goal.
const FPS_SLACK: f64 = 0.05;
/// Difference, in frames per second, up to which both engines count as equally fast, so that coplay is compared with
/// the resimulated frames of ggrs.
const FPS_EQUAL_TOLERANCE: f64 = 0.5;
/// Maximum ratio of coplay's resimulated frames to the number that [`allowed_resimulated`] returns.
const RESIMULATION_SLACK: f64 = 1.05;

/// A condition that coplay's results in a row of the rollback report should meet, such as at most a quarter of ggrs's
/// bytes.
struct Goal {
    name: &'static str,
    /// Whether a row meets the goal; `None` if the goal does not apply to the row.
    met: fn(&RollbackRow) -> Option<bool>,
    /// Formats the measured values of a row that does not meet the goal.
    shown: fn(&RollbackRow) -> String,
}

const GOALS: [Goal; 7] = [
    Goal {
        name: "at most an eighth of ggrs's time per frame",
        met: |row| Some(row.median_time_ratio() >= 8.0),
        shown: |row| {
            format!(
                "1/{:.1} ({:.0} of {:.0} ns)",
                row.median_time_ratio(),
                row.ours.median_nanos(),
                row.ggrs.median_nanos()
            )
        },
    },
    Goal {
        name: "no allocation in the engine",
        met: |row| Some(row.ours.allocations == 0.0),
        shown: |row| format!("{:.4} per tick and site", row.ours.allocations),
    },
    Goal {
        name: "at most a quarter of ggrs's bytes",
        met: |row| Some(row.ours.bytes * 4.0 <= row.ggrs.bytes),
        shown: |row| format!("{:.1} of {:.1} bytes per tick and link", row.ours.bytes, row.ggrs.bytes),
    },
    Goal {
        name: "at most one datagram per tick and link",
        met: |row| Some(row.ours.datagrams <= 1.01),
        shown: |row| {
            let per_frame = row.ours.datagrams * f64::from(FRAME_RATE) / row.ours.fps;
            format!("{:.3} per tick ({per_frame:.3} per frame)", row.ours.datagrams)
        },
    },
    Goal {
        name: "as many frames per second as ggrs",
        met: |row| Some(row.ours.fps >= row.ggrs.fps - FPS_SLACK),
        shown: |row| format!("{:.2}, ggrs {:.2}", row.ours.fps, row.ggrs.fps),
    },
    Goal {
        name: "at most 5 % more resimulated frames than ggrs if equally fast, otherwise than any engine needs",
        met: |row| Some(row.ours.resimulated <= RESIMULATION_SLACK * allowed_resimulated(row)),
        shown: |row| {
            let (ours, ggrs) = (&row.ours, &row.ggrs);
            format!(
                "{:.2} per 100 frames, ggrs {:.2}, needed by any engine {:.2}",
                ours.resimulated, ggrs.resimulated, ours.required_resimulated
            )
        },
    },
    Goal {
        name: "full speed at an RTT of 400 ms with input delay 8 and prediction window 8",
        met: |row| (row.case.input_delay == 8).then(|| row.ours.fps >= f64::from(FRAME_RATE) - FPS_SLACK),
        shown: |row| format!("{:.2} frames per second", row.ours.fps),
    },
];

/// Returns the number of frames that coplay should resimulate at most, per 100 frames: as many as ggrs if both engines
/// are about equally fast, otherwise the minimum that any engine needs.
fn allowed_resimulated(row: &RollbackRow) -> f64 {
    let alike = (row.ours.fps - row.ggrs.fps).abs() <= FPS_EQUAL_TOLERANCE;
    if alike { row.ggrs.resimulated } else { row.ours.required_resimulated }
}

/// Prints how many rows meet each goal, and the rows that do not. A row with an error of coplay meets no goal.
pub(crate) fn print(rows: &[RollbackRow]) {
    println!();
    for goal in &GOALS {
        let asked = || rows.iter().filter_map(|row| (goal.met)(row).map(|met| (row, met && row.ours.error.is_none())));
        let met = asked().filter(|(_, met)| *met).count();
        println!("{:>3} of {:>2} rows: {}", met, asked().count(), goal.name);
        for (row, _) in asked().filter(|(_, met)| !met) {
            println!("              {} players, {}: {}", row.case.sites, label(&row.case), (goal.shown)(row));
        }
    }
}
