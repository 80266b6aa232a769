//! The embedded machine: an NES, by the emulator TetaNES, in pure Rust.
//!
//! Nothing of it depends on the computer that it runs on: memory begins as zeros, save-RAM is empty and never written to a file,
//! and the region follows from the image. Opposite directions can be pressed together, as the words say. A game that makes the emulator
//! panic does not take the program along: the machine stands still, says [why](Machine::failure), and can be loaded or reset.

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
use crate::pad::{Button, Pad};
use crate::picture::Picture;
use state::Spare;

pub use open::{MAX_PLAYERS, OpenError};

/// What a pad has.
const BUTTONS: [Button; 8] =
    [Button::A, Button::B, Button::Select, Button::Start, Button::Up, Button::Down, Button::Left, Button::Right];
/// The emulator, by whose version builds are told apart.
const VERSION: &str = "TetaNES 0.17.0";
/// Frames by which builds are told apart that have the same version: half a second.
const FIRST_FRAMES: u32 = 30;
/// Samples per second.
const SOUND_RATE: f32 = 48_000.0;
/// A machine of North America and Japan: 60.0988 frames per second.
const NTSC: FrameRate = FrameRate::new(39_375_000, 655_171).expect("a frame rate");
/// A machine of Europe: 50.007 frames per second.
const PAL: FrameRate = FrameRate::new(3_325_214, 66_495).expect("a frame rate");
/// Width of a pixel by its height on the televisions of each.
const PIXEL_NTSC: f32 = 8.0 / 7.0;
const PIXEL_PAL: f32 = 7_375_000.0 / 5_320_342.5;

/// By so much a state can be longer than the first: a few parts are there or not.
const SLACK: usize = 64;
/// What a machine says that was told to stand still by a state.
const STOOD_STILL: &str = "the game had stopped the machine already when this state was saved";

/// How the machine is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many players there are: up to 2, or up to [`MAX_PLAYERS`] with a Four Score plugged in. Many games take a Four Score for a
    /// pad that is broken, so it is there only if asked for.
    pub players: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { players: 2 }
    }
}

/// An NES with a game in it.
pub struct Nes {
    deck: ControlDeck,
    image: Box<[u8]>,
    options: Options,
    machine: MachineId,
    game: GameId,
    pads: Vec<Pad>,
    /// The state before the first frame.
    start: Vec<u8>,
    /// The most bytes that a state can have.
    longest: usize,
    spare: Spare,
    scratch: Vec<u8>,
    rgba: Box<[u8; Frame::SIZE]>,
    sound: Vec<[i16; 2]>,
    stopped: Option<String>,
}

impl Nes {
    /// Puts a game into a machine with two pads. The name is for people.
    pub fn open(image: &[u8], name: &str) -> Result<Self, OpenError> {
        Self::open_with(image, name, Options::default())
    }

