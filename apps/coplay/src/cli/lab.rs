//! Commands and flags of `coplay lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coplay_net::iroh::RelayConfig;
use coplay_shell::values::parse_seed;

use super::{CoreOptionArgs, MachineArgs};

/// Arguments of `coplay lab`.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// Subcommand that the user chose.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// Commands of the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments, with their purpose and duration
    List,
    /// Run experiments, write their data and figures, and print which claims hold
    Run(LabRunArgs),
    /// Run all experiments, and write report.html with all figures, data and claims
    Report(LabReportArgs),
    /// Simulate a game over a link, and print its speed and latency for several input delays and prediction windows
    Feel(LabFeelArgs),
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

/// Arguments of `coplay lab run`.
#[derive(Args, Clone, Debug)]
pub struct LabRunArgs {
    /// Names of experiments, as in `coplay lab list`
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Also run in real time, as two processes that play over UDP on this computer with simulated delay; only
    /// experiments that `coplay lab list` marks with "Supports --real"
    #[arg(long)]
    pub real: bool,
    /// Seed of the random numbers, and folder for the results.
    #[command(flatten)]
    pub experiment: SeedAndOutputArgs,
}

/// Arguments of `coplay lab report`.
#[derive(Args, Clone, Debug)]
pub struct LabReportArgs {
    /// Seed of the random numbers, and folder for the results.
    #[command(flatten)]
    pub experiment: SeedAndOutputArgs,
}

/// Arguments of `coplay lab feel`: a link, and optionally a game.
#[derive(Args, Clone, Debug)]
pub struct LabFeelArgs {
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
    pub relay: Option<RelayConfig>,
    /// Include the time that this game takes on this computer to step a frame and to save and load its state
    /// [default: 0 ms]
    #[arg(long, value_name = "GAME")]
    pub game: Option<PathBuf>,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Flags that set options of the core.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// Seed the random numbers; the same seed gives the same results for the same link and the same times of the game
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
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
    use super::*;

    #[test]
    fn link_parameters_outside_their_range_are_rejected() {
        assert_eq!((parse_millis("0"), parse_millis("120.5"), parse_loss_percent("2")), (Ok(0.0), Ok(120.5), Ok(2.0)));
        for wrong in ["", "-1", "NaN", "inf", "far", "2001"] {
            assert!(parse_millis(wrong).is_err(), "{wrong}");
        }
        assert!(parse_loss_percent("51").is_err());
    }
}
