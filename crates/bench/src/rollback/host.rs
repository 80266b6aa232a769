//! A host program: it owns a machine, does what its engine asks for, and keeps the books.
//!
//! Time spent in here is none of the engine's: the stopwatch stands still while a state is copied and a frame stepped.

use std::cell::RefCell;
use std::rc::Rc;

use coplay::time::{Instant, TimeDelta};

use super::forecast::{Forecast, effect};
use super::machine::Machine;
use super::{Case, PERIOD};
use crate::cycles::Stopwatch;
use crate::wire::Inbox;
use crate::work::Inputs;

/// What a site hears and says: what arrived and was not heard yet, and what is to be sent.
#[derive(Debug, Default)]
pub struct Mail {
    /// By sender.
    pub inbox: Inbox,
    /// By receiver.
    pub outbox: Inbox,
}

/// The mail of a site, which it shares with the world.
pub type Mailbox = Rc<RefCell<Mail>>;

/// What a host program does when its engine asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
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
pub struct Books {
    /// Frames stepped for the first time.
    pub frames: u64,
    /// Frames stepped again.
    pub resimulated: u64,
    /// Frames that had to be stepped again, whatever the engine.
    pub forecast: u64,
    /// Times between two frames that were too long by a frame, or by half of one at least.
    pub stalls: u64,
}

impl Books {
    /// What has happened since an earlier time.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            frames: self.frames - earlier.frames,
            resimulated: self.resimulated - earlier.resimulated,
            forecast: self.forecast - earlier.forecast,
            stalls: self.stalls - earlier.stalls,
        }
    }
}

/// A state that was saved.
#[derive(Clone, Debug)]
struct Slot {
    frame: Option<u32>,
    state: Machine,
}

/// The host program of one site.
#[derive(Debug)]
pub struct Host {
    /// Runs while the engine does.
    pub watch: Stopwatch,
    number: usize,
    lag: u32,
    inputs: Rc<Inputs>,
    now: Instant,
    machine: Machine,
    slots: Vec<Slot>,
    /// The next frame that the machine steps.
    frame: u32,
    /// The state after every frame, as of the last time it was stepped.
    digests: Vec<u64>,
    /// When the newest frame was stepped for the first time.
    stepped: Option<Instant>,
    /// The first frame whose own input is not taken yet.
    sampled: u32,
    books: Books,
    forecast: Forecast,
    done: Vec<Work>,
}

impl Host {
    /// The host program of a site before anything has happened.
    pub fn new(case: &Case, number: usize, inputs: Rc<Inputs>) -> Self {
        Self {
            watch: Stopwatch::default(),
            number,
            lag: case.lag,
            inputs,
            now: Instant::ZERO,
            machine: Machine::NEW,
            slots: vec![Slot { frame: None, state: Machine::NEW }; case.window as usize + 1],
            frame: 0,
            digests: Vec::with_capacity(1 << 14),
            stepped: None,
            sampled: case.lag,
            books: Books::default(),
            forecast: Forecast::new(case.sites, case.lag),
            done: Vec::with_capacity(256),
        }
    }

    /// What is pressed now, to take effect in this frame.
    pub fn sample(&mut self, frame: u32) -> u16 {
        self.sampled = self.sampled.max(frame + 1);
        effect(&self.inputs, self.number, frame, self.lag)
    }

    /// Saves the state before a frame.
    pub fn save(&mut self, frame: u32, slot: usize) {
        self.watch.stop();
        assert_eq!(frame, self.frame, "the state at hand is saved");
        self.done.push(Work::Save { slot: slot as u8 });
        let slot = &mut self.slots[slot];
        slot.frame = Some(frame);
        slot.state.clone_from(&self.machine);
        self.watch.start();
    }

    /// Loads the state before a frame.
    pub fn load(&mut self, frame: u32, slot: usize) {
        self.watch.stop();
        self.done.push(Work::Load { slot: slot as u8 });
        let slot = &self.slots[slot];
        assert_eq!(slot.frame, Some(frame), "what is loaded was saved");
        self.machine.clone_from(&slot.state);
        self.frame = frame;
        self.watch.start();
    }

    /// Steps the machine, and says whether this frame comes for the first time.
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) -> bool {
        self.watch.stop();
        self.done.push(Work::Step);
        self.machine.step(inputs);
        let fresh = self.note_step();
        self.watch.start();
        fresh
    }

    fn note_step(&mut self) -> bool {
        let (at, digest) = (self.frame as usize, self.machine.digest());
        self.frame += 1;
        if let Some(before) = self.digests.get_mut(at) {
            *before = digest;
            self.books.resimulated += 1;
            return false;
        }
        assert_eq!(at, self.digests.len(), "frames follow each other");
        self.digests.push(digest);
        self.books.frames += 1;
        self.forecast.repair();
        let since = self.stepped.replace(self.now).map_or(PERIOD, |before| self.now - before);
        self.books.stalls += missed(since);
        true
    }

    /// The state as it is, in one number.
    pub fn digest(&self) -> u64 {
        self.machine.digest()
    }

    /// Time has come to this.
    pub fn on_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// A datagram came whose sender had taken its inputs up to frame `end`.
    pub fn on_inputs(&mut self, now: Instant, player: usize, end: u32) {
        let Self { inputs, lag, digests, .. } = &*self;
        let (inputs, lag, stepped) = (Rc::clone(inputs), *lag, digests.len() as u32);
        self.forecast.on_inputs(now, player, end, stepped, |frame| effect(&inputs, player, frame, lag));
    }

    /// The first frame whose own input is not taken yet.
    pub fn sampled(&self) -> u32 {
        self.sampled
    }

    /// What was done since this was asked last.
    pub fn take_work(&mut self) -> impl Iterator<Item = Work> + '_ {
        self.done.drain(..)
    }

    /// What has happened so far.
    pub fn books(&self) -> Books {
        Books { forecast: self.forecast.frames(), ..self.books }
    }

    /// The state after every frame, in one number each; the newest are guesses.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }
}

/// The frames that did not come in this time from one to the next.
fn missed(since: TimeDelta) -> u64 {
    let frames = (since + PERIOD / 2).as_nanos() / PERIOD.as_nanos();
    frames.saturating_sub(1).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_frame_is_no_stall() {
        assert_eq!(missed(PERIOD), 0);
        assert_eq!(missed(PERIOD.scale(1.1)), 0);
        assert_eq!(missed(TimeDelta::ZERO), 0);
        assert_eq!(missed(PERIOD * 2), 1);
        assert_eq!(missed(PERIOD.scale(3.1)), 2);
    }
}
