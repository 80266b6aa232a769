//! Spectators of a simulated session: a few with faults, or thousands without.

pub mod scale;
pub mod scenario;
