//! Real datagrams: how sites find and reach each other, and the loop that drives a game in real time.
//!
//! A transport carries datagrams between *peers*. A peer is known by its public key, which it proves, and not by its address,
//! which may change. Nobody without the session's secret (plain UDP) or its ticket (iroh) gets any further than a cookie.

mod base32;
pub mod clock;
mod dial_failures;
pub mod impair;
pub mod iroh;
pub mod key;
pub mod lan;
pub mod lobby;
pub mod mesh;
pub mod reliable;
pub mod runner;
pub mod ticket;
mod transport;
pub mod udp;

pub use key::PeerKey;
pub use ticket::{Ticket, TicketError};
pub use transport::{DropCounts, Incoming, PeerAddr, Transport};
