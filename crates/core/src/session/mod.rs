//! The shared machine: several sites step the same game with the same inputs, frame by frame.
//!
//! A [`Session`] is one site's end of it. It is a pure state machine: datagrams, the time and local inputs go in, datagrams,
//! [`MirrorRequest`]s and [`Event`]s come out. The host program owns the machine, the sockets and the clock. See the [crate]
//! for a complete example.
//!
//! What holds at any time:
//! - a frame is confirmed, in order, when it is stepped with the inputs that every site gave for it; no frame further than the
//!   window from that is stepped at all, and none is left as it was guessed once the truth is known;
//! - a local input takes effect in exactly the frame that was promised when it was asked for;
//! - everything has a bound: memory, packet size, distance between sites.

mod auto_tune;
mod config;
mod desync;
mod digest_history;
mod event;
mod feed_output;
mod frame_loop;
mod input_digest;
mod jitter_buffer;
mod join;
mod lobby;
mod membership;
mod membership_reports;
mod packet;
mod peer;
mod prediction;
mod relay;
mod rollback;
mod scheduled;
mod send;
mod settings;
mod slow_peer;
mod split_brain;
mod stats;

pub use auto_tune::MachineCosts;
pub use config::{Config, ConfigError, MIN_DROP_TIMEOUT, SendPolicy};
pub use desync::report::{
    DesyncReport, FrameSpan, MAX_REGION_NAME, MAX_REGIONS, MAX_SPAN_FRAMES, PAGE_SIZE, StateRegion,
    StateRegionDifference,
};
pub use desync::{DesyncBisector, LocalQuery};
pub use event::{Event, Freeze, Request, SessionEnd};
pub use feed_output::ConfirmedFrame;
pub use jitter_buffer::JitterBufferModel;
pub use join::LateJoin;
pub use prediction::{InputHistory, InputPredictor};
pub use settings::{
    AbsentInput, GameId, MAX_COMPARE_INTERVAL, MAX_INPUT_DELAY, MAX_LEAD, MAX_OPTIONS, MAX_PREDICTION_WINDOW,
    MAX_TEXT_LEN, MachineId, Settings, SettingsDifference, SettingsError, StarvationPolicy,
};
pub use slow_peer::MIN_STALL_LIMIT;
pub use stats::{DroppedDatagrams, PeerStats, Stats};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{InputLayout, InputWord, Stream};
use crate::pace::Pacer;
use crate::spectator_feed::Feed;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{DecodeError, DesyncMessage, Hello, ScheduledCommand, Tick, is_feed, is_tick};
use auto_tune::AutoTuner;
use desync::DesyncSearch;
use digest_history::{DigestHistory, FrameDigest};
use event::SessionEventQueue;
use input_digest::InputDigest;
use jitter_buffer::GroupPause;
use join::JoinProgress;
use membership::Membership;
use peer::{Peer, Seat};
use rollback::RollbackScheduler;
use split_brain::SplitBrain;

/// Frames whose beginning is remembered: at least as many as sites can be apart.
const MAX_FRAME_STARTS: usize = 256;
/// Packets that nobody may need are this far apart.
const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// A wait may be a lost packet for so long; then it is a fault, and packets are sent less often.
const FAST_RETRANSMIT: TimeDelta = TimeDelta::from_millis(300);
/// Who leaves a lobby says so for as long as this.
const LOBBY_LEAVE_DURATION: TimeDelta = TimeDelta::from_secs(1);
/// Stands for a time that must be looked up.
const SEND_TIME_UNKNOWN: Instant = Instant::from_nanos(i64::MIN);
/// Leaving, freezing and giving up take their time, and are looked after this often.
const UPDATE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// What is called with an earlier time than the last call, by no more than this, has waited somewhere; by more, a clock was set back.
const MAX_ARRIVAL_AGE: TimeDelta = TimeDelta::from_millis(250);
/// A host program that does not call for so long has no right to complain that others are late.
const HOST_STALL: TimeDelta = TimeDelta::from_millis(150);
/// A host program that does not call for so long was asleep itself.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);

