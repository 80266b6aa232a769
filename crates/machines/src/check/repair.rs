//! Saving, loading and playing again, as a session does that repairs its guesses.

use super::digest::regions;
use super::measure::timed;
use super::run::{Run, Stop};
use super::script::{Luck, Script};
use super::verdict::{Comparison, Fault};
use crate::machine::Machine;

/// Usual repairs are of up to so many frames.
const USUAL: u64 = 16;
/// One in so many is of this many.
const LONG_ONE_IN: u64 = 12;
const LONG: u32 = 60;
/// And up to so many frames pass until the next.
const PAUSE: u64 = 8;

/// The frame that is next when all repairs are done: what is left of the record is for whoever gets a state of then.
pub(super) fn end(run: &Run<'_>) -> u32 {
    (run.record.len() as u32 * 2 / 3).max(1)
}

/// A machine on its way along the record.
struct Walk<'r, 'a> {
    run: &'r mut Run<'a>,
    machine: &'r mut dyn Machine,
    luck: Luck,
    /// What is guessed, if not that the last inputs go on.
    wrong: Script,
    state: Vec<u8>,
    spare: Vec<u8>,
    /// The frame that was next in the state loaded last.
    loaded: Option<u32>,
    /// Whether anything that was pressed made a difference.
    inputs_count: bool,
}

/// Repairs a machine, which has stepped no frame, again and again along the record. It stands at [`end`] then.
pub(super) fn repairs(run: &mut Run<'_>, machine: &mut dyn Machine) -> Result<(), Stop> {
    run.clock.begin(Comparison::Repaired);
    let (luck, wrong) = (Luck::new(run.seed ^ 0x5a5e), Script::new(!run.seed, machine.pads()));
    let (state, spare) = (Vec::new(), Vec::new());
    let mut walk = Walk { run, machine, luck, wrong, state, spare, loaded: None, inputs_count: false };
    walk.go()?;
    if !walk.inputs_count {
        run.notes.push("what was pressed made no difference: the game may have waited for something".into());
    }
    Ok(())
}

impl Walk<'_, '_> {
    fn go(&mut self) -> Result<(), Stop> {
        let (mut frame, end) = (0, end(self.run));
        while frame < end {
            if !self.run.clock.goes_on(frame) {
                return self.straight(frame, end, Comparison::Again, false);
            }
            let usual = 1 + self.luck.below(USUAL) as u32;
            let frames = if self.luck.one_in(LONG_ONE_IN) { LONG } else { usual };
            let back = (frame + frames).min(end);
            let comparison = if self.luck.one_in(2) { Comparison::Repaired } else { Comparison::Again };
            self.save(frame, comparison)?;
            self.first_pass(frame, back, comparison)?;
            // What was repaired may have to be repaired again.
            for _ in 0..1 + u32::from(self.luck.one_in(4)) {
                self.load(frame, comparison)?;
                self.straight(frame, back, comparison, true)?;
            }
            self.run.count(comparison, back - frame);
            frame = (back + self.luck.below(PAUSE) as u32).min(end);
            self.straight(back, frame, comparison, false)?;
        }
        Ok(())
    }

    /// What is to be gone back on: the right thing, or what was guessed. States are kept in between, and are of no use.
    fn first_pass(&mut self, from: u32, to: u32, comparison: Comparison) -> Result<(), Stop> {
        let holds = self.luck.one_in(2);
        for frame in from..to {
            if frame > from && self.luck.one_in(2) {
                self.save_aside(frame, comparison)?;
            }
            if comparison == Comparison::Again {
                self.straight(frame, frame + 1, comparison, false)?;
                continue;
            }
            let guess = if holds { self.run.script.at(from.saturating_sub(1)) } else { self.wrong.at(frame) };
            self.machine.step(guess, true);
            self.inputs_count |= self.machine.hash() != self.run.record[frame as usize].hash;
        }
        Ok(())
    }

    /// The right thing, compared with the record; only the last frame is seen, if they are `repaired`.
    fn straight(&mut self, from: u32, to: u32, comparison: Comparison, repaired: bool) -> Result<(), Stop> {
        for frame in from..to {
            let fresh = !repaired || frame + 1 == to;
            let inputs = self.run.script.at(frame);
            let samples = &mut self.run.samples;
            timed(if fresh { &mut samples.fresh } else { &mut samples.unseen }, || self.machine.step(inputs, fresh));
            let hash = timed(&mut samples.hash, || self.machine.hash());
            if hash != self.run.record[frame as usize].hash {
                let there = regions(self.machine);
                return Err(self.run.differs_from_record(comparison, frame, self.loaded, &there)?);
            }
        }
        Ok(())
    }

    fn save(&mut self, frame: u32, comparison: Comparison) -> Result<(), Fault> {
        let saved = timed(&mut self.run.samples.save, || self.machine.save(&mut self.state));
        self.run.samples.state_bytes = self.run.samples.state_bytes.max(self.state.len() as u64);
        saved.map_err(|error| Fault::Failed { comparison, frame, why: error.to_string() })
    }

    fn save_aside(&mut self, frame: u32, comparison: Comparison) -> Result<(), Fault> {
        std::mem::swap(&mut self.state, &mut self.spare);
        let saved = self.save(frame, comparison);
        std::mem::swap(&mut self.state, &mut self.spare);
        saved
    }

    fn load(&mut self, frame: u32, comparison: Comparison) -> Result<(), Fault> {
        self.loaded = Some(frame);
        let loaded = timed(&mut self.run.samples.load, || self.machine.load(&self.state));
        loaded.map_err(|error| Fault::Failed { comparison, frame, why: error.to_string() })
    }
}
