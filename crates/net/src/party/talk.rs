//! How much somebody may say.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::PeerKey;

/// Lines that somebody may say at once, and how long it takes until one more may follow.
const AT_ONCE: u32 = 5;
const ONE_MORE: TimeDelta = TimeDelta::from_secs(1);
/// And all who look on together: each line of theirs goes to everybody, and there may be thousands.
const CROWD_AT_ONCE: u32 = 10;

/// Counts lines, so that nobody drowns the others out. Whoever has said nothing for a while is forgotten.
#[derive(Debug, Default)]
pub(super) struct Talk {
    spent: BTreeMap<PeerKey, Spent>,
    by_crowd: Spent,
}

/// Lines that were said and are not made up for yet: an instant that each line puts off.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    until: Instant,
}

impl Spent {
    fn may(self, now: Instant, at_once: u32) -> bool {
        self.until - now <= ONE_MORE * i64::from(at_once - 1)
    }

    fn spend(&mut self, now: Instant) {
        self.until = self.until.max(now) + ONE_MORE;
    }
}

impl Talk {
    /// Whether somebody may say one more line now; if so, it counts.
    pub(super) fn allows(&mut self, now: Instant, who: PeerKey, is_crowd: bool) -> bool {
        self.spent.retain(|_, spent| spent.until > now);
        let spent = self.spent.get(&who).copied().unwrap_or_default();
        if !spent.may(now, AT_ONCE) || is_crowd && !self.by_crowd.may(now, CROWD_AT_ONCE) {
            return false;
        }
        self.spent.entry(who).or_default().spend(now);
        if is_crowd {
            self.by_crowd.spend(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(talk: &mut Talk, now: Instant, who: u8, is_crowd: bool) -> usize {
        (0..100).filter(|_| talk.allows(now, PeerKey([who; 32]), is_crowd)).count()
    }

    #[test]
    fn five_lines_at_once_and_then_one_a_second() {
        let (mut talk, now) = (Talk::default(), Instant::ZERO + TimeDelta::from_secs(100));
        assert_eq!(said(&mut talk, now, 1, false), 5);
        assert_eq!(said(&mut talk, now, 2, false), 5, "each has its own");
        assert_eq!(said(&mut talk, now + TimeDelta::from_millis(2_500), 1, false), 2);
        assert_eq!(said(&mut talk, now + TimeDelta::from_secs(60), 1, false), 5);
        assert_eq!(talk.spent.len(), 1, "who has been quiet is forgotten");
    }

    #[test]
    fn a_crowd_says_no_more_than_two_do() {
        let (mut talk, now) = (Talk::default(), Instant::ZERO + TimeDelta::from_secs(100));
        let all: usize = (0..50).map(|who| said(&mut talk, now, who, true)).sum();
        assert_eq!(all, 10);
        assert_eq!(said(&mut talk, now, 99, false), 5, "those who play are still heard");
    }
}
