//! Games over real sockets: lobby, play, late join, spectators, recordings, refused joiners, and playing on alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::{Frame, FrameRate};
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::movie::{HashComparison, MovieEntry, MovieReader};
use coplay::session::{AbsentInput, Event, GameId, MachineId, Settings};
use coplay::spectator_feed::message::is_feed;
use coplay::spectator_feed::{Spectator, SpectatorConfig};
use coplay::time::TimeDelta;
use coplay_machines::control::{ControlledMachine, MachineControl, has_control_player};
use coplay_machines::nes::{Nes, NesOptions};
use coplay_machines::pad::PadLayout;
use coplay_machines::session_adapter::SharedGameOptions;
use coplay_machines::{LoadError, Machine, Picture, SaveError};
use coplay_net::iroh::{IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::lobby::{JoinIntent, JoinRefusal, LobbyInfo};
use coplay_net::runner::{
    AlonePolicy, Frontend, HostConfig, JoinConfig, LobbyConnection, MovieRecorder, PlayerRunner, RunError, RunOptions,
    RunOutcome, RunnerEvent, SpectateOptions, UserCommand,
};
use coplay_net::udp::UdpTransport;
use coplay_net::{DropCounts, Incoming, PeerAddr, PeerKey, Transport, clock};

/// A frontend that presses random buttons and records what it observes.
struct Bot {
    rng: u64,
    held: InputWord,
    commands: Vec<(u32, UserCommand)>,
    frame: u32,
    observed: Arc<Mutex<Observations>>,
    /// Commands that the test issues during the game.
    queued_commands: Arc<Mutex<VecDeque<UserCommand>>>,
}

#[derive(Debug, Default)]
struct Observations {
    chats: Vec<String>,
    events: Vec<Event>,
    ready_members: usize,
    /// Addresses of all members in the lobby updates so far.
    addrs: BTreeSet<String>,
    /// Sites to which a status report stated a round-trip time.
    measured_sites: BTreeSet<u8>,
    /// Sites that paused the machine.
    paused_by: BTreeSet<u8>,
    max_spectators: u16,
    /// Number of `PlayingAlone` events.
    alone_events: usize,
    /// Whether the last status offered to continue alone.
    can_continue_alone: bool,
    /// The newest lobby; `None` before the game has started.
    lobby: Option<LobbyInfo>,
    /// Hash of the picture that was shown, by frame.
    pictures: BTreeMap<u32, u64>,
}

impl Bot {
    fn new(seed: u64, commands: Vec<(u32, UserCommand)>) -> Self {
        Self { rng: seed, held: 0, commands, frame: 0, observed: Arc::default(), queued_commands: Arc::default() }
    }

    fn draw(&mut self) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.rng >> 33
    }
}

impl Frontend for Bot {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        if self.draw().is_multiple_of(8) {
            self.held = InputWord::from(self.draw() & 0x1ff);
        }
        pads.fill(self.held);
    }

    fn show_frame(&mut self, frame: Frame, machine: &dyn Machine) {
        self.frame = frame.number();
        let picture = machine.picture().rgba.iter().fold(7u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte));
        self.observed.lock().unwrap().pictures.insert(frame.number(), picture);
    }

    fn on_event(&mut self, event: RunnerEvent<'_>) {
        if std::env::var_os("DRIVE_TALK").is_some() {
            eprintln!("{} at {}: {event:?}", self.rng % 1000, self.frame);
        }
        let mut seen = self.observed.lock().unwrap();
        match event {
            RunnerEvent::Chat { name, text } => seen.chats.push(format!("{name}: {text}")),
            RunnerEvent::Session(session_event) => seen.events.push(session_event.clone()),
            RunnerEvent::LobbyChanged(lobby) => {
                seen.ready_members = lobby.members.iter().filter(|member| member.is_ready).count();
                seen.lobby = lobby.is_started.then(|| lobby.clone());
                seen.max_spectators = seen.max_spectators.max(lobby.spectator_count);
                let addrs = lobby.members.iter().flat_map(|member| &member.addrs);
                seen.addrs.extend(addrs.map(|addr| addr.0.clone()));
            }
            RunnerEvent::Status(status) => {
                seen.measured_sites.extend(status.round_trips.iter().map(|(site, _)| *site));
                seen.paused_by.extend(status.paused_by);
                seen.can_continue_alone = status.can_continue_alone;
            }
            RunnerEvent::PlayingAlone => seen.alone_events += 1,
            RunnerEvent::Note(_) => {}
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        if let Some(command) = self.queued_commands.lock().unwrap().pop_front() {
            return Some(command);
        }
        // The bot does not start alone, or before it knows the round-trip times.
        let seen = self.observed.lock().unwrap();
        let ready = seen.ready_members >= 2 && !seen.measured_sites.is_empty();
        drop(seen);
        let due =
            |(frame, command): &(u32, UserCommand)| *frame <= self.frame && (*command != UserCommand::Start || ready);
        let due = self.commands.iter().position(due);
        due.map(|at| self.commands.remove(at).1)
    }
}

fn nes() -> Box<dyn Machine> {
    let options = NesOptions { players: 4 };
    Box::new(Nes::open_with(&coplay_testcores::images::nes(), "test", options).expect("a valid image"))
}

/// Transport between the sites of a game.
#[derive(Clone)]
enum TransportKind {
    Udp,
    Iroh(Token),
}

