//! What can be shared: game machines, each seen as a black box.
//!
//! A [`MachineProfile`] is a machine with a game in it. Its contract is all that anything outside this crate knows of it: the session engine is
//! told its identity and its rate, and asks it, through a host program, to step, save, load and hash; a front end shows its
//! [`Picture`], plays its sound and presses the [buttons](pad) that it has.

#[cfg(not(target_family = "wasm"))]
pub mod check;
pub mod control;
pub mod identity;
#[cfg(not(target_family = "wasm"))]
pub mod libretro;
mod lockstep_only;
mod machine;
pub mod nes;
pub mod pad;
mod picture;
pub mod session_adapter;

pub use lockstep_only::LockstepOnly;
pub use machine::{LoadError, Machine, NetplaySupport, SaveError};
pub use picture::Picture;
