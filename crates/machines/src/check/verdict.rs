//! What was found.

use serde::{Deserialize, Serialize};

use super::digest::RegionMismatch;

/// Whether a machine is fit to be shared, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckVerdict {
    /// It is deterministic, and its states are exact: everything goes.
    Rollback,
    /// It is deterministic, but nothing can be guessed and repaired.
    Lockstep {
        /// Why.
        reason: LockstepReason,
    },
    /// It is not deterministic, or nobody can tell: sites would play different games.
    Unfit {
        /// Why.
        fault: MachineFault,
    },
}

impl CheckVerdict {
    /// Whether it can be shared at all.
    pub fn is_fit(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }

    /// In a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Lockstep { .. } => "lockstep only",
            Self::Unfit { .. } => "unfit",
        }
    }

    /// What was found, where something was.
    pub fn fault(&self) -> Option<&MachineFault> {
        match self {
            Self::Unfit { fault } | Self::Lockstep { reason: LockstepReason::InexactStates { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The first difference, where there is one.
    pub fn mismatch(&self) -> Option<&StateMismatch> {
        match self.fault()? {
            MachineFault::Mismatch(difference) => Some(difference),
            _ => None,
        }
    }
}

/// Why nothing can be guessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LockstepReason {
    /// The machine cannot save its state.
    CannotSave,
    /// Its states are not exact: a game that was repaired goes on otherwise.
    InexactStates {
        /// What was found.
        fault: MachineFault,
    },
    /// Its states are exact, but not even one frame can be repaired within another on this computer.
    TooSlow {
        /// What it takes to load, to step twice and to save, in nanoseconds.
        rollback_ns: u64,
        /// The time of a frame, in nanoseconds.
        period_ns: u64,
    },
}

/// What is wrong with a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MachineFault {
    /// Two that should be equal are not.
    Mismatch(StateMismatch),
    /// It could not do what it was asked for: it refused, or took its process down.
    Failed {
        /// In which comparison.
        comparison: CheckComparison,
        /// In or before which frame.
        frame: u32,
        /// In its own words.
        reason: String,
    },
    /// Its name, version, options or first frames are not the same each time that it is opened, although no other difference was seen.
    UnstableIdentity {
        /// In which comparison.
        comparison: CheckComparison,
    },
    /// The hash of its state never changed, so that nothing could be compared.
    ConstantHash,
}

/// The first difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMismatch {
    /// In which comparison.
    pub comparison: CheckComparison,
    /// The first frame after which they differ; `None` if they did before the first.
    pub frame: Option<u32>,
    /// The frame that was next in the state loaded last, if one was.
    pub loaded_frame: Option<u32>,
    /// What differs.
    pub mismatch_kind: MismatchKind,
    /// The parts of the state that differ; none if the machine names none, or if it was not seen again.
    pub regions: Vec<RegionMismatch>,
}

/// What can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchKind {
    /// The state.
    State,
    /// Only the picture, while the hash of the state is the same.
    Picture,
}

/// Which two were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckComparison {
    /// One in a process of its own, with nothing to compare it with: whether it lives.
    SmokeTest,
    /// Two instances in one process.
    SameProcess,
    /// One that was reset and stepped unseen, and one that ran straight.
    AfterReset,
    /// One that went back to a saved state and did the same again, and one that ran straight.
    ReplayFromState,
    /// One that did something else, went back and did the right thing, as a session repairs guesses, and one that ran straight.
    AfterRollback,
    /// One in another process, started later in another environment, and one here.
    OtherProcess,
    /// One in a new process that was given a state, and one that ran straight.
    ColdLoad,
    /// One in another process and one here, for long.
    LongRun,
}

impl CheckComparison {
    /// All of them, in the order in which they are made.
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

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmokeTest => "alone in a process",
            Self::SameProcess => "two in one process",
            Self::AfterReset => "begun anew, unseen",
            Self::ReplayFromState => "played again from a state",
            Self::AfterRollback => "repaired after wrong guesses",
            Self::OtherProcess => "in another process, later",
            Self::ColdLoad => "a state in a new process",
            Self::LongRun => "a long run",
        }
    }
}
