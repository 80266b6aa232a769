//! What members say of others makes us call, and calls cost us and who is called. So each of them is heeded only so often.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use super::MAX_MEMBERS;
use super::member_table::MAX_KNOWN_MEMBERS;
use crate::key::PeerKey;

/// So often somebody is heeded at once: who lets us in tells us of all.
const DIAL_BURST: i64 = MAX_MEMBERS as i64;
/// And then so often. Who hears some that we do not tells us of them again and again, but no more often than this for each of us.
const DIAL_REFILL_INTERVAL: TimeDelta = TimeDelta::from_secs(5);

/// How often who was heeded of late.
#[derive(Debug, Default)]
pub(super) struct DialLimiter {
    /// When all that somebody was heeded for is made up for.
    replenished_at: BTreeMap<PeerKey, Instant>,
}

impl DialLimiter {
    /// Whether to heed somebody once more; then it counts.
    pub(super) fn try_acquire(&mut self, now: Instant, teller: &PeerKey) -> bool {
        self.replenished_at.retain(|_, even| *even > now);
        if self.replenished_at.len() >= MAX_KNOWN_MEMBERS && !self.replenished_at.contains_key(teller) {
            return false;
        }
        let even = self.replenished_at.entry(*teller).or_insert(now);
        let heeded = *even - now <= DIAL_REFILL_INTERVAL * (DIAL_BURST - 1);
        if heeded {
            *even += DIAL_REFILL_INTERVAL;
        }
        heeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_secs(1_000 + seconds)
    }

    fn count_allowed(hearsay: &mut DialLimiter, now: Instant, teller: u8) -> usize {
        (0..500).filter(|_| hearsay.try_acquire(now, &PeerKey([teller; 32]))).count()
    }

    #[test]
    fn dials_per_reporting_peer_are_limited_to_burst_and_rate() {
        let mut hearsay = DialLimiter::default();
        assert_eq!(count_allowed(&mut hearsay, at(0), 1), MAX_MEMBERS);
        assert_eq!(count_allowed(&mut hearsay, at(0), 2), MAX_MEMBERS, "another one is another matter");
        assert_eq!(count_allowed(&mut hearsay, at(4), 1), 0);
        assert_eq!(count_allowed(&mut hearsay, at(15), 1), 3);
        assert_eq!(count_allowed(&mut hearsay, at(1_000), 1), MAX_MEMBERS, "it is made up for");
    }

    #[test]
    fn number_of_tracked_reporting_peers_is_bounded() {
        let mut hearsay = DialLimiter::default();
        for teller in 0..=255 {
            hearsay.try_acquire(at(0), &PeerKey([teller; 32]));
        }
        assert_eq!(hearsay.replenished_at.len(), MAX_KNOWN_MEMBERS);
        assert!(hearsay.try_acquire(at(6), &PeerKey([255; 32])));
        assert_eq!(hearsay.replenished_at.len(), 1);
    }
}
