//! Command line of `coplay-lab`: commands, flags, and their parsing.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use coplay_shell::values::parse_seed;

/// Repeat the experiments of five papers on networked games
#[derive(Debug, Parser)]
#[command(name = "coplay-lab", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// Subcommand that the user chose.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all experiments, with their purpose and duration
    List,
    /// Run some experiments, and print which claims hold
    ///
    /// The command also writes the data and figures.
    Run(RunArgs),
    /// Run all experiments, and write report.html
    ///
    /// The page contains all figures, data and claims. The command also writes them as files.
    Report(ReportArgs),
    /// Simulate a game over a link, and print its speed and latency
    ///
    /// The table has a row for each of several input delays and prediction windows.
    Feel(FeelArgs),
    /// Measure how far apart the sites of a maze were, from their traces
    ///
    /// The drift is the distance between one site's view of an avatar and the view of its owner at the same instant.
    Drift(DriftArgs),
}

/// Seed and output folder of experiments.
#[derive(Args, Clone, Debug)]
pub struct SeedAndOutputArgs {
    /// Seed the random numbers; the same seed gives the same results, except for those of runs in real time
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
    /// Write figures, data and claims into this folder
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub out: PathBuf,
}

/// Arguments of `coplay-lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Names of experiments, as in `coplay-lab list`
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Also run in real time, as two processes that play over UDP on this computer with simulated delay; only
    /// experiments that `coplay-lab list` marks with "Supports --real"
    #[arg(long)]
    pub real: bool,
    /// Seed of the random numbers, and folder for the results.
    #[command(flatten)]
    pub experiment: SeedAndOutputArgs,
}

/// Arguments of `coplay-lab report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Seed of the random numbers, and folder for the results.
    #[command(flatten)]
    pub experiment: SeedAndOutputArgs,
}

/// Arguments of `coplay-lab feel`: a link, and optionally a game.
#[derive(Args, Clone, Debug)]
pub struct FeelArgs {
    /// Set the round-trip time of the link, 0 to 2000 ms
    #[arg(long, value_name = "MS", required_unless_present = "measure", value_parser = parse_millis)]
    pub rtt: Option<f64>,
    /// Set the mean jitter of the link in each direction, 0 to 2000 ms
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_millis)]
    pub jitter: f64,
    /// Set the packet loss of the link in each direction, 0 to 50 percent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_loss_percent)]
    pub loss: f64,
    /// Measure the link to the host of this ticket, in place of --rtt, --jitter and --loss
    #[arg(long, value_name = "TICKET", conflicts_with_all = ["rtt", "jitter", "loss"])]
    pub measure: Option<String>,
    /// With --measure: let the host reach you through this relay in place of the ticket's: `none`, `default` or a URL;
    /// you still reach the host through the ticket's relay, except with `none`, which uses no relay; no effect with a
    /// udp:// ticket
    #[arg(long, value_name = "none|default|URL", requires = "measure")]
    pub relay: Option<String>,
    /// Game and machine whose times are included.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Seed the random numbers; the same seed gives the same results for the same link and the same times of the game
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
}

/// Game and machine that `coplay check` measures. The program `coplay` explains invalid values.
#[derive(Args, Clone, Debug, Default)]
pub struct MachineArgs {
    /// Include the time that this game takes on this computer to step a frame and to save and load its state
    /// [default: 0 ms]
    #[arg(long, value_name = "GAME")]
    pub game: Option<PathBuf>,
    /// Run the game on this libretro core, given by name or path [default: the built-in NES]
    #[arg(long, value_name = "CORE")]
    pub core: Option<OsString>,
    /// Read the BIOS images that the core needs from this folder [default: as in the settings of coplay]
    #[arg(long = "system", value_name = "DIR")]
    pub system_dir: Option<PathBuf>,
    /// Set an option of the core; repeat the flag for more options
    #[arg(long = "option", value_name = "KEY=VALUE", requires = "core")]
    pub core_options: Vec<OsString>,
}

/// Arguments of `coplay-lab drift`.
#[derive(Args, Clone, Debug)]
pub struct DriftArgs {
    /// Traces that sites of one maze wrote with `coplay maze host --trace` and `coplay maze join --trace`: two files or
    /// more
    #[arg(required = true, num_args = 1.., value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// Largest `--rtt` and `--jitter`, in milliseconds.
const MAX_MILLIS: f64 = 2_000.0;
/// Largest `--loss`, in percent.
const MAX_LOSS_PERCENT: f64 = 50.0;

fn parse_millis(text: &str) -> Result<f64, String> {
    parse_bounded_number(text, MAX_MILLIS, "ms")
}

fn parse_loss_percent(text: &str) -> Result<f64, String> {
    parse_bounded_number(text, MAX_LOSS_PERCENT, "%")
}

fn parse_bounded_number(text: &str, max: f64, unit: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=max).contains(number));
    number.ok_or_else(|| format!("must be a number from 0 to {max} {unit}"))
}

#[cfg(test)]
mod tests {
    use coplay_shell::command_line;
    use coplay_shell::error::AppError;

    use super::*;

    fn parse(args: &[&str]) -> Result<Result<Cli, String>, AppError> {
        let args = [&["coplay-lab"], args].concat();
        command_line::parse(command_line::command::<Cli>(), args.iter().map(Into::into))
    }

    fn usage_error_text(args: &[&str]) -> String {
        parse(args).unwrap_err().to_string()
    }

    #[test]
    fn clap_definition_is_consistent() {
        command_line::command::<Cli>().debug_assert();
    }

    #[test]
    fn usage_error_is_one_sentence_and_a_hint() {
        for (args, expected) in [
            (&[][..], "error: missing subcommand\nhint: `coplay-lab --help` lists all commands"),
            (&["reprot"], "error: there is no command \"reprot\"\nhint: did you mean `coplay-lab report`?"),
            (&["run"], "error: missing NAME\nhint: `coplay-lab run --help` lists all options"),
            (&["drift"], "error: missing TRACE\nhint: `coplay-lab drift --help` lists all options"),
            (
                &["feel", "--rtt", "-0.5"],
                "error: invalid value \"-0.5\" for --rtt: must be a number from 0 to 2000 ms\n\
                 hint: `coplay-lab feel --help` explains --rtt",
            ),
            (
                &["report", "--seed", "1.5"],
                "error: invalid value \"1.5\" for --seed: must be a whole number from 0 to 18446744073709551615, such \
                 as 42\nhint: `coplay-lab report --help` explains --seed",
            ),
        ] {
            assert_eq!(usage_error_text(args), expected);
        }
    }

    #[test]
    fn every_number_flag_has_the_type_of_its_field() {
        for args in
            [&["feel", "--rtt", "9", "--jitter", "9", "--loss", "9", "--seed", "9"][..], &["report", "--seed", "9"]]
        {
            assert!(parse(args).unwrap().is_ok(), "{args:?}");
        }
    }

    #[test]
    fn link_parameters_outside_their_range_are_rejected() {
        assert_eq!((parse_millis("0"), parse_millis("120.5"), parse_loss_percent("2")), (Ok(0.0), Ok(120.5), Ok(2.0)));
        for wrong in ["", "-1", "NaN", "inf", "far", "2001"] {
            assert!(parse_millis(wrong).is_err(), "{wrong}");
        }
        assert!(parse_loss_percent("51").is_err());
    }
}
