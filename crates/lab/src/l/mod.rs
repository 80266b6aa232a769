//! The experiments of Li, Li and Lau: how far apart the timers of a moving object are at the player's, the server's, and another's.

pub mod share;
mod stage;
pub mod timers;
