//! Motion of objects at a server and its clients, kept in step without jumps.
//!
//! After Li, Li and Lau, *Supporting Continuous Consistency in Multiplayer Online Games*. The server runs a *reference
//! simulator* of every moving object, avatars and autonomous objects alike ([`MotionServer`]). A client runs simulators
//! of its own objects and of those that it subscribes to ([`MotionClient`]). An object moves as its [`MotionPredictor`]
//! computes until the next *command*. Its path between two commands is a *segment*, and a [`MotionTimer`] measures how
//! far the object is on the newest segment. A command carries the duration of the segment before it, so all simulators
//! follow the same path and only their timers differ. A simulator ahead of the server runs slower for a while, one
//! behind it runs faster (equations 3 to 5). The recent distance between copies is measured continuously (relaxed
//! consistency, [`DiscrepancyMeter`]).
//!
//! The paper leaves some cases open, which this module decides. A client that issues a command is ahead by `RT_accum`
//! (the smoothed half of the round-trip time) plus the time for which commands were combined. A client that receives
//! the command is behind by `RT_accum` plus the server's progress on the segment. Lost data is retransmitted, and the
//! time lost counts as a longer delay. A simulator that is behind by more than [`MotionConfig::snap_threshold`] is
//! corrected at once.
//!
//! [`SyncMethod::Clocks`] adds clock synchronization, which is not in the paper. A round trip that varies says little
//! about a single delay; a [clock](crate::clock) is hardly affected by jitter. Once the server's clock is measured, a
//! client computes by it how far the reference simulator is, so from the server's first answer on its timer does not
//! depend on an estimate of the delay. An own object slows down from the moment of a command on and not only when the
//! command is sent. In the preset [`MotionConfig::clocks`], a simulator that is behind also runs at up to 2 times real
//! time and not 1.5 times, and corrections are displayed at a speed of at most [`MotionConfig::correction_speed`],
//! unless they are too large for that.
//!
//! The host program owns clock and network. It calls `handle_datagram` for every datagram, `advance` once per frame,
//! and `poll_transmit` after either.

mod authoritative;
mod client;
mod client_object;
mod command_history;
mod command_number;
mod config;
mod confirmed;
mod discrepancy;
mod encode;
mod local_controller;
pub mod message;
mod peer;
mod predictor;
mod server;
mod simulator;
#[cfg(test)]
mod tests;
mod timer;

use core::fmt;

use crate::time::TimeDelta;

pub use client::{MotionClient, MotionClientEvent};
pub use command_number::CommandNumber;
pub use config::{MotionConfig, MotionConfigError, SyncMethod};
pub use discrepancy::{Consistency, DiscrepancyMeter};
pub use predictor::{LinearPredictor, MAX_STATE_SIZE, MAX_VECTOR_SIZE, MilliVec2, MotionPredictor};
pub use server::{MotionServer, MotionServerEvent};
pub use simulator::ObjectMoment;
pub use timer::{DelayEstimate, MotionTimer, TimerRate};

/// Maximum number of objects of a server, and of objects that a client controls or subscribes to.
pub const MAX_OBJECTS: usize = 16_384;
/// Maximum number of clients of a server.
pub const MAX_CLIENTS: usize = 4_096;
/// Maximum number of unknown objects that a server or client keeps in mind for the other end.
const MAX_UNKNOWN_OBJECTS: usize = 4_096;

/// Interval of timer updates to a subscriber while the object gets no command. With [`SyncMethod::Clocks`] they correct
/// the drift of the clocks.
const TIMER_UPDATE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// Id of a moving object, given by the host program of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// Id of a client, given by the host program of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {}", self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}
