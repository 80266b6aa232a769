//! Coming late: taking a free seat, or one's own again, while the game runs.
//!
//! A latecomer first watches: a [`Spectator`] brings it the state, or all inputs since the first frame, and every frame since, until
//! it is as far as the players. Meanwhile it greets them all and learns their clocks. When it is ready the coordinator orders a
//! frame with which it sits down. Frames before that it has from the feed, frames from there on come with the players' ticks.
//!
//! Nobody waits for it: what it would press in its first frames is nothing at all, and that is told as soon as the order is
//! known. By the time it has caught up, its inputs are due like everybody's.

use alloc::boxed::Box;

use super::desync::DesyncSearch;
use super::event::{Event, Request, SessionEnd};
use super::membership::Membership;
use super::membership_reports::{MembershipReports, TICK_SILENCE_LIMIT};
use super::peer::{Peer, Seat};
use super::settings::AbsentInput;
use super::{FramePhase, Phase, Session, SettingsError};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{STREAM_CAPACITY, Stream};
use crate::pace::Pacer;
use crate::spectator_feed::{
    SourceError, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart,
};
use crate::time::{Instant, TimeDelta};
use crate::wire::{CommandKind, ScheduledCommand, Tick};

/// How a site comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateJoin {
    /// Where to begin: with a snapshot, or with the first frame of the game, for machines that cannot load a state.
    pub start: SpectatorStart,
    /// The largest state that is taken, in bytes.
    pub max_state_len: usize,
}

/// A latecomer is ready to play when it is no further behind than this.
const MAX_READY_DISTANCE: TimeDelta = TimeDelta::from_millis(700);
/// For so long it presses nothing at first, beside the time that its packets take.
const NEUTRAL_INPUT_TIME: TimeDelta = TimeDelta::from_millis(500);
/// It sits down when it is no more than this many frames behind what the others have given inputs for.
const MAX_FRAMES_BEHIND: i64 = 200;
/// A newcomer without progress for this long, plus [`SOURCE_ROUND_TRIPS`] round trips, requests its frames from another source.
const SOURCE_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Round trips until a source has accepted a watcher and answered its first question, each of which may be lost once.
const SOURCE_ROUND_TRIPS: i64 = 6;
/// And after so long gives it back, because everybody waits for him.
const JOIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(8);
/// It never presses nothing for longer than this many frames.
const MAX_NEUTRAL_FRAMES: i64 = 200;
/// The others may run ahead for as long, by a window more, and give inputs further ahead by the lag. No more than these can be kept
/// here until their frames come, with some to spare for dials that turn meanwhile.
const MAX_FRAMES_AHEAD: i64 = STREAM_CAPACITY as i64 / 2 - 8;

/// A site on its way into a running game.
#[derive(Debug)]
pub(super) struct JoinProgress {
    pub(super) spectator: Spectator,
    /// The frame with which it sits down.
    join_frame: Option<Frame>,
    /// Who ordered that.
    admitted_by: Option<SiteId>,
    /// How far we are, and since when.
    progress: (Frame, Instant),
    /// When we last turned to another source because of that.
    source_changed_at: Instant,
    /// The words of the frame before the next are known: the machine has stepped it, and was not put behind it.
    has_stepped: bool,
    /// It has said that it is ready. An order that comes before was for an earlier start of our program.
    pub(super) has_announced_ready: bool,
}

impl JoinProgress {
    pub(super) fn new(now: Instant, join: LateJoin, config: &super::Config) -> Result<Box<Self>, SettingsError> {
        let from: alloc::vec::Vec<Addr> = config.peers.iter().map(|(_, addr)| *addr).collect();
        let watching = SpectatorConfig::new(config.session_id, config.settings.clone(), from);
        // Nobody looks on: whatever is late is made up for at once.
        let watching = SpectatorConfig {
            start: join.start,
            max_snapshot_size: join.max_state_len,
            catch_up_threshold: 0,
            ..watching
        };
        let reached = (Frame::ZERO, now);
        Spectator::new(now, watching).map(|watcher| {
            Box::new(Self {
                spectator: watcher,
                join_frame: None,
                admitted_by: None,
                progress: reached,
                source_changed_at: now,
                has_stepped: false,
                has_announced_ready: false,
            })
        })
    }
}

impl Session {
    /// Whether we are as far as the players, and know them all.
    pub(super) fn is_ready_to_join(&self) -> bool {
        let Some(joining) = &self.joining else { return false };
        let behind = joining.spectator.newest_frame() - joining.spectator.next_frame();
        let near = MAX_READY_DISTANCE.as_nanos() / self.config.settings.rate.period().as_nanos().max(1);
        joining.spectator.is_live() && behind <= near && !joining.spectator.is_unverified()
    }

