//! Entry point of the program `coplay-world`.

use std::process::ExitCode;

fn main() -> ExitCode {
    coplay_world_app::main()
}