/// One site's end of a shared game.
#[derive(Debug)]
pub struct Session {
    config: Config,
    peers: Vec<Peer>,
    phase: Phase,
    /// When the game starts, once that is agreed on.
    start_time: Option<GroupInstant>,
    is_refused: bool,
    pacer: Option<Pacer>,
    /// The site whose plan we follow; `None` when that is ourselves.
    pace_setter: Option<SiteId>,
    /// The next frame to be stepped for the first time, or the one being stepped.
    frame: Frame,
    /// The next frame of the host program's machine, which during a repair is in the past.
    machine_frame: Frame,
    /// The first frame that was stepped with a wrong guess.
    first_misprediction: Option<Frame>,
    rollback_scheduler: RollbackScheduler,
    frame_starts: [Instant; MAX_FRAME_STARTS],
    /// Our own inputs.
    own_inputs: Stream,
    layout: InputLayout,
    input_words: Vec<InputWord>,
    scratch_words: Vec<InputWord>,
    own_digests: DigestHistory<FrameDigest>,
    /// The hash of our own inputs.
    own_input_digest: InputDigest,
    /// The same where a repair may still change them.
    tentative_hashes: DigestHistory,
    /// The next frame whose state is compared once it is certain.
    next_compared_frame: Option<Frame>,
    /// The frame whose state the host program hashes.
    hash_pending: Option<Frame>,
    /// The frame at hand had to wait for inputs.
    is_stalled: bool,
    /// Since when, as far as we were awake; and for whom, in the end.
    stalled_since: Instant,
    stalled_by: SiteSet,
    /// When the frame at hand, or the one before it, began.
    frame_begun_at: Instant,
    freeze: Option<Freeze>,
    /// A pause of all sites.
    pause: GroupPause,
    delay_settings: DelaySettings,
    /// What they will be from a frame on.
    next_delay_settings: Option<DelaySettings>,
    /// The furthest that anybody was ever allowed to be ahead.
    max_lead: u32,
    membership: Membership,
    /// Sites that the game went on without although no quorum decided that.
    split_brain: SplitBrain,
    /// What is to happen at one frame everywhere.
    command: Option<ScheduledCommand>,
    /// The frame of the newest order that was carried out.
    last_applied_command: Option<Frame>,
    /// Some ticks carry more than inputs.
    extras_pending: bool,
    auto_tuner: Option<Box<AutoTuner>>,
    /// There is or was something to do beside the game.
    side_work: bool,
    /// What is needed to look into differences.
    desync_search: Option<Box<DesyncSearch>>,
    /// We are on our way into a running game.
    joining: Option<Box<JoinProgress>>,
    /// Those who watch, and those who come late.
    feed: Option<Box<Feed>>,
    /// Everything before this frame is in the feed; and everything before that one can be searched for differences.
    feed_end: Frame,
    search_end: Frame,
    /// Everything before this frame was told to whoever keeps a movie.
    record_end: Frame,
    /// The frame whose state the host program was asked for.
    snapshot_requested: Option<Frame>,
    /// Frames before this one came to us with certainty.
    joined_at: Frame,
    /// Frames before this one are made up for as quickly as the machine can.
    catch_up_until: Frame,
    /// It is time to tell how things are here.
    tuning_stats_due: bool,
    /// We are going away.
    leaving: Option<OwnLeave>,
    left_sites: SiteSet,
    events: SessionEventQueue,
    stats: Stats,
    /// The peers, by index, for which there is something new.
    due_peers: u8,
    /// The peers, by index, that are there to hear it.
    active_peers: u8,
    /// No packet leaves before this because its time has come; the earliest of all times if that must be looked up again.
    next_send: Instant,
    /// Somebody waits for a hello in the middle of the game.
    hello_pending: bool,
    /// When to look after slow things again.
    next_update: Instant,
    /// By how much the host program's clock has gone back so far, all in all: our own never does.
    clock_set_back: TimeDelta,
    /// When the host program last called.
    last_call: Instant,
    created_at: Instant,
}

