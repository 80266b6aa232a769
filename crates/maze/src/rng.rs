//! Seeded pseudo-random numbers, equal on every platform.

/// Random number generator (splitmix64, after Steele, Lea and Flood). The sequence of a seed is the same on every
/// platform and must never change.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a generator whose sequence depends on all `numbers` and on their order.
    pub(crate) fn from_parts(numbers: &[u64]) -> Self {
        numbers.iter().fold(Self(0), |mut rng, number| Self(rng.next_u64() ^ number))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, which must not be zero. The modulo bias is negligible for the small `end` in use.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((self.next_u64() >> 32) % u64::from(end)) as u32
    }

    /// Returns a random number from `-most` to `most`, both included.
    pub(crate) fn symmetric(&mut self, most: u16) -> i32 {
        self.below(2 * u32::from(most) + 1) as i32 - i32::from(most)
    }

    pub(crate) fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }

    /// Picks one of the items. `items` must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u32) as usize]
    }
}
