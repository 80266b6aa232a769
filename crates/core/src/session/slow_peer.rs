//! Eviction of slow peers: sites that still send but hold up the game, because their machine is slow or their link is
//! too long or too uneven for the input delay.
//!
//! The coordinator measures for how long each site held up the game. That stall time decays by a tenth of the time that
//! passes, so a hiccup is forgiven and a permanently slow site is not. Above [`Config::stall_limit`](super::Config) the
//! coordinator evicts the site by a change of the [membership](super::membership), to which the other sites consent on
//! the coordinator's authority. All remaining sites must vote, and meanwhile no site's game advances further than its
//! prediction window. So the coordinator keeps waiting for a slow site while it does not receive from all remaining
//! sites, and for 5 s after an eviction that failed.

use alloc::vec::Vec;

use super::peer::Peer;
use super::peers::Peers;
use super::session_clock::UPDATE_INTERVAL;
use super::stall::{EndedStall, Stall};
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};

/// Divisor of the elapsed time that gives the decay of the stall time.
const STALL_DECAY_DIVISOR: i64 = 10;
/// Time for which an evicted site may not join again, multiplied by the number of its evictions up to
/// [`MAX_REJOIN_BACKOFF_FACTOR`].
const REJOIN_BACKOFF: TimeDelta = TimeDelta::from_secs(5);
/// Maximum number of evictions that lengthen the backoff.
const MAX_REJOIN_BACKOFF_FACTOR: i64 = 12;
/// Time for which a leaving site is not evicted, enough for ten long round trips.
const LEAVE_GRACE: TimeDelta = TimeDelta::from_secs(3);
/// Silence after which a peer probably does not receive this site's packets either.
const PEER_SILENCE_LIMIT: TimeDelta = TimeDelta::from_millis(500);
/// Time after a failed eviction in which the coordinator evicts no site for stalling.
const FAILED_EVICTION_BACKOFF: TimeDelta = TimeDelta::from_secs(5);

/// The time for which a site held up the game, and its evictions.
#[derive(Clone, Copy, Debug, Default)]
struct StallRecord {
    /// Decaying sum of the time for which the site held up the game.
    stall_time: TimeDelta,
    /// Number of evictions of the site while it still sent, for stalling or by
    /// [`Session::drop_site`](super::Session::drop_site), capped at [`MAX_REJOIN_BACKOFF_FACTOR`].
    evictions: i64,
    /// End of the time in which the site may not join again.
    excluded_until: Option<Instant>,
    /// End of the time in which the site, which leaves, is not evicted.
    leave_excused_until: Option<Instant>,
}

/// The stall records of all peers, by index, and the backoff after failed evictions.
#[derive(Debug)]
pub(super) struct SlowPeers {
    records: Vec<StallRecord>,
    /// End of the time in which slow sites are tolerated, because an eviction failed.
    eviction_retry_at: Option<Instant>,
}

/// A limit of the frame rate by the link of one site.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowPeerLimits {
    /// The time for which a peer may hold up the game.
    pub(super) stall_limit: TimeDelta,
    /// The site whose link limits the frame rate, and the share of time that it costs.
    pub(super) limiting_site: Option<(SiteId, f64)>,
    /// Sites that search for a desync: they replay many past frames and are late for a good reason.
    pub(super) diverged: SiteSet,
}

impl SlowPeers {
    pub(super) fn new(peer_count: usize) -> Self {
        Self { records: alloc::vec![StallRecord::default(); peer_count], eviction_retry_at: None }
    }

    /// Charges a stall to the peers that caused it. Only the coordinator does this: elsewhere the stall times would not
    /// decay, and the next coordinator would evict sites for stalls long past.
    pub(super) fn charge(&mut self, stall: EndedStall, peers: &Peers) {
        for (record, _) in self.of_peers(peers).filter(|(_, peer)| stall.caused_by.contains(peer.site())) {
            record.stall_time += stall.waited;
        }
    }

