//! Whole games over real sockets, each site on a thread of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use coplay::frame::{Frame, FrameRate};
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::movie::{HashComparison, MovieEntry, MovieReader};
use coplay::session::{AbsentInput, Event, GameId, MachineId, Settings};
use coplay::spectator_feed::{Spectator, SpectatorConfig};
use coplay::time::TimeDelta;
use coplay::wire::{MAX_DATAGRAM, is_feed};
use coplay_machines::control::{ControlledMachine, MachineControl, has_control_player};
use coplay_machines::nes::{Nes, NesOptions};
use coplay_machines::pad::Pad;
use coplay_machines::session_adapter::SessionOptions;
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

/// Presses at random, and notes what it sees.
struct Bot {
    rng: u64,
    held: InputWord,
    commands: Vec<(u32, UserCommand)>,
    frame: u32,
    observed: Arc<Mutex<Observations>>,
    /// Commands that the front end issues during the game.
    queued_commands: Arc<Mutex<VecDeque<UserCommand>>>,
}

#[derive(Debug, Default)]
struct Observations {
    chats: Vec<String>,
    events: Vec<Event>,
    ready_members: usize,
    /// Everywhere that somebody could be reached.
    addrs: BTreeSet<String>,
    /// Of whom it was known in the lobby how far away it is.
    measured_sites: BTreeSet<u8>,
    /// Who paused.
    paused_by: BTreeSet<u8>,
    max_spectators: u16,
    /// How often it was told that we play on alone.
    alone_events: usize,
    /// It could play on alone when that was last told.
    can_continue_alone: bool,
    /// The list of who is here, once the game has begun.
    lobby: Option<LobbyInfo>,
    /// A picture's hash by frame: two sites that show other pictures play other games.
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

