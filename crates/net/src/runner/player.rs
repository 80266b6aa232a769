//! A site of a game over a real network.

mod alone;
mod lobby;

pub use alone::AlonePolicy;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie;
use coplay::session::{AbsentInput, Event, LateJoin, MachineCosts, Session, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{MAX_DATAGRAM, is_feed};
use coplay_machines::control::{ControlledMachine, MachineControl, PauseIndicator};
use coplay_machines::session_adapter::{self, RequestOutcome, SessionAdapter, SessionOptions};
use coplay_machines::{Machine, session_adapter::AdapterError};

use super::address_book::{AddressBook, PeerRole};
use super::frame_log::{FrameLog, FrameTiming};
use super::join::check_player_count;
use super::ping::{self, Pinger};
use super::recorder::MovieRecorder;
use super::{
    EndReason, FRONTEND_POLL_INTERVAL, Frontend, RunError, RunOutcome, RunnerEvent, STATUS_INTERVAL, Status,
    UserCommand,
};
use crate::clock;
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{LobbyInfo, LobbyMember, LobbyMessage, Roster, RosterLeader};
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, PeerAddr, Transport};

/// Datagrams taken between two looks at the session: nobody can keep it from its frames.
const MAX_DATAGRAMS_PER_ITERATION: usize = 256;
/// Datagrams are told to the session with the time at which they came, as long as that is not longer ago.
const MAX_RECEIVE_AGE: TimeDelta = TimeDelta::from_millis(200);
/// Who was dropped comes back so soon.
const REJOIN_DELAY: TimeDelta = TimeDelta::from_millis(300);
/// A site that is no quorum and asks nobody ([`Alone::Wait`]) gives up after this many times `drop_after`.
pub const GIVE_UP_FACTOR: u8 = 12;
/// Who is lost comes back so often before it hears a newer list: for certain fewer times.
const INCARNATIONS_PER_SERIAL: u32 = 16;
/// The largest state that is taken from another site.
const MAX_SNAPSHOT_LEN: usize = 64 << 20;
/// The log of all inputs, for those whose machines cannot load a state: some hours.
const MAX_INPUT_LOG_LEN: usize = 16 << 20;

/// How a game is offered.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What to call us.
    pub name: String,
    /// How many play at this computer.
    pub pads: u8,
    /// How many play in all.
    pub players: u8,
    /// Lag, window and the like. The number of sites follows from the players.
    pub session_options: SessionOptions,
    /// What is done for a site that was dropped.
    pub absent_input: AbsentInput,
    /// Whether nobody may watch.
    pub is_private: bool,
    /// How this site takes part.
    pub options: RunOptions,
}

/// How a site takes part.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Leaves after so many frames.
    pub frame_limit: Option<u32>,
    /// Who is silent for so long is dropped; `None` waits.
    pub drop_timeout: Option<TimeDelta>,
    /// Who holds up the game for so long is dropped, if that is on us to decide; `None` waits.
    pub stall_limit: Option<TimeDelta>,
    /// Behaviour when all other players are silent and this site is no quorum.
    pub alone_policy: AlonePolicy,
    /// What the machine costs, as far as that is known.
    pub costs: MachineCosts,
}

/// A site of a game: session, machine and network, to be [run](Self::run).
pub struct PlayerRunner {
    pub(super) mux: Mux,
    address_book: AddressBook,
    session_adapter: SessionAdapter,
    pause_indicator: PauseIndicator,
    player_count: usize,
    lobby: LobbyInfo,
    leader: RosterLeader,
    /// The list, if we keep it.
    roster: Option<Roster>,
    /// The serial number of the list as the one who kept it before us told it.
    serial_before_takeover: Option<u32>,
    /// Somebody else played with us when that was last looked at.
    had_other_players: bool,
    is_alone_event_pending: bool,
    seat_limits: (u8, u8),
    own_site: u8,
    name: String,
    options: RunOptions,
    session: Option<Session>,
    session_id: Option<u64>,
    /// The game had begun when we came, or we fell out of it.
    is_late_joiner: bool,
    incarnation: u32,
    next_session_at: Instant,
    /// When the session was made, while it has not started.
    session_created_at: Instant,
    leader_last_received: Instant,
    next_keep_alive: Instant,
    next_status: Instant,
    pinger: Pinger,
    /// Where the others were told that we can be reached.
    pub(super) announced_addrs: Vec<PeerAddr>,
    next_addr_check: Instant,
    frame_log: Option<FrameLog>,
    recorder: Option<MovieRecorder>,
    frame_timing: FrameTiming,
    /// Buttons of the machine, to be pressed with the next input.
    pending_controls: InputWord,
    has_diverged: bool,
    end_reason: Option<EndReason>,
    is_leaving: bool,
    local_inputs: Vec<InputWord>,
    input_words: Vec<InputWord>,
}

