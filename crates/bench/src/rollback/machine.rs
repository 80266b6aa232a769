//! What stands for a game: 4 KiB of state, of which a step changes a little.

/// The size of a state in bytes.
pub const SIZE: usize = 4_096;
const WORDS: usize = SIZE / size_of::<u64>();
/// An odd number with no pattern in its bits.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A state. Its first word is a digest of everything that ever went in, and of what the other words were on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    words: [u64; WORDS],
}

impl Machine {
    /// The state before the first frame.
    pub const NEW: Self = Self { words: [0; WORDS] };

    /// One frame.
    #[inline]
    pub fn step(&mut self, inputs: impl Iterator<Item = u16>) {
        let folded = inputs.fold(self.words[0], |digest, input| (digest ^ u64::from(input)).rotate_left(7));
        let mixed = (folded ^ folded >> 32).wrapping_mul(MIX);
        let place = 1 + (mixed >> 32) as usize % (WORDS - 1);
        let before = std::mem::replace(&mut self.words[place], mixed);
        self.words[0] = mixed.wrapping_add(before.rotate_left(32));
    }

    /// A number that differs if anything went in differently.
    pub fn digest(&self) -> u64 {
        self.words[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_its_size() {
        assert_eq!(size_of::<Machine>(), SIZE);
    }

    #[test]
    fn every_word_counts() {
        let mut machine = Machine::NEW;
        let mut other = Machine { words: [1; WORDS] };
        other.words[0] = machine.words[0];
        machine.step([7].into_iter());
        other.step([7].into_iter());
        assert_ne!(machine.digest(), other.digest());
    }

    #[test]
    fn every_input_of_every_player_counts() {
        let after = |frames: &[[u16; 2]]| {
            let mut machine = Machine::NEW;
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
