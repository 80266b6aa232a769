//! The parent's handle to the machine in a child process.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use tempfile::TempDir;

use super::child::{ANSWER_PREFIX, decode_region};
use super::digest::{MachineDigest, RegionDigest};
use super::{CHECK_VERSION, CheckError};

/// Time limit for the child process to exit after its input or output was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum length of a line that is read in one piece, in bytes.
const MAX_LINE_LEN: u64 = 64 << 20;
/// Maximum number of answers that wait for the parent. The reading thread blocks when the queue is full.
const ANSWER_QUEUE_LEN: usize = 64;

/// Handle to a machine in a child process. The process ends when the handle is dropped.
pub(super) struct ChildMachine {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Time limit for each answer, including the first one, which follows the opening of the machine.
    response_timeout: Duration,
    /// Whether the process exited with an error or stopped answering.
    has_crashed: bool,
    /// Identity key of machine and game, as the child process computed it.
    pub(super) identity_key: String,
    /// State hash before the first frame, as the child process computed it.
    pub(super) initial_hash: u64,
    /// Home and working folder of the process.
    _folder: TempDir,
}

/// Error of starting a machine in a child process.
pub(super) enum ChildStartError {
    /// The process could not be started, could not open the machine, has another version of the check, gave an invalid
    /// answer, or ended or closed its output without an error; contains the reason.
    Failed(String),
    /// The machine crashed the process or kept the process from answering in time; contains the reason.
    Crashed(String),
}

impl From<ChildStartError> for CheckError {
    fn from(error: ChildStartError) -> Self {
        match error {
            ChildStartError::Failed(reason) | ChildStartError::Crashed(reason) => Self::ChildProcess(reason),
        }
    }
}

/// Environment variables that locate a user's files. They point to an empty folder in the child process.
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

/// Gives the child process another home, working folder, time zone, language, stack position and heap contents than
/// this process has.
fn vary_environment(command: &mut Command, folder: &TempDir) {
    let different = |name: &str, value: &'static str, alternative: &'static str| {
        if std::env::var(name).is_ok_and(|current| current == value) { alternative } else { value }
    };
    USER_FOLDER_VARIABLES.iter().for_each(|variable| _ = command.env(variable, folder.path()));
    command.env("TZ", different("TZ", "Pacific/Kiritimati", "Pacific/Niue"));
    let language = different("LC_ALL", "tr_TR.UTF-8", "de_DE.UTF-8");
    command.env("LANG", language).env("LC_ALL", language);
    // Environment variables lie above the stack, so this moves the stack.
    command.env("COPLAY_CHECK_SHIFT", "x".repeat(5_003));
    // The GNU C library fills freed memory with this byte, and allocated memory with its complement.
    command.env("MALLOC_PERTURB_", "165");
    command.current_dir(folder.path());
}

impl ChildMachine {
    /// Starts the child process and waits until the process has opened the machine.
    pub(super) fn start(mut command: Command, response_timeout: Duration) -> Result<Self, ChildStartError> {
        let start_error = |error: std::io::Error| ChildStartError::Failed(error.to_string());
        let folder = tempfile::tempdir().map_err(start_error)?;
        vary_environment(&mut command, &folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(start_error)?;
        let (send, answers) = sync_channel(ANSWER_QUEUE_LEN);
        let output = child.stdout.take().expect("the output is piped");
        std::thread::spawn(move || forward_answers(output, &send));
        let input = child.stdin.take();
        let (identity_key, initial_hash) = (String::new(), 0);
        let mut new = Self {
            child,
            input,
            answers,
            response_timeout,
            has_crashed: false,
            identity_key,
            initial_hash,
            _folder: folder,
        };
        match new.read_ready() {
            Ok(()) => Ok(new),
            Err(reason) if new.has_crashed => Err(ChildStartError::Crashed(reason)),
            Err(reason) => Err(ChildStartError::Failed(reason)),
        }
    }

    fn read_ready(&mut self) -> Result<(), String> {
        let answer = self.read_answer()?;
        if let Some(reason) = answer.strip_prefix("failed ") {
            return Err(reason.to_owned());
        }
        let parts: Vec<&str> = answer.split(' ').collect();
        let &["ready", version, key, hash] = &parts[..] else { return Err(unexpected_answer(&answer)) };
        if version.parse() != Ok(CHECK_VERSION) {
            return Err(format!(
                "the child process has version {version} of the check, but this process has version {CHECK_VERSION}"
            ));
        }
        self.identity_key = key.to_owned();
        self.initial_hash = u64::from_str_radix(hash, 16).map_err(|_| unexpected_answer(&answer))?;
        Ok(())
    }

    /// Requests a step; [`read_digest`](Self::read_digest) reads the answer.
    pub(super) fn request_step(&mut self, inputs: &[InputWord], fresh: bool) -> Result<(), String> {
        let words: String = inputs.iter().map(|word| format!(" {word:x}")).collect();
        self.send_request(format!("step {}{words}\n", u8::from(fresh)).as_bytes())
    }

    /// Reads the answer to a requested step.
    pub(super) fn read_digest(&mut self) -> Result<MachineDigest, String> {
        let answer = self.read_answer()?;
        let mut parts = answer.strip_prefix("look ").unwrap_or("").split(' ').map(|part| u64::from_str_radix(part, 16));
        match (parts.next(), parts.next()) {
            (Some(Ok(hash)), Some(Ok(picture))) => Ok(MachineDigest { state_hash: hash, picture_hash: picture }),
            _ => Err(unexpected_answer(&answer)),
        }
    }

    /// Loads a state in the child process. Fails with a message if the machine rejects the state or the process does
    /// not answer.
    pub(super) fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.send_request(format!("load {}\n", state.len()).as_bytes())?;
        self.send_request(state)?;
        let answer = self.read_answer()?;
        match answer.strip_prefix("refused ") {
            Some(reason) => Err(reason.to_owned()),
            None if answer == "loaded" => Ok(()),
            None => Err(unexpected_answer(&answer)),
        }
    }

    /// Requests and returns the digests of the state's regions.
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
        let input = self.input.as_mut().expect("the input is open until the drop");
        let sent = input.write_all(bytes).and_then(|()| input.flush());
        sent.map_err(|_| self.describe_exit())
    }

    fn read_answer(&mut self) -> Result<String, String> {
        match self.answers.recv_timeout(self.response_timeout) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                self.has_crashed = true;
                Err(format!("the child process did not answer for {} s", self.response_timeout.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.describe_exit()),
        }
    }

    fn describe_exit(&mut self) -> String {
        match self.wait_for_exit() {
            Some(status) => {
                self.has_crashed = !status.success();
                format!("the child process ended ({status})")
            }
            None => "the child process closed its output".to_owned(),
        }
    }

    /// Waits up to [`EXIT_TIMEOUT`] for the process to exit.
    fn wait_for_exit(&mut self) -> Option<std::process::ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < EXIT_TIMEOUT {
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
        // The process exits by itself, and cleans up, when its input is closed.
        self.input = None;
        if self.wait_for_exit().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn unexpected_answer(answer: &str) -> String {
    format!("unexpected answer {:?} from the child process", answer.chars().take(80).collect::<String>())
}

/// Forwards the answers in the output of the process until the output ends or the receiver is gone.
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
