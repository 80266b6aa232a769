//! What goes in and comes out: for whom something is, and what happened.

use coplay::peer_world::WorldRegion;
use coplay::time::Instant;

use super::MulticastError;
use crate::key::PeerKey;

/// For whom a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest<'a> {
    /// For all others.
    All,
    /// For these sites, one by one.
    Sites(&'a [u32]),
    /// For one site.
    Site(u32),
    /// For all who listen to a region.
    Region {
        /// Which one.
        region: WorldRegion,
        /// Who does, as far as the caller knows: where multicast does not reach them they are sent it one by one.
        sites: &'a [u32],
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshEvent {
    /// A datagram came, from somebody who came and has not gone. The same one may come twice.
    Datagram {
        /// When it came.
        at: Instant,
        /// The site that it is from.
        from: u32,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// Somebody is here.
    Joined {
        /// Who it is.
        member: MeshMember,
        /// It was here before.
        is_rejoin: bool,
    },
    /// Somebody is not here any more.
    Left {
        /// Its number.
        site: u32,
        /// Why.
        reason: DepartureReason,
    },
    /// There is no multicast after all; everybody is reached one by one.
    MulticastUnavailable(MulticastError),
}

/// Why somebody is not here any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureReason {
    /// It said goodbye.
    Left,
    /// It was not heard for too long.
    TimedOut,
    /// It was started anew, and will be here again.
    Restarted,
}

/// Somebody of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshMember {
    /// Its number: the same whenever it comes back, and the SSRC of its RTP packets.
    pub site: u32,
    /// Who it is.
    pub key: PeerKey,
    /// What to call it.
    pub name: String,
}
