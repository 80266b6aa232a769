//! The program `coplay`: play an old game, alone or with friends far away.
//!
//! A command ([`cli`]) opens a game on a machine ([`game`]) and runs it on a thread of its own ([`play`], [`replay`], [`demo`]), with others
//! over a network that [`meet`] opens ([`net`]), if it may be [shared](sharing). It shows
//! [scenes](scene) on a [stage](stage()) and hears commands and [what is pressed](hands) from there; a [front end](front) shows the newest scene,
//! in a window or in a terminal. The [lab] measures. What all games on a screen have in common is on their [desk](desk::Desk).

pub mod bot;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod desk;
mod fault;
pub mod film;
pub mod fit;
pub mod front;
pub mod game;
pub mod gamepad;
pub mod hands;
pub mod key;
pub mod lab;
pub mod maze;
pub mod meet;
pub mod meter;
pub mod net;
pub mod outfit;
pub mod pace;
pub mod palette;
pub mod play;
pub mod record;
pub mod replay;
pub mod run;
pub mod scene;
pub mod seat;
pub mod sharing;
pub mod slots;
pub mod sound;
mod stage;
pub mod stop;
pub mod summary;
#[cfg(test)]
mod toy;
pub mod trouble;
pub mod world;

pub use stage::{Stage, View, stage};

/// Writes to stdout. Who does not want to hear more, such as `head`, is not bothered.
pub fn out(text: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
