//! A computer of a network, with its faults.

use std::ops::{Deref, DerefMut};

use coplay::id::Addr;
use coplay::time::Instant;

use crate::clock::NodeClock;

/// Maximum number of datagrams that the socket of a sleeping computer buffers.
const SOCKET_BUFFER_DATAGRAMS: usize = 64;
/// Number of calls at one instant above which a program counts as looping endlessly.
const MAX_CALLS_PER_INSTANT: u32 = 20_000;

/// A computer of a network, which derefs to the program that it runs.
#[derive(Debug)]
pub struct Computer<N> {
    /// The program under test.
    pub node: N,
    /// The computer's clock, which the program reads.
    pub clock: NodeClock,
    /// Whether the computer has crashed or not started yet: it receives, computes and sends nothing.
    pub is_crashed: bool,
    /// Address at which the computer receives.
    pub(crate) addr: Addr,
    /// Number of address changes so far.
    pub(super) moves: u64,
    pub(super) asleep_until: Instant,
    pub(super) busy_until: Instant,
    /// Number and time of the wake-up scheduled last.
    last_wake: (u64, Instant),
    /// Time of the last call, and number of earlier calls at that instant.
    calls_at_instant: (Instant, u32),
    /// Datagrams that arrived while the computer slept: sender, receiver and payload.
    pub(super) socket_buffer: Vec<(Addr, Addr, Vec<u8>)>,
}

impl<N> Computer<N> {
    /// Creates a computer that runs a program from time zero on.
    pub fn new(node: N, clock: NodeClock, addr: Addr) -> Self {
        Self {
            node,
            clock,
            is_crashed: false,
            addr,
            moves: 0,
            asleep_until: Instant::ZERO,
            busy_until: Instant::ZERO,
            last_wake: (0, Instant::FAR_FUTURE),
            calls_at_instant: (Instant::ZERO, 0),
            socket_buffer: Vec::new(),
        }
    }

    /// Returns how many times the computer has changed its address.
    pub fn address_changes(&self) -> u64 {
        self.moves
    }

    /// Forgets everything of the program that ran so far, and runs the next one.
    pub(super) fn restart(&mut self) {
        self.socket_buffer.clear();
        self.is_crashed = false;
        self.busy_until = Instant::ZERO;
    }

    /// Replaces the scheduled wake-up, if any, by one at `at`, and returns its number.
    pub(super) fn next_wake_id(&mut self, at: Instant) -> u64 {
        self.last_wake = (self.last_wake.0 + 1, at);
        self.last_wake.0
    }

    /// Returns whether the queued wake-up with this number and time is not void: it is the one scheduled last or, if
    /// wake-ups keep their place, for the same instant as that one.
    pub(super) fn awaits_wake(&self, wake_id: u64, at: Instant, keeps_place: bool) -> bool {
        if keeps_place { self.last_wake.1 == at } else { self.last_wake.0 == wake_id }
    }

    /// Buffers a datagram in the socket. Datagrams beyond the capacity are lost.
    pub(super) fn buffer_datagram(&mut self, from: Addr, to: Addr, bytes: &[u8]) {
        if self.socket_buffer.len() < SOCKET_BUFFER_DATAGRAMS {
            self.socket_buffer.push((from, to, bytes.to_vec()));
        }
    }

    /// Counts a call of the program. Returns whether it asks without end to be called at the same instant.
    pub(super) fn loops_endlessly(&mut self, now: Instant) -> bool {
        let (at, calls) = self.calls_at_instant;
        self.calls_at_instant = (now, if at == now { calls + 1 } else { 0 });
        self.calls_at_instant.1 > MAX_CALLS_PER_INSTANT
    }
}

impl<N> Deref for Computer<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.node
    }
}

impl<N> DerefMut for Computer<N> {
    fn deref_mut(&mut self) -> &mut N {
        &mut self.node
    }
}
