//! Command line of `coplay`: commands, flags, and their parsing.

pub mod delays;
mod heading;
pub mod maze;
pub mod maze_online;
pub mod net;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use coplay_machines::libretro::CoreSource;
use coplay_net::iroh::RelayConfig;
use coplay_shell::command_line;
use coplay_shell::error::AppError;
use coplay_shell::sibling_program::SiblingProgram;
use coplay_shell::values::{parse_seed, whole_number, whole_number_in};

use crate::config::{MAX_SCALE, UserSettings};
use crate::frontend::FrontendRequest;
use crate::game::MachineSpec;
use delays::{AutoOrFrames, auto_or_frames};

/// Largest `--delay` and `--prediction` of a demo, in frames. The demo's dials for these two values have the same
/// range.
const MAX_DEMO_FRAMES: u32 = 20;

/// Play an old game, alone or with friends far away.
#[derive(Debug, Parser)]
#[command(name = "coplay", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// Subcommand that the user chose.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Play a game on this computer
    Play(PlayArgs),
    /// Host a game that other players join with a ticket
    Host(net::HostArgs),
    /// Join a game that another player hosts
    Join(net::JoinArgs),
    /// Watch a game as a spectator
    Watch(net::WatchArgs),
    /// Replay a movie, and check that it reaches the recorded states
    Replay(ReplayArgs),
    /// Check whether and how a game can be shared
    ///
    /// The verdict is rollback, lockstep only, or unfit.
    Check(CheckArgs),
    /// Play in a maze with other players and with bots
    ///
    /// The maze needs no server; it can also run on the servers of a world.
    Maze(maze::MazeArgs),
    /// Show two sites that share a game over a bad link
    ///
    /// The demo has dials for the link, the input delay and the prediction window.
    Demo(DemoArgs),
    /// Run and test servers of a shared world
    #[command(disable_help_flag = true)]
    World(OtherProgramArgs),
    /// Show the settings and the path of their file
    Config,
    /// Run `coplay-lab`
    #[command(hide = true, disable_help_flag = true)]
    Lab(OtherProgramArgs),
    /// Run the child process of a check
    #[command(name = crate::check::CHILD_COMMAND, hide = true)]
    CheckChild(CheckArgs),
    /// Measure the link to a host, for `coplay-lab feel`
    #[command(hide = true)]
    MeasureLink(MeasureLinkArgs),
    /// Measure the time that a machine takes, for `coplay-lab feel`
    #[command(hide = true)]
    MeasureMachine(CheckArgs),
}

/// Arguments that are passed on to another program.
#[derive(Args, Clone, Debug)]
pub struct OtherProgramArgs {
    /// Command of the program, with its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub args: Vec<OsString>,
}

impl OtherProgramArgs {
    /// Runs the program with this name in place of this one, with the arguments `first` and these. Returns only if the
    /// program cannot be started.
    pub fn exec(&self, program: &'static str, first: &[&str]) -> AppError {
        let first = first.iter().map(OsStr::new);
        SiblingProgram::find(program).exec(first.chain(self.args.iter().map(OsString::as_os_str)))
    }
}

/// Arguments of `coplay measure-link`.
#[derive(Args, Clone, Debug)]
pub struct MeasureLinkArgs {
    /// Ticket of the host
    pub ticket: String,
    /// Let the host reach you through this relay in place of the ticket's
    #[arg(long, value_name = "none|default|URL")]
    pub relay: Option<RelayConfig>,
}

/// Flags for the output of a game on this computer: where it is shown, its initial size, and its sound.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DisplayArgs {
    /// Show the game in this terminal
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Show the game in a window on the screen
    #[arg(long, conflicts_with_all = ["headless", "terminal"])]
    pub window: bool,
    /// Show nothing: run as fast as possible, then print a summary
    #[arg(long)]
    pub headless: bool,
    /// Open the window with the picture scaled by this factor, 1 to 20; in the demo one less, but at least 1; in a maze
    /// two thirds of it [default: 3, or as in the settings]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=MAX_SCALE))]
    pub scale: Option<u32>,
    /// Start with the sound off
    #[arg(long)]
    pub mute: bool,
}

