//! Numbers for a net graph and for traces.

use super::peer::WorldPeer;
use crate::time::{Instant, TimeDelta};

/// A world in numbers, since we came unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerWorldStats {
    /// Updates of our entities that were sent.
    pub updates_sent: u64,
    /// Updates that others could reckon themselves.
    pub updates_skipped: u64,
    /// Updates that came.
    pub updates_received: u64,
    /// Those of them that came after they were needed.
    pub updates_late: u64,
    /// Updates that were refused: of another time, of too many entities, or of no sense.
    pub updates_refused: u64,
    /// Updates of an entity in a second that are sent at present, at the most.
    pub update_rate: u32,
    /// Datagrams handed out; who they go to is for the network.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams that came.
    pub datagrams_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Datagrams that were no message.
    pub malformed: u64,
}

/// Another site in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorldPeerStats {
    /// Smoothed round-trip time.
    pub rtt: Option<TimeDelta>,
    /// Its mean deviation.
    pub jitter: TimeDelta,
    /// By how much its clock is ahead of ours.
    pub clock_offset: Option<TimeDelta>,
    /// By how much what it takes the world's time to be is ahead of what we do.
    pub world_time_offset: Option<TimeDelta>,
    /// The part of its updates that was lost of late.
    pub loss_share: f32,
    /// The part that came too late.
    pub late_share: f32,
    /// The part of our updates that it says it lost, if it said anything of late.
    pub reported_loss_share: Option<f32>,
}

impl WorldPeerStats {
    pub(super) fn of(peer: &WorldPeer, now: Instant, world_ahead: Option<TimeDelta>) -> Self {
        let share = |part: u8| f32::from(part) / 255.0;
        Self {
            rtt: peer.clock.rtt(),
            jitter: peer.clock.jitter(),
            clock_offset: peer.clock.is_ready().then(|| peer.clock.offset(now)).flatten(),
            world_time_offset: peer.world_time_offset_from_us(now).zip(world_ahead).map(|(theirs, ours)| theirs - ours),
            loss_share: share(peer.loss_share),
            late_share: share(peer.late_share),
            reported_loss_share: peer.recent_report(now).map(|(lost, _)| share(lost)),
        }
    }
}
