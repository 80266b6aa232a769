//! Telling packets that come for the first time from those that come again.

/// Packets further behind the newest than this are taken for old ones.
const REPLAY_DEPTH: u64 = 1_024;
const BITMAP_WORDS: usize = REPLAY_DEPTH as usize / 64;

/// Which of the newest packets were seen.
#[derive(Debug)]
pub(crate) struct ReplayFilter {
    /// One more than the highest number seen.
    next_number: u64,
    bitmap: [u64; BITMAP_WORDS],
}

impl ReplayFilter {
    pub(crate) fn new() -> Self {
        Self { next_number: 0, bitmap: [0; BITMAP_WORDS] }
    }

    /// The number that the low 32 bits of one stand for: the nearest to what is expected.
    pub(crate) fn expand_number(&self, low: u32) -> u64 {
        let near = self.next_number;
        let ahead = i64::from(low.wrapping_sub(near as u32) as i32);
        near.checked_add_signed(ahead).unwrap_or(u64::from(low))
    }

    /// Whether a packet of this number was not seen before, as far as can be told.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number >= self.next_number
            || self.next_number - number <= REPLAY_DEPTH && self.bitmap[word(number)] & bit(number) == 0
    }

    /// Notes a packet that proved to be genuine; says whether it is the newest.
    pub(crate) fn record(&mut self, number: u64) -> bool {
        let newest = number >= self.next_number;
        if newest {
            let skipped = number - self.next_number;
            if skipped >= REPLAY_DEPTH {
                self.bitmap = [0; BITMAP_WORDS];
            } else {
                (self.next_number..number).for_each(|between| self.bitmap[word(between)] &= !bit(between));
            }
            self.next_number = number + 1;
        }
        self.bitmap[word(number)] |= bit(number);
        newest
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % BITMAP_WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_accepted_once() {
        let mut seen = ReplayFilter::new();
        for number in [0, 1, 5, 3, 2, 4, 1_000, 700, 1_700, 100_000, 99_999, 98_977] {
            assert!(seen.is_new(number), "{number}");
            seen.record(number);
            assert!(!seen.is_new(number), "{number}");
        }
    }

    #[test]
    fn numbers_older_than_the_replay_depth_are_rejected() {
        let mut seen = ReplayFilter::new();
        seen.record(5_000);
        assert!(!seen.is_new(5_000 - REPLAY_DEPTH) && seen.is_new(5_001 - REPLAY_DEPTH));
    }

    #[test]
    fn truncated_numbers_expand_to_the_nearest() {
        let mut seen = ReplayFilter::new();
        assert_eq!(seen.expand_number(7), 7);
        seen.record((1 << 32) - 2);
        assert_eq!(
            (seen.expand_number(u32::MAX), seen.expand_number(3), seen.expand_number(u32::MAX - 9)),
            ((1 << 32) - 1, (1 << 32) + 3, (1 << 32) - 10)
        );
    }
}
