//! The machine in another process, as seen from here.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use tempfile::TempDir;

use super::child::{ANSWER_PREFIX, decode_region};
use super::digest::{FrameDigest, RegionDigest};
use super::{CHECK_VERSION, CheckError};

/// How long it may take to end when nobody asks any more.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest line that is read in one piece.
const MAX_LINE_LEN: u64 = 64 << 20;
/// Answers that wait to be read.
const ANSWER_QUEUE_LEN: usize = 64;

/// A machine in another process. Both end together.
pub(super) struct ChildMachine {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    /// To open the machine takes no longer than this, nor does any one thing that it is asked for.
    response_timeout: Duration,
    /// It went down, or does not answer.
    has_crashed: bool,
    /// Of machine and game.
    pub(super) identity_key: String,
    /// The machine's hash before its first frame.
    pub(super) initial_hash: u64,
    /// Its home and its working folder.
    _folder: TempDir,
}

/// Why there is no machine in another process.
pub(super) enum ChildStartError {
    /// The process could not be started, or says why it has no machine.
    Failed(String),
    /// The machine took it down, or keeps it from answering.
    Crashed(String),
}

impl From<ChildStartError> for CheckError {
    fn from(error: ChildStartError) -> Self {
        match error {
            ChildStartError::Failed(why) | ChildStartError::Crashed(why) => Self::ChildProcess(why),
        }
    }
}

/// Variables that say where a user's files are.
const USER_FOLDER_VARIABLES: [&str; 8] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "APPDATA",
    "LOCALAPPDATA",
    "USERPROFILE",
];

/// Puts the process where nothing is as it is here.
fn vary_environment(command: &mut Command, folder: &TempDir) {
    let differs = |name: &str, one: &'static str, other: &'static str| {
        if std::env::var(name).is_ok_and(|value| value == one) { other } else { one }
    };
    USER_FOLDER_VARIABLES.iter().for_each(|place| _ = command.env(place, folder.path()));
    command.env("TZ", differs("TZ", "Pacific/Kiritimati", "Pacific/Niue"));
    let language = differs("LC_ALL", "tr_TR.UTF-8", "de_DE.UTF-8");
    command.env("LANG", language).env("LC_ALL", language);
    // Variables lie above the stack: what is on it moves.
    command.env("COPLAY_CHECK_SHIFT", "x".repeat(5_003));
    // The GNU C library fills what is allocated, and what is given back, with such bytes.
    command.env("MALLOC_PERTURB_", "165");
    command.current_dir(folder.path());
}

impl ChildMachine {
    /// Starts it and waits until the machine is open.
    pub(super) fn start(mut command: Command, patience: Duration) -> Result<Self, ChildStartError> {
        let failed = |error: std::io::Error| ChildStartError::Failed(error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        vary_environment(&mut command, &folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (send, answers) = sync_channel(ANSWER_QUEUE_LEN);
        let output = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || forward_answers(output, &send));
        let input = child.stdin.take();
        let (key, unstepped) = (String::new(), 0);
        let mut new = Self {
            child,
            input,
            answers,
            response_timeout: patience,
            has_crashed: false,
            identity_key: key,
            initial_hash: unstepped,
            _folder: folder,
        };
        match new.read_ready() {
            Ok(()) => Ok(new),
            Err(why) if new.has_crashed => Err(ChildStartError::Crashed(why)),
            Err(why) => Err(ChildStartError::Failed(why)),
        }
    }

    fn read_ready(&mut self) -> Result<(), String> {
        let answer = self.read_answer()?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(why.to_owned());
        }
        let parts: Vec<&str> = answer.split(' ').collect();
        let &["ready", version, key, hash] = &parts[..] else { return Err(unexpected_answer(&answer)) };
        if version.parse() != Ok(CHECK_VERSION) {
            return Err(format!("it is version {version} of the check, and this is {CHECK_VERSION}"));
        }
        self.identity_key = key.to_owned();
        self.initial_hash = u64::from_str_radix(hash, 16).map_err(|_| unexpected_answer(&answer))?;
        Ok(())
    }

    /// Lets it begin to step a frame.
    pub(super) fn request_step(&mut self, inputs: &[InputWord], fresh: bool) -> Result<(), String> {
        let words: String = inputs.iter().map(|word| format!(" {word:x}")).collect();
        self.send_request(format!("step {}{words}\n", u8::from(fresh)).as_bytes())
    }

    /// What came of it.
    pub(super) fn read_digest(&mut self) -> Result<FrameDigest, String> {
        let answer = self.read_answer()?;
        let mut parts = answer.strip_prefix("look ").unwrap_or("").split(' ').map(|part| u64::from_str_radix(part, 16));
        match (parts.next(), parts.next()) {
            (Some(Ok(hash)), Some(Ok(picture))) => Ok(FrameDigest { state_hash: hash, picture_hash: picture }),
            _ => Err(unexpected_answer(&answer)),
        }
    }

    /// Gives it a state.
    pub(super) fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.send_request(format!("load {}\n", state.len()).as_bytes())?;
        self.send_request(state)?;
        let answer = self.read_answer()?;
        match answer.strip_prefix("refused ") {
            Some(why) => Err(why.to_owned()),
            None if answer == "loaded" => Ok(()),
            None => Err(unexpected_answer(&answer)),
        }
    }

    /// The named parts of its state.
    pub(super) fn regions(&mut self) -> Result<Vec<RegionDigest>, String> {
        self.send_request(b"regions\n")?;
        let mut regions = Vec::new();
        loop {
            let answer = self.read_answer()?;
            match answer.strip_prefix("region ").and_then(decode_region) {
                Some(region) => regions.push(region),
                None if answer == "end" => return Ok(regions),
                None => return Err(unexpected_answer(&answer)),
            }
        }
    }

    fn send_request(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_mut().expect("open until the end");
        let asked = input.write_all(bytes).and_then(|()| input.flush());
        asked.map_err(|_| self.describe_exit())
    }

    fn read_answer(&mut self) -> Result<String, String> {
        match self.answers.recv_timeout(self.response_timeout) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                self.has_crashed = true;
                Err(format!("it did not answer for {} s", self.response_timeout.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.describe_exit()),
        }
    }

    fn describe_exit(&mut self) -> String {
        match self.wait_for_exit() {
            Some(status) => {
                self.has_crashed = !status.success();
                format!("its process ended ({status})")
            }
            None => "its process closed its output".to_owned(),
        }
    }

    /// Waits a moment for its end.
    fn wait_for_exit(&mut self) -> Option<std::process::ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < EXIT_TIMEOUT {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for ChildMachine {
    fn drop(&mut self) {
        // It ends by itself, and tidies up, when there is no more input.
        self.input = None;
        if self.wait_for_exit().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn unexpected_answer(answer: &str) -> String {
    format!("its process says {:?}", answer.chars().take(80).collect::<String>())
}

/// Passes on what is an answer, until the process ends or nobody wants to know.
fn forward_answers(output: ChildStdout, send: &SyncSender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(MAX_LINE_LEN).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let text = String::from_utf8_lossy(&line);
        if let Some((_, answer)) = text.trim_end().split_once(ANSWER_PREFIX)
            && send.send(answer.to_owned()).is_err()
        {
            return;
        }
    }
}