type Listening = (Arc<dyn Transport>, Receiver<Incoming>);

fn listen(net: &TransportKind, identity: Identity) -> Listening {
    let (queue, incoming) = sync_channel(4_096);
    let addr = "127.0.0.1:0".parse().unwrap();
    let transport: Arc<dyn Transport> = match net {
        TransportKind::Udp => {
            Arc::new(UdpTransport::listen(addr, identity, Secret::from_text("tennis"), queue).expect("a free port"))
        }
        TransportKind::Iroh(token) => Arc::new(
            IrohTransport::listen(addr, &identity, token.clone(), RelayConfig::None, queue).expect("a free port"),
        ),
    };
    (transport, incoming)
}

fn host_config(players: u8, frames: u32) -> HostConfig {
    HostConfig {
        name: "host".into(),
        pads: 1,
        players,
        session_options: SharedGameOptions {
            input_delay: 3,
            prediction_window: 6,
            auto_delay: false,
            ..SharedGameOptions::new(2)
        },
        absent_input: AbsentInput::Nothing,
        is_private: false,
        options: run_options(frames),
    }
}

fn run_options(frames: u32) -> RunOptions {
    RunOptions { frame_limit: Some(frames), drop_timeout: Some(TimeDelta::from_secs(5)), ..RunOptions::default() }
}

type RunResult = (Result<RunOutcome, RunError>, Arc<Mutex<Observations>>);

/// Address and transport of a host.
#[derive(Clone)]
struct HostAddr {
    transport: TransportKind,
    addr: PeerAddr,
}

fn host_on_thread(config: HostConfig, commands: Vec<(u32, UserCommand)>) -> (HostAddr, JoinHandle<RunResult>) {
    host_over_transport(TransportKind::Udp, config, commands)
}

fn host_over_transport(
    net: TransportKind,
    config: HostConfig,
    commands: Vec<(u32, UserCommand)>,
) -> (HostAddr, JoinHandle<RunResult>) {
    host_machine(net, nes(), config, commands)
}

fn host_machine(
    net: TransportKind,
    machine: Box<dyn Machine>,
    config: HostConfig,
    commands: Vec<(u32, UserCommand)>,
) -> (HostAddr, JoinHandle<RunResult>) {
    let (transport, incoming) = listen(&net, Identity::random());
    let host_addr = HostAddr { transport: net, addr: transport.own_addrs().remove(0) };
    let thread = spawn(move || {
        let mut bot = Bot::new(1, commands);
        let seen = Arc::clone(&bot.observed);
        let mut runner = PlayerRunner::host(transport, incoming, machine, &config).expect("a valid configuration");
        (runner.run(&mut bot), seen)
    });
    (host_addr, thread)
}

fn connect(
    host_addr: &HostAddr,
    intent: JoinIntent,
    identity: Identity,
    bot: &mut Bot,
) -> Result<LobbyConnection, RunError> {
    let (transport, incoming) = listen(&host_addr.transport, identity);
    let config = join_config(host_addr, intent);
    LobbyConnection::connect(transport, incoming, &config, bot)
        .map(|connection| connection.expect("the bot does not quit"))
}

fn join_config(host_addr: &HostAddr, intent: JoinIntent) -> JoinConfig {
    let name = if intent == JoinIntent::Spectate { "fan" } else { "guest" };
    JoinConfig {
        name: name.into(),
        intent,
        addrs: vec![host_addr.addr.clone()],
        expected_peer: None,
        timeout: TimeDelta::from_secs(30),
    }
}

fn join_on_thread(
    host_addr: &HostAddr,
    seed: u64,
    options: RunOptions,
    commands: Vec<(u32, UserCommand)>,
) -> JoinHandle<RunResult> {
    let host_addr = host_addr.clone();
    spawn(move || {
        let mut bot = Bot::new(seed, commands);
        let seen = Arc::clone(&bot.observed);
        let guest = connect(&host_addr, JoinIntent::Play(1), Identity::random(), &mut bot);
        let result =
            guest.and_then(|guest| guest.into_player(nes(), options)).and_then(|mut runner| runner.run(&mut bot));
        (result, seen)
    })
}

fn spectate_on_thread(host_addr: &HostAddr, frames: u32, commands: Vec<(u32, UserCommand)>) -> JoinHandle<RunResult> {
    let host_addr = host_addr.clone();
    spawn(move || {
        let mut bot = Bot::new(9, commands);
        let seen = Arc::clone(&bot.observed);
        let guest = connect(&host_addr, JoinIntent::Spectate, Identity::random(), &mut bot);
        let options = SpectateOptions { frame_limit: Some(frames) };
        (guest.and_then(|guest| guest.into_spectator(nes(), options)).and_then(|mut runner| runner.run(&mut bot)), seen)
    })
}

/// Asserts that a run stayed in sync for at least `frames` frames. Returns the observations.
#[track_caller]
fn assert_in_sync((result, seen): RunResult, role: &str, frames: u32) -> Arc<Mutex<Observations>> {
    let outcome = result.unwrap_or_else(|error| panic!("{role}: {error}"));
    assert!(
        outcome.is_in_sync && outcome.confirmed_frames >= frames,
        "{role}: {outcome:?}, {:?}",
        seen.lock().unwrap().events
    );
    seen
}

