//! Orders: what must happen at one frame everywhere rides in the input stream of the coordinator, the lowest site that plays.
//!
//! An order is for a frame for which the coordinator has not given an input yet. Every tick of the coordinator's carries the order
//! until its receiver has all inputs up to that frame, and so does who passes those inputs on; so whoever knows the coordinator's input for the frame knows the order, and
//! nobody can be certain of the frame without. There is one order at a time: the next is given when everybody has certainly acted on
//! the last.
//!
//! When the coordinator dies, its order stays in force if any survivor may have acted on it; a change of the
//! [view](super::view) settles that.

use super::chain::Chain;
use super::lobby::ALIVE;
use super::peer::{Peer, Seat};
use super::{Dials, Session, event::Event};
use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::CAPACITY;
use crate::time::TimeDelta;
use crate::wire::{Order, What};

/// No order is for a frame further away than inputs are kept.
const REACH: u32 = CAPACITY as u32;

/// Who is let in sits down within about this, however long the ways seem: a site that was asleep has strange ideas of them.
const SOON: TimeDelta = TimeDelta::from_secs(2);

/// Within this time a host program has asked for the frames that became certain when a view ended.
const TOLD: TimeDelta = TimeDelta::from_millis(100);

impl Session {
    /// Whether it is on us to give orders.
    pub(super) fn is_coordinator(&self) -> bool {
        self.voters().iter().next() == Some(self.config.site)
    }

    /// Whether a site can have given an order: no lower site plays. One who played and has left can have given orders before that.
    pub(super) fn may_order(&self, by: SiteId) -> bool {
        self.voters().iter().next().is_none_or(|lowest| by <= lowest)
    }

    /// A site that not everybody may know of yet.
    pub(super) fn newcomer(&self) -> Option<SiteId> {
        match self.order?.what {
            What::Join { site, .. } if !self.is_settled() => Some(site),
            _ => None,
        }
    }

    /// Whether all sites have certainly acted on the newest order. Whom it lets in has, as soon as it is heard.
    fn is_settled(&self) -> bool {
        let Some(order) = self.order else { return true };
        let newcomer = |peer: &Peer| matches!(order.what, What::Join { site, .. } if site == peer.site);
        let settled =
            |peer: &Peer| newcomer(peer) && peer.inputs.end() > order.frame || self.is_certain_of(peer, order.frame);
        self.peers.iter().filter(|peer| peer.is_playing()).all(settled)
    }

    /// Whether all who play are certain of a frame.
    fn all_are_certain_of(&self, frame: Frame) -> bool {
        self.peers.iter().filter(|peer| peer.is_playing()).all(|peer| self.is_certain_of(peer, frame))
    }

    /// Whether a peer is certain of a frame. Who is not steps no more than the window from there on, and has begun one frame more and
    /// given the input for that, the lag later. Who has just come gives inputs in advance, which prove nothing; then it counts
    /// in which frame it says to be.
    fn is_certain_of(&self, peer: &Peer, frame: Frame) -> bool {
        let most = frame + (self.dials.lag + self.dials.window).max(self.most_reach) + 1;
        !peer.ahead && peer.inputs.end() > most || peer.frame > frame + self.dials.window + 1
    }

    /// Whether it is on us to give an order, and nothing else is under way.
    pub(super) fn can_give_order(&self) -> bool {
        self.order.is_none() && self.is_coordinator() && self.view.vote.is_none() && self.leaving.is_none()
    }

    /// Gives an order if none is under way; the frame may be put off, never brought forward.
    pub(super) fn give_order(&mut self, frame: Frame, what: What) -> bool {
        if !self.can_give_order() {
            return false;
        }
        let frame = frame.max(self.own.end());
        self.take_order(Order { by: self.config.site, frame, what });
        true
    }

    /// A peer tells an order: its own, or that of a site whose inputs it passes on.
    pub(super) fn hear_order(&mut self, index: usize, order: Order) {
        let by = self.peers.iter().find(|peer| peer.site == order.by);
        let counts = |peer: &Peer| peer.last().is_none_or(|last| order.frame < last);
        let near = by.is_some_and(|peer| (order.frame - peer.inputs.end()).abs() <= i64::from(REACH) && counts(peer));
        let told = self.peers[index].site == order.by || by.is_some_and(|peer| self.is_missed(self.called, peer));
        if near && told && !self.view.deaf_to.contains(order.by) {
            self.take_order(order);
        }
    }

