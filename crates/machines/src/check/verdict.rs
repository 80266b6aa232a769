//! The verdict of the check, and the faults on which it rests.

use serde::{Deserialize, Serialize};

use super::digest::RegionMismatch;

/// Whether and how a machine is fit for netplay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckVerdict {
    /// Deterministic with exact states: all netplay features work.
    Rollback,
    /// Deterministic, but without rollback.
    Lockstep {
        /// Reason why rollback is not possible.
        reason: LockstepReason,
    },
    /// Not deterministic, not verifiable, or crashing: sites could desync.
    Unfit {
        /// Fault that rules out netplay.
        fault: MachineFault,
    },
}

impl CheckVerdict {
    /// Returns whether the machine can be shared at all.
    pub fn is_fit(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }

    /// Returns a short name of the verdict, for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Lockstep { .. } => "lockstep only",
            Self::Unfit { .. } => "unfit",
        }
    }

    /// Returns the fault that rules out netplay or rollback; `None` if no fault was found, even if rollback is not
    /// possible for another reason.
    pub fn fault(&self) -> Option<&MachineFault> {
        match self {
            Self::Unfit { fault } | Self::Lockstep { reason: LockstepReason::InexactStates { fault } } => Some(fault),
            _ => None,
        }
    }

    /// Returns the mismatch on which the verdict rests; `None` if the verdict rests on another fault or on none.
    pub fn mismatch(&self) -> Option<&StateMismatch> {
        match self.fault()? {
            MachineFault::Mismatch(mismatch) => Some(mismatch),
            _ => None,
        }
    }
}

/// Reason why a machine cannot use rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LockstepReason {
    /// The machine cannot save its state.
    CannotSave,
    /// The saved states are not exact: the machine diverges after a load, a reset or steps without rendering, or fails
    /// to save or load a state.
    #[serde(rename = "states")]
    InexactStates {
        /// Fault that rules out rollback.
        fault: MachineFault,
    },
    /// The states are exact, but a rollback of one frame takes more than 80 % of a frame period on this computer, even
    /// by the 10th percentiles of the measured times.
    TooSlow {
        /// Time to load, to step twice and to save twice, in nanoseconds.
        #[serde(rename = "repair_ns")]
        rollback_ns: u64,
        /// Frame period in nanoseconds.
        period_ns: u64,
    },
}

/// A fault that the check found in a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MachineFault {
    /// Two instances that should be equal differ.
    #[serde(rename = "differs")]
    Mismatch(StateMismatch),
    /// The machine could not save or load a state, crashed the child process, or kept the child process from answering.
    Failed {
        /// Comparison in which the machine failed.
        comparison: CheckComparison,
        /// Frame in or before which the machine failed.
        frame: u32,
        /// Message of the machine or of the child process.
        #[serde(rename = "why")]
        reason: String,
    },
    /// The machine was opened twice and had different identity keys: name, version, options, first frames, game, frame
    /// rate or pads differ. The compared states and pictures were equal.
    #[serde(rename = "identity")]
    UnstableIdentity {
        /// Comparison in which the different identity was found.
        comparison: CheckComparison,
    },
    /// The state hash did not change in any frame before the long run, so nothing could be compared.
    #[serde(rename = "blind")]
    ConstantHash,
}

/// The first difference between two instances that should be equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMismatch {
    /// Comparison in which the difference was found.
    pub comparison: CheckComparison,
    /// First frame after which the instances differ; `None` if they differed before the first frame.
    pub frame: Option<u32>,
    /// Frame before which the last loaded state was saved; `None` if no state was loaded.
    #[serde(rename = "loaded")]
    pub loaded_frame: Option<u32>,
    /// Whether the state or only the picture differs.
    #[serde(rename = "seen")]
    pub mismatch_kind: MismatchedOutput,
    /// Differing regions of the state; empty if the machine names none, if only the picture differs, or if the
    /// difference did not recur.
    pub regions: Vec<RegionMismatch>,
}

/// Output in which two instances differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchedOutput {
    /// The state hash differs.
    State,
    /// Only the picture differs; the state hashes are equal.
    Picture,
}

/// A comparison of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckComparison {
    /// One instance in its own process, without a comparison: it must not crash.
    #[serde(rename = "alone")]
    SmokeTest,
    /// Two instances in one process, compared with each other.
    #[serde(rename = "together")]
    SameProcess,
    /// An instance that was reset and stepped without rendering, compared with the reference run, which is never reset.
    #[serde(rename = "anew")]
    AfterReset,
    /// An instance that loaded a saved state and replayed the same inputs, compared with the reference run, which loads
    /// no state.
    #[serde(rename = "again")]
    ReplayFromState,
    /// An instance that was rolled back after wrong inputs, as after a misprediction in a session, compared with the
    /// reference run, which is never rolled back.
    #[serde(rename = "repaired")]
    AfterRollback,
    /// An instance in a child process, started later in another environment, compared with the reference run in this
    /// process.
    #[serde(rename = "apart")]
    OtherProcess,
    /// An instance in a new process that loaded a state, compared with the reference run, which loads no state.
    #[serde(rename = "cold")]
    ColdLoad,
    /// The instance in the child process of [`OtherProcess`](Self::OtherProcess) and the reference machine, which
    /// continue in parallel up to [`CheckOptions::long_run_frames`](super::CheckOptions::long_run_frames) frames.
    #[serde(rename = "long")]
    LongRun,
}

impl CheckComparison {
    /// All comparisons, in execution order.
    pub const ALL: [Self; 8] = [
        Self::SmokeTest,
        Self::SameProcess,
        Self::AfterReset,
        Self::ReplayFromState,
        Self::AfterRollback,
        Self::OtherProcess,
        Self::ColdLoad,
        Self::LongRun,
    ];

    /// Returns the display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmokeTest => "smoke test",
            Self::SameProcess => "two instances, one process",
            Self::AfterReset => "after a reset, not rendered",
            Self::ReplayFromState => "replay from a saved state",
            Self::AfterRollback => "rollback of wrong inputs",
            Self::OtherProcess => "other process, started later",
            Self::ColdLoad => "saved state in a new process",
            Self::LongRun => "long run",
        }
    }
}
