//! iroh transport: QUIC to a peer's key, directly where a path exists, otherwise over a relay.
//!
//! It is meant for players who cannot open a port. No public service is required: a ticket holds the host's addresses,
//! and a relay is optional. QUIC encrypts the datagrams and makes every peer prove its key. A
//! [`Token`](crate::key::Token) in the ticket decides on admission: right after the handshake both sides prove that
//! they know it, without revealing it, and until then nothing else is received.
//!
//! Two peers share two connections. The game's datagrams must not wait: its connection has a congestion window that
//! does not shrink on packet loss, because after an outage only new inputs matter. Bulk data (a spectator feed, a
//! snapshot) uses the other connection, which has the usual congestion control, as all Internet traffic that can fill a
//! link must. Until the bulk connection is established, bulk data uses the game connection.
//!
//! A datagram that is too long for the path travels as a stream of its own: whole, and without delaying any other.
//!
//! One thread runs the whole transport. Sending does not wait for that thread.

mod accept;
mod connections;
mod dial;
mod quic;
mod token_proof;
mod transport;

pub use crate::peer_addr::{IrohAddr, MAX_SOCKET_ADDRS};
pub use transport::{IrohTransport, RelayConfig, RelayError};

#[cfg(test)]
mod tests;
