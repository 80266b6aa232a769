//! A spectating site of a session over a real network.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::movie;
use coplay::session::{Settings, Stats};
use coplay::spectator_feed::{Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::control::{ControlledMachine, SharedPauseState};

use super::address_book::{AddressBook, PeerRole};
use super::frame_log::{FrameIntervalMeter, FrameLog};
use super::game_match::{check_player_count, differences};
use super::join::LobbyConnection;
use super::ping::{self, Pinger};
use super::recorder::{MovieRecorder, is_hash_compared};
use super::{
    EndReason, FRONTEND_POLL_INTERVAL, Frontend, RunError, RunOutcome, RunnerEvent, STATUS_INTERVAL, Status,
    UserCommand,
};
use crate::clock;
use crate::key::PeerKey;
use crate::lobby::{JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMessage, PROTOCOL_VERSION};
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::Incoming;

/// Ping interval towards the roster leader, which drops spectators that are silent for 30 s.
const PING_INTERVAL: TimeDelta = TimeDelta::from_secs(5);

/// Time limit for the last frames of a game to arrive after the last player's goodbye.
const FEED_END_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);

/// Options of a spectator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpectateOptions {
    /// Number of frames, counted from the first frame of the game, after which the run ends; `None` watches to the end.
    pub frame_limit: Option<u32>,
}

/// A spectating site: feed, machine and network, to be [run](Self::run).
pub struct SpectatorRunner {
    mux: Mux,
    address_book: AddressBook,
    lobby: LobbyInfo,
    settings: Settings,
    /// The roster leader as far as this site knows.
    leader: PeerKey,
    name: String,
    pinger: Pinger,
    machine: Box<dyn Machine>,
    pause_indicator: SharedPauseState,
    spectator: Option<Spectator>,
    options: SpectateOptions,
    frame_log: Option<FrameLog>,
    recorder: Option<MovieRecorder>,
    frame_timing: FrameIntervalMeter,
    frames_seen: u32,
    has_diverged: bool,
    next_status: Instant,
    /// Time at which the run ends because the last player said goodbye 1 s before.
    feed_deadline: Option<Instant>,
    end_reason: Option<EndReason>,
}

impl LobbyConnection {
    /// Prepares spectating with the local machine. If game, machine, frame rate or number of players differ from the
    /// host's, leaves the lobby and fails.
    pub fn into_spectator(
        mut self,
        machine: Box<dyn Machine>,
        options: SpectateOptions,
    ) -> Result<SpectatorRunner, RunError> {
        let machine = ControlledMachine::new(machine);
        let differences = differences(&self.settings, &machine);
        if !differences.is_empty() {
            self.mux.send(self.leader, &LobbyMessage::Bye);
            self.mux.drain(TimeDelta::from_millis(500));
            return Err(RunError::GameMismatch(differences));
        }
        let mut address_book = AddressBook::default();
        address_book.set_members(&self.lobby);
        Ok(SpectatorRunner {
            mux: self.mux,
            address_book,
            lobby: self.lobby,
            settings: self.settings,
            leader: self.leader,
            name: self.name,
            pinger: Pinger::default(),
            pause_indicator: machine.pause_indicator(),
            machine: Box::new(machine),
            spectator: None,
            options,
            frame_log: None,
            recorder: None,
            frame_timing: FrameIntervalMeter::default(),
            frames_seen: 0,
            has_diverged: false,
            next_status: clock::now(),
            feed_deadline: None,
            end_reason: None,
        })
    }
}

impl SpectatorRunner {
    /// Logs every step of the machine, with the state hash after it.
    pub fn set_frame_log(&mut self, log: FrameLog) {
        self.frame_log = Some(log);
    }

    /// Records a movie from the first stepped frame on. The recording ends at the first frame that this spectator
    /// misses.
    pub fn set_recorder(&mut self, recorder: MovieRecorder) {
        self.recorder = Some(recorder);
    }

    /// Watches until the user, the frame limit, the end of the feed or an error ends the run, then says goodbye.
    pub fn run(&mut self, frontend: &mut dyn Frontend) -> Result<RunOutcome, RunError> {
        let mut result = self.run_loop(frontend);
        self.mux.send(self.leader, &LobbyMessage::Bye);
        self.mux.drain(TimeDelta::from_millis(500));
        if let Some(log) = &mut self.frame_log {
            log.finish();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.finish();
        }
        if let Ok(outcome) = &mut result {
            outcome.recording = self.recorder.as_ref().map(MovieRecorder::summary);
        }
        result
    }

