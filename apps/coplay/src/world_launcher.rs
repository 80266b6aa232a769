//! `coplay world`: servers of a shared world are a program of their own, so that nobody who only plays builds or loads what they need.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use crate::error::AppError;

/// The program for servers.
const PROGRAM: &str = "coplay-world";

/// Runs the program for servers in place of this one.
pub fn run(args: &[OsString]) -> Result<(), AppError> {
    let mut command = Command::new(program_path());
    command.args(args);
    Err(match exec_program(command) {
        error if error.kind() == ErrorKind::NotFound => {
            AppError::failure(format!("{PROGRAM}, the program for servers, is neither beside this one nor in the path"))
                .hint("in the sources, make world builds it")
        }
        error => AppError::failure(format!("{PROGRAM} cannot be started: {error}")),
    })
}

/// Where it is: beside this one, or wherever the system finds it.
fn program_path() -> PathBuf {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(&name)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| name.into())
}

/// Signals go to the other program then, and its exit code is ours.
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
