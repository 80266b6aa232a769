//! Helpers that run programs which share a game, and read their log files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{TestDir, path_arg};

/// Longest wait for a condition; long, because the computer may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Running program, which is killed when this is dropped.
pub(crate) struct RunningProgram {
    command_line: String,
    child: Child,
    out: OutputCollector,
    err: OutputCollector,
    timeout: Duration,
}

impl RunningProgram {
    pub(crate) fn start(dir: &TestDir, args: &[&str]) -> Self {
        Self::start_command(dir.program(), args)
    }

    /// Starts a command that [`TestDir::isolate`] has prepared.
    pub(crate) fn start_command(mut program: Command, args: &[&str]) -> Self {
        let mut child = program.args(args).env("USER", "tester").spawn().expect("the program starts");
        let out = collect_output(child.stdout.take().expect("stdout is piped"));
        let err = collect_output(child.stderr.take().expect("stderr is piped"));
        Self { command_line: args.join(" "), child, out, err, timeout: TIMEOUT }
    }

    /// Extends the timeout of all waits for this program.
    pub(crate) fn with_extra_timeout(mut self, extra: Duration) -> Self {
        self.timeout += extra;
        self
    }

    pub(crate) fn out(&self) -> String {
        self.out.text()
    }

    pub(crate) fn err(&self) -> String {
        self.err.text()
    }

