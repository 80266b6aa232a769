//! The embedded machine: an NES, emulated by TetaNES, in pure Rust.
//!
//! Nothing depends on the host computer: memory starts as zeros, save RAM is empty and never written to a file, and the
//! region follows from the image. Opposite directions can be pressed together. If a game makes the emulator panic, the
//! program survives: the machine halts, reports [why](Machine::failure), and can load a state or be reset.

mod envelope;
mod open;
mod state;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coplay::frame::FrameRate;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use tetanes_core::common::NesRegion;
use tetanes_core::control_deck::{self, ControlDeck, HeadlessMode};
use tetanes_core::input::JoypadBtnState;
use tetanes_core::memory::Src;
use tetanes_core::ppu::size::{HEIGHT, WIDTH};
use tetanes_core::video::Frame;

use crate::identity;
use crate::machine::{LoadError, Machine, SaveError};
use crate::pad::{Button, PadLayout};
use crate::picture::Picture;
use state::StagedState;

pub use open::{MAX_PLAYERS, NesOpenError};

/// The eight buttons of an NES pad.
const BUTTONS: [Button; 8] =
    [Button::A, Button::B, Button::Select, Button::Start, Button::Up, Button::Down, Button::Left, Button::Right];
/// Emulator name and version in the machine id.
const VERSION: &str = "TetaNES 0.17.0";
/// Number of frames that the first-frames hash covers, half a second at 60 frames per second. The hash distinguishes
/// builds of the same version.
const FIRST_FRAMES: u32 = 30;
/// Sample rate of the sound, in Hz.
const SAMPLE_RATE: f32 = 48_000.0;
/// Frame rate of North American and Japanese machines: 60.0988 frames per second.
const NTSC_FRAME_RATE: FrameRate = FrameRate::new(39_375_000, 655_171).expect("a valid frame rate");
/// Frame rate of PAL and Dendy machines: 50.007 frames per second.
const PAL_FRAME_RATE: FrameRate = FrameRate::new(3_325_214, 66_495).expect("a valid frame rate");
/// Pixel aspect ratio, width divided by height, on NTSC televisions.
const NTSC_PIXEL_ASPECT: f32 = 8.0 / 7.0;
/// Pixel aspect ratio, width divided by height, on PAL televisions.
const PAL_PIXEL_ASPECT: f32 = 7_375_000.0 / 5_320_342.5;

/// Number of bytes by which a state may exceed the initial state, because a few parts of a state are optional.
const STATE_LEN_SLACK: usize = 64;
/// Failure message of a machine that loaded a halted state.
const HALTED_BEFORE_SAVE: &str = "the loaded state was saved after the machine had halted";

/// Options of an NES, which are part of its machine id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NesOptions {
    /// Number of players, 1 to [`MAX_PLAYERS`]. More than 2 need a Four Score adapter. Many games mistake a Four Score
    /// for a broken pad, so it is plugged in only for more than 2 players.
    pub players: usize,
}

impl Default for NesOptions {
    fn default() -> Self {
        Self { players: 2 }
    }
}

/// An NES with a game loaded.
pub struct Nes {
    deck: ControlDeck,
    image: Box<[u8]>,
    options: NesOptions,
    machine_id: MachineId,
    game_id: GameId,
    pads: Vec<PadLayout>,
    /// Saved state before the first frame, which a reset loads.
    initial_state: Vec<u8>,
    /// Maximum length in bytes of a state that this machine loads.
    max_state_len: usize,
    staged_state: StagedState,
    scratch: Vec<u8>,
    rgba: Box<[u8; Frame::SIZE]>,
    sound: Vec<[i16; 2]>,
    halt_reason: Option<String>,
}

impl Nes {
    /// Opens a game on a machine with two pads. `name` is the display name of the game.
    pub fn open(image: &[u8], name: &str) -> Result<Self, NesOpenError> {
        Self::open_with(image, name, NesOptions::default())
    }

