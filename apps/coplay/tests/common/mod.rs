//! Helpers that run the built program in a directory of its own, without settings, display and keyboard input.

pub(crate) mod router;
pub(crate) mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Temporary directory, which is removed when this is dropped.
pub(crate) struct TestDir {
    path: PathBuf,
}

impl TestDir {
    /// Creates an empty temporary directory for the test with this name.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("coplay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory can be created");
        Self { path }
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file into the directory, and returns its path.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path_of(name);
        std::fs::create_dir_all(path.parent().expect("the path has a parent")).expect("the directory can be created");
        std::fs::write(&path, bytes).expect("the file can be written");
        path
    }

    /// Returns the command that runs the built program in this directory.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(crate::PROGRAM);
        self.isolate(&mut command);
        command
    }

    /// Restricts settings, data and working directory of a program to this directory, takes its display away, and pipes
    /// its output.
    pub(crate) fn isolate(&self, command: &mut Command) {
        command.current_dir(&self.path).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.env("XDG_CONFIG_HOME", self.path_of("config")).env("XDG_DATA_HOME", self.path_of("data"));
        command.env("XDG_CACHE_HOME", self.path_of("cache"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    }

    /// Runs the program with these arguments, and waits for its end.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        Outcome::from(self.program().args(args).output().expect("the program starts"))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Exit code and output of a program that has ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit code; `None` if a signal killed the program.
    pub(crate) code: Option<i32>,
    /// Standard output of the program.
    pub(crate) out: String,
    /// Standard error of the program.
    pub(crate) err: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

impl Outcome {
    /// Returns the first word of the value in the summary row with this name.
    pub(crate) fn row_value(&self, name: &str) -> &str {
        let row = self.out.lines().find_map(|line| line.strip_prefix(name));
        let row = row.unwrap_or_else(|| panic!("no row {name} in {self:?}"));
        row.split_whitespace().next().unwrap_or_default()
    }
}

/// Returns a path as the text of an argument.
pub(crate) fn path_arg(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}