impl PlayerRunner {
    /// Offers a game on this machine.
    pub fn host(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        machine: Box<dyn Machine>,
        plan: &HostConfig,
    ) -> Result<Self, RunError> {
        let players = plan.players.clamp(1, machine.pads().len().min(MAX_PLAYERS - 1) as u8);
        let pads = plan.pads.clamp(1, players);
        let seats = (players - pads + 1).max(2);
        let post = Mux::new(transport, incoming);
        let places = post.own_addrs();
        let me = LobbyMember {
            site: 0,
            key: post.transport.key(),
            name: plan.name.clone(),
            pads,
            addrs: places.clone(),
            is_ready: true,
            is_present: true,
        };
        let machine = ControlledMachine::new(machine);
        let mut settings = session_adapter::settings(&machine, SessionOptions { sites: seats, ..plan.session_options });
        settings.absent_input = plan.absent_input;
        let terms = settings.to_bytes().ok_or(RunError::UnreadableSettings)?;
        let list = Roster::new(me, u64::from_le_bytes(random_bytes()) | 1, terms, (seats, players), !plan.is_private);
        let party = list.lobby().clone();
        let keeper = post.transport.key();
        let mut drive = Self::new(post, machine, (party, keeper), 0, plan.name.clone(), plan.options);
        (drive.roster, drive.seat_limits, drive.announced_addrs) = (Some(list), (seats, players), places);
        Ok(drive)
    }

    /// A site of this party, whose list somebody keeps.
    pub(super) fn new(
        post: Mux,
        machine: ControlledMachine,
        (party, keeper): (LobbyInfo, PeerKey),
        me: u8,
        name: String,
        manner: RunOptions,
    ) -> Self {
        let (players, now) = (machine.pads().len(), clock::now());
        let mut book = AddressBook::default();
        book.set_members(&party);
        Self {
            mux: post,
            address_book: book,
            pause_indicator: machine.pause_indicator(),
            session_adapter: SessionAdapter::new(Box::new(machine)),
            player_count: players,
            is_late_joiner: party.is_started,
            lobby: party,
            leader: RosterLeader::new(keeper),
            roster: None,
            serial_before_takeover: None,
            had_other_players: false,
            is_alone_event_pending: false,
            seat_limits: (0, 0),
            own_site: me,
            name,
            options: manner,
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
            frame_timing: FrameTiming::default(),
            pending_controls: 0,
            has_diverged: false,
            end_reason: None,
            is_leaving: false,
            local_inputs: Vec::new(),
            input_words: Vec::new(),
        }
    }

    /// Writes down every step.
    pub fn set_frame_log(&mut self, log: FrameLog) {
        self.frame_log = Some(log);
    }

    /// Keeps a movie of what is played: with those who begin from the first frame on, with those who come late from there on.
    pub fn set_recorder(&mut self, tape: MovieRecorder) {
        self.recorder = Some(tape);
    }

    /// What is known of the people around.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Runs until it is over.
    pub fn run(&mut self, front: &mut dyn Frontend) -> Result<RunOutcome, RunError> {
        self.notify_lobby(front);
        let mut result = self.run_loop(front);
        self.send_bye();
        if let Some(log) = &mut self.frame_log {
            log.finish();
        }
        self.record_confirmed();
        if let Some(tape) = &mut self.recorder {
            tape.finish();
        }
        if let Ok(outcome) = &mut result {
            outcome.recording = self.recorder.as_ref().map(MovieRecorder::summary);
        }
        result
    }