    /// An order is heard of: of the coordinator, or of one that is gone and in force nevertheless.
    pub(super) fn take_order(&mut self, order: Order) {
        if self.order == Some(order) || self.is_old(&order) || !self.is_gentle(&order) || self.is_pointless(&order) {
            return;
        }
        self.settle_last_order(order.by);
        self.order = Some(order);
        if let What::Join { site, incarnation, .. } = order.what {
            self.expect(site, incarnation, order.frame);
        }
        // It leaves with the next inputs: a packet more would be one that nobody needs.
        self.talk();
        self.look_again();
    }

    /// Another order shows what became of the one before: its giver went on after it, or it was void when another took over.
    fn settle_last_order(&mut self, next_giver: SiteId) {
        let Some(last) = self.order.take().filter(|last| self.carried_out.is_none_or(|done| done < last.frame)) else {
            return;
        };
        if last.by == next_giver {
            self.carried_out = Some(last.frame);
            self.carry_out_order(last);
        } else {
            self.undo(last);
        }
    }

    /// Whether an order was carried out already, or comes when it cannot be any more: nobody is certain of a frame before its order.
    fn is_old(&self, order: &Order) -> bool {
        order.frame < self.certain() || self.carried_out.is_some_and(|frame| order.frame <= frame)
    }

    /// Whether an order lets in who plays already.
    fn is_pointless(&self, order: &Order) -> bool {
        let plays = |site: SiteId| self.peers.iter().any(|peer| peer.site == site && peer.is_playing());
        let on_the_way_in = self.seat_to_take().is_some();
        matches!(order.what, What::Join { site, .. } if plays(site) || site == self.config.site && !on_the_way_in)
    }

    /// Whether an order asks for no more than one frame at a time: dials that jump would ask for many inputs at once.
    fn is_gentle(&self, order: &Order) -> bool {
        let What::Dials { lag, window, .. } = order.what else { return true };
        let near = |dials: &Dials| dials.lag.abs_diff(lag) <= 1 && dials.window.abs_diff(window) <= 1;
        near(&self.dials) || self.turning.as_ref().is_some_and(near)
    }

