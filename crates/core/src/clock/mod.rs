//! Clocks: from round trips that ride in normal packets to another site's clock, and from there to group time.
//!
//! A round trip gives four stamps: sent here (t1), received there (t2), sent there (t3), received here (t4). Each direction alone
//! bounds the other clock from one side, because no packet arrives before it was sent: t2−t1 is the offset plus a delay, t4−t3 the
//! delay minus the offset. [`Clock`] keeps the least of each per slice of time and fits one line (offset and skew) under both
//! ([`fit`](self)). On a link with equal delays both ways the estimate converges on the truth; otherwise it is off by half
//! the difference of the least delays, which no protocol can know (and which, for two sites in lockstep, is the very offset at
//! which they run fastest).

mod line_fit;

use alloc::boxed::Box;

use crate::time::{GroupInstant, Instant, TimeDelta};
use line_fit::{ClockLine, DelayEnvelope};

/// Round trips to wait for before an estimate is good enough to start a game on.
pub const MIN_ROUND_TRIPS: u32 = 8;
/// A line is fitted this often at first, then less often, and seldom once it is settled: it costs microseconds, and clocks drift
/// slowly.
const REFIT_INTERVAL_EARLY: TimeDelta = TimeDelta::from_millis(100);
const REFIT_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
const REFIT_INTERVAL_SETTLED: TimeDelta = TimeDelta::from_secs(4);
const REFIT_INTERVAL_FULL: TimeDelta = TimeDelta::from_secs(10);
const EARLY_PERIOD: TimeDelta = TimeDelta::from_secs(5);
/// A fit is never off by more than this when both clocks run as clocks do.
const CLOCK_STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(5);
/// So uneven is a way at the most that has next to no length.
const MAX_RTT_VARIATION: TimeDelta = TimeDelta::from_millis(100);

/// The four stamps of a round trip: `sent` and `returned` on our clock, `received` and `answered` on the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When we sent.
    pub sent: Instant,
    /// When the peer received that, on its clock.
    pub received: Instant,
    /// When the peer sent back, on its clock.
    pub answered: Instant,
    /// When that came here.
    pub returned: Instant,
}

impl RoundTrip {
    /// The time spent on the way.
    pub fn rtt(&self) -> TimeDelta {
        (self.returned - self.sent) - (self.answered - self.received)
    }
}

/// What is known of one peer's clock and of the way to it.
#[derive(Debug, Default)]
pub struct Clock {
    /// In a box, because it is large and seldom looked at.
    envelope: Box<DelayEnvelope>,
    line: Option<ClockLine>,
    fitted_at: Option<Instant>,
    first_round_trip_at: Option<Instant>,
    round_trips: u32,
    rtt: Option<TimeDelta>,
    jitter: TimeDelta,
    /// Whether both clocks are taken to be crystals.
    assumes_crystals: bool,
}

/// Two crystals are never further apart.
const MAX_CRYSTAL_SKEW: f64 = 200e-6;

impl Clock {
    /// For round trips that are too few to tell how fast a clock runs while their times vary much: it is taken to run like a crystal.
    pub fn assuming_crystals() -> Self {
        Self { assumes_crystals: true, ..Self::default() }
    }

    fn max_skew(&self) -> f64 {
        if self.assumes_crystals { MAX_CRYSTAL_SKEW } else { line_fit::MAX_SKEW }
    }

