//! Scheduled commands: changes that all sites apply at the same frame. They travel in the input stream of the
//! coordinator, the lowest site that plays.
//!
//! A command is for a frame for which the coordinator has not given an input yet. Every tick of the coordinator carries
//! the command until the receiver has all inputs up to that frame, and so does every relay of those inputs. So a site
//! that knows the coordinator's input for the frame knows the command, and no site can confirm the frame without it.
//! There is one command at a time: the coordinator issues the next one when all sites have confirmed the frame of the
//! last.
//!
//! When the coordinator dies, its command stays in force if any survivor may have applied it; a change of the
//! [membership](super::membership) decides that.

use super::peer::Peer;
use super::{DelaySettings, Session, event::Event};
use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::STREAM_CAPACITY;
use crate::session::message::{CommandKind, ScheduledCommand};
use crate::time::TimeDelta;

/// Maximum distance between the end of the issuer's received inputs and the frame of its command, in frames: the
/// capacity of an input stream.
const MAX_COMMAND_DISTANCE: u32 = STREAM_CAPACITY as u32;

/// Upper bound for the travel time that a join command allows for. A site that was suspended measures delays that are
/// too long.
const MAX_JOIN_DELAY: TimeDelta = TimeDelta::from_secs(2);

/// Time that a host program gets to read the frames that the end of a membership epoch has confirmed.
const PUBLISH_TIME: TimeDelta = TimeDelta::from_millis(100);

impl Session {
    /// Returns whether a site can have issued a command: no site with a lower number plays. The issuer itself need not
    /// play any more, because it may have issued the command before it left.
    pub(super) fn can_issue_command(&self, issuer: SiteId) -> bool {
        self.peers.voters().iter().next().is_none_or(|lowest| issuer <= lowest)
    }

    /// Returns the joiner that the newest command admits, as long as some site may not have applied that command.
    pub(super) fn pending_joiner(&self) -> Option<SiteId> {
        match self.command?.kind {
            CommandKind::Join { site, .. } if !self.is_command_settled() => Some(site),
            _ => None,
        }
    }

    /// Returns whether all sites have certainly applied the newest command. A joiner has applied its own join as soon
    /// as its inputs arrive.
    fn is_command_settled(&self) -> bool {
        let Some(command) = self.command else { return true };
        let is_joiner = |peer: &Peer| matches!(command.kind, CommandKind::Join { site, .. } if site == peer.site());
        let is_settled = |peer: &Peer| {
            is_joiner(peer) && peer.inputs().end() > command.frame || self.has_confirmed(peer, command.frame)
        };
        self.peers.iter().filter(|peer| peer.is_playing()).all(is_settled)
    }

    /// Returns whether all players have confirmed a frame.
    fn all_have_confirmed(&self, frame: Frame) -> bool {
        self.peers.iter().filter(|peer| peer.is_playing()).all(|peer| self.has_confirmed(peer, frame))
    }

    /// Returns whether a peer has certainly confirmed a frame. A peer that has not confirmed it steps at most the
    /// prediction window past it, begins at most one more frame, and gives inputs at most the input delay past that. A
    /// new joiner gives inputs in advance, which prove nothing; then the frame that it reports counts.
    fn has_confirmed(&self, peer: &Peer, frame: Frame) -> bool {
        let max_end =
            frame + (self.delay_settings.input_delay + self.delay_settings.prediction_window).max(self.max_lead) + 1;
        !peer.has_advance_inputs() && peer.inputs().end() > max_end
            || peer.reported_frame() > frame + self.delay_settings.prediction_window + 1
    }

    /// Returns whether this site may issue a command: it is the coordinator and does not leave, and no command or
    /// ballot is under way.
    pub(super) fn can_schedule_command(&self) -> bool {
        self.command.is_none()
            && self.peers.is_coordinator()
            && self.membership.own_vote().is_none()
            && self.leaving.is_none()
    }

    /// Issues a command and returns `true`, if [`can_schedule_command`](Self::can_schedule_command) holds. The
    /// command's frame may be later than `frame`, never earlier.
    pub(super) fn schedule_command(&mut self, frame: Frame, kind: CommandKind) -> bool {
        if !self.can_schedule_command() {
            return false;
        }
        let frame = frame.max(self.own_inputs.end());
        self.accept_command(ScheduledCommand { issuer: self.config.site, frame, kind });
        true
    }

