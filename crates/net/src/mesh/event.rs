//! Destinations and events of a mesh.

use coplay::peer_world::WorldRegion;
use coplay::time::Instant;

use super::MulticastError;
use crate::key::PeerKey;

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest<'a> {
    /// All other sites.
    All,
    /// These sites, by unicast.
    Sites(&'a [u32]),
    /// One site.
    Site(u32),
    /// All subscribers of a region.
    Region {
        /// Region of the world.
        region: WorldRegion,
        /// Subscribers as far as the caller knows them: sites that multicast does not reach get the datagram by
        /// unicast.
        sites: &'a [u32],
    },
}

/// Event reported by a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshEvent {
    /// A datagram from a present member. The same datagram may arrive twice.
    Datagram {
        /// Arrival time.
        at: Instant,
        /// Site number of the sender.
        from: u32,
        /// Content.
        bytes: Vec<u8>,
    },
    /// A member is present.
    Joined {
        /// Identity of the member.
        member: MeshMember,
        /// Whether the member was present before.
        is_rejoin: bool,
    },
    /// A member is not present any more.
    Left {
        /// Its site number.
        site: u32,
        /// Reason of the departure.
        reason: DepartureReason,
    },
    /// Multicast is unavailable; every site is reached by unicast.
    MulticastUnavailable(MulticastError),
}

/// Reason why a member is not present any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureReason {
    /// The member said goodbye.
    Left,
    /// The member was silent for too long.
    TimedOut,
    /// The member's program was restarted; the member will be present again.
    Restarted,
}

/// A member of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshMember {
    /// Site number: the same whenever the member returns, and the SSRC of its RTP packets.
    pub site: u32,
    /// Public key.
    pub key: PeerKey,
    /// Display name.
    pub name: String,
}
