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

use alloc::vec::Vec;

use super::peer::{Peer, TICK_SILENCE_LIMIT};
use super::peers::Peers;
use super::quorum::{Electorate, difference, intersection, is_quorum_of};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::message::{InputEnds, MembershipDecision, ScheduledCommand, Vote};
use crate::time::{Instant, TimeDelta};

/// Time after which a ballot without a decision is replaced. By then three sites have had their [`LEADER_TURN`] to lead
/// one.
const BALLOT_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_500);
/// Time after which it is the next site's turn to lead a ballot: the lowest site might not receive from all voters.
const LEADER_TURN: TimeDelta = TimeDelta::from_millis(500);
/// Silence after which this site consents to drop a site, if [`Config::drop_timeout`](super::Config::drop_timeout) is
/// not set.
pub(super) const CONSENT_SILENCE: TimeDelta = TimeDelta::from_millis(500);

/// Minimum time, besides two round trips, from a ballot that dropped no site until this site suspects a site for
/// silence again. Meanwhile packets of the unmuted sites can arrive. Their silence keeps counting (for spared sites
/// only up to `max_spared_silence`): otherwise a site with a longer drop timeout would never suspect them.
const UNMUTE_TIME: TimeDelta = TimeDelta::from_millis(500);
/// Minimum time without progress, besides two round trips, after which the missing last inputs of a dropped site count
/// as lost. Until then survivors may still relay them.
const LAST_INPUT_RELAY_TIME: TimeDelta = TimeDelta::from_secs(1);

/// This site's state of the membership protocol: the current epoch, its ballots, and the outcome of earlier epochs. The
/// members themselves follow from the peers' seats.
#[derive(Debug)]
pub(super) struct Membership {
    epoch: u32,
    /// This site's vote in the current epoch; `None` before it joins a ballot. A vote in ballot 0 only asks for the
    /// current epoch.
    own_vote: Option<Vote>,
    /// When the last epoch ended at this site; `None` if none has ended since this site started or was admitted.
    epoch_ended_at: Option<Instant>,
    /// When a command admitted this site; `None` if it plays from the start.
    admitted_at: Option<Instant>,
    /// When this site joined its newest ballot.
    ballot_joined_at: Option<Instant>,
    /// Since when there is a suspect or a vote; `None` while there is neither.
    suspected_since: Option<Instant>,
    /// Sites that this site, as the coordinator, wants to evict in the next ballot.
    to_evict: SiteSet,
    /// When an epoch last ended without a drop, so that this site accepts inputs of muted sites again.
    unmuted_at: Option<Instant>,
    /// Sites that some peer's vote in this epoch does not drop, although it drops others.
    spared_sites: SiteSet,
    /// Sites whose inputs this site accepts neither directly nor relayed until the epoch ends.
    muted: SiteSet,
    /// Sites whose leave this site has learned of in this epoch. They vote no more, but may have decided before.
    left_sites: SiteSet,
    /// The newest epoch that ended with a drop, and its decision; all later epochs ended without a drop. While no known
    /// epoch has ended with a drop, this is the first epoch whose end is known.
    last_decision: Option<(u32, MembershipDecision)>,
    /// By index of the peer.
    ballots: Vec<PeerBallot>,
}

/// What this site knows of one peer's part in the ballots.
#[derive(Clone, Copy, Debug, Default)]
struct PeerBallot {
    /// The peer's newest vote in the current epoch.
    vote: Option<Vote>,
    /// Whether the peer's last vote was for an earlier epoch, so that the peer needs the decision that ended it.
    has_old_epoch: bool,
    /// The peer may not know how the last epoch ended until it has acknowledged this site's input for this frame.
    uninformed_until: Option<Frame>,
    /// Frame of a void join command. The peer may believe that it plays from this frame on.
    void_join_frame: Option<Frame>,
}

/// What the ballots read of the other parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MembershipFacts {
    /// Session time of the last call.
    pub(super) now: Instant,
    pub(super) drop_timeout: Option<TimeDelta>,
    /// All sites of the session.
    pub(super) all_sites: SiteSet,
    /// The joiner of which some site may not know yet.
    pub(super) pending_joiner: Option<SiteId>,
    /// Whether all other sites were restarted and ask to join. Then no site can have decided otherwise and gone on.
    pub(super) is_last_player: bool,
    /// The frame that this site's machine steps next, if this site does not play yet.
    pub(super) download_end: Option<Frame>,
    /// The newest scheduled command.
    pub(super) command: Option<ScheduledCommand>,
    /// Whether the game has been stalled for 1 s, so that it does not go on by itself.
    pub(super) is_stuck: bool,
}

/// The progress of a ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BallotStep {
    /// Whether this site's vote has changed, so that the others need it.
    pub(super) has_new_vote: bool,
    /// The decision that ends the epoch.
    pub(super) decision: Option<MembershipDecision>,
}

