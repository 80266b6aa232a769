//! Destinations and events of a mesh.

use coplay::peer_world::WorldRegion;
use coplay::time::Instant;

use super::MulticastError;
use crate::key::PeerKey;

/// Destination of a datagram in [`Mesh::send`](super::Mesh::send).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest<'a> {
    /// All other present members: by multicast where it gets through, by unicast elsewhere.
    All,
    /// These sites, by unicast.
    Sites(&'a [u32]),
    /// One site, by unicast.
    Site(u32),
    /// All subscribers of a region: by multicast where it gets through, by unicast elsewhere.
    Region {
        /// Region on whose multicast channel the datagram is sent.
        region: WorldRegion,
        /// Subscribers as far as the caller knows them: sites that multicast does not reach get the datagram by
        /// unicast.
        sites: &'a [u32],
    },
}

/// Event that [`Mesh::poll`](super::Mesh::poll) returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshEvent {
    /// A datagram from a present member. The same datagram may arrive twice.
    Datagram {
        /// Arrival time, on the clock of [`clock::now`](crate::clock::now); on an emulated link, the time at which that
        /// link delivers.
        at: Instant,
        /// Site number of the sender.
        from: u32,
        /// Content that the sender passed to [`Mesh::send`](super::Mesh::send).
        bytes: Vec<u8>,
    },
    /// A member has become present: a datagram from it arrived on its secured channel.
    Joined {
        /// Site number, key and name of the member.
        member: MeshMember,
        /// Whether the member was present before. A member is forgotten after 15 min of absence, and then joins as a
        /// new one.
        is_rejoin: bool,
    },
    /// A member is not present any more.
    Left {
        /// Site number of the member.
        site: u32,
        /// Cause: a goodbye, silence, or a restart of the member.
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
    /// No datagram from the member arrived on its secured channel for 10 s.
    TimedOut,
    /// The member's program was restarted; the next datagram from the member makes it present again.
    Restarted,
}

/// Identity of a member of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshMember {
    /// Site number: the same whenever the member returns, and the SSRC of its RTP packets.
    pub site: u32,
    /// Public key that the member proved to the transport.
    pub key: PeerKey,
    /// Display name that the member chose; two members can have the same.
    pub name: String,
}
