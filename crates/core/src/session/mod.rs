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

/// Collects what the judgement of membership reports reads of the other parts.
macro_rules! report_facts {
    ($session:expr, $facts:expr) => {
        ReportFacts { peers: &$session.peers, membership: &$session.membership, membership_facts: &$facts }
    };
}

mod auto_tune;
mod comparison;
mod config;
mod desync;
mod digest_history;
mod event;
mod feed_output;
mod frame_loop;
mod frame_schedule;
mod input_digest;
mod irrevocable;
mod jitter_buffer;
mod join;
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
use alloc::vec;
use alloc::vec::Vec;

use crate::codec::{BufferFull, DecodeError, MAX_DATAGRAM, VERSION};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{InputLayout, InputWord, Recovery, Stream};
use crate::session::message::{
    ClockProbe, CommandKind, Extra, Hello, MembershipDecision, Refusal, RelayedInputs, ScheduledCommand, Tick,
    TickDigest, TuningStats, Vote, is_tick,
};
use crate::spectator_feed::Feed;
use crate::spectator_feed::message::is_feed;
use crate::time::{GroupInstant, Instant, TimeDelta};
use auto_tune::AutoTuner;
use comparison::{Comparison, Divergence};
use desync::DesyncSearch;
use digest_history::FrameDigest;
use event::SessionEventQueue;
use frame_schedule::FrameSchedule;
use join::JoinProgress;
use lobby::{ALIVE_TIMEOUT, Lobby};
use membership::{CONSENT_SILENCE, Membership, MembershipFacts, max_spared_silence};
use membership_reports::{MembershipReports, ReportFacts};
use packet::{MAX_FRAME_DISTANCE, ProbeContent, TickContext, TickExtras};
use peer::{LeaveEffect, Peer};
use peers::Peers;
use phase::{FramePhase, OwnLeave, Phase};
use prediction::PredictedInputs;
use quorum::Electorate;
use relay::{RelayFacts, Relays};
use rollback::RollbackScheduler;
use send::{SendFacts, SendSchedule};
use session_clock::{SessionClock, UPDATE_INTERVAL};
use slow_peer::{SlowPeerLimits, SlowPeers};
use split_brain::{Resolution, SplitBrain};
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
    peers: Peers,
    /// The predicted inputs of stepped frames whose real inputs are missing, by index of the peer.
    predictions: Vec<PredictedInputs>,
    comparison: Comparison,
    reports: MembershipReports,
    slow_peers: SlowPeers,
    relays: Relays,
    lobby: Lobby,
    phase: Phase,
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
        let peer = |(site, addr): &(SiteId, Addr)| {
            Peer::new(now, *site, *addr, ownership.layout(*site), first, layout.width())
        };
        let mut peers = Peers::new(config.site, config.peers.iter().map(peer).collect());
        let absent = |peer: &&mut Peer| !settings.starting_sites.contains(peer.site());
        peers.iter_mut().filter(absent).for_each(Peer::vacate);
        let slots = settings.rollback_slots();
        let predictions = peers.iter().map(|peer| PredictedInputs::new(slots, peer.inputs().block_count())).collect();
        let count = peers.len();
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
            comparison: Comparison::new(settings.compare_interval, first, count),
            reports: MembershipReports::new(count),
            slow_peers: SlowPeers::new(count),
            relays: Relays::new(now, count),
            lobby: Lobby::new(count),
            predictions,
            peers,
            phase,
            frame: Frame::ZERO,
            machine_frame: Frame::ZERO,
            first_misprediction: None,
            rollback_scheduler: RollbackScheduler::default(),
            own_inputs: Stream::new(layout.width(), first),
            layout,
            input_words: vec![0; ownership.players()],
            scratch_words: vec![0; ownership.players()],
            delay_settings: DelaySettings {
                from_frame: Frame::ZERO,
                input_delay: settings.input_delay,
                prediction_window: settings.prediction_window,
            },
            next_delay_settings: None,
            max_lead: settings.input_delay + settings.prediction_window,
            membership: Membership::new(count),
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
            self.peers.excuse_silence(away);
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
            (Phase::Lobby, _) => {
                State::Lobby { waiting_for: self.lobby.missing_sites(&self.peers, self.config.settings.starting_sites) }
            }
        }
    }

    /// Returns the approximate memory use of the session, including the heap, in bytes. The frames of a running game do
    /// not make it grow.
    pub fn memory(&self) -> usize {
        let predictions: usize = self.predictions.iter().map(PredictedInputs::memory).sum();
        let peers = self.peers.memory() + self.lobby.memory() + self.comparison.memory() + predictions;
        size_of::<Self>() + peers + self.own_inputs.memory() + self.events.memory() + self.side_work_memory()
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
        let index = self.peers.index_of(site)?;
        let (peer, counts) = (&self.peers[index], self.comparison.counts(index));
        Some(PeerStats {
            buffered_frames: self.buffered_frames(peer),
            compared: counts.compared,
            mismatches: counts.mismatches,
            ..peer.stats(now, self.own_inputs.end())
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
        Some(Transmit { to: peer.addr(), len })
    }
    // ---- Membership

    fn electorate(&self) -> Electorate {
        Electorate { voters: self.peers.voters(), pending_joiner: self.pending_joiner() }
    }

    fn membership_facts(&self) -> MembershipFacts {
        let rejoins = |(index, peer): (usize, &Peer)| peer.was_restarted() && self.lobby.asks_to_join(index);
        MembershipFacts {
            now: self.clock.last_call(),
            drop_timeout: self.config.drop_timeout,
            all_sites: SiteSet::first(usize::from(self.config.settings.site_count)),
            pending_joiner: self.pending_joiner(),
            is_last_player: self.peers.iter().enumerate().all(rejoins),
            download_end: self.joining.is_some().then_some(self.machine_frame),
            command: self.command,
            is_stuck: self.stall.is_stuck(self.clock.last_call()),
        }
    }

    /// Leads a ballot if there is a suspect or a vote and it is this site's turn; decides a ballot that is under way if
    /// it can.
    fn update_membership(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        // Without every drop decided meanwhile, this site could not have confirmed these frames.
        let is_epoch_certain = |session: &Self| session.confirmed_end() > session.catch_up_until + session.max_lead;
        if self.membership.is_requesting_epoch() && self.joining.is_none() && is_epoch_certain(self) {
            self.membership.stop_epoch_request();
        }
        // A site that plays by now must vote.
        self.apply_due_command();
        let facts = self.membership_facts();
        self.membership.abandon_hopeless_ballot(&self.peers, &facts);
        self.try_decide();
        let facts = self.membership_facts();
        if self.membership.lead_ballot_if_due(&mut self.peers, &facts) {
            self.mark_all_due();
            self.try_decide();
        }
    }

    fn on_vote(&mut self, index: usize, vote: Vote) {
        self.apply_due_command();
        let facts = self.membership_facts();
        let is_leaving = self.leaving.is_some();
        let Some(is_new) = self.membership.on_vote(index, vote, &mut self.peers, is_leaving, &facts) else { return };
        if is_new {
            self.mark_all_due();
        }
        self.try_decide();
    }

    /// Counts the votes, and applies a decision that a quorum has accepted.
    fn try_decide(&mut self) {
        let facts = self.membership_facts();
        let step = self.membership.try_decide(&self.peers, &facts);
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
        self.void_commands_of_dropped(&decision);
        let own_end = self.own_inputs.end();
        let ended = self.membership.end_epoch(&decision, own_end, now, &self.peers);
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
        self.stall.restart(now);
        if drops_none {
            self.slow_peers.reset();
            if !ended.to_evict.is_empty() {
                self.slow_peers.on_failed_eviction(now);
            }
        }
        self.choose_pace_setter();
        self.mark_all_due();
        self.invalidate_send_time();
        self.mark_extras_pending();
    }

    /// Drops a peer with a decision. `known` is the end of its inputs that counted so far.
    fn drop_peer(&mut self, index: usize, known: Frame, decision: &MembershipDecision, to_evict: SiteSet) {
        let (now, site) = (self.clock.last_call(), self.peers[index].site());
        let last = decision.input_ends[site.index()];
        if !self.peers[index].is_awaited() {
            let known = self.peers[index].known_end();
            if let Some(frame) = self.peers[index].shorten_last_inputs(last) {
                self.events.push(Event::Dropped { site, frame });
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
        self.slow_peers.on_drop(index, now, is_received && to_evict.contains(site));
        self.peers.report_gone(site);
        self.events.push(Event::Dropped { site, frame: last });
        self.schedule.forget_site(site);
        self.check_predictions(index, known);
    }

    /// Voids a dropped site's command, unless the decision keeps it because another site may have applied it. This
    /// comes before the end of the site's inputs is set: until then, frames from the void command's frame on are not
    /// confirmed and can be resimulated.
    fn void_commands_of_dropped(&mut self, decision: &MembershipDecision) {
        let voided =
            self.command.filter(|command| decision.drop.contains(command.issuer) && decision.command != Some(*command));
        let Some(command) = voided else { return };
        self.command = None;
        // This site may be the last for which the command that admitted it is not settled. That command counts if the
        // issuer's input for its frame does.
        let counts = command.frame < decision.input_ends[command.issuer.index()];
        if !(counts && self.is_own_join(&command)) {
            self.revert_command(command);
        }
    }

    /// Returns a frame after all frames for which the sites that are dropped now can have given inputs.
    fn next_free_seat_frame(&self) -> Frame {
        let max_lead = self.delay_settings.input_delay + self.delay_settings.prediction_window;
        self.own_inputs.end() + 3 * max_lead + 16
    }

    /// Returns whether this site plays: it has started or joined, and the session is not over.
    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Applies all reports that are credible by now. A report can also become credible by time alone, when players fall
    /// silent or a stall lasts.
    fn update_reports(&mut self) {
        if self.reports.is_empty() {
            return;
        }
        while !self.is_over() {
            let facts = self.membership_facts();
            let Some(reported) = self.reports.credible_decision(&report_facts!(self, facts)) else { break };
            self.membership.skip_to_epoch(reported.epoch);
            self.apply_decision(reported.decision);
        }
        if self.is_over() {
            return;
        }
        let facts = self.membership_facts();
        if self.reports.is_refused(&report_facts!(self, facts)) {
            return self.end_session(SessionEnd::Dropped);
        }
        for site in SiteId::first(usize::from(self.config.settings.site_count)) {
            self.update_leave_report(site);
        }
    }

    fn update_leave_report(&mut self, site: SiteId) {
        let Some(index) = self.peers.index_of(site) else { return };
        let facts = self.membership_facts();
        if let Some(last) = self.reports.credible_leave(index, &report_facts!(self, facts)) {
            self.apply_leave(index, last);
        }
    }

    /// Returns the stall limit if this site is the coordinator, does not leave and has one.
    fn own_stall_limit(&self) -> Option<TimeDelta> {
        self.config.stall_limit.filter(|_| self.leaving.is_none() && self.peers.is_coordinator())
    }

    /// Records that the current frame cannot be stepped, and which peers cause that.
    #[inline]
    fn record_stall(&mut self, now: Instant) {
        self.stall.begin(now);
        if self.config.stall_limit.is_some() {
            let causes = self.stalling_peers().map(Peer::site).collect();
            self.stall.blame(causes);
        }
    }

    /// Marks the peers above the stall limit for eviction, if that is possible. A site that is not the coordinator,
    /// leaves or has no stall limit forgets the stall times.
    fn update_slow_peers(&mut self, now: Instant) {
        let Some(stall_limit) = self.own_stall_limit() else { return self.slow_peers.reset() };
        let has_diverged = |(index, _): &(usize, &Peer)| self.comparison.counts(*index).mismatches > 0;
        let diverged = self.peers.iter().enumerate().filter(has_diverged).map(|(_, peer)| peer.site()).collect();
        let limiting_site = self.schedule.limiting_site(self.config.settings.rate.period());
        let limits = SlowPeerLimits { stall_limit, limiting_site, diverged };
        let slow = self.slow_peers.update(now, &limits, &self.stall, &self.peers);
        // A slow site may be the only one that has the last inputs of a dropped site. It gets time to relay them.
        if self.slow_peers.can_evict(now, slow, &self.peers)
            && !self.membership.awaits_last_inputs(&self.peers, &self.membership_facts())
        {
            self.membership.evict(slow);
        }
    }

    /// Asks the other sites to drop a site, whether it is silent or not; its seat can be taken again. Only the
    /// coordinator, the lowest site that plays, can do this. Returns whether this site will propose the drop to the
    /// others: the game runs, this site is the coordinator and does not leave, and inputs of `site` are still to come.
    pub fn drop_site(&mut self, now: Instant, site: SiteId) -> bool {
        self.note_call_time(now);
        let is_awaited = self.peers.of_site(site).is_some_and(Peer::is_awaited);
        let is_allowed = is_awaited && self.is_running() && self.leaving.is_none() && self.peers.is_coordinator();
        if is_allowed {
            self.membership.evict(SiteSet::from_iter([site]));
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
            && self.leaving.is_none()
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
        let decision = split_brain::decision_without_quorum(&self.peers, self.command);
        self.split_brain.abandon(decision.drop);
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
        if self.split_brain.is_idle() || self.leaving.is_some() {
            return;
        }
        if self.split_brain.must_end(now, &self.peers) {
            return self.end_session(SessionEnd::Dropped);
        }
        for index in self.split_brain.update(now, &self.peers, |index| self.lobby.asks_to_join(index)) {
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
                let must_yield =
                    is_current && self.is_running() && self.split_brain.is_abandoned(site) && self.peers.is_alone();
                if must_yield {
                    let resolution = self.split_brain.yield_to(site, now);
                    self.report_resolution(resolution);
                    self.end_session(SessionEnd::Dropped);
                }
                must_yield
            }
            Refusal::ContinuedAlone { .. } if self.phase == Phase::Lobby => false,
            Refusal::ContinuedAlone { frame } => {
                if is_current && self.is_running() && self.leaving.is_none() {
                    let frames = (self.frame, frame);
                    if let Some(resolution) = self.split_brain.resolve(now, site, frames, &self.peers) {
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
            self.events.push(Event::SplitBrainResolved { site, is_own_game_kept });
        }
    }

    /// Returns whether this site plays or is admitted, and does not leave.
    fn may_wait_in_vain(&self) -> bool {
        let is_playing = self.is_running() || self.phase == Phase::Joining && self.schedule.is_started();
        is_playing && self.leaving.is_none()
    }

    // ---- Packets

    fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let extras = if self.sending.are_extras_pending() { Some(self.tick_extras(index)) } else { None };
        let join_frame = self.own_join_frame();
        let Self { config, peers, relays, own_inputs, schedule, comparison, .. } = self;
        let context = TickContext {
            now,
            recovery: config.recovery,
            own_inputs,
            session_id: config.session_id,
            own_site: config.site,
        };
        let (phase, frame, is_leaving) = (self.phase, self.frame, self.leaving.is_some());
        let probe = || ProbeContent {
            frame: match phase {
                // Once a frame is stepped, the plan is that of the next frame.
                Phase::Running(FramePhase::AwaitStep) => frame.next(),
                // A joiner that does not play yet reports its join frame, because its current frame is that of its
                // download.
                _ => join_frame.unwrap_or(frame),
            },
            planned_start: schedule.planned_start().filter(|_| !is_leaving && join_frame.is_none()),
            digest: comparison.newest_digest(),
        };
        packet::encode_tick(index, &context, (peers, relays), extras.as_ref(), probe, buf)
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
        let leave = self.leaving.filter(|_| !peer.is_dropped() && !self.membership.is_bound_by_vote());
        let needs_decision = self.membership.needs_last_decision(index, peer);
        TickExtras {
            command: self.command.filter(|command| is_pending(command) && is_meant(command)),
            leave: leave.map(|leave| leave.input_end),
            vote: self.membership.own_vote().copied(),
            decision: self.membership.last_decision().filter(|_| needs_decision),
            tuning: self.own_tuning_stats().filter(|_| self.tuning_stats_due && peer.is_playing()),
            pause: self.schedule.pause().announced().filter(|_| peer.is_playing()),
            relay: RelayFacts {
                muted: self.membership.muted(),
                reported_left: self.reports.reported_left(),
                is_voting: self.membership.own_vote().is_some(),
                command: self.command,
            },
        }
    }

    /// Recomputes whether ticks have to carry extras. Stops announcing a pause that is over, and stops sending the
    /// tuning statistics.
    fn update_extras_pending(&mut self, now: Instant) {
        self.schedule.clear_expired_pause(now);
        let has_own = self.leaving.is_some()
            || self.command.is_some()
            || self.membership.own_vote().is_some()
            || self.schedule.pause().announced().is_some();
        let muted = self.membership.muted();
        let has_for_peer = |(index, peer): (usize, &Peer)| {
            self.membership.needs_last_decision(index, peer)
                || peer.needs_relay(now, muted.contains(peer.site()))
                || self.relays.has_requests(index)
        };
        let are_pending = has_own || self.peers.iter().enumerate().any(has_for_peer);
        self.sending.set_extras_pending(are_pending);
        self.tuning_stats_due = false;
    }

    fn handle_tick(&mut self, now: Instant, from: Addr, tick: &Tick<'_>, bytes: usize) {
        let Some(index) = self.sender_of(from, tick) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        if self.lobby.start_time().is_none() || self.handle_tick_while_joining(index, tick) {
            self.stats.dropped_datagrams.early += 1;
            return;
        }
        let peer = &mut self.peers[index];
        peer.on_received(now, bytes);
        peer.on_tick();
        if peer.is_free() || peer.is_abandoned() {
            return self.handle_tick_of_absent(index, tick);
        }
        let Some(end) = peer.inputs().end().expand_low16(tick.end) else {
            self.stats.dropped_datagrams.inputs += 1;
            return;
        };
        if (end - peer.inputs().end()).abs() <= MAX_FRAME_DISTANCE {
            peer.count_tick(end);
        }
        let accepts_inputs = tick.extras.is_empty() || self.handle_extras(now, index, tick);
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        if accepts_inputs && !self.membership.muted().contains(peer.site()) {
            self.stats.dropped_datagrams.inputs += peer.receive_tick_inputs(now, end, tick);
        }
        self.stats.dropped_datagrams.inputs +=
            peer.on_ack(now, end, tick, &self.own_inputs, self.leaving.map(|leave| leave.input_end));
        if tick.probe.is_some() || tick.digest.is_some() {
            self.handle_measurements(now, index, end, tick);
        }
        self.check_predictions(index, known);
        if self.config.recovery == Recovery::Classic {
            self.schedule_classic_recovery(now, index, !tick.missing.is_empty());
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
        } else if !peer.is_dropped() || self.membership.needs_last_decision(index, peer) {
            self.sending.mark_due(index);
        }
    }

    /// Returns whether a restarted site gives inputs for frames that were confirmed without it. No site confirms a
    /// frame without knowing the players in it, so the command that admitted the site is void.
    fn has_void_admission(&self, index: usize, tick: &Tick<'_>) -> bool {
        let first = self.frame.expand_low16(tick.end).and_then(|end| end.checked_sub(tick.frame_count));
        let is_player = self.is_running() && self.joining.is_none();
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
                Extra::Leave(last) if self.membership.muted().contains(self.peers[index].site()) => {
                    // A site that takes part in a ballot about the peer has reported the end of the peer's inputs.
                    let _ = last;
                }
                Extra::Leave(last) => self.apply_leave(index, last),
                Extra::LeaveReport(site, last) => {
                    self.reports.on_leave(index, site, last);
                    self.update_leave_report(site);
                }
                Extra::Command(command) if !self.can_issue_command(command.issuer) => refused.insert(command.issuer),
                Extra::Command(command) => self.on_command(index, command),
                Extra::Vote(vote) => self.on_vote(index, vote),
                Extra::DecisionReport(epoch, decision, since) => {
                    self.reports.on_decision(index, epoch, decision, since);
                    self.update_reports();
                }
                Extra::RelayRequest(site, end) => {
                    self.relays.on_request(index, site, end);
                    self.mark_extras_pending();
                }
                Extra::Relay(relay) if refused.contains(relay.site) => {}
                Extra::Relay(relay) => self.on_relay(now, index, &relay),
                Extra::TuningStats(stats) => self.on_tuning_stats(index, stats),
                Extra::Pause(request) => self.on_pause_request(now, request),
            }
        }
        !refused.contains(self.peers[index].site())
    }

    /// Handles inputs of a third site that a peer passes on. They are ignored unless this site needs a relay.
    fn on_relay(&mut self, now: Instant, relay_index: usize, relay: &RelayedInputs<'_>) {
        let relay_site = self.peers[relay_index].site();
        let Some(index) = self.peers.index_of(relay.site) else { return };
        let is_muted = self.membership.muted().contains(relay.site);
        if is_muted || !self.peers[index].needs_relay(now, is_muted) {
            return;
        }
        let known = self.peers[index].known_end();
        let (useless, are_new) = self.peers[index].receive_relayed(now, relay);
        self.stats.dropped_datagrams.inputs += useless;
        if are_new {
            self.relays.on_new_input(index, relay_site);
        }
        self.check_predictions(index, known);
    }

    fn on_tuning_stats(&mut self, index: usize, stats: TuningStats) {
        if let Some(tuner) = &mut self.auto_tuner {
            tuner.on_tuning_stats(self.peers[index].site(), stats);
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
        if tick.identity.is_some_and(|identity| identity.session_id != self.config.session_id) {
            return None;
        }
        if let Some(index) = self.peers.index_at(from) {
            let is_other = tick.identity.is_some_and(|identity| identity.site != self.peers[index].site().number());
            return (!is_other).then_some(index);
        }
        let identity = tick.identity?;
        let index = self.peers.iter().position(|peer| peer.site().number() == identity.site)?;
        // Only the newest tick moves a peer, so that an old stray packet cannot move it back.
        let stamp = self.peers[index].expand_stamp(tick.probe?.stamp_us);
        let is_newer = self.peers[index].is_newer_stamp(stamp);
        self.accept_address(index, from, is_newer).then_some(index)
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
        if let Some(joining) = &mut self.joining {
            joining.spectator.move_source(peer.addr(), from);
        }
        peer.move_to(from);
        self.events.push(Event::AddressChanged { site: peer.site(), addr: from });
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
            self.schedule.on_delay(now, site, (now - sent).max(TimeDelta::ZERO));
        }
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        if (frame - self.frame).abs() > MAX_FRAME_DISTANCE {
            return;
        }
        peer.on_frame(frame, end, self.delay_settings.input_delay);
        let Some(lateness_ns) = probe.lateness_ns else { return };
        let planned = peer.clock().to_local(stamp - TimeDelta::from_nanos(lateness_ns));
        let Some(planned) = planned else { return };
        if let Some(began) = self.frame_start(frame) {
            self.peers[index].set_lead(began - planned);
        }
        self.schedule.on_plan(site, frame, planned);
    }

    fn on_digest(&mut self, index: usize, digest: TickDigest) {
        let Some(frame) = self.frame.expand_low16(digest.frame) else { return };
        let is_near = (frame - self.frame).abs() <= MAX_FRAME_DISTANCE;
        let digest = FrameDigest { state_hash: digest.state_hash, input_digest: digest.input_digest };
        if is_near && self.comparison.on_digest(index, frame, digest) {
            self.compare_state(index, frame);
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
        self.slow_peers.on_leave(index, self.clock.last_call());
        self.schedule.forget_site(site);
        self.check_predictions(index, known);
    }

    /// Compares the digests of a peer and of this site for a frame, and reports the first difference of each kind.
    fn compare_state(&mut self, index: usize, frame: Frame) {
        let findings = self.comparison.compare(index, frame, &self.peers[index], self.leaving.is_some());
        let site = self.peers[index].site();
        if findings.is_forged {
            self.events.push(Event::InputsForged { site, frame });
        }
        if let Some(Divergence { agreed, own_hash }) = findings.divergence {
            self.events.push(Event::Diverged { site, frame });
            // A site that starts from an older snapshot would not arrive at this site's state.
            if let Some(feed) = &mut self.feed {
                feed.retire_snapshots();
            }
            self.start_desync_search(agreed, frame, own_hash);
        }
    }

    // ---- Lobby

    #[cold]
    fn handle_hello(&mut self, now: Instant, from: Addr, hello: &Hello, bytes: usize) {
        if hello.session_id == self.config.session_id && hello.site == self.config.site {
            // A peer that claims this site's number disagrees with this site about site numbers.
            self.stats.dropped_datagrams.strangers += 1;
            let Some(index) = self.peers.index_at(from) else { return };
            let expected = self.peers[index].site();
            let event = self.lobby.on_other_site(index, expected, hello.site);
            return self.report(event);
        }
        let is_of_session = hello.session_id == self.config.session_id;
        let index = self.peers.index_of(hello.site).filter(|_| is_of_session);
        // A peer cannot send hellos for another site.
        let is_forged = self.peers.iter().any(|peer| peer.addr() == from && peer.site() != hello.site);
        let Some(index) = index.filter(|_| !is_forged) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let peer = &self.peers[index];
        let restarted = peer.is_restart(hello.incarnation);
        let stale = hello.incarnation < peer.newest_incarnation();
        let is_newer = restarted || peer.is_newer_stamp(hello.stamp_us as i64);
        if stale || !self.accept_hello_from(now, index, from, (is_newer, restarted)) {
            self.stats.dropped_datagrams.strangers += 1;
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
        if matches!(self.phase, Phase::Lobby | Phase::Joining) || hello.join_readiness.is_some() {
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
            self.events.push(event);
        }
    }

    /// Records which incarnation of a peer sends hellos. Until the peer has played, its newest incarnation is the one
    /// that will play. For a joiner that is not admitted yet, a peer that does not ask to join is a player.
    fn update_incarnation(&mut self, index: usize, hello: &Hello, restarted: bool) {
        let is_spectating = self.joining.is_some() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        if restarted {
            peer.reset_after_restart();
            self.reports.on_restart(index);
            self.membership.set_void_join(index, None);
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
            self.stats.dropped_datagrams.strangers += 1;
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
        if self.phase == Phase::Lobby && self.lobby.refuse() {
            // A site that will not play has nothing to publish.
            self.close_feed();
            self.events.push(Event::Refused { site: hello.site, reason });
        }
        // This site plays or was admitted. If it was admitted and does not play yet, the command that admitted it was
        // voided.
        if self.schedule.is_started() && reason == Refusal::Dropped {
            self.reports.on_refusal(index, now);
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
            self.events.push(Event::Left { site, frame: self.frame });
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
        let is_ready = self.phase == Phase::Lobby && !self.lobby.is_refused() && self.leaving.is_none();
        if is_ready && is_lowest && self.lobby.missing_sites(&self.peers, starting_sites).is_empty() {
            let start = now + Lobby::start_lead(&self.peers);
            self.set_start(GroupInstant::from_nanos(start.as_nanos()), start);
        }
    }

    /// Takes over the start that another site has announced, once this site agrees with all starting sites and knows
    /// group time. A joiner only notes the start.
    fn learn_start(&mut self, now: Instant, start_ns: Option<i64>) {
        let Some(start) = start_ns.map(GroupInstant::from_nanos) else { return };
        if self.phase == Phase::Joining {
            self.lobby.set_start_time(start);
        }
        let Some(at) = self.peers.local_time(start).filter(|_| self.phase == Phase::Lobby) else { return };
        if self.lobby.accepts_start(now, at, &self.peers, self.config.settings.starting_sites) {
            self.set_start(start, at);
        }
    }

    fn set_start(&mut self, start: GroupInstant, at: Instant) {
        self.lobby.set_start_time(start);
        self.phase = Phase::Starting { at };
        self.events.push(Event::Starting { at });
        for index in 0..self.peers.len() {
            if self.lobby.has_left(index) {
                self.on_leaving_flag(index, true);
            }
        }
        if self.leaving.is_some() {
            // The other sites wait for this site's inputs. Only ticks of a running game can announce that it gives
            // none.
            self.start_running(at);
        }
    }

    #[cold]
    fn encode_hello(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> usize {
        let is_ready = self.is_ready_to_join();
        if let Some(joining) = self.joining.as_mut().filter(|_| is_ready) {
            joining.has_announced_ready = true;
        }
        // In a hello, leaving means that there are no inputs at all. A site that has given inputs sends their end in
        // ticks.
        let leaving = self.leaving.is_some_and(|leave| leave.input_end.number() == self.config.settings.input_delay);
        let wants_seat = self.phase == Phase::Joining && self.leaving.is_none() && self.own_join_frame().is_none();
        let peer = &self.peers[index];
        let split_refusal = self.split_brain.refusal_for(peer, &self.peers, self.frame);
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
