//! Commands and flags.

pub mod lab;
pub mod maze;
pub mod maze_online;
pub mod net;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use coplay_machines::libretro::CoreSource;

use crate::config::{Config, MAX_SCALE};
use crate::error::AppError;
use crate::frontend::FrontendRequest;
use crate::game::MachineSpec;

/// What is said of what should be one.
const WHOLE_NUMBER_MESSAGE: &str = "this must be a whole number";

/// Play an old game, alone or with friends far away.
#[derive(Debug, Parser)]
#[command(name = "coplay", version, about, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Play a game on this computer
    Play(PlayArgs),
    /// Play a movie, and prove that the machine does the same again
    Replay(ReplayArgs),
    /// Play a game with others, who join it with a ticket
    Host(net::HostArgs),
    /// Join the game of somebody else
    Join(net::JoinArgs),
    /// Watch a game that others play
    Watch(net::WatchArgs),
    /// See two sites share a game over a bad link, and turn its dials
    Demo(DemoArgs),
    /// Find out whether a game is fit to be shared on its machine, and how
    Check(CheckArgs),
    /// Do the papers' experiments with the engine of this program, ours beside theirs
    Lab(lab::LabArgs),
    /// Chase and be chased in a maze: a world without a server
    Maze(maze::MazeArgs),
    /// Run servers of a shared world, and try them: see `coplay world --help`
    #[command(disable_help_flag = true)]
    World(WorldArgs),
    /// The other process of a check
    #[command(name = crate::check::CHILD_COMMAND, hide = true)]
    CheckChild(CheckArgs),
    /// Show where the settings are, and what they are
    Config,
}

/// What is handed on to the program for servers.
#[derive(Args, Clone, Debug)]
pub struct WorldArgs {
    /// What to do with servers
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub args: Vec<OsString>,
}

/// How to see it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DisplayArgs {
    /// Show it in this terminal
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Show it in a window
    #[arg(long, conflicts_with_all = ["headless", "terminal"])]
    pub window: bool,
    /// Show nothing: as fast as it goes, then a few numbers
    #[arg(long)]
    pub headless: bool,
    /// How many times larger than the picture the window is
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SCALE)))]
    pub scale: Option<u32>,
    /// No sound
    #[arg(long)]
    pub mute: bool,
}

/// A machine.
#[derive(Args, Clone, Debug, Default)]
pub struct MachineArgs {
    /// Play it with this libretro core, by name or path
    #[arg(long, value_name = "CORE", value_parser = parse_core_source)]
    pub core: Option<CoreSource>,
    /// The folder with the BIOS images that the core needs; all who play need the same
    #[arg(long, value_name = "DIR")]
    pub system_dir: Option<PathBuf>,
}

/// How a machine is set up.
#[derive(Args, Clone, Debug, Default)]
pub struct CoreOptionArgs {
    /// Set an option of the core; can be said several times, and who joins plays with the same
    #[arg(long = "option", value_name = "KEY=VALUE", requires = "core", value_parser = parse_key_value)]
    pub options: Vec<(String, String)>,
}

fn parse_core_source(text: &str) -> Result<CoreSource, String> {
    CoreSource::from_user(text).map_err(|error| error.to_string())
}

fn parse_key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("this must be a key and a value with = in between".into()),
    }
}

impl MachineArgs {
    /// What to open: this machine, set up like that, for so many players.
    pub fn spec(&self, setup: &CoreOptionArgs, players: Option<u8>) -> Result<MachineSpec, AppError> {
        let (core, players) = (self.core.clone(), players.map(usize::from));
        let (options, system) = (setup.options.clone(), self.system_dir()?);
        Ok(MachineSpec { core, players, options, system_dir: system, ..MachineSpec::default() })
    }

    /// The folder with BIOS images: the one that was said, or that of the settings.
    pub fn system_dir(&self) -> Result<Option<PathBuf>, AppError> {
        match (&self.system_dir, &self.core) {
            (Some(folder), _) if !folder.is_dir() => {
                let what = format!("there is no folder {} for BIOS images", folder.display());
                Err(AppError::failure(what).hint("say --system with a folder"))
            }
            (Some(folder), _) => Ok(Some(folder.clone())),
            (None, Some(_)) => Ok(Config::load()?.system_dir),
            (None, None) => Ok(None),
        }
    }
}

