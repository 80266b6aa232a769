//! The built program, in a place of its own: no settings, no display, nothing typed.

pub mod router;
pub mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory that is gone when the test is over.
pub struct TestDir {
    path: PathBuf,
}

impl TestDir {
    /// A place for the test of this name.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("coplay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self { path }
    }

    /// A path in it.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file in it.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path_of(name);
        std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it can be made");
        std::fs::write(&path, bytes).expect("a file can be written");
        path
    }

    /// The program, not started yet.
    pub fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coplay"));
        self.isolate(&mut command);
        command
    }

    /// Makes any program see only this place.
    pub fn isolate(&self, command: &mut Command) {
        command.current_dir(&self.path).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.env("XDG_CONFIG_HOME", self.path_of("config")).env("XDG_DATA_HOME", self.path_of("data"));
        command.env("XDG_CACHE_HOME", self.path_of("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }

    /// What comes of running it.
    pub fn run(&self, args: &[&str]) -> Outcome {
        Outcome::from(self.program().args(args).output().expect("the program starts"))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.path);
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// What it said.
    pub out: String,
    /// What it complained about.
    pub err: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Outcome {
    /// The value in the row of this name.
    pub fn row_value(&self, name: &str) -> &str {
        let row = self.out.lines().find_map(|line| line.strip_prefix(name));
        let row = row.unwrap_or_else(|| panic!("there is no row {name} in {self:?}"));
        row.split_whitespace().next().unwrap_or_default()
    }
}

/// A path as an argument.
pub fn path_arg(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}
