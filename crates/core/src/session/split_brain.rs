//! The last player left: going on alone without a quorum, and meeting the others again.
//!
//! A site that is not part of a quorum waits, because the silent sites may have gone on without it. The person in front of it can decide
//! otherwise: [`Session::continue_alone`] drops the silent sites with the inputs that are here. The sites may then play two different games,
//! so a site that went on alone calls each dropped site once per second with [`Refusal::Alone`]. When two sites meet again:
//!
//! 1. Both went on alone: the game that has reached the later frame is kept, of equal ones that of the lower site. Both games go on while
//!    they are compared, so the lower site alone decides. It says [`Refusal::DroppedDatagrams`] to keep its game, or a frame of 0 to give it up.
//! 2. The receiver still waits: it believes the sender if it hears no inputs of the sender and no other player. To refuse would gain
//!    nothing, because the sender does not play with it any more.
//! 3. The receiver plays with others: it says that the game goes on without the sender, which gives its own game up. Nothing that one
//!    site says evicts a site that hears another player.
//! 4. Two or more sites, a quorum of those left behind, still wait for the sender: the sender gives its game up.
//!
//! The site that gives its game up ends with [`End::DroppedDatagrams`], and its host program lets it join the other game.

use super::event::{Event, SessionEnd};
use super::membership::is_quorum_of;
use super::peer::{Peer, Seat};
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::{Hello, MembershipDecision, Refusal};

/// Interval of the calls to a site that the game went on without.
const SPLIT_HELLO_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Interval of the calls that announce that a site gives its game up, and the time for which it announces that.
const YIELD_HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
const YIELD_DURATION: TimeDelta = TimeDelta::from_secs(1);
/// A player whose newest input is older than this is not heard.
const INPUT_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(1);
/// Silence after which a person may go on alone where [`Config::drop_after`](super::Config::drop_timeout) sets no limit.
const DEFAULT_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(3);

/// Whom a site went on without, and what came of meeting again.
#[derive(Debug, Default)]
pub(super) struct SplitBrain {
    /// Sites that were dropped without a quorum, or that went on alone themselves.
    abandoned_sites: SiteSet,
    /// Sites of these that give their game up for ours.
    yielding_sites: SiteSet,
    /// When we end our own game for that of another site.
    yield_at: Option<Instant>,
}

impl SplitBrain {
    /// Whether there is nobody that the game went on without.
    pub(super) fn is_idle(&self) -> bool {
        self.abandoned_sites.is_empty()
    }
}

impl Session {
    /// The sites that play now, this one included, and those of whose leaving no event has told yet.
    pub fn players(&self) -> SiteSet {
        let leaves = |peer: &Peer| matches!(peer.seat, Seat::Leaving(_)) && !self.left_sites.contains(peer.site);
        let leaving = self.peers.iter().filter(|peer| leaves(peer)).map(|peer| peer.site);
        leaving.chain(self.voters().iter()).collect()
    }

    /// Whether [`Session::continue_alone`] would let the game go on: it waits for inputs, and every player that it waits for was silent for
    /// longer than [`Config::drop_after`](super::Config::drop_timeout), or for 3 s where that sets no limit.
    pub fn can_continue_alone(&self, now: Instant) -> bool {
        self.may_continue_alone(now + self.clock_set_back)
    }

    /// Goes on without all silent players although no quorum decides that. They may go on, too, and play another game; so this is for
    /// a person to decide. Returns whether it was possible. When the sites meet again one of the games is kept, see [`Event::SplitBrainResolved`].
    pub fn continue_alone(&mut self, now: Instant) -> bool {
        let now = self.note_call_time(now);
        // A site that is to play by now is dropped with the others.
        self.apply_due_command();
        if !self.may_continue_alone(now) {
            return false;
        }
        let decision = self.decision_without_quorum();
        self.split_brain.abandoned_sites = self.split_brain.abandoned_sites.union(decision.drop);
        self.apply_decision(decision);
        self.close_silent_seats(decision.drop);
        true
    }

