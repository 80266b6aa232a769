//! Game machines that can be shared in a session, each seen as a black box.
//!
//! A [`Machine`] is an emulator with a game loaded. Code outside this crate knows only its contract. The session engine
//! uses its identity and frame rate; through a host program it asks the machine to step, save, load and hash. A front
//! end shows its [`Picture`], plays its sound and maps keys to the [buttons](pad) of the machine.

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
