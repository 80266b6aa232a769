//! The door to C, and the only unsafe code of this crate.
//!
//! [`Core`] is a safe face of a loaded core, as far as there can be one: a core is native code and can do to the process what it likes.
//! What is kept up here is everything on our side of the door. No pointer of a core is used after the call it came with, but for those that libretro
//! says stay good as long as the game is loaded (memory and its map). Whatever is read through one has a bound, and answers are
//! written only where there is a pointer. Nothing unwinds into C.
#![allow(unsafe_code)]

mod abi;
mod callbacks;
mod core;
mod environment;
mod read;

pub(super) use self::core::{Core, CoreLoadError, GameContent};
