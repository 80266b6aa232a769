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

use super::delay_settings::DelaySchedule;
use super::peer::Peer;
use super::peers::Peers;
use crate::frame::Frame;
use crate::id::SiteId;
use crate::input::STREAM_CAPACITY;
use crate::session::message::{CommandKind, MembershipDecision, ScheduledCommand};
use crate::time::TimeDelta;

/// Maximum distance between the end of the issuer's received inputs and the frame of its command, in frames: the
/// capacity of an input stream.
const MAX_COMMAND_DISTANCE: u32 = STREAM_CAPACITY as u32;
/// Upper bound for the travel time that a join command allows for. A site that was suspended measures delays that are
/// too long.
const MAX_JOIN_DELAY: TimeDelta = TimeDelta::from_secs(2);
/// Number of frames from the issue of a join command to its frame, besides its travel time.
const JOIN_MARGIN_FRAMES: i64 = 10;
/// Maximum number of frames from the issue of a join command to its frame.
const MAX_JOIN_FRAMES: i64 = 240;

/// The newest scheduled command.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// The scheduled command that some sites may not have applied yet.
    newest: Option<ScheduledCommand>,
    /// The frame of the newest command that was applied.
    last_applied: Option<Frame>,
}

/// What the commands read of this site.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandFacts<'a> {
    pub(super) peers: &'a Peers,
    pub(super) delays: &'a DelaySchedule,
    /// End of this site's inputs.
    pub(super) own_end: Frame,
    pub(super) confirmed: Frame,
    /// Whether this site is admitted and does not play yet.
    pub(super) is_admitted: bool,
}

/// The fate of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandFate {
    /// The command takes effect at its frame.
    Applied(ScheduledCommand),
    /// The command is void: its preparations have to be reverted.
    Void(ScheduledCommand),
}

impl Commands {
    /// Returns the command that some sites may not have applied yet.
    #[inline]
    pub(super) fn newest(&self) -> Option<ScheduledCommand> {
        self.newest
    }

    /// Notes the command that admits this site. A joiner counts it as applied from the start.
    pub(super) fn on_own_admission(&mut self, command: ScheduledCommand) {
        (self.newest, self.last_applied) = (Some(command), Some(command.frame));
    }

    /// Returns the joiner that the newest command admits, as long as some site may not have applied that command.
    pub(super) fn pending_joiner(&self, peers: &Peers, delays: &DelaySchedule) -> Option<SiteId> {
        match self.newest?.kind {
            CommandKind::Join { site, .. } if !self.is_settled(peers, delays) => Some(site),
            _ => None,
        }
    }

    /// Returns whether all sites have certainly applied the newest command. A joiner has applied its own join as soon
    /// as its inputs arrive.
    fn is_settled(&self, peers: &Peers, delays: &DelaySchedule) -> bool {
        let Some(command) = self.newest else { return true };
        let is_joiner = |peer: &Peer| matches!(command.kind, CommandKind::Join { site, .. } if site == peer.site());
        peers.playing().all(|peer| {
            is_joiner(peer) && peer.inputs().end() > command.frame || has_confirmed(peer, command.frame, delays)
        })
    }

    /// Returns whether a command of a peer, its own or that of a site whose inputs it relays, can count: it is near,
    /// and the issuer gives an input for its frame. `needs_relay` tells whether the issuer's inputs are relayed.
    pub(super) fn is_credible(
        command: &ScheduledCommand,
        from: SiteId,
        issuer: Option<&Peer>,
        needs_relay: bool,
    ) -> bool {
        let counts = |peer: &Peer| peer.absent_from().is_none_or(|last| command.frame < last);
        let is_near = |peer: &Peer| (command.frame - peer.inputs().end()).abs() <= i64::from(MAX_COMMAND_DISTANCE);
        issuer.is_some_and(|peer| is_near(peer) && counts(peer)) && (from == command.issuer || needs_relay)
    }

