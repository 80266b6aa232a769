//! The program `coplay-lab`, for researchers: runs the [experiments] of the papers with this engine, previews a
//! [link](link_preview), and measures the [drift] between the sites of a maze.
//!
//! The [lab crate](coplay_lab) does no I/O. This program has the I/O: output files, a progress bar with a clock, and
//! runs of the program `coplay`, for experiments in real time and for measurements of links and machines.

pub mod cli;
pub mod coplay_program;
pub mod drift;
pub mod experiments;
pub mod link_preview;
mod output_dir;
mod progress_bar;
mod real_run;

use std::process::ExitCode;

use cli::{Cli, Command};

/// Runs the subcommand given on the command line. Prints an error to standard error. Returns the exit code.
pub fn main() -> ExitCode {
    coplay_shell::run(std::env::args_os(), |cli: Cli| {
        match cli.command {
            Command::List => experiments::list(),
            Command::Run(args) => experiments::run(&args),
            Command::Report(args) => experiments::write_report(&args),
            Command::Feel(args) => link_preview::run(&args),
            Command::Drift(args) => drift::run(&args),
        }
        .map(|()| ExitCode::SUCCESS)
    })
}