/// Returns the number of frames that both sites showed with equal pictures, and of all frames that both showed. A
/// predicted frame may show another picture.
fn count_equal_pictures(one: &Observations, other: &Observations) -> (usize, usize) {
    let common =
        one.pictures.iter().filter_map(|(frame, picture)| other.pictures.get(frame).map(|other| (picture, other)));
    common.fold((0, 0), |(equal, all), (one, other)| (equal + usize::from(one == other), all + 1))
}

/// Plays a game of two players, and asserts that both get the same chat, and the same picture in more than half of the
/// frames.
fn play_two_players(net: TransportKind) {
    let (host_addr, host) =
        host_over_transport(net, host_config(2, 300), vec![(100, UserCommand::Chat("good luck".into()))]);
    let guest = join_on_thread(&host_addr, 2, run_options(300), vec![(120, UserCommand::Chat("have fun".into()))]);
    let one = assert_in_sync(host.join().unwrap(), "host", 300);
    let other = assert_in_sync(guest.join().unwrap(), "guest", 300);
    let (one, other) = (one.lock().unwrap(), other.lock().unwrap());
    assert_eq!(other.chats, ["host: good luck", "guest: have fun"]);
    assert_eq!(one.chats, ["host: good luck", "guest: have fun"]);
    let (equal, all) = count_equal_pictures(&one, &other);
    assert!(all > 250 && equal * 10 > all * 5, "{equal} of {all} pictures are equal");
}

#[test]
fn two_players_play_over_udp() {
    play_two_players(TransportKind::Udp);
}

/// Each of a core's eight ports has a player: the control player takes no port away.
#[cfg(target_os = "linux")]
#[test]
fn libretro_core_with_eight_ports_has_eight_players() {
    use coplay_machines::libretro::{self, CoreSource};
    use coplay_testcores::{TestCoreConfig, build_core_with};
    let core = build_core_with(TestCoreConfig { players: 8, ports: 8, ..TestCoreConfig::default() });
    let first =
        libretro::open(libretro::CoreConfig::new(CoreSource::Path(core.path().into()))).expect("the core opens");
    let twin = || Box::new(first.twin().expect("a second instance")) as Box<dyn Machine>;
    assert_eq!(first.pads().len(), 8);
    // As `coplay host` does without --players, and with four players at each of two computers.
    for (players, pads) in [(2, 1), (8, 4)] {
        let config = HostConfig { pads, ..host_config(players, 120) };
        let (host_addr, host) = host_machine(TransportKind::Udp, twin(), config, vec![]);
        let mut bot = Bot::new(2, vec![(60, UserCommand::Control(MachineControl::Reset))]);
        let guest = connect(&host_addr, JoinIntent::Play(pads), Identity::random(), &mut bot).expect("admitted");
        let result = guest.into_player(twin(), run_options(120)).and_then(|mut runner| runner.run(&mut bot));
        let seen = assert_in_sync(host.join().expect("the host does not panic"), "host", 120);
        assert_in_sync((result, Arc::clone(&bot.observed)), "guest", 120);
        let lobby = seen.lock().unwrap().lobby.clone().expect("a lobby");
        let settings = Settings::from_bytes(&lobby.settings).expect("settings");
        assert!(has_control_player(&settings), "every site can pause");
        let site = |number| coplay::id::SiteId::new(number).expect("a site");
        for player in 0..usize::from(2 * pads) {
            let owner = site(u8::from(player >= usize::from(pads)));
            assert_ne!(settings.ownership.mask(owner, player), 0, "player {player} of {players}");
        }
    }
}

#[test]
fn two_players_play_over_iroh() {
    play_two_players(TransportKind::Iroh(Token::random()));
}

#[test]
fn pause_and_resume_happen_on_all_sites() {
    let press = |frame| (frame, UserCommand::Control(MachineControl::Pause));
    let (host_addr, host) = host_on_thread(host_config(2, 300), vec![press(60), press(90)]);
    let guest =
        join_on_thread(&host_addr, 2, run_options(300), vec![(150, UserCommand::Control(MachineControl::Reset))]);
    let one = assert_in_sync(host.join().unwrap(), "host", 300);
    let other = assert_in_sync(guest.join().unwrap(), "guest", 300);
    for seen in [one, other] {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.paused_by, BTreeSet::from([0]), "all sites know which one paused");
        let pictures = seen.pictures.range(70..88).map(|(_, picture)| picture).collect::<Vec<_>>();
        assert!(pictures.windows(2).all(|two| two[0] == two[1]), "the machine stands still meanwhile");
    }
}

/// Plays a game with a late joiner and a spectator.
fn play_with_late_joiner_and_spectator(net: TransportKind) {
    let (host_addr, host) = host_over_transport(net, host_config(3, 900), vec![(0, UserCommand::Start)]);
    let second = join_on_thread(&host_addr, 2, run_options(900), vec![]);
    // The host does not wait for the third player.
    let third = {
        let host_addr = host_addr.clone();
        spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(5));
            join_on_thread(&host_addr, 3, run_options(900), vec![]).join().unwrap()
        })
    };
    let fourth = spectate_on_thread(&host_addr, 600, vec![]);
    assert_in_sync(third.join().unwrap(), "third", 900);
    assert_in_sync(host.join().unwrap(), "host", 900);
    assert_in_sync(second.join().unwrap(), "second", 900);
    assert_in_sync(fourth.join().unwrap(), "fourth", 600);
}

