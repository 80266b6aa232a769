//! One comparison after the other.

use std::time::{Duration, Instant};

use super::child_machine::{ChildMachine, ChildStartError};
use super::digest::{FrameDigest, RegionDigest, region_digests, region_mismatches};
use super::measure::{TimingSamples, time_call};
use super::progress::{CheckProgress, CheckTimer};
use super::report::{CheckReport, CheckResults, ComparedFrames, identity_key};
use super::script::InputScript;
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault, MismatchKind, StateMismatch};
use super::{CheckError, CheckOptions, CheckSubject, rollback_test};
use crate::machine::Machine;

/// Why a comparison ends before it is through: nothing can be said, or something was found.
pub(super) enum ComparisonAbort {
    Error(CheckError),
    Fault(MachineFault),
}

impl From<CheckError> for ComparisonAbort {
    fn from(error: CheckError) -> Self {
        Self::Error(error)
    }
}

impl From<MachineFault> for ComparisonAbort {
    fn from(fault: MachineFault) -> Self {
        Self::Fault(fault)
    }
}

/// A check that is going on.
pub(super) struct CheckRun<'a> {
    subject: CheckSubject<'a>,
    pub(super) seed: u64,
    pub(super) timer: CheckTimer<'a>,
    pub(super) input_script: InputScript,
    /// What an instance looked like after each frame that never saved, loaded or was reset, and its hash before the first.
    pub(super) reference_digests: Vec<FrameDigest>,
    initial_hash: u64,
    pub(super) samples: TimingSamples,
    pub(super) compared: Vec<ComparedFrames>,
    pub(super) notes: Vec<String>,
    /// That instance, which still stands at the end of the record.
    reference_machine: Box<dyn Machine>,
    /// Frames of everything together, at most.
    max_frames: u32,
    child_delay: Duration,
    response_timeout: Duration,
}

impl<'a> CheckRun<'a> {
    pub(super) fn new(
        subject: CheckSubject<'a>,
        options: &CheckOptions,
        tell: &'a mut dyn FnMut(CheckProgress),
    ) -> Result<Self, CheckError> {
        let long = options.long_run_frames.max(1);
        let clock = CheckTimer::new(options.short_run_frames.clamp(1, long), long, options.time_budget, tell);
        let mut straight = (subject.open)().map_err(CheckError::Open)?;
        let script = InputScript::new(options.seed, straight.pads());
        Ok(Self {
            initial_hash: straight.hash(),
            seed: options.seed,
            timer: clock,
            input_script: script,
            reference_digests: Vec::new(),
            samples: TimingSamples::default(),
            compared: Vec::new(),
            notes: Vec::new(),
            reference_machine: straight,
            max_frames: long,
            child_delay: options.child_delay,
            response_timeout: options.response_timeout,
            subject,
        })
    }

    /// Everything.
    pub(super) fn run(mut self) -> Result<CheckReport, CheckError> {
        let verdict = match self.run_comparisons() {
            Ok(None) => CheckVerdict::Rollback,
            Ok(Some(reason)) => CheckVerdict::Lockstep { reason },
            Err(ComparisonAbort::Fault(fault)) => CheckVerdict::Unfit { fault },
            Err(ComparisonAbort::Error(error)) => return Err(error),
        };
        if let Some(why) = self.reference_machine.failure() {
            self.notes.push(format!("the game stopped the machine: {why}"));
        }
        let Self { timer: clock, reference_machine: straight, samples, compared, notes, .. } = self;
        let found = CheckResults {
            verdict,
            compared,
            cut_short: clock.cut_short().to_vec(),
            measured: samples.summarize(),
            notes,
        };
        Ok(CheckReport::new(&*straight, found, clock.elapsed()))
    }

    /// Whether something stands against guesses. A fault is something that stands against everything.
    fn run_comparisons(&mut self) -> Result<Option<LockstepReason>, ComparisonAbort> {
        let mut other = self.open_machine()?;
        self.compare_same_process(&mut *other)?;
        let recorded = Instant::now();
        let mut reason = self.compare_states(&mut *other)?;
        let mut process = self.compare_other_process(recorded)?;
        if reason.is_none() {
            reason = fault_to_lockstep_reason(self.compare_cold_load(&mut *other))?;
        }
        self.compare_long_run(&mut process)?;
        if self.reference_digests.iter().all(|look| look.state_hash == self.initial_hash) {
            return Err(MachineFault::ConstantHash.into());
        }
        Ok(reason)
    }

