//! A host program: it owns a machine, serves its engine's requests, and counts frames.
//!
//! The stopwatch of the engine is stopped while the host program copies a state or steps a frame.

use std::cell::RefCell;
use std::rc::Rc;

use coplay::time::{Instant, TimeDelta};

use super::machine::RollbackMachine;
use super::required_resimulation::{RequiredResimulation, effective_input};
use super::{BenchCase, FRAME_PERIOD};
use crate::inbox::Inbox;
use crate::stopwatch::Stopwatch;
use crate::workload::Inputs;

/// Datagram queues of a site: received datagrams that wait for the engine, and datagrams to send.
#[derive(Debug, Default)]
pub struct SiteQueues {
    /// Received datagrams, each with its sender.
    pub inbox: Inbox,
    /// Outgoing datagrams, each with its receiver.
    pub outbox: Inbox,
}

/// Queues of a site, shared with the network.
pub type SharedQueues = Rc<RefCell<SiteQueues>>;

/// An operation that an engine requests from its host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Saves the machine's state.
    Save {
        /// Index of the slot to save into.
        slot: u8,
    },
    /// Loads the machine's state.
    Load {
        /// Index of the slot to load from.
        slot: u8,
    },
    /// Steps the machine by one frame.
    Step,
}

/// Frame counters of a site since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteFrameTotals {
    /// Frames stepped for the first time.
    pub frames: u64,
    /// Frames stepped again after a load.
    pub resimulated: u64,
    /// Frames that any engine would have had to resimulate, with the datagrams that arrived.
    pub required_resimulated: u64,
    /// Missed frames: intervals between two frames in excess of the frame period, rounded to whole frames.
    pub stalls: u64,
}

impl SiteFrameTotals {
    /// Returns the counts since `earlier`, previous counts of the same site.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            frames: self.frames - earlier.frames,
            resimulated: self.resimulated - earlier.resimulated,
            required_resimulated: self.required_resimulated - earlier.required_resimulated,
            stalls: self.stalls - earlier.stalls,
        }
    }
}

/// A slot for a saved state. `frame` is the frame that the machine steps next from the state; `None` while the slot is
/// empty.
#[derive(Clone, Debug)]
struct SavedState {
    frame: Option<u32>,
    state: RollbackMachine,
}

/// The host program of one site.
#[derive(Debug)]
pub struct BenchHost {
    /// Stopwatch that runs while the engine runs.
    pub stopwatch: Stopwatch,
    number: usize,
    input_delay: u32,
    inputs: Rc<Inputs>,
    now: Instant,
    machine: RollbackMachine,
    slots: Vec<SavedState>,
    /// Frame that the machine steps next.
    next_frame: u32,
    /// Digest after every frame, from the last time that the frame was stepped.
    digests: Vec<u64>,
    /// Time at which the newest frame was first stepped.
    last_step_at: Option<Instant>,
    /// First frame without a sampled local input.
    sampled_end: u32,
    counts: SiteFrameTotals,
    required_resimulation: RequiredResimulation,
    performed_ops: Vec<HostOp>,
}

impl BenchHost {
    /// Creates the host program of a site in its initial state.
    pub fn new(case: &BenchCase, number: usize, inputs: Rc<Inputs>) -> Self {
        Self {
            stopwatch: Stopwatch::default(),
            number,
            input_delay: case.input_delay,
            inputs,
            now: Instant::ZERO,
            machine: RollbackMachine::NEW,
            slots: vec![SavedState { frame: None, state: RollbackMachine::NEW }; case.prediction_window as usize + 1],
            next_frame: 0,
            digests: Vec::with_capacity(1 << 14),
            last_step_at: None,
            sampled_end: case.input_delay,
            counts: SiteFrameTotals::default(),
            required_resimulation: RequiredResimulation::new(case.sites, case.input_delay),
            performed_ops: Vec::with_capacity(256),
        }
    }

