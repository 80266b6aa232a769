//! Replay protection: tells new packets from repeated ones.

/// Number of the newest packet numbers that are tracked; packets with lower numbers count as replayed.
const REPLAY_DEPTH: u64 = 1_024;
const BITMAP_WORDS: usize = REPLAY_DEPTH as usize / 64;

/// Bitmap of the newest packet numbers, with a bit for each that was received.
#[derive(Debug, Default)]
pub struct ReplayFilter {
    /// Highest received packet number plus one; 0 before the first packet.
    next_number: u64,
    bitmap: [u64; BITMAP_WORDS],
}

impl ReplayFilter {
    /// Creates a filter that has seen no packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the full packet number for its low 32 bits: the one nearest to the expected number.
    pub fn expand_number(&self, low: u32) -> u64 {
        let expected = self.next_number;
        let ahead = i64::from(low.wrapping_sub(expected as u32) as i32);
        expected.checked_add_signed(ahead).unwrap_or(u64::from(low))
    }

    /// Returns whether a packet number is new; a number below the tracked range is not.
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.next_number
            || self.next_number - number <= REPLAY_DEPTH && self.bitmap[word(number)] & bit(number) == 0
    }

    /// Records the number of an authentic, new packet. Returns whether it is the highest number so far.
    pub fn record(&mut self, number: u64) -> bool {
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
        let mut filter = ReplayFilter::new();
        for number in [0, 1, 5, 3, 2, 4, 1_000, 700, 1_700, 100_000, 99_999, 98_977] {
            assert!(filter.is_new(number), "{number}");
            filter.record(number);
            assert!(!filter.is_new(number), "{number}");
        }
    }

    #[test]
    fn numbers_older_than_the_replay_depth_are_rejected() {
        let mut filter = ReplayFilter::new();
        filter.record(5_000);
        assert!(!filter.is_new(5_000 - REPLAY_DEPTH) && filter.is_new(5_001 - REPLAY_DEPTH));
    }

    #[test]
    fn truncated_numbers_expand_to_the_nearest() {
        let mut filter = ReplayFilter::new();
        assert_eq!(filter.expand_number(7), 7);
        filter.record((1 << 32) - 2);
        assert_eq!(
            (filter.expand_number(u32::MAX), filter.expand_number(3), filter.expand_number(u32::MAX - 9)),
            ((1 << 32) - 1, (1 << 32) + 3, (1 << 32) - 10)
        );
    }
}