/// The end of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedEpoch {
    /// Sites that this site, as the coordinator, wanted to evict.
    pub(super) to_evict: SiteSet,
    /// Sites that were to be dropped, but that some vote spared.
    pub(super) spared_sites: SiteSet,
}

impl Membership {
    /// Creates the membership of a site that plays from the start.
    pub(super) fn new(peer_count: usize) -> Self {
        Self {
            epoch: 0,
            own_vote: None,
            epoch_ended_at: None,
            admitted_at: None,
            ballot_joined_at: None,
            suspected_since: None,
            to_evict: SiteSet::EMPTY,
            unmuted_at: None,
            spared_sites: SiteSet::EMPTY,
            muted: SiteSet::EMPTY,
            left_sites: SiteSet::EMPTY,
            last_decision: None,
            ballots: alloc::vec![PeerBallot::default(); peer_count],
        }
    }

    /// Restarts the membership with the epoch of the command that admits this site. That epoch may have ended since,
    /// and the others do not know that this site lacks the new one, so a vote in ballot 0 asks for it. `is_member`
    /// tells which peers play.
    pub(super) fn on_own_admission(&mut self, now: Instant, epoch: u32, is_member: impl Fn(usize) -> bool) {
        let mut ballots = core::mem::take(&mut self.ballots);
        for (index, ballot) in ballots.iter_mut().enumerate() {
            let void_join_frame = ballot.void_join_frame.filter(|_| !is_member(index));
            *ballot = PeerBallot { void_join_frame, ..PeerBallot::default() };
        }
        *self = Self { admitted_at: Some(now), epoch, ballots, ..Self::new(0) };
        self.own_vote = Some(Vote {
            epoch,
            ballot: 0,
            drop: SiteSet::EMPTY,
            input_ends: [Frame::ZERO; MAX_SITES],
            left_sites: SiteSet::EMPTY,
            to_evict: SiteSet::EMPTY,
            command: None,
            accepted: None,
        });
    }

    /// Returns whether there is no suspect, no vote of this site and no site to evict.
    pub(super) fn is_idle(&self) -> bool {
        self.own_vote.is_none() && self.suspected_since.is_none() && self.to_evict.is_empty()
    }

