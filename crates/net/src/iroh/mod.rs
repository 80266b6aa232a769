//! iroh: QUIC to a peer's key, directly where there is a way, over a relay where there is none.
//!
//! For games between people who cannot open a port. Nothing public is needed: a ticket holds the host's addresses, and a relay is
//! optional. QUIC encrypts what is sent, and lets every peer prove its key. Who may come in is decided by a
//! [`Token`](crate::key::Token) that is in the ticket: right after the handshake both sides prove that they know it, without telling
//! it, and before that nothing else is heard.
//!
//! Between two peers there are two connections. The game's datagrams must not wait: its connection has a window that does
//! not shrink when packets are lost, because after an outage old inputs are worth nothing and new ones everything. Bulk (a feed, a
//! snapshot) goes over the other one, which yields to whoever else uses the line, as everything on the Internet that can fill
//! a line must. Until that one is there, bulk takes the first.
//!
//! A datagram that is too long for the path goes as a stream of its own: whole, and without holding up any other.
//!
//! One thread runs all of it. Sending does not wait for that thread.

mod accept;
mod addr;
mod connections;
mod dial;
mod quic;
mod token_proof;
mod transport;

#[cfg(test)]
pub(crate) use addr::invalid_key;
pub use addr::{IrohAddr, MAX_SOCKET_ADDRS};
pub use transport::{IrohTransport, RelayConfig, RelayError};

#[cfg(test)]
mod tests;
