//! Tests in a child process that a machine does not crash, before it is opened in this process.

use std::process::Command;

use super::CheckOptions;
use super::child_machine::{ChildMachine, ChildStartError};
use super::verdict::{CheckComparison, MachineFault};

/// Number of frames without input that the machine must survive.
const SMOKE_TEST_FRAMES: u32 = 60;

/// Result of the smoke test.
pub(super) enum SmokeTestOutcome {
    /// The machine survived all frames; contains its identity key.
    Passed(String),
    /// The child process could not be started, could not open the machine, or gave an invalid answer at its start. The
    /// rest of the check will show the reason.
    NotStarted,
    /// The machine crashed its process, kept it from answering, or did not step all frames for another reason. The
    /// machine must not be opened in this process.
    Crashed(MachineFault),
}

/// Opens a machine in a child process and steps it for [`SMOKE_TEST_FRAMES`] frames, or for all frames of a shorter
/// check.
pub(super) fn run_smoke_test(command: Command, options: &CheckOptions) -> SmokeTestOutcome {
    let crashed = |frame, reason| {
        SmokeTestOutcome::Crashed(MachineFault::Failed { comparison: CheckComparison::SmokeTest, frame, reason })
    };
    let mut child = match ChildMachine::start(command, options.response_timeout) {
        Ok(child) => child,
        Err(ChildStartError::Crashed(reason)) => return crashed(0, reason),
        Err(ChildStartError::Failed(_)) => return SmokeTestOutcome::NotStarted,
    };
    for frame in 0..SMOKE_TEST_FRAMES.min(options.long_run_frames) {
        if let Err(reason) = child.request_step(&[], true).and_then(|()| child.read_digest()) {
            return crashed(frame, reason);
        }
    }
    SmokeTestOutcome::Passed(child.identity_key.clone())
}