    /// Handles a command from a peer: its own, or that of a site whose inputs it relays.
    pub(super) fn on_command(&mut self, index: usize, command: ScheduledCommand) {
        let issuer = self.peers.iter().find(|peer| peer.site() == command.issuer);
        let counts = |peer: &Peer| peer.absent_from().is_none_or(|last| command.frame < last);
        let near = issuer.is_some_and(|peer| {
            (command.frame - peer.inputs().end()).abs() <= i64::from(MAX_COMMAND_DISTANCE) && counts(peer)
        });
        let is_muted = self.membership.muted().contains(command.issuer);
        let is_trusted = self.peers[index].site() == command.issuer
            || issuer.is_some_and(|peer| peer.needs_relay(self.clock.last_call(), is_muted));
        if near && is_trusted && !is_muted {
            self.accept_command(command);
        }
    }

    /// Accepts a command of the coordinator, or of a gone coordinator whose command is still in force. A command that
    /// is known, stale or redundant, or that changes the delay settings too much, is ignored.
    pub(super) fn accept_command(&mut self, command: ScheduledCommand) {
        if self.command == Some(command)
            || self.is_command_stale(&command)
            || !self.is_command_gradual(&command)
            || self.is_command_redundant(&command)
        {
            return;
        }
        self.settle_last_command(command.issuer);
        self.command = Some(command);
        if let CommandKind::Join { site, incarnation, .. } = command.kind {
            self.prepare_join(site, incarnation, command.frame);
        }
        // The command leaves with the next inputs; an extra packet is not needed.
        self.mark_extras_pending();
        self.invalidate_send_time();
    }

    /// Settles the previous command, unless it was applied before, when another one arrives. If both have the same
    /// issuer, the previous one is in force and is applied; if another site took over, it is void and reverted.
    fn settle_last_command(&mut self, next_issuer: SiteId) {
        let Some(last) =
            self.command.take().filter(|last| self.last_applied_command.is_none_or(|applied| applied < last.frame))
        else {
            return;
        };
        if last.issuer == next_issuer {
            self.last_applied_command = Some(last.frame);
            self.apply_command(last);
        } else {
            self.revert_command(last);
        }
    }

    /// Returns whether a command is not later than the newest applied one, or is for a confirmed frame: no site
    /// confirms a frame before it knows the command for that frame.
    fn is_command_stale(&self, command: &ScheduledCommand) -> bool {
        command.frame < self.confirmed_end() || self.last_applied_command.is_some_and(|frame| command.frame <= frame)
    }

    /// Returns whether a command admits a site that plays already, which includes this site unless it is admitted and
    /// does not play yet.
    fn is_command_redundant(&self, command: &ScheduledCommand) -> bool {
        let plays = |site: SiteId| self.peers.iter().any(|peer| peer.site() == site && peer.is_playing());
        let is_admitted = self.own_join_frame().is_some();
        let CommandKind::Join { site, .. } = command.kind else { return false };
        plays(site) || site == self.config.site && !is_admitted
    }

    /// Returns whether a command changes the delay settings by at most one frame. A larger change would ask for many
    /// inputs at once.
    fn is_command_gradual(&self, command: &ScheduledCommand) -> bool {
        let CommandKind::SetDelay { input_delay, prediction_window, .. } = command.kind else { return true };
        let near = |settings: &DelaySettings| {
            settings.input_delay.abs_diff(input_delay) <= 1
                && settings.prediction_window.abs_diff(prediction_window) <= 1
        };
        near(&self.delay_settings) || self.next_delay_settings.as_ref().is_some_and(near)
    }

