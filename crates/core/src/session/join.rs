//! Late join: taking a free seat, or this site's former seat, in a running game.
//!
//! A joiner first spectates. A [`Spectator`] downloads a snapshot, or all inputs since the first frame, and then every
//! frame, until the joiner has caught up with the players. Meanwhile the joiner exchanges hellos with all players and
//! learns their clocks. When it is ready, the coordinator schedules a join command for a frame. The joiner gets the
//! frames before that frame from the feed, and the inputs from that frame on from the players' ticks, or from the feed,
//! too, while it catches up.
//!
//! The players do not wait for the joiner unless its download stalls: its first inputs are neutral, and it sends them
//! in advance as soon as it knows the join command. By the time it has caught up, its inputs are due like those of
//! every other site.

use alloc::boxed::Box;

use super::config::{Config, LateJoinConfig};
use super::desync::DesyncSearch;
use super::event::{Event, SessionEnd};
use super::peer::Peer;
use super::peer::TICK_SILENCE_LIMIT;
use super::phase::{FramePhase, Phase};
use super::quorum::is_quorum_of;
use super::request::Request;
use super::{Session, SettingsError};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{STREAM_CAPACITY, Stream};
use crate::pace::Pacer;
use crate::session::message::{CommandKind, ScheduledCommand, Tick};
use crate::settings::AbsentInput;
use crate::spectator_feed::{SourceError, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use crate::time::{Instant, TimeDelta};

/// Longest play time by which a joiner may be behind the newest frame of its feed source when it reports that it is
/// ready.
const MAX_READY_DISTANCE: TimeDelta = TimeDelta::from_millis(700);
/// Duration of the initial neutral inputs, besides one and a half round trips and the input delay.
const NEUTRAL_INPUT_TIME: TimeDelta = TimeDelta::from_millis(500);
/// Maximum number of frames by which a joiner may be behind the end of any player's inputs when it starts to play, and
/// by which its neutral inputs are extended ahead of its machine.
const MAX_FRAMES_BEHIND: i64 = 200;
/// Time without progress, besides [`SOURCE_ROUND_TRIPS`] round trips, after which an admitted joiner downloads from
/// another source.
const SOURCE_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Round trips until a source has accepted a spectator and answered its first request, if each message is lost once.
const SOURCE_ROUND_TRIPS: i64 = 6;
/// Time without progress, besides [`SOURCE_ROUND_TRIPS`] round trips, after which an admitted joiner gives its seat
/// back, because all players wait for it.
const JOIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(8);
/// Maximum number of initial neutral inputs, and of later neutral inputs beyond the frame that the players have
/// reached, both besides the input delay.
const MAX_NEUTRAL_FRAMES: i64 = 200;
/// Maximum number of frames by which the others' inputs may be ahead of this site: half the capacity of an input
/// stream, minus a margin of 8 for changes of the delay settings. The others may run ahead of the join frame by the
/// number of this site's initial neutral inputs plus the prediction window, and give inputs further ahead by the input
/// delay.
const MAX_FRAMES_AHEAD: i64 = STREAM_CAPACITY as i64 / 2 - 8;

/// State of this site's late join, from the creation of the session until this site plays.
#[derive(Debug)]
pub(super) struct JoinProgress {
    pub(super) spectator: Spectator,
    /// The first frame in which this site plays, once it is admitted.
    join_frame: Option<Frame>,
    /// The coordinator whose command admitted this site; `None` before.
    admitted_by: Option<SiteId>,
    /// The last command that admitted this site and turned out to be void. Copies of it may still arrive.
    void_admission: Option<ScheduledCommand>,
    /// End of the neutral inputs that this site has sent under earlier admissions; 0 under the first. Copies of them
    /// may still arrive at players, so this site's inputs for these frames stay neutral.
    neutral_until: Frame,
    /// Since when this site has had all frames before its first one and waits for the players' acknowledgements, while
    /// the game goes on.
    seat_awaited_since: Option<Instant>,
    /// The next frame of the download, and when it last advanced or this site was admitted.
    progress: (Frame, Instant),
    /// Start of the time without progress after which another source is tried: the last progress or change of the
    /// source.
    source_changed_at: Instant,
    /// Whether the inputs of the machine's previous frame are known, because the machine has stepped that frame and not
    /// loaded a state after it.
    has_stepped: bool,
    /// Whether this site has announced that it is ready. A join command that arrives before that was for a previous
    /// incarnation.
    pub(super) has_announced_ready: bool,
}

impl JoinProgress {
    pub(super) fn new(now: Instant, join: LateJoinConfig, config: &Config) -> Result<Box<Self>, SettingsError> {
        let sources: alloc::vec::Vec<Addr> = config.peers.iter().map(|(_, addr)| *addr).collect();
        let spectator_config = SpectatorConfig::new(config.session_id, config.settings.clone(), sources);
        // The frames are not displayed, so the spectator catches up at once.
        let spectator_config = SpectatorConfig {
            start: join.start,
            max_snapshot_size: join.max_state_len,
            catch_up_threshold: 0,
            ..spectator_config
        };
        let progress = (Frame::ZERO, now);
        Spectator::new(now, spectator_config).map(|spectator| {
            Box::new(Self {
                spectator,
                join_frame: None,
                admitted_by: None,
                void_admission: None,
                neutral_until: Frame::ZERO,
                seat_awaited_since: None,
                progress,
                source_changed_at: now,
                has_stepped: false,
                has_announced_ready: false,
            })
        })
    }
}

impl Session {
    /// Returns whether this site has caught up with its feed source. A new source must also have shown with a state
    /// hash that it plays the same game as the previous one, unless it has been used for 3 s or states are not
    /// compared.
    pub(super) fn is_ready_to_join(&self) -> bool {
        let Some(joining) = &self.joining else { return false };
        let behind = joining.spectator.newest_frame() - joining.spectator.next_frame();
        let near = MAX_READY_DISTANCE.as_nanos() / self.config.settings.rate.period().as_nanos().max(1);
        joining.spectator.is_live() && behind <= near && !joining.spectator.is_unverified()
    }

    /// Returns the first frame in which this site plays, as long as it is admitted and does not play yet.
    pub(super) fn own_join_frame(&self) -> Option<Frame> {
        self.joining.as_ref().and_then(|joining| joining.join_frame)
    }

    /// Returns whether this site is admitted and its machine has reached the end of its catch-up. Then the next frame
    /// needs a sampled input, and this site takes no more frames from the feed.
    pub(super) fn has_consumed_feed(&self) -> bool {
        self.own_join_frame().is_some() && self.machine_frame >= self.catch_up_until
    }

    /// Returns the next request of a joiner to its host program.
    #[cold]
    pub(super) fn next_joining_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.has_consumed_feed() {
            return None;
        }
        let Self { joining, input_words: words, machine_frame, frame, comparison, .. } = self;
        let joining = joining.as_mut()?;
        if joining.join_frame.is_some()
            && let Some(inputs) = joining.spectator.take_words(*frame)
        {
            words.copy_from_slice(inputs);
            joining.has_stepped = true;
            let next = *frame;
            (*machine_frame, *frame) = (next.next(), next.next());
            return Some(Request::Advance { frame: next, inputs: words, fresh: false });
        }
        Some(match joining.spectator.poll_request(now)? {
            SpectatorRequest::Load { next_frame, state, .. } => {
                joining.has_stepped = false;
                (*machine_frame, *frame) = (next_frame, next_frame);
                Request::Restore { frame: next_frame, state }
            }
            SpectatorRequest::Advance { frame: next, inputs, .. } => {
                joining.has_stepped = true;
                words.copy_from_slice(inputs);
                (*machine_frame, *frame) = (next.next(), next.next());
                Request::Advance { frame: next, inputs: words, fresh: false }
            }
            SpectatorRequest::Hash { frame, .. } => {
                comparison.expect_hash(frame);
                Request::Hash { frame }
            }
        })
    }

    /// Updates the late join: extends the neutral inputs, checks the progress and handles the spectator's events.
    #[cold]
    pub(super) fn update_joining(&mut self, now: Instant) {
        self.extend_neutral_inputs(now);
        self.update_join_progress(now);
        while let Some(event) = self.joining.as_mut().and_then(|joining| joining.spectator.poll_event()) {
            match event {
                SpectatorEvent::Dropped { reason } => return self.abort_joining(now, reason),
                SpectatorEvent::Ended { .. } => return self.abort_joining(now, SourceError::Silent),
                SpectatorEvent::Diverged { frame } => {
                    let site = self.peers.iter().map(|peer| peer.site()).min().unwrap_or(self.config.site);
                    self.events.push(Event::Diverged { site, frame });
                }
                _ => {}
            }
        }
    }

    /// Checks the progress of the download of an admitted joiner, for which all players wait once its neutral inputs
    /// are used up. If its source delivers nothing, this site tries another one; if none delivers, it gives its seat
    /// back.
    fn update_join_progress(&mut self, now: Instant) {
        let answer_time = self.peers.max_player_rtt() * SOURCE_ROUND_TRIPS;
        if self.is_seat_awaited_too_long(now, JOIN_TIMEOUT + answer_time) {
            return self.abort_joining(now, SourceError::Silent);
        }
        let is_player = |addr: Addr| self.peers.iter().any(|peer| peer.addr() == addr && peer.is_playing());
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.join_frame.is_some()) else { return };
        let next = joining.spectator.next_frame();
        if next > joining.progress.0 {
            (joining.progress, joining.source_changed_at) = ((next, now), now);
        } else if joining.join_frame <= Some(next) {
            // The players' ticks deliver the following inputs, too. If none arrive, the players may be waiting for this
            // site.
            joining.source_changed_at = now;
        } else if now - joining.progress.1 > JOIN_TIMEOUT + answer_time {
            self.abort_joining(now, SourceError::Silent);
        } else if now - joining.source_changed_at > SOURCE_TIMEOUT + answer_time {
            joining.source_changed_at = now;
            joining.spectator.try_other_source(now, is_player);
        }
    }

    /// Returns whether this site has been able to play for longer than `limit`, except that no quorum acknowledges its
    /// inputs although the game goes on: then its admission is void, or it cannot be reached.
    fn is_seat_awaited_too_long(&mut self, now: Instant, limit: TimeDelta) -> bool {
        let is_seat_unknown =
            self.own_join_frame().is_some_and(|first| self.machine_frame >= first && !self.is_seat_known(first));
        let Some(joining) = &mut self.joining else { return false };
        let is_game_moving =
            joining.spectator.next_frame() > joining.progress.0 || now - joining.progress.1 < SOURCE_TIMEOUT;
        if !is_seat_unknown || !is_game_moving {
            joining.seat_awaited_since = None;
        } else if now - *joining.seat_awaited_since.get_or_insert(now) > limit {
            return true;
        }
        false
    }

    /// Gives up the join for this reason. An admitted joiner leaves its seat, so that no site waits for it.
    fn abort_joining(&mut self, now: Instant, reason: SourceError) {
        match self.schedule.is_started() {
            false => self.end_session(SessionEnd::NoWayIn(reason)),
            true => self.begin_leave(now, SessionEnd::NoWayIn(reason)),
        }
    }

    /// Handles a tick that may have arrived before this site plays: looks for a command that admits this site. Returns
    /// whether the tick has no further use, because this site is not admitted yet.
    pub(super) fn handle_tick_while_joining(&mut self, index: usize, tick: &Tick<'_>) -> bool {
        let Some(joining) = &self.joining else { return false };
        let unseated = joining.join_frame.is_none();
        if !joining.has_announced_ready
            || !self.lobby.knows_own_incarnation(index)
            || !unseated && tick.extras.is_empty()
        {
            return unseated;
        }
        for extra in tick.extras.iter() {
            if let crate::session::message::Extra::Command(command) = extra
                && self.admits_us(index, &command)
                && (unseated || self.replaces_admission(&command))
            {
                self.prepare_own_join(command);
                return false;
            }
        }
        unseated
    }

    /// Returns whether a command of a peer, as coordinator, admits this incarnation of this site for a frame that this
    /// site has not stepped yet. A command that turned out to be void does not count.
    fn admits_us(&self, index: usize, command: &ScheduledCommand) -> bool {
        let (own_site, site) = (self.config.site, self.peers[index].site());
        let CommandKind::Join { site: joining_site, incarnation, members, .. } = command.kind else { return false };
        let is_sound = command.issuer == site && members.iter().next() == Some(site) && !members.contains(own_site);
        let is_void = self.joining.as_ref().is_some_and(|joining| joining.void_admission == Some(*command));
        let is_for_us = (joining_site, incarnation) == (own_site, self.config.incarnation);
        is_for_us && is_sound && !is_void && command.frame >= self.frame
    }

    /// Takes back this site's admission, because the command that admitted it is void: its issuer is gone, and no
    /// player has applied it. If this site does not play yet, it asks to join again. If it plays already, it has
    /// stepped frames with its own inputs that the others step without them, so its session ends.
    pub(super) fn revoke_own_admission(&mut self, command: ScheduledCommand) {
        if self.leaving.is_some() {
            return;
        }
        let Some(joining) = &mut self.joining else { return self.end_session(SessionEnd::Dropped) };
        (joining.join_frame, joining.admitted_by, joining.void_admission) = (None, None, Some(command));
        self.schedule.stop();
        self.invalidate_send_time();
    }

    /// Returns whether `command`, which admits this site, replaces the one that admitted it before: the issuer is
    /// another site, and it is the lowest player from which packets still arrive.
    fn replaces_admission(&self, command: &ScheduledCommand) -> bool {
        let Some(issuer) = self.joining.as_ref().and_then(|joining| joining.admitted_by) else { return false };
        let is_active = |peer: &&Peer| peer.is_playing() && peer.silence(self.clock.last_call()) < TICK_SILENCE_LIMIT;
        let lowest = self.peers.iter().filter(is_active).map(|peer| peer.site()).min();
        command.issuer != issuer && lowest == Some(command.issuer)
    }

    /// Prepares to play as the coordinator's join command says: this site's inputs count from the command's frame on.
    fn prepare_own_join(&mut self, command: ScheduledCommand) {
        let CommandKind::Join { members, epoch, input_delay, prediction_window, .. } = command.kind else {
            return;
        };
        let first = command.frame;
        let own_width = self.layout.width();
        // If an earlier command admitted this site, the neutral inputs that it has already sent must not change.
        let sent_end = self.membership.admitted_at().map(|_| self.own_inputs.end());
        let joining = self.joining.as_mut().filter(|_| sent_end.is_some());
        let neutral_until = joining.map_or(first, |joining| {
            joining.neutral_until = joining.neutral_until.max(self.own_inputs.end());
            joining.neutral_until
        });
        let now = self.clock.last_call();
        self.peers.on_own_admission();
        for index in 0..self.peers.len() {
            let is_member = members.contains(self.peers[index].site());
            self.peers[index].prepare_own_join(now, first, own_width, (is_member, sent_end.is_some()));
            if is_member {
                self.on_seat_taken(index, first, false);
            }
            self.sending.set_active(index, !self.peers[index].is_free());
        }
        self.reports.on_own_admission();
        let peers = &self.peers;
        self.membership.on_own_admission(now, epoch, |index| members.contains(peers[index].site()));
        self.slow_peers.on_own_admission();
        self.schedule_delay_settings(Frame::ZERO, input_delay, prediction_window);
        self.next_delay_settings.inspect(|settings| self.delay_settings = *settings);
        (self.command, self.last_applied_command) = (Some(command), Some(first));
        self.own_inputs = Stream::new(own_width, first);
        self.comparison.restart_own_inputs(first);
        match &mut self.leaving {
            // This site was admitted although it already leaves, because the coordinator did not know that. It leaves
            // before its first frame.
            Some(leave) => {
                leave.input_end = first;
                self.phase = Phase::Running(FramePhase::Idle);
                self.joining = None;
            }
            None => {
                self.push_settling_inputs(first);
                // The players accept 255 frames past the join frame. The rest follows while the machine catches up.
                let until = neutral_until.min(first + MAX_FRAMES_AHEAD as u32);
                self.push_neutral_inputs(until.max(self.own_inputs.end()));
            }
        }
        if let Some(joining) = &mut self.joining {
            (joining.join_frame, joining.admitted_by) = (Some(first), Some(command.issuer));
            joining.seat_awaited_since = None;
            (joining.progress, joining.source_changed_at) =
                ((joining.spectator.next_frame(), self.clock.last_call()), self.clock.last_call());
        }
        self.start_pacing(self.clock.last_call());
        self.mark_extras_pending();
        self.mark_all_due();
        self.invalidate_send_time();
    }

    /// Pushes the first inputs, from the join frame on, which are neutral and sent in advance.
    fn push_settling_inputs(&mut self, first: Frame) {
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let max_rtt = self.peers.max_rtt();
        let (input_delay, prediction_window) =
            (i64::from(self.delay_settings.input_delay), i64::from(self.delay_settings.prediction_window));
        let max_frames = (MAX_FRAMES_AHEAD - 2 * input_delay - prediction_window).clamp(0, MAX_NEUTRAL_FRAMES);
        let frames = ((max_rtt * 3 / 2 + NEUTRAL_INPUT_TIME).as_nanos() / period).clamp(0, max_frames) + input_delay;
        self.push_neutral_inputs(first + frames as u32);
    }

    /// Pushes neutral inputs for all frames before `until` that have none, and sets the end of the machine's catch-up
    /// to `until` minus the input delay.
    fn push_neutral_inputs(&mut self, until: Frame) {
        let neutral = [[0; 16]; crate::input::MAX_BLOCKS];
        let blocks = self.own_inputs.block_count();
        while self.own_inputs.end() < until {
            self.own_inputs.push_blocks(&neutral[..blocks]);
        }
        self.catch_up_until = until.checked_sub(self.delay_settings.input_delay).unwrap_or(until);
    }

    /// Extends the neutral inputs while the machine is still catching up, so that no site waits for inputs of this
    /// site.
    fn extend_neutral_inputs(&mut self, now: Instant) {
        let is_admitted = self.own_join_frame().is_some();
        let Some(live_frame) = self.schedule.frame_at(now).filter(|_| is_admitted) else {
            return;
        };
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let max_rtt = self.peers.max_rtt();
        let under_way = ((max_rtt + NEUTRAL_INPUT_TIME / 2).as_nanos() / period).clamp(0, MAX_NEUTRAL_FRAMES) as u32;
        // The other sites must not run further ahead of this site than their inputs are kept here.
        let until = (live_frame + under_way + self.delay_settings.input_delay)
            .min(self.machine_frame + MAX_FRAMES_BEHIND as u32);
        if until > self.own_inputs.end() {
            self.push_neutral_inputs(until);
            self.mark_all_due();
        }
    }

    /// Starts to play when all frames before the join frame are stepped, a quorum has inputs of this site, the inputs
    /// that have to stay neutral are given, this site is near enough to the players, and the time of the next frame is
    /// known or there is no plan to follow. With [`AbsentInput::Repeat`] the machine must have stepped a frame since it
    /// last loaded a state. Returns whether this site plays now.
    #[cold]
    pub(super) fn start_playing_if_due(&mut self) -> bool {
        let Some(first) = self.own_join_frame().filter(|first| self.machine_frame >= *first) else { return false };
        let owes_neutral_inputs =
            self.joining.as_ref().is_some_and(|joining| self.own_inputs.end() < joining.neutral_until);
        if owes_neutral_inputs || !self.is_seat_known(first) {
            return false;
        }
        let (now, next) = (self.clock.last_call(), self.machine_frame);
        let has_stepped = self.joining.as_ref().is_some_and(|joining| joining.has_stepped);
        if self.config.settings.absent_input == AbsentInput::Repeat && !has_stepped {
            return false;
        }
        // The players' inputs for older frames are no longer kept, so those frames have to come from the feed.
        let playing = self.peers.iter().filter(|peer| peer.is_playing());
        if playing.map(|peer| peer.inputs().end() - next).max().is_some_and(|ahead| ahead > MAX_FRAMES_BEHIND) {
            return false;
        }
        // If all sites are stalled, there is no plan to follow.
        let is_stuck = self.joining.as_ref().is_some_and(|joining| now - joining.progress.1 > SOURCE_TIMEOUT / 2);
        let has_no_plan = is_stuck && self.has_consumed_feed() || self.schedule.setter().is_none();
        let is_time_known = self.schedule.jump_to(now, next) || has_no_plan;
        if is_time_known {
            let all_sites = SiteSet::first(usize::from(self.config.settings.site_count));
            self.joining = None;
            self.observe_substitute_inputs();
            // The feed may have delivered more than the frames before the join frame.
            (self.frame, self.feed_end, self.search_end, self.joined_at) = (next, next, next, next);
            self.comparison.skip_until(next, first, &self.own_inputs);
            if let Some(search) = &mut self.desync_search {
                *search = DesyncSearch::new(self.config.site, all_sites, &self.config.settings, next);
            }
            self.phase = self.initial_phase();
            self.events.push(Event::Joined { site: self.config.site, frame: first });
        }
        is_time_known
    }

    /// Returns whether a quorum of the players has acknowledged an input of this site. Otherwise this site's admission
    /// may be void, and the feed may deliver frames that were played without this site. If no player is left, the
    /// admission counts once the input for its frame from the site that issued it is known.
    fn is_seat_known(&self, first: Frame) -> bool {
        let players = self.peers.iter().filter(|peer| peer.is_playing());
        if players.clone().next().is_none() {
            let admitted_by = self.joining.as_ref().and_then(|joining| joining.admitted_by);
            return self.peers.iter().any(|peer| Some(peer.site()) == admitted_by && peer.inputs().end() > first);
        }
        let informed = players.clone().filter(|peer| peer.acked() > first);
        is_quorum_of(players.map(|peer| peer.site()).collect(), informed.map(|peer| peer.site()).collect())
    }

    /// Takes over the substitute inputs of sites that were dropped before this site joined or in its first frame: with
    /// [`AbsentInput::Repeat`] they are those sites' inputs in the last stepped frame.
    fn observe_substitute_inputs(&mut self) {
        if self.config.settings.absent_input == AbsentInput::Repeat {
            let Self { peers, input_words: words, machine_frame, .. } = self;
            peers.iter_mut().for_each(|peer| peer.observe_substitute_input(*machine_frame, words));
        }
    }

    /// Starts the pacer with the next frame at `at`, and chooses the pace setter.
    pub(super) fn start_pacing(&mut self, at: Instant) {
        let settings = &self.config.settings;
        let reach = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        let mut pacer = Pacer::new(self.config.pacing, settings.rate.period(), reach, at);
        if self.delay_settings.prediction_window > 0 {
            pacer.enable_dither(self.config.site);
        }
        for peer in self.peers.iter().filter(|peer| peer.is_playing()) {
            pacer.on_delay(at, peer.site(), peer.clock().rtt_min().unwrap_or_default() / 2);
        }
        self.schedule.start(pacer);
        self.invalidate_send_time();
        self.choose_pace_setter();
    }
}
