//! A playing site of a session over a real network.

mod alone;
mod lobby;

pub use alone::AlonePolicy;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie;
use coplay::session::{AbsentInput, Event, LateJoinConfig, MachineCosts, Session, SessionEnd, Settings, State};
use coplay::spectator_feed::message::is_feed;
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay_machines::control::{ControlledMachine, MachineControl, SharedPauseState};
use coplay_machines::session_adapter::{self, RequestOutcome, SessionAdapter, SharedGameOptions};
use coplay_machines::{Machine, session_adapter::AdapterError};

use super::address_book::{AddressBook, PeerRole};
use super::frame_log::{FrameIntervalMeter, FrameLog};
use super::game_match::check_player_count;
use super::ping::{self, Pinger};
use super::recorder::MovieRecorder;
use super::{
    EndReason, FRONTEND_POLL_INTERVAL, Frontend, RunError, RunOutcome, RunnerEvent, STATUS_INTERVAL, Status,
    UserCommand,
};
use crate::clock;
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{KnownLeader, LobbyInfo, LobbyMember, LobbyMessage, Roster};
use crate::peer_addr::PeerAddr;
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, Transport};

/// Maximum number of queued datagrams and events handled before the session runs again, so that a flood cannot delay
/// frames.
const MAX_DATAGRAMS_PER_ITERATION: usize = 256;
/// Maximum age of the receive time that the session gets with a datagram; a datagram that waited for longer counts as
/// this old.
const MAX_RECEIVE_AGE: TimeDelta = TimeDelta::from_millis(200);
/// Delay before this site rejoins after the others dropped it.
const REJOIN_DELAY: TimeDelta = TimeDelta::from_millis(300);
/// Multiple of [`RunOptions::drop_timeout`]: with [`AlonePolicy::Wait`], a site that is no quorum gives up after this
/// much silence.
pub const GIVE_UP_FACTOR: u8 = 12;
/// Number of incarnations reserved for each revision of the roster: a seat rejoins less often between two revisions.
const INCARNATIONS_PER_SERIAL: u32 = 16;
/// Maximum length of a snapshot accepted from another site, in bytes.
const MAX_SNAPSHOT_LEN: usize = 64 << 20;
/// Maximum length of the input log for joiners whose machines cannot load a snapshot, in bytes: some hours of play.
const MAX_INPUT_LOG_LEN: usize = 16 << 20;

/// Settings of a hosted game.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Display name of the host.
    pub name: String,
    /// Number of players at the host's computer; a value outside of 1 to `players` is replaced by the nearest valid
    /// one.
    pub pads: u8,
    /// Maximum number of players over all sites; a value outside of 1 to the number of the machine's pads is replaced
    /// by the nearest valid one.
    pub players: u8,
    /// Input delay, prediction window, automatic tuning and hash interval. Its `sites` is ignored: the number of sites
    /// follows from `players` and `pads`.
    pub session_options: SharedGameOptions,
    /// Substitute input of a dropped site.
    pub absent_input: AbsentInput,
    /// Whether spectators are refused.
    pub is_private: bool,
    /// Options of the host as a playing site.
    pub options: RunOptions,
}

/// Options of a playing site.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Number of confirmed frames, counted from the first frame of the game, after which the site leaves; `None` plays
    /// on.
    pub frame_limit: Option<u32>,
    /// Silence of a peer after which this site proposes to drop it; `None` waits for the peer.
    pub drop_timeout: Option<TimeDelta>,
    /// Stall time that a peer may accumulate before this site, while it is the coordinator, has the peer dropped;
    /// `None` waits.
    pub stall_limit: Option<TimeDelta>,
    /// Behaviour when all other players are silent and this site alone is no quorum.
    pub alone_policy: AlonePolicy,
    /// Initial estimates of the time that the machine takes to step, save and load.
    pub costs: MachineCosts,
}

