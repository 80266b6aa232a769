//! The program `coplay`, run as a user runs it: real processes, sockets and terminals.

mod bad_input;
mod common;
mod cores;
mod headless;
#[cfg(target_os = "linux")]
#[path = "common/hostile.rs"]
mod hostile;
mod maze;
mod net;
mod net_faults;
mod net_recording;
mod net_spectators;
mod terminal;

/// Path of the program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_coplay");