    /// Prepares the seat of a joiner, which plays from this frame on.
    fn prepare_join(&mut self, site: SiteId, incarnation: u32, frame: Frame) {
        let own_width = self.layout.width();
        let Some(index) = self.peers.iter().position(|peer| peer.site() == site) else { return };
        if self.peers[index].is_playing() {
            return;
        }
        self.reports.on_seat_taken(site);
        // The joiner's inputs may replace the last inputs of the seat's previous player.
        if self.joining.is_none() {
            self.feed_confirmed();
        }
        // The coordinator did not know that the joiner has left.
        let has_left = self.lobby.has_left(index) && self.peers[index].newest_incarnation() == incarnation;
        let now = self.clock.last_call();
        self.peers[index].admit(now, frame, own_width, incarnation, has_left);
        // A joiner may get the first inputs of another joiner with the feed alone.
        self.on_seat_taken(index, frame, self.joining.is_none());
        if let Some(tuner) = &mut self.auto_tuner {
            tuner.forget_site(site);
        }
        if let Some(search) = &mut self.desync_search {
            search.restart();
        }
        self.sending.set_active(index, true);
        // As at the start: a late first packet would look like a long delay.
        let delay = self.peers[index].clock().rtt_min().unwrap_or_default() / 2;
        self.schedule.on_delay(now, site, delay);
        // Frames that were stepped without the joiner count as predicted.
        self.predictions[index].fill(self.peers[index].absence_input());
        self.check_predictions(index, frame);
    }

    /// Informs the parts that keep state of each peer that a seat is taken from frame `first` on.
    pub(super) fn on_seat_taken(&mut self, index: usize, first: Frame, are_inputs_complete: bool) {
        self.slow_peers.on_seat_taken(index);
        self.membership.set_void_join(index, None);
        self.lobby.on_seat_taken(index);
        self.comparison.on_seat_taken(index, first, are_inputs_complete);
    }

    /// Reverts the preparations for a void command.
    pub(super) fn revert_command(&mut self, command: ScheduledCommand) {
        let CommandKind::Join { site, .. } = command.kind else { return };
        if self.is_own_join(&command) {
            return self.revoke_own_admission(command);
        }
        let prepared = |peer: &Peer| peer.site() == site && peer.join_frame() == Some(command.frame);
        let Some(index) = self.peers.iter().position(prepared) else { return };
        // Confirmed frames contain at most the joiner's first inputs, which are neutral.
        let open = self.confirmed_end().max(command.frame);
        self.peers[index].void_join();
        self.membership.set_void_join(index, Some(command.frame));
        self.lobby.forget_join_request(index);
        self.sending.set_active(index, false);
        if open < self.machine_frame {
            // Frames with predicted inputs may contain its inputs.
            self.first_misprediction = Some(self.first_misprediction.map_or(open, |first| first.min(open)));
        }
    }

    /// Applies the newest command when it is due, or voids it if its issuer gives no input for its frame; forgets it
    /// once all sites have applied it. Then admits a joiner if this site is the coordinator.
    pub(super) fn update_command(&mut self) {
        self.void_command_of_leaver();
        self.apply_due_command();
        if self.command.is_some_and(|command| self.is_command_due(&command)) && self.is_command_settled() {
            self.command = None;
            self.mark_extras_pending();
        }
        if self.can_schedule_command() {
            self.admit_joiner();
        }
    }

    /// Returns whether the issuer's input for the frame of a command is known.
    fn is_command_due(&self, command: &ScheduledCommand) -> bool {
        let issuer = self.peers.iter().find(|peer| peer.site() == command.issuer);
        issuer.map_or(self.own_inputs.end(), |peer| peer.inputs().end()) > command.frame
    }

    /// Applies the newest command once, if the issuer's input for its frame is known.
    pub(super) fn apply_due_command(&mut self) {
        let Some(command) = self.command.filter(|command| self.is_command_due(command)) else { return };
        if self.last_applied_command.is_none_or(|last| last < command.frame) {
            self.last_applied_command = Some(command.frame);
            self.apply_command(command);
        }
    }

    /// Voids the newest command if its issuer leaves before the command's frame, and so gives no input for that frame.
    pub(super) fn void_command_of_leaver(&mut self) {
        let Some(command) = self.command else { return };
        let issuer = self.peers.iter().find(|peer| peer.site() == command.issuer);
        if let Some(last) = issuer.and_then(Peer::absent_from) {
            self.void_command_after(command.issuer, last);
        }
    }

    /// Returns whether a command admits this site.
    pub(super) fn is_own_join(&self, command: &ScheduledCommand) -> bool {
        matches!(command.kind, CommandKind::Join { site, .. } if site == self.config.site)
    }

