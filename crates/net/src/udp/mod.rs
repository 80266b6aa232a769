//! Plain UDP, secured: for the lab, for networks of one's own, and wherever a port can be opened.
//!
//! Between two peers there is a [`SecureChannel`], made by a Noise handshake (`XXpsk0`: both show who they are, and that they know the
//! session's secret). Before anything else the one who calls proves its address by saying a cookie back; until then it costs
//! one short hash, and gets less than it sent. Who does not know the secret gets no further.
//!
//! ```text
//! caller                          answerer
//!   HELLO, padded            ──►
//!                            ◄──  COOKIE
//!   FIRST, with the cookie   ──►  (psk, e)
//!                            ◄──  SECOND (e, ee, s, es)
//!   THIRD (s, se)            ──►
//!   DATA                     ◄─►  DATA
//! ```
//!
//! A channel is named by a number that its receiver chose, so that a peer can move to another address. Datagrams are numbered; one that
//! comes again is dropped. An [`Endpoint`] reads no clock and no
//! socket, it is told what came and when; [`UdpTransport`] is a real socket with a thread that listens.

mod cookie;
mod endpoint;
mod handshake;
mod receive;
mod replay;
mod secure_channel;
mod socket;

pub use endpoint::{Endpoint, EndpointEvent, Received, RejectCounts};
pub(crate) use handshake::public_key;
pub(crate) use replay::ReplayFilter;
pub use secure_channel::SecureChannel;
pub use socket::UdpTransport;
pub(crate) use socket::kernel_drop_count;

const HELLO: u8 = 1;
const COOKIE: u8 = 2;
const HANDSHAKE_FIRST: u8 = 3;
const HANDSHAKE_SECOND: u8 = 4;
const HANDSHAKE_THIRD: u8 = 5;
const DATA: u8 = 6;

/// Bytes of an authentication tag.
const TAG_LEN: usize = 16;

/// What securing adds to a datagram.
pub const SEAL_OVERHEAD: usize = secure_channel::HEADER_LEN + TAG_LEN;

/// The longest datagram that is sent, with what securing adds.
pub const MAX_SEALED: usize = coplay::wire::MAX_DATAGRAM + SEAL_OVERHEAD;
