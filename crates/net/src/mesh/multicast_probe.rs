//! Finds out between which sites multicast gets through. A sender cannot observe that by itself, so each site reports
//! to every other site whether it receives that site's multicast.
//!
//! Every [heartbeat](super) repeats the report, so the next heartbeat makes up for a lost one. Until a site has
//! confirmed reception, and when it stops confirming, datagrams for it go by unicast.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

/// Multicast silence after which a sender counts as not received: a sender sends at least one packet every 0.5 s.
const RECEIVE_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);
/// Validity of a confirmation of reception, longer than the heartbeat interval because some heartbeats may be lost.
const CONFIRMATION_TIMEOUT: TimeDelta = TimeDelta::from_secs(4);
/// Interval between heartbeats to a peer; a change of reception is reported at once.
pub(super) const HEARTBEAT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// Multicast reception between this site and the others.
#[derive(Debug, Default)]
pub(super) struct MulticastProbe {
    peers: BTreeMap<u32, PeerReception>,
}

#[derive(Debug, Default)]
struct PeerReception {
    /// Time of the peer's last multicast packet.
    last_received: Option<Instant>,
    /// Time of the peer's last heartbeat if that confirmed that the peer receives this site; otherwise `None`.
    last_confirmed: Option<Instant>,
    /// Time of the last heartbeat to the peer, and whether it confirmed reception.
    last_heartbeat: Option<(Instant, bool)>,
}

impl MulticastProbe {
    /// Records a multicast packet from a site.
    pub(super) fn on_multicast(&mut self, now: Instant, site: u32) {
        self.peers.entry(site).or_default().last_received = Some(now);
    }

    /// Records a heartbeat, in which a site reports whether it receives this one by multicast.
    pub(super) fn on_heartbeat(&mut self, now: Instant, site: u32, is_receiving: bool) {
        self.peers.entry(site).or_default().last_confirmed = is_receiving.then_some(now);
    }

    /// Returns whether a site receives this one by multicast, according to its last heartbeat, which must be less than
    /// 4 s old.
    pub(super) fn is_received_by(&self, now: Instant, site: u32) -> bool {
        self.peers
            .get(&site)
            .and_then(|state| state.last_confirmed)
            .is_some_and(|confirmed| now - confirmed < CONFIRMATION_TIMEOUT)
    }

    /// Returns whether a multicast packet of another site arrived within the last 2 s.
    pub(super) fn is_receiving_from(&self, now: Instant, site: u32) -> bool {
        self.peers
            .get(&site)
            .and_then(|state| state.last_received)
            .is_some_and(|received| now - received < RECEIVE_TIMEOUT)
    }

    /// Returns the content of the heartbeat to `site`: whether this site receives that site's multicast. A heartbeat is
    /// due each second, and at once when the content changes; otherwise returns `None`. `is_unavailable` states that
    /// this site has no multicast socket.
    pub(super) fn poll_heartbeat(&mut self, now: Instant, site: u32, is_unavailable: bool) -> Option<bool> {
        let is_receiving = !is_unavailable && self.is_receiving_from(now, site);
        let state = self.peers.entry(site).or_default();
        let due = state.last_heartbeat.is_none_or(|(at, sent)| now - at >= HEARTBEAT_INTERVAL || sent != is_receiving);
        due.then(|| {
            state.last_heartbeat = Some((now, is_receiving));
            is_receiving
        })
    }

    /// Forgets the sites for which `sites` returns `false`.
    pub(super) fn retain(&mut self, sites: impl Fn(u32) -> bool) {
        self.peers.retain(|site, _| sites(*site));
    }

    /// Forgets a site that departed. If the site was restarted, it knows nothing of earlier heartbeats, so the next one
    /// is due at once.
    pub(super) fn remove(&mut self, site: u32) {
        self.peers.remove(&site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(100_000 + millis)
    }

    #[test]
    fn heartbeat_is_due_every_second_and_on_change() {
        let mut probe = MulticastProbe::default();
        assert_eq!(probe.poll_heartbeat(at(0), 7, false), Some(false));
        assert_eq!(probe.poll_heartbeat(at(500), 7, false), None);
        probe.on_multicast(at(510), 7);
        assert_eq!(probe.poll_heartbeat(at(520), 7, false), Some(true));
        assert_eq!(probe.poll_heartbeat(at(1_500), 7, false), None);
        assert_eq!(probe.poll_heartbeat(at(1_520), 7, false), Some(true));
        assert_eq!(probe.poll_heartbeat(at(2_515), 7, false), Some(false), "nothing came for two seconds");
        probe.on_multicast(at(2_600), 7);
        assert_eq!(probe.poll_heartbeat(at(2_600), 7, true), None, "without multicast nothing is received");
    }

    #[test]
    fn multicast_confirmation_expires() {
        let mut probe = MulticastProbe::default();
        assert!(!probe.is_received_by(at(0), 7));
        probe.on_heartbeat(at(0), 7, true);
        assert!(probe.is_received_by(at(3_900), 7) && !probe.is_received_by(at(4_000), 7));
        probe.on_heartbeat(at(1_000), 7, false);
        assert!(!probe.is_received_by(at(1_000), 7));
        probe.on_heartbeat(at(2_000), 7, true);
        probe.remove(7);
        assert!(!probe.is_received_by(at(2_000), 7));
        probe.on_heartbeat(at(2_000), 8, true);
        probe.retain(|site| site != 8);
        assert!(probe.peers.is_empty());
    }
}
