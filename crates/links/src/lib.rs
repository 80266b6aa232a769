//! Impaired network links in virtual time, for simulations and for link emulation on a real transport.
//!
//! The crate reads no clock, sleeps nowhere and opens no socket. All randomness follows from a seed, so that a seed
//! reproduces the fate of every datagram.
//!
//! * [`link`]: one direction of a network path, with delay, loss, duplicates, a bottleneck and cuts.
//! * [`random`]: seeded random numbers in independent streams.
//! * [`event_queue`]: the queue of future events in virtual time.

pub mod event_queue;
pub mod link;
pub mod random;
