//! Experiments of Zhao, Li, Gu, Shao and Gu: *An Approach to Sharing Legacy TV/Arcade Games for Real-Time
//! Collaboration*.

pub mod late_joiners;
pub mod loss;
pub mod pacing;
pub mod players;
pub mod spectators;
