//! A machine in place of a game: 4 KiB of state, of which a step changes little.

/// Size of a state in bytes.
pub const STATE_BYTES: usize = 4_096;
const STATE_WORDS: usize = STATE_BYTES / size_of::<u64>();
/// Odd multiplier with an irregular bit pattern, which mixes the digest.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The machine, which is its own state. Its first word is a digest of all inputs and of all words overwritten so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackMachine {
    words: [u64; STATE_WORDS],
}

impl RollbackMachine {
    /// State before the first frame.
    pub const NEW: Self = Self { words: [0; STATE_WORDS] };

    /// Advances one frame with one input per player and changes at most two words.
    #[inline]
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) {
        let folded = inputs.fold(self.words[0], |digest, input| (digest ^ u64::from(input)).rotate_left(7));
        let mixed = (folded ^ folded >> 32).wrapping_mul(HASH_MULTIPLIER);
        let index = 1 + (mixed >> 32) as usize % (STATE_WORDS - 1);
        let before = std::mem::replace(&mut self.words[index], mixed);
        self.words[0] = mixed.wrapping_add(before.rotate_left(32));
    }

    /// Returns a digest that differs, with high probability, if any input differed.
    pub fn digest(&self) -> u64 {
        self.words[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_has_its_declared_size() {
        assert_eq!(size_of::<RollbackMachine>(), STATE_BYTES);
    }

    #[test]
    fn every_state_word_changes_the_digest() {
        let mut machine = RollbackMachine::NEW;
        let mut other = RollbackMachine { words: [1; STATE_WORDS] };
        other.words[0] = machine.words[0];
        machine.step([7].into_iter());
        other.step([7].into_iter());
        assert_ne!(machine.digest(), other.digest());
    }

    #[test]
    fn every_input_of_every_player_changes_the_digest() {
        let after = |frames: &[[u16; 2]]| {
            let mut machine = RollbackMachine::NEW;
            frames.iter().for_each(|inputs| machine.step(inputs.iter().copied()));
            machine.digest()
        };
        let digests =
            [&[[1, 0], [0, 0]], &[[0, 1], [0, 0]], &[[0, 0], [1, 0]], &[[0, 0], [0, 1]]].map(|frames| after(frames));
        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest));
        }
    }
}