    fn may_continue_alone(&self, now: Instant) -> bool {
        let limit = self.config.drop_timeout.unwrap_or(DEFAULT_SILENCE_LIMIT);
        let holds_up = |peer: &&Peer| peer.known_end() < Frame::NEVER;
        let silent = |peer: &Peer| peer.is_dropped || peer.silence(now) > limit;
        let can_be_ended = |peer: &Peer| peer.is_awaited() || peer.lacks_last_inputs();
        self.is_running()
            && self.leaving.is_none()
            && self.peers.iter().any(can_be_ended)
            && self.peers.iter().filter(holds_up).all(silent)
    }

    /// Drops all whose inputs are awaited, with what is here of them.
    fn decision_without_quorum(&self) -> MembershipDecision {
        let awaited = || self.peers.iter().filter(|peer| peer.is_awaited());
        let mut decision = MembershipDecision::dropping(awaited().map(|peer| peer.site).collect());
        awaited().for_each(|peer| decision.input_ends[peer.site.index()] = peer.known_end());
        let MembershipDecision { drop, input_ends: lasts, .. } = decision;
        decision.command =
            self.command.filter(|order| drop.contains(order.issuer) && order.frame < lasts[order.issuer.index()]);
        decision
    }

    /// Nobody brings what is missing of sites that were dropped before; and those that were silent need no more ticks.
    fn close_silent_seats(&mut self, silent: SiteSet) {
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.lacks_last_inputs() {
                let known = peer.known_end();
                peer.seat = Seat::Leaving(peer.inputs.end());
                self.check_predictions(index, known);
            }
            let peer = &mut self.peers[index];
            if let Seat::Leaving(last) = peer.seat
                && silent.contains(peer.site)
            {
                peer.seat = Seat::Free(last);
                self.active_peers &= !(1 << index);
            }
        }
    }

    /// Whether nobody else plays, or is about to.
    fn is_alone(&self) -> bool {
        !self.peers.iter().any(|peer| peer.is_playing() || peer.join_frame.is_some())
    }

    /// Calls those that the game went on without, and gives it up where that is decided.
    pub(super) fn update_split_brain(&mut self, now: Instant) {
        if self.split_brain.abandoned_sites.is_empty() || self.leaving.is_some() {
            return;
        }
        if self.split_brain.yield_at.is_some_and(|at| at <= now) || self.is_awaited_by_quorum(now) {
            return self.end_session(SessionEnd::Dropped);
        }
        let still = self.peers.iter().filter(|peer| is_abandoned(peer)).map(|peer| peer.site).collect();
        self.split_brain.abandoned_sites = intersection(self.split_brain.abandoned_sites, still);
        self.split_brain.yielding_sites = intersection(self.split_brain.yielding_sites, still);
        let every = if self.split_brain.yield_at.is_some() { YIELD_HELLO_INTERVAL } else { SPLIT_HELLO_INTERVAL };
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if self.split_brain.abandoned_sites.contains(peer.site)
                && peer.lobby.join_readiness.is_none()
                && now - peer.last_sent_at >= every
            {
                self.schedule_hello(index);
            }
        }
    }

    /// Whether two or more of those left behind, a quorum of all, send ticks: they wait for us, and cannot go on before we yield.
    fn is_awaited_by_quorum(&self, now: Instant) -> bool {
        let waits = |peer: &&Peer| peer.lobby.has_played && now - peer.last_received_at < INPUT_SILENCE_LIMIT;
        let left_behind = self.peers.iter().filter(|peer| self.split_brain.abandoned_sites.contains(peer.site));
        let waiting: SiteSet = left_behind.filter(waits).map(|peer| peer.site).collect();
        let everyone = self.split_brain.abandoned_sites.union(SiteSet::from_iter([self.config.site]));
        waiting.iter().count() >= 2 && self.is_alone() && is_quorum_of(everyone, waiting)
    }

    /// What a hello tells a site that we went on alone without; `None` where that is nothing special.
    pub(super) fn refusal_for_abandoned(&self, index: usize) -> Option<Refusal> {
        let (peer, alone) = (&self.peers[index], &self.split_brain);
        let undecided = alone.abandoned_sites.contains(peer.site) && !alone.yielding_sites.contains(peer.site);
        let told = undecided && is_abandoned(peer) && !peer.was_restarted() && peer.lobby.join_readiness.is_none();
        let frame = if alone.yield_at.is_some() { Frame::ZERO } else { self.frame.max(Frame::ZERO.next()) };
        (told && self.is_alone()).then_some(Refusal::ContinuedAlone { frame })
    }

    /// A peer says that it went on without us. Returns whether that was about going on alone, and is dealt with.
    pub(super) fn handle_split_brain_refusal(
        &mut self,
        now: Instant,
        index: usize,
        hello: &Hello,
        reason: Refusal,
    ) -> bool {
        let peer = &self.peers[index];
        let ours = is_abandoned(peer) && hello.incarnation == peer.incarnation;
        match reason {
            Refusal::AlreadyRunning => false,
            Refusal::Dropped => {
                let yields = ours
                    && self.is_running()
                    && self.split_brain.abandoned_sites.contains(peer.site)
                    && self.is_alone();
                if yields {
                    self.yield_to(peer.site, now);
                }
                yields
            }
            Refusal::ContinuedAlone { .. } if self.phase == Phase::Lobby => false,
            Refusal::ContinuedAlone { frame } => {
                if ours && self.is_running() && self.leaving.is_none() {
                    self.resolve_split_brain(now, index, frame);
                } else if self.is_waiting_in_vain(now, index) {
                    self.end_session(SessionEnd::Dropped);
                }
                true
            }
        }
    }

    /// A site that we went on without went on alone, too.
    fn resolve_split_brain(&mut self, now: Instant, index: usize, frame: Frame) {
        let site = self.peers[index].site;
        self.split_brain.abandoned_sites.insert(site);
        if self.is_alone() {
            let (we_decide, ours) = (self.config.site < site, self.frame >= frame);
            if frame == Frame::ZERO || we_decide && ours {
                self.keep_own_game(site);
            } else if we_decide && self.split_brain.yield_at.is_none() {
                self.yield_to(site, now + YIELD_DURATION);
            }
        }
        self.schedule_hello(index);
    }

    /// Our game is kept, and that of this site is not.
    fn keep_own_game(&mut self, site: SiteId) {
        if !self.split_brain.yielding_sites.contains(site) {
            self.split_brain.yielding_sites.insert(site);
            self.events.push(Event::SplitBrainResolved { site, is_own_game_kept: true });
        }
    }

    /// Our game ends at this instant, because that of this site is kept.
    fn yield_to(&mut self, site: SiteId, at: Instant) {
        if self.split_brain.yield_at.is_none() {
            self.events.push(Event::SplitBrainResolved { site, is_own_game_kept: false });
        }
        self.split_brain.yield_at = Some(at);
        if at <= self.last_call {
            self.end_session(SessionEnd::Dropped);
        }
    }

    /// Whether we wait for a player that brings no inputs, and hear no other: then its word that it went on alone is believed.
    fn is_waiting_in_vain(&self, now: Instant, index: usize) -> bool {
        let unheard = |peer: &Peer| now - peer.last_input_at >= INPUT_SILENCE_LIMIT;
        let other =
            |peer: &&Peer| peer.site != self.peers[index].site && (peer.is_playing() || peer.join_frame.is_some());
        let plays = self.is_running() || self.phase == Phase::Joining && self.pacer.is_some();
        plays
            && self.leaving.is_none()
            && self.peers[index].is_playing()
            && unheard(&self.peers[index])
            && self.peers.iter().filter(other).all(|peer| unheard(peer) && peer.silence(now) >= INPUT_SILENCE_LIMIT)
    }

    /// The next packet to a peer is a hello.
    fn schedule_hello(&mut self, index: usize) {
        self.peers[index].lobby.is_hello_due = true;
        self.hello_pending = true;
        self.invalidate_send_time();
    }
}

/// Whether the game went on without a site, which has not come back.
fn is_abandoned(peer: &Peer) -> bool {
    peer.is_dropped && peer.join_frame.is_none()
}

fn intersection(some: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(some.bits() & others.bits())
}
