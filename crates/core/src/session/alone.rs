//! The last player left: going on alone without a quorum, and meeting the others again.
//!
//! A site that is not part of a quorum waits, because the silent sites may have gone on without it. The person in front of it can decide
//! otherwise: [`Session::go_on_alone`] drops the silent sites with the inputs that are here. The sites may then play two different games,
//! so a site that went on alone calls each dropped site once per second with [`Refusal::Alone`]. When two sites meet again:
//!
//! 1. Both went on alone: the game that has reached the later frame is kept, of equal ones that of the lower site. Both games go on while
//!    they are compared, so the lower site alone decides. It says [`Refusal::Dropped`] to keep its game, or a frame of 0 to give it up.
//! 2. The receiver still waits: it believes the sender if it hears no inputs of the sender and no other player. To refuse would gain
//!    nothing, because the sender does not play with it any more.
//! 3. The receiver plays with others: it says that the game goes on without the sender, which gives its own game up. Nothing that one
//!    site says evicts a site that hears another player.
//! 4. Two or more sites, a quorum of those left behind, still wait for the sender: the sender gives its game up.
//!
//! The site that gives its game up ends with [`End::Dropped`], and its host program lets it join the other game.

use super::event::{End, Event};
use super::peer::{Peer, Seat};
use super::view::is_quorum_of;
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::time::{Instant, TimeDelta};
use crate::wire::{Decision, Hello, Refusal};

/// Interval of the calls to a site that the game went on without.
const CALL_EVERY: TimeDelta = TimeDelta::from_secs(1);
/// Interval of the calls that announce that a site gives its game up, and the time for which it announces that.
const YIELD_EVERY: TimeDelta = TimeDelta::from_millis(200);
const YIELD_FOR: TimeDelta = TimeDelta::from_secs(1);
/// A player whose newest input is older than this is not heard.
const UNHEARD: TimeDelta = TimeDelta::from_secs(1);
/// Silence after which a person may go on alone where [`Config::drop_after`](super::Config::drop_after) sets no limit.
const SILENCE: TimeDelta = TimeDelta::from_secs(3);

/// Whom a site went on without, and what came of meeting again.
#[derive(Debug, Default)]
pub(super) struct Alone {
    /// Sites that were dropped without a quorum, or that went on alone themselves.
    without: SiteSet,
    /// Sites of these that give their game up for ours.
    kept_from: SiteSet,
    /// When we end our own game for that of another site.
    yields_at: Option<Instant>,
}

impl Alone {
    /// Whether there is nobody that the game went on without.
    pub(super) fn is_quiet(&self) -> bool {
        self.without.is_empty()
    }
}

impl Session {
    /// The sites that play now, this one included, and those of whose leaving no event has told yet.
    pub fn players(&self) -> SiteSet {
        let leaves = |peer: &Peer| matches!(peer.seat, Seat::Leaving(_)) && !self.left.contains(peer.site);
        let leaving = self.peers.iter().filter(|peer| leaves(peer)).map(|peer| peer.site);
        leaving.chain(self.voters().iter()).collect()
    }

    /// Whether [`Session::go_on_alone`] would let the game go on: it waits for inputs, and every player that it waits for was silent for
    /// longer than [`Config::drop_after`](super::Config::drop_after), or for 3 s where that sets no limit.
    pub fn can_go_on_alone(&self, now: Instant) -> bool {
        self.may_go_on_alone(now + self.set_back)
    }

    /// Goes on without all silent players although no quorum decides that. They may go on, too, and play another game; so this is for
    /// a person to decide. Returns whether it was possible. When the sites meet again one of the games is kept, see [`Event::BothAlone`].
    pub fn go_on_alone(&mut self, now: Instant) -> bool {
        let now = self.notice_sleep(now);
        // A site that is to play by now is dropped with the others.
        self.act_on_order();
        if !self.may_go_on_alone(now) {
            return false;
        }
        let decision = self.decide_alone();
        self.alone.without = self.alone.without.union(decision.drop);
        self.carry_out(decision);
        self.settle_alone(decision.drop);
        true
    }

    fn may_go_on_alone(&self, now: Instant) -> bool {
        let limit = self.config.drop_after.unwrap_or(SILENCE);
        let holds_up = |peer: &&Peer| peer.known_end() < Frame::LAST;
        let silent = |peer: &Peer| peer.dropped || peer.silence(now) > limit;
        let can_be_ended = |peer: &Peer| peer.is_awaited() || peer.is_incomplete();
        self.is_running()
            && self.leaving.is_none()
            && self.peers.iter().any(can_be_ended)
            && self.peers.iter().filter(holds_up).all(silent)
    }

    /// Drops all whose inputs are awaited, with what is here of them.
    fn decide_alone(&self) -> Decision {
        let awaited = || self.peers.iter().filter(|peer| peer.is_awaited());
        let mut decision = Decision::dropping(awaited().map(|peer| peer.site).collect());
        awaited().for_each(|peer| decision.lasts[peer.site.index()] = peer.known_end());
        let Decision { drop, lasts, .. } = decision;
        decision.order = self.order.filter(|order| drop.contains(order.by) && order.frame < lasts[order.by.index()]);
        decision
    }

