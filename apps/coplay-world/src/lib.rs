//! Servers of a shared world, and software players to try them with.
//!
//! - [`serve`]: one server: players over UDP and iroh, the other servers over zenoh.
//! - [`load`]: many software players, and a table of what it was like for them.
//! - [`mod@bench`]: how many of them three servers carry.

pub mod bench;
pub mod cli;
pub mod error;
pub mod http;
pub mod load;
pub mod metrics;
pub mod mirror_network;
pub mod player_network;
pub mod replay_guard;
pub mod seal;
pub mod serve;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};

/// Does what the command line says.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::from(trouble.exit_code())
        }
    }
}
