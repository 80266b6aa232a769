//! Is this machine fit to be shared, and how?
//!
//! Sites that are given the same inputs must come to the same states, and a site that repairs a wrong guess must come to where it would
//! have been without. Neither can be told from outside, but both can be tried: [`check`] plays a machine with random inputs and compares
//! the [hash](Machine::hash) of its state after every frame in every situation that a shared game brings it into:
//!
//! | comparison | what it finds |
//! |---|---|
//! | [alone in a process](Comparison::Alone) | crashes and endless loops, before it is opened here |
//! | [two in one process](Comparison::Together) | chance, addresses, variables that instances share |
//! | [begun anew, unseen](Comparison::Anew) | a reset that leaves something behind, frames that depend on being seen |
//! | [played again](Comparison::Again), [repaired](Comparison::Repaired) | what is missing in saved states, saving that disturbs |
//! | [in another process](Comparison::Apart) | the clock, the environment, the user's files, memory that was never set |
//! | [a state in a new process](Comparison::Cold) | what a state owes to the process that saved it: late joiners need this |
//! | [a long run](Comparison::Long) | what shows only late |
//!
//! The other process is this program again, started with a command of the caller's that ends up in [`child`]. It starts more than a second
//! later, in another folder, time zone, language and home, and its stack and heap lie elsewhere and are filled otherwise.
//!
//! What comes out is a [`Report`] with a [`Verdict`]. A machine that passes was not caught; no test can prove more. While a game runs,
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
mod command;
mod digest;
mod measure;
mod process;
mod progress;
mod repair;
mod report;
mod run;
mod script;
mod show;
mod trial;
mod verdict;

use std::fmt;
use std::process::Command;
use std::time::Duration;

use crate::machine::Machine;

use self::trial::Trial;

pub use self::cache::Cache;
pub use self::child::child;
pub use self::command::{Asked, output, run};
pub use self::digest::RegionDifference;
pub use self::measure::{Measured, Timing};
pub use self::progress::Progress;
pub use self::report::{Compared, Fitness, Identity, Report};
pub use self::verdict::{Comparison, Difference, Fault, Reason, Seen, Verdict};

/// The version of this check. Another one may find what this one does not.
pub const VERSION: u32 = 1;

/// What is checked: how to open the machine here, and how to open it in another process.
pub struct Subject<'a> {
    /// What the machine is called, for a report on one that cannot be opened and asked.
    pub machine: &'a str,
    /// Likewise the game.
    pub game: &'a str,
    /// Opens the machine, which has stepped no frame then; in words why not. It is called several times. A
    /// [twin](crate::libretro::Libretro::twin) of a core is as good as one opened anew, and costs less.
    pub open: &'a mut dyn FnMut() -> Result<Box<dyn Machine>, String>,
    /// A command that opens the same machine in another process and hands it to [`child`]. Folder, environment, input and output of that
    /// process are set here: name files by absolute paths, and cores by their files, because they are found through the home folder.
    pub child: &'a mut dyn FnMut() -> Command,
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Frames of the long run.
    pub frames: u32,
    /// Frames of the other comparisons; no more than the long run has.
    pub short: u32,
    /// No more time than about this. What is cut short is told.
    pub budget: Duration,
    /// The other process plays each frame at least so much later. More than a second, so that a clock that counts seconds has gone on.
    pub later: Duration,
    /// What the other process does not answer for so long hangs.
    pub patience: Duration,
    /// Where inputs, and the points to save at, come from. The same seed does the same.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        let (budget, later) = (Duration::from_secs(90), Duration::from_millis(1_100));
        Self { frames: 7_200, short: 900, budget, later, patience: Duration::from_secs(60), seed: 1 }
    }
}

/// Why nothing can be said about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It could not be opened, or not a second time; in its own words.
    Open(String),
    /// The other process could not be started, or did not come so far as to open the machine.
    Child(String),
    /// The report could not be written.
    Write(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(why) => write!(f, "the machine cannot be opened: {why}"),
            Self::Child(why) => write!(f, "the machine cannot be opened in another process: {why}"),
            Self::Write(why) => write!(f, "the report cannot be written: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Finds out whether a machine is fit to be shared, and how.
pub fn check(subject: Subject<'_>, options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    match trial::trial((subject.child)(), options) {
        Trial::Died(fault) => Ok(Report::unopened(subject.machine, subject.game, fault)),
        Trial::Lived(_) | Trial::None => check_living(subject, options, progress),
    }
}

/// The same for a machine that can be opened here without harm.
fn check_living(subject: Subject<'_>, options: &Options, tell: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let subject = Subject { open: &mut *subject.open, child: &mut *subject.child, ..subject };
    run::Run::new(subject, options, tell)?.finish()
}
