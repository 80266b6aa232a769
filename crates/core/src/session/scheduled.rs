//! Orders: what must happen at one frame everywhere rides in the input stream of the coordinator, the lowest site that plays.
//!
//! An order is for a frame for which the coordinator has not given an input yet. Every tick of the coordinator's carries the order
//! until its receiver has all inputs up to that frame, and so does who passes those inputs on; so whoever knows the coordinator's input for the frame knows the order, and
//! nobody can be certain of the frame without. There is one order at a time: the next is given when everybody has certainly acted on
//! the last.
//!
//! When the coordinator dies, its order stays in force if any survivor may have acted on it; a change of the
//! [view](super::visible) settles that.

use super::input_digest::InputDigest;
use super::lobby::ALIVE_TIMEOUT;
use super::peer::{Peer, Seat};
use super::{DelaySettings, Session, event::Event};
use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::STREAM_CAPACITY;
use crate::time::TimeDelta;
use crate::wire::{CommandKind, ScheduledCommand};

/// No order is for a frame further away than inputs are kept.
const MAX_COMMAND_DISTANCE: u32 = STREAM_CAPACITY as u32;

/// Who is let in sits down within about this, however long the ways seem: a site that was asleep has strange ideas of them.
const MAX_JOIN_DELAY: TimeDelta = TimeDelta::from_secs(2);

/// Within this time a host program has asked for the frames that became certain when a view ended.
const PUBLISH_TIME: TimeDelta = TimeDelta::from_millis(100);

impl Session {
    /// Whether it is on us to give orders.
    pub(super) fn is_coordinator(&self) -> bool {
        self.voters().iter().next() == Some(self.config.site)
    }

    /// Whether a site can have given an order: no lower site plays. One who played and has left can have given orders before that.
    pub(super) fn can_issue_command(&self, by: SiteId) -> bool {
        self.voters().iter().next().is_none_or(|lowest| by <= lowest)
    }

    /// A site that not everybody may know of yet.
    pub(super) fn pending_joiner(&self) -> Option<SiteId> {
        match self.command?.kind {
            CommandKind::Join { site, .. } if !self.is_command_settled() => Some(site),
            _ => None,
        }
    }

    /// Whether all sites have certainly acted on the newest order. Whom it lets in has, as soon as it is heard.
    fn is_command_settled(&self) -> bool {
        let Some(order) = self.command else { return true };
        let newcomer = |peer: &Peer| matches!(order.kind, CommandKind::Join { site, .. } if site == peer.site);
        let settled =
            |peer: &Peer| newcomer(peer) && peer.inputs.end() > order.frame || self.has_confirmed(peer, order.frame);
        self.peers.iter().filter(|peer| peer.is_playing()).all(settled)
    }

    /// Whether all who play are certain of a frame.
    fn all_have_confirmed(&self, frame: Frame) -> bool {
        self.peers.iter().filter(|peer| peer.is_playing()).all(|peer| self.has_confirmed(peer, frame))
    }

    /// Whether a peer is certain of a frame. Who is not steps no more than the window from there on, and has begun one frame more and
    /// given the input for that, the lag later. Who has just come gives inputs in advance, which prove nothing; then it counts
    /// in which frame it says to be.
    fn has_confirmed(&self, peer: &Peer, frame: Frame) -> bool {
        let most =
            frame + (self.delay_settings.input_delay + self.delay_settings.prediction_window).max(self.max_lead) + 1;
        !peer.has_advance_inputs && peer.inputs.end() > most
            || peer.reported_frame > frame + self.delay_settings.prediction_window + 1
    }

    /// Whether it is on us to give an order, and nothing else is under way.
    pub(super) fn can_schedule_command(&self) -> bool {
        self.command.is_none() && self.is_coordinator() && self.membership.own_vote.is_none() && self.leaving.is_none()
    }

