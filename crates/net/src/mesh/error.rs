//! Errors of creating or joining a mesh.

use std::fmt;

use super::{MAX_MEMBERS, MAX_SETTINGS_LEN, MulticastError};
use crate::lobby::{JoinRefusal, PROTOCOL_VERSION};
use crate::peer_addr::PeerAddr;

/// Reason why a mesh could not be created or joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshError {
    /// No dialed address answered within the time limit, or the site there rejected this site's secret or token.
    Unreachable {
        /// Address that was dialed.
        addr: PeerAddr,
        /// Whether a site answered there and rejected this site's secret or token.
        wrong_secret: bool,
    },
    /// The site at the address is not the expected peer, or is this site itself.
    WrongPeer {
        /// Address that was dialed.
        addr: PeerAddr,
    },
    /// The member asked for admission refused this site.
    Refused(JoinRefusal),
    /// A member answered the dial, but did not answer the join request within the time limit.
    NoReply,
    /// The settings are longer than [`MAX_SETTINGS_LEN`](super::MAX_SETTINGS_LEN).
    SettingsTooLong,
    /// Multicast was required and is unavailable.
    Multicast(MulticastError),
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { addr, wrong_secret: false } => write!(f, "no answer from {}", addr.brief()),
            Self::Unreachable { addr, wrong_secret: true } => {
                write!(f, "{} rejected the secret of the ticket", addr.brief())
            }
            Self::WrongPeer { addr } => {
                write!(f, "{} leads to another site than that of the ticket, or back to this program", addr.brief())
            }
            Self::Refused(JoinRefusal::Full) => {
                write!(f, "the maze is full: it already has {MAX_MEMBERS} sites")
            }
            Self::Refused(JoinRefusal::VersionMismatch(theirs)) => {
                write!(
                    f,
                    "the site of the ticket runs another version of coplay: protocol {theirs} there, {PROTOCOL_VERSION} here"
                )
            }
            Self::Refused(JoinRefusal::WrongGameKind | JoinRefusal::NotLeader { .. } | JoinRefusal::NoSpectators) => {
                write!(f, "the ticket leads to a shared game, not to a maze")
            }
            Self::NoReply => write!(f, "the site of the ticket is connected, but does not answer the join request"),
            Self::SettingsTooLong => write!(f, "the settings of the maze are longer than {MAX_SETTINGS_LEN} bytes"),
            Self::Multicast(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MeshError {}
