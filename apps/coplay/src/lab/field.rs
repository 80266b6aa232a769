//! The field: two processes of this very program, playing over UDP on this computer, each with a way out that is made longer.
//!
//! Both write down when they began each frame, on the system's clock that never goes back, which is the same for both.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coplay_lab::real_run::{FrameStarts, RealRunner, RealSession};

use crate::trouble::{Trouble, in_words};

/// About how long an experiment in the field takes.
pub(super) const SECONDS: f64 = 500.0;
/// Frames at the beginning that do not count.
const WARM_UP: u32 = 60;
/// Nothing takes longer: to meet, and for each frame.
const TO_MEET: Duration = Duration::from_secs(60);
const PER_FRAME: Duration = Duration::from_millis(100);
/// Processes are looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs the program.
pub(super) struct Processes {
    program: PathBuf,
    folder: PathBuf,
}

impl Processes {
    pub(super) fn new() -> Result<Self, Trouble> {
        // Whoever is interrupted ends what it has started, and tidies up.
        crate::stop::listen();
        let program = std::env::current_exe();
        let program = program.map_err(|error| Trouble::failure(format!("this program cannot find itself: {error}")))?;
        let folder = std::env::temp_dir().join(format!("coplay-lab-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| {
            Trouble::failure(format!("{} cannot be made: {}", folder.display(), in_words(&error)))
                .hint("TMPDIR names a folder for files that are soon gone")
        })?;
        Ok(Self { program, folder })
    }

    /// A site of the game. What it says and when it began each frame goes into files of its own.
    fn start(&self, name: &'static str, seed: &str, game: &RealSession, command: &[&str]) -> Result<Site, String> {
        let [log, out, err, seat] =
            ["csv", "out", "err", "seat"].map(|ending| self.folder.join(format!("{name}.{ending}")));
        let file = |path: &Path| {
            File::create(path).map_err(|error| format!("{} cannot be written: {}", path.display(), in_words(&error)))
        };
        let mut program = Command::new(&self.program);
        program.args(command).args(["--headless", "--bot", seed, "--frames", &(game.frames + WARM_UP).to_string()]);
        program.arg("--frame-log").arg(&log).arg("--seat").arg(&seat);
        program.arg("--impair").arg(format!("delay={}", game.rtt_ms / 2.0));
        program.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
        // What was written before must not be taken for what comes.
        _ = std::fs::remove_file(&log);
        let child = program.spawn().map_err(|error| format!("this program cannot start itself: {error}"))?;
        Ok(Site { name, child, log, out, err })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // If it cannot be taken away it does no harm.
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl RealRunner for Processes {
    fn run_session(&mut self, game: &RealSession) -> Result<FrameStarts, String> {
        let (lag, window) = (game.input_delay.to_string(), game.prediction_window.to_string());
        let host = ["host", "--udp", "127.0.0.1:0", "--lan", "hide", "--lag", &lag, "--window", &window];
        let mut host = self.start("host", "1", game, &host)?;
        let ticket = host.ticket()?;
        let mut guest = self.start("guest", "2", game, &["join", &ticket])?;
        let until = Instant::now() + TO_MEET + PER_FRAME * game.frames;
        host.finish(until)?;
        guest.finish(until)?;
        let (host, guest) = (read_starts(&host.log)?, read_starts(&guest.log)?);
        let both = (WARM_UP..).map_while(|frame| Some((*host.get(&frame)?, *guest.get(&frame)?)));
        let (host, guest): (Vec<i64>, Vec<i64>) = both.unzip();
        if host.len() < game.frames as usize / 2 {
            return Err(format!("two sites played only {} of {} frames together", host.len(), game.frames));
        }
        Ok(FrameStarts([host, guest]))
    }
}

/// A running process; it is gone when this is.
struct Site {
    name: &'static str,
    child: Child,
    log: PathBuf,
    out: PathBuf,
    err: PathBuf,
}

impl Site {
    /// The ticket that a host shows.
    fn ticket(&mut self) -> Result<String, String> {
        let until = Instant::now() + TO_MEET;
        loop {
            let has_ended = self.has_ended()?;
            let said = std::fs::read_to_string(&self.out).unwrap_or_default();
            match said.split_once('\n') {
                Some((ticket, _)) => return Ok(ticket.to_owned()),
                None if has_ended || Instant::now() > until => return Err(self.complaint("shows no ticket")),
                None => rest()?,
            }
        }
    }

    /// Waits for its end, which has to be a good one.
    fn finish(&mut self, until: Instant) -> Result<(), String> {
        while !self.has_ended()? {
            if Instant::now() > until {
                return Err(self.complaint("does not come to an end"));
            }
            rest()?;
        }
        Ok(())
    }

    /// Whether it has come to a good end; a bad one is told.
    fn has_ended(&mut self) -> Result<bool, String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.complaint("failed")),
            Ok(status) => Ok(status.is_some()),
            Err(error) => Err(format!("the {} cannot be waited for: {error}", self.name)),
        }
    }

    /// What is wrong with it, in one line, with its own words.
    fn complaint(&self, what: &str) -> String {
        let text = std::fs::read_to_string(&self.err).unwrap_or_default();
        let said = text.lines().find_map(|line| line.strip_prefix("error: ")).or(text.lines().last());
        format!("the {} {what}: {}", self.name, said.unwrap_or("it does not say why"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It has ended already, mostly.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits a little, unless somebody wants to end it.
fn rest() -> Result<(), String> {
    if crate::stop::is_asked() {
        return Err("it was interrupted".into());
    }
    std::thread::sleep(LOOK_EVERY);
    Ok(())
}

/// When each frame was stepped for the first time.
fn read_starts(log: &Path) -> Result<BTreeMap<u32, i64>, String> {
    let text = std::fs::read_to_string(log)
        .map_err(|error| format!("{} cannot be read: {}", log.display(), in_words(&error)))?;
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
    fn starts_are_those_of_the_first_steps() {
        let log = std::env::temp_dir().join(format!("coplay-starts-{}.csv", std::process::id()));
        std::fs::write(
            &log,
            "frame,start_ns,resim,inputs,hash\n0,5,0,1:2,ab\n1,21,0,1:2,\n0,22,1,1:3,\n2,37,0,0:0,\nwhat\n",
        )
        .unwrap();
        let starts = read_starts(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(starts, BTreeMap::from([(0, 5), (1, 21), (2, 37)]));
        assert!(read_starts(&log).unwrap_err().contains("no such file"));
    }
}
