//! Who is heard, but holds up the game: because its machine is slow, or its way too long or too uneven for the lag.
//!
//! The coordinator measures for how long the game was held up by each site, forgets a tenth of the time that passes, and will not wait
//! any longer for who held it up for too long. So a hiccup is forgiven, and a game that is slow for one site's sake is
//! not. The rest is up to a change of the [view](super::visible): the others take the coordinator's word for it. All who stay must be asked,
//! and while they are, nobody's game goes on; so where the coordinator does not hear all of them, or it came to nothing a short while ago,
//! who is late is waited for.

use super::peer::Peer;
use super::{Session, UPDATE_INTERVAL};
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};

/// The shortest time for which a site can hold up the game before it is dropped: a few lost packets are no reason.
pub const MIN_STALL_LIMIT: TimeDelta = TimeDelta::from_millis(100);

/// The part of the time that passes by which what was late before counts less.
const STALL_DECAY_DIVISOR: i64 = 10;
/// Who was late is let in again after so long, the second time after twice as long, and so on.
const REJOIN_BACKOFF: TimeDelta = TimeDelta::from_secs(5);
const MAX_REJOIN_BACKOFF_FACTOR: i64 = 12;
/// Who brings nothing for so long probably does not hear us either.
const PEER_SILENCE_LIMIT: TimeDelta = TimeDelta::from_millis(500);
/// Where nobody was dropped although somebody was late, that is not tried again for so long.
const FAILED_EVICTION_BACKOFF: TimeDelta = TimeDelta::from_secs(5);

/// How late a site is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallBudget {
    /// For how long it held up the game of late.
    stall_time: TimeDelta,
    /// How often it was dropped for that.
    evictions: i64,
    /// Until when it is not let in again.
    excluded_until: Option<Instant>,
}

impl StallBudget {
    /// Whatever it held up was not its fault: during a ballot nobody listens to those who may be dropped.
    pub(super) fn reset(&mut self) {
        self.stall_time = TimeDelta::ZERO;
    }

    /// The site was dropped, perhaps for being late.
    pub(super) fn on_drop(&mut self, now: Instant, unwanted: bool) {
        self.stall_time = TimeDelta::ZERO;
        if unwanted {
            self.evictions = (self.evictions + 1).min(MAX_REJOIN_BACKOFF_FACTOR);
            self.excluded_until = Some(now + REJOIN_BACKOFF * self.evictions);
        }
    }
}

impl Session {
    /// Goes on without a site, whether it is heard or not; its seat can be taken again. Only the coordinator can do this, which is the
    /// lowest site that plays; returns whether that is us, and the site plays.
    pub fn drop_site(&mut self, now: Instant, site: SiteId) -> bool {
        let now = self.note_call_time(now);
        let plays = self.peers.iter().any(|peer| peer.site == site && peer.is_awaited());
        let ours = plays && self.is_running() && self.leaving.is_none() && self.is_coordinator();
        if ours {
            self.membership.to_evict.insert(site);
            self.update_membership(now);
        }
        ours
    }

    /// Whether it is on us to decide about who holds up the game, and for how long that is borne.
    fn own_stall_limit(&self) -> Option<TimeDelta> {
        self.config.stall_limit.filter(|_| self.leaving.is_none() && self.is_coordinator())
    }

    /// The frame at hand cannot be stepped: notes whose fault that is.
    #[inline]
    pub(super) fn record_stall(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.is_stalled, true) {
            self.stalled_since = now;
        }
        if self.config.stall_limit.is_some() {
            self.stalled_by = self.stalling_peers().map(|peer| peer.site).collect();
        }
    }

    /// The frame at hand was held up until now.
    #[inline]
    pub(super) fn charge_stall(&mut self, now: Instant) {
        let awaited = core::mem::take(&mut self.stalled_by);
        if !awaited.is_empty() {
            let waited = now - self.stalled_since;
            let blamed = self.peers.iter_mut().filter(|peer| awaited.contains(peer.site));
            blamed.for_each(|peer| peer.stall_budget.stall_time += waited);
        }
    }

    /// Looks who holds up the game, if it is on us to decide about it.
    pub(super) fn update_slow_peers(&mut self, now: Instant) {
        let Some(limit) = self.own_stall_limit() else { return };
        let waiting = if self.is_stalled { now - self.stalled_since } else { TimeDelta::ZERO };
        let slowed = self.pacer.as_ref().and_then(|pacer| pacer.limiting_site(self.config.settings.rate.period()));
        // Who looks into a difference plays much of the past again, and has every reason to be late.
        let alike = |peer: &&mut Peer| peer.is_awaited() && peer.stats.mismatches == 0;
        let mut late = SiteSet::EMPTY;
        for peer in self.peers.iter_mut().filter(alike) {
            let share = slowed.filter(|(site, _)| *site == peer.site).map_or(0.0, |(_, share)| share);
            let more = UPDATE_INTERVAL.scale(share) - UPDATE_INTERVAL / STALL_DECAY_DIVISOR;
            peer.stall_budget.stall_time = (peer.stall_budget.stall_time + more).max(TimeDelta::ZERO);
            let waiting = if self.stalled_by.contains(peer.site) { waiting } else { TimeDelta::ZERO };
            if peer.stall_budget.stall_time + waiting > limit {
                late.insert(peer.site);
            }
        }
        if self.can_evict(now, late) {
            self.membership.to_evict = self.membership.to_evict.union(late);
        }
    }

    /// Whether it makes sense to ask the others to go on without these.
    fn can_evict(&self, now: Instant, late: SiteSet) -> bool {
        let unheard = |peer: &Peer| {
            peer.is_playing() && !late.contains(peer.site) && now - peer.last_received_at > PEER_SILENCE_LIMIT
        };
        let patient = self.membership.eviction_retry_at.is_some_and(|until| now < until);
        // A late site may be the only one that has the last inputs of a dropped one, and has time to pass them on.
        let inputs_missing =
            self.peers.iter().any(|peer| peer.lacks_last_inputs() && !self.are_last_inputs_lost(now, peer));
        !late.is_empty() && !patient && !inputs_missing && !self.peers.iter().any(unheard)
    }

    /// A ballot came to nothing: nobody is to blame for what it held up, and the coordinator waits before it asks again to go on without the late
    /// sites.
    pub(super) fn reset_stall_budgets(&mut self, now: Instant, unwanted: SiteSet) {
        self.peers.iter_mut().for_each(|peer| peer.stall_budget.reset());
        if !unwanted.is_empty() {
            self.membership.eviction_retry_at = Some(now + FAILED_EVICTION_BACKOFF);
        }
    }

    /// Whether a site that was late is not any more, as far as its way tells.
    pub(super) fn can_rejoin(&self, peer: &Peer) -> bool {
        let Some(until) = peer.stall_budget.excluded_until.filter(|_| self.config.stall_limit.is_some()) else {
            return true;
        };
        let period = self.config.settings.rate.period();
        let way = peer.clock.rtt().unwrap_or_default() / 2 + peer.clock.jitter() * 2;
        self.last_call >= until
            && way <= period * i64::from(self.delay_settings.input_delay + self.delay_settings.prediction_window)
    }
}