    /// Returns whether a peer has not voted and knows how the last epoch ended.
    pub(super) fn is_peer_idle(&self, index: usize, peer: &Peer) -> bool {
        self.ballots[index].vote.is_none() && !self.needs_last_decision(index, peer)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Goes on to an epoch that the others report, because all epochs before it ended without a drop.
    pub(super) fn skip_to_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    pub(super) fn own_vote(&self) -> Option<&Vote> {
        self.own_vote.as_ref()
    }

    /// Returns when a command admitted this site; `None` if it plays from the start.
    pub(super) fn admitted_at(&self) -> Option<Instant> {
        self.admitted_at
    }

    /// Returns the sites whose inputs are not accepted until the epoch ends.
    #[inline]
    pub(super) fn muted(&self) -> SiteSet {
        self.muted
    }

    /// Returns the newest epoch that ended with a drop, its decision, and the number of later epochs.
    pub(super) fn last_decision(&self) -> Option<(u32, MembershipDecision, u32)> {
        let (epoch, decision) = self.last_decision?;
        Some((epoch, decision, self.epoch.saturating_sub(epoch.saturating_add(1))))
    }

    /// Returns whether a peer has to be informed how the last epoch ended.
    #[inline]
    pub(super) fn needs_last_decision(&self, index: usize, peer: &Peer) -> bool {
        let ballot = &self.ballots[index];
        ballot.has_old_epoch || ballot.uninformed_until.is_some_and(|first| peer.acked() <= first)
    }

    /// Proposes to evict these sites in the next ballot.
    pub(super) fn evict(&mut self, sites: SiteSet) {
        self.to_evict = self.to_evict.union(sites);
    }

    /// Notes that the command with which a peer was to play from `frame` on is void, or `None` if a peer takes its
    /// seat.
    pub(super) fn set_void_join(&mut self, index: usize, frame: Option<Frame>) {
        self.ballots[index].void_join_frame = frame;
    }

    /// Returns whether the last epoch ended longer ago than `time`, or none has ended at this site.
    pub(super) fn is_epoch_older_than(&self, now: Instant, time: TimeDelta) -> bool {
        self.epoch_ended_at.is_none_or(|ended| now - ended > time)
    }

    /// Returns whether some last inputs of a dropped site are missing here and may still be relayed.
    pub(super) fn awaits_last_inputs(&self, peers: &Peers, facts: &MembershipFacts) -> bool {
        peers.iter().any(|peer| peer.lacks_last_inputs() && !self.are_last_inputs_lost(peer, peers, facts))
    }

    /// Returns whether the last inputs of a dropped site that are missing here seem lost: the other sites had time to
    /// relay them since the last epoch ended and since the newest input of that site arrived.
    fn are_last_inputs_lost(&self, peer: &Peer, peers: &Peers, facts: &MembershipFacts) -> bool {
        let last_progress = self.epoch_ended_at.map_or(peer.last_input_at(), |ended| ended.max(peer.last_input_at()));
        let limit = facts.drop_timeout.unwrap_or(LAST_INPUT_RELAY_TIME).max(LAST_INPUT_RELAY_TIME);
        facts.now - last_progress > limit + peers.max_player_rtt() * 2
    }

    /// Handles a leave: the site votes no more in this epoch.
    pub(super) fn on_leave(&mut self, site: SiteId) {
        self.left_sites.insert(site);
    }

    /// Returns whether this site has accepted a decision that may be in force already. Such a site does not announce
    /// that it leaves until the epoch ends: a leaver is no voter any more, and without its vote the others could decide
    /// otherwise.
    pub(super) fn is_bound_by_vote(&self) -> bool {
        self.own_vote.is_some_and(|vote| vote.accepted.is_some())
    }

    /// Returns whether these sites can decide for all.
    fn is_quorum(sites: SiteSet, peers: &Peers, facts: &MembershipFacts) -> bool {
        facts.is_last_player || electorate(peers, facts).is_quorum(sites)
    }

    /// Returns the sites that this site would drop: sites silent for longer than the drop timeout, restarted sites, and
    /// sites to evict. If there are any, sites that were dropped before and whose last inputs this site still lacks are
    /// among the suspects, too; otherwise only if those inputs seem lost.
    fn suspects(&self, peers: &Peers, facts: &MembershipFacts) -> SiteSet {
        let gone = self.sites_to_drop(peers, facts);
        let is_incomplete = |peer: &Peer| {
            peer.lacks_last_inputs() && (!gone.is_empty() || self.are_last_inputs_lost(peer, peers, facts))
        };
        gone.union(peers.sites_where(is_incomplete))
    }

    fn sites_to_drop(&self, peers: &Peers, facts: &MembershipFacts) -> SiteSet {
        let is_evicting = !self.to_evict.is_empty() && peers.is_coordinator();
        let to_evict = if is_evicting { self.to_evict } else { SiteSet::EMPTY };
        let limit = facts.drop_timeout.filter(|_| self.has_unmuted_long_enough(peers, facts));
        let is_silent = |peer: &Peer| limit.is_some_and(|limit| peer.silence(facts.now) > limit);
        peers.sites_where(|peer| {
            peer.is_awaited() && (is_silent(peer) || peer.was_restarted() || to_evict.contains(peer.site()))
        })
    }

    /// Returns whether packets of sites that were muted had time to arrive again since the last ballot that dropped no
    /// site.
    fn has_unmuted_long_enough(&self, peers: &Peers, facts: &MembershipFacts) -> bool {
        self.unmuted_at.is_none_or(|since| facts.now - since > UNMUTE_TIME + peers.max_player_rtt() * 2)
    }

    /// Withdraws the vote in ballot 0 once the current epoch is certain.
    pub(super) fn stop_epoch_request(&mut self) {
        if self.own_vote.is_some_and(|vote| vote.ballot == 0) {
            self.own_vote = None;
        }
    }

    /// Returns whether this site's vote asks for the current epoch.
    pub(super) fn is_requesting_epoch(&self) -> bool {
        self.own_vote.is_some_and(|vote| vote.ballot == 0)
    }

    /// Abandons a ballot that cannot have a decision: this site has muted all other voters, because the other survivors
    /// have left, and this site alone is no quorum. Otherwise this site would keep them muted, even when they announce
    /// that they leave.
    pub(super) fn abandon_hopeless_ballot(&mut self, peers: &Peers, facts: &MembershipFacts) {
        let is_undecided = self.own_vote.is_some_and(|vote| vote.ballot > 0 && vote.accepted.is_none());
        let only_us = SiteSet::from_iter([peers.own_site()]);
        if is_undecided && difference(peers.voters(), self.muted) == only_us && !Self::is_quorum(only_us, peers, facts)
        {
            (self.own_vote, self.ballot_joined_at, self.suspected_since) = (None, None, None);
            self.muted = SiteSet::EMPTY;
        }
    }

    /// Leads a ballot if there is a suspect or a vote and it is this site's turn. Returns whether it begins one.
    pub(super) fn lead_ballot_if_due(&mut self, peers: &mut Peers, facts: &MembershipFacts) -> bool {
        let (now, own_site) = (facts.now, peers.own_site());
        let suspects = self.suspects(peers, facts);
        // A participant of a ballot mutes the suspects until the epoch ends. If they are back, the epoch ends without a
        // drop.
        if suspects.is_empty() && self.votes(peers).next().is_none() {
            self.suspected_since = None;
            return false;
        }
        let remaining = difference(peers.voters(), suspects);
        let since = *self.suspected_since.get_or_insert(now);
        let Some(own_turn) = remaining.iter().position(|site| site == own_site) else { return false };
        // A site that may already be dropped lets the others lead the next ballot, too, because they can confirm the
        // decision and it cannot.
        let may_be_dropped = self.may_be_dropped(suspects, peers);
        let timeout = if may_be_dropped { BALLOT_TIMEOUT * 2 } else { BALLOT_TIMEOUT };
        let is_stale = self.ballot_joined_at.is_none_or(|joined| now - joined > timeout);
        let ballot = self.own_vote.filter(|vote| vote.ballot > 0);
        let leading = ballot.filter(|vote| ballot_leader(vote.ballot) == own_site.number());
        let is_under_way = match leading {
            Some(vote) => (vote.drop == suspects || vote.drop.is_empty()) && !is_stale,
            None => now - since < LEADER_TURN * own_turn as i64 || ballot.is_some() && !is_stale,
        };
        let must_wait = now - since < BALLOT_TIMEOUT * 2 && may_be_dropped;
        if is_under_way || must_wait || !Self::is_quorum(remaining, peers, facts) {
            return false;
        }
        // If another site still receives from the suspects, no site is dropped. But this site unmutes them only when
        // the epoch has ended.
        let is_refused = leading.is_some_and(|vote| is_stale && vote.drop == suspects && vote.accepted.is_none());
        if is_refused && self.another_may_drop_fewer(suspects, peers, now) {
            return false;
        }
        let drop = if is_refused { SiteSet::EMPTY } else { suspects };
        self.ballot_joined_at = Some(now);
        self.join_ballot(self.next_round() | u32::from(own_site.number()), drop, peers, facts);
        true
    }

    /// Returns the first ballot of the round after the newest known one.
    fn next_round(&self) -> u32 {
        let votes = self.ballots.iter().filter_map(|ballot| ballot.vote).chain(self.own_vote);
        let round = votes.map(|vote| vote.ballot / MAX_SITES as u32).max();
        round.unwrap_or(0).saturating_add(1).saturating_mul(MAX_SITES as u32)
    }

    /// Returns whether another voter would drop only some of the sites that this site suspects, and still has time to
    /// lead a ballot about them. If this site does not receive from a player that the others receive from, it cannot
    /// collect that player's vote, but another site can.
    fn another_may_drop_fewer(&self, suspects: SiteSet, peers: &Peers, now: Instant) -> bool {
        let fewer = |drop: SiteSet| !drop.is_empty() && drop != suspects && suspects.contains_all(drop);
        let in_time = self.ballot_joined_at.is_some_and(|joined| now - joined <= BALLOT_TIMEOUT * 2);
        let others = |site: SiteId| site != peers.own_site() && !suspects.contains(site);
        in_time && self.votes(peers).any(|(site, vote)| others(site) && fewer(vote.drop))
    }

    /// Returns whether a reachable site has accepted a decision to drop this site, which may be in force already.
    /// Another site should find that out: this site could only propose the same, and believes it only when all others
    /// have accepted it.
    fn may_be_dropped(&self, suspects: SiteSet, peers: &Peers) -> bool {
        let without_us =
            |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop.contains(peers.own_site()));
        self.votes(peers).any(|(site, vote)| !suspects.contains(site) && without_us(vote))
    }

