//! The program `coplay`: play an old game, alone or with friends far away.
//!
//! A command ([`cli`]) opens a game on a machine ([`game`]) and runs it on a thread of its own ([`play`], [`replay`], [`demo`]), with others
//! over a network that [`meet`] opens ([`net`]), if it may be [shared](sharing). It shows
//! [scenes](scene) on a [stage](stage()) and hears commands and [what is pressed](input_state) from there; a [front end](front) shows the newest scene,
//! in a window or in a terminal. The [lab] measures. What all games on a screen have in common is on their [desk](hud::Hud).

pub mod bot;
pub mod check;
pub mod cli;
pub mod config;
pub mod connect;
pub mod demo;
pub mod devices;
pub mod error;
pub mod frame_timer;
pub mod frontend;
pub mod game;
pub mod gamepad;
pub mod hud;
pub mod input_state;
pub mod key;
pub mod lab;
pub mod layout;
pub mod maze;
pub mod movie_file;
pub mod net;
pub mod palette;
mod panic_hook;
pub mod play;
pub mod rate_meter;
pub mod record;
pub mod replay;
pub mod run;
pub mod save_slots;
pub mod scene;
pub mod seat_key;
pub mod sharing;
pub mod signals;
pub mod sound;
pub mod summary;
#[cfg(test)]
mod toy_machine;
mod ui_link;
pub mod world_launcher;

pub use ui_link::{FrontendPort, GamePort, ui_link};

/// Writes to stdout. Who does not want to hear more, such as `head`, is not bothered.
pub fn print_stdout(text: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
