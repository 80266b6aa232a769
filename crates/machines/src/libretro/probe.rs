//! Probes a core with a game before the session begins.
//!
//! The results decide how the machine is hashed and saved, and all sites must decide alike. So the probe depends only
//! on the core with its options and on the game: fixed frames, fixed inputs, no clock. A core that behaves differently
//! at two sites in its first frames has different [hashes of them](ProbeFindings::first_frames) there, and the sites
//! detect it before the game begins.

use std::sync::Arc;

use coplay::input::InputWord;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::envelope::HEADER_LEN;
use super::error::CoreOpenError;
use super::frontend_state::{produce, quirk};
use super::instance::CoreInstance;
use super::instance_factory::InstanceFactory;
use super::probe_findings::{HashSource, ProbeFindings};
use crate::pad::PadLayout;

/// Number of frames that a [`SavedRun`] steps without input.
const PROBE_FRAMES: usize = 60;
/// Number of frames after which a [`SavedRun`] saves its middle state.
const MIDDLE_FRAME: usize = 30;

/// State length in bytes up to which every site saves a core after every frame, even if no effect of saving was found.
/// Saving can change the behaviour of a core: bsnes, for example, first runs to a point where all its processors meet.
/// Sites save at different times, so they would diverge. The effect is not always visible, and saving a small state
/// every frame is cheaper than a desync.
const MAX_ALWAYS_SAVED_LEN: usize = 512 << 10;

/// Number of rounds of frames with input that the probe runs and then replays from a saved state.
const REPLAY_ROUNDS: usize = 4;
/// Number of frames per round.
const ROUND_FRAMES: usize = 12;

/// Hashes of a core's saved state, RAM, picture and sound after a frame; `None` if the core could not save or exposes
/// no RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FrameObservation {
    state: Option<u64>,
    memory: Option<u64>,
    picture: u64,
    sound: u64,
}

impl FrameObservation {
    /// Returns whether two observations are of the same game state: with equal picture and RAM, or, if the core exposes
    /// no RAM that changes, with equal picture and saved state.
    fn is_equivalent(&self, other: &Self, has_live_memory: bool) -> bool {
        let same_inside = if has_live_memory { self.memory == other.memory } else { self.state == other.state };
        same_inside && self.picture == other.picture
    }
}

/// A run of the first [`PROBE_FRAMES`] frames with a save after each.
struct SavedRun {
    instance: CoreInstance,
    observations: Vec<FrameObservation>,
    /// State before the first frame; `None` if saving failed.
    initial_state: Option<Vec<u8>>,
    /// State after [`MIDDLE_FRAME`]; `None` if saving failed.
    middle_state: Option<Vec<u8>>,
}

/// Options of a round of frames with fixed pseudo-random inputs.
#[derive(Clone, Copy)]
struct RoundOptions {
    frames: usize,
    /// Whether the core saves after every frame of the round, and not only after the last.
    save_each_frame: bool,
    /// Outputs that the core produces in all frames but the last, which alone is rendered; `None` to render every
    /// frame.
    headless_outputs: Option<u32>,
}

/// Which data equalled those of the reference run in all frames after a state was loaded. Two results are ordered by
/// equivalence first, then by RAM, then by the saved state.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LoadExactness {
    is_equivalent: bool,
    memory_equal: bool,
    state_equal: bool,
}

/// Results of loading the reference run's states into new instances.
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

/// A running probe of a core with a game.
struct CoreProbe<'a> {
    factory: &'a Arc<InstanceFactory>,
    pads: &'a [PadLayout],
    buffer: Vec<u8>,
    state_sizes: Vec<usize>,
    /// Whether the core exposes RAM that changed in the reference run.
    has_live_memory: bool,
}

/// Runs the whole probe: 120 frames if no state can be saved, at most 560 otherwise.
pub(super) fn probe(factory: &Arc<InstanceFactory>, pads: &[PadLayout]) -> Result<ProbeFindings, CoreOpenError> {
    CoreProbe { factory, pads, buffer: Vec::new(), state_sizes: Vec::new(), has_live_memory: false }.run()
}

