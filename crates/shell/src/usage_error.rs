//! Usage errors: one sentence and a hint, in place of clap's own text and tips.
//!
//! A hint names options and commands that exist, or a command line that the parser has accepted.

use std::error::Error as _;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::error::AppError;

/// Converts clap's error about the command line `args`, whose first element is the name of the program, to a message
/// and a hint.
pub(crate) fn usage_error(command: &Command, args: &[OsString], error: &Error) -> AppError {
    let context = Context { error };
    let typed = TypedCommand::new(command, args);
    let arg = context.first(ContextKind::InvalidArg);
    let value = context.first(ContextKind::InvalidValue);
    let (message, hint) = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            ("missing subcommand".to_owned(), typed.help_hint())
        }
        ErrorKind::InvalidSubcommand => {
            let name = context.first(ContextKind::InvalidSubcommand);
            let similar = context.all(ContextKind::SuggestedSubcommand);
            // clap sorts by similarity, the most similar last.
            let hint = similar.last().map(|similar| format!("did you mean `{} {similar}`?", typed.path));
            (format!("there is no command {name:?}"), hint.unwrap_or_else(|| typed.help_hint()))
        }
        ErrorKind::UnknownArgument => {
            let message = match arg.starts_with('-') {
                true => format!("there is no option {arg}"),
                false => format!("unexpected argument {arg:?}"),
            };
            let similar = context.all(ContextKind::SuggestedArg);
            let similar = similar.last().map(|similar| format!("did you mean {}?", typed.current_spelling(similar)));
            let hint = similar.or_else(|| typed.value_hint(command, args, &arg));
            (message, hint.unwrap_or_else(|| typed.help_hint()))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            (format!("{} needs a value", option_name(&arg)), typed.explain_hint(&arg))
        }
        ErrorKind::InvalidValue => {
            let reason = format!("must be {}", or_list(&context.all(ContextKind::ValidValue)));
            (format!("invalid value {value:?} for {}: {reason}", option_name(&arg)), typed.explain_hint(&arg))
        }
        ErrorKind::ValueValidation => {
            let reason = error.source().map_or_else(String::new, |source| format!(": {source}"));
            (format!("invalid value {value:?} for {}{reason}", option_name(&arg)), typed.explain_hint(&arg))
        }
        ErrorKind::TooManyValues => (format!("{} takes no value", option_name(&arg)), typed.explain_hint(&arg)),
        ErrorKind::ArgumentConflict => {
            let prior = context.all(ContextKind::PriorArg);
            let prior: Vec<String> = prior.iter().map(|prior| option_name(prior)).collect();
            let arg = option_name(&arg);
            match prior.first() {
                Some(prior) if *prior != arg => {
                    (format!("{arg} cannot be used with {prior}"), format!("leave out {arg} or {prior}"))
                }
                _ => (format!("{arg} is given twice"), format!("give {arg} once")),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = context.all(ContextKind::InvalidArg);
            let missing: Vec<String> =
                missing.iter().map(|missing| missing.replace(['<', '>'], "").replace("...", "")).collect();
            (format!("missing {}", missing.join(" and ")), typed.help_hint())
        }
        ErrorKind::InvalidUtf8 => ("an argument is not valid UTF-8".to_owned(), typed.help_hint()),
        _ => (first_sentence(error), typed.help_hint()),
    };
    AppError::usage(message).hint(hint)
}

/// Access to the texts that clap attaches to an error.
struct Context<'a> {
    error: &'a Error,
}

impl Context<'_> {
    fn all(&self, kind: ContextKind) -> Vec<String> {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => vec![],
        }
    }

    /// Returns the first text under `kind`, or an empty one.
    fn first(&self, kind: ContextKind) -> String {
        self.all(kind).into_iter().next().unwrap_or_default()
    }
}

/// Innermost subcommand that the user typed.
struct TypedCommand<'a> {
    command: &'a Command,
    /// Words from the program to the subcommand, such as `coplay maze host`.
    path: String,
}

impl<'a> TypedCommand<'a> {
    fn new(root: &'a Command, args: &[OsString]) -> Self {
        let (mut command, mut path) = (root, root.get_name().to_owned());
        for word in args.iter().skip(1).map_while(|word| word.to_str()) {
            let Some(inner) = command.find_subcommand(word) else { break };
            (command, path) = (inner, format!("{path} {word}"));
        }
        Self { command, path }
    }

    fn help_hint(&self) -> String {
        let listed = if self.command.has_subcommands() { "commands" } else { "options" };
        format!("`{} --help` lists all {listed}", self.path)
    }

    fn explain_hint(&self, arg: &str) -> String {
        format!("`{} --help` explains {}", self.path, option_name(arg))
    }

    /// Returns the current name of an option that clap knows by `option`, which may be a hidden old name.
    fn current_spelling(&self, option: &str) -> String {
        let name = option.trim_start_matches('-');
        let has_name = |arg: &&clap::Arg| arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name));
        let current = self.command.get_arguments().find(has_name).and_then(|arg| arg.get_long());
        format!("--{}", current.unwrap_or(name))
    }

    /// Returns a hint that says how to pass the argument that begins with `unknown` as the value of the option before
    /// it. Returns `None` if the command line that the hint suggests would be invalid, too.
    fn value_hint(&self, root: &Command, args: &[OsString], unknown: &str) -> Option<String> {
        let at = args.iter().position(|arg| arg.to_str().is_some_and(|arg| arg.starts_with(unknown)))?;
        let (option, value) = (args.get(at.checked_sub(1)?)?.to_str()?, args[at].to_str()?);
        let attached = format!("{option}={value}");
        let mut fixed = args.to_vec();
        fixed.splice(at - 1..=at, [OsString::from(&attached)]);
        let is_valid = option.starts_with("--") && root.clone().try_get_matches_from(fixed).is_ok();
        is_valid.then(|| format!("to pass {value} as a value, write {attached}"))
    }
}

/// Returns the name of an argument without its value: `--frames` of `--frames <N>`.
fn option_name(arg: &str) -> String {
    let name = if arg.starts_with('-') { arg.split([' ', '=']).next().unwrap_or(arg) } else { arg };
    name.trim_matches(['<', '>', '[', ']', '.']).to_owned()
}

/// Joins names for a sentence: "see, join or hide".
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
