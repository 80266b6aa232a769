//! Membership by ballot: the sites drop a gone site together, so that the others can go on.
//!
//! The sites that play are the *members* of the current *epoch*. No site steps past its prediction window without the
//! inputs of all members. So the remaining sites must all decide to drop a site, and in the same way: which sites, and
//! with which frame the inputs of each of them end. That frame is the furthest for which any survivor has inputs,
//! because that survivor may have stepped it already.
//!
//! A decision is made as in Lamport's *Paxos Made Simple*, one instance per epoch. The messages travel in normal ticks
//! and are repeated until they are obsolete:
//!
//! 1. The lowest reachable site leads a *ballot*: it proposes which sites to drop. If the ballot has no result, the
//!    next site leads one.
//! 2. A site that takes part mutes the proposed sites for the rest of the epoch, and reports the end of their inputs
//!    that it has received.
//! 3. When all survivors have reported, the leader proposes the decision: one that was accepted in an earlier ballot if
//!    that may be in force, or else the furthest ends. If some survivors refuse, because they still receive from the
//!    proposed sites, the leader begins a ballot to drop no site, for which a quorum is enough.
//! 4. A site that knows that a quorum has accepted a decision applies it. Sites that missed it get it from the others.
//!
//! A site that the coordinator evicts although it still sends is dropped in the same way. The other sites consent even
//! if they receive from it, on the authority of the coordinator's vote.
//!
//! A quorum is more than half of the members, or half of them including the lowest. Any two quorums have a site in
//! common. So the leader may die at any point and another continues, and of two network partitions at most one decides.
//! A site that can neither decide nor follow credible [reports](super::membership_reports) of a decision does not go
//! on, with two exceptions: all other sites were restarted and want to join again, or a person decides to continue
//! [alone](super::split_brain).
//!
//! A site that leaves in an orderly way announces the frame with which its inputs end. That needs no vote, and the site
//! is no member any more. If it dies before all its inputs have arrived, they end earlier, and that needs a vote. A
//! leaving site does not announce its leave to the sites that it has dropped: towards them it must keep counting as a
//! member.

use super::Session;
use super::digest_history::DigestHistory;
use super::event::{Event, SessionEnd};
use super::peer::{Peer, Seat, TICK_SILENCE_LIMIT};
use super::phase::Phase;
use super::quorum::is_quorum_of;
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::message::{InputEnds, MembershipDecision, Vote};
use crate::settings::AbsentInput;
use crate::time::{Instant, TimeDelta};

/// Time after which a ballot without a decision is replaced. By then three sites have had their [`LEADER_TURN`] to lead
/// one.
const BALLOT_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_500);
/// Time after which it is the next site's turn to lead a ballot: the lowest site might not receive from all voters.
const LEADER_TURN: TimeDelta = TimeDelta::from_millis(500);
/// Silence after which this site consents to drop a site, if [`Config::drop_timeout`](super::Config::drop_timeout) is
/// not set.
const CONSENT_SILENCE: TimeDelta = TimeDelta::from_millis(500);

/// Minimum time, besides two round trips, from a ballot that dropped no site until this site suspects a site for
/// silence again. Meanwhile packets of the unmuted sites can arrive. Their silence keeps counting (for spared sites
/// only up to `max_spared_silence`): otherwise a site with a longer drop timeout would never suspect them.
const UNMUTE_TIME: TimeDelta = TimeDelta::from_millis(500);
/// Upper bound for a peer's round-trip time in timeouts, because a peer controls its own round-trip time.
const MAX_WAITED_RTT: TimeDelta = TimeDelta::from_secs(1);

/// Minimum time without progress, besides two round trips, after which the missing last inputs of a dropped site count
/// as lost. Until then survivors may still relay them.
const LAST_INPUT_RELAY_TIME: TimeDelta = TimeDelta::from_secs(1);

