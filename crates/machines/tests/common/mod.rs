//! What tests and examples share.

#![allow(dead_code, unreachable_pub, reason = "not everybody needs everything")]

pub mod duel;
pub mod odd;
pub mod rom;

use coplay::input::InputWord;
use coplay_machines::nes::{Nes, Options};
use coplay_sim::random::Random;

/// The test game in a machine with two pads.
pub fn nes() -> Nes {
    Nes::open(&rom::image(), "test").expect("a good image")
}

/// The same with four.
pub fn nes_with_four() -> Nes {
    Nes::open_with(&rom::image(), "test", Options { players: 4 }).expect("a good image")
}

/// Words that change now and then.
pub struct Fingers {
    luck: Random,
    words: Vec<InputWord>,
}

impl Fingers {
    pub fn new(seed: u64, players: usize) -> Self {
        Self { luck: Random::stream(seed, "fingers"), words: vec![0; players] }
    }

    /// The words of the next frame, with no bit but those of `mask`.
    pub fn press(&mut self, mask: InputWord) -> &[InputWord] {
        for word in &mut self.words {
            if self.luck.chance(1.0 / 8.0) {
                *word = (InputWord::from(self.luck.bits()) << 64 | InputWord::from(self.luck.bits())) & mask;
            }
        }
        &self.words
    }
}
