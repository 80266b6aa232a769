//! Finding out, before a game begins, how a core and this game behave.
//!
//! What is found decides how the machine is hashed and saved, and all sites must decide alike. So everything here depends on core and game
//! only: fixed frames, fixed inputs, no clock. A core that behaves differently at two sites has different
//! [first frames](Findings::first_frames) there, and is found out before the game begins.

use std::sync::Arc;

use coplay::input::InputWord;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::OpenError;
use super::findings::{Findings, HashOf};
use super::host::{produce, quirk};
use super::instance::Instance;
use super::plan::Plan;
use super::state::HEADER;
use crate::pad::Pad;

/// Frames without input that are looked at, and the one before which a state is kept.
const FRAMES: usize = 60;
const MIDDLE: usize = 30;

/// Cores with states of up to so many bytes are saved after every frame, at every site. Saving can change how a core goes on: bsnes, for
/// one, first runs to a point where all its processors meet. Sites save at different times, so that would drive them apart. It does not
/// always show, and where a state is small it costs less to save than to be wrong.
const ALWAYS_SAVED: usize = 512 << 10;

/// How often, and how many frames each, are played again from a state, with input.
const ROUNDS: usize = 4;
const ROUND: usize = 12;

/// What is seen of a core after a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    state: Option<u64>,
    memory: Option<u64>,
    picture: u64,
    sound: u64,
}

impl Seen {
    /// Whether two games are in the same place: by picture and by memory, or by the state where the memory does not live.
    fn is_like(&self, other: &Self, lives: bool) -> bool {
        let same_inside = if lives { self.memory == other.memory } else { self.state == other.state };
        same_inside && self.picture == other.picture
    }
}

/// An instance that was saved after every frame.
struct Busy {
    instance: Instance,
    seen: Vec<Seen>,
    /// Its state before the first frame, and in the middle.
    unstepped: Option<Vec<u8>>,
    middle: Option<Vec<u8>>,
}

/// How some frames are played.
#[derive(Clone, Copy)]
struct Round {
    frames: usize,
    /// Each is saved, and not only the last.
    save: bool,
    /// Only the last is seen, and this is produced in the others.
    unseen: Option<u32>,
}

/// What is the same after a state was loaded. The more, the greater.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Exact {
    like: bool,
    memory: bool,
    state: bool,
}

/// How states load in other instances.
#[derive(Default)]
struct Elsewhere {
    loads: bool,
    exact: Exact,
    warms_up: bool,
    loads_unstepped: bool,
}

impl Round {
    const USUAL: Self = Self { frames: ROUND, save: false, unseen: None };
}

/// Looks at one instance after the other.
struct Probe<'a> {
    plan: &'a Arc<Plan>,
    pads: &'a [Pad],
    buffer: Vec<u8>,
    sizes: Vec<usize>,
    /// Whether the core shows memory that changes.
    lives: bool,
}

/// Finds out everything. Takes some 400 frames.
pub(super) fn probe(plan: &Arc<Plan>, pads: &[Pad]) -> Result<Findings, OpenError> {
    Probe { plan, pads, buffer: Vec::new(), sizes: Vec::new(), lives: false }.run()
}

