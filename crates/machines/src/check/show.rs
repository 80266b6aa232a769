//! A report as people read it.

use std::fmt;

use coplay::time::TimeDelta;

use super::digest::RegionDifference;
use super::measure::Timing;
use super::report::{COMFORT, Identity, Report};
use super::verdict::{Comparison, Difference, Fault, Reason, Seen, Verdict};

/// Round trips for which a lag is told, in milliseconds: a town, a country, an ocean.
const ROUND_TRIPS: [i64; 3] = [30, 80, 150];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.identity)?;
        writeln!(f, "  {:<30}{}", self.verdict.name(), self.verdict)?;
        self.compared(f)?;
        self.costs(f)?;
        self.dials(f)?;
        if !self.cut_short.is_empty() {
            let names: Vec<&str> = self.cut_short.iter().map(|comparison| comparison.name()).collect();
            writeln!(f, "\n  cut short for want of time: {}", names.join(", "))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "\n  note: {note}"))
    }
}

impl fmt::Display for Identity {
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

impl Report {
    fn compared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_fault = self.verdict.fault().and_then(Fault::comparison);
        if at_fault == Some(Comparison::Alone) {
            return Ok(());
        }
        writeln!(f)?;
        let failed = matches!(self.verdict.fault(), Some(Fault::Failed { .. }));
        // Nothing is compared with one that is alone.
        for comparison in Comparison::ALL.into_iter().filter(|comparison| *comparison != Comparison::Alone) {
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

    fn costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("step, seen", self.measured.fresh),
            ("step, unseen", self.measured.unseen),
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
            let Timing { p10_ns, median_ns, p95_ns } = timing;
            let [best, median, most] = [p10_ns, median_ns, p95_ns].map(|ns| Time(ns).to_string());
            writeln!(f, "  {what:<30}{best:>11} {median:>11} {most:>11}")?;
        }
        if self.measured.state_bytes > 0 {
            writeln!(f, "  {:<30}{:>11}", "state", format!("{} bytes", self.measured.state_bytes))?;
        }
        Ok(())
    }

    /// What lag and window it allows.
    fn dials(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.verdict.is_fit() {
            return Ok(());
        }
        writeln!(f)?;
        if self.window > 0 {
            let reach = self.reach().as_millis_f64();
            let window = format!("window {}", self.window);
            writeln!(
                f,
                "  {window:<30}frames can be repaired within one; with lag {COMFORT} for a round trip of {reach:.0} ms"
            )?;
        }
        let lags = ROUND_TRIPS.map(|ms| format!("{} for {ms} ms", self.lockstep_lag(TimeDelta::from_millis(ms))));
        writeln!(f, "  {:<30}{} of round trip", "lag in lockstep", lags.join(", "))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rollback => write!(f, "it is deterministic, and its states are exact"),
            Self::Lockstep { reason } => write!(f, "it is deterministic, but {reason}"),
            Self::Unfit { fault: fault @ Fault::Failed { .. } } => write!(f, "nobody can rely on it: {fault}"),
            Self::Unfit { fault } => write!(f, "sites would play different games: {fault}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotSave => write!(f, "it cannot save its state"),
            Self::States { fault } => write!(f, "its states are not exact: {fault}"),
            Self::TooSlow { repair_ns, period_ns } => {
                let (repair, period) = (Time(*repair_ns), Time(*period_ns));
                write!(f, "to repair one frame takes {repair} here, too much of the {period} that a frame has")
            }
        }
    }
}

impl Fault {
    /// In which comparison it was found.
    pub fn comparison(&self) -> Option<Comparison> {
        match self {
            Self::Differs(difference) => Some(difference.comparison),
            Self::Failed { comparison, .. } | Self::Identity { comparison } => Some(*comparison),
            Self::Blind => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(difference) => difference.fmt(f),
            Self::Failed { comparison, frame, why } => {
                write!(f, "{}, it failed at frame {frame}: {why}", comparison.name())
            }
            Self::Identity { comparison } => {
                write!(f, "{}, its first frames are not the same each time that it is opened", comparison.name())
            }
            Self::Blind => write!(f, "the hash of its state never changes, so that nothing can be compared"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.comparison.name())?;
        match self.seen {
            Seen::State => write!(f, "it differs ")?,
            Seen::Picture => write!(f, "its picture differs ")?,
        }
        match self.frame {
            Some(frame) => write!(f, "from frame {frame} on")?,
            None => write!(f, "before the first frame")?,
        }
        if let Some(loaded) = self.loaded {
            write!(f, ", with a state from before frame {loaded}")?;
        }
        for (at, region) in self.regions.iter().enumerate() {
            write!(f, "{} {region}", if at == 0 { ", in" } else { " and" })?;
        }
        Ok(())
    }
}

impl fmt::Display for RegionDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: Vec<String> = self.pages_at.iter().map(|at| format!("{at:#x}")).collect();
        let more = if self.pages > pages.len() {
            format!(" and {} pages more", self.pages - pages.len())
        } else {
            String::new()
        };
        write!(f, "{} (at {}{more})", self.name, pages.join(", "))
    }
}

/// A time in the unit that suits it.
struct Time(u64);

impl fmt::Display for Time {
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
