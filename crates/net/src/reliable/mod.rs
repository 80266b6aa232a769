//! Reliable, ordered messages over unreliable datagrams: a [`Channel`] serves one peer, and `Mux` runs one channel per
//! peer.

mod channel;
mod mux;

pub use channel::{Channel, FRAGMENT, MAX_MESSAGE_LEN, SendQueueError};
pub(crate) use mux::{ChannelMessage, Mux};
