//! Checks whether and how a machine is fit for netplay.
//!
//! Sites with equal inputs must reach equal states, and a site that rolls back a misprediction must reach the state
//! that it would have had with the right inputs. Neither can be proved from outside, but both can be tested: [`check`]
//! runs a machine with random inputs and compares the [hash](Machine::hash) of its state after every frame, in the
//! situations of a shared game:
//!
//! | comparison | faults it finds |
//! |---|---|
//! | [smoke test](CheckComparison::SmokeTest) | crashes and endless loops, before the machine is opened here |
//! | [same process](CheckComparison::SameProcess) | randomness, addresses, variables shared between instances |
//! | [after a reset](CheckComparison::AfterReset) | an incomplete reset, state that depends on rendering |
//! | [replay](CheckComparison::ReplayFromState) | incomplete saved states, saving that changes the state |
//! | [rollback](CheckComparison::AfterRollback) | the same, and states that wrong inputs leave behind |
//! | [other process](CheckComparison::OtherProcess) | clock, environment, the user's files, uninitialized memory |
//! | [cold load](CheckComparison::ColdLoad) | saved states that depend on their process; late joiners need this |
//! | [long run](CheckComparison::LongRun) | faults that appear late |
//!
//! The other process is a child process, started with a command that the caller supplies and that calls [`run_child`].
//! It runs in another folder, time zone, language and home, with another stack position and other heap contents, and by
//! default starts more than a second later.
//!
//! The result is a [`CheckReport`] with a [`CheckVerdict`]. A passed check found no fault; no test can prove more.
//! During a game the sites continue to compare hashes.
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
//! // A program that calls `check::run_child` when it is started like this. Its paths are absolute, since it runs in
//! // another folder.
//! let mut child = || {
//!     let mut command = Command::new(std::env::current_exe().unwrap());
//!     command.args(["check-child", "/home/ada/game.nes"]);
//!     command
//! };
//! let subject =
//!     check::CheckSubject { machine_name: "nes", game_name: "game", open: &mut open, child_command: &mut child };
//! let report = check::check(subject, &check::CheckOptions::default(), &mut |_| ()).unwrap();
//! println!("{report}");
//! ```

mod cache;
mod check_run;
mod child;
mod child_machine;
mod digest;
mod display;
mod measure;
mod progress;
mod report;
mod rollback_test;
mod run;
mod run_command;
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
pub use self::digest::RegionMismatch;
pub use self::measure::{MeasuredCosts, TimingPercentiles};
pub use self::progress::CheckProgress;
pub use self::report::{CheckReport, ComparedFrames, Fitness, SubjectIdentity};
pub use self::run_command::{CheckCommandOptions, exclusive_stdout, run};
pub use self::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchedOutput, StateMismatch};

/// Version of the check. Another version may find other faults, so its cached reports are not used.
pub const CHECK_VERSION: u32 = 1;

/// The machine to check, and the ways to open it in this process and in a child process.
pub struct CheckSubject<'a> {
    /// Name of the machine, for the report on a machine that fails in the smoke test.
    pub machine_name: &'a str,
    /// Name of the game, for the report on a machine that fails in the smoke test.
    pub game_name: &'a str,
    /// Opens a new machine that has stepped no frame, or returns an error message. The check calls this several times,
    /// but not for a machine that fails in the smoke test. A [twin](crate::libretro::LibretroMachine::twin) of a core
    /// is as good as a newly opened one, and cheaper.
    pub open: &'a mut dyn FnMut() -> Result<Box<dyn Machine>, String>,
    /// Command that opens the same machine in a child process and passes it to [`run_child`]. The check sets folder,
    /// environment, input and output of that process. Use absolute paths for files, and file paths for cores, because
    /// the search for core names depends on the home folder.
    pub child_command: &'a mut dyn FnMut() -> Command,
}

/// Length, time limits and seed of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Frames that the machine runs in total, at least 1. The long run compares the frames after the first
    /// `short_run_frames`.
    pub long_run_frames: u32,
    /// Frames that two instances run in one process. The other comparisons before the long run use these frames or a
    /// part of them. Clamped to 1 to `long_run_frames`.
    pub short_run_frames: u32,
    /// Approximate time limit of the check after the smoke test. The report lists comparisons that ended early.
    pub time_budget: Duration,
    /// Minimum time from the step of a frame in this process to the step of the same frame in the child process, before
    /// the long run. Should be more than a second, so that a clock that counts seconds has advanced.
    pub child_delay: Duration,
    /// Time without an answer after which the child process counts as hanging.
    pub response_timeout: Duration,
    /// Seed of the random inputs and of the frames in which states are saved. Equal seeds give equal runs, unless the
    /// time limit ends a comparison early.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        let (time_budget, child_delay) = (Duration::from_secs(90), Duration::from_millis(1_100));
        Self {
            long_run_frames: 7_200,
            short_run_frames: 900,
            time_budget,
            child_delay,
            response_timeout: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// Error that prevents a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The machine could not be opened, or could not be opened a second time; contains the error message.
    Open(String),
    /// The child process could not be started, could not open the machine, has another version of the check, gave an
    /// invalid answer, or ended before it answered; contains the reason.
    ChildProcess(String),
    /// The report could not be written; contains the error message.
    Write(String),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(reason) => write!(f, "cannot open the machine: {reason}"),
            Self::ChildProcess(reason) => write!(f, "cannot open the machine in a child process: {reason}"),
            Self::Write(reason) => write!(f, "cannot write the report: {reason}"),
        }
    }
}

impl std::error::Error for CheckError {}

/// Runs the comparisons on a machine, up to the first fault that rules out netplay, and returns the report. A machine
/// that crashes its process in the smoke test is not opened in this process.
pub fn check(
    subject: CheckSubject<'_>,
    options: &CheckOptions,
    on_progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, CheckError> {
    match smoke_test::run_smoke_test((subject.child_command)(), options) {
        SmokeTestOutcome::Crashed(fault) => Ok(CheckReport::unopened(subject.machine_name, subject.game_name, fault)),
        SmokeTestOutcome::Passed(_) | SmokeTestOutcome::NotStarted => {
            check_after_smoke_test(subject, options, on_progress)
        }
    }
}

/// Runs the comparisons after the smoke test, which the machine has passed or which could not start.
fn check_after_smoke_test(
    subject: CheckSubject<'_>,
    options: &CheckOptions,
    on_progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, CheckError> {
    let subject = CheckSubject { open: &mut *subject.open, child_command: &mut *subject.child_command, ..subject };
    check_run::CheckRun::new(subject, options, on_progress)?.run()
}
