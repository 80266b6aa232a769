//! Worlds with servers: several game state servers mirror one maze, and each player plays on the nearest of them.
//!
//! Avatars move by the [motion engine](coplay::motion), after Li, Li and Lau, *Supporting Continuous Consistency in
//! Multiplayer Online Games*: a server runs the reference simulators of all avatars, and its players follow them. It
//! sends the state changes of its own players' avatars to the other servers as events, after Palazzi et al.
//! ([`coplay::mirror`]). Walls are part of the motion; everything else is added on top of it: collisions, shots, hits,
//! respawns, scores and ownership. The maze is that of [`coplay_maze`], with the same rules as without servers.
//!
//! Pure: the host program owns clock and networks. `coplay-world` is such a program, with zenoh between the servers.
//!
//! # Updates
//!
//! Every update of an entity is an absolute statement ([`Update`]): its name or placement, as asserted by its owner in
//! a given ownership epoch; or its hits and falls, as counted by one server. If two updates contradict each other, one
//! of them has the higher version and wins. So the order, path and repetition of updates make no difference; the known
//! state ([`EntityStore`]) only grows, until it expires; and a server that rejoins, or a partition that heals, needs
//! only the missing updates. That is stronger than the theorem of [`coplay::mirror`] requires, so dropping obsolete
//! events does not change the resulting state.
//!
//! # Modules
//!
//! - [`Server`]: one whole server. Begin here. [`ServerWorld`] is its copy of the world; [`AvatarStore`] has all
//!   avatars, with their reference simulators; [`SpatialIndex`] has their positions by cell.
//! - [`Client`]: one player. [`ServerSelector`] chooses its server.
//! - [`EntityRecord`], [`EntityStore`], [`EntityUpdate`]: the known state, and its encoding.
//! - [`ClientInput`], [`WorldView`], [`Directory`]: the messages between clients and servers. [`ServerHello`]: the
//!   introduction of a server to the others.
//! - [`ConsistencySummary`]: how closely a player's view followed the servers over a game.

mod avatar_motion;
mod avatar_store;
mod client;
mod consistency_summary;
mod entity_record;
mod entity_store;
mod entity_update;
mod own_score;
mod player;
mod protocol;
mod server;
mod server_hello;
mod server_selector;
mod server_world;
mod simulation;
mod spatial_index;
mod unreplicated_scores;

pub use avatar_motion::{CONSISTENCY_TOLERANCE, CONSISTENCY_WINDOW};
pub use avatar_store::AvatarStore;
pub use client::Client;
pub use consistency_summary::ConsistencySummary;
pub use entity_record::{EntityRecord, OwnershipEpoch, Placement};
pub use entity_store::{EntityStore, MAX_ENTITIES, RETENTION_TICKS};
pub use entity_update::{EntityUpdate, MAX_UPDATE_LEN, Update};
pub use own_score::ScoreLoss;
pub use protocol::{
    ClientInput, Directory, MAX_MESSAGE_LEN, PROTOCOL_VERSION, Pong, ServerMessage, TICK_DURATION, WorldView,
    decode_ping, encode_ping,
};
pub use server::Server;
pub use server_hello::{MAX_ECHOED_NONCES, Nonce, ServerHello, ServerInfo};
pub use server_selector::ServerSelector;
pub use server_world::{ServerWorld, ninja_entity, player_entity};
pub use spatial_index::{IndexedAvatar, SpatialIndex};
