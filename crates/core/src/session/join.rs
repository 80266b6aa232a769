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

use super::Transmit;
use super::comparison::Comparison;
use super::config::{Config, LateJoinConfig};
use super::delay_settings::DelaySettings;
use super::peer::{Peer, TICK_SILENCE_LIMIT};
use super::peers::Peers;
use super::quorum::is_quorum_of;
use super::request::Request;
use super::timeline::Timeline;
use crate::frame::Frame;
use crate::id::{Addr, SiteId};
use crate::input::STREAM_CAPACITY;
use crate::session::message::{CommandKind, ScheduledCommand};
use crate::settings::SettingsError;
use crate::spectator_feed::{Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
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
    spectator: Spectator,
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
    has_announced_ready: bool,
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

    /// Returns whether this site has caught up with its feed source. A new source must also have shown with a state
    /// hash that it plays the same game as the previous one, unless it has been used for 3 s or states are not
    /// compared.
    pub(super) fn is_ready(&self, period: TimeDelta) -> bool {
        let behind = self.spectator.newest_frame() - self.spectator.next_frame();
        let near = MAX_READY_DISTANCE.as_nanos() / period.as_nanos().max(1);
        self.spectator.is_live() && behind <= near && !self.spectator.is_unverified()
    }

    /// Notes that this site announces that it is ready.
    pub(super) fn announce_ready(&mut self) {
        self.has_announced_ready = true;
    }

    /// Returns whether this site has announced that it is ready. A join command that arrives before that was for a
    /// previous incarnation.
    pub(super) fn has_announced_ready(&self) -> bool {
        self.has_announced_ready
    }

    /// Returns the first frame in which this site plays, once it is admitted.
    pub(super) fn join_frame(&self) -> Option<Frame> {
        self.join_frame
    }

    /// Returns whether this site is admitted and its machine has reached the end of its catch-up. Then the next frame
    /// needs a sampled input, and this site takes no more frames from the feed.
    pub(super) fn has_consumed_feed(&self, timeline: &Timeline) -> bool {
        self.join_frame.is_some() && timeline.machine_frame() >= timeline.catch_up_until()
    }

    /// Returns the next request to the host program.
    #[cold]
    pub(super) fn next_request<'a>(
        &'a mut self,
        now: Instant,
        timeline: &'a mut Timeline,
        comparison: &mut Comparison,
    ) -> Option<Request<'a>> {
        if self.has_consumed_feed(timeline) {
            return None;
        }
        let next = timeline.frame();
        if self.join_frame.is_some()
            && let Some(inputs) = self.spectator.take_words(next)
        {
            self.has_stepped = true;
            let inputs = timeline.step_downloaded(next, inputs);
            return Some(Request::Advance { frame: next, inputs, fresh: false });
        }
        Some(match self.spectator.poll_request(now)? {
            SpectatorRequest::Load { next_frame, state, .. } => {
                self.has_stepped = false;
                timeline.load_downloaded(next_frame);
                Request::Restore { frame: next_frame, state }
            }
            SpectatorRequest::Advance { frame, inputs, .. } => {
                self.has_stepped = true;
                Request::Advance { frame, inputs: timeline.step_downloaded(frame, inputs), fresh: false }
            }
            SpectatorRequest::Hash { frame, .. } => {
                comparison.expect_hash(frame);
                Request::Hash { frame }
            }
        })
    }

    /// Takes in the hash of a downloaded frame.
    pub(super) fn handle_hash(&mut self, hash: u64) {
        self.spectator.handle_hash(hash);
    }

    pub(super) fn poll_event(&mut self) -> Option<SpectatorEvent> {
        self.spectator.poll_event()
    }

    /// Checks the progress of the download of an admitted joiner, for which all players wait once its neutral inputs
    /// are used up. If its source delivers nothing, this site tries another one. Returns whether none delivers, so that
    /// this site must give its seat back.
    pub(super) fn has_failed(&mut self, now: Instant, timeline: &Timeline, peers: &Peers) -> bool {
        let answer_time = peers.max_player_rtt() * SOURCE_ROUND_TRIPS;
        if self.is_seat_awaited_too_long(now, JOIN_TIMEOUT + answer_time, timeline, peers) {
            return true;
        }
        if self.join_frame.is_none() {
            return false;
        }
        let next = self.spectator.next_frame();
        if next > self.progress.0 {
            (self.progress, self.source_changed_at) = ((next, now), now);
        } else if self.join_frame <= Some(next) {
            // The players' ticks deliver the following inputs, too. If none arrive, the players may be waiting for this
            // site.
            self.source_changed_at = now;
        } else if now - self.progress.1 > JOIN_TIMEOUT + answer_time {
            return true;
        } else if now - self.source_changed_at > SOURCE_TIMEOUT + answer_time {
            self.source_changed_at = now;
            let is_player = |addr: Addr| peers.playing().any(|peer| peer.addr() == addr);
            self.spectator.try_other_source(now, is_player);
        }
        false
    }

    /// Returns whether this site has been able to play for longer than `limit`, except that no quorum acknowledges its
    /// inputs although the game goes on: then its admission is void, or it cannot be reached.
    fn is_seat_awaited_too_long(&mut self, now: Instant, limit: TimeDelta, timeline: &Timeline, peers: &Peers) -> bool {
        let is_reached = |first: Frame| timeline.machine_frame() >= first;
        let is_seat_unknown =
            self.join_frame.is_some_and(|first| is_reached(first) && !self.is_seat_known(first, peers));
        let is_game_moving = self.spectator.next_frame() > self.progress.0 || now - self.progress.1 < SOURCE_TIMEOUT;
        if !is_seat_unknown || !is_game_moving {
            self.seat_awaited_since = None;
            return false;
        }
        now - *self.seat_awaited_since.get_or_insert(now) > limit
    }

    /// Returns whether a command of `from`, as coordinator, admits this incarnation of this site for a frame that this
    /// site has not stepped yet, and replaces an earlier admission if there is one. A command that turned out to be
    /// void does not count.
    pub(super) fn is_admitted_by(
        &self,
        command: &ScheduledCommand,
        from: SiteId,
        incarnation: u32,
        (now, frame): (Instant, Frame),
        peers: &Peers,
    ) -> bool {
        let own_site = peers.own_site();
        let CommandKind::Join { site, incarnation: joining, members, .. } = command.kind else { return false };
        let is_sound = command.issuer == from && members.iter().next() == Some(from) && !members.contains(own_site);
        let is_for_us = (site, joining) == (own_site, incarnation) && self.void_admission != Some(*command);
        let is_new = self.join_frame.is_none() || self.replaces_admission(command, now, peers);
        is_for_us && is_sound && command.frame >= frame && is_new
    }

    /// Returns whether `command`, which admits this site, replaces the one that admitted it before: the issuer is
    /// another site, and it is the lowest player from which packets still arrive.
    fn replaces_admission(&self, command: &ScheduledCommand, now: Instant, peers: &Peers) -> bool {
        let Some(issuer) = self.admitted_by else { return false };
        let active = peers.playing().filter(|peer| peer.silence(now) < TICK_SILENCE_LIMIT);
        command.issuer != issuer && active.map(Peer::site).min() == Some(command.issuer)
    }

    /// Takes back this site's admission, because the command that admitted it is void. This site asks to join again.
    pub(super) fn revoke(&mut self, command: ScheduledCommand) {
        (self.join_frame, self.admitted_by, self.void_admission) = (None, None, Some(command));
    }

    /// Notes that a command admits this site from its frame on. `sent_end` is the end of the neutral inputs that this
    /// site has sent under an earlier admission, which must not change. Returns the end of the inputs that have to be
    /// neutral.
    pub(super) fn admit(&mut self, now: Instant, command: &ScheduledCommand, sent_end: Option<Frame>) -> Frame {
        if let Some(end) = sent_end {
            self.neutral_until = self.neutral_until.max(end);
        }
        (self.join_frame, self.admitted_by) = (Some(command.frame), Some(command.issuer));
        self.seat_awaited_since = None;
        (self.progress, self.source_changed_at) = ((self.spectator.next_frame(), now), now);
        if sent_end.is_some() { self.neutral_until } else { command.frame }
    }

    /// Returns whether this site can start to play: all frames before the join frame are stepped, a quorum has inputs
    /// of this site, the inputs that have to stay neutral are given, and this site is near enough to the players. The
    /// machine must have stepped a frame since it last loaded a state if its inputs are needed (`needs_step`).
    pub(super) fn can_play(&self, needs_step: bool, timeline: &Timeline, peers: &Peers) -> bool {
        let next = timeline.machine_frame();
        let Some(first) = self.join_frame.filter(|first| next >= *first) else { return false };
        // The players' inputs for older frames are no longer kept, so those frames have to come from the feed.
        let ahead = peers.playing().map(|peer| peer.inputs().end() - next).max();
        timeline.own_inputs().end() >= self.neutral_until
            && self.is_seat_known(first, peers)
            && (self.has_stepped || !needs_step)
            && ahead.is_none_or(|ahead| ahead <= MAX_FRAMES_BEHIND)
    }

    /// Returns whether all sites seem stalled, so that there is no plan to follow.
    pub(super) fn is_stuck(&self, now: Instant, timeline: &Timeline) -> bool {
        now - self.progress.1 > SOURCE_TIMEOUT / 2 && self.has_consumed_feed(timeline)
    }

    /// Returns whether a quorum of the players has acknowledged an input of this site. Otherwise this site's admission
    /// may be void, and the feed may deliver frames that were played without this site. If no player is left, the
    /// admission counts once the input for its frame from the site that issued it is known.
    fn is_seat_known(&self, first: Frame, peers: &Peers) -> bool {
        let players = peers.sites_where(Peer::is_playing);
        if players.is_empty() {
            return peers.iter().any(|peer| Some(peer.site()) == self.admitted_by && peer.inputs().end() > first);
        }
        is_quorum_of(players, peers.sites_where(|peer| peer.is_playing() && peer.acked() > first))
    }

    /// Follows a feed source to its new address.
    pub(super) fn move_source(&mut self, from: Addr, to: Addr) {
        self.spectator.move_source(from, to);
    }

    pub(super) fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        self.spectator.handle_datagram(now, from, bytes);
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        self.spectator.poll_transmit(now, buf)
    }

    /// Returns when the download next has something to do; `None` for never.
    pub(super) fn poll_timeout(&self, timeline: &Timeline) -> Option<Instant> {
        if self.has_consumed_feed(timeline) { None } else { self.spectator.poll_timeout() }
    }

    /// Returns the downloaded part of the snapshot, in percent: 0 without a snapshot.
    pub(super) fn download_percent(&self) -> u8 {
        (self.spectator.download_progress() * 100.0) as u8
    }

    pub(super) fn memory(&self) -> usize {
        self.spectator.memory()
    }
}

