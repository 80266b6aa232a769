//! Experiments of Li, Li and Lau: differences between the motion timers of a moving object at its player, at the server
//! and at another player.

mod motion_walk;
pub mod server_share;
pub mod timers;
