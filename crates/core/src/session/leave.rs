//! The orderly leave of this site: it keeps sending until its peers know where its inputs end.

use super::event::SessionEnd;
use super::peer::Peer;
use super::peers::Peers;
use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// Silence of a peer after which a leaving site no longer waits for it to receive the leave.
const LEAVE_WAIT_FOR_SILENT_PEER: TimeDelta = TimeDelta::from_secs(10);
/// Maximum duration of a leave, after which the session ends even if some peers do not know of it.
const MAX_LEAVE_WAIT: TimeDelta = TimeDelta::from_secs(30);

/// The orderly leave of this site.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLeave {
    /// The first frame without an input of this site.
    pub(super) input_end: Frame,
    pub(super) since: Instant,
    /// The reason that the final [`Event::Ended`](super::Event::Ended) gives.
    pub(super) reason: SessionEnd,
}

impl OwnLeave {
    /// Returns whether every peer has this site's last input and knows that it is the last, has been silent for longer
    /// than [`LEAVE_WAIT_FOR_SILENT_PEER`], was dropped or restarted, or has no seat; or [`MAX_LEAVE_WAIT`] has passed.
    pub(super) fn is_complete(&self, now: Instant, peers: &Peers) -> bool {
        let is_informed = |peer: &Peer| {
            peer.is_free()
                || peer.is_dropped()
                || peer.was_restarted()
                || peer.knows_own_leave()
                || now - peer.last_received_at() > LEAVE_WAIT_FOR_SILENT_PEER
        };
        now - self.since > MAX_LEAVE_WAIT || peers.iter().all(is_informed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;

    #[test]
    fn leave_waits_for_peers_that_send_at_most_30_seconds() {
        let at = |secs: i64| Instant::ZERO + TimeDelta::from_secs(secs);
        let mut peers = table(0, 3);
        let leave = OwnLeave { input_end: Frame::new(9), since: at(0), reason: SessionEnd::Left };
        peers[0].leave(Frame::ZERO);
        peers[0].free_seat();
        peers[1].on_received(at(15), 1);
        assert!(!leave.is_complete(at(25), &peers) && leave.is_complete(at(26), &peers));
        peers[1].on_received(at(29), 1);
        assert!(!leave.is_complete(at(30), &peers) && leave.is_complete(at(31), &peers));
    }
}
