//! The program `coplay`, which measures links and machines for the link preview.

use std::ffi::OsString;
use std::process::Stdio;
use std::str::FromStr;

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use coplay_lab::link_preview::{LinkQuality, MachineProfile};
use coplay_shell::error::AppError;
use coplay_shell::sibling_program::SiblingProgram;

use crate::cli::{FeelArgs, MachineArgs};

/// Returns the program: the one next to this program, or else the one in PATH.
pub fn find() -> SiblingProgram {
    SiblingProgram::find("coplay")
}

/// Measures the link to the host of the ticket `ticket` for 5 s.
pub fn measure_link(ticket: &str, args: &FeelArgs) -> Result<LinkQuality, AppError> {
    let mut command = vec!["measure-link".into(), "--".into(), ticket.into()];
    if let Some(relay) = &args.relay {
        command.splice(1..1, ["--relay".into(), relay.into()]);
    }
    let link = parse_link(&run(&command)?).ok_or_else(version_error)?;
    eprintln!("the host answered {} of {} probes", link.replies.0, link.replies.1);
    // Each direction adds half of the jitter of a round trip.
    let (rtt_ms, jitter_ms) = (link.min_rtt.as_millis_f64(), link.jitter.as_millis_f64() / 2.0);
    Ok(LinkQuality { rtt_ms, jitter_ms, loss: link.loss })
}

/// Measures the machine with `coplay check`, unless a report of an earlier check is cached. Returns its profile and the
/// name of its game.
pub fn measure_machine(args: &MachineArgs) -> Result<(MachineProfile, String), AppError> {
    let mut command: Vec<OsString> = vec!["measure-machine".into()];
    if let Some(core) = &args.core {
        command.extend(["--core".into(), core.into()]);
    }
    if let Some(dir) = &args.system_dir {
        command.extend(["--system".into(), dir.into()]);
    }
    for option in &args.core_options {
        command.extend(["--option".into(), option.into()]);
    }
    command.push("--".into());
    command.extend(args.game.clone().map(OsString::from));
    parse_machine(&run(&command)?).ok_or_else(version_error)
}

/// Runs the program with these arguments, and returns its standard output. It prints its own errors.
fn run(args: &[OsString]) -> Result<String, AppError> {
    let program = find();
    let output = program.command().args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| program.start_error(&error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(AppError::printed(output.status.code().and_then(|code| code.try_into().ok()).unwrap_or(1))),
    }
}

fn version_error() -> AppError {
    AppError::failure("the program coplay answered in an unknown format")
        .hint("install coplay and coplay-lab from the same source tree")
}

/// Measured link, as `coplay measure-link` prints it.
struct MeasuredLink {
    min_rtt: TimeDelta,
    jitter: TimeDelta,
    loss: f64,
    /// Number of replies received, and number of probes sent.
    replies: (u32, u32),
}

fn parse_link(line: &str) -> Option<MeasuredLink> {
    let mut words = line.split_whitespace();
    let min_rtt = TimeDelta::from_nanos(next(&mut words)?);
    let jitter = TimeDelta::from_nanos(next(&mut words)?);
    Some(MeasuredLink { min_rtt, jitter, loss: next(&mut words)?, replies: (next(&mut words)?, next(&mut words)?) })
}

/// Parses the answer of `coplay measure-machine`: times in nanoseconds, whether save states are exact, and the game.
fn parse_machine(line: &str) -> Option<(MachineProfile, String)> {
    let mut words = line.trim_end().splitn(5, ' ');
    let [step, save, load] = [next(&mut words)?, next(&mut words)?, next(&mut words)?].map(TimeDelta::from_nanos);
    let profile = MachineProfile { costs: MachineCosts { step, save, load }, can_save: next(&mut words)? };
    Some((profile, words.next()?.to_owned()))
}

fn next<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_machine_keeps_a_game_name_with_spaces() {
        let (profile, game) = parse_machine("1900000 20000 30000 true Tennis for Two\n").unwrap();
        let [step, save, load] = [1_900_000, 20_000, 30_000].map(TimeDelta::from_nanos);
        assert_eq!(profile, MachineProfile { costs: MachineCosts { step, save, load }, can_save: true });
        assert_eq!(game, "Tennis for Two");
        assert!(parse_machine("1900000 20000 true Tennis\n").is_none() && parse_machine("").is_none());
    }

    #[test]
    fn measured_link_is_read_from_one_line() {
        let link = parse_link("80500000 1000000 0.015 197 200\n").unwrap();
        assert_eq!((link.min_rtt.as_millis_f64(), link.jitter.as_millis_f64()), (80.5, 1.0));
        assert_eq!((link.loss, link.replies), (0.015, (197, 200)));
        assert!(parse_link("80500000 1000000 0.015\n").is_none());
    }
}