    /// Waits until stderr contains this text. Panics after the timeout.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        let until = Instant::now() + self.timeout;
        while !self.err().contains(text) {
            assert!(Instant::now() < until, "no {text:?} from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the host has printed its ticket, and returns it.
    #[track_caller]
    pub(crate) fn ticket(&self) -> String {
        let until = Instant::now() + self.timeout;
        loop {
            if let Some((ticket, _)) = self.out().split_once('\n') {
                return ticket.to_owned();
            }
            assert!(Instant::now() < until, "no ticket from {self}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the program ends, and returns its exit code; `None` if a signal killed it.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let until = Instant::now() + self.timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                self.out.wait_for_all(until);
                self.err.wait_for_all(until);
                return status.code();
            }
            assert!(Instant::now() < until, "{self} did not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(crate) fn assert_ends_well(&mut self) {
        let code = self.wait_for_exit();
        assert!(code == Some(0) && self.out().contains("states equal yes"), "code {code:?} of {self}");
    }

    #[track_caller]
    pub(crate) fn assert_fails(&mut self, code: i32, parts: &[&str]) {
        let actual = self.wait_for_exit();
        let err = self.err();
        assert!(
            actual == Some(code) && parts.iter().all(|part| err.contains(part)),
            "code {actual:?}, or {parts:?} is missing: {self}"
        );
        assert!(err.contains("\nhint: "), "{self}");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process can be waited for").is_none()
    }

    pub(crate) fn send_signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is installed").success());
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

/// Output of a program, collected line by line on a thread of its own.
struct OutputCollector {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

impl OutputCollector {
    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Waits for the rest of the output, which may arrive after the program has ended.
    fn wait_for_all(&self, until: Instant) {
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn collect_output(source: impl Read + Send + 'static) -> OutputCollector {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = text.clone();
    let thread = std::thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = String::new();
        while source.read_line(&mut line).is_ok_and(|read| read > 0) {
            collected.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
    OutputCollector { text, thread }
}

/// Creates a test directory with the NES test image `game.nes` in it. Returns both.
pub(crate) fn test_dir_with_game(name: &str) -> (TestDir, PathBuf) {
    let dir = TestDir::new(name);
    let game = dir.write_file("game.nes", &coplay_testcores::images::nes());
    (dir, game)
}

pub(crate) fn start_host(dir: &TestDir, game: &Path, more: &[&str]) -> RunningProgram {
    let all = ["host", path_arg(game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    RunningProgram::start(dir, &[&all[..], more].concat())
}

pub(crate) fn start_join(dir: &TestDir, ticket: &str, game: &Path, more: &[&str]) -> RunningProgram {
    let all = ["join", ticket, path_arg(game), "--headless", "--bot", "2"];
    RunningProgram::start(dir, &[&all[..], more].concat())
}

/// Returns the number under a name in a file that `--stats` wrote.
#[track_caller]
pub(crate) fn stat_value(stats: &Path, name: &str) -> f64 {
    let text = std::fs::read_to_string(stats).expect("the statistics can be read");
    let rest = text.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {text}")).1;
    let end = rest.find([',', '}']).expect("a comma or brace follows");
    rest[..end].parse().unwrap_or_else(|_| panic!("{name} is not a number in {text}"))
}

/// One step of a machine, as a line of a frame log.
#[derive(Clone, Debug)]
pub(crate) struct LoggedStep {
    pub(crate) frame: u32,
    /// Start of the step on the monotonic clock, in nanoseconds.
    pub(crate) start_nanos: i64,
    /// Whether the frame was resimulated. Resimulated frames are not shown.
    pub(crate) is_resimulated: bool,
    pub(crate) hash: String,
}

/// Returns all steps in a frame log. Ignores an incomplete last line, which a killed program leaves.
pub(crate) fn read_steps(log: &Path) -> Vec<LoggedStep> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let complete = &text[..text.rfind('\n').unwrap_or(0)];
    let step = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (frame, start_nanos) = (fields[0].parse().expect("a frame"), fields[1].parse().expect("a time"));
        LoggedStep { frame, start_nanos, is_resimulated: fields[2] == "1", hash: fields[4].to_owned() }
    };
    complete.lines().skip(1).map(step).collect()
}

/// Returns the newest frame in a frame log, or 0. The program writes the log about 100 frames at a time.
pub(crate) fn newest_frame(log: &Path) -> u32 {
    read_steps(log).iter().map(|step| step.frame).max().unwrap_or(0)
}

/// Waits until a frame log contains this frame or a later one.
#[track_caller]
pub(crate) fn wait_for_frame(log: &Path, frame: u32) {
    let until = Instant::now() + TIMEOUT;
    while newest_frame(log) < frame {
        assert!(Instant::now() < until, "no frame {frame} in {}", log.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a frame log contains `frames` more frames than now.
#[track_caller]
pub(crate) fn wait_for_more_frames(log: &Path, frames: u32) {
    wait_for_frame(log, newest_frame(log) + frames);
}

/// Returns the state hash of every frame in a frame log, after its last resimulation.
pub(crate) fn hashes(log: &Path) -> BTreeMap<u32, String> {
    read_steps(log).into_iter().map(|step| (step.frame, step.hash)).collect()
}

/// Upper bound of the prediction window, in frames.
const MAX_PREDICTION_WINDOW: u32 = 64;

/// Time between two steps of a site, in nanoseconds, beyond which the other sites may have continued without it.
const LONG_PAUSE_NANOS: i64 = 500_000_000;

/// Returns the hashes of the confirmed frames in a log, by frame. Leaves out the last frames before a long pause, and
/// before a gap that a rejoin leaves: they may be predictions that were never confirmed, because the other sites
/// continued without this one.
fn confirmed_hashes(log: &Path) -> BTreeMap<u32, String> {
    let mut confirmed: BTreeMap<u32, String> = BTreeMap::new();
    let mut last = None;
    for LoggedStep { frame, start_nanos, hash, .. } in read_steps(log) {
        let newest = confirmed.last_key_value().map_or(0, |(newest, _)| *newest);
        if last.is_some_and(|last| start_nanos - last > LONG_PAUSE_NANOS || frame > newest + 1) {
            confirmed.split_off(&newest.saturating_sub(MAX_PREDICTION_WINDOW));
        }
        last = Some(start_nanos);
        confirmed.insert(frame, hash);
    }
    confirmed
}

/// Asserts that two logs agree on all frames that are confirmed in both. Returns the number of those from frame `from`
/// on.
#[track_caller]
pub(crate) fn assert_confirmed_equal(one: &Path, other: &Path, from: u32) -> usize {
    let (one, mut other) = (confirmed_hashes(one), confirmed_hashes(other));
    other.retain(|frame, _| one.contains_key(frame));
    // The site that left last may have predicted frames at the end, too.
    let end = other.last_key_value().map_or(0, |(last, _)| last.saturating_sub(MAX_PREDICTION_WINDOW));
    for (frame, hash) in other.range(..end) {
        assert_eq!(*hash, one[frame], "after frame {frame}");
    }
    other.range(from..end.max(from)).count()
}

/// Interrupts two programs in this order, and asserts that each ends with exit code 0 and equal states.
#[track_caller]
pub(crate) fn interrupt_in_order(first: &mut RunningProgram, second: &mut RunningProgram) {
    for run in [first, second] {
        run.send_signal("-INT");
        run.assert_ends_well();
    }
}

pub(crate) fn log_paths<const N: usize>(dir: &TestDir) -> [PathBuf; N] {
    std::array::from_fn(|index| dir.path_of(&format!("log{index}.csv")))
}

/// Asserts that two logs have equal hashes after all common frames before `frame`, and that the number of distinct
/// hashes is more than half the number of these frames. Returns the number of these frames.
#[track_caller]
pub(crate) fn assert_equal_before(frame: u32, one: &Path, other: &Path) -> usize {
    let (one, other) = (hashes(one), hashes(other));
    let common: Vec<u32> =
        one.range(..frame).map(|(frame, _)| *frame).filter(|frame| other.contains_key(frame)).collect();
    for frame in &common {
        assert_eq!(one[frame], other[frame], "after frame {frame}");
    }
    let states: std::collections::BTreeSet<&String> = common.iter().map(|frame| &one[frame]).collect();
    assert!(states.len() * 2 > common.len(), "most states of this game are equal");
    common.len()
}
