//! Starts another program of Coplay, such as the server program. The programs are separate, so that players neither
//! build nor load what only operators and researchers need.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::AppError;

/// Another program of Coplay: the one next to this program, or else the one in PATH.
#[derive(Clone, Debug)]
pub struct SiblingProgram {
    name: &'static str,
    path: PathBuf,
}

impl SiblingProgram {
    /// Finds the program with this name. `name` is also the name of its folder below `apps` in the source tree.
    pub fn find(name: &'static str) -> Self {
        let file_name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let sibling = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(&file_name)));
        Self { name, path: sibling.filter(|path| path.is_file()).unwrap_or_else(|| file_name.into()) }
    }

    /// Returns a command that runs the program.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }

    /// Runs the program in place of this one. Returns only if it cannot be started.
    pub fn exec(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> AppError {
        let mut command = self.command();
        command.args(args);
        self.start_error(&exec(command))
    }

    /// Describes why the program could not be started.
    pub fn start_error(&self, error: &io::Error) -> AppError {
        let Self { name, path } = self;
        let is_missing = error.kind() == ErrorKind::NotFound && path.parent() == Some(Path::new(""));
        let message = match is_missing {
            true => format!("cannot find the program {name}, neither next to this program nor in PATH"),
            false => format!("cannot start the program {}: {error}", path.display()),
        };
        AppError::failure(message)
            .hint(format!("install it: run `cargo install --path apps/{name}` in the source tree"))
    }
}

/// Replaces this process, so that signals reach the other program and its exit code is ours. Returns only on failure.
#[cfg(unix)]
fn exec(mut command: Command) -> io::Error {
    use std::os::unix::process::CommandExt as _;
    command.exec()
}

#[cfg(not(unix))]
fn exec(mut command: Command) -> io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_an_error_that_names_its_folder() {
        let error = SiblingProgram::find("coplay-nowhere").exec(["--help"]);
        assert_eq!(
            error.to_string(),
            "error: cannot find the program coplay-nowhere, neither next to this program nor in PATH\n\
             hint: install it: run `cargo install --path apps/coplay-nowhere` in the source tree"
        );
    }
}
