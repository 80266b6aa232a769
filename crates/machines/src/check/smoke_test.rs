//! Before a machine is let into this process: whether it lives in another.

use std::process::Command;

use super::CheckOptions;
use super::child_machine::{ChildMachine, ChildStartError};
use super::verdict::{CheckComparison, MachineFault};

/// So many frames it has to live.
const SMOKE_TEST_FRAMES: u32 = 60;

/// What came of it.
pub(super) enum SmokeTestOutcome {
    /// It lives, and is known by this key.
    Passed(String),
    /// There was no machine to be tried, for a reason that will show when it is opened here.
    NotStarted,
    /// It took its process down, or kept it from answering. It must not be opened here.
    Crashed(MachineFault),
}

/// Tries a machine in a process of its own.
pub(super) fn run_smoke_test(command: Command, options: &CheckOptions) -> SmokeTestOutcome {
    let died = |frame, why| {
        SmokeTestOutcome::Crashed(MachineFault::Failed { comparison: CheckComparison::SmokeTest, frame, reason: why })
    };
    let mut process = match ChildMachine::start(command, options.response_timeout) {
        Ok(process) => process,
        Err(ChildStartError::Crashed(why)) => return died(0, why),
        Err(ChildStartError::Failed(_)) => return SmokeTestOutcome::NotStarted,
    };
    for frame in 0..SMOKE_TEST_FRAMES.min(options.long_run_frames) {
        if let Err(why) = process.request_step(&[], true).and_then(|()| process.read_digest()) {
            return died(frame, why);
        }
    }
    SmokeTestOutcome::Passed(process.identity_key.clone())
}