    /// Takes in a round trip. One that cannot be (negative, or longer than a minute) is ignored.
    pub fn on_round_trip(&mut self, trip: RoundTrip) {
        // Stamps are rounded, so on the shortest links a round trip can seem to take a little less than no time.
        let rtt = trip.rtt();
        if rtt < -CLOCK_STEP_THRESHOLD || rtt > TimeDelta::from_secs(60) {
            return;
        }
        let rtt = rtt.max(TimeDelta::ZERO);
        self.smooth_rtt(rtt);
        self.round_trips = self.round_trips.saturating_add(1);
        let since = *self.first_round_trip_at.get_or_insert(trip.returned);
        self.envelope.add(&trip);
        let pause = match self.line {
            Some(line) if line.is_full => REFIT_INTERVAL_FULL,
            Some(line) if line.is_settled => REFIT_INTERVAL_SETTLED,
            _ if trip.returned - since < EARLY_PERIOD => REFIT_INTERVAL_EARLY,
            _ => REFIT_INTERVAL,
        };
        let overdue = self.fitted_at.is_none_or(|fitted| trip.returned - fitted >= pause);
        if overdue || self.line.is_some_and(|line| line.contradicts(&trip)) {
            self.fit(trip);
        }
    }

    fn fit(&mut self, trip: RoundTrip) {
        let most_skew = self.max_skew();
        let line = self.envelope.fit(trip.returned, self.line, most_skew);
        // No round trip takes less than no time. The shortest ones show more than that where they are many.
        if line.rtt_min < -CLOCK_STEP_THRESHOLD
            || !self.assumes_crystals && self.envelope.contradicts(trip.returned, line)
        {
            // One of the clocks was set, or stood still with its computer.
            self.reset();
            self.envelope.add(&trip);
            self.first_round_trip_at = Some(trip.returned);
            self.line = Some(self.envelope.fit(trip.returned, None, most_skew));
        } else {
            self.line = Some(line);
        }
        self.fitted_at = Some(trip.returned);
    }

    /// Smoothed as TCP does it (RFC 6298).
    fn smooth_rtt(&mut self, sample: TimeDelta) {
        match self.rtt {
            None => self.rtt = Some(sample),
            Some(rtt) => {
                self.jitter += ((sample - rtt).abs() - self.jitter) / 4;
                self.rtt = Some(rtt + (sample - rtt) / 8);
            }
        }
    }

