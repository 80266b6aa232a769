//! Experiments in real time: two processes of the program `coplay` play over UDP on this computer, each with a
//! simulated uplink delay.
//!
//! Both processes log the start of every frame on the system's monotonic clock, which they share.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use coplay_lab::real_run::{FrameStarts, RealRunner, RealSession};
use coplay_shell::error::{AppError, describe_io_error};
use coplay_shell::sibling_program::SiblingProgram;
use coplay_shell::signals;

use crate::coplay_program;

/// Approximate duration of an experiment in real time, in seconds.
pub(crate) const EXPECTED_SECONDS: f64 = 500.0;
/// Number of frames at the start of a session that are not measured.
const WARM_UP_FRAMES: u32 = 60;
/// Longest time for the sites to start and connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time per frame that the timeout of a session allows.
const FRAME_TIMEOUT: Duration = Duration::from_millis(100);
/// Time between two checks for the ticket, or for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runner of experiments that starts each site as a process of the program `coplay`.
pub(crate) struct ProcessRunner {
    program: SiblingProgram,
    temp_dir: PathBuf,
}

impl ProcessRunner {
    pub(crate) fn new() -> Result<Self, AppError> {
        // On a signal, the child processes are ended and the temporary files removed.
        signals::install_handler();
        let program = coplay_program::find();
        program.command().arg("--version").output().map_err(|error| program.start_error(&error))?;
        let temp_dir = std::env::temp_dir().join(format!("coplay-lab-{}", std::process::id()));
        std::fs::create_dir_all(&temp_dir).map_err(|error| {
            AppError::failure(format!("cannot create {}: {}", temp_dir.display(), describe_io_error(&error)))
                .hint("set TMPDIR to a folder with write permission")
        })?;
        Ok(Self { program, temp_dir })
    }

    /// Starts the process of one site, whose bot uses `seed`. Its output and its frame log go into files that are named
    /// after the site.
    fn start_site(
        &self,
        name: &'static str,
        seed: &str,
        session: &RealSession,
        command: &[&str],
    ) -> Result<SiteProcess, String> {
        let [log, out, err, seat] =
            ["csv", "out", "err", "seat"].map(|extension| self.temp_dir.join(format!("{name}.{extension}")));
        let file = |path: &Path| {
            File::create(path)
                .map_err(|error| format!("cannot write {}: {}", path.display(), describe_io_error(&error)))
        };
        let mut program = self.program.command();
        program.args(command).args([
            "--headless",
            "--bot",
            seed,
            "--frames",
            &(session.frames + WARM_UP_FRAMES).to_string(),
        ]);
        program.arg("--frame-log").arg(&log).arg("--seat").arg(&seat);
        program.arg("--impair").arg(format!("delay={}", session.rtt_ms / 2.0));
        program.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
        // The log of an earlier session must not be read as the log of this one.
        _ = std::fs::remove_file(&log);
        let child = program.spawn().map_err(|error| format!("cannot start a process of coplay: {error}"))?;
        Ok(SiteProcess { name, child, frame_log: log, stdout_path: out, stderr_path: err })
    }
}

impl Drop for ProcessRunner {
    fn drop(&mut self) {
        // A folder that stays does no harm.
        _ = std::fs::remove_dir_all(&self.temp_dir);
    }
}

impl RealRunner for ProcessRunner {
    fn run_session(&mut self, session: &RealSession) -> Result<FrameStarts, String> {
        let (delay, prediction) = (session.input_delay.to_string(), session.prediction_window.to_string());
        let host = ["host", "--udp", "127.0.0.1:0", "--lan", "hide", "--delay", &delay, "--prediction", &prediction];
        let mut host = self.start_site("host", "1", session, &host)?;
        let ticket = host.wait_for_ticket()?;
        let mut joiner = self.start_site("joiner", "2", session, &["join", &ticket])?;
        let until = Instant::now() + CONNECT_TIMEOUT + FRAME_TIMEOUT * session.frames;
        host.wait_for_success(until)?;
        joiner.wait_for_success(until)?;
        let (host, joiner) = (read_frame_starts(&host.frame_log)?, read_frame_starts(&joiner.frame_log)?);
        let both = (WARM_UP_FRAMES..).map_while(|frame| Some((*host.get(&frame)?, *joiner.get(&frame)?)));
        let (host, joiner): (Vec<i64>, Vec<i64>) = both.unzip();
        if host.len() < session.frames as usize / 2 {
            return Err(format!("the sites played only {} of {} frames together", host.len(), session.frames));
        }
        Ok(FrameStarts([host, joiner]))
    }
}

