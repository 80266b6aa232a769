//! The program `coplay-lab`, run as a user runs it.

#[allow(dead_code, reason = "other programs use the rest of the module")]
#[path = "../../coplay/tests/common/mod.rs"]
mod common;
mod experiments;
mod with_coplay;

/// Path of the program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_coplay-lab");
