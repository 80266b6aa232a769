//! Spectators of a simulated session: a few that behave well or badly, or thousands at once.

pub mod scale;
pub mod scenario;
