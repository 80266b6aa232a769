//! Clock probes: which packets to a peer carry one, and which received stamps are echoed.
//!
//! Probes are frequent at first, so that the clocks are known soon. Each received stamp is echoed once. Stamps also
//! tell old packets from new ones.

use crate::time::{Instant, TimeDelta};

/// Duration of fast probing, from the first clock stamp that arrives from a peer.
const FAST_PROBE_PERIOD: TimeDelta = TimeDelta::from_secs(5);
/// Probe interval until the end of [`FAST_PROBE_PERIOD`].
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Probe interval after [`FAST_PROBE_PERIOD`].
const PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);

/// State of the clock probes that this site exchanges with a peer.
#[derive(Debug)]
pub(super) struct Probes {
    first_received_at: Option<Instant>,
    last_sent_at: Instant,
    /// The newest received stamp, in microseconds of the peer's clock, and its arrival time.
    newest_stamp: Option<(i64, Instant)>,
    is_echoed: bool,
}

impl Probes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            first_received_at: None,
            last_sent_at: now - TimeDelta::from_secs(1),
            newest_stamp: None,
            is_echoed: false,
        }
    }

    /// Forgets the stamps of the peer's previous incarnation.
    pub(super) fn forget_stamps(&mut self) {
        self.newest_stamp = None;
    }

    /// Records a received stamp, in microseconds of the peer's clock.
    pub(super) fn on_stamp(&mut self, now: Instant, stamp_us: i64) {
        self.first_received_at.get_or_insert(now);
        if self.is_newer(stamp_us) {
            self.newest_stamp = Some((stamp_us, now));
            self.is_echoed = false;
        }
    }

    /// Returns whether a stamp is newer than all received ones.
    pub(super) fn is_newer(&self, stamp_us: i64) -> bool {
        self.newest_stamp.is_none_or(|(newest, _)| stamp_us > newest)
    }

    /// Returns the newest received stamp in microseconds of the peer's clock.
    pub(super) fn newest_stamp_us(&self) -> Option<i64> {
        self.newest_stamp.map(|(stamp, _)| stamp)
    }

    /// Makes the next packet carry a probe.
    pub(super) fn make_due(&mut self) {
        self.last_sent_at = self.last_sent_at - PROBE_INTERVAL;
    }

    /// Returns whether the next packet has to carry a probe.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_early = self.first_received_at.is_none_or(|since| now - since < FAST_PROBE_PERIOD);
        // A little less than the nominal interval, because packets leave in whole frames.
        let interval = if is_early { FAST_PROBE_INTERVAL } else { PROBE_INTERVAL } - TimeDelta::from_millis(5);
        now - self.last_sent_at >= interval
    }

    /// Returns the stamp to echo, in microseconds of the peer's clock, and the time for which it was held. Notes that a
    /// probe is sent now.
    pub(super) fn take_echo(&mut self, now: Instant) -> Option<(i64, TimeDelta)> {
        self.last_sent_at = now;
        let (stamp, received) = self.newest_stamp.filter(|_| !self.is_echoed)?;
        self.is_echoed = true;
        Some((stamp, now - received))
    }
}

/// Returns the number nearest to `near` whose low `bits` bits are those of `low`.
pub(super) fn expand_truncated(near: i64, low: i64, bits: u32) -> i64 {
    let shift = 64 - bits;
    near.wrapping_add(low.wrapping_sub(near) << shift >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn truncated_stamps_are_expanded_exactly() {
        for near in [0, -5_000_000, 1 << 40, 987_654_321_012_345] {
            for distance in [-1_000_000_000, -1, 0, 77, 2_000_000_000] {
                let full: i64 = near + distance;
                assert_eq!(expand_truncated(near, full & 0xffff_ffff, 32), full);
                assert_eq!(expand_truncated(near, full & 0xff_ffff_ffff, 40), full);
            }
        }
    }

    #[test]
    fn probes_are_frequent_for_five_seconds() {
        let mut probes = Probes::new(at(0));
        let count = |probes: &mut Probes, from: i64, until: i64| {
            let due =
                (from..until).filter(|millis| probes.is_due(at(*millis)) && probes.take_echo(at(*millis)).is_none());
            due.count()
        };
        probes.on_stamp(at(0), 1);
        probes.take_echo(at(0));
        assert_eq!(count(&mut probes, 1, 5_000), 111, "every 45 ms");
        assert!(count(&mut probes, 5_000, 7_000) <= 11, "every 195 ms");
        probes.make_due();
        assert!(probes.is_due(at(7_001)));
    }

    #[test]
    fn each_stamp_is_echoed_once() {
        let mut probes = Probes::new(at(0));
        assert_eq!(probes.take_echo(at(0)), None);
        probes.on_stamp(at(10), 77);
        probes.on_stamp(at(12), 70);
        assert_eq!(probes.take_echo(at(15)), Some((77, TimeDelta::from_millis(5))), "the stamp 70 is older");
        assert_eq!(probes.take_echo(at(16)), None);
        assert!(probes.is_newer(78) && !probes.is_newer(77));
    }
}
