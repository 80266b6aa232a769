//! A host program: it owns a machine, does what its engine asks for, and keeps the books.
//!
//! Time spent in here is none of the engine's: the stopwatch stands still while a state is copied and a frame stepped.

use std::cell::RefCell;
use std::rc::Rc;

use coplay::time::{Instant, TimeDelta};

use super::machine::RollbackMachine;
use super::required_resimulation::{RequiredResimulation, effective_input};
use super::{BenchCase, FRAME_PERIOD};
use crate::inbox::Inbox;
use crate::stopwatch::Stopwatch;
use crate::workload::Inputs;

/// What a site hears and says: what arrived and was not heard yet, and what is to be sent.
#[derive(Debug, Default)]
pub struct SiteQueues {
    /// By sender.
    pub inbox: Inbox,
    /// By receiver.
    pub outbox: Inbox,
}

/// The mail of a site, which it shares with the world.
pub type SharedQueues = Rc<RefCell<SiteQueues>>;

/// What a host program does when its engine asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Copies the state away.
    Save {
        /// To where.
        slot: u8,
    },
    /// Copies it back.
    Load {
        /// From where.
        slot: u8,
    },
    /// Steps the machine.
    Step,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCounts {
    /// Frames stepped for the first time.
    pub frames: u64,
    /// Frames stepped again.
    pub resimulated: u64,
    /// Frames that had to be stepped again, whatever the engine.
    pub required_resimulated: u64,
    /// Times between two frames that were too long by a frame, or by half of one at least.
    pub stalls: u64,
}

impl FrameCounts {
    /// What has happened since an earlier time.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            frames: self.frames - earlier.frames,
            resimulated: self.resimulated - earlier.resimulated,
            required_resimulated: self.required_resimulated - earlier.required_resimulated,
            stalls: self.stalls - earlier.stalls,
        }
    }
}

/// A state that was saved.
#[derive(Clone, Debug)]
struct SavedState {
    frame: Option<u32>,
    state: RollbackMachine,
}

/// The host program of one site.
#[derive(Debug)]
pub struct BenchHost {
    /// Runs while the engine does.
    pub stopwatch: Stopwatch,
    number: usize,
    input_delay: u32,
    inputs: Rc<Inputs>,
    now: Instant,
    machine: RollbackMachine,
    slots: Vec<SavedState>,
    /// The next frame that the machine steps.
    next_frame: u32,
    /// The state after every frame, as of the last time it was stepped.
    digests: Vec<u64>,
    /// When the newest frame was stepped for the first time.
    last_step_at: Option<Instant>,
    /// The first frame whose own input is not taken yet.
    sampled_end: u32,
    counts: FrameCounts,
    required_resimulation: RequiredResimulation,
    performed_ops: Vec<HostOp>,
}

impl BenchHost {
    /// The host program of a site before anything has happened.
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
            counts: FrameCounts::default(),
            required_resimulation: RequiredResimulation::new(case.sites, case.input_delay),
            performed_ops: Vec::with_capacity(256),
        }
    }

    /// What is pressed now, to take effect in this frame.
    pub fn sample(&mut self, frame: u32) -> u16 {
        self.sampled_end = self.sampled_end.max(frame + 1);
        effective_input(&self.inputs, self.number, frame, self.input_delay)
    }

    /// Saves the state before a frame.
    pub fn save(&mut self, frame: u32, slot: usize) {
        self.stopwatch.stop();
        assert_eq!(frame, self.next_frame, "the state at hand is saved");
        self.performed_ops.push(HostOp::Save { slot: slot as u8 });
        let slot = &mut self.slots[slot];
        slot.frame = Some(frame);
        slot.state.clone_from(&self.machine);
        self.stopwatch.start();
    }

    /// Loads the state before a frame.
    pub fn load(&mut self, frame: u32, slot: usize) {
        self.stopwatch.stop();
        self.performed_ops.push(HostOp::Load { slot: slot as u8 });
        let slot = &self.slots[slot];
        assert_eq!(slot.frame, Some(frame), "what is loaded was saved");
        self.machine.clone_from(&slot.state);
        self.next_frame = frame;
        self.stopwatch.start();
    }

    /// Steps the machine, and says whether this frame comes for the first time.
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
        assert_eq!(at, self.digests.len(), "frames follow each other");
        self.digests.push(digest);
        self.counts.frames += 1;
        self.required_resimulation.count_rollback();
        let since = self.last_step_at.replace(self.now).map_or(FRAME_PERIOD, |before| self.now - before);
        self.counts.stalls += missed_frames(since);
        true
    }

    /// The state as it is, in one number.
    pub fn digest(&self) -> u64 {
        self.machine.digest()
    }

    /// Time has come to this.
    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// A datagram came whose sender had taken its inputs up to frame `end`.
    pub fn on_inputs(&mut self, now: Instant, player: usize, end: u32) {
        let Self { inputs, input_delay: lag, digests, .. } = &*self;
        let (inputs, lag, stepped) = (Rc::clone(inputs), *lag, digests.len() as u32);
        self.required_resimulation
            .on_inputs(now, player, end, stepped, |frame| effective_input(&inputs, player, frame, lag));
    }

    /// The first frame whose own input is not taken yet.
    pub fn sampled_end(&self) -> u32 {
        self.sampled_end
    }

    /// What was done since this was asked last.
    pub fn take_ops(&mut self) -> impl Iterator<Item = HostOp> + '_ {
        self.performed_ops.drain(..)
    }

    /// What has happened so far.
    pub fn counts(&self) -> FrameCounts {
        FrameCounts { required_resimulated: self.required_resimulation.frames(), ..self.counts }
    }

    /// The state after every frame, in one number each; the newest are guesses.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }
}

/// The frames that did not come in this time from one to the next.
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