    /// Updates the stall times for one [`UPDATE_INTERVAL`]: subtracts the decay and, for the peer whose link limits the
    /// frame rate, adds the share of the interval that this limit costs. Returns the peers above the stall limit.
    pub(super) fn update(&mut self, now: Instant, limits: &SlowPeerLimits, stall: &Stall, peers: &Peers) -> SiteSet {
        let is_eligible = |record: &StallRecord, peer: &Peer| {
            let is_excused = record.leave_excused_until.is_some_and(|until| now < until);
            peer.is_awaited() && !limits.diverged.contains(peer.site()) && !is_excused
        };
        let mut slow = SiteSet::EMPTY;
        for (record, peer) in self.of_peers(peers).filter(|(record, peer)| is_eligible(record, peer)) {
            let share = limits.limiting_site.filter(|(site, _)| *site == peer.site()).map_or(0.0, |(_, share)| share);
            let change = UPDATE_INTERVAL.scale(share) - UPDATE_INTERVAL / STALL_DECAY_DIVISOR;
            record.stall_time = (record.stall_time + change).max(TimeDelta::ZERO);
            if record.stall_time + stall.wait_for(now, peer.site()) > limits.stall_limit {
                slow.insert(peer.site());
            }
        }
        slow
    }

    /// Returns whether the coordinator can now ask the other sites to drop the sites in `slow`: `slow` is not empty,
    /// packets of all other playing sites arrived within [`PEER_SILENCE_LIMIT`], and no eviction failed recently.
    pub(super) fn can_evict(&self, now: Instant, slow: SiteSet, peers: &Peers) -> bool {
        let is_silent = |peer: &Peer| !slow.contains(peer.site()) && now - peer.last_received_at() > PEER_SILENCE_LIMIT;
        let is_backing_off = self.eviction_retry_at.is_some_and(|until| now < until);
        !slow.is_empty() && !is_backing_off && !peers.playing().any(is_silent)
    }

    /// Clears all stall times: after a ballot that dropped no site, whose participants had muted the sites that it was
    /// to drop, so that these did not cause the stall; and at a site that evicts none.
    pub(super) fn reset(&mut self) {
        self.records.iter_mut().for_each(|record| record.stall_time = TimeDelta::ZERO);
    }

    /// Records that a ballot to evict sites dropped none: the coordinator waits before it tries another eviction.
    pub(super) fn on_failed_eviction(&mut self, now: Instant) {
        self.eviction_retry_at = Some(now + FAILED_EVICTION_BACKOFF);
    }

    /// Forgets a failed eviction, because this site is admitted to a game.
    pub(super) fn on_own_admission(&mut self) {
        self.eviction_retry_at = None;
    }

    /// Records that a site leaves. For [`LEAVE_GRACE`] it is not evicted: it only retransmits its last inputs, and it
    /// may have published frames with these inputs. A leaving site that withholds them for longer can be evicted.
    pub(super) fn on_leave(&mut self, index: usize, now: Instant) {
        self.records[index].leave_excused_until = Some(now + LEAVE_GRACE);
    }

    /// Clears the stall time and the grace for a leave when a seat is taken again.
    pub(super) fn on_seat_taken(&mut self, index: usize) {
        let record = &mut self.records[index];
        (record.stall_time, record.leave_excused_until) = (TimeDelta::ZERO, None);
    }

    /// Records that a site was dropped. `is_evicted` states whether the coordinator had it dropped although it still
    /// sent.
    pub(super) fn on_drop(&mut self, index: usize, now: Instant, is_evicted: bool) {
        let record = &mut self.records[index];
        record.stall_time = TimeDelta::ZERO;
        if is_evicted {
            record.evictions = (record.evictions + 1).min(MAX_REJOIN_BACKOFF_FACTOR);
            record.excluded_until = Some(now + REJOIN_BACKOFF * record.evictions);
        }
    }

    /// Returns whether a joiner's earlier evictions allow it to join: it was not evicted, or its backoff has passed and
    /// the measured delay of its link fits `lead`, the time of the input delay and prediction window.
    pub(super) fn can_rejoin(&self, now: Instant, (index, peer): (usize, &Peer), lead: TimeDelta) -> bool {
        let delay = peer.clock().rtt().unwrap_or_default() / 2 + peer.clock().jitter() * 2;
        self.records[index].excluded_until.is_none_or(|until| now >= until && delay <= lead)
    }

