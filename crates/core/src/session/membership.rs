//! Who plays: dropping a site that is gone, so that the others can go on.
//!
//! The sites that play form a *view*. Nobody steps past its window without the inputs of everyone in it, so leaving somebody out
//! must be decided by all who stay, and in the same way: which sites, and with which frame the inputs of each of them end. That
//! frame is the furthest that any survivor has, because somebody may have stepped it already.
//!
//! A decision is made as in Lamport's *Paxos Made Simple*, one instance per view; the messages ride in normal ticks, and are
//! repeated until they are of no use any more:
//!
//! 1. The lowest site that is alive leads a *ballot*: it proposes whom to drop. If nothing comes of that, the next one does.
//! 2. Whoever takes part stops listening to those for the rest of the view, and says how far it has their inputs.
//! 3. When all survivors have said so, the leader names the outcome: one that was accepted in an earlier ballot if there is one, or
//!    else the furthest frames. If some will not, because they hear those who would be dropped, it is that nobody is, for which a
//!    quorum is enough.
//! 4. Whoever sees that a quorum has accepted an outcome carries it out. Who missed it is told by the others.
//!
//! Whom the coordinator will not wait for any longer, although it can be heard, is dropped in the same way; the others need not miss it
//! themselves, because the coordinator says so.
//!
//! A quorum is more than half of the view, or half of it with its lowest site; any two have a site in common. So the leader may die
//! at any point, another goes on, and of a network in two parts at most one decides. Nobody who cannot decide goes on, but for the
//! last one of all whose program was not started anew, when the others come back; and where a person decides to go on
//! [alone](super::split_brain).
//!
//! A site that leaves of its own accord says with which frame its inputs end, and needs no vote; it does not count any more. If it
//! dies before all of them are here, they end earlier, and that needs a vote. Whom it has dropped it does not tell that it leaves: to
//! them it must go on counting.

use super::digest_history::DigestHistory;
use super::event::{Event, SessionEnd};
use super::membership_reports::TICK_SILENCE_LIMIT;
use super::peer::{Peer, Seat};
use super::settings::AbsentInput;
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::{InputEnds, MembershipDecision, Vote};

/// A ballot without an outcome is replaced after this time. Until then three sites have had their [`LEADER_TURN`] to lead one.
const BALLOT_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_500);
/// Where nothing comes of it although there is somebody to be dropped, the next site leads so much later: the lowest may not hear all who
/// must be asked.
const LEADER_TURN: TimeDelta = TimeDelta::from_millis(500);
/// Without another wish, who is silent for so long may be dropped if somebody else asks for it.
const CONSENT_SILENCE: TimeDelta = TimeDelta::from_millis(500);

/// After a ballot that dropped nobody, the least time in which those whom others hear are heard again, beside two round trips. The
/// silence itself goes on counting: otherwise a site that waits longer than this one would never come to miss anybody.
const UNMUTE_TIME: TimeDelta = TimeDelta::from_millis(500);
/// Nobody's round trip is waited for longer than this: a peer chooses how long its own is.
const MAX_WAITED_RTT: TimeDelta = TimeDelta::from_secs(1);

/// The least time in which survivors pass on the last inputs of a dropped site, beside two round trips.
const LAST_INPUT_RELAY_TIME: TimeDelta = TimeDelta::from_secs(1);