/// Our leaving.
#[derive(Clone, Copy, Debug)]
struct OwnLeave {
    /// Our inputs end before this frame.
    input_end: Frame,
    since: Instant,
    /// How we tell it.
    reason: SessionEnd,
}

/// How long local input waits, and how many frames may be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DelaySettings {
    /// Since this frame.
    from_frame: Frame,
    input_delay: u32,
    prediction_window: u32,
}

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lobby,
    /// We watch until we are let in.
    Joining,
    Starting {
        at: Instant,
    },
    Running(FramePhase),
    Over(SessionEnd),
}

/// Where a running game is in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramePhase {
    /// It is not time yet.
    Idle,
    /// The frame has begun, its local input is to be taken.
    SampleDue,
    /// The host program takes it.
    AwaitSample,
    /// The other sites' inputs are awaited.
    AwaitInputs { began: Instant },
    /// The machine is brought up to where it should be; the state that it has may be saved already.
    Simulate { target: SimulationTarget, is_saved: bool },
    /// The host program steps the machine.
    AwaitStep,
    /// The past is played once more, aside.
    Replay,
    /// It is to keep the state, because it was hashed.
    SaveAnchor { slot: usize, target: Option<SimulationTarget> },
    /// It is to hash the state.
    Hash,
    /// The same in the middle of a repair.
    HashResimulated { target: SimulationTarget },
}

/// What the machine is brought up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulationTarget {
    /// The frame that has not begun yet: nobody waits for it.
    BeforeNextFrame,
    /// The frame that began then, which is stepped.
    CurrentFrame { began: Instant },
}

/// Where a session is, for its host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for sites to come and agree.
    Lobby {
        /// Those that have not.
        waiting_for: SiteSet,
    },
    /// On the way into a running game.
    Joining {
        /// How much of the state is here, in percent.
        download_percent: u8,
    },
    /// All agree; the first frame comes at this instant.
    Starting {
        /// When, on our clock.
        at: Instant,
    },
    /// Frames follow each other.
    Running,
    /// Frames do not follow each other.
    Frozen(Freeze),
    /// Over.
    Ended(SessionEnd),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: Addr,
    /// How many bytes of the buffer.
    pub len: usize,
}

/// The peers, by index, that get packets.
fn active_peer_bits(peers: &[Peer]) -> u8 {
    peers.iter().enumerate().filter(|(_, peer)| !peer.is_free()).fold(0, |bits, (index, _)| bits | 1 << index)
}