#[test]
fn late_joiner_and_spectator_over_udp() {
    play_with_late_joiner_and_spectator(TransportKind::Udp);
}

#[test]
fn late_joiner_and_spectator_over_iroh() {
    play_with_late_joiner_and_spectator(TransportKind::Iroh(Token::random()));
}

#[test]
fn full_lobby_refuses_joiner() {
    let (host_addr, host) = host_on_thread(host_config(2, 240), vec![]);
    let guest = join_on_thread(&host_addr, 2, run_options(240), vec![]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let third = join_on_thread(&host_addr, 3, run_options(240), vec![]).join().unwrap().0;
    assert_eq!(third, Err(RunError::Refused(JoinRefusal::Full)));
    assert_in_sync(host.join().unwrap(), "host", 240);
    assert_in_sync(guest.join().unwrap(), "guest", 240);
}

#[test]
fn different_game_image_is_refused_and_seat_freed() {
    let (host_addr, host) = host_on_thread(host_config(2, 240), vec![]);
    let mut bot = Bot::new(2, vec![]);
    let guest = connect(&host_addr, JoinIntent::Play(1), Identity::random(), &mut bot).expect("admitted");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().expect("an image") ^= 1;
    let error = guest.into_player(Box::new(Nes::open(&image, "other").unwrap()), run_options(240)).err();
    assert!(matches!(&error, Some(RunError::GameMismatch(points)) if points[0].contains("game")), "{error:?}");
    // Its seat is free again.
    let guest = join_on_thread(&host_addr, 3, run_options(240), vec![]);
    assert_in_sync(host.join().unwrap(), "host", 240);
    assert_in_sync(guest.join().unwrap(), "guest", 240);
}

/// Players and spectators refuse a host whose settings have more players than their own machine.
#[test]
fn host_with_another_player_count_is_refused() {
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    let host_addr = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let mut bot = Bot::new(1, vec![]);
    let (queued_commands, seen) = (bot.queued_commands.clone(), bot.observed.clone());
    let host = spawn(move || {
        let machine = Box::new(ExtraPadsMachine::new(nes()));
        PlayerRunner::host(transport, incoming, machine, &host_config(2, 240))
            .expect("a valid configuration")
            .run(&mut bot)
    });
    for intent in [JoinIntent::Play(1), JoinIntent::Spectate] {
        let guest = connect(&host_addr, intent, Identity::random(), &mut Bot::new(2, vec![])).expect("admitted");
        let error = match intent {
            JoinIntent::Spectate => guest.into_spectator(nes(), SpectateOptions::default()).err(),
            _ => guest.into_player(nes(), run_options(240)).err(),
        };
        let difference = "the number of pads differs: 4 here, 6 there".to_owned();
        assert_eq!(error, Some(RunError::GameMismatch(vec![difference])), "{intent:?}");
    }
    queued_commands.lock().unwrap().push_back(UserCommand::Quit);
    assert!(host.join().unwrap().is_ok() && seen.lock().unwrap().pictures.is_empty());
}

/// A machine that claims the identity of another one, with two more pads.
struct ExtraPadsMachine {
    machine: Box<dyn Machine>,
    pads: Vec<PadLayout>,
}

impl ExtraPadsMachine {
    fn new(machine: Box<dyn Machine>) -> Self {
        let pads = machine.pads().iter().chain(&machine.pads()[..2]).cloned().collect();
        Self { machine, pads }
    }
}

impl Machine for ExtraPadsMachine {
    fn machine_id(&self) -> &MachineId {
        self.machine.machine_id()
    }

    fn game_id(&self) -> &GameId {
        self.machine.game_id()
    }

    fn frame_rate(&self) -> FrameRate {
        self.machine.frame_rate()
    }

    fn pads(&self) -> &[PadLayout] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], rendered: bool) {
        self.machine.step(inputs, rendered);
    }

    fn reset(&mut self) {
        self.machine.reset();
    }

    fn picture(&self) -> Picture<'_> {
        self.machine.picture()
    }

    fn sound(&self) -> &[[i16; 2]] {
        self.machine.sound()
    }

    fn sample_rate(&self) -> f64 {
        self.machine.sample_rate()
    }

    fn can_save(&self) -> bool {
        self.machine.can_save()
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        self.machine.save(into)
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        self.machine.load(state)
    }

    fn hash(&mut self) -> u64 {
        self.machine.hash()
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.machine.regions(show);
    }
}

/// Tries to join at an address and returns the error with the time that it took.
fn connect_expecting_failure(net: TransportKind, addr: PeerAddr, expect: Option<PeerKey>) -> (RunError, Duration) {
    let started_at = Instant::now();
    let host_addr = HostAddr { transport: net, addr };
    let (transport, incoming) = listen(&host_addr.transport, Identity::random());
    let config = JoinConfig {
        expected_peer: expect,
        timeout: TimeDelta::from_secs(60),
        ..join_config(&host_addr, JoinIntent::Play(1))
    };
    let error = LobbyConnection::connect(transport, incoming, &config, &mut Bot::new(2, vec![])).err();
    (error.expect("no host admits it"), started_at.elapsed())
}

