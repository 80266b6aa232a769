//! Traffic counters of a mesh.

use super::RejectedPackets;
use crate::transport::DropCounts;

/// Number of datagrams and of their payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Sent, received and rejected datagrams of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshStats {
    /// Sent by unicast, once per recipient.
    pub unicast_sent: Traffic,
    /// Sent by multicast, with the overhead of sealing.
    pub multicast_sent: Traffic,
    /// Received by unicast.
    pub unicast_received: Traffic,
    /// Received by multicast.
    pub multicast_received: Traffic,
    /// Datagrams that were too long to send.
    pub too_long: u64,
    /// Unicast datagrams that were malformed or from a peer that is not a member.
    pub unexpected: u64,
    /// Rejected multicast packets.
    pub multicast_rejected: RejectedPackets,
    /// Authentic multicast packets for which the queue had no room.
    pub multicast_queue_full: u64,
    /// Datagrams dropped by the transport.
    pub transport_drops: DropCounts,
}

impl Traffic {
    pub(super) fn record(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }
}
