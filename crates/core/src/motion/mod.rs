//! Objects that move at a server and at its clients, kept in step without a jump.
//!
//! After Li, Li and Lau, *Supporting Continuous Consistency in Multiplayer Online Games*. The server runs a *reference simulator* of every object
//! that moves, avatars and others alike ([`Server`]). A client runs one of its own object and of every other that it is interested in
//! ([`MotionClient`]). An object goes on as its [`InputPredictor`] says until the next *command*; how far it is on that *leg* is told by a motion [`InvalidSendTimer`]. Commands
//! carry how long the leg before them lasted, so all walk the same way, and only timers differ. Who is ahead of the server is slower for a while,
//! who is behind is quicker (equations 3 to 5), and how far apart copies were of late is measured ([`DiscrepancyMeter`]).
//!
//! Where the paper is silent: a client that gives a command is ahead by `RT_accum` and by the time for which commands were combined; one that hears of
//! it is behind by `RT_accum` and by what the server says it is on the leg. What gets lost is said again, and counts as a longer way. Who is off by more
//! than [`Config::jump_to`] is put right at once.
//!
//! Then what clocks add ([`SyncMethod::Clocks`]). A round trip that varies says little of one delay; a [clock](crate::clock) is hardly moved by jitter.
//! By the server's clock a client knows exactly how far the reference is, so it need not guess and is right after the first answer. It slows down from the
//! moment of a command on and not only when it is sent, catches up at twice the speed and not at one and a half, and what is seen of a correction has a
//! speed of at most [`Config::correction_speed`].
//!
//! The host program owns clock and network. It calls `handle_datagram` for what arrives, `advance` once in a frame, and `poll_transmit` after either.

mod authoritative;
mod client;
mod command_history;
mod command_number;
mod config;
mod confirmed;
mod discrepancy;
mod encode;
mod local_controller;
mod peer;
mod predictor;
mod remote_object;
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

/// The most objects that a server has or a client is interested in, and the most clients of a server.
pub const MAX_OBJECTS: usize = 4_096;
/// The most clients of a server.
pub const MAX_CLIENTS: usize = 1_024;

/// Who watches an object is told so often how far it is, though nothing is new: clocks drift.
const TIMER_UPDATE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// A moving object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// A client, as its server numbers it.
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
