//! Why there is no group, or no place in one.

use std::fmt;

use super::{MAX_MEMBERS, MulticastError};
use crate::lobby::{JoinRefusal, PROTOCOL_VERSION};
use crate::transport::PeerAddr;

/// Why there is no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshError {
    /// Nobody answers there.
    Unreachable {
        /// Where.
        addr: PeerAddr,
        /// Somebody is there, but the secret is another.
        wrong_secret: bool,
    },
    /// Who answers there is not who was called.
    WrongPeer {
        /// Where.
        addr: PeerAddr,
    },
    /// We were not let in.
    Refused(JoinRefusal),
    /// Somebody answered, and did not open.
    NoReply,
    /// The terms are longer than [`MAX_TERMS`](super::MAX_SETTINGS_LEN).
    SettingsTooLong,
    /// There is no multicast, without which it was not wanted.
    Multicast(MulticastError),
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { addr: place, wrong_secret: false } => write!(f, "nobody answers at {}", place.brief()),
            Self::Unreachable { addr: place, wrong_secret: true } => {
                write!(f, "somebody is at {}, but does not know our secret", place.brief())
            }
            Self::WrongPeer { addr: place } => {
                write!(f, "who answers at {} is not who gave this ticket", place.brief())
            }
            Self::Refused(JoinRefusal::Full) => {
                write!(f, "{MAX_MEMBERS} are there already, and there is no room for more")
            }
            Self::Refused(JoinRefusal::VersionMismatch(theirs)) => {
                write!(f, "they run another version of coplay (its language is {theirs}, ours {PROTOCOL_VERSION})")
            }
            Self::Refused(JoinRefusal::WrongGameKind | JoinRefusal::NotLeader { .. } | JoinRefusal::NoSpectators) => {
                write!(f, "what is played there is a game for the machine, and not a world to walk about in")
            }
            Self::NoReply => write!(f, "somebody is there, but does not open"),
            Self::SettingsTooLong => write!(f, "the terms are too long"),
            Self::Multicast(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MeshError {}