    fn of_peers<'a>(&'a mut self, peers: &'a Peers) -> impl Iterator<Item = (&'a mut StallRecord, &'a Peer)> {
        self.records.iter_mut().zip(peers.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;

    const LIMITS: SlowPeerLimits =
        SlowPeerLimits { stall_limit: TimeDelta::from_millis(500), limiting_site: None, diverged: SiteSet::EMPTY };

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn only(number: u8) -> SiteSet {
        SiteSet::from_iter([SiteId::new(number).unwrap()])
    }

    fn stall_of(number: u8, millis: i64) -> EndedStall {
        EndedStall { waited: TimeDelta::from_millis(millis), caused_by: only(number) }
    }

    #[test]
    fn repeated_stalls_add_up_and_a_hiccup_is_forgiven() {
        let (peers, stall) = (table(0, 3), Stall::new(at(0)));
        let mut slow_peers = SlowPeers::new(2);
        slow_peers.charge(stall_of(2, 300), &peers);
        assert!(slow_peers.update(at(50), &LIMITS, &stall, &peers).is_empty());
        slow_peers.charge(stall_of(2, 300), &peers);
        assert_eq!(slow_peers.update(at(100), &LIMITS, &stall, &peers), only(2));
        let decayed = (0..20).map(|_| slow_peers.update(at(100), &LIMITS, &stall, &peers)).last();
        assert_eq!(decayed, Some(SiteSet::EMPTY), "a tenth of 1 s is forgiven");
    }

    #[test]
    fn current_stall_counts_for_its_cause() {
        let (peers, mut stall) = (table(0, 3), Stall::new(at(0)));
        stall.begin(at(0));
        stall.blame(only(1));
        let mut slow_peers = SlowPeers::new(2);
        assert!(slow_peers.update(at(500), &LIMITS, &stall, &peers).is_empty());
        assert_eq!(slow_peers.update(at(501), &LIMITS, &stall, &peers), only(1));
        let searching = SlowPeerLimits { diverged: only(1), ..LIMITS };
        assert!(slow_peers.update(at(501), &searching, &stall, &peers).is_empty());
    }

    #[test]
    fn no_eviction_while_a_remaining_site_is_silent_or_after_a_failure() {
        let mut peers = table(0, 3);
        let mut slow_peers = SlowPeers::new(2);
        assert!(slow_peers.can_evict(at(500), only(2), &peers));
        assert!(!slow_peers.can_evict(at(501), only(2), &peers), "site 1 is silent");
        peers[0].on_received(at(500), 1);
        assert!(slow_peers.can_evict(at(501), only(2), &peers));
        slow_peers.on_failed_eviction(at(501));
        peers[0].on_received(at(5_500), 1);
        assert!(!slow_peers.can_evict(at(5_500), only(2), &peers) && slow_peers.can_evict(at(5_501), only(2), &peers));
    }

    #[test]
    fn evicted_site_waits_longer_each_time() {
        let peers = table(0, 2);
        let mut slow_peers = SlowPeers::new(1);
        let can_rejoin = |slow_peers: &SlowPeers, now: Instant| {
            slow_peers.can_rejoin(now, (0, &peers[0]), TimeDelta::from_millis(100))
        };
        slow_peers.on_drop(0, at(0), false);
        assert!(can_rejoin(&slow_peers, at(0)), "a silent site may come back at once");
        slow_peers.on_drop(0, at(0), true);
        assert!(!can_rejoin(&slow_peers, at(4_999)) && can_rejoin(&slow_peers, at(5_000)));
        slow_peers.on_drop(0, at(10_000), true);
        assert!(!can_rejoin(&slow_peers, at(19_999)) && can_rejoin(&slow_peers, at(20_000)));
    }

    #[test]
    fn leaving_site_is_not_evicted_at_first() {
        let (peers, stall) = (table(0, 2), Stall::new(at(0)));
        let mut slow_peers = SlowPeers::new(1);
        slow_peers.on_leave(0, at(0));
        slow_peers.charge(stall_of(1, 900), &peers);
        assert!(slow_peers.update(at(2_999), &LIMITS, &stall, &peers).is_empty());
        assert_eq!(slow_peers.update(at(3_000), &LIMITS, &stall, &peers), only(1));
    }
}
