//! Running programs that play with each other, and what they leave behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Place, arg};

/// Nothing here takes longer, even where the computer has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running program; it is gone when the test is.
pub struct Run {
    what: String,
    child: Child,
    out: Gathered,
    err: Gathered,
    patience: Duration,
}

impl Run {
    pub fn start(place: &Place, args: &[&str]) -> Self {
        Self::start_as(place.program(), args)
    }

    /// Starts a program that was dressed by a place.
    pub fn start_as(mut program: Command, args: &[&str]) -> Self {
        let mut child = program.args(args).env("USER", "tester").spawn().expect("the program starts");
        let out = gather(child.stdout.take().expect("it is piped"));
        let err = gather(child.stderr.take().expect("it is piped"));
        Self { what: args.join(" "), child, out, err, patience: PATIENCE }
    }

    /// It may take so much longer.
    pub fn patient(mut self, longer: Duration) -> Self {
        self.patience += longer;
        self
    }

    pub fn out(&self) -> String {
        self.out.text()
    }

    pub fn err(&self) -> String {
        self.err.text()
    }

    /// Waits until it complains of something.
    #[track_caller]
    pub fn wait_for(&self, words: &str) {
        let until = Instant::now() + self.patience;
        while !self.err().contains(words) {
            assert!(Instant::now() < until, "{words:?} does not come from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ticket that a host shows.
    #[track_caller]
    pub fn ticket(&self) -> String {
        let until = Instant::now() + self.patience;
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
    pub fn code(&mut self) -> Option<i32> {
        let until = Instant::now() + self.patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                self.out.wait_for_all(until);
                self.err.wait_for_all(until);
                return status.code();
            }
            assert!(Instant::now() < until, "{self} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn assert_ends_well(&mut self) {
        let code = self.code();
        assert!(code == Some(0) && self.out().contains("states equal yes"), "code {code:?} of {self}");
    }

    #[track_caller]
    pub fn assert_fails(&mut self, code: i32, words: &[&str]) {
        let ended = self.code();
        let err = self.err();
        assert!(
            ended == Some(code) && words.iter().all(|word| err.contains(word)),
            "code {ended:?}, not {words:?} of {self}"
        );
        assert!(err.contains("\nhint: "), "{self}");
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    pub fn signal(&self, signal: &str) {
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

/// What comes out of a program, gathered on a thread of its own.
struct Gathered {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

impl Gathered {
    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// What it said last may still be on its way when a program has ended.
    fn wait_for_all(&self, until: Instant) {
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn gather(from: impl Read + Send + 'static) -> Gathered {
    let text = Arc::new(Mutex::new(String::new()));
    let into = text.clone();
    let thread = std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|read| read > 0) {
            into.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
    Gathered { text, thread }
}

/// A place with a game in it.
pub fn place(name: &str) -> (Place, PathBuf) {
    let place = Place::new(name);
    let game = place.file("game.nes", &coplay_testcores::images::nes());
    (place, game)
}

pub fn host(place: &Place, game: &Path, more: &[&str]) -> Run {
    let all = ["host", arg(game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    Run::start(place, &[&all[..], more].concat())
}

pub fn join(place: &Place, ticket: &str, game: &Path, more: &[&str]) -> Run {
    let all = ["join", ticket, arg(game), "--headless", "--bot", "2"];
    Run::start(place, &[&all[..], more].concat())
}

/// The value of a number in what `--stats` wrote.
#[track_caller]
pub fn number(stats: &Path, name: &str) -> f64 {
    let text = std::fs::read_to_string(stats).expect("the numbers can be read");
    let rest = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {text}")).1;
    let end = rest.find([',', '}']).expect("something follows");
    rest[..end].parse().unwrap_or_else(|_| panic!("{name} is no number in {text}"))
}

/// The hash after every frame, as it was in the end.
pub fn hashes(path: &Path) -> BTreeMap<u32, String> {
    let text = std::fs::read_to_string(path).expect("the log can be read");
    let step = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0].parse().expect("a frame"), fields[4].to_owned())
    };
    text.lines().skip(1).map(step).collect()
}

/// Two logs agree on all frames before this one that both have; so many there are.
#[track_caller]
pub fn assert_equal_before(frame: u32, one: &Path, other: &Path) -> usize {
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