/// Flags that choose the machine that runs the game.
#[derive(Args, Clone, Debug, Default)]
pub struct MachineArgs {
    /// Run the game on this libretro core, given by name or path
    /// [default: the built-in NES; in a game that you join or watch, the host's machine]
    #[arg(long, value_name = "CORE", value_parser = parse_core_source)]
    pub core: Option<CoreSource>,
    /// Read the BIOS images that the core needs from this folder; all players need the same images
    /// [default: as in the settings]
    #[arg(long = "system", value_name = "DIR")]
    pub system_dir: Option<PathBuf>,
}

/// Options of a libretro core.
#[derive(Args, Clone, Debug, Default)]
pub struct CoreOptionArgs {
    /// Set an option of the core; repeat the flag for more options; joiners use the host's options
    #[arg(long = "option", value_name = "KEY=VALUE", requires = "core", value_parser = parse_key_value)]
    pub options: Vec<(String, String)>,
}

fn parse_core_source(text: &str) -> Result<CoreSource, String> {
    CoreSource::from_user(text).map_err(|error| error.to_string())
}

fn parse_key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("must be a key and a value joined by =, such as region=pal".into()),
    }
}

impl MachineArgs {
    /// Returns the spec of the machine to open, with these core options, for `players` players (`None`: the machine's
    /// default). Fails if the folder of `--system` does not exist, or if the settings are needed and their file is
    /// invalid.
    pub fn spec(&self, core_options: &CoreOptionArgs, players: Option<u8>) -> Result<MachineSpec, AppError> {
        let (core, players) = (self.core.clone(), players.map(usize::from));
        let (options, system_dir) = (core_options.options.clone(), self.system_dir()?);
        Ok(MachineSpec { core, players, options, system_dir, ..MachineSpec::default() })
    }

    /// Returns the folder with BIOS images: that of `--system`, or, for a core without this flag, that of the settings.
    /// Fails if the folder of `--system` does not exist, or if the settings are needed and their file is invalid.
    pub fn system_dir(&self) -> Result<Option<PathBuf>, AppError> {
        match (&self.system_dir, &self.core) {
            (Some(dir), _) if !dir.is_dir() => {
                let message = format!("there is no folder {} for BIOS images", dir.display());
                Err(AppError::failure(message).hint("give an existing folder with --system DIR"))
            }
            (Some(dir), _) => Ok(Some(dir.clone())),
            (None, Some(_)) => Ok(UserSettings::load()?.system_dir),
            (None, None) => Ok(None),
        }
    }
}

/// Arguments of `coplay play`.
#[derive(Args, Clone, Debug)]
pub struct PlayArgs {
    /// File of the game [default: the tennis game of coplay, or no game for a core that needs none]
    pub game: Option<PathBuf>,
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: DisplayArgs,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Flags that set options of the core.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// Set the number of players, 1 to 8 [default: one per pad of the machine]
    #[arg(long, value_name = "N", value_parser = whole_number::<u8>(1..=8))]
    pub players: Option<u8>,
    /// Record a movie to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// With --record: overwrite the file if it exists
    #[arg(long, requires = "record")]
    pub force: bool,
    /// Stop after this many frames [default: no limit; with --headless: 600]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=u32::MAX))]
    pub frames: Option<u32>,
    /// Let bots play, with inputs drawn from this seed; the same seed gives the same inputs
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub bot: Option<u64>,
}