#[test]
fn wrong_secret_fails_before_the_timeout() {
    let (queue, _incoming) = sync_channel(64);
    let addr = "127.0.0.1:0".parse().unwrap();
    let host = UdpTransport::listen(addr, Identity::random(), Secret::from_text("chess"), queue).unwrap();
    let addr = host.own_addrs().remove(0);
    let (error, took) = connect_expecting_failure(TransportKind::Udp, addr.clone(), None);
    assert_eq!(error, RunError::Unreachable { addr, wrong_secret: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn wrong_token_fails_before_the_timeout() {
    let (host, _incoming) = listen(&TransportKind::Iroh(Token::random()), Identity::random());
    let addr = host.own_addrs().remove(0);
    let (error, took) = connect_expecting_failure(TransportKind::Iroh(Token::random()), addr.clone(), None);
    assert_eq!(error, RunError::Unreachable { addr, wrong_secret: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    let message = error.to_string();
    assert!(message.contains("127.0.0.1:") && message.len() < 80, "{message}");
}

#[test]
fn wrong_peer_at_the_only_address_fails_before_the_timeout() {
    let (host, _incoming) = listen(&TransportKind::Udp, Identity::random());
    let addr = host.own_addrs().remove(0);
    let (error, took) = connect_expecting_failure(TransportKind::Udp, addr.clone(), Some(Identity::random().key()));
    assert_eq!(error, RunError::WrongPeer { addr });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

/// Every site measures round-trip times in the lobby, and the chat line of a spectator reaches all sites.
#[test]
fn lobby_measures_rtt_and_relays_spectator_chat() {
    let (host_addr, host) = host_on_thread(host_config(3, 400), vec![(0, UserCommand::Start)]);
    let fan = spectate_on_thread(&host_addr, 300, vec![(60, UserCommand::Chat("what a game".into()))]);
    let guest = join_on_thread(&host_addr, 2, run_options(400), vec![]);
    let one = assert_in_sync(host.join().unwrap(), "host", 400);
    let other = assert_in_sync(guest.join().unwrap(), "guest", 400);
    let fan = assert_in_sync(fan.join().unwrap(), "fan", 300);
    let (one, other, fan) = (one.lock().unwrap(), other.lock().unwrap(), fan.lock().unwrap());
    assert_eq!((&one.measured_sites, &other.measured_sites), (&BTreeSet::from([1]), &BTreeSet::from([0])));
    assert_eq!(fan.measured_sites, BTreeSet::from([0]), "the link to the host");
    for seen in [&one, &other, &fan] {
        assert_eq!((&seen.chats[..], seen.max_spectators), (&["fan: what a game".to_owned()][..], 1));
    }
}

/// Requests the feed of a game without having been admitted. Returns the number of feed datagrams received within two
/// seconds.
fn request_feed_unadmitted(host_addr: &HostAddr, lobby: &LobbyInfo) -> usize {
    let (transport, incoming) = listen(&host_addr.transport, Identity::random());
    let settings = Settings::from_bytes(&lobby.settings).expect("valid settings");
    let config = SpectatorConfig::new(lobby.session, settings, vec![Addr(0)]);
    let mut spectator = Spectator::new(clock::now(), config).expect("a valid configuration");
    transport.dial(&host_addr.addr, None);
    let (deadline, mut host, mut replies, mut buf) =
        (clock::now() + TimeDelta::from_secs(2), None, 0, [0; MAX_DATAGRAM]);
    while clock::now() < deadline {
        match incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Connected { peer, .. }) => host = Some(peer),
            Ok(Incoming::Datagram { at, bytes, .. }) if is_feed(&bytes) => {
                replies += 1;
                spectator.handle_datagram(at, Addr(0), &bytes);
            }
            _ => {}
        }
        while let (Some(host), Some(transmit)) = (host, spectator.poll_transmit(clock::now(), &mut buf)) {
            transport.send(&host, &buf[..transmit.len]);
        }
    }
    replies
}

#[test]
fn private_game_sends_no_feed() {
    for is_private in [false, true] {
        let (host_addr, host) = host_on_thread(HostConfig { is_private, ..host_config(2, 400) }, vec![]);
        let mut bot = Bot::new(2, vec![]);
        let seen = bot.observed.clone();
        let intruder = {
            let host_addr = host_addr.clone();
            spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(30);
                while seen.lock().unwrap().pictures.is_empty() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let lobby = seen.lock().unwrap().lobby.clone();
                request_feed_unadmitted(&host_addr, &lobby.expect("the game has started"))
            })
        };
        let guest = connect(&host_addr, JoinIntent::Play(1), Identity::random(), &mut bot).expect("admitted");
        let mut runner = guest.into_player(nes(), run_options(400)).expect("the same game");
        assert_in_sync((runner.run(&mut bot), bot.observed), "guest", 400);
        assert_in_sync(host.join().unwrap(), "host", 400);
        assert_eq!(intruder.join().unwrap() == 0, is_private, "private: {is_private}");
    }
}

/// A transport that reports one more own address after two seconds.
struct MovingTransport {
    transport: Arc<dyn Transport>,
    started_at: Instant,
    new_addr: PeerAddr,
}

impl Transport for MovingTransport {
    fn key(&self) -> PeerKey {
        self.transport.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        self.transport.send(to, bytes)
    }

    fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>) {
        self.transport.dial(addr, expect);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.transport.cancel_dial(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        self.transport.addr_of(peer)
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        let moved = (self.started_at.elapsed() > Duration::from_secs(2)).then(|| self.new_addr.clone());
        self.transport.own_addrs().into_iter().chain(moved).collect()
    }

    fn drop_counts(&self) -> DropCounts {
        self.transport.drop_counts()
    }
}

fn listen_moving(addr: &str) -> Listening {
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    (Arc::new(MovingTransport { transport, started_at: Instant::now(), new_addr: PeerAddr(addr.into()) }), incoming)
}

#[test]
fn address_change_reaches_all_players() {
    let (transport, incoming) = listen_moving("192.0.2.1:1");
    let host_addr = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let host = spawn(move || {
        let mut bot = Bot::new(1, vec![]);
        let mut runner =
            PlayerRunner::host(transport, incoming, nes(), &host_config(2, 600)).expect("a valid configuration");
        (runner.run(&mut bot), bot.observed)
    });
    let (transport, incoming) = listen_moving("192.0.2.2:2");
    let mut bot = Bot::new(2, vec![]);
    let guest = LobbyConnection::connect(transport, incoming, &join_config(&host_addr, JoinIntent::Play(1)), &mut bot);
    let mut runner = guest
        .expect("admitted")
        .expect("the bot does not quit")
        .into_player(nes(), run_options(600))
        .expect("the same game");
    let other = assert_in_sync((runner.run(&mut bot), bot.observed), "guest", 600);
    let one = assert_in_sync(host.join().unwrap(), "host", 600);
    for seen in [one, other] {
        let addrs = &seen.lock().unwrap().addrs;
        assert!(addrs.contains("192.0.2.1:1") && addrs.contains("192.0.2.2:2"), "{addrs:?}");
    }
}

/// A movie file, removed at the end of the test.
struct MovieFile(PathBuf);

impl MovieFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("coplay-drive-{name}-{}", std::process::id())))
    }

    fn recorder(&self) -> MovieRecorder {
        MovieRecorder::new(std::fs::File::create(&self.0).expect("the file can be created"))
    }

    /// Replays the movie on a new machine, and asserts that the recorded state hashes match. Returns the inputs by
    /// frame.
    fn replay(&self) -> BTreeMap<u32, Vec<InputWord>> {
        let bytes = std::fs::read(&self.0).expect("the file exists");
        let (mut reader, mut rest) = (MovieReader::new(), &bytes[..]);
        let (mut machine, mut checked, mut all) =
            (ControlledMachine::new(nes()), HashComparison::default(), BTreeMap::new());
        loop {
            rest = &rest[reader.push(rest)..];
            match reader.poll().expect("a valid movie") {
                Some(MovieEntry::Header { settings, .. }) => assert!(has_control_player(settings)),
                Some(MovieEntry::Snapshot { state, .. }) => machine.load(state).expect("a valid state"),
                Some(MovieEntry::Frame { frame, words }) => {
                    machine.step(words, false);
                    all.insert(frame.number(), words.to_vec());
                }
                Some(MovieEntry::Hash { frame, hash }) => _ = checked.on_hash(frame, hash, machine.hash()),
                Some(MovieEntry::Mark { .. }) => panic!("unexpected mark"),
                Some(MovieEntry::End { .. }) => break,
                None if rest.is_empty() => reader.end_input(),
                None => {}
            }
        }
        assert!(checked.is_equal() && checked.compared as usize >= all.len() / 60 - 1, "{checked:?}");
        all
    }
}