    /// The frame with which we sit down, as long as we have not yet.
    pub(super) fn own_join_frame(&self) -> Option<Frame> {
        self.joining.as_ref().and_then(|joining| joining.join_frame)
    }

    /// Whether all is stepped that a feed can have: nobody is certain of frames that our inputs do not reach.
    pub(super) fn has_consumed_feed(&self) -> bool {
        self.own_join_frame().is_some() && self.machine_frame >= self.catch_up_until
    }

    /// What a latecomer asks of its host program.
    #[cold]
    pub(super) fn next_joining_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.has_consumed_feed() {
            return None;
        }
        let Self { joining, input_words: words, machine_frame: at, frame, hash_pending: hashing, .. } = self;
        let joining = joining.as_mut()?;
        if joining.join_frame.is_some()
            && let Some(inputs) = joining.spectator.take_words(*frame)
        {
            words.copy_from_slice(inputs);
            joining.has_stepped = true;
            let next = *frame;
            (*at, *frame) = (next.next(), next.next());
            return Some(Request::Advance { frame: next, inputs: words, fresh: false });
        }
        Some(match joining.spectator.poll_request(now)? {
            SpectatorRequest::Load { next_frame, state, .. } => {
                joining.has_stepped = false;
                (*at, *frame) = (next_frame, next_frame);
                Request::Restore { frame: next_frame, state }
            }
            SpectatorRequest::Advance { frame: next, inputs, .. } => {
                joining.has_stepped = true;
                words.copy_from_slice(inputs);
                (*at, *frame) = (next.next(), next.next());
                Request::Advance { frame: next, inputs: words, fresh: false }
            }
            SpectatorRequest::Hash { frame, .. } => {
                *hashing = Some(frame);
                Request::Hash { frame }
            }
        })
    }

    /// What becomes of watching.
    #[cold]
    pub(super) fn update_joining(&mut self, now: Instant) {
        self.extend_neutral_inputs(now);
        self.update_join_progress(now);
        while let Some(event) = self.joining.as_mut().and_then(|joining| joining.spectator.poll_event()) {
            match event {
                SpectatorEvent::Dropped { reason } => return self.abort_joining(now, reason),
                SpectatorEvent::Ended { .. } => return self.abort_joining(now, SourceError::Silent),
                SpectatorEvent::Diverged { frame } => {
                    let site = self.peers.iter().map(|peer| peer.site).min().unwrap_or(self.config.site);
                    self.events.push(Event::Diverged { site, frame });
                }
                _ => {}
            }
        }
    }

    /// From the order on everybody counts on us: if one source brings nothing another may, and if none does we make room.
    fn update_join_progress(&mut self, now: Instant) {
        let answer = self.max_player_rtt() * SOURCE_ROUND_TRIPS;
        let plays = |addr: Addr| self.peers.iter().any(|peer| peer.addr == addr && peer.is_playing());
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.join_frame.is_some()) else { return };
        let next = joining.spectator.next_frame();
        if next > joining.progress.0 {
            (joining.progress, joining.source_changed_at) = ((next, now), now);
        } else if joining.join_frame <= Some(next) {
            // What follows comes from the players, too. If nothing does, they may wait for us.
            joining.source_changed_at = now;
        } else if now - joining.progress.1 > JOIN_TIMEOUT + answer {
            self.abort_joining(now, SourceError::Silent);
        } else if now - joining.source_changed_at > SOURCE_TIMEOUT + answer {
            joining.source_changed_at = now;
            joining.spectator.try_other_source(now, plays);
        }
    }

    /// We cannot get in. Who has a seat leaves it, so that nobody waits.
    fn abort_joining(&mut self, now: Instant, reason: SourceError) {
        match self.pacer {
            None => self.end_session(SessionEnd::NoWayIn(reason)),
            Some(_) => self.begin_leave(now, SessionEnd::NoWayIn(reason)),
        }
    }

    /// A tick comes before we play: only the order to sit down is of interest. Returns whether the tick is of no further use.
    pub(super) fn handle_tick_while_joining(&mut self, index: usize, tick: &Tick<'_>) -> bool {
        let Some(joining) = &self.joining else { return false };
        let unseated = joining.join_frame.is_none();
        if !joining.has_announced_ready
            || !self.peers[index].lobby.knows_own_incarnation
            || !unseated && tick.extras.is_empty()
        {
            return unseated;
        }
        for extra in tick.extras.iter() {
            if let crate::wire::Extra::Command(order) = extra
                && self.admits_us(index, &order)
                && (unseated || self.replaces_admission(&order))
            {
                self.prepare_own_join(order);
                return false;
            }
        }
        unseated
    }

    /// Whether a peer orders as a coordinator that this start of our program sits down.
    fn admits_us(&self, index: usize, order: &ScheduledCommand) -> bool {
        let (me, site) = (self.config.site, self.peers[index].site);
        let CommandKind::Join { site: joins, incarnation, members, .. } = order.kind else { return false };
        let sound = order.issuer == site && members.iter().next() == Some(site) && !members.contains(me);
        (joins, incarnation) == (me, self.config.incarnation) && sound && order.frame >= self.frame
    }

    /// Whether an order replaces the one that let us in: the giver of that is gone, and the next coordinator did not know of it.
    fn replaces_admission(&self, order: &ScheduledCommand) -> bool {
        let Some(giver) = self.joining.as_ref().and_then(|joining| joining.admitted_by) else { return false };
        let plays = |peer: &&Peer| peer.is_playing() && peer.silence(self.last_call) < TICK_SILENCE_LIMIT;
        let lowest = self.peers.iter().filter(plays).map(|peer| peer.site).min();
        order.issuer != giver && lowest == Some(order.issuer)
    }

    /// The coordinator lets us in: from the frame of the order on our inputs count.
    fn prepare_own_join(&mut self, order: ScheduledCommand) {
        let CommandKind::Join { members, epoch: view, input_delay: lag, prediction_window: window, .. } = order.kind
        else {
            return;
        };
        let first = order.frame;
        let own_width = self.layout.width();
        for peer in &mut self.peers {
            peer.seat = Seat::Free(Frame::ZERO);
            peer.reports = MembershipReports::default();
            (peer.vote, peer.has_old_epoch, peer.is_withheld) = (None, false, false);
            (peer.join_frame, peer.leave_after_join, peer.uninformed_until) = (None, None, None);
            if members.contains(peer.site) {
                peer.reopen_seat(first, own_width, false);
                (peer.seat, peer.join_frame) = (Seat::Playing, None);
                peer.lobby.has_played = true;
                peer.last_received_at = self.last_call;
            }
        }
        self.active_peers = super::active_peer_bits(&self.peers);
        self.membership = Membership::admitted(self.last_call);
        self.request_epoch(view);
        self.schedule_delay_settings(Frame::ZERO, lag, window);
        self.next_delay_settings.inspect(|dials| self.delay_settings = *dials);
        (self.command, self.last_applied_command) = (Some(order), Some(first));
        // With another seat, inputs that were told already must stay what they were: none.
        let told = self.own_join_frame().map(|_| self.own_inputs.end());
        self.own_inputs = Stream::new(own_width, first);
        self.own_input_digest = super::InputDigest::new(first);
        match &mut self.leaving {
            // Who thinks better of it is let in nevertheless if nobody knew, and leaves before the first frame.
            Some(leave) => {
                leave.input_end = first;
                self.phase = Phase::Running(FramePhase::Idle);
                self.joining = None;
            }
            None => {
                self.push_settling_inputs(first);
                self.push_neutral_inputs(told.unwrap_or(first).max(self.own_inputs.end()));
            }
        }
        if let Some(joining) = &mut self.joining {
            (joining.join_frame, joining.admitted_by) = (Some(first), Some(order.issuer));
            (joining.progress, joining.source_changed_at) =
                ((joining.spectator.next_frame(), self.last_call), self.last_call);
        }
        self.start_pacing(self.last_call);
        self.mark_extras_pending();
        self.mark_all_due();
        self.invalidate_send_time();
    }

    /// Our first inputs are none, told in advance.
    fn push_settling_inputs(&mut self, first: Frame) {
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let slowest = self.max_rtt();
        let (lag, window) =
            (i64::from(self.delay_settings.input_delay), i64::from(self.delay_settings.prediction_window));
        let most = (MAX_FRAMES_AHEAD - 2 * lag - window).clamp(0, MAX_NEUTRAL_FRAMES);
        let frames = ((slowest * 3 / 2 + NEUTRAL_INPUT_TIME).as_nanos() / period).clamp(0, most) + lag;
        self.push_neutral_inputs(first + frames as u32);
    }

    /// Our inputs before this frame are none.
    fn push_neutral_inputs(&mut self, until: Frame) {
        let nothing = [[0; 16]; crate::input::MAX_BLOCKS];
        let blocks = self.own_inputs.block_count();
        while self.own_inputs.end() < until {
            self.own_inputs.push_blocks(&nothing[..blocks]);
        }
        self.catch_up_until = until.checked_sub(self.delay_settings.input_delay).unwrap_or(until);
    }

    /// While the machine is not there yet, nobody shall wait for what we press.
    fn extend_neutral_inputs(&mut self, now: Instant) {
        let waiting = self.own_join_frame().is_some();
        let Some(live) = self.pacer.as_ref().filter(|_| waiting).and_then(|pacer| pacer.frame_at(now)) else { return };
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let slowest = self.max_rtt();
        let under_way = ((slowest + NEUTRAL_INPUT_TIME / 2).as_nanos() / period).clamp(0, MAX_NEUTRAL_FRAMES) as u32;
        // Further ahead than inputs are kept nobody must run.
        let until =
            (live + under_way + self.delay_settings.input_delay).min(self.machine_frame + MAX_FRAMES_BEHIND as u32);
        if until > self.own_inputs.end() {
            self.push_neutral_inputs(until);
            self.mark_all_due();
        }
    }

    /// All frames before ours are stepped, and we know when the next one is due: from now on we play.
    #[cold]
    pub(super) fn start_playing_if_due(&mut self) -> bool {
        let Some(first) = self.own_join_frame().filter(|first| self.machine_frame >= *first) else { return false };
        let (now, next) = (self.last_call, self.machine_frame);
        let stepped = self.joining.as_ref().is_some_and(|joining| joining.has_stepped);
        if self.config.settings.absent_input == AbsentInput::Repeat && !stepped {
            return false;
        }
        // Inputs are kept for so long; what is older comes from the feed alone.
        let playing = self.peers.iter().filter(|peer| peer.is_playing());
        if playing.map(|peer| peer.inputs.end() - next).max().is_some_and(|ahead| ahead > MAX_FRAMES_BEHIND) {
            return false;
        }
        // Where everybody stands still there is no plan to follow.
        let stuck = self.joining.as_ref().is_some_and(|joining| now - joining.progress.1 > SOURCE_TIMEOUT / 2);
        let idle = stuck && self.has_consumed_feed() || self.pace_setter.is_none();
        let known = self.pacer.as_mut().is_some_and(|pacer| pacer.jump_to(now, next)) || idle;
        if known {
            let everyone = SiteSet::first(usize::from(self.config.settings.site_count));
            self.joining = None;
            self.observe_substitute_inputs();
            // The feed may have brought more than the frames before ours.
            (self.frame, self.feed_end, self.search_end, self.joined_at) = (next, next, next, next);
            self.next_compared_frame = first_compared_frame(first, self.config.settings.compare_interval);
            self.skip_comparisons(next);
            if let Some(inquiry) = &mut self.desync_search {
                *inquiry = DesyncSearch::new(self.config.site, everyone, &self.config.settings, next);
            }
            self.phase = self.initial_phase();
            self.events.push(Event::Joined { site: self.config.site, frame: first });
        }
        known
    }

    /// What is done for those who were dropped before we came, or in our first frame, shows in the frame before it.
    fn observe_substitute_inputs(&mut self) {
        if self.config.settings.absent_input == AbsentInput::Repeat {
            let Self { peers, input_words: words, machine_frame: at, .. } = self;
            peers.iter_mut().for_each(|peer| peer.observe_substitute_input(*at, words));
        }
    }

    /// The others have compared states after our first frame that we have not seen; our inputs were told in advance.
    fn skip_comparisons(&mut self, next: Frame) {
        let every = self.config.settings.compare_interval;
        while let Some(frame) = self.next_compared_frame.filter(|frame| *frame < next) {
            self.own_input_digest.advance(&self.own_inputs, frame.next(), |_| false);
            self.own_input_digest.close_interval(frame);
            self.next_compared_frame = Some(frame + every);
        }
    }

    /// Frames follow each other from now on.
    pub(super) fn start_pacing(&mut self, at: Instant) {
        let settings = &self.config.settings;
        let reach = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        let mut pacer = Pacer::new(self.config.pacing, settings.rate.period(), reach, at);
        if self.delay_settings.prediction_window > 0 {
            pacer.enable_dither(self.config.site);
        }
        for peer in self.peers.iter().filter(|peer| peer.is_playing()) {
            pacer.on_delay(at, peer.site, peer.clock.rtt_min().unwrap_or_default() / 2);
        }
        self.pacer = Some(pacer);
        self.invalidate_send_time();
        self.choose_pace_setter();
    }
}

/// The first frame, not before `first`, after which states are compared.
fn first_compared_frame(first: Frame, every: u32) -> Option<Frame> {
    let next = (first.number() + 1).checked_next_multiple_of(every)?;
    (every > 0).then(|| Frame::new(next - 1))
}