/// A playing site: session, machine and network, to be [run](Self::run).
pub struct PlayerRunner {
    pub(super) mux: Mux,
    address_book: AddressBook,
    session_adapter: SessionAdapter,
    pause_indicator: SharedPauseState,
    player_count: usize,
    lobby: LobbyInfo,
    leader: KnownLeader,
    /// The roster, if this site leads it.
    roster: Option<Roster>,
    /// Serial of the roster before this site took it over; `None` if this site has not taken it over.
    serial_before_takeover: Option<u32>,
    /// Whether another player was present at the last call of `detect_alone`.
    had_other_players: bool,
    is_alone_event_pending: bool,
    seat_limits: (u8, u8),
    own_site: u8,
    name: String,
    options: RunOptions,
    session: Option<Session>,
    session_id: Option<u64>,
    /// Whether this site joins a running game, as a late joiner or after being dropped.
    is_late_joiner: bool,
    incarnation: u32,
    next_session_at: Instant,
    /// Time since which the present session has waited for its start; the present time while no session waits.
    session_created_at: Instant,
    leader_last_received: Instant,
    next_keep_alive: Instant,
    next_status: Instant,
    pinger: Pinger,
    /// Own addresses that this site announced last.
    pub(super) announced_addrs: Vec<PeerAddr>,
    next_addr_check: Instant,
    frame_log: Option<FrameLog>,
    recorder: Option<MovieRecorder>,
    frame_timing: FrameIntervalMeter,
    /// Machine buttons to press with the next input.
    pending_controls: InputWord,
    has_diverged: bool,
    end_reason: Option<EndReason>,
    is_leaving: bool,
    local_inputs: Vec<InputWord>,
    input_words: Vec<InputWord>,
}

impl PlayerRunner {
    /// Opens the lobby of a game on `machine`, with this site as the host in the first seat.
    pub fn host(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        machine: Box<dyn Machine>,
        config: &HostConfig,
    ) -> Result<Self, RunError> {
        let players = config.players.clamp(1, machine.pads().len().min(MAX_PLAYERS - 1) as u8);
        let pads = config.pads.clamp(1, players);
        let seats = (players - pads + 1).max(2);
        let mux = Mux::new(transport, incoming);
        let addrs = mux.own_addrs();
        let me = LobbyMember {
            site: 0,
            key: mux.transport.key(),
            name: config.name.clone(),
            pads,
            addrs: addrs.clone(),
            is_ready: true,
            is_present: true,
        };
        let machine = ControlledMachine::new(machine);
        let mut settings =
            session_adapter::settings(&machine, SharedGameOptions { sites: seats, ..config.session_options });
        settings.absent_input = config.absent_input;
        let settings_bytes = settings.to_bytes().ok_or(RunError::UnreadableSettings)?;
        let roster = Roster::new(
            me,
            u64::from_le_bytes(random_bytes()) | 1,
            settings_bytes,
            (seats, players),
            !config.is_private,
        );
        let lobby = roster.lobby().clone();
        let leader = mux.transport.key();
        let mut runner = Self::new(mux, machine, (lobby, leader), 0, config.name.clone(), config.options);
        (runner.roster, runner.seat_limits, runner.announced_addrs) = (Some(roster), (seats, players), addrs);
        Ok(runner)
    }

    /// Creates the runner of a seated site in a lobby whose roster `leader` keeps.
    pub(super) fn new(
        mux: Mux,
        machine: ControlledMachine,
        (lobby, leader): (LobbyInfo, PeerKey),
        own_site: u8,
        name: String,
        options: RunOptions,
    ) -> Self {
        let (player_count, now) = (machine.pads().len(), clock::now());
        let mut address_book = AddressBook::default();
        address_book.set_members(&lobby);
        Self {
            mux,
            address_book,
            pause_indicator: machine.pause_indicator(),
            session_adapter: SessionAdapter::new(Box::new(machine)),
            player_count,
            is_late_joiner: lobby.is_started,
            lobby,
            leader: KnownLeader::new(leader),
            roster: None,
            serial_before_takeover: None,
            had_other_players: false,
            is_alone_event_pending: false,
            seat_limits: (0, 0),
            own_site,
            name,
            options,
            session: None,
            session_id: None,
            incarnation: 0,
            next_session_at: now,
            session_created_at: now,
            leader_last_received: now,
            next_keep_alive: now,
            next_status: now,
            pinger: Pinger::default(),
            announced_addrs: Vec::new(),
            next_addr_check: now,
            frame_log: None,
            recorder: None,
            frame_timing: FrameIntervalMeter::default(),
            pending_controls: 0,
            has_diverged: false,
            end_reason: None,
            is_leaving: false,
            local_inputs: Vec::new(),
            input_words: Vec::new(),
        }
    }

    /// Logs every step of the machine, resimulated ones included.
    pub fn set_frame_log(&mut self, log: FrameLog) {
        self.frame_log = Some(log);
    }

