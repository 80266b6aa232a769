//! What a site sent and received, in numbers.

use super::RejectedPackets;
use crate::transport::DropCounts;

/// So many datagrams, of so many bytes as they were given or handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was sent and received, and what was not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshStats {
    /// Sent to one site each.
    pub unicast_sent: Traffic,
    /// Sent to many at once, with what sealing adds.
    pub multicast_sent: Traffic,
    /// Received on channels.
    pub unicast_received: Traffic,
    /// Received by multicast.
    pub multicast_received: Traffic,
    /// Too long to be sent.
    pub too_long: u64,
    /// On channels, from who is not in the group, or without sense.
    pub unexpected: u64,
    /// By multicast.
    pub multicast_rejected: RejectedPackets,
    /// Genuine ones that came by multicast and for which there was no room.
    pub multicast_queue_full: u64,
    /// By the transport.
    pub transport_drops: DropCounts,
}

impl Traffic {
    pub(super) fn record(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }
}