    /// Accepts a command of the coordinator, or of a gone coordinator whose command is still in force. A command that
    /// is known, stale or redundant, or that changes the delay settings too much, is ignored: returns `None`. Otherwise
    /// returns the fate of the previous command, unless it was applied before: if both have the same issuer, it is in
    /// force and is applied; if another site took over, it is void. The command counts from
    /// [`install`](Self::install) on.
    pub(super) fn accept(
        &mut self,
        command: ScheduledCommand,
        facts: &CommandFacts<'_>,
    ) -> Option<Option<CommandFate>> {
        if self.newest == Some(command)
            || self.is_stale(&command, facts)
            || !is_gradual(&command, facts.delays)
            || is_redundant(&command, facts)
        {
            return None;
        }
        let is_open = |last: &ScheduledCommand| self.last_applied.is_none_or(|applied| applied < last.frame);
        let previous = self.newest.take().filter(is_open);
        Some(previous.map(|last| match last.issuer == command.issuer {
            true => {
                self.last_applied = Some(last.frame);
                CommandFate::Applied(last)
            }
            false => CommandFate::Void(last),
        }))
    }

    /// Makes an accepted command the newest one, after the previous one was settled.
    pub(super) fn install(&mut self, command: ScheduledCommand) {
        self.newest = Some(command);
    }

    /// Returns whether a command is not later than the newest applied one, or is for a confirmed frame: no site
    /// confirms a frame before it knows the command for that frame.
    fn is_stale(&self, command: &ScheduledCommand, facts: &CommandFacts<'_>) -> bool {
        command.frame < facts.confirmed || self.last_applied.is_some_and(|frame| command.frame <= frame)
    }

    /// Returns whether the issuer's input for the frame of a command is known.
    fn is_due(command: &ScheduledCommand, facts: &CommandFacts<'_>) -> bool {
        let issuer = facts.peers.of_site(command.issuer);
        issuer.map_or(facts.own_end, |peer| peer.inputs().end()) > command.frame
    }

    /// Returns the newest command once, when the issuer's input for its frame is known: it is to be applied.
    pub(super) fn take_due(&mut self, facts: &CommandFacts<'_>) -> Option<ScheduledCommand> {
        let command = self.newest.filter(|command| Self::is_due(command, facts))?;
        if self.last_applied.is_some_and(|last| last >= command.frame) {
            return None;
        }
        self.last_applied = Some(command.frame);
        Some(command)
    }

    /// Forgets the newest command once all sites have applied it. Returns whether it did.
    pub(super) fn forget_settled(&mut self, facts: &CommandFacts<'_>) -> bool {
        let is_due = self.newest.is_some_and(|command| Self::is_due(&command, facts));
        let is_done = is_due && self.is_settled(facts.peers, facts.delays);
        if is_done {
            self.newest = None;
        }
        is_done
    }

    /// Voids the newest command if its issuer leaves before the command's frame, and so gives no input for that frame.
    pub(super) fn void_of_leaver(&mut self, peers: &Peers) -> Option<ScheduledCommand> {
        let issuer = self.newest?.issuer;
        let last = peers.of_site(issuer).and_then(Peer::absent_from)?;
        self.void_after(issuer, last, peers.own_site())
    }

    /// Voids the command of `issuer`, whose inputs end before `last`, if the command's frame is not earlier and it was
    /// not applied. A joiner counts the command that admits it as applied from the start.
    pub(super) fn void_after(&mut self, issuer: SiteId, last: Frame, own_site: SiteId) -> Option<ScheduledCommand> {
        let is_applied =
            |command: &ScheduledCommand| self.last_applied == Some(command.frame) && !admits(command, own_site);
        let is_void =
            |command: &ScheduledCommand| command.issuer == issuer && command.frame >= last && !is_applied(command);
        let command = self.newest.filter(is_void)?;
        self.newest = None;
        Some(command)
    }

    /// Forgets a dropped site's command, unless the decision keeps it because another site may have applied it. Returns
    /// the command if its preparations have to be reverted.
    pub(super) fn void_of_dropped(
        &mut self,
        decision: &MembershipDecision,
        own_site: SiteId,
    ) -> Option<ScheduledCommand> {
        let is_void =
            |command: &ScheduledCommand| decision.drop.contains(command.issuer) && decision.command != Some(*command);
        let command = self.newest.filter(is_void)?;
        self.newest = None;
        // This site may be the last for which the command that admitted it is not settled. That command counts if the
        // issuer's input for its frame does.
        let counts = command.frame < decision.input_ends[command.issuer.index()];
        Some(command).filter(|command| !(counts && admits(command, own_site)))
    }
}

/// Returns whether a command admits a site.
pub(super) fn admits(command: &ScheduledCommand, joiner: SiteId) -> bool {
    matches!(command.kind, CommandKind::Join { site, .. } if site == joiner)
}

