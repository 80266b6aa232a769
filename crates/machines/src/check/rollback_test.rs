//! Saving, loading and playing again, as a session does that repairs its guesses.

use super::digest::region_digests;
use super::measure::time_call;
use super::run::{CheckRun, ComparisonAbort};
use super::script::{InputScript, SplitMix64};
use super::verdict::{CheckComparison, MachineFault};
use crate::machine::Machine;

/// Usual repairs are of up to so many frames.
const MAX_SHORT_ROLLBACK: u64 = 16;
/// One in so many is of this many.
const LONG_ROLLBACK_ONE_IN: u64 = 12;
const LONG_ROLLBACK_FRAMES: u32 = 60;
/// And up to so many frames pass until the next.
const MAX_FRAMES_BETWEEN_ROLLBACKS: u64 = 8;

/// The frame that is next when all repairs are done: what is left of the record is for whoever gets a state of then.
pub(super) fn end_frame(run: &CheckRun<'_>) -> u32 {
    (run.reference_digests.len() as u32 * 2 / 3).max(1)
}

/// A machine on its way along the record.
struct RollbackTest<'r, 'a> {
    run: &'r mut CheckRun<'a>,
    machine: &'r mut dyn Machine,
    rng: SplitMix64,
    /// What is guessed, if not that the last inputs go on.
    mispredicted_inputs: InputScript,
    state: Vec<u8>,
    unused_state: Vec<u8>,
    /// The frame that was next in the state loaded last.
    loaded_frame: Option<u32>,
    /// Whether anything that was pressed made a difference.
    inputs_have_effect: bool,
}

/// Repairs a machine, which has stepped no frame, again and again along the record. It stands at [`end`] then.
pub(super) fn test_rollbacks(run: &mut CheckRun<'_>, machine: &mut dyn Machine) -> Result<(), ComparisonAbort> {
    run.timer.begin(CheckComparison::AfterRollback);
    let (luck, wrong) = (SplitMix64::new(run.seed ^ 0x5a5e), InputScript::new(!run.seed, machine.pads()));
    let (state, spare) = (Vec::new(), Vec::new());
    let mut walk = RollbackTest {
        run,
        machine,
        rng: luck,
        mispredicted_inputs: wrong,
        state,
        unused_state: spare,
        loaded_frame: None,
        inputs_have_effect: false,
    };
    walk.run_all()?;
    if !walk.inputs_have_effect {
        run.notes.push("what was pressed made no difference: the game may have waited for something".into());
    }
    Ok(())
}

impl RollbackTest<'_, '_> {
    fn run_all(&mut self) -> Result<(), ComparisonAbort> {
        let (mut frame, end) = (0, end_frame(self.run));
        while frame < end {
            if !self.run.timer.has_time_for_next(frame) {
                return self.replay_and_compare(frame, end, CheckComparison::ReplayFromState, false);
            }
            let usual = 1 + self.rng.below(MAX_SHORT_ROLLBACK) as u32;
            let frames = if self.rng.one_in(LONG_ROLLBACK_ONE_IN) { LONG_ROLLBACK_FRAMES } else { usual };
            let back = (frame + frames).min(end);
            let comparison =
                if self.rng.one_in(2) { CheckComparison::AfterRollback } else { CheckComparison::ReplayFromState };
            self.save(frame, comparison)?;
            self.simulate_before_rollback(frame, back, comparison)?;
            // What was repaired may have to be repaired again.
            for _ in 0..1 + u32::from(self.rng.one_in(4)) {
                self.load(frame, comparison)?;
                self.replay_and_compare(frame, back, comparison, true)?;
            }
            self.run.add_equal_frames(comparison, back - frame);
            frame = (back + self.rng.below(MAX_FRAMES_BETWEEN_ROLLBACKS) as u32).min(end);
            self.replay_and_compare(back, frame, comparison, false)?;
        }
        Ok(())
    }

    /// What is to be gone back on: the right thing, or what was guessed. States are kept in between, and are of no use.
    fn simulate_before_rollback(
        &mut self,
        from: u32,
        to: u32,
        comparison: CheckComparison,
    ) -> Result<(), ComparisonAbort> {
        let holds = self.rng.one_in(2);
        for frame in from..to {
            if frame > from && self.rng.one_in(2) {
                self.save_unused(frame, comparison)?;
            }
            if comparison == CheckComparison::ReplayFromState {
                self.replay_and_compare(frame, frame + 1, comparison, false)?;
                continue;
            }
            let guess = if holds {
                self.run.input_script.inputs_at(from.saturating_sub(1))
            } else {
                self.mispredicted_inputs.inputs_at(frame)
            };
            self.machine.step(guess, true);
            self.inputs_have_effect |= self.machine.hash() != self.run.reference_digests[frame as usize].state_hash;
        }
        Ok(())
    }

    /// The right thing, compared with the record; only the last frame is seen, if they are `repaired`.
    fn replay_and_compare(
        &mut self,
        from: u32,
        to: u32,
        comparison: CheckComparison,
        repaired: bool,
    ) -> Result<(), ComparisonAbort> {
        for frame in from..to {
            let fresh = !repaired || frame + 1 == to;
            let inputs = self.run.input_script.inputs_at(frame);
            let samples = &mut self.run.samples;
            time_call(if fresh { &mut samples.step_rendered } else { &mut samples.step_headless }, || {
                self.machine.step(inputs, fresh)
            });
            let hash = time_call(&mut samples.hash, || self.machine.hash());
            if hash != self.run.reference_digests[frame as usize].state_hash {
                let there = region_digests(self.machine);
                return Err(self.run.reference_mismatch(comparison, frame, self.loaded_frame, &there)?);
            }
        }
        Ok(())
    }

    fn save(&mut self, frame: u32, comparison: CheckComparison) -> Result<(), MachineFault> {
        let saved = time_call(&mut self.run.samples.save, || self.machine.save(&mut self.state));
        self.run.samples.state_bytes = self.run.samples.state_bytes.max(self.state.len() as u64);
        saved.map_err(|error| MachineFault::Failed { comparison, frame, reason: error.to_string() })
    }

    fn save_unused(&mut self, frame: u32, comparison: CheckComparison) -> Result<(), MachineFault> {
        std::mem::swap(&mut self.state, &mut self.unused_state);
        let saved = self.save(frame, comparison);
        std::mem::swap(&mut self.state, &mut self.unused_state);
        saved
    }

    fn load(&mut self, frame: u32, comparison: CheckComparison) -> Result<(), MachineFault> {
        self.loaded_frame = Some(frame);
        let loaded = time_call(&mut self.run.samples.load, || self.machine.load(&self.state));
        loaded.map_err(|error| MachineFault::Failed { comparison, frame, reason: error.to_string() })
    }
}
