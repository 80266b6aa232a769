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

use alloc::vec::Vec;

use super::membership::{Membership, MembershipFacts, consent_timeout, is_consistent};
use super::peer::{Peer, TICK_SILENCE_LIMIT};
use super::peers::Peers;
use super::quorum::{Electorate, is_quorum_of};
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
struct PlayerReports {
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

impl PlayerReports {
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

/// The reports of all players, by index of the peer.
#[derive(Debug)]
pub(super) struct MembershipReports {
    players: Vec<PlayerReports>,
}

/// What the judgement of reports reads of the other parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportFacts<'a> {
    pub(super) peers: &'a Peers,
    pub(super) membership: &'a Membership,
    pub(super) membership_facts: &'a MembershipFacts,
}

/// A credible report of the end of epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReportedDecision {
    /// The epoch that the decision ends. All epochs between the current one and this ended without a drop.
    pub(super) epoch: u32,
    pub(super) decision: MembershipDecision,
}

impl MembershipReports {
    pub(super) fn new(peer_count: usize) -> Self {
        Self { players: alloc::vec![PlayerReports::default(); peer_count] }
    }

    /// Returns whether no player has reported anything.
    pub(super) fn is_empty(&self) -> bool {
        !self.players.iter().any(|reports| reports.has_reports)
    }

    /// Forgets the reports of a player, because it was restarted.
    pub(super) fn on_restart(&mut self, index: usize) {
        self.players[index] = PlayerReports::default();
    }

    /// Forgets all reports, because this site is admitted to a game.
    pub(super) fn on_own_admission(&mut self) {
        self.players.fill(PlayerReports::default());
    }

    /// Forgets the leave reports about a site that takes a seat: they concerned the seat's previous player.
    pub(super) fn on_seat_taken(&mut self, site: SiteId) {
        self.players.iter_mut().for_each(|reports| reports.leave_frames[site.index()] = None);
    }

    /// Handles a player's report of how an epoch ended, and of how many later epochs ended without a drop.
    pub(super) fn on_decision(&mut self, index: usize, epoch: u32, decision: MembershipDecision, since: u32) {
        let reports = &mut self.players[index];
        (reports.has_reports, reports.ended_epoch) = (true, Some((epoch, decision, since.min(MAX_REPORTED_EPOCHS))));
    }

    /// Handles a player's refusal of this site because the session goes on without it.
    pub(super) fn on_refusal(&mut self, index: usize, now: Instant) {
        let reports = &mut self.players[index];
        (reports.has_reports, reports.refused_at) = (true, Some(now));
    }

    /// Handles a player's report that a third player has left.
    pub(super) fn on_leave(&mut self, index: usize, site: SiteId, last: Frame) {
        let reports = &mut self.players[index];
        (reports.has_reports, reports.leave_frames[site.index()]) = (true, Some(last));
    }

    /// Returns the sites that any player reports to have left.
    pub(super) fn reported_left(&self) -> SiteSet {
        let is_left = |site: &SiteId| self.players.iter().any(|reports| reports.leave_frames[site.index()].is_some());
        SiteId::first(MAX_SITES).filter(is_left).collect()
    }

    /// Returns the players with a report that satisfies a condition. Leaving players count, because they may have
    /// decided before.
    fn reporters(&self, peers: &Peers, has_report: impl Fn(&PlayerReports) -> bool) -> SiteSet {
        let players = peers.iter().zip(&self.players).filter(|(peer, _)| !peer.is_free() && !peer.is_dropped());
        players.filter(|(_, reports)| has_report(reports)).map(|(peer, _)| peer.site()).collect()
    }

    /// Returns a credible report of how the current epoch ended.
    pub(super) fn credible_decision(&self, facts: &ReportFacts<'_>) -> Option<ReportedDecision> {
        self.credible_drop(facts).or_else(|| self.credible_epochs(facts))
    }

    /// Returns the decision to drop sites with which others report that the epoch ended, if their report is credible.
    fn credible_drop(&self, facts: &ReportFacts<'_>) -> Option<ReportedDecision> {
        let epoch = facts.membership.epoch();
        let credible = |decision: &MembershipDecision| {
            let reporters = self.reporters(facts.peers, |reports| reports.decision_for(epoch) == Some(*decision));
            is_consistent(decision, facts.peers, facts.membership_facts) && is_credible(reporters, decision.drop, facts)
        };
        let reported = self.players.iter().filter_map(|reports| reports.decision_for(epoch));
        reported.into_iter().find(credible).map(|decision| ReportedDecision { epoch, decision })
    }

