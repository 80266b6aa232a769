//! `coplay world`: runs the server program `coplay-world`. The server is a program of its own, so that players do not
//! build or load its dependencies.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use crate::error::AppError;

/// File name of the server program, without the suffix of executables.
const PROGRAM: &str = "coplay-world";

/// Runs the server program in place of this one. Returns only if it cannot be started.
pub fn run(args: &[OsString]) -> Result<(), AppError> {
    let path = program_path();
    let mut command = Command::new(&path);
    command.args(args);
    Err(match exec_program(command) {
        error if error.kind() == ErrorKind::NotFound && path.is_relative() => {
            AppError::failure(format!("cannot find the server program {PROGRAM}, neither next to coplay nor in PATH"))
                .hint("install it: run `cargo install --path apps/coplay-world` in the source tree")
        }
        error => AppError::failure(format!("cannot start the server program {}: {error}", path.display()))
            .hint("replace this file: `make world` in the source tree builds target/release/coplay-world"),
    })
}

/// Returns the path of the server program next to this one, or else its name, for a search in PATH.
fn program_path() -> PathBuf {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let sibling = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(&name)));
    sibling.filter(|path| path.is_file()).unwrap_or_else(|| name.into())
}

/// Replaces this process, so that signals reach the server program and its exit code is ours. Returns only on failure.
#[cfg(unix)]
fn exec_program(mut command: Command) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    command.exec()
}

#[cfg(not(unix))]
fn exec_program(mut command: Command) -> std::io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}
