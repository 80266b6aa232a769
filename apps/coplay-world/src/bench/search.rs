//! A search for the most players that are carried: twice as many each time until it is too many, and then halfway between.

/// How many the search begins with.
const FIRST: u32 = 250;
/// No more are tried: a server's socket has 4,096 channels, and every player has one to every server.
pub(super) const MOST: u32 = 4_000;
/// The search ends when it is known to one part in so many.
const EXACT: u32 = 12;

/// What is known of how many are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The most that were carried.
    pub(super) carried: u32,
    /// The fewest that were not.
    pub(super) refused: Option<u32>,
}

impl Search {
    /// How many are to be tried next; nobody if it is known well enough.
    pub(super) fn next(&self) -> Option<u32> {
        match self.refused {
            None if self.carried >= MOST => None,
            None => Some((self.carried * 2).clamp(FIRST, MOST)),
            Some(refused) if refused - self.carried <= (refused / EXACT).max(1) => None,
            Some(refused) => Some(rounded(self.carried + (refused - self.carried) / 2).max(self.carried + 1)),
        }
    }

    /// So many were carried, or were not. Fewer than were carried before are carried, whatever happened this time.
    pub(super) fn learn(&mut self, players: u32, is_carried: bool) {
        if is_carried {
            self.carried = self.carried.max(players);
        } else if players > self.carried {
            self.refused = Some(self.refused.map_or(players, |fewest| fewest.min(players)));
        }
        self.refused = self.refused.filter(|refused| *refused > self.carried);
    }
}

/// Nobody needs to know it to one player.
fn rounded(players: u32) -> u32 {
    if players >= 100 { players / 10 * 10 } else { players }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches where so many are carried: what is found, and after how many trials.
    fn found(limit: u32) -> (Search, usize) {
        let mut search = Search::default();
        let mut trials = 0;
        while let Some(players) = search.next() {
            search.learn(players, players <= limit);
            trials += 1;
            assert!(trials < 100, "it does not end with {limit}");
        }
        (search, trials)
    }

    #[test]
    fn what_is_carried_is_found_in_few_trials() {
        for limit in (0..MOST).step_by(37) {
            let (Search { carried, refused }, trials) = found(limit);
            let refused = refused.expect("more were tried");
            assert!(carried <= limit && limit < refused, "{carried} {limit} {refused}");
            assert!(refused - carried <= (refused / EXACT).max(1), "{carried} {refused}");
            assert!(limit < FIRST || trials <= 10, "{limit} took {trials} trials");
        }
        assert_eq!(found(MOST + 1).0, Search { carried: MOST, refused: None });
    }

    #[test]
    fn what_was_carried_once_is_carried() {
        let mut search = Search::default();
        search.learn(500, true);
        search.learn(250, false);
        assert_eq!(search, Search { carried: 500, refused: None });
        search.learn(1_000, false);
        search.learn(1_000, true);
        assert_eq!(search, Search { carried: 1_000, refused: None }, "the second time it went well");
    }
}