    /// Records a movie from the first frame on. At a late joiner that loads a snapshot, the movie starts there.
    pub fn set_recorder(&mut self, recorder: MovieRecorder) {
        self.recorder = Some(recorder);
    }

    /// Returns the lobby as this site knows it now.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Waits in the lobby and plays until the user, the frame limit, the session or an error ends the run, then says
    /// goodbye.
    pub fn run(&mut self, frontend: &mut dyn Frontend) -> Result<RunOutcome, RunError> {
        self.notify_lobby(frontend);
        let mut result = self.run_loop(frontend);
        self.send_bye();
        if let Some(log) = &mut self.frame_log {
            log.finish();
        }
        self.record_confirmed();
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
            for _ in 0..MAX_DATAGRAMS_PER_ITERATION {
                let Some(incoming) = self.mux.try_recv() else { break };
                self.handle_incoming(incoming, frontend);
            }
            self.run_session(frontend)?;
            self.housekeep(frontend)?;
            if let Some(reason) = self.end_reason.take() {
                return Ok(self.outcome(reason));
            }
            if let Some(incoming) = self.mux.recv_until(self.next_deadline()) {
                self.handle_incoming(incoming, frontend);
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let next_poll = clock::now() + FRONTEND_POLL_INTERVAL;
        let session = self.session.as_ref().and_then(Session::poll_timeout);
        [session, self.mux.poll_timeout()].into_iter().flatten().fold(next_poll, Instant::min)
    }

    /// Passes an event of the transport to the lobby, the pinger, the session or the frontend.
    fn handle_incoming(&mut self, incoming: Incoming, frontend: &mut dyn Frontend) {
        match incoming {
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                for message in self.mux.handle_datagram(from, &bytes) {
                    self.handle_message(from, message, frontend);
                }
            }
            Incoming::Datagram { at, from, bytes } => {
                // A datagram that waited in the queue for longer than 200 ms says nothing about its link.
                let at = at.max(clock::now() - MAX_RECEIVE_AGE);
                if let Some(message) = ping::PingMessage::decode(&bytes) {
                    return self.handle_ping(at, from, message);
                }
                let role = self.address_book.role_of(at, from);
                if let (Some(roster), PeerRole::Spectator(_)) = (&mut self.roster, role) {
                    roster.record_activity(at, &from);
                }
                let Some(session) = &mut self.session else { return };
                match role {
                    PeerRole::Player(addr) => session.handle_datagram(at, addr, &bytes),
                    // A peer without a seat can watch, if spectators are admitted; its other datagrams do not reach the
                    // session.
                    PeerRole::Spectator(addr) if is_feed(&bytes) && self.lobby.allows_spectators => {
                        session.handle_datagram(at, addr, &bytes)
                    }
                    PeerRole::Spectator(_) => {}
                }
            }
            Incoming::Connected { .. } | Incoming::Multicast { .. } => {}
            Incoming::Unreachable { addr, .. } => self.report_dial_failure(&addr, "no connection to", frontend),
            Incoming::WrongPeer { addr } => {
                self.report_dial_failure(&addr, "another site answers in place of", frontend)
            }
        }
    }

    /// Serves the session's requests and sends its datagrams.
    fn run_session(&mut self, frontend: &mut dyn Frontend) -> Result<(), RunError> {
        let result = self.serve_requests(frontend);
        self.transmit_all();
        result
    }

    fn serve_requests(&mut self, frontend: &mut dyn Frontend) -> Result<(), RunError> {
        loop {
            let Some(session) = &mut self.session else { return Ok(()) };
            let now = clock::now();
            let Some(outcome) = self.session_adapter.handle_next_request(now, session) else { return Ok(()) };
            self.record_turn(&outcome);
            match outcome {
                RequestOutcome::InputNeeded { .. } => self.sample_input(frontend),
                RequestOutcome::Stepped { frame, rendered } => {
                    if let Some(log) = &mut self.frame_log {
                        let hash = self.session_adapter.machine_mut().hash();
                        log.write_step(frame, now, !rendered, self.session_adapter.inputs(), Some(hash));
                    }
                    if rendered {
                        self.frame_timing.on_frame(now, self.session_adapter.machine().frame_rate().period());
                        frontend.show_frame(frame, self.session_adapter.machine());
                    }
                }
                RequestOutcome::Failed(error) => return Err(self.abort_session(&error)),
                _ => {}
            }
            // Datagrams leave at once: peers must not wait for a slow machine.
            self.transmit_all();
        }
    }

