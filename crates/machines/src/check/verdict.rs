//! What was found.

use serde::{Deserialize, Serialize};

use super::digest::RegionDifference;

/// Whether a machine is fit to be shared, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// It is deterministic, and its states are exact: everything goes.
    Rollback,
    /// It is deterministic, but nothing can be guessed and repaired.
    Lockstep {
        /// Why.
        reason: Reason,
    },
    /// It is not deterministic, or nobody can tell: sites would play different games.
    Unfit {
        /// Why.
        fault: Fault,
    },
}

impl Verdict {
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
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Unfit { fault } | Self::Lockstep { reason: Reason::States { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The first difference, where there is one.
    pub fn difference(&self) -> Option<&Difference> {
        match self.fault()? {
            Fault::Differs(difference) => Some(difference),
            _ => None,
        }
    }
}

/// Why nothing can be guessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The machine cannot save its state.
    CannotSave,
    /// Its states are not exact: a game that was repaired goes on otherwise.
    States {
        /// What was found.
        fault: Fault,
    },
    /// Its states are exact, but not even one frame can be repaired within another on this computer.
    TooSlow {
        /// What it takes to load, to step twice and to save, in nanoseconds.
        repair_ns: u64,
        /// The time of a frame, in nanoseconds.
        period_ns: u64,
    },
}

/// What is wrong with a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// Two that should be equal are not.
    Differs(Difference),
    /// It could not do what it was asked for: it refused, or took its process down.
    Failed {
        /// In which comparison.
        comparison: Comparison,
        /// In or before which frame.
        frame: u32,
        /// In its own words.
        why: String,
    },
    /// Its name, version, options or first frames are not the same each time that it is opened, although no other difference was seen.
    Identity {
        /// In which comparison.
        comparison: Comparison,
    },
    /// The hash of its state never changed, so that nothing could be compared.
    Blind,
}

/// The first difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// In which comparison.
    pub comparison: Comparison,
    /// The first frame after which they differ; `None` if they did before the first.
    pub frame: Option<u32>,
    /// The frame that was next in the state loaded last, if one was.
    pub loaded: Option<u32>,
    /// What differs.
    pub seen: Seen,
    /// The parts of the state that differ; none if the machine names none, or if it was not seen again.
    pub regions: Vec<RegionDifference>,
}

/// What can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The state.
    State,
    /// Only the picture, while the hash of the state is the same.
    Picture,
}

/// Which two were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// One in a process of its own, with nothing to compare it with: whether it lives.
    Alone,
    /// Two instances in one process.
    Together,
    /// One that was reset and stepped unseen, and one that ran straight.
    Anew,
    /// One that went back to a saved state and did the same again, and one that ran straight.
    Again,
    /// One that did something else, went back and did the right thing, as a session repairs guesses, and one that ran straight.
    Repaired,
    /// One in another process, started later in another environment, and one here.
    Apart,
    /// One in a new process that was given a state, and one that ran straight.
    Cold,
    /// One in another process and one here, for long.
    Long,
}

impl Comparison {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 8] =
        [Self::Alone, Self::Together, Self::Anew, Self::Again, Self::Repaired, Self::Apart, Self::Cold, Self::Long];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone in a process",
            Self::Together => "two in one process",
            Self::Anew => "begun anew, unseen",
            Self::Again => "played again from a state",
            Self::Repaired => "repaired after wrong guesses",
            Self::Apart => "in another process, later",
            Self::Cold => "a state in a new process",
            Self::Long => "a long run",
        }
    }
}
