//! Bot that presses random buttons. The same seed, player number and pad give the same inputs.

use coplay::input::InputWord;
use coplay_links::random::Random;
use coplay_machines::pad::{Button, PadLayout};

/// One player whose buttons are chosen at random.
#[derive(Clone, Debug)]
pub struct Bot {
    random: Random,
    mask: InputWord,
    word: InputWord,
    /// Number of further frames for which the bot holds the current input.
    frames_left: u64,
    /// Largest number of frames for which the bot holds an input; the smallest is 4.
    max_hold_frames: i64,
}

/// Opposite directions, of which at most one is pressed.
const OPPOSITE_DIRECTIONS: [(Button, Button); 2] = [(Button::Left, Button::Right), (Button::Up, Button::Down)];

impl Bot {
    /// Creates the bot of player `player`, which uses only buttons of this pad and holds each input for 4 to 24 frames.
    pub fn new(seed: u64, player: usize, pad: &PadLayout) -> Self {
        let random = Random::stream(seed, &format!("bot/{player}"));
        Self { random, mask: pad.mask, word: 0, frames_left: 0, max_hold_frames: 24 }
    }

    /// Creates a bot that changes its input every 8 frames on average; each change is likely to be mispredicted.
    pub fn new_restless(seed: u64, player: usize, pad: &PadLayout) -> Self {
        Self { max_hold_frames: 12, ..Self::new(seed, player, pad) }
    }

    /// Returns the bot's input for the next frame.
    pub fn press(&mut self) -> InputWord {
        if self.frames_left == 0 {
            self.word = self.choose_word() & self.mask;
            self.frames_left = self.random.range(4..=self.max_hold_frames) as u64;
        }
        self.frames_left -= 1;
        self.word
    }

    fn choose_word(&mut self) -> InputWord {
        let mut word = 0;
        for (first, second) in OPPOSITE_DIRECTIONS {
            word |= match self.random.below(3) {
                0 => first.bit(),
                1 => second.bit(),
                _ => 0,
            };
        }
        for button in [Button::A, Button::B, Button::X, Button::Y, Button::L, Button::R] {
            word |= if self.random.chance(0.3) { button.bit() } else { 0 };
        }
        // Menus need Start now and then, but it also pauses many games, so it is rare.
        word | if self.random.chance(0.04) { Button::Start.bit() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bot_is_deterministic_per_seed_and_player() {
        let play = |seed, player| {
            let mut bot = Bot::new(seed, player, &PadLayout::with_buttons(&Button::ALL));
            (0..500).map(|_| bot.press()).collect::<Vec<_>>()
        };
        assert_eq!(play(1, 0), play(1, 0));
        assert!(play(1, 0) != play(2, 0) && play(1, 0) != play(1, 1));
    }

    #[test]
    fn bot_respects_pad_mask_and_never_presses_opposite_directions() {
        let pad = PadLayout::with_buttons(&[Button::Left, Button::Right, Button::A]);
        let mut bot = Bot::new(3, 0, &pad);
        for _ in 0..2_000 {
            let word = bot.press();
            assert_eq!(word & !pad.mask, 0);
            assert!(!(Button::Left.is_in(word) && Button::Right.is_in(word)));
        }
    }
}
