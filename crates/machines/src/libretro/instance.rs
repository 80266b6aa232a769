//! A core with a game in it.

use std::ffi::CString;
use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use xxhash_rust::xxh3::Xxh3;

use super::Game;
use super::error::OpenError;
use super::ffi::{Content, Core};
use super::host::{Host, MAX_PLAYERS, produce};
use super::pads::{self, JOYPAD};
use super::plan::{Plan, c_path};
use super::scratch::Scratch;
use super::state::{HEADER, MAX_STATE};
use crate::machine::SaveError;
use crate::pad::Pad;

/// Files that only list other files.
const LISTS: [&str; 5] = ["cue", "m3u", "ccd", "toc", "gdi"];

/// A core with a game in it.
pub(super) struct Instance {
    // First: it goes before what it points at.
    core: Core,
    frames: u64,
    /// Whether every frame ends with saving, because saving changes how this core goes on.
    settles: bool,
    settled: Vec<u8>,
    /// Bytes of a state, if it is known that they are always so many. To ask is as dear as to save, with some cores.
    pub(super) state_size: Option<usize>,
    path: CString,
    scratch: Scratch,
    plan: Arc<Plan>,
}

impl Instance {
    /// Puts the game of the plan into a core.
    pub(super) fn new(plan: Arc<Plan>, core: Core, scratch: Scratch) -> Result<Self, OpenError> {
        let (settled, path) = (Vec::new(), CString::default());
        let mut new = Self { core, frames: 0, settles: false, settled, state_size: None, path, scratch, plan };
        new.insert()?;
        Ok(new)
    }

    /// Puts the game in.
    fn insert(&mut self) -> Result<(), OpenError> {
        let plan = self.plan.clone();
        let loaded = match plan.game() {
            Some(game) => self.insert_game(game)?,
            None if self.core.host().runs_without_game => self.core.load_game(None),
            None => return Err(OpenError::NeedsGame),
        };
        let host = self.core.host();
        host.options.check()?;
        if !loaded {
            let said = host.log.lines().rev().take(3).map(str::to_owned).collect::<Vec<_>>();
            return Err(if host.wanted_gpu {
                OpenError::NeedsGpu
            } else {
                OpenError::Refused(said.into_iter().rev().collect())
            });
        }
        self.rate()?;
        for port in 0..MAX_PLAYERS {
            let other = plan.devices().iter().find(|(at, _)| *at == port).map(|(_, device)| *device);
            if port < self.pads().len() || other.is_some() {
                self.core.plug(port, Some(other.unwrap_or(JOYPAD)));
            }
        }
        Ok(())
    }

    fn insert_game(&mut self, game: &Game) -> Result<bool, OpenError> {
        let info = self.core.info();
        let (extension, wants_file) = (game.extension(), info.wants_file);
        if !info.extensions.is_empty() && !info.extensions.contains(&extension) {
            return Err(OpenError::GameKind { extension, taken: info.extensions.clone() });
        }
        if LISTS.contains(&extension.as_str()) {
            return Err(OpenError::SeveralFiles(extension));
        }
        let failed = |error: std::io::Error| OpenError::Scratch(error.to_string());
        let folder = self.scratch.folder("game").map_err(failed)?;
        // A core that reads a file may know games by its name, as those of arcades do. For others only the ending counts.
        let name = if wants_file { game.file_name() } else { format!("game.{extension}") };
        let path = folder.join(name);
        if wants_file {
            self.scratch.write(&path, &game.image).map_err(failed)?;
        }
        self.path = c_path(&path)?;
        let image = (!wants_file).then_some(&game.image[..]);
        Ok(self.core.load_game(Some(Content { path: &self.path, image })))
    }

    pub(super) fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.core.host()
    }

    /// What players can press.
    pub(super) fn pads(&mut self) -> Vec<Pad> {
        let players = self.plan.players();
        let host = self.core.host();
        pads::pads(&host.descriptors, &host.ports, players)
    }

    /// The rate as the core says it now, to a millionth of a frame per second.
    pub(super) fn rate(&mut self) -> Result<FrameRate, OpenError> {
        const PART: u32 = 1_000_000;
        let fps = self.core.host().av.fps;
        let frames = (fps * f64::from(PART)).round();
        let frames = if frames.is_finite() && (0.0..f64::from(u32::MAX)).contains(&frames) { frames as u32 } else { 0 };
        let common = gcd(frames, PART);
        FrameRate::new(frames / common, PART / common).ok_or(OpenError::Rate(fps))
    }

    /// Frames stepped.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Plays a frame. If it is not `fresh`, the core is asked to produce only what `unseen` says.
    pub(super) fn step(&mut self, inputs: impl Iterator<Item = InputWord>, fresh: bool, unseen: u32) {
        let host = self.core.host();
        host.inputs = [0; MAX_PLAYERS];
        host.inputs.iter_mut().zip(inputs).for_each(|(word, input)| *word = input);
        (host.fresh, host.produce) = (fresh, if fresh { produce::ALL } else { unseen });
        if fresh {
            host.sound.clear();
            host.video.arrived = false;
        }
        self.core.run();
        self.went_on_to(self.frames + 1);
        if self.settles {
            self.settle();
        }
    }

    /// Saves now and after every frame from now on.
    pub(super) fn settle(&mut self) {
        self.settles = true;
        let mut settled = std::mem::take(&mut self.settled);
        // What cannot be saved has not settled, which is seen when somebody wants it.
        let _ = self.save_now(&mut settled);
        self.settled = settled;
    }

    /// Saves after every frame from now on; the last one has just been saved.
    pub(super) fn go_on_settling(&mut self, settles: bool) {
        self.settles = settles;
    }

    fn went_on_to(&mut self, frames: u64) {
        self.frames = frames;
        // A sixtieth of a second each, whatever the rate: a core must only see that time goes on.
        self.core.host().time = frames.wrapping_mul(16_667);
    }

    /// The core's state, behind room for a header.
    pub(super) fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        if self.settles && !self.settled.is_empty() {
            into.clone_from(&self.settled);
            return Ok(());
        }
        self.save_now(into)
    }

    fn save_now(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        // A size may be out of date by the time it is used: some cores grow while they save.
        for known in [self.state_size, None] {
            let size = known.unwrap_or_else(|| self.core.state_size());
            if size == 0 {
                return Err(SaveError::Cannot);
            }
            if size > MAX_STATE {
                return Err(SaveError::Failed(format!("{size} bytes are too many")));
            }
            // Zeros: not every core writes all that it asks for, and what is left must be the same everywhere.
            into.clear();
            into.resize(HEADER + size, 0);
            if self.core.save(&mut into[HEADER..]) {
                return Ok(());
            }
        }
        into.clear();
        Err(SaveError::Failed(self.core.host().log.lines().next_back().unwrap_or("it does not say why").to_owned()))
    }

    /// Loads a core's state, without header, of this many frames.
    pub(super) fn load(&mut self, body: &[u8], frames: u64) -> bool {
        let loaded = self.core.load(body);
        if loaded {
            self.went_on_to(frames);
            if self.settles {
                self.settled.clear();
                self.settled.resize(HEADER, 0);
                self.settled.extend_from_slice(body);
            }
        }
        loaded
    }

    /// A hash of the RAM that the core shows; `None` if it shows none. Registers and the like are left out: what is seen of them often depends on
    /// when the core last looked.
    pub(super) fn memory_hash(&mut self) -> Option<u64> {
        let (mut hash, mut any) = (Xxh3::new(), false);
        self.core.memory(&mut |_, is_ram, bytes| {
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
