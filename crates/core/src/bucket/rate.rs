//! How often our entities speak: less where the network drops or delays what they say, and more again when it carries it.

use super::config::Sending;
use crate::time::{Instant, TimeDelta};

/// The rate is changed so often: reports must have had the time to follow.
const EVERY: TimeDelta = TimeDelta::from_secs(1);
/// The part of updates, in 255ths, above which the network is taken to be full, and below which there is room.
const FULL: u8 = 38;
const ROOM: u8 = 18;
/// What is added in a second where there is room, and the part that is left where there is none, in thousandths.
const MORE: u32 = 1_500;
const LESS: u64 = 700;

/// Updates in a second.
#[derive(Debug)]
pub(super) struct Rate {
    /// In thousandths.
    milli: u32,
    changed: Instant,
    /// The worst that was reported of late, in 255ths.
    lost: u8,
}

impl Rate {
    pub(super) fn new(now: Instant, sending: &Sending) -> Self {
        Self { milli: sending.most * 1_000, changed: now, lost: 0 }
    }

    pub(super) fn per_second(&self) -> u32 {
        self.milli / 1_000
    }

    /// The part of updates that does not arrive, in 255ths, where it is worst.
    pub(super) fn lost(&self) -> u8 {
        self.lost
    }

    /// Takes to heart what receivers report: lost and late, in 255ths.
    pub(super) fn on_reports(&mut self, now: Instant, sending: &Sending, reports: impl Iterator<Item = (u8, u8)>) {
        let (mut lost, mut bad, mut any) = (0, 0, false);
        for (gone, late) in reports {
            any = true;
            lost = lost.max(gone);
            bad = bad.max(gone.saturating_add(late));
        }
        self.lost = lost;
        if !sending.adapt || now - self.changed < EVERY {
            return;
        }
        self.changed = now;
        if bad > FULL {
            self.milli = (u64::from(self.milli) * LESS / 1_000) as u32;
        } else if bad < ROOM && any {
            self.milli += MORE;
        }
        self.milli = self.milli.clamp(sending.least * 1_000, sending.most * 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_quickly_rises_slowly_and_stays_within_bounds() {
        let sending = Sending::adaptive(5, 25);
        let mut now = Instant::ZERO;
        let mut rate = Rate::new(now, &sending);
        let mut after = |report: (u8, u8), seconds: u32| {
            for _ in 0..seconds {
                now += EVERY;
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
        rate.on_reports(now + EVERY * 9, &sending, core::iter::empty());
        assert_eq!(rate.per_second(), 5, "who hears of nobody does not speak more for it");
    }

    #[test]
    fn a_fixed_rate_is_fixed_and_losses_are_known() {
        let sending = Sending::fixed(25);
        let mut rate = Rate::new(Instant::ZERO, &sending);
        rate.on_reports(Instant::ZERO + EVERY * 5, &sending, [(200, 0), (3, 0)].into_iter());
        assert_eq!((rate.per_second(), rate.lost()), (25, 200));
    }
}
