//! Rate limit of chat lines.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::PeerKey;

/// Number of chat lines that a sender may send at once.
const CHAT_BURST: u32 = 5;
/// Interval after which a sender, or all spectators together, may send one more line.
const CHAT_REFILL_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Number of chat lines that all spectators together may send at once: each line goes to all members and spectators,
/// and there may be thousands of spectators.
const SPECTATOR_CHAT_BURST: u32 = 10;

/// Token buckets that limit the chat lines of each sender and of all spectators together. A sender's bucket that is
/// full again is forgotten.
#[derive(Debug, Default)]
pub(super) struct ChatLimiter {
    allowances: BTreeMap<PeerKey, ChatAllowance>,
    spectator_allowance: ChatAllowance,
}

/// Token bucket, stored as the time at which it is full again; each line postpones that time.
#[derive(Clone, Copy, Debug, Default)]
struct ChatAllowance {
    replenished_at: Instant,
}

impl ChatAllowance {
    fn has_room(self, now: Instant, burst: u32) -> bool {
        self.replenished_at - now <= CHAT_REFILL_INTERVAL * i64::from(burst - 1)
    }

    fn consume(&mut self, now: Instant) {
        self.replenished_at = self.replenished_at.max(now) + CHAT_REFILL_INTERVAL;
    }
}

impl ChatLimiter {
    /// Returns whether `peer` may send one more line now; if so, counts it.
    pub(super) fn try_acquire(&mut self, now: Instant, peer: PeerKey, is_spectator: bool) -> bool {
        self.allowances.retain(|_, allowance| allowance.replenished_at > now);
        let allowance = self.allowances.get(&peer).copied().unwrap_or_default();
        if !allowance.has_room(now, CHAT_BURST)
            || is_spectator && !self.spectator_allowance.has_room(now, SPECTATOR_CHAT_BURST)
        {
            return false;
        }
        self.allowances.entry(peer).or_default().consume(now);
        if is_spectator {
            self.spectator_allowance.consume(now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_allowed(limiter: &mut ChatLimiter, now: Instant, peer: u8, is_spectator: bool) -> usize {
        (0..100).filter(|_| limiter.try_acquire(now, PeerKey([peer; 32]), is_spectator)).count()
    }

    #[test]
    fn chat_burst_is_five_then_one_per_second() {
        let (mut limiter, now) = (ChatLimiter::default(), Instant::ZERO + TimeDelta::from_secs(100));
        assert_eq!(count_allowed(&mut limiter, now, 1, false), 5);
        assert_eq!(count_allowed(&mut limiter, now, 2, false), 5, "each sender has a limit of its own");
        assert_eq!(count_allowed(&mut limiter, now + TimeDelta::from_millis(2_500), 1, false), 2);
        assert_eq!(count_allowed(&mut limiter, now + TimeDelta::from_secs(60), 1, false), 5);
        assert_eq!(limiter.allowances.len(), 1, "silent senders are forgotten");
    }

    #[test]
    fn spectators_share_one_chat_allowance() {
        let (mut limiter, now) = (ChatLimiter::default(), Instant::ZERO + TimeDelta::from_secs(100));
        let all: usize = (0..50).map(|peer| count_allowed(&mut limiter, now, peer, true)).sum();
        assert_eq!(all, 10);
        assert_eq!(count_allowed(&mut limiter, now, 99, false), 5, "players are not limited by spectators");
    }
}
