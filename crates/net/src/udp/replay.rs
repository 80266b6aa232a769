//! Telling packets that come for the first time from those that come again.

/// Packets further behind the newest than this are taken for old ones.
const WINDOW: u64 = 1_024;
const WORDS: usize = WINDOW as usize / 64;

/// Which of the newest packets were seen.
#[derive(Debug)]
pub(crate) struct Seen {
    /// One more than the highest number seen.
    next: u64,
    bits: [u64; WORDS],
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self { next: 0, bits: [0; WORDS] }
    }

    /// The number that the low 32 bits of one stand for: the nearest to what is expected.
    pub(crate) fn widen(&self, low: u32) -> u64 {
        let near = self.next;
        let ahead = i64::from(low.wrapping_sub(near as u32) as i32);
        near.checked_add_signed(ahead).unwrap_or(u64::from(low))
    }

    /// Whether a packet of this number was not seen before, as far as can be told.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number >= self.next || self.next - number <= WINDOW && self.bits[word(number)] & bit(number) == 0
    }

    /// Notes a packet that proved to be genuine; says whether it is the newest.
    pub(crate) fn note(&mut self, number: u64) -> bool {
        let newest = number >= self.next;
        if newest {
            let skipped = number - self.next;
            if skipped >= WINDOW {
                self.bits = [0; WORDS];
            } else {
                (self.next..number).for_each(|between| self.bits[word(between)] &= !bit(between));
            }
            self.next = number + 1;
        }
        self.bits[word(number)] |= bit(number);
        newest
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_new_once() {
        let mut seen = Seen::new();
        for number in [0, 1, 5, 3, 2, 4, 1_000, 700, 1_700, 100_000, 99_999, 98_977] {
            assert!(seen.is_new(number), "{number}");
            seen.note(number);
            assert!(!seen.is_new(number), "{number}");
        }
    }

    #[test]
    fn what_is_too_old_is_not_new() {
        let mut seen = Seen::new();
        seen.note(5_000);
        assert!(!seen.is_new(5_000 - WINDOW) && seen.is_new(5_001 - WINDOW));
    }

    #[test]
    fn numbers_are_widened_to_the_nearest() {
        let mut seen = Seen::new();
        assert_eq!(seen.widen(7), 7);
        seen.note((1 << 32) - 2);
        assert_eq!(
            (seen.widen(u32::MAX), seen.widen(3), seen.widen(u32::MAX - 9)),
            ((1 << 32) - 1, (1 << 32) + 3, (1 << 32) - 10)
        );
    }
}
