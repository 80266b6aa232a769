//! What a site sent and received, in numbers.

use super::Unfit;
use crate::transport::Refused;

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
pub struct Counts {
    /// Sent to one site each.
    pub sent: Traffic,
    /// Sent to many at once, with what sealing adds.
    pub multicast: Traffic,
    /// Received on channels.
    pub received: Traffic,
    /// Received by multicast.
    pub heard: Traffic,
    /// Too long to be sent.
    pub too_long: u64,
    /// On channels, from who is not in the group, or without sense.
    pub strange: u64,
    /// By multicast.
    pub unfit: Unfit,
    /// Genuine ones that came by multicast and for which there was no room.
    pub crowded_out: u64,
    /// By the transport.
    pub refused: Refused,
}

impl Traffic {
    pub(super) fn count(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }
}
