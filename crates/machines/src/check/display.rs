//! Formats a report as text.

use std::fmt;

use coplay::time::TimeDelta;

use super::digest::RegionMismatch;
use super::measure::TimingPercentiles;
use super::report::{COMFORTABLE_INPUT_DELAY, CheckReport, SubjectIdentity};
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchedOutput, StateMismatch};

/// Round trips for which the report shows an input delay, in milliseconds: within a town, a country, and across an
/// ocean.
const EXAMPLE_ROUND_TRIPS_MS: [i64; 3] = [30, 80, 150];

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.identity)?;
        writeln!(f, "  {:<30}{}", self.verdict.name(), self.verdict)?;
        self.fmt_comparisons(f)?;
        self.fmt_costs(f)?;
        self.fmt_delay_settings(f)?;
        if !self.cut_short.is_empty() {
            let names: Vec<&str> = self.cut_short.iter().map(|comparison| comparison.name()).collect();
            writeln!(f, "\n  comparisons cut short by the time limit: {}", names.join(", "))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "\n  note: {note}"))
    }
}

impl fmt::Display for SubjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { game, machine, version, players, platform, .. } = self;
        if self.period_ns == 0 {
            return write!(f, "{game} on {machine} ({platform})");
        }
        let rate = 1e9 / self.period_ns as f64;
        let noun = if *players == 1 { "pad" } else { "pads" };
        write!(f, "{game} on {machine} {version} ({rate:.2} fps, {players} {noun}, {platform})")
    }
}

impl CheckReport {
    fn fmt_comparisons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faulty_comparison = self.verdict.fault().and_then(MachineFault::comparison);
        if faulty_comparison == Some(CheckComparison::SmokeTest) {
            return Ok(());
        }
        writeln!(f)?;
        let failed = matches!(self.verdict.fault(), Some(MachineFault::Failed { .. }));
        // The smoke test compares nothing.
        for comparison in
            CheckComparison::ALL.into_iter().filter(|comparison| *comparison != CheckComparison::SmokeTest)
        {
            let frames =
                self.compared.iter().find(|compared| compared.comparison == comparison).map_or(0, |it| it.frames);
            let outcome = match frames {
                _ if faulty_comparison == Some(comparison) && failed => "failed",
                _ if faulty_comparison == Some(comparison) => "differs",
                0 => "not compared",
                _ => "equal",
            };
            writeln!(f, "  {:<30}{frames:>7} frames   {outcome}", comparison.name())?;
        }
        Ok(())
    }

    fn fmt_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("step, rendered", self.measured.step_rendered),
            ("step, not rendered", self.measured.step_headless),
            ("save", self.measured.save),
            ("load", self.measured.load),
            ("hash", self.measured.hash),
        ];
        let rows: Vec<_> = rows.into_iter().filter(|(_, timing)| timing.p95_ns > 0).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n  {:<30}{:>11} {:>11} {:>11}", "time per call, percentiles", "10 %", "median", "95 %")?;
        for (operation, timing) in rows {
            let TimingPercentiles { p10_ns, median_ns, p95_ns } = timing;
            let [p10, median, p95] = [p10_ns, median_ns, p95_ns].map(|ns| DisplayNanos(ns).to_string());
            writeln!(f, "  {operation:<30}{p10:>11} {median:>11} {p95:>11}")?;
        }
        if self.measured.state_bytes > 0 {
            writeln!(f, "  {:<30}{:>11}", "state", format!("{} bytes", self.measured.state_bytes))?;
        }
        Ok(())
    }

    /// Writes the prediction window if it is above 0, and the input delay that lockstep needs for some round trips.
    /// Writes nothing for an unfit machine.
    fn fmt_delay_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.verdict.is_fit() {
            return Ok(());
        }
        writeln!(f)?;
        if self.prediction_window > 0 {
            let max_rtt_ms = self.max_round_trip().as_millis_f64();
            let window = format!("prediction window {} frames", self.prediction_window);
            writeln!(
                f,
                "  {window:<30}a rollback of this length takes at most 80 % of a frame period; without jitter and loss, no stalls up to RTT {max_rtt_ms:.0} ms with input delay {COMFORTABLE_INPUT_DELAY} frames"
            )?;
        }
        let delays = EXAMPLE_ROUND_TRIPS_MS
            .map(|ms| format!("{} frames for RTT {ms} ms", self.lockstep_input_delay(TimeDelta::from_millis(ms))));
        writeln!(f, "  {:<30}{}", "input delay in lockstep", delays.join(", "))
    }
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rollback => write!(f, "deterministic, with exact save states"),
            Self::Lockstep { reason } => write!(f, "deterministic, but {reason}"),
            Self::Unfit { fault: fault @ MachineFault::Failed { .. } } => write!(f, "the machine failed: {fault}"),
            Self::Unfit { fault: fault @ MachineFault::UnstableIdentity { .. } } => {
                write!(f, "sites could refuse each other: {fault}")
            }
            Self::Unfit { fault } => write!(f, "sites could desync: {fault}"),
        }
    }
}