    /// Voids the command of `issuer`, whose inputs end before `last`, if the command's frame is not earlier and it was
    /// not applied.
    pub(super) fn void_command_after(&mut self, issuer: SiteId, last: Frame) {
        // A joiner counts the command that admits it as applied from the start.
        let is_applied =
            |command: &ScheduledCommand| self.last_applied_command == Some(command.frame) && !self.is_own_join(command);
        let void =
            |command: &ScheduledCommand| command.issuer == issuer && command.frame >= last && !is_applied(command);
        if let Some(command) = self.command.filter(void) {
            self.command = None;
            self.revert_command(command);
        }
    }

    fn apply_command(&mut self, command: ScheduledCommand) {
        match command.kind {
            CommandKind::Join { site, .. } => self.complete_join(site, command.frame),
            CommandKind::SetDelay { input_delay, prediction_window, input_age, site } => {
                self.schedule_delay_settings(command.frame, input_delay, prediction_window);
                self.push_delay_event(command.frame, input_delay, prediction_window, (input_age, site));
            }
        }
    }

    /// Completes a join: the site plays from now on, unless its join was reverted or already completed.
    fn complete_join(&mut self, site: SiteId, frame: Frame) {
        let expected = |peer: &Peer| peer.site() == site && peer.join_frame() == Some(frame);
        let Some(index) = self.peers.iter().position(expected) else { return };
        let peer = &mut self.peers[index];
        let leaves = peer.complete_join();
        self.peers.on_return(site);
        // A leaving site does not follow the others' decisions, and the command may be void.
        if self.leaving.is_none() {
            self.events.push(Event::Joined { site, frame });
        }
        self.choose_pace_setter();
        if let Some(last) = leaves {
            self.apply_leave(index, last);
        }
    }

    /// Returns whether all frames before `last` are in the feed, if there is one, and the host program had time to read
    /// the frames that the end of the last membership epoch has confirmed.
    fn has_published(&self, last: Frame) -> bool {
        let is_fed = self.feed.is_none() || self.feed_end >= last;
        is_fed && self.membership.is_epoch_older_than(self.clock.last_call(), PUBLISH_TIME)
    }

    /// As the coordinator, admits a joiner that is ready to play.
    fn admit_joiner(&mut self) {
        let playing = self.peers.voters();
        let lead_frames = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        let lead = self.config.settings.rate.period() * i64::from(lead_frames);
        let ready = |(index, peer): (usize, &Peer)| {
            // The inputs of a joiner replace those of the seat's previous player, so these must be confirmed
            // everywhere.
            let is_confirmed =
                |last: Frame| self.confirmed_end() >= last && self.all_have_confirmed(last) && self.has_published(last);
            let is_complete = peer.absent_from().is_some_and(is_confirmed);
            self.lobby.is_ready_to_join(index, self.clock.last_call(), playing)
                && is_complete
                && (self.config.stall_limit.is_none()
                    || self.slow_peers.can_rejoin(self.clock.last_call(), (index, peer), lead))
        };
        let mut free_seats = self.peers.iter().enumerate().filter(|(_, peer)| !peer.has_seat());
        let Some((_, peer)) = free_seats.find(|(index, peer)| ready((*index, peer))) else { return };
        let (site, incarnation, free_from) = (peer.site(), peer.newest_incarnation(), peer.seat_free_from());
        let period = self.schedule.period().unwrap_or(self.config.settings.rate.period());
        // Time for the command to reach all sites, and for the joiner's first inputs to arrive in time. Where the links
        // slow down the game, it passes in fewer frames.
        let travel_time = (self.peers.max_rtt_with_jitter() * 2).min(MAX_JOIN_DELAY);
        let frames = travel_time.as_nanos() / period.as_nanos().max(1) + 10;
        // The joiner has no inputs of sites that left: all of them must be for frames before its first one.
        let last_inputs_end = self.peers.iter().filter_map(Peer::absent_from).max().unwrap_or(free_from);
        let frame = (self.own_inputs.end() + frames.clamp(0, 240) as u32).max(free_from).max(last_inputs_end);
        let (epoch, input_delay, prediction_window) =
            (self.membership.epoch(), self.delay_settings.input_delay, self.delay_settings.prediction_window);
        self.schedule_command(
            frame,
            CommandKind::Join { site, incarnation, members: playing, epoch, input_delay, prediction_window },
        );
    }
}
