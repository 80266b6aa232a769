//! What other players report about the membership: how a view ended, that a third player has left, that this site was dropped.
//!
//! A report is hearsay, and one player may lie. So one player's word is not enough while others are heard who may contradict it. A report
//! is credible when the players who make it, with this site if it can do without those who would be gone, are a quorum. The players who
//! decided may be dead before they could report, and others may not have heard of it either, so that no quorum is left to confirm it. So a
//! report is also credible when none of those who would be gone is heard, and either every player that is still heard makes it or the game
//! has stood still for a second. In that state this site cannot go on without the reporters anyway.

use super::Session;
use super::event::End;
use super::peer::Peer;
use super::view::is_quorum_of;
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::Decision;

/// Players that bring no ticks for this long do not play with this site.
pub(super) const UNPLAYED: TimeDelta = TimeDelta::from_secs(1);
/// A game that waits for this long for inputs does not go on by itself.
const STUCK: TimeDelta = TimeDelta::from_secs(1);
/// Most views that one report can end at once.
const MOST_VIEWS: u32 = 1_024;

/// A refusal counts for this long; a player who refuses this site repeats it.
const FRESH: TimeDelta = TimeDelta::from_secs(2);

/// What one player reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    /// Whether the player has reported anything: hardly any ever does.
    any: bool,
    /// The newest view that ended with a drop, its decision, and the number of views that ended after it without one.
    ended: Option<(u32, Decision, u32)>,
    /// When the player last said that the session goes on without this site.
    refused_at: Option<Instant>,
    /// The frame before which the inputs of each other site end because it has left.
    left: [Option<Frame>; MAX_SITES],
}

impl Reports {
    /// Whether the player has reported anything.
    pub(super) fn is_any(&self) -> bool {
        self.any
    }

    /// Whether the player says that the session goes on without this site.
    fn refuses(&self, now: Instant) -> bool {
        self.refused_at.is_some_and(|at| now - at < FRESH)
    }

    /// Whether the player last said that later than this.
    fn is_refused_since(&self, time: Instant) -> bool {
        self.refused_at.is_some_and(|at| at > time)
    }

    /// How the player says that a view ended: the decision, if it names one.
    fn end_of(&self, view: u32) -> Option<Decision> {
        self.ended.filter(|(ended, ..)| *ended == view).map(|(_, decision, _)| decision)
    }

    /// The newest view that ended, if this one and all after it ended without a drop.
    fn newest_end(&self, view: u32) -> Option<u32> {
        let (ended, _, since) = self.ended?;
        let newest = ended.saturating_add(since);
        (ended < view && view <= newest).then_some(newest)
    }
}

impl Session {
    /// The players of which a report satisfies a condition. A player who leaves may have decided before.
    fn reporters(&self, makes: impl Fn(&Reports) -> bool) -> SiteSet {
        let players = self.peers.iter().filter(|peer| !peer.is_free() && !peer.dropped);
        players.filter(|peer| makes(&peer.reports)).map(|peer| peer.site).collect()
    }

    /// Whether a report is believed by which some sites are gone.
    fn is_credible(&self, now: Instant, reporters: SiteSet, gone: SiteSet) -> bool {
        let me = self.config.site;
        let without_us = gone.contains(me);
        if reporters.is_empty() {
            return false;
        }
        let missed = self.misses_any_of(now, gone);
        let mut voices = reporters.union(self.votes_against(gone));
        if !gone.is_empty() && !without_us && !missed {
            voices.insert(me);
        }
        // Who decided may not have known of a newcomer yet, and needed no quorum with it.
        if is_quorum_of(self.without_newcomer(self.voters().union(reporters)), voices) {
            return true;
        }
        // Players who went on without this site send it no ticks, whatever else they send.
        let agrees = |peer: &Peer| reporters.contains(peer.site) && !without_us;
        let mut others = self.peers.iter().filter(|peer| peer.is_playing() && !gone.contains(peer.site));
        let all_agree = others.all(|peer| agrees(peer) || now - peer.heard >= UNPLAYED);
        !missed && (all_agree || !without_us && self.is_stuck(now))
    }

    /// Whether the game has stood still for [`STUCK`], so that an unconfirmed report costs nothing to believe.
    fn is_stuck(&self, now: Instant) -> bool {
        self.waited && now - self.waiting_since >= STUCK
    }

    /// A player reports how a view ended, and how many ended after that one without dropping anybody.
    pub(super) fn take_decision(&mut self, now: Instant, index: usize, view: u32, decision: Decision, since: u32) {
        let reports = &mut self.peers[index].reports;
        (reports.any, reports.ended) = (true, Some((view, decision, since.min(MOST_VIEWS))));
        self.watch_reports(now);
    }

