//! The program `coplay-world`: servers of a shared world, and bots to test them.
//!
//! - [`serve`]: one server, which reaches players over UDP and iroh, and the other servers over zenoh.
//! - [`load`]: many bots, and a report of their lost scores, delays and traffic.
//! - [`mod@bench`]: measures how many players three servers carry.

pub mod bench;
pub mod cli;
pub mod error;
pub mod http;
pub mod load;
pub mod metrics;
pub mod player_network;
pub mod replay_guard;
pub mod seal;
pub mod serve;
pub mod server_network;
mod signals;
mod usage_error;

use std::process::ExitCode;

use cli::{Cli, Command};
use error::CliError;

/// Runs the subcommand given on the command line. Prints an error to standard error. Returns the exit code.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(error.exit_code())
    })
}

fn run() -> Result<ExitCode, CliError> {
    match Cli::from_args(std::env::args_os())?.command {
        Command::Serve(args) => serve::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => bench::run(&args),
    }
}