/// How to play.
#[derive(Args, Clone, Debug)]
pub struct PlayArgs {
    /// The file of a game; without one, the game that comes with coplay
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How it is set up.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// How many play
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub players: Option<u8>,
    /// Keep a movie in this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Let the movie overwrite what is there
    #[arg(long, requires = "record")]
    pub force: bool,
    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: Option<u32>,
    /// Let bots play; a seed always plays the same
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub bot: Option<u64>,
    /// How to see it.
    #[command(flatten)]
    pub display: DisplayArgs,
}

/// How to replay.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The movie
    pub file: PathBuf,
    /// The game that it is of; not needed for the one that comes with coplay
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How to see it.
    #[command(flatten)]
    pub display: DisplayArgs,
}

/// What to check, and how thoroughly.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The file of a game; without one, the game that comes with coplay
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How it is set up.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// For how many players, as it will be said to `coplay host`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub players: Option<u8>,
    /// For programs: the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Compare so many frames in the long run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: Option<u32>,
    /// Take no longer than about this
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Check again, even if it was checked before
    #[arg(long)]
    pub again: bool,
}

/// How to show what it is all about.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// The file of a game; without one, the game that comes with coplay
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How it is set up.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// The round trip of the link, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=400))]
    pub rtt: u32,
    /// The mean jitter of the link, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=50))]
    pub jitter: u32,
    /// The packets that the link loses, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=30))]
    pub loss: u32,
    /// By how many frames local input is delayed
    #[arg(long, value_name = "FRAMES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub input_delay: u32,
    /// How many frames may be guessed: the window of the engine
    #[arg(long, value_name = "FRAMES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub prediction_window: u32,
    /// What chance is drawn from
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: Option<u32>,
    /// Keep the last picture in this file: an image of a window, the text of a terminal
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
    /// How to see it.
    #[command(flatten)]
    pub display: DisplayArgs,
}

impl DisplayArgs {
    /// The front end that was asked for.
    pub fn requested_frontend(&self) -> FrontendRequest {
        FrontendRequest { window: self.window, terminal: self.terminal }
    }
}

/// What the command line says; `Ok(Err(text))` is help, which is wanted and goes to stdout.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Result<Cli, String>, AppError> {
    let args: Vec<_> = args.into_iter().collect();
    let error = match Cli::try_parse_from(&args) {
        Ok(cli) => return Ok(Ok(cli)),
        Err(error) => error,
    };
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Err(text)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if args.len() < 2 => {
            Err(AppError::usage("a command is missing").hint("try `coplay play`; `coplay --help` lists all of them"))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let what = "it is not said what to do there";
            Err(AppError::usage(what).hint(help_hint(&args)))
        }
        _ => Err(usage_error(&text, &args)),
    }
}

/// Makes one sentence and a hint of what clap has to say about a command line.
fn usage_error(text: &str, args: &[OsString]) -> AppError {
    let said: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let said = said.join(" ");
    // What is said of a number is in the words of a programming language.
    let what =
        said.strip_prefix("error: ").unwrap_or(&said).replace("invalid digit found in string", WHOLE_NUMBER_MESSAGE);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    AppError::usage(what).hint(tip.map_or_else(|| help_hint(args), str::to_owned))
}

/// Where it is explained what was typed: at the innermost command of it.
fn help_hint(args: &[OsString]) -> String {
    let (mut command, mut typed) = (&Cli::command(), String::new());
    for word in args.iter().skip(1).map_while(|word| word.to_str()) {
        let Some(inner) = command.find_subcommand(word) else { break };
        (command, typed) = (inner, format!("{typed}{word} "));
    }
    format!("`coplay {typed}--help` lists what there is")
}

