//! The C interface, and the only unsafe code of this crate.
//!
//! [`Core`] wraps a loaded core in an interface that is as safe as possible: a core is native code and can do anything
//! to the process. This module keeps the rules on our side. It uses no pointer of a core after the call that passed it,
//! except those that libretro declares valid while the game is loaded: memory, its map and the frame-time callback.
//! Every read through a pointer is bounded, and answers are written only to non-null pointers. No panic unwinds into C.
#![allow(unsafe_code)]

mod abi;
mod callbacks;
mod core;
mod environment;
mod read;

pub(super) use self::core::{Core, CoreLoadError, GameContent};
