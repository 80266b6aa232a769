//! What other players report about the membership: how a view ended, that a third player has left, that this site was dropped.
//!
//! A report is hearsay, and one player may lie. So one player's word is not enough while others are heard who may contradict it. A report
//! is credible when the players who make it, with this site if it can do without those who would be gone, are a quorum. The players who
//! decided may be dead before they could report, and others may not have heard of it either, so that no quorum is left to confirm it. So a
//! report is also credible when none of those who would be gone is heard, and either every player that is still heard makes it or the game
//! has stood still for a second. In that state this site cannot go on without the reporters anyway.

use super::Session;
use super::event::SessionEnd;
use super::membership::is_quorum_of;
use super::peer::Peer;
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::MembershipDecision;

/// Players that bring no ticks for this long do not play with this site.
pub(super) const TICK_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(1);
/// A game that waits for this long for inputs does not go on by itself.
const STUCK_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Most views that one report can end at once.
const MAX_REPORTED_EPOCHS: u32 = 1_024;

/// A refusal counts for this long; a player who refuses this site repeats it.
const REFUSAL_LIFETIME: TimeDelta = TimeDelta::from_secs(2);

/// What one player reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MembershipReports {
    /// Whether the player has reported anything: hardly any ever does.
    has_reports: bool,
    /// The newest view that ended with a drop, its decision, and the number of views that ended after it without one.
    ended_epoch: Option<(u32, MembershipDecision, u32)>,
    /// When the player last said that the session goes on without this site.
    refused_at: Option<Instant>,
    /// The frame before which the inputs of each other site end because it has left.
    leave_frames: [Option<Frame>; MAX_SITES],
}

impl MembershipReports {
    /// Whether the player has reported anything.
    pub(super) fn is_reporting(&self) -> bool {
        self.has_reports
    }

    /// Whether the player says that the session goes on without this site.
    fn refuses(&self, now: Instant) -> bool {
        self.refused_at.is_some_and(|at| now - at < REFUSAL_LIFETIME)
    }

    /// Whether the player last said that later than this.
    fn has_refused_since(&self, time: Instant) -> bool {
        self.refused_at.is_some_and(|at| at > time)
    }

    /// How the player says that a view ended: the decision, if it names one.
    fn decision_for(&self, view: u32) -> Option<MembershipDecision> {
        self.ended_epoch.filter(|(ended, ..)| *ended == view).map(|(_, decision, _)| decision)
    }

    /// The newest view that ended, if this one and all after it ended without a drop.
    fn newest_ended_epoch(&self, view: u32) -> Option<u32> {
        let (ended, _, since) = self.ended_epoch?;
        let newest = ended.saturating_add(since);
        (ended < view && view <= newest).then_some(newest)
    }
}

impl Session {
    /// The players of which a report satisfies a condition. A player who leaves may have decided before.
    fn reporters(&self, makes: impl Fn(&MembershipReports) -> bool) -> SiteSet {
        let players = self.peers.iter().filter(|peer| !peer.is_free() && !peer.is_dropped);
        players.filter(|peer| makes(&peer.reports)).map(|peer| peer.site).collect()
    }

    /// Whether a report is believed by which some sites are gone.
    fn is_credible(&self, now: Instant, reporters: SiteSet, gone: SiteSet) -> bool {
        let me = self.config.site;
        let without_us = gone.contains(me);
        if reporters.is_empty() {
            return false;
        }
        let missed = self.is_receiving_any_of(now, gone);
        let mut voices = reporters.union(self.votes_against(gone));
        if !gone.is_empty() && !without_us && !missed {
            voices.insert(me);
        }
        // Who decided may not have known of a newcomer yet, and needed no quorum with it.
        if is_quorum_of(self.without_pending_joiner(self.voters().union(reporters)), voices) {
            return true;
        }
        // Players who went on without this site send it no ticks, whatever else they send.
        let agrees = |peer: &Peer| reporters.contains(peer.site) && !without_us;
        let mut others = self.peers.iter().filter(|peer| peer.is_playing() && !gone.contains(peer.site));
        let all_agree = others.all(|peer| agrees(peer) || now - peer.last_received_at >= TICK_SILENCE_LIMIT);
        !missed && (all_agree || !without_us && self.is_stuck(now))
    }

    /// Whether the game has stood still for [`STUCK`], so that an unconfirmed report costs nothing to believe.
    fn is_stuck(&self, now: Instant) -> bool {
        self.is_stalled && now - self.stalled_since >= STUCK_TIMEOUT
    }

