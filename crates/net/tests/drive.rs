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
use coplay_machines::control::{Control, Controlled, is_controlled};
use coplay_machines::hosted::Terms;
use coplay_machines::nes::{Nes, Options};
use coplay_machines::pad::Pad;
use coplay_machines::{LoadError, Machine, Picture, SaveError};
use coplay_net::drive::{
    Alone, Command, Drive, Failure, Front, Guest, HostPlan, JoinPlan, Manner, News, Outcome, Tape, WatchPlan,
};
use coplay_net::iroh::{Iroh, Relay};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::party::{Party, Refusal, Wish};
use coplay_net::udp::Udp;
use coplay_net::{Incoming, PeerKey, Place, Refused, Transport, clock};

/// Presses at random, and notes what it sees.
struct Bot {
    luck: u64,
    held: InputWord,
    commands: Vec<(u32, Command)>,
    frame: u32,
    seen: Arc<Mutex<Seen>>,
    /// Commands that the front end issues during the game.
    asked: Arc<Mutex<VecDeque<Command>>>,
}

#[derive(Debug, Default)]
struct Seen {
    chats: Vec<String>,
    events: Vec<Event>,
    ready: usize,
    /// Everywhere that somebody could be reached.
    places: BTreeSet<String>,
    /// Of whom it was known in the lobby how far away it is.
    trips: BTreeSet<u8>,
    /// Who paused.
    paused: BTreeSet<u8>,
    most_watchers: u16,
    /// How often it was told that we play on alone.
    alone: usize,
    /// It could play on alone when that was last told.
    can_go_on_alone: bool,
    /// The list of who is here, once the game has begun.
    party: Option<Party>,
    /// A picture's hash by frame: two sites that show other pictures play other games.
    pictures: BTreeMap<u32, u64>,
}

impl Bot {
    fn new(seed: u64, commands: Vec<(u32, Command)>) -> Self {
        Self { luck: seed, held: 0, commands, frame: 0, seen: Arc::default(), asked: Arc::default() }
    }

    fn draw(&mut self) -> u64 {
        self.luck = self.luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.luck >> 33
    }
}

impl Front for Bot {
    fn sample(&mut self, pads: &mut [InputWord]) {
        if self.draw().is_multiple_of(8) {
            self.held = InputWord::from(self.draw() & 0x1ff);
        }
        pads.fill(self.held);
    }

    fn show(&mut self, frame: Frame, machine: &dyn Machine) {
        self.frame = frame.number();
        let picture = machine.picture().rgba.iter().fold(7u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte));
        self.seen.lock().unwrap().pictures.insert(frame.number(), picture);
    }

    fn tell(&mut self, news: News<'_>) {
        if std::env::var_os("DRIVE_TALK").is_some() {
            eprintln!("{} at {}: {news:?}", self.luck % 1000, self.frame);
        }
        let mut seen = self.seen.lock().unwrap();
        match news {
            News::Chat { name, line } => seen.chats.push(format!("{name}: {line}")),
            News::Session(event) => seen.events.push(event.clone()),
            News::Party(party) => {
                seen.ready = party.members.iter().filter(|member| member.ready).count();
                seen.party = party.started.then(|| party.clone());
                seen.most_watchers = seen.most_watchers.max(party.watchers);
                let places = party.members.iter().flat_map(|member| &member.places);
                seen.places.extend(places.map(|place| place.0.clone()));
            }
            News::Status(status) => {
                seen.trips.extend(status.trips.iter().map(|(site, _)| *site));
                seen.paused.extend(status.paused);
                seen.can_go_on_alone = status.can_go_on_alone;
            }
            News::Alone => seen.alone += 1,
            News::Note(_) => {}
        }
    }

    fn poll(&mut self) -> Option<Command> {
        if let Some(command) = self.asked.lock().unwrap().pop_front() {
            return Some(command);
        }
        // Nobody starts alone, and without knowing how far away the others are.
        let seen = self.seen.lock().unwrap();
        let ready = seen.ready >= 2 && !seen.trips.is_empty();
        drop(seen);
        let due = |(frame, command): &(u32, Command)| *frame <= self.frame && (*command != Command::Start || ready);
        let due = self.commands.iter().position(due);
        due.map(|at| self.commands.remove(at).1)
    }
}

fn nes() -> Box<dyn Machine> {
    let options = Options { players: 4 };
    Box::new(Nes::open_with(&coplay_testcores::images::nes(), "test", options).expect("a sound image"))
}

/// What the sites of a game reach each other by.
#[derive(Clone)]
enum Net {
    Udp,
    Iroh(Token),
}