    fn run_loop(&mut self, frontend: &mut dyn Frontend) -> Result<RunOutcome, RunError> {
        loop {
            while let Some(incoming) = self.mux.try_recv() {
                self.handle_incoming(incoming, frontend);
            }
            let now = clock::now();
            if self.lobby.is_started && self.spectator.is_none() {
                self.start_spectating(now)?;
            }
            self.serve_requests(frontend)?;
            self.transmit_all(now);
            self.housekeep(now, frontend)?;
            if let Some(end_reason) = self.end_reason.take() {
                let stats = Stats {
                    frame: Frame::new(self.frames_seen),
                    confirmed: Frame::new(self.frames_seen),
                    ..Stats::default()
                };
                let stats = self.frame_timing.run_stats(stats, Vec::new(), self.mux.transport.drop_counts());
                return Ok(RunOutcome {
                    end_reason,
                    confirmed_frames: self.frames_seen,
                    is_in_sync: !self.has_diverged,
                    stats,
                    recording: None,
                });
            }
            let due = self.spectator.as_ref().and_then(Spectator::poll_timeout);
            let until =
                [due, self.mux.poll_timeout()].into_iter().flatten().fold(now + FRONTEND_POLL_INTERVAL, Instant::min);
            if let Some(incoming) = self.mux.recv_until(until) {
                self.handle_incoming(incoming, frontend);
            }
        }
    }

    fn start_spectating(&mut self, now: Instant) -> Result<(), RunError> {
        let settings = Settings::from_bytes(&self.lobby.settings).map_err(|_| RunError::UnreadableSettings)?;
        check_player_count(&settings, &*self.machine).map_err(|difference| RunError::GameMismatch(vec![difference]))?;
        for member in &self.lobby.members {
            self.mux.dial(&member.addrs, member.key);
        }
        // The leader first: the other sites may be unreachable.
        let mut sources: Vec<&crate::lobby::LobbyMember> =
            self.lobby.members.iter().filter(|member| member.is_present).collect();
        sources.sort_by_key(|member| member.key != self.leader);
        let from = sources.iter().map(|member| Addr(u64::from(member.site))).collect();
        let start = if self.machine.can_save() { SpectatorStart::Snapshot } else { SpectatorStart::FirstFrame };
        let config = SpectatorConfig { start, ..SpectatorConfig::new(self.lobby.session, settings.clone(), from) };
        self.settings = settings;
        self.spectator = Some(Spectator::new(now, config).map_err(|error| RunError::SessionConfig(error.to_string()))?);
        Ok(())
    }

    fn handle_incoming(&mut self, incoming: Incoming, frontend: &mut dyn Frontend) {
        let Incoming::Datagram { at, from, bytes } = incoming else { return };
        if let Some(message) = ping::PingMessage::decode(&bytes) {
            return self.handle_ping(at, from, message, frontend);
        }
        if !Channel::is_channel_datagram(&bytes) {
            if let (PeerRole::Player(addr), Some(spectator)) =
                (self.address_book.role_of(at, from), &mut self.spectator)
            {
                spectator.handle_datagram(at, addr, &bytes);
            }
            return;
        }
        for message in self.mux.handle_datagram(from, &bytes) {
            match message {
                // Messages of other sites than the leader are ignored.
                _ if from != self.leader => {}
                LobbyMessage::Lobby(lobby) if lobby.serial > self.lobby.serial => {
                    self.lobby = lobby;
                    self.address_book.set_members(&self.lobby);
                    frontend.on_event(RunnerEvent::LobbyChanged(&self.lobby));
                }
                LobbyMessage::Chat { name, text } => frontend.on_event(RunnerEvent::Chat { name: &name, text: &text }),
                LobbyMessage::Refused(JoinRefusal::NotLeader { leader, .. })
                    if self.address_book.is_seated(&leader) =>
                {
                    self.switch_leader(leader)
                }
                LobbyMessage::Refused(_) => self.switch_to_next_leader(),
                LobbyMessage::Bye => self.on_bye(from),
                _ => {}
            }
        }
    }

    fn handle_ping(&mut self, at: Instant, from: PeerKey, message: ping::PingMessage, frontend: &mut dyn Frontend) {
        let ping::PingMessage::Pong { nonce, spectator_count } = message else { return };
        if self.pinger.on_pong(at, &from, nonce) && spectator_count != self.lobby.spectator_count {
            self.lobby.spectator_count = spectator_count;
            frontend.on_event(RunnerEvent::LobbyChanged(&self.lobby));
        }
    }

    /// Pings the roster leader every 5 s. If the leader answers none of three pings, asks the next member for admission
    /// and pings that member instead.
    fn ping_leader(&mut self, now: Instant) {
        if self.pinger.is_silent(&self.leader) {
            self.switch_to_next_leader();
        }
        let transport = &self.mux.transport;
        self.pinger.ping_all(now, PING_INTERVAL, [self.leader], |to, bytes| _ = transport.send(to, bytes));
    }

    /// Handles the leader's goodbye: asks the next member for admission, or ends the run 1 s later if no player is
    /// present any more.
    fn on_bye(&mut self, from: PeerKey) {
        self.lobby.members.retain(|member| member.key != from);
        if self.lobby.members.iter().any(|member| member.is_present) {
            self.switch_to_next_leader();
        } else {
            self.feed_deadline = Some(clock::now() + FEED_END_TIMEOUT);
        }
    }

