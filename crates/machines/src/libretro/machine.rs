//! The machine.

use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use xxhash_rust::xxh3::xxh3_64;

use super::envelope::{self, HEADER_LEN, MAX_STATE_LEN, StateHeader, StateKind};
use super::error::CoreOpenError;
use super::frontend_state::{Device, produce};
use super::instance::CoreInstance;
use super::instance_factory::InstanceFactory;
use super::probe_findings::{HashSource, ProbeFindings};
use super::video;
use crate::machine::{LoadError, Machine, NetplaySupport, SaveError};
use crate::pad::Pad;
use crate::picture::Picture;

/// States of our own that are remembered: more than are ever kept to repair guesses.
const REMEMBERED_CHECKSUMS: usize = 64;

/// What is the same for all machines of a plan.
#[derive(Clone)]
pub(super) struct MachineInfo {
    pub(super) findings: ProbeFindings,
    pub(super) machine_id: MachineId,
    pub(super) game_id: GameId,
    /// Of machine and game, in every state.
    pub(super) state_identity: u64,
    pub(super) frame_rate: FrameRate,
    pub(super) pads: Vec<Pad>,
}

/// A libretro core with a game in it.
pub struct LibretroMachine {
    factory: Arc<InstanceFactory>,
    instance: CoreInstance,
    info: MachineInfo,
    width: usize,
    height: usize,
    rgba: Vec<u8>,
    aspect: f32,
    sound: Vec<[i16; 2]>,
    sample_rate: f64,
    /// The core's state before the first frame, where it begins anew with that.
    initial_state: Vec<u8>,
    /// Why there is nothing to step.
    failure: Option<String>,
    /// Room for a state that is only hashed or shown.
    scratch_state: Vec<u8>,
    /// Room for what the machine was before it took a stranger's state.
    fallback_state: Vec<u8>,
    /// Checksums of the last states that were saved here.
    own_checksums: [u64; REMEMBERED_CHECKSUMS],
    next_checksum: usize,
}

impl LibretroMachine {
    pub(super) fn new(plan: Arc<InstanceFactory>, instance: CoreInstance, known: MachineInfo) -> Self {
        let mut new = Self {
            factory: plan,
            instance,
            info: known,
            width: 0,
            height: 0,
            rgba: Vec::new(),
            aspect: 1.0,
            sound: Vec::new(),
            sample_rate: 0.0,
            initial_state: Vec::new(),
            failure: None,
            scratch_state: Vec::new(),
            fallback_state: Vec::new(),
            own_checksums: [0; REMEMBERED_CHECKSUMS],
            next_checksum: 0,
        };
        new.init_instance();
        new.save_initial_state();
        new
    }

    /// Keeps the state before the first frame, to begin anew without opening the core again: that takes long, and may fail at one site only.
    fn save_initial_state(&mut self) {
        if self.info.findings.begins_anew && self.instance.save(&mut self.initial_state).is_err() {
            self.initial_state.clear();
        }
    }

    /// Puts it back to before its first frame, or leaves it as it is.
    fn restart(&mut self) -> Result<(), CoreOpenError> {
        if !self.initial_state.is_empty() && self.instance.load(&self.initial_state[HEADER_LEN..], 0) {
            self.clear_outputs();
            return Ok(());
        }
        self.instance = self.factory.create_instance()?;
        self.init_instance();
        Ok(())
    }

    /// What is the same in every new instance.
    fn init_instance(&mut self) {
        self.instance.state_size = self.info.findings.state_size;
        if self.info.findings.settles {
            self.instance.save_every_frame();
        }
        self.clear_outputs();
    }

    /// Nothing was seen or heard yet.
    fn clear_outputs(&mut self) {
        self.failure = None;
        let host = self.instance.frontend();
        host.hash_pictures = self.info.findings.hash_of == HashSource::Picture;
        (self.width, self.height) = video::clamp_size(host.av_info.width, host.av_info.height);
        self.rgba = video::black_rgba(self.width, self.height);
        self.sound.clear();
        self.update_av_info();
    }

    /// What a core can change at any time without any effect on the game.
    fn update_av_info(&mut self) {
        let host = self.instance.frontend();
        let (av, turned) = (host.av_info, host.video.quarter_turns % 2 == 1);
        let usual = self.width as f32 / self.height as f32;
        let aspect = if turned { 1.0 / av.aspect } else { av.aspect };
        self.aspect = if (0.1..=10.0).contains(&aspect) { aspect } else { usual };
        self.sample_rate = if (1_000.0..=1_000_000.0).contains(&av.sample_rate) { av.sample_rate } else { 48_000.0 };
    }

    /// What was found out about the core when it was opened.
    pub fn findings(&self) -> &ProbeFindings {
        &self.info.findings
    }

    /// A hash of the first frames without input, the same for equal machines.
    pub fn first_frames_hash(&self) -> u64 {
        self.info.findings.first_frames
    }

    /// Another machine that is equal to this one before its first frame, with nothing to find out.
    pub fn twin(&self) -> Result<Self, CoreOpenError> {
        Ok(Self::new(self.factory.clone(), self.factory.create_instance()?, self.info.clone()))
    }

