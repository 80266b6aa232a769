//! The [`Machine`] implementation for libretro cores.

use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use xxhash_rust::xxh3::xxh3_64;

use super::envelope::{self, HEADER_LEN, MAX_STATE_LEN, StateHeader, StateOrigin};
use super::error::CoreOpenError;
use super::frontend_state::{Device, produce};
use super::instance::CoreInstance;
use super::instance_factory::InstanceFactory;
use super::probe_findings::{HashSource, ProbeFindings};
use super::video;
use crate::machine::{LoadError, Machine, NetplaySupport, SaveError};
use crate::pad::PadLayout;
use crate::picture::Picture;

/// Number of most recently saved states whose checksums a machine remembers: more than the 60 states that a session
/// keeps at most for rollbacks.
const REMEMBERED_CHECKSUMS: usize = 64;

/// Data that are equal for all machines of one factory.
#[derive(Clone)]
pub(super) struct MachineInfo {
    pub(super) findings: ProbeFindings,
    pub(super) machine_id: MachineId,
    pub(super) game_id: GameId,
    /// Identity of machine and game in the header of every state.
    pub(super) state_identity: u64,
    pub(super) frame_rate: FrameRate,
    pub(super) pads: Vec<PadLayout>,
}

/// A libretro core with a game loaded.
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
    /// The core's state before the first frame; empty if saving it failed, or if the probe found that loading it does
    /// not restart the core.
    initial_state: Vec<u8>,
    /// Reason why the machine has halted; `None` while it runs.
    failure: Option<String>,
    /// Buffer for a state that is only hashed or passed on as a region.
    scratch_state: Vec<u8>,
    /// Buffer for the machine's own state while the machine loads a foreign state.
    fallback_state: Vec<u8>,
    /// Ring of the checksums of the last states that this machine saved. A state with one of these checksums is loaded
    /// without a fallback.
    own_checksums: [u64; REMEMBERED_CHECKSUMS],
    next_checksum: usize,
}