/// This site's state of the membership protocol: the current epoch, its ballots, and the outcome of earlier epochs. The
/// members themselves follow from the peers' seats.
#[derive(Debug, Default)]
pub(super) struct Membership {
    pub(super) epoch: u32,
    /// This site's vote in the current epoch; `None` before it joins a ballot. A vote in ballot 0 only asks for the
    /// current epoch.
    pub(super) own_vote: Option<Vote>,
    /// When the last epoch ended at this site; `None` if none has ended since this site started or was admitted.
    epoch_ended_at: Option<Instant>,
    /// When a command admitted this site; `None` if it plays from the start.
    pub(super) admitted_at: Option<Instant>,
    /// When this site joined its newest ballot.
    ballot_joined_at: Option<Instant>,
    /// Since when there is a suspect or a vote; `None` while there is neither.
    suspected_since: Option<Instant>,
    /// Sites that this site, as the coordinator, wants to evict in the next ballot.
    pub(super) to_evict: SiteSet,
    /// When an epoch last ended without a drop, so that this site accepts inputs of muted sites again.
    unmuted_at: Option<Instant>,
    /// Sites that some peer's vote in this epoch does not drop, although it drops others.
    spared_sites: SiteSet,
    /// End of the time in which slow sites are tolerated, because an eviction failed.
    pub(super) eviction_retry_at: Option<Instant>,
    /// Sites whose inputs this site accepts neither directly nor relayed until the epoch ends.
    pub(super) muted: SiteSet,
    /// The newest epoch that ended with a drop, and its decision; all later epochs ended without a drop. While no known
    /// epoch has ended with a drop, this is the first epoch whose end is known.
    pub(super) last_decision: Option<(u32, MembershipDecision)>,
}

impl Membership {
    /// Creates the membership of a site that a command admits at `now`, with epoch 0 until the command's epoch is set.
    pub(super) fn admitted(now: Instant) -> Self {
        Self { admitted_at: Some(now), ..Self::default() }
    }

    /// Returns whether there is no suspect, no vote of this site and no site to evict.
    pub(super) fn is_idle(&self) -> bool {
        self.own_vote.is_none() && self.suspected_since.is_none() && self.to_evict.is_empty()
    }
}

