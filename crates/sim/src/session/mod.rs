//! Fault tests of [`coplay::session`]: random sessions with spectators and faults, and checkers that know nothing of
//! the engine.

pub mod checker;
pub mod recording;
pub mod scenario;
pub mod spectators;
