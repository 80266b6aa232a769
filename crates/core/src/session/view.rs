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
//! [alone](super::alone).
//!
//! A site that leaves of its own accord says with which frame its inputs end, and needs no vote; it does not count any more. If it
//! dies before all of them are here, they end earlier, and that needs a vote. Whom it has dropped it does not tell that it leaves: to
//! them it must go on counting.

use super::compare::Digests;
use super::event::{End, Event};
use super::peer::{Peer, Seat};
use super::reports::UNPLAYED;
use super::settings::Absent;
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::{Decision, Ends, Vote};

/// A ballot without an outcome is replaced after this time. Until then three sites have had their [`TURN`] to lead one.
const BALLOT: TimeDelta = TimeDelta::from_millis(1_500);
/// Where nothing comes of it although there is somebody to be dropped, the next site leads so much later: the lowest may not hear all who
/// must be asked.
const TURN: TimeDelta = TimeDelta::from_millis(500);
/// Without another wish, who is silent for so long may be dropped if somebody else asks for it.
const CONSENT: TimeDelta = TimeDelta::from_millis(500);

/// After a ballot that dropped nobody, the least time in which those whom others hear are heard again, beside two round trips. The
/// silence itself goes on counting: otherwise a site that waits longer than this one would never come to miss anybody.
const HEARD_AGAIN: TimeDelta = TimeDelta::from_millis(500);
/// Nobody's round trip is waited for longer than this: a peer chooses how long its own is.
const LONGEST_RTT: TimeDelta = TimeDelta::from_secs(1);

/// The least time in which survivors pass on the last inputs of a dropped site, beside two round trips.
const PASSED_ON: TimeDelta = TimeDelta::from_secs(1);

/// The view, and a change of it that is under way.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) number: u32,
    /// Where we stand in a change.
    pub(super) vote: Option<Vote>,
    /// When the last view ended.
    ended_at: Option<Instant>,
    /// When an order let this site in.
    pub(super) entered_at: Option<Instant>,
    /// When we began to take part in our newest ballot.
    led: Option<Instant>,
    /// Since when there is somebody to be dropped, or a ballot about it.
    since: Option<Instant>,
    /// Those that we will not wait for, if that is on us.
    pub(super) unwanted: SiteSet,
    /// When a view last ended without dropping anybody, so that this site listens again to those it was deaf to.
    listening_since: Option<Instant>,
    /// Those whom another player would keep who votes to drop somebody: it hears them.
    spared: SiteSet,
    /// Until when those who are late are waited for, because going on without one came to nothing.
    pub(super) patient_until: Option<Instant>,
    /// Whose inputs we take from nobody until the view has changed.
    pub(super) deaf_to: SiteSet,
    /// How the last view ended that somebody was dropped with; all after it ended without dropping anybody. Without such a view, the
    /// first whose end we know.
    pub(super) decided: Option<(u32, Decision)>,
}

impl View {
    /// The first view of a site that an order lets in.
    pub(super) fn entered(now: Instant) -> Self {
        Self { entered_at: Some(now), ..Self::default() }
    }

