//! The state of a running check: the reference machine, the recorded digests, and what the comparisons have found.

use std::time::Duration;

use super::digest::{MachineDigest, RegionDigest, region_digests, region_mismatches};
use super::measure::TimingSamples;
use super::progress::{CheckProgress, CheckTimer};
use super::report::ComparedFrames;
use super::script::InputScript;
use super::verdict::{CheckComparison, MachineFault, MismatchedOutput, StateMismatch};
use super::{CheckError, CheckOptions, CheckSubject};
use crate::machine::Machine;

/// Reason why a comparison was aborted: an error that prevents a verdict, or a fault of the machine.
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

/// A running check, with the reference machine to which all other instances are compared.
pub(super) struct CheckRun<'a> {
    pub(super) subject: CheckSubject<'a>,
    pub(super) seed: u64,
    pub(super) timer: CheckTimer<'a>,
    pub(super) input_script: InputScript,
    /// Digests of the reference machine, which never saves, loads or resets, after each frame before the long run.
    pub(super) reference_digests: Vec<MachineDigest>,
    pub(super) initial_hash: u64,
    pub(super) samples: TimingSamples,
    pub(super) compared: Vec<ComparedFrames>,
    pub(super) notes: Vec<String>,
    /// The reference machine. Before the long run, it has stepped exactly the frames in `reference_digests`.
    pub(super) reference_machine: Box<dyn Machine>,
    /// Number of frames after which the long run ends.
    pub(super) max_frames: u32,
    pub(super) child_delay: Duration,
    pub(super) response_timeout: Duration,
}

impl<'a> CheckRun<'a> {
    pub(super) fn new(
        subject: CheckSubject<'a>,
        options: &CheckOptions,
        on_progress: &'a mut dyn FnMut(CheckProgress),
    ) -> Result<Self, CheckError> {
        let max_frames = options.long_run_frames.max(1);
        let timer = CheckTimer::new(
            options.short_run_frames.clamp(1, max_frames),
            max_frames,
            options.time_budget,
            on_progress,
        );
        let mut reference_machine = (subject.open)().map_err(CheckError::Open)?;
        let input_script = InputScript::new(options.seed, reference_machine.pads());
        Ok(Self {
            initial_hash: reference_machine.hash(),
            seed: options.seed,
            timer,
            input_script,
            reference_digests: Vec::new(),
            samples: TimingSamples::default(),
            compared: Vec::new(),
            notes: Vec::new(),
            reference_machine,
            max_frames,
            child_delay: options.child_delay,
            response_timeout: options.response_timeout,
            subject,
        })
    }

    pub(super) fn open_machine(&mut self) -> Result<Box<dyn Machine>, CheckError> {
        (self.subject.open)().map_err(CheckError::Open)
    }

    /// Returns the mismatch of an instance with the reference run after `frame`, with the differing regions. The
    /// recorded digests contain no regions, so the reference run is repeated up to this frame.
    pub(super) fn reference_mismatch(
        &mut self,
        comparison: CheckComparison,
        frame: u32,
        loaded_frame: Option<u32>,
        theirs: &[RegionDigest],
    ) -> Result<ComparisonAbort, CheckError> {
        let mut reference = self.open_machine()?;
        (0..=frame).for_each(|frame| reference.step(self.input_script.inputs_at(frame), true));
        let regions = region_mismatches(&region_digests(&mut *reference), theirs);
        let mismatch = StateMismatch {
            comparison,
            frame: Some(frame),
            loaded_frame,
            mismatch_kind: MismatchedOutput::State,
            regions,
        };
        Ok(ComparisonAbort::Fault(MachineFault::Mismatch(mismatch)))
    }

    /// Returns the next frame of the reference machine before the long run: the number of recorded digests.
    pub(super) fn next_frame(&self) -> u32 {
        self.reference_digests.len() as u32
    }

    /// Adds to the number of equal frames of a comparison.
    pub(super) fn add_equal_frames(&mut self, comparison: CheckComparison, frames: u32) {
        match self.compared.iter_mut().find(|compared| compared.comparison == comparison) {
            Some(compared) => compared.frames += frames,
            None => self.compared.push(ComparedFrames { comparison, frames }),
        }
    }
}
