//! Running programs that play with each other, and what they leave behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{TestDir, path_arg};

/// Nothing here takes longer, even where the computer has much else to do.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A running program; it is gone when the test is.
pub struct RunningProgram {
    command_line: String,
    child: Child,
    out: OutputCollector,
    err: OutputCollector,
    timeout: Duration,
}

impl RunningProgram {
    pub fn start(place: &TestDir, args: &[&str]) -> Self {
        Self::start_command(place.program(), args)
    }

    /// Starts a program that was dressed by a place.
    pub fn start_command(mut program: Command, args: &[&str]) -> Self {
        let mut child = program.args(args).env("USER", "tester").spawn().expect("the program starts");
        let out = collect_output(child.stdout.take().expect("it is piped"));
        let err = collect_output(child.stderr.take().expect("it is piped"));
        Self { command_line: args.join(" "), child, out, err, timeout: TIMEOUT }
    }

    /// It may take so much longer.
    pub fn with_extra_timeout(mut self, longer: Duration) -> Self {
        self.timeout += longer;
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
    pub fn wait_for_stderr(&self, words: &str) {
        let until = Instant::now() + self.timeout;
        while !self.err().contains(words) {
            assert!(Instant::now() < until, "{words:?} does not come from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ticket that a host shows.
    #[track_caller]
    pub fn ticket(&self) -> String {
        let until = Instant::now() + self.timeout;
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
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        let until = Instant::now() + self.timeout;
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
        let code = self.wait_for_exit();
        assert!(code == Some(0) && self.out().contains("states equal yes"), "code {code:?} of {self}");
    }

    #[track_caller]
    pub fn assert_fails(&mut self, code: i32, words: &[&str]) {
        let ended = self.wait_for_exit();
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

    pub fn send_signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is everywhere").success());
    }
}

impl std::fmt::Display for RunningProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "coplay {}\n--- out:\n{}--- err:\n{}", self.command_line, self.out(), self.err())
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What comes out of a program, gathered on a thread of its own.
struct OutputCollector {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

impl OutputCollector {
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

fn collect_output(from: impl Read + Send + 'static) -> OutputCollector {
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
    OutputCollector { text, thread }
}

/// A place with a game in it.
pub fn test_dir_with_game(name: &str) -> (TestDir, PathBuf) {
    let place = TestDir::new(name);
    let game = place.write_file("game.nes", &coplay_testcores::images::nes());
    (place, game)
}

pub fn start_host(place: &TestDir, game: &Path, more: &[&str]) -> RunningProgram {
    let all = ["host", path_arg(game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    RunningProgram::start(place, &[&all[..], more].concat())
}

pub fn start_join(place: &TestDir, ticket: &str, game: &Path, more: &[&str]) -> RunningProgram {
    let all = ["join", ticket, path_arg(game), "--headless", "--bot", "2"];
    RunningProgram::start(place, &[&all[..], more].concat())
}

/// The value of a number in what `--stats` wrote.
#[track_caller]
pub fn stat_value(stats: &Path, name: &str) -> f64 {
    let text = std::fs::read_to_string(stats).expect("the numbers can be read");
    let rest = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {text}")).1;
    let end = rest.find([',', '}']).expect("something follows");
    rest[..end].parse().unwrap_or_else(|_| panic!("{name} is no number in {text}"))
}

/// A step of a machine, as a frame log tells it.
#[derive(Clone, Debug)]
pub struct LoggedStep {
    pub frame: u32,
    /// When it began, in nanoseconds of the clock that never goes back.
    pub start_nanos: i64,
    /// It was made once more, and seen by nobody.
    pub is_resimulated: bool,
    pub hash: String,
}

/// All steps in a log, but for the one that a program was about to write when it was killed.
pub fn read_steps(log: &Path) -> Vec<LoggedStep> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = &text[..text.rfind('\n').unwrap_or(0)];
    let step = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (frame, start) = (fields[0].parse().expect("a frame"), fields[1].parse().expect("a time"));
        LoggedStep { frame, start_nanos: start, is_resimulated: fields[2] == "1", hash: fields[4].to_owned() }
    };
    whole.lines().skip(1).map(step).collect()
}

/// The newest frame in a log; it is written a hundred or so at a time.
pub fn newest_frame(log: &Path) -> u32 {
    read_steps(log).iter().map(|step| step.frame).max().unwrap_or(0)
}

/// Waits until a game has come to a frame.
#[track_caller]
pub fn wait_for_frame(log: &Path, frame: u32) {
    let until = Instant::now() + TIMEOUT;
    while newest_frame(log) < frame {
        assert!(Instant::now() < until, "frame {frame} does not come in {}", log.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a game has gone on for so many frames.
#[track_caller]
pub fn wait_for_more_frames(log: &Path, frames: u32) {
    wait_for_frame(log, newest_frame(log) + frames);
}

/// The hash after every frame, as it was in the end.
pub fn hashes(log: &Path) -> BTreeMap<u32, String> {
    read_steps(log).into_iter().map(|step| (step.frame, step.hash)).collect()
}

/// Nobody can guess frames further than this.
const MAX_PREDICTION_WINDOW: u32 = 64;

/// A pause this long, in nanoseconds, may be one in which the others went on without this site.
const LONG_PAUSE_NANOS: i64 = 500_000_000;

/// Frames of a log that were certain: not the last ones before each long pause, or before frames that are missing because the site came
/// back to a later one. Those may have been guesses that came to nothing because the others went on without them.
fn confirmed_hashes(log: &Path) -> BTreeMap<u32, String> {
    let mut certain: BTreeMap<u32, String> = BTreeMap::new();
    let mut last = None;
    for LoggedStep { frame, start_nanos: start, hash, .. } in read_steps(log) {
        let newest = certain.last_key_value().map_or(0, |(newest, _)| *newest);
        if last.is_some_and(|last| start - last > LONG_PAUSE_NANOS || frame > newest + 1) {
            certain.split_off(&newest.saturating_sub(MAX_PREDICTION_WINDOW));
        }
        last = Some(start);
        certain.insert(frame, hash);
    }
    certain
}

/// Two logs agree on all frames that are certain in both; so many there are from a frame on.
#[track_caller]
pub fn assert_confirmed_equal(one: &Path, other: &Path, from: u32) -> usize {
    let (one, mut other) = (confirmed_hashes(one), confirmed_hashes(other));
    other.retain(|frame, _| one.contains_key(frame));
    // Who left last may have guessed at the end, too.
    let end = other.last_key_value().map_or(0, |(last, _)| last.saturating_sub(MAX_PREDICTION_WINDOW));
    for (frame, hash) in other.range(..end) {
        assert_eq!(*hash, one[frame], "after frame {frame}");
    }
    other.range(from..end.max(from)).count()
}

/// Ends a game that has no end of its own: first this one, then that one.
#[track_caller]
pub fn interrupt_in_order(first: &mut RunningProgram, second: &mut RunningProgram) {
    for run in [first, second] {
        run.send_signal("-INT");
        run.assert_ends_well();
    }
}

pub fn log_paths<const N: usize>(place: &TestDir) -> [PathBuf; N] {
    std::array::from_fn(|number| place.path_of(&format!("log{number}.csv")))
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
