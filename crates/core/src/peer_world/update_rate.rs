//! How often our entities speak: less where the network drops or delays what they say, and more again when it carries it.

use super::config::UpdatePolicy;
use crate::time::{Instant, TimeDelta};

/// The rate is changed so often: reports must have had the time to follow.
const RATE_CHANGE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// The part of updates, in 255ths, above which the network is taken to be full, and below which there is room.
const CONGESTED_SHARE: u8 = 38;
const UNCONGESTED_SHARE: u8 = 18;
/// What is added in a second where there is room, and the part that is left where there is none, in thousandths.
const RATE_INCREASE: u32 = 1_500;
const RATE_DECREASE_FACTOR: u64 = 700;

/// Updates in a second.
#[derive(Debug)]
pub(super) struct UpdateRate {
    /// In thousandths.
    milli_per_second: u32,
    changed_at: Instant,
    /// The worst that was reported of late, in 255ths.
    worst_loss: u8,
}

impl UpdateRate {
    pub(super) fn new(now: Instant, sending: &UpdatePolicy) -> Self {
        Self { milli_per_second: sending.max_rate * 1_000, changed_at: now, worst_loss: 0 }
    }

    pub(super) fn per_second(&self) -> u32 {
        self.milli_per_second / 1_000
    }

    /// The part of updates that does not arrive, in 255ths, where it is worst.
    pub(super) fn worst_loss(&self) -> u8 {
        self.worst_loss
    }

    /// Takes to heart what receivers report: lost and late, in 255ths.
    pub(super) fn on_reports(&mut self, now: Instant, sending: &UpdatePolicy, reports: impl Iterator<Item = (u8, u8)>) {
        let (mut lost, mut bad, mut any) = (0, 0, false);
        for (gone, late) in reports {
            any = true;
            lost = lost.max(gone);
            bad = bad.max(gone.saturating_add(late));
        }
        self.worst_loss = lost;
        if !sending.is_adaptive || now - self.changed_at < RATE_CHANGE_INTERVAL {
            return;
        }
        self.changed_at = now;
        if bad > CONGESTED_SHARE {
            self.milli_per_second = (u64::from(self.milli_per_second) * RATE_DECREASE_FACTOR / 1_000) as u32;
        } else if bad < UNCONGESTED_SHARE && any {
            self.milli_per_second += RATE_INCREASE;
        }
        self.milli_per_second = self.milli_per_second.clamp(sending.min_rate * 1_000, sending.max_rate * 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_rate_falls_fast_rises_slowly_and_stays_in_bounds() {
        let sending = UpdatePolicy::adaptive(5, 25);
        let mut now = Instant::ZERO;
        let mut rate = UpdateRate::new(now, &sending);
        let mut after = |report: (u8, u8), seconds: u32| {
            for _ in 0..seconds {
                now += RATE_CHANGE_INTERVAL;
                rate.on_reports(now, &sending, [(0, 0), report].into_iter());
            }
            rate.per_second()
        };
        assert_eq!(after((0, 0), 5), 25);
        assert_eq!(after((0, 60), 2), 12, "late ones count, too");
        assert_eq!(after((255, 255), 20), 5);
        assert_eq!(after((25, 0), 20), 5, "neither full nor room");
        assert_eq!(after((0, 0), 4), 11);
        assert_eq!(after((0, 0), 60), 25);
        assert_eq!(after((255, 0), 20), 5);
        rate.on_reports(now + RATE_CHANGE_INTERVAL * 9, &sending, core::iter::empty());
        assert_eq!(rate.per_second(), 5, "who hears of nobody does not speak more for it");
    }

    #[test]
    fn fixed_rate_ignores_reports_but_records_loss() {
        let sending = UpdatePolicy::fixed(25);
        let mut rate = UpdateRate::new(Instant::ZERO, &sending);
        rate.on_reports(Instant::ZERO + RATE_CHANGE_INTERVAL * 5, &sending, [(200, 0), (3, 0)].into_iter());
        assert_eq!((rate.per_second(), rate.worst_loss()), (25, 200));
    }
}
