//! Entry point of the program `coplay`.

use std::process::ExitCode;

fn main() -> ExitCode {
    coplay_app::run::main(std::env::args_os())
}