impl Session {
    /// Takes part in a session, from its lobby on.
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
        let everyone = SiteSet::first(usize::from(settings.site_count));
        let inquiry = searching.then(|| DesyncSearch::new(config.site, everyone, settings, Frame::ZERO));
        let phase = if joining.is_some() { Phase::Joining } else { Phase::Lobby };
        Ok(Self {
            active_peers: active_peer_bits(&peers),
            peers,
            phase,
            start_time: None,
            is_refused: false,
            pacer: None,
            pace_setter: None,
            frame: Frame::ZERO,
            machine_frame: Frame::ZERO,
            first_misprediction: None,
            rollback_scheduler: RollbackScheduler::default(),
            frame_starts: [now; MAX_FRAME_STARTS],
            own_inputs: Stream::new(layout.width(), first),
            layout,
            input_words: vec![0; ownership.players()],
            scratch_words: vec![0; ownership.players()],
            own_digests: DigestHistory::default(),
            own_input_digest: InputDigest::new(first),
            tentative_hashes: DigestHistory::default(),
            hash_pending: None,
            is_stalled: false,
            stalled_since: now,
            stalled_by: SiteSet::EMPTY,
            frame_begun_at: now,
            next_compared_frame: settings.compare_interval.checked_sub(1).map(Frame::new),
            freeze: None,
            pause: GroupPause::default(),
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
            extras_pending: false,
            auto_tuner: settings.auto_tune.then(|| Box::new(AutoTuner::new(now, config.machine_costs))),
            tuning_stats_due: false,
            side_work: joining.is_some() || feed.is_some(),
            desync_search: inquiry,
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
            due_peers: 0,
            next_send: now,
            hello_pending: false,
            next_update: now,
            clock_set_back: TimeDelta::ZERO,
            last_call: now,
            created_at: now,
            config,
        })
    }

    /// Takes in a datagram. Anything can be handed in: what is of no use is dropped and counted. `now` may be when it arrived, if that is
    /// no more than a quarter of a second ago.
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

    /// Lets time pass. [`Session::poll_request`] does it, too.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.note_call_time(now);
        self.advance_time(now);
    }

    fn advance_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Starting { at } if at <= now => self.start_running(at),
            Phase::Running(_) if self.next_update <= now => {
                self.next_update = now + UPDATE_INTERVAL;
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

    /// Our time, which never goes back, from the host program's, which should not.
    #[inline]
    fn monotonic_time(&mut self, now: Instant) -> Instant {
        let steady = self.clock_set_back == TimeDelta::ZERO && now >= self.last_call;
        if steady { now } else { self.monotonic_time_after_set_back(now) }
    }

    /// Our time where the host program's went back, now or before.
    #[cold]
    fn monotonic_time_after_set_back(&mut self, now: Instant) -> Instant {
        let ours = now + self.clock_set_back;
        // A datagram may be handed in with the time at which it arrived, which was before this program was done with something else.
        if self.last_call - ours > MAX_ARRIVAL_AGE {
            self.clock_set_back += self.last_call - ours;
        }
        ours.max(self.last_call)
    }

    /// Whoever was asleep cannot blame others for their silence.
    fn note_call_time(&mut self, now: Instant) -> Instant {
        let now = self.monotonic_time(now);
        self.detect_host_stall(now);
        now
    }

    fn detect_host_stall(&mut self, now: Instant) {
        let away = now - self.last_call;
        self.last_call = now;
        if away > HOST_STALL {
            self.stalled_since += away;
        }
        if away > HOST_SUSPENDED {
            for peer in &mut self.peers {
                peer.last_received_at += away;
            }
        }
    }

    /// Leaves the game: the others go on with neutral input from the frame after our last one. Go on polling until
    /// [`Event::Ended`], or as long as you like; it comes when all others know, at most 30 s later. Where the others leave at the same
    /// time, it may be told as [`End::Alone`].
    pub fn leave(&mut self, now: Instant) {
        let now = self.note_call_time(now);
        self.begin_leave(now, SessionEnd::Left);
    }

    /// Leaves, and tells it like this.
    fn begin_leave(&mut self, now: Instant, end: SessionEnd) {
        self.leaving.get_or_insert(OwnLeave { input_end: self.own_inputs.end(), since: now, reason: end });
        if let Some(feed) = &mut self.feed {
            // What we know of the game ends here.
            feed.drop_all();
        }
        if let Phase::Starting { at } = self.phase {
            self.start_running(at);
        }
        if self.phase == Phase::Joining && self.pacer.is_some() {
            // The others count on us already.
            self.phase = Phase::Running(FramePhase::Idle);
            self.joining = None;
            self.next_update = now + UPDATE_INTERVAL;
        }
        if matches!(self.phase, Phase::Running(_)) {
            self.phase = Phase::Running(FramePhase::Idle);
        }
        self.freeze = None;
        self.mark_extras_pending();
        self.mark_all_due();
        self.invalidate_send_time();
    }

    /// The next thing to tell.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// When to call [`Session::poll_request`] and [`Session::poll_transmit`] again if nothing else happens; `None` when the session is
    /// over.
    ///
    /// Be on time to a fraction of a millisecond if you can: a frame begins when you call. A socket's read timeout is often too
    /// coarse; wait with it until a few milliseconds before, then sleep.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let resting =
            matches!(self.phase, Phase::Running(FramePhase::Idle)) && self.leaving.is_none() && !self.side_work;
        let nothing_new =
            self.due_peers == 0 && self.next_send != SEND_TIME_UNKNOWN && self.first_misprediction.is_none();
        match resting && nothing_new {
            true => Some(self.next_send.min(self.next_frame_time()) - self.clock_set_back),
            false => self.next_timeout(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let send = match self.next_send {
            // Nobody has looked since something changed.
            SEND_TIME_UNKNOWN => {
                (0..self.peers.len()).map(|index| self.send_time(index)).min().unwrap_or(Instant::FAR_FUTURE)
            }
            known => known,
        };
        let send = if self.due_peers != 0 { self.last_call } else { send };
        let frame = match self.phase {
            Phase::Over(_) => return None,
            // There may be nobody to send to, and so no other reason to be called.
            Phase::Lobby | Phase::Joining if self.leaving.is_some() => self.last_call + UPDATE_INTERVAL,
            Phase::Lobby | Phase::Joining => Instant::FAR_FUTURE,
            Phase::Starting { at } => at,
            Phase::Running(FramePhase::Idle) if self.leaving.is_none() => {
                self.next_rollback_time().min(self.next_frame_time())
            }
            Phase::Running(FramePhase::AwaitInputs { .. }) if self.leaving.is_none() && !self.can_step() => {
                Instant::FAR_FUTURE
            }
            Phase::Running(FramePhase::AwaitInputs { began }) if self.leaving.is_none() => {
                self.predict_at(began).max(self.last_call)
            }
            Phase::Running(FramePhase::AwaitSample) if self.leaving.is_none() => Instant::FAR_FUTURE,
            Phase::Running(_) if self.leaving.is_none() => self.last_call,
            Phase::Running(_) => self.next_update,
        };
        let aside = if self.side_work { self.next_side_work_time() } else { Instant::FAR_FUTURE };
        Some(send.min(frame).min(aside) - self.clock_set_back)
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Where the session is.
    pub fn state(&self) -> State {
        match (self.phase, self.freeze) {
            (Phase::Over(end), _) => State::Ended(end),
            (Phase::Running(_), Some(freeze)) => State::Frozen(freeze),
            (Phase::Running(_), None) => State::Running,
            (Phase::Starting { at }, _) => State::Starting { at },
            (Phase::Joining, _) => State::Joining { download_percent: self.download_percent() },
            (Phase::Lobby, _) => State::Lobby { waiting_for: self.missing_in_lobby() },
        }
    }

    /// About how many bytes the session takes, all in all. It does not grow while a game runs.
    pub fn memory(&self) -> usize {
        let peers: usize = self.peers.iter().map(Peer::memory).sum();
        let digests = self.own_digests.memory() + self.tentative_hashes.memory();
        size_of::<Self>() + peers + self.own_inputs.memory() + digests + self.events.memory() + self.side_work_memory()
    }

    /// Who we are.
    pub fn site(&self) -> SiteId {
        self.config.site
    }

    /// What is played and how.
    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// The session in numbers.
    pub fn stats(&self) -> Stats {
        let period = self.pacer.as_ref().map_or(self.config.settings.rate.period(), Pacer::period);
        Stats { frame: self.frame, confirmed: self.confirmed_end(), period, ..self.stats }
    }

    /// The link to a peer in numbers, or `None` for who is no peer.
    pub fn peer_stats(&self, now: Instant, site: SiteId) -> Option<PeerStats> {
        let now = now + self.clock_set_back;
        let peer = self.peers.iter().find(|peer| peer.site == site)?;
        let (requests, answers) = peer.sender.request_and_resend_counts();
        Some(PeerStats {
            buffered_frames: self.buffered_frames(peer),
            resend_requests: requests,
            resends: answers,
            ..peer.stats(now, self.own_inputs.end())
        })
    }

    /// The time of the clock that all sites share, which is that of the lowest site.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        let now = now + self.clock_set_back;
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

    /// The peer whose clock is group time; `None` when it is ours.
    fn time_keeper(&self) -> Option<&Peer> {
        self.peers.iter().min_by_key(|peer| peer.site).filter(|peer| peer.site < self.config.site)
    }
}