    /// Whether something is wrong with states and with what is not seen.
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

    fn open_machine(&mut self) -> Result<Box<dyn Machine>, CheckError> {
        (self.subject.open)().map_err(CheckError::Open)
    }

    /// Another process, for a comparison that begins with this frame.
    fn start_child(&mut self, comparison: CheckComparison, frame: u32) -> Result<ChildMachine, ComparisonAbort> {
        ChildMachine::start((self.subject.child_command)(), self.response_timeout).map_err(|error| match error {
            ChildStartError::Crashed(why) => MachineFault::Failed { comparison, frame, reason: why }.into(),
            error => CheckError::from(error).into(),
        })
    }

    /// Two in one process, and the record for all that follows.
    fn compare_same_process(&mut self, other: &mut dyn Machine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::SameProcess;
        self.timer.begin(comparison);
        let unstepped = other.hash();
        while self.next_frame() < self.timer.frames(comparison) && self.timer.has_time_for_next(self.next_frame()) {
            let frame = self.next_frame();
            let inputs = self.input_script.inputs_at(frame);
            time_call(&mut self.samples.step_rendered, || self.reference_machine.step(inputs, true));
            other.step(inputs, true);
            let hash = time_call(&mut self.samples.hash, || self.reference_machine.hash());
            let (here, there) =
                (FrameDigest::with_state_hash(hash, &*self.reference_machine), FrameDigest::of_machine(other));
            self.reference_digests.push(here);
            if let Some(seen) = mismatch_kind(here, there) {
                let named = region_mismatches(&region_digests(&mut *self.reference_machine), &region_digests(other));
                let frame = (frame > 0 || unstepped == self.initial_hash).then_some(frame);
                return Err(MachineFault::Mismatch(StateMismatch {
                    comparison,
                    frame,
                    loaded_frame: None,
                    mismatch_kind: seen,
                    regions: named,
                })
                .into());
            }
            self.add_equal_frames(comparison, 1);
        }
        self.require_same_identity(comparison, &identity_key(other))
    }

    /// One that is reset and plays with nobody looking, as it does for someone who comes late where nothing can be saved.
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
                let there = region_digests(other);
                return Err(self.reference_mismatch(comparison, frame, None, &there)?);
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// One in another process, later.
    fn compare_other_process(&mut self, recorded: Instant) -> Result<ChildMachine, ComparisonAbort> {
        let comparison = CheckComparison::OtherProcess;
        self.timer.begin(comparison);
        std::thread::sleep(self.child_delay.saturating_sub(recorded.elapsed()));
        let mut process = self.start_child(comparison, 0)?;
        for frame in 0..self.next_frame() {
            // The long run begins where the record ends, so this one cannot be cut short.
            self.timer.update_progress(frame);
            let failed = |why| MachineFault::Failed { comparison, frame, reason: why };
            process.request_step(self.input_script.inputs_at(frame), true).map_err(failed)?;
            let there = process.read_digest().map_err(failed)?;
            if let Some(seen) = mismatch_kind(self.reference_digests[frame as usize], there) {
                let from_the_start = frame == 0 && process.initial_hash != self.initial_hash;
                let there = process.regions().unwrap_or_default();
                let mut stop = self.reference_mismatch(comparison, frame, None, &there)?;
                if let ComparisonAbort::Fault(MachineFault::Mismatch(difference)) = &mut stop {
                    difference.mismatch_kind = seen;
                    difference.frame = difference.frame.filter(|_| !from_the_start);
                }
                return Err(stop);
            }
            self.add_equal_frames(comparison, 1);
        }
        let key = process.identity_key.clone();
        self.require_same_identity(comparison, &key)?;
        Ok(process)
    }

