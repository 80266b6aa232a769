//! Statistics of a world and of its links, for a net graph and for traces.

use super::remote_site::RemoteSite;
use crate::time::{Instant, TimeDelta};

/// Statistics of a world. The counters start at 0 when the [`PeerWorld`](super::PeerWorld) is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerWorldStats {
    /// Sent updates of this site's entities, each counted once for all recipients. The states sent to a single peer
    /// when it comes near are not counted.
    pub updates_sent: u64,
    /// Updates not sent because peers can dead-reckon them.
    pub updates_skipped: u64,
    /// Received updates that were accepted, including duplicates.
    pub updates_received: u64,
    /// Accepted updates that came after the view of their tick.
    pub updates_late: u64,
    /// Rejected updates: too far from the current tick, of too many entities, undecodable, or before the world time is
    /// known.
    pub updates_refused: u64,
    /// Current maximum rate, in updates per entity and second; 0 for the first 0.5 s.
    pub update_rate: u32,
    /// Datagrams handed to the network; each may go to several sites.
    pub datagrams_sent: u64,
    /// Bytes of the datagrams handed to the network.
    pub bytes_sent: u64,
    /// Received datagrams, including ignored and malformed ones.
    pub datagrams_received: u64,
    /// Bytes of all datagrams counted in `datagrams_received`.
    pub bytes_received: u64,
    /// Received datagrams that could not be decoded, or only up to a malformed item.
    pub malformed: u64,
}

/// Statistics of the link to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorldPeerStats {
    /// Smoothed round-trip time; `None` before the first measurement.
    pub rtt: Option<TimeDelta>,
    /// Mean deviation of the round-trip time.
    pub jitter: TimeDelta,
    /// Offset of the peer's clock from the local clock, positive if the peer's clock is ahead; `None` until it is
    /// measured.
    pub clock_offset: Option<TimeDelta>,
    /// Offset of the peer's world time from this site's world time, positive if the peer's is ahead; `None` until both
    /// are known.
    pub world_time_offset: Option<TimeDelta>,
    /// Share of the peer's updates that did not arrive, 0 to 1, computed every 500 ms from the updates since the last
    /// computation, which takes place only if they are 8 or more.
    pub loss_share: f32,
    /// Share of the peer's updates that arrived after the view of their tick, 0 to 1, over the same time.
    pub late_share: f32,
    /// Share of this site's updates that the peer reports as lost, 0 to 1. `None` if the peer sent no report within the
    /// last 5 s.
    pub reported_loss_share: Option<f32>,
}

impl WorldPeerStats {
    pub(super) fn of(peer: &RemoteSite, now: Instant, world_time_offset: Option<TimeDelta>) -> Self {
        let share = |part: u8| f32::from(part) / 255.0;
        Self {
            rtt: peer.clock.rtt(),
            jitter: peer.clock.jitter(),
            clock_offset: peer.clock.is_ready().then(|| peer.clock.offset(now)).flatten(),
            world_time_offset: peer
                .world_time_offset_from_us(now)
                .zip(world_time_offset)
                .map(|(theirs, ours)| theirs - ours),
            loss_share: share(peer.loss_share),
            late_share: share(peer.late_share),
            reported_loss_share: peer.recent_report(now).map(|(lost, _)| share(lost)),
        }
    }
}
