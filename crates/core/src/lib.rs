//! Keeps replicas of a game in step over a network.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod clock;
pub mod frame;
pub mod id;
pub mod input;
pub mod pace;
pub mod session;
pub mod time;
pub mod wire;