    /// Forgets everything, for when one of the two clocks was stepped or stood still.
    pub fn reset(&mut self) {
        *self = Self { rtt: self.rtt, jitter: self.jitter, assumes_crystals: self.assumes_crystals, ..Self::default() };
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.envelope)
    }

    /// Whether there were enough round trips to rely on the estimate.
    pub fn is_ready(&self) -> bool {
        self.round_trips >= MIN_ROUND_TRIPS && self.line.is_some()
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Option<TimeDelta> {
        self.rtt
    }

    /// The mean deviation of round-trip times.
    pub fn jitter(&self) -> TimeDelta {
        self.jitter
    }

    /// The least round-trip time of late: the line's own, without queues.
    pub fn rtt_min(&self) -> Option<TimeDelta> {
        self.line.map(|line| line.rtt_min.max(TimeDelta::ZERO))
    }

    /// No round trip takes longer than this, unless somebody was asleep, which says nothing of the way.
    pub(crate) fn max_plausible_rtt(&self) -> TimeDelta {
        self.rtt_min().or(self.rtt).unwrap_or_default() * 3 + MAX_RTT_VARIATION
    }

    /// How far the peer's clock is ahead of ours at `now`.
    pub fn offset(&self, now: Instant) -> Option<TimeDelta> {
        self.line.map(|line| line.offset(now))
    }

    /// How much faster the peer's clock runs than ours, in parts per million.
    pub fn skew_ppm(&self) -> Option<f64> {
        self.line.map(|line| line.skew * 1e6)
    }

    /// Our time at which the peer's clock shows `theirs`.
    pub fn to_local(&self, theirs: Instant) -> Option<Instant> {
        self.line.map(|line| line.to_local(theirs))
    }

    /// The peer's time when ours is `ours`.
    pub fn to_remote(&self, ours: Instant) -> Option<Instant> {
        self.line.map(|line| ours + line.offset(ours))
    }

    /// Group time when the peer is the site whose clock the group goes by.
    pub fn to_group(&self, ours: Instant) -> Option<GroupInstant> {
        self.to_remote(ours).map(|remote| GroupInstant::from_nanos(remote.as_nanos()))
    }

    /// Our time at a group time, when the peer is the site whose clock the group goes by.
    pub fn from_group(&self, group: GroupInstant) -> Option<Instant> {
        self.to_local(Instant::from_nanos(group.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponential numbers without a library: enough randomness for a clock to be tested on.
    struct Noise(u64);

    impl Noise {
        fn exponential(&mut self, mean_us: f64) -> TimeDelta {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            TimeDelta::from_nanos((-unit.ln() * mean_us * 1e3) as i64)
        }
    }

    struct Peer {
        offset: TimeDelta,
        skew_ppm: f64,
        out: TimeDelta,
        back: TimeDelta,
        jitter_us: f64,
    }

    impl Peer {
        fn clock_at(&self, now: Instant) -> Instant {
            now + self.offset + (now - Instant::ZERO).scale(self.skew_ppm / 1e6)
        }

        /// The error of the estimate after so many seconds of probes in the rhythm of a session: 20 a second at first, then 5.
        fn error_after(&self, seconds: i64, seed: u64) -> TimeDelta {
            let mut noise = Noise(seed);
            let mut clock = Clock::default();
            let mut now = Instant::from_nanos(seed as i64 * 1_000_003);
            let until = now + TimeDelta::from_secs(seconds);
            while now < until {
                let received = now + self.out + noise.exponential(self.jitter_us);
                let answered = received + TimeDelta::from_millis(8);
                let returned = answered + self.back + noise.exponential(self.jitter_us);
                clock.on_round_trip(RoundTrip {
                    sent: now,
                    received: self.clock_at(received),
                    answered: self.clock_at(answered),
                    returned,
                });
                let pause = if until - now > TimeDelta::from_secs(seconds - 5) { 50 } else { 200 };
                now += TimeDelta::from_millis(pause);
            }
            self.clock_at(now) - clock.to_remote(now).unwrap()
        }
    }

    fn worst_error(peer: &Peer, seconds: i64) -> TimeDelta {
        (1..=1_000).map(|seed| peer.error_after(seconds, seed).abs()).max().unwrap()
    }

    fn jittery_peer(skew_ppm: f64) -> Peer {
        let half = TimeDelta::from_millis(30);
        Peer { offset: TimeDelta::from_secs(-12_345), skew_ppm, out: half, back: half, jitter_us: 20_000.0 }
    }

    #[test]
    fn offset_error_below_1_ms_after_5_s_with_20_ms_jitter() {
        for skew_ppm in [0.0, 50.0, -50.0] {
            let error = worst_error(&jittery_peer(skew_ppm), 5);
            assert!(error < TimeDelta::from_millis(1), "{error} with a skew of {skew_ppm} ppm");
        }
    }

    #[test]
    fn clock_skew_of_one_percent_is_tracked() {
        for skew_ppm in [30.0, 100.0, 10_000.0] {
            let error = worst_error(&jittery_peer(skew_ppm), 30);
            assert!(error < TimeDelta::from_micros(2_500), "{error} with a skew of {skew_ppm} ppm");
        }
    }

    #[test]
    fn asymmetric_delay_costs_half_the_difference() {
        let peer = Peer { out: TimeDelta::from_millis(20), back: TimeDelta::from_millis(100), ..jittery_peer(0.0) };
        let error = worst_error(&peer, 5);
        assert!((error - TimeDelta::from_millis(40)).abs() < TimeDelta::from_millis(1), "{error}");
    }

    #[test]
    fn briefly_shorter_route_does_not_mislead_a_skewed_clock() {
        let mut peer = jittery_peer(6_000.0);
        peer.jitter_us = 1_000.0;
        let (mut clock, mut noise) = (Clock::default(), Noise(3));
        for step in 0..150i64 {
            let sent = Instant::from_nanos(step * 200_000_000);
            let delay = TimeDelta::from_millis(if (50..53).contains(&step) { 20 } else { 80 });
            let received = sent + delay + noise.exponential(peer.jitter_us);
            let returned = received + delay + noise.exponential(peer.jitter_us);
            let [received, answered] = [peer.clock_at(received); 2];
            clock.on_round_trip(RoundTrip { sent, received, answered, returned });
        }
        let now = Instant::from_nanos(30_000_000_000);
        let error = clock.to_remote(now).unwrap() - peer.clock_at(now);
        assert!(error.abs() < TimeDelta::from_millis(1), "{error}");
    }

    #[test]
    fn local_to_remote_and_back_is_identity() {
        let peer = jittery_peer(10_000.0);
        let mut clock = Clock::default();
        for step in 0..100 {
            let sent = Instant::from_nanos(step * 50_000_000);
            let (received, returned) = (sent + peer.out, sent + peer.out + peer.back);
            let [received, answered] = [peer.clock_at(received); 2];
            clock.on_round_trip(RoundTrip { sent, received, answered, returned });
        }
        let here = Instant::from_nanos(7_000_000_000);
        let error = clock.to_local(clock.to_remote(here).unwrap()).unwrap() - here;
        assert!(error.abs() < TimeDelta::from_micros(2), "{error:?}");
        assert_eq!(clock.rtt(), Some(TimeDelta::from_millis(60)));
    }

    #[test]
    fn stepped_clock_is_relearned() {
        let mut clock = Clock::default();
        let delay = TimeDelta::from_millis(20);
        for step in 0..200 {
            let sent = Instant::from_nanos(step * 50_000_000);
            let ahead = if step < 100 { TimeDelta::from_secs(70) } else { TimeDelta::from_secs(3) };
            let there = sent + delay + ahead;
            clock.on_round_trip(RoundTrip { sent, received: there, answered: there, returned: sent + delay * 2 });
        }
        let offset = clock.offset(Instant::from_nanos(10_000_000_000)).unwrap();
        assert!((offset - TimeDelta::from_secs(3)).abs() < TimeDelta::from_millis(1), "{offset}");
    }

    /// A clock that stands still for less than a round trip takes: no packet seems to arrive before it was sent.
    #[test]
    fn briefly_stopped_clock_is_relearned() {
        for (jitter_us, stood_still) in [(0.0, 87), (500.0, 30), (5_000.0, 70)] {
            let mut peer =
                Peer { out: TimeDelta::from_millis(51), back: TimeDelta::from_millis(51), ..jittery_peer(0.0) };
            let (mut clock, mut noise) = (Clock::default(), Noise(7));
            for step in 0..150i64 {
                let sent = Instant::from_nanos(step * 200_000_000);
                if step == 100 {
                    peer.offset -= TimeDelta::from_millis(stood_still);
                }
                let received = sent + peer.out + noise.exponential(jitter_us);
                let returned = received + peer.back + noise.exponential(jitter_us);
                let [received, answered] = [peer.clock_at(received); 2];
                clock.on_round_trip(RoundTrip { sent, received, answered, returned });
            }
            let now = Instant::from_nanos(30_000_000_000);
            let error = clock.to_remote(now).unwrap() - peer.clock_at(now);
            assert!(error.abs() < TimeDelta::from_millis(3), "{error} after standing still for {stood_still} ms");
        }
    }

    #[test]
    fn impossible_round_trips_are_ignored() {
        let mut clock = Clock::default();
        let at = Instant::from_nanos;
        for (sent, received, answered, returned) in
            [(10_000_000, 0, 0, 0), (0, 0, i64::MAX, 5), (0, i64::MIN, i64::MAX, 9)]
        {
            clock.on_round_trip(RoundTrip {
                sent: at(sent),
                received: at(received),
                answered: at(answered),
                returned: at(returned),
            });
        }
        assert_eq!(clock.rtt(), None);
    }
}
