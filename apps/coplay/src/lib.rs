//! The program `coplay`: plays an old game, alone or with friends over the network.
//!
//! A [command](cli) opens a game on a [machine](game) and runs it: [locally](play), as a [replay], as a [demo], or
//! [with others](net) over a transport of [`connect`], if the machine can be [shared](netplay_approval). Unless the
//! command is headless, the game runs on a thread of its own. The game sends [scenes](scene) over a
//! [UI link](ui_link()) to a [front end](frontend), which is a window or the terminal. The front end sends back
//! commands and the [pressed buttons](input_state). The [HUD](hud::Hud) draws the menu, the help and messages for every
//! game on a screen, and handles the commands that these games share. The [maze] is a game without a machine.

pub mod bot;
pub mod check;
pub mod cli;
pub mod config;
pub mod connect;
pub mod demo;
mod display_args;
pub mod frame_timer;
pub mod frontend;
pub mod game;
pub mod gamepad;
pub mod hud;
pub mod input_state;
pub mod key;
pub mod layout;
pub mod maze;
mod measure;
pub mod movie_file;
pub mod net;
pub mod netplay_approval;
pub mod palette;
pub mod play;
pub mod rate_meter;
pub mod record;
pub mod replay;
pub mod run;
pub mod save_slots;
pub mod scene;
pub mod seat_key;
pub mod signals;
pub mod sound;
pub mod speaker_and_gamepads;
pub mod summary;
#[cfg(test)]
mod test_machine;
mod ui_link;

pub use ui_link::{FrontendPort, GamePort, ui_link};