    /// Joins a ballot: mutes the sites in `drop`, and votes with the ends of their received inputs.
    #[cold]
    fn join_ballot(&mut self, ballot: u32, drop: SiteSet, peers: &mut Peers, facts: &MembershipFacts) {
        self.muted = self.muted.union(drop);
        let mut ends: InputEnds = [Frame::ZERO; MAX_SITES];
        for peer in peers.iter_mut().filter(|peer| drop.contains(peer.site())) {
            // A joiner lacks the peer's inputs between its machine's frame and the join frame. Without them, those from
            // the join frame on are of no use to others.
            let gap = facts.download_end.filter(|end| *end < peer.inputs().start());
            if gap.is_some() {
                peer.withhold_inputs();
            }
            ends[peer.site().index()] = gap.unwrap_or(peer.inputs().end());
        }
        let left_sites = peers.sites_where(|peer| drop.contains(peer.site()) && peer.has_left());
        let is_in_force =
            |command: &ScheduledCommand| drop.contains(command.issuer) && command.frame < ends[command.issuer.index()];
        let command = facts.command.filter(is_in_force);
        let accepted = self.own_vote.and_then(|vote| vote.accepted);
        self.own_vote = Some(Vote {
            epoch: self.epoch,
            ballot,
            drop,
            input_ends: ends,
            left_sites,
            to_evict: intersection(self.to_evict, drop),
            command,
            accepted,
        });
    }