    fn on_event(&mut self, news: RunnerEvent<'_>) {
        if std::env::var_os("DRIVE_TALK").is_some() {
            eprintln!("{} at {}: {news:?}", self.rng % 1000, self.frame);
        }
        let mut seen = self.observed.lock().unwrap();
        match news {
            RunnerEvent::Chat { name, text: line } => seen.chats.push(format!("{name}: {line}")),
            RunnerEvent::Session(event) => seen.events.push(event.clone()),
            RunnerEvent::LobbyChanged(party) => {
                seen.ready_members = party.members.iter().filter(|member| member.is_ready).count();
                seen.lobby = party.is_started.then(|| party.clone());
                seen.max_spectators = seen.max_spectators.max(party.spectator_count);
                let places = party.members.iter().flat_map(|member| &member.addrs);
                seen.addrs.extend(places.map(|place| place.0.clone()));
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
        // Nobody starts alone, and without knowing how far away the others are.
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
    Box::new(Nes::open_with(&coplay_testcores::images::nes(), "test", options).expect("a sound image"))
}

/// What the sites of a game reach each other by.
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
        session_options: SessionOptions {
            input_delay: 3,
            prediction_window: 6,
            auto_delay: false,
            ..SessionOptions::new(2)
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

/// Where a host is, and how it is reached.
#[derive(Clone)]
struct HostAddr {
    transport: TransportKind,
    addr: PeerAddr,
}

fn host_on_thread(plan: HostConfig, commands: Vec<(u32, UserCommand)>) -> (HostAddr, JoinHandle<RunResult>) {
    host_over_transport(TransportKind::Udp, plan, commands)
}

fn host_over_transport(
    net: TransportKind,
    plan: HostConfig,
    commands: Vec<(u32, UserCommand)>,
) -> (HostAddr, JoinHandle<RunResult>) {
    host_machine(net, nes(), plan, commands)
}

fn host_machine(
    net: TransportKind,
    machine: Box<dyn Machine>,
    plan: HostConfig,
    commands: Vec<(u32, UserCommand)>,
) -> (HostAddr, JoinHandle<RunResult>) {
    let (transport, incoming) = listen(&net, Identity::random());
    let door = HostAddr { transport: net, addr: transport.own_addrs().remove(0) };
    let thread = spawn(move || {
        let mut bot = Bot::new(1, commands);
        let seen = Arc::clone(&bot.observed);
        let mut drive = PlayerRunner::host(transport, incoming, machine, &plan).expect("a sound plan");
        (drive.run(&mut bot), seen)
    });
    (door, thread)
}

fn connect(door: &HostAddr, wish: JoinIntent, identity: Identity, bot: &mut Bot) -> Result<LobbyConnection, RunError> {
    let (transport, incoming) = listen(&door.transport, identity);
    let plan = join_config(door, wish);
    LobbyConnection::connect(transport, incoming, &plan, bot).map(|guest| guest.expect("nobody quits"))
}

fn join_config(door: &HostAddr, wish: JoinIntent) -> JoinConfig {
    let name = if wish == JoinIntent::Spectate { "fan" } else { "guest" };
    JoinConfig {
        name: name.into(),
        intent: wish,
        addrs: vec![door.addr.clone()],
        expected_peer: None,
        timeout: TimeDelta::from_secs(30),
    }
}

fn join_on_thread(
    door: &HostAddr,
    seed: u64,
    manner: RunOptions,
    commands: Vec<(u32, UserCommand)>,
) -> JoinHandle<RunResult> {
    let door = door.clone();
    spawn(move || {
        let mut bot = Bot::new(seed, commands);
        let seen = Arc::clone(&bot.observed);
        let guest = connect(&door, JoinIntent::Play(1), Identity::random(), &mut bot);
        let ran = guest.and_then(|guest| guest.into_player(nes(), manner)).and_then(|mut drive| drive.run(&mut bot));
        (ran, seen)
    })
}

fn spectate_on_thread(door: &HostAddr, frames: u32, commands: Vec<(u32, UserCommand)>) -> JoinHandle<RunResult> {
    let door = door.clone();
    spawn(move || {
        let mut bot = Bot::new(9, commands);
        let seen = Arc::clone(&bot.observed);
        let guest = connect(&door, JoinIntent::Spectate, Identity::random(), &mut bot);
        let plan = SpectateOptions { frame_limit: Some(frames) };
        (guest.and_then(|guest| guest.into_spectator(nes(), plan)).and_then(|mut watch| watch.run(&mut bot)), seen)
    })
}

/// It went well, for at least so many frames.
#[track_caller]
fn assert_in_sync((ran, seen): RunResult, what: &str, frames: u32) -> Arc<Mutex<Observations>> {
    let outcome = ran.unwrap_or_else(|failure| panic!("{what}: {failure}"));
    assert!(
        outcome.is_in_sync && outcome.confirmed_frames >= frames,
        "{what}: {outcome:?}, {:?}",
        seen.lock().unwrap().events
    );
    seen
}

/// The last frames of both look the same where they were certain before they were shown: after a wait for the end.
fn count_equal_pictures(one: &Observations, other: &Observations) -> (usize, usize) {
    let common =
        one.pictures.iter().filter_map(|(frame, picture)| other.pictures.get(frame).map(|there| (picture, there)));
    common.fold((0, 0), |(equal, all), (here, there)| (equal + usize::from(here == there), all + 1))
}

/// A game of two, who chat, and see the same.
fn play_two_players(net: TransportKind) {
    let (door, host) =
        host_over_transport(net, host_config(2, 300), vec![(100, UserCommand::Chat("good luck".into()))]);
    let guest = join_on_thread(&door, 2, run_options(300), vec![(120, UserCommand::Chat("have fun".into()))]);
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

/// As many as there are ports share a core; the buttons of the machine itself take no port away.
#[cfg(target_os = "linux")]
#[test]
fn libretro_core_with_eight_ports_has_eight_players() {
    use coplay_machines::libretro::{self, CoreSource};
    use coplay_testcores::{TestCoreConfig, build_core_with};
    let core = build_core_with(TestCoreConfig { players: 8, ports: 8, ..TestCoreConfig::default() });
    let first = libretro::open(libretro::CoreConfig::new(CoreSource::Path(core.path().into()))).expect("it opens");
    let twin = || Box::new(first.twin().expect("another one")) as Box<dyn Machine>;
    assert_eq!(first.pads().len(), 8);
    // As `coplay host` does it without --players, and with four at each of two computers.
    for (players, pads) in [(2, 1), (8, 4)] {
        let plan = HostConfig { pads, ..host_config(players, 120) };
        let (door, host) = host_machine(TransportKind::Udp, twin(), plan, vec![]);
        let mut bot = Bot::new(2, vec![(60, UserCommand::Control(MachineControl::Reset))]);
        let guest = connect(&door, JoinIntent::Play(pads), Identity::random(), &mut bot).expect("let in");
        let ran = guest.into_player(twin(), run_options(120)).and_then(|mut drive| drive.run(&mut bot));
        let seen = assert_in_sync(host.join().expect("the host plays on"), "host", 120);
        assert_in_sync((ran, Arc::clone(&bot.observed)), "guest", 120);
        let party = seen.lock().unwrap().lobby.clone().expect("a list");
        let settings = Settings::from_bytes(&party.settings).expect("settings");
        assert!(has_control_player(&settings), "everybody can pause");
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
    let (door, host) = host_on_thread(host_config(2, 300), vec![press(60), press(90)]);
    let guest = join_on_thread(&door, 2, run_options(300), vec![(150, UserCommand::Control(MachineControl::Reset))]);
    let one = assert_in_sync(host.join().unwrap(), "host", 300);
    let other = assert_in_sync(guest.join().unwrap(), "guest", 300);
    for seen in [one, other] {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.paused_by, BTreeSet::from([0]), "all know who it was");
        let still = seen.pictures.range(70..88).map(|(_, picture)| picture).collect::<Vec<_>>();
        assert!(still.windows(2).all(|two| two[0] == two[1]), "nothing moves in between");
    }
}

/// A third comes late, and a fourth looks on.
fn play_with_late_joiner_and_spectator(net: TransportKind) {
    let (door, host) = host_over_transport(net, host_config(3, 900), vec![(0, UserCommand::Start)]);
    let second = join_on_thread(&door, 2, run_options(900), vec![]);
    // The host does not wait for the third.
    let third = {
        let door = door.clone();
        spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(5));
            join_on_thread(&door, 3, run_options(900), vec![]).join().unwrap()
        })
    };
    let fourth = spectate_on_thread(&door, 600, vec![]);
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
    let (door, host) = host_on_thread(host_config(2, 240), vec![]);
    let guest = join_on_thread(&door, 2, run_options(240), vec![]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let third = join_on_thread(&door, 3, run_options(240), vec![]).join().unwrap().0;
    assert_eq!(third, Err(RunError::Refused(JoinRefusal::Full)));
    assert_in_sync(host.join().unwrap(), "host", 240);
    assert_in_sync(guest.join().unwrap(), "guest", 240);
}

#[test]
fn different_game_image_is_refused_and_seat_freed() {
    let (door, host) = host_on_thread(host_config(2, 240), vec![]);
    let mut bot = Bot::new(2, vec![]);
    let guest = connect(&door, JoinIntent::Play(1), Identity::random(), &mut bot).expect("let in");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().expect("an image") ^= 1;
    let failure = guest.into_player(Box::new(Nes::open(&image, "other").unwrap()), run_options(240)).err();
    assert!(matches!(&failure, Some(RunError::GameMismatch(points)) if points[0].contains("game")), "{failure:?}");
    // Its seat is free again.
    let guest = join_on_thread(&door, 3, run_options(240), vec![]);
    assert_in_sync(host.join().unwrap(), "host", 240);
    assert_in_sync(guest.join().unwrap(), "guest", 240);
}

/// A host whose settings have more players than the machine of the guest: the guest used to panic with the first input.
#[test]
fn host_with_another_player_count_is_refused() {
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    let door = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let mut bot = Bot::new(1, vec![]);
    let (asked, seen) = (bot.queued_commands.clone(), bot.observed.clone());
    let host = spawn(move || {
        let machine = Box::new(ExtraPadsMachine::new(nes()));
        PlayerRunner::host(transport, incoming, machine, &host_config(2, 240)).expect("a sound plan").run(&mut bot)
    });
    for wish in [JoinIntent::Play(1), JoinIntent::Spectate] {
        let guest = connect(&door, wish, Identity::random(), &mut Bot::new(2, vec![])).expect("let in");
        let failure = match wish {
            JoinIntent::Spectate => guest.into_spectator(nes(), SpectateOptions::default()).err(),
            _ => guest.into_player(nes(), run_options(240)).err(),
        };
        let differs = "the number of players differs: 5 here, 7 there".to_owned();
        assert_eq!(failure, Some(RunError::GameMismatch(vec![differs])), "{wish:?}");
    }
    asked.lock().unwrap().push_back(UserCommand::Quit);
    assert!(host.join().unwrap().is_ok() && seen.lock().unwrap().pictures.is_empty());
}

/// A machine that claims to be another one, with two pads more.
struct ExtraPadsMachine {
    machine: Box<dyn Machine>,
    pads: Vec<Pad>,
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

    fn pads(&self) -> &[Pad] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        self.machine.step(inputs, fresh);
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

/// Knocks where nobody opens; why, and how long that took.
fn connect_expecting_failure(net: TransportKind, place: PeerAddr, expect: Option<PeerKey>) -> (RunError, Duration) {
    let begun = Instant::now();
    let door = HostAddr { transport: net, addr: place };
    let (transport, incoming) = listen(&door.transport, Identity::random());
    let plan = JoinConfig {
        expected_peer: expect,
        timeout: TimeDelta::from_secs(60),
        ..join_config(&door, JoinIntent::Play(1))
    };
    let failure = LobbyConnection::connect(transport, incoming, &plan, &mut Bot::new(2, vec![])).err();
    (failure.expect("nobody opens"), begun.elapsed())
}

#[test]
fn wrong_secret_fails_before_the_timeout() {
    let (queue, _incoming) = sync_channel(64);
    let addr = "127.0.0.1:0".parse().unwrap();
    let host = UdpTransport::listen(addr, Identity::random(), Secret::from_text("chess"), queue).unwrap();
    let place = host.own_addrs().remove(0);
    let (failure, took) = connect_expecting_failure(TransportKind::Udp, place.clone(), None);
    assert_eq!(failure, RunError::Unreachable { addr: place, wrong_secret: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn wrong_token_fails_before_the_timeout() {
    let (host, _incoming) = listen(&TransportKind::Iroh(Token::random()), Identity::random());
    let place = host.own_addrs().remove(0);
    let (failure, took) = connect_expecting_failure(TransportKind::Iroh(Token::random()), place.clone(), None);
    assert_eq!(failure, RunError::Unreachable { addr: place, wrong_secret: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    let told = failure.to_string();
    assert!(told.contains("127.0.0.1:") && told.len() < 80, "{told}");
}

#[test]
fn wrong_peer_at_the_only_address_fails_before_the_timeout() {
    let (host, _incoming) = listen(&TransportKind::Udp, Identity::random());
    let place = host.own_addrs().remove(0);
    let (failure, took) = connect_expecting_failure(TransportKind::Udp, place.clone(), Some(Identity::random().key()));
    assert_eq!(failure, RunError::WrongPeer { addr: place });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

/// Before the game begins everybody knows how far away the others are; and who looks on is heard.
#[test]
fn lobby_measures_rtt_and_relays_spectator_chat() {
    let (door, host) = host_on_thread(host_config(3, 400), vec![(0, UserCommand::Start)]);
    let fan = spectate_on_thread(&door, 300, vec![(60, UserCommand::Chat("what a game".into()))]);
    let guest = join_on_thread(&door, 2, run_options(400), vec![]);
    let one = assert_in_sync(host.join().unwrap(), "host", 400);
    let other = assert_in_sync(guest.join().unwrap(), "guest", 400);
    let fan = assert_in_sync(fan.join().unwrap(), "fan", 300);
    let (one, other, fan) = (one.lock().unwrap(), other.lock().unwrap(), fan.lock().unwrap());
    assert_eq!((&one.measured_sites, &other.measured_sites), (&BTreeSet::from([1]), &BTreeSet::from([0])));
    assert_eq!(fan.measured_sites, BTreeSet::from([0]), "the way to the host");
    for seen in [&one, &other, &fan] {
        assert_eq!((&seen.chats[..], seen.max_spectators), (&["fan: what a game".to_owned()][..], 1));
    }
}

/// Somebody who knows everything about a game, and asks for what is played in it without having asked to be let in; what it is sent in the
/// next two seconds.
fn request_feed_unadmitted(door: &HostAddr, party: &LobbyInfo) -> usize {
    let (transport, incoming) = listen(&door.transport, Identity::random());
    let settings = Settings::from_bytes(&party.settings).expect("sound terms");
    let config = SpectatorConfig::new(party.session, settings, vec![Addr(0)]);
    let mut watcher = Spectator::new(clock::now(), config).expect("a sound plan");
    transport.dial(&door.addr, None);
    let (until, mut host, mut answers, mut buf) = (clock::now() + TimeDelta::from_secs(2), None, 0, [0; MAX_DATAGRAM]);
    while clock::now() < until {
        match incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Connected { peer, .. }) => host = Some(peer),
            Ok(Incoming::Datagram { at, bytes, .. }) if is_feed(&bytes) => {
                answers += 1;
                watcher.handle_datagram(at, Addr(0), &bytes);
            }
            _ => {}
        }
        while let (Some(host), Some(transmit)) = (host, watcher.poll_transmit(clock::now(), &mut buf)) {
            transport.send(&host, &buf[..transmit.len]);
        }
    }
    answers
}

#[test]
fn private_game_sends_no_feed() {
    for private in [false, true] {
        let (door, host) = host_on_thread(HostConfig { is_private: private, ..host_config(2, 400) }, vec![]);
        let mut bot = Bot::new(2, vec![]);
        let seen = bot.observed.clone();
        let peeper = {
            let door = door.clone();
            spawn(move || {
                let until = Instant::now() + Duration::from_secs(30);
                while seen.lock().unwrap().pictures.is_empty() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let party = seen.lock().unwrap().lobby.clone();
                request_feed_unadmitted(&door, &party.expect("the game has begun"))
            })
        };
        let guest = connect(&door, JoinIntent::Play(1), Identity::random(), &mut bot).expect("let in");
        let mut drive = guest.into_player(nes(), run_options(400)).expect("the same game");
        assert_in_sync((drive.run(&mut bot), bot.observed), "guest", 400);
        assert_in_sync(host.join().unwrap(), "host", 400);
        assert_eq!(peeper.join().unwrap() == 0, private, "private: {private}");
    }
}

/// A transport that can be reached elsewhere after a while.
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

    fn dial(&self, place: &PeerAddr, expect: Option<PeerKey>) {
        self.transport.dial(place, expect);
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

fn listen_moving(place: &str) -> Listening {
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    (Arc::new(MovingTransport { transport, started_at: Instant::now(), new_addr: PeerAddr(place.into()) }), incoming)
}

#[test]
fn address_change_reaches_all_players() {
    let (transport, incoming) = listen_moving("192.0.2.1:1");
    let door = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let host = spawn(move || {
        let mut bot = Bot::new(1, vec![]);
        let mut drive = PlayerRunner::host(transport, incoming, nes(), &host_config(2, 600)).expect("a sound plan");
        (drive.run(&mut bot), bot.observed)
    });
    let (transport, incoming) = listen_moving("192.0.2.2:2");
    let mut bot = Bot::new(2, vec![]);
    let guest = LobbyConnection::connect(transport, incoming, &join_config(&door, JoinIntent::Play(1)), &mut bot);
    let mut drive =
        guest.expect("let in").expect("nobody quits").into_player(nes(), run_options(600)).expect("the same game");
    let other = assert_in_sync((drive.run(&mut bot), bot.observed), "guest", 600);
    let one = assert_in_sync(host.join().unwrap(), "host", 600);
    for seen in [one, other] {
        let places = &seen.lock().unwrap().addrs;
        assert!(places.contains("192.0.2.1:1") && places.contains("192.0.2.2:2"), "{places:?}");
    }
}

/// A file that is gone when the test is over.
struct MovieFile(PathBuf);

impl MovieFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("coplay-drive-{name}-{}", std::process::id())))
    }

    fn recorder(&self) -> MovieRecorder {
        MovieRecorder::new(std::fs::File::create(&self.0).expect("it can be made"))
    }

    /// Plays it on a new machine; the inputs by frame.
    fn replay(&self) -> BTreeMap<u32, Vec<InputWord>> {
        let bytes = std::fs::read(&self.0).expect("it is there");
        let (mut reader, mut rest) = (MovieReader::new(), &bytes[..]);
        let (mut machine, mut checked, mut all) =
            (ControlledMachine::new(nes()), HashComparison::default(), BTreeMap::new());
        loop {
            rest = &rest[reader.push(rest)..];
            match reader.poll().expect("a sound movie") {
                Some(MovieEntry::Header { settings, .. }) => assert!(has_control_player(settings)),
                Some(MovieEntry::Snapshot { state, .. }) => machine.load(state).expect("a sound state"),
                Some(MovieEntry::Frame { frame, words }) => {
                    machine.step(words, false);
                    all.insert(frame.number(), words.to_vec());
                }
                Some(MovieEntry::Hash { frame, hash }) => _ = checked.on_hash(frame, hash, machine.hash()),
                Some(MovieEntry::Mark { .. }) => panic!("nobody made a mark"),
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

/// Everybody's movie has the same in it, with all that was done to the machine, and does the same on another machine.
#[test]
fn recordings_of_all_sites_are_equal_and_replay() {
    let films = ["host", "guest", "late", "fan"].map(MovieFile::new);
    let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
    let door = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
    let press = |frame, control| (frame, UserCommand::Control(control));
    let tape = films[0].recorder();
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
        let mut drive = PlayerRunner::host(transport, incoming, nes(), &host_config(3, 900)).expect("a sound plan");
        drive.set_recorder(tape);
        (drive.run(&mut bot), bot.observed)
    });
    // Sits down when the host is at a frame.
    let sit = |film: &MovieFile, seed: u64, reset: u32, frame: usize| {
        let (door, tape, seen) = (door.clone(), film.recorder(), seen.clone());
        spawn(move || {
            let until = Instant::now() + Duration::from_secs(60);
            while seen.lock().unwrap().pictures.len() < frame && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut bot = Bot::new(seed, vec![press(reset, MachineControl::Reset)]);
            let guest = connect(&door, JoinIntent::Play(1), Identity::random(), &mut bot).expect("let in");
            let mut drive = guest.into_player(nes(), run_options(900)).expect("the same game");
            drive.set_recorder(tape);
            (drive.run(&mut bot), bot.observed)
        })
    };
    let (guest, late) = (sit(&films[1], 2, 250, 0), sit(&films[2], 3, 500, 120));
    let fan = {
        let (door, tape) = (door.clone(), films[3].recorder());
        spawn(move || {
            let mut bot = Bot::new(9, vec![]);
            let guest = connect(&door, JoinIntent::Spectate, Identity::random(), &mut bot).expect("let in");
            let mut watch =
                guest.into_spectator(nes(), SpectateOptions { frame_limit: Some(500) }).expect("the same game");
            watch.set_recorder(tape);
            (watch.run(&mut bot), bot.observed)
        })
    };
    for (thread, what) in [(host, "host"), (guest, "guest"), (late, "late"), (fan, "fan")] {
        let ran = thread.join().unwrap();
        let taped = ran.0.as_ref().ok().and_then(|outcome| outcome.recording.clone()).expect("a movie was wanted");
        assert!(taped.error.is_none() && taped.frames > 60, "{what}: {taped:?}");
        assert_in_sync(ran, what, 500);
    }
    let all = films.each_ref().map(MovieFile::replay);
    assert_eq!((all[0].keys().next(), all[1].keys().next()), (Some(&0), Some(&0)));
    for other in &all[1..] {
        let common = other.iter().filter(|(frame, _)| all[0].contains_key(frame)).count();
        assert!(common > 60 && other.iter().all(|(frame, words)| all[0].get(frame).is_none_or(|here| here == words)));
    }
    let control = all[0].values().next().map_or(0, |words| words.len() - 1);
    let pressed = all[0].values().fold(0, |all, words| all | words[control]);
    assert_eq!(pressed & MachineControl::mask(0), MachineControl::mask(0) & !MachineControl::Reset.bit(0));
    assert_ne!(pressed & MachineControl::Reset.bit(1), 0);
}

/// A transport whose way out can be cut.
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

    fn dial(&self, place: &PeerAddr, expect: Option<PeerKey>) {
        self.transport.dial(place, expect);
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

/// A player who does what the test says.
struct TestPlayer {
    thread: JoinHandle<Result<RunOutcome, RunError>>,
    observed: Arc<Mutex<Observations>>,
    queued_commands: Arc<Mutex<VecDeque<UserCommand>>>,
    /// Where it can be reached.
    own_addr: HostAddr,
}

impl TestPlayer {
    /// Hosts a game, or takes a seat in one; the way out can be cut.
    fn start(door: Option<&HostAddr>, seed: u64, manner: RunOptions, cut: &Arc<AtomicBool>) -> Self {
        let (transport, incoming) = listen(&TransportKind::Udp, Identity::random());
        let transport = Arc::new(CuttableTransport { transport, is_cut: cut.clone() });
        let own = HostAddr { transport: TransportKind::Udp, addr: transport.own_addrs().remove(0) };
        let mut bot = Bot::new(seed, vec![]);
        let (seen, asked, door) = (bot.observed.clone(), bot.queued_commands.clone(), door.cloned());
        let thread = spawn(move || match door {
            None => {
                PlayerRunner::host(transport, incoming, nes(), &HostConfig { options: manner, ..host_config(2, 1) })?
                    .run(&mut bot)
            }
            Some(door) => {
                let guest =
                    LobbyConnection::connect(transport, incoming, &join_config(&door, JoinIntent::Play(1)), &mut bot)?;
                guest.expect("nobody quits").into_player(nes(), manner)?.run(&mut bot)
            }
        });
        Self { thread, observed: seen, queued_commands: asked, own_addr: own }
    }

    fn queue_command(&self, command: UserCommand) {
        self.queued_commands.lock().unwrap().push_back(command);
    }

    #[track_caller]
    fn wait_until(&self, what: &str, holds: impl Fn(&Observations) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds(&self.observed.lock().unwrap()) {
            let seen = self.observed.lock().unwrap();
            assert!(Instant::now() < until && !self.thread.is_finished(), "{what} does not come: {:?}", seen.events);
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

    /// Number of times that the runner reported that this player plays on alone.
    fn alone_events(&self) -> usize {
        self.observed.lock().unwrap().alone_events
    }

    /// Waits for another notice; returns their number.
    #[track_caller]
    fn wait_for_alone_event(&self, before: usize) -> usize {
        self.wait_until("the notice", |seen| seen.alone_events > before);
        self.alone_events()
    }

    #[track_caller]
    fn quit(self) -> Arc<Mutex<Observations>> {
        self.queue_command(UserCommand::Quit);
        assert_in_sync((self.thread.join().unwrap(), self.observed), "who quits", 1)
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
        let together = Arc::new(AtomicBool::new(false));
        let host = TestPlayer::start(None, 1, options_with_drop_after(5, AlonePolicy::Wait), &together);
        let guest =
            TestPlayer::start(Some(&host.own_addr), 2, options_with_drop_after(5, AlonePolicy::Wait), &together);
        guest.wait_for_frames(60);
        let (leaves, stays, seat) = if host_leaves { (host, guest, 0) } else { (guest, host, 1) };
        leaves.quit();
        let notices = stays.wait_for_alone_event(0);
        // It used to end a second later.
        stays.wait_for_frames(150);
        let again =
            TestPlayer::start(Some(&stays.own_addr), 3, options_with_drop_after(5, AlonePolicy::Wait), &together);
        [&again, &stays].iter().for_each(|player| player.wait_until("the seat", |seen| has_joined(seen, seat)));
        again.wait_for_frames(60);
        again.quit();
        stays.wait_for_alone_event(notices);
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
        guest.wait_until("no offer while the host is heard", |seen| !seen.can_continue_alone);
        let notices = guest.alone_events();
        cut.store(true, Ordering::Relaxed);
        if alone == AlonePolicy::Ask {
            guest.wait_until("the offer", |seen| seen.can_continue_alone);
            assert_eq!(guest.alone_events(), notices, "nobody has decided yet");
            guest.queue_command(UserCommand::ContinueAlone);
        }
        guest.wait_for_alone_event(notices);
        guest.wait_for_frames(120);
        guest.quit();
        host.quit();
    }
}

/// Both of two go on alone, one some seconds before the other. When they meet the later one comes back to the game of the other; then
/// there is one list, and one game.
fn continue_alone_on_both_sides(patience: [i64; 2], kept: usize) {
    let cut = Arc::new(AtomicBool::new(false));
    let host = TestPlayer::start(None, 1, options_with_drop_after(patience[0], AlonePolicy::Continue), &cut);
    let guest =
        TestPlayer::start(Some(&host.own_addr), 2, options_with_drop_after(patience[1], AlonePolicy::Continue), &cut);
    let both = [&host, &guest];
    guest.wait_for_frames(60);
    let notices = both.map(TestPlayer::alone_events);
    cut.store(true, Ordering::Relaxed);
    both.iter().zip(notices).for_each(|(player, notices)| _ = player.wait_for_alone_event(notices));
    both.iter().for_each(|player| player.wait_for_frames(60));
    cut.store(false, Ordering::Relaxed);
    for (site, player) in both.iter().enumerate() {
        let told = |event: &Event| matches!(event, Event::SplitBrainResolved { is_own_game_kept: ours, .. } if *ours == (site == kept));
        player.wait_until("that both were alone", |seen| seen.events.iter().any(told));
    }
    let back = 1 - kept as u8;
    both.iter().for_each(|player| player.wait_until("who comes back", |seen| has_joined(seen, back)));
    both.iter().for_each(|player| player.wait_for_frames(60));
    host.queue_command(UserCommand::Chat("here again".into()));
    guest.queue_command(UserCommand::Chat("so am I".into()));
    for player in both {
        player.wait_until("what both say", |seen| seen.chats.len() == 2);
    }
    let list = |player: &TestPlayer| {
        let party = player.observed.lock().unwrap().lobby.clone()?;
        Some((party.serial, party.members))
    };
    host.wait_until("the same list with both on it", |seen| {
        let ours = seen.lobby.as_ref().map(|party| (party.serial, party.members.clone()));
        ours == list(&guest)
            && ours.is_some_and(|(_, members)| members.iter().filter(|member| member.is_present).count() == 2)
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