    /// Returns the local input that takes effect in `frame`, and counts it as sampled.
    pub fn sample(&mut self, frame: u32) -> u16 {
        self.sampled_end = self.sampled_end.max(frame + 1);
        effective_input(&self.inputs, self.number, frame, self.input_delay)
    }

    /// Saves the state before `frame` into a slot.
    pub fn save(&mut self, frame: u32, slot: usize) {
        self.stopwatch.stop();
        assert_eq!(frame, self.next_frame, "only the current state can be saved");
        self.performed_ops.push(HostOp::Save { slot: slot as u8 });
        let slot = &mut self.slots[slot];
        slot.frame = Some(frame);
        slot.state.clone_from(&self.machine);
        self.stopwatch.start();
    }

    /// Loads the state before `frame` from a slot.
    pub fn load(&mut self, frame: u32, slot: usize) {
        self.stopwatch.stop();
        self.performed_ops.push(HostOp::Load { slot: slot as u8 });
        let slot = &self.slots[slot];
        assert_eq!(slot.frame, Some(frame), "only a saved state can be loaded");
        self.machine.clone_from(&slot.state);
        self.next_frame = frame;
        self.stopwatch.start();
    }

    /// Steps the machine. Returns whether the frame is fresh, that is, stepped for the first time.
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) -> bool {
        self.stopwatch.stop();
        self.performed_ops.push(HostOp::Step);
        self.machine.step(inputs);
        let fresh = self.record_step();
        self.stopwatch.start();
        fresh
    }

    fn record_step(&mut self) -> bool {
        let (at, digest) = (self.next_frame as usize, self.machine.digest());
        self.next_frame += 1;
        if let Some(before) = self.digests.get_mut(at) {
            *before = digest;
            self.counts.resimulated += 1;
            return false;
        }
        assert_eq!(at, self.digests.len(), "frames are consecutive");
        self.digests.push(digest);
        self.counts.frames += 1;
        self.required_resimulation.count_rollback();
        let since = self.last_step_at.replace(self.now).map_or(FRAME_PERIOD, |before| self.now - before);
        self.counts.stalls += missed_frames(since);
        true
    }

    /// Returns the digest of the machine's current state.
    pub fn digest(&self) -> u64 {
        self.machine.digest()
    }

    /// Sets the virtual time, by which stalls are counted.
    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Records the arrival of a datagram of `player`, whose site had sampled all inputs before frame `end`.
    pub fn on_inputs(&mut self, now: Instant, player: usize, end: u32) {
        let (inputs, input_delay, stepped) = (Rc::clone(&self.inputs), self.input_delay, self.digests.len() as u32);
        self.required_resimulation
            .on_inputs(now, player, end, stepped, |frame| effective_input(&inputs, player, frame, input_delay));
    }

    /// Returns the first frame without a sampled local input.
    pub fn sampled_end(&self) -> u32 {
        self.sampled_end
    }

    /// Takes the operations performed since the last call.
    pub fn take_ops(&mut self) -> impl Iterator<Item = HostOp> + '_ {
        self.performed_ops.drain(..)
    }

    /// Returns the frame counters since the start.
    pub fn counts(&self) -> SiteFrameTotals {
        SiteFrameTotals { required_resimulated: self.required_resimulation.frames(), ..self.counts }
    }

    /// Returns the digest after every stepped frame; the newest may rest on predictions.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }
}

/// Returns the number of frames missed if `since` passes from one frame to the next.
fn missed_frames(since: TimeDelta) -> u64 {
    let frames = (since + FRAME_PERIOD / 2).as_nanos() / FRAME_PERIOD.as_nanos();
    frames.saturating_sub(1).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slightly_longer_frame_is_not_a_stall() {
        assert_eq!(missed_frames(FRAME_PERIOD), 0);
        assert_eq!(missed_frames(FRAME_PERIOD.scale(1.1)), 0);
        assert_eq!(missed_frames(TimeDelta::ZERO), 0);
        assert_eq!(missed_frames(FRAME_PERIOD * 2), 1);
        assert_eq!(missed_frames(FRAME_PERIOD.scale(3.1)), 2);
    }
}
