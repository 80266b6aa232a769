//! Experiments of Li, Li and Lau: differences between the motion timers of a moving object at its player, at the server
//! and at another player.

pub mod compensation_split;
mod motion_walk;
pub mod timers;
