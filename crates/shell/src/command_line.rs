//! Parsing of a command line.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::error::AppError;
use crate::usage_error::usage_error;

/// Parses a command line, whose first element is the name of the program, with the definition `command`.
/// `Ok(Err(text))` is help or version text that the user asked for, to be printed to stdout.
pub fn parse<T: FromArgMatches>(
    command: Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Result<T, String>, AppError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = command.clone().try_get_matches_from(&args);
    match matches.and_then(|matches| T::from_arg_matches(&matches)) {
        Ok(parsed) => Ok(Ok(parsed)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Err(error.render().to_string()))
        }
        Err(error) => Err(usage_error(&command, &args, &error)),
    }
}

/// Returns clap's definition of the command line. A negative number after an option is the option's value, so that an
/// invalid number is reported with the option's range.
pub fn command<T: CommandFactory>() -> Command {
    accept_negative_numbers(T::command())
}

fn accept_negative_numbers(command: Command) -> Command {
    let accept = |arg: Arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(accept).mut_subcommands(accept_negative_numbers)
}
