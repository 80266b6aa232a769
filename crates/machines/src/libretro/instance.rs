//! A core with a game in it.

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
use super::pads::{self, JOYPAD};
use super::scratch::ScratchDir;
use crate::machine::SaveError;
use crate::pad::Pad;

/// Files that only list other files.
const MULTI_FILE_EXTENSIONS: [&str; 5] = ["cue", "m3u", "ccd", "toc", "gdi"];

/// A core with a game in it.
pub(super) struct CoreInstance {
    // First: it goes before what it points at.
    core: Core,
    frame_count: u64,
    /// Whether every frame ends with saving, because saving changes how this core goes on.
    saves_every_frame: bool,
    frame_end_state: Vec<u8>,
    /// Bytes of a state, if it is known that they are always so many. To ask is as dear as to save, with some cores.
    pub(super) state_size: Option<usize>,
    game_path: CString,
    scratch: ScratchDir,
    factory: Arc<InstanceFactory>,
}

impl CoreInstance {
    /// Puts the game of the plan into a core.
    pub(super) fn new(plan: Arc<InstanceFactory>, core: Core, scratch: ScratchDir) -> Result<Self, CoreOpenError> {
        let (settled, path) = (Vec::new(), CString::default());
        let mut new = Self {
            core,
            frame_count: 0,
            saves_every_frame: false,
            frame_end_state: settled,
            state_size: None,
            game_path: path,
            scratch,
            factory: plan,
        };
        new.load_content()?;
        Ok(new)
    }

    /// Puts the game in.
    fn load_content(&mut self) -> Result<(), CoreOpenError> {
        let plan = self.factory.clone();
        let loaded = match plan.game() {
            Some(game) => self.load_game(game)?,
            None if self.core.frontend().runs_without_game => self.core.load_game(None),
            None => return Err(CoreOpenError::NeedsGame),
        };
        let host = self.core.frontend();
        host.options.validate()?;
        if !loaded {
            let said = host.log.lines().rev().take(3).map(str::to_owned).collect::<Vec<_>>();
            return Err(if host.requested_gpu {
                CoreOpenError::NeedsGpu
            } else {
                CoreOpenError::GameRejected(said.into_iter().rev().collect())
            });
        }
        self.frame_rate()?;
        for port in 0..MAX_PLAYERS {
            let other = plan.devices().iter().find(|(at, _)| *at == port).map(|(_, device)| *device);
            if port < self.pads().len() || other.is_some() {
                self.core.set_port_device(port, Some(other.unwrap_or(JOYPAD)));
            }
        }
        Ok(())
    }

    fn load_game(&mut self, game: &GameImage) -> Result<bool, CoreOpenError> {
        let info = self.core.info();
        let (extension, wants_file) = (game.extension(), info.needs_file);
        if !info.extensions.is_empty() && !info.extensions.contains(&extension) {
            return Err(CoreOpenError::UnsupportedExtension { extension, supported: info.extensions.clone() });
        }
        if MULTI_FILE_EXTENSIONS.contains(&extension.as_str()) {
            return Err(CoreOpenError::MultiFileGame(extension));
        }
        let failed = |error: std::io::Error| CoreOpenError::ScratchDir(error.to_string());
        let folder = self.scratch.folder("game").map_err(failed)?;
        // A core that reads a file may know games by its name, as those of arcades do. For others only the ending counts.
        let name = if wants_file { game.file_name() } else { format!("game.{extension}") };
        let path = folder.join(name);
        if wants_file {
            self.scratch.write(&path, &game.image).map_err(failed)?;
        }
        self.game_path = to_c_path(&path)?;
        let image = (!wants_file).then_some(&game.image[..]);
        Ok(self.core.load_game(Some(GameContent { path: &self.game_path, image })))
    }

    pub(super) fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    pub(super) fn frontend(&mut self) -> &mut FrontendState {
        self.core.frontend()
    }