    /// Gives an order if none is under way; the frame may be put off, never brought forward.
    pub(super) fn schedule_command(&mut self, frame: Frame, what: CommandKind) -> bool {
        if !self.can_schedule_command() {
            return false;
        }
        let frame = frame.max(self.own_inputs.end());
        self.accept_command(ScheduledCommand { issuer: self.config.site, frame, kind: what });
        true
    }

    /// A peer tells an order: its own, or that of a site whose inputs it passes on.
    pub(super) fn on_command(&mut self, index: usize, order: ScheduledCommand) {
        let by = self.peers.iter().find(|peer| peer.site == order.issuer);
        let counts = |peer: &Peer| peer.absent_from().is_none_or(|last| order.frame < last);
        let near = by.is_some_and(|peer| {
            (order.frame - peer.inputs.end()).abs() <= i64::from(MAX_COMMAND_DISTANCE) && counts(peer)
        });
        let told =
            self.peers[index].site == order.issuer || by.is_some_and(|peer| self.needs_relay(self.last_call, peer));
        if near && told && !self.membership.muted.contains(order.issuer) {
            self.accept_command(order);
        }
    }

    /// An order is heard of: of the coordinator, or of one that is gone and in force nevertheless.
    pub(super) fn accept_command(&mut self, order: ScheduledCommand) {
        if self.command == Some(order)
            || self.is_command_stale(&order)
            || !self.is_command_gradual(&order)
            || self.is_command_redundant(&order)
        {
            return;
        }
        self.settle_last_command(order.issuer);
        self.command = Some(order);
        if let CommandKind::Join { site, incarnation, .. } = order.kind {
            self.prepare_join(site, incarnation, order.frame);
        }
        // It leaves with the next inputs: a packet more would be one that nobody needs.
        self.mark_extras_pending();
        self.invalidate_send_time();
    }

    /// Another order shows what became of the one before: its giver went on after it, or it was void when another took over.
    fn settle_last_command(&mut self, next_giver: SiteId) {
        let Some(last) =
            self.command.take().filter(|last| self.last_applied_command.is_none_or(|done| done < last.frame))
        else {
            return;
        };
        if last.issuer == next_giver {
            self.last_applied_command = Some(last.frame);
            self.apply_command(last);
        } else {
            self.revert_command(last);
        }
    }

    /// Whether an order was carried out already, or comes when it cannot be any more: nobody is certain of a frame before its order.
    fn is_command_stale(&self, order: &ScheduledCommand) -> bool {
        order.frame < self.confirmed_end() || self.last_applied_command.is_some_and(|frame| order.frame <= frame)
    }

    /// Whether an order lets in who plays already.
    fn is_command_redundant(&self, order: &ScheduledCommand) -> bool {
        let plays = |site: SiteId| self.peers.iter().any(|peer| peer.site == site && peer.is_playing());
        let on_the_way_in = self.own_join_frame().is_some();
        matches!(order.kind, CommandKind::Join { site, .. } if plays(site) || site == self.config.site && !on_the_way_in)
    }

    /// Whether an order asks for no more than one frame at a time: dials that jump would ask for many inputs at once.
    fn is_command_gradual(&self, order: &ScheduledCommand) -> bool {
        let CommandKind::SetDelay { input_delay: lag, prediction_window: window, .. } = order.kind else { return true };
        let near = |dials: &DelaySettings| {
            dials.input_delay.abs_diff(lag) <= 1 && dials.prediction_window.abs_diff(window) <= 1
        };
        near(&self.delay_settings) || self.next_delay_settings.as_ref().is_some_and(near)
    }

