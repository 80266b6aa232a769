//! Worlds with servers: several game state servers mirror one maze, and a player is on the nearest of them.
//!
//! A server runs the reference simulators of its players' avatars, after Li, Li and Lau, *Supporting Continuous Consistency in Multiplayer Online
//! Games*, and tells the other servers what happens by events, after Palazzi et al. ([`coplay::reflectivity`]). The maze is that of
//! [`coplay_maze`], with the same rules as without servers.
//!
//! Pure: whoever owns clock and networks calls. The program `coplay-world` does, with zenoh between the servers.
//!
//! # Facts
//!
//! Everything that a server says of an object is a fact that holds by itself ([`Update`]): where it stands, by the word of who owns it for the
//! how manieth time; how often it hit and fell, as one server counted. Of two facts that contradict each other one is newer and
//! says so. So it makes no difference in which order, by which way or how often facts are learned; what is known ([`EntityStore`]) only grows,
//! until it is old; and a server that comes back, or a partition that heals, needs nothing but the facts that it lacks. That is more than
//! the theorem of [`coplay::reflectivity`] asks for, so dropping obsolete events changes nothing.
//!
//! # Rooms
//!
//! - [`Server`]: one server, whole. Begin here. [`WorldState`] is the world in it, [`Simulation`] its simulators, [`SpatialIndex`] who is where.
//! - [`Client`]: one player. [`ServerSelector`] is its choice between servers.
//! - [`EntityRecord`], [`EntityStore`], [`EntityUpdate`]: what is known, and how it is told.
//! - [`ClientInput`], [`View`], [`Directory`]: what players and servers say to each other.

mod client;
mod consistency_probe;
mod consistency_summary;
mod entity_record;
mod entity_store;
mod entity_update;
mod player;
mod protocol;
mod score_tracker;
mod server;
mod server_hello;
mod server_selector;
mod simulation;
mod spatial_index;
mod unreplicated_scores;
mod world_state;

pub use client::{Client, TICK_DURATION};
pub use consistency_probe::{CONSISTENCY_TOLERANCE, CONSISTENCY_WINDOW};
pub use consistency_summary::ConsistencySummary;
pub use entity_record::{EntityRecord, OwnershipEpoch, Placement};
pub use entity_store::{EntityStore, MAX_ENTITIES, RETENTION_TICKS};
pub use entity_update::{EntityUpdate, MAX_UPDATE_LEN, Update};
pub use protocol::{
    ClientInput, Directory, InputChange, MAX_INPUT_CHANGES, MAX_MESSAGE_LEN, Pong, ServerMessage, WorldView,
    decode_ping, encode_ping,
};
pub use score_tracker::ScoreRollback;
pub use server::Server;
pub use server_hello::{MAX_ECHOED_NONCES, Nonce, ServerHello, ServerInfo};
pub use server_selector::ServerSelector;
pub use simulation::{Controller, Simulation, SimulationEvent};
pub use spatial_index::{IndexedAvatar, SpatialIndex};
pub use world_state::{WorldState, ninja_entity, player_entity};
