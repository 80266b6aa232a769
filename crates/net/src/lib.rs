//! Networking: how sites find and reach each other, and the loop that runs a session in real time.
//!
//! A transport carries datagrams between *peers*. A peer is identified by its public key, which it proves, and not by
//! its address, which may change. A stranger without the session secret (plain UDP) gets no reply beyond a cookie; a
//! stranger without the token of the ticket (iroh) gets no further than the QUIC handshake.

mod base32;
pub mod clock;
mod dial_failures;
pub mod impair;
pub mod iroh;
pub mod key;
pub mod lan;
pub mod lobby;
pub mod mesh;
mod peer_addr;
pub mod reliable;
pub mod runner;
pub mod seal;
pub mod ticket;
mod transport;
pub mod udp;

pub use key::PeerKey;
pub use peer_addr::{MAX_PEER_ADDR_LEN, PeerAddr};
pub use ticket::{Ticket, TicketError};
pub use transport::{DropCounts, Incoming, Transport};