/// Returns whether a site can have issued a command: no site with a lower number plays. The issuer itself need not play
/// any more, because it may have issued the command before it left.
pub(super) fn can_issue(issuer: SiteId, peers: &Peers) -> bool {
    peers.voters().iter().next().is_none_or(|lowest| issuer <= lowest)
}

/// Returns whether all players have confirmed a frame.
pub(super) fn all_have_confirmed(frame: Frame, peers: &Peers, delays: &DelaySchedule) -> bool {
    peers.playing().all(|peer| has_confirmed(peer, frame, delays))
}

/// Returns whether a peer has certainly confirmed a frame. A peer that has not confirmed it steps at most the
/// prediction window past it, begins at most one more frame, and gives inputs at most the input delay past that. A new
/// joiner gives inputs in advance, which prove nothing; then the frame that it reports counts.
fn has_confirmed(peer: &Peer, frame: Frame, delays: &DelaySchedule) -> bool {
    let max_end = frame + delays.largest_lead() + 1;
    !peer.has_advance_inputs() && peer.inputs().end() > max_end
        || peer.reported_frame() > frame + delays.current().prediction_window + 1
}

/// Returns whether a command admits a site that plays already, which includes this site unless it is admitted and does
/// not play yet.
fn is_redundant(command: &ScheduledCommand, facts: &CommandFacts<'_>) -> bool {
    let CommandKind::Join { site, .. } = command.kind else { return false };
    let is_own = site == facts.peers.own_site();
    is_own && !facts.is_admitted || facts.peers.of_site(site).is_some_and(Peer::is_playing)
}

/// Returns whether a command changes the delay settings by at most one frame. A larger change would ask for many inputs
/// at once.
fn is_gradual(command: &ScheduledCommand, delays: &DelaySchedule) -> bool {
    let CommandKind::SetDelay { input_delay, prediction_window, .. } = command.kind else { return true };
    delays.is_gradual(input_delay, prediction_window)
}