/// The view, and a change of it that is under way.
#[derive(Debug, Default)]
pub(super) struct Membership {
    pub(super) epoch: u32,
    /// Where we stand in a change.
    pub(super) own_vote: Option<Vote>,
    /// When the last view ended.
    epoch_ended_at: Option<Instant>,
    /// When an order let this site in.
    pub(super) admitted_at: Option<Instant>,
    /// When we began to take part in our newest ballot.
    ballot_joined_at: Option<Instant>,
    /// Since when there is somebody to be dropped, or a ballot about it.
    suspected_since: Option<Instant>,
    /// Those that we will not wait for, if that is on us.
    pub(super) to_evict: SiteSet,
    /// When a view last ended without dropping anybody, so that this site listens again to those it was deaf to.
    unmuted_at: Option<Instant>,
    /// Those whom another player would keep who votes to drop somebody: it hears them.
    spared_sites: SiteSet,
    /// Until when those who are late are waited for, because going on without one came to nothing.
    pub(super) eviction_retry_at: Option<Instant>,
    /// Whose inputs we take from nobody until the view has changed.
    pub(super) muted: SiteSet,
    /// How the last view ended that somebody was dropped with; all after it ended without dropping anybody. Without such a view, the
    /// first whose end we know.
    pub(super) last_decision: Option<(u32, MembershipDecision)>,
}

impl Membership {
    /// The first view of a site that an order lets in.
    pub(super) fn admitted(now: Instant) -> Self {
        Self { admitted_at: Some(now), ..Self::default() }
    }

    /// Whether nobody is to be dropped and no ballot is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.own_vote.is_none() && self.suspected_since.is_none() && self.to_evict.is_empty()
    }
}