impl Session {
    /// Returns the sites that play, including this site.
    pub(super) fn voters(&self) -> SiteSet {
        let peers = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.site);
        peers.chain([self.config.site]).collect()
    }

    /// Returns whether these sites can decide for all: they are a quorum, or all other sites were restarted and want to
    /// join again, in which case no site can have decided otherwise and gone on.
    fn is_quorum(&self, sites: SiteSet) -> bool {
        if self.peers.iter().all(|peer| peer.was_restarted() && peer.lobby.join_readiness.is_some()) {
            return true;
        }
        self.is_quorum_of_voters(sites)
    }

    /// Returns whether `sites` can decide for all voters. While some site may not know of a joiner yet, they must be a
    /// quorum both of the voters with the joiner and of those without it.
    fn is_quorum_of_voters(&self, sites: SiteSet) -> bool {
        let voters = self.voters();
        is_quorum_of(voters, sites) && is_quorum_of(self.without_pending_joiner(voters), sites)
    }

    /// Removes a joiner of which some site may not know yet from a set of sites.
    pub(super) fn without_pending_joiner(&self, mut sites: SiteSet) -> SiteSet {
        self.pending_joiner().inspect(|joiner| sites.remove(*joiner));
        sites
    }

    /// Returns whether the other sites could go on without `peer` and without its inputs for frames from `unpublished`
    /// on: a quorum of them does not contain it, or it was absent from such a frame on.
    fn quorum_may_lack_inputs_of(&self, peer: &Peer, unpublished: Frame) -> bool {
        let mut without = self.voters();
        without.remove(self.config.site);
        match without.contains(peer.site) {
            true => {
                without.remove(peer.site);
                self.is_quorum_of_voters(without)
            }
            false => peer.absent_from().is_some_and(|end| end > unpublished),
        }
    }

    /// Returns the end of the frames that `peer` must have confirmed, because it has sampled its newest input: its
    /// machine runs ahead of the confirmed frames by at most the prediction window, and its inputs run ahead of its
    /// machine by at most the input delay and one frame.
    fn proven_confirmed_end(&self, peer: &Peer) -> Frame {
        let settings = &self.delay_settings;
        let lead = (settings.input_delay + settings.prediction_window).max(self.max_lead);
        peer.inputs.end().checked_sub(lead + 1).unwrap_or_default()
    }

    /// Returns the end of the frames that are confirmed and stay so even if the others drop this site: every quorum of
    /// the others contains a site that has the inputs of all sites outside the quorum for them.
    pub(super) fn irrevocable_end(&self) -> Frame {
        let (mut irrevocable, unpublished) = (self.confirmed_end(), self.feed_end.max(self.own_inputs.start()));
        let others_may_lack = self.peers.iter().any(|peer| self.quorum_may_lack_inputs_of(peer, unpublished));
        let mut others_left = self.voters();
        others_left.remove(self.config.site);
        while self.is_quorum_of_voters(others_left) {
            let is_established = |peer: &Peer| peer.inputs.start() <= unpublished && !peer.has_advance_inputs;
            let is_candidate = |peer: &&Peer| others_left.contains(peer.site) && is_established(peer);
            let known_end = |peer: &Peer| match others_may_lack {
                true => peer.sender.acked().min(self.proven_confirmed_end(peer)),
                false => peer.sender.acked(),
            };
            let candidates = self.peers.iter().filter(is_candidate).map(|peer| (known_end(peer), peer.site));
            // Only new joiners are left, which know earlier frames from a feed alone.
            let Some((acked, site)) = candidates.max() else { break };
            irrevocable = irrevocable.min(acked);
            others_left.remove(site);
        }
        irrevocable
    }

    /// Returns the sites that this site would drop: sites silent for longer than the drop timeout, restarted sites, and
    /// sites to evict. If there are any, sites that were dropped before and whose last inputs this site still lacks are
    /// among the suspects, too; otherwise only if those inputs seem lost.
    fn suspects(&self, now: Instant) -> SiteSet {
        let gone = self.sites_to_drop(now);
        let is_incomplete =
            |peer: &&Peer| peer.lacks_last_inputs() && (!gone.is_empty() || self.are_last_inputs_lost(now, peer));
        let lost: SiteSet = self.peers.iter().filter(is_incomplete).map(|peer| peer.site).collect();
        gone.union(lost)
    }

    /// Returns whether the last epoch ended longer ago than `time`, or none has ended at this site.
    pub(super) fn is_epoch_older_than(&self, now: Instant, time: TimeDelta) -> bool {
        self.membership.epoch_ended_at.is_none_or(|ended| now - ended > time)
    }

    /// Returns whether the last inputs of a dropped site that are missing here seem lost: the other sites had time to
    /// relay them since the last epoch ended and since the newest input of that site arrived.
    pub(super) fn are_last_inputs_lost(&self, now: Instant, peer: &Peer) -> bool {
        let last_progress =
            self.membership.epoch_ended_at.map_or(peer.last_input_at, |ended| ended.max(peer.last_input_at));
        now - last_progress
            > self.config.drop_timeout.unwrap_or(LAST_INPUT_RELAY_TIME).max(LAST_INPUT_RELAY_TIME)
                + self.max_player_rtt() * 2
    }

    /// Returns the longest smoothed round-trip time to any other site, whether it plays or not.
    pub(super) fn max_rtt(&self) -> TimeDelta {
        self.peers.iter().filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default()
    }

    /// Returns the longest round-trip time to any player, at most [`MAX_WAITED_RTT`], for timeouts.
    pub(super) fn max_player_rtt(&self) -> TimeDelta {
        let players = self.peers.iter().filter(|peer| peer.is_playing());
        players.filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default().min(MAX_WAITED_RTT)
    }

    /// Returns whether packets of sites that were muted had time to arrive again since the last ballot that dropped no
    /// site.
    fn has_unmuted_long_enough(&self, now: Instant) -> bool {
        self.membership.unmuted_at.is_none_or(|since| now - since > UNMUTE_TIME + self.max_player_rtt() * 2)
    }

    fn sites_to_drop(&self, now: Instant) -> SiteSet {
        let to_evict = match self.membership.to_evict {
            SiteSet::EMPTY => SiteSet::EMPTY,
            to_evict if self.is_coordinator() => to_evict,
            _ => SiteSet::EMPTY,
        };
        let limit = self.config.drop_timeout.filter(|_| self.has_unmuted_long_enough(now));
        let is_silent = |peer: &&Peer| limit.is_some_and(|limit| peer.silence(now) > limit);
        let is_gone = |peer: &&Peer| {
            peer.is_awaited() && (is_silent(peer) || peer.was_restarted() || to_evict.contains(peer.site))
        };
        self.peers.iter().filter(is_gone).map(|peer| peer.site).collect()
    }

    /// Returns whether this site agrees to drop the sites that a leader's vote proposes, and is not one of them.
    fn consents(&self, now: Instant, vote: &Vote) -> bool {
        let lowest = self.voters().iter().next().map(SiteId::number);
        let authority = if lowest == Some(ballot_leader(vote.ballot)) { vote.to_evict } else { SiteSet::EMPTY };
        let is_needed = |peer: &Peer| {
            let is_received = peer.silence(now) < self.consent_timeout() && !authority.contains(peer.site);
            peer.is_awaited() && is_received && !peer.was_restarted()
        };
        let drop = vote.drop;
        !drop.contains(self.config.site) && !self.peers.iter().any(|peer| drop.contains(peer.site) && is_needed(peer))
    }

    /// Returns the silence after which this site consents to another site's proposal to drop a site.
    pub(super) fn consent_timeout(&self) -> TimeDelta {
        self.config.drop_timeout.map_or(CONSENT_SILENCE, |limit| limit / 2)
    }

    /// Returns whether this site has accepted a decision that may be in force already. Such a site does not announce
    /// that it leaves until the epoch ends: a leaver is no voter any more, and without its vote the others could decide
    /// otherwise.
    pub(super) fn is_bound_by_vote(&self) -> bool {
        self.membership.own_vote.is_some_and(|vote| vote.accepted.is_some())
    }

    /// Leads a ballot if there is a suspect or a vote and it is this site's turn; decides a ballot that is under way if
    /// it can.
    pub(super) fn update_membership(&mut self, now: Instant) {
        if self.leaving.is_some() {
            return;
        }
        self.stop_epoch_request();
        // A site that plays by now must vote.
        self.apply_due_command();
        self.abandon_hopeless_ballot();
        self.try_decide();
        let suspects = self.suspects(now);
        // A participant of a ballot mutes the suspects until the epoch ends. If they are back, the epoch ends without a
        // drop.
        let has_votes = self.votes().next().is_some();
        if suspects.is_empty() && !has_votes {
            self.membership.suspected_since = None;
            return;
        }
        let (voters, own_site) = (self.voters(), self.config.site);
        let since = *self.membership.suspected_since.get_or_insert(now);
        let Some(own_turn) = difference(voters, suspects).iter().position(|site| site == own_site) else { return };
        // A site that may already be dropped lets the others lead the next ballot, too, because they can confirm the
        // decision and it cannot.
        let may_be_dropped = self.may_be_dropped(suspects);
        let is_stale = self
            .membership
            .ballot_joined_at
            .is_none_or(|joined| now - joined > if may_be_dropped { BALLOT_TIMEOUT * 2 } else { BALLOT_TIMEOUT });
        let ballot = self.membership.own_vote.filter(|vote| vote.ballot > 0);
        let leading = ballot.filter(|vote| ballot_leader(vote.ballot) == own_site.number());
        let is_under_way = match leading {
            Some(vote) => (vote.drop == suspects || vote.drop.is_empty()) && !is_stale,
            None => now - since < LEADER_TURN * own_turn as i64 || ballot.is_some() && !is_stale,
        };
        let must_wait = now - since < BALLOT_TIMEOUT * 2 && may_be_dropped;
        if is_under_way || must_wait || !self.is_quorum(difference(voters, suspects)) {
            return;
        }
        // If another site still receives from the suspects, no site is dropped. But this site unmutes them only when
        // the epoch has ended.
        let is_refused = leading.is_some_and(|vote| is_stale && vote.drop == suspects && vote.accepted.is_none());
        if is_refused && self.another_may_drop_fewer(now, suspects) {
            return;
        }
        let drop = if is_refused { SiteSet::EMPTY } else { suspects };
        let newest_ballot = self
            .peers
            .iter()
            .filter_map(|peer| peer.vote)
            .chain(self.membership.own_vote)
            .map(|vote| vote.ballot)
            .max();
        let round = newest_ballot.map_or(0, |ballot| ballot / MAX_SITES as u32).saturating_add(1);
        self.membership.ballot_joined_at = Some(now);
        self.join_ballot(round.saturating_mul(MAX_SITES as u32) | u32::from(own_site.number()), drop);
        self.try_decide();
    }

    /// Abandons a ballot that cannot have a decision: this site has muted all other voters, because the other survivors
    /// have left, and this site alone is no quorum. Otherwise this site would keep them muted, even when they announce
    /// that they leave.
    fn abandon_hopeless_ballot(&mut self) {
        let is_undecided = self.membership.own_vote.is_some_and(|vote| vote.ballot > 0 && vote.accepted.is_none());
        let only_us = SiteSet::from_iter([self.config.site]);
        if is_undecided && difference(self.voters(), self.membership.muted) == only_us && !self.is_quorum(only_us) {
            (self.membership.own_vote, self.membership.ballot_joined_at, self.membership.suspected_since) =
                (None, None, None);
            self.membership.muted = SiteSet::EMPTY;
        }
    }

    /// Returns whether another voter would drop only some of the sites that this site suspects, and still has time to
    /// lead a ballot about them. If this site does not receive from a player that the others receive from, it cannot
    /// collect that player's vote, but another site can.
    fn another_may_drop_fewer(&self, now: Instant, suspects: SiteSet) -> bool {
        let fewer = |drop: SiteSet| !drop.is_empty() && drop != suspects && suspects.contains_all(drop);
        let in_time = self.membership.ballot_joined_at.is_some_and(|joined| now - joined <= BALLOT_TIMEOUT * 2);
        let others = |site: SiteId| site != self.config.site && !suspects.contains(site);
        in_time && self.votes().any(|(site, vote)| others(site) && fewer(vote.drop))
    }

    /// Returns whether a reachable site has accepted a decision to drop this site, which may be in force already.
    /// Another site should find that out: this site could only propose the same, and believes it only when all others
    /// have accepted it.
    fn may_be_dropped(&self, suspects: SiteSet) -> bool {
        let without_us =
            |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop.contains(self.config.site));
        self.votes().any(|(site, vote)| !suspects.contains(site) && without_us(vote))
    }

    /// Joins a ballot: mutes the sites in `drop`, and votes with the ends of their received inputs.
    #[cold]
    fn join_ballot(&mut self, ballot: u32, drop: SiteSet) {
        self.membership.muted = self.membership.muted.union(drop);
        let mut ends: InputEnds = [Frame::ZERO; MAX_SITES];
        for peer in self.peers.iter_mut().filter(|peer| drop.contains(peer.site)) {
            // A joiner lacks the peer's inputs between its machine's frame and the join frame. Without them, those from
            // the join frame on are of no use to others.
            let gap = self.joining.is_some() && self.machine_frame < peer.inputs.start();
            peer.is_withheld |= gap;
            ends[peer.site.index()] = if gap { self.machine_frame } else { peer.inputs.end() };
        }
        let left_sites =
            self.peers.iter().filter(|peer| drop.contains(peer.site) && peer.has_left()).map(|peer| peer.site);
        let left_sites = left_sites.collect();
        let is_in_force = |command: &crate::session::message::ScheduledCommand| {
            drop.contains(command.issuer) && command.frame < ends[command.issuer.index()]
        };
        let command = self.command.filter(is_in_force);
        let accepted = self.membership.own_vote.and_then(|vote| vote.accepted);
        let to_evict = SiteSet::from_bits(self.membership.to_evict.bits() & drop.bits());
        self.membership.own_vote = Some(Vote {
            epoch: self.membership.epoch,
            ballot,
            drop,
            input_ends: ends,
            left_sites,
            to_evict,
            command,
            accepted,
        });
        self.mark_all_due();
    }

    /// Assumes that the current epoch is `epoch`, and asks the others for it with a vote in ballot 0. The epoch may
    /// have changed since the command that admitted this site was issued, and the others do not know that this site
    /// lacks the new one.
    pub(super) fn request_epoch(&mut self, epoch: u32) {
        self.membership.epoch = epoch;
        let (no_sites, ends) = (SiteSet::EMPTY, [Frame::ZERO; MAX_SITES]);
        self.membership.own_vote = Some(Vote {
            epoch,
            ballot: 0,
            drop: no_sites,
            input_ends: ends,
            left_sites: no_sites,
            to_evict: no_sites,
            command: None,
            accepted: None,
        });
    }

    /// Withdraws the vote in ballot 0 once this site has confirmed frames more than `max_lead` after `catch_up_until`:
    /// without every drop decided meanwhile it could not have confirmed them.
    fn stop_epoch_request(&mut self) {
        let is_asking = self.membership.own_vote.is_some_and(|vote| vote.ballot == 0);
        if is_asking && self.joining.is_none() && self.confirmed_end() > self.catch_up_until + self.max_lead {
            self.membership.own_vote = None;
        }
    }

    /// Handles a peer's vote. If it is for the current epoch: records it, joins the ballot that the peer leads if this
    /// site consents, accepts the decision that the peer proposes as leader if that is admissible, and counts the
    /// votes. A vote for an earlier epoch shows that the peer needs the decision that ended it.
    pub(super) fn on_vote(&mut self, now: Instant, index: usize, vote: Vote) {
        self.apply_due_command();
        let is_bound = self.is_bound_by_vote();
        let peer = &mut self.peers[index];
        if !peer.is_playing() {
            return;
        }
        peer.has_old_epoch = vote.epoch < self.membership.epoch;
        if vote.epoch != self.membership.epoch || vote.ballot == 0 || self.leaving.is_some() && !is_bound {
            return;
        }
        if !vote.drop.is_empty() {
            let all_sites = SiteSet::first(usize::from(self.config.settings.site_count));
            self.membership.spared_sites = self.membership.spared_sites.union(difference(all_sites, vote.drop));
        }
        if peer.vote.is_none_or(|known| {
            (known.ballot, known.accepted.map(|a| a.0)) <= (vote.ballot, vote.accepted.map(|a| a.0))
        }) {
            peer.vote = Some(vote);
        }
        let site = peer.site.number();
        let promised = self.membership.own_vote.map_or(0, |vote| vote.ballot);
        if ballot_leader(vote.ballot) == site && vote.ballot > promised && self.consents(now, &vote) {
            self.membership.ballot_joined_at = Some(now);
            self.join_ballot(vote.ballot, vote.drop);
        }
        if let Some((ballot, decision)) =
            vote.accepted.filter(|(ballot, _)| ballot_leader(*ballot) == site && *ballot == vote.ballot)
        {
            self.accept_decision(ballot, decision);
        }
        self.try_decide();
    }

    /// Returns whether a decision can have been made without a lie. Before a site is dropped, all remaining sites join
    /// a ballot to drop it, so no site is dropped that this site has not muted. A decision that drops this site itself
    /// must have been accepted by all reachable sites.
    fn is_admissible(&self, decision: &MembershipDecision) -> bool {
        match decision.drop.contains(self.config.site) {
            // This site's received inputs of the others do not count any more.
            true => self.all_reachable_accept(decision),
            false => self.membership.muted.contains_all(decision.drop) && self.is_consistent(decision),
        }
    }

    /// Returns whether a decision is consistent with this site's knowledge. All remaining sites report the end of the
    /// dropped sites' inputs and mute them, so the inputs received here count; except at a joiner, which may not have
    /// been asked. And only commands of dropped sites are settled by the decision.
    pub(super) fn is_consistent(&self, decision: &MembershipDecision) -> bool {
        let was_asked = self.pending_joiner() != Some(self.config.site);
        let loses_inputs = |peer: &Peer| {
            let is_shorter = peer.inputs.end() > decision.input_ends[peer.site.index()];
            was_asked && decision.drop.contains(peer.site) && !peer.is_withheld && is_shorter
        };
        !self.peers.iter().any(loses_inputs)
            && decision.command.is_none_or(|command| decision.drop.contains(command.issuer))
    }

    /// Returns whether the others can have made this decision without this site, and each player from which packets
    /// still arrive has accepted it. Sites that would be dropped together with this site wait for each other's votes,
    /// so theirs are not needed if the remaining sites are a quorum and two of those that still send have accepted.
    fn all_reachable_accept(&self, decision: &MembershipDecision) -> bool {
        let voters = self.voters();
        let accepts =
            |peer: &Peer| peer.vote.and_then(|vote| vote.accepted).is_some_and(|(_, accepted)| accepted == *decision);
        let is_silent = |peer: &Peer| self.clock.last_call() - peer.last_received_at >= TICK_SILENCE_LIMIT;
        let others = || self.peers.iter().filter(|peer| peer.is_playing());
        let is_dropped = |peer: &Peer| decision.drop.contains(peer.site);
        let is_confirmed = is_quorum_of(voters, difference(voters, decision.drop))
            && others().filter(|peer| !is_dropped(peer) && accepts(peer) && !is_silent(peer)).count() >= 2;
        is_quorum_of(voters, difference(voters, SiteSet::from_iter([self.config.site])))
            && others().all(|peer| accepts(peer) || is_silent(peer) || is_confirmed && is_dropped(peer))
    }

    /// Accepts the decision of a ballot that this site has joined if the decision is admissible, even if it drops this
    /// site.
    fn accept_decision(&mut self, ballot: u32, decision: MembershipDecision) {
        if !self.is_admissible(&decision) {
            return;
        }
        if let Some(own_vote) = self.membership.own_vote.as_mut().filter(|own_vote| own_vote.ballot == ballot) {
            let is_new = own_vote.accepted.is_none_or(|(accepted, _)| accepted < ballot);
            if is_new {
                own_vote.accepted = Some((ballot, decision));
                self.mark_all_due();
            }
        }
    }

    /// As leader, proposes the decision of the ballot once enough sites take part: all survivors, or a quorum for a
    /// ballot that drops no site (all survivors in its first 0.5 s if an earlier decision may be in force). Applies a
    /// decision that a quorum has accepted.
    fn try_decide(&mut self) {
        let Some(own_vote) = self.membership.own_vote.filter(|vote| vote.ballot > 0) else { return };
        if ballot_leader(own_vote.ballot) == self.config.site.number()
            && own_vote.accepted.is_none_or(|(ballot, _)| ballot < own_vote.ballot)
        {
            let survivors = difference(self.voters(), own_vote.drop);
            let takes_part = |vote: &&Vote| vote.ballot == own_vote.ballot && vote.epoch == own_vote.epoch;
            let votes = || self.votes().filter(|(_, vote)| takes_part(vote));
            let present: SiteSet = votes().map(|(site, _)| site).collect();
            // No decision can be in force if a quorum has accepted none: any quorum that might have accepted one
            // intersects it.
            let unbound: SiteSet = votes().filter(|(_, vote)| vote.accepted.is_none()).map(|(site, _)| site).collect();
            let is_free = self.is_quorum_of_voters(unbound) || votes().all(|(_, vote)| vote.accepted.is_none());
            let may_become_free = !is_free
                && self.membership.ballot_joined_at.is_some_and(|joined| self.clock.last_call() - joined < LEADER_TURN);
            // To drop no site, the leader need not know the survivors' input ends.
            let is_sufficient = match own_vote.drop {
                SiteSet::EMPTY if may_become_free => present.contains_all(survivors),
                SiteSet::EMPTY => self.is_quorum(present),
                _ => present.contains_all(survivors),
            };
            if is_sufficient {
                let accepted = votes().filter_map(|(_, vote)| vote.accepted).filter(|_| !is_free);
                let earlier = accepted.max_by_key(|(ballot, _)| *ballot);
                let decision =
                    earlier.map_or_else(|| merge_votes(own_vote.drop, votes().map(|(_, vote)| vote)), |(_, d)| d);
                // If the earlier decision is a lie, the ballot has no result: to ignore a decision that is in force
                // would be worse.
                self.accept_decision(own_vote.ballot, decision);
            }
        }
        let Some((ballot, decision)) = self.membership.own_vote.and_then(|vote| vote.accepted) else { return };
        let accepted = |vote: &Vote| vote.accepted == Some((ballot, decision));
        let agreeing: SiteSet = self.votes().filter(|(_, vote)| accepted(vote)).map(|(site, _)| site).collect();
        if self.is_quorum(agreeing) {
            self.apply_decision(decision);
        }
    }

    /// Returns the sites whose votes are for dropping the sites in `sites`: they accepted a decision to drop exactly
    /// these, or joined a ballot to drop at least these.
    pub(super) fn votes_against(&self, sites: SiteSet) -> SiteSet {
        let accepted = |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop == sites);
        let would_drop = |vote: &Vote| !sites.is_empty() && vote.drop.contains_all(sites);
        self.votes().filter(|(_, vote)| accepted(vote) || would_drop(vote)).map(|(site, _)| site).collect()
    }

    /// Returns all votes in ballots of this epoch, including this site's own.
    fn votes(&self) -> impl Iterator<Item = (SiteId, &Vote)> {
        let epoch = self.membership.epoch;
        let peers = self.peers.iter().filter(|peer| peer.is_playing());
        let peers = peers.filter_map(|peer| peer.vote.as_ref().map(|vote| (peer.site, vote)));
        let own_vote = self.membership.own_vote.as_ref().map(|vote| (self.config.site, vote));
        peers.chain(own_vote).filter(move |(_, vote)| vote.epoch == epoch && vote.ballot > 0)
    }

    /// Ends the epoch with a decision: drops its sites, voids their command unless the decision keeps it, and unmutes
    /// all other sites. Ends the session if the decision drops this site.
    #[cold]
    pub(super) fn apply_decision(&mut self, decision: MembershipDecision) {
        if decision.drop.contains(self.config.site) {
            return self.end_session(SessionEnd::Dropped);
        }
        self.void_commands_of_dropped(&decision);
        let (free_from, own_end) = (self.next_free_seat_frame(), self.own_inputs.end());
        let (drops_none, to_evict) = (decision.drop.is_empty(), self.membership.to_evict);
        let earliest = decision.drop.iter().map(|site| decision.input_ends[site.index()]).min();
        let spared_silence = self.max_spared_silence();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            peer.mark_unconsulted(earliest);
            // This site withheld inputs and stepped their frames with predictions, so the check of predictions begins
            // with the first of them.
            let known = peer.known_end();
            (peer.vote, peer.has_old_epoch, peer.is_withheld) = (None, false, false);
            // A site that plays from a later frame on assumes the old epoch, and learns of the new one with this site's
            // input for that frame. The same holds for a site that was not asked, and for one whose admission is void.
            peer.uninformed_until = peer.join_frame.or(peer.void_join_frame).or(drops_none.then_some(own_end));
            if drops_none && self.membership.spared_sites.contains(peer.site) {
                peer.last_input_at = peer.last_input_at.max(self.clock.last_call() - spared_silence);
            }
            if decision.drop.contains(peer.site) && peer.is_awaited() {
                let (site, last) = (peer.site, decision.input_ends[peer.site.index()]);
                peer.seat = Seat::Leaving(last);
                peer.is_dropped = true;
                // The site may have stepped inputs of other dropped sites, which do not count.
                peer.frame_digests = DigestHistory::default();
                let is_received = peer.silence(self.clock.last_call()) < CONSENT_SILENCE;
                peer.stall_record.on_drop(self.clock.last_call(), is_received && to_evict.contains(site));
                match self.config.settings.absent_input {
                    AbsentInput::Repeat if !decision.left_sites.contains(site) => peer.repeats_last_input = true,
                    _ => peer.use_neutral_substitute(),
                }
                peer.seat_free_from = free_from;
                peer.lobby.has_played = false;
                self.left_sites.insert(site);
                self.events.push(Event::Dropped { site, frame: last });
                self.schedule.forget_site(site);
                self.check_predictions(index, known);
            } else if decision.drop.contains(peer.site) {
                let last = decision.input_ends[peer.site.index()];
                self.shorten_last_inputs(index, last);
            }
        }
        if let Some(command) = decision.command {
            self.accept_command(command);
        }
        if !drops_none || self.membership.last_decision.is_none() {
            self.membership.last_decision = Some((self.membership.epoch, decision));
        }
        self.membership.epoch = self.membership.epoch.saturating_add(1);
        self.membership.own_vote = None;
        self.membership.epoch_ended_at = Some(self.clock.last_call());
        (self.membership.ballot_joined_at, self.membership.suspected_since) = (None, None);
        (self.membership.muted, self.membership.to_evict, self.membership.spared_sites) =
            (SiteSet::EMPTY, SiteSet::EMPTY, SiteSet::EMPTY);
        // No player is charged for the time that the ballot took.
        self.stall.restart(self.clock.last_call());
        if drops_none {
            self.membership.unmuted_at = Some(self.clock.last_call());
            self.reset_stall_records(self.clock.last_call(), to_evict);
        }
        self.choose_pace_setter();
        self.mark_all_due();
        self.invalidate_send_time();
        self.mark_extras_pending();
    }

    /// Returns the longest silence that still counts, after a ballot that dropped no site, for a site that another
    /// player's vote did not drop. If that player receives from the site, the next ballot drops only the others. If
    /// that player is only slower to suspect the site, the next ballot fails, too, and this site must suspect the site
    /// again before that ballot is replaced.
    fn max_spared_silence(&self) -> TimeDelta {
        let next_ballot = (UNMUTE_TIME + self.max_player_rtt() * 4).min(BALLOT_TIMEOUT * 9 / 10);
        self.config.drop_timeout.map_or(TimeDelta::ZERO, |limit| (limit - next_ballot).max(TimeDelta::ZERO))
    }

    /// Lowers the end of a dropped site's inputs to `last`, but not below the end of the inputs received here. The
    /// inputs after that were lost with the sites that had them, and do not count.
    fn shorten_last_inputs(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let last = last.max(peer.inputs.end());
        if !peer.lacks_last_inputs() || peer.absent_from().is_some_and(|before| before <= last) {
            return;
        }
        let known = peer.known_end();
        peer.seat = Seat::Leaving(last);
        self.events.push(Event::Dropped { site: peer.site, frame: last });
        self.check_predictions(index, known);
    }

    /// Voids a dropped site's command, unless the decision keeps it because another site may have applied it. This
    /// comes before the end of the site's inputs is set: until then, frames from the void command's frame on are not
    /// confirmed and can be resimulated.
    fn void_commands_of_dropped(&mut self, decision: &MembershipDecision) {
        let voided =
            self.command.filter(|command| decision.drop.contains(command.issuer) && decision.command != Some(*command));
        let Some(command) = voided else { return };
        self.command = None;
        // This site may be the last for which the command that admitted it is not settled. That command counts if the
        // issuer's input for its frame does.
        let counts = command.frame < decision.input_ends[command.issuer.index()];
        if !(counts && self.is_own_join(&command)) {
            self.revert_command(command);
        }
    }

    /// Returns a frame after all frames for which the sites that are dropped now can have given inputs.
    fn next_free_seat_frame(&self) -> Frame {
        let max_lead = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        self.own_inputs.end() + 3 * max_lead + 16
    }

    /// Returns whether this site plays: it has started or joined, and the session is not over.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }
}

/// Returns the number of the site that leads a ballot.
fn ballot_leader(ballot: u32) -> u8 {
    (ballot % MAX_SITES as u32) as u8
}

fn difference(sites: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(sites.bits() & !others.bits())
}

/// Merges the votes of all survivors into the decision to drop the sites in `drop`: all inputs that any survivor has
/// count.
fn merge_votes<'a>(drop: SiteSet, votes: impl Iterator<Item = &'a Vote>) -> MembershipDecision {
    let mut decision = MembershipDecision::dropping(drop);
    for vote in votes {
        for (last, end) in decision.input_ends.iter_mut().zip(vote.input_ends) {
            *last = (*last).max(end);
        }
        decision.left_sites = decision.left_sites.union(vote.left_sites);
        decision.command = decision.command.or(vote.command);
    }
    decision
}