/// Returns the frame for a join command, so that the command reaches all sites and the joiner's first inputs arrive in
/// time. Where the links slow down the game, that takes fewer frames of the current `period`. A joiner may take the
/// seat from `free_from` on.
pub(super) fn join_frame(own_end: Frame, free_from: Frame, period: TimeDelta, peers: &Peers) -> Frame {
    let travel_time = (peers.max_rtt_with_jitter() * 2).min(MAX_JOIN_DELAY);
    let frames = travel_time.as_nanos() / period.as_nanos().max(1) + JOIN_MARGIN_FRAMES;
    // The joiner has no inputs of sites that left: all of them must be for frames before its first one.
    let last_inputs_end = peers.iter().filter_map(Peer::absent_from).max().unwrap_or(free_from);
    (own_end + frames.clamp(0, MAX_JOIN_FRAMES) as u32).max(free_from).max(last_inputs_end)
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::id::SiteSet;
    use crate::input::Stream;

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    fn set_delay(issuer: u8, frame: u32, input_delay: u32) -> ScheduledCommand {
        let kind = CommandKind::SetDelay { input_delay, prediction_window: 4, input_age: 0, site: site(1) };
        ScheduledCommand { issuer: site(issuer), frame: Frame::new(frame), kind }
    }

    fn join(issuer: u8, frame: u32, joiner: u8) -> ScheduledCommand {
        let kind = CommandKind::Join {
            site: site(joiner),
            incarnation: 2,
            members: SiteSet::first(2),
            epoch: 0,
            input_delay: 2,
            prediction_window: 4,
        };
        ScheduledCommand { issuer: site(issuer), frame: Frame::new(frame), kind }
    }

    fn facts<'a>(peers: &'a Peers, delays: &'a DelaySchedule) -> CommandFacts<'a> {
        CommandFacts { peers, delays, own_end: Frame::new(50), confirmed: Frame::new(40), is_admitted: false }
    }

    fn accept(
        commands: &mut Commands,
        command: ScheduledCommand,
        facts: &CommandFacts<'_>,
    ) -> Option<Option<CommandFate>> {
        let accepted = commands.accept(command, facts);
        if accepted.is_some() {
            commands.install(command);
        }
        accepted
    }

    fn give(peers: &mut Peers, index: usize, end: u32) {
        let mut inputs = Stream::new(1, Frame::ZERO);
        (0..end).for_each(|_| inputs.push(&[1]));
        peers[index].give_inputs(&inputs, Frame::new(end));
    }

    #[test]
    fn command_is_applied_once_when_the_issuers_input_is_known() {
        let (mut peers, delays, mut commands) = (table(1, 3), DelaySchedule::fixed(2, 4), Commands::default());
        give(&mut peers, 0, 60);
        let command = set_delay(0, 60, 3);
        assert_eq!(accept(&mut commands, command, &facts(&peers, &delays)), Some(None));
        assert_eq!(accept(&mut commands, command, &facts(&peers, &delays)), None, "it is known");
        assert_eq!(commands.take_due(&facts(&peers, &delays)), None);
        give(&mut peers, 0, 61);
        assert_eq!(commands.take_due(&facts(&peers, &delays)), Some(command));
        assert_eq!(commands.take_due(&facts(&peers, &delays)), None);
        assert!(!commands.forget_settled(&facts(&peers, &delays)), "sites 0 and 2 may not have confirmed its frame");
        (0..2).for_each(|index| give(&mut peers, index, 69));
        assert!(commands.forget_settled(&facts(&peers, &delays)));
        assert_eq!(commands.newest(), None);
    }

    #[test]
    fn stale_large_and_redundant_commands_are_ignored() {
        let (peers, delays) = (table(1, 3), DelaySchedule::fixed(2, 4));
        let accepts =
            |command: ScheduledCommand| Commands::default().accept(command, &facts(&peers, &delays)).is_some();
        assert!(!accepts(set_delay(0, 39, 3)), "frame 39 is confirmed");
        assert!(accepts(set_delay(0, 40, 3)) && !accepts(set_delay(0, 40, 4)), "by one frame at a time");
        assert!(!accepts(join(0, 60, 2)) && !accepts(join(0, 60, 1)), "both play");
    }

    #[test]
    fn next_command_settles_the_previous_one() {
        let (peers, delays) = (table(2, 3), DelaySchedule::fixed(2, 4));
        let first = set_delay(0, 60, 3);
        let fate = |next: ScheduledCommand| {
            let mut commands = Commands::default();
            accept(&mut commands, first, &facts(&peers, &delays));
            accept(&mut commands, next, &facts(&peers, &delays)).unwrap()
        };
        assert_eq!(fate(set_delay(0, 90, 1)), Some(CommandFate::Applied(first)));
        assert_eq!(fate(set_delay(1, 90, 1)), Some(CommandFate::Void(first)), "another coordinator took over");
    }

    #[test]
    fn command_of_gone_issuer_is_void_unless_it_counts() {
        let (mut peers, delays) = (table(1, 3), DelaySchedule::fixed(2, 4));
        let command = set_delay(0, 60, 3);
        let mut commands = Commands::default();
        accept(&mut commands, command, &facts(&peers, &delays));
        let mut decision = MembershipDecision::dropping([site(0)].into_iter().collect());
        decision.command = Some(command);
        assert_eq!(commands.void_of_dropped(&decision, site(1)), None, "the decision keeps it");
        assert_eq!(commands.void_of_leaver(&peers), None, "the issuer plays");
        peers[0].leave(Frame::new(60));
        assert_eq!(commands.void_of_leaver(&peers), Some(command));
        accept(&mut commands, command, &facts(&peers, &delays));
        decision.command = None;
        assert_eq!(commands.void_of_dropped(&decision, site(1)), Some(command));
    }

    #[test]
    fn joiner_is_pending_until_all_have_confirmed_its_frame() {
        let (mut peers, delays, mut commands) = (table(0, 3), DelaySchedule::fixed(2, 4), Commands::default());
        peers[1].vacate();
        accept(&mut commands, join(0, 60, 2), &facts(&peers, &delays));
        assert_eq!(commands.pending_joiner(&peers, &delays), Some(site(2)));
        give(&mut peers, 0, 67);
        assert_eq!(commands.pending_joiner(&peers, &delays), Some(site(2)));
        give(&mut peers, 0, 68);
        assert_eq!(commands.pending_joiner(&peers, &delays), None);
        assert!(can_issue(site(0), &peers) && !can_issue(site(1), &peers));
    }

    #[test]
    fn join_frame_leaves_time_for_the_command() {
        let mut peers = table(0, 3);
        let period = TimeDelta::from_millis(20);
        let frame = |peers: &Peers, free_from: u32| join_frame(Frame::new(50), Frame::new(free_from), period, peers);
        assert_eq!(frame(&peers, 0), Frame::new(60));
        assert_eq!(frame(&peers, 75), Frame::new(75));
        peers[1].leave(Frame::new(80));
        assert_eq!(frame(&peers, 75), Frame::new(80));
    }
}
