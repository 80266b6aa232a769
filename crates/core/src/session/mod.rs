//! The session engine: several sites step the same deterministic machine with the same inputs, frame by frame.
//!
//! A [`Session`] is one site's end of the shared game. It is a pure state machine: datagrams, the time and local inputs
//! go in; datagrams, [`Request`]s and [`Event`]s come out. The host program owns the machine, the sockets and the
//! clock. See the [crate] for a complete example.
//!
//! The session coordinates parts, one per module, each of which owns its state. This file contains all methods of
//! [`Session`]: it passes each part what that part reads of the others, and carries out what the part returns.
//!
//! Invariants:
//! - Frames are confirmed in sequence. A frame is confirmed when it is stepped with the inputs that every site gave for
//!   it. No site steps a frame that is further past its last confirmed frame than the prediction window. Every
//!   misprediction is rolled back once the real inputs are known.
//! - A local input takes effect in exactly the frame that was promised when the input was sampled.
//! - Memory, packet size and the distance between sites in frames are bounded.

mod auto_tune;
mod comparison;
mod config;
mod delay_settings;
mod desync;
mod digest_history;
mod event;
mod feed_output;
mod frame_schedule;
mod input_digest;
mod irrevocable;
mod jitter_buffer;
mod join;
mod leave;
mod lobby;
mod membership;
mod membership_reports;
pub mod message;
mod packet;
mod peer;
mod peers;
mod phase;
mod prediction;
mod probes;
mod quorum;
mod relay;
mod request;
mod rollback;
mod scheduled_command;
mod send;
mod session_clock;
mod slow_peer;
mod split_brain;
mod stall;
mod stats;
mod substitute_input;
mod timeline;

pub use crate::codec::Transmit;
pub use crate::settings::{
    AbsentInput, GameId, MAX_COMPARE_INTERVAL, MAX_INPUT_DELAY, MAX_LEAD, MAX_OPTIONS, MAX_PREDICTION_WINDOW,
    MAX_TEXT_LEN, MachineId, Settings, SettingsBuilder, SettingsDifference, SettingsError, StarvationPolicy,
};
pub use auto_tune::MachineCosts;
pub use config::{Config, ConfigError, LateJoinConfig, MIN_DROP_TIMEOUT, MIN_STALL_LIMIT, SendPolicy};
pub use desync::message::{DesyncMessage, HashList, MAX_HASHES, RegionList};
pub use desync::report::{
    DesyncReport, FrameSpan, MAX_REGION_NAME, MAX_REGIONS, MAX_SPAN_FRAMES, PAGE_SIZE, StateRegion,
    StateRegionDifference,
};
pub use desync::{DesyncBisector, LocalQuery};
pub use event::{Event, Freeze, SessionEnd};
pub use feed_output::ConfirmedFrame;
pub use jitter_buffer::JitterBufferModel;
pub use phase::State;
pub use prediction::{InputHistory, InputPredictor};
pub use request::Request;
pub use stats::{DroppedDatagrams, PeerStats, Stats};

use alloc::boxed::Box;

use crate::codec::{BufferFull, DecodeError, MAX_DATAGRAM, VERSION};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{InputWord, Recovery};
use crate::pace::{Pacer, Pacing};
use crate::session::message::{
    ClockProbe, CommandKind, Extra, Hello, MembershipDecision, PauseRequest, Refusal, RelayedInputs, ScheduledCommand,
    SenderIdentity, Tick, TickDigest, Vote, is_tick,
};
use crate::spectator_feed::message::is_feed;
use crate::spectator_feed::{Feed, FeedStats, SourceError, SpectatorEvent};
use crate::time::{GroupInstant, Instant, TimeDelta};
use auto_tune::{MeasuredRequest, Tuning, TuningFacts};
use comparison::{Comparison, Divergence};
use delay_settings::DelaySettings;
use desync::{DesyncSearch, ReplayRequest, SEARCH_SLOTS};
use digest_history::FrameDigest;
use event::SessionEventQueue;
use feed_output::Publisher;
use frame_schedule::FrameSchedule;
use irrevocable::irrevocable_end;
use jitter_buffer::{PauseChange, needed_pause};
use join::{JoinProgress, first_neutral_end, neutral_inputs_end, settling_inputs_end};
use leave::OwnLeave;
use lobby::{ALIVE_TIMEOUT, Lobby};
use membership::{CONSENT_SILENCE, Membership, MembershipFacts, max_spared_silence};
use membership_reports::{MembershipReports, ReportFacts};
use packet::{MAX_FRAME_DISTANCE, ProbeContent, TickContext, TickExtras};
use peer::{LINK_CUT_TIMEOUT, LeaveEffect, Peer, Seat};
use peers::Peers;
use phase::{FramePhase, Phase, SimulationTarget};
use prediction::predict_at;
use quorum::Electorate;
use relay::{RelayFacts, Relays};
use scheduled_command::{CommandFacts, CommandFate, Commands, all_have_confirmed, can_issue, join_frame};
use send::{SendFacts, SendSchedule};
use session_clock::{SessionClock, UPDATE_INTERVAL};
use slow_peer::{SlowPeerLimits, SlowPeers};
use split_brain::{Resolution, SplitBrain};
use stall::Stall;
use timeline::Timeline;

/// Duration for which a site that does not play yet, in the lobby or as a joiner, announces that it leaves.
const LOBBY_LEAVE_DURATION: TimeDelta = TimeDelta::from_secs(1);
/// After a host stall this long, lateness is not blamed on peers.
const HOST_STALL: TimeDelta = TimeDelta::from_millis(150);
/// After a host stall this long, the host program is taken to have been suspended, and silence is not blamed on peers.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);

/// Silence after which the seat of a site that left or was dropped becomes free. The seat becomes free earlier once
/// this site is more than 60 frames past the end of that site's inputs. Until its seat is free, a site that left still
/// gets ticks, from which it learns that this site knows of its leave.
const LEAVER_LINGER: TimeDelta = TimeDelta::from_secs(1);
/// Interval, in frames, at which inputs are hashed between comparisons, long before the input streams discard them.
const INPUT_DIGEST_INTERVAL: u32 = 64;
/// Time that a host program gets to read the frames that the end of a membership epoch has confirmed.
const PUBLISH_TIME: TimeDelta = TimeDelta::from_millis(100);

/// One site's end of a shared game: takes datagrams, the time and local inputs, and gives datagrams, requests and
/// events.
#[derive(Debug)]
pub struct Session {
    config: Config,
    clock: SessionClock,
    life: Lifecycle,
    peers: Peers,
    timeline: Timeline,
    pace: Pace,
    tuning: Tuning,
    sending: SendSchedule,
    relays: Relays,
    comparison: Comparison,
    members: Members,
    commands: Commands,
    lobby: Lobby,
    side: SideWork,
    output: Output,
}

/// Where the session stands between the lobby and its end.
#[derive(Debug)]
struct Lifecycle {
    phase: Phase,
    /// This site's orderly leave, once it has begun.
    leaving: Option<OwnLeave>,
}

/// When frames begin, and what holds them up.
#[derive(Debug)]
struct Pace {
    schedule: FrameSchedule,
    stall: Stall,
}

/// The parts that decide which sites play.
#[derive(Debug)]
struct Members {
    ballots: Membership,
    reports: MembershipReports,
    split_brain: SplitBrain,
    slow_peers: SlowPeers,
}

/// Work beside the frame loop.
#[derive(Debug)]
struct SideWork {
    /// Whether there is or was such work.
    is_active: bool,
    /// Progress of this site's late join; `None` if it does not join late or plays already.
    joining: Option<Box<JoinProgress>>,
    publisher: Publisher,
    /// State of desync searches; `None` if this site takes no part in them.
    desync_search: Option<Box<DesyncSearch>>,
}

/// What the host program reads.
#[derive(Debug)]
struct Output {
    events: SessionEventQueue,
    stats: Stats,
}

/// Collects what the send schedule reads of the other parts.
macro_rules! send_facts {
    ($session:expr) => {
        SendFacts {
            phase: $session.life.phase,
            peers: &$session.peers,
            own_inputs: $session.timeline.own_inputs(),
            last_call: $session.clock.last_call(),
            nominal_period: $session.config.settings.rate.period(),
            period: $session.pace.schedule.period(),
            input_delay: $session.timeline.delays().current().input_delay,
        }
    };
}

/// Collects what the judgement of membership reports reads of the other parts.
macro_rules! report_facts {
    ($session:expr, $facts:expr) => {
        ReportFacts { peers: &$session.peers, membership: &$session.members.ballots, membership_facts: &$facts }
    };
}

/// Collects what the scheduled commands read of the other parts.
macro_rules! command_facts {
    ($session:expr) => {
        CommandFacts {
            peers: &$session.peers,
            delays: $session.timeline.delays(),
            own_end: $session.timeline.own_inputs().end(),
            confirmed: $session.timeline.confirmed_end(&$session.peers),
            is_admitted: $session.side.joining.as_ref().is_some_and(|joining| joining.join_frame().is_some()),
        }
    };
}

impl Session {
    /// Creates this site's end of a session: joining a running game with [`Config::late_join`], otherwise in the lobby.
    /// Fails if the configuration is invalid.
    pub fn new(now: Instant, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let settings = &config.settings;
        let (ownership, first) = (&settings.ownership, Frame::new(settings.input_delay));
        let layout = ownership.layout(config.site);
        let width = layout.width();
        let peer = |(site, addr): &(SiteId, Addr)| Peer::new(now, *site, *addr, ownership.layout(*site), first, width);
        let mut peers = Peers::new(config.site, config.peers.iter().map(peer).collect());
        let absent = |peer: &&mut Peer| !settings.starting_sites.contains(peer.site());
        peers.iter_mut().filter(absent).for_each(Peer::vacate);
        let count = peers.len();
        let joining = config.late_join.map(|join| JoinProgress::new(now, join, &config)).transpose()?;
        let feed = config.feed.clone().map(|feed| Feed::new(feed).map(Box::new)).transpose()?;
        let searching = config.bisect_desyncs && config.can_save && settings.compare_interval > 0;
        let all_sites = SiteSet::first(usize::from(settings.site_count));
        let phase = if joining.is_some() { Phase::Joining } else { Phase::Lobby };
        let prediction = (config.predictor, config.can_save);
        let stats = Stats {
            input_delay: settings.input_delay,
            prediction_window: settings.prediction_window,
            ..Stats::default()
        };
        Ok(Self {
            clock: SessionClock::new(now),
            life: Lifecycle { phase, leaving: None },
            timeline: Timeline::new(settings, layout, &peers, prediction, joining.is_some()),
            pace: Pace { schedule: FrameSchedule::new(now), stall: Stall::new(now) },
            tuning: Tuning::new(now, Some(config.machine_costs).filter(|_| settings.auto_tune)),
            sending: SendSchedule::new(now, config.send_policy, peers.iter().map(|peer| !peer.is_free())),
            relays: Relays::new(now, count),
            comparison: Comparison::new(settings.compare_interval, first, count),
            members: Members {
                ballots: Membership::new(count),
                reports: MembershipReports::new(count),
                split_brain: SplitBrain::default(),
                slow_peers: SlowPeers::new(count),
            },
            commands: Commands::default(),
            lobby: Lobby::new(count),
            side: SideWork {
                is_active: joining.is_some() || feed.is_some(),
                joining,
                publisher: Publisher::new(feed),
                desync_search: searching.then(|| DesyncSearch::new(config.site, all_sites, settings, Frame::ZERO)),
            },
            output: Output { events: SessionEventQueue::new(), stats },
            peers,
            config,
        })
    }

    // ---- Time

