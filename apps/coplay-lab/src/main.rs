//! Entry point of the program `coplay-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    coplay_lab_app::main()
}