    /// Handles a peer's vote. If it is for the current epoch: records it, joins the ballot that the peer leads if this
    /// site consents, and accepts the decision that the peer proposes as leader if that is admissible. A vote for an
    /// earlier epoch shows that the peer needs the decision that ended it. Returns whether the votes have to be
    /// counted, and whether this site's vote has changed.
    pub(super) fn on_vote(
        &mut self,
        index: usize,
        vote: Vote,
        peers: &mut Peers,
        is_leaving: bool,
        facts: &MembershipFacts,
    ) -> Option<bool> {
        let is_bound = self.is_bound_by_vote();
        if !peers[index].is_playing() {
            return None;
        }
        let ballot = &mut self.ballots[index];
        ballot.has_old_epoch = vote.epoch < self.epoch;
        if vote.epoch != self.epoch || vote.ballot == 0 || is_leaving && !is_bound {
            return None;
        }
        if !vote.drop.is_empty() {
            self.spared_sites = self.spared_sites.union(difference(facts.all_sites, vote.drop));
        }
        let progress = |vote: &Vote| (vote.ballot, vote.accepted.map(|(ballot, _)| ballot));
        if ballot.vote.is_none_or(|known| progress(&known) <= progress(&vote)) {
            ballot.vote = Some(vote);
        }
        let leads = |ballot: u32| ballot_leader(ballot) == peers[index].site().number();
        let promised = self.own_vote.map_or(0, |vote| vote.ballot);
        let joins = leads(vote.ballot) && vote.ballot > promised && self.consents(&vote, peers, facts);
        let proposal = vote.accepted.filter(|(ballot, _)| leads(*ballot) && *ballot == vote.ballot);
        if joins {
            self.ballot_joined_at = Some(facts.now);
            self.join_ballot(vote.ballot, vote.drop, peers, facts);
        }
        let accepts = proposal.is_some_and(|(ballot, decision)| self.accept(ballot, decision, peers, facts));
        Some(joins || accepts)
    }

    /// Returns whether this site agrees to drop the sites that a leader's vote proposes, and is not one of them.
    fn consents(&self, vote: &Vote, peers: &Peers, facts: &MembershipFacts) -> bool {
        let lowest = peers.voters().iter().next().map(SiteId::number);
        let authority = if lowest == Some(ballot_leader(vote.ballot)) { vote.to_evict } else { SiteSet::EMPTY };
        let is_needed = |peer: &Peer| {
            let is_received = peer.silence(facts.now) < consent_timeout(facts) && !authority.contains(peer.site());
            peer.is_awaited() && is_received && !peer.was_restarted()
        };
        let drop = vote.drop;
        !drop.contains(peers.own_site()) && !peers.iter().any(|peer| drop.contains(peer.site()) && is_needed(peer))
    }

    /// Returns whether a decision can have been made without a lie. Before a site is dropped, all remaining sites join
    /// a ballot to drop it, so no site is dropped that this site has not muted. A decision that drops this site itself
    /// must have been accepted by all reachable sites.
    fn is_admissible(&self, decision: &MembershipDecision, peers: &Peers, facts: &MembershipFacts) -> bool {
        match decision.drop.contains(peers.own_site()) {
            // This site's received inputs of the others do not count any more.
            true => self.all_reachable_accept(decision, peers, facts),
            false => self.muted.contains_all(decision.drop) && is_consistent(decision, peers, facts),
        }
    }

    /// Returns whether the others can have made this decision without this site, and each player from which packets
    /// still arrive has accepted it. Sites that would be dropped together with this site wait for each other's votes,
    /// so theirs are not needed if the remaining sites are a quorum and two of those that still send have accepted.
    fn all_reachable_accept(&self, decision: &MembershipDecision, peers: &Peers, facts: &MembershipFacts) -> bool {
        let voters = peers.voters();
        let accepts = |index: usize| {
            self.ballots[index].vote.and_then(|vote| vote.accepted).is_some_and(|(_, accepted)| accepted == *decision)
        };
        let is_silent = |peer: &Peer| facts.now - peer.last_received_at() >= TICK_SILENCE_LIMIT;
        let others = || peers.iter().enumerate().filter(|(_, peer)| peer.is_playing());
        let is_dropped = |peer: &Peer| decision.drop.contains(peer.site());
        let confirming =
            others().filter(|(index, peer)| !is_dropped(peer) && accepts(*index) && !is_silent(peer)).count();
        let is_confirmed = is_quorum_of(voters, difference(voters, decision.drop)) && confirming >= 2;
        is_quorum_of(voters, difference(voters, SiteSet::from_iter([peers.own_site()])))
            && others().all(|(index, peer)| accepts(index) || is_silent(peer) || is_confirmed && is_dropped(peer))
    }

    /// Accepts the decision of a ballot that this site has joined if the decision is admissible, even if it drops this
    /// site. Returns whether it is newly accepted.
    fn accept(&mut self, ballot: u32, decision: MembershipDecision, peers: &Peers, facts: &MembershipFacts) -> bool {
        if !self.is_admissible(&decision, peers, facts) {
            return false;
        }
        let Some(own_vote) = self.own_vote.as_mut().filter(|own_vote| own_vote.ballot == ballot) else { return false };
        let is_new = own_vote.accepted.is_none_or(|(accepted, _)| accepted < ballot);
        if is_new {
            own_vote.accepted = Some((ballot, decision));
        }
        is_new
    }

