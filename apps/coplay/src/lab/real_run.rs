//! The field: two processes of this very program, playing over UDP on this computer, each with a way out that is made longer.
//!
//! Both write down when they began each frame, on the system's clock that never goes back, which is the same for both.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coplay_lab::real_run::{FrameStarts, RealRunner, RealSession};

use crate::error::{AppError, describe_io_error};

/// About how long an experiment in the field takes.
pub(super) const EXPECTED_SECONDS: f64 = 500.0;
/// Frames at the beginning that do not count.
const WARM_UP_FRAMES: u32 = 60;
/// Nothing takes longer: to meet, and for each frame.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const FRAME_TIMEOUT: Duration = Duration::from_millis(100);
/// Processes are looked at this often.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the program.
pub(super) struct ProcessRunner {
    program: PathBuf,
    temp_dir: PathBuf,
}

impl ProcessRunner {
    pub(super) fn new() -> Result<Self, AppError> {
        // Whoever is interrupted ends what it has started, and tidies up.
        crate::signals::install_handler();
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| AppError::failure(format!("this program cannot find itself: {error}")))?;
        let folder = std::env::temp_dir().join(format!("coplay-lab-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| {
            AppError::failure(format!("{} cannot be made: {}", folder.display(), describe_io_error(&error)))
                .hint("TMPDIR names a folder for files that are soon gone")
        })?;
        Ok(Self { program, temp_dir: folder })
    }

    /// A site of the game. What it says and when it began each frame goes into files of its own.
    fn start_site(
        &self,
        name: &'static str,
        seed: &str,
        game: &RealSession,
        command: &[&str],
    ) -> Result<SiteProcess, String> {
        let [log, out, err, seat] =
            ["csv", "out", "err", "seat"].map(|ending| self.temp_dir.join(format!("{name}.{ending}")));
        let file = |path: &Path| {
            File::create(path)
                .map_err(|error| format!("{} cannot be written: {}", path.display(), describe_io_error(&error)))
        };
        let mut program = Command::new(&self.program);
        program.args(command).args([
            "--headless",
            "--bot",
            seed,
            "--frames",
            &(game.frames + WARM_UP_FRAMES).to_string(),
        ]);
        program.arg("--frame-log").arg(&log).arg("--seat").arg(&seat);
        program.arg("--impair").arg(format!("delay={}", game.rtt_ms / 2.0));
        program.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
        // What was written before must not be taken for what comes.
        _ = std::fs::remove_file(&log);
        let child = program.spawn().map_err(|error| format!("this program cannot start itself: {error}"))?;
        Ok(SiteProcess { name, child, frame_log: log, stdout_path: out, stderr_path: err })
    }
}

impl Drop for ProcessRunner {
    fn drop(&mut self) {
        // If it cannot be taken away it does no harm.
        _ = std::fs::remove_dir_all(&self.temp_dir);
    }
}

impl RealRunner for ProcessRunner {
    fn run_session(&mut self, game: &RealSession) -> Result<FrameStarts, String> {
        let (lag, window) = (game.input_delay.to_string(), game.prediction_window.to_string());
        let host = ["host", "--udp", "127.0.0.1:0", "--lan", "hide", "--lag", &lag, "--window", &window];
        let mut host = self.start_site("host", "1", game, &host)?;
        let ticket = host.wait_for_ticket()?;
        let mut guest = self.start_site("guest", "2", game, &["join", &ticket])?;
        let until = Instant::now() + CONNECT_TIMEOUT + FRAME_TIMEOUT * game.frames;
        host.wait_for_success(until)?;
        guest.wait_for_success(until)?;
        let (host, guest) = (read_frame_starts(&host.frame_log)?, read_frame_starts(&guest.frame_log)?);
        let both = (WARM_UP_FRAMES..).map_while(|frame| Some((*host.get(&frame)?, *guest.get(&frame)?)));
        let (host, guest): (Vec<i64>, Vec<i64>) = both.unzip();
        if host.len() < game.frames as usize / 2 {
            return Err(format!("two sites played only {} of {} frames together", host.len(), game.frames));
        }
        Ok(FrameStarts([host, guest]))
    }
}

/// A running process; it is gone when this is.
struct SiteProcess {
    name: &'static str,
    child: Child,
    frame_log: PathBuf,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl SiteProcess {
    /// The ticket that a host shows.
    fn wait_for_ticket(&mut self) -> Result<String, String> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let has_ended = self.has_ended()?;
            let said = std::fs::read_to_string(&self.stdout_path).unwrap_or_default();
            match said.split_once('\n') {
                Some((ticket, _)) => return Ok(ticket.to_owned()),
                None if has_ended || Instant::now() > until => return Err(self.error_message("shows no ticket")),
                None => poll_sleep()?,
            }
        }
    }

    /// Waits for its end, which has to be a good one.
    fn wait_for_success(&mut self, until: Instant) -> Result<(), String> {
        while !self.has_ended()? {
            if Instant::now() > until {
                return Err(self.error_message("does not come to an end"));
            }
            poll_sleep()?;
        }
        Ok(())
    }

    /// Whether it has come to a good end; a bad one is told.
    fn has_ended(&mut self) -> Result<bool, String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.error_message("failed")),
            Ok(status) => Ok(status.is_some()),
            Err(error) => Err(format!("the {} cannot be waited for: {error}", self.name)),
        }
    }

    /// What is wrong with it, in one line, with its own words.
    fn error_message(&self, what: &str) -> String {
        let text = std::fs::read_to_string(&self.stderr_path).unwrap_or_default();
        let said = text.lines().find_map(|line| line.strip_prefix("error: ")).or(text.lines().last());
        format!("the {} {what}: {}", self.name, said.unwrap_or("it does not say why"))
    }
}

impl Drop for SiteProcess {
    fn drop(&mut self) {
        // It has ended already, mostly.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits a little, unless somebody wants to end it.
fn poll_sleep() -> Result<(), String> {
    if crate::signals::is_stop_requested() {
        return Err("it was interrupted".into());
    }
    std::thread::sleep(POLL_INTERVAL);
    Ok(())
}

/// When each frame was stepped for the first time.
fn read_frame_starts(log: &Path) -> Result<BTreeMap<u32, i64>, String> {
    let text = std::fs::read_to_string(log)
        .map_err(|error| format!("{} cannot be read: {}", log.display(), describe_io_error(&error)))?;
    let step = |line: &str| {
        let mut fields = line.split(',');
        let (frame, start, again) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?);
        (again == "0").then_some((frame, start))
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
