//! Worlds without a server: every site says where its own entities are, and computes its own view of all of them.

mod reckon;

pub use reckon::{EntityId, FAR, MAX_STATE, Reckoner, Region, Site};