    /// Returns the newest epoch up to which others credibly report that no site was dropped.
    fn credible_epochs(&self, facts: &ReportFacts<'_>) -> Option<ReportedDecision> {
        let epoch = facts.membership.epoch();
        let reporters = self.reporters(facts.peers, |reports| reports.newest_ended_epoch(epoch).is_some());
        if reporters.is_empty() || !is_credible(reporters, SiteSet::EMPTY, facts) {
            return None;
        }
        let reported = facts.peers.iter().zip(&self.players).filter(|(peer, _)| reporters.contains(peer.site()));
        // The minimum of the reported epochs counts, because a single player may have made a later one up.
        let newest = reported.filter_map(|(_, reports)| reports.newest_ended_epoch(epoch)).min()?;
        Some(ReportedDecision { epoch: newest, decision: MembershipDecision::dropping(SiteSet::EMPTY) })
    }

    /// Returns whether the game credibly goes on without this site. Every player has to agree before a joiner is
    /// admitted, so until the join is settled each of them can keep it out.
    pub(super) fn is_refused(&self, facts: &ReportFacts<'_>) -> bool {
        let (peers, now) = (facts.peers, facts.membership_facts.now);
        let admitted_at = facts.membership.admitted_at();
        // A refusal that was in flight when a command admitted this site was about an earlier command.
        let is_meant = |reports: &PlayerReports| {
            reports.refuses(now) && admitted_at.is_none_or(|at| reports.has_refused_since(at + TICK_SILENCE_LIMIT))
        };
        let is_joining = facts.membership_facts.pending_joiner == Some(peers.own_site());
        let is_kept_out = is_joining && !self.reporters(peers, is_meant).is_empty();
        let refusing = self.reporters(peers, |reports| reports.refuses(now));
        is_kept_out || is_credible(refusing, SiteSet::from_iter([peers.own_site()]), facts)
    }

    /// Returns the end of the inputs of a peer that has credibly left, if its inputs have to be relayed.
    pub(super) fn credible_leave(&self, index: usize, facts: &ReportFacts<'_>) -> Option<Frame> {
        let peer = &facts.peers[index];
        let (site, is_muted) = (peer.site(), facts.membership.muted().contains(peer.site()));
        if is_muted || !peer.needs_relay(facts.membership_facts.now, is_muted) {
            return None;
        }
        let credible = |last: &Frame| {
            let reporters = self.reporters(facts.peers, |reports| reports.leave_frames[site.index()] == Some(*last));
            is_credible(reporters, SiteSet::from_iter([site]), facts)
        };
        let reported = self.players.iter().filter_map(|reports| reports.leave_frames[site.index()]);
        reported.into_iter().find(credible)
    }
}

/// Returns whether the report that the sites in `gone` are gone is credible, if the sites in `reporters` make it. The
/// report of an epoch that ended without a drop has an empty `gone`.
fn is_credible(reporters: SiteSet, gone: SiteSet, facts: &ReportFacts<'_>) -> bool {
    let ReportFacts { peers, membership, membership_facts } = facts;
    let is_own_drop = gone.contains(peers.own_site());
    if reporters.is_empty() {
        return false;
    }
    let is_receiving = is_receiving_any_of(gone, facts);
    let mut supporters = reporters.union(membership.votes_against(gone, peers));
    if !gone.is_empty() && !is_own_drop && !is_receiving {
        supporters.insert(peers.own_site());
    }
    // The sites that decided may not have known a joiner yet, and needed no quorum with it.
    let voters = peers.voters();
    let electorate = Electorate { voters, pending_joiner: membership_facts.pending_joiner };
    if is_quorum_of(electorate.without_pending_joiner(voters.union(reporters)), supporters) {
        return true;
    }
    // Players that went on without this site send it no ticks, whatever else they send.
    let agrees = |peer: &Peer| reporters.contains(peer.site()) && !is_own_drop;
    let is_silent = |peer: &Peer| membership_facts.now - peer.last_received_at() >= TICK_SILENCE_LIMIT;
    let mut others = peers.playing().filter(|peer| !gone.contains(peer.site()));
    let all_agree = others.all(|peer| agrees(peer) || is_silent(peer));
    !is_receiving && (all_agree || !is_own_drop && membership_facts.is_stuck)
}