impl Drop for MovieFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// The movies of all sites replay on another machine and agree with the host's movie in the common frames. The host's
/// movie contains every kind of machine control.
#[test]
fn recordings_of_all_sites_are_equal_and_replay() {
    let movies = ["host", "guest", "late", "fan"].map(MovieFile::new);
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    let host_addr = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let press = |frame, control| (frame, UserCommand::Control(control));
    let recorder = movies[0].recorder();
    let seen: Arc<Mutex<Observations>> = Arc::default();
    let seen_by_host = seen.clone();
    let host = spawn(move || {
        let all = [
            (60, MachineControl::Pause),
            (90, MachineControl::Pause),
            (120, MachineControl::Save),
            (200, MachineControl::Load),
        ];
        let commands = [(0, UserCommand::Start)].into_iter().chain(all.map(|(frame, control)| press(frame, control)));
        let mut bot = Bot { observed: seen_by_host, ..Bot::new(1, commands.collect()) };
        let mut runner =
            PlayerRunner::host(transport, incoming, nes(), &host_config(3, 900)).expect("a valid configuration");
        runner.set_recorder(recorder);
        (runner.run(&mut bot), bot.observed)
    });
    // Joins when the host has shown `frame` frames.
    let join_at = |movie: &MovieFile, seed: u64, reset: u32, frame: usize| {
        let (host_addr, recorder, seen) = (host_addr.clone(), movie.recorder(), seen.clone());
        spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(60);
            while seen.lock().unwrap().pictures.len() < frame && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut bot = Bot::new(seed, vec![press(reset, MachineControl::Reset)]);
            let guest = connect(&host_addr, JoinIntent::Play(1), Identity::random(), &mut bot).expect("admitted");
            let mut runner = guest.into_player(nes(), run_options(900)).expect("the same game");
            runner.set_recorder(recorder);
            (runner.run(&mut bot), bot.observed)
        })
    };
    let (guest, late) = (join_at(&movies[1], 2, 250, 0), join_at(&movies[2], 3, 500, 120));
    let fan = {
        let (host_addr, recorder) = (host_addr.clone(), movies[3].recorder());
        spawn(move || {
            let mut bot = Bot::new(9, vec![]);
            let guest = connect(&host_addr, JoinIntent::Spectate, Identity::random(), &mut bot).expect("admitted");
            let mut runner =
                guest.into_spectator(nes(), SpectateOptions { frame_limit: Some(500) }).expect("the same game");
            runner.set_recorder(recorder);
            (runner.run(&mut bot), bot.observed)
        })
    };
    for (thread, role) in [(host, "host"), (guest, "guest"), (late, "late"), (fan, "fan")] {
        let result = thread.join().unwrap();
        let recording =
            result.0.as_ref().ok().and_then(|outcome| outcome.recording.clone()).expect("a movie was recorded");
        assert!(recording.error.is_none() && recording.frames > 60, "{role}: {recording:?}");
        assert_in_sync(result, role, 500);
    }
    let all = movies.each_ref().map(MovieFile::replay);
    assert_eq!((all[0].keys().next(), all[1].keys().next()), (Some(&0), Some(&0)));
    for other in &all[1..] {
        let common = other.iter().filter(|(frame, _)| all[0].contains_key(frame)).count();
        assert!(
            common > 60
                && other.iter().all(|(frame, words)| all[0].get(frame).is_none_or(|host_words| host_words == words))
        );
    }
    let control = all[0].values().next().map_or(0, |words| words.len() - 1);
    let pressed = all[0].values().fold(0, |all, words| all | words[control]);
    assert_eq!(pressed & MachineControl::mask(0), MachineControl::mask(0) & !MachineControl::Reset.bit(0));
    assert_ne!(pressed & MachineControl::Reset.bit(1), 0);
}

