//! The session engine: several sites step the same deterministic machine with the same inputs, frame by frame.
//!
//! A [`Session`] is one site's end of the shared game. It is a pure state machine: datagrams, the time and local inputs
//! go in; datagrams, [`Request`]s and [`Event`]s come out. The host program owns the machine, the sockets and the
//! clock. See the [crate] for a complete example.
//!
//! Invariants:
//! - Frames are confirmed in sequence. A frame is confirmed when it is stepped with the inputs that every site gave for
//!   it. No site steps a frame that is further past its last confirmed frame than the prediction window. Every
//!   misprediction is rolled back once the real inputs are known.
//! - A local input takes effect in exactly the frame that was promised when the input was sampled.
//! - Memory, packet size and the distance between sites in frames are bounded.

/// Collects what the send schedule reads of the other parts.
macro_rules! send_facts {
    ($session:expr) => {
        SendFacts {
            phase: $session.phase,
            peers: &$session.peers,
            own_inputs: &$session.own_inputs,
            last_call: $session.clock.last_call(),
            nominal_period: $session.config.settings.rate.period(),
            period: $session.schedule.period(),
            input_delay: $session.delay_settings.input_delay,
        }
    };
}

mod auto_tune;
mod config;
mod desync;
mod digest_history;
mod event;
mod feed_output;
mod frame_loop;
mod frame_schedule;
mod input_digest;
mod jitter_buffer;
mod join;
mod lobby;
mod membership;
mod membership_reports;
pub mod message;
mod packet;
mod peer;
mod phase;
mod prediction;
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

