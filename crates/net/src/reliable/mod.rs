//! Reliable, ordered messages over datagrams that may be lost: [`SecureChannel`] is one connection, `Mux` runs one for each peer.

mod channel;
mod mux;

pub use channel::{Channel, FRAGMENT, MAX_MESSAGE_LEN, SendQueueError};
pub(crate) use mux::{Message, Mux};
