//! The people around a game: who is here, who sits where, who is ready, what they say to each other.
//!
//! One of them keeps the list: the host, and when it is gone whoever has the lowest seat, until that is gone, too. A seat belongs to a key: who has been there
//! once can come back to it, and nobody else can take it, as long as it was not given back. Everybody with a seat knows the whole
//! list, so that anyone can go on with it.
//!
//! All of it is pure: messages in, messages and events out.

mod chat_limiter;
mod leader;
mod message;
mod roster;

pub use leader::RosterLeader;
pub use message::{
    JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMember, LobbyMessage, MAX_CHAT_LEN, MAX_NAME_LEN, MAX_PADS,
    MAX_PEER_ADDR_LEN, MAX_PEER_ADDRS, PROTOCOL_VERSION,
};
pub(crate) use message::{merge_addrs, sanitize};
pub use roster::{Recipient, Roster, RosterEvent};