pub use crate::codec::Transmit;
pub use crate::settings::{
    AbsentInput, GameId, MAX_COMPARE_INTERVAL, MAX_INPUT_DELAY, MAX_LEAD, MAX_OPTIONS, MAX_PREDICTION_WINDOW,
    MAX_TEXT_LEN, MachineId, Settings, SettingsBuilder, SettingsDifference, SettingsError, StarvationPolicy,
};
pub use auto_tune::MachineCosts;
pub use config::{Config, ConfigError, LateJoinConfig, MIN_DROP_TIMEOUT, SendPolicy};
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
pub use slow_peer::MIN_STALL_LIMIT;
pub use stats::{DroppedDatagrams, PeerStats, Stats};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::codec::{DecodeError, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{InputLayout, InputWord, Stream};
use crate::session::message::{Hello, ScheduledCommand, Tick, is_tick};
use crate::spectator_feed::Feed;
use crate::spectator_feed::message::is_feed;
use crate::time::{GroupInstant, Instant, TimeDelta};
use auto_tune::AutoTuner;
use desync::DesyncSearch;
use digest_history::{DigestHistory, FrameDigest};
use event::SessionEventQueue;
use frame_schedule::FrameSchedule;
use input_digest::InputDigest;
use join::JoinProgress;
use membership::Membership;
use peer::{Peer, Seat};
use phase::{FramePhase, OwnLeave, Phase};
use rollback::RollbackScheduler;
use send::{SendFacts, SendSchedule};
use session_clock::{SessionClock, UPDATE_INTERVAL};
use split_brain::SplitBrain;
use stall::Stall;

/// Duration for which a site that does not play yet, in the lobby or as a joiner, announces that it leaves.
const LOBBY_LEAVE_DURATION: TimeDelta = TimeDelta::from_secs(1);
/// After a host stall this long, lateness is not blamed on peers.
const HOST_STALL: TimeDelta = TimeDelta::from_millis(150);
/// After a host stall this long, the host program is taken to have been suspended, and silence is not blamed on peers.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);

/// One site's end of a shared game: takes datagrams, the time and local inputs, and gives datagrams, requests and
/// events.
#[derive(Debug)]
pub struct Session {
    config: Config,
    peers: Vec<Peer>,
    phase: Phase,
    /// Start of the game in group time, once the sites have agreed on it.
    start_time: Option<GroupInstant>,
    is_refused: bool,
    schedule: FrameSchedule,
    /// The current frame: the one that has begun and is not stepped yet, or else the next one to begin.
    frame: Frame,
    /// The frame that the host program's machine steps next; earlier than `frame` during a rollback. The replay of a
    /// desync search does not change it.
    machine_frame: Frame,
    /// The first frame that was stepped with a mispredicted input and is not rolled back yet.
    first_misprediction: Option<Frame>,
    rollback_scheduler: RollbackScheduler,
    /// This site's inputs, up to the current frame plus the input delay.
    own_inputs: Stream,
    layout: InputLayout,
    input_words: Vec<InputWord>,
    scratch_words: Vec<InputWord>,
    own_digests: DigestHistory<FrameDigest>,
    /// Rolling hash of this site's inputs.
    own_input_digest: InputDigest,
    /// State hashes after compared frames, including frames that a rollback may still change.
    tentative_hashes: DigestHistory,
    /// The next frame whose state hash is published once the frame is confirmed; `None` if states are not compared.
    next_compared_frame: Option<Frame>,
    /// The frame for which a state hash was requested from the host program.
    hash_pending: Option<Frame>,
    stall: Stall,
    delay_settings: DelaySettings,
    /// The delay settings that were scheduled last and do not apply yet.
    next_delay_settings: Option<DelaySettings>,
    /// The largest sum of input delay and prediction window, in frames, that has been in force or scheduled.
    max_lead: u32,
    membership: Membership,
    /// The sites that were dropped without a quorum, and the result of meeting them again.
    split_brain: SplitBrain,
    /// The scheduled command that some sites may not have applied yet.
    command: Option<ScheduledCommand>,
    /// The frame of the newest command that was applied.
    last_applied_command: Option<Frame>,
    auto_tuner: Option<Box<AutoTuner>>,
    /// Whether the session has or had work besides the frame loop: a late join, a spectator feed or a desync search.
    side_work: bool,
    /// State of desync searches; `None` if this site takes no part in them.
    desync_search: Option<Box<DesyncSearch>>,
    /// Progress of this site's late join; `None` if it does not join late or plays already.
    joining: Option<Box<JoinProgress>>,
    /// The feed for spectators and late joiners; `None` if the configuration has none.
    feed: Option<Box<Feed>>,
    /// End of the frames that were pushed to the feed.
    feed_end: Frame,
    /// End of the frames whose inputs are kept for a desync search.
    search_end: Frame,
    /// End of the frames that [`Session::poll_confirmed`] has returned.
    record_end: Frame,
    /// The frame for which a snapshot was requested from the host program; cleared when the next frame begins.
    snapshot_requested: Option<Frame>,
    /// The first frame that this site played after a late join; all earlier frames came from a feed, already confirmed.
    /// 0 if this site did not join late.
    joined_at: Frame,
    /// Frames before this one are stepped as fast as the machine can, to catch up after a late join.
    catch_up_until: Frame,
    /// Whether the next ticks carry this site's tuning statistics.
    tuning_stats_due: bool,
    /// This site's orderly leave, once it has begun.
    leaving: Option<OwnLeave>,
    left_sites: SiteSet,
    events: SessionEventQueue,
    stats: Stats,
    sending: SendSchedule,
    clock: SessionClock,
}

/// Input delay and prediction window, both in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DelaySettings {
    /// The first frame with these values.
    from_frame: Frame,
    input_delay: u32,
    prediction_window: u32,
}

