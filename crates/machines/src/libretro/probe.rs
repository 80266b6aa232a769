//! Finding out, before a game begins, how a core and this game behave.
//!
//! What is found decides how the machine is hashed and saved, and all sites must decide alike. So everything here depends on core and game
//! only: fixed frames, fixed inputs, no clock. A core that behaves differently at two sites has different
//! [first frames](ProbeFindings::first_frames_hash) there, and is found out before the game begins.

use std::sync::Arc;

use coplay::input::InputWord;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::envelope::HEADER_LEN;
use super::error::CoreOpenError;
use super::frontend_state::{produce, quirk};
use super::instance::CoreInstance;
use super::instance_factory::InstanceFactory;
use super::probe_findings::{HashSource, ProbeFindings};
use crate::pad::Pad;

/// Frames without input that are looked at, and the one before which a state is kept.
const PROBE_FRAMES: usize = 60;
const MIDDLE_FRAME: usize = 30;

/// Cores with states of up to so many bytes are saved after every frame, at every site. Saving can change how a core goes on: bsnes, for
/// one, first runs to a point where all its processors meet. Sites save at different times, so that would drive them apart. It does not
/// always show, and where a state is small it costs less to save than to be wrong.
const MAX_ALWAYS_SAVED_LEN: usize = 512 << 10;

/// How often, and how many frames each, are played again from a state, with input.
const REPLAY_ROUNDS: usize = 4;
const ROUND_FRAMES: usize = 12;

/// What is seen of a core after a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameObservation {
    state: Option<u64>,
    memory: Option<u64>,
    picture: u64,
    sound: u64,
}

impl FrameObservation {
    /// Whether two games are in the same place: by picture and by memory, or by the state where the memory does not live.
    fn is_equivalent(&self, other: &Self, lives: bool) -> bool {
        let same_inside = if lives { self.memory == other.memory } else { self.state == other.state };
        same_inside && self.picture == other.picture
    }
}

/// An instance that was saved after every frame.
struct SavedRun {
    instance: CoreInstance,
    observations: Vec<FrameObservation>,
    /// Its state before the first frame, and in the middle.
    initial_state: Option<Vec<u8>>,
    middle_state: Option<Vec<u8>>,
}

/// How some frames are played.
#[derive(Clone, Copy)]
struct RoundOptions {
    frames: usize,
    /// Each is saved, and not only the last.
    save_each_frame: bool,
    /// Only the last is seen, and this is produced in the others.
    headless_outputs: Option<u32>,
}

/// What is the same after a state was loaded. The more, the greater.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LoadExactness {
    is_equivalent: bool,
    memory_equal: bool,
    state_equal: bool,
}

/// How states load in other instances.
#[derive(Default)]
struct CrossInstanceLoad {
    can_load: bool,
    exactness: LoadExactness,
    needs_warm_up: bool,
    can_load_initial_state: bool,
}

impl RoundOptions {
    const DEFAULT: Self = Self { frames: ROUND_FRAMES, save_each_frame: false, headless_outputs: None };
}

/// Looks at one instance after the other.
struct CoreProbe<'a> {
    factory: &'a Arc<InstanceFactory>,
    pads: &'a [Pad],
    buffer: Vec<u8>,
    state_sizes: Vec<usize>,
    /// Whether the core shows memory that changes.
    has_live_memory: bool,
}

/// Finds out everything. Takes some 400 frames.
pub(super) fn probe(plan: &Arc<InstanceFactory>, pads: &[Pad]) -> Result<ProbeFindings, CoreOpenError> {
    CoreProbe { factory: plan, pads, buffer: Vec::new(), state_sizes: Vec::new(), has_live_memory: false }.run()
}

