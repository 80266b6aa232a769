//! Update rate of this site's entities. With an adaptive policy it falls when peers report many lost or late updates,
//! and rises when they report few.

use super::config::UpdatePolicy;
use crate::time::{Instant, TimeDelta};

/// Minimum interval between rate changes: reports need time to reflect the previous change.
const RATE_CHANGE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Share of lost and late updates, in 255ths, above which the network counts as congested.
const CONGESTED_SHARE: u8 = 38;
/// Share of lost and late updates, in 255ths, below which the rate may rise.
const UNCONGESTED_SHARE: u8 = 18;
/// Additive increase per [`RATE_CHANGE_INTERVAL`], in thousandths of an update per second.
const RATE_INCREASE: u32 = 1_500;
/// Factor applied to the rate under congestion, in thousandths.
const RATE_DECREASE_FACTOR: u64 = 700;

/// Current update rate per entity, adapted to the reports of the peers.
#[derive(Debug)]
pub(super) struct UpdateRate {
    /// Rate in thousandths of an update per second.
    milli_per_second: u32,
    changed_at: Instant,
    /// Highest loss share in the recent reports of the peers, in 255ths.
    worst_loss: u8,
}

impl UpdateRate {
    pub(super) fn new(now: Instant, policy: &UpdatePolicy) -> Self {
        Self { milli_per_second: policy.max_rate * 1_000, changed_at: now, worst_loss: 0 }
    }

    pub(super) fn per_second(&self) -> u32 {
        self.milli_per_second / 1_000
    }

    /// Returns the loss share at the worst receiver, in 255ths.
    pub(super) fn worst_loss(&self) -> u8 {
        self.worst_loss
    }

    /// Records the worst loss of the receivers' reports, which are pairs of the lost and the late share in 255ths. If
    /// the policy is adaptive, adapts the rate to them, at most once per [`RATE_CHANGE_INTERVAL`].
    pub(super) fn on_reports(&mut self, now: Instant, policy: &UpdatePolicy, reports: impl Iterator<Item = (u8, u8)>) {
        let (mut worst_loss, mut worst_share, mut has_reports) = (0, 0, false);
        for (lost, late) in reports {
            has_reports = true;
            worst_loss = worst_loss.max(lost);
            worst_share = worst_share.max(lost.saturating_add(late));
        }
        self.worst_loss = worst_loss;
        if !policy.is_adaptive || now - self.changed_at < RATE_CHANGE_INTERVAL {
            return;
        }
        self.changed_at = now;
        if worst_share > CONGESTED_SHARE {
            self.milli_per_second = (u64::from(self.milli_per_second) * RATE_DECREASE_FACTOR / 1_000) as u32;
        } else if worst_share < UNCONGESTED_SHARE && has_reports {
            self.milli_per_second += RATE_INCREASE;
        }
        self.milli_per_second = self.milli_per_second.clamp(policy.min_rate * 1_000, policy.max_rate * 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_rate_falls_fast_rises_slowly_and_stays_in_bounds() {
        let policy = UpdatePolicy::adaptive(5, 25);
        let mut now = Instant::ZERO;
        let mut rate = UpdateRate::new(now, &policy);
        let mut after = |report: (u8, u8), seconds: u32| {
            for _ in 0..seconds {
                now += RATE_CHANGE_INTERVAL;
                rate.on_reports(now, &policy, [(0, 0), report].into_iter());
            }
            rate.per_second()
        };
        assert_eq!(after((0, 0), 5), 25);
        assert_eq!(after((0, 60), 2), 12, "late updates count as well");
        assert_eq!(after((255, 255), 20), 5);
        assert_eq!(after((25, 0), 20), 5, "neither congested nor uncongested");
        assert_eq!(after((0, 0), 4), 11);
        assert_eq!(after((0, 0), 60), 25);
        assert_eq!(after((255, 0), 20), 5);
        rate.on_reports(now + RATE_CHANGE_INTERVAL * 9, &policy, core::iter::empty());
        assert_eq!(rate.per_second(), 5, "the rate must not rise without reports");
    }

    #[test]
    fn fixed_rate_ignores_reports_but_records_loss() {
        let policy = UpdatePolicy::fixed(25);
        let mut rate = UpdateRate::new(Instant::ZERO, &policy);
        rate.on_reports(Instant::ZERO + RATE_CHANGE_INTERVAL * 5, &policy, [(200, 0), (3, 0)].into_iter());
        assert_eq!((rate.per_second(), rate.worst_loss()), (25, 200));
    }
}
