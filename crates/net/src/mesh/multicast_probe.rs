//! Who hears whom by multicast. Nobody can know that of what it sends itself; so each tells the others whether it hears them.
//!
//! It is told in every [beat](super), again and again: what is lost on the way is told by the next. Until somebody has said that it hears
//! us, and when it says so no more, what is for it goes to it alone.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

/// Whoever sends by multicast is heard there at least every half of a second; who is not heard for so long does not get through.
const RECEIVE_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);
/// What somebody said of its hearing holds for so long: some beats may be lost.
const CONFIRMATION_TIMEOUT: TimeDelta = TimeDelta::from_secs(4);
/// Everybody is told this often, and at once when it changes.
pub(super) const HEARTBEAT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// What one site knows of it.
#[derive(Debug, Default)]
pub(super) struct MulticastProbe {
    peers: BTreeMap<u32, PeerReception>,
}

#[derive(Debug, Default)]
struct PeerReception {
    /// When it was last heard by multicast.
    last_received: Option<Instant>,
    /// When it last said that it hears us.
    last_confirmed: Option<Instant>,
    /// When it was last told whether we hear it, and what.
    last_heartbeat: Option<(Instant, bool)>,
}

impl MulticastProbe {
    /// Something of this site's came by multicast.
    pub(super) fn on_multicast(&mut self, now: Instant, site: u32) {
        self.peers.entry(site).or_default().last_received = Some(now);
    }

    /// A site says whether it hears us.
    pub(super) fn on_heartbeat(&mut self, now: Instant, site: u32, hears: bool) {
        self.peers.entry(site).or_default().last_confirmed = hears.then_some(now);
    }

    /// Whether a site hears us by multicast.
    pub(super) fn is_received_by(&self, now: Instant, site: u32) -> bool {
        self.peers.get(&site).and_then(|ear| ear.last_confirmed).is_some_and(|said| now - said < CONFIRMATION_TIMEOUT)
    }

    /// Whether we hear a site by multicast.
    pub(super) fn is_receiving_from(&self, now: Instant, site: u32) -> bool {
        self.peers.get(&site).and_then(|ear| ear.last_received).is_some_and(|heard| now - heard < RECEIVE_TIMEOUT)
    }

    /// What a site must be told now: whether we hear it. `deaf` hears nobody.
    pub(super) fn poll_heartbeat(&mut self, now: Instant, site: u32, deaf: bool) -> Option<bool> {
        let hears = !deaf && self.is_receiving_from(now, site);
        let ear = self.peers.entry(site).or_default();
        let due = ear.last_heartbeat.is_none_or(|(at, told)| now - at >= HEARTBEAT_INTERVAL || told != hears);
        due.then(|| {
            ear.last_heartbeat = Some((now, hears));
            hears
        })
    }

    /// Forgets all but these sites.
    pub(super) fn retain(&mut self, sites: impl Fn(u32) -> bool) {
        self.peers.retain(|site, _| sites(*site));
    }

    /// A site began anew, and knows nothing of what was said before.
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
        let mut hearing = MulticastProbe::default();
        assert_eq!(hearing.poll_heartbeat(at(0), 7, false), Some(false));
        assert_eq!(hearing.poll_heartbeat(at(500), 7, false), None);
        hearing.on_multicast(at(510), 7);
        assert_eq!(hearing.poll_heartbeat(at(520), 7, false), Some(true));
        assert_eq!(hearing.poll_heartbeat(at(1_500), 7, false), None);
        assert_eq!(hearing.poll_heartbeat(at(1_520), 7, false), Some(true));
        assert_eq!(hearing.poll_heartbeat(at(2_515), 7, false), Some(false), "nothing came for two seconds");
        hearing.on_multicast(at(2_600), 7);
        assert_eq!(hearing.poll_heartbeat(at(2_600), 7, true), None, "who is deaf hears nothing");
    }

    #[test]
    fn multicast_confirmation_expires() {
        let mut hearing = MulticastProbe::default();
        assert!(!hearing.is_received_by(at(0), 7));
        hearing.on_heartbeat(at(0), 7, true);
        assert!(hearing.is_received_by(at(3_900), 7) && !hearing.is_received_by(at(4_000), 7));
        hearing.on_heartbeat(at(1_000), 7, false);
        assert!(!hearing.is_received_by(at(1_000), 7));
        hearing.on_heartbeat(at(2_000), 7, true);
        hearing.remove(7);
        assert!(!hearing.is_received_by(at(2_000), 7));
        hearing.on_heartbeat(at(2_000), 8, true);
        hearing.retain(|site| site != 8);
        assert!(hearing.peers.is_empty());
    }
}
