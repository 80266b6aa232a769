//! The machine in another process, as seen from here.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use tempfile::TempDir;

use super::child::{MARK, region};
use super::digest::{Look, Region};
use super::{Error, VERSION};

/// How long it may take to end when nobody asks any more.
const FAREWELL: Duration = Duration::from_secs(3);
/// The longest line that is read in one piece.
const MAX_LINE: u64 = 64 << 20;
/// Answers that wait to be read.
const WAITING: usize = 64;

/// A machine in another process. Both end together.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    /// To open the machine takes no longer than this, nor does any one thing that it is asked for.
    patience: Duration,
    /// It went down, or does not answer.
    died: bool,
    /// Of machine and game.
    pub(super) key: String,
    /// The machine's hash before its first frame.
    pub(super) unstepped: u64,
    /// Its home and its working folder.
    _folder: TempDir,
}

/// Why there is no machine in another process.
pub(super) enum NoProcess {
    /// The process could not be started, or says why it has no machine.
    Error(String),
    /// The machine took it down, or keeps it from answering.
    Died(String),
}

impl From<NoProcess> for Error {
    fn from(error: NoProcess) -> Self {
        match error {
            NoProcess::Error(why) | NoProcess::Died(why) => Self::Child(why),
        }
    }
}

/// Variables that say where a user's files are.
const PLACES: [&str; 8] = [
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
fn elsewhere(command: &mut Command, folder: &TempDir) {
    let differs = |name: &str, one: &'static str, other: &'static str| {
        if std::env::var(name).is_ok_and(|value| value == one) { other } else { one }
    };
    PLACES.iter().for_each(|place| _ = command.env(place, folder.path()));
    command.env("TZ", differs("TZ", "Pacific/Kiritimati", "Pacific/Niue"));
    let language = differs("LC_ALL", "tr_TR.UTF-8", "de_DE.UTF-8");
    command.env("LANG", language).env("LC_ALL", language);
    // Variables lie above the stack: what is on it moves.
    command.env("COPLAY_CHECK_SHIFT", "x".repeat(5_003));
    // The GNU C library fills what is allocated, and what is given back, with such bytes.
    command.env("MALLOC_PERTURB_", "165");
    command.current_dir(folder.path());
}

impl Process {
    /// Starts it and waits until the machine is open.
    pub(super) fn start(mut command: Command, patience: Duration) -> Result<Self, NoProcess> {
        let failed = |error: std::io::Error| NoProcess::Error(error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        elsewhere(&mut command, &folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (send, answers) = sync_channel(WAITING);
        let output = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || listen(output, &send));
        let input = child.stdin.take();
        let (key, unstepped) = (String::new(), 0);
        let mut new = Self { child, input, answers, patience, died: false, key, unstepped, _folder: folder };
        match new.meet() {
            Ok(()) => Ok(new),
            Err(why) if new.died => Err(NoProcess::Died(why)),
            Err(why) => Err(NoProcess::Error(why)),
        }
    }

    fn meet(&mut self) -> Result<(), String> {
        let answer = self.answer()?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(why.to_owned());
        }
        let parts: Vec<&str> = answer.split(' ').collect();
        let &["ready", version, key, hash] = &parts[..] else { return Err(nonsense(&answer)) };
        if version.parse() != Ok(VERSION) {
            return Err(format!("it is version {version} of the check, and this is {VERSION}"));
        }
        self.key = key.to_owned();
        self.unstepped = u64::from_str_radix(hash, 16).map_err(|_| nonsense(&answer))?;
        Ok(())
    }

    /// Lets it begin to step a frame.
    pub(super) fn ask_step(&mut self, inputs: &[InputWord], fresh: bool) -> Result<(), String> {
        let words: String = inputs.iter().map(|word| format!(" {word:x}")).collect();
        self.ask(format!("step {}{words}\n", u8::from(fresh)).as_bytes())
    }

    /// What came of it.
    pub(super) fn look(&mut self) -> Result<Look, String> {
        let answer = self.answer()?;
        let mut parts = answer.strip_prefix("look ").unwrap_or("").split(' ').map(|part| u64::from_str_radix(part, 16));
        match (parts.next(), parts.next()) {
            (Some(Ok(hash)), Some(Ok(picture))) => Ok(Look { hash, picture }),
            _ => Err(nonsense(&answer)),
        }
    }

    /// Gives it a state.
    pub(super) fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.ask(format!("load {}\n", state.len()).as_bytes())?;
        self.ask(state)?;
        let answer = self.answer()?;
        match answer.strip_prefix("refused ") {
            Some(why) => Err(why.to_owned()),
            None if answer == "loaded" => Ok(()),
            None => Err(nonsense(&answer)),
        }
    }

    /// The named parts of its state.
    pub(super) fn regions(&mut self) -> Result<Vec<Region>, String> {
        self.ask(b"regions\n")?;
        let mut regions = Vec::new();
        loop {
            let answer = self.answer()?;
            match answer.strip_prefix("region ").and_then(region) {
                Some(region) => regions.push(region),
                None if answer == "end" => return Ok(regions),
                None => return Err(nonsense(&answer)),
            }
        }
    }

    fn ask(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_mut().expect("open until the end");
        let asked = input.write_all(bytes).and_then(|()| input.flush());
        asked.map_err(|_| self.how_it_ended())
    }

    fn answer(&mut self) -> Result<String, String> {
        match self.answers.recv_timeout(self.patience) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                self.died = true;
                Err(format!("it did not answer for {} s", self.patience.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.how_it_ended()),
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.wait() {
            Some(status) => {
                self.died = !status.success();
                format!("its process ended ({status})")
            }
            None => "its process closed its output".to_owned(),
        }
    }

    /// Waits a moment for its end.
    fn wait(&mut self) -> Option<std::process::ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself, and tidies up, when there is no more input.
        self.input = None;
        if self.wait().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn nonsense(answer: &str) -> String {
    format!("its process says {:?}", answer.chars().take(80).collect::<String>())
}

/// Passes on what is an answer, until the process ends or nobody wants to know.
fn listen(output: ChildStdout, send: &SyncSender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let text = String::from_utf8_lossy(&line);
        if let Some((_, answer)) = text.trim_end().split_once(MARK)
            && send.send(answer.to_owned()).is_err()
        {
            return;
        }
    }
}
