//! The check as a program command, with output and cached reports.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::cache::ReportCache;
use super::progress::CheckProgress;
use super::report::{CheckReport, SubjectIdentity};
use super::smoke_test::{SmokeTestOutcome, run_smoke_test};
use super::{CheckError, CheckOptions, CheckSubject, check_after_smoke_test};

/// Options of the command that runs a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckCommandOptions {
    /// Whether to write the report as JSON instead of text.
    pub json: bool,
    /// Frames that the machine runs in total; `None` for [`CheckOptions::default`].
    pub long_run_frames: Option<u32>,
    /// Approximate time limit in seconds; `None` for [`CheckOptions::default`].
    pub max_seconds: Option<u64>,
    /// Folder of cached reports; `None` disables the cache.
    pub cache_folder: Option<PathBuf>,
    /// Whether to check even if a cached report exists.
    pub ignore_cache: bool,
    /// Whether to print progress while the check runs.
    pub show_progress: bool,
}

impl CheckCommandOptions {
    fn options(&self) -> CheckOptions {
        let default = CheckOptions::default();
        let frames = self.long_run_frames.unwrap_or(default.long_run_frames).max(1);
        let time_budget = self.max_seconds.map_or(default.time_budget, Duration::from_secs);
        CheckOptions {
            long_run_frames: frames,
            short_run_frames: default.short_run_frames.min(frames),
            time_budget,
            ..default
        }
    }

    /// Returns the cached report, if a cache folder is set, the cache is not ignored and all limits are the default
    /// ones.
    fn cached_report(&self, identity: &SubjectIdentity) -> Option<CheckReport> {
        let default = self.long_run_frames.is_none() && self.max_seconds.is_none() && !self.ignore_cache;
        self.cache_folder.as_ref().filter(|_| default).and_then(|folder| ReportCache::new(folder).get(identity))
    }
}

/// Runs the check or takes the cached report. Writes the report to `out` and progress to `progress_out`. A program can
/// derive its exit code from [`CheckVerdict::is_fit`](super::CheckVerdict::is_fit) of the verdict.
pub fn run(
    request: &CheckCommandOptions,
    subject: CheckSubject<'_>,
    out: &mut dyn Write,
    progress_out: &mut dyn Write,
) -> Result<CheckReport, CheckError> {
    let report = obtain_report(request, subject, progress_out)?;
    let text = if request.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| CheckError::Write(error.to_string()))?;
    Ok(report)
}

fn obtain_report(
    request: &CheckCommandOptions,
    subject: CheckSubject<'_>,
    progress_out: &mut dyn Write,
) -> Result<CheckReport, CheckError> {
    let options = request.options();
    match run_smoke_test((subject.child_command)(), &options) {
        SmokeTestOutcome::Crashed(fault) => {
            return Ok(CheckReport::unopened(subject.machine_name, subject.game_name, fault));
        }
        SmokeTestOutcome::Passed(key) => {
            if let Some(report) = request.cached_report(&SubjectIdentity::unopened(&key, "", "")) {
                // A failure to print is ignored.
                let _ = writeln!(progress_out, "this report is from an earlier check; use --again to repeat the check");
                return Ok(report);
            }
        }
        SmokeTestOutcome::NotStarted => {}
    }
    let mut on_progress = |progress: CheckProgress| {
        if request.show_progress {
            let _ = print_progress(progress_out, progress);
        }
    };
    let report = check_after_smoke_test(subject, &options, &mut on_progress)?;
    if request.show_progress {
        let _ = write!(progress_out, "\r{:78}\r", "");
    }
    if let Some(folder) = request.cache_folder.as_ref().filter(|_| request.long_run_frames.is_none()) {
        ReportCache::new(folder).put(&report);
    }
    Ok(report)
}

/// Returns the standard output for exclusive use: all other output of this process to it, such as that of cores, is
/// discarded from now on. On systems without support it returns the shared standard output.
pub fn exclusive_stdout() -> io::Result<Box<dyn Write>> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let own = io::stdout().as_fd().try_clone_to_owned()?;
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(null)?;
        Ok(Box::new(std::fs::File::from(own)))
    }
    #[cfg(not(unix))]
    Ok(Box::new(io::stdout()))
}

fn print_progress(progress_out: &mut dyn Write, progress: CheckProgress) -> io::Result<()> {
    let CheckProgress { comparison, percent, time_left } = progress;
    write!(
        progress_out,
        "\r  {:<30}{percent:>3} %   about {:>4} s left in total",
        comparison.name(),
        time_left.as_secs()
    )?;
    progress_out.flush()
}
