//! Eviction of slow peers: sites that still send but hold up the game, because their machine is slow or their link is
//! too long or too uneven for the input delay.
//!
//! The coordinator measures for how long each site held up the game. That stall time decays by a tenth of the time that
//! passes, so a hiccup is forgiven and a permanently slow site is not. Above [`Config::stall_limit`](super::Config) the
//! coordinator evicts the site by a change of the [membership](super::membership), to which the other sites consent on
//! the coordinator's authority. All remaining sites must vote, and meanwhile no site's game advances further than its
//! prediction window. So the coordinator keeps waiting for a slow site while it does not receive from all remaining
//! sites, and for 5 s after an eviction that failed.

use super::Session;
use super::peer::Peer;
use super::session_clock::UPDATE_INTERVAL;
use super::stall::EndedStall;
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};

/// Minimum of [`Config::stall_limit`](super::Config::stall_limit): a few lost packets are no reason to drop a site.
pub const MIN_STALL_LIMIT: TimeDelta = TimeDelta::from_millis(100);

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
pub(super) struct StallRecord {
    /// Decaying sum of the time for which the site held up the game.
    stall_time: TimeDelta,
    /// Number of evictions of the site while it still sent, for stalling or by [`Session::drop_site`], capped at
    /// [`MAX_REJOIN_BACKOFF_FACTOR`].
    evictions: i64,
    /// End of the time in which the site may not join again.
    excluded_until: Option<Instant>,
    /// End of the time in which the site, which leaves, is not evicted.
    leave_excused_until: Option<Instant>,
}

impl StallRecord {
    /// Clears the stall time: after a ballot that dropped no site, whose participants had muted the sites that it was
    /// to drop, so that these did not cause the stall; and at a site that evicts none.
    pub(super) fn reset(&mut self) {
        self.stall_time = TimeDelta::ZERO;
    }

    /// Records that the site leaves. For [`LEAVE_GRACE`] it is not evicted: it only retransmits its last inputs, and it
    /// may have published frames with these inputs. A leaving site that withholds them for longer can be evicted.
    pub(super) fn on_leave(&mut self, now: Instant) {
        self.leave_excused_until = Some(now + LEAVE_GRACE);
    }

    /// Clears the stall time and the grace for a leave when the seat is taken again.
    pub(super) fn on_rejoin(&mut self) {
        (self.stall_time, self.leave_excused_until) = (TimeDelta::ZERO, None);
    }

    fn is_leave_excused(&self, now: Instant) -> bool {
        self.leave_excused_until.is_some_and(|until| now < until)
    }

    /// Records that the site was dropped. `evicted` states whether the coordinator had it dropped although it still
    /// sent.
    pub(super) fn on_drop(&mut self, now: Instant, evicted: bool) {
        self.stall_time = TimeDelta::ZERO;
        if evicted {
            self.evictions = (self.evictions + 1).min(MAX_REJOIN_BACKOFF_FACTOR);
            self.excluded_until = Some(now + REJOIN_BACKOFF * self.evictions);
        }
    }
}

impl Session {
    /// Asks the other sites to drop a site, whether it is silent or not; its seat can be taken again. Only the
    /// coordinator, the lowest site that plays, can do this. Returns whether this site will propose the drop to the
    /// others: the game runs, this site is the coordinator and does not leave, and inputs of `site` are still to come.
    pub fn drop_site(&mut self, now: Instant, site: SiteId) -> bool {
        let now = self.note_call_time(now);
        let is_awaited = self.peers.iter().any(|peer| peer.site == site && peer.is_awaited());
        let is_allowed = is_awaited && self.is_running() && self.leaving.is_none() && self.is_coordinator();
        if is_allowed {
            self.membership.to_evict.insert(site);
            self.update_membership(now);
        }
        is_allowed
    }

    /// Returns the stall limit if this site is the coordinator, does not leave and has one.
    fn own_stall_limit(&self) -> Option<TimeDelta> {
        self.config.stall_limit.filter(|_| self.leaving.is_none() && self.is_coordinator())
    }

    /// Records that the current frame cannot be stepped, and which peers cause that.
    #[inline]
    pub(super) fn record_stall(&mut self, now: Instant) {
        self.stall.begin(now);
        if self.config.stall_limit.is_some() {
            let causes = self.stalling_peers().map(|peer| peer.site).collect();
            self.stall.blame(causes);
        }
    }

