//! Who is heard, but holds up the game: because its machine is slow, or its way too long or too uneven for the lag.
//!
//! The coordinator measures for how long the game was held up by each site, forgets a tenth of the time that passes, and will not wait
//! any longer for who held it up for too long. So a hiccup is forgiven, and a game that is slow for one site's sake is
//! not. The rest is up to a change of the [view](super::view): the others take the coordinator's word for it. All who stay must be asked,
//! and while they are, nobody's game goes on; so where the coordinator does not hear all of them, or it came to nothing a short while ago,
//! who is late is waited for.

use super::peer::Peer;
use super::{Session, WATCH_EVERY};
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};

/// The shortest time for which a site can hold up the game before it is dropped: a few lost packets are no reason.
pub const MIN_LATE_AFTER: TimeDelta = TimeDelta::from_millis(100);

/// The part of the time that passes by which what was late before counts less.
const FORGIVEN: i64 = 10;
/// Who was late is let in again after so long, the second time after twice as long, and so on.
const KEPT_OUT: TimeDelta = TimeDelta::from_secs(5);
const KEPT_OUT_AT_MOST: i64 = 12;
/// Who brings nothing for so long probably does not hear us either.
const UNHEARD: TimeDelta = TimeDelta::from_millis(500);
/// Where nobody was dropped although somebody was late, that is not tried again for so long.
const PATIENT: TimeDelta = TimeDelta::from_secs(5);

/// How late a site is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// For how long it held up the game of late.
    held_up: TimeDelta,
    /// How often it was dropped for that.
    times: i64,
    /// Until when it is not let in again.
    out_until: Option<Instant>,
}

impl Lateness {
    /// Whatever it held up was not its fault: during a ballot nobody listens to those who may be dropped.
    pub(super) fn forgive(&mut self) {
        self.held_up = TimeDelta::ZERO;
    }

    /// The site was dropped, perhaps for being late.
    pub(super) fn on_drop(&mut self, now: Instant, unwanted: bool) {
        self.held_up = TimeDelta::ZERO;
        if unwanted {
            self.times = (self.times + 1).min(KEPT_OUT_AT_MOST);
            self.out_until = Some(now + KEPT_OUT * self.times);
        }
    }
}

impl Session {
    /// Goes on without a site, whether it is heard or not; its seat can be taken again. Only the coordinator can do this, which is the
    /// lowest site that plays; returns whether that is us, and the site plays.
    pub fn drop_site(&mut self, now: Instant, site: SiteId) -> bool {
        let now = self.notice_sleep(now);
        let plays = self.peers.iter().any(|peer| peer.site == site && peer.is_awaited());
        let ours = plays && self.is_running() && self.leaving.is_none() && self.is_coordinator();
        if ours {
            self.view.unwanted.insert(site);
            self.watch_view(now);
        }
        ours
    }

    /// Whether it is on us to decide about who holds up the game, and for how long that is borne.
    fn most_lateness(&self) -> Option<TimeDelta> {
        self.config.late_after.filter(|_| self.leaving.is_none() && self.is_coordinator())
    }

    /// The frame at hand cannot be stepped: notes whose fault that is.
    #[inline]
    pub(super) fn note_wait(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.waited, true) {
            self.waiting_since = now;
        }
        if self.config.late_after.is_some() {
            self.awaited = self.awaited().map(|peer| peer.site).collect();
        }
    }

    /// The frame at hand was held up until now.
    #[inline]
    pub(super) fn blame_awaited(&mut self, now: Instant) {
        let awaited = core::mem::take(&mut self.awaited);
        if !awaited.is_empty() {
            let waited = now - self.waiting_since;
            let blamed = self.peers.iter_mut().filter(|peer| awaited.contains(peer.site));
            blamed.for_each(|peer| peer.lateness.held_up += waited);
        }
    }

    /// Looks who holds up the game, if it is on us to decide about it.
    pub(super) fn watch_late(&mut self, now: Instant) {
        let Some(limit) = self.most_lateness() else { return };
        let waiting = if self.waited { now - self.waiting_since } else { TimeDelta::ZERO };
        let slowed = self.pacer.as_ref().and_then(|pacer| pacer.slowed_by(self.config.settings.rate.period()));
        // Who looks into a difference plays much of the past again, and has every reason to be late.
        let alike = |peer: &&mut Peer| peer.is_awaited() && peer.stats.mismatches == 0;
        let mut late = SiteSet::EMPTY;
        for peer in self.peers.iter_mut().filter(alike) {
            let share = slowed.filter(|(site, _)| *site == peer.site).map_or(0.0, |(_, share)| share);
            let more = WATCH_EVERY.scale(share) - WATCH_EVERY / FORGIVEN;
            peer.lateness.held_up = (peer.lateness.held_up + more).max(TimeDelta::ZERO);
            let waiting = if self.awaited.contains(peer.site) { waiting } else { TimeDelta::ZERO };
            if peer.lateness.held_up + waiting > limit {
                late.insert(peer.site);
            }
        }
        if self.can_do_without(now, late) {
            self.view.unwanted = self.view.unwanted.union(late);
        }
    }

    /// Whether it makes sense to ask the others to go on without these.
    fn can_do_without(&self, now: Instant, late: SiteSet) -> bool {
        let unheard = |peer: &Peer| peer.is_playing() && !late.contains(peer.site) && now - peer.heard > UNHEARD;
        let patient = self.view.patient_until.is_some_and(|until| now < until);
        // A late site may be the only one that has the last inputs of a dropped one, and has time to pass them on.
        let inputs_missing = self.peers.iter().any(|peer| peer.is_incomplete() && !self.is_lost(now, peer));
        !late.is_empty() && !patient && !inputs_missing && !self.peers.iter().any(unheard)
    }

    /// A ballot came to nothing: nobody is to blame for what it held up, and the coordinator waits before it asks again to go on without the late
    /// sites.
    pub(super) fn forgive_all(&mut self, now: Instant, unwanted: SiteSet) {
        self.peers.iter_mut().for_each(|peer| peer.lateness.forgive());
        if !unwanted.is_empty() {
            self.view.patient_until = Some(now + PATIENT);
        }
    }

    /// Whether a site that was late is not any more, as far as its way tells.
    pub(super) fn is_in_time(&self, peer: &Peer) -> bool {
        let Some(until) = peer.lateness.out_until.filter(|_| self.config.late_after.is_some()) else { return true };
        let period = self.config.settings.rate.period();
        let way = peer.clock.rtt().unwrap_or_default() / 2 + peer.clock.jitter() * 2;
        self.called >= until && way <= period * i64::from(self.dials.lag + self.dials.window)
    }
}
