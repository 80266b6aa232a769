//! Before a machine is let into this process: whether it lives in another.

use std::process::Command;

use super::Options;
use super::process::{NoProcess, Process};
use super::verdict::{Comparison, Fault};

/// So many frames it has to live.
const FRAMES: u32 = 60;

/// What came of it.
pub(super) enum Trial {
    /// It lives, and is known by this key.
    Lived(String),
    /// There was no machine to be tried, for a reason that will show when it is opened here.
    None,
    /// It took its process down, or kept it from answering. It must not be opened here.
    Died(Fault),
}

/// Tries a machine in a process of its own.
pub(super) fn trial(command: Command, options: &Options) -> Trial {
    let died = |frame, why| Trial::Died(Fault::Failed { comparison: Comparison::Alone, frame, why });
    let mut process = match Process::start(command, options.patience) {
        Ok(process) => process,
        Err(NoProcess::Died(why)) => return died(0, why),
        Err(NoProcess::Error(_)) => return Trial::None,
    };
    for frame in 0..FRAMES.min(options.frames) {
        if let Err(why) = process.ask_step(&[], true).and_then(|()| process.look()) {
            return died(frame, why);
        }
    }
    Trial::Lived(process.key.clone())
}
