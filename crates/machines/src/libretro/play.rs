//! The machine.

use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use xxhash_rust::xxh3::xxh3_64;

use super::error::OpenError;
use super::findings::{Findings, HashOf};
use super::host::{Device, produce};
use super::instance::Instance;
use super::plan::Plan;
use super::state::{self, HEADER, Header, Kind, MAX_STATE};
use super::video;
use crate::machine::{LoadError, Machine, SaveError, Sharing};
use crate::pad::Pad;
use crate::picture::Picture;

/// States of our own that are remembered: more than are ever kept to repair guesses.
const REMEMBERED: usize = 64;

/// What is the same for all machines of a plan.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) findings: Findings,
    pub(super) machine: MachineId,
    pub(super) game: GameId,
    /// Of machine and game, in every state.
    pub(super) identity: u64,
    pub(super) rate: FrameRate,
    pub(super) pads: Vec<Pad>,
}

/// A libretro core with a game in it.
pub struct Libretro {
    plan: Arc<Plan>,
    instance: Instance,
    known: Known,
    width: usize,
    height: usize,
    rgba: Vec<u8>,
    aspect: f32,
    sound: Vec<[i16; 2]>,
    sound_rate: f64,
    /// The core's state before the first frame, where it begins anew with that.
    unstepped: Vec<u8>,
    /// Why there is nothing to step.
    failure: Option<String>,
    /// Room for a state that is only hashed or shown.
    spare: Vec<u8>,
    /// Room for what the machine was before it took a stranger's state.
    refuge: Vec<u8>,
    /// Checksums of the last states that were saved here.
    own: [u64; REMEMBERED],
    next_own: usize,
}

impl Libretro {
    pub(super) fn new(plan: Arc<Plan>, instance: Instance, known: Known) -> Self {
        let mut new = Self {
            plan,
            instance,
            known,
            width: 0,
            height: 0,
            rgba: Vec::new(),
            aspect: 1.0,
            sound: Vec::new(),
            sound_rate: 0.0,
            unstepped: Vec::new(),
            failure: None,
            spare: Vec::new(),
            refuge: Vec::new(),
            own: [0; REMEMBERED],
            next_own: 0,
        };
        new.begin();
        new.keep_beginning();
        new
    }

    /// Keeps the state before the first frame, to begin anew without opening the core again: that takes long, and may fail at one site only.
    fn keep_beginning(&mut self) {
        if self.known.findings.begins_anew && self.instance.save(&mut self.unstepped).is_err() {
            self.unstepped.clear();
        }
    }

    /// Puts it back to before its first frame, or leaves it as it is.
    fn begin_anew(&mut self) -> Result<(), OpenError> {
        if !self.unstepped.is_empty() && self.instance.load(&self.unstepped[HEADER..], 0) {
            self.clear();
            return Ok(());
        }
        self.instance = self.plan.open()?;
        self.begin();
        Ok(())
    }

    /// What is the same in every new instance.
    fn begin(&mut self) {
        self.instance.state_size = self.known.findings.state_size;
        if self.known.findings.settles {
            self.instance.settle();
        }
        self.clear();
    }

    /// Nothing was seen or heard yet.
    fn clear(&mut self) {
        self.failure = None;
        let host = self.instance.host();
        host.hash_pictures = self.known.findings.hash_of == HashOf::Picture;
        (self.width, self.height) = video::size(host.av.width, host.av.height);
        self.rgba = video::black(self.width, self.height);
        self.sound.clear();
        self.look_around();
    }

    /// What a core can change at any time without any effect on the game.
    fn look_around(&mut self) {
        let host = self.instance.host();
        let (av, turned) = (host.av, host.video.turns % 2 == 1);
        let usual = self.width as f32 / self.height as f32;
        let aspect = if turned { 1.0 / av.aspect } else { av.aspect };
        self.aspect = if (0.1..=10.0).contains(&aspect) { aspect } else { usual };
        self.sound_rate = if (1_000.0..=1_000_000.0).contains(&av.sound_rate) { av.sound_rate } else { 48_000.0 };
    }

    /// What was found out about the core when it was opened.
    pub fn findings(&self) -> &Findings {
        &self.known.findings
    }

    /// A hash of the first frames without input, the same for equal machines.
    pub fn first_frames(&self) -> u64 {
        self.known.findings.first_frames
    }

    /// Another machine that is equal to this one before its first frame, with nothing to find out.
    pub fn twin(&self) -> Result<Self, OpenError> {
        Ok(Self::new(self.plan.clone(), self.plan.open()?, self.known.clone()))
    }

    /// What each port takes, as far as the core says.
    pub fn devices(&mut self) -> &[Vec<Device>] {
        &self.instance.host().ports
    }

    /// The options of the core: key, value in force, and possible values.
    pub fn options(&mut self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.instance.host().options.all()
    }

    /// The last lines that the core has said, without the values in them.
    pub fn said(&mut self) -> impl Iterator<Item = &str> {
        self.instance.host().log.lines()
    }