impl LibretroMachine {
    pub(super) fn new(factory: Arc<InstanceFactory>, instance: CoreInstance, info: MachineInfo) -> Self {
        let mut new = Self {
            factory,
            instance,
            info,
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

    /// Saves the state before the first frame if the probe found that loading it restarts the core. Then a reset need
    /// not reopen the core, which is slow and could fail at one site only.
    fn save_initial_state(&mut self) {
        if self.info.findings.restarts_from_initial_state && self.instance.save(&mut self.initial_state).is_err() {
            self.initial_state.clear();
        }
    }

    /// Brings the core to the state before its first frame: loads the initial state or creates a new instance. On an
    /// error the machine keeps its instance.
    fn restart(&mut self) -> Result<(), CoreOpenError> {
        if !self.initial_state.is_empty() && self.instance.load(&self.initial_state[HEADER_LEN..], 0) {
            self.clear_outputs();
            return Ok(());
        }
        self.instance = CoreInstance::open(&self.factory)?;
        self.init_instance();
        Ok(())
    }

    /// Applies the probe findings to a new instance and clears the outputs.
    fn init_instance(&mut self) {
        self.instance.state_size = self.info.findings.state_size;
        if self.info.findings.saves_every_frame {
            self.instance.save_every_frame();
        }
        self.clear_outputs();
    }

    /// Clears picture, sound and failure, and enables picture hashes if the state hash needs them.
    fn clear_outputs(&mut self) {
        self.failure = None;
        let frontend = self.instance.frontend();
        frontend.hash_pictures = self.info.findings.hash_of == HashSource::Picture;
        (self.width, self.height) = video::clamp_size(frontend.av_info.width, frontend.av_info.height);
        self.rgba = video::black_rgba(self.width, self.height);
        self.sound.clear();
        self.update_av_info();
    }

    /// Updates aspect ratio and sample rate, which a core may change at any time without effect on the game.
    fn update_av_info(&mut self) {
        let frontend = self.instance.frontend();
        let (av, is_rotated) = (frontend.av_info, frontend.video.quarter_turns % 2 == 1);
        let pixel_aspect = self.width as f32 / self.height as f32;
        let aspect = if is_rotated { 1.0 / av.aspect } else { av.aspect };
        self.aspect = if (0.1..=10.0).contains(&aspect) { aspect } else { pixel_aspect };
        self.sample_rate = if (1_000.0..=1_000_000.0).contains(&av.sample_rate) { av.sample_rate } else { 48_000.0 };
    }

    /// Returns the results of the probe of this core and game.
    pub fn findings(&self) -> &ProbeFindings {
        &self.info.findings
    }

    /// Returns the [hash of the first frames](ProbeFindings::first_frames) without input, which is the same for equal
    /// machines.
    pub fn first_frames_hash(&self) -> u64 {
        self.info.findings.first_frames
    }

    /// Opens another machine with the same core, game and options, which has stepped no frame. Does not probe the core
    /// again.
    pub fn twin(&self) -> Result<Self, CoreOpenError> {
        Ok(Self::new(self.factory.clone(), CoreInstance::open(&self.factory)?, self.info.clone()))
    }

    /// Returns for each port the devices that can be connected there, as announced by the core.
    pub fn devices(&mut self) -> &[Vec<Device>] {
        &self.instance.frontend().ports
    }

    /// Returns the options of the core: key, current value, and valid values.
    pub fn options(&mut self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.instance.frontend().options.all()
    }

    /// Returns the last log lines of the core, at most 32 and the oldest first, with `…` in place of each printf value.
    pub fn log_lines(&mut self) -> impl Iterator<Item = &str> {
        self.instance.frontend().log.lines()
    }

    /// Returns whether a saved state of this core can have `len` bytes, not counting the header.
    fn is_valid_state_len(&self, len: usize) -> bool {
        self.info.findings.state_size.map_or(len > 0 && len <= MAX_STATE_LEN, |size| size == len)
    }

    fn load_saved(&mut self, body: &[u8], frames: u64, is_own: bool) -> Result<(), LoadError> {
        if !self.is_valid_state_len(body.len()) {
            return Err(LoadError::InvalidState(format!("its length of {} bytes is wrong", body.len())));
        }
        if self.info.findings.needs_warm_up && self.instance.frame_count() == 0 {
            self.instance.step(std::iter::empty(), false, produce::ALL);
        }
        // A core that rejects a state may already have loaded half of it. Our own states are not rejected and must load
        // fast, so they need no fallback.
        let frames_before = self.instance.frame_count();
        let mut fallback = std::mem::take(&mut self.fallback_state);
        let has_fallback = !is_own && self.instance.save(&mut fallback).is_ok();
        let loaded = self.instance.load(body, frames);
        if !loaded && has_fallback {
            self.instance.load(&fallback[HEADER_LEN..], frames_before);
        }
        self.fallback_state = fallback;
        if !loaded {
            return Err(LoadError::InvalidState("the core rejected it".to_owned()));
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

    fn pads(&self) -> &[PadLayout] {
        &self.info.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        if self.failure.is_some() {
            return;
        }
        let pressed = inputs.iter().zip(&self.info.pads).map(|(word, pad)| word & pad.mask);
        self.instance.step(pressed, fresh, self.info.findings.headless_outputs);
        if !fresh {
            return;
        }
        let frontend = self.instance.frontend();
        std::mem::swap(&mut self.sound, &mut frontend.sound);
        if frontend.video.has_new_picture {
            std::mem::swap(&mut self.rgba, &mut frontend.video.rgba);
            (self.width, self.height) = (frontend.video.width, frontend.video.height);
        }
        self.update_av_info();
    }

    fn reset(&mut self) {
        if let Err(error) = self.restart() {
            // No new instance could be created. The core's own reset button leads to a different state, so it is no
            // substitute.
            self.failure = Some(format!("the reset failed: {error}"));
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
        let findings = &self.info.findings;
        match findings.is_exact() {
            _ if !findings.is_deterministic => NetplaySupport::Nondeterministic,
            true => NetplaySupport::Rollback,
            false => NetplaySupport::Lockstep,
        }
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if !self.info.findings.can_save {
            return Err(SaveError::Unsupported);
        }
        if let Some(reason) = &self.failure {
            return Err(SaveError::Failed(reason.clone()));
        }
        let frames = self.instance.frame_count();
        let kind = if frames == 0 && !self.info.findings.saves_initial_state {
            StateOrigin::Initial
        } else {
            StateOrigin::Saved
        };
        if kind == StateOrigin::Saved {
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
            StateOrigin::Saved => self.load_saved(body, header.frames, self.own_checksums.contains(&sum)),
            StateOrigin::Initial if header.frames == 0 && body.is_empty() => {
                self.restart().map_err(|error| LoadError::InvalidState(error.to_string()))
            }
            StateOrigin::Initial => Err(LoadError::InvalidState("it is not a valid initial state".to_owned())),
        }
    }

    fn hash(&mut self) -> u64 {
        match self.info.findings.hash_of {
            HashSource::Memory => self.instance.memory_hash().unwrap_or_default(),
            HashSource::Picture => self.instance.frontend().video.digest,
            HashSource::State => match self.instance.save(&mut self.scratch_state) {
                Ok(()) => xxh3_64(&self.scratch_state[HEADER_LEN..]),
                // A state that cannot be saved hashes to 0.
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
