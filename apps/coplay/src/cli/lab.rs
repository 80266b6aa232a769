//! Commands and flags of the lab.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coplay_net::iroh::RelayConfig;

use super::{CoreOptionArgs, MachineArgs};

/// The lab.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    /// What to do in it.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What to do in the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments: what each shows, and how long it takes
    List,
    /// Do some experiments; write what was measured, plots of it, and which claims hold
    Run(LabRunArgs),
    /// Do all experiments, and make one page of them
    Report(LabReportArgs),
    /// Tell what a game feels like over a link, by setting
    Feel(LabFeelArgs),
}

/// Where it comes from, and where it goes.
#[derive(Args, Clone, Debug)]
pub struct ExperimentArgs {
    /// What chance is drawn from: a seed always gives the same numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Write files into this folder
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub out: PathBuf,
}

/// Which experiments to do.
#[derive(Args, Clone, Debug)]
pub struct LabRunArgs {
    /// The names of the experiments, as `coplay lab list` has them
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Also in real time: processes of this program over sockets that are made worse
    #[arg(long)]
    pub real: bool,
    /// Where it comes from, and where it goes.
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// How to make the report.
#[derive(Args, Clone, Debug)]
pub struct LabReportArgs {
    /// Where it comes from, and where it goes.
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// A link, and perhaps a game.
#[derive(Args, Clone, Debug)]
pub struct LabFeelArgs {
    /// The round trip of the link, in milliseconds
    #[arg(long, value_name = "MS", required_unless_present = "measure", value_parser = parse_millis)]
    pub rtt: Option<f64>,
    /// The mean jitter of the link in each direction, in milliseconds
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_millis)]
    pub jitter: f64,
    /// The packets that the link loses, in percent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_loss_percent)]
    pub loss: f64,
    /// Take the link from somebody real: this ticket's host
    #[arg(long, value_name = "TICKET", conflicts_with_all = ["rtt", "jitter", "loss"])]
    pub measure: Option<String>,
    /// With --measure: use another relay than the one that the ticket names
    #[arg(long, value_name = "none|default|URL", requires = "measure")]
    pub relay: Option<RelayConfig>,
    /// With what this game costs on this computer
    #[arg(long, value_name = "GAME")]
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How it is set up.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// What chance is drawn from
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

/// The longest round trip and jitter that make sense, in milliseconds.
const MAX_MILLIS: f64 = 2_000.0;
/// The most loss that a game can be played with, in percent.
const MAX_LOSS_PERCENT: f64 = 50.0;

fn parse_millis(text: &str) -> Result<f64, String> {
    parse_bounded_number(text, MAX_MILLIS)
}

fn parse_loss_percent(text: &str) -> Result<f64, String> {
    parse_bounded_number(text, MAX_LOSS_PERCENT)
}

fn parse_bounded_number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("this must be a number from 0 to {most}"))
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
