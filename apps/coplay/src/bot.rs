//! Somebody to play when nobody does: presses buttons by a seed, the same ones every time.

use coplay::input::InputWord;
use coplay_machines::pad::{Button, Pad};
use coplay_sim::random::Random;

/// One player.
#[derive(Clone, Debug)]
pub struct Bot {
    random: Random,
    mask: InputWord,
    word: InputWord,
    /// Frames for which it stays so.
    frames_left: u64,
    /// How long it stays so at most.
    max_hold_frames: i64,
}

/// Directions that exclude each other.
const OPPOSITE_DIRECTIONS: [(Button, Button); 2] = [(Button::Left, Button::Right), (Button::Up, Button::Down)];

impl Bot {
    /// A player of this number, on this pad.
    pub fn new(seed: u64, player: usize, pad: &Pad) -> Self {
        let random = Random::stream(seed, &format!("bot/{player}"));
        Self { random, mask: pad.mask, word: 0, frames_left: 0, max_hold_frames: 24 }
    }

    /// One that presses something else about every eight frames, so that what others guess is wrong that often.
    pub fn new_restless(seed: u64, player: usize, pad: &Pad) -> Self {
        Self { max_hold_frames: 12, ..Self::new(seed, player, pad) }
    }

    /// What it presses in the next frame.
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
        for (one, other) in OPPOSITE_DIRECTIONS {
            word |= match self.random.below(3) {
                0 => one.bit(),
                1 => other.bit(),
                _ => 0,
            };
        }
        for button in [Button::A, Button::B, Button::X, Button::Y, Button::L, Button::R] {
            word |= if self.random.chance(0.3) { button.bit() } else { 0 };
        }
        // Menus want it now and then; a game that is paused all the time is no game.
        word | if self.random.chance(0.04) { Button::Start.bit() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bot_is_deterministic_per_seed_and_player() {
        let play = |seed, player| {
            let mut bot = Bot::new(seed, player, &Pad::with_buttons(&Button::ALL));
            (0..500).map(|_| bot.press()).collect::<Vec<_>>()
        };
        assert_eq!(play(1, 0), play(1, 0));
        assert!(play(1, 0) != play(2, 0) && play(1, 0) != play(1, 1));
    }

    #[test]
    fn bot_respects_pad_mask_and_never_presses_opposite_directions() {
        let pad = Pad::with_buttons(&[Button::Left, Button::Right, Button::A]);
        let mut bot = Bot::new(3, 0, &pad);
        for _ in 0..2_000 {
            let word = bot.press();
            assert_eq!(word & !pad.mask, 0);
            assert!(!(Button::Left.is_in(word) && Button::Right.is_in(word)));
        }
    }
}