    /// Handles the effects of elapsed time, such as the start of the game and timeouts. [`Session::poll_request`] does
    /// this, too.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.note_call_time(now);
        self.advance_time(now);
    }

    fn advance_time(&mut self, now: Instant) {
        match self.life.phase {
            Phase::Starting { at } if at <= now => self.start_running(at),
            Phase::Running(_) if self.clock.next_update() <= now => {
                self.clock.schedule_update(now);
                self.update(now);
            }
            Phase::Running(_) => {}
            Phase::Lobby | Phase::Joining
                if self.life.leaving.is_some_and(|leave| now - leave.since > LOBBY_LEAVE_DURATION) =>
            {
                self.end_session(SessionEnd::Left);
            }
            Phase::Lobby => self.try_start(now),
            Phase::Joining => self.update_joining(now),
            Phase::Starting { .. } | Phase::Over(_) => {}
        }
    }

    /// Notes the time of a call and returns it as session time. After a host stall, peers are not blamed for lateness.
    /// After a suspension of the host program, they are not blamed for silence either.
    fn note_call_time(&mut self, now: Instant) -> Instant {
        let now = self.clock.call_time(now);
        self.detect_host_stall(now);
        now
    }

    fn detect_host_stall(&mut self, now: Instant) {
        let away = self.clock.note_call(now);
        if away > HOST_STALL {
            self.pace.stall.excuse(away);
        }
        if away > HOST_SUSPENDED {
            self.peers.excuse_silence(away);
        }
    }

    /// Returns when to call [`Session::poll_request`] and [`Session::poll_transmit`] again if nothing else happens;
    /// `None` when the session is over.
    ///
    /// Be on time to a fraction of a millisecond if you can, because a frame begins when you call. A socket's read
    /// timeout is often too coarse: use it until a few milliseconds before this time, then sleep.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_resting = matches!(self.life.phase, Phase::Running(FramePhase::Idle))
            && self.life.leaving.is_none()
            && !self.side.is_active;
        let nothing_new = self.sending.is_nothing_new() && !self.timeline.has_misprediction();
        match self.sending.next_send() {
            Some(next_send) if is_resting && nothing_new => {
                Some(self.clock.host_time(next_send.min(self.pace.schedule.next_start())))
            }
            _ => self.next_timeout(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let send = self.sending.next_packet_at(&send_facts!(self));
        let last_call = self.clock.last_call();
        let frame = match self.life.phase {
            Phase::Over(_) => return None,
            // There may be no peer to send to, and so no other reason to be called.
            Phase::Lobby | Phase::Joining if self.life.leaving.is_some() => last_call + UPDATE_INTERVAL,
            Phase::Lobby | Phase::Joining => Instant::FAR_FUTURE,
            Phase::Starting { at } => at,
            Phase::Running(_) if self.life.leaving.is_some() => self.clock.next_update(),
            Phase::Running(FramePhase::Idle) => {
                let next_start = self.pace.schedule.next_start();
                self.timeline.next_rollback_time(next_start).min(next_start)
            }
            Phase::Running(FramePhase::AwaitInputs { .. }) if !self.can_step() => Instant::FAR_FUTURE,
            Phase::Running(FramePhase::AwaitInputs { began }) => self.predict_at(began).max(last_call),
            Phase::Running(FramePhase::AwaitSample) => Instant::FAR_FUTURE,
            Phase::Running(_) => last_call,
        };
        let side_work = if self.side.is_active { self.next_side_work_time() } else { Instant::FAR_FUTURE };
        Some(self.clock.host_time(send.min(frame).min(side_work)))
    }

    // ---- The story of a frame

    /// Returns the next request to the host program; call it until it returns `None`.
    ///
    /// Call it whenever the time of [`Session::poll_timeout`] has come or a datagram was handled, with the time of the
    /// call: a frame begins or is stepped at the time at which its request is returned.
    #[inline]
    pub fn poll_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if matches!(self.life.phase, Phase::Running(FramePhase::Idle))
            && !self.timeline.has_misprediction()
            && self.pace.schedule.next_start().min(self.clock.next_update()) > self.clock.session_time(now)
        {
            self.tuning.on_request_done(self.clock.session_time(now));
            return None;
        }
        self.next_request(now)
    }

    fn next_request(&mut self, now: Instant) -> Option<Request<'_>> {
        let now = self.clock.call_time(now);
        if self.clock.next_update() <= now || !matches!(self.life.phase, Phase::Running(_)) {
            self.detect_host_stall(now);
            self.advance_time(now);
        }
        self.tuning.on_request_done(now);
        loop {
            if matches!(self.life.phase, Phase::Joining) && !self.start_playing_if_due() {
                let joining = self.side.joining.as_mut()?;
                return joining.next_request(now, &mut self.timeline, &mut self.comparison);
            }
            let Phase::Running(frame_phase) = self.life.phase else { return None };
            if self.life.leaving.is_some() {
                return None;
            }
            match frame_phase {
                FramePhase::Idle if self.begin_replay_if_due() => {}
                FramePhase::Idle if self.is_snapshot_due() => return Some(self.request_snapshot()),
                FramePhase::Idle if self.pace.schedule.next_start() > now => return self.roll_back_if_due(now),
                FramePhase::Idle if self.pause_if_starved(now) => return None,
                FramePhase::Idle => self.begin_frame(now),
                FramePhase::SampleDue => {
                    self.life.phase = Phase::Running(FramePhase::AwaitSample);
                    return Some(Request::Sample { frame: self.timeline.own_inputs().end() });
                }
                FramePhase::AwaitSample => return None,
                FramePhase::AwaitInputs { began } => {
                    let known = self.timeline.known_end(&self.peers);
                    if !self.timeline.can_step(known) {
                        self.record_stall(now);
                        return None;
                    }
                    if self.timeline.frame() >= known && now < self.predict_at(began) {
                        return None;
                    }
                    let (target, is_saved) =
                        (SimulationTarget::CurrentFrame { began }, self.timeline.has_misprediction());
                    self.life.phase = Phase::Running(FramePhase::Simulate { target, is_saved });
                    // There is at most one rollback per frame: a misprediction that is found during a rollback waits
                    // for the next frame, or a slow machine would never finish.
                    if let Some(mispredicted) = self.timeline.begin_rollback(now, false) {
                        return Some(self.load_for_rollback(now, mispredicted));
                    }
                }
                FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                    if self.timeline.machine_frame() == self.timeline.frame() =>
                {
                    self.timeline.end_rollback(now);
                    self.life.phase = Phase::Running(FramePhase::Idle);
                }
                FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                    if self.pace.schedule.next_start() <= now =>
                {
                    self.begin_frame(now)
                }
                FramePhase::Simulate { target, is_saved } => {
                    return Some(self.next_simulation_request(now, target, is_saved));
                }
                FramePhase::AwaitStep => {
                    self.pace.schedule.on_step_end(now);
                    self.finish_frame();
                }
                FramePhase::Hash => {
                    self.life.phase = self.phase_after_hash(None);
                    return self.comparison.pending_hash().map(|frame| Request::Hash { frame });
                }
                FramePhase::HashResimulated { target } => {
                    self.life.phase = self.phase_after_hash(Some(target));
                    return self.comparison.pending_hash().map(|frame| Request::Hash { frame });
                }
                FramePhase::SaveAnchor { slot, target } => {
                    self.life.phase = Phase::Running(target.map_or(FramePhase::Idle, FramePhase::simulate));
                    return Some(self.save_anchor(slot));
                }
                FramePhase::Replay => return Some(self.next_replay_request()),
            }
        }
    }

    /// Returns the phase after a hash: first an anchor is saved if one is due, then the rollback towards `target` goes
    /// on, if there is one.
    #[cold]
    fn phase_after_hash(&self, target: Option<SimulationTarget>) -> Phase {
        let search = self.side.desync_search.as_ref();
        let anchor =
            search.and_then(|search| self.comparison.pending_hash().and_then(|frame| search.anchor_after(frame)));
        Phase::Running(match anchor {
            Some(slot) => FramePhase::SaveAnchor { slot, target },
            None => target.map_or(FramePhase::Idle, FramePhase::simulate),
        })
    }

    fn begin_frame(&mut self, now: Instant) {
        self.side.publisher.on_begin();
        // A hash that has not arrived by now never will.
        self.comparison.take_pending_hash();
        let frame = self.timeline.frame();
        if let Some(settings) = self.timeline.delays_mut().apply_due(frame) {
            self.on_delay_settings(settings);
        }
        let setter = self.pace.schedule.setter().filter(|_| self.config.pacing == Pacing::Zhao);
        let master = setter.and_then(|setter| self.peers.observe_master(setter));
        self.pace.schedule.on_begin(now, frame, master);
        self.life.phase = self.sample_or_await_inputs(now);
    }

    /// Returns the phase after the start of a frame or after a sample: the next sample, or the wait for the peers'
    /// inputs.
    fn sample_or_await_inputs(&self, now: Instant) -> Phase {
        let is_sample_due = self.timeline.is_sample_due();
        Phase::Running(if is_sample_due { FramePhase::SampleDue } else { FramePhase::AwaitInputs { began: now } })
    }

    /// Informs the pacer of delay settings that are in force from now on.
    #[cold]
    fn on_delay_settings(&mut self, settings: DelaySettings) {
        self.output.stats.input_delay = settings.input_delay;
        self.output.stats.prediction_window = settings.prediction_window;
        let dither_site = Some(self.config.site).filter(|_| settings.prediction_window > 0);
        self.pace.schedule.set_lead(settings.lead(), dither_site);
    }

    /// Handles the local input that [`Request::Sample`] asked for: one word per player, of which only the bits that
    /// this site owns count. The current frame waits until the input comes. An input that was not requested is ignored.
    pub fn handle_input(&mut self, now: Instant, inputs: &[InputWord]) {
        if !matches!(self.life.phase, Phase::Running(FramePhase::AwaitSample)) || self.life.leaving.is_some() {
            return;
        }
        let now = self.clock.call_time(now);
        self.timeline.push_input(inputs);
        self.mark_all_due();
        self.life.phase = self.sample_or_await_inputs(now);
    }

    /// Returns whether the current frame may be stepped.
    fn can_step(&self) -> bool {
        self.timeline.can_step(self.timeline.known_end(&self.peers))
    }

    /// Returns when the missing inputs of the frame that began at `began` are predicted.
    fn predict_at(&self, began: Instant) -> Instant {
        predict_at(began, self.timeline.frame(), &self.peers, self.nominal_period())
    }

    fn nominal_period(&self) -> TimeDelta {
        self.config.settings.rate.period()
    }

    /// Returns the next request on the way to the target: the step of a past frame or of the current one, or the save
    /// that comes before each frame for which an input is missing.
    fn next_simulation_request(&mut self, now: Instant, target: SimulationTarget, is_saved: bool) -> Request<'_> {
        let frame = self.timeline.machine_frame();
        if !is_saved && frame >= self.timeline.known_end(&self.peers) {
            self.output.stats.saves += 1;
            self.tuning.on_request(now, MeasuredRequest::Save);
            self.life.phase = Phase::Running(FramePhase::Simulate { target, is_saved: true });
            return Request::Save { frame, slot: self.timeline.save_slot(frame) };
        }
        self.timeline.gather(frame, &self.peers);
        self.timeline.step_machine();
        let fresh = match target {
            SimulationTarget::CurrentFrame { began } if frame == self.timeline.frame() => {
                self.timeline.end_rollback(now);
                self.tuning.on_request(now, MeasuredRequest::ShownStep);
                self.step_frame(now, began);
                true
            }
            _ => {
                self.tuning.on_request(now, MeasuredRequest::HiddenStep);
                self.resimulate_frame(target, frame);
                false
            }
        };
        Request::Advance { frame, inputs: self.timeline.words(), fresh }
    }

    /// Handles the step of the current frame, which began at `began`: ends the stall and lets the pacer plan the next
    /// frame.
    fn step_frame(&mut self, now: Instant, began: Instant) {
        let period = self.nominal_period();
        self.tuning.record_input_age(|| self.timeline.input_age(&self.peers), now - began, period);
        self.end_stall(now, began);
        let plan = self.pace.schedule.planned_start();
        match self.pace.schedule.on_step(now, self.timeline.frame()) {
            true => self.finish_frame(),
            false => self.life.phase = Phase::Running(FramePhase::AwaitStep),
        }
        self.catch_up();
        if self.pace.schedule.has_abandoned(plan) {
            self.peers.make_probes_due();
        }
    }

    /// Handles the step of a past frame in a rollback, and requests the hash of the state after it if that state is
    /// compared.
    fn resimulate_frame(&mut self, target: SimulationTarget, frame: Frame) {
        self.output.stats.resimulated += 1;
        self.life.phase = Phase::Running(match self.comparison.request_hash(frame) {
            true => FramePhase::HashResimulated { target },
            false => FramePhase::simulate(target),
        });
    }

    /// Advances to the next frame: passes confirmed frames to the feed, and requests the hash of the state if the frame
    /// is compared.
    fn finish_frame(&mut self) {
        let frame = self.timeline.frame();
        self.timeline.finish_frame();
        self.publish_frames();
        let is_compared = self.comparison.request_hash(frame);
        self.life.phase = Phase::Running(if is_compared { FramePhase::Hash } else { FramePhase::Idle });
        if !is_compared && self.comparison.is_behind(frame) {
            self.publish_digests();
        }
        if frame.number().is_multiple_of(INPUT_DIGEST_INTERVAL) {
            let confirmed = self.confirmed_end();
            self.comparison.advance_input_digests(confirmed, &self.peers, self.timeline.own_inputs());
        }
    }

    /// Lets a late joiner step frames as fast as its machine can until it has caught up with the players.
    fn catch_up(&mut self) {
        let next = self.timeline.frame();
        if next < self.timeline.catch_up_until() && self.is_running() {
            let now = self.clock.last_call();
            self.pace.schedule.jump_to(now, next);
            if self.timeline.have_all_begun(next.next(), &self.peers) {
                self.pace.schedule.begin_by(now);
            }
        }
    }

    // ---- Predictions and rollbacks

    /// Compares newly received inputs of a peer with the predicted ones. `known` is the previous end of the peer's
    /// known inputs.
    #[inline]
    fn check_predictions(&mut self, index: usize, known: Frame) {
        self.timeline.check_predictions(index, &mut self.peers[index], known);
    }

    /// Returns the end of the confirmed frames.
    #[inline]
    fn confirmed_end(&self) -> Frame {
        self.timeline.confirmed_end(&self.peers)
    }

    /// Begins a rollback before the next frame if its time has come.
    fn roll_back_if_due(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.timeline.next_rollback_time(self.pace.schedule.next_start()) > now {
            return None;
        }
        let mispredicted = self.timeline.begin_rollback(now, true)?;
        self.life.phase =
            Phase::Running(FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, is_saved: true });
        Some(self.load_for_rollback(now, mispredicted))
    }

    /// Returns the request to load the state before `mispredicted`, the first frame that was stepped with a
    /// mispredicted input.
    #[cold]
    fn load_for_rollback(&mut self, now: Instant, mispredicted: Frame) -> Request<'_> {
        self.output.stats.rollbacks += 1;
        self.tuning.on_request(now, MeasuredRequest::Load);
        Request::Load { frame: mispredicted, slot: self.timeline.save_slot(mispredicted) }
    }

    // ---- Start, stalls and pauses

    /// Starts the game: its first frame begins at `at`.
    #[cold]
    fn start_running(&mut self, at: Instant) {
        self.start_pacing(at);
        self.life.phase = self.initial_phase();
    }

    /// Returns the phase before the first frame that this site plays. A site that takes part in desync searches saves
    /// the machine's state as its first anchor.
    fn initial_phase(&self) -> Phase {
        let search = self.side.desync_search.as_ref();
        let slot = search.map(|search| search.anchor_before(self.timeline.machine_frame()));
        Phase::Running(slot.map_or(FramePhase::Idle, |slot| FramePhase::SaveAnchor { slot, target: None }))
    }

    /// Starts the pacer with the next frame at `at`, and chooses the pace setter.
    fn start_pacing(&mut self, at: Instant) {
        let delays = self.timeline.delays().current();
        let mut pacer = Pacer::new(self.config.pacing, self.nominal_period(), delays.lead(), at);
        if delays.prediction_window > 0 {
            pacer.enable_dither(self.config.site);
        }
        for peer in self.peers.playing() {
            pacer.on_delay(at, peer.site(), peer.clock().rtt_min().unwrap_or_default() / 2);
        }
        self.pace.schedule.start(pacer);
        self.sending.invalidate();
        self.choose_pace_setter();
    }

    /// Chooses the pace setter: the lowest site that plays, or `None` if that is this site.
    fn choose_pace_setter(&mut self) {
        self.pace.schedule.follow(self.peers.pace_setter());
    }

    /// Returns the end of the frames that have begun.
    fn begun_end(&self) -> Frame {
        let has_current_begun = !matches!(self.life.phase, Phase::Running(step) if step.is_between_frames());
        if has_current_begun { self.timeline.frame().next() } else { self.timeline.frame() }
    }

    /// Returns whether the current frame has begun.
    fn has_begun(&self) -> bool {
        self.begun_end() > self.timeline.frame()
    }

    /// Returns when a frame began at this site, or will probably begin if it has not begun yet; `None` if that is
    /// unknown.
    fn frame_start(&self, frame: Frame) -> Option<Instant> {
        let current = self.timeline.frame();
        let began = self.pace.schedule.began_at(frame, current, self.begun_end());
        began.or_else(|| self.pace.schedule.planned_at(frame, current))
    }

    /// Records that the current frame cannot be stepped, and which peers cause that.
    #[inline]
    fn record_stall(&mut self, now: Instant) {
        self.pace.stall.begin(now);
        if self.config.stall_limit.is_some() {
            let causes = self.timeline.stalling_peers(&self.peers).map(Peer::site).collect();
            self.pace.stall.blame(causes);
        }
    }

    fn end_stall(&mut self, now: Instant, began: Instant) {
        if let Some(ended) = self.pace.stall.end(now) {
            self.output.stats.stalls += 1;
            self.output.stats.stall_time += now - began;
            if !ended.caused_by.is_empty() && self.own_stall_limit().is_some() {
                self.members.slow_peers.charge(ended, &self.peers);
            }
        }
        if self.pace.stall.end_freeze() {
            self.output.events.push(Event::Resumed { frame: self.timeline.frame(), after: now - began });
        }
    }

    #[cold]
    fn update_freeze(&mut self, now: Instant, began: Instant) {
        let limit = self.config.freeze_timeout;
        if now - began < limit || self.can_step() {
            return;
        }
        let stalling = || self.timeline.stalling_peers(&self.peers);
        let silent = stalling().filter(|peer| now - peer.last_received_at() >= limit);
        let freeze = Freeze {
            frame: self.timeline.frame(),
            since: began,
            waiting_for: stalling().map(Peer::site).collect(),
            silent_sites: silent.map(Peer::site).collect(),
        };
        if self.pace.stall.note_freeze(freeze) {
            self.output.events.push(Event::Frozen(freeze));
        }
    }

    /// With [`StarvationPolicy::Pause`] and without prediction, begins a pause and asks the other sites for it if the
    /// buffer of a playing peer is below its low watermark and a pause can fill it, or is above its high watermark.
    /// Does nothing before the frame whose number is the input delay, nor until 1 s after the end of the last pause.
    /// Returns whether a pause began, so that this site does not begin the next frame.
    fn pause_if_starved(&mut self, now: Instant) -> bool {
        let (delays, frame) = (self.timeline.delays().current(), self.timeline.frame());
        let is_enabled = self.config.settings.starvation_policy == StarvationPolicy::Pause
            && delays.prediction_window == 0
            && self.pace.schedule.pause().may_begin(now)
            && frame.number() >= delays.input_delay;
        if !is_enabled {
            return false;
        }
        let buffers = self.peers.playing().map(|peer| (peer.clock(), self.timeline.buffered_frames(peer)));
        let Some(duration) = needed_pause(self.nominal_period(), delays.input_delay, buffers) else { return false };
        let Some(until) = self.peers.group_time(now + duration) else { return false };
        let request = PauseRequest { requested_by: self.config.site, frame, until_ns: until.as_nanos() };
        self.begin_pause(now, request, now + duration);
        self.mark_all_due();
        true
    }

    fn begin_pause(&mut self, now: Instant, request: PauseRequest, until: Instant) {
        if self.pace.schedule.begin_pause(until, request, self.has_begun()) {
            self.peers.make_probes_due();
        }
        self.output.stats.pauses += 1;
        self.output.events.push(Event::Paused {
            frame: request.frame,
            duration: until - now,
            site: request.requested_by,
        });
        self.sending.mark_extras_pending();
        self.sending.invalidate();
    }

    /// Joins the pause that a peer asks for, so that all sites resume together. Ignores a request that names a frame
    /// further away than the maximum lead.
    fn on_pause_request(&mut self, now: Instant, request: PauseRequest) {
        let frame = self.timeline.frame();
        let is_enabled = self.config.settings.starvation_policy == StarvationPolicy::Pause
            && self.is_running()
            && (frame - request.frame).abs() <= i64::from(self.timeline.delays().max_lead());
        let until = self.peers.local_time(GroupInstant::from_nanos(request.until_ns));
        let Some(until) = until.filter(|_| is_enabled) else { return };
        // If this site begins another frame next, it resumes when the requester begins that frame.
        let delay = self.nominal_period() * (self.begun_end() - request.frame);
        let change = self.pace.schedule.pause().change(now, until, delay);
        if let Some(PauseChange::Begin(until)) = change {
            self.begin_pause(now, request, until);
        }
        if let Some(PauseChange::Extend(until)) = change
            && self.pace.schedule.extend_pause(until, self.has_begun())
        {
            self.peers.make_probes_due();
        }
    }

    // ---- The periodic update

    /// Runs the periodic update of a running game, which handles leaves, freezes, membership and timeouts.
    fn update(&mut self, now: Instant) {
        if self.is_steady(now) {
            self.relays.reset(now);
            return self.update_tuning(now);
        }
        self.update_all(now);
    }

    /// Returns whether an update needs to do no more than reset the relay selectors and tune the delay settings: all
    /// peers play and send, nothing is under way, and no limit has to be checked.
    fn is_steady(&self, now: Instant) -> bool {
        let config = &self.config;
        let no_peer_is_timed =
            config.stall_limit.is_none() && config.silence_timeout.is_none_or(|limit| limit > LINK_CUT_TIMEOUT);
        let is_idle = self.commands.newest().is_none()
            && self.life.leaving.is_none()
            && !self.sending.are_extras_pending()
            && !self.tuning.is_due();
        let is_steady =
            |(index, peer): (usize, &Peer)| peer.is_steady(now) && self.members.ballots.is_peer_idle(index, peer);
        no_peer_is_timed
            && is_idle
            && config.recovery != Recovery::Classic
            && self.pace.schedule.pause().announced().is_none()
            && self.members.ballots.is_idle()
            && self.members.split_brain.is_idle()
            && self.members.reports.is_empty()
            && self.side.desync_search.as_ref().is_none_or(|search| !search.is_under_way())
            && !matches!(self.life.phase, Phase::Running(FramePhase::AwaitInputs { .. }))
            && self.peers.iter().enumerate().all(is_steady)
    }

    #[cold]
    fn update_all(&mut self, now: Instant) {
        for index in 0..self.peers.len() {
            self.update_leaver(now, index);
        }
        self.update_slow_peers(now);
        self.update_reports();
        self.update_membership();
        self.update_split_brain(now);
        self.update_command();
        self.relays.update(now, &self.peers, self.members.ballots.muted());
        if self.config.recovery == Recovery::Classic {
            (0..self.peers.len()).for_each(|index| self.request_missing_inputs(now, index, false));
        }
        self.update_extras_pending(now);
        self.update_desync_search(now);
        self.update_tuning(now);
        if let Phase::Running(FramePhase::AwaitInputs { began }) = self.life.phase {
            self.update_freeze(now, began);
            // Acknowledgements can make more frames irrevocable, and a joiner for which all sites wait may need these
            // frames from the feed.
            self.publish_frames();
        }
        if let Some(leave) = self.life.leaving {
            if leave.is_complete(now, &self.peers) {
                self.end_session(leave.reason);
            }
        } else if let Some(limit) = self.config.silence_timeout
            && let Some(site) = self.peers.timed_out_site(now, limit)
        {
            self.end_session(SessionEnd::Silent(site));
        }
    }

    /// Sends this site's statistics once per second; the coordinator also changes the delay settings if needed.
    fn update_tuning(&mut self, now: Instant) {
        let can_change = self.can_schedule_command() && self.is_running();
        let facts = self.tuning_facts();
        let Some(change) = self.tuning.update(now, can_change, &facts) else { return };
        self.sending.mark_extras_pending();
        if let Some(kind) = change {
            self.schedule_command(self.timeline.own_inputs().end() + 30, kind);
        }
    }

    fn tuning_facts(&self) -> TuningFacts {
        let slots = self.config.settings.rollback_slots() as u32;
        TuningFacts {
            own_site: self.config.site,
            playing: self.peers.voters(),
            period: self.nominal_period(),
            rollback_slots: if self.config.can_save { slots } else { 0 },
            delays: self.timeline.delays().current(),
        }
    }

    // ---- Leaves and the end

    /// Leaves the game. The other sites go on with neutral input from the frame after this site's last one. Keep
    /// polling until [`Event::Ended`]. In a game, it comes when all other sites that still send know of the leave, at
    /// most 30 s later; in the lobby, and at a joiner that is not admitted, after 1 s. If the program stops polling
    /// before that, some sites may take this site for a silent one. If all others leave at the same time, the reason
    /// may be [`SessionEnd::Alone`].
    pub fn leave(&mut self, now: Instant) {
        let now = self.note_call_time(now);
        self.begin_leave(now, SessionEnd::Left);
    }

    /// Begins to leave. `end` is the reason that the final [`Event::Ended`] gives.
    fn begin_leave(&mut self, now: Instant, end: SessionEnd) {
        let input_end = self.timeline.own_inputs().end();
        self.life.leaving.get_or_insert(OwnLeave { input_end, since: now, reason: end });
        // A leaving site steps no more frames.
        self.side.publisher.close();
        if let Phase::Starting { at } = self.life.phase {
            self.start_running(at);
        }
        if self.life.phase == Phase::Joining && self.pace.schedule.is_started() {
            // The other sites already wait for this site's inputs.
            self.abandon_join();
            self.clock.schedule_update(now);
        }
        if self.is_running() {
            self.life.phase = Phase::Running(FramePhase::Idle);
        }
        self.pace.stall.end_freeze();
        self.sending.mark_extras_pending();
        self.mark_all_due();
        self.sending.invalidate();
    }

    /// Plays as a leaving site instead of joining.
    fn abandon_join(&mut self) {
        self.life.phase = Phase::Running(FramePhase::Idle);
        self.side.joining = None;
        self.timeline.abandon_join();
    }

    /// Completes the leave of a peer when all its inputs are known, and later frees its seat.
    fn update_leaver(&mut self, now: Instant, index: usize) {
        let peer = &self.peers[index];
        let Seat::Leaving(last) = peer.seat() else { return };
        if peer.inputs().end() < last {
            return;
        }
        let (site, last_received_at) = (peer.site(), peer.last_received_at());
        if self.peers.report_gone(site) {
            self.output.events.push(Event::Left { site, frame: last });
            self.choose_pace_setter();
        } else if now - last_received_at > LEAVER_LINGER || self.timeline.frame() > last + 60 {
            self.peers[index].free_seat();
            self.sending.set_active(index, false);
            self.end_if_alone();
        }
    }

    fn apply_leave(&mut self, index: usize, last: Frame) {
        if self.peers[index].on_leave(last) != LeaveEffect::Leaves {
            return;
        }
        let site = self.peers[index].site();
        // This comes before the end of the peer's inputs is set: until then, frames from the command's frame on are not
        // confirmed and can be resimulated.
        self.void_command_after(site, last);
        let known = self.peers[index].known_end();
        self.peers[index].leave(last);
        self.members.slow_peers.on_leave(index, self.clock.last_call());
        self.members.ballots.on_leave(site);
        self.pace.schedule.forget_site(site);
        self.check_predictions(index, known);
    }

    /// Ends the session if all other players have left, unless the game started with free seats, a dropped site can
    /// still come back, or this site may play on alone.
    fn end_if_alone(&mut self) {
        let settings = &self.config.settings;
        let has_open_seats = settings.starting_sites != SiteSet::first(usize::from(settings.site_count));
        if !self.config.can_play_alone && !has_open_seats && self.peers.have_all_left() {
            self.end_session(SessionEnd::Alone);
        }
    }

    #[cold]
    fn end_session(&mut self, end: SessionEnd) {
        if !self.is_over() {
            self.life.phase = Phase::Over(end);
            self.sending.cancel();
            // A session that is over does not handle the datagrams of subscribers.
            self.side.publisher.close();
            self.output.events.push(Event::Ended(end));
        }
    }

    // ---- Digests, feed and recording

    /// Handles the hash of the state that [`Request::Hash`] asked for. Without this call before the next frame begins,
    /// the hashed frame is not compared.
    pub fn handle_hash(&mut self, hash: u64) {
        if self.side.desync_search.as_mut().is_some_and(|search| search.on_replay_hash(hash)) {
            return;
        }
        let Some(frame) = self.comparison.take_pending_hash() else { return };
        if let Some(joining) = &mut self.side.joining {
            return joining.handle_hash(hash);
        }
        self.comparison.on_hash(frame, hash);
        self.publish_digests();
    }

    /// Publishes the digests of compared frames that are confirmed by now, and compares them with those of the peers.
    #[cold]
    fn publish_digests(&mut self) {
        let confirmed = self.confirmed_end();
        while let Some((frame, hash)) = self.comparison.publish_next(confirmed, &self.peers, self.timeline.own_inputs())
        {
            self.side.publisher.publish_hash(frame, hash);
            for index in 0..self.peers.len() {
                self.compare_state(index, frame);
            }
        }
    }

    /// Compares the digests of a peer and of this site for a frame, and reports the first difference of each kind.
    fn compare_state(&mut self, index: usize, frame: Frame) {
        let findings = self.comparison.compare(index, frame, &self.peers[index], self.life.leaving.is_some());
        let site = self.peers[index].site();
        if findings.is_forged {
            self.output.events.push(Event::InputsForged { site, frame });
        }
        if let Some(Divergence { agreed, own_hash }) = findings.divergence {
            self.output.events.push(Event::Diverged { site, frame });
            self.side.publisher.retire_snapshots();
            if let Some(search) = &mut self.side.desync_search {
                self.side.is_active |= search.on_mismatch(self.clock.last_call(), agreed, frame, own_hash);
            }
        }
    }

    /// Keeps the inputs of new confirmed frames for desync searches, and adds frames to the feed as soon as no
    /// membership decision can change their inputs any more.
    #[inline]
    fn publish_frames(&mut self) {
        if self.side.publisher.has_feed() || self.side.desync_search.is_some() {
            self.publish_confirmed_frames();
        }
    }

    #[inline(never)]
    fn publish_confirmed_frames(&mut self) {
        let confirmed = self.confirmed_end();
        if let Some(search) = &mut self.side.desync_search {
            while search.end() < confirmed {
                let frame = search.end();
                search.push(frame, self.timeline.confirmed_words(frame, &self.peers));
            }
        }
        if self.side.publisher.has_feed() {
            let (irrevocable, now) = (self.irrevocable_end(confirmed), self.clock.last_call());
            while self.side.publisher.feed_end() < irrevocable {
                let frame = self.side.publisher.feed_end();
                let hash = self.comparison.published_hash(frame);
                self.side.publisher.publish(now, self.timeline.confirmed_words(frame, &self.peers), hash);
            }
        }
    }

    /// Returns the end of the frames that no membership decision can change any more.
    fn irrevocable_end(&self, confirmed: Frame) -> Frame {
        let lead = self.timeline.delays().largest_lead();
        let unpublished = self.side.publisher.feed_end().max(self.timeline.own_inputs().start());
        let electorate = Electorate { voters: self.peers.voters(), pending_joiner: self.pending_joiner() };
        irrevocable_end(&self.peers, electorate, (unpublished, confirmed), lead)
    }

    /// Returns the next confirmed frame, for a program that records a [movie](crate::movie) or forwards the game;
    /// `None` if there is no unread one yet. Call it after every frame until it returns `None`: a frame that is not
    /// read before 120 more are confirmed (2 s at 60 frames per second) is skipped and counted in
    /// [`Stats::skipped_confirmed`].
    pub fn poll_confirmed(&mut self) -> Option<ConfirmedFrame<'_>> {
        if self.side.joining.is_some() {
            return None;
        }
        let (confirmed, joined_at) = (self.confirmed_end(), self.timeline.joined_at());
        let pending_hash = self.comparison.pending_hash();
        let (frame, skipped) = self.side.publisher.next_recorded(confirmed, joined_at, pending_hash)?;
        self.output.stats.skipped_confirmed += skipped;
        let inputs = self.timeline.confirmed_words(frame, &self.peers);
        Some(ConfirmedFrame { frame, inputs, hash: self.comparison.hash(frame) })
    }

    /// Returns the statistics of the feed; `None` without [`Config::feed`].
    pub fn feed_stats(&self) -> Option<FeedStats> {
        self.side.publisher.stats()
    }

    /// Returns whether a subscriber of the feed needs a snapshot, and the machine can save one.
    #[inline]
    fn is_snapshot_due(&self) -> bool {
        self.side.publisher.is_snapshot_due() && self.config.can_save
    }

    /// Requests the state before the first unconfirmed frame: the machine's current state, or a saved one if the
    /// machine has stepped unconfirmed frames.
    #[cold]
    fn request_snapshot(&mut self) -> Request<'_> {
        self.publish_confirmed_frames();
        let frame = self.confirmed_end();
        self.side.publisher.on_snapshot_requested(frame);
        let slot = (frame < self.timeline.machine_frame()).then(|| self.timeline.save_slot(frame));
        Request::Snapshot { frame, slot }
    }

    /// Handles the state that [`Request::Snapshot`] asked for, and its hash. Without this call, spectators and late
    /// joiners that need a snapshot wait for the next request.
    pub fn handle_snapshot(&mut self, state: &[u8], hash: u64) {
        self.side.publisher.set_snapshot(self.clock.last_call(), state, hash);
    }

    // ---- Desync search

    /// Begins a replay if a query needs one. Returns whether it did.
    #[inline]
    fn begin_replay_if_due(&mut self) -> bool {
        let search = self.side.desync_search.as_mut().filter(|search| search.is_under_way());
        let begins = search.is_some_and(|search| search.begin_replay());
        if begins {
            self.life.phase = Phase::Running(FramePhase::Replay);
        }
        begins
    }

    /// Requests to save the machine's state as an anchor.
    #[cold]
    fn save_anchor(&mut self, index: usize) -> Request<'_> {
        let frame = self.timeline.machine_frame();
        let search = self.side.desync_search.as_mut().expect("an anchor belongs to a search");
        Request::Save { frame, slot: search.save_anchor(index, frame) }
    }

    #[cold]
    fn next_replay_request(&mut self) -> Request<'_> {
        let present = self.timeline.machine_frame();
        let search = self.side.desync_search.as_mut().expect("a replay belongs to a search");
        match search.next_replay_request(present, self.timeline.scratch_words_mut()) {
            ReplayRequest::Next(request) => request,
            ReplayRequest::Last(request) => {
                self.life.phase = Phase::Running(FramePhase::Idle);
                request
            }
        }
    }

    /// Handles a datagram of a desync search; those of sites that do not play are dropped.
    #[cold]
    fn handle_desync_message(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let site = self.peers.playing().find(|peer| peer.addr() == from).map(Peer::site);
        let search = self.side.desync_search.as_mut().filter(|_| self.side.joining.is_none());
        let (Some(site), Some(search)) = (site, search) else {
            self.output.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let Ok(message) = DesyncMessage::decode(bytes) else {
            self.output.stats.dropped_datagrams.malformed += 1;
            return;
        };
        let digest = |frame| self.comparison.own_state_hash(frame);
        self.side.is_active |= search.on_message(now, site, &message, digest);
    }

    fn update_desync_search(&mut self, now: Instant) {
        let report = self.side.desync_search.as_mut().and_then(|search| search.update(now, &self.peers));
        self.report(report.map(Event::DesyncReport));
    }

    /// Handles the named regions of the state that [`Request::Regions`] asked for. Without them a report names the
    /// frame and the site, but not the part of the state.
    pub fn handle_regions(&mut self, regions: &[StateRegion]) {
        if let Some(search) = &mut self.side.desync_search {
            search.on_regions(regions);
        }
    }

    /// Handles the hashes of consecutive pages that [`Request::Pages`] asked for. Without them a report names whole
    /// regions.
    pub fn handle_pages(&mut self, hashes: &[u32]) {
        if let Some(search) = &mut self.side.desync_search {
            search.on_pages(hashes);
        }
    }

    /// Returns the number of slots that the host program needs for [`Request::Save`]: those for rollbacks, and four
    /// more if this site takes part in desync searches.
    pub fn slots(&self) -> usize {
        self.config.settings.rollback_slots() + if self.side.desync_search.is_some() { SEARCH_SLOTS } else { 0 }
    }

    // ---- Late join

    /// Returns the first frame in which this site plays, as long as it is admitted and does not play yet.
    fn own_join_frame(&self) -> Option<Frame> {
        self.side.joining.as_ref().and_then(|joining| joining.join_frame())
    }

    /// Updates the late join: extends the neutral inputs, checks the progress and handles the spectator's events.
    #[cold]
    fn update_joining(&mut self, now: Instant) {
        self.extend_neutral_inputs(now);
        let joining = self.side.joining.as_mut();
        if joining.is_some_and(|joining| joining.has_failed(now, &self.timeline, &self.peers)) {
            self.abort_joining(now, SourceError::Silent);
        }
        while let Some(event) = self.side.joining.as_mut().and_then(|joining| joining.poll_event()) {
            match event {
                SpectatorEvent::Dropped { reason } => return self.abort_joining(now, reason),
                SpectatorEvent::Ended { .. } => return self.abort_joining(now, SourceError::Silent),
                SpectatorEvent::Diverged { frame } => {
                    let site = self.peers.iter().map(Peer::site).min().unwrap_or(self.config.site);
                    self.output.events.push(Event::Diverged { site, frame });
                }
                _ => {}
            }
        }
    }

    /// Extends the neutral inputs while the machine is still catching up, so that no site waits for inputs of this
    /// site.
    fn extend_neutral_inputs(&mut self, now: Instant) {
        let live_frame = self.pace.schedule.frame_at(now).filter(|_| self.own_join_frame().is_some());
        let Some(live_frame) = live_frame else { return };
        let (max_rtt, input_delay) = (self.peers.max_rtt(), self.timeline.delays().current().input_delay);
        let machine_frame = self.timeline.machine_frame();
        let until = neutral_inputs_end(live_frame, machine_frame, max_rtt, self.nominal_period(), input_delay);
        if until > self.timeline.own_inputs().end() {
            self.timeline.push_neutral_inputs(until);
            self.mark_all_due();
        }
    }

    /// Gives up the join for this reason. An admitted joiner leaves its seat, so that no site waits for it.
    fn abort_joining(&mut self, now: Instant, reason: SourceError) {
        match self.pace.schedule.is_started() {
            false => self.end_session(SessionEnd::NoWayIn(reason)),
            true => self.begin_leave(now, SessionEnd::NoWayIn(reason)),
        }
    }

    /// Handles a tick that may have arrived before this site plays: looks for a command that admits this site. Returns
    /// whether the tick has no further use, because this site is not admitted yet.
    fn handle_tick_while_joining(&mut self, index: usize, tick: &Tick<'_>) -> bool {
        let Some(joining) = &self.side.joining else { return false };
        let unseated = joining.join_frame().is_none();
        if !joining.has_announced_ready()
            || !self.lobby.knows_own_incarnation(index)
            || !unseated && tick.extras.is_empty()
        {
            return unseated;
        }
        let (site, incarnation) = (self.peers[index].site(), self.config.incarnation);
        let now = (self.clock.last_call(), self.timeline.frame());
        let mut commands = tick.extras.iter().filter_map(|extra| match extra {
            Extra::Command(command) => Some(command),
            _ => None,
        });
        match commands.find(|command| joining.is_admitted_by(command, site, incarnation, now, &self.peers)) {
            Some(command) => {
                self.prepare_own_join(command);
                false
            }
            None => unseated,
        }
    }

    /// Prepares to play as the coordinator's join command says: this site's inputs count from the command's frame on.
    fn prepare_own_join(&mut self, command: ScheduledCommand) {
        let CommandKind::Join { members, epoch, input_delay, prediction_window, .. } = command.kind else {
            return;
        };
        let (first, now, own_width) = (command.frame, self.clock.last_call(), self.timeline.own_width());
        // If an earlier command admitted this site, the neutral inputs that it has already sent must not change.
        let sent_end = self.members.ballots.admitted_at().map(|_| self.timeline.own_inputs().end());
        let joining = self.side.joining.as_mut();
        let neutral_until = joining.map_or(first, |joining| joining.admit(now, &command, sent_end));
        self.peers.on_own_admission();
        for index in 0..self.peers.len() {
            let is_member = members.contains(self.peers[index].site());
            self.peers[index].prepare_own_join(now, first, own_width, (is_member, sent_end.is_some()));
            if is_member {
                self.on_seat_taken(index, first, false);
            }
            self.sending.set_active(index, !self.peers[index].is_free());
        }
        self.members.reports.on_own_admission();
        let peers = &self.peers;
        self.members.ballots.on_own_admission(now, epoch, |index| members.contains(peers[index].site()));
        self.members.slow_peers.on_own_admission();
        self.timeline.delays_mut().adopt(input_delay, prediction_window);
        self.commands.on_own_admission(command);
        self.timeline.restart_inputs(first);
        self.comparison.restart_own_inputs(first);
        match &mut self.life.leaving {
            // This site was admitted although it already leaves, because the coordinator did not know that. It leaves
            // before its first frame.
            Some(leave) => {
                leave.input_end = first;
                self.abandon_join();
            }
            None => {
                let (max_rtt, delays) = (self.peers.max_rtt(), self.timeline.delays().current());
                let settled = settling_inputs_end(first, max_rtt, self.nominal_period(), delays);
                self.timeline.push_neutral_inputs(settled);
                let until = first_neutral_end(neutral_until, first);
                self.timeline.push_neutral_inputs(until.max(self.timeline.own_inputs().end()));
            }
        }
        self.start_pacing(now);
        self.sending.mark_extras_pending();
        self.mark_all_due();
        self.sending.invalidate();
    }

    /// Takes back this site's admission, because the command that admitted it is void: its issuer is gone, and no
    /// player has applied it. If this site does not play yet, it asks to join again. If it plays already, it has
    /// stepped frames with its own inputs that the others step without them, so its session ends.
    fn revoke_own_admission(&mut self, command: ScheduledCommand) {
        if self.life.leaving.is_some() {
            return;
        }
        let Some(joining) = &mut self.side.joining else { return self.end_session(SessionEnd::Dropped) };
        joining.revoke(command);
        self.pace.schedule.stop();
        self.sending.invalidate();
    }

    /// Starts to play when this site can and the time of the next frame is known, or there is no plan to follow. With
    /// [`AbsentInput::Repeat`] the machine must have stepped a frame since it last loaded a state. Returns whether this
    /// site plays now.
    #[cold]
    fn start_playing_if_due(&mut self) -> bool {
        let Some(joining) = &self.side.joining else { return false };
        let (now, next) = (self.clock.last_call(), self.timeline.machine_frame());
        let repeats = self.config.settings.absent_input == AbsentInput::Repeat;
        let Some(first) = joining.join_frame().filter(|_| joining.can_play(repeats, &self.timeline, &self.peers))
        else {
            return false;
        };
        let has_no_plan = joining.is_stuck(now, &self.timeline) || self.pace.schedule.setter().is_none();
        let is_time_known = self.pace.schedule.jump_to(now, next) || has_no_plan;
        if is_time_known {
            self.side.joining = None;
            if repeats {
                // The last stepped frame shows the inputs of sites that were dropped before this site joined.
                let words = self.timeline.words();
                self.peers.iter_mut().for_each(|peer| peer.observe_substitute_input(next, words));
            }
            // The feed may have delivered more than the frames before the join frame.
            self.timeline.start_playing();
            self.side.publisher.start_at(next);
            self.comparison.skip_until(next, first, self.timeline.own_inputs());
            if let Some(search) = &mut self.side.desync_search {
                search.start_at(next, &self.config.settings);
            }
            self.life.phase = self.initial_phase();
            self.output.events.push(Event::Joined { site: self.config.site, frame: first });
        }
        is_time_known
    }

    // ---- Scheduled commands

    fn pending_joiner(&self) -> Option<SiteId> {
        self.commands.pending_joiner(&self.peers, self.timeline.delays())
    }

    /// Returns whether this site may issue a command: it is the coordinator and does not leave, and no command or
    /// ballot is under way.
    fn can_schedule_command(&self) -> bool {
        self.commands.newest().is_none()
            && self.peers.is_coordinator()
            && self.members.ballots.own_vote().is_none()
            && self.life.leaving.is_none()
    }

    /// Issues a command, if [`can_schedule_command`](Self::can_schedule_command) holds. The command's frame may be
    /// later than `frame`, never earlier.
    fn schedule_command(&mut self, frame: Frame, kind: CommandKind) {
        if self.can_schedule_command() {
            let frame = frame.max(self.timeline.own_inputs().end());
            self.accept_command(ScheduledCommand { issuer: self.config.site, frame, kind });
        }
    }

    /// Handles a command from a peer: its own, or that of a site whose inputs it relays.
    fn on_command(&mut self, index: usize, command: ScheduledCommand) {
        let is_muted = self.members.ballots.muted().contains(command.issuer);
        let issuer = self.peers.of_site(command.issuer);
        let needs_relay = issuer.is_some_and(|peer| peer.needs_relay(self.clock.last_call(), is_muted));
        if !is_muted && Commands::is_credible(&command, self.peers[index].site(), issuer, needs_relay) {
            self.accept_command(command);
        }
    }

    fn accept_command(&mut self, command: ScheduledCommand) {
        let Some(previous) = self.commands.accept(command, &command_facts!(self)) else { return };
        match previous {
            Some(CommandFate::Applied(previous)) => self.apply_command(previous),
            Some(CommandFate::Void(previous)) => self.revert_command(previous),
            None => {}
        }
        self.commands.install(command);
        if let CommandKind::Join { site, incarnation, .. } = command.kind {
            self.prepare_join(site, incarnation, command.frame);
        }
        // The command leaves with the next inputs; an extra packet is not needed.
        self.sending.mark_extras_pending();
        self.sending.invalidate();
    }

    /// Prepares the seat of a joiner, which plays from this frame on.
    fn prepare_join(&mut self, site: SiteId, incarnation: u32, frame: Frame) {
        let Some(index) = self.peers.index_of(site).filter(|index| !self.peers[*index].is_playing()) else { return };
        self.members.reports.on_seat_taken(site);
        // The joiner's inputs may replace the last inputs of the seat's previous player.
        if self.side.joining.is_none() {
            self.publish_frames();
        }
        // The coordinator did not know that the joiner has left.
        let has_left = self.lobby.has_left(index) && self.peers[index].newest_incarnation() == incarnation;
        let now = self.clock.last_call();
        self.peers[index].admit(now, frame, self.timeline.own_width(), incarnation, has_left);
        // A joiner may get the first inputs of another joiner with the feed alone.
        self.on_seat_taken(index, frame, self.side.joining.is_none());
        self.tuning.forget_site(site);
        if let Some(search) = &mut self.side.desync_search {
            search.restart();
        }
        self.sending.set_active(index, true);
        // As at the start: a late first packet would look like a long delay.
        let delay = self.peers[index].clock().rtt_min().unwrap_or_default() / 2;
        self.pace.schedule.on_delay(now, site, delay);
        // Frames that were stepped without the joiner count as predicted.
        self.timeline.predict_absence(index, &self.peers[index]);
        self.check_predictions(index, frame);
    }

    /// Informs the parts that keep state of each peer that a seat is taken from frame `first` on.
    fn on_seat_taken(&mut self, index: usize, first: Frame, are_inputs_complete: bool) {
        self.members.slow_peers.on_seat_taken(index);
        self.members.ballots.set_void_join(index, None);
        self.lobby.on_seat_taken(index);
        self.comparison.on_seat_taken(index, first, are_inputs_complete);
    }

    /// Reverts the preparations for a void command.
    fn revert_command(&mut self, command: ScheduledCommand) {
        let CommandKind::Join { site, .. } = command.kind else { return };
        if site == self.config.site {
            return self.revoke_own_admission(command);
        }
        let is_prepared = |index: &usize| self.peers[*index].join_frame() == Some(command.frame);
        let Some(index) = self.peers.index_of(site).filter(is_prepared) else { return };
        // Confirmed frames contain at most the joiner's first inputs, which are neutral.
        let open = self.confirmed_end().max(command.frame);
        self.peers[index].void_join();
        self.members.ballots.set_void_join(index, Some(command.frame));
        self.lobby.forget_join_request(index);
        self.sending.set_active(index, false);
        // Frames with predicted inputs may contain its inputs.
        self.timeline.revise_from(open);
    }

    /// Applies the newest command when it is due, or voids it if its issuer gives no input for its frame; forgets it
    /// once all sites have applied it. Then admits a joiner if this site is the coordinator.
    fn update_command(&mut self) {
        if let Some(command) = self.commands.void_of_leaver(&self.peers) {
            self.revert_command(command);
        }
        self.apply_due_command();
        if self.commands.forget_settled(&command_facts!(self)) {
            self.sending.mark_extras_pending();
        }
        if self.can_schedule_command() {
            self.admit_joiner();
        }
    }

    fn apply_due_command(&mut self) {
        if let Some(command) = self.commands.take_due(&command_facts!(self)) {
            self.apply_command(command);
        }
    }

    /// Voids the command of `issuer`, whose inputs end before `last`, if it cannot take effect any more.
    fn void_command_after(&mut self, issuer: SiteId, last: Frame) {
        if let Some(command) = self.commands.void_after(issuer, last, self.config.site) {
            self.revert_command(command);
        }
    }

    fn apply_command(&mut self, command: ScheduledCommand) {
        let frame = command.frame;
        match command.kind {
            CommandKind::Join { site, .. } => self.complete_join(site, frame),
            CommandKind::SetDelay { input_delay, prediction_window, input_age, site } => {
                self.timeline.delays_mut().schedule(frame, input_delay, prediction_window);
                self.output.events.push(Event::DelayChanged { frame, input_delay, prediction_window, input_age, site });
            }
        }
    }

    /// Completes a join: the site plays from now on, unless its join was reverted or already completed.
    fn complete_join(&mut self, site: SiteId, frame: Frame) {
        let is_expected = |index: &usize| self.peers[*index].join_frame() == Some(frame);
        let Some(index) = self.peers.index_of(site).filter(is_expected) else { return };
        let leaves = self.peers[index].complete_join();
        self.peers.on_return(site);
        // A leaving site does not follow the others' decisions, and the command may be void.
        if self.life.leaving.is_none() {
            self.output.events.push(Event::Joined { site, frame });
        }
        self.choose_pace_setter();
        if let Some(last) = leaves {
            self.apply_leave(index, last);
        }
    }

    /// As the coordinator, admits a joiner that is ready to play.
    fn admit_joiner(&mut self) {
        let (now, playing, delays) = (self.clock.last_call(), self.peers.voters(), self.timeline.delays());
        let lead = self.nominal_period() * i64::from(delays.current().lead());
        // The inputs of a joiner replace those of the seat's previous player, so these must be confirmed everywhere,
        // and the host program must have had time to read the frames that the end of the last membership epoch has
        // confirmed.
        let is_published = |last: Frame| {
            self.side.publisher.has_published(last) && self.members.ballots.is_epoch_older_than(now, PUBLISH_TIME)
        };
        let is_confirmed = |last: Frame| {
            self.confirmed_end() >= last && all_have_confirmed(last, &self.peers, delays) && is_published(last)
        };
        let can_rejoin = |index: usize, peer: &Peer| {
            self.config.stall_limit.is_none() || self.members.slow_peers.can_rejoin(now, (index, peer), lead)
        };
        let is_ready = |(index, peer): &(usize, &Peer)| {
            !peer.has_seat()
                && self.lobby.is_ready_to_join(*index, now, playing)
                && peer.absent_from().is_some_and(is_confirmed)
                && can_rejoin(*index, peer)
        };
        let Some((_, peer)) = self.peers.iter().enumerate().find(is_ready) else { return };
        let period = self.pace.schedule.period().unwrap_or(self.nominal_period());
        let frame = join_frame(self.timeline.own_inputs().end(), peer.seat_free_from(), period, &self.peers);
        let DelaySettings { input_delay, prediction_window, .. } = delays.current();
        let kind = CommandKind::Join {
            site: peer.site(),
            incarnation: peer.newest_incarnation(),
            members: playing,
            epoch: self.members.ballots.epoch(),
            input_delay,
            prediction_window,
        };
        self.schedule_command(frame, kind);
    }

    // ---- Packets and events

    /// Handles a received datagram. Any bytes may be passed in: useless datagrams are dropped. `now` may be the arrival
    /// time of the datagram if that is no more than 250 ms ago.
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.note_call_time(now);
        if self.is_over() {
            return;
        }
        if DesyncMessage::is_desync_message(bytes) {
            return self.handle_desync_message(now, from, bytes);
        }
        if is_feed(bytes) {
            return self.handle_feed(now, from, bytes);
        }
        if is_tick(bytes) {
            let mut tick = Tick::default();
            match tick.read(bytes) {
                Ok(()) => self.handle_tick(now, from, &tick, bytes.len()),
                Err(_) => self.output.stats.dropped_datagrams.malformed += 1,
            }
            return;
        }
        match Hello::decode(bytes) {
            Ok(hello) => self.handle_hello(now, from, &hello, bytes.len()),
            Err(DecodeError::Version(version)) => self.handle_other_version(from, version),
            Err(_) => self.output.stats.dropped_datagrams.malformed += 1,
        }
        self.sending.invalidate();
    }

    /// Handles a datagram of the feed protocol: at a joiner from the feed that it downloads, otherwise for this site's
    /// feed.
    #[inline(never)]
    fn handle_feed(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        if let Some(joining) = &mut self.side.joining {
            joining.handle_datagram(now, from, bytes);
        } else if !self.side.publisher.handle_datagram(now, from, bytes) {
            self.output.stats.dropped_datagrams.strangers += 1;
        }
    }

    /// Writes the next datagram that does not belong to the frame loop. The caller sends the datagrams of the frame
    /// loop first.
    #[inline(never)]
    fn transmit_side_work(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.clock.session_time(now);
        if let Some(joining) = &mut self.side.joining {
            return joining.poll_transmit(now, buf);
        }
        let from_feed = self.side.publisher.poll_transmit(now, buf);
        from_feed.or_else(|| self.side.desync_search.as_mut()?.poll_transmit(now, &self.peers, buf))
    }

    /// Returns when the late join, the feed or a desync search next has something to do; [`Instant::FAR_FUTURE`] for
    /// never.
    fn next_side_work_time(&self) -> Instant {
        let spectator = self.side.joining.as_ref().and_then(|joining| joining.poll_timeout(&self.timeline));
        let search = self.side.desync_search.as_ref().map(|search| search.poll_timeout());
        let times = [spectator, self.side.publisher.poll_timeout(), search];
        times.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Marks that there is something new for every peer whose seat is taken, or about to be taken by a joiner.
    #[inline]
    fn mark_all_due(&mut self) {
        if !self.sending.mark_active() {
            let facts = send_facts!(self);
            self.sending.mark_all(&facts);
        }
    }

    /// Returns the oldest unread event. The queue holds 64 events; when it is full, the oldest is discarded.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.events.pop()
    }

    /// Returns whether the session has ended, for one of the reasons in [`SessionEnd`].
    pub fn is_over(&self) -> bool {
        matches!(self.life.phase, Phase::Over(_))
    }

    /// Returns the current phase, with details for display.
    pub fn state(&self) -> State {
        match (self.life.phase, self.pace.stall.freeze()) {
            (Phase::Over(end), _) => State::Ended(end),
            (Phase::Running(_), Some(freeze)) => State::Frozen(freeze),
            (Phase::Running(_), None) => State::Running,
            (Phase::Starting { at }, _) => State::Starting { at },
            (Phase::Joining, _) => State::Joining {
                download_percent: self.side.joining.as_ref().map_or(100, |joining| joining.download_percent()),
            },
            (Phase::Lobby, _) => {
                State::Lobby { waiting_for: self.lobby.missing_sites(&self.peers, self.config.settings.starting_sites) }
            }
        }
    }

    /// Returns the approximate memory use of the session, including the heap, in bytes. The frames of a running game do
    /// not make it grow.
    pub fn memory(&self) -> usize {
        let joining = self.side.joining.as_ref().map_or(0, |joining| joining.memory());
        let search = self.side.desync_search.as_ref().map_or(0, |search| search.memory());
        let peers = self.peers.memory() + self.lobby.memory() + self.comparison.memory();
        let output = self.side.publisher.memory() + self.output.events.memory();
        size_of::<Self>() + peers + self.timeline.memory() + joining + search + output
    }

    /// Returns this site's id, which is [`Config::site`].
    pub fn site(&self) -> SiteId {
        self.config.site
    }

    /// Returns the settings that all sites share. Input delay and prediction window are the initial ones;
    /// [`Session::stats`] has the current ones.
    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// Returns the counters since the start of the session, and the current frame, period and delay settings.
    pub fn stats(&self) -> Stats {
        let period = self.pace.schedule.period().unwrap_or(self.nominal_period());
        Stats { frame: self.timeline.frame(), confirmed: self.confirmed_end(), period, ..self.output.stats }
    }

    /// Returns the statistics of the link to a peer, or `None` if `site` is not a peer.
    pub fn peer_stats(&self, now: Instant, site: SiteId) -> Option<PeerStats> {
        let now = self.clock.session_time(now);
        let index = self.peers.index_of(site)?;
        let (peer, counts) = (&self.peers[index], self.comparison.counts(index));
        Some(PeerStats {
            buffered_frames: self.timeline.buffered_frames(peer),
            compared: counts.compared,
            mismatches: counts.mismatches,
            ..peer.stats(now, self.timeline.own_inputs().end())
        })
    }

    /// Returns the time on the clock that all sites share, which is the clock of the lowest site; `None` until this
    /// site has estimated that clock.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        self.peers.group_time(self.clock.session_time(now))
    }

    /// Writes the next datagram to be sent now into `buf`, which must hold at least [`MAX_DATAGRAM`] bytes. Call it
    /// until it returns `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.sending.is_idle(self.clock.session_time(now)) {
            return if self.side.is_active { self.transmit_side_work(now, buf) } else { None };
        }
        let transmit = self.transmit(now, buf);
        if transmit.is_none() && self.side.is_active { self.transmit_side_work(now, buf) } else { transmit }
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.clock.call_time(now);
        assert!(buf.len() >= MAX_DATAGRAM, "the buffer must hold at least {MAX_DATAGRAM} bytes");
        let index = match self.sending.first_due().filter(|_| !self.is_over()) {
            Some(index) => index,
            None => self.sending.next_timed_peer(now, &send_facts!(self))?,
        };
        let is_hello = !self.pace.schedule.is_started() || self.sending.is_hello_due(index);
        let len = match is_hello {
            true => self.encode_hello(now, index, buf),
            false => self.encode_tick(now, index, buf).expect("a tick always fits into a packet"),
        };
        if self.sending.on_sent(index) {
            self.sending.plan_next(now, is_hello, self.pace.schedule.begun_at(), &send_facts!(self));
        }
        let peer = &mut self.peers[index];
        peer.on_sent(now, len);
        Some(Transmit { to: peer.addr(), len })
    }

    // ---- Membership

    fn membership_facts(&self) -> MembershipFacts {
        let rejoins = |(index, peer): (usize, &Peer)| peer.was_restarted() && self.lobby.asks_to_join(index);
        MembershipFacts {
            now: self.clock.last_call(),
            drop_timeout: self.config.drop_timeout,
            all_sites: SiteSet::first(usize::from(self.config.settings.site_count)),
            pending_joiner: self.pending_joiner(),
            is_last_player: self.peers.iter().enumerate().all(rejoins),
            download_end: self.side.joining.is_some().then_some(self.timeline.machine_frame()),
            command: self.commands.newest(),
            is_stuck: self.pace.stall.is_stuck(self.clock.last_call()),
        }
    }

    /// Leads a ballot if there is a suspect or a vote and it is this site's turn; decides a ballot that is under way if
    /// it can.
    fn update_membership(&mut self) {
        if self.life.leaving.is_some() {
            return;
        }
        // Without every drop decided meanwhile, this site could not have confirmed these frames.
        let uncertain_until = self.timeline.catch_up_until() + self.timeline.delays().max_lead();
        let is_requesting = self.members.ballots.is_requesting_epoch() && self.side.joining.is_none();
        if is_requesting && self.confirmed_end() > uncertain_until {
            self.members.ballots.stop_epoch_request();
        }
        // A site that plays by now must vote.
        self.apply_due_command();
        let facts = self.membership_facts();
        self.members.ballots.abandon_hopeless_ballot(&self.peers, &facts);
        self.try_decide();
        let facts = self.membership_facts();
        if self.members.ballots.lead_ballot_if_due(&mut self.peers, &facts) {
            self.mark_all_due();
            self.try_decide();
        }
    }

    fn on_vote(&mut self, index: usize, vote: Vote) {
        self.apply_due_command();
        let facts = self.membership_facts();
        let is_leaving = self.life.leaving.is_some();
        let Some(is_new) = self.members.ballots.on_vote(index, vote, &mut self.peers, is_leaving, &facts) else {
            return;
        };
        if is_new {
            self.mark_all_due();
        }
        self.try_decide();
    }

    /// Counts the votes, and applies a decision that a quorum has accepted.
    fn try_decide(&mut self) {
        let facts = self.membership_facts();
        let step = self.members.ballots.try_decide(&self.peers, &facts);
        if step.has_new_vote {
            self.mark_all_due();
        }
        if let Some(decision) = step.decision {
            self.apply_decision(decision);
        }
    }

    /// Ends the epoch with a decision: drops its sites, voids their command unless the decision keeps it, and unmutes
    /// all other sites. Ends the session if the decision drops this site.
    #[cold]
    fn apply_decision(&mut self, decision: MembershipDecision) {
        if decision.drop.contains(self.config.site) {
            return self.end_session(SessionEnd::Dropped);
        }
        let (now, drops_none) = (self.clock.last_call(), decision.drop.is_empty());
        // This comes before the end of the sites' inputs is set: until then, frames from a void command's frame on are
        // not confirmed and can be resimulated.
        if let Some(command) = self.commands.void_of_dropped(&decision, self.config.site) {
            self.revert_command(command);
        }
        let own_end = self.timeline.own_inputs().end();
        let ended = self.members.ballots.end_epoch(&decision, own_end, now, &self.peers);
        let earliest = decision.drop.iter().map(|site| decision.input_ends[site.index()]).min();
        let spared_since = now - max_spared_silence(self.config.drop_timeout, &self.peers);
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if !peer.is_playing() {
                self.comparison.on_decision_without(index, earliest);
            }
            // This site withheld inputs and stepped their frames with predictions, so the check of predictions begins
            // with the first of them.
            let known = peer.known_end();
            peer.accept_withheld();
            if drops_none && ended.spared_sites.contains(peer.site()) {
                peer.excuse_missing_inputs(spared_since);
            }
            if decision.drop.contains(peer.site()) {
                self.drop_peer(index, known, &decision, ended.to_evict);
            }
        }
        if let Some(command) = decision.command {
            self.accept_command(command);
        }
        // No player is charged for the time that the ballot took.
        self.pace.stall.restart(now);
        if drops_none {
            self.members.slow_peers.reset();
            if !ended.to_evict.is_empty() {
                self.members.slow_peers.on_failed_eviction(now);
            }
        }
        self.choose_pace_setter();
        self.mark_all_due();
        self.sending.invalidate();
        self.sending.mark_extras_pending();
    }

    /// Drops a peer with a decision. `known` is the end of its inputs that counted so far.
    fn drop_peer(&mut self, index: usize, known: Frame, decision: &MembershipDecision, to_evict: SiteSet) {
        let (now, site) = (self.clock.last_call(), self.peers[index].site());
        let last = decision.input_ends[site.index()];
        if !self.peers[index].is_awaited() {
            let known = self.peers[index].known_end();
            if let Some(frame) = self.peers[index].shorten_last_inputs(last) {
                self.output.events.push(Event::Dropped { site, frame });
                self.check_predictions(index, known);
            }
            return;
        }
        let is_received = self.peers[index].silence(now) < CONSENT_SILENCE;
        let repeats_last_input =
            self.config.settings.absent_input == AbsentInput::Repeat && !decision.left_sites.contains(site);
        let free_from = self.next_free_seat_frame();
        self.peers[index].drop_after(last, free_from, repeats_last_input);
        self.comparison.on_drop(index);
        self.members.slow_peers.on_drop(index, now, is_received && to_evict.contains(site));
        self.peers.report_gone(site);
        self.output.events.push(Event::Dropped { site, frame: last });
        self.pace.schedule.forget_site(site);
        self.check_predictions(index, known);
    }

    /// Returns a frame after all frames for which the sites that are dropped now can have given inputs.
    fn next_free_seat_frame(&self) -> Frame {
        self.timeline.own_inputs().end() + 3 * self.timeline.delays().current().lead() + 16
    }

    /// Returns whether this site plays: it has started or joined, and the session is not over.
    fn is_running(&self) -> bool {
        matches!(self.life.phase, Phase::Running(_))
    }

    /// Applies all reports that are credible by now. A report can also become credible by time alone, when players fall
    /// silent or a stall lasts.
    fn update_reports(&mut self) {
        if self.members.reports.is_empty() {
            return;
        }
        while !self.is_over() {
            let facts = self.membership_facts();
            let Some(reported) = self.members.reports.credible_decision(&report_facts!(self, facts)) else { break };
            self.members.ballots.skip_to_epoch(reported.epoch);
            self.apply_decision(reported.decision);
        }
        if self.is_over() {
            return;
        }
        let facts = self.membership_facts();
        if self.members.reports.is_refused(&report_facts!(self, facts)) {
            return self.end_session(SessionEnd::Dropped);
        }
        for site in SiteId::first(usize::from(self.config.settings.site_count)) {
            self.update_leave_report(site);
        }
    }

    fn update_leave_report(&mut self, site: SiteId) {
        let Some(index) = self.peers.index_of(site) else { return };
        let facts = self.membership_facts();
        if let Some(last) = self.members.reports.credible_leave(index, &report_facts!(self, facts)) {
            self.apply_leave(index, last);
        }
    }

    /// Returns the stall limit if this site is the coordinator, does not leave and has one.
    fn own_stall_limit(&self) -> Option<TimeDelta> {
        self.config.stall_limit.filter(|_| self.life.leaving.is_none() && self.peers.is_coordinator())
    }

    /// Marks the peers above the stall limit for eviction, if that is possible. A site that is not the coordinator,
    /// leaves or has no stall limit forgets the stall times.
    fn update_slow_peers(&mut self, now: Instant) {
        let Some(stall_limit) = self.own_stall_limit() else { return self.members.slow_peers.reset() };
        let has_diverged = |(index, _): &(usize, &Peer)| self.comparison.counts(*index).mismatches > 0;
        let diverged = self.peers.iter().enumerate().filter(has_diverged).map(|(_, peer)| peer.site()).collect();
        let limiting_site = self.pace.schedule.limiting_site(self.nominal_period());
        let limits = SlowPeerLimits { stall_limit, limiting_site, diverged };
        let slow = self.members.slow_peers.update(now, &limits, &self.pace.stall, &self.peers);
        // A slow site may be the only one that has the last inputs of a dropped site. It gets time to relay them.
        if self.members.slow_peers.can_evict(now, slow, &self.peers)
            && !self.members.ballots.awaits_last_inputs(&self.peers, &self.membership_facts())
        {
            self.members.ballots.evict(slow);
        }
    }

    /// Asks the other sites to drop a site, whether it is silent or not; its seat can be taken again. Only the
    /// coordinator, the lowest site that plays, can do this. Returns whether this site will propose the drop to the
    /// others: the game runs, this site is the coordinator and does not leave, and inputs of `site` are still to come.
    pub fn drop_site(&mut self, now: Instant, site: SiteId) -> bool {
        self.note_call_time(now);
        let is_awaited = self.peers.of_site(site).is_some_and(Peer::is_awaited);
        let is_allowed = is_awaited && self.is_running() && self.life.leaving.is_none() && self.peers.is_coordinator();
        if is_allowed {
            self.members.ballots.evict(SiteSet::from_iter([site]));
            self.update_membership();
        }
        is_allowed
    }

    // ---- Split brain

    /// Returns the sites that play now, this site included, and the leaving sites whose [`Event::Left`] was not
    /// reported yet.
    pub fn players(&self) -> SiteSet {
        self.peers.players()
    }

    /// Returns whether [`Session::continue_alone`] would let the game go on: the game runs, this site does not leave,
    /// inputs of at least one other site are still to come, and each such site was dropped or has been silent for
    /// longer than [`Config::drop_timeout`] (3 s if that is not set).
    pub fn can_continue_alone(&self, now: Instant) -> bool {
        self.is_running()
            && self.life.leaving.is_none()
            && split_brain::can_continue_alone(self.clock.session_time(now), &self.peers, self.config.drop_timeout)
    }

    /// Drops all silent players although no quorum decides that. They may go on, too, and play another game, so a
    /// person has to decide this. Does nothing and returns `false` unless [`Session::can_continue_alone`] holds. When
    /// the sites meet again, one of the games is kept; see [`Event::SplitBrainResolved`].
    pub fn continue_alone(&mut self, now: Instant) -> bool {
        let now = self.note_call_time(now);
        // A site that is to play by now is dropped with the others.
        self.apply_due_command();
        if !self.can_continue_alone(self.clock.host_time(now)) {
            return false;
        }
        let decision = split_brain::decision_without_quorum(&self.peers, self.commands.newest());
        self.members.split_brain.abandon(decision.drop);
        self.apply_decision(decision);
        self.close_silent_seats(decision.drop);
        true
    }

    /// Gives up the missing inputs of sites that were dropped before, and frees the seats of silent sites, which need
    /// no more ticks.
    fn close_silent_seats(&mut self, silent: SiteSet) {
        for index in 0..self.peers.len() {
            let known = self.peers[index].known_end();
            if self.peers[index].shorten_last_inputs(Frame::ZERO).is_some() {
                self.check_predictions(index, known);
            }
            if split_brain::can_free_seat(&self.peers[index], silent) {
                self.peers[index].free_seat();
                self.sending.set_active(index, false);
            }
        }
    }

    /// Schedules the hellos to the sites that were dropped without a quorum, and ends the session if another site's
    /// game is kept or a quorum waits for this site.
    fn update_split_brain(&mut self, now: Instant) {
        if self.members.split_brain.is_idle() || self.life.leaving.is_some() {
            return;
        }
        if self.members.split_brain.must_end(now, &self.peers) {
            return self.end_session(SessionEnd::Dropped);
        }
        for index in self.members.split_brain.update(now, &self.peers, |index| self.lobby.asks_to_join(index)) {
            self.sending.require_hello(index);
            self.sending.invalidate();
        }
    }

    /// Handles a peer's refusal if it is part of a split brain. Returns `false` if the caller has to handle the
    /// refusal.
    fn handle_split_brain_refusal(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) -> bool {
        let peer = &self.peers[index];
        let (site, is_current) = (peer.site(), peer.is_abandoned() && hello.incarnation == peer.incarnation());
        match reason {
            Refusal::AlreadyRunning => false,
            Refusal::Dropped => {
                let must_yield = is_current
                    && self.is_running()
                    && self.members.split_brain.is_abandoned(site)
                    && self.peers.is_alone();
                if must_yield {
                    let resolution = self.members.split_brain.yield_to(site, now);
                    self.report_resolution(resolution);
                    self.end_session(SessionEnd::Dropped);
                }
                must_yield
            }
            Refusal::ContinuedAlone { .. } if self.life.phase == Phase::Lobby => false,
            Refusal::ContinuedAlone { frame } => {
                if is_current && self.is_running() && self.life.leaving.is_none() {
                    let frames = (self.timeline.frame(), frame);
                    if let Some(resolution) = self.members.split_brain.resolve(now, site, frames, &self.peers) {
                        self.report_resolution(resolution);
                    }
                    self.sending.require_hello(index);
                    self.sending.invalidate();
                } else if self.may_wait_in_vain() && split_brain::is_waiting_in_vain(now, index, &self.peers) {
                    self.end_session(SessionEnd::Dropped);
                }
                true
            }
        }
    }

    fn report_resolution(&mut self, resolution: Resolution) {
        let Resolution { site, is_own_game_kept, is_new } = resolution;
        if is_new {
            self.output.events.push(Event::SplitBrainResolved { site, is_own_game_kept });
        }
    }

    /// Returns whether this site plays or is admitted, and does not leave.
    fn may_wait_in_vain(&self) -> bool {
        let is_playing = self.is_running() || self.life.phase == Phase::Joining && self.pace.schedule.is_started();
        is_playing && self.life.leaving.is_none()
    }

    // ---- Packets

    fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let extras = if self.sending.are_extras_pending() { Some(self.tick_extras(index)) } else { None };
        let Self { config, life, peers, timeline, pace, relays, comparison, side, .. } = self;
        let context = TickContext { now, recovery: config.recovery, own_inputs: timeline.own_inputs() };
        let probe = || {
            let join_frame = side.joining.as_ref().and_then(|joining| joining.join_frame());
            let is_planned = life.leaving.is_none() && join_frame.is_none();
            ProbeContent {
                identity: SenderIdentity { session_id: config.session_id, site: config.site.number() },
                frame: match life.phase {
                    // Once a frame is stepped, the plan is that of the next frame.
                    Phase::Running(FramePhase::AwaitStep) => timeline.frame().next(),
                    // A joiner that does not play yet reports its join frame, because its current frame is that of its
                    // download.
                    _ => join_frame.unwrap_or(timeline.frame()),
                },
                planned_start: pace.schedule.planned_start().filter(|_| is_planned),
                digest: comparison.newest_digest(),
            }
        };
        packet::encode_tick(index, context, (peers, relays), extras.as_ref(), probe, buf)
    }

    /// Gathers the extras that ticks to a peer carry.
    #[cold]
    fn tick_extras(&self, index: usize) -> TickExtras {
        let peer = &self.peers[index];
        // A restarted site must not take a command that was meant for its previous incarnation.
        let is_meant = |command: &ScheduledCommand| {
            !matches!(command.kind, CommandKind::Join { site, .. } if site == peer.site()) || !peer.was_restarted()
        };
        let is_pending =
            |command: &ScheduledCommand| command.issuer == self.config.site && peer.acked() <= command.frame;
        let leave = self.life.leaving.filter(|_| !peer.is_dropped() && !self.members.ballots.is_bound_by_vote());
        let needs_decision = self.members.ballots.needs_last_decision(index, peer);
        TickExtras {
            command: self.commands.newest().filter(|command| is_pending(command) && is_meant(command)),
            leave: leave.map(|leave| leave.input_end),
            vote: self.members.ballots.own_vote().copied(),
            decision: self.members.ballots.last_decision().filter(|_| needs_decision),
            tuning: self.tuning.own_stats(&self.tuning_facts()).filter(|_| self.tuning.is_due() && peer.is_playing()),
            pause: self.pace.schedule.pause().announced().filter(|_| peer.is_playing()),
            relay: RelayFacts {
                muted: self.members.ballots.muted(),
                reported_left: self.members.reports.reported_left(),
                is_voting: self.members.ballots.own_vote().is_some(),
                command: self.commands.newest(),
            },
        }
    }

    /// Recomputes whether ticks have to carry extras. Stops announcing a pause that is over, and stops sending the
    /// tuning statistics.
    fn update_extras_pending(&mut self, now: Instant) {
        self.pace.schedule.clear_expired_pause(now);
        let has_own = self.life.leaving.is_some()
            || self.commands.newest().is_some()
            || self.members.ballots.own_vote().is_some()
            || self.pace.schedule.pause().announced().is_some();
        let muted = self.members.ballots.muted();
        let has_for_peer = |(index, peer): (usize, &Peer)| {
            self.members.ballots.needs_last_decision(index, peer)
                || peer.needs_relay(now, muted.contains(peer.site()))
                || self.relays.has_requests(index)
        };
        let are_pending = has_own || self.peers.iter().enumerate().any(has_for_peer);
        self.sending.set_extras_pending(are_pending);
        self.tuning.on_sent();
    }

    fn handle_tick(&mut self, now: Instant, from: Addr, tick: &Tick<'_>, bytes: usize) {
        let Some(index) = self.sender_of(from, tick) else {
            self.output.stats.dropped_datagrams.strangers += 1;
            return;
        };
        if self.lobby.start_time().is_none() || self.handle_tick_while_joining(index, tick) {
            self.output.stats.dropped_datagrams.early += 1;
            return;
        }
        let peer = &mut self.peers[index];
        peer.on_received(now, bytes);
        peer.on_tick();
        if peer.is_free() || peer.is_abandoned() {
            return self.handle_tick_of_absent(index, tick);
        }
        let Some(end) = peer.inputs().end().expand_low16(tick.end) else {
            self.output.stats.dropped_datagrams.inputs += 1;
            return;
        };
        if (end - peer.inputs().end()).abs() <= MAX_FRAME_DISTANCE {
            peer.count_tick(end);
        }
        let accepts_inputs = tick.extras.is_empty() || self.handle_extras(now, index, tick);
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        if accepts_inputs && !self.members.ballots.muted().contains(peer.site()) {
            self.output.stats.dropped_datagrams.inputs += peer.receive_tick_inputs(now, end, tick);
        }
        self.output.stats.dropped_datagrams.inputs +=
            peer.on_ack(now, end, tick, self.timeline.own_inputs(), self.life.leaving.map(|leave| leave.input_end));
        if tick.probe.is_some() || tick.digest.is_some() {
            self.handle_measurements(now, index, end, tick);
        }
        self.check_predictions(index, known);
        if self.config.recovery == Recovery::Classic {
            self.request_missing_inputs(now, index, !tick.missing.is_empty());
        }
    }

    /// Handles a tick of a site without a seat. A site that was dropped and not restarted, or whose admission is void
    /// because the issuer of the command is gone, gets a hello that refuses it. A site that has left gets a tick, from
    /// which it learns that its leave is known. A dropped site that was restarted gets only a tick, and only if it
    /// needs the last decision.
    #[cold]
    fn handle_tick_of_absent(&mut self, index: usize, tick: &Tick<'_>) {
        let is_void = self.has_void_admission(index, tick);
        if is_void {
            self.lobby.void_admission(index);
        }
        let peer = &self.peers[index];
        // A restarted site may have a seat that this site does not know of yet.
        if is_void || peer.is_dropped() && !peer.was_restarted() {
            self.sending.require_hello(index);
            self.sending.invalidate();
        } else if !peer.is_dropped() || self.members.ballots.needs_last_decision(index, peer) {
            self.sending.mark_due(index);
        }
    }

    /// Returns whether a restarted site gives inputs for frames that were confirmed without it. No site confirms a
    /// frame without knowing the players in it, so the command that admitted the site is void.
    fn has_void_admission(&self, index: usize, tick: &Tick<'_>) -> bool {
        let first = self.timeline.frame().expand_low16(tick.end).and_then(|end| end.checked_sub(tick.frame_count));
        let is_player = self.is_running() && self.side.joining.is_none();
        let is_past = first.is_some_and(|first| first < self.confirmed_end());
        is_player && is_past && self.peers[index].was_restarted()
    }

    /// Handles the extras of a tick. They come before the inputs, because a command must be known before the inputs
    /// that it covers. Returns whether the tick's inputs can be accepted. They cannot if a command that the sender
    /// issued was refused, because a site that knows the inputs must know the command.
    #[cold]
    fn handle_extras(&mut self, now: Instant, index: usize, tick: &Tick<'_>) -> bool {
        let mut refused = SiteSet::EMPTY;
        for extra in tick.extras.iter() {
            match extra {
                // A site that takes part in a ballot about the peer has reported the end of the peer's inputs.
                Extra::Leave(_) if self.members.ballots.muted().contains(self.peers[index].site()) => {}
                Extra::Leave(last) => self.apply_leave(index, last),
                Extra::LeaveReport(site, last) => {
                    self.members.reports.on_leave(index, site, last);
                    self.update_leave_report(site);
                }
                Extra::Command(command) if !can_issue(command.issuer, &self.peers) => refused.insert(command.issuer),
                Extra::Command(command) => self.on_command(index, command),
                Extra::Vote(vote) => self.on_vote(index, vote),
                Extra::DecisionReport(epoch, decision, since) => {
                    self.members.reports.on_decision(index, epoch, decision, since);
                    self.update_reports();
                }
                Extra::RelayRequest(site, end) => {
                    self.relays.on_request(index, site, end);
                    self.sending.mark_extras_pending();
                }
                Extra::Relay(relay) if refused.contains(relay.site) => {}
                Extra::Relay(relay) => self.on_relay(now, index, &relay),
                Extra::TuningStats(stats) => self.tuning.on_stats(self.peers[index].site(), stats),
                Extra::Pause(request) => self.on_pause_request(now, request),
            }
        }
        !refused.contains(self.peers[index].site())
    }

    /// Handles inputs of a third site that a peer passes on. They are ignored unless this site needs a relay.
    fn on_relay(&mut self, now: Instant, relay_index: usize, relay: &RelayedInputs<'_>) {
        let relay_site = self.peers[relay_index].site();
        let Some(index) = self.peers.index_of(relay.site) else { return };
        let is_muted = self.members.ballots.muted().contains(relay.site);
        if is_muted || !self.peers[index].needs_relay(now, is_muted) {
            return;
        }
        let known = self.peers[index].known_end();
        let (useless, are_new) = self.peers[index].receive_relayed(now, relay);
        self.output.stats.dropped_datagrams.inputs += useless;
        if are_new {
            self.relays.on_new_input(index, relay_site);
        }
        self.check_predictions(index, known);
    }

    /// Makes a packet due that requests missing inputs, or that answers a peer's request (`is_answer_due`), with
    /// [`Recovery::Classic`].
    fn request_missing_inputs(&mut self, now: Instant, index: usize, is_answer_due: bool) {
        let is_request_due = self.peers[index].request_missing_inputs(now);
        if (is_request_due || is_answer_due) && !self.peers[index].is_free() {
            self.sending.mark_answer_due(index);
        }
    }

    /// Handles the parts of a tick that measure the link and compare states.
    #[cold]
    fn handle_measurements(&mut self, now: Instant, index: usize, end: Frame, tick: &Tick<'_>) {
        if let Some(probe) = &tick.probe {
            self.on_probe(now, index, end, probe);
        }
        if let Some(digest) = tick.digest {
            self.on_digest(index, digest);
        }
    }

    /// Returns the peer that sent a tick: by address, or by the identity in the tick if the peer has moved.
    fn sender_of(&mut self, from: Addr, tick: &Tick<'_>) -> Option<usize> {
        let (index, moved) = self.peers.sender_of(from, tick, self.config.session_id)?;
        self.accept_address(index, from, moved).then_some(index)
    }

    /// Returns whether a packet of a peer may come from this address. Another address than the known one is accepted
    /// only if the packet proves that the peer has `moved` and the transport does not authenticate senders. Then the
    /// session follows the peer to the new address.
    fn accept_address(&mut self, index: usize, from: Addr, moved: bool) -> bool {
        let peer = &mut self.peers[index];
        if peer.addr() == from {
            return true;
        }
        if !moved || self.config.is_transport_authenticated {
            return false;
        }
        if let Some(joining) = &mut self.side.joining {
            joining.move_source(peer.addr(), from);
        }
        peer.move_to(from);
        self.output.events.push(Event::AddressChanged { site: peer.site(), addr: from });
        true
    }

    fn on_probe(&mut self, now: Instant, index: usize, end: Frame, probe: &ClockProbe) {
        let Some(stamp) = self.peers[index].on_probe(now, probe) else { return };
        let peer = &mut self.peers[index];
        let site = peer.site();
        if !peer.has_seat() {
            // No site waits for a leaving site.
            return;
        }
        if let Some(sent) = peer.clock().to_local(stamp) {
            self.pace.schedule.on_delay(now, site, (now - sent).max(TimeDelta::ZERO));
        }
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        if (frame - self.timeline.frame()).abs() > MAX_FRAME_DISTANCE {
            return;
        }
        peer.on_frame(frame, end, self.timeline.delays().current().input_delay);
        let Some(lateness_ns) = probe.lateness_ns else { return };
        let planned = peer.clock().to_local(stamp - TimeDelta::from_nanos(lateness_ns));
        let Some(planned) = planned else { return };
        if let Some(began) = self.frame_start(frame) {
            self.peers[index].set_lead(began - planned);
        }
        self.pace.schedule.on_plan(site, frame, planned);
    }

    fn on_digest(&mut self, index: usize, digest: TickDigest) {
        let Some(frame) = self.timeline.frame().expand_low16(digest.frame) else { return };
        let is_near = (frame - self.timeline.frame()).abs() <= MAX_FRAME_DISTANCE;
        let digest = FrameDigest { state_hash: digest.state_hash, input_digest: digest.input_digest };
        if is_near && self.comparison.on_digest(index, frame, digest) {
            self.compare_state(index, frame);
        }
    }

    // ---- Lobby

    #[cold]
    fn handle_hello(&mut self, now: Instant, from: Addr, hello: &Hello, bytes: usize) {
        if hello.session_id == self.config.session_id && hello.site == self.config.site {
            // A peer that claims this site's number disagrees with this site about site numbers.
            self.output.stats.dropped_datagrams.strangers += 1;
            let Some(index) = self.peers.index_at(from) else { return };
            let expected = self.peers[index].site();
            let event = self.lobby.on_other_site(index, expected, hello.site);
            return self.report(event);
        }
        let is_of_session = hello.session_id == self.config.session_id;
        let index = self.peers.index_of(hello.site).filter(|_| is_of_session);
        // A peer cannot send hellos for another site.
        let Some(index) = index.filter(|_| !self.peers.is_taken(from, hello.site)) else {
            self.output.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let peer = &self.peers[index];
        let restarted = peer.is_restart(hello.incarnation);
        let stale = hello.incarnation < peer.newest_incarnation();
        let is_newer = restarted || peer.is_newer_stamp(hello.stamp_us as i64);
        if stale || !self.accept_hello_from(now, index, from, (is_newer, restarted)) {
            self.output.stats.dropped_datagrams.strangers += 1;
            return;
        }
        self.update_incarnation(index, hello, restarted);
        self.record_hello(now, index, hello, is_newer, bytes);
        let echo = hello.echo.map(|(sent_us, held_ns)| (sent_us as i64, TimeDelta::from_nanos(i64::from(held_ns))));
        self.peers[index].on_stamp(now, hello.stamp_us as i64, echo);
        if let Some(reason) = hello.refusal {
            self.on_refusal(now, index, hello, reason);
        }
        // A peer may change its settings until the start; after it, peers that ask to join are compared.
        if matches!(self.life.phase, Phase::Lobby | Phase::Joining) || hello.join_readiness.is_some() {
            let (settings, is_clock_known) =
                ((&self.config.settings, &hello.settings), self.peers[index].clock().is_ready());
            let event = self.lobby.compare_settings(index, settings, is_clock_known, hello.site);
            self.report(event);
        }
        self.lobby.on_agreed_sites(index, hello.agreed_sites);
        if is_newer {
            self.on_leaving_flag(index, hello.is_leaving);
        }
        self.learn_start(now, hello.start_ns);
        self.try_start(now);
    }

    fn report(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.output.events.push(event);
        }
    }

    /// Records which incarnation of a peer sends hellos. Until the peer has played, its newest incarnation is the one
    /// that will play. For a joiner that is not admitted yet, a peer that does not ask to join is a player.
    fn update_incarnation(&mut self, index: usize, hello: &Hello, restarted: bool) {
        let is_spectating = self.side.joining.is_some() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        if restarted {
            peer.reset_after_restart();
            self.members.reports.on_restart(index);
            self.members.ballots.set_void_join(index, None);
            self.lobby.on_restart(index);
        }
        let will_play = (is_spectating || !peer.has_played() && peer.is_playing()) && hello.join_readiness.is_none();
        peer.on_incarnation(hello.incarnation, will_play);
    }

    fn record_hello(&mut self, now: Instant, index: usize, hello: &Hello, is_newer: bool, bytes: usize) {
        let peer = &mut self.peers[index];
        // A peer that does not know the start, or wants to join, needs a hello. An old packet does not show such a
        // need.
        let needs_hello = (hello.start_ns.is_none() || hello.join_readiness.is_some()) && is_newer;
        // An admitted joiner needs ticks, and hellos would take their place.
        let is_seated = peer.has_seat() && hello.incarnation == peer.incarnation();
        let is_admitted = is_seated && hello.join_readiness.is_some();
        if needs_hello && self.lobby.start_time().is_some() && !is_admitted || self.sending.is_hello_due(index) {
            self.sending.require_hello(index);
        }
        self.lobby.on_hello(now, index, hello, self.config.incarnation, peer.incarnation(), is_newer);
        if peer.has_played() {
            // A site that has played and is in the lobby again sends no inputs: it counts as silent.
            peer.count_received(bytes);
        } else {
            peer.on_received(now, bytes);
        }
    }

    /// Returns whether a hello may come from this address. A hello from another address means that the site has moved,
    /// if it is newer than all others or the site was restarted. But while packets of a site that has played still
    /// arrive from its old address, such a hello is refused: another sender uses the site's number.
    fn accept_hello_from(
        &mut self,
        now: Instant,
        index: usize,
        from: Addr,
        (is_newer, restarted): (bool, bool),
    ) -> bool {
        let peer = &self.peers[index];
        let silent = now - peer.last_received_at() >= ALIVE_TIMEOUT;
        let moved = is_newer && (silent || !peer.has_played()) || restarted && silent;
        self.accept_address(index, from, moved)
    }

    /// Handles a hello of another protocol version. Only one from a peer's known address counts.
    #[cold]
    fn handle_other_version(&mut self, from: Addr, version: u8) {
        let Some(index) = self.peers.index_at(from) else {
            self.output.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let event = self.lobby.on_other_version(index, self.peers[index].site(), (VERSION, version));
        self.report(event);
    }

    /// Handles a peer's refusal. A refusal of an earlier incarnation of this site does not count.
    fn on_refusal(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) {
        if hello.your_incarnation != self.config.incarnation
            || self.handle_split_brain_refusal(now, index, hello, reason)
        {
            return;
        }
        if self.life.phase == Phase::Lobby && self.lobby.refuse() {
            // A site that will not play has nothing to publish.
            self.side.publisher.close();
            self.output.events.push(Event::Refused { site: hello.site, reason });
        }
        // This site plays or was admitted. If it was admitted and does not play yet, the command that admitted it was
        // voided.
        if self.pace.schedule.is_started() && reason == Refusal::Dropped {
            self.members.reports.on_refusal(index, now);
            self.update_reports();
        }
    }

    /// Handles a peer's statement whether it leaves. Before the start, a leaving peer keeps the others in the lobby
    /// until it comes back. After the start, the statement means that the peer gives no inputs.
    fn on_leaving_flag(&mut self, index: usize, leaving: bool) {
        let peer = &self.peers[index];
        let (site, has_played, is_started) = (peer.site(), peer.has_played(), self.lobby.start_time().is_some());
        let had_left = self.lobby.set_left(index, leaving);
        if !is_started && leaving && !had_left {
            self.output.events.push(Event::Left { site, frame: self.timeline.frame() });
        }
        if leaving && is_started && !has_played {
            self.apply_leave(index, Frame::new(self.config.settings.input_delay));
        }
    }

    /// Sets the start when every starting site agrees with every other. Only the lowest of them does this.
    #[cold]
    fn try_start(&mut self, now: Instant) {
        let starting_sites = self.config.settings.starting_sites;
        let is_lowest = starting_sites.iter().next() == Some(self.config.site);
        let is_ready = self.life.phase == Phase::Lobby && !self.lobby.is_refused() && self.life.leaving.is_none();
        if is_ready && is_lowest && self.lobby.missing_sites(&self.peers, starting_sites).is_empty() {
            let start = now + Lobby::start_lead(&self.peers);
            self.set_start(GroupInstant::from_nanos(start.as_nanos()), start);
        }
    }

    /// Takes over the start that another site has announced, once this site agrees with all starting sites and knows
    /// group time. A joiner only notes the start.
    fn learn_start(&mut self, now: Instant, start_ns: Option<i64>) {
        let Some(start) = start_ns.map(GroupInstant::from_nanos) else { return };
        if self.life.phase == Phase::Joining {
            self.lobby.set_start_time(start);
        }
        let Some(at) = self.peers.local_time(start).filter(|_| self.life.phase == Phase::Lobby) else { return };
        if self.lobby.accepts_start(now, at, &self.peers, self.config.settings.starting_sites) {
            self.set_start(start, at);
        }
    }

    fn set_start(&mut self, start: GroupInstant, at: Instant) {
        self.lobby.set_start_time(start);
        self.life.phase = Phase::Starting { at };
        self.output.events.push(Event::Starting { at });
        for index in 0..self.peers.len() {
            if self.lobby.has_left(index) {
                self.on_leaving_flag(index, true);
            }
        }
        if self.life.leaving.is_some() {
            // The other sites wait for this site's inputs. Only ticks of a running game can announce that it gives
            // none.
            self.start_running(at);
        }
    }

    #[cold]
    fn encode_hello(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> usize {
        let period = self.nominal_period();
        let is_ready = self.side.joining.as_ref().is_some_and(|joining| joining.is_ready(period));
        if let Some(joining) = self.side.joining.as_mut().filter(|_| is_ready) {
            joining.announce_ready();
        }
        // In a hello, leaving means that there are no inputs at all. A site that has given inputs sends their end in
        // ticks.
        let leaving =
            self.life.leaving.is_some_and(|leave| leave.input_end.number() == self.config.settings.input_delay);
        let wants_seat =
            self.life.phase == Phase::Joining && self.life.leaving.is_none() && self.own_join_frame().is_none();
        let peer = &self.peers[index];
        let split_refusal = self.members.split_brain.refusal_for(peer, &self.peers, self.timeline.frame());
        let split_refusal = split_refusal.filter(|_| !self.lobby.asks_to_join(index));
        let refusal = split_refusal.or_else(|| self.lobby.refusal_for(index, peer));
        let your_incarnation = peer.newest_incarnation();
        self.sending.on_hello(index);
        let echo = self.peers[index].take_echo(now);
        let hello = Hello {
            session_id: self.config.session_id,
            site: self.config.site,
            incarnation: self.config.incarnation,
            your_incarnation,
            agreed_sites: self.lobby.agreed_sites(&self.peers),
            is_leaving: leaving,
            join_readiness: wants_seat.then_some(is_ready),
            refusal,
            stamp_us: now.as_micros() as u64,
            echo: echo.map(|(stamp, held)| (stamp as u64, held.as_nanos().clamp(0, i64::from(u32::MAX)) as u32)),
            start_ns: self.lobby.start_time().map(GroupInstant::as_nanos),
            settings: self.config.settings.clone(),
        };
        hello.encode(buf).expect("checked settings fit into a packet")
    }
}
