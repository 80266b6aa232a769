//! Headings of flags in the help pages of commands. Flags that most players need have none; they come first.

use clap::{Arg, Command};

/// Adds the headings to a command and its subcommands.
pub(super) fn add(command: Command) -> Command {
    let add_to_arg = |arg: Arg| match heading_of(arg.get_id().as_str()) {
        Some(heading) => arg.help_heading(heading),
        None => arg,
    };
    command.mut_args(add_to_arg).mut_subcommands(add)
}

/// Returns the heading of the flag whose field has this name.
fn heading_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "terminal" | "window" | "headless" | "scale" | "mute" => "Display",
        "core" | "system_dir" | "options" => "Machine",
        "udp" | "secret" | "relay" | "multicast" => "Connection",
        "delay" | "prediction" | "bucket" | "rate" | "reckon" => "Delay and updates",
        "seat" | "drop_after" | "go_on_alone" | "drop_stalled" | "absent" => "Silent and slow players",
        "record" | "force" | "frames" | "seconds" | "bot" => "Recordings, bots and duration",
        "impair" | "frame_log" | "stats" | "trace" | "screenshot" => "Tests and measurements",
        _ => return None,
    })
}