/// A transport whose uplink can be cut.
struct CuttableTransport {
    transport: Arc<dyn Transport>,
    is_cut: Arc<AtomicBool>,
}

impl Transport for CuttableTransport {
    fn key(&self) -> PeerKey {
        self.transport.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        !self.is_cut.load(Ordering::Relaxed) && self.transport.send(to, bytes)
    }

    fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>) {
        self.transport.dial(addr, expect);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.transport.cancel_dial(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        self.transport.addr_of(peer)
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        self.transport.own_addrs()
    }

    fn drop_counts(&self) -> DropCounts {
        self.transport.drop_counts()
    }
}

/// A player that the test controls.
struct TestPlayer {
    thread: JoinHandle<Result<RunOutcome, RunError>>,
    observed: Arc<Mutex<Observations>>,
    queued_commands: Arc<Mutex<VecDeque<UserCommand>>>,
    /// Address at which the player can be reached.
    own_addr: HostAddr,
}

impl TestPlayer {
    /// Hosts a game, or joins the game at `host_addr`. The uplink is cut while `cut` is set.
    fn start(host_addr: Option<&HostAddr>, seed: u64, options: RunOptions, cut: &Arc<AtomicBool>) -> Self {
        let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
        let transport = Arc::new(CuttableTransport { transport, is_cut: cut.clone() });
        let own_addr = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
        let mut bot = Bot::new(seed, vec![]);
        let (observed, queued_commands, host_addr) =
            (bot.observed.clone(), bot.queued_commands.clone(), host_addr.cloned());
        let thread = spawn(move || match host_addr {
            None => PlayerRunner::host(transport, incoming, nes(), &HostConfig { options, ..host_config(2, 1) })?
                .run(&mut bot),
            Some(host_addr) => {
                let connection = LobbyConnection::connect(
                    transport,
                    incoming,
                    &join_config(&host_addr, JoinIntent::Play(1)),
                    &mut bot,
                )?;
                connection.expect("the bot does not quit").into_player(nes(), options)?.run(&mut bot)
            }
        });
        Self { thread, observed, queued_commands, own_addr }
    }

    fn queue_command(&self, command: UserCommand) {
        self.queued_commands.lock().unwrap().push_back(command);
    }

