//! A core with a game loaded: steps it, and saves and loads its state.

use std::ffi::CString;
use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use xxhash_rust::xxh3::Xxh3;

use super::GameImage;
use super::envelope::{HEADER_LEN, MAX_STATE_LEN};
use super::error::CoreOpenError;
use super::ffi::{Core, GameContent};
use super::frontend_state::{FrontendState, MAX_PLAYERS, produce};
use super::instance_factory::{InstanceFactory, to_c_path};
use super::pad_layouts::{self, JOYPAD};
use super::scratch::ScratchDir;
use crate::machine::SaveError;
use crate::pad::PadLayout;

/// Extensions of game files that only list other files.
const MULTI_FILE_EXTENSIONS: [&str; 5] = ["cue", "m3u", "ccd", "toc", "gdi"];

/// A private instance of a core with a game loaded.
pub(super) struct CoreInstance {
    // Declared first, so that it is dropped before the data that it points at.
    core: Core,
    frame_count: u64,
    /// Whether every frame ends with a save, because saving changes the behaviour of this core or may do so.
    saves_every_frame: bool,
    frame_end_state: Vec<u8>,
    /// Length of a state in bytes, if known to be constant. With some cores, a query of the length costs as much as a
    /// save.
    pub(super) state_size: Option<usize>,
    game_path: CString,
    scratch: ScratchDir,
    factory: Arc<InstanceFactory>,
}

impl CoreInstance {
    /// Opens an instance, which has stepped no frame.
    pub(super) fn open(factory: &Arc<InstanceFactory>) -> Result<Self, CoreOpenError> {
        let (core, scratch) = factory.load_core()?;
        let (frame_end_state, game_path) = (Vec::new(), CString::default());
        let mut new = Self {
            core,
            frame_count: 0,
            saves_every_frame: false,
            frame_end_state,
            state_size: None,
            game_path,
            scratch,
            factory: factory.clone(),
        };
        new.load_content()?;
        Ok(new)
    }

    /// Loads the game, validates options and frame rate, and connects the devices to the ports.
    fn load_content(&mut self) -> Result<(), CoreOpenError> {
        let factory = self.factory.clone();
        let loaded = match factory.game() {
            Some(game) => self.load_game(game)?,
            None if self.core.frontend().runs_without_game => self.core.load_game(None),
            None => return Err(CoreOpenError::NeedsGame),
        };
        let frontend = self.core.frontend();
        frontend.options.validate()?;
        if !loaded {
            let log_lines = frontend.log.lines().rev().take(3).map(str::to_owned).collect::<Vec<_>>();
            return Err(if frontend.requested_gpu {
                CoreOpenError::NeedsGpu
            } else {
                CoreOpenError::GameRejected(log_lines.into_iter().rev().collect())
            });
        }
        self.frame_rate()?;
        for port in 0..MAX_PLAYERS {
            let other = factory.devices().iter().find(|(at, _)| *at == port).map(|(_, device)| *device);
            if port < self.pads().len() || other.is_some() {
                self.core.set_port_device(port, Some(other.unwrap_or(JOYPAD)));
            }
        }
        Ok(())
    }

    fn load_game(&mut self, game: &GameImage) -> Result<bool, CoreOpenError> {
        let info = self.core.info();
        let (extension, needs_file) = (game.extension(), info.needs_file);
        if !info.extensions.is_empty() && !info.extensions.contains(&extension) {
            return Err(CoreOpenError::UnsupportedExtension { extension, supported: info.extensions.clone() });
        }
        if MULTI_FILE_EXTENSIONS.contains(&extension.as_str()) {
            return Err(CoreOpenError::MultiFileGame(extension));
        }
        let scratch_error = |error: std::io::Error| CoreOpenError::ScratchDir(error.to_string());
        let folder = self.scratch.folder("game").map_err(scratch_error)?;
        // A core that reads a file may identify games by the file name, as arcade cores do. Others use only the
        // extension.
        let name = if needs_file { game.file_name() } else { format!("game.{extension}") };
        let path = folder.join(name);
        if needs_file {
            self.scratch.write(&path, &game.image).map_err(scratch_error)?;
        }
        self.game_path = to_c_path(&path)?;
        let image = (!needs_file).then_some(&game.image[..]);
        Ok(self.core.load_game(Some(GameContent { path: &self.game_path, image })))
    }

    pub(super) fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    pub(super) fn frontend(&mut self) -> &mut FrontendState {
        self.core.frontend()
    }

    /// Returns the pads that the core describes now, one per player.
    pub(super) fn pads(&mut self) -> Vec<PadLayout> {
        let players = self.factory.players();
        let frontend = self.core.frontend();
        pad_layouts::pads(&frontend.descriptors, &frontend.ports, players)
    }

