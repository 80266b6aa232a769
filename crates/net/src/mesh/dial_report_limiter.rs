//! Limits the dials that the reports of one member cause, because each dial costs this site and the dialed site time
//! and traffic.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use super::{MAX_KNOWN_MEMBERS, MAX_MEMBERS};
use crate::key::PeerKey;

/// Maximum number of reports of one member that are accepted at once. The admitting member reports all others at once.
const DIAL_BURST: i64 = MAX_MEMBERS as i64;
/// Interval at which one more report is accepted: a member gossips no more often than this.
const DIAL_REFILL_INTERVAL: TimeDelta = TimeDelta::from_secs(5);

/// Token buckets of the reporting members.
#[derive(Debug, Default)]
pub(super) struct DialReportLimiter {
    /// Time at which the bucket of each member is full again.
    replenished_at: BTreeMap<PeerKey, Instant>,
}

impl DialReportLimiter {
    /// Returns whether to accept one more report of `reporter`; if so, counts it.
    pub(super) fn try_acquire(&mut self, now: Instant, reporter: &PeerKey) -> bool {
        self.replenished_at.retain(|_, full_at| *full_at > now);
        if self.replenished_at.len() >= MAX_KNOWN_MEMBERS && !self.replenished_at.contains_key(reporter) {
            return false;
        }
        let full_at = self.replenished_at.entry(*reporter).or_insert(now);
        let allowed = *full_at - now <= DIAL_REFILL_INTERVAL * (DIAL_BURST - 1);
        if allowed {
            *full_at += DIAL_REFILL_INTERVAL;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_secs(1_000 + seconds)
    }

    fn count_allowed(limiter: &mut DialReportLimiter, now: Instant, reporter: u8) -> usize {
        (0..500).filter(|_| limiter.try_acquire(now, &PeerKey([reporter; 32]))).count()
    }

    #[test]
    fn dials_per_reporting_peer_are_limited_to_burst_and_rate() {
        let mut limiter = DialReportLimiter::default();
        assert_eq!(count_allowed(&mut limiter, at(0), 1), MAX_MEMBERS);
        assert_eq!(count_allowed(&mut limiter, at(0), 2), MAX_MEMBERS, "each member has a limit of its own");
        assert_eq!(count_allowed(&mut limiter, at(4), 1), 0);
        assert_eq!(count_allowed(&mut limiter, at(15), 1), 3);
        assert_eq!(count_allowed(&mut limiter, at(1_000), 1), MAX_MEMBERS, "the bucket is full again");
    }

    #[test]
    fn number_of_tracked_reporting_peers_is_bounded() {
        let mut limiter = DialReportLimiter::default();
        for reporter in 0..=255 {
            limiter.try_acquire(at(0), &PeerKey([reporter; 32]));
        }
        assert_eq!(limiter.replenished_at.len(), MAX_KNOWN_MEMBERS);
        assert!(limiter.try_acquire(at(6), &PeerKey([255; 32])));
        assert_eq!(limiter.replenished_at.len(), 1);
    }
}
