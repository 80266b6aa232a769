//! Why there is no group, or no place in one.

use std::fmt;

use super::{MAX_SITES, MulticastError};
use crate::party::{Refusal, VERSION};
use crate::transport::Place;

/// Why there is no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody answers there.
    Unanswered {
        /// Where.
        place: Place,
        /// Somebody is there, but the secret is another.
        refused: bool,
    },
    /// Who answers there is not who was called.
    Stranger {
        /// Where.
        place: Place,
    },
    /// We were not let in.
    Refused(Refusal),
    /// Somebody answered, and did not open.
    Ignored,
    /// The terms are longer than [`MAX_TERMS`](super::MAX_TERMS).
    Terms,
    /// There is no multicast, without which it was not wanted.
    Multicast(MulticastError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered { place, refused: false } => write!(f, "nobody answers at {}", place.brief()),
            Self::Unanswered { place, refused: true } => {
                write!(f, "somebody is at {}, but does not know our secret", place.brief())
            }
            Self::Stranger { place } => write!(f, "who answers at {} is not who gave this ticket", place.brief()),
            Self::Refused(Refusal::Full) => write!(f, "{MAX_SITES} are there already, and there is no room for more"),
            Self::Refused(Refusal::Version(theirs)) => {
                write!(f, "they run another version of coplay (its language is {theirs}, ours {VERSION})")
            }
            Self::Refused(Refusal::OtherKind | Refusal::NotMe { .. } | Refusal::Private) => {
                write!(f, "what is played there is a game for the machine, and not a world to walk about in")
            }
            Self::Ignored => write!(f, "somebody is there, but does not open"),
            Self::Terms => write!(f, "the terms are too long"),
            Self::Multicast(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}