    /// A player reports how a view ended, and how many ended after that one without dropping anybody.
    pub(super) fn on_decision_report(
        &mut self,
        now: Instant,
        index: usize,
        view: u32,
        decision: MembershipDecision,
        since: u32,
    ) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.ended_epoch) = (true, Some((view, decision, since.min(MAX_REPORTED_EPOCHS))));
        self.update_reports(now);
    }

    /// A player refuses this site because the session goes on without it.
    pub(super) fn on_refusal_report(&mut self, now: Instant, index: usize) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.refused_at) = (true, Some(now));
        self.update_reports(now);
    }

    /// A player reports that a third one has left.
    pub(super) fn on_leave_report(&mut self, now: Instant, index: usize, site: SiteId, last: Frame) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.leave_frames[site.index()]) = (true, Some(last));
        self.update_leave_report(now, site);
    }

    /// Does what credible reports ask for. A report can become credible by time alone, when players fall silent.
    pub(super) fn update_reports(&mut self, now: Instant) {
        if !self.peers.iter().any(|peer| peer.reports.has_reports) {
            return;
        }
        while !self.is_over() && (self.follow_reported_drop(now) || self.follow_reported_epochs(now)) {}
        if self.is_over() {
            return;
        }
        let refusing = self.reporters(|reports| reports.refuses(now));
        // Every player has to agree before a newcomer is let in, so until it is in each of them can keep it out.
        let me = self.config.site;
        // A refusal that was under way when an order let this site in was about an earlier order.
        let meant = |reports: &MembershipReports| {
            reports.refuses(now)
                && self.membership.admitted_at.is_none_or(|at| reports.has_refused_since(at + TICK_SILENCE_LIMIT))
        };
        let kept_out = self.pending_joiner() == Some(me) && !self.reporters(meant).is_empty();
        if kept_out || self.is_credible(now, refusing, SiteSet::from_iter([me])) {
            return self.end_session(SessionEnd::Dropped);
        }
        for site in SiteId::first(usize::from(self.config.settings.site_count)) {
            self.update_leave_report(now, site);
        }
    }

    /// Ends the view with the decision that others report, if that is credible.
    fn follow_reported_drop(&mut self, now: Instant) -> bool {
        let number = self.membership.epoch;
        let reported = self.peers.iter().filter_map(|peer| peer.reports.decision_for(number));
        let credible = |decision: &MembershipDecision| {
            let reporters = self.reporters(|reports| reports.decision_for(number) == Some(*decision));
            self.is_consistent(decision) && self.is_credible(now, reporters, decision.drop)
        };
        let Some(decision) = reported.into_iter().find(credible) else { return false };
        self.apply_decision(decision);
        true
    }

    /// Ends the view, and those after it, without a drop, as far as others credibly report that.
    fn follow_reported_epochs(&mut self, now: Instant) -> bool {
        let number = self.membership.epoch;
        let reporters = self.reporters(|reports| reports.newest_ended_epoch(number).is_some());
        if reporters.is_empty() || !self.is_credible(now, reporters, SiteSet::EMPTY) {
            return false;
        }
        let reported = self.peers.iter().filter(|peer| reporters.contains(peer.site));
        // The fewest: what a quorum reports, no single player has made up.
        let Some(newest) = reported.filter_map(|peer| peer.reports.newest_ended_epoch(number)).min() else {
            return false;
        };
        self.membership.epoch = newest;
        self.apply_decision(MembershipDecision::dropping(SiteSet::EMPTY));
        true
    }

    /// Whether anybody says that a site has left.
    pub(super) fn is_reported_left(&self, site: SiteId) -> bool {
        self.peers.iter().any(|peer| peer.reports.leave_frames[site.index()].is_some())
    }

    /// A site is seated: what was reported about it concerned an earlier player.
    pub(super) fn forget_leave_reports(&mut self, site: SiteId) {
        self.peers.iter_mut().for_each(|peer| peer.reports.leave_frames[site.index()] = None);
    }

    fn update_leave_report(&mut self, now: Instant, site: SiteId) {
        let Some(index) = self.peers.iter().position(|peer| peer.site == site) else { return };
        if self.membership.muted.contains(site) || !self.needs_relay(now, &self.peers[index]) {
            return;
        }
        let reported = self.peers.iter().filter_map(|peer| peer.reports.leave_frames[site.index()]);
        let credible = |last: &Frame| {
            let reporters = self.reporters(|reports| reports.leave_frames[site.index()] == Some(*last));
            self.is_credible(now, reporters, SiteSet::from_iter([site]))
        };
        if let Some(last) = reported.into_iter().find(credible) {
            self.apply_leave(index, last);
        }
    }

    /// Whether this site still hears any of these, and took part in no ballot to drop it.
    fn is_receiving_any_of(&self, now: Instant, gone: SiteSet) -> bool {
        let heard =
            |peer: &Peer| peer.silence(now) < self.consent_timeout() && !self.membership.muted.contains(peer.site);
        let missed = |peer: &Peer| peer.is_awaited() && !peer.was_restarted() && heard(peer);
        self.peers.iter().any(|peer| gone.contains(peer.site) && missed(peer))
    }
}