    /// A state in a new process, which has stepped no frame.
    fn compare_cold_load(&mut self, other: &mut dyn Machine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::ColdLoad;
        self.timer.begin(comparison);
        let (mut state, from) = (Vec::new(), rollback_test::end_frame(self));
        let failed = |frame| move |why| MachineFault::Failed { comparison, frame, reason: why };
        other.save(&mut state).map_err(|error| failed(from)(error.to_string()))?;
        let mut process = self.start_child(comparison, from)?;
        process.load(&state).map_err(failed(from))?;
        for frame in from..self.next_frame() {
            if !self.timer.has_time_for_next(frame - from) {
                break;
            }
            process.request_step(self.input_script.inputs_at(frame), true).map_err(failed(frame))?;
            if process.read_digest().map_err(failed(frame))?.state_hash
                != self.reference_digests[frame as usize].state_hash
            {
                let there = process.regions().unwrap_or_default();
                return Err(self.reference_mismatch(comparison, frame, Some(from), &there)?);
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// The first instance and the one in the other process go on, at the same time.
    fn compare_long_run(&mut self, process: &mut ChildMachine) -> Result<(), ComparisonAbort> {
        let comparison = CheckComparison::LongRun;
        self.timer.begin(comparison);
        let from = self.next_frame();
        for frame in from..self.max_frames {
            if !self.timer.has_time_for_next(frame - from) {
                break;
            }
            let failed = |why| MachineFault::Failed { comparison, frame, reason: why };
            let inputs = self.input_script.inputs_at(frame);
            process.request_step(inputs, true).map_err(failed)?;
            self.reference_machine.step(inputs, true);
            let here = FrameDigest::of_machine(&mut *self.reference_machine);
            let there = process.read_digest().map_err(failed)?;
            if let Some(seen) = mismatch_kind(here, there) {
                let there = process.regions().unwrap_or_default();
                let regions = region_mismatches(&region_digests(&mut *self.reference_machine), &there);
                return Err(MachineFault::Mismatch(StateMismatch {
                    comparison,
                    frame: Some(frame),
                    loaded_frame: None,
                    mismatch_kind: seen,
                    regions,
                })
                .into());
            }
            self.add_equal_frames(comparison, 1);
        }
        Ok(())
    }

    /// Sites would not even begin with machines that are not known by the same name.
    fn require_same_identity(&self, comparison: CheckComparison, key: &str) -> Result<(), ComparisonAbort> {
        if identity_key(&*self.reference_machine) == key {
            Ok(())
        } else {
            Err(MachineFault::UnstableIdentity { comparison }.into())
        }
    }

    /// Names what differs. The record has only hashes, so the same is played once more as it should have been.
    pub(super) fn reference_mismatch(
        &mut self,
        comparison: CheckComparison,
        frame: u32,
        loaded: Option<u32>,
        there: &[RegionDigest],
    ) -> Result<ComparisonAbort, CheckError> {
        let mut once_more = self.open_machine()?;
        (0..=frame).for_each(|frame| once_more.step(self.input_script.inputs_at(frame), true));
        let regions = region_mismatches(&region_digests(&mut *once_more), there);
        let difference = StateMismatch {
            comparison,
            frame: Some(frame),
            loaded_frame: loaded,
            mismatch_kind: MismatchKind::State,
            regions,
        };
        Ok(ComparisonAbort::Fault(MachineFault::Mismatch(difference)))
    }

    /// The frame after the record.
    fn next_frame(&self) -> u32 {
        self.reference_digests.len() as u32
    }

    /// So many frames more were equal.
    pub(super) fn add_equal_frames(&mut self, comparison: CheckComparison, frames: u32) {
        match self.compared.iter_mut().find(|compared| compared.comparison == comparison) {
            Some(compared) => compared.frames += frames,
            None => self.compared.push(ComparedFrames { comparison, frames }),
        }
    }
}

fn mismatch_kind(here: FrameDigest, there: FrameDigest) -> Option<MismatchKind> {
    match here {
        _ if here.state_hash != there.state_hash => Some(MismatchKind::State),
        _ if here.picture_hash != there.picture_hash => Some(MismatchKind::Picture),
        _ => None,
    }
}

/// What stands only against guesses.
fn fault_to_lockstep_reason(outcome: Result<(), ComparisonAbort>) -> Result<Option<LockstepReason>, ComparisonAbort> {
    match outcome {
        Ok(()) => Ok(None),
        Err(ComparisonAbort::Fault(fault)) => Ok(Some(LockstepReason::InexactStates { fault })),
        Err(error) => Err(error),
    }
}
