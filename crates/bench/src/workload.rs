//! What is to be done, equal for both engines.

use coplay_sim::random::Random;

/// Frames from taking an input to its effect.
pub const INPUT_DELAY: u32 = 2;
/// Frames per second.
pub const FRAME_RATE: u32 = 60;
/// States are compared, by an engine that does, after so many frames.
pub const HASH_INTERVAL: u32 = 60;

/// Frames that an input stays, on average.
pub const MEAN_HOLD_FRAMES: u32 = 8;

/// Frames after which inputs repeat.
const INPUT_PERIOD_FRAMES: usize = 4_096;

/// What all players press: two bytes each, that change now and then to random values.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// By player, then by frame.
    pressed: Vec<u16>,
}

impl Inputs {
    /// The inputs of so many players that belong to a seed.
    pub fn new(seed: u64, players: usize) -> Self {
        let mut pressed = Vec::with_capacity(players * INPUT_PERIOD_FRAMES);
        for player in 0..players {
            let mut luck = Random::stream(seed, &format!("player {player}"));
            let mut held = 0;
            pressed.extend((0..INPUT_PERIOD_FRAMES).map(|_| {
                if luck.chance(1.0 / f64::from(MEAN_HOLD_FRAMES)) {
                    held = luck.bits() as u16;
                }
                held
            }));
        }
        Self { pressed }
    }

    /// What takes effect in a frame: what was pressed [`INPUT_DELAY`] frames before.
    pub fn delayed(&self, player: usize, frame: u32) -> u16 {
        frame.checked_sub(INPUT_DELAY).map_or(0, |pressed| self.pressed(player, pressed))
    }

    /// What a player presses in a frame.
    pub fn pressed(&self, player: usize, frame: u32) -> u16 {
        self.pressed[player * INPUT_PERIOD_FRAMES + frame as usize % INPUT_PERIOD_FRAMES]
    }
}

/// States that a machine remembers, by frame: sites need not be in the same frame.
const KEPT_STATES: usize = 4;

/// What stands for a game: its state is a digest of everything that ever went in.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestMachine {
    frames: u32,
    states: [u64; KEPT_STATES],
}

impl DigestMachine {
    /// One frame.
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) {
        let state = inputs.fold(self.state(), |state, input| (state ^ u64::from(input)).rotate_left(7));
        self.frames += 1;
        self.states[self.frames as usize % KEPT_STATES] = state.wrapping_mul(5);
    }

    /// Frames stepped so far.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The state as it is.
    pub fn state(&self) -> u64 {
        self.states[self.frames as usize % KEPT_STATES]
    }

    /// The state after so many frames, which must be among the last few.
    pub fn state_after(&self, frames: u32) -> u64 {
        let back = self.frames.checked_sub(frames).expect("the frame was stepped");
        assert!((back as usize) < KEPT_STATES, "{back} frames ago is too long ago");
        self.states[frames as usize % KEPT_STATES]
    }
}

/// A session of several sites, all in this thread.
pub trait Engine {
    /// Lets every site step so many frames more.
    fn run(&mut self, frames: u32);

    /// What went over the wire so far.
    fn traffic(&self) -> Traffic;

    /// The state of every site's machine after the last frame that was asked for.
    fn states(&self) -> Vec<u64>;
}

/// What went over a wire.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Traffic {
    /// What went since an earlier time.
    pub fn since(self, earlier: Self) -> Self {
        Self { datagrams: self.datagrams - earlier.datagrams, bytes: self.bytes - earlier.bytes }
    }
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            datagrams: sum.datagrams + one.datagrams,
            bytes: sum.bytes + one.bytes,
        })
    }
}
