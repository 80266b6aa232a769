//! What tests and examples share.

#![allow(dead_code, unreachable_pub, reason = "not everybody needs everything")]

pub mod faulty_machine;
pub mod rom;
pub mod session_harness;

use coplay::input::InputWord;
use coplay_machines::nes::{Nes, NesOptions};
use coplay_sim::random::Random;

/// The test game in a machine with two pads.
pub fn test_nes() -> Nes {
    Nes::open(&rom::test_image(), "test").expect("a good image")
}

/// The same with four.
pub fn test_nes_with_four_pads() -> Nes {
    Nes::open_with(&rom::test_image(), "test", NesOptions { players: 4 }).expect("a good image")
}

/// Words that change now and then.
pub struct RandomInputs {
    rng: Random,
    words: Vec<InputWord>,
}

impl RandomInputs {
    pub fn new(seed: u64, players: usize) -> Self {
        Self { rng: Random::stream(seed, "fingers"), words: vec![0; players] }
    }

    /// The words of the next frame, with no bit but those of `mask`.
    pub fn next_inputs(&mut self, mask: InputWord) -> &[InputWord] {
        for word in &mut self.words {
            if self.rng.chance(1.0 / 8.0) {
                *word = (InputWord::from(self.rng.bits()) << 64 | InputWord::from(self.rng.bits())) & mask;
            }
        }
        &self.words
    }
}