impl CoreProbe<'_> {
    fn run(mut self) -> Result<ProbeFindings, CoreOpenError> {
        let mut busy = self.run_saving_every_frame()?;
        let lives = busy.observations.iter().any(|one| one.memory != busy.observations[0].memory);
        self.has_live_memory = lives;
        let other = self.run_saving_every_frame()?;
        let steady =
            other.observations.iter().zip(&busy.observations).all(|(one, other)| one.is_equivalent(other, lives));
        drop(other);
        let small = self.state_sizes.iter().all(|size| *size <= MAX_ALWAYS_SAVED_LEN);
        let settles = busy.middle_state.is_some() && (small || self.is_changed_by_saving(&mut busy.instance));
        busy.instance.set_saves_every_frame(settles);
        let quirks = busy.instance.frontend().quirks;
        let saved = busy.middle_state.is_some() && quirks & (quirk::INCOMPLETE | quirk::SINGLE_SESSION) == 0;
        let mut memory_size = 0;
        busy.instance.core().visit_memory(&mut |_, is_ram, bytes| memory_size += if is_ram { bytes.len() } else { 0 });
        let again = self.test_replay(&mut busy.instance, saved);
        let SavedRun { mut instance, observations: seen, initial_state: unstepped, middle_state: middle } = busy;
        let mut anew =
            |state: &Vec<u8>| self.restarts_from_initial_state(&mut instance, state, &seen, again.state_equal);
        let begins_anew = saved && unstepped.as_ref().is_some_and(&mut anew);
        drop(instance);

        let elsewhere = match middle.filter(|_| saved) {
            Some(middle) => self.test_cross_instance_load(&middle, unstepped.as_deref(), settles, &seen)?,
            None => CrossInstanceLoad::default(),
        };
        let can_save = elsewhere.can_load;
        let state_exact = can_save && again.state_equal && elsewhere.exactness.state_equal;
        let memory_exact = lives && again.memory_equal && (elsewhere.exactness.memory_equal || !can_save);
        let hash_of = match (lives, can_save) {
            (true, _) if memory_exact || !state_exact => HashSource::Memory,
            (_, true) => HashSource::State,
            (true, false) => HashSource::Memory,
            (false, false) => HashSource::Picture,
        };
        let same_size =
            self.state_sizes.windows(2).all(|pair| pair[0] == pair[1]) && quirks & quirk::VARIABLE_SIZE == 0;
        let mut findings = ProbeFindings {
            hash_of,
            first_frames: 0,
            steady,
            can_save,
            state_exact,
            memory_exact: can_save && memory_exact,
            settles,
            saves_unstepped: elsewhere.can_load_initial_state,
            begins_anew: begins_anew && elsewhere.can_load_initial_state,
            warms_up: elsewhere.needs_warm_up,
            unseen: again.headless_outputs,
            state_size: self.state_sizes.first().copied().filter(|_| same_size),
            memory_size,
        };
        findings.first_frames = first_frames_hash(&findings, &seen);
        Ok(findings)
    }

    /// Plays the first frames, and saves after each.
    fn run_saving_every_frame(&mut self) -> Result<SavedRun, CoreOpenError> {
        let mut instance = self.open_instance()?;
        let unstepped = self.save_state(&mut instance);
        let (mut middle, mut seen) = (None, Vec::with_capacity(PROBE_FRAMES));
        for frame in 1..=PROBE_FRAMES {
            let now = self.step_without_input(&mut instance, true);
            if frame == MIDDLE_FRAME {
                middle = now.state.map(|_| self.buffer[HEADER_LEN..].to_vec());
            }
            seen.push(now);
        }
        Ok(SavedRun { instance, observations: seen, initial_state: unstepped, middle_state: middle })
    }

    /// Whether it makes a difference if some frames from a state on are saved or not. Both are played by one instance, because states of
    /// different ones may differ without any meaning: in addresses, in bytes that were never set.
    fn is_changed_by_saving(&mut self, instance: &mut CoreInstance) -> bool {
        let Some(state) = self.save_state(instance) else { return false };
        let before = instance.frame_count();
        let mut play = |save: bool| {
            let loaded = instance.load(&state, before);
            loaded.then(|| {
                self.run_round(
                    instance,
                    0,
                    RoundOptions {
                        frames: REPLAY_ROUNDS * ROUND_FRAMES,
                        save_each_frame: save,
                        headless_outputs: None,
                    },
                )
            })
        };
        let inside = |seen: Option<FrameObservation>| seen.map(|seen| (seen.state, seen.memory, seen.picture));
        inside(play(false)) != inside(play(true))
    }

    /// Whether an instance that was played begins anew with its state from before the first frame, as a new one does; bit for bit, where
    /// its states are `exact`.
    fn restarts_from_initial_state(
        &mut self,
        instance: &mut CoreInstance,
        unstepped: &[u8],
        seen: &[FrameObservation],
        exact: bool,
    ) -> bool {
        instance.load(unstepped, 0)
            && seen[..MIDDLE_FRAME].iter().all(|wanted| {
                let found = self.step_without_input(instance, true);
                found.is_equivalent(wanted, self.has_live_memory) && (found.state == wanted.state || !exact)
            })
    }

    /// Loads states into new instances, as one who comes late does.
    fn test_cross_instance_load(
        &mut self,
        middle: &[u8],
        unstepped: Option<&[u8]>,
        settles: bool,
        seen: &[FrameObservation],
    ) -> Result<CrossInstanceLoad, CoreOpenError> {
        let cold = self.load_into_new_instance(middle, MIDDLE_FRAME, settles, false, seen)?;
        let mut best = cold;
        if !cold.is_some_and(|exact| exact.is_equivalent) {
            best = best.max(self.load_into_new_instance(middle, MIDDLE_FRAME, settles, true, seen)?);
        }
        let warms_up = best > cold;
        let Some(exact) = best else { return Ok(CrossInstanceLoad::default()) };
        let loads_unstepped = match unstepped {
            Some(state) => {
                self.load_into_new_instance(state, 0, settles, warms_up, seen)?.is_some_and(|exact| exact.is_equivalent)
            }
            None => false,
        };
        Ok(CrossInstanceLoad {
            can_load: true,
            exactness: exact,
            needs_warm_up: warms_up,
            can_load_initial_state: loads_unstepped,
        })
    }

    /// Loads a state into a new instance, which has run before if it is to be `warm`, and plays on without input: `None` if it cannot
    /// be loaded, or else what was then the same as `seen`.
    fn load_into_new_instance(
        &mut self,
        state: &[u8],
        frames: usize,
        settles: bool,
        warm: bool,
        seen: &[FrameObservation],
    ) -> Result<Option<LoadExactness>, CoreOpenError> {
        let mut instance = self.open_instance()?;
        instance.set_saves_every_frame(settles);
        if warm {
            instance.step(std::iter::empty(), false, produce::ALL);
        }
        if !instance.load(state, frames as u64) {
            return Ok(None);
        }
        let mut exact = LoadExactness { is_equivalent: true, memory_equal: true, state_equal: true };
        for wanted in &seen[frames..] {
            let found = self.step_without_input(&mut instance, true);
            exact.is_equivalent &= found.is_equivalent(wanted, self.has_live_memory);
            exact.memory_equal &= found.memory == wanted.memory;
            exact.state_equal &= found.state == wanted.state;
        }
        Ok(Some(exact))
    }

    fn open_instance(&self) -> Result<CoreInstance, CoreOpenError> {
        let mut instance = self.factory.create_instance()?;
        instance.frontend().hash_pictures = true;
        Ok(instance)
    }

    /// A frame without input.
    fn step_without_input(&mut self, instance: &mut CoreInstance, save: bool) -> FrameObservation {
        instance.step(std::iter::empty(), true, produce::ALL);
        self.observe(instance, save)
    }

    fn observe(&mut self, instance: &mut CoreInstance, save: bool) -> FrameObservation {
        let state = if save { self.state_hash(instance) } else { None };
        let memory = instance.memory_hash();
        let host = instance.frontend();
        let mut sound = Xxh3::new();
        host.sound.iter().flatten().for_each(|sample| sound.update(&sample.to_le_bytes()));
        FrameObservation { state, memory, picture: host.video.digest, sound: sound.digest() }
    }

    fn state_hash(&mut self, instance: &mut CoreInstance) -> Option<u64> {
        instance.save(&mut self.buffer).ok()?;
        self.state_sizes.push(self.buffer.len() - HEADER_LEN);
        Some(xxh3_64(&self.buffer[HEADER_LEN..]))
    }

    fn save_state(&mut self, instance: &mut CoreInstance) -> Option<Vec<u8>> {
        self.state_hash(instance).map(|_| self.buffer[HEADER_LEN..].to_vec())
    }

    /// Plays some frames with input, and again from a state, and yet again as if nobody saw them.
    fn test_replay(&mut self, instance: &mut CoreInstance, saved: bool) -> ReplayOutcome {
        let mut again = ReplayOutcome { state_equal: true, memory_equal: true, headless_outputs: produce::ALL };
        // What the core may leave out, the most first. What cannot be tried, because there is no way back, is not left out.
        let asks = instance.frontend().has_queried_outputs;
        let mut candidates = if asks && saved { vec![0, produce::SOUND] } else { Vec::new() };
        for round in 0..if saved { REPLAY_ROUNDS } else { 0 } {
            let before = instance.frame_count();
            let state = self.save_state(instance);
            let once = self.run_round(instance, round, RoundOptions::DEFAULT);
            let Some(state) = state.filter(|state| instance.load(state, before)) else {
                candidates.clear();
                break;
            };
            let twice = self.run_round(instance, round, RoundOptions::DEFAULT);
            again.state_equal &= once.state == twice.state;
            again.memory_equal &= once.memory == twice.memory;
            candidates.retain(|unseen| {
                let unseen = instance.load(&state, before).then(|| {
                    self.run_round(
                        instance,
                        round,
                        RoundOptions { headless_outputs: Some(*unseen), ..RoundOptions::DEFAULT },
                    )
                });
                unseen.is_some_and(|unseen| {
                    unseen.is_equivalent(&twice, self.has_live_memory) && unseen.sound == twice.sound
                })
            });
        }
        again.headless_outputs = candidates.first().copied().unwrap_or(produce::ALL);
        again
    }

    /// Plays some frames with input.
    fn run_round(&mut self, instance: &mut CoreInstance, round: usize, how: RoundOptions) -> FrameObservation {
        for frame in 0..how.frames {
            let last = frame + 1 == how.frames;
            let inputs = self.pads.iter().enumerate().map(|(player, pad)| probe_input(pad, player, round, frame));
            instance.step(inputs, last || how.headless_outputs.is_none(), how.headless_outputs.unwrap_or(produce::ALL));
            if how.save_each_frame && !last {
                self.state_hash(instance);
            }
        }
        self.observe(instance, true)
    }
}

struct ReplayOutcome {
    state_equal: bool,
    memory_equal: bool,
    headless_outputs: u32,
}

/// Some input, always the same.
fn probe_input(pad: &Pad, player: usize, round: usize, frame: usize) -> InputWord {
    let place = [player, round, frame / 3].map(|it| it as u8);
    let noise = [0u64, 1].map(|half| InputWord::from(xxhash_rust::xxh3::xxh3_64_with_seed(&place, half)));
    (noise[0] << 64 | noise[1]) & pad.mask
}

/// All that can be compared of the first frames, and everything that sites must decide alike.
fn first_frames_hash(findings: &ProbeFindings, seen: &[FrameObservation]) -> u64 {
    let mut hash = Xxh3::new();
    let decided = [findings.can_save, findings.settles, findings.is_exact()].map(u8::from);
    hash.update(&[findings.hash_of as u8]);
    hash.update(&decided);
    for seen in seen {
        let part = match findings.hash_of {
            HashSource::State => seen.state,
            HashSource::Memory => seen.memory,
            HashSource::Picture => None,
        };
        hash.update(&part.unwrap_or_default().to_le_bytes());
        hash.update(&seen.picture.to_le_bytes());
    }
    hash.digest()
}
