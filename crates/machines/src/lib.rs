//! Game machines that can be shared in a session, each seen as a black box.
//!
//! A [`Machine`] is an emulator with a game loaded. The session engine uses the machine's identity and frame rate, and
//! requests through a host program that the machine step, save, load or hash. A frontend shows the machine's
//! [`Picture`], plays its sound and maps keys to its [buttons](pad).

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