/// What chance is drawn from, or a maze follows from.
fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}, such as 42", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error_text(args: &[&str]) -> String {
        parse(args.iter().map(Into::into)).unwrap_err().to_string()
    }

    #[test]
    fn clap_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_error_is_one_sentence_and_a_hint() {
        let told = usage_error_text(&["coplay", "play", "--frames", "many"]);
        assert!(told.starts_with("error: invalid value 'many' for '--frames <N>'"), "{told}");
        assert!(told.ends_with("hint: `coplay play --help` lists what there is"), "{told}");
        assert_eq!(told.lines().count(), 2);
        let told = usage_error_text(&["coplay", "play", "--recrd", "x"]);
        assert!(told.contains("--recrd") && told.contains("hint: a similar argument exists: '--record'"), "{told}");
        assert!(usage_error_text(&["coplay"]).starts_with("error: a command is missing"));
        assert!(usage_error_text(&["coplay", "play", "--window", "--terminal"]).contains("cannot be used with"));
    }

    #[test]
    fn help_hint_names_the_innermost_subcommand() {
        for (args, command) in [
            (&["coplay", "maze", "host", "--side", "3"][..], "coplay maze host"),
            (&["coplay", "maze", "join", "--rate", "3"], "coplay maze join"),
            (&["coplay", "maze", "dance"], "coplay maze"),
            (&["coplay", "lab", "run"], "coplay lab run"),
            (&["coplay", "dance", "play"], "coplay"),
        ] {
            let told = usage_error_text(args);
            assert!(told.ends_with(&format!("hint: `{command} --help` lists what there is")), "{args:?}: {told}");
        }
    }

    #[test]
    fn invalid_number_is_reported_in_plain_words() {
        for args in [
            ["play", "--bot"].as_slice(),
            &["demo", "--seed"],
            &["maze", "play", "--seed"],
            &["maze", "host", "--seed"],
        ] {
            for value in ["abc", "1.5", "99999999999999999999"] {
                let told = usage_error_text(&[&["coplay"], args, &[value]].concat());
                assert!(told.contains("a seed is a whole number"), "{told}");
            }
        }
        let told = usage_error_text(&["coplay", "maze", "play", "--seconds", "long"]);
        assert!(told.contains(WHOLE_NUMBER_MESSAGE) && !told.contains("digit"), "{told}");
    }

    #[test]
    fn help_states_value_ranges() {
        let help = |what: &str| parse(["coplay", "maze", what, "--help"].map(Into::into)).unwrap().unwrap_err();
        let assert_says = |what, bounds: &[&str]| {
            // However its lines are broken.
            let help = help(what).split_whitespace().collect::<Vec<_>>().join(" ");
            bounds.iter().for_each(|bounds| assert!(help.contains(bounds), "{bounds} is missing in\n{help}"));
        };
        let most = coplay_maze::MAX_AVATARS - 1;
        let sides = format!("from {} to {}", maze::side_range().start(), maze::side_range().end());
        assert_says("play", &[&format!("from 0 to {most}"), &sides]);
        let ticks = format!("from 10 to {}0", coplay_maze::MazeSettings::MAX_TICKS);
        assert_says("host", &["from 0 to 31", &sides, &ticks, "1, 2, 4, 5, 10, 20, 25, 50 or 100"]);
    }

    #[test]
    fn core_options_are_parsed_as_key_value_pairs() {
        let args = ["coplay", "play", "--core", "x", "--option", "a=b=c", "--option", "d="];
        let Ok(Cli { command: Command::Play(play) }) = parse(args.map(Into::into)).unwrap() else { panic!("no play") };
        assert_eq!(play.core_options.options, [("a".into(), "b=c".into()), ("d".into(), String::new())]);
        let told = usage_error_text(&["coplay", "play", "--core", "x", "--option", "fast"]);
        assert!(told.contains("a key and a value"), "{told}");
        assert!(usage_error_text(&["coplay", "play", "--option", "a=b"]).contains("--core <CORE>"));
    }

    #[test]
    fn help_is_not_an_error() {
        let help = parse(["coplay", "--help"].map(Into::into)).unwrap().unwrap_err();
        assert!(
            ["replay", "config", "host", "join", "watch", "lab"].iter().all(|command| help.contains(command)),
            "{help}"
        );
    }
}