    /// Opens a game on a machine with these options. Fails if the image or the number of players is invalid, if the
    /// emulator does not support the image, or if the game halts the machine in its first 30 frames.
    pub fn open_with(image: &[u8], name: &str, options: NesOptions) -> Result<Self, NesOpenError> {
        let deck = open::open_deck(image, &options)?;
        let region = match deck.region() {
            NesRegion::Pal => "pal",
            NesRegion::Dendy => "dendy",
            NesRegion::Auto | NesRegion::Ntsc => "ntsc",
        };
        let settings = [("players", options.players.to_string()), ("region", region.into())];
        let machine = MachineId {
            name: "nes".into(),
            version: VERSION.into(),
            options: settings.map(|(key, value)| (key.into(), value)).to_vec(),
            first_frames_hash: 0,
        };
        let mut nes = Self {
            machine_id: machine,
            game_id: identity::game_id(name, image),
            pads: vec![PadLayout::with_buttons(&BUTTONS); options.players],
            initial_state: Vec::new(),
            max_state_len: 0,
            staged_state: StagedState::new(deck.bus()),
            scratch: Vec::new(),
            rgba: black_rgba(),
            sound: Vec::new(),
            halt_reason: None,
            deck,
            image: image.into(),
            options,
        };
        let mut start = Vec::new();
        nes.save(&mut start).expect("the NES can save");
        nes.max_state_len = start.len() + STATE_LEN_SLACK;
        nes.initial_state = start;
        nes.with_first_frames_hash()
    }

    /// Computes the first-frames hash and resets the machine. Fails if the game halts the machine in these frames.
    fn with_first_frames_hash(mut self) -> Result<Self, NesOpenError> {
        self.machine_id.first_frames_hash = identity::first_frames_hash(&mut self, FIRST_FRAMES);
        if let Some(reason) = self.halt_reason.take() {
            return Err(NesOpenError::HaltsAtStart(reason));
        }
        self.reset();
        Ok(self)
    }

    fn set_inputs(&mut self, inputs: &[InputWord]) {
        let pads = self.deck.bus_mut().input.joypads.iter_mut().take(self.options.players);
        for (player, pad) in pads.enumerate() {
            pad.buttons = joypad_buttons(inputs.get(player).copied().unwrap_or(0));
        }
    }

    /// Runs one frame. Picture and sound are produced only if `fresh`.
    fn run_frame(&mut self, fresh: bool) -> Result<(), control_deck::Error> {
        self.deck.set_headless_mode(if fresh { HeadlessMode::empty() } else { HeadlessMode::all() });
        let _ = self.deck.clock_frame()?;
        if fresh {
            self.capture_outputs();
        }
        Ok(())
    }

    /// Copies picture and sound out of the emulator.
    fn capture_outputs(&mut self) {
        self.deck.frame_buffer_into(&mut self.rgba);
        let to_i16 = |sample: &f32| (sample * f32::from(i16::MAX)) as i16;
        self.sound.clear();
        self.sound.extend(self.deck.audio_samples().iter().map(|sample| [to_i16(sample); 2]));
    }

    /// Halts the machine after a panic or an error of the emulator. Replaces the emulator by a new one, because the
    /// state of the old one may be inconsistent.
    fn halt(&mut self, reason: String) {
        self.deck = open::open_deck(&self.image, &self.options).expect("the image was opened before");
        self.halt_reason = Some(reason);
        self.sound.clear();
    }

    /// Loads the body of a state. On an error the machine keeps its state.
    fn apply_state(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let (staged, bus) = (&mut self.staged_state, self.deck.bus_mut());
        staged.decode(body, bus).ok_or("its contents are invalid")?;
        staged.swap(bus);
        if catch_unwind(AssertUnwindSafe(|| bus.rebuild_mapper_state())).is_err() {
            staged.swap(bus);
            bus.rebuild_mapper_state();
            return Err("its cartridge data are invalid");
        }
        Ok(())
    }
}

impl Machine for Nes {
    fn machine_id(&self) -> &MachineId {
        &self.machine_id
    }

    fn game_id(&self) -> &GameId {
        &self.game_id
    }

    fn frame_rate(&self) -> FrameRate {
        if is_pal(&self.deck) { PAL_FRAME_RATE } else { NTSC_FRAME_RATE }
    }

