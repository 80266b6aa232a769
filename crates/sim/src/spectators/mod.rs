//! Spectators of a simulated session: a few with or without faults, or thousands at once.

pub mod scale;
pub mod scenario;