type Listening = (Arc<dyn Transport>, Receiver<Incoming>);

fn listen(net: &Net, identity: Identity) -> Listening {
    let (queue, incoming) = sync_channel(4_096);
    let addr = "127.0.0.1:0".parse().unwrap();
    let transport: Arc<dyn Transport> = match net {
        Net::Udp => Arc::new(Udp::listen(addr, identity, Secret::from_text("tennis"), queue).expect("a free port")),
        Net::Iroh(token) => {
            Arc::new(Iroh::listen(addr, &identity, token.clone(), Relay::None, queue).expect("a free port"))
        }
    };
    (transport, incoming)
}

fn plan(players: u8, frames: u32) -> HostPlan {
    HostPlan {
        name: "host".into(),
        pads: 1,
        players,
        terms: Terms { lag: 3, window: 6, auto: false, ..Terms::new(2) },
        absent: AbsentInput::Nothing,
        private: false,
        manner: manner(frames),
    }
}

fn manner(frames: u32) -> Manner {
    Manner { frames: Some(frames), drop_after: Some(TimeDelta::from_secs(5)), ..Manner::default() }
}

type Ran = (Result<Outcome, Failure>, Arc<Mutex<Seen>>);

/// Where a host is, and how it is reached.
#[derive(Clone)]
struct Door {
    net: Net,
    place: Place,
}

fn host(plan: HostPlan, commands: Vec<(u32, Command)>) -> (Door, JoinHandle<Ran>) {
    host_over(Net::Udp, plan, commands)
}

fn host_over(net: Net, plan: HostPlan, commands: Vec<(u32, Command)>) -> (Door, JoinHandle<Ran>) {
    host_on(net, nes(), plan, commands)
}

fn host_on(
    net: Net,
    machine: Box<dyn Machine>,
    plan: HostPlan,
    commands: Vec<(u32, Command)>,
) -> (Door, JoinHandle<Ran>) {
    let (transport, incoming) = listen(&net, Identity::random());
    let door = Door { net, place: transport.own_places().remove(0) };
    let thread = spawn(move || {
        let mut bot = Bot::new(1, commands);
        let seen = Arc::clone(&bot.seen);
        let mut drive = Drive::host(transport, incoming, machine, &plan).expect("a sound plan");
        (drive.run(&mut bot), seen)
    });
    (door, thread)
}

fn knock(door: &Door, wish: Wish, identity: Identity, bot: &mut Bot) -> Result<Guest, Failure> {
    let (transport, incoming) = listen(&door.net, identity);
    let plan = join_plan(door, wish);
    Guest::knock(transport, incoming, &plan, bot).map(|guest| guest.expect("nobody quits"))
}

fn join_plan(door: &Door, wish: Wish) -> JoinPlan {
    let name = if wish == Wish::Watch { "fan" } else { "guest" };
    JoinPlan {
        name: name.into(),
        wish,
        places: vec![door.place.clone()],
        expect: None,
        patience: TimeDelta::from_secs(30),
    }
}

fn join(door: &Door, seed: u64, manner: Manner, commands: Vec<(u32, Command)>) -> JoinHandle<Ran> {
    let door = door.clone();
    spawn(move || {
        let mut bot = Bot::new(seed, commands);
        let seen = Arc::clone(&bot.seen);
        let guest = knock(&door, Wish::Play(1), Identity::random(), &mut bot);
        let ran = guest.and_then(|guest| guest.sit_down(nes(), manner)).and_then(|mut drive| drive.run(&mut bot));
        (ran, seen)
    })
}

fn watch(door: &Door, frames: u32, commands: Vec<(u32, Command)>) -> JoinHandle<Ran> {
    let door = door.clone();
    spawn(move || {
        let mut bot = Bot::new(9, commands);
        let seen = Arc::clone(&bot.seen);
        let guest = knock(&door, Wish::Watch, Identity::random(), &mut bot);
        let plan = WatchPlan { frames: Some(frames) };
        (guest.and_then(|guest| guest.look_on(nes(), plan)).and_then(|mut watch| watch.run(&mut bot)), seen)
    })
}

/// It went well, for at least so many frames.
#[track_caller]
fn assert_well((ran, seen): Ran, what: &str, frames: u32) -> Arc<Mutex<Seen>> {
    let outcome = ran.unwrap_or_else(|failure| panic!("{what}: {failure}"));
    assert!(outcome.agreed && outcome.frames >= frames, "{what}: {outcome:?}, {:?}", seen.lock().unwrap().events);
    seen
}