    /// A player refuses this site because the session goes on without it.
    pub(super) fn take_refusal(&mut self, now: Instant, index: usize) {
        let reports = &mut self.peers[index].reports;
        (reports.any, reports.refused_at) = (true, Some(now));
        self.watch_reports(now);
    }

    /// A player reports that a third one has left.
    pub(super) fn take_left(&mut self, now: Instant, index: usize, site: SiteId, last: Frame) {
        let reports = &mut self.peers[index].reports;
        (reports.any, reports.left[site.index()]) = (true, Some(last));
        self.watch_leave_report(now, site);
    }

    /// Does what credible reports ask for. A report can become credible by time alone, when players fall silent.
    pub(super) fn watch_reports(&mut self, now: Instant) {
        if !self.peers.iter().any(|peer| peer.reports.any) {
            return;
        }
        while !self.is_over() && (self.follow_drop(now) || self.follow_ends(now)) {}
        if self.is_over() {
            return;
        }
        let refusing = self.reporters(|reports| reports.refuses(now));
        // Every player has to agree before a newcomer is let in, so until it is in each of them can keep it out.
        let me = self.config.site;
        // A refusal that was under way when an order let this site in was about an earlier order.
        let meant = |reports: &Reports| {
            reports.refuses(now) && self.view.entered_at.is_none_or(|at| reports.is_refused_since(at + UNPLAYED))
        };
        let kept_out = self.newcomer() == Some(me) && !self.reporters(meant).is_empty();
        if kept_out || self.is_credible(now, refusing, SiteSet::from_iter([me])) {
            return self.end(End::Dropped);
        }
        for site in SiteId::first(usize::from(self.config.settings.sites)) {
            self.watch_leave_report(now, site);
        }
    }

    /// Ends the view with the decision that others report, if that is credible.
    fn follow_drop(&mut self, now: Instant) -> bool {
        let number = self.view.number;
        let reported = self.peers.iter().filter_map(|peer| peer.reports.end_of(number));
        let credible = |decision: &Decision| {
            let reporters = self.reporters(|reports| reports.end_of(number) == Some(*decision));
            self.is_consistent(decision) && self.is_credible(now, reporters, decision.drop)
        };
        let Some(decision) = reported.into_iter().find(credible) else { return false };
        self.carry_out(decision);
        true
    }

    /// Ends the view, and those after it, without a drop, as far as others credibly report that.
    fn follow_ends(&mut self, now: Instant) -> bool {
        let number = self.view.number;
        let reporters = self.reporters(|reports| reports.newest_end(number).is_some());
        if reporters.is_empty() || !self.is_credible(now, reporters, SiteSet::EMPTY) {
            return false;
        }
        let reported = self.peers.iter().filter(|peer| reporters.contains(peer.site));
        // The fewest: what a quorum reports, no single player has made up.
        let Some(newest) = reported.filter_map(|peer| peer.reports.newest_end(number)).min() else { return false };
        self.view.number = newest;
        self.carry_out(Decision::dropping(SiteSet::EMPTY));
        true
    }

    /// Whether anybody says that a site has left.
    pub(super) fn is_reported_left(&self, site: SiteId) -> bool {
        self.peers.iter().any(|peer| peer.reports.left[site.index()].is_some())
    }

    /// A site is seated: what was reported about it concerned an earlier player.
    pub(super) fn forget_leave_reports(&mut self, site: SiteId) {
        self.peers.iter_mut().for_each(|peer| peer.reports.left[site.index()] = None);
    }

    fn watch_leave_report(&mut self, now: Instant, site: SiteId) {
        let Some(index) = self.peers.iter().position(|peer| peer.site == site) else { return };
        if self.view.deaf_to.contains(site) || !self.is_missed(now, &self.peers[index]) {
            return;
        }
        let reported = self.peers.iter().filter_map(|peer| peer.reports.left[site.index()]);
        let credible = |last: &Frame| {
            let reporters = self.reporters(|reports| reports.left[site.index()] == Some(*last));
            self.is_credible(now, reporters, SiteSet::from_iter([site]))
        };
        if let Some(last) = reported.into_iter().find(credible) {
            self.take_leave(index, last);
        }
    }

    /// Whether this site still hears any of these, and took part in no ballot to drop it.
    fn misses_any_of(&self, now: Instant, gone: SiteSet) -> bool {
        let heard = |peer: &Peer| peer.silence(now) < self.patience() && !self.view.deaf_to.contains(peer.site);
        let missed = |peer: &Peer| peer.is_awaited() && !peer.was_restarted() && heard(peer);
        self.peers.iter().any(|peer| gone.contains(peer.site) && missed(peer))
    }
}
