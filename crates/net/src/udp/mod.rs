//! Secured plain UDP: for the lab, for private networks, and wherever a port can be opened.
//!
//! Two peers share a [`SecureChannel`], established by a Noise handshake (`XXpsk0`: both prove their identity and that
//! they know the session secret). First of all the dialer proves its address by returning a cookie; until then each of
//! its datagrams costs the acceptor at most two short hashes, and a reply is shorter than the datagram. A dialer that
//! does not know the secret gets no further.
//!
//! ```text
//! dialer                          acceptor
//!   HELLO, padded            ──►
//!                            ◄──  COOKIE
//!   FIRST, with the cookie   ──►  (psk, e)
//!                            ◄──  SECOND (e, ee, s, es)
//!   THIRD (s, se)            ──►
//!   DATA                     ◄─►  DATA
//! ```
//!
//! A channel is identified by a number that its receiver chose, so that a peer can move to another address. Datagrams
//! are numbered, and a replayed one is dropped. An [`Endpoint`] reads no clock and no socket: its caller passes in
//! datagrams and times. [`UdpTransport`] adds a real socket with a receiving thread.

mod cookie;
mod endpoint;
mod handshake;
mod receive;
mod secure_channel;
mod socket;

pub use endpoint::{Endpoint, EndpointEvent, Received, RejectCounts};
pub use secure_channel::SecureChannel;
pub use socket::UdpTransport;
pub(crate) use socket::kernel_drop_count;

const HELLO: u8 = 1;
const COOKIE: u8 = 2;
const HANDSHAKE_FIRST: u8 = 3;
const HANDSHAKE_SECOND: u8 = 4;
const HANDSHAKE_THIRD: u8 = 5;
const DATA: u8 = 6;

/// Length of an authentication tag, in bytes.
const TAG_LEN: usize = 16;

/// Number of bytes that sealing adds to a datagram.
pub const SEAL_OVERHEAD: usize = secure_channel::HEADER_LEN + TAG_LEN;

/// Maximum length of a sealed datagram, in bytes.
pub const MAX_SEALED: usize = coplay::codec::MAX_DATAGRAM + SEAL_OVERHEAD;