/// The last frames of both look the same where they were certain before they were shown: after a wait for the end.
fn certain_pictures(one: &Seen, other: &Seen) -> (usize, usize) {
    let common =
        one.pictures.iter().filter_map(|(frame, picture)| other.pictures.get(frame).map(|there| (picture, there)));
    common.fold((0, 0), |(equal, all), (here, there)| (equal + usize::from(here == there), all + 1))
}

/// A game of two, who chat, and see the same.
fn play_over(net: Net) {
    let (door, host) = host_over(net, plan(2, 300), vec![(100, Command::Chat("good luck".into()))]);
    let guest = join(&door, 2, manner(300), vec![(120, Command::Chat("have fun".into()))]);
    let one = assert_well(host.join().unwrap(), "host", 300);
    let other = assert_well(guest.join().unwrap(), "guest", 300);
    let (one, other) = (one.lock().unwrap(), other.lock().unwrap());
    assert_eq!(other.chats, ["host: good luck", "guest: have fun"]);
    assert_eq!(one.chats, ["host: good luck", "guest: have fun"]);
    let (equal, all) = certain_pictures(&one, &other);
    assert!(all > 250 && equal * 10 > all * 5, "{equal} of {all} pictures are equal");
}

#[test]
fn two_play() {
    play_over(Net::Udp);
}

/// As many as there are ports share a core; the buttons of the machine itself take no port away.
#[cfg(target_os = "linux")]
#[test]
fn a_core_with_eight_ports_is_shared_by_eight() {
    use coplay_machines::libretro::{self, CoreSource};
    use coplay_testcores::{Build, build_as};
    let core = build_as(Build { players: 8, ports: 8, ..Build::default() });
    let first = libretro::open(libretro::Config::new(CoreSource::Path(core.path().into()))).expect("it opens");
    let twin = || Box::new(first.twin().expect("another one")) as Box<dyn Machine>;
    assert_eq!(first.pads().len(), 8);
    // As `coplay host` does it without --players, and with four at each of two computers.
    for (players, pads) in [(2, 1), (8, 4)] {
        let plan = HostPlan { pads, ..plan(players, 120) };
        let (door, host) = host_on(Net::Udp, twin(), plan, vec![]);
        let mut bot = Bot::new(2, vec![(60, Command::Control(Control::Reset))]);
        let guest = knock(&door, Wish::Play(pads), Identity::random(), &mut bot).expect("let in");
        let ran = guest.sit_down(twin(), manner(120)).and_then(|mut drive| drive.run(&mut bot));
        let seen = assert_well(host.join().expect("the host plays on"), "host", 120);
        assert_well((ran, Arc::clone(&bot.seen)), "guest", 120);
        let party = seen.lock().unwrap().party.clone().expect("a list");
        let settings = Settings::from_bytes(&party.terms).expect("settings");
        assert!(is_controlled(&settings), "everybody can pause");
        let site = |number| coplay::id::SiteId::new(number).expect("a site");
        for player in 0..usize::from(2 * pads) {
            let owner = site(u8::from(player >= usize::from(pads)));
            assert_ne!(settings.ownership.mask(owner, player), 0, "player {player} of {players}");
        }
    }
}

#[test]
fn two_play_over_iroh() {
    play_over(Net::Iroh(Token::random()));
}

#[test]
fn all_pause_and_go_on_together() {
    let press = |frame| (frame, Command::Control(Control::Pause));
    let (door, host) = host(plan(2, 300), vec![press(60), press(90)]);
    let guest = join(&door, 2, manner(300), vec![(150, Command::Control(Control::Reset))]);
    let one = assert_well(host.join().unwrap(), "host", 300);
    let other = assert_well(guest.join().unwrap(), "guest", 300);
    for seen in [one, other] {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.paused, BTreeSet::from([0]), "all know who it was");
        let still = seen.pictures.range(70..88).map(|(_, picture)| picture).collect::<Vec<_>>();
        assert!(still.windows(2).all(|two| two[0] == two[1]), "nothing moves in between");
    }
}

/// A third comes late, and a fourth looks on.
fn crowd_over(net: Net) {
    let (door, host) = host_over(net, plan(3, 900), vec![(0, Command::Start)]);
    let second = join(&door, 2, manner(900), vec![]);
    // The host does not wait for the third.
    let third = {
        let door = door.clone();
        spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(5));
            join(&door, 3, manner(900), vec![]).join().unwrap()
        })
    };
    let fourth = watch(&door, 600, vec![]);
    assert_well(third.join().unwrap(), "third", 900);
    assert_well(host.join().unwrap(), "host", 900);
    assert_well(second.join().unwrap(), "second", 900);
    assert_well(fourth.join().unwrap(), "fourth", 600);
}