    /// Whether nobody is to be dropped and no ballot is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.vote.is_none() && self.since.is_none() && self.unwanted.is_empty()
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
        if self.peers.iter().all(|peer| peer.was_restarted() && peer.lobby.joining.is_some()) {
            return true;
        }
        self.is_quorum_of_voters(sites)
    }

    /// Whether some of the voters can decide for all of them. While not everybody knows of a newcomer, both with and without it must be
    /// decided alike.
    fn is_quorum_of_voters(&self, sites: SiteSet) -> bool {
        let voters = self.voters();
        is_quorum_of(voters, sites) && is_quorum_of(self.without_newcomer(voters), sites)
    }

    /// These sites, but for one that not everybody may know of yet.
    pub(super) fn without_newcomer(&self, mut sites: SiteSet) -> SiteSet {
        self.newcomer().inspect(|newcomer| sites.remove(*newcomer));
        sites
    }

    /// Everything before this frame is certain, and stays so even if the others go on without us: among those who could decide that
    /// is one who has our inputs for it.
    pub(super) fn settled(&self) -> Frame {
        let (mut settled, open) = (self.certain(), self.fed.max(self.own.start()));
        let mut without_ours = self.voters();
        without_ours.remove(self.config.site);
        while self.is_quorum_of_voters(without_ours) {
            let has_come = |peer: &Peer| peer.inputs.start() <= open && !peer.ahead;
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
        let gone = self.gone(now);
        let incomplete = |peer: &&Peer| peer.is_incomplete() && (!gone.is_empty() || self.is_lost(now, peer));
        let lost: SiteSet = self.peers.iter().filter(incomplete).map(|peer| peer.site).collect();
        gone.union(lost)
    }

    /// Whether the last view ended longer ago than this.
    pub(super) fn view_is_older_than(&self, now: Instant, time: TimeDelta) -> bool {
        self.view.ended_at.is_none_or(|ended| now - ended > time)
    }

    /// Whether nobody seems to have the last inputs of a dropped site: the others had time to pass them on.
    pub(super) fn is_lost(&self, now: Instant, peer: &Peer) -> bool {
        let since = self.view.ended_at.map_or(peer.inputs_at, |ended| ended.max(peer.inputs_at));
        now - since > self.config.drop_after.unwrap_or(PASSED_ON).max(PASSED_ON) + self.slowest_player() * 2
    }

    /// The longest round trip to any other site.
    pub(super) fn slowest_rtt(&self) -> TimeDelta {
        self.peers.iter().filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default()
    }

    /// The longest round trip to any player that is waited for when a view changes.
    pub(super) fn slowest_player(&self) -> TimeDelta {
        let players = self.peers.iter().filter(|peer| peer.is_playing());
        players.filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default().min(LONGEST_RTT)
    }

    /// Whether those whom this site was deaf to had time to be heard again.
    fn has_listened(&self, now: Instant) -> bool {
        self.view.listening_since.is_none_or(|since| now - since > HEARD_AGAIN + self.slowest_player() * 2)
    }

    fn gone(&self, now: Instant) -> SiteSet {
        let unwanted = match self.view.unwanted {
            SiteSet::EMPTY => SiteSet::EMPTY,
            unwanted if self.is_coordinator() => unwanted,
            _ => SiteSet::EMPTY,
        };
        let limit = self.config.drop_after.filter(|_| self.has_listened(now));
        let silent = |peer: &&Peer| limit.is_some_and(|limit| peer.silence(now) > limit);
        let gone =
            |peer: &&Peer| peer.is_awaited() && (silent(peer) || peer.was_restarted() || unwanted.contains(peer.site));
        self.peers.iter().filter(gone).map(|peer| peer.site).collect()
    }

    /// Whether we can do without the sites that this vote of a leader's would drop, and are not one of them.
    fn consents(&self, now: Instant, vote: &Vote) -> bool {
        let lowest = self.voters().iter().next().map(SiteId::number);
        let authority = if lowest == Some(leader(vote.ballot)) { vote.unwanted } else { SiteSet::EMPTY };
        let missed = |peer: &Peer| {
            let heard = peer.silence(now) < self.patience() && !authority.contains(peer.site);
            peer.is_awaited() && heard && !peer.was_restarted()
        };
        let drop = vote.drop;
        !drop.contains(self.config.site) && !self.peers.iter().any(|peer| drop.contains(peer.site) && missed(peer))
    }

    /// A site that is silent for this long may be dropped if somebody else asks for it.
    pub(super) fn patience(&self) -> TimeDelta {
        self.config.drop_after.map_or(CONSENT, |limit| limit / 2)
    }

    /// Whether we have accepted an outcome that may count with our word alone missing. Until the view has ended we cannot go: who
    /// leaves does not count any more, and without us others could decide otherwise.
    pub(super) fn is_bound(&self) -> bool {
        self.view.vote.is_some_and(|vote| vote.accepted.is_some())
    }

    /// Leads a change of the view if it is on us.
    pub(super) fn watch_view(&mut self, now: Instant) {
        if self.leaving.is_some() {
            return;
        }
        self.stop_asking_for_view();
        // Whoever plays by now must be asked.
        self.act_on_order();
        self.abandon_hopeless_ballot();
        self.decide_if_possible();
        let suspects = self.suspects(now);
        // Whoever takes part in a ballot is deaf to some until the view ends; if they are back, it ends without dropping anybody.
        let pending = self.votes().next().is_some();
        if suspects.is_empty() && !pending {
            self.view.since = None;
            return;
        }
        let (voters, me) = (self.voters(), self.config.site);
        let since = *self.view.since.get_or_insert(now);
        let Some(turn) = without(voters, suspects).iter().position(|site| site == me) else { return };
        // A site that may be dropped already lets the others lead the next ballot, too: they can confirm what it cannot.
        let may_be_dropped = self.may_be_dropped(suspects);
        let stale = self.view.led.is_none_or(|led| now - led > if may_be_dropped { BALLOT * 2 } else { BALLOT });
        let ballot = self.view.vote.filter(|vote| vote.ballot > 0);
        let leading = ballot.filter(|vote| leader(vote.ballot) == me.number());
        let under_way = match leading {
            Some(vote) => (vote.drop == suspects || vote.drop.is_empty()) && !stale,
            None => now - since < TURN * turn as i64 || ballot.is_some() && !stale,
        };
        let waits = now - since < BALLOT * 2 && may_be_dropped;
        if under_way || waits || !self.is_quorum(without(voters, suspects)) {
            return;
        }
        // Where somebody hears those whom we do not, nobody is dropped; but only when the view has ended we listen to them again.
        let refused = leading.is_some_and(|vote| stale && vote.drop == suspects && vote.accepted.is_none());
        if refused && self.another_may_drop_fewer(now, suspects) {
            return;
        }
        let drop = if refused { SiteSet::EMPTY } else { suspects };
        let seen = self.peers.iter().filter_map(|peer| peer.vote).chain(self.view.vote).map(|vote| vote.ballot).max();
        let round = seen.map_or(0, |ballot| ballot / MAX_SITES as u32).saturating_add(1);
        self.view.led = Some(now);
        self.take_part(round.saturating_mul(MAX_SITES as u32) | u32::from(me.number()), drop);
        self.decide_if_possible();
    }

    /// Abandons a ballot that cannot have an outcome: the other survivors have left, so all voters but this site are those that it would drop, and
    /// this site alone is no quorum. Otherwise it would stay deaf to them, also when they say that they leave.
    fn abandon_hopeless_ballot(&mut self) {
        let undecided = self.view.vote.is_some_and(|vote| vote.ballot > 0 && vote.accepted.is_none());
        let us = SiteSet::from_iter([self.config.site]);
        if undecided && without(self.voters(), self.view.deaf_to) == us && !self.is_quorum(us) {
            (self.view.vote, self.view.led, self.view.since) = (None, None, None);
            self.view.deaf_to = SiteSet::EMPTY;
        }
    }

    /// Whether another voter would drop only some of the sites that this site suspects, and still has time to lead a ballot about them.
    /// Where this site does not hear a player whom the others hear, it cannot collect that player's vote, but another site can.
    fn another_may_drop_fewer(&self, now: Instant, suspects: SiteSet) -> bool {
        let fewer = |drop: SiteSet| !drop.is_empty() && drop != suspects && suspects.contains_all(drop);
        let in_time = self.view.led.is_some_and(|led| now - led <= BALLOT * 2);
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
    fn take_part(&mut self, ballot: u32, drop: SiteSet) {
        self.view.deaf_to = self.view.deaf_to.union(drop);
        let mut ends: Ends = [Frame::ZERO; MAX_SITES];
        for peer in self.peers.iter_mut().filter(|peer| drop.contains(peer.site)) {
            // Who comes late has nothing between what it has stepped and its first frame; what it has from there on is of no use to others.
            let gap = self.joining.is_some() && self.at < peer.inputs.start();
            peer.withheld |= gap;
            ends[peer.site.index()] = if gap { self.at } else { peer.inputs.end() };
        }
        let left = self.peers.iter().filter(|peer| drop.contains(peer.site) && peer.has_left()).map(|peer| peer.site);
        let left = left.collect();
        let in_force = |order: &crate::wire::Order| drop.contains(order.by) && order.frame < ends[order.by.index()];
        let order = self.order.filter(in_force);
        let accepted = self.view.vote.and_then(|vote| vote.accepted);
        let unwanted = SiteSet::from_bits(self.view.unwanted.bits() & drop.bits());
        self.view.vote = Some(Vote { view: self.view.number, ballot, drop, ends, left, unwanted, order, accepted });
        self.set_all_due();
    }

    /// The view may have changed since we were let in, and nobody knows that we do not know. A vote in no ballot tells.
    pub(super) fn ask_for_view(&mut self, number: u32) {
        self.view.number = number;
        let (nobody, ends) = (SiteSet::EMPTY, [Frame::ZERO; MAX_SITES]);
        self.view.vote = Some(Vote {
            view: number,
            ballot: 0,
            drop: nobody,
            ends,
            left: nobody,
            unwanted: nobody,
            order: None,
            accepted: None,
        });
    }

    /// Who gets on lacks nothing.
    fn stop_asking_for_view(&mut self) {
        let asking = self.view.vote.is_some_and(|vote| vote.ballot == 0);
        if asking && self.joining.is_none() && self.certain() > self.fast_until + self.most_reach {
            self.view.vote = None;
        }
    }

    /// A peer says where it stands.
    pub(super) fn take_vote(&mut self, now: Instant, index: usize, vote: Vote) {
        self.act_on_order();
        let bound = self.is_bound();
        let peer = &mut self.peers[index];
        if !peer.is_playing() {
            return;
        }
        peer.behind = vote.view < self.view.number;
        if vote.view != self.view.number || vote.ballot == 0 || self.leaving.is_some() && !bound {
            return;
        }
        if !vote.drop.is_empty() {
            let everyone = SiteSet::first(usize::from(self.config.settings.sites));
            self.view.spared = self.view.spared.union(without(everyone, vote.drop));
        }
        if peer.vote.is_none_or(|known| {
            (known.ballot, known.accepted.map(|a| a.0)) <= (vote.ballot, vote.accepted.map(|a| a.0))
        }) {
            peer.vote = Some(vote);
        }
        let site = peer.site.number();
        let promised = self.view.vote.map_or(0, |vote| vote.ballot);
        if leader(vote.ballot) == site && vote.ballot > promised && self.consents(now, &vote) {
            self.view.led = Some(now);
            self.take_part(vote.ballot, vote.drop);
        }
        if let Some((ballot, decision)) =
            vote.accepted.filter(|(ballot, _)| leader(*ballot) == site && *ballot == vote.ballot)
        {
            self.accept(ballot, decision);
        }
        self.decide_if_possible();
    }

    /// Whether a decision can have been made without a lie. Before a site is dropped all who stay take part in a ballot to drop it, so
    /// nobody is dropped whom we hear and gave no vote about. The others may go on without us.
    fn is_admissible(&self, decision: &Decision) -> bool {
        match decision.drop.contains(self.config.site) {
            // What this site has of the others' inputs does not count any more.
            true => self.all_heard_accept(decision),
            false => self.view.deaf_to.contains_all(decision.drop) && self.is_consistent(decision),
        }
    }

    /// Whether a decision fits what this site knows. All who stay say how far they have the inputs of those who are dropped, and listen to
    /// them no more, so what is here counts; but not for a newcomer, who may not have been asked. And only commands of those who are
    /// dropped are settled with them.
    pub(super) fn is_consistent(&self, decision: &Decision) -> bool {
        let asked = self.newcomer() != Some(self.config.site);
        let cut_off = |peer: &Peer| {
            let shorter = peer.inputs.end() > decision.lasts[peer.site.index()];
            asked && decision.drop.contains(peer.site) && !peer.withheld && shorter
        };
        !self.peers.iter().any(cut_off) && decision.order.is_none_or(|order| decision.drop.contains(order.by))
    }

    /// Whether the others can have decided this without us, and each that is still heard has accepted it. One player's word is not
    /// enough for us to vote for our own eviction. Sites that would be dropped with us wait for our vote as we do for theirs, so theirs
    /// are not needed if two of those who stay have accepted.
    fn all_heard_accept(&self, decision: &Decision) -> bool {
        let voters = self.voters();
        let accepts =
            |peer: &Peer| peer.vote.and_then(|vote| vote.accepted).is_some_and(|(_, accepted)| accepted == *decision);
        let unheard = |peer: &Peer| self.called - peer.heard >= UNPLAYED;
        let others = || self.peers.iter().filter(|peer| peer.is_playing());
        let dropped = |peer: &Peer| decision.drop.contains(peer.site);
        let confirmed = is_quorum_of(voters, without(voters, decision.drop))
            && others().filter(|peer| !dropped(peer) && accepts(peer) && !unheard(peer)).count() >= 2;
        is_quorum_of(voters, without(voters, SiteSet::from_iter([self.config.site])))
            && others().all(|peer| accepts(peer) || unheard(peer) || confirmed && dropped(peer))
    }

    /// Accepts the outcome of the ballot that we take part in, even if it is that the others go on without us.
    fn accept(&mut self, ballot: u32, decision: Decision) {
        if !self.is_admissible(&decision) {
            return;
        }
        if let Some(ours) = self.view.vote.as_mut().filter(|ours| ours.ballot == ballot) {
            let news = ours.accepted.is_none_or(|(accepted, _)| accepted < ballot);
            if news {
                ours.accepted = Some((ballot, decision));
                self.set_all_due();
            }
        }
    }

    /// Names the outcome of our ballot once all survivors take part; carries out what a quorum has accepted.
    fn decide_if_possible(&mut self) {
        let Some(ours) = self.view.vote.filter(|vote| vote.ballot > 0) else { return };
        if leader(ours.ballot) == self.config.site.number() && ours.accepted.is_none_or(|(at, _)| at < ours.ballot) {
            let survivors = without(self.voters(), ours.drop);
            let taking_part = |vote: &&Vote| vote.ballot == ours.ballot && vote.view == ours.view;
            let votes = || self.votes().filter(|(_, vote)| taking_part(vote));
            let present: SiteSet = votes().map(|(site, _)| site).collect();
            // No outcome can count if a quorum has accepted none: any quorum that might have accepted one meets it.
            let unbound: SiteSet = votes().filter(|(_, vote)| vote.accepted.is_none()).map(|(site, _)| site).collect();
            let free = self.is_quorum_of_voters(unbound) || votes().all(|(_, vote)| vote.accepted.is_none());
            let may_become_free = !free && self.view.led.is_some_and(|led| self.called - led < TURN);
            // Who drops nobody need not know how far everybody is.
            let enough = match ours.drop {
                SiteSet::EMPTY if may_become_free => present.contains_all(survivors),
                SiteSet::EMPTY => self.is_quorum(present),
                _ => present.contains_all(survivors),
            };
            if enough {
                let accepted = votes().filter_map(|(_, vote)| vote.accepted).filter(|_| !free);
                let earlier = accepted.max_by_key(|(ballot, _)| *ballot);
                let decision = earlier.map_or_else(|| furthest(ours.drop, votes().map(|(_, vote)| vote)), |(_, d)| d);
                // If the earlier outcome is a lie nothing comes of this ballot: to pass over one that counts would be worse.
                self.accept(ours.ballot, decision);
            }
        }
        let Some((ballot, decision)) = self.view.vote.and_then(|vote| vote.accepted) else { return };
        let accepted = |vote: &Vote| vote.accepted == Some((ballot, decision));
        let agreeing: SiteSet = self.votes().filter(|(_, vote)| accepted(vote)).map(|(site, _)| site).collect();
        if self.is_quorum(agreeing) {
            self.carry_out(decision);
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
        let number = self.view.number;
        let peers = self.peers.iter().filter(|peer| peer.is_playing());
        let peers = peers.filter_map(|peer| peer.vote.as_ref().map(|vote| (peer.site, vote)));
        let ours = self.view.vote.as_ref().map(|vote| (self.config.site, vote));
        peers.chain(ours).filter(move |(_, vote)| vote.view == number && vote.ballot > 0)
    }

    /// Ends the view: the sites are dropped.
    #[cold]
    pub(super) fn carry_out(&mut self, decision: Decision) {
        if decision.drop.contains(self.config.site) {
            return self.end(End::Dropped);
        }
        self.void_order(&decision);
        let (free_from, open) = (self.seat_is_free_from(), self.own.end());
        let (dropped_nobody, unwanted) = (decision.drop.is_empty(), self.view.unwanted);
        let earliest = decision.drop.iter().map(|site| decision.lasts[site.index()]).min();
        let spared_silence = self.spared_silence();
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            peer.note_unasked(earliest);
            // A site that withheld inputs stepped their frames on guesses, so the check of guesses begins with the first of them.
            let known = peer.known_end();
            (peer.vote, peer.behind, peer.withheld) = (None, false, false);
            // Who is to play from a later frame on counts on the old view, and hears of this with our input for that frame. So does who
            // was not asked.
            peer.uninformed = peer.joins.or(dropped_nobody.then_some(open));
            if dropped_nobody && self.view.spared.contains(peer.site) {
                peer.inputs_at = peer.inputs_at.max(self.called - spared_silence);
            }
            if decision.drop.contains(peer.site) && peer.is_awaited() {
                let (site, last) = (peer.site, decision.lasts[peer.site.index()]);
                peer.seat = Seat::Leaving(last);
                peer.dropped = true;
                // It may have gone on with inputs of others who are dropped with it, which do not count.
                peer.digests = Digests::default();
                let heard = peer.silence(self.called) < CONSENT;
                peer.lateness.on_drop(self.called, heard && unwanted.contains(site));
                match self.config.settings.absent {
                    Absent::Repeat if !decision.left.contains(site) => peer.repeats = true,
                    _ => peer.let_go(),
                }
                peer.free_from = free_from;
                peer.lobby.playing = false;
                self.left.insert(site);
                self.events.push(Event::Dropped { site, frame: last });
                if let Some(pacer) = &mut self.pacer {
                    pacer.forget(site);
                }
                self.check_guesses(index, known);
            } else if decision.drop.contains(peer.site) {
                let last = decision.lasts[peer.site.index()];
                self.end_earlier(index, last);
            }
        }
        if let Some(order) = decision.order {
            self.take_order(order);
        }
        if !dropped_nobody || self.view.decided.is_none() {
            self.view.decided = Some((self.view.number, decision));
        }
        self.view.number = self.view.number.saturating_add(1);
        self.view.vote = None;
        self.view.ended_at = Some(self.called);
        (self.view.led, self.view.since) = (None, None);
        (self.view.deaf_to, self.view.unwanted, self.view.spared) = (SiteSet::EMPTY, SiteSet::EMPTY, SiteSet::EMPTY);
        // No player is to blame for the time that the ballot took.
        self.waiting_since = self.called;
        if dropped_nobody {
            self.view.listening_since = Some(self.called);
            self.forgive_all(self.called, unwanted);
        }
        self.choose_pace_setter();
        self.set_all_due();
        self.look_again();
        self.talk();
    }

    /// How long a site may count as silent, after a ballot that dropped nobody, whom another player would have kept. That player may hear it;
    /// then the next ballot succeeds and keeps it. Or that player has not missed it for long enough yet; then the next ballot comes to
    /// nothing, too, and before it is replaced the site must be missed here.
    fn spared_silence(&self) -> TimeDelta {
        let next_ballot = (HEARD_AGAIN + self.slowest_player() * 4).min(BALLOT * 9 / 10);
        self.config.drop_after.map_or(TimeDelta::ZERO, |limit| (limit - next_ballot).max(TimeDelta::ZERO))
    }

    /// Some of the last inputs of a dropped site are lost with the sites that had them: they do not count.
    fn end_earlier(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let last = last.max(peer.inputs.end());
        if !peer.is_incomplete() || peer.last().is_some_and(|before| before <= last) {
            return;
        }
        let known = peer.known_end();
        peer.seat = Seat::Leaving(last);
        self.events.push(Event::Dropped { site: peer.site, frame: last });
        self.check_guesses(index, known);
    }

    /// An order of a dropped site counts if somebody may have acted on it, and else never. That comes before it is known where the
    /// site's inputs end: until then, what was stepped from the frame of a void order on is not certain, and can be stepped again.
    fn void_order(&mut self, decision: &Decision) {
        let voided = self.order.filter(|order| decision.drop.contains(order.by) && decision.order != Some(*order));
        if let Some(order) = voided {
            self.order = None;
            self.undo(order);
        }
    }

    /// A frame after all that the sites that are dropped now can have given inputs for.
    fn seat_is_free_from(&self) -> Frame {
        let reach = self.dials.lag + self.dials.window;
        self.own.end() + 3 * reach + 16
    }

    /// Whether somebody may need to be told more than inputs.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }
}

/// The site that leads a ballot.
fn leader(ballot: u32) -> u8 {
    (ballot % MAX_SITES as u32) as u8
}

fn without(sites: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(sites.bits() & !others.bits())
}

/// More than half of them, or half with the lowest.
pub(super) fn is_quorum_of(all: SiteSet, some: SiteSet) -> bool {
    let some = SiteSet::from_bits(all.bits() & some.bits());
    let (all_count, count) = (all.bits().count_ones(), some.bits().count_ones());
    2 * count > all_count || 2 * count == all_count && all.iter().next().is_some_and(|lowest| some.contains(lowest))
}

/// Everything that any of the survivors has counts.
fn furthest<'a>(drop: SiteSet, votes: impl Iterator<Item = &'a Vote>) -> Decision {
    let mut decision = Decision::dropping(drop);
    for vote in votes {
        for (last, end) in decision.lasts.iter_mut().zip(vote.ends) {
            *last = (*last).max(end);
        }
        decision.left = decision.left.union(vote.left);
        decision.order = decision.order.or(vote.order);
    }
    decision
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_meet() {
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