impl Session {
    /// Creates this site's end of a session: joining a running game with [`Config::late_join`], otherwise in the lobby.
    /// Fails if the configuration is invalid.
    pub fn new(now: Instant, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let settings = &config.settings;
        let (ownership, first) = (&settings.ownership, Frame::new(settings.input_delay));
        let layout = ownership.layout(config.site);
        let sizes = (layout.width(), settings.rollback_slots());
        let peer = |(site, addr): &(SiteId, Addr)| Peer::new(now, *site, *addr, ownership.layout(*site), first, sizes);
        let mut peers: Vec<Peer> = config.peers.iter().map(peer).collect();
        let absent = |peer: &&mut Peer| !settings.starting_sites.contains(peer.site);
        peers.iter_mut().filter(absent).for_each(|peer| peer.seat = Seat::Free(Frame::ZERO));
        let joining = config.late_join.map(|join| JoinProgress::new(now, join, &config)).transpose()?;
        let feed = config.feed.clone().map(|feed| Feed::new(feed).map(Box::new)).transpose()?;
        let searching = config.bisect_desyncs && config.can_save && settings.compare_interval > 0;
        let all_sites = SiteSet::first(usize::from(settings.site_count));
        let desync_search = searching.then(|| DesyncSearch::new(config.site, all_sites, settings, Frame::ZERO));
        let phase = if joining.is_some() { Phase::Joining } else { Phase::Lobby };
        Ok(Self {
            clock: SessionClock::new(now),
            schedule: FrameSchedule::new(now),
            stall: Stall::new(now),
            sending: SendSchedule::new(now, config.send_policy, peers.iter().map(|peer| !peer.is_free())),
            peers,
            phase,
            start_time: None,
            is_refused: false,
            frame: Frame::ZERO,
            machine_frame: Frame::ZERO,
            first_misprediction: None,
            rollback_scheduler: RollbackScheduler::default(),
            own_inputs: Stream::new(layout.width(), first),
            layout,
            input_words: vec![0; ownership.players()],
            scratch_words: vec![0; ownership.players()],
            own_digests: DigestHistory::default(),
            own_input_digest: InputDigest::new(first),
            tentative_hashes: DigestHistory::default(),
            hash_pending: None,
            next_compared_frame: settings.compare_interval.checked_sub(1).map(Frame::new),
            delay_settings: DelaySettings {
                from_frame: Frame::ZERO,
                input_delay: settings.input_delay,
                prediction_window: settings.prediction_window,
            },
            next_delay_settings: None,
            max_lead: settings.input_delay + settings.prediction_window,
            membership: Membership::default(),
            split_brain: SplitBrain::default(),
            command: None,
            last_applied_command: None,
            auto_tuner: settings.auto_tune.then(|| Box::new(AutoTuner::new(now, config.machine_costs))),
            tuning_stats_due: false,
            side_work: joining.is_some() || feed.is_some(),
            desync_search,
            joining,
            feed,
            feed_end: Frame::ZERO,
            search_end: Frame::ZERO,
            record_end: Frame::ZERO,
            snapshot_requested: None,
            joined_at: Frame::ZERO,
            catch_up_until: Frame::ZERO,
            leaving: None,
            left_sites: SiteSet::EMPTY,
            events: SessionEventQueue::new(),
            stats: Stats {
                input_delay: settings.input_delay,
                prediction_window: settings.prediction_window,
                ..Stats::default()
            },
            config,
        })
    }

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
                Err(_) => self.stats.dropped_datagrams.malformed += 1,
            }
            return;
        }
        match Hello::decode(bytes) {
            Ok(hello) => self.handle_hello(now, from, &hello, bytes.len()),
            Err(DecodeError::Version(version)) => self.handle_other_version(from, version),
            Err(_) => self.stats.dropped_datagrams.malformed += 1,
        }
        self.invalidate_send_time();
    }

    /// Handles the effects of elapsed time, such as the start of the game and timeouts. [`Session::poll_request`] does
    /// this, too.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.note_call_time(now);
        self.advance_time(now);
    }

    fn advance_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Starting { at } if at <= now => self.start_running(at),
            Phase::Running(_) if self.clock.next_update() <= now => {
                self.clock.schedule_update(now);
                self.update(now);
            }
            Phase::Running(_) => {}
            Phase::Lobby | Phase::Joining
                if self.leaving.is_some_and(|leave| now - leave.since > LOBBY_LEAVE_DURATION) =>
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
            self.stall.excuse(away);
        }
        if away > HOST_SUSPENDED {
            for peer in &mut self.peers {
                peer.last_received_at += away;
            }
        }
    }

    /// Marks that there is something new for every peer whose seat is taken, or about to be taken by a joiner.
    fn mark_all_due(&mut self) {
        if !self.sending.mark_active() {
            let facts = send_facts!(self);
            self.sending.mark_all(&facts);
        }
    }

    /// Marks that ticks may have to carry extras, until the next update of the session recomputes that.
    fn mark_extras_pending(&mut self) {
        self.sending.mark_extras_pending();
    }

    fn invalidate_send_time(&mut self) {
        self.sending.invalidate();
    }

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
        self.leaving.get_or_insert(OwnLeave { input_end: self.own_inputs.end(), since: now, reason: end });
        // A leaving site steps no more frames.
        self.close_feed();
        if let Phase::Starting { at } = self.phase {
            self.start_running(at);
        }
        if self.phase == Phase::Joining && self.schedule.is_started() {
            // The other sites already wait for this site's inputs.
            self.phase = Phase::Running(FramePhase::Idle);
            self.joining = None;
            self.clock.schedule_update(now);
        }
        if matches!(self.phase, Phase::Running(_)) {
            self.phase = Phase::Running(FramePhase::Idle);
        }
        self.stall.end_freeze();
        self.mark_extras_pending();
        self.mark_all_due();
        self.invalidate_send_time();
    }

    /// Returns the oldest unread event. The queue holds 64 events; when it is full, the oldest is discarded.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Returns when to call [`Session::poll_request`] and [`Session::poll_transmit`] again if nothing else happens;
    /// `None` when the session is over.
    ///
    /// Be on time to a fraction of a millisecond if you can, because a frame begins when you call. A socket's read
    /// timeout is often too coarse: use it until a few milliseconds before this time, then sleep.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_resting =
            matches!(self.phase, Phase::Running(FramePhase::Idle)) && self.leaving.is_none() && !self.side_work;
        let nothing_new = self.sending.is_nothing_new() && self.first_misprediction.is_none();
        match self.sending.next_send() {
            Some(next_send) if is_resting && nothing_new => {
                Some(self.clock.host_time(next_send.min(self.schedule.next_start())))
            }
            _ => self.next_timeout(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let send = self.sending.next_packet_at(&send_facts!(self));
        let frame = match self.phase {
            Phase::Over(_) => return None,
            // There may be no peer to send to, and so no other reason to be called.
            Phase::Lobby | Phase::Joining if self.leaving.is_some() => self.clock.last_call() + UPDATE_INTERVAL,
            Phase::Lobby | Phase::Joining => Instant::FAR_FUTURE,
            Phase::Starting { at } => at,
            Phase::Running(FramePhase::Idle) if self.leaving.is_none() => {
                self.next_rollback_time().min(self.next_frame_time())
            }
            Phase::Running(FramePhase::AwaitInputs { .. }) if self.leaving.is_none() && !self.can_step() => {
                Instant::FAR_FUTURE
            }
            Phase::Running(FramePhase::AwaitInputs { began }) if self.leaving.is_none() => {
                self.predict_at(began).max(self.clock.last_call())
            }
            Phase::Running(FramePhase::AwaitSample) if self.leaving.is_none() => Instant::FAR_FUTURE,
            Phase::Running(_) if self.leaving.is_none() => self.clock.last_call(),
            Phase::Running(_) => self.clock.next_update(),
        };
        let side_work_time = if self.side_work { self.next_side_work_time() } else { Instant::FAR_FUTURE };
        Some(self.clock.host_time(send.min(frame).min(side_work_time)))
    }

    /// Returns whether the session has ended, for one of the reasons in [`SessionEnd`].
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Returns the current phase, with details for display.
    pub fn state(&self) -> State {
        match (self.phase, self.stall.freeze()) {
            (Phase::Over(end), _) => State::Ended(end),
            (Phase::Running(_), Some(freeze)) => State::Frozen(freeze),
            (Phase::Running(_), None) => State::Running,
            (Phase::Starting { at }, _) => State::Starting { at },
            (Phase::Joining, _) => State::Joining { download_percent: self.download_percent() },
            (Phase::Lobby, _) => State::Lobby { waiting_for: self.missing_in_lobby() },
        }
    }

    /// Returns the approximate memory use of the session, including the heap, in bytes. The frames of a running game do
    /// not make it grow.
    pub fn memory(&self) -> usize {
        let peers: usize = self.peers.iter().map(Peer::memory).sum();
        let digests = self.own_digests.memory() + self.tentative_hashes.memory();
        size_of::<Self>() + peers + self.own_inputs.memory() + digests + self.events.memory() + self.side_work_memory()
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
        let period = self.schedule.period().unwrap_or(self.config.settings.rate.period());
        Stats { frame: self.frame, confirmed: self.confirmed_end(), period, ..self.stats }
    }

    /// Returns the statistics of the link to a peer, or `None` if `site` is not a peer.
    pub fn peer_stats(&self, now: Instant, site: SiteId) -> Option<PeerStats> {
        let now = self.clock.session_time(now);
        let peer = self.peers.iter().find(|peer| peer.site == site)?;
        let (requests, answers) = peer.sender.request_and_resend_counts();
        Some(PeerStats {
            buffered_frames: self.buffered_frames(peer),
            resend_requests: requests,
            resends: answers,
            ..peer.stats(now, self.own_inputs.end())
        })
    }

    /// Returns the time on the clock that all sites share, which is the clock of the lowest site; `None` until this
    /// site has estimated that clock.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        let now = self.clock.session_time(now);
        match self.time_keeper() {
            None => Some(GroupInstant::from_nanos(now.as_nanos())),
            Some(keeper) => keeper.clock.to_group(now),
        }
    }

    fn local_time(&self, group: GroupInstant) -> Option<Instant> {
        match self.time_keeper() {
            None => Some(Instant::from_nanos(group.as_nanos())),
            Some(keeper) => keeper.clock.from_group(group),
        }
    }

    /// Returns the peer whose clock is group time; `None` if that is this site's own clock.
    fn time_keeper(&self) -> Option<&Peer> {
        self.peers.iter().min_by_key(|peer| peer.site).filter(|peer| peer.site < self.config.site)
    }

    /// Writes the next datagram to be sent now into `buf`, which must hold at least [`MAX_DATAGRAM`] bytes. Call it
    /// until it returns `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.sending.is_idle(self.clock.session_time(now)) {
            return if self.side_work { self.transmit_side_work(now, buf) } else { None };
        }
        let transmit = self.transmit(now, buf);
        if transmit.is_none() && self.side_work { self.transmit_side_work(now, buf) } else { transmit }
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.clock.call_time(now);
        assert!(buf.len() >= MAX_DATAGRAM, "the buffer must hold at least {MAX_DATAGRAM} bytes");
        let index = self.sending.next_due_peer(now, &send_facts!(self))?;
        let is_hello = !self.schedule.is_started() || self.sending.is_hello_due(index);
        let len = match is_hello {
            true => self.encode_hello(now, index, buf),
            false => self.encode_tick(now, index, buf).expect("a tick always fits into a packet"),
        };
        self.sending.on_sent(now, (index, is_hello), self.schedule.begun_at(), &send_facts!(self));
        let peer = &mut self.peers[index];
        peer.on_sent(now, len);
        Some(Transmit { to: peer.addr, len })
    }
}