    #[track_caller]
    fn wait_until(&self, condition: &str, holds: impl Fn(&Observations) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(&self.observed.lock().unwrap()) {
            let seen = self.observed.lock().unwrap();
            assert!(
                Instant::now() < deadline && !self.thread.is_finished(),
                "timed out waiting for {condition}: {:?}",
                seen.events
            );
            drop(seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn wait_for_frames(&self, frames: u32) {
        let newest = |seen: &Observations| seen.pictures.keys().next_back().copied().unwrap_or(0);
        let now = newest(&self.observed.lock().unwrap());
        self.wait_until("more frames", |seen| newest(seen) >= now + frames);
    }

    /// Returns the number of `PlayingAlone` events so far.
    fn alone_events(&self) -> usize {
        self.observed.lock().unwrap().alone_events
    }

    /// Waits until there are more than `before` `PlayingAlone` events. Returns their number.
    #[track_caller]
    fn wait_for_alone_event(&self, before: usize) -> usize {
        self.wait_until("the event", |seen| seen.alone_events > before);
        self.alone_events()
    }

    #[track_caller]
    fn quit(self) -> Arc<Mutex<Observations>> {
        self.queue_command(UserCommand::Quit);
        assert_in_sync((self.thread.join().unwrap(), self.observed), "the quitting player", 1)
    }
}

fn options_with_drop_after(seconds: i64, alone: AlonePolicy) -> RunOptions {
    RunOptions { drop_timeout: Some(TimeDelta::from_secs(seconds)), alone_policy: alone, ..RunOptions::default() }
}

fn has_joined(seen: &Observations, site: u8) -> bool {
    seen.events.iter().any(|event| matches!(event, Event::Joined { site: joined, .. } if joined.number() == site))
}

#[test]
fn last_player_continues_and_a_joiner_takes_the_free_seat() {
    for host_leaves in [false, true] {
        let not_cut = Arc::new(AtomicBool::new(false));
        let host = TestPlayer::start(None, 1, options_with_drop_after(5, AlonePolicy::Wait), &not_cut);
        let guest = TestPlayer::start(Some(&host.own_addr), 2, options_with_drop_after(5, AlonePolicy::Wait), &not_cut);
        guest.wait_for_frames(60);
        let (leaves, stays, seat) = if host_leaves { (host, guest, 0) } else { (guest, host, 1) };
        leaves.quit();
        let alone_events = stays.wait_for_alone_event(0);
        // The session goes on with one player.
        stays.wait_for_frames(150);
        let joiner =
            TestPlayer::start(Some(&stays.own_addr), 3, options_with_drop_after(5, AlonePolicy::Wait), &not_cut);
        [&joiner, &stays].iter().for_each(|player| player.wait_until("the seat", |seen| has_joined(seen, seat)));
        joiner.wait_for_frames(60);
        joiner.quit();
        stays.wait_for_alone_event(alone_events);
        stays.quit();
    }
}

#[test]
fn guest_continues_alone_when_the_host_is_silent() {
    for alone in [AlonePolicy::Ask, AlonePolicy::Continue] {
        let cut = Arc::new(AtomicBool::new(false));
        let host = TestPlayer::start(None, 1, options_with_drop_after(3, AlonePolicy::Wait), &cut);
        let guest = TestPlayer::start(Some(&host.own_addr), 2, options_with_drop_after(3, alone), &cut);
        guest.wait_for_frames(60);
        guest.wait_until("no offer while the host is connected", |seen| !seen.can_continue_alone);
        let alone_events = guest.alone_events();
        cut.store(true, Ordering::Relaxed);
        if alone == AlonePolicy::Ask {
            guest.wait_until("the offer", |seen| seen.can_continue_alone);
            assert_eq!(guest.alone_events(), alone_events, "the user has not decided yet");
            guest.queue_command(UserCommand::ContinueAlone);
        }
        guest.wait_for_alone_event(alone_events);
        guest.wait_for_frames(120);
        guest.quit();
        host.quit();
    }
}

/// Lets two players both continue alone, player `kept` some seconds before the other. Asserts that, when they meet, the
/// other returns to the game of `kept`, and that then both play on with the same roster and get each other's chat. At
/// last the guest quits, and the host is alone again.
fn continue_alone_on_both_sides(drop_after: [i64; 2], kept: usize) {
    let cut = Arc::new(AtomicBool::new(false));
    let host = TestPlayer::start(None, 1, options_with_drop_after(drop_after[0], AlonePolicy::Continue), &cut);
    let guest =
        TestPlayer::start(Some(&host.own_addr), 2, options_with_drop_after(drop_after[1], AlonePolicy::Continue), &cut);
    let both = [&host, &guest];
    guest.wait_for_frames(60);
    let notices = both.map(TestPlayer::alone_events);
    cut.store(true, Ordering::Relaxed);
    both.iter().zip(notices).for_each(|(player, notices)| _ = player.wait_for_alone_event(notices));
    both.iter().for_each(|player| player.wait_for_frames(60));
    cut.store(false, Ordering::Relaxed);
    for (site, player) in both.iter().enumerate() {
        let is_resolved = |event: &Event| matches!(event, Event::SplitBrainResolved { is_own_game_kept, .. } if *is_own_game_kept == (site == kept));
        player.wait_until("the end of the split brain", |seen| seen.events.iter().any(is_resolved));
    }
    let returning = 1 - kept as u8;
    both.iter().for_each(|player| player.wait_until("the rejoin", |seen| has_joined(seen, returning)));
    both.iter().for_each(|player| player.wait_for_frames(60));
    host.queue_command(UserCommand::Chat("here again".into()));
    guest.queue_command(UserCommand::Chat("me too".into()));
    for player in both {
        player.wait_until("both chat lines", |seen| seen.chats.len() == 2);
    }
    let roster = |player: &TestPlayer| {
        let lobby = player.observed.lock().unwrap().lobby.clone()?;
        Some((lobby.serial, lobby.members))
    };
    host.wait_until("the same roster with both present", |seen| {
        let own = seen.lobby.as_ref().map(|lobby| (lobby.serial, lobby.members.clone()));
        own == roster(&guest)
            && own.is_some_and(|(_, members)| members.iter().filter(|member| member.is_present).count() == 2)
    });
    let notices = both.map(TestPlayer::alone_events);
    assert_eq!(guest.quit().lock().unwrap().alone_events, notices[1], "the guest is no longer alone when it quits");
    host.wait_for_alone_event(notices[0]);
    host.quit();
}

#[test]
fn split_players_reunite_in_the_hosts_game() {
    continue_alone_on_both_sides([3, 6], 0);
}

#[test]
fn split_players_reunite_in_the_guests_game() {
    continue_alone_on_both_sides([6, 3], 1);
}
