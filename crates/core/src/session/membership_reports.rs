//! Reports of other players about the membership: how an epoch ended, that a third player has left, that this site was
//! dropped.
//!
//! A report is third-party information, and one player may lie. So the report of one player is not enough while this
//! site receives from others that may contradict it. A report is credible when its reporters, together with the sites
//! that voted for it, and with this site if it does not receive from the sites that would be gone, are a quorum. The
//! players that decided may have died before they could report, and others may not know the decision either, so that no
//! quorum is left to confirm it. So a report is also credible when this site receives from none of the sites that would
//! be gone, and either every player that it still receives from makes the report or the game has been stalled for 1 s.
//! In that state this site cannot go on without the reporters anyway. A report that this site itself was dropped is
//! credible without a quorum only when no player sends ticks to this site.

use super::Session;
use super::event::SessionEnd;
use super::peer::{Peer, TICK_SILENCE_LIMIT};
use super::quorum::is_quorum_of;
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::message::MembershipDecision;
use crate::time::{Instant, TimeDelta};

/// Maximum number of epochs without a drop that one report can end at once.
const MAX_REPORTED_EPOCHS: u32 = 1_024;

/// Time for which a refusal counts; a player that refuses this site repeats it.
const REFUSAL_LIFETIME: TimeDelta = TimeDelta::from_secs(2);

/// The reports of one player: how epochs ended, which sites left, and that the session goes on without this site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MembershipReports {
    /// Whether the player has reported anything, which is rare.
    has_reports: bool,
    /// The newest epoch that ended with a drop according to the player, its decision, and the number of later epochs
    /// that ended without one.
    ended_epoch: Option<(u32, MembershipDecision, u32)>,
    /// When the player last reported that the session goes on without this site.
    refused_at: Option<Instant>,
    /// The end of the inputs of each other site that the player reports to have left.
    leave_frames: [Option<Frame>; MAX_SITES],
}

impl MembershipReports {
    pub(super) fn is_reporting(&self) -> bool {
        self.has_reports
    }

    /// Returns whether the player has reported within the last [`REFUSAL_LIFETIME`] that the session goes on without
    /// this site.
    fn refuses(&self, now: Instant) -> bool {
        self.refused_at.is_some_and(|at| now - at < REFUSAL_LIFETIME)
    }

    /// Returns whether the player has refused this site later than `time`.
    fn has_refused_since(&self, time: Instant) -> bool {
        self.refused_at.is_some_and(|at| at > time)
    }

    /// Returns the decision with which an epoch ended according to the player, if it reports one.
    fn decision_for(&self, epoch: u32) -> Option<MembershipDecision> {
        self.ended_epoch.filter(|(ended, ..)| *ended == epoch).map(|(_, decision, _)| decision)
    }

    /// Returns the newest ended epoch that the player reports, if by its report `epoch` and all later ones up to that
    /// ended without a drop.
    fn newest_ended_epoch(&self, epoch: u32) -> Option<u32> {
        let (ended, _, since) = self.ended_epoch?;
        let newest = ended.saturating_add(since);
        (ended < epoch && epoch <= newest).then_some(newest)
    }
}

impl Session {
    /// Returns the players with a report that satisfies a condition. Leaving players count, because they may have
    /// decided before.
    fn reporters(&self, has_report: impl Fn(&MembershipReports) -> bool) -> SiteSet {
        let players = self.peers.iter().filter(|peer| !peer.is_free() && !peer.is_dropped);
        players.filter(|peer| has_report(&peer.reports)).map(|peer| peer.site).collect()
    }

    /// Returns whether the report that the sites in `gone` are gone is credible, if the sites in `reporters` make it.
    /// The report of an epoch that ended without a drop has an empty `gone`.
    fn is_credible(&self, now: Instant, reporters: SiteSet, gone: SiteSet) -> bool {
        let own_site = self.config.site;
        let is_own_drop = gone.contains(own_site);
        if reporters.is_empty() {
            return false;
        }
        let is_receiving = self.is_receiving_any_of(now, gone);
        let mut supporters = reporters.union(self.votes_against(gone));
        if !gone.is_empty() && !is_own_drop && !is_receiving {
            supporters.insert(own_site);
        }
        // The sites that decided may not have known a joiner yet, and needed no quorum with it.
        if is_quorum_of(self.without_pending_joiner(self.voters().union(reporters)), supporters) {
            return true;
        }
        // Players that went on without this site send it no ticks, whatever else they send.
        let agrees = |peer: &Peer| reporters.contains(peer.site) && !is_own_drop;
        let mut others = self.peers.iter().filter(|peer| peer.is_playing() && !gone.contains(peer.site));
        let all_agree = others.all(|peer| agrees(peer) || now - peer.last_received_at >= TICK_SILENCE_LIMIT);
        !is_receiving && (all_agree || !is_own_drop && self.stall.is_stuck(now))
    }