    /// Returns the frame rate that the core announces now, rounded to a millionth of a frame per second.
    pub(super) fn frame_rate(&mut self) -> Result<FrameRate, CoreOpenError> {
        const DENOMINATOR: u32 = 1_000_000;
        let fps = self.core.frontend().av_info.fps;
        let frames = (fps * f64::from(DENOMINATOR)).round();
        let frames = if frames.is_finite() && (0.0..f64::from(u32::MAX)).contains(&frames) { frames as u32 } else { 0 };
        let divisor = gcd(frames, DENOMINATOR);
        FrameRate::new(frames / divisor, DENOMINATOR / divisor).ok_or(CoreOpenError::InvalidFrameRate(fps))
    }

    /// Returns the number of frames stepped from the start up to the current state.
    pub(super) fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// Steps a frame. If it is not `fresh`, the core is asked to produce only the outputs in `headless_outputs`.
    pub(super) fn step(&mut self, inputs: impl Iterator<Item = InputWord>, fresh: bool, headless_outputs: u32) {
        let frontend = self.core.frontend();
        frontend.inputs = [0; MAX_PLAYERS];
        frontend.inputs.iter_mut().zip(inputs).for_each(|(word, input)| *word = input);
        (frontend.is_rendered, frontend.requested_outputs) =
            (fresh, if fresh { produce::ALL } else { headless_outputs });
        if fresh {
            frontend.sound.clear();
            frontend.video.has_new_picture = false;
        }
        self.core.run();
        self.set_frame_count(self.frame_count + 1);
        if self.saves_every_frame {
            self.save_every_frame();
        }
    }

    /// Saves the core's state now and after every further frame.
    pub(super) fn save_every_frame(&mut self) {
        self.saves_every_frame = true;
        let mut state = std::mem::take(&mut self.frame_end_state);
        // A failure shows up at the next save.
        let _ = self.serialize_core(&mut state);
        self.frame_end_state = state;
    }

    /// Sets whether to save after every frame, without saving now.
    pub(super) fn set_saves_every_frame(&mut self, saves_every_frame: bool) {
        self.saves_every_frame = saves_every_frame;
    }

    fn set_frame_count(&mut self, frames: u64) {
        self.frame_count = frames;
        // One sixtieth of a second per frame, whatever the rate: a core only needs to see that time advances.
        self.core.frontend().time_us = frames.wrapping_mul(16_667);
    }

    /// Saves the core's state into `into`, after [`HEADER_LEN`] zero bytes for the header. If the instance saves after
    /// every frame, copies that save, or the state that was loaded since.
    pub(super) fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if self.saves_every_frame && !self.frame_end_state.is_empty() {
            into.clone_from(&self.frame_end_state);
            return Ok(());
        }
        self.serialize_core(into)
    }

    fn serialize_core(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        // A known size may be out of date, because the states of some cores grow.
        for size in [self.state_size, None] {
            let size = size.unwrap_or_else(|| self.core.state_size());
            if size == 0 {
                return Err(SaveError::Unsupported);
            }
            if size > MAX_STATE_LEN {
                return Err(SaveError::Failed(format!(
                    "it has {size} bytes, more than the limit of {} MiB",
                    MAX_STATE_LEN >> 20
                )));
            }
            // Zeros, because not every core writes all requested bytes, and the rest must be the same at all sites.
            into.clear();
            into.resize(HEADER_LEN + size, 0);
            if self.core.save(&mut into[HEADER_LEN..]) {
                return Ok(());
            }
        }
        into.clear();
        Err(SaveError::Failed(
            self.core.frontend().log.lines().next_back().unwrap_or("the core gave no reason").to_owned(),
        ))
    }

    /// Loads a core's state without header, which was saved after `frames` frames. Returns whether the core accepted
    /// it.
    pub(super) fn load(&mut self, body: &[u8], frames: u64) -> bool {
        let loaded = self.core.load(body);
        if loaded {
            self.set_frame_count(frames);
            if self.saves_every_frame {
                self.frame_end_state.clear();
                self.frame_end_state.resize(HEADER_LEN, 0);
                self.frame_end_state.extend_from_slice(body);
            }
        }
        loaded
    }

    /// Returns a hash of the RAM that the core exposes; `None` if it exposes none. Registers and similar regions are
    /// excluded: their visible values often depend on when the core last updated them.
    pub(super) fn memory_hash(&mut self) -> Option<u64> {
        let (mut hash, mut has_ram) = (Xxh3::new(), false);
        self.core.visit_memory(&mut |_, is_ram, bytes| {
            if is_ram {
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
                has_ram = true;
            }
        });
        has_ram.then(|| hash.digest())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