    /// Nobody brings what is missing of sites that were dropped before; and those that were silent need no more ticks.
    fn settle_alone(&mut self, silent: SiteSet) {
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.is_incomplete() {
                let known = peer.known_end();
                peer.seat = Seat::Leaving(peer.inputs.end());
                self.check_guesses(index, known);
            }
            let peer = &mut self.peers[index];
            if let Seat::Leaving(last) = peer.seat
                && silent.contains(peer.site)
            {
                peer.seat = Seat::Free(last);
                self.listeners &= !(1 << index);
            }
        }
    }

    /// Whether nobody else plays, or is about to.
    fn is_alone(&self) -> bool {
        !self.peers.iter().any(|peer| peer.is_playing() || peer.joins.is_some())
    }

    /// Calls those that the game went on without, and gives it up where that is decided.
    pub(super) fn watch_alone(&mut self, now: Instant) {
        if self.alone.without.is_empty() || self.leaving.is_some() {
            return;
        }
        if self.alone.yields_at.is_some_and(|at| at <= now) || self.is_awaited_by_quorum(now) {
            return self.end(End::Dropped);
        }
        let still = self.peers.iter().filter(|peer| is_left_behind(peer)).map(|peer| peer.site).collect();
        self.alone.without = common(self.alone.without, still);
        self.alone.kept_from = common(self.alone.kept_from, still);
        let every = if self.alone.yields_at.is_some() { YIELD_EVERY } else { CALL_EVERY };
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if self.alone.without.contains(peer.site) && peer.lobby.joining.is_none() && now - peer.sent >= every {
                self.send_hello(index);
            }
        }
    }

    /// Whether two or more of those left behind, a quorum of all, send ticks: they wait for us, and cannot go on before we yield.
    fn is_awaited_by_quorum(&self, now: Instant) -> bool {
        let waits = |peer: &&Peer| peer.lobby.playing && now - peer.heard < UNHEARD;
        let left_behind = self.peers.iter().filter(|peer| self.alone.without.contains(peer.site));
        let waiting: SiteSet = left_behind.filter(waits).map(|peer| peer.site).collect();
        let everyone = self.alone.without.union(SiteSet::from_iter([self.config.site]));
        waiting.iter().count() >= 2 && self.is_alone() && is_quorum_of(everyone, waiting)
    }

    /// What a hello tells a site that we went on alone without; `None` where that is nothing special.
    pub(super) fn refusal_of_left_behind(&self, index: usize) -> Option<Refusal> {
        let (peer, alone) = (&self.peers[index], &self.alone);
        let undecided = alone.without.contains(peer.site) && !alone.kept_from.contains(peer.site);
        let told = undecided && is_left_behind(peer) && !peer.was_restarted() && peer.lobby.joining.is_none();
        let frame = if alone.yields_at.is_some() { Frame::ZERO } else { self.frame.max(Frame::ZERO.next()) };
        (told && self.is_alone()).then_some(Refusal::Alone { frame })
    }

    /// A peer says that it went on without us. Returns whether that was about going on alone, and is dealt with.
    pub(super) fn meet_again(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) -> bool {
        let peer = &self.peers[index];
        let ours = is_left_behind(peer) && hello.incarnation == peer.incarnation;
        match reason {
            Refusal::Running => false,
            Refusal::Dropped => {
                let yields = ours && self.is_running() && self.alone.without.contains(peer.site) && self.is_alone();
                if yields {
                    self.yield_to(peer.site, now);
                }
                yields
            }
            Refusal::Alone { .. } if self.phase == Phase::Lobby => false,
            Refusal::Alone { frame } => {
                if ours && self.is_running() && self.leaving.is_none() {
                    self.meet_alone(now, index, frame);
                } else if self.waits_in_vain(now, index) {
                    self.end(End::Dropped);
                }
                true
            }
        }
    }

    /// A site that we went on without went on alone, too.
    fn meet_alone(&mut self, now: Instant, index: usize, frame: Frame) {
        let site = self.peers[index].site;
        self.alone.without.insert(site);
        if self.is_alone() {
            let (we_decide, ours) = (self.config.site < site, self.frame >= frame);
            if frame == Frame::ZERO || we_decide && ours {
                self.keep_from(site);
            } else if we_decide && self.alone.yields_at.is_none() {
                self.yield_to(site, now + YIELD_FOR);
            }
        }
        self.send_hello(index);
    }

    /// Our game is kept, and that of this site is not.
    fn keep_from(&mut self, site: SiteId) {
        if !self.alone.kept_from.contains(site) {
            self.alone.kept_from.insert(site);
            self.events.push(Event::BothAlone { site, ours: true });
        }
    }

    /// Our game ends at this instant, because that of this site is kept.
    fn yield_to(&mut self, site: SiteId, at: Instant) {
        if self.alone.yields_at.is_none() {
            self.events.push(Event::BothAlone { site, ours: false });
        }
        self.alone.yields_at = Some(at);
        if at <= self.called {
            self.end(End::Dropped);
        }
    }

    /// Whether we wait for a player that brings no inputs, and hear no other: then its word that it went on alone is believed.
    fn waits_in_vain(&self, now: Instant, index: usize) -> bool {
        let unheard = |peer: &Peer| now - peer.inputs_at >= UNHEARD;
        let other = |peer: &&Peer| peer.site != self.peers[index].site && (peer.is_playing() || peer.joins.is_some());
        let plays = self.is_running() || self.phase == Phase::Joining && self.pacer.is_some();
        plays
            && self.leaving.is_none()
            && self.peers[index].is_playing()
            && unheard(&self.peers[index])
            && self.peers.iter().filter(other).all(|peer| unheard(peer) && peer.silence(now) >= UNHEARD)
    }

    /// The next packet to a peer is a hello.
    fn send_hello(&mut self, index: usize) {
        self.peers[index].lobby.hello_due = true;
        self.greetings = true;
        self.look_again();
    }
}

/// Whether the game went on without a site, which has not come back.
fn is_left_behind(peer: &Peer) -> bool {
    peer.dropped && peer.joins.is_none()
}

fn common(some: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(some.bits() & others.bits())
}
