//! Search for the largest number of players that is carried: doubles the number until it is too large, then bisects.

/// Number of players in the first measurement.
const INITIAL_PLAYERS: u32 = 250;
/// Largest number of players that is measured: a server's socket has 4,096 channels, and every player has one to every
/// server.
pub(super) const MAX_PLAYERS: u32 = 4_000;
/// Precision of the search: it ends once the bounds differ by at most the upper bound divided by this number.
const PRECISION_DIVISOR: u32 = 12;

/// Bounds of the largest number of players that the servers carry, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CapacitySearch {
    /// Largest number of players that was carried; 0 before the first such measurement.
    pub(super) max_carried: u32,
    /// Smallest number of players that was not carried; `None` while all measured numbers were carried.
    pub(super) min_overloaded: Option<u32>,
}

impl CapacitySearch {
    /// Returns the number of players to measure next; `None` if the limit is known to one part in 12, or
    /// [`MAX_PLAYERS`] are carried.
    pub(super) fn next_count(&self) -> Option<u32> {
        match self.min_overloaded {
            None if self.max_carried >= MAX_PLAYERS => None,
            None => Some((self.max_carried * 2).clamp(INITIAL_PLAYERS, MAX_PLAYERS)),
            Some(overloaded) if overloaded - self.max_carried <= (overloaded / PRECISION_DIVISOR).max(1) => None,
            Some(overloaded) => Some(
                round_player_count(self.max_carried + (overloaded - self.max_carried) / 2).max(self.max_carried + 1),
            ),
        }
    }

    /// Records a result. A number below one that was carried counts as carried, whatever its own result.
    pub(super) fn record(&mut self, players: u32, is_carried: bool) {
        if is_carried {
            self.max_carried = self.max_carried.max(players);
        } else if players > self.max_carried {
            self.min_overloaded = Some(self.min_overloaded.map_or(players, |fewest| fewest.min(players)));
        }
        self.min_overloaded = self.min_overloaded.filter(|overloaded| *overloaded > self.max_carried);
    }
}

/// Rounds a number of players down to a multiple of 10 from 100 on: the exact number does not matter.
fn round_player_count(players: u32) -> u32 {
    if players >= 100 { players / 10 * 10 } else { players }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for a known limit. Returns the result and the number of measurements.
    fn search_with_limit(limit: u32) -> (CapacitySearch, usize) {
        let mut search = CapacitySearch::default();
        let mut trials = 0;
        while let Some(players) = search.next_count() {
            search.record(players, players <= limit);
            trials += 1;
            assert!(trials < 100, "the search for {limit} does not end");
        }
        (search, trials)
    }

    #[test]
    fn capacity_is_found_in_few_trials() {
        for limit in (0..MAX_PLAYERS).step_by(37) {
            let (CapacitySearch { max_carried: carried, min_overloaded }, trials) = search_with_limit(limit);
            let overloaded = min_overloaded.expect("a larger number was tried");
            assert!(carried <= limit && limit < overloaded, "{carried} {limit} {overloaded}");
            assert!(overloaded - carried <= (overloaded / PRECISION_DIVISOR).max(1), "{carried} {overloaded}");
            assert!(limit < INITIAL_PLAYERS || trials <= 10, "{limit} took {trials} trials");
        }
        assert_eq!(
            search_with_limit(MAX_PLAYERS + 1).0,
            CapacitySearch { max_carried: MAX_PLAYERS, min_overloaded: None }
        );
    }

    #[test]
    fn carried_count_is_never_retracted() {
        let mut search = CapacitySearch::default();
        search.record(500, true);
        search.record(250, false);
        assert_eq!(search, CapacitySearch { max_carried: 500, min_overloaded: None });
        search.record(1_000, false);
        search.record(1_000, true);
        assert_eq!(search, CapacitySearch { max_carried: 1_000, min_overloaded: None }, "the second result is ignored");
    }
}
