//! The program `coplay-world`: servers of a shared world, and bots to test them.
//!
//! - [`serve`]: one server, which reaches players over UDP and iroh, and the other servers over zenoh.
//! - [`load`]: many bots, and a report of their lost scores, delays and traffic.
//! - [`mod@bench`]: measures how many players three servers carry.

pub mod bench;
pub mod cli;
pub mod http;
pub mod load;
pub mod metrics;
pub mod player_network;
pub mod replay_guard;
pub mod seal;
pub mod serve;
pub mod server_network;

use std::process::ExitCode;

use cli::{Cli, Command};

/// Runs the subcommand given on the command line. Prints an error to standard error. Returns the exit code.
pub fn main() -> ExitCode {
    coplay_shell::run(std::env::args_os(), |cli: Cli| match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => bench::run(&args),
    })
}