    /// A site takes its seat with this frame.
    fn expect(&mut self, site: SiteId, incarnation: u32, frame: Frame) {
        let own_width = self.layout.width();
        let Some(index) = self.peers.iter().position(|peer| peer.site == site) else { return };
        if self.peers[index].is_playing() {
            return;
        }
        self.forget_leave_reports(site);
        // Its inputs from this frame on may take the place of its last ones.
        if self.joining.is_none() {
            self.feed_certain();
        }
        let peer = &mut self.peers[index];
        let known = frame;
        let said_goodbye = peer.lobby.left && peer.newest_incarnation == incarnation;
        peer.earlier_incarnation = peer.incarnation;
        peer.sit_down(frame, own_width, true);
        if self.joining.is_some() {
            // Its first inputs may come with the feed alone.
            peer.chain = Chain::unknown(frame);
        }
        // The coordinator had not heard that. It leaves before its first frame.
        peer.leaves = said_goodbye.then_some(frame);
        peer.heard = self.called;
        peer.incarnation = incarnation;
        peer.newest_incarnation = peer.newest_incarnation.max(incarnation);
        peer.probe_soon();
        if let Some(auto) = &mut self.auto {
            auto.forget(site);
        }
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.begin_anew();
        }
        self.listeners |= 1 << index;
        if let Some(pacer) = &mut self.pacer {
            // As at the start: a first packet that comes late would be taken for a long way.
            pacer.on_delay(self.called, site, peer.clock.rtt_min().unwrap_or_default() / 2);
        }
        // Frames that were stepped without it count as guessed.
        let Peer { guesses, before, inputs, .. } = peer;
        guesses.fill(&before[..inputs.blocks()]);
        self.check_guesses(index, known);
    }

    /// An order is void: what was prepared for it is taken back.
    pub(super) fn undo(&mut self, order: Order) {
        let What::Join { site, .. } = order.what else { return };
        let prepared = |peer: &Peer| peer.site == site && peer.joins == Some(order.frame);
        let Some(index) = self.peers.iter().position(prepared) else { return };
        // What is certain rests on its first inputs at most, which are none.
        let open = self.certain().max(order.frame);
        let peer = &mut self.peers[index];
        (peer.joins, peer.leaves) = (None, None);
        peer.dropped = true;
        // If it never heard of the order, it goes on asking, and is to be let in by another.
        (peer.incarnation, peer.lobby.joining) = (peer.earlier_incarnation, None);
        self.listeners &= !(1 << index);
        if open < self.at {
            // Its inputs may be in frames that rest on guesses.
            self.wrong = Some(self.wrong.map_or(open, |wrong| wrong.min(open)));
        }
    }

    /// Carries out the newest order when its time has come, and gives the next if that is on us.
    pub(super) fn watch_order(&mut self) {
        self.forget_order_of_leaver();
        self.act_on_order();
        if self.order.is_some_and(|order| self.is_reached(&order)) && self.is_settled() {
            self.order = None;
            self.talk();
        }
        if self.can_give_order() {
            self.admit();
        }
    }

    /// Whether the input of its giver for the frame of an order is known.
    fn is_reached(&self, order: &Order) -> bool {
        let giver = self.peers.iter().find(|peer| peer.site == order.by);
        giver.map_or(self.own.end(), |peer| peer.inputs.end()) > order.frame
    }

    /// Carries out the newest order if its time has come.
    pub(super) fn act_on_order(&mut self) {
        let Some(order) = self.order.filter(|order| self.is_reached(order)) else { return };
        if self.carried_out.is_none_or(|last| last < order.frame) {
            self.carried_out = Some(order.frame);
            self.carry_out_order(order);
        }
    }

    /// An order for a frame that its giver has no input for, because it leaves before, is void.
    pub(super) fn forget_order_of_leaver(&mut self) {
        let Some(order) = self.order else { return };
        let giver = self.peers.iter().find(|peer| peer.site == order.by);
        if let Some(last) = giver.and_then(Peer::last) {
            self.void_order_after(order.by, last);
        }
    }

    /// The inputs of a site end before this frame, and so do its orders.
    pub(super) fn void_order_after(&mut self, giver: SiteId, last: Frame) {
        let void = |order: &Order| order.by == giver && order.frame >= last && self.carried_out != Some(order.frame);
        if let Some(order) = self.order.filter(void) {
            self.order = None;
            self.undo(order);
        }
    }

    fn carry_out_order(&mut self, order: Order) {
        match order.what {
            What::Join { site, .. } => self.seat(site, order.frame),
            What::Dials { lag, window, need, site } => {
                self.turn_dials(order.frame, lag, window);
                self.tell_dials(order.frame, lag, window, (need, site));
            }
        }
    }

    /// A site plays from now on, unless it has left again or has its seat anyway.
    fn seat(&mut self, site: SiteId, frame: Frame) {
        let expected = |peer: &Peer| peer.site == site && peer.joins == Some(frame);
        let Some(index) = self.peers.iter().position(expected) else { return };
        let peer = &mut self.peers[index];
        (peer.seat, peer.joins) = (Seat::Playing, None);
        let leaves = peer.leaves.take();
        self.left.remove(site);
        self.events.push(Event::Joined { site, frame });
        self.choose_pace_setter();
        if let Some(last) = leaves {
            self.take_leave(index, last);
        }
    }

    /// Whether all inputs before a frame that is certain are in the feed, and the host program had time to ask for them.
    fn has_told(&self, last: Frame) -> bool {
        let fed = self.feed.is_none() || self.fed >= last;
        fed && self.view_is_older_than(self.called, TOLD)
    }

    /// The coordinator lets in a site that is ready to play.
    fn admit(&mut self) {
        let playing = self.voters();
        let ready = |peer: &&Peer| {
            // With its inputs from then on, a seat forgets those of who had it before.
            let certain = |last: Frame| self.certain() >= last && self.all_are_certain_of(last) && self.has_told(last);
            let all_there = peer.last().is_some_and(certain);
            peer.lobby.joining == Some(true)
                && !peer.lobby.left
                && peer.lobby.asked_at.is_some_and(|at| self.called - at < ALIVE)
                && peer.lobby.agreed
                && peer.lobby.agrees_with.contains_all(playing)
                && all_there
                && self.is_in_time(peer)
        };
        let Some(peer) = self.peers.iter().filter(|peer| !peer.is_playing() && peer.joins.is_none()).find(ready) else {
            return;
        };
        let (site, incarnation, free_from) = (peer.site, peer.newest_incarnation, peer.free_from);
        let slowest =
            self.peers.iter().map(|peer| peer.clock.rtt().unwrap_or_default() + peer.clock.jitter() * 4).max();
        let period = self.config.settings.rate.period();
        // Time for the order to reach everybody, and for the newcomer's first inputs to be there in time.
        let ways = (slowest.unwrap_or_default() * 2).min(SOON);
        let frames = ways.as_nanos() / period.as_nanos().max(1) + 10;
        // The newcomer has no inputs of those who left: all of them must be in frames before its first.
        let complete = self.peers.iter().filter_map(Peer::last).max().unwrap_or(free_from);
        let frame = (self.own.end() + frames.clamp(0, 240) as u32).max(free_from).max(complete);
        let (view, lag, window) = (self.view.number, self.dials.lag, self.dials.window);
        self.give_order(frame, What::Join { site, incarnation, members: playing, view, lag, window });
    }
}
