//! Traffic counters of one site of a mesh.

use super::RejectedPackets;
use crate::transport::DropCounts;

/// Count of datagrams and sum of their lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCount {
    /// Number of datagrams; a sent multicast packet counts once for all its receivers.
    pub datagrams: u64,
    /// Sum of the lengths in bytes, without the headers of UDP and IP.
    pub bytes: u64,
}

/// Counters of a site's sent, received and rejected datagrams since it created or joined the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshStats {
    /// Game datagrams sent by unicast, counted once per recipient; lengths as passed to
    /// [`Mesh::send`](super::Mesh::send).
    pub unicast_sent: TrafficCount,
    /// Packets sent by multicast, beacons included, with the overhead of sealing.
    pub multicast_sent: TrafficCount,
    /// Game datagrams received by unicast from members; lengths as the sender passed them to
    /// [`Mesh::send`](super::Mesh::send).
    pub unicast_received: TrafficCount,
    /// Game datagrams received by multicast from present members; lengths without the overhead of sealing.
    pub multicast_received: TrafficCount,
    /// Datagrams that were not sent because they exceed [`MAX_PAYLOAD_LEN`](super::MAX_PAYLOAD_LEN).
    pub too_long: u64,
    /// Unicast datagrams that were malformed or from a peer that is not a member.
    pub unexpected: u64,
    /// Multicast packets that were rejected, by reason.
    pub multicast_rejected: RejectedPackets,
    /// Authentic multicast packets for which the queue had no room.
    pub multicast_queue_full: u64,
    /// Received datagrams and events that the transport did not deliver, counted since its creation.
    pub transport_drops: DropCounts,
}

impl TrafficCount {
    pub(super) fn record(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }
}