    /// Records the frames that are confirmed after a request was served, or all frames of a late join.
    fn record_turn(&mut self, outcome: &RequestOutcome) {
        let (Some(recorder), Some(session)) = (&mut self.recorder, &mut self.session) else { return };
        if matches!(session.state(), State::Joining { .. }) {
            // All frames of a late join are confirmed.
            return recorder.record_join(outcome, &mut self.session_adapter, session.settings());
        }
        if !recorder.has_started() {
            recorder.start(session.settings(), movie::MovieStartPoint::PowerOn);
        }
        self.record_confirmed();
    }

    fn record_confirmed(&mut self) {
        let (Some(recorder), Some(session)) = (&mut self.recorder, &mut self.session) else { return };
        while let Some(confirmed) = session.poll_confirmed() {
            recorder.push_frame(confirmed.frame, confirmed.inputs, confirmed.hash);
        }
    }

    fn abort_session(&mut self, error: &AdapterError) -> RunError {
        if let Some(session) = &mut self.session {
            session.leave(clock::now());
        }
        RunError::Machine(error.to_string())
    }

    /// Samples the local input, and passes it to the session together with the pending machine buttons.
    fn sample_input(&mut self, frontend: &mut dyn Frontend) {
        let Some(session) = &mut self.session else { return };
        let (ownership, site, control) = (&session.settings().ownership, session.site(), self.player_count - 1);
        let is_local = |player: &usize| *player != control && ownership.mask(site, *player) != 0;
        let players: Vec<usize> = (0..ownership.players()).filter(is_local).collect();
        self.local_inputs.clear();
        self.local_inputs.resize(players.len(), 0);
        frontend.sample_input(&mut self.local_inputs);
        self.input_words.clear();
        self.input_words.resize(self.player_count, 0);
        for (player, word) in players.iter().zip(&self.local_inputs) {
            self.input_words[*player] = *word;
        }
        self.input_words[control] = std::mem::take(&mut self.pending_controls);
        session.handle_input(clock::now(), &self.input_words);
    }

    fn transmit_all(&mut self) {
        let Some(session) = &mut self.session else { return };
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = session.poll_transmit(clock::now(), &mut buf) {
            if let Some(key) = self.address_book.key_of(transmit.to) {
                self.mux.transport.send(&key, &buf[..transmit.len]);
            }
        }
    }

