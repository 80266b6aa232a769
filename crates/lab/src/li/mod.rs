//! The experiments of Li, Li and Lau: how far apart the timers of a moving object are at the player's, the server's, and another's.

mod motion_walk;
pub mod server_share;
pub mod timers;