    /// As leader, proposes the decision of the ballot once enough sites take part. Returns a decision that a quorum has
    /// accepted.
    pub(super) fn try_decide(&mut self, peers: &Peers, facts: &MembershipFacts) -> BallotStep {
        let Some(own_vote) = self.own_vote.filter(|vote| vote.ballot > 0) else { return BallotStep::default() };
        let is_leading = ballot_leader(own_vote.ballot) == peers.own_site().number()
            && own_vote.accepted.is_none_or(|(ballot, _)| ballot < own_vote.ballot);
        let proposal = if is_leading { self.proposal(&own_vote, peers, facts) } else { None };
        // If an earlier decision is a lie, the ballot has no result: to ignore a decision that is in force would be
        // worse.
        let has_new_vote = proposal.is_some_and(|decision| self.accept(own_vote.ballot, decision, peers, facts));
        BallotStep { has_new_vote, decision: self.decision_of_quorum(peers, facts) }
    }

    /// Returns the decision that this site can propose as leader: one that was accepted in an earlier ballot if that
    /// may be in force, else the merged votes. Enough sites must take part: all survivors, or a quorum for a ballot
    /// that drops no site (all survivors in its first 0.5 s if an earlier decision may be in force).
    fn proposal(&self, own_vote: &Vote, peers: &Peers, facts: &MembershipFacts) -> Option<MembershipDecision> {
        let survivors = difference(peers.voters(), own_vote.drop);
        let takes_part = |vote: &Vote| vote.ballot == own_vote.ballot && vote.epoch == own_vote.epoch;
        let votes = || self.votes(peers).filter(|(_, vote)| takes_part(vote));
        let present: SiteSet = votes().map(|(site, _)| site).collect();
        // No decision can be in force if a quorum has accepted none: any quorum that might have accepted one intersects
        // it, unless it contained a site that has left since.
        let unbound: SiteSet = votes().filter(|(_, vote)| vote.accepted.is_none()).map(|(site, _)| site).collect();
        let electorate = electorate(peers, facts);
        let is_quorum_unbound =
            electorate.is_quorum(unbound) && !electorate.can_have_decided_with_leavers(unbound, self.left_sites);
        let is_free = is_quorum_unbound || votes().all(|(_, vote)| vote.accepted.is_none());
        let may_become_free = !is_free && self.ballot_joined_at.is_some_and(|joined| facts.now - joined < LEADER_TURN);
        // To drop no site, the leader need not know the survivors' input ends.
        let is_sufficient = match own_vote.drop {
            SiteSet::EMPTY if !may_become_free => Self::is_quorum(present, peers, facts),
            _ => present.contains_all(survivors),
        };
        let accepted = votes().filter_map(|(_, vote)| vote.accepted).filter(|_| !is_free);
        let earlier = accepted.max_by_key(|(ballot, _)| *ballot).map(|(_, decision)| decision);
        is_sufficient.then(|| earlier.unwrap_or_else(|| merge_votes(own_vote.drop, votes().map(|(_, vote)| vote))))
    }

    /// Returns the decision that this site has accepted, if a quorum has accepted it.
    fn decision_of_quorum(&self, peers: &Peers, facts: &MembershipFacts) -> Option<MembershipDecision> {
        let (ballot, decision) = self.own_vote.and_then(|vote| vote.accepted)?;
        let accepted = |vote: &Vote| vote.accepted == Some((ballot, decision));
        let agreeing = self.votes(peers).filter(|(_, vote)| accepted(vote)).map(|(site, _)| site).collect();
        Self::is_quorum(agreeing, peers, facts).then_some(decision)
    }

