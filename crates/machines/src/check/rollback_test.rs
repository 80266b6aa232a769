//! Tests saved states: saves, loads and replays, as a session does when it rolls back mispredictions.

use super::check_run::{CheckRun, ComparisonAbort};
use super::digest::region_digests;
use super::measure::time_call;
use super::script::{InputScript, SplitMix64};
use super::verdict::{CheckComparison, MachineFault};
use crate::machine::Machine;

/// Maximum length of a short rollback, in frames.
const MAX_SHORT_ROLLBACK: u64 = 16;
/// On average, one rollback in this many is a long one, of [`LONG_ROLLBACK_FRAMES`] frames.
const LONG_ROLLBACK_ONE_IN: u64 = 12;
const LONG_ROLLBACK_FRAMES: u32 = 60;
/// Exclusive upper bound on the number of frames between two rollbacks.
const MAX_FRAMES_BETWEEN_ROLLBACKS: u64 = 8;

/// Returns the frame at which the rollback test ends, after two thirds of the reference run. The cold load then tests
/// the state saved there in the remaining frames.
pub(super) fn end_frame(run: &CheckRun<'_>) -> u32 {
    (run.reference_digests.len() as u32 * 2 / 3).max(1)
}

/// A machine that follows the reference run with rollbacks.
struct RollbackTest<'r, 'a> {
    run: &'r mut CheckRun<'a>,
    machine: &'r mut dyn Machine,
    rng: SplitMix64,
    /// Source of mispredicted inputs, for rollbacks whose predictions do not repeat the last inputs.
    mispredicted_inputs: InputScript,
    state: Vec<u8>,
    unused_state: Vec<u8>,
    /// Frame before which the last loaded state was saved.
    loaded_frame: Option<u32>,
    /// Whether mispredicted inputs have led to another state than the right inputs.
    inputs_have_effect: bool,
}

/// Rolls a machine back repeatedly along the reference run. The machine must have stepped no frame since its reset;
/// afterwards it is at [`end_frame`].
pub(super) fn test_rollbacks(run: &mut CheckRun<'_>, machine: &mut dyn Machine) -> Result<(), ComparisonAbort> {
    run.timer.begin(CheckComparison::AfterRollback);
    let (rng, mispredicted_inputs) = (SplitMix64::new(run.seed ^ 0x5a5e), InputScript::new(!run.seed, machine.pads()));
    let (state, unused_state) = (Vec::new(), Vec::new());
    let mut test = RollbackTest {
        run,
        machine,
        rng,
        mispredicted_inputs,
        state,
        unused_state,
        loaded_frame: None,
        inputs_have_effect: false,
    };
    test.run_all()?;
    if !test.inputs_have_effect {
        run.notes.push("pressed buttons had no effect: the check may not have passed the title screen".into());
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
            let short_rollback = 1 + self.rng.below(MAX_SHORT_ROLLBACK) as u32;
            let frames = if self.rng.one_in(LONG_ROLLBACK_ONE_IN) { LONG_ROLLBACK_FRAMES } else { short_rollback };
            let rollback_end = (frame + frames).min(end);
            let comparison =
                if self.rng.one_in(2) { CheckComparison::AfterRollback } else { CheckComparison::ReplayFromState };
            self.save(frame, comparison)?;
            self.simulate_before_rollback(frame, rollback_end, comparison)?;
            // A resimulated stretch may be rolled back a second time.
            for _ in 0..1 + u32::from(self.rng.one_in(4)) {
                self.load(frame, comparison)?;
                self.replay_and_compare(frame, rollback_end, comparison, true)?;
            }
            self.run.add_equal_frames(comparison, rollback_end - frame);
            frame = (rollback_end + self.rng.below(MAX_FRAMES_BETWEEN_ROLLBACKS) as u32).min(end);
            self.replay_and_compare(rollback_end, frame, comparison, false)?;
        }
        Ok(())
    }

    /// Runs the frames that will be rolled back. For [`CheckComparison::ReplayFromState`] the inputs are right, and the
    /// frames are compared with the reference run; otherwise the inputs are mispredicted, and the test records whether
    /// they change the state. Also saves states at random frames, which are never loaded.
    fn simulate_before_rollback(
        &mut self,
        from: u32,
        to: u32,
        comparison: CheckComparison,
    ) -> Result<(), ComparisonAbort> {
        let repeats_last_input = self.rng.one_in(2);
        for frame in from..to {
            if frame > from && self.rng.one_in(2) {
                self.save_unused(frame, comparison)?;
            }
            if comparison == CheckComparison::ReplayFromState {
                self.replay_and_compare(frame, frame + 1, comparison, false)?;
                continue;
            }
            let predicted = if repeats_last_input {
                self.run.input_script.inputs_at(from.saturating_sub(1))
            } else {
                self.mispredicted_inputs.inputs_at(frame)
            };
            self.machine.step(predicted, true);
            self.inputs_have_effect |= self.machine.hash() != self.run.reference_digests[frame as usize].state_hash;
        }
        Ok(())
    }

    /// Runs frames with the right inputs and compares them with the reference run. If `resimulated`, only the last
    /// frame is rendered.
    fn replay_and_compare(
        &mut self,
        from: u32,
        to: u32,
        comparison: CheckComparison,
        resimulated: bool,
    ) -> Result<(), ComparisonAbort> {
        for frame in from..to {
            let fresh = !resimulated || frame + 1 == to;
            let inputs = self.run.input_script.inputs_at(frame);
            let samples = &mut self.run.samples;
            time_call(if fresh { &mut samples.step_rendered } else { &mut samples.step_headless }, || {
                self.machine.step(inputs, fresh)
            });
            let hash = time_call(&mut samples.hash, || self.machine.hash());
            if hash != self.run.reference_digests[frame as usize].state_hash {
                let regions = region_digests(self.machine);
                return Err(self.run.reference_mismatch(comparison, frame, self.loaded_frame, &regions)?);
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