    /// Does the work that is not time-critical: commands, lobby, session events, timeouts, pings and status.
    fn housekeep(&mut self, frontend: &mut dyn Frontend) -> Result<(), RunError> {
        let now = clock::now();
        while let Some(command) = frontend.poll_command() {
            self.handle_command(command, frontend);
        }
        self.run_roster(frontend);
        self.notify_alone(frontend);
        if self.lobby.is_started && self.session.is_none() && now >= self.next_session_at && !self.is_leaving {
            self.start_session(now)?;
        }
        self.continue_alone_if_automatic(now);
        self.handle_session_events(frontend);
        self.detect_alone();
        self.check_start_timeout(now);
        self.check_frame_limit();
        self.check_leader_timeout(now)?;
        self.ping_members(now);
        self.check_own_addrs(now);
        let address_book = &self.address_book;
        self.mux.forget_silent_peers(now, |peer| address_book.is_seated(peer));
        self.mux.flush(now);
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            let status = self.status();
            frontend.on_event(RunnerEvent::Status(&status));
        }
        Ok(())
    }

    fn handle_command(&mut self, command: UserCommand, frontend: &mut dyn Frontend) {
        match command {
            UserCommand::Quit => self.leave(),
            UserCommand::Start => self.start_game(),
            UserCommand::ContinueAlone => self.continue_alone(),
            UserCommand::Chat(line) => {
                let name = self.name.clone();
                if let Some(roster) = &mut self.roster {
                    return roster.send_chat(&name, &line);
                }
                frontend.on_event(RunnerEvent::Chat { name: &name, text: &line });
                self.mux.send(self.leader.key(), &LobbyMessage::Chat { name, text: line });
            }
            UserCommand::Control(control) => {
                self.pending_controls |= MachineControl::bit(control, usize::from(self.own_site))
            }
        }
    }

    /// Creates the session: at the start of the game, or as a late joiner.
    fn start_session(&mut self, now: Instant) -> Result<(), RunError> {
        let settings = Settings::from_bytes(&self.lobby.settings).map_err(|_| RunError::UnreadableSettings)?;
        let machine = self.session_adapter.machine();
        check_player_count(&settings, machine).map_err(|difference| RunError::GameMismatch(vec![difference]))?;
        let me = SiteId::new(self.own_site).ok_or(RunError::UnreadableSettings)?;
        let sites = SiteId::first(usize::from(settings.site_count));
        let peers = sites.filter(|site| *site != me).map(|site| (site, Addr(u64::from(site.number())))).collect();
        let is_unseated = !settings.starting_sites.contains(me);
        let mut config = session_adapter::config(machine, self.lobby.session, me, peers, settings.clone());
        let start = if machine.can_save() { SpectatorStart::Snapshot } else { SpectatorStart::FirstFrame };
        config.late_join =
            (self.is_late_joiner || is_unseated).then_some(LateJoinConfig { start, max_state_len: MAX_SNAPSHOT_LEN });
        config.feed = Some(FeedConfig {
            log_bytes: if machine.can_save() { 0 } else { MAX_INPUT_LOG_LEN },
            max_spectators: 4_096,
            ..FeedConfig::new(self.lobby.session, u64::from_le_bytes(random_bytes()), settings)
        });
        // An engine address stands for a seat, and a seat belongs to a key.
        config.is_transport_authenticated = true;
        self.session_id = Some(self.lobby.session);
        self.incarnation = next_incarnation(self.incarnation, self.lobby.serial);
        (config.drop_timeout, config.stall_limit) = (self.options.drop_timeout, self.options.stall_limit);
        (config.machine_costs, config.incarnation) = (self.options.costs, self.incarnation);
        let give_up_after = self.options.drop_timeout.filter(|_| self.options.alone_policy == AlonePolicy::Wait);
        config.silence_timeout = give_up_after.map(|timeout| timeout * i64::from(GIVE_UP_FACTOR));
        config.can_play_alone = true;
        if config.late_join.is_some() && start == SpectatorStart::FirstFrame {
            self.session_adapter.machine_mut().reset();
        }
        self.session = Some(Session::new(now, config).map_err(|error| RunError::SessionConfig(error.to_string()))?);
        Ok(())
    }

    fn handle_session_events(&mut self, frontend: &mut dyn Frontend) {
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            frontend.on_event(RunnerEvent::Session(&event));
            match event {
                Event::Diverged { .. } => self.has_diverged = true,
                Event::Left { site, .. } => self.on_player_gone(site, true),
                Event::Dropped { site, .. } => self.on_player_gone(site, false),
                Event::Joined { site, .. } => self.set_present(site, true),
                Event::SplitBrainResolved { site, is_own_game_kept: false } => self.on_split_brain_resolved(site),
                Event::Ended(end) => self.on_session_end(end, frontend),
                _ => {}
            }
        }
    }

    fn on_session_end(&mut self, end: SessionEnd, frontend: &mut dyn Frontend) {
        match end {
            SessionEnd::Dropped if !self.is_leaving => {
                frontend
                    .on_event(RunnerEvent::Note("the other players dropped you; coplay rejoins the game now".into()));
                self.record_confirmed();
                if let Some(recorder) = &mut self.recorder {
                    recorder.stop("the recording ends at the frame at which the other players dropped you");
                }
                self.session = None;
                self.is_late_joiner = true;
                self.on_own_eviction();
                self.next_session_at = clock::now() + REJOIN_DELAY;
            }
            _ => {
                self.end_reason =
                    Some(if self.is_leaving { EndReason::Requested } else { EndReason::SessionEnded(end) })
            }
        }
    }

    /// Leaves once the confirmed frames reach the frame limit.
    fn check_frame_limit(&mut self) {
        let Some(session) = &self.session else { return };
        if !self.is_leaving
            && self.options.frame_limit.is_some_and(|frames| session.stats().confirmed.number() >= frames)
        {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.is_leaving = true;
        match &mut self.session {
            Some(session) => session.leave(clock::now()),
            None => self.end_reason = Some(EndReason::Requested),
        }
    }

    fn status(&self) -> Status {
        let now = clock::now();
        let member = |member: &LobbyMember| self.pinger.rtt(&member.key).map(|rtt| (member.site, rtt));
        let mut status = Status {
            round_trips: self.lobby.members.iter().filter_map(member).collect(),
            can_continue_alone: self.can_continue_alone(now),
            paused_by: self.pause_indicator.paused_by(),
            fps: self.frame_timing.fps(),
            drops: self.mux.transport.drop_counts(),
            ..Status::default()
        };
        if let Some(session) = &self.session {
            (status.stats, status.state) = (session.stats(), Some(session.state()));
            let is_present =
                |site: u8| self.lobby.members.iter().any(|member| member.site == site && member.is_present);
            status.peers = peer_stats(session, now).into_iter().filter(|(site, _)| is_present(*site)).collect();
        }
        status
    }

    fn outcome(&self, end_reason: EndReason) -> RunOutcome {
        let (stats, peers) = self
            .session
            .as_ref()
            .map(|session| (session.stats(), peer_stats(session, clock::now())))
            .unwrap_or_default();
        let confirmed_frames = stats.confirmed.number();
        let stats = self.frame_timing.run_stats(stats, peers, self.mux.transport.drop_counts());
        RunOutcome { end_reason, confirmed_frames, is_in_sync: !self.has_diverged, stats, recording: None }
    }

    /// Returns whether the game runs at this site, frozen or not.
    pub fn is_running(&self) -> bool {
        self.session.as_ref().is_some_and(|session| matches!(session.state(), State::Running | State::Frozen(_)))
    }
}