/// Arguments of `coplay replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// File of the movie
    pub file: PathBuf,
    /// File of the game that was recorded [default: the tennis game of coplay, or no game for a core that needs none]
    pub game: Option<PathBuf>,
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: DisplayArgs,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Arguments of `coplay check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// File of the game [default: the tennis game of coplay, or no game for a core that needs none]
    pub game: Option<PathBuf>,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Flags that set options of the core.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// Check the machine for this many players, 1 to 8: the number that you will give to `coplay host`
    /// [default: one per pad of the machine]
    #[arg(long, value_name = "N", value_parser = whole_number::<u8>(1..=8))]
    pub players: Option<u8>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Run the machine for this many frames in total; the last test, the long run, compares those after the first 900
    /// [default: 7200]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=u32::MAX))]
    pub frames: Option<u32>,
    /// Limit the check to about this many seconds [default: 90]
    #[arg(long, value_name = "SECONDS", value_parser = whole_number_in::<u64>(1..=u64::MAX, "s"))]
    pub seconds: Option<u64>,
    /// Repeat the check even if there is a cached report
    #[arg(long)]
    pub again: bool,
}

/// Arguments of `coplay demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// File of the game [default: the tennis game of coplay, or no game for a core that needs none]
    pub game: Option<PathBuf>,
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: DisplayArgs,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Flags that set options of the core.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// Set the round-trip time of the link, 0 to 400 ms
    #[arg(long, value_name = "MS", default_value_t = 80, value_parser = whole_number_in::<u32>(0..=400, "ms"))]
    pub rtt: u32,
    /// Set the mean jitter of a round trip, 0 to 50 ms
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = whole_number_in::<u32>(0..=50, "ms"))]
    pub jitter: u32,
    /// Set the packet loss in each direction, 0 to 30 percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1, value_parser = whole_number_in::<u32>(0..=30, "%"))]
    pub loss: u32,
    /// Delay local input by this many frames, 0 to 20, or as the link needs (`auto`)
    /// [default: 2, or auto with --prediction auto]
    #[arg(long, alias = "lag", value_name = "FRAMES|auto", value_parser = auto_or_frames(MAX_DEMO_FRAMES))]
    pub delay: Option<AutoOrFrames>,
    /// Simulate at most this many frames with predicted inputs, 0 to 20, or as the link needs (`auto`); 0 is lockstep,
    /// which a machine without exact save states always uses [default: 8, or auto with --delay auto]
    #[arg(long, alias = "guess", value_name = "FRAMES|auto", value_parser = auto_or_frames(MAX_DEMO_FRAMES))]
    pub prediction: Option<AutoOrFrames>,
    /// Seed the random numbers of the link and the bots; with --headless the same seed gives the same run
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
    /// Stop after this many frames [default: no limit; with --headless: 600]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=u32::MAX))]
    pub frames: Option<u32>,
    /// Save the last picture to this file: a PNG image of the window, or the text of the terminal
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
}

impl DisplayArgs {
    /// Returns the front end that `--window` or `--terminal` asks for, or no preference.
    pub fn requested_frontend(&self) -> FrontendRequest {
        FrontendRequest { window: self.window, terminal: self.terminal }
    }
}

/// Parses the command line. `Ok(Err(text))` is help or version text that the user asked for, to be printed to stdout.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Result<Cli, String>, AppError> {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.len() < 2 {
        return Err(AppError::usage("missing command").hint("try `coplay play`; `coplay --help` lists all commands"));
    }
    command_line::parse(command(), args)
}