/// Returns whether this site still receives from any of the sites in `gone`, and joined no ballot to drop that site.
fn is_receiving_any_of(gone: SiteSet, facts: &ReportFacts<'_>) -> bool {
    let is_received = |peer: &Peer| {
        peer.silence(facts.membership_facts.now) < consent_timeout(facts.membership_facts)
            && !facts.membership.muted().contains(peer.site())
    };
    let is_needed = |peer: &Peer| peer.is_awaited() && !peer.was_restarted() && is_received(peer);
    facts.peers.iter().any(|peer| gone.contains(peer.site()) && is_needed(peer))
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn sites(numbers: &[u8]) -> SiteSet {
        numbers.iter().filter_map(|number| SiteId::new(*number)).collect()
    }

    /// The game of site 0 of `count` at 3 s, when this site receives from the sites in `received` only.
    struct Site {
        peers: Peers,
        membership: Membership,
        reports: MembershipReports,
        facts: MembershipFacts,
    }

    impl Site {
        fn new(count: u8, received: &[u8]) -> Self {
            let mut peers = table(0, count);
            let is_received = |peer: &&mut Peer| received.contains(&peer.site().number());
            peers.iter_mut().filter(is_received).for_each(|peer| peer.on_received(at(3_000), 1));
            let facts = MembershipFacts {
                now: at(3_000),
                drop_timeout: None,
                all_sites: SiteSet::first(8),
                pending_joiner: None,
                is_last_player: false,
                download_end: None,
                command: None,
                is_stuck: false,
            };
            let others = usize::from(count) - 1;
            Self { peers, membership: Membership::new(others), reports: MembershipReports::new(others), facts }
        }

        fn facts(&self) -> ReportFacts<'_> {
            ReportFacts { peers: &self.peers, membership: &self.membership, membership_facts: &self.facts }
        }
    }

    #[test]
    fn report_of_quorum_is_credible() {
        let mut site = Site::new(5, &[1, 2, 3, 4]);
        let decision = MembershipDecision::dropping(sites(&[4]));
        site.reports.on_decision(0, 0, decision, 0);
        site.reports.on_decision(1, 0, decision, 0);
        assert_eq!(site.reports.credible_decision(&site.facts()), None, "two of five");
        site.reports.on_decision(2, 0, decision, 0);
        assert_eq!(site.reports.credible_decision(&site.facts()), Some(ReportedDecision { epoch: 0, decision }));
    }

    #[test]
    fn one_player_cannot_drop_a_site_that_sends() {
        let mut site = Site::new(4, &[1, 3]);
        let decision = MembershipDecision::dropping(sites(&[3]));
        site.reports.on_decision(0, 0, decision, 0);
        site.facts.is_stuck = true;
        assert_eq!(site.reports.credible_decision(&site.facts()), None);
        let mut silent = Site { peers: Site::new(4, &[1]).peers, ..site };
        assert!(silent.reports.credible_decision(&silent.facts()).is_some(), "this site does not receive from it");
        silent.reports.on_restart(0);
        assert!(silent.reports.is_empty());
    }

    #[test]
    fn lowest_reported_epoch_counts() {
        let mut site = Site::new(3, &[1, 2]);
        let none = MembershipDecision::dropping(SiteSet::EMPTY);
        site.membership.skip_to_epoch(3);
        site.reports.on_decision(0, 2, none, 1);
        site.reports.on_decision(1, 2, none, 9);
        let reported = site.reports.credible_decision(&site.facts());
        assert_eq!(reported, Some(ReportedDecision { epoch: 3, decision: none }));
    }

    #[test]
    fn refusal_counts_for_two_seconds_and_without_other_players() {
        let mut site = Site::new(3, &[1, 2]);
        site.reports.on_refusal(0, at(3_000));
        assert!(!site.reports.is_refused(&site.facts()), "site 2 plays on with this site");
        let mut alone = Site { peers: Site::new(3, &[]).peers, ..site };
        assert!(alone.reports.is_refused(&alone.facts()));
        alone.facts.now = at(5_000);
        assert!(!alone.reports.is_refused(&alone.facts()));
    }

    #[test]
    fn leave_report_needs_a_cut_link() {
        let mut site = Site::new(3, &[1, 2]);
        site.reports.on_leave(0, SiteId::new(2).unwrap(), Frame::new(7));
        assert_eq!(site.reports.reported_left(), sites(&[2]));
        assert_eq!(site.reports.credible_leave(1, &site.facts()), None);
        let mut cut = Site { peers: Site::new(3, &[1]).peers, ..site };
        assert_eq!(cut.reports.credible_leave(1, &cut.facts()), Some(Frame::new(7)));
        cut.reports.on_seat_taken(SiteId::new(2).unwrap());
        assert_eq!(cut.reports.credible_leave(1, &cut.facts()), None);
    }
}