    /// What each port takes, as far as the core says.
    pub fn devices(&mut self) -> &[Vec<Device>] {
        &self.instance.frontend().ports
    }

    /// The options of the core: key, value in force, and possible values.
    pub fn options(&mut self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.instance.frontend().options.all()
    }

    /// The last lines that the core has said, without the values in them.
    pub fn log_lines(&mut self) -> impl Iterator<Item = &str> {
        self.instance.frontend().log.lines()
    }

    /// Whether a core's state can have so many bytes.
    fn is_valid_state_len(&self, len: usize) -> bool {
        self.info.findings.state_size.map_or(len > 0 && len <= MAX_STATE_LEN, |size| size == len)
    }

    fn load_saved(&mut self, body: &[u8], frames: u64, is_own: bool) -> Result<(), LoadError> {
        if !self.is_valid_state_len(body.len()) {
            return Err(LoadError::InvalidState(format!("{} bytes are not as many as it has", body.len())));
        }
        if self.info.findings.warms_up && self.instance.frame_count() == 0 {
            self.instance.step(std::iter::empty(), false, produce::ALL);
        }
        // A core that refuses a state may have taken half of it. With our own that does not happen, and they must load fast.
        let before = self.instance.frame_count();
        let mut refuge = std::mem::take(&mut self.fallback_state);
        let kept = !is_own && self.instance.save(&mut refuge).is_ok();
        let loaded = self.instance.load(body, frames);
        if !loaded && kept {
            self.instance.load(&refuge[HEADER_LEN..], before);
        }
        self.fallback_state = refuge;
        if !loaded {
            return Err(LoadError::InvalidState("the core does not take it".to_owned()));
        }
        self.failure = None;
        Ok(())
    }
}

impl Machine for LibretroMachine {
    fn machine_id(&self) -> &MachineId {
        &self.info.machine_id
    }

    fn game_id(&self) -> &GameId {
        &self.info.game_id
    }

    fn frame_rate(&self) -> FrameRate {
        self.info.frame_rate
    }

    fn pads(&self) -> &[Pad] {
        &self.info.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        if self.failure.is_some() {
            return;
        }
        let pressed = inputs.iter().zip(&self.info.pads).map(|(word, pad)| word & pad.mask);
        self.instance.step(pressed, fresh, self.info.findings.unseen);
        if !fresh {
            return;
        }
        let host = self.instance.frontend();
        std::mem::swap(&mut self.sound, &mut host.sound);
        if host.video.has_new_picture {
            std::mem::swap(&mut self.rgba, &mut host.video.rgba);
            (self.width, self.height) = (host.video.width, host.video.height);
        }
        self.update_av_info();
    }

    fn reset(&mut self) {
        if let Err(error) = self.restart() {
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

    fn sample_rate(&self) -> f64 {
        self.sample_rate
    }

    fn can_save(&self) -> bool {
        self.info.findings.can_save
    }

    fn netplay_support(&self) -> NetplaySupport {
        let found = &self.info.findings;
        match found.is_exact() {
            _ if !found.steady => NetplaySupport::Nondeterministic,
            true => NetplaySupport::Rollback,
            false => NetplaySupport::Lockstep,
        }
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if !self.info.findings.can_save {
            return Err(SaveError::Unsupported);
        }
        if let Some(why) = &self.failure {
            return Err(SaveError::Failed(why.clone()));
        }
        let frames = self.instance.frame_count();
        let kind =
            if frames == 0 && !self.info.findings.saves_unstepped { StateKind::Initial } else { StateKind::Saved };
        if kind == StateKind::Saved {
            self.instance.save(into)?;
        } else {
            into.clear();
            into.resize(HEADER_LEN, 0);
        }
        let sum = envelope::seal(into, StateHeader { kind, identity: self.info.state_identity, frames });
        self.own_checksums[self.next_checksum] = sum;
        self.next_checksum = (self.next_checksum + 1) % REMEMBERED_CHECKSUMS;
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        if !self.info.findings.can_save {
            return Err(LoadError::Unsupported);
        }
        let (header, body, sum) = envelope::unseal(state, self.info.state_identity)?;
        match header.kind {
            StateKind::Saved => self.load_saved(body, header.frames, self.own_checksums.contains(&sum)),
            StateKind::Initial if header.frames == 0 && body.is_empty() => {
                self.restart().map_err(|error| LoadError::InvalidState(error.to_string()))
            }
            StateKind::Initial => Err(LoadError::InvalidState("it says that nothing was played".to_owned())),
        }
    }

    fn hash(&mut self) -> u64 {
        match self.info.findings.hash_of {
            HashSource::Memory => self.instance.memory_hash().unwrap_or_default(),
            HashSource::Picture => self.instance.frontend().video.digest,
            HashSource::State => match self.instance.save(&mut self.scratch_state) {
                Ok(()) => xxh3_64(&self.scratch_state[HEADER_LEN..]),
                // As many bytes as can be saved: none.
                Err(_) => 0,
            },
        }
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.instance.core().visit_memory(&mut |name, _, bytes| show(name, bytes));
        if self.info.findings.can_save && self.instance.save(&mut self.scratch_state).is_ok() {
            show("state", &self.scratch_state[HEADER_LEN..]);
        }
    }
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}