    /// Whether a core's state can have so many bytes.
    fn is_possible(&self, len: usize) -> bool {
        self.known.findings.state_size.map_or(len > 0 && len <= MAX_STATE, |size| size == len)
    }

    fn load_saved(&mut self, body: &[u8], frames: u64, is_own: bool) -> Result<(), LoadError> {
        if !self.is_possible(body.len()) {
            return Err(LoadError::Unfit(format!("{} bytes are not as many as it has", body.len())));
        }
        if self.known.findings.warms_up && self.instance.frames() == 0 {
            self.instance.step(std::iter::empty(), false, produce::ALL);
        }
        // A core that refuses a state may have taken half of it. With our own that does not happen, and they must load fast.
        let before = self.instance.frames();
        let mut refuge = std::mem::take(&mut self.refuge);
        let kept = !is_own && self.instance.save(&mut refuge).is_ok();
        let loaded = self.instance.load(body, frames);
        if !loaded && kept {
            self.instance.load(&refuge[HEADER..], before);
        }
        self.refuge = refuge;
        if !loaded {
            return Err(LoadError::Unfit("the core does not take it".to_owned()));
        }
        self.failure = None;
        Ok(())
    }
}

impl Machine for Libretro {
    fn machine_id(&self) -> &MachineId {
        &self.known.machine
    }

    fn game_id(&self) -> &GameId {
        &self.known.game
    }

    fn rate(&self) -> FrameRate {
        self.known.rate
    }

    fn pads(&self) -> &[Pad] {
        &self.known.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        if self.failure.is_some() {
            return;
        }
        let pressed = inputs.iter().zip(&self.known.pads).map(|(word, pad)| word & pad.mask);
        self.instance.step(pressed, fresh, self.known.findings.unseen);
        if !fresh {
            return;
        }
        let host = self.instance.host();
        std::mem::swap(&mut self.sound, &mut host.sound);
        if host.video.arrived {
            std::mem::swap(&mut self.rgba, &mut host.video.rgba);
            (self.width, self.height) = (host.video.width, host.video.height);
        }
        self.look_around();
    }

    fn reset(&mut self) {
        if let Err(error) = self.begin_anew() {
            // The system has no room for another instance. The core's own button does not lead to the same place.
            self.failure = Some(format!("it could not be switched off and on: {error}"));
        }
    }

    fn picture(&self) -> Picture<'_> {
        Picture { width: self.width, height: self.height, aspect: self.aspect, rgba: &self.rgba }
    }

    fn sound(&self) -> &[[i16; 2]] {
        &self.sound
    }

    fn sound_rate(&self) -> f64 {
        self.sound_rate
    }

    fn can_save(&self) -> bool {
        self.known.findings.can_save
    }

    fn sharing(&self) -> Sharing {
        let found = &self.known.findings;
        match found.is_exact() {
            _ if !found.steady => Sharing::Unfit,
            true => Sharing::Rollback,
            false => Sharing::Lockstep,
        }
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if !self.known.findings.can_save {
            return Err(SaveError::Cannot);
        }
        if let Some(why) = &self.failure {
            return Err(SaveError::Failed(why.clone()));
        }
        let frames = self.instance.frames();
        let kind = if frames == 0 && !self.known.findings.saves_unstepped { Kind::Unstepped } else { Kind::Saved };
        if kind == Kind::Saved {
            self.instance.save(into)?;
        } else {
            into.clear();
            into.resize(HEADER, 0);
        }
        let sum = state::seal(into, Header { kind, identity: self.known.identity, frames });
        self.own[self.next_own] = sum;
        self.next_own = (self.next_own + 1) % REMEMBERED;
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        if !self.known.findings.can_save {
            return Err(LoadError::Cannot);
        }
        let (header, body, sum) = state::open(state, self.known.identity)?;
        match header.kind {
            Kind::Saved => self.load_saved(body, header.frames, self.own.contains(&sum)),
            Kind::Unstepped if header.frames == 0 && body.is_empty() => {
                self.begin_anew().map_err(|error| LoadError::Unfit(error.to_string()))
            }
            Kind::Unstepped => Err(LoadError::Unfit("it says that nothing was played".to_owned())),
        }
    }

    fn hash(&mut self) -> u64 {
        match self.known.findings.hash_of {
            HashOf::Memory => self.instance.memory_hash().unwrap_or_default(),
            HashOf::Picture => self.instance.host().video.digest,
            HashOf::State => match self.instance.save(&mut self.spare) {
                Ok(()) => xxh3_64(&self.spare[HEADER..]),
                // As many bytes as can be saved: none.
                Err(_) => 0,
            },
        }
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.instance.core().memory(&mut |name, _, bytes| show(name, bytes));
        if self.known.findings.can_save && self.instance.save(&mut self.spare).is_ok() {
            show("state", &self.spare[HEADER..]);
        }
    }
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}
