//! How much somebody may say.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::PeerKey;

/// Lines that somebody may say at once, and how long it takes until one more may follow.
const CHAT_BURST: u32 = 5;
const CHAT_REFILL_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// And all who look on together: each line of theirs goes to everybody, and there may be thousands.
const SPECTATOR_CHAT_BURST: u32 = 10;

/// Counts lines, so that nobody drowns the others out. Whoever has said nothing for a while is forgotten.
#[derive(Debug, Default)]
pub(super) struct ChatLimiter {
    allowances: BTreeMap<PeerKey, ChatAllowance>,
    spectator_allowance: ChatAllowance,
}

/// Lines that were said and are not made up for yet: an instant that each line puts off.
#[derive(Clone, Copy, Debug, Default)]
struct ChatAllowance {
    replenished_at: Instant,
}

impl ChatAllowance {
    fn has_room(self, now: Instant, at_once: u32) -> bool {
        self.replenished_at - now <= CHAT_REFILL_INTERVAL * i64::from(at_once - 1)
    }

    fn consume(&mut self, now: Instant) {
        self.replenished_at = self.replenished_at.max(now) + CHAT_REFILL_INTERVAL;
    }
}

impl ChatLimiter {
    /// Whether somebody may say one more line now; if so, it counts.
    pub(super) fn try_acquire(&mut self, now: Instant, who: PeerKey, is_crowd: bool) -> bool {
        self.allowances.retain(|_, spent| spent.replenished_at > now);
        let spent = self.allowances.get(&who).copied().unwrap_or_default();
        if !spent.has_room(now, CHAT_BURST) || is_crowd && !self.spectator_allowance.has_room(now, SPECTATOR_CHAT_BURST)
        {
            return false;
        }
        self.allowances.entry(who).or_default().consume(now);
        if is_crowd {
            self.spectator_allowance.consume(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_allowed(talk: &mut ChatLimiter, now: Instant, who: u8, is_crowd: bool) -> usize {
        (0..100).filter(|_| talk.try_acquire(now, PeerKey([who; 32]), is_crowd)).count()
    }

    #[test]
    fn chat_burst_is_five_then_one_per_second() {
        let (mut talk, now) = (ChatLimiter::default(), Instant::ZERO + TimeDelta::from_secs(100));
        assert_eq!(count_allowed(&mut talk, now, 1, false), 5);
        assert_eq!(count_allowed(&mut talk, now, 2, false), 5, "each has its own");
        assert_eq!(count_allowed(&mut talk, now + TimeDelta::from_millis(2_500), 1, false), 2);
        assert_eq!(count_allowed(&mut talk, now + TimeDelta::from_secs(60), 1, false), 5);
        assert_eq!(talk.allowances.len(), 1, "who has been quiet is forgotten");
    }

    #[test]
    fn spectators_share_one_chat_allowance() {
        let (mut talk, now) = (ChatLimiter::default(), Instant::ZERO + TimeDelta::from_secs(100));
        let all: usize = (0..50).map(|who| count_allowed(&mut talk, now, who, true)).sum();
        assert_eq!(all, 10);
        assert_eq!(count_allowed(&mut talk, now, 99, false), 5, "those who play are still heard");
    }
}
