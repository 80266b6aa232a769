//! Whole games over real sockets, each site on a thread of its own.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

use coplay::frame::Frame;
use coplay::input::Word;
use coplay::session::{Absent, Event};
use coplay::time::TimeDelta;
use coplay_machines::Machine;
use coplay_machines::control::Control;
use coplay_machines::hosted::Terms;
use coplay_machines::nes::{Nes, Options};
use coplay_net::drive::{Command, Drive, Failure, Front, Guest, HostPlan, JoinPlan, Manner, News, Outcome, WatchPlan};
use coplay_net::iroh::{Iroh, Relay};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::party::{Refusal, Wish};
use coplay_net::udp::Udp;
use coplay_net::{Incoming, Place, Transport};

/// Presses at random, and notes what it sees.
struct Bot {
    luck: u64,
    held: Word,
    commands: Vec<(u32, Command)>,
    frame: u32,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    chats: Vec<String>,
    events: Vec<Event>,
    ready: usize,
    /// A picture's hash by frame: two sites that show other pictures play other games.
    pictures: BTreeMap<u32, u64>,
}

impl Bot {
    fn new(seed: u64, commands: Vec<(u32, Command)>) -> Self {
        Self { luck: seed, held: 0, commands, frame: 0, seen: Arc::default() }
    }

    fn draw(&mut self) -> u64 {
        self.luck = self.luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.luck >> 33
    }
}

impl Front for Bot {
    fn sample(&mut self, pads: &mut [Word]) {
        if self.draw().is_multiple_of(8) {
            self.held = Word::from(self.draw() & 0x1ff);
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
            News::Party(party) => seen.ready = party.members.iter().filter(|member| member.ready).count(),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Command> {
        // Nobody starts alone.
        let ready = self.seen.lock().unwrap().ready >= 2;
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
        absent: Absent::Nothing,
        private: false,
        manner: manner(frames),
    }
}

fn manner(frames: u32) -> Manner {
    Manner { frames: Some(frames), drop_after: Some(TimeDelta::from_millis(800)), ..Manner::default() }
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
    let (transport, incoming) = listen(&net, Identity::random());
    let door = Door { net, place: transport.own_places().remove(0) };
    let thread = spawn(move || {
        let mut bot = Bot::new(1, commands);
        let seen = Arc::clone(&bot.seen);
        let mut drive = Drive::host(transport, incoming, nes(), &plan).expect("a sound plan");
        (drive.run(&mut bot), seen)
    });
    (door, thread)
}

fn knock(door: &Door, wish: Wish, identity: Identity, bot: &mut Bot) -> Result<Guest, Failure> {
    let (transport, incoming) = listen(&door.net, identity);
    let plan = JoinPlan {
        name: "guest".into(),
        wish,
        places: vec![door.place.clone()],
        expect: None,
        patience: TimeDelta::from_secs(8),
    };
    Guest::knock(transport, incoming, &plan, bot).map(|guest| guest.expect("nobody quits"))
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

fn watch(door: &Door, frames: u32) -> JoinHandle<Ran> {
    let door = door.clone();
    spawn(move || {
        let mut bot = Bot::new(9, vec![]);
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
    let fourth = watch(&door, 600);
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