fn peer_stats(session: &Session, now: Instant) -> Vec<(u8, coplay::session::PeerStats)> {
    let sites = SiteId::first(usize::from(session.settings().site_count));
    sites.filter_map(|site| session.peer_stats(now, site).map(|stats| (site.number(), stats))).collect()
}

/// Returns a number that increases with every session of a seat, across restarts of the site's program. It follows from
/// the serial of the roster, which increases whenever a member is admitted, lost or back, and which the leader sends to
/// all members. A clock would not do: it could be wrong, or set back between two starts of the program.
fn next_incarnation(last: u32, serial: u32) -> u32 {
    serial.saturating_add(1).saturating_mul(INCARNATIONS_PER_SERIAL).max(last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Identity, Secret};
    use crate::udp::UdpTransport;
    use coplay::input::Ownership;
    use coplay_machines::nes::Nes;

    /// A site checks the number of players again at the start, because the host can change the settings until then.
    #[test]
    fn settings_with_another_player_count_are_refused_at_start() {
        let (queue, incoming) = std::sync::mpsc::sync_channel(64);
        let addr = "127.0.0.1:0".parse().unwrap();
        let transport =
            UdpTransport::listen(addr, Identity::random(), Secret::from_text("tennis"), queue).expect("a free port");
        let config = HostConfig {
            name: "host".into(),
            pads: 1,
            players: 2,
            session_options: SharedGameOptions::new(2),
            absent_input: AbsentInput::Nothing,
            is_private: false,
            options: RunOptions::default(),
        };
        let nes = Nes::open(&coplay_testcores::images::nes(), "test").expect("a valid image");
        let mut runner =
            PlayerRunner::host(Arc::new(transport), incoming, Box::new(nes), &config).expect("a valid configuration");
        let valid = Settings::from_bytes(&runner.lobby.settings).expect("valid settings");
        for players in [1, 2, 4, MAX_PLAYERS] {
            let mut ownership = Ownership::new(players);
            for player in 0..players {
                ownership.assign(SiteId::new(0).expect("a site"), player, 1).expect("the player is unassigned");
            }
            runner.lobby.settings = Settings { ownership, ..valid.clone() }.to_bytes().expect("it fits");
            let difference = format!("the number of pads differs: 2 here, {} there", players - 1);
            assert_eq!(runner.start_session(clock::now()), Err(RunError::GameMismatch(vec![difference])));
            assert!(runner.session.is_none());
        }
        runner.lobby.settings = valid.to_bytes().expect("it fits");
        assert_eq!(runner.start_session(clock::now()), Ok(()));
    }

    #[test]
    fn incarnation_grows_with_every_session_of_a_seat() {
        let first = next_incarnation(0, 3);
        let rejoined = next_incarnation(first, 3);
        let restarted = next_incarnation(0, 4);
        assert!(0 < first && first < rejoined && rejoined < restarted);
        assert!(next_incarnation(u32::MAX, u32::MAX) == u32::MAX, "the number saturates");
    }
}