impl fmt::Display for LockstepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotSave => write!(f, "the machine cannot save its state"),
            Self::InexactStates { fault } => write!(f, "rollback does not work: {fault}"),
            Self::TooSlow { rollback_ns, period_ns } => {
                let (rollback, period) = (DisplayNanos(*rollback_ns), DisplayNanos(*period_ns));
                write!(
                    f,
                    "rolling back one frame takes {rollback} on this computer, more than 80 % of the frame period of {period}"
                )
            }
        }
    }
}

impl MachineFault {
    /// Returns the comparison in which the fault was found; `None` for a constant hash, which no single comparison
    /// reveals.
    pub fn comparison(&self) -> Option<CheckComparison> {
        match self {
            Self::Mismatch(mismatch) => Some(mismatch.comparison),
            Self::Failed { comparison, .. } | Self::UnstableIdentity { comparison } => Some(*comparison),
            Self::ConstantHash => None,
        }
    }
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(mismatch) => mismatch.fmt(f),
            Self::Failed { comparison, frame, reason } => {
                write!(f, "{}, frame {frame}: {reason}", comparison.name())
            }
            Self::UnstableIdentity { comparison } => {
                write!(
                    f,
                    "{}: opened twice, the machine differed in version, options, first frames, frame rate or pads",
                    comparison.name()
                )
            }
            Self::ConstantHash => write!(f, "the state hash never changes, so nothing can be compared"),
        }
    }
}

impl fmt::Display for StateMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.comparison.name())?;
        match self.mismatch_kind {
            MismatchedOutput::State => write!(f, "the state differs ")?,
            MismatchedOutput::Picture => write!(f, "the picture differs ")?,
        }
        match self.frame {
            Some(frame) => write!(f, "from frame {frame} on")?,
            None => write!(f, "before the first frame")?,
        }
        if let Some(loaded) = self.loaded_frame {
            write!(f, ", after loading the state before frame {loaded}")?;
        }
        for (at, region) in self.regions.iter().enumerate() {
            write!(f, "{} {region}", if at == 0 { ", in" } else { " and" })?;
        }
        Ok(())
    }
}

impl fmt::Display for RegionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: Vec<String> = self.page_offsets.iter().map(|at| format!("{at:#x}")).collect();
        let more = if self.mismatched_pages > pages.len() {
            format!(" and {} more", self.mismatched_pages - pages.len())
        } else {
            String::new()
        };
        write!(f, "{} (pages at {}{more})", self.name, pages.join(", "))
    }
}

/// Duration in nanoseconds, displayed in ns, µs or ms.
struct DisplayNanos(u64);

impl fmt::Display for DisplayNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{ns:.0} ns"),
            1_000..100_000 => write!(f, "{:.1} µs", ns / 1e3),
            100_000..1_000_000 => write!(f, "{:.0} µs", ns / 1e3),
            _ => write!(f, "{:.2} ms", ns / 1e6),
        }
    }
}
