//! A report as people read it.

use std::fmt;

use coplay::time::TimeDelta;

use super::digest::RegionMismatch;
use super::measure::TimingPercentiles;
use super::report::{COMFORTABLE_INPUT_DELAY, CheckReport, SubjectIdentity};
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchKind, StateMismatch};

/// Round trips for which a lag is told, in milliseconds: a town, a country, an ocean.
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
            writeln!(f, "\n  cut short for want of time: {}", names.join(", "))?;
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
        let many = if *players == 1 { "player" } else { "players" };
        write!(f, "{game} on {machine} {version} ({rate:.2} fps, {players} {many}, {platform})")
    }
}

impl CheckReport {
    fn fmt_comparisons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_fault = self.verdict.fault().and_then(MachineFault::comparison);
        if at_fault == Some(CheckComparison::SmokeTest) {
            return Ok(());
        }
        writeln!(f)?;
        let failed = matches!(self.verdict.fault(), Some(MachineFault::Failed { .. }));
        // Nothing is compared with one that is alone.
        for comparison in
            CheckComparison::ALL.into_iter().filter(|comparison| *comparison != CheckComparison::SmokeTest)
        {
            let frames =
                self.compared.iter().find(|compared| compared.comparison == comparison).map_or(0, |it| it.frames);
            let outcome = match frames {
                _ if at_fault == Some(comparison) && failed => "failed",
                _ if at_fault == Some(comparison) => "differs",
                0 => "not compared",
                _ => "equal",
            };
            writeln!(f, "  {:<30}{frames:>7} frames   {outcome}", comparison.name())?;
        }
        Ok(())
    }

    fn fmt_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("step, seen", self.measured.step_rendered),
            ("step, unseen", self.measured.step_headless),
            ("save", self.measured.save),
            ("load", self.measured.load),
            ("hash", self.measured.hash),
        ];
        let rows: Vec<_> = rows.into_iter().filter(|(_, timing)| timing.p95_ns > 0).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n  {:<30}{:>11} {:>11} {:>11}", "", "10 %", "median", "95 %")?;
        for (what, timing) in rows {
            let TimingPercentiles { p10_ns, median_ns, p95_ns } = timing;
            let [best, median, most] = [p10_ns, median_ns, p95_ns].map(|ns| DisplayNanos(ns).to_string());
            writeln!(f, "  {what:<30}{best:>11} {median:>11} {most:>11}")?;
        }
        if self.measured.state_bytes > 0 {
            writeln!(f, "  {:<30}{:>11}", "state", format!("{} bytes", self.measured.state_bytes))?;
        }
        Ok(())
    }

    /// What lag and window it allows.
    fn fmt_delay_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.verdict.is_fit() {
            return Ok(());
        }
        writeln!(f)?;
        if self.prediction_window > 0 {
            let reach = self.max_round_trip().as_millis_f64();
            let window = format!("window {}", self.prediction_window);
            writeln!(
                f,
                "  {window:<30}frames can be repaired within one; with lag {COMFORTABLE_INPUT_DELAY} for a round trip of {reach:.0} ms"
            )?;
        }
        let lags = EXAMPLE_ROUND_TRIPS_MS
            .map(|ms| format!("{} for {ms} ms", self.lockstep_input_delay(TimeDelta::from_millis(ms))));
        writeln!(f, "  {:<30}{} of round trip", "lag in lockstep", lags.join(", "))
    }
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rollback => write!(f, "it is deterministic, and its states are exact"),
            Self::Lockstep { reason } => write!(f, "it is deterministic, but {reason}"),
            Self::Unfit { fault: fault @ MachineFault::Failed { .. } } => write!(f, "nobody can rely on it: {fault}"),
            Self::Unfit { fault } => write!(f, "sites would play different games: {fault}"),
        }
    }
}

impl fmt::Display for LockstepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotSave => write!(f, "it cannot save its state"),
            Self::InexactStates { fault } => write!(f, "its states are not exact: {fault}"),
            Self::TooSlow { rollback_ns: repair_ns, period_ns } => {
                let (repair, period) = (DisplayNanos(*repair_ns), DisplayNanos(*period_ns));
                write!(f, "to repair one frame takes {repair} here, too much of the {period} that a frame has")
            }
        }
    }
}

impl MachineFault {
    /// In which comparison it was found.
    pub fn comparison(&self) -> Option<CheckComparison> {
        match self {
            Self::Mismatch(difference) => Some(difference.comparison),
            Self::Failed { comparison, .. } | Self::UnstableIdentity { comparison } => Some(*comparison),
            Self::ConstantHash => None,
        }
    }
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(difference) => difference.fmt(f),
            Self::Failed { comparison, frame, reason: why } => {
                write!(f, "{}, it failed at frame {frame}: {why}", comparison.name())
            }
            Self::UnstableIdentity { comparison } => {
                write!(f, "{}, its first frames are not the same each time that it is opened", comparison.name())
            }
            Self::ConstantHash => write!(f, "the hash of its state never changes, so that nothing can be compared"),
        }
    }
}

impl fmt::Display for StateMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.comparison.name())?;
        match self.mismatch_kind {
            MismatchKind::State => write!(f, "it differs ")?,
            MismatchKind::Picture => write!(f, "its picture differs ")?,
        }
        match self.frame {
            Some(frame) => write!(f, "from frame {frame} on")?,
            None => write!(f, "before the first frame")?,
        }
        if let Some(loaded) = self.loaded_frame {
            write!(f, ", with a state from before frame {loaded}")?;
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
            format!(" and {} pages more", self.mismatched_pages - pages.len())
        } else {
            String::new()
        };
        write!(f, "{} (at {}{more})", self.name, pages.join(", "))
    }
}

/// A time in the unit that suits it.
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
