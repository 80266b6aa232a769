//! The check as a command of a program.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::cache::ReportCache;
use super::progress::CheckProgress;
use super::report::{CheckReport, SubjectIdentity};
use super::smoke_test::{SmokeTestOutcome, run_smoke_test};
use super::{CheckError, CheckOptions, CheckSubject, check_after_smoke_test};

/// What a person asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckRequest {
    /// As JSON, and not as a table.
    pub json: bool,
    /// Frames of the long run.
    pub long_run_frames: Option<u32>,
    /// No more seconds than about this.
    pub max_seconds: Option<u64>,
    /// Where reports are kept; without it, none is.
    pub cache_folder: Option<PathBuf>,
    /// Even if there is a report, the check is made again.
    pub ignore_cache: bool,
    /// Whether somebody watches who wants to know how far it is.
    pub show_progress: bool,
}

impl CheckRequest {
    fn options(&self) -> CheckOptions {
        let usual = CheckOptions::default();
        let frames = self.long_run_frames.unwrap_or(usual.long_run_frames).max(1);
        let budget = self.max_seconds.map_or(usual.time_budget, Duration::from_secs);
        CheckOptions {
            long_run_frames: frames,
            short_run_frames: usual.short_run_frames.min(frames),
            time_budget: budget,
            ..usual
        }
    }

    /// A report that is kept is good for what is asked only if nothing else is wanted than usual.
    fn cached_report(&self, identity: &SubjectIdentity) -> Option<CheckReport> {
        let usual = self.long_run_frames.is_none() && self.max_seconds.is_none() && !self.ignore_cache;
        self.cache_folder.as_ref().filter(|_| usual).and_then(|folder| ReportCache::new(folder).get(identity))
    }
}

/// Makes the check, or finds it made, and writes the report to `out`; how far it is goes to `talk`. A program that ends with a code for
/// its user asks [`is_fit`](super::CheckVerdict::assert_core_is_fit) of the verdict.
pub fn run(
    asked: &CheckRequest,
    subject: CheckSubject<'_>,
    out: &mut dyn Write,
    talk: &mut dyn Write,
) -> Result<CheckReport, CheckError> {
    let report = obtain_report(asked, subject, talk)?;
    let text = if asked.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| CheckError::Write(error.to_string()))?;
    Ok(report)
}

fn obtain_report(
    asked: &CheckRequest,
    subject: CheckSubject<'_>,
    talk: &mut dyn Write,
) -> Result<CheckReport, CheckError> {
    let options = asked.options();
    match run_smoke_test((subject.child_command)(), &options) {
        SmokeTestOutcome::Crashed(fault) => {
            return Ok(CheckReport::unopened(subject.machine_name, subject.game_name, fault));
        }
        SmokeTestOutcome::Passed(key) => {
            if let Some(report) = asked.cached_report(&SubjectIdentity::unopened(&key, "", "")) {
                // Who does not want to listen need not.
                let _ = writeln!(talk, "checked before; --again checks again");
                return Ok(report);
            }
        }
        SmokeTestOutcome::NotStarted => {}
    }
    let mut tell = |progress: CheckProgress| {
        if asked.show_progress {
            let _ = print_progress(talk, progress);
        }
    };
    let report = check_after_smoke_test(subject, &options, &mut tell)?;
    if asked.show_progress {
        let _ = write!(talk, "\r{:78}\r", "");
    }
    if let Some(folder) = asked.cache_folder.as_ref().filter(|_| asked.long_run_frames.is_none()) {
        ReportCache::new(folder).put(&report);
    }
    Ok(report)
}

/// The standard output for ourselves alone: what anybody else in this process prints there from now on, as cores do, goes nowhere. Where
/// the system cannot do that, it is the usual one.
pub fn exclusive_stdout() -> io::Result<Box<dyn Write>> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let own = io::stdout().as_fd().try_clone_to_owned()?;
        let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(nowhere)?;
        Ok(Box::new(std::fs::File::from(own)))
    }
    #[cfg(not(unix))]
    Ok(Box::new(io::stdout()))
}

fn print_progress(talk: &mut dyn Write, progress: CheckProgress) -> io::Result<()> {
    let CheckProgress { comparison, percent, time_left: left } = progress;
    write!(talk, "\r  {:<30}{percent:>3} %   {:>4} s left at most", comparison.name(), left.as_secs())?;
    talk.flush()
}