impl CoreProbe<'_> {
    fn run(mut self) -> Result<ProbeFindings, CoreOpenError> {
        let mut reference = self.run_saving_every_frame()?;
        let has_live_memory = reference.observations.iter().any(|one| one.memory != reference.observations[0].memory);
        self.has_live_memory = has_live_memory;
        let other = self.run_saving_every_frame()?;
        let is_deterministic = other
            .observations
            .iter()
            .zip(&reference.observations)
            .all(|(one, other)| one.is_equivalent(other, has_live_memory));
        drop(other);
        let small = self.state_sizes.iter().all(|size| *size <= MAX_ALWAYS_SAVED_LEN);
        let saves_every_frame =
            reference.middle_state.is_some() && (small || self.is_changed_by_saving(&mut reference.instance));
        reference.instance.set_saves_every_frame(saves_every_frame);
        let quirks = reference.instance.frontend().quirks;
        let saved = reference.middle_state.is_some() && quirks & (quirk::INCOMPLETE | quirk::SINGLE_SESSION) == 0;
        let mut memory_size = 0;
        reference
            .instance
            .core()
            .visit_memory(&mut |_, is_ram, bytes| memory_size += if is_ram { bytes.len() } else { 0 });
        let replay = self.test_replay(&mut reference.instance, saved);
        let SavedRun { mut instance, observations, initial_state, middle_state } = reference;
        let mut restarts =
            |state: &Vec<u8>| self.restarts_from_initial_state(&mut instance, state, &observations, replay.state_equal);
        let restarts_from_initial_state = saved && initial_state.as_ref().is_some_and(&mut restarts);
        drop(instance);

        let cross_load = match middle_state.filter(|_| saved) {
            Some(middle_state) => self.test_cross_instance_load(
                &middle_state,
                initial_state.as_deref(),
                saves_every_frame,
                &observations,
            )?,
            None => CrossInstanceLoad::default(),
        };
        let can_save = cross_load.can_load;
        let state_exact = can_save && replay.state_equal && cross_load.exactness.state_equal;
        let memory_exact = has_live_memory && replay.memory_equal && (cross_load.exactness.memory_equal || !can_save);
        let hash_of = match (has_live_memory, can_save) {
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
            is_deterministic,
            can_save,
            state_exact,
            memory_exact: can_save && memory_exact,
            saves_every_frame,
            saves_initial_state: cross_load.can_load_initial_state,
            restarts_from_initial_state: restarts_from_initial_state && cross_load.can_load_initial_state,
            needs_warm_up: cross_load.needs_warm_up,
            headless_outputs: replay.headless_outputs,
            state_size: self.state_sizes.first().copied().filter(|_| same_size),
            memory_size,
        };
        findings.first_frames = first_frames_hash(&findings, &observations);
        Ok(findings)
    }

    /// Runs the first [`PROBE_FRAMES`] frames of a new instance without input and saves after each.
    fn run_saving_every_frame(&mut self) -> Result<SavedRun, CoreOpenError> {
        let mut instance = self.open_instance()?;
        let initial_state = self.save_state(&mut instance);
        let (mut middle_state, mut observations) = (None, Vec::with_capacity(PROBE_FRAMES));
        for frame in 1..=PROBE_FRAMES {
            let now = self.step_without_input(&mut instance, true);
            if frame == MIDDLE_FRAME {
                middle_state = now.state.map(|_| self.buffer[HEADER_LEN..].to_vec());
            }
            observations.push(now);
        }
        Ok(SavedRun { instance, observations, initial_state, middle_state })
    }

    /// Returns whether saving after every frame changes the state, RAM or picture at the end of a run. One instance
    /// plays both runs, because states of different instances may differ in addresses or uninitialized bytes, which do
    /// not affect the game.
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
        let comparable = |observation: Option<FrameObservation>| {
            observation.map(|observation| (observation.state, observation.memory, observation.picture))
        };
        comparable(play(false)) != comparable(play(true))
    }

    /// Returns whether an instance that has stepped frames repeats the first [`MIDDLE_FRAME`] frames of `observations`
    /// after it loads `initial_state`, the state from before the first frame. If `exact`, the saved states must be
    /// equal, too.
    fn restarts_from_initial_state(
        &mut self,
        instance: &mut CoreInstance,
        initial_state: &[u8],
        observations: &[FrameObservation],
        exact: bool,
    ) -> bool {
        instance.load(initial_state, 0)
            && observations[..MIDDLE_FRAME].iter().all(|expected| {
                let found = self.step_without_input(instance, true);
                found.is_equivalent(expected, self.has_live_memory) && (found.state == expected.state || !exact)
            })
    }

    /// Loads the reference run's states into new instances, as a late joiner does.
    fn test_cross_instance_load(
        &mut self,
        middle_state: &[u8],
        initial_state: Option<&[u8]>,
        saves_every_frame: bool,
        observations: &[FrameObservation],
    ) -> Result<CrossInstanceLoad, CoreOpenError> {
        let cold_result =
            self.load_into_new_instance(middle_state, MIDDLE_FRAME, saves_every_frame, false, observations)?;
        let mut best = cold_result;
        if !cold_result.is_some_and(|exact| exact.is_equivalent) {
            best = best.max(self.load_into_new_instance(
                middle_state,
                MIDDLE_FRAME,
                saves_every_frame,
                true,
                observations,
            )?);
        }
        let needs_warm_up = best > cold_result;
        let Some(exact) = best else { return Ok(CrossInstanceLoad::default()) };
        let can_load_initial_state = match initial_state {
            Some(state) => self
                .load_into_new_instance(state, 0, saves_every_frame, needs_warm_up, observations)?
                .is_some_and(|exact| exact.is_equivalent),
            None => false,
        };
        Ok(CrossInstanceLoad { can_load: true, exactness: exact, needs_warm_up, can_load_initial_state })
    }

    /// Loads a state into a new instance, which has already run a frame if `warm`, and continues without input.
    /// `frames` is the number of frames before the state. Returns `None` if the state does not load, otherwise which
    /// data were equal to `observations`.
    fn load_into_new_instance(
        &mut self,
        state: &[u8],
        frames: usize,
        saves_every_frame: bool,
        warm: bool,
        observations: &[FrameObservation],
    ) -> Result<Option<LoadExactness>, CoreOpenError> {
        let mut instance = self.open_instance()?;
        instance.set_saves_every_frame(saves_every_frame);
        if warm {
            instance.step(std::iter::empty(), false, produce::ALL);
        }
        if !instance.load(state, frames as u64) {
            return Ok(None);
        }
        let mut exact = LoadExactness { is_equivalent: true, memory_equal: true, state_equal: true };
        for expected in &observations[frames..] {
            let found = self.step_without_input(&mut instance, true);
            exact.is_equivalent &= found.is_equivalent(expected, self.has_live_memory);
            exact.memory_equal &= found.memory == expected.memory;
            exact.state_equal &= found.state == expected.state;
        }
        Ok(Some(exact))
    }

    fn open_instance(&self) -> Result<CoreInstance, CoreOpenError> {
        let mut instance = CoreInstance::open(self.factory)?;
        instance.frontend().hash_pictures = true;
        Ok(instance)
    }

    /// Steps a rendered frame without input and observes the core.
    fn step_without_input(&mut self, instance: &mut CoreInstance, save: bool) -> FrameObservation {
        instance.step(std::iter::empty(), true, produce::ALL);
        self.observe(instance, save)
    }

    fn observe(&mut self, instance: &mut CoreInstance, save: bool) -> FrameObservation {
        let state = if save { self.state_hash(instance) } else { None };
        let memory = instance.memory_hash();
        let frontend = instance.frontend();
        let mut sound = Xxh3::new();
        frontend.sound.iter().flatten().for_each(|sample| sound.update(&sample.to_le_bytes()));
        FrameObservation { state, memory, picture: frontend.video.digest, sound: sound.digest() }
    }

    fn state_hash(&mut self, instance: &mut CoreInstance) -> Option<u64> {
        instance.save(&mut self.buffer).ok()?;
        self.state_sizes.push(self.buffer.len() - HEADER_LEN);
        Some(xxh3_64(&self.buffer[HEADER_LEN..]))
    }

    fn save_state(&mut self, instance: &mut CoreInstance) -> Option<Vec<u8>> {
        self.state_hash(instance).map(|_| self.buffer[HEADER_LEN..].to_vec())
    }

    /// Runs rounds of frames with input and replays each from a saved state. Determines which outputs the core can
    /// leave out in frames that are not rendered.
    fn test_replay(&mut self, instance: &mut CoreInstance, saved: bool) -> ReplayOutcome {
        let mut replay = ReplayOutcome { state_equal: true, memory_equal: true, headless_outputs: produce::ALL };
        // Sets of outputs to try, the smallest first. Without a working load nothing can be tried, so nothing is left
        // out.
        let queries_outputs = instance.frontend().has_queried_outputs;
        let mut candidates = if queries_outputs && saved { vec![0, produce::SOUND] } else { Vec::new() };
        for round in 0..if saved { REPLAY_ROUNDS } else { 0 } {
            let before = instance.frame_count();
            let state = self.save_state(instance);
            let first = self.run_round(instance, round, RoundOptions::DEFAULT);
            let Some(state) = state.filter(|state| instance.load(state, before)) else {
                candidates.clear();
                break;
            };
            let second = self.run_round(instance, round, RoundOptions::DEFAULT);
            replay.state_equal &= first.state == second.state;
            replay.memory_equal &= first.memory == second.memory;
            candidates.retain(|headless_outputs| {
                let headless_outputs = instance.load(&state, before).then(|| {
                    self.run_round(
                        instance,
                        round,
                        RoundOptions { headless_outputs: Some(*headless_outputs), ..RoundOptions::DEFAULT },
                    )
                });
                headless_outputs.is_some_and(|headless_outputs| {
                    headless_outputs.is_equivalent(&second, self.has_live_memory)
                        && headless_outputs.sound == second.sound
                })
            });
        }
        replay.headless_outputs = candidates.first().copied().unwrap_or(produce::ALL);
        replay
    }

    /// Runs the frames of a round with input and observes the core after the last.
    fn run_round(&mut self, instance: &mut CoreInstance, round: usize, options: RoundOptions) -> FrameObservation {
        for frame in 0..options.frames {
            let last = frame + 1 == options.frames;
            let inputs = self.pads.iter().enumerate().map(|(player, pad)| probe_input(pad, player, round, frame));
            instance.step(
                inputs,
                last || options.headless_outputs.is_none(),
                options.headless_outputs.unwrap_or(produce::ALL),
            );
            if options.save_each_frame && !last {
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

/// Returns a fixed pseudo-random input, which changes every three frames.
fn probe_input(pad: &PadLayout, player: usize, round: usize, frame: usize) -> InputWord {
    let position = [player, round, frame / 3].map(|it| it as u8);
    let noise = [0u64, 1].map(|half| InputWord::from(xxhash_rust::xxh3::xxh3_64_with_seed(&position, half)));
    (noise[0] << 64 | noise[1]) & pad.mask
}

/// Hashes the pictures and the hash source of the first frames, and the findings that all sites must share.
fn first_frames_hash(findings: &ProbeFindings, observations: &[FrameObservation]) -> u64 {
    let mut hash = Xxh3::new();
    let decisions = [findings.can_save, findings.saves_every_frame, findings.is_exact()].map(u8::from);
    hash.update(&[findings.hash_of as u8]);
    hash.update(&decisions);
    for observation in observations {
        let part = match findings.hash_of {
            HashSource::State => observation.state,
            HashSource::Memory => observation.memory,
            HashSource::Picture => None,
        };
        hash.update(&part.unwrap_or_default().to_le_bytes());
        hash.update(&observation.picture.to_le_bytes());
    }
    hash.digest()
}