    /// Returns the sites whose votes are for dropping the sites in `sites`: they accepted a decision to drop exactly
    /// these, or joined a ballot to drop at least these.
    pub(super) fn votes_against(&self, sites: SiteSet, peers: &Peers) -> SiteSet {
        let accepted = |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop == sites);
        let would_drop = |vote: &Vote| !sites.is_empty() && vote.drop.contains_all(sites);
        self.votes(peers).filter(|(_, vote)| accepted(vote) || would_drop(vote)).map(|(site, _)| site).collect()
    }

    /// Returns all votes in ballots of this epoch, including this site's own.
    fn votes<'a>(&'a self, peers: &'a Peers) -> impl Iterator<Item = (SiteId, &'a Vote)> {
        let playing = peers.iter().zip(&self.ballots).filter(|(peer, _)| peer.is_playing());
        let of_peers = playing.filter_map(|(peer, ballot)| ballot.vote.as_ref().map(|vote| (peer.site(), vote)));
        let own_vote = self.own_vote.as_ref().map(|vote| (peers.own_site(), vote));
        of_peers.chain(own_vote).filter(|(_, vote)| vote.epoch == self.epoch && vote.ballot > 0)
    }

    /// Ends the epoch with a decision, and unmutes all sites. `own_end` is the end of this site's inputs: a peer that
    /// has acknowledged it knows of the decision.
    pub(super) fn end_epoch(
        &mut self,
        decision: &MembershipDecision,
        own_end: Frame,
        now: Instant,
        peers: &Peers,
    ) -> EndedEpoch {
        let drops_none = decision.drop.is_empty();
        for (ballot, peer) in self.ballots.iter_mut().zip(peers.iter()) {
            (ballot.vote, ballot.has_old_epoch) = (None, false);
            // A site that plays from a later frame on assumes the old epoch, and learns of the new one with this site's
            // input for that frame. The same holds for a site that was not asked, and for one whose admission is void.
            ballot.uninformed_until = peer.join_frame().or(ballot.void_join_frame).or(drops_none.then_some(own_end));
        }
        if !drops_none || self.last_decision.is_none() {
            self.last_decision = Some((self.epoch, *decision));
        }
        self.epoch = self.epoch.saturating_add(1);
        (self.own_vote, self.ballot_joined_at, self.suspected_since) = (None, None, None);
        self.epoch_ended_at = Some(now);
        if drops_none {
            self.unmuted_at = Some(now);
        }
        (self.muted, self.left_sites) = (SiteSet::EMPTY, SiteSet::EMPTY);
        EndedEpoch {
            to_evict: core::mem::take(&mut self.to_evict),
            spared_sites: core::mem::take(&mut self.spared_sites),
        }
    }
}

/// Returns the sites that can vote.
fn electorate(peers: &Peers, facts: &MembershipFacts) -> Electorate {
    Electorate { voters: peers.voters(), pending_joiner: facts.pending_joiner }
}

/// Returns whether a decision is consistent with this site's knowledge. All remaining sites report the end of the
/// dropped sites' inputs and mute them, so the inputs received here count; except at a joiner, which may not have been
/// asked. And only commands of dropped sites are settled by the decision.
pub(super) fn is_consistent(decision: &MembershipDecision, peers: &Peers, facts: &MembershipFacts) -> bool {
    let was_asked = facts.pending_joiner != Some(peers.own_site());
    let loses_inputs = |peer: &Peer| {
        let is_shorter = peer.inputs().end() > decision.input_ends[peer.site().index()];
        was_asked && decision.drop.contains(peer.site()) && !peer.is_withheld() && is_shorter
    };
    !peers.iter().any(loses_inputs) && decision.command.is_none_or(|command| decision.drop.contains(command.issuer))
}

/// Returns the silence after which this site consents to another site's proposal to drop a site.
pub(super) fn consent_timeout(facts: &MembershipFacts) -> TimeDelta {
    facts.drop_timeout.map_or(CONSENT_SILENCE, |limit| limit / 2)
}

/// Returns the longest silence that still counts, after a ballot that dropped no site, for a site that another player's
/// vote did not drop. If that player receives from the site, the next ballot drops only the others. If that player is
/// only slower to suspect the site, the next ballot fails, too, and this site must suspect the site again before that
/// ballot is replaced.
pub(super) fn max_spared_silence(drop_timeout: Option<TimeDelta>, peers: &Peers) -> TimeDelta {
    let next_ballot = (UNMUTE_TIME + peers.max_player_rtt() * 4).min(BALLOT_TIMEOUT * 9 / 10);
    drop_timeout.map_or(TimeDelta::ZERO, |limit| (limit - next_ballot).max(TimeDelta::ZERO))
}