    fn run_loop(&mut self, front: &mut dyn Frontend) -> Result<RunOutcome, RunError> {
        loop {
            for _ in 0..MAX_DATAGRAMS_PER_ITERATION {
                let Some(incoming) = self.mux.try_recv() else { break };
                self.handle_incoming(incoming, front);
            }
            self.run_session(front)?;
            self.housekeep(front)?;
            if let Some(why) = self.end_reason.take() {
                return Ok(self.outcome(why));
            }
            if let Some(incoming) = self.mux.recv_until(self.next_deadline()) {
                self.handle_incoming(incoming, front);
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let look = clock::now() + FRONTEND_POLL_INTERVAL;
        let session = self.session.as_ref().and_then(Session::poll_timeout);
        [session, self.mux.poll_timeout()].into_iter().flatten().fold(look, Instant::min)
    }

    /// Something came.
    fn handle_incoming(&mut self, incoming: Incoming, front: &mut dyn Frontend) {
        match incoming {
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                for message in self.mux.handle_datagram(from, &bytes) {
                    self.handle_message(from, message, front);
                }
            }
            Incoming::Datagram { at, from, bytes } => {
                // What waited for longer than this says nothing about the way that it came.
                let at = at.max(clock::now() - MAX_RECEIVE_AGE);
                if let Some(word) = ping::PingMessage::decode(&bytes) {
                    return self.handle_ping(at, from, word);
                }
                let standing = self.address_book.role_of(at, from);
                if let (Some(list), PeerRole::Spectator(_)) = (&mut self.roster, standing) {
                    list.record_activity(at, &from);
                }
                let Some(session) = &mut self.session else { return };
                match standing {
                    PeerRole::Player(addr) => session.handle_datagram(at, addr, &bytes),
                    // Who has no seat can watch, if anybody may, and no more: it does not get near the players' packets.
                    PeerRole::Spectator(addr) if is_feed(&bytes) && self.lobby.allows_spectators => {
                        session.handle_datagram(at, addr, &bytes)
                    }
                    PeerRole::Spectator(_) => {}
                }
            }
            Incoming::Connected { .. } | Incoming::Multicast { .. } => {}
            Incoming::Unreachable { addr: place, .. } => self.report_dial_failure(&place, "no way yet to", front),
            Incoming::WrongPeer { addr: place } => self.report_dial_failure(&place, "somebody else answers for", front),
        }
    }

    /// Does what the session asks for, and sends what it has.
    fn run_session(&mut self, front: &mut dyn Frontend) -> Result<(), RunError> {
        let result = self.serve_requests(front);
        self.transmit_all();
        result
    }

    fn serve_requests(&mut self, front: &mut dyn Frontend) -> Result<(), RunError> {
        loop {
            let Some(session) = &mut self.session else { return Ok(()) };
            let now = clock::now();
            let Some(turn) = self.session_adapter.handle_next_request(now, session) else { return Ok(()) };
            self.record_turn(&turn);
            match turn {
                RequestOutcome::InputNeeded { .. } => self.sample_input(front),
                RequestOutcome::Stepped { frame, rendered: fresh } => {
                    if let Some(log) = &mut self.frame_log {
                        let hash = self.session_adapter.machine_mut().hash();
                        log.write_step(frame, now, !fresh, self.session_adapter.inputs(), Some(hash));
                    }
                    if fresh {
                        self.frame_timing.on_frame(now, self.session_adapter.machine().frame_rate().period());
                        front.show_frame(frame, self.session_adapter.machine());
                    }
                }
                RequestOutcome::Failed(trouble) => return Err(self.abort_session(&trouble)),
                _ => {}
            }
            // At once: nobody waits for a machine that takes its time.
            self.transmit_all();
        }
    }

    /// Puts on record what has become certain.
    fn record_turn(&mut self, turn: &RequestOutcome) {
        let (Some(tape), Some(session)) = (&mut self.recorder, &mut self.session) else { return };
        if matches!(session.state(), State::Joining { .. }) {
            // Whatever comes on the way in is certain.
            return tape.record_join(turn, &mut self.session_adapter, session.settings());
        }
        if !tape.has_started() {
            tape.start(session.settings(), movie::MovieStart::PowerOn);
        }
        self.record_confirmed();
    }

    fn record_confirmed(&mut self) {
        let (Some(tape), Some(session)) = (&mut self.recorder, &mut self.session) else { return };
        while let Some(certain) = session.poll_certain() {
            tape.push_frame(certain.frame, certain.inputs, certain.hash);
        }
    }

    fn abort_session(&mut self, trouble: &AdapterError) -> RunError {
        if let Some(session) = &mut self.session {
            session.leave(clock::now());
        }
        RunError::Machine(trouble.to_string())
    }

    /// The local input, as late as it can be.
    fn sample_input(&mut self, front: &mut dyn Frontend) {
        let Some(session) = &mut self.session else { return };
        let (ownership, site, control) = (&session.settings().ownership, session.site(), self.player_count - 1);
        let mine = |player: &usize| *player != control && ownership.mask(site, *player) != 0;
        let players: Vec<usize> = (0..ownership.players()).filter(mine).collect();
        self.local_inputs.clear();
        self.local_inputs.resize(players.len(), 0);
        front.sample_input(&mut self.local_inputs);
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

    /// Everything that is not of the moment.
    fn housekeep(&mut self, front: &mut dyn Frontend) -> Result<(), RunError> {
        let now = clock::now();
        while let Some(command) = front.poll_command() {
            self.handle_command(command, front);
        }
        self.run_roster(front);
        self.notify_alone(front);
        if self.lobby.is_started && self.session.is_none() && now >= self.next_session_at && !self.is_leaving {
            self.start_session(now)?;
        }
        self.continue_alone_if_automatic(now);
        self.handle_session_events(front);
        self.detect_alone();
        self.check_start_timeout(now);
        self.check_frame_limit();
        self.check_leader_timeout(now)?;
        self.ping_members(now);
        self.check_own_addrs(now);
        let book = &self.address_book;
        self.mux.forget_silent_peers(now, |peer| book.is_seated(peer));
        self.mux.flush(now);
        if now >= self.next_status {
            self.next_status = now + STATUS_INTERVAL;
            let status = self.status();
            front.on_event(RunnerEvent::Status(&status));
        }
        Ok(())
    }

    fn handle_command(&mut self, command: UserCommand, front: &mut dyn Frontend) {
        match command {
            UserCommand::Quit => self.leave(),
            UserCommand::Start => self.start_game(),
            UserCommand::ContinueAlone => self.continue_alone(),
            UserCommand::Chat(line) => {
                let name = self.name.clone();
                if let Some(list) = &mut self.roster {
                    return list.send_chat(&name, &line);
                }
                front.on_event(RunnerEvent::Chat { name: &name, text: &line });
                self.mux.send(self.leader.key(), &LobbyMessage::Chat { name, text: line });
            }
            UserCommand::Control(control) => {
                self.pending_controls |= MachineControl::bit(control, usize::from(self.own_site))
            }
        }
    }

    /// Our session begins: with everybody, or in the middle of it.
    fn start_session(&mut self, now: Instant) -> Result<(), RunError> {
        let settings = Settings::from_bytes(&self.lobby.settings).map_err(|_| RunError::UnreadableSettings)?;
        let machine = self.session_adapter.machine();
        check_player_count(&settings, machine).map_err(|difference| RunError::GameMismatch(vec![difference]))?;
        let me = SiteId::new(self.own_site).ok_or(RunError::UnreadableSettings)?;
        let sites = SiteId::first(usize::from(settings.site_count));
        let peers = sites.filter(|site| *site != me).map(|site| (site, Addr(u64::from(site.number())))).collect();
        let alone = !settings.starting_sites.contains(me);
        let mut config = session_adapter::config(machine, self.lobby.session, me, peers, settings.clone());
        let start = if machine.can_save() { SpectatorStart::Snapshot } else { SpectatorStart::FirstFrame };
        config.late_join =
            (self.is_late_joiner || alone).then_some(LateJoin { start, max_state_len: MAX_SNAPSHOT_LEN });
        config.feed = Some(FeedConfig {
            log_bytes: if machine.can_save() { 0 } else { MAX_INPUT_LOG_LEN },
            max_spectators: 4_096,
            ..FeedConfig::new(self.lobby.session, u64::from_le_bytes(random_bytes()), settings)
        });
        // An address stands for a seat, and a seat belongs to a key.
        config.is_transport_authenticated = true;
        self.session_id = Some(self.lobby.session);
        self.incarnation = next_incarnation(self.incarnation, self.lobby.serial);
        (config.drop_timeout, config.stall_limit) = (self.options.drop_timeout, self.options.stall_limit);
        (config.machine_costs, config.incarnation) = (self.options.costs, self.incarnation);
        let gives_up = self.options.drop_timeout.filter(|_| self.options.alone_policy == AlonePolicy::Wait);
        config.silence_timeout = gives_up.map(|patience| patience * i64::from(GIVE_UP_FACTOR));
        config.can_play_alone = true;
        if config.late_join.is_some() && start == SpectatorStart::FirstFrame {
            self.session_adapter.machine_mut().reset();
        }
        self.session = Some(Session::new(now, config).map_err(|error| RunError::SessionConfig(error.to_string()))?);
        Ok(())
    }

    fn handle_session_events(&mut self, front: &mut dyn Frontend) {
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            front.on_event(RunnerEvent::Session(&event));
            match event {
                Event::Diverged { .. } => self.has_diverged = true,
                Event::Left { site, .. } => self.on_player_gone(site, true),
                Event::Dropped { site, .. } => self.on_player_gone(site, false),
                Event::Joined { site, .. } => self.set_present(site, true),
                Event::SplitBrainResolved { site, is_own_game_kept: false } => self.on_split_brain_resolved(site),
                Event::Ended(end) => self.on_session_end(end, front),
                _ => {}
            }
        }
    }

    fn on_session_end(&mut self, end: SessionEnd, front: &mut dyn Frontend) {
        match end {
            SessionEnd::Dropped if !self.is_leaving => {
                front.on_event(RunnerEvent::Note("the others went on without us; coming back".into()));
                self.record_confirmed();
                if let Some(tape) = &mut self.recorder {
                    tape.stop("the recording ends where the others went on without us");
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

    /// Leaves when that was asked for.
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
        let member = |member: &LobbyMember| self.pinger.rtt(&member.key).map(|trip| (member.site, trip));
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
            let here = |site: u8| self.lobby.members.iter().any(|member| member.site == site && member.is_present);
            status.peers = peer_stats(session, now).into_iter().filter(|(site, _)| here(*site)).collect();
        }
        status
    }

    fn outcome(&self, why: EndReason) -> RunOutcome {
        let (stats, peers) = self
            .session
            .as_ref()
            .map(|session| (session.stats(), peer_stats(session, clock::now())))
            .unwrap_or_default();
        let frames = stats.confirmed.number();
        let numbers = self.frame_timing.run_stats(stats, peers, self.mux.transport.drop_counts());
        RunOutcome {
            end_reason: why,
            confirmed_frames: frames,
            is_in_sync: !self.has_diverged,
            stats: numbers,
            recording: None,
        }
    }

    /// Whether the game has begun here.
    pub fn is_running(&self) -> bool {
        self.session.as_ref().is_some_and(|session| matches!(session.state(), State::Running | State::Frozen(_)))
    }
}

fn peer_stats(session: &Session, now: Instant) -> Vec<(u8, coplay::session::PeerStats)> {
    let sites = SiteId::first(usize::from(session.settings().site_count));
    sites.filter_map(|site| session.peer_stats(now, site).map(|stats| (site.number(), stats))).collect()
}

/// A number that grows with every session of a seat, whoever sits there: the list grows whenever somebody is let in, is lost or is back,
/// and who keeps it tells everybody. Clocks could be set back, or be wrong, from one start of the program to the next.
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

    /// The host can change the settings between the handshake and the start.
    #[test]
    fn settings_with_another_player_count_are_refused_at_start() {
        let (queue, incoming) = std::sync::mpsc::sync_channel(64);
        let addr = "127.0.0.1:0".parse().unwrap();
        let transport =
            UdpTransport::listen(addr, Identity::random(), Secret::from_text("tennis"), queue).expect("a free port");
        let plan = HostConfig {
            name: "host".into(),
            pads: 1,
            players: 2,
            session_options: SessionOptions::new(2),
            absent_input: AbsentInput::Nothing,
            is_private: false,
            options: RunOptions::default(),
        };
        let nes = Nes::open(&coplay_testcores::images::nes(), "test").expect("a sound image");
        let mut drive = PlayerRunner::host(Arc::new(transport), incoming, Box::new(nes), &plan).expect("a sound plan");
        let sound = Settings::from_bytes(&drive.lobby.settings).expect("sound settings");
        for players in [1, 2, 4, MAX_PLAYERS] {
            let mut ownership = Ownership::new(players);
            for player in 0..players {
                ownership.assign(SiteId::new(0).expect("a site"), player, 1).expect("nobody has it yet");
            }
            drive.lobby.settings = Settings { ownership, ..sound.clone() }.to_bytes().expect("it fits");
            let refused = format!("the number of players differs: 3 here, {players} there");
            assert_eq!(drive.start_session(clock::now()), Err(RunError::GameMismatch(vec![refused])));
            assert!(drive.session.is_none());
        }
        drive.lobby.settings = sound.to_bytes().expect("it fits");
        assert_eq!(drive.start_session(clock::now()), Ok(()));
    }

    #[test]
    fn incarnation_grows_with_every_session_of_a_seat() {
        let first = next_incarnation(0, 3);
        let back_by_itself = next_incarnation(first, 3);
        let started_again = next_incarnation(0, 4);
        assert!(0 < first && first < back_by_itself && back_by_itself < started_again);
        assert!(next_incarnation(u32::MAX, u32::MAX) == u32::MAX, "nothing overflows");
    }
}
