//! The host programs without an engine. Their cost is subtracted, so that the cost of the engines remains.
//!
//! The replay repeats all recorded operations: as many datagrams of the same lengths wait and are sent, states of the
//! same size are copied from and to the same slots, and as many frames are stepped. The stopwatch is started and
//! stopped as often as with an engine, so that the cost of the stopwatch cancels out, too.

use std::hint::black_box;

use super::BenchCase;
use super::host_program::HostOp;
use super::machine::RollbackMachine;
use super::network::TraceOp;
use crate::inbox::Inbox;
use crate::stopwatch::{EngineCost, Stopwatch};

/// The queues and the machine of one site without an engine.
struct ReplaySite {
    inbox: Inbox,
    outbox: Inbox,
    machine: RollbackMachine,
    slots: Vec<RollbackMachine>,
}

/// Replay of the host programs of all sites.
pub struct HostReplay {
    stopwatch: Stopwatch,
    sites: Vec<ReplaySite>,
    inputs: Vec<u16>,
    send_lengths: Vec<usize>,
}

impl HostReplay {
    /// Creates host programs in their initial state.
    pub fn new(case: &BenchCase) -> Self {
        Self {
            stopwatch: Stopwatch::default(),
            sites: (0..case.sites).map(|_| ReplaySite::new(case)).collect(),
            inputs: vec![0; case.sites],
            send_lengths: Vec::with_capacity(64),
        }
    }

    /// Replays the recorded operations and returns the cost measured by the stopwatch.
    pub fn run(&mut self, trace: &[TraceOp]) -> EngineCost {
        let before = self.stopwatch.spent();
        for ops in trace.chunk_by(|_, next| !matches!(next, TraceOp::Wake(_))) {
            if let TraceOp::Wake(site) = ops[0] {
                self.replay_wake(site.into(), &ops[1..]);
            }
        }
        self.stopwatch.spent().since(before)
    }

    /// Replays one wake-up of a site: its datagrams and its operations.
    fn replay_wake(&mut self, at: usize, ops: &[TraceOp]) {
        static DATAGRAM: [u8; 4_096] = [0; 4_096];
        let Self { stopwatch, sites, inputs, send_lengths } = self;
        let site = &mut sites[at];
        for op in ops {
            match op {
                TraceOp::Receive(len) => site.inbox.push(at, black_box(&DATAGRAM[..usize::from(*len)])),
                TraceOp::Send(len) => send_lengths.push(usize::from(*len)),
                _ => {}
            }
        }
        stopwatch.start();
        site.inbox.drain(|from, bytes| {
            black_box((from, bytes.first()));
        });
        send_lengths.iter().for_each(|len| site.outbox.push(at, black_box(&DATAGRAM[..*len])));
        stopwatch.stop();
        send_lengths.clear();
        site.outbox.drain(|_, _| {});
        for op in ops {
            if let TraceOp::Host(host_op) = op {
                site.perform(*host_op, inputs);
                stopwatch.start();
                stopwatch.stop();
            }
        }
    }
}

impl ReplaySite {
    fn new(case: &BenchCase) -> Self {
        let slots = vec![RollbackMachine::NEW; case.prediction_window as usize + 1];
        Self { inbox: Inbox::new(), outbox: Inbox::new(), machine: RollbackMachine::NEW, slots }
    }

    fn perform(&mut self, host_op: HostOp, inputs: &[u16]) {
        match host_op {
            HostOp::Save { slot } => self.slots[usize::from(slot)].clone_from(&self.machine),
            HostOp::Load { slot } => self.machine.clone_from(&self.slots[usize::from(slot)]),
            HostOp::Step => self.machine.step(black_box(inputs).iter().copied()),
        }
    }
}
