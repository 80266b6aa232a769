//! Helpers shared by tests and examples.

#![allow(dead_code, unreachable_pub, reason = "each user needs only some of the helpers")]

pub mod faulty_machine;
pub mod rom;
pub mod session_harness;

use coplay::input::InputWord;
use coplay_links::random::Random;
use coplay_machines::nes::{Nes, NesOptions};

/// Opens the test game on an NES with two pads.
pub fn test_nes() -> Nes {
    Nes::open(&rom::test_image(), "test").expect("the test image is valid")
}

/// Opens the test game on an NES with four pads.
pub fn test_nes_with_four_pads() -> Nes {
    Nes::open_with(&rom::test_image(), "test", NesOptions { players: 4 }).expect("the test image is valid")
}

/// Random input words of some players, each of which changes with probability 1/8 per frame.
pub struct RandomInputs {
    rng: Random,
    words: Vec<InputWord>,
}

impl RandomInputs {
    pub fn new(seed: u64, players: usize) -> Self {
        Self { rng: Random::stream(seed, "fingers"), words: vec![0; players] }
    }

    /// Returns the words of the next frame. A word that changes gets random values in the bits of `mask` and zeros in
    /// the others.
    pub fn next_inputs(&mut self, mask: InputWord) -> &[InputWord] {
        for word in &mut self.words {
            if self.rng.chance(1.0 / 8.0) {
                *word = (InputWord::from(self.rng.bits()) << 64 | InputWord::from(self.rng.bits())) & mask;
            }
        }
        &self.words
    }
}