impl Session {
    /// The sites that play, ourselves included.
    pub(super) fn voters(&self) -> SiteSet {
        let peers = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.site);
        peers.chain([self.config.site]).collect()
    }

    /// Whether these sites can decide for all. Where everybody else was started anew and wants to come back, nobody can have decided
    /// otherwise and go on.
    fn is_quorum(&self, sites: SiteSet) -> bool {
        if self.peers.iter().all(|peer| peer.was_restarted() && peer.lobby.join_readiness.is_some()) {
            return true;
        }
        self.is_quorum_of_voters(sites)
    }

    /// Whether some of the voters can decide for all of them. While not everybody knows of a newcomer, both with and without it must be
    /// decided alike.
    fn is_quorum_of_voters(&self, sites: SiteSet) -> bool {
        let voters = self.voters();
        is_quorum_of(voters, sites) && is_quorum_of(self.without_pending_joiner(voters), sites)
    }

    /// These sites, but for one that not everybody may know of yet.
    pub(super) fn without_pending_joiner(&self, mut sites: SiteSet) -> SiteSet {
        self.pending_joiner().inspect(|newcomer| sites.remove(*newcomer));
        sites
    }

    /// Everything before this frame is certain, and stays so even if the others go on without us: among those who could decide that
    /// is one who has our inputs for it.
    pub(super) fn irrevocable_end(&self) -> Frame {
        let (mut settled, open) = (self.confirmed_end(), self.feed_end.max(self.own_inputs.start()));
        let mut without_ours = self.voters();
        without_ours.remove(self.config.site);
        while self.is_quorum_of_voters(without_ours) {
            let has_come = |peer: &Peer| peer.inputs.start() <= open && !peer.has_advance_inputs;
            let old = |peer: &&Peer| without_ours.contains(peer.site) && has_come(peer);
            let others = self.peers.iter().filter(old).map(|peer| (peer.sender.acked(), peer.site));
            // Those who have just come know of the past what they are told.
            let Some((acked, site)) = others.max() else { break };
            settled = settled.min(acked);
            without_ours.remove(site);
        }
        settled
    }

    /// The sites that we would drop: silent for longer than we wait, started anew and so not the ones that played, or unwanted; and sites
    /// that were dropped before, if nobody may be left who has their last inputs.
    fn suspects(&self, now: Instant) -> SiteSet {
        let gone = self.sites_to_drop(now);
        let incomplete =
            |peer: &&Peer| peer.lacks_last_inputs() && (!gone.is_empty() || self.are_last_inputs_lost(now, peer));
        let lost: SiteSet = self.peers.iter().filter(incomplete).map(|peer| peer.site).collect();
        gone.union(lost)
    }

    /// Whether the last view ended longer ago than this.
    pub(super) fn is_epoch_older_than(&self, now: Instant, time: TimeDelta) -> bool {
        self.membership.epoch_ended_at.is_none_or(|ended| now - ended > time)
    }

    /// Whether nobody seems to have the last inputs of a dropped site: the others had time to pass them on.
    pub(super) fn are_last_inputs_lost(&self, now: Instant, peer: &Peer) -> bool {
        let since = self.membership.epoch_ended_at.map_or(peer.last_input_at, |ended| ended.max(peer.last_input_at));
        now - since
            > self.config.drop_timeout.unwrap_or(LAST_INPUT_RELAY_TIME).max(LAST_INPUT_RELAY_TIME)
                + self.max_player_rtt() * 2
    }

    /// The longest round trip to any other site.
    pub(super) fn max_rtt(&self) -> TimeDelta {
        self.peers.iter().filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default()
    }

    /// The longest round trip to any player that is waited for when a view changes.
    pub(super) fn max_player_rtt(&self) -> TimeDelta {
        let players = self.peers.iter().filter(|peer| peer.is_playing());
        players.filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default().min(MAX_WAITED_RTT)
    }

    /// Whether those whom this site was deaf to had time to be heard again.
    fn has_unmuted_long_enough(&self, now: Instant) -> bool {
        self.membership.unmuted_at.is_none_or(|since| now - since > UNMUTE_TIME + self.max_player_rtt() * 2)
    }

    fn sites_to_drop(&self, now: Instant) -> SiteSet {
        let unwanted = match self.membership.to_evict {
            SiteSet::EMPTY => SiteSet::EMPTY,
            unwanted if self.is_coordinator() => unwanted,
            _ => SiteSet::EMPTY,
        };
        let limit = self.config.drop_timeout.filter(|_| self.has_unmuted_long_enough(now));
        let silent = |peer: &&Peer| limit.is_some_and(|limit| peer.silence(now) > limit);
        let gone =
            |peer: &&Peer| peer.is_awaited() && (silent(peer) || peer.was_restarted() || unwanted.contains(peer.site));
        self.peers.iter().filter(gone).map(|peer| peer.site).collect()
    }

    /// Whether we can do without the sites that this vote of a leader's would drop, and are not one of them.
    fn consents(&self, now: Instant, vote: &Vote) -> bool {
        let lowest = self.voters().iter().next().map(SiteId::number);
        let authority = if lowest == Some(ballot_leader(vote.ballot)) { vote.to_evict } else { SiteSet::EMPTY };
        let missed = |peer: &Peer| {
            let heard = peer.silence(now) < self.consent_timeout() && !authority.contains(peer.site);
            peer.is_awaited() && heard && !peer.was_restarted()
        };
        let drop = vote.drop;
        !drop.contains(self.config.site) && !self.peers.iter().any(|peer| drop.contains(peer.site) && missed(peer))
    }

    /// A site that is silent for this long may be dropped if somebody else asks for it.
    pub(super) fn consent_timeout(&self) -> TimeDelta {
        self.config.drop_timeout.map_or(CONSENT_SILENCE, |limit| limit / 2)
    }

    /// Whether we have accepted an outcome that may count with our word alone missing. Until the view has ended we cannot go: who
    /// leaves does not count any more, and without us others could decide otherwise.
    pub(super) fn is_bound_by_vote(&self) -> bool {
        self.membership.own_vote.is_some_and(|vote| vote.accepted.is_some())
    }

    /// Leads a change of the view if it is on us.
    pub(super) fn update_membership(&mut self, now: Instant) {
        if self.leaving.is_some() {
            return;
        }
        self.stop_epoch_request();
        // Whoever plays by now must be asked.
        self.apply_due_command();
        self.abandon_hopeless_ballot();
        self.try_decide();
        let suspects = self.suspects(now);
        // Whoever takes part in a ballot is deaf to some until the view ends; if they are back, it ends without dropping anybody.
        let pending = self.votes().next().is_some();
        if suspects.is_empty() && !pending {
            self.membership.suspected_since = None;
            return;
        }
        let (voters, me) = (self.voters(), self.config.site);
        let since = *self.membership.suspected_since.get_or_insert(now);
        let Some(turn) = difference(voters, suspects).iter().position(|site| site == me) else { return };
        // A site that may be dropped already lets the others lead the next ballot, too: they can confirm what it cannot.
        let may_be_dropped = self.may_be_dropped(suspects);
        let stale = self
            .membership
            .ballot_joined_at
            .is_none_or(|led| now - led > if may_be_dropped { BALLOT_TIMEOUT * 2 } else { BALLOT_TIMEOUT });
        let ballot = self.membership.own_vote.filter(|vote| vote.ballot > 0);
        let leading = ballot.filter(|vote| ballot_leader(vote.ballot) == me.number());
        let under_way = match leading {
            Some(vote) => (vote.drop == suspects || vote.drop.is_empty()) && !stale,
            None => now - since < LEADER_TURN * turn as i64 || ballot.is_some() && !stale,
        };
        let waits = now - since < BALLOT_TIMEOUT * 2 && may_be_dropped;
        if under_way || waits || !self.is_quorum(difference(voters, suspects)) {
            return;
        }
        // Where somebody hears those whom we do not, nobody is dropped; but only when the view has ended we listen to them again.
        let refused = leading.is_some_and(|vote| stale && vote.drop == suspects && vote.accepted.is_none());
        if refused && self.another_may_drop_fewer(now, suspects) {
            return;
        }
        let drop = if refused { SiteSet::EMPTY } else { suspects };
        let seen = self
            .peers
            .iter()
            .filter_map(|peer| peer.vote)
            .chain(self.membership.own_vote)
            .map(|vote| vote.ballot)
            .max();
        let round = seen.map_or(0, |ballot| ballot / MAX_SITES as u32).saturating_add(1);
        self.membership.ballot_joined_at = Some(now);
        self.join_ballot(round.saturating_mul(MAX_SITES as u32) | u32::from(me.number()), drop);
        self.try_decide();
    }

    /// Abandons a ballot that cannot have an outcome: the other survivors have left, so all voters but this site are those that it would drop, and
    /// this site alone is no quorum. Otherwise it would stay deaf to them, also when they say that they leave.
    fn abandon_hopeless_ballot(&mut self) {
        let undecided = self.membership.own_vote.is_some_and(|vote| vote.ballot > 0 && vote.accepted.is_none());
        let us = SiteSet::from_iter([self.config.site]);
        if undecided && difference(self.voters(), self.membership.muted) == us && !self.is_quorum(us) {
            (self.membership.own_vote, self.membership.ballot_joined_at, self.membership.suspected_since) =
                (None, None, None);
            self.membership.muted = SiteSet::EMPTY;
        }
    }

    /// Whether another voter would drop only some of the sites that this site suspects, and still has time to lead a ballot about them.
    /// Where this site does not hear a player whom the others hear, it cannot collect that player's vote, but another site can.
    fn another_may_drop_fewer(&self, now: Instant, suspects: SiteSet) -> bool {
        let fewer = |drop: SiteSet| !drop.is_empty() && drop != suspects && suspects.contains_all(drop);
        let in_time = self.membership.ballot_joined_at.is_some_and(|led| now - led <= BALLOT_TIMEOUT * 2);
        let others = |site: SiteId| site != self.config.site && !suspects.contains(site);
        in_time && self.votes().any(|(site, vote)| others(site) && fewer(vote.drop))
    }

    /// Whether somebody who is heard has accepted to go on without us, which may count already. Another should find that out: this site
    /// could only propose the same, and believes it only when all others have accepted it.
    fn may_be_dropped(&self, suspects: SiteSet) -> bool {
        let without_us =
            |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop.contains(self.config.site));
        self.votes().any(|(site, vote)| !suspects.contains(site) && without_us(vote))
    }

    /// Takes part in a ballot.
    #[cold]
    fn join_ballot(&mut self, ballot: u32, drop: SiteSet) {
        self.membership.muted = self.membership.muted.union(drop);
        let mut ends: InputEnds = [Frame::ZERO; MAX_SITES];
        for peer in self.peers.iter_mut().filter(|peer| drop.contains(peer.site)) {
            // Who comes late has nothing between what it has stepped and its first frame; what it has from there on is of no use to others.
            let gap = self.joining.is_some() && self.machine_frame < peer.inputs.start();
            peer.is_withheld |= gap;
            ends[peer.site.index()] = if gap { self.machine_frame } else { peer.inputs.end() };
        }
        let left = self.peers.iter().filter(|peer| drop.contains(peer.site) && peer.has_left()).map(|peer| peer.site);
        let left = left.collect();
        let in_force = |order: &crate::wire::ScheduledCommand| {
            drop.contains(order.issuer) && order.frame < ends[order.issuer.index()]
        };
        let order = self.command.filter(in_force);
        let accepted = self.membership.own_vote.and_then(|vote| vote.accepted);
        let unwanted = SiteSet::from_bits(self.membership.to_evict.bits() & drop.bits());
        self.membership.own_vote = Some(Vote {
            epoch: self.membership.epoch,
            ballot,
            drop,
            input_ends: ends,
            left_sites: left,
            to_evict: unwanted,
            command: order,
            accepted,
        });
        self.mark_all_due();
    }

    /// The view may have changed since we were let in, and nobody knows that we do not know. A vote in no ballot tells.
    pub(super) fn request_epoch(&mut self, number: u32) {
        self.membership.epoch = number;
        let (nobody, ends) = (SiteSet::EMPTY, [Frame::ZERO; MAX_SITES]);
        self.membership.own_vote = Some(Vote {
            epoch: number,
            ballot: 0,
            drop: nobody,
            input_ends: ends,
            left_sites: nobody,
            to_evict: nobody,
            command: None,
            accepted: None,
        });
    }

    /// Who gets on lacks nothing.
    fn stop_epoch_request(&mut self) {
        let asking = self.membership.own_vote.is_some_and(|vote| vote.ballot == 0);
        if asking && self.joining.is_none() && self.confirmed_end() > self.catch_up_until + self.max_lead {
            self.membership.own_vote = None;
        }
    }

    /// A peer says where it stands.
    pub(super) fn on_vote(&mut self, now: Instant, index: usize, vote: Vote) {
        self.apply_due_command();
        let bound = self.is_bound_by_vote();
        let peer = &mut self.peers[index];
        if !peer.is_playing() {
            return;
        }
        peer.has_old_epoch = vote.epoch < self.membership.epoch;
        if vote.epoch != self.membership.epoch || vote.ballot == 0 || self.leaving.is_some() && !bound {
            return;
        }
        if !vote.drop.is_empty() {
            let everyone = SiteSet::first(usize::from(self.config.settings.site_count));
            self.membership.spared_sites = self.membership.spared_sites.union(difference(everyone, vote.drop));
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

    /// Whether a decision can have been made without a lie. Before a site is dropped all who stay take part in a ballot to drop it, so
    /// nobody is dropped whom we hear and gave no vote about. The others may go on without us.
    fn is_admissible(&self, decision: &MembershipDecision) -> bool {
        match decision.drop.contains(self.config.site) {
            // What this site has of the others' inputs does not count any more.
            true => self.all_reachable_accept(decision),
            false => self.membership.muted.contains_all(decision.drop) && self.is_consistent(decision),
        }
    }

    /// Whether a decision fits what this site knows. All who stay say how far they have the inputs of those who are dropped, and listen to
    /// them no more, so what is here counts; but not for a newcomer, who may not have been asked. And only commands of those who are
    /// dropped are settled with them.
    pub(super) fn is_consistent(&self, decision: &MembershipDecision) -> bool {
        let asked = self.pending_joiner() != Some(self.config.site);
        let cut_off = |peer: &Peer| {
            let shorter = peer.inputs.end() > decision.input_ends[peer.site.index()];
            asked && decision.drop.contains(peer.site) && !peer.is_withheld && shorter
        };
        !self.peers.iter().any(cut_off) && decision.command.is_none_or(|order| decision.drop.contains(order.issuer))
    }

    /// Whether the others can have decided this without us, and each that is still heard has accepted it. One player's word is not
    /// enough for us to vote for our own eviction. Sites that would be dropped with us wait for our vote as we do for theirs, so theirs
    /// are not needed if two of those who stay have accepted.
    fn all_reachable_accept(&self, decision: &MembershipDecision) -> bool {
        let voters = self.voters();
        let accepts =
            |peer: &Peer| peer.vote.and_then(|vote| vote.accepted).is_some_and(|(_, accepted)| accepted == *decision);
        let unheard = |peer: &Peer| self.last_call - peer.last_received_at >= TICK_SILENCE_LIMIT;
        let others = || self.peers.iter().filter(|peer| peer.is_playing());
        let dropped = |peer: &Peer| decision.drop.contains(peer.site);
        let confirmed = is_quorum_of(voters, difference(voters, decision.drop))
            && others().filter(|peer| !dropped(peer) && accepts(peer) && !unheard(peer)).count() >= 2;
        is_quorum_of(voters, difference(voters, SiteSet::from_iter([self.config.site])))
            && others().all(|peer| accepts(peer) || unheard(peer) || confirmed && dropped(peer))
    }

    /// Accepts the outcome of the ballot that we take part in, even if it is that the others go on without us.
    fn accept_decision(&mut self, ballot: u32, decision: MembershipDecision) {
        if !self.is_admissible(&decision) {
            return;
        }
        if let Some(ours) = self.membership.own_vote.as_mut().filter(|ours| ours.ballot == ballot) {
            let news = ours.accepted.is_none_or(|(accepted, _)| accepted < ballot);
            if news {
                ours.accepted = Some((ballot, decision));
                self.mark_all_due();
            }
        }
    }

    /// Names the outcome of our ballot once all survivors take part; carries out what a quorum has accepted.
    fn try_decide(&mut self) {
        let Some(ours) = self.membership.own_vote.filter(|vote| vote.ballot > 0) else { return };
        if ballot_leader(ours.ballot) == self.config.site.number()
            && ours.accepted.is_none_or(|(at, _)| at < ours.ballot)
        {
            let survivors = difference(self.voters(), ours.drop);
            let taking_part = |vote: &&Vote| vote.ballot == ours.ballot && vote.epoch == ours.epoch;
            let votes = || self.votes().filter(|(_, vote)| taking_part(vote));
            let present: SiteSet = votes().map(|(site, _)| site).collect();
            // No outcome can count if a quorum has accepted none: any quorum that might have accepted one meets it.
            let unbound: SiteSet = votes().filter(|(_, vote)| vote.accepted.is_none()).map(|(site, _)| site).collect();
            let free = self.is_quorum_of_voters(unbound) || votes().all(|(_, vote)| vote.accepted.is_none());
            let may_become_free =
                !free && self.membership.ballot_joined_at.is_some_and(|led| self.last_call - led < LEADER_TURN);
            // Who drops nobody need not know how far everybody is.
            let enough = match ours.drop {
                SiteSet::EMPTY if may_become_free => present.contains_all(survivors),
                SiteSet::EMPTY => self.is_quorum(present),
                _ => present.contains_all(survivors),
            };
            if enough {
                let accepted = votes().filter_map(|(_, vote)| vote.accepted).filter(|_| !free);
                let earlier = accepted.max_by_key(|(ballot, _)| *ballot);
                let decision =
                    earlier.map_or_else(|| merge_votes(ours.drop, votes().map(|(_, vote)| vote)), |(_, d)| d);
                // If the earlier outcome is a lie nothing comes of this ballot: to pass over one that counts would be worse.
                self.accept_decision(ours.ballot, decision);
            }
        }
        let Some((ballot, decision)) = self.membership.own_vote.and_then(|vote| vote.accepted) else { return };
        let accepted = |vote: &Vote| vote.accepted == Some((ballot, decision));
        let agreeing: SiteSet = self.votes().filter(|(_, vote)| accepted(vote)).map(|(site, _)| site).collect();
        if self.is_quorum(agreeing) {
            self.apply_decision(decision);
        }
    }

    /// Those whose own votes are for dropping these sites: they accepted that outcome, or take part in a ballot to drop them.
    pub(super) fn votes_against(&self, sites: SiteSet) -> SiteSet {
        let accepted = |vote: &Vote| vote.accepted.is_some_and(|(_, decision)| decision.drop == sites);
        let would_drop = |vote: &Vote| !sites.is_empty() && vote.drop.contains_all(sites);
        self.votes().filter(|(_, vote)| accepted(vote) || would_drop(vote)).map(|(site, _)| site).collect()
    }

    /// All votes of this view, ours included.
    fn votes(&self) -> impl Iterator<Item = (SiteId, &Vote)> {
        let number = self.membership.epoch;
        let peers = self.peers.iter().filter(|peer| peer.is_playing());
        let peers = peers.filter_map(|peer| peer.vote.as_ref().map(|vote| (peer.site, vote)));
        let ours = self.membership.own_vote.as_ref().map(|vote| (self.config.site, vote));
        peers.chain(ours).filter(move |(_, vote)| vote.epoch == number && vote.ballot > 0)
    }

    /// Ends the view: the sites are dropped.
    #[cold]
    pub(super) fn apply_decision(&mut self, decision: MembershipDecision) {
        if decision.drop.contains(self.config.site) {
            return self.end_session(SessionEnd::Dropped);
        }
        self.void_commands_of_dropped(&decision);
        let (free_from, open) = (self.next_free_seat_frame(), self.own_inputs.end());
        let (dropped_nobody, unwanted) = (decision.drop.is_empty(), self.membership.to_evict);
        let earliest = decision.drop.iter().map(|site| decision.input_ends[site.index()]).min();
        let spared_silence = self.max_spared_silence();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            peer.mark_unconsulted(earliest);
            // A site that withheld inputs stepped their frames on guesses, so the check of guesses begins with the first of them.
            let known = peer.known_end();
            (peer.vote, peer.has_old_epoch, peer.is_withheld) = (None, false, false);
            // Who is to play from a later frame on counts on the old view, and hears of this with our input for that frame. So does who
            // was not asked.
            peer.uninformed_until = peer.join_frame.or(dropped_nobody.then_some(open));
            if dropped_nobody && self.membership.spared_sites.contains(peer.site) {
                peer.last_input_at = peer.last_input_at.max(self.last_call - spared_silence);
            }
            if decision.drop.contains(peer.site) && peer.is_awaited() {
                let (site, last) = (peer.site, decision.input_ends[peer.site.index()]);
                peer.seat = Seat::Leaving(last);
                peer.is_dropped = true;
                // It may have gone on with inputs of others who are dropped with it, which do not count.
                peer.frame_digests = DigestHistory::default();
                let heard = peer.silence(self.last_call) < CONSENT_SILENCE;
                peer.stall_budget.on_drop(self.last_call, heard && unwanted.contains(site));
                match self.config.settings.absent_input {
                    AbsentInput::Repeat if !decision.left_sites.contains(site) => peer.repeats_last_input = true,
                    _ => peer.use_neutral_substitute(),
                }
                peer.seat_free_from = free_from;
                peer.lobby.has_played = false;
                self.left_sites.insert(site);
                self.events.push(Event::Dropped { site, frame: last });
                if let Some(pacer) = &mut self.pacer {
                    pacer.forget_site(site);
                }
                self.check_predictions(index, known);
            } else if decision.drop.contains(peer.site) {
                let last = decision.input_ends[peer.site.index()];
                self.shorten_last_inputs(index, last);
            }
        }
        if let Some(order) = decision.command {
            self.accept_command(order);
        }
        if !dropped_nobody || self.membership.last_decision.is_none() {
            self.membership.last_decision = Some((self.membership.epoch, decision));
        }
        self.membership.epoch = self.membership.epoch.saturating_add(1);
        self.membership.own_vote = None;
        self.membership.epoch_ended_at = Some(self.last_call);
        (self.membership.ballot_joined_at, self.membership.suspected_since) = (None, None);
        (self.membership.muted, self.membership.to_evict, self.membership.spared_sites) =
            (SiteSet::EMPTY, SiteSet::EMPTY, SiteSet::EMPTY);
        // No player is to blame for the time that the ballot took.
        self.stalled_since = self.last_call;
        if dropped_nobody {
            self.membership.unmuted_at = Some(self.last_call);
            self.reset_stall_budgets(self.last_call, unwanted);
        }
        self.choose_pace_setter();
        self.mark_all_due();
        self.invalidate_send_time();
        self.mark_extras_pending();
    }

    /// How long a site may count as silent, after a ballot that dropped nobody, whom another player would have kept. That player may hear it;
    /// then the next ballot succeeds and keeps it. Or that player has not missed it for long enough yet; then the next ballot comes to
    /// nothing, too, and before it is replaced the site must be missed here.
    fn max_spared_silence(&self) -> TimeDelta {
        let next_ballot = (UNMUTE_TIME + self.max_player_rtt() * 4).min(BALLOT_TIMEOUT * 9 / 10);
        self.config.drop_timeout.map_or(TimeDelta::ZERO, |limit| (limit - next_ballot).max(TimeDelta::ZERO))
    }

    /// Some of the last inputs of a dropped site are lost with the sites that had them: they do not count.
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

    /// An order of a dropped site counts if somebody may have acted on it, and else never. That comes before it is known where the
    /// site's inputs end: until then, what was stepped from the frame of a void order on is not certain, and can be stepped again.
    fn void_commands_of_dropped(&mut self, decision: &MembershipDecision) {
        let voided =
            self.command.filter(|order| decision.drop.contains(order.issuer) && decision.command != Some(*order));
        if let Some(order) = voided {
            self.command = None;
            self.revert_command(order);
        }
    }

    /// A frame after all that the sites that are dropped now can have given inputs for.
    fn next_free_seat_frame(&self) -> Frame {
        let reach = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        self.own_inputs.end() + 3 * reach + 16
    }

    /// Whether somebody may need to be told more than inputs.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }
}

/// The site that leads a ballot.
fn ballot_leader(ballot: u32) -> u8 {
    (ballot % MAX_SITES as u32) as u8
}

fn difference(sites: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(sites.bits() & !others.bits())
}

/// More than half of them, or half with the lowest.
pub(super) fn is_quorum_of(all: SiteSet, some: SiteSet) -> bool {
    let some = SiteSet::from_bits(all.bits() & some.bits());
    let (all_count, count) = (all.bits().count_ones(), some.bits().count_ones());
    2 * count > all_count || 2 * count == all_count && all.iter().next().is_some_and(|lowest| some.contains(lowest))
}

/// Everything that any of the survivors has counts.
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
    use super::*;

    #[test]
    fn any_two_quorums_intersect() {
        for all in 1..=255 {
            let all = SiteSet::from_bits(all);
            let quorums =
                (0..=255).map(SiteSet::from_bits).filter(|some| all.contains_all(*some) && is_quorum_of(all, *some));
            let quorums: std::vec::Vec<_> = quorums.collect();
            assert!(quorums.contains(&all));
            assert!(quorums.iter().all(|one| quorums.iter().all(|other| one.bits() & other.bits() != 0)));
        }
    }
}