fn command() -> clap::Command {
    heading::add(command_line::command::<Cli>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error_text(args: &[&str]) -> String {
        parse(args.iter().map(Into::into)).unwrap_err().to_string()
    }

    #[test]
    fn clap_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn usage_error_is_one_sentence_and_a_hint() {
        for (args, expected) in [
            (
                &["play", "--frames", "many"][..],
                "error: invalid value \"many\" for --frames: must be a whole number from 1 to 4294967295\n\
                 hint: `coplay play --help` explains --frames",
            ),
            (&["play", "--recrd", "x"], "error: there is no option --recrd\nhint: did you mean --record?"),
            (&["play", "--frames"], "error: --frames needs a value\nhint: `coplay play --help` explains --frames"),
            (&["play", "--mute=yes"], "error: --mute takes no value\nhint: `coplay play --help` explains --mute"),
            (&["play", "--bot", "1", "--bot", "2"], "error: --bot is given twice\nhint: give --bot once"),
            (
                &["play", "--window", "--terminal"],
                "error: --window cannot be used with --terminal\nhint: leave out --window or --terminal",
            ),
            (
                &["host", "--lan", "open"],
                "error: invalid value \"open\" for --lan: must be see, join or hide\n\
                 hint: `coplay host --help` explains --lan",
            ),
            (&["replay"], "error: missing FILE\nhint: `coplay replay --help` lists all options"),
            (&["play", "--force"], "error: missing --record FILE\nhint: `coplay play --help` lists all options"),
            (&["replya"], "error: there is no command \"replya\"\nhint: did you mean `coplay replay`?"),
            (&["dance"], "error: there is no command \"dance\"\nhint: `coplay --help` lists all commands"),
            (&[], "error: missing command\nhint: try `coplay play`; `coplay --help` lists all commands"),
            (&["maze"], "error: missing subcommand\nhint: `coplay maze --help` lists all commands"),
        ] {
            assert_eq!(usage_error_text(&[&["coplay"], args].concat()), expected);
        }
    }

    #[test]
    fn negative_number_is_an_invalid_value() {
        for (args, reason) in [
            (&["play", "--frames", "-5"][..], "for --frames: must be a whole number from 1 to 4294967295"),
            (&["demo", "--delay", "-1"], "for --delay: must be `auto` or a number of frames from 0 to 20"),
        ] {
            let text = usage_error_text(&[&["coplay"], args].concat());
            assert!(text.contains(reason) && !text.contains("-- -"), "{text}");
        }
    }

    #[test]
    fn hint_never_suggests_a_command_line_that_fails() {
        let text = usage_error_text(&["coplay", "host", "--name", "-Bob"]);
        assert_eq!(text, "error: there is no option -B\nhint: to pass -Bob as a value, write --name=-Bob");
        let text = usage_error_text(&["coplay", "play", "--frames", "-x"]);
        assert_eq!(text, "error: there is no option -x\nhint: `coplay play --help` lists all options");
        let text = usage_error_text(&["coplay", "demo", "--gues", "3"]);
        assert_eq!(text, "error: there is no option --gues\nhint: did you mean --prediction?", "not the old name");
    }

    #[test]
    fn old_flag_names_have_the_same_meaning() {
        let parse = |args: &[&str]| parse(args.iter().map(Into::into)).unwrap().unwrap().command;
        let host = |flags: &[&str]| match parse(&[&["coplay", "host"], flags].concat()) {
            Command::Host(host) => (host.delay, host.prediction, host.player.drop_stalled),
            _ => panic!("not host"),
        };
        assert_eq!(
            host(&["--lag", "3", "--window", "auto", "--late-after", "0.5"]),
            host(&["--delay", "3", "--prediction", "auto", "--drop-stalled", "0.5"])
        );
        let demo = |flags: &[&str]| match parse(&[&["coplay", "demo"], flags].concat()) {
            Command::Demo(demo) => (demo.delay, demo.prediction, demo.display.window),
            _ => panic!("not demo"),
        };
        assert_eq!(demo(&["--lag", "3", "--guess", "5"]), demo(&["--delay", "3", "--prediction", "5"]));
        assert_eq!(demo(&["--window"]), (None, None, true), "a window on the screen");
        let maze = |flags: &[&str]| match parse(&[&["coplay", "maze", "host"], flags].concat()) {
            Command::Maze(maze::MazeArgs { command: maze::MazeCommand::Host(host) }) => host.delay,
            _ => panic!("not maze host"),
        };
        assert_eq!(maze(&["--delay", "200"]), maze(&["--playout-delay", "200"]));
    }

    #[test]
    fn every_number_flag_has_the_type_of_its_field() {
        for args in [
            &["play", "--scale", "2", "--players", "2", "--frames", "9", "--bot", "1"][..],
            &["check", "--players", "2", "--frames", "9", "--seconds", "9"],
            &["demo", "--rtt", "9", "--jitter", "9", "--loss", "9", "--seed", "9", "--frames", "9"],
            &["host", "--players", "2", "--pads", "1", "--scale", "2", "--frames", "9", "--bot", "1"],
            &["join", "--pads", "1", "--scale", "2", "--frames", "9", "--bot", "1"],
            &["watch", "--scale", "2", "--frames", "9"],
            &["maze", "play", "--seconds", "9", "--ninjas", "9", "--side", "9", "--seed", "9", "--scale", "2"],
            &["maze", "host", "--ninjas", "9", "--side", "9", "--seconds", "9", "--reckon", "9", "--bucket", "20"],
            &["maze", "join", "--rate", "25", "--scale", "2"],
        ] {
            let args = [&["coplay"], args].concat();
            assert!(parse(args.iter().map(Into::into)).unwrap().is_ok(), "{args:?}");
        }
    }

    #[test]
    fn help_hides_old_flag_names() {
        let help = |command: &[&str]| {
            parse([&["coplay"], command, &["--help"]].concat().iter().map(Into::into)).unwrap().unwrap_err()
        };
        let host = help(&["host"]);
        for flag in ["--delay <FRAMES|auto>", "--prediction <FRAMES|auto>", "--drop-stalled <SECONDS|never>"] {
            assert!(host.contains(flag), "{flag} is missing in\n{host}");
        }
        for flag in ["--lag", "--window", "--late-after"] {
            assert!(!host.contains(flag), "{flag} is in\n{host}");
        }
        let demo = help(&["demo"]);
        assert!(demo.contains("--delay <FRAMES|auto>") && demo.contains("--prediction <FRAMES|auto>"), "{demo}");
        assert!(!demo.contains("--lag") && !demo.contains("--guess"), "{demo}");
    }

    #[test]
    fn help_hint_names_the_innermost_subcommand() {
        for (args, command) in [
            (&["coplay", "maze", "host", "--side", "3"][..], "coplay maze host"),
            (&["coplay", "maze", "join", "--rate", "3"], "coplay maze join"),
            (&["coplay", "maze", "dance"], "coplay maze"),
            (&["coplay", "dance", "play"], "coplay"),
        ] {
            let text = usage_error_text(args);
            assert!(text.contains(&format!("hint: `{command} --help`")), "{args:?}: {text}");
        }
    }

    #[test]
    fn invalid_seed_names_its_range() {
        for args in [
            ["play", "--bot"].as_slice(),
            &["host", "--bot"],
            &["demo", "--seed"],
            &["maze", "play", "--seed"],
            &["maze", "host", "--seed"],
        ] {
            for value in ["abc", "1.5", "-1", "99999999999999999999"] {
                let text = usage_error_text(&[&["coplay"], args, &[value]].concat());
                assert!(text.contains("must be a whole number from 0 to 18446744073709551615, such as 42"), "{text}");
            }
        }
    }

    #[test]
    fn help_states_value_ranges() {
        let help = |command: &str| parse(["coplay", "maze", command, "--help"].map(Into::into)).unwrap().unwrap_err();
        let assert_contains = |command, ranges: &[&str]| {
            // Line breaks depend on the width of the terminal.
            let help = help(command).split_whitespace().collect::<Vec<_>>().join(" ");
            ranges.iter().for_each(|range| assert!(help.contains(range), "{range} is missing in\n{help}"));
        };
        let max_ninjas = coplay_maze::MAX_AVATARS - 1;
        let sides = format!("{} to {}", coplay_maze::Maze::SIDE_RANGE.start(), coplay_maze::Maze::SIDE_RANGE.end());
        assert_contains("play", &[&format!("0 to {max_ninjas}"), &sides]);
        let ticks = format!("10 to {}0 ms", coplay_maze::MazeSettings::MAX_TICKS);
        assert_contains("host", &["0 to 31", &sides, &ticks, "1, 2, 4, 5, 10, 20, 25, 50 or 100"]);
    }

    #[test]
    fn core_options_are_parsed_as_key_value_pairs() {
        let args = ["coplay", "play", "--core", "x", "--option", "a=b=c", "--option", "d="];
        let Ok(Cli { command: Command::Play(play) }) = parse(args.map(Into::into)).unwrap() else { panic!("no play") };
        assert_eq!(play.core_options.options, [("a".into(), "b=c".into()), ("d".into(), String::new())]);
        let text = usage_error_text(&["coplay", "play", "--core", "x", "--option", "fast"]);
        assert!(text.contains("a key and a value joined by ="), "{text}");
        assert!(usage_error_text(&["coplay", "play", "--option", "a=b"]).contains("missing --core CORE"));
    }

    #[test]
    fn help_fits_a_terminal_of_80_by_24() {
        let help = parse(["coplay", "--help"].map(Into::into)).unwrap().unwrap_err();
        let lines: Vec<&str> = help.lines().collect();
        assert!(lines.len() < 24 && lines.iter().all(|line| line.chars().count() < 80), "{help}");
        let listed: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
        let commands = ["play", "host", "join", "watch", "replay", "check", "maze", "demo", "world", "config"];
        assert_eq!(listed[..commands.len()], commands, "{help}");
    }

    #[test]
    fn help_lists_common_flags_first() {
        let help = parse(["coplay", "host", "--help"].map(Into::into)).unwrap().unwrap_err();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text} in\n{help}"));
        let parts =
            ["\nOptions:", "--players", "\nDisplay:", "--terminal", "\nMachine:", "--core", "\nDelay", "--delay"];
        assert!(parts.map(at).is_sorted(), "{help}");
    }
}