#[test]
fn a_third_comes_late_and_a_fourth_looks_on() {
    crowd_over(Net::Udp);
}

#[test]
fn a_third_comes_late_and_a_fourth_looks_on_over_iroh() {
    crowd_over(Net::Iroh(Token::random()));
}

#[test]
fn a_full_game_says_so() {
    let (door, host) = host(plan(2, 240), vec![]);
    let guest = join(&door, 2, manner(240), vec![]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let third = join(&door, 3, manner(240), vec![]).join().unwrap().0;
    assert_eq!(third, Err(Failure::Refused(Refusal::Full)));
    assert_well(host.join().unwrap(), "host", 240);
    assert_well(guest.join().unwrap(), "guest", 240);
}

#[test]
fn another_game_is_not_played() {
    let (door, host) = host(plan(2, 240), vec![]);
    let mut bot = Bot::new(2, vec![]);
    let guest = knock(&door, Wish::Play(1), Identity::random(), &mut bot).expect("let in");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().expect("an image") ^= 1;
    let failure = guest.sit_down(Box::new(Nes::open(&image, "other").unwrap()), manner(240)).err();
    assert!(matches!(&failure, Some(Failure::Different(points)) if points[0].contains("game")), "{failure:?}");
    // Its seat is free again.
    let guest = join(&door, 3, manner(240), vec![]);
    assert_well(host.join().unwrap(), "host", 240);
    assert_well(guest.join().unwrap(), "guest", 240);
}

/// A host whose settings have more players than the machine of the guest: the guest used to panic with the first input.
#[test]
fn a_host_with_more_players_than_the_machine_is_refused() {
    let (transport, incoming) = listen(&Net::Udp, Identity::random());
    let door = Door { net: Net::Udp, place: transport.own_places().remove(0) };
    let mut bot = Bot::new(1, vec![]);
    let (asked, seen) = (bot.asked.clone(), bot.seen.clone());
    let host = spawn(move || {
        let machine = Box::new(Wide::new(nes()));
        Drive::host(transport, incoming, machine, &plan(2, 240)).expect("a sound plan").run(&mut bot)
    });
    for wish in [Wish::Play(1), Wish::Watch] {
        let guest = knock(&door, wish, Identity::random(), &mut Bot::new(2, vec![])).expect("let in");
        let failure = match wish {
            Wish::Watch => guest.look_on(nes(), WatchPlan::default()).err(),
            _ => guest.sit_down(nes(), manner(240)).err(),
        };
        let differs = "the number of players differs: 5 here, 7 there".to_owned();
        assert_eq!(failure, Some(Failure::Different(vec![differs])), "{wish:?}");
    }
    asked.lock().unwrap().push_back(Command::Quit);
    assert!(host.join().unwrap().is_ok() && seen.lock().unwrap().pictures.is_empty());
}

/// A machine that claims to be another one, with two pads more.
struct Wide {
    machine: Box<dyn Machine>,
    pads: Vec<Pad>,
}

impl Wide {
    fn new(machine: Box<dyn Machine>) -> Self {
        let pads = machine.pads().iter().chain(&machine.pads()[..2]).cloned().collect();
        Self { machine, pads }
    }
}

impl Machine for Wide {
    fn machine_id(&self) -> &MachineId {
        self.machine.machine_id()
    }

    fn game_id(&self) -> &GameId {
        self.machine.game_id()
    }

    fn rate(&self) -> FrameRate {
        self.machine.rate()
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

    fn sound_rate(&self) -> f64 {
        self.machine.sound_rate()
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
fn knock_in_vain(net: Net, place: Place, expect: Option<PeerKey>) -> (Failure, Duration) {
    let begun = Instant::now();
    let door = Door { net, place };
    let (transport, incoming) = listen(&door.net, Identity::random());
    let plan = JoinPlan { expect, patience: TimeDelta::from_secs(60), ..join_plan(&door, Wish::Play(1)) };
    let failure = Guest::knock(transport, incoming, &plan, &mut Bot::new(2, vec![])).err();
    (failure.expect("nobody opens"), begun.elapsed())
}

#[test]
fn a_wrong_secret_is_told_early() {
    let (queue, _incoming) = sync_channel(64);
    let addr = "127.0.0.1:0".parse().unwrap();
    let host = Udp::listen(addr, Identity::random(), Secret::from_text("chess"), queue).unwrap();
    let place = host.own_places().remove(0);
    let (failure, took) = knock_in_vain(Net::Udp, place.clone(), None);
    assert_eq!(failure, Failure::Unanswered { place, refused: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn a_wrong_token_is_told_early() {
    let (host, _incoming) = listen(&Net::Iroh(Token::random()), Identity::random());
    let place = host.own_places().remove(0);
    let (failure, took) = knock_in_vain(Net::Iroh(Token::random()), place.clone(), None);
    assert_eq!(failure, Failure::Unanswered { place, refused: true });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    let told = failure.to_string();
    assert!(told.contains("127.0.0.1:") && told.len() < 80, "{told}");
}

#[test]
fn a_stranger_at_the_only_place_is_told_early() {
    let (host, _incoming) = listen(&Net::Udp, Identity::random());
    let place = host.own_places().remove(0);
    let (failure, took) = knock_in_vain(Net::Udp, place.clone(), Some(Identity::random().key()));
    assert_eq!(failure, Failure::Stranger { place });
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

/// Before the game begins everybody knows how far away the others are; and who looks on is heard.
#[test]
fn the_lobby_measures_and_the_stand_is_heard() {
    let (door, host) = host(plan(3, 400), vec![(0, Command::Start)]);
    let fan = watch(&door, 300, vec![(60, Command::Chat("what a game".into()))]);
    let guest = join(&door, 2, manner(400), vec![]);
    let one = assert_well(host.join().unwrap(), "host", 400);
    let other = assert_well(guest.join().unwrap(), "guest", 400);
    let fan = assert_well(fan.join().unwrap(), "fan", 300);
    let (one, other, fan) = (one.lock().unwrap(), other.lock().unwrap(), fan.lock().unwrap());
    assert_eq!((&one.trips, &other.trips), (&BTreeSet::from([1]), &BTreeSet::from([0])));
    assert_eq!(fan.trips, BTreeSet::from([0]), "the way to the host");
    for seen in [&one, &other, &fan] {
        assert_eq!((&seen.chats[..], seen.most_watchers), (&["fan: what a game".to_owned()][..], 1));
    }
}

/// Somebody who knows everything about a game, and asks for what is played in it without having asked to be let in; what it is sent in the
/// next two seconds.
fn peep(door: &Door, party: &Party) -> usize {
    let (transport, incoming) = listen(&door.net, Identity::random());
    let settings = Settings::from_bytes(&party.terms).expect("sound terms");
    let config = SpectatorConfig::new(party.session, settings, vec![Addr(0)]);
    let mut watcher = Spectator::new(clock::now(), config).expect("a sound plan");
    transport.call(&door.place, None);
    let (until, mut host, mut answers, mut buf) = (clock::now() + TimeDelta::from_secs(2), None, 0, [0; MAX_DATAGRAM]);
    while clock::now() < until {
        match incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Up { peer, .. }) => host = Some(peer),
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
fn a_private_game_is_shown_to_nobody() {
    for private in [false, true] {
        let (door, host) = host(HostPlan { private, ..plan(2, 400) }, vec![]);
        let mut bot = Bot::new(2, vec![]);
        let seen = bot.seen.clone();
        let peeper = {
            let door = door.clone();
            spawn(move || {
                let until = Instant::now() + Duration::from_secs(30);
                while seen.lock().unwrap().pictures.is_empty() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let party = seen.lock().unwrap().party.clone();
                peep(&door, &party.expect("the game has begun"))
            })
        };
        let guest = knock(&door, Wish::Play(1), Identity::random(), &mut bot).expect("let in");
        let mut drive = guest.sit_down(nes(), manner(400)).expect("the same game");
        assert_well((drive.run(&mut bot), bot.seen), "guest", 400);
        assert_well(host.join().unwrap(), "host", 400);
        assert_eq!(peeper.join().unwrap() == 0, private, "private: {private}");
    }
}

/// A transport that can be reached elsewhere after a while.
struct Mover {
    transport: Arc<dyn Transport>,
    since: Instant,
    place: Place,
}

impl Transport for Mover {
    fn key(&self) -> PeerKey {
        self.transport.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        self.transport.send(to, bytes)
    }

    fn call(&self, place: &Place, expect: Option<PeerKey>) {
        self.transport.call(place, expect);
    }

    fn hang_up(&self, peer: &PeerKey) {
        self.transport.hang_up(peer);
    }

    fn place_of(&self, peer: &PeerKey) -> Option<Place> {
        self.transport.place_of(peer)
    }

    fn own_places(&self) -> Vec<Place> {
        let moved = (self.since.elapsed() > Duration::from_secs(2)).then(|| self.place.clone());
        self.transport.own_places().into_iter().chain(moved).collect()
    }

    fn refused(&self) -> Refused {
        self.transport.refused()
    }
}

fn mover(place: &str) -> Listening {
    let (transport, incoming) = listen(&Net::Udp, Identity::random());
    (Arc::new(Mover { transport, since: Instant::now(), place: Place(place.into()) }), incoming)
}

#[test]
fn who_can_be_reached_elsewhere_tells_the_others() {
    let (transport, incoming) = mover("192.0.2.1:1");
    let door = Door { net: Net::Udp, place: transport.own_places().remove(0) };
    let host = spawn(move || {
        let mut bot = Bot::new(1, vec![]);
        let mut drive = Drive::host(transport, incoming, nes(), &plan(2, 600)).expect("a sound plan");
        (drive.run(&mut bot), bot.seen)
    });
    let (transport, incoming) = mover("192.0.2.2:2");
    let mut bot = Bot::new(2, vec![]);
    let guest = Guest::knock(transport, incoming, &join_plan(&door, Wish::Play(1)), &mut bot);
    let mut drive = guest.expect("let in").expect("nobody quits").sit_down(nes(), manner(600)).expect("the same game");
    let other = assert_well((drive.run(&mut bot), bot.seen), "guest", 600);
    let one = assert_well(host.join().unwrap(), "host", 600);
    for seen in [one, other] {
        let places = &seen.lock().unwrap().places;
        assert!(places.contains("192.0.2.1:1") && places.contains("192.0.2.2:2"), "{places:?}");
    }
}

/// A file that is gone when the test is over.
struct Film(PathBuf);

impl Film {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("coplay-drive-{name}-{}", std::process::id())))
    }

    fn tape(&self) -> Tape {
        Tape::new(std::fs::File::create(&self.0).expect("it can be made"))
    }

    /// Plays it on a new machine; the inputs by frame.
    fn replay(&self) -> BTreeMap<u32, Vec<InputWord>> {
        let bytes = std::fs::read(&self.0).expect("it is there");
        let (mut reader, mut rest) = (MovieReader::new(), &bytes[..]);
        let (mut machine, mut checked, mut all) = (Controlled::new(nes()), HashComparison::default(), BTreeMap::new());
        loop {
            rest = &rest[reader.push(rest)..];
            match reader.poll().expect("a sound movie") {
                Some(MovieEntry::Header { settings, .. }) => assert!(is_controlled(settings)),
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

impl Drop for Film {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Everybody's movie has the same in it, with all that was done to the machine, and does the same on another machine.
#[test]
fn what_is_played_is_on_record() {
    let films = ["host", "guest", "late", "fan"].map(Film::new);
    let (transport, incoming) = listen(&Net::Udp, Identity::random());
    let door = Door { net: Net::Udp, place: transport.own_places().remove(0) };
    let press = |frame, control| (frame, Command::Control(control));
    let tape = films[0].tape();
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let seen_by_host = seen.clone();
    let host = spawn(move || {
        let all = [(60, Control::Pause), (90, Control::Pause), (120, Control::Keep), (200, Control::Recall)];
        let commands = [(0, Command::Start)].into_iter().chain(all.map(|(frame, control)| press(frame, control)));
        let mut bot = Bot { seen: seen_by_host, ..Bot::new(1, commands.collect()) };
        let mut drive = Drive::host(transport, incoming, nes(), &plan(3, 900)).expect("a sound plan");
        drive.set_tape(tape);
        (drive.run(&mut bot), bot.seen)
    });
    // Sits down when the host is at a frame.
    let sit = |film: &Film, seed: u64, reset: u32, frame: usize| {
        let (door, tape, seen) = (door.clone(), film.tape(), seen.clone());
        spawn(move || {
            let until = Instant::now() + Duration::from_secs(60);
            while seen.lock().unwrap().pictures.len() < frame && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut bot = Bot::new(seed, vec![press(reset, Control::Reset)]);
            let guest = knock(&door, Wish::Play(1), Identity::random(), &mut bot).expect("let in");
            let mut drive = guest.sit_down(nes(), manner(900)).expect("the same game");
            drive.set_tape(tape);
            (drive.run(&mut bot), bot.seen)
        })
    };
    let (guest, late) = (sit(&films[1], 2, 250, 0), sit(&films[2], 3, 500, 120));
    let fan = {
        let (door, tape) = (door.clone(), films[3].tape());
        spawn(move || {
            let mut bot = Bot::new(9, vec![]);
            let guest = knock(&door, Wish::Watch, Identity::random(), &mut bot).expect("let in");
            let mut watch = guest.look_on(nes(), WatchPlan { frames: Some(500) }).expect("the same game");
            watch.set_tape(tape);
            (watch.run(&mut bot), bot.seen)
        })
    };
    for (thread, what) in [(host, "host"), (guest, "guest"), (late, "late"), (fan, "fan")] {
        let ran = thread.join().unwrap();
        let taped = ran.0.as_ref().ok().and_then(|outcome| outcome.taped.clone()).expect("a movie was wanted");
        assert!(taped.trouble.is_none() && taped.frames > 60, "{what}: {taped:?}");
        assert_well(ran, what, 500);
    }
    let all = films.each_ref().map(Film::replay);
    assert_eq!((all[0].keys().next(), all[1].keys().next()), (Some(&0), Some(&0)));
    for other in &all[1..] {
        let common = other.iter().filter(|(frame, _)| all[0].contains_key(frame)).count();
        assert!(common > 60 && other.iter().all(|(frame, words)| all[0].get(frame).is_none_or(|here| here == words)));
    }
    let control = all[0].values().next().map_or(0, |words| words.len() - 1);
    let pressed = all[0].values().fold(0, |all, words| all | words[control]);
    assert_eq!(pressed & Control::mask(0), Control::mask(0) & !Control::Reset.bit(0));
    assert_ne!(pressed & Control::Reset.bit(1), 0);
}

/// A transport whose way out can be cut.
struct Wire {
    transport: Arc<dyn Transport>,
    cut: Arc<AtomicBool>,
}

impl Transport for Wire {
    fn key(&self) -> PeerKey {
        self.transport.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        !self.cut.load(Ordering::Relaxed) && self.transport.send(to, bytes)
    }

    fn call(&self, place: &Place, expect: Option<PeerKey>) {
        self.transport.call(place, expect);
    }

    fn hang_up(&self, peer: &PeerKey) {
        self.transport.hang_up(peer);
    }

    fn place_of(&self, peer: &PeerKey) -> Option<Place> {
        self.transport.place_of(peer)
    }

    fn own_places(&self) -> Vec<Place> {
        self.transport.own_places()
    }

    fn refused(&self) -> Refused {
        self.transport.refused()
    }
}

/// A player who does what the test says.
struct Player {
    thread: JoinHandle<Result<Outcome, Failure>>,
    seen: Arc<Mutex<Seen>>,
    asked: Arc<Mutex<VecDeque<Command>>>,
    /// Where it can be reached.
    door: Door,
}

impl Player {
    /// Hosts a game, or takes a seat in one; the way out can be cut.
    fn start(door: Option<&Door>, seed: u64, manner: Manner, cut: &Arc<AtomicBool>) -> Self {
        let (transport, incoming) = listen(&Net::Udp, Identity::random());
        let transport = Arc::new(Wire { transport, cut: cut.clone() });
        let own = Door { net: Net::Udp, place: transport.own_places().remove(0) };
        let mut bot = Bot::new(seed, vec![]);
        let (seen, asked, door) = (bot.seen.clone(), bot.asked.clone(), door.cloned());
        let thread = spawn(move || match door {
            None => Drive::host(transport, incoming, nes(), &HostPlan { manner, ..plan(2, 1) })?.run(&mut bot),
            Some(door) => {
                let guest = Guest::knock(transport, incoming, &join_plan(&door, Wish::Play(1)), &mut bot)?;
                guest.expect("nobody quits").sit_down(nes(), manner)?.run(&mut bot)
            }
        });
        Self { thread, seen, asked, door: own }
    }

    fn ask(&self, command: Command) {
        self.asked.lock().unwrap().push_back(command);
    }

    #[track_caller]
    fn wait_until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds(&self.seen.lock().unwrap()) {
            let seen = self.seen.lock().unwrap();
            assert!(Instant::now() < until && !self.thread.is_finished(), "{what} does not come: {:?}", seen.events);
            drop(seen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn wait_for_more(&self, frames: u32) {
        let newest = |seen: &Seen| seen.pictures.keys().next_back().copied().unwrap_or(0);
        let now = newest(&self.seen.lock().unwrap());
        self.wait_until("more frames", |seen| newest(seen) >= now + frames);
    }

    /// Number of times that the runner reported that this player plays on alone.
    fn notices(&self) -> usize {
        self.seen.lock().unwrap().alone
    }

    /// Waits for another notice; returns their number.
    #[track_caller]
    fn wait_for_notice(&self, before: usize) -> usize {
        self.wait_until("the notice", |seen| seen.alone > before);
        self.notices()
    }

    #[track_caller]
    fn quit(self) -> Arc<Mutex<Seen>> {
        self.ask(Command::Quit);
        assert_well((self.thread.join().unwrap(), self.seen), "who quits", 1)
    }
}

fn patient(seconds: i64, alone: Alone) -> Manner {
    Manner { drop_after: Some(TimeDelta::from_secs(seconds)), alone, ..Manner::default() }
}

fn joined(seen: &Seen, site: u8) -> bool {
    seen.events.iter().any(|event| matches!(event, Event::Joined { site: joined, .. } if joined.number() == site))
}

#[test]
fn who_is_left_plays_on_and_another_takes_the_seat() {
    for host_leaves in [false, true] {
        let together = Arc::new(AtomicBool::new(false));
        let host = Player::start(None, 1, patient(5, Alone::Wait), &together);
        let guest = Player::start(Some(&host.door), 2, patient(5, Alone::Wait), &together);
        guest.wait_for_more(60);
        let (leaves, stays, seat) = if host_leaves { (host, guest, 0) } else { (guest, host, 1) };
        leaves.quit();
        let notices = stays.wait_for_notice(0);
        // It used to end a second later.
        stays.wait_for_more(150);
        let again = Player::start(Some(&stays.door), 3, patient(5, Alone::Wait), &together);
        [&again, &stays].iter().for_each(|player| player.wait_until("the seat", |seen| joined(seen, seat)));
        again.wait_for_more(60);
        again.quit();
        stays.wait_for_notice(notices);
        stays.quit();
    }
}

#[test]
fn who_is_told_to_goes_on_alone_when_the_host_is_gone() {
    for alone in [Alone::Ask, Alone::GoOn] {
        let cut = Arc::new(AtomicBool::new(false));
        let host = Player::start(None, 1, patient(3, Alone::Wait), &cut);
        let guest = Player::start(Some(&host.door), 2, patient(3, alone), &cut);
        guest.wait_for_more(60);
        guest.wait_until("no offer while the host is heard", |seen| !seen.can_go_on_alone);
        let notices = guest.notices();
        cut.store(true, Ordering::Relaxed);
        if alone == Alone::Ask {
            guest.wait_until("the offer", |seen| seen.can_go_on_alone);
            assert_eq!(guest.notices(), notices, "nobody has decided yet");
            guest.ask(Command::GoOnAlone);
        }
        guest.wait_for_notice(notices);
        guest.wait_for_more(120);
        guest.quit();
        host.quit();
    }
}

/// Both of two go on alone, one some seconds before the other. When they meet the later one comes back to the game of the other; then
/// there is one list, and one game.
fn both_go_on_alone(patience: [i64; 2], kept: usize) {
    let cut = Arc::new(AtomicBool::new(false));
    let host = Player::start(None, 1, patient(patience[0], Alone::GoOn), &cut);
    let guest = Player::start(Some(&host.door), 2, patient(patience[1], Alone::GoOn), &cut);
    let both = [&host, &guest];
    guest.wait_for_more(60);
    let notices = both.map(Player::notices);
    cut.store(true, Ordering::Relaxed);
    both.iter().zip(notices).for_each(|(player, notices)| _ = player.wait_for_notice(notices));
    both.iter().for_each(|player| player.wait_for_more(60));
    cut.store(false, Ordering::Relaxed);
    for (site, player) in both.iter().enumerate() {
        let told = |event: &Event| matches!(event, Event::SplitBrainResolved { is_own_game_kept: ours, .. } if *ours == (site == kept));
        player.wait_until("that both were alone", |seen| seen.events.iter().any(told));
    }
    let back = 1 - kept as u8;
    both.iter().for_each(|player| player.wait_until("who comes back", |seen| joined(seen, back)));
    both.iter().for_each(|player| player.wait_for_more(60));
    host.ask(Command::Chat("here again".into()));
    guest.ask(Command::Chat("so am I".into()));
    for player in both {
        player.wait_until("what both say", |seen| seen.chats.len() == 2);
    }
    let list = |player: &Player| {
        let party = player.seen.lock().unwrap().party.clone()?;
        Some((party.serial, party.members))
    };
    host.wait_until("the same list with both on it", |seen| {
        let ours = seen.party.as_ref().map(|party| (party.serial, party.members.clone()));
        ours == list(&guest)
            && ours.is_some_and(|(_, members)| members.iter().filter(|member| member.here).count() == 2)
    });
    let notices = both.map(Player::notices);
    assert_eq!(guest.quit().lock().unwrap().alone, notices[1], "the guest is no longer alone when it quits");
    host.wait_for_notice(notices[0]);
    host.quit();
}

#[test]
fn two_who_went_on_alone_play_the_game_of_the_host_again() {
    both_go_on_alone([3, 6], 0);
}

#[test]
fn two_who_went_on_alone_play_the_game_of_the_guest_again() {
    both_go_on_alone([6, 3], 1);
}
