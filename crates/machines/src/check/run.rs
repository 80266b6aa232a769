//! Runs the comparisons one after the other and derives the verdict.

use std::time::Instant;

use super::check_run::{CheckRun, ComparisonAbort};
use super::child_machine::{ChildMachine, ChildStartError};
use super::digest::{MachineDigest, region_digests, region_mismatches};
use super::measure::time_call;
use super::report::{CheckReport, CheckResults, identity_key};
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchedOutput, StateMismatch};
use super::{CheckError, rollback_test};
use crate::machine::Machine;

impl CheckRun<'_> {
    /// Runs the comparisons, derives the verdict and returns the report.
    pub(super) fn run(mut self) -> Result<CheckReport, CheckError> {
        let verdict = match self.run_comparisons() {
            Ok(None) => CheckVerdict::Rollback,
            Ok(Some(reason)) => CheckVerdict::Lockstep { reason },
            Err(ComparisonAbort::Fault(fault)) => CheckVerdict::Unfit { fault },
            Err(ComparisonAbort::Error(error)) => return Err(error),
        };
        if let Some(reason) = self.reference_machine.failure() {
            self.notes.push(format!("the game crashed the emulator: {reason}"));
        }
        let Self { timer, reference_machine, samples, compared, notes, .. } = self;
        let results = CheckResults {
            verdict,
            compared,
            cut_short: timer.cut_short().to_vec(),
            measured: samples.summarize(),
            notes,
        };
        Ok(CheckReport::new(&*reference_machine, results, timer.elapsed()))
    }

    /// Runs the comparisons; skips those of saved states once one has shown that rollback is not possible. Returns the
    /// reason why rollback is not possible; `None` if it is. Fails with an error, or with a fault that rules out
    /// netplay altogether.
    fn run_comparisons(&mut self) -> Result<Option<LockstepReason>, ComparisonAbort> {
        let mut other = self.open_machine()?;
        self.compare_same_process(&mut *other)?;
        let recorded_at = Instant::now();
        let mut reason = self.compare_states(&mut *other)?;
        let mut child = self.compare_other_process(recorded_at)?;
        if reason.is_none() {
            reason = fault_to_lockstep_reason(self.compare_cold_load(&mut *other))?;
        }
        self.compare_long_run(&mut child)?;
        if self.reference_digests.iter().all(|digest| digest.state_hash == self.initial_hash) {
            return Err(MachineFault::ConstantHash.into());
        }
        Ok(reason)
    }

    /// Compares `other` with the reference run after a reset and without rendering, then with rollbacks. Returns the
    /// reason why rollback is not possible; `None` if it is.
    fn compare_states(&mut self, other: &mut dyn Machine) -> Result<Option<LockstepReason>, ComparisonAbort> {
        if let Some(reason) = fault_to_lockstep_reason(self.compare_after_reset(other))? {
            return Ok(Some(reason));
        }
        if !other.can_save() {
            return Ok(Some(LockstepReason::CannotSave));
        }
        other.reset();
        fault_to_lockstep_reason(rollback_test::test_rollbacks(self, other))
    }

    /// Starts a child process for a comparison that begins with `frame`.
    fn start_child(&mut self, comparison: CheckComparison, frame: u32) -> Result<ChildMachine, ComparisonAbort> {
        ChildMachine::start((self.subject.child_command)(), self.response_timeout).map_err(|error| match error {
            ChildStartError::Crashed(reason) => MachineFault::Failed { comparison, frame, reason }.into(),
            error => CheckError::from(error).into(),
        })
    }

    /// Compares two instances in one process and records the digests of the reference machine. Fails also if the
    /// instances have different identity keys.
    fn compare_same_process(&mut self, other: &mut dyn Machine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::SameProcess;
        self.timer.begin(comparison);
        let other_initial_hash = other.hash();
        while self.next_frame() < self.timer.frames(comparison) && self.timer.has_time_for_next(self.next_frame()) {
            let frame = self.next_frame();
            let inputs = self.input_script.inputs_at(frame);
            time_call(&mut self.samples.step_rendered, || self.reference_machine.step(inputs, true));
            other.step(inputs, true);
            let hash = time_call(&mut self.samples.hash, || self.reference_machine.hash());
            let (ours, theirs) =
                (MachineDigest::with_state_hash(hash, &*self.reference_machine), MachineDigest::of_machine(other));
            self.reference_digests.push(ours);
            if let Some(kind) = mismatch_kind(ours, theirs) {
                let regions = region_mismatches(&region_digests(&mut *self.reference_machine), &region_digests(other));
                let frame = (frame > 0 || other_initial_hash == self.initial_hash).then_some(frame);
                return Err(MachineFault::Mismatch(StateMismatch {
                    comparison,
                    frame,
                    loaded_frame: None,
                    mismatch_kind: kind,
                    regions,
                })
                .into());
            }
            self.add_equal_frames(comparison, 1);
        }
        self.require_same_identity(comparison, &identity_key(other))
    }

    /// Resets `other`, steps it without rendering and compares it with the reference run. A late joiner does the same
    /// to replay the game if the machine cannot save.
    fn compare_after_reset(&mut self, other: &mut dyn Machine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::AfterReset;
        self.timer.begin(comparison);
        other.reset();
        let frames = self.timer.frames(comparison).min(self.next_frame());
        for frame in 0..frames {
            if !self.timer.has_time_for_next(frame) {
                break;
            }
            time_call(&mut self.samples.step_headless, || other.step(self.input_script.inputs_at(frame), false));
            if other.hash() != self.reference_digests[frame as usize].state_hash {
                let theirs = region_digests(other);
                return Err(self.reference_mismatch(comparison, frame, None, &theirs)?);
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// Compares the reference run with an instance in a child process that starts later. Fails also if the identity
    /// keys differ. Returns the child process for the long run.
    fn compare_other_process(&mut self, recorded_at: Instant) -> Result<ChildMachine, ComparisonAbort> {
        let comparison = CheckComparison::OtherProcess;
        self.timer.begin(comparison);
        std::thread::sleep(self.child_delay.saturating_sub(recorded_at.elapsed()));
        let mut child = self.start_child(comparison, 0)?;
        for frame in 0..self.next_frame() {
            // The long run begins at the end of the recorded digests, so this comparison cannot end early.
            self.timer.update_progress(frame);
            let failed = |reason| MachineFault::Failed { comparison, frame, reason };
            child.request_step(self.input_script.inputs_at(frame), true).map_err(failed)?;
            let theirs = child.read_digest().map_err(failed)?;
            if let Some(kind) = mismatch_kind(self.reference_digests[frame as usize], theirs) {
                let before_first_frame = frame == 0 && child.initial_hash != self.initial_hash;
                let theirs = child.regions().unwrap_or_default();
                let mut abort = self.reference_mismatch(comparison, frame, None, &theirs)?;
                if let ComparisonAbort::Fault(MachineFault::Mismatch(mismatch)) = &mut abort {
                    mismatch.mismatch_kind = kind;
                    mismatch.frame = mismatch.frame.filter(|_| !before_first_frame);
                }
                return Err(abort);
            }
            self.add_equal_frames(comparison, 1);
        }
        let key = child.identity_key.clone();
        self.require_same_identity(comparison, &key)?;
        Ok(child)
    }

    /// Loads a state of `other` in a new process that has stepped no frame, and compares the frames after it with the
    /// reference run.
    fn compare_cold_load(&mut self, other: &mut dyn Machine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::ColdLoad;
        self.timer.begin(comparison);
        let (mut state, from) = (Vec::new(), rollback_test::end_frame(self));
        let failed = |frame| move |reason| MachineFault::Failed { comparison, frame, reason };
        other.save(&mut state).map_err(|error| failed(from)(error.to_string()))?;
        let mut child = self.start_child(comparison, from)?;
        child.load(&state).map_err(failed(from))?;
        for frame in from..self.next_frame() {
            if !self.timer.has_time_for_next(frame - from) {
                break;
            }
            child.request_step(self.input_script.inputs_at(frame), true).map_err(failed(frame))?;
            if child.read_digest().map_err(failed(frame))?.state_hash
                != self.reference_digests[frame as usize].state_hash
            {
                let theirs = child.regions().unwrap_or_default();
                return Err(self.reference_mismatch(comparison, frame, Some(from), &theirs)?);
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// Continues the reference machine and the machine of the child process in parallel, and compares them after every
    /// frame.
    fn compare_long_run(&mut self, child: &mut ChildMachine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::LongRun;
        self.timer.begin(comparison);
        let from = self.next_frame();
        for frame in from..self.max_frames {
            if !self.timer.has_time_for_next(frame - from) {
                break;
            }
            let failed = |reason| MachineFault::Failed { comparison, frame, reason };
            let inputs = self.input_script.inputs_at(frame);
            child.request_step(inputs, true).map_err(failed)?;
            self.reference_machine.step(inputs, true);
            let ours = MachineDigest::of_machine(&mut *self.reference_machine);
            let theirs = child.read_digest().map_err(failed)?;
            if let Some(kind) = mismatch_kind(ours, theirs) {
                let theirs = child.regions().unwrap_or_default();
                let regions = region_mismatches(&region_digests(&mut *self.reference_machine), &theirs);
                return Err(MachineFault::Mismatch(StateMismatch {
                    comparison,
                    frame: Some(frame),
                    loaded_frame: None,
                    mismatch_kind: kind,
                    regions,
                })
                .into());
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// Fails unless `key` is the identity key of the reference machine: a session does not start with different machine
    /// ids.
    fn require_same_identity(&self, comparison: CheckComparison, key: &str) -> Result<(), ComparisonAbort> {
        if identity_key(&*self.reference_machine) == key {
            Ok(())
        } else {
            Err(MachineFault::UnstableIdentity { comparison }.into())
        }
    }
}

fn mismatch_kind(ours: MachineDigest, theirs: MachineDigest) -> Option<MismatchedOutput> {
    match ours {
        _ if ours.state_hash != theirs.state_hash => Some(MismatchedOutput::State),
        _ if ours.picture_hash != theirs.picture_hash => Some(MismatchedOutput::Picture),
        _ => None,
    }
}

/// Turns a fault into the reason [`LockstepReason::InexactStates`]; `None` if there was no fault. Passes errors on.
fn fault_to_lockstep_reason(outcome: Result<(), ComparisonAbort>) -> Result<Option<LockstepReason>, ComparisonAbort> {
    match outcome {
        Ok(()) => Ok(None),
        Err(ComparisonAbort::Fault(fault)) => Ok(Some(LockstepReason::InexactStates { fault })),
        Err(error) => Err(error),
    }
}