    fn pads(&self) -> &[PadLayout] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        if self.halt_reason.is_some() {
            return;
        }
        self.set_inputs(inputs);
        match catch_unwind(AssertUnwindSafe(|| self.run_frame(fresh))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.halt(error.to_string()),
            Err(panic) => self.halt(panic_message(&*panic)),
        }
    }

    fn reset(&mut self) {
        let start = std::mem::take(&mut self.initial_state);
        self.load(&start).expect("the initial state loads");
        self.initial_state = start;
        self.rgba = black_rgba();
        self.sound.clear();
        // The sound output also restarts.
        self.deck.set_sample_rate(SAMPLE_RATE);
        let apu = &mut self.deck.bus_mut().apu;
        (apu.mixed_level, apu.mapper_level) = (0.0, 0.0);
    }

    fn picture(&self) -> Picture<'_> {
        let pixel = if is_pal(&self.deck) { PAL_PIXEL_ASPECT } else { NTSC_PIXEL_ASPECT };
        let (width, height) = (usize::from(WIDTH), usize::from(HEIGHT));
        Picture { width, height, aspect: pixel * width as f32 / height as f32, rgba: &self.rgba[..] }
    }

    fn sound(&self) -> &[[i16; 2]] {
        &self.sound
    }

    fn sample_rate(&self) -> f64 {
        f64::from(SAMPLE_RATE)
    }

    fn can_save(&self) -> bool {
        true
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        envelope::seal(into, &self.game_id.hash, self.halt_reason.is_some(), |into| {
            state::encode(self.deck.bus(), into);
        });
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        let invalid = |reason: &str| LoadError::InvalidState(reason.into());
        let (body, halted) = envelope::unseal(state, &self.game_id.hash, self.max_state_len).map_err(invalid)?;
        self.apply_state(body).map_err(invalid)?;
        self.halt_reason = halted.then(|| HALTED_BEFORE_SAVE.into());
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        state::encode(self.deck.bus(), &mut scratch);
        let hash = xxh64(u64::from(self.halt_reason.is_some()), &scratch);
        self.scratch = scratch;
        hash
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let ends = state::encode(self.deck.bus(), &mut scratch);
        let bus = self.deck.bus();
        let memory = &bus.memory;
        show("work ram", bus.wram());
        show("video ram", memory.region_ref(Src::CiRam));
        show("palette", &scratch[ends.ppu..ends.palette]);
        show("oam", &scratch[ends.palette..ends.oam]);
        show("cpu", &scratch[..ends.cpu]);
        show("ppu", &scratch[ends.cpu..ends.ppu]);
        show("apu", &scratch[ends.oam..ends.apu]);
        show("cartridge", &scratch[ends.apu..ends.cartridge]);
        show("pads", &scratch[ends.cartridge..ends.pads]);
        show("cartridge ram", memory.region_ref(Src::PrgRam));
        show("expansion ram", memory.region_ref(Src::ExRam));
        let pattern = memory.region_ref(Src::Chr);
        if memory.ram().as_ptr_range().contains(&pattern.as_ptr()) {
            show("pattern ram", pattern);
        }
        self.scratch = scratch;
    }

    fn failure(&self) -> Option<&str> {
        self.halt_reason.as_deref()
    }
}

/// Converts an input word to the emulator's button flags, which have the order of the console's shift register.
fn joypad_buttons(word: InputWord) -> JoypadBtnState {
    let same = Button::Select.bit()
        | Button::Start.bit()
        | Button::Up.bit()
        | Button::Down.bit()
        | Button::Left.bit()
        | Button::Right.bit();
    let a = if Button::A.is_in(word) { JoypadBtnState::A } else { JoypadBtnState::empty() };
    let b = if Button::B.is_in(word) { JoypadBtnState::B } else { JoypadBtnState::empty() };
    JoypadBtnState::from_bits_truncate((word & same) as u16) | a | b
}

fn is_pal(deck: &ControlDeck) -> bool {
    matches!(deck.region(), NesRegion::Pal | NesRegion::Dendy)
}

/// Returns an opaque black picture.
fn black_rgba() -> Box<[u8; Frame::SIZE]> {
    let rgba: Vec<u8> = [0, 0, 0, u8::MAX].repeat(Frame::SIZE / 4);
    rgba.into_boxed_slice().try_into().expect("the vector has the size of a frame")
}

/// Returns the message of a panic, or a general one if the panic has no text.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("internal error in the emulator").into()
}
