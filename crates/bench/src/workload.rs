//! What is equal for all engines: frame rate, inputs and the count of traffic in all sessions, and the machine and the
//! interface of lockstep sessions.

use coplay_links::random::Random;

/// Input delay of lockstep sessions, in frames.
pub const INPUT_DELAY: u32 = 2;
/// Frame rate of all sessions, in frames per virtual second.
pub const FRAME_RATE: u32 = 60;
/// Interval of state comparisons, in frames, for engines that compare states.
pub const HASH_INTERVAL: u32 = 60;

/// Mean number of frames for which an input is held.
pub const MEAN_HOLD_FRAMES: u32 = 8;

/// Number of frames after which the inputs repeat.
const INPUT_PERIOD_FRAMES: usize = 4_096;

/// Inputs of all players: two bytes each, which change at random times to random values.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Inputs of the [`INPUT_PERIOD_FRAMES`] frames before they repeat, player after player.
    pressed: Vec<u16>,
}

impl Inputs {
    /// Creates the inputs of `players` players from a seed.
    pub fn new(seed: u64, players: usize) -> Self {
        let mut pressed = Vec::with_capacity(players * INPUT_PERIOD_FRAMES);
        for player in 0..players {
            let mut random = Random::stream(seed, &format!("player {player}"));
            let mut held = 0;
            pressed.extend((0..INPUT_PERIOD_FRAMES).map(|_| {
                if random.chance(1.0 / f64::from(MEAN_HOLD_FRAMES)) {
                    held = random.bits() as u16;
                }
                held
            }));
        }
        Self { pressed }
    }

    /// Returns the input that takes effect in a frame: the one pressed [`INPUT_DELAY`] frames before; 0 (neutral) in
    /// the first [`INPUT_DELAY`] frames.
    pub fn delayed(&self, player: usize, frame: u32) -> u16 {
        frame.checked_sub(INPUT_DELAY).map_or(0, |pressed| self.pressed(player, pressed))
    }

    /// Returns the input that a player presses in a frame.
    pub fn pressed(&self, player: usize, frame: u32) -> u16 {
        self.pressed[player * INPUT_PERIOD_FRAMES + frame as usize % INPUT_PERIOD_FRAMES]
    }
}

/// Number of states that a machine keeps: those after its last frames. At the end of a run, sites may be a few frames
/// apart.
const KEPT_STATES: usize = 4;

/// A machine in place of a game. Its state is a hash of all inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestMachine {
    frames: u32,
    states: [u64; KEPT_STATES],
}

impl DigestMachine {
    /// Advances one frame with one input per player.
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) {
        let state = inputs.fold(self.state(), |state, input| (state ^ u64::from(input)).rotate_left(7));
        self.frames += 1;
        self.states[self.frames as usize % KEPT_STATES] = state.wrapping_mul(5);
    }

    /// Returns the number of frames stepped since the start.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the state after the last stepped frame.
    pub fn state(&self) -> u64 {
        self.states[self.frames as usize % KEPT_STATES]
    }

    /// Returns the state after the first `frames` frames. Panics unless it is one of the last four states.
    pub fn state_after(&self, frames: u32) -> u64 {
        let back = self.frames.checked_sub(frames).expect("the frame was stepped");
        assert!((back as usize) < KEPT_STATES, "the state of {back} frames ago is not kept");
        self.states[frames as usize % KEPT_STATES]
    }
}

/// A session of several sites, all in the calling thread.
pub trait Engine {
    /// Runs the session until every site has stepped `frames` frames beyond the total of the earlier calls.
    fn run(&mut self, frames: u32);

    /// Returns the traffic between all sites since the start.
    fn traffic(&self) -> Traffic;

    /// Returns the state of every site's machine after the last requested frame.
    fn states(&self) -> Vec<u64>;
}

/// Number and size of the datagrams sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Number of datagrams sent.
    pub datagrams: u64,
    /// Payload bytes of all datagrams sent.
    pub bytes: u64,
}

impl Traffic {
    /// Returns the traffic since `earlier`, a previous count of the same session.
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
