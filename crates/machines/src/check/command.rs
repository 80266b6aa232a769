//! The check as a command of a program.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::cache::Cache;
use super::progress::Progress;
use super::report::{Identity, Report};
use super::trial::{Trial, trial};
use super::{Error, Options, Subject, check_living};

/// What a person asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// As JSON, and not as a table.
    pub json: bool,
    /// Frames of the long run.
    pub frames: Option<u32>,
    /// No more seconds than about this.
    pub seconds: Option<u64>,
    /// Where reports are kept; without it, none is.
    pub cache: Option<PathBuf>,
    /// Even if there is a report, the check is made again.
    pub again: bool,
    /// Whether somebody watches who wants to know how far it is.
    pub progress: bool,
}

impl Asked {
    fn options(&self) -> Options {
        let usual = Options::default();
        let frames = self.frames.unwrap_or(usual.frames).max(1);
        let budget = self.seconds.map_or(usual.budget, Duration::from_secs);
        Options { frames, short: usual.short.min(frames), budget, ..usual }
    }

    /// A report that is kept is good for what is asked only if nothing else is wanted than usual.
    fn kept(&self, identity: &Identity) -> Option<Report> {
        let usual = self.frames.is_none() && self.seconds.is_none() && !self.again;
        self.cache.as_ref().filter(|_| usual).and_then(|folder| Cache::new(folder).get(identity))
    }
}

/// Makes the check, or finds it made, and writes the report to `out`; how far it is goes to `talk`. A program that ends with a code for
/// its user asks [`is_fit`](super::Verdict::is_fit) of the verdict.
pub fn run(asked: &Asked, subject: Subject<'_>, out: &mut dyn Write, talk: &mut dyn Write) -> Result<Report, Error> {
    let report = find_out(asked, subject, talk)?;
    let text = if asked.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Error::Write(error.to_string()))?;
    Ok(report)
}

fn find_out(asked: &Asked, subject: Subject<'_>, talk: &mut dyn Write) -> Result<Report, Error> {
    let options = asked.options();
    match trial((subject.child)(), &options) {
        Trial::Died(fault) => return Ok(Report::unopened(subject.machine, subject.game, fault)),
        Trial::Lived(key) => {
            if let Some(report) = asked.kept(&Identity::unopened(&key, "", "")) {
                // Who does not want to listen need not.
                let _ = writeln!(talk, "checked before; --again checks again");
                return Ok(report);
            }
        }
        Trial::None => {}
    }
    let mut tell = |progress: Progress| {
        if asked.progress {
            let _ = tell(talk, progress);
        }
    };
    let report = check_living(subject, &options, &mut tell)?;
    if asked.progress {
        let _ = write!(talk, "\r{:78}\r", "");
    }
    if let Some(folder) = asked.cache.as_ref().filter(|_| asked.frames.is_none()) {
        Cache::new(folder).put(&report);
    }
    Ok(report)
}

/// The standard output for ourselves alone: what anybody else in this process prints there from now on, as cores do, goes nowhere. Where
/// the system cannot do that, it is the usual one.
pub fn output() -> io::Result<Box<dyn Write>> {
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

fn tell(talk: &mut dyn Write, progress: Progress) -> io::Result<()> {
    let Progress { comparison, percent, left } = progress;
    write!(talk, "\r  {:<30}{percent:>3} %   {:>4} s left at most", comparison.name(), left.as_secs())?;
    talk.flush()
}
