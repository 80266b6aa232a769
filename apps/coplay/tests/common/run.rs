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

/// A step of a machine, as a frame log tells it.
#[derive(Clone, Debug)]
pub struct Step {
    pub frame: u32,
    /// When it began, in nanoseconds of the clock that never goes back.
    pub start: i64,
    /// It was made once more, and seen by nobody.
    pub again: bool,
    pub hash: String,
}

/// All steps in a log, but for the one that a program was about to write when it was killed.
pub fn steps(log: &Path) -> Vec<Step> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = &text[..text.rfind('\n').unwrap_or(0)];
    let step = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (frame, start) = (fields[0].parse().expect("a frame"), fields[1].parse().expect("a time"));
        Step { frame, start, again: fields[2] == "1", hash: fields[4].to_owned() }
    };
    whole.lines().skip(1).map(step).collect()
}

/// The newest frame in a log; it is written a hundred or so at a time.
pub fn newest(log: &Path) -> u32 {
    steps(log).iter().map(|step| step.frame).max().unwrap_or(0)
}

/// Waits until a game has come to a frame.
#[track_caller]
pub fn wait_for_frame(log: &Path, frame: u32) {
    let until = Instant::now() + PATIENCE;
    while newest(log) < frame {
        assert!(Instant::now() < until, "frame {frame} does not come in {}", log.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a game has gone on for so many frames.
#[track_caller]
pub fn wait_for_more(log: &Path, frames: u32) {
    wait_for_frame(log, newest(log) + frames);
}

/// The hash after every frame, as it was in the end.
pub fn hashes(log: &Path) -> BTreeMap<u32, String> {
    steps(log).into_iter().map(|step| (step.frame, step.hash)).collect()
}

/// Nobody can guess frames further than this.
const FURTHEST: u32 = 64;

/// A pause this long, in nanoseconds, may be one in which the others went on without this site.
const LONG_PAUSE: i64 = 500_000_000;

/// Frames of a log that were certain: not the last ones before each long pause, or before frames that are missing because the site came
/// back to a later one. Those may have been guesses that came to nothing because the others went on without them.
fn certain(log: &Path) -> BTreeMap<u32, String> {
    let mut certain: BTreeMap<u32, String> = BTreeMap::new();
    let mut last = None;
    for Step { frame, start, hash, .. } in steps(log) {
        let newest = certain.last_key_value().map_or(0, |(newest, _)| *newest);
        if last.is_some_and(|last| start - last > LONG_PAUSE || frame > newest + 1) {
            certain.split_off(&newest.saturating_sub(FURTHEST));
        }
        last = Some(start);
        certain.insert(frame, hash);
    }
    certain
}

/// Two logs agree on all frames that are certain in both; so many there are from a frame on.
#[track_caller]
pub fn assert_agree(one: &Path, other: &Path, from: u32) -> usize {
    let (one, mut other) = (certain(one), certain(other));
    other.retain(|frame, _| one.contains_key(frame));
    // Who left last may have guessed at the end, too.
    let end = other.last_key_value().map_or(0, |(last, _)| last.saturating_sub(FURTHEST));
    for (frame, hash) in other.range(..end) {
        assert_eq!(*hash, one[frame], "after frame {frame}");
    }
    other.range(from..end.max(from)).count()
}

/// Ends a game that has no end of its own: first this one, then that one.
#[track_caller]
pub fn end(first: &mut Run, second: &mut Run) {
    for run in [first, second] {
        run.signal("-INT");
        run.assert_ends_well();
    }
}

pub fn logs<const N: usize>(place: &Place) -> [PathBuf; N] {
    std::array::from_fn(|number| place.at(&format!("log{number}.csv")))
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
