//! Whole games of real processes over real sockets, with bots for players.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Place, arg};

/// Nothing here takes longer, even where the computer has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; it is gone when the test is.
struct Run {
    what: String,
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
}

impl Run {
    fn start(place: &Place, args: &[&str]) -> Self {
        let mut child = place.program().args(args).env("USER", "tester").spawn().expect("the program starts");
        let out = gather(child.stdout.take().expect("it is piped"));
        let err = gather(child.stderr.take().expect("it is piped"));
        Self { what: args.join(" "), child, out, err }
    }

    fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits until it complains of something.
    #[track_caller]
    fn wait_for(&self, words: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.err().contains(words) {
            assert!(Instant::now() < until, "{words:?} does not come from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ticket that a host shows.
    #[track_caller]
    fn ticket(&self) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some((ticket, _)) = self.out().split_once('\n') {
                return ticket.to_owned();
            }
            assert!(Instant::now() < until, "no ticket from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its end; the exit code.
    #[track_caller]
    fn code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                // What it said last may still be on its way.
                std::thread::sleep(Duration::from_millis(100));
                return status.code();
            }
            assert!(Instant::now() < until, "{self} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn assert_ends_well(&mut self) {
        let code = self.code();
        assert!(code == Some(0) && self.out().contains("states equal yes"), "code {code:?} of {self}");
    }

    #[track_caller]
    fn assert_fails(&mut self, code: i32, words: &[&str]) {
        let ended = self.code();
        let err = self.err();
        assert!(
            ended == Some(code) && words.iter().all(|word| err.contains(word)),
            "code {ended:?}, not {words:?} of {self}"
        );
        assert!(err.contains("\nhint: "), "{self}");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is everywhere").success());
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "coplay {}\n--- out:\n{}--- err:\n{}", self.what, self.out(), self.err())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Gathers what comes, on a thread of its own.
fn gather(from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = text.clone();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|read| read > 0) {
            into.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
    text
}

/// A place with a game in it.
fn place(name: &str) -> (Place, PathBuf) {
    let place = Place::new(name);
    let game = place.file("game.nes", &coplay_testcores::images::nes());
    (place, game)
}

fn host(place: &Place, game: &Path, more: &[&str]) -> Run {
    let all = ["host", arg(game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    Run::start(place, &[&all[..], more].concat())
}

fn join(place: &Place, ticket: &str, game: &Path, more: &[&str]) -> Run {
    let all = ["join", ticket, arg(game), "--headless", "--bot", "2"];
    Run::start(place, &[&all[..], more].concat())
}

/// The hash after every frame, as it was in the end.
fn hashes(path: &Path) -> BTreeMap<u32, String> {
    let text = std::fs::read_to_string(path).expect("the log can be read");
    let step = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0].parse().expect("a frame"), fields[4].to_owned())
    };
    text.lines().skip(1).map(step).collect()
}

/// Two logs agree on all frames before this one that both have; so many there are.
#[track_caller]
fn assert_equal_before(frame: u32, one: &Path, other: &Path) -> usize {
    let (one, other) = (hashes(one), hashes(other));
    let common: Vec<u32> =
        one.range(..frame).map(|(frame, _)| *frame).filter(|frame| other.contains_key(frame)).collect();
    for frame in &common {
        assert_eq!(one[frame], other[frame], "after frame {frame}");
    }
    let states: std::collections::BTreeSet<&String> = common.iter().map(|frame| &one[frame]).collect();
    assert!(states.len() * 2 > common.len(), "hardly anything happened in this game");
    common.len()
}

#[test]
fn two_play_the_same_game() {
    let (place, game) = place("net-two");
    let files = |who: &str| [place.at(&format!("{who}.csv")), place.at(&format!("{who}.json"))];
    let (ann, bob) = (files("ann"), files("bob"));
    let logs = |files: &[PathBuf; 2]| {
        ["--frames", "600", "--frame-log", arg(&files[0]), "--stats", arg(&files[1])].map(str::to_owned)
    };
    let (for_ann, for_bob) = (logs(&ann), logs(&bob));
    let mut host = host(&place, &game, &for_ann.each_ref().map(String::as_str));
    let ticket = host.ticket();
    assert!(
        ticket.starts_with("udp://127.0.0.1:") && host.err().contains(&format!("coplay join '{ticket}'")),
        "{host}"
    );
    // The guest finds the game by what is in it.
    place.file("config/coplay/settings.toml", format!("games = [{:?}]\n", place.at("")).as_bytes());
    let args = ["join", &ticket, "--headless", "--bot", "2", "--name", "Bob"];
    let mut guest = Run::start(&place, &[&args[..], &for_bob.each_ref().map(String::as_str)].concat());
    host.assert_ends_well();
    guest.assert_ends_well();
    assert_eq!(assert_equal_before(600, &ann[0], &bob[0]), 600);
    assert!(host.err().contains("Bob (seat 2"), "{host}");
    let stats = std::fs::read_to_string(&bob[1]).unwrap();
    assert!(stats.starts_with('{') && stats.contains("\"rtt_ms\":") && stats.contains("\"site\":0"), "{stats}");
}

#[test]
fn who_does_not_know_the_secret_stays_outside() {
    let (place, game) = place("net-secret");
    let host = host(&place, &game, &["--secret", "tennis"]);
    let ticket = host.ticket();
    let wrong = ticket.replace("#tennis", "#squash");
    join(&place, &wrong, &game, &[]).assert_fails(1, &["does not know our secret"]);
    assert!(!host.err().contains("seat 2"), "{host}");
}

#[test]
fn a_full_game_and_a_private_one_say_so() {
    let (place, game) = place("net-full");
    let host = host(&place, &game, &["--private"]);
    let ticket = host.ticket();
    let _guest = join(&place, &ticket, &game, &[]);
    host.wait_for("the game starts");
    join(&place, &ticket, &game, &[]).assert_fails(1, &["the game is full", "coplay watch"]);
    Run::start(&place, &["watch", &ticket, arg(&game), "--headless"]).assert_fails(1, &["nobody may watch"]);
}

#[test]
fn another_game_is_told_and_gives_the_seat_back() {
    let (place, game) = place("net-other");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().unwrap() ^= 1;
    let other = place.file("other.nes", &image);
    let host = host(&place, &game, &[]);
    let ticket = host.ticket();
    join(&place, &ticket, &other, &[]).assert_fails(1, &["the host plays something else", "the game"]);
    // Without a file of its own it has nothing that fits.
    let mut guest = Run::start(&place, &["join", &ticket, "--headless"]);
    guest.assert_fails(1, &["is not here", "SHA-256", "never sent"]);
    let _guest = join(&place, &ticket, &game, &[]);
    host.wait_for("the game starts");
}

#[test]
fn what_cannot_be_is_told() {
    let (place, game) = place("net-wrong");
    let first = host(&place, &game, &[]);
    let ticket = first.ticket();
    let port = ticket.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once('#')).unwrap().0.to_owned();
    let taken = ["host", arg(&game), "--headless", "--udp", &format!("127.0.0.1:{port}")];
    Run::start(&place, &taken).assert_fails(1, &["is taken by another program"]);
    let elsewhere = ["host", arg(&game), "--headless", "--udp", "192.0.2.7:0"];
    Run::start(&place, &elsewhere).assert_fails(1, &["is no address of this computer"]);
    let nobody = ["join", "udp://no.such.host.invalid:7000#x", arg(&game), "--headless"];
    Run::start(&place, &nobody).assert_fails(1, &["there is no computer called"]);
    for bad in ["tennis", "udp://127.0.0.1:7000", "udp://127.0.0.1#x"] {
        Run::start(&place, &["join", bad, "--headless"]).assert_fails(2, &["this is no ticket"]);
    }
    let many = ["host", arg(&game), "--headless", "--players", "2", "--pads", "3"];
    Run::start(&place, &many).assert_fails(2, &["3 cannot play here"]);
    Run::start(&place, &["host", "--headless", "--drop-after", "soon"]).assert_fails(2, &["never"]);
}

#[test]
#[cfg(unix)]
fn who_was_killed_is_back_in_its_seat() {
    let (place, game) = place("net-killed");
    let log = place.at("ann.csv");
    let mut host = host(&place, &game, &["--frames", "600", "--drop-after", "1", "--frame-log", arg(&log)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", "1"];
    let mut guest = join(&place, &ticket, &game, &args);
    guest.wait_for("the game starts");
    std::thread::sleep(Duration::from_secs(2));
    guest.signal("-KILL");
    assert_eq!(guest.code(), None);
    host.wait_for("Bob is lost");
    let again = place.at("bob.csv");
    let mut guest =
        join(&place, &ticket, &game, &[&args[..], &["--frames", "600", "--frame-log", arg(&again)]].concat());
    host.wait_for("Bob plays");
    host.assert_ends_well();
    guest.assert_ends_well();
    assert!(guest.err().contains("Bob (seat 2"), "{guest}");
    let common = assert_equal_before(600, &log, &again);
    assert!(common > 60, "only {common} frames together");
}

#[test]
#[cfg(unix)]
fn who_watches_sees_the_same_and_who_is_interrupted_leaves_properly() {
    let (place, game) = place("net-watch");
    let (ann, eve) = (place.at("ann.csv"), place.at("eve.csv"));
    let mut host = host(&place, &game, &["--frame-log", arg(&ann)]);
    let ticket = host.ticket();
    let mut guest = join(&place, &ticket, &game, &["--name", "Bob"]);
    host.wait_for("the game starts");
    let args = ["watch", &ticket, arg(&game), "--headless", "--frames", "300", "--frame-log", arg(&eve)];
    let mut watch = Run::start(&place, &args);
    host.wait_for("1 watching");
    watch.assert_ends_well();
    guest.signal("-INT");
    assert_eq!(guest.code(), Some(0), "{guest}");
    host.wait_for("Bob left");
    host.signal("-TERM");
    assert_eq!(host.code(), Some(0), "{host}");
    assert!(assert_equal_before(300, &ann, &eve) > 60);
}

#[test]
fn the_others_go_on_when_the_host_leaves() {
    let (place, game) = place("net-three");
    let (bob, eve) = (place.at("bob.csv"), place.at("eve.csv"));
    let mut host = host(&place, &game, &["--players", "3", "--frames", "200"]);
    let ticket = host.ticket();
    let guest = |name, log| join(&place, &ticket, &game, &["--name", name, "--frames", "420", "--frame-log", arg(log)]);
    let (mut second, mut third) = (guest("Bob", &bob), guest("Eve", &eve));
    host.assert_ends_well();
    second.wait_for("Ann left");
    second.assert_ends_well();
    third.assert_ends_well();
    assert_eq!(assert_equal_before(420, &bob, &eve), 420);
}
