//! Random inputs; equal seeds give equal inputs.

use coplay::input::InputWord;

use crate::pad::{PadLayout, StickAxis};

/// On average, a player's input word is redrawn in one frame out of this many.
const CHANGE_ONE_IN: u64 = 8;

/// Random number generator (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`. The bias of the modulo is negligible for the small numbers used here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next_u64() >> 16) % end
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn next_word(&mut self) -> InputWord {
        InputWord::from(self.next_u64()) << 64 | InputWord::from(self.next_u64())
    }
}

/// The inputs of all frames and players, generated on demand.
#[derive(Debug)]
pub(super) struct InputScript {
    rng: SplitMix64,
    masks: Vec<InputWord>,
    /// Input words, frame after frame, one word per player.
    words: Vec<InputWord>,
}

impl InputScript {
    pub(super) fn new(seed: u64, pads: &[PadLayout]) -> Self {
        Self { rng: SplitMix64::new(seed), masks: pads.iter().map(|pad| pad.mask).collect(), words: Vec::new() }
    }

    /// Returns the inputs of a frame, one word per player.
    pub(super) fn inputs_at(&mut self, frame: u32) -> &[InputWord] {
        let players = self.masks.len();
        let from = frame as usize * players;
        while self.words.len() < from + players {
            let player = self.words.len() % players;
            let previous = self.words.len().checked_sub(players).map_or(0, |at| self.words[at]);
            let changes = self.rng.one_in(CHANGE_ONE_IN);
            let word = if changes { random_input(&mut self.rng) & self.masks[player] } else { previous };
            self.words.push(word);
        }
        &self.words[from..from + players]
    }
}

/// Returns a random input word: no button, a few buttons or any combination; each axis centred, at an end or anywhere.
fn random_input(rng: &mut SplitMix64) -> InputWord {
    let buttons = match rng.below(4) {
        0 => 0,
        1 | 2 => rng.next_word() & rng.next_word() & rng.next_word(),
        _ => rng.next_word(),
    };
    StickAxis::ALL.into_iter().fold(buttons, |word, axis| {
        let position = match rng.below(4) {
            0 => 0,
            1 => i16::MIN,
            2 => i16::MAX,
            _ => rng.next_u64() as i16,
        };
        word & !axis.mask() | axis.word_at(position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pad::Button;

    #[test]
    fn scripted_inputs_do_not_depend_on_access_order_and_respect_pad_masks() {
        let stick = PadLayout { mask: StickAxis::LeftX.mask() | Button::B.bit(), labels: Vec::new() };
        let pads = [PadLayout::with_buttons(&[Button::A, Button::Up]), stick];
        let (mut forward, mut backward) = (InputScript::new(3, &pads), InputScript::new(3, &pads));
        let all: Vec<Vec<InputWord>> = (0..500).map(|frame| forward.inputs_at(frame).to_vec()).collect();
        for (frame, words) in all.iter().enumerate().rev() {
            assert_eq!(backward.inputs_at(frame as u32), words);
            assert!(words.iter().zip(&pads).all(|(word, pad)| word & !pad.mask == 0));
        }
        let changes = all.windows(2).filter(|pair| pair[0][0] != pair[1][0]).count();
        assert!((25..100).contains(&changes), "{changes}");
        assert!(all.iter().any(|words| StickAxis::LeftX.position(words[1]) == i16::MIN));
        assert_ne!(InputScript::new(4, &pads).inputs_at(499), all[499]);
    }
}
