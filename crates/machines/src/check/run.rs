//! One comparison after the other.

use std::time::{Duration, Instant};

use super::digest::{Look, Region, differences, regions};
use super::measure::{Samples, timed};
use super::process::{NoProcess, Process};
use super::progress::{Clock, Progress};
use super::report::{Compared, Found, Report, key_of};
use super::script::Script;
use super::verdict::{Comparison, Difference, Fault, Reason, Seen, Verdict};
use super::{Error, Options, Subject, repair};
use crate::machine::Machine;

/// Why a comparison ends before it is through: nothing can be said, or something was found.
pub(super) enum Stop {
    Error(Error),
    Fault(Fault),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A check that is going on.
pub(super) struct Run<'a> {
    subject: Subject<'a>,
    pub(super) seed: u64,
    pub(super) clock: Clock<'a>,
    pub(super) script: Script,
    /// What an instance looked like after each frame that never saved, loaded or was reset, and its hash before the first.
    pub(super) record: Vec<Look>,
    unstepped: u64,
    pub(super) samples: Samples,
    pub(super) compared: Vec<Compared>,
    pub(super) notes: Vec<String>,
    /// That instance, which still stands at the end of the record.
    straight: Box<dyn Machine>,
    /// Frames of everything together, at most.
    frames: u32,
    later: Duration,
    patience: Duration,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        subject: Subject<'a>,
        options: &Options,
        tell: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let long = options.frames.max(1);
        let clock = Clock::new(options.short.clamp(1, long), long, options.budget, tell);
        let mut straight = (subject.open)().map_err(Error::Open)?;
        let script = Script::new(options.seed, straight.pads());
        Ok(Self {
            unstepped: straight.hash(),
            seed: options.seed,
            clock,
            script,
            record: Vec::new(),
            samples: Samples::default(),
            compared: Vec::new(),
            notes: Vec::new(),
            straight,
            frames: long,
            later: options.later,
            patience: options.patience,
            subject,
        })
    }

    /// Everything.
    pub(super) fn finish(mut self) -> Result<Report, Error> {
        let verdict = match self.judge() {
            Ok(None) => Verdict::Rollback,
            Ok(Some(reason)) => Verdict::Lockstep { reason },
            Err(Stop::Fault(fault)) => Verdict::Unfit { fault },
            Err(Stop::Error(error)) => return Err(error),
        };
        if let Some(why) = self.straight.failure() {
            self.notes.push(format!("the game stopped the machine: {why}"));
        }
        let Self { clock, straight, samples, compared, notes, .. } = self;
        let found = Found { verdict, compared, cut_short: clock.cut().to_vec(), measured: samples.measured(), notes };
        Ok(Report::new(&*straight, found, clock.elapsed()))
    }

    /// Whether something stands against guesses. A fault is something that stands against everything.
    fn judge(&mut self) -> Result<Option<Reason>, Stop> {
        let mut other = self.open()?;
        self.together(&mut *other)?;
        let recorded = Instant::now();
        let mut reason = self.states(&mut *other)?;
        let mut process = self.apart(recorded)?;
        if reason.is_none() {
            reason = inexact(self.cold(&mut *other))?;
        }
        self.long(&mut process)?;
        if self.record.iter().all(|look| look.hash == self.unstepped) {
            return Err(Fault::Blind.into());
        }
        Ok(reason)
    }

    /// Whether something is wrong with states and with what is not seen.
    fn states(&mut self, other: &mut dyn Machine) -> Result<Option<Reason>, Stop> {
        if let Some(reason) = inexact(self.anew(other))? {
            return Ok(Some(reason));
        }
        if !other.can_save() {
            return Ok(Some(Reason::CannotSave));
        }
        other.reset();
        inexact(repair::repairs(self, other))
    }

    fn open(&mut self) -> Result<Box<dyn Machine>, Error> {
        (self.subject.open)().map_err(Error::Open)
    }

    /// Another process, for a comparison that begins with this frame.
    fn start(&mut self, comparison: Comparison, frame: u32) -> Result<Process, Stop> {
        Process::start((self.subject.child)(), self.patience).map_err(|error| match error {
            NoProcess::Died(why) => Fault::Failed { comparison, frame, why }.into(),
            error => Error::from(error).into(),
        })
    }

    /// Two in one process, and the record for all that follows.
    fn together(&mut self, other: &mut dyn Machine) -> Result<(), Stop> {
        let comparison = Comparison::Together;
        self.clock.begin(comparison);
        let unstepped = other.hash();
        while self.next_frame() < self.clock.frames(comparison) && self.clock.goes_on(self.next_frame()) {
            let frame = self.next_frame();
            let inputs = self.script.at(frame);
            timed(&mut self.samples.fresh, || self.straight.step(inputs, true));
            other.step(inputs, true);
            let hash = timed(&mut self.samples.hash, || self.straight.hash());
            let (here, there) = (Look::with(hash, &*self.straight), Look::at(other));
            self.record.push(here);
            if let Some(seen) = differs(here, there) {
                let named = differences(&regions(&mut *self.straight), &regions(other));
                let frame = (frame > 0 || unstepped == self.unstepped).then_some(frame);
                return Err(Fault::Differs(Difference { comparison, frame, loaded: None, seen, regions: named }).into());
            }
            self.count(comparison, 1);
        }
        self.same_identity(comparison, &key_of(other))
    }

    /// One that is reset and plays with nobody looking, as it does for someone who comes late where nothing can be saved.
    fn anew(&mut self, other: &mut dyn Machine) -> Result<(), Stop> {
        let comparison = Comparison::Anew;
        self.clock.begin(comparison);
        other.reset();
        let frames = self.clock.frames(comparison).min(self.next_frame());
        for frame in 0..frames {
            if !self.clock.goes_on(frame) {
                break;
            }
            timed(&mut self.samples.unseen, || other.step(self.script.at(frame), false));
            if other.hash() != self.record[frame as usize].hash {
                let there = regions(other);
                return Err(self.differs_from_record(comparison, frame, None, &there)?);
            }
            self.count(comparison, 1);
        }
        Ok(())
    }

    /// One in another process, later.
    fn apart(&mut self, recorded: Instant) -> Result<Process, Stop> {
        let comparison = Comparison::Apart;
        self.clock.begin(comparison);
        std::thread::sleep(self.later.saturating_sub(recorded.elapsed()));
        let mut process = self.start(comparison, 0)?;
        for frame in 0..self.next_frame() {
            // The long run begins where the record ends, so this one cannot be cut short.
            self.clock.tick(frame);
            let failed = |why| Fault::Failed { comparison, frame, why };
            process.ask_step(self.script.at(frame), true).map_err(failed)?;
            let there = process.look().map_err(failed)?;
            if let Some(seen) = differs(self.record[frame as usize], there) {
                let from_the_start = frame == 0 && process.unstepped != self.unstepped;
                let there = process.regions().unwrap_or_default();
                let mut stop = self.differs_from_record(comparison, frame, None, &there)?;
                if let Stop::Fault(Fault::Differs(difference)) = &mut stop {
                    difference.seen = seen;
                    difference.frame = difference.frame.filter(|_| !from_the_start);
                }
                return Err(stop);
            }
            self.count(comparison, 1);
        }
        let key = process.key.clone();
        self.same_identity(comparison, &key)?;
        Ok(process)
    }

    /// A state in a new process, which has stepped no frame.
    fn cold(&mut self, other: &mut dyn Machine) -> Result<(), Stop> {
        let comparison = Comparison::Cold;
        self.clock.begin(comparison);
        let (mut state, from) = (Vec::new(), repair::end(self));
        let failed = |frame| move |why| Fault::Failed { comparison, frame, why };
        other.save(&mut state).map_err(|error| failed(from)(error.to_string()))?;
        let mut process = self.start(comparison, from)?;
        process.load(&state).map_err(failed(from))?;
        for frame in from..self.next_frame() {
            if !self.clock.goes_on(frame - from) {
                break;
            }
            process.ask_step(self.script.at(frame), true).map_err(failed(frame))?;
            if process.look().map_err(failed(frame))?.hash != self.record[frame as usize].hash {
                let there = process.regions().unwrap_or_default();
                return Err(self.differs_from_record(comparison, frame, Some(from), &there)?);
            }
            self.count(comparison, 1);
        }
        Ok(())
    }

    /// The first instance and the one in the other process go on, at the same time.
    fn long(&mut self, process: &mut Process) -> Result<(), Stop> {
        let comparison = Comparison::Long;
        self.clock.begin(comparison);
        let from = self.next_frame();
        for frame in from..self.frames {
            if !self.clock.goes_on(frame - from) {
                break;
            }
            let failed = |why| Fault::Failed { comparison, frame, why };
            let inputs = self.script.at(frame);
            process.ask_step(inputs, true).map_err(failed)?;
            self.straight.step(inputs, true);
            let here = Look::at(&mut *self.straight);
            let there = process.look().map_err(failed)?;
            if let Some(seen) = differs(here, there) {
                let there = process.regions().unwrap_or_default();
                let regions = differences(&regions(&mut *self.straight), &there);
                return Err(
                    Fault::Differs(Difference { comparison, frame: Some(frame), loaded: None, seen, regions }).into()
                );
            }
            self.count(comparison, 1);
        }
        Ok(())
    }

    /// Sites would not even begin with machines that are not known by the same name.
    fn same_identity(&self, comparison: Comparison, key: &str) -> Result<(), Stop> {
        if key_of(&*self.straight) == key { Ok(()) } else { Err(Fault::Identity { comparison }.into()) }
    }

    /// Names what differs. The record has only hashes, so the same is played once more as it should have been.
    pub(super) fn differs_from_record(
        &mut self,
        comparison: Comparison,
        frame: u32,
        loaded: Option<u32>,
        there: &[Region],
    ) -> Result<Stop, Error> {
        let mut once_more = self.open()?;
        (0..=frame).for_each(|frame| once_more.step(self.script.at(frame), true));
        let regions = differences(&regions(&mut *once_more), there);
        let difference = Difference { comparison, frame: Some(frame), loaded, seen: Seen::State, regions };
        Ok(Stop::Fault(Fault::Differs(difference)))
    }

    /// The frame after the record.
    fn next_frame(&self) -> u32 {
        self.record.len() as u32
    }

    /// So many frames more were equal.
    pub(super) fn count(&mut self, comparison: Comparison, frames: u32) {
        match self.compared.iter_mut().find(|compared| compared.comparison == comparison) {
            Some(compared) => compared.frames += frames,
            None => self.compared.push(Compared { comparison, frames }),
        }
    }
}

fn differs(here: Look, there: Look) -> Option<Seen> {
    match here {
        _ if here.hash != there.hash => Some(Seen::State),
        _ if here.picture != there.picture => Some(Seen::Picture),
        _ => None,
    }
}

/// What stands only against guesses.
fn inexact(outcome: Result<(), Stop>) -> Result<Option<Reason>, Stop> {
    match outcome {
        Ok(()) => Ok(None),
        Err(Stop::Fault(fault)) => Ok(Some(Reason::States { fault })),
        Err(error) => Err(error),
    }
}