/// Process of one site, which is killed when this value is dropped.
struct SiteProcess {
    name: &'static str,
    child: Child,
    frame_log: PathBuf,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl SiteProcess {
    /// Waits until the host has printed its ticket, and returns the ticket. Fails after [`CONNECT_TIMEOUT`], or if the
    /// process ends without a ticket.
    fn wait_for_ticket(&mut self) -> Result<String, String> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let has_ended = self.has_ended()?;
            let output = std::fs::read_to_string(&self.stdout_path).unwrap_or_default();
            match output.split_once('\n') {
                Some((ticket, _)) => return Ok(ticket.to_owned()),
                None if has_ended || Instant::now() > until => return Err(self.error_message("printed no ticket")),
                None => poll_sleep()?,
            }
        }
    }

    /// Waits until the process ends. Fails if it ends with an error, still runs at `until`, or a signal arrives.
    fn wait_for_success(&mut self, until: Instant) -> Result<(), String> {
        while !self.has_ended()? {
            if Instant::now() > until {
                return Err(self.error_message("did not end in time; its last message"));
            }
            poll_sleep()?;
        }
        Ok(())
    }

    /// Returns whether the process has ended. Fails if it ended with an error.
    fn has_ended(&mut self) -> Result<bool, String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.error_message("failed")),
            Ok(status) => Ok(status.is_some()),
            Err(error) => Err(format!("cannot wait for the process of the {}: {error}", self.name)),
        }
    }

    /// Formats an error message in one line, with the error that the process printed.
    fn error_message(&self, problem: &str) -> String {
        let text = std::fs::read_to_string(&self.stderr_path).unwrap_or_default();
        let printed = text.lines().find_map(|line| line.strip_prefix("error: ")).or(text.lines().last());
        format!("the {} {problem}: {}", self.name, printed.unwrap_or("no error message"))
    }
}

impl Drop for SiteProcess {
    fn drop(&mut self) {
        // The process has usually ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits for [`POLL_INTERVAL`]; fails if a signal asked the program to end.
fn poll_sleep() -> Result<(), String> {
    if signals::is_stop_requested() {
        return Err("the experiment was interrupted".into());
    }
    std::thread::sleep(POLL_INTERVAL);
    Ok(())
}

/// Reads a frame log. Returns the start of each frame's first simulation, in nanoseconds of the monotonic clock.
fn read_frame_starts(log: &Path) -> Result<BTreeMap<u32, i64>, String> {
    let text = std::fs::read_to_string(log)
        .map_err(|error| format!("cannot read {}: {}", log.display(), describe_io_error(&error)))?;
    let step = |line: &str| {
        let mut fields = line.split(',');
        let (frame, start, is_resimulated) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?);
        (is_resimulated == "0").then_some((frame, start))
    };
    Ok(text.lines().skip(1).filter_map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_starts_ignore_resimulated_steps() {
        let log = std::env::temp_dir().join(format!("coplay-starts-{}.csv", std::process::id()));
        std::fs::write(
            &log,
            "frame,start_ns,resim,inputs,hash\n0,5,0,1:2,ab\n1,21,0,1:2,\n0,22,1,1:3,\n2,37,0,0:0,\nwhat\n",
        )
        .unwrap();
        let starts = read_frame_starts(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(starts, BTreeMap::from([(0, 5), (1, 21), (2, 37)]));
        assert!(read_frame_starts(&log).unwrap_err().contains("no such file"));
    }
}