    /// What players can press.
    pub(super) fn pads(&mut self) -> Vec<Pad> {
        let players = self.factory.players();
        let host = self.core.frontend();
        pads::pads(&host.descriptors, &host.ports, players)
    }

    /// The rate as the core says it now, to a millionth of a frame per second.
    pub(super) fn frame_rate(&mut self) -> Result<FrameRate, CoreOpenError> {
        const PART: u32 = 1_000_000;
        let fps = self.core.frontend().av_info.fps;
        let frames = (fps * f64::from(PART)).round();
        let frames = if frames.is_finite() && (0.0..f64::from(u32::MAX)).contains(&frames) { frames as u32 } else { 0 };
        let common = gcd(frames, PART);
        FrameRate::new(frames / common, PART / common).ok_or(CoreOpenError::InvalidFrameRate(fps))
    }

    /// Frames stepped.
    pub(super) fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// Plays a frame. If it is not `fresh`, the core is asked to produce only what `unseen` says.
    pub(super) fn step(&mut self, inputs: impl Iterator<Item = InputWord>, fresh: bool, unseen: u32) {
        let host = self.core.frontend();
        host.inputs = [0; MAX_PLAYERS];
        host.inputs.iter_mut().zip(inputs).for_each(|(word, input)| *word = input);
        (host.is_rendered, host.requested_outputs) = (fresh, if fresh { produce::ALL } else { unseen });
        if fresh {
            host.sound.clear();
            host.video.has_new_picture = false;
        }
        self.core.run();
        self.set_frame_count(self.frame_count + 1);
        if self.saves_every_frame {
            self.save_every_frame();
        }
    }

    /// Saves now and after every frame from now on.
    pub(super) fn save_every_frame(&mut self) {
        self.saves_every_frame = true;
        let mut settled = std::mem::take(&mut self.frame_end_state);
        // What cannot be saved has not settled, which is seen when somebody wants it.
        let _ = self.serialize_core(&mut settled);
        self.frame_end_state = settled;
    }

    /// Saves after every frame from now on; the last one has just been saved.
    pub(super) fn set_saves_every_frame(&mut self, settles: bool) {
        self.saves_every_frame = settles;
    }

    fn set_frame_count(&mut self, frames: u64) {
        self.frame_count = frames;
        // A sixtieth of a second each, whatever the rate: a core must only see that time goes on.
        self.core.frontend().time_us = frames.wrapping_mul(16_667);
    }

    /// The core's state, behind room for a header.
    pub(super) fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if self.saves_every_frame && !self.frame_end_state.is_empty() {
            into.clone_from(&self.frame_end_state);
            return Ok(());
        }
        self.serialize_core(into)
    }

    fn serialize_core(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        // A size may be out of date by the time it is used: some cores grow while they save.
        for known in [self.state_size, None] {
            let size = known.unwrap_or_else(|| self.core.state_size());
            if size == 0 {
                return Err(SaveError::Unsupported);
            }
            if size > MAX_STATE_LEN {
                return Err(SaveError::Failed(format!("{size} bytes are too many")));
            }
            // Zeros: not every core writes all that it asks for, and what is left must be the same everywhere.
            into.clear();
            into.resize(HEADER_LEN + size, 0);
            if self.core.save(&mut into[HEADER_LEN..]) {
                return Ok(());
            }
        }
        into.clear();
        Err(SaveError::Failed(self.core.frontend().log.lines().next_back().unwrap_or("it does not say why").to_owned()))
    }

    /// Loads a core's state, without header, of this many frames.
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

    /// A hash of the RAM that the core shows; `None` if it shows none. Registers and the like are left out: what is seen of them often depends on
    /// when the core last looked.
    pub(super) fn memory_hash(&mut self) -> Option<u64> {
        let (mut hash, mut any) = (Xxh3::new(), false);
        self.core.visit_memory(&mut |_, is_ram, bytes| {
            if is_ram {
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
                any = true;
            }
        });
        any.then(|| hash.digest())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
