//! The lobby of a game: members, seats, readiness and chat.
//!
//! One member leads the roster: the host, and after its departure the present member with the lowest seat. A seat
//! belongs to a key: its owner can return to it, and no other site can take it until the owner gives it back. Every
//! seated member knows the complete roster, so that any of them can take over.
//!
//! The module does no I/O: messages go in, messages and events come out.

mod chat_limiter;
mod leader_succession;
mod message;
mod roster;

pub use leader_succession::KnownLeader;
pub use message::{
    JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMember, LobbyMessage, MAX_CHAT_LEN, MAX_NAME_LEN, MAX_PADS,
    MAX_PEER_ADDRS, PROTOCOL_VERSION,
};
pub(crate) use message::{merge_addrs, sanitize};
pub use roster::{Recipient, Roster, RosterEvent};
