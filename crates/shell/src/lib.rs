//! What the programs share: the parts around a command that do not depend on what the command does.
//!
//! - [`run`]: parses a command line, runs the command, and prints its error.
//! - [`command_line`], [`values`]: parsing, and parsers of flag values. Usage errors are one sentence and a hint.
//! - [`error`]: errors with hint and exit code.
//! - [`signals`], [`panic_hook`]: clean ends.
//! - [`sibling_program`]: starts another program of Coplay.

pub mod command_line;
pub mod error;
pub mod panic_hook;
pub mod sibling_program;
pub mod signals;
mod usage_error;
pub mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use error::AppError;
use panic_hook::ThreadPanics;

/// Runs the command line `args`, whose first element is the name of the program: parses it, and passes the result to
/// `command`. Prints help to stdout, errors and panics to stderr. Returns the exit code.
pub fn run<T: CommandFactory + FromArgMatches>(
    args: impl IntoIterator<Item = OsString>,
    command: impl FnOnce(T) -> Result<ExitCode, AppError>,
) -> ExitCode {
    panic_hook::install(ThreadPanics::Printed);
    exit_code(panic_hook::catch(|| match command_line::parse(command_line::command::<T>(), args)? {
        Ok(parsed) => command(parsed),
        Err(help) => {
            print_stdout(&help);
            Ok(ExitCode::SUCCESS)
        }
    }))
}

/// Returns the exit code of a program that ends with this outcome. Prints an error to stderr.
pub fn exit_code(outcome: Result<ExitCode, AppError>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        error.print();
        ExitCode::from(error.exit_code())
    })
}

/// Writes text to stdout. Ignores errors: a closed pipe, such as that of `head`, is not a failure.
pub fn print_stdout(text: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