    /// Puts a game into a machine.
    pub fn open_with(image: &[u8], name: &str, options: Options) -> Result<Self, OpenError> {
        let deck = open::deck(image, &options)?;
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
            machine,
            game: identity::game_id(name, image),
            pads: vec![Pad::of(&BUTTONS); options.players],
            start: Vec::new(),
            longest: 0,
            spare: Spare::new(deck.bus()),
            scratch: Vec::new(),
            rgba: black(),
            sound: Vec::new(),
            stopped: None,
            deck,
            image: image.into(),
            options,
        };
        let mut start = Vec::new();
        nes.save(&mut start).expect("it can save");
        nes.longest = start.len() + SLACK;
        nes.start = start;
        nes.know_itself()
    }

    /// Plays the first frames and forgets them.
    fn know_itself(mut self) -> Result<Self, OpenError> {
        self.machine.first_frames_hash = identity::first_frames(&mut self, FIRST_FRAMES);
        if let Some(why) = self.stopped.take() {
            return Err(OpenError::Stops(why));
        }
        self.reset();
        Ok(self)
    }

    fn press(&mut self, inputs: &[InputWord]) {
        let pads = self.deck.bus_mut().input.joypads.iter_mut().take(self.options.players);
        for (player, pad) in pads.enumerate() {
            pad.buttons = buttons(inputs.get(player).copied().unwrap_or(0));
        }
    }

    /// Runs until the end of the frame; picture and sound are made only if they are wanted.
    fn run(&mut self, fresh: bool) -> Result<(), control_deck::Error> {
        self.deck.set_headless_mode(if fresh { HeadlessMode::empty() } else { HeadlessMode::all() });
        let _ = self.deck.clock_frame()?;
        if fresh {
            self.show();
        }
        Ok(())
    }

    /// Takes picture and sound out of the machine.
    fn show(&mut self) {
        self.deck.frame_buffer_into(&mut self.rgba);
        let loud = |sample: &f32| (sample * f32::from(i16::MAX)) as i16;
        self.sound.clear();
        self.sound.extend(self.deck.audio_samples().iter().map(|sample| [loud(sample); 2]));
    }

    /// The emulator has panicked, and nobody knows what it has left behind.
    fn stop(&mut self, why: String) {
        self.deck = open::deck(&self.image, &self.options).expect("an image that was opened before");
        self.stopped = Some(why);
        self.sound.clear();
    }

    /// Takes the state, or leaves everything as it is.
    fn take(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let (spare, bus) = (&mut self.spare, self.deck.bus_mut());
        spare.decode(body, bus).ok_or("it makes no sense")?;
        spare.swap(bus);
        if catch_unwind(AssertUnwindSafe(|| bus.rebuild_mapper_state())).is_err() {
            spare.swap(bus);
            bus.rebuild_mapper_state();
            return Err("it makes no sense to the cartridge");
        }
        Ok(())
    }
}

impl Machine for Nes {
    fn machine_id(&self) -> &MachineId {
        &self.machine
    }

    fn game_id(&self) -> &GameId {
        &self.game
    }

    fn rate(&self) -> FrameRate {
        if is_pal(&self.deck) { PAL } else { NTSC }
    }

    fn pads(&self) -> &[Pad] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        if self.stopped.is_some() {
            return;
        }
        self.press(inputs);
        match catch_unwind(AssertUnwindSafe(|| self.run(fresh))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.stop(error.to_string()),
            Err(panic) => self.stop(words(&*panic)),
        }
    }

    fn reset(&mut self) {
        let start = std::mem::take(&mut self.start);
        self.load(&start).expect("our own state");
        self.start = start;
        self.rgba = black();
        self.sound.clear();
        // The sound begins anew as well.
        self.deck.set_sample_rate(SOUND_RATE);
        let apu = &mut self.deck.bus_mut().apu;
        (apu.mixed_level, apu.mapper_level) = (0.0, 0.0);
    }

    fn picture(&self) -> Picture<'_> {
        let pixel = if is_pal(&self.deck) { PIXEL_PAL } else { PIXEL_NTSC };
        let (width, height) = (usize::from(WIDTH), usize::from(HEIGHT));
        Picture { width, height, aspect: pixel * width as f32 / height as f32, rgba: &self.rgba[..] }
    }

    fn sound(&self) -> &[[i16; 2]] {
        &self.sound
    }

    fn sound_rate(&self) -> f64 {
        f64::from(SOUND_RATE)
    }

    fn can_save(&self) -> bool {
        true
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        envelope::seal(into, &self.game.hash, self.stopped.is_some(), |into| {
            state::encode(self.deck.bus(), into);
        });
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        let unfit = |why: &str| LoadError::Unfit(why.into());
        let (body, stopped) = envelope::open(state, &self.game.hash, self.longest).map_err(unfit)?;
        self.take(body).map_err(unfit)?;
        self.stopped = stopped.then(|| STOOD_STILL.into());
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        state::encode(self.deck.bus(), &mut scratch);
        let hash = xxh64(u64::from(self.stopped.is_some()), &scratch);
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
        self.stopped.as_deref()
    }
}

/// The buttons of a pad in the order of the console's own shift register.
fn buttons(word: InputWord) -> JoypadBtnState {
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

/// No colour, and nothing shines through.
fn black() -> Box<[u8; Frame::SIZE]> {
    let rgba: Vec<u8> = [0, 0, 0, u8::MAX].repeat(Frame::SIZE / 4);
    rgba.into_boxed_slice().try_into().expect("as many bytes")
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the emulator gave up").into()
}
