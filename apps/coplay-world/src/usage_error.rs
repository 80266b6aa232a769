//! Usage errors: one sentence and a hint, in place of clap's own text and tips.

use std::error::Error as _;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::error::CliError;

/// Converts an error of clap about `args`, whose first element is the program, to a message and a hint.
pub(crate) fn usage_error(command: &Command, args: &[OsString], error: &Error) -> CliError {
    let (arg, value) = (option_name(&first(error, ContextKind::InvalidArg)), first(error, ContextKind::InvalidValue));
    let (path, listed) = typed_command(command, args);
    let help_hint = || format!("`{path} --help` lists all {listed}");
    let explain_hint = || format!("`{path} --help` explains {arg}");
    let (message, hint) = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let missing = if listed == "commands" { "missing subcommand" } else { "missing arguments" };
            (missing.to_owned(), help_hint())
        }
        ErrorKind::InvalidSubcommand => {
            let name = first(error, ContextKind::InvalidSubcommand);
            let similar = all(error, ContextKind::SuggestedSubcommand);
            let hint = similar.first().map(|similar| format!("did you mean `{path} {similar}`?"));
            (format!("there is no command {name:?}"), hint.unwrap_or_else(help_hint))
        }
        ErrorKind::UnknownArgument => {
            let message = match arg.starts_with('-') {
                true => format!("there is no option {arg}"),
                false => format!("unexpected argument {arg:?}"),
            };
            let similar = all(error, ContextKind::SuggestedArg);
            let hint = similar.first().map(|similar| format!("did you mean {}?", option_name(similar)));
            (message, hint.unwrap_or_else(help_hint))
        }
        ErrorKind::InvalidValue if value.is_empty() => (format!("{arg} needs a value"), explain_hint()),
        ErrorKind::InvalidValue => {
            let valid = or_list(&all(error, ContextKind::ValidValue));
            (format!("invalid value {value:?} for {arg}: must be {valid}"), explain_hint())
        }
        ErrorKind::ValueValidation => {
            let reason = error.source().map_or_else(String::new, |source| format!(": {source}"));
            (format!("invalid value {value:?} for {arg}{reason}"), explain_hint())
        }
        ErrorKind::TooManyValues => (format!("{arg} takes no value"), explain_hint()),
        ErrorKind::ArgumentConflict => {
            let prior: Vec<String> = all(error, ContextKind::PriorArg).iter().map(|prior| option_name(prior)).collect();
            match prior.first() {
                Some(prior) if *prior != arg => {
                    (format!("{arg} cannot be used with {prior}"), format!("leave out {arg} or {prior}"))
                }
                _ => (format!("{arg} is given twice"), format!("give {arg} once")),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> =
                all(error, ContextKind::InvalidArg).iter().map(|missing| option_name(missing)).collect();
            (format!("missing {}", missing.join(" and ")), help_hint())
        }
        ErrorKind::InvalidUtf8 => ("an argument is not valid UTF-8".to_owned(), help_hint()),
        _ => (first_sentence(error), help_hint()),
    };
    CliError::usage_error(message, hint)
}

/// Returns all texts that clap attaches to an error under `kind`.
fn all(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => vec![],
    }
}

/// Returns the first text that clap attaches to an error under `kind`, or an empty one.
fn first(error: &Error, kind: ContextKind) -> String {
    all(error, kind).into_iter().next().unwrap_or_default()
}

/// Returns the words up to the innermost subcommand that was typed, such as `coplay world serve`, and the kind of
/// entries that its help lists.
fn typed_command(root: &Command, args: &[OsString]) -> (String, &'static str) {
    let (mut command, mut path) = (root, root.get_name().to_owned());
    for word in args.iter().skip(1).map_while(|word| word.to_str()) {
        let Some(inner) = command.find_subcommand(word) else { break };
        (command, path) = (inner, format!("{path} {word}"));
    }
    (path, if command.has_subcommands() { "commands" } else { "options" })
}

/// Returns the name of an argument without its value: `--side` of `--side <N>`.
fn option_name(arg: &str) -> String {
    let name = if arg.starts_with('-') { arg.split([' ', '=']).next().unwrap_or(arg) } else { arg };
    name.trim_matches(['<', '>', '[', ']', '.']).to_owned()
}

/// Joins names for a sentence: "off, ila or adaptive".
fn or_list(names: &[String]) -> String {
    match names {
        [] => "a different value".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

/// Returns the first paragraph of clap's own message in one line, without "error: ".
fn first_sentence(error: &Error) -> String {
    let text = error.render().to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let line = lines.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