    /// Charges a stall to the peers that caused it. Only the coordinator does this: elsewhere the stall times would not
    /// decay, and the next coordinator would evict sites for stalls long past.
    #[inline]
    pub(super) fn charge_stall(&mut self, stall: EndedStall) {
        if !stall.caused_by.is_empty() && self.own_stall_limit().is_some() {
            let blamed = self.peers.iter_mut().filter(|peer| stall.caused_by.contains(peer.site));
            blamed.for_each(|peer| peer.stall_record.stall_time += stall.waited);
        }
    }

    /// Updates the stall times for one [`UPDATE_INTERVAL`]: subtracts the decay and, for the peer whose link limits the
    /// frame rate, adds the share of the interval that this limit costs. Then marks the peers above the stall limit for
    /// eviction if `can_evict` allows it. A site that is not the coordinator, leaves or has no stall limit forgets the
    /// stall times.
    pub(super) fn update_slow_peers(&mut self, now: Instant) {
        let Some(limit) = self.own_stall_limit() else {
            return self.peers.iter_mut().for_each(|peer| peer.stall_record.reset());
        };
        let limiting = self.schedule.limiting_site(self.config.settings.rate.period());
        // A site that searches for a desync replays many past frames and is late for a good reason.
        let is_eligible = |peer: &&mut Peer| {
            peer.is_awaited() && peer.stats.mismatches == 0 && !peer.stall_record.is_leave_excused(now)
        };
        let mut slow = SiteSet::EMPTY;
        for peer in self.peers.iter_mut().filter(is_eligible) {
            let share = limiting.filter(|(site, _)| *site == peer.site).map_or(0.0, |(_, share)| share);
            let change = UPDATE_INTERVAL.scale(share) - UPDATE_INTERVAL / STALL_DECAY_DIVISOR;
            peer.stall_record.stall_time = (peer.stall_record.stall_time + change).max(TimeDelta::ZERO);
            if peer.stall_record.stall_time + self.stall.wait_for(now, peer.site) > limit {
                slow.insert(peer.site);
            }
        }
        if self.can_evict(now, slow) {
            self.membership.to_evict = self.membership.to_evict.union(slow);
        }
    }

    /// Returns whether the coordinator can now ask the other sites to drop the sites in `slow`: `slow` is not empty,
    /// packets of all other playing sites arrived within [`PEER_SILENCE_LIMIT`], no eviction failed recently, and no
    /// last inputs of a dropped site are still to be relayed.
    fn can_evict(&self, now: Instant, slow: SiteSet) -> bool {
        let is_silent = |peer: &Peer| {
            peer.is_playing() && !slow.contains(peer.site) && now - peer.last_received_at > PEER_SILENCE_LIMIT
        };
        let is_backing_off = self.membership.eviction_retry_at.is_some_and(|until| now < until);
        // A slow site may be the only one that has the last inputs of a dropped site. It gets time to relay them.
        let inputs_missing =
            self.peers.iter().any(|peer| peer.lacks_last_inputs() && !self.are_last_inputs_lost(now, peer));
        !slow.is_empty() && !is_backing_off && !inputs_missing && !self.peers.iter().any(is_silent)
    }

    /// Handles a ballot that dropped no site: no site is charged for the stall, and if the ballot was to evict the
    /// sites in `to_evict`, the coordinator waits before it tries another eviction.
    pub(super) fn reset_stall_records(&mut self, now: Instant, to_evict: SiteSet) {
        self.peers.iter_mut().for_each(|peer| peer.stall_record.reset());
        if !to_evict.is_empty() {
            self.membership.eviction_retry_at = Some(now + FAILED_EVICTION_BACKOFF);
        }
    }

    /// Returns whether a joiner's earlier evictions allow it to join. An evicted site may join again once its backoff
    /// has passed, if the measured delay of its link fits the input delay and prediction window. Without a stall limit
    /// every site may.
    pub(super) fn can_rejoin(&self, peer: &Peer) -> bool {
        let Some(until) = peer.stall_record.excluded_until.filter(|_| self.config.stall_limit.is_some()) else {
            return true;
        };
        let period = self.config.settings.rate.period();
        let delay = peer.clock.rtt().unwrap_or_default() / 2 + peer.clock.jitter() * 2;
        self.clock.last_call() >= until
            && delay <= period * i64::from(self.delay_settings.input_delay + self.delay_settings.prediction_window)
    }
}