    /// Handles a player's report of how an epoch ended, and of how many later epochs ended without a drop.
    pub(super) fn on_decision_report(
        &mut self,
        now: Instant,
        index: usize,
        epoch: u32,
        decision: MembershipDecision,
        since: u32,
    ) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.ended_epoch) = (true, Some((epoch, decision, since.min(MAX_REPORTED_EPOCHS))));
        self.update_reports(now);
    }

    /// Handles a player's refusal of this site because the session goes on without it.
    pub(super) fn on_refusal_report(&mut self, now: Instant, index: usize) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.refused_at) = (true, Some(now));
        self.update_reports(now);
    }

    /// Handles a player's report that a third player has left.
    pub(super) fn on_leave_report(&mut self, now: Instant, index: usize, site: SiteId, last: Frame) {
        let reports = &mut self.peers[index].reports;
        (reports.has_reports, reports.leave_frames[site.index()]) = (true, Some(last));
        self.update_leave_report(now, site);
    }

    /// Applies all reports that are credible by now. A report can also become credible by time alone, when players fall
    /// silent or a stall lasts.
    pub(super) fn update_reports(&mut self, now: Instant) {
        if !self.peers.iter().any(|peer| peer.reports.has_reports) {
            return;
        }
        while !self.is_over() && (self.follow_reported_drop(now) || self.follow_reported_epochs(now)) {}
        if self.is_over() {
            return;
        }
        let refusing = self.reporters(|reports| reports.refuses(now));
        // Every player has to agree before a joiner is admitted, so until the join is settled each of them can keep it
        // out.
        let own_site = self.config.site;
        // A refusal that was in flight when a command admitted this site was about an earlier command.
        let is_meant = |reports: &MembershipReports| {
            reports.refuses(now)
                && self.membership.admitted_at.is_none_or(|at| reports.has_refused_since(at + TICK_SILENCE_LIMIT))
        };
        let is_kept_out = self.pending_joiner() == Some(own_site) && !self.reporters(is_meant).is_empty();
        if is_kept_out || self.is_credible(now, refusing, SiteSet::from_iter([own_site])) {
            return self.end_session(SessionEnd::Dropped);
        }
        for site in SiteId::first(usize::from(self.config.settings.site_count)) {
            self.update_leave_report(now, site);
        }
    }

    /// Ends the epoch with the decision that others report, if their report is credible. Returns whether the epoch
    /// ended.
    fn follow_reported_drop(&mut self, now: Instant) -> bool {
        let epoch = self.membership.epoch;
        let reported = self.peers.iter().filter_map(|peer| peer.reports.decision_for(epoch));
        let credible = |decision: &MembershipDecision| {
            let reporters = self.reporters(|reports| reports.decision_for(epoch) == Some(*decision));
            self.is_consistent(decision) && self.is_credible(now, reporters, decision.drop)
        };
        let Some(decision) = reported.into_iter().find(credible) else { return false };
        self.apply_decision(decision);
        true
    }

    /// Ends the epoch, and later ones, without a drop, as far as others credibly report that. Returns whether the epoch
    /// ended.
    fn follow_reported_epochs(&mut self, now: Instant) -> bool {
        let epoch = self.membership.epoch;
        let reporters = self.reporters(|reports| reports.newest_ended_epoch(epoch).is_some());
        if reporters.is_empty() || !self.is_credible(now, reporters, SiteSet::EMPTY) {
            return false;
        }
        let reported = self.peers.iter().filter(|peer| reporters.contains(peer.site));
        // The minimum of the reported epochs counts, because a single player may have made a later one up.
        let Some(newest) = reported.filter_map(|peer| peer.reports.newest_ended_epoch(epoch)).min() else {
            return false;
        };
        self.membership.epoch = newest;
        self.apply_decision(MembershipDecision::dropping(SiteSet::EMPTY));
        true
    }

    /// Returns whether any peer reports that a site has left.
    pub(super) fn is_reported_left(&self, site: SiteId) -> bool {
        self.peers.iter().any(|peer| peer.reports.leave_frames[site.index()].is_some())
    }

    /// Forgets the leave reports about a site that takes a seat: they concerned the seat's previous player.
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

    /// Returns whether this site still receives from any of the sites in `gone`, and joined no ballot to drop that
    /// site.
    fn is_receiving_any_of(&self, now: Instant, gone: SiteSet) -> bool {
        let is_received =
            |peer: &Peer| peer.silence(now) < self.consent_timeout() && !self.membership.muted.contains(peer.site);
        let is_needed = |peer: &Peer| peer.is_awaited() && !peer.was_restarted() && is_received(peer);
        self.peers.iter().any(|peer| gone.contains(peer.site) && is_needed(peer))
    }
}