/// Returns the end of the neutral inputs with which a joiner begins at `first`. They cover the time until its first
/// sampled input can arrive.
pub(super) fn settling_inputs_end(first: Frame, max_rtt: TimeDelta, period: TimeDelta, delays: DelaySettings) -> Frame {
    let (input_delay, prediction_window) = (i64::from(delays.input_delay), i64::from(delays.prediction_window));
    let max_frames = (MAX_FRAMES_AHEAD - 2 * input_delay - prediction_window).clamp(0, MAX_NEUTRAL_FRAMES);
    let time = max_rtt * 3 / 2 + NEUTRAL_INPUT_TIME;
    let frames = (time.as_nanos() / period.as_nanos().max(1)).clamp(0, max_frames) + input_delay;
    first + frames as u32
}

/// Returns the end up to which inputs that have to stay neutral can be given when this site is admitted from `first`
/// on: the players accept 255 frames past the join frame. The rest follows while the machine catches up.
pub(super) fn first_neutral_end(neutral_until: Frame, first: Frame) -> Frame {
    neutral_until.min(first + MAX_FRAMES_AHEAD as u32)
}

/// Returns the end of the neutral inputs that a joiner needs while it catches up, so that no site waits for it.
/// `live_frame` is the frame that the players have reached. The other sites must not run further ahead of this site
/// than their inputs are kept here.
pub(super) fn neutral_inputs_end(
    live_frame: Frame,
    machine_frame: Frame,
    max_rtt: TimeDelta,
    period: TimeDelta,
    input_delay: u32,
) -> Frame {
    let time = max_rtt + NEUTRAL_INPUT_TIME / 2;
    let under_way = (time.as_nanos() / period.as_nanos().max(1)).clamp(0, MAX_NEUTRAL_FRAMES) as u32;
    (live_frame + under_way + input_delay).min(machine_frame + MAX_FRAMES_BEHIND as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::delay_settings::DelaySchedule;

    const PERIOD: TimeDelta = TimeDelta::from_millis(20);

    #[test]
    fn settling_inputs_cover_the_first_round_trips() {
        let delays = DelaySchedule::fixed(2, 4).current();
        let end = |millis: i64| settling_inputs_end(Frame::new(100), TimeDelta::from_millis(millis), PERIOD, delays);
        assert_eq!(end(0), Frame::new(127), "0.5 s and the input delay");
        assert_eq!(end(200), Frame::new(142), "and one and a half round trips");
        assert_eq!(end(60_000), Frame::new(302), "at most 200 frames and the input delay");
    }

    #[test]
    fn joiner_stays_within_reach_of_its_machine() {
        let end = |live: u32, machine: u32| {
            neutral_inputs_end(Frame::new(live), Frame::new(machine), TimeDelta::from_millis(150), PERIOD, 2)
        };
        assert_eq!(end(500, 450), Frame::new(522));
        assert_eq!(end(500, 100), Frame::new(300));
        assert_eq!(first_neutral_end(Frame::new(900), Frame::new(100)), Frame::new(348));
    }
}
