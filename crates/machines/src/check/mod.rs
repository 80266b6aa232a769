//! Is this machine fit to be shared, and how?
//!
//! Sites that are given the same inputs must come to the same states, and a site that repairs a wrong guess must come to where it would
//! have been without. Neither can be told from outside, but both can be tried: [`check`] plays a machine with random inputs and compares
//! the [hash](MachineProfile::hash) of its state after every frame in every situation that a shared game brings it into:
//!
//! | comparison | what it finds |
//! |---|---|
//! | [alone in a process](CheckComparison::SmokeTest) | crashes and endless loops, before it is opened here |
//! | [two in one process](CheckComparison::SameProcess) | chance, addresses, variables that instances share |
//! | [begun anew, unseen](CheckComparison::AfterReset) | a reset that leaves something behind, frames that depend on being seen |
//! | [played again](CheckComparison::Again), [repaired](CheckComparison::AfterRollback) | what is missing in saved states, saving that disturbs |
//! | [in another process](CheckComparison::OtherProcess) | the clock, the environment, the user's files, memory that was never set |
//! | [a state in a new process](CheckComparison::ColdLoad) | what a state owes to the process that saved it: late joiners need this |
//! | [a long run](CheckComparison::LongRun) | what shows only late |
//!
//! The other process is this program again, started with a command of the caller's that ends up in [`child`]. It starts more than a second
//! later, in another folder, time zone, language and home, and its stack and heap lie elsewhere and are filled otherwise.
//!
//! What comes out is a [`CheckReport`] with a [`CheckVerdict`]. A machine that passes was not caught; no test can prove more. While a game runs,
//! sites go on comparing.
//!
//! ```no_run
//! use std::process::Command;
//! use coplay_machines::{Machine, check, nes::Nes};
//!
//! let image = std::fs::read("game.nes").unwrap();
//! let mut open = || match Nes::open(&image, "game") {
//!     Ok(machine) => Ok(Box::new(machine) as Box<dyn Machine>),
//!     Err(error) => Err(error.to_string()),
//! };
//! // A program that calls `check::child` when it is started like this. Its paths are absolute: it runs in another folder.
//! let mut child = || {
//!     let mut command = Command::new(std::env::current_exe().unwrap());
//!     command.args(["check-child", "/home/ada/game.nes"]);
//!     command
//! };
//! let subject = check::Subject { machine: "nes", game: "game", open: &mut open, child: &mut child };
//! let report = check::check(subject, &check::Options::default(), &mut |_| ()).unwrap();
//! println!("{report}");
//! ```

mod cache;
mod child;
mod child_machine;
mod command;
mod digest;
mod display;
mod measure;
mod progress;
mod report;
mod rollback_test;
mod run;
mod script;
mod smoke_test;
mod verdict;

use std::fmt;
use std::process::Command;
use std::time::Duration;

use crate::machine::Machine;

use self::smoke_test::SmokeTestOutcome;

pub use self::cache::ReportCache;
pub use self::child::run_child;
pub use self::command::{CheckRequest, exclusive_stdout, run};
pub use self::digest::RegionMismatch;
pub use self::measure::{MeasuredCosts, TimingPercentiles};
pub use self::progress::CheckProgress;
pub use self::report::{CheckReport, ComparedFrames, Fitness, SubjectIdentity};
pub use self::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchKind, StateMismatch};

/// The version of this check. Another one may find what this one does not.
pub const CHECK_VERSION: u32 = 1;

/// What is checked: how to open the machine here, and how to open it in another process.
pub struct CheckSubject<'a> {
    /// What the machine is called, for a report on one that cannot be opened and asked.
    pub machine_name: &'a str,
    /// Likewise the game.
    pub game_name: &'a str,
    /// Opens the machine, which has stepped no frame then; in words why not. It is called several times. A
    /// [twin](crate::libretro::LibretroMachine::simulated_counterpart) of a core is as good as one opened anew, and costs less.
    pub open: &'a mut dyn FnMut() -> Result<Box<dyn Machine>, String>,
    /// A command that opens the same machine in another process and hands it to [`child`]. Folder, environment, input and output of that
    /// process are set here: name files by absolute paths, and cores by their files, because they are found through the home folder.
    pub child_command: &'a mut dyn FnMut() -> Command,
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Frames of the long run.
    pub long_run_frames: u32,
    /// Frames of the other comparisons; no more than the long run has.
    pub short_run_frames: u32,
    /// No more time than about this. What is cut short is told.
    pub time_budget: Duration,
    /// The other process plays each frame at least so much later. More than a second, so that a clock that counts seconds has gone on.
    pub child_delay: Duration,
    /// What the other process does not answer for so long hangs.
    pub response_timeout: Duration,
    /// Where inputs, and the points to save at, come from. The same seed does the same.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        let (budget, later) = (Duration::from_secs(90), Duration::from_millis(1_100));
        Self {
            long_run_frames: 7_200,
            short_run_frames: 900,
            time_budget: budget,
            child_delay: later,
            response_timeout: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// Why nothing can be said about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// It could not be opened, or not a second time; in its own words.
    Open(String),
    /// The other process could not be started, or did not come so far as to open the machine.
    ChildProcess(String),
    /// The report could not be written.
    Write(String),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(why) => write!(f, "the machine cannot be opened: {why}"),
            Self::ChildProcess(why) => write!(f, "the machine cannot be opened in another process: {why}"),
            Self::Write(why) => write!(f, "the report cannot be written: {why}"),
        }
    }
}

impl std::error::Error for CheckError {}

/// Finds out whether a machine is fit to be shared, and how.
pub fn check(
    subject: CheckSubject<'_>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, CheckError> {
    match smoke_test::run_smoke_test((subject.child_command)(), options) {
        SmokeTestOutcome::Crashed(fault) => Ok(CheckReport::unopened(subject.machine_name, subject.game_name, fault)),
        SmokeTestOutcome::Passed(_) | SmokeTestOutcome::NotStarted => {
            check_after_smoke_test(subject, options, progress)
        }
    }
}

/// The same for a machine that can be opened here without harm.
fn check_after_smoke_test(
    subject: CheckSubject<'_>,
    options: &CheckOptions,
    tell: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, CheckError> {
    let subject = CheckSubject { open: &mut *subject.open, child_command: &mut *subject.child_command, ..subject };
    run::CheckRun::new(subject, options, tell)?.run()
}