    /// A site takes its seat with this frame.
    fn prepare_join(&mut self, site: SiteId, incarnation: u32, frame: Frame) {
        let own_width = self.layout.width();
        let Some(index) = self.peers.iter().position(|peer| peer.site == site) else { return };
        if self.peers[index].is_playing() {
            return;
        }
        self.forget_leave_reports(site);
        // Its inputs from this frame on may take the place of its last ones.
        if self.joining.is_none() {
            self.feed_confirmed();
        }
        let peer = &mut self.peers[index];
        let known = frame;
        let said_goodbye = peer.lobby.has_left && peer.newest_incarnation == incarnation;
        peer.previous_incarnation = peer.incarnation;
        peer.reopen_seat(frame, own_width, true);
        if self.joining.is_some() {
            // Its first inputs may come with the feed alone.
            peer.input_digest = InputDigest::with_unknown_start(frame);
        }
        // The coordinator had not heard that. It leaves before its first frame.
        peer.leave_after_join = said_goodbye.then_some(frame);
        peer.last_received_at = self.last_call;
        peer.incarnation = incarnation;
        peer.newest_incarnation = peer.newest_incarnation.max(incarnation);
        peer.make_probe_due();
        if let Some(auto) = &mut self.auto_tuner {
            auto.forget_site(site);
        }
        if let Some(inquiry) = &mut self.desync_search {
            inquiry.restart();
        }
        self.active_peers |= 1 << index;
        if let Some(pacer) = &mut self.pacer {
            // As at the start: a first packet that comes late would be taken for a long way.
            pacer.on_delay(self.last_call, site, peer.clock.rtt_min().unwrap_or_default() / 2);
        }
        // Frames that were stepped without it count as guessed.
        let Peer { predictions: guesses, absence_input: before, inputs, .. } = peer;
        guesses.fill(&before[..inputs.block_count()]);
        self.check_predictions(index, known);
    }

    /// An order is void: what was prepared for it is taken back.
    pub(super) fn revert_command(&mut self, order: ScheduledCommand) {
        let CommandKind::Join { site, .. } = order.kind else { return };
        let prepared = |peer: &Peer| peer.site == site && peer.join_frame == Some(order.frame);
        let Some(index) = self.peers.iter().position(prepared) else { return };
        // What is certain rests on its first inputs at most, which are none.
        let open = self.confirmed_end().max(order.frame);
        let peer = &mut self.peers[index];
        (peer.join_frame, peer.leave_after_join) = (None, None);
        peer.is_dropped = true;
        // If it never heard of the order, it goes on asking, and is to be let in by another.
        (peer.incarnation, peer.lobby.join_readiness) = (peer.previous_incarnation, None);
        self.active_peers &= !(1 << index);
        if open < self.machine_frame {
            // Its inputs may be in frames that rest on guesses.
            self.first_misprediction = Some(self.first_misprediction.map_or(open, |wrong| wrong.min(open)));
        }
    }

    /// Carries out the newest order when its time has come, and gives the next if that is on us.
    pub(super) fn update_command(&mut self) {
        self.void_command_of_leaver();
        self.apply_due_command();
        if self.command.is_some_and(|order| self.is_command_due(&order)) && self.is_command_settled() {
            self.command = None;
            self.mark_extras_pending();
        }
        if self.can_schedule_command() {
            self.admit_joiner();
        }
    }

    /// Whether the input of its giver for the frame of an order is known.
    fn is_command_due(&self, order: &ScheduledCommand) -> bool {
        let giver = self.peers.iter().find(|peer| peer.site == order.issuer);
        giver.map_or(self.own_inputs.end(), |peer| peer.inputs.end()) > order.frame
    }

    /// Carries out the newest order if its time has come.
    pub(super) fn apply_due_command(&mut self) {
        let Some(order) = self.command.filter(|order| self.is_command_due(order)) else { return };
        if self.last_applied_command.is_none_or(|last| last < order.frame) {
            self.last_applied_command = Some(order.frame);
            self.apply_command(order);
        }
    }

    /// An order for a frame that its giver has no input for, because it leaves before, is void.
    pub(super) fn void_command_of_leaver(&mut self) {
        let Some(order) = self.command else { return };
        let giver = self.peers.iter().find(|peer| peer.site == order.issuer);
        if let Some(last) = giver.and_then(Peer::absent_from) {
            self.void_command_after(order.issuer, last);
        }
    }