/// Returns the number of the site that leads a ballot.
fn ballot_leader(ballot: u32) -> u8 {
    (ballot % MAX_SITES as u32) as u8
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

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::input::Stream;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn sites(numbers: &[u8]) -> SiteSet {
        numbers.iter().filter_map(|number| SiteId::new(*number)).collect()
    }

    fn facts(now: Instant) -> MembershipFacts {
        MembershipFacts {
            now,
            drop_timeout: Some(TimeDelta::from_secs(1)),
            all_sites: SiteSet::first(8),
            pending_joiner: None,
            is_last_player: false,
            download_end: None,
            command: None,
            is_stuck: false,
        }
    }

    /// One site's membership and table of peers.
    struct Site {
        membership: Membership,
        peers: Peers,
    }

    impl Site {
        /// Site `own` of 3, which has all inputs before frame `received` of site 2 and receives from no site but
        /// `other`.
        fn new(own: u8, other: u8, received: u32, now: Instant) -> Self {
            let mut peers = table(own, 3);
            let mut inputs = Stream::new(1, Frame::ZERO);
            (0..received).for_each(|_| inputs.push(&[1]));
            let index = |number: u8| SiteId::new(number).unwrap();
            let third = peers.index_of(index(2)).unwrap();
            peers[third].give_inputs(&inputs, Frame::new(received));
            let other = peers.index_of(index(other)).unwrap();
            peers[other].on_received(now, 1);
            Self { membership: Membership::new(2), peers }
        }

        /// Returns whether this site's vote has changed, and the decision.
        fn receive(&mut self, from: &Self, now: Instant) -> BallotStep {
            let index = self.peers.index_of(from.peers.own_site()).unwrap();
            let vote = *from.membership.own_vote().unwrap();
            let is_new = self.membership.on_vote(index, vote, &mut self.peers, false, &facts(now));
            let step = self.membership.try_decide(&self.peers, &facts(now));
            BallotStep { has_new_vote: step.has_new_vote || is_new == Some(true), ..step }
        }
    }

    #[test]
    fn two_sites_drop_the_third_with_the_furthest_end_of_its_inputs() {
        let now = at(2_000);
        let (mut zero, mut one) = (Site::new(0, 1, 7, now), Site::new(1, 0, 9, now));
        assert!(zero.membership.lead_ballot_if_due(&mut zero.peers, &facts(now)));
        assert_eq!(zero.membership.muted(), sites(&[2]));
        assert_eq!(zero.membership.try_decide(&zero.peers, &facts(now)).decision, None, "site 1 has not voted");
        assert!(one.receive(&zero, now).has_new_vote);
        let proposed = zero.receive(&one, now);
        assert!(proposed.has_new_vote && proposed.decision.is_none(), "one of two accepted");
        let decision = one.receive(&zero, now).decision.unwrap();
        assert_eq!((decision.drop, decision.input_ends[2]), (sites(&[2]), Frame::new(9)));
        assert_eq!(zero.receive(&one, now).decision, Some(decision));
        zero.membership.end_epoch(&decision, Frame::new(12), now, &zero.peers);
        assert_eq!((zero.membership.epoch(), zero.membership.muted()), (1, SiteSet::EMPTY));
        assert_eq!(zero.membership.last_decision(), Some((0, decision, 0)));
    }

    #[test]
    fn site_that_still_receives_from_the_suspect_does_not_consent() {
        let now = at(2_000);
        let (mut zero, mut one) = (Site::new(0, 1, 7, now), Site::new(1, 0, 9, now));
        one.peers[1].on_received(now, 1);
        assert!(zero.membership.lead_ballot_if_due(&mut zero.peers, &facts(now)));
        assert!(!one.receive(&zero, now).has_new_vote);
        assert_eq!(one.membership.muted(), SiteSet::EMPTY);
        assert!(!zero.membership.lead_ballot_if_due(&mut zero.peers, &facts(at(3_400))), "the ballot may succeed");
        zero.peers[0].on_received(at(3_600), 1);
        assert!(zero.membership.lead_ballot_if_due(&mut zero.peers, &facts(at(3_600))));
        assert_eq!(zero.membership.own_vote().unwrap().drop, SiteSet::EMPTY, "the next ballot drops no site");
    }

    #[test]
    fn lowest_remaining_site_leads_first() {
        let now = at(2_000);
        let mut one = Site::new(1, 0, 0, now);
        assert!(!one.membership.lead_ballot_if_due(&mut one.peers, &facts(now)));
        one.peers[0].on_received(at(2_499), 1);
        assert!(!one.membership.lead_ballot_if_due(&mut one.peers, &facts(at(2_499))));
        assert!(one.membership.lead_ballot_if_due(&mut one.peers, &facts(at(2_500))), "after 0.5 s it is its turn");
    }

    #[test]
    fn minority_leads_no_ballot() {
        let now = at(2_000);
        let mut two = Site { membership: Membership::new(2), peers: table(2, 3) };
        assert!(!two.membership.lead_ballot_if_due(&mut two.peers, &facts(now)), "both others are silent");
        let alone = MembershipFacts { is_last_player: true, ..facts(now) };
        assert!(two.membership.lead_ballot_if_due(&mut two.peers, &alone), "both others were restarted");
    }

    #[test]
    fn evicted_site_needs_the_authority_of_the_coordinator() {
        let now = at(100);
        let (mut zero, one) = (Site::new(0, 1, 7, now), Site::new(1, 0, 7, now));
        zero.membership.evict(sites(&[2]));
        assert!(zero.membership.lead_ballot_if_due(&mut zero.peers, &facts(now)));
        let vote = *zero.membership.own_vote().unwrap();
        let without_authority = Vote { to_evict: SiteSet::EMPTY, ..vote };
        assert!(!one.membership.consents(&without_authority, &one.peers, &facts(now)));
        assert!(one.membership.consents(&vote, &one.peers, &facts(now)));
    }

    #[test]
    fn admitted_site_asks_for_the_epoch() {
        let mut membership = Membership::new(2);
        membership.on_own_admission(at(5), 7, |_| true);
        assert!(membership.is_requesting_epoch());
        assert_eq!((membership.epoch(), membership.admitted_at()), (7, Some(at(5))));
        membership.stop_epoch_request();
        assert!(membership.is_idle());
    }
}
