//! A search for the most players that are carried: twice as many each time until it is too many, and then halfway between.

/// How many the search begins with.
const INITIAL_PLAYERS: u32 = 250;
/// No more are tried: a server's socket has 4,096 channels, and every player has one to every server.
pub(super) const MAX_PLAYERS: u32 = 4_000;
/// The search ends when it is known to one part in so many.
const PRECISION_DIVISOR: u32 = 12;

/// What is known of how many are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CapacitySearch {
    /// The most that were carried.
    pub(super) max_carried: u32,
    /// The fewest that were not.
    pub(super) min_overloaded: Option<u32>,
}

impl CapacitySearch {
    /// How many are to be tried next; nobody if it is known well enough.
    pub(super) fn next_count(&self) -> Option<u32> {
        match self.min_overloaded {
            None if self.max_carried >= MAX_PLAYERS => None,
            None => Some((self.max_carried * 2).clamp(INITIAL_PLAYERS, MAX_PLAYERS)),
            Some(refused) if refused - self.max_carried <= (refused / PRECISION_DIVISOR).max(1) => None,
            Some(refused) => {
                Some(round_player_count(self.max_carried + (refused - self.max_carried) / 2).max(self.max_carried + 1))
            }
        }
    }

    /// So many were carried, or were not. Fewer than were carried before are carried, whatever happened this time.
    pub(super) fn record(&mut self, players: u32, is_carried: bool) {
        if is_carried {
            self.max_carried = self.max_carried.max(players);
        } else if players > self.max_carried {
            self.min_overloaded = Some(self.min_overloaded.map_or(players, |fewest| fewest.min(players)));
        }
        self.min_overloaded = self.min_overloaded.filter(|refused| *refused > self.max_carried);
    }
}

/// Nobody needs to know it to one player.
fn round_player_count(players: u32) -> u32 {
    if players >= 100 { players / 10 * 10 } else { players }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches where so many are carried: what is found, and after how many trials.
    fn search_with_limit(limit: u32) -> (CapacitySearch, usize) {
        let mut search = CapacitySearch::default();
        let mut trials = 0;
        while let Some(players) = search.next_count() {
            search.record(players, players <= limit);
            trials += 1;
            assert!(trials < 100, "it does not end with {limit}");
        }
        (search, trials)
    }

    #[test]
    fn capacity_is_found_in_few_trials() {
        for limit in (0..MAX_PLAYERS).step_by(37) {
            let (CapacitySearch { max_carried: carried, min_overloaded: refused }, trials) = search_with_limit(limit);
            let refused = refused.expect("more were tried");
            assert!(carried <= limit && limit < refused, "{carried} {limit} {refused}");
            assert!(refused - carried <= (refused / PRECISION_DIVISOR).max(1), "{carried} {refused}");
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
        assert_eq!(search, CapacitySearch { max_carried: 1_000, min_overloaded: None }, "the second time it went well");
    }
}