impl Probe<'_> {
    fn run(mut self) -> Result<Findings, OpenError> {
        let mut busy = self.busy()?;
        let lives = busy.seen.iter().any(|one| one.memory != busy.seen[0].memory);
        self.lives = lives;
        let other = self.busy()?;
        let steady = other.seen.iter().zip(&busy.seen).all(|(one, other)| one.is_like(other, lives));
        drop(other);
        let small = self.sizes.iter().all(|size| *size <= ALWAYS_SAVED);
        let settles = busy.middle.is_some() && (small || self.is_disturbed(&mut busy.instance));
        busy.instance.go_on_settling(settles);
        let quirks = busy.instance.host().quirks;
        let saved = busy.middle.is_some() && quirks & (quirk::INCOMPLETE | quirk::SINGLE_SESSION) == 0;
        let mut memory_size = 0;
        busy.instance.core().memory(&mut |_, is_ram, bytes| memory_size += if is_ram { bytes.len() } else { 0 });
        let again = self.play_again(&mut busy.instance, saved);
        let Busy { mut instance, seen, unstepped, middle } = busy;
        let mut anew = |state: &Vec<u8>| self.begins_anew(&mut instance, state, &seen, again.state_exact);
        let begins_anew = saved && unstepped.as_ref().is_some_and(&mut anew);
        drop(instance);

        let elsewhere = match middle.filter(|_| saved) {
            Some(middle) => self.load_elsewhere(&middle, unstepped.as_deref(), settles, &seen)?,
            None => Elsewhere::default(),
        };
        let can_save = elsewhere.loads;
        let state_exact = can_save && again.state_exact && elsewhere.exact.state;
        let memory_exact = lives && again.memory_exact && (elsewhere.exact.memory || !can_save);
        let hash_of = match (lives, can_save) {
            (true, _) if memory_exact || !state_exact => HashOf::Memory,
            (_, true) => HashOf::State,
            (true, false) => HashOf::Memory,
            (false, false) => HashOf::Picture,
        };
        let same_size = self.sizes.windows(2).all(|pair| pair[0] == pair[1]) && quirks & quirk::VARIABLE_SIZE == 0;
        let mut findings = Findings {
            hash_of,
            first_frames: 0,
            steady,
            can_save,
            state_exact,
            memory_exact: can_save && memory_exact,
            settles,
            saves_unstepped: elsewhere.loads_unstepped,
            begins_anew: begins_anew && elsewhere.loads_unstepped,
            warms_up: elsewhere.warms_up,
            unseen: again.unseen,
            state_size: self.sizes.first().copied().filter(|_| same_size),
            memory_size,
        };
        findings.first_frames = first_frames(&findings, &seen);
        Ok(findings)
    }

    /// Plays the first frames, and saves after each.
    fn busy(&mut self) -> Result<Busy, OpenError> {
        let mut instance = self.open()?;
        let unstepped = self.save(&mut instance);
        let (mut middle, mut seen) = (None, Vec::with_capacity(FRAMES));
        for frame in 1..=FRAMES {
            let now = self.frame(&mut instance, true);
            if frame == MIDDLE {
                middle = now.state.map(|_| self.buffer[HEADER..].to_vec());
            }
            seen.push(now);
        }
        Ok(Busy { instance, seen, unstepped, middle })
    }

    /// Whether it makes a difference if some frames from a state on are saved or not. Both are played by one instance, because states of
    /// different ones may differ without any meaning: in addresses, in bytes that were never set.
    fn is_disturbed(&mut self, instance: &mut Instance) -> bool {
        let Some(state) = self.save(instance) else { return false };
        let before = instance.frames();
        let mut play = |save: bool| {
            let loaded = instance.load(&state, before);
            loaded.then(|| self.round(instance, 0, Round { frames: ROUNDS * ROUND, save, unseen: None }))
        };
        let inside = |seen: Option<Seen>| seen.map(|seen| (seen.state, seen.memory, seen.picture));
        inside(play(false)) != inside(play(true))
    }

    /// Whether an instance that was played begins anew with its state from before the first frame, as a new one does; bit for bit, where
    /// its states are `exact`.
    fn begins_anew(&mut self, instance: &mut Instance, unstepped: &[u8], seen: &[Seen], exact: bool) -> bool {
        instance.load(unstepped, 0)
            && seen[..MIDDLE].iter().all(|wanted| {
                let found = self.frame(instance, true);
                found.is_like(wanted, self.lives) && (found.state == wanted.state || !exact)
            })
    }

    /// Loads states into new instances, as one who comes late does.
    fn load_elsewhere(
        &mut self,
        middle: &[u8],
        unstepped: Option<&[u8]>,
        settles: bool,
        seen: &[Seen],
    ) -> Result<Elsewhere, OpenError> {
        let cold = self.load_into_new(middle, MIDDLE, settles, false, seen)?;
        let mut best = cold;
        if !cold.is_some_and(|exact| exact.like) {
            best = best.max(self.load_into_new(middle, MIDDLE, settles, true, seen)?);
        }
        let warms_up = best > cold;
        let Some(exact) = best else { return Ok(Elsewhere::default()) };
        let loads_unstepped = match unstepped {
            Some(state) => self.load_into_new(state, 0, settles, warms_up, seen)?.is_some_and(|exact| exact.like),
            None => false,
        };
        Ok(Elsewhere { loads: true, exact, warms_up, loads_unstepped })
    }

    /// Loads a state into a new instance, which has run before if it is to be `warm`, and plays on without input: `None` if it cannot
    /// be loaded, or else what was then the same as `seen`.
    fn load_into_new(
        &mut self,
        state: &[u8],
        frames: usize,
        settles: bool,
        warm: bool,
        seen: &[Seen],
    ) -> Result<Option<Exact>, OpenError> {
        let mut instance = self.open()?;
        instance.go_on_settling(settles);
        if warm {
            instance.step(std::iter::empty(), false, produce::ALL);
        }
        if !instance.load(state, frames as u64) {
            return Ok(None);
        }
        let mut exact = Exact { like: true, memory: true, state: true };
        for wanted in &seen[frames..] {
            let found = self.frame(&mut instance, true);
            exact.like &= found.is_like(wanted, self.lives);
            exact.memory &= found.memory == wanted.memory;
            exact.state &= found.state == wanted.state;
        }
        Ok(Some(exact))
    }

    fn open(&self) -> Result<Instance, OpenError> {
        let mut instance = self.plan.open()?;
        instance.host().hash_pictures = true;
        Ok(instance)
    }

    /// A frame without input.
    fn frame(&mut self, instance: &mut Instance, save: bool) -> Seen {
        instance.step(std::iter::empty(), true, produce::ALL);
        self.look(instance, save)
    }

    fn look(&mut self, instance: &mut Instance, save: bool) -> Seen {
        let state = if save { self.state(instance) } else { None };
        let memory = instance.memory_hash();
        let host = instance.host();
        let mut sound = Xxh3::new();
        host.sound.iter().flatten().for_each(|sample| sound.update(&sample.to_le_bytes()));
        Seen { state, memory, picture: host.video.digest, sound: sound.digest() }
    }

    fn state(&mut self, instance: &mut Instance) -> Option<u64> {
        instance.save(&mut self.buffer).ok()?;
        self.sizes.push(self.buffer.len() - HEADER);
        Some(xxh3_64(&self.buffer[HEADER..]))
    }

    fn save(&mut self, instance: &mut Instance) -> Option<Vec<u8>> {
        self.state(instance).map(|_| self.buffer[HEADER..].to_vec())
    }

    /// Plays some frames with input, and again from a state, and yet again as if nobody saw them.
    fn play_again(&mut self, instance: &mut Instance, saved: bool) -> Again {
        let mut again = Again { state_exact: true, memory_exact: true, unseen: produce::ALL };
        // What the core may leave out, the most first. What cannot be tried, because there is no way back, is not left out.
        let asks = instance.host().asked_what_to_produce;
        let mut candidates = if asks && saved { vec![0, produce::SOUND] } else { Vec::new() };
        for round in 0..if saved { ROUNDS } else { 0 } {
            let before = instance.frames();
            let state = self.save(instance);
            let once = self.round(instance, round, Round::USUAL);
            let Some(state) = state.filter(|state| instance.load(state, before)) else {
                candidates.clear();
                break;
            };
            let twice = self.round(instance, round, Round::USUAL);
            again.state_exact &= once.state == twice.state;
            again.memory_exact &= once.memory == twice.memory;
            candidates.retain(|unseen| {
                let unseen = instance
                    .load(&state, before)
                    .then(|| self.round(instance, round, Round { unseen: Some(*unseen), ..Round::USUAL }));
                unseen.is_some_and(|unseen| unseen.is_like(&twice, self.lives) && unseen.sound == twice.sound)
            });
        }
        again.unseen = candidates.first().copied().unwrap_or(produce::ALL);
        again
    }

    /// Plays some frames with input.
    fn round(&mut self, instance: &mut Instance, round: usize, how: Round) -> Seen {
        for frame in 0..how.frames {
            let last = frame + 1 == how.frames;
            let inputs = self.pads.iter().enumerate().map(|(player, pad)| input(pad, player, round, frame));
            instance.step(inputs, last || how.unseen.is_none(), how.unseen.unwrap_or(produce::ALL));
            if how.save && !last {
                self.state(instance);
            }
        }
        self.look(instance, true)
    }
}

struct Again {
    state_exact: bool,
    memory_exact: bool,
    unseen: u32,
}

/// Some input, always the same.
fn input(pad: &Pad, player: usize, round: usize, frame: usize) -> InputWord {
    let place = [player, round, frame / 3].map(|it| it as u8);
    let noise = [0u64, 1].map(|half| InputWord::from(xxhash_rust::xxh3::xxh3_64_with_seed(&place, half)));
    (noise[0] << 64 | noise[1]) & pad.mask
}

/// All that can be compared of the first frames, and everything that sites must decide alike.
fn first_frames(findings: &Findings, seen: &[Seen]) -> u64 {
    let mut hash = Xxh3::new();
    let decided = [findings.can_save, findings.settles, findings.is_exact()].map(u8::from);
    hash.update(&[findings.hash_of as u8]);
    hash.update(&decided);
    for seen in seen {
        let part = match findings.hash_of {
            HashOf::State => seen.state,
            HashOf::Memory => seen.memory,
            HashOf::Picture => None,
        };
        hash.update(&part.unwrap_or_default().to_le_bytes());
        hash.update(&seen.picture.to_le_bytes());
    }
    hash.digest()
}