    fn switch_to_next_leader(&mut self) {
        let keys: Vec<PeerKey> = self.lobby.members.iter().map(|member| member.key).collect();
        let at = keys.iter().position(|key| *key == self.leader).map_or(0, |at| at + 1);
        let Some(next) = keys.get(at % keys.len().max(1)).copied().filter(|next| *next != self.leader) else { return };
        self.switch_leader(next);
    }

    fn switch_leader(&mut self, next: PeerKey) {
        self.leader = next;
        self.pinger.clear();
        let (name, addrs) = (self.name.clone(), Vec::new());
        self.mux.send(
            next,
            &LobbyMessage::JoinRequest(JoinRequest {
                version: PROTOCOL_VERSION,
                name,
                intent: JoinIntent::Spectate,
                addrs,
            }),
        );
    }

    fn serve_requests(&mut self, frontend: &mut dyn Frontend) -> Result<(), RunError> {
        let Some(spectator) = &mut self.spectator else { return Ok(()) };
        loop {
            let now = clock::now();
            let Some(request) = spectator.poll_request(now) else { return Ok(()) };
            match request {
                SpectatorRequest::Load { next_frame, state, .. } => {
                    self.machine.load(state).map_err(|error| RunError::Machine(error.to_string()))?;
                    match &mut self.recorder {
                        Some(recorder) if recorder.has_started() => {
                            recorder.stop("the recording ends before the first frame that you missed")
                        }
                        Some(recorder) => recorder
                            .start(&self.settings, movie::MovieStartPoint::Snapshot { frame: next_frame, state }),
                        None => {}
                    }
                }
                SpectatorRequest::Advance { frame, inputs, is_presented } => {
                    self.machine.step(inputs, is_presented);
                    self.frames_seen = frame.number() + 1;
                    if let Some(recorder) = &mut self.recorder {
                        if !recorder.has_started() {
                            recorder.start(&self.settings, movie::MovieStartPoint::PowerOn);
                        }
                        let hash = is_hash_compared(frame, &self.settings).then(|| self.machine.hash());
                        recorder.push_frame(frame, inputs, hash);
                    }
                    if let Some(log) = &mut self.frame_log {
                        log.write_step(frame, now, false, inputs, Some(self.machine.hash()));
                    }
                    if is_presented {
                        self.frame_timing.on_frame(now, self.machine.frame_rate().period());
                        frontend.show_frame(frame, &*self.machine);
                    }
                }
                SpectatorRequest::Hash { .. } => spectator.handle_hash(self.machine.hash()),
            }
        }
    }

    fn transmit_all(&mut self, now: Instant) {
        let Some(spectator) = &mut self.spectator else { return };
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = spectator.poll_transmit(now, &mut buf) {
            if let Some(key) = self.address_book.key_of(transmit.to) {
                self.mux.transport.send(&key, &buf[..transmit.len]);
            }
        }
    }

    fn housekeep(&mut self, now: Instant, frontend: &mut dyn Frontend) -> Result<(), RunError> {
        while let Some(command) = frontend.poll_command() {
            match command {
                UserCommand::Quit => self.end_reason = Some(EndReason::Requested),
                UserCommand::Chat(line) => {
                    frontend.on_event(RunnerEvent::Chat { name: &self.name, text: &line });
                    self.mux.send(self.leader, &LobbyMessage::Chat { name: self.name.clone(), text: line });
                }
                UserCommand::Start | UserCommand::ContinueAlone | UserCommand::Control(_) => {}
            }
        }
        if self.options.frame_limit.is_some_and(|frames| self.frames_seen >= frames) {
            self.end_reason = Some(EndReason::Requested);
        }
        while let Some(event) = self.spectator.as_mut().and_then(Spectator::poll_event) {
            match event {
                SpectatorEvent::Dropped { reason } => return Err(RunError::FeedDropped(reason.to_string())),
                SpectatorEvent::Ended { .. } => self.end_reason = Some(EndReason::FeedEnded),
                SpectatorEvent::Diverged { .. } => self.has_diverged = true,
                _ => {}
            }
        }
        if self.feed_deadline.is_some_and(|deadline| now >= deadline) {
            self.end_reason.get_or_insert(EndReason::FeedEnded);
        }
        self.ping_leader(now);
        self.mux.flush(now);
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            frontend.on_event(RunnerEvent::Status(&self.status()));
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let (next, newest) = self
            .spectator
            .as_ref()
            .map(|spectator| (spectator.next_frame(), spectator.newest_frame()))
            .unwrap_or_default();
        let stats = Stats { frame: newest, confirmed: next, ..Stats::default() };
        let host = self.lobby.members.iter().find(|member| member.key == self.leader).map_or(0, |member| member.site);
        Status {
            stats,
            round_trips: self.pinger.rtt(&self.leader).map(|rtt| (host, rtt)).into_iter().collect(),
            paused_by: self.pause_indicator.paused_by(),
            fps: self.frame_timing.fps(),
            drops: self.mux.transport.drop_counts(),
            ..Status::default()
        }
    }
}