    /// The inputs of a site end before this frame, and so do its orders.
    pub(super) fn void_command_after(&mut self, giver: SiteId, last: Frame) {
        let void = |order: &ScheduledCommand| {
            order.issuer == giver && order.frame >= last && self.last_applied_command != Some(order.frame)
        };
        if let Some(order) = self.command.filter(void) {
            self.command = None;
            self.revert_command(order);
        }
    }

    fn apply_command(&mut self, order: ScheduledCommand) {
        match order.kind {
            CommandKind::Join { site, .. } => self.complete_join(site, order.frame),
            CommandKind::SetDelay { input_delay: lag, prediction_window: window, input_age: need, site } => {
                self.schedule_delay_settings(order.frame, lag, window);
                self.push_delay_event(order.frame, lag, window, (need, site));
            }
        }
    }

    /// A site plays from now on, unless it has left again or has its seat anyway.
    fn complete_join(&mut self, site: SiteId, frame: Frame) {
        let expected = |peer: &Peer| peer.site == site && peer.join_frame == Some(frame);
        let Some(index) = self.peers.iter().position(expected) else { return };
        let peer = &mut self.peers[index];
        (peer.seat, peer.join_frame) = (Seat::Playing, None);
        let leaves = peer.leave_after_join.take();
        self.left_sites.remove(site);
        self.events.push(Event::Joined { site, frame });
        self.choose_pace_setter();
        if let Some(last) = leaves {
            self.apply_leave(index, last);
        }
    }

    /// Whether all inputs before a frame that is certain are in the feed, and the host program had time to ask for them.
    fn has_published(&self, last: Frame) -> bool {
        let fed = self.feed.is_none() || self.feed_end >= last;
        fed && self.is_epoch_older_than(self.last_call, PUBLISH_TIME)
    }

    /// The coordinator lets in a site that is ready to play.
    fn admit_joiner(&mut self) {
        let playing = self.voters();
        let ready = |peer: &&Peer| {
            // With its inputs from then on, a seat forgets those of who had it before.
            let certain =
                |last: Frame| self.confirmed_end() >= last && self.all_have_confirmed(last) && self.has_published(last);
            let all_there = peer.absent_from().is_some_and(certain);
            peer.lobby.join_readiness == Some(true)
                && !peer.lobby.has_left
                && peer.lobby.join_requested_at.is_some_and(|at| self.last_call - at < ALIVE_TIMEOUT)
                && peer.lobby.has_agreed
                && peer.lobby.agrees_with.contains_all(playing)
                && all_there
                && self.can_rejoin(peer)
        };
        let Some(peer) = self.peers.iter().filter(|peer| !peer.is_playing() && peer.join_frame.is_none()).find(ready)
        else {
            return;
        };
        let (site, incarnation, free_from) = (peer.site, peer.newest_incarnation, peer.seat_free_from);
        let slowest =
            self.peers.iter().map(|peer| peer.clock.rtt().unwrap_or_default() + peer.clock.jitter() * 4).max();
        let period = self.config.settings.rate.period();
        // Time for the order to reach everybody, and for the newcomer's first inputs to be there in time.
        let ways = (slowest.unwrap_or_default() * 2).min(MAX_JOIN_DELAY);
        let frames = ways.as_nanos() / period.as_nanos().max(1) + 10;
        // The newcomer has no inputs of those who left: all of them must be in frames before its first.
        let complete = self.peers.iter().filter_map(Peer::absent_from).max().unwrap_or(free_from);
        let frame = (self.own_inputs.end() + frames.clamp(0, 240) as u32).max(free_from).max(complete);
        let (view, lag, window) =
            (self.membership.epoch, self.delay_settings.input_delay, self.delay_settings.prediction_window);
        self.schedule_command(
            frame,
            CommandKind::Join {
                site,
                incarnation,
                members: playing,
                epoch: view,
                input_delay: lag,
                prediction_window: window,
            },
        );
    }
}
