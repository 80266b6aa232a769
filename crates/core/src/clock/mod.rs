//! Clocks: estimates a peer's clock from round trips in normal packets, and group time from that.
//!
//! A round trip yields four stamps: sent here (t1), received there (t2), sent there (t3), received here (t4). Each
//! direction alone bounds the peer's clock from one side, because no packet arrives before it was sent: t2−t1 is the
//! offset plus a delay, t4−t3 the delay minus the offset. [`Clock`] keeps the minimum of each per time slice and fits
//! one line (offset and skew) under both (`line_fit`). On a link with equal delays in both directions the estimate
//! converges to the true offset. Otherwise it is off by half the difference of the minimum delays, which no protocol
//! can measure (and which, for two sites in lockstep, is the very offset at which they run fastest).

mod line_fit;
mod steered_time;

use alloc::boxed::Box;

pub(crate) use steered_time::{STEP_THRESHOLD, SteeredTime, is_same_time};

use crate::time::{GroupInstant, Instant, TimeDelta};
use line_fit::{ClockLine, DelayEnvelope};

/// Number of round trips after which an estimate [is ready](Clock::is_ready): accurate enough to start a game or to
/// follow the peer's time.
pub const MIN_ROUND_TRIPS: u32 = 8;
/// Time between two regular fits in the first 5 s. A fit costs microseconds, and clocks drift slowly, so later fits are
/// rarer.
const REFIT_INTERVAL_EARLY: TimeDelta = TimeDelta::from_millis(100);
/// Time between two fits after [`EARLY_PERIOD`], until the line is settled.
const REFIT_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Time between two fits once the line has rested on 10 slices, which settles it.
const REFIT_INTERVAL_SETTLED: TimeDelta = TimeDelta::from_secs(4);
/// Time between two fits once the line rests on all 40 slices.
const REFIT_INTERVAL_FULL: TimeDelta = TimeDelta::from_secs(10);
/// Time after the first round trip in which the line is fitted every [`REFIT_INTERVAL_EARLY`].
const EARLY_PERIOD: TimeDelta = TimeDelta::from_secs(5);
/// Tolerance for contradictions between round trips and the fitted line. A round trip that contradicts the line by more
/// causes a new fit. If the new line is impossible or, unless crystals are assumed, contradicts the round trips, too, a
/// clock was stepped, and the estimate restarts.
const CLOCK_STEP_THRESHOLD: TimeDelta = TimeDelta::from_millis(5);
/// Constant part of the longest plausible round-trip time, for a link with almost no delay of its own.
const MAX_RTT_VARIATION: TimeDelta = TimeDelta::from_millis(100);

/// Three of the four timestamps of a round trip. The fourth is the arrival of the echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockEcho {
    /// Send time of the probe, copied from the probe.
    pub sent: Instant,
    /// Arrival time of the probe on the responder's clock.
    pub received: Instant,
    /// Send time of the echo on the responder's clock.
    pub answered: Instant,
}

/// The four stamps of a round trip: `sent` and `returned` on the local clock, `received` and `answered` on the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Send time of the probe, on the local clock.
    pub sent: Instant,
    /// Arrival time of the probe, on the peer's clock.
    pub received: Instant,
    /// Send time of the answer, on the peer's clock.
    pub answered: Instant,
    /// Arrival time of the answer, on the local clock.
    pub returned: Instant,
}

impl RoundTrip {
    /// Returns the time that probe and answer spent on the network, without the time that the peer held the probe.
    pub fn rtt(&self) -> TimeDelta {
        (self.returned - self.sent) - (self.answered - self.received)
    }
}

/// Estimate of a peer's clock and of the link to it.
#[derive(Debug, Default)]
pub struct Clock {
    /// Minimum delays per second, to which the line is fitted. Boxed, because they are large and rarely used.
    envelope: Box<DelayEnvelope>,
    line: Option<ClockLine>,
    fitted_at: Option<Instant>,
    first_round_trip_at: Option<Instant>,
    round_trips: u32,
    rtt: Option<TimeDelta>,
    jitter: TimeDelta,
    /// Whether both clocks are assumed to run on quartz crystals, so that the skew is at most [`MAX_CRYSTAL_SKEW`].
    assumes_crystals: bool,
}

/// Largest skew between two quartz crystals, as a fraction: 200 ppm.
const MAX_CRYSTAL_SKEW: f64 = 200e-6;

impl Clock {
    /// Creates a clock for round trips that are few and vary much, from which no skew can be measured. Both clocks are
    /// assumed to run on quartz crystals, with a skew of at most 200 ppm.
    pub fn assuming_crystals() -> Self {
        Self { assumes_crystals: true, ..Self::default() }
    }

    fn max_skew(&self) -> f64 {
        if self.assumes_crystals { MAX_CRYSTAL_SKEW } else { line_fit::MAX_SKEW }
    }

    /// Adds a round trip. Impossible ones, of less than −5 ms or more than 60 s, are ignored.
    pub fn on_round_trip(&mut self, trip: RoundTrip) {
        // Stamps are rounded, so on the shortest links a round trip can seem to take slightly negative time.
        let rtt = trip.rtt();
        if rtt < -CLOCK_STEP_THRESHOLD || rtt > TimeDelta::from_secs(60) {
            return;
        }
        let rtt = rtt.max(TimeDelta::ZERO);
        self.smooth_rtt(rtt);
        self.round_trips = self.round_trips.saturating_add(1);
        let since = *self.first_round_trip_at.get_or_insert(trip.returned);
        let begins_slice = self.envelope.add(&trip);
        let pause = match self.line {
            Some(line) if line.is_full => REFIT_INTERVAL_FULL,
            Some(line) if line.is_settled => REFIT_INTERVAL_SETTLED,
            _ if trip.returned - since < EARLY_PERIOD => REFIT_INTERVAL_EARLY,
            _ => REFIT_INTERVAL,
        };
        let overdue = self.fitted_at.is_none_or(|fitted| trip.returned - fitted >= pause);
        if overdue
            || self.line.is_some_and(|line| line.contradicts(&trip))
            || begins_slice && self.envelope.has_longer_route(trip.returned)
        {
            self.fit(trip);
        }
    }

    fn fit(&mut self, trip: RoundTrip) {
        let max_skew = self.max_skew();
        let line = self.envelope.fit(trip.returned, self.line, max_skew);
        // A negative minimum is impossible. Where there are many round trips, the shortest ones reveal smaller steps as
        // well.
        if line.rtt_min < -CLOCK_STEP_THRESHOLD
            || !self.assumes_crystals && self.envelope.contradicts(trip.returned, line)
        {
            // One of the clocks was stepped, or stopped while its computer was suspended.
            self.reset();
            self.envelope.add(&trip);
            self.first_round_trip_at = Some(trip.returned);
            self.line = Some(self.envelope.fit(trip.returned, None, max_skew));
        } else {
            self.line = Some(line);
        }
        self.fitted_at = Some(trip.returned);
    }

    /// Smooths the round-trip time and its mean deviation as TCP does (RFC 6298), except that the deviation begins at
    /// 0.
    fn smooth_rtt(&mut self, sample: TimeDelta) {
        match self.rtt {
            None => self.rtt = Some(sample),
            Some(rtt) => {
                self.jitter += ((sample - rtt).abs() - self.jitter) / 4;
                self.rtt = Some(rtt + (sample - rtt) / 8);
            }
        }
    }

    /// Discards the estimate of the peer's clock, because one of the two clocks was stepped or stopped. All round trips
    /// so far are forgotten; the smoothed round-trip time and the jitter stay.
    pub fn reset(&mut self) {
        *self = Self { rtt: self.rtt, jitter: self.jitter, assumes_crystals: self.assumes_crystals, ..Self::default() };
    }

    /// Returns the heap memory of the stored delays in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.envelope)
    }

    /// Returns whether the estimate rests on at least [`MIN_ROUND_TRIPS`] round trips since the last reset.
    pub fn is_ready(&self) -> bool {
        self.round_trips >= MIN_ROUND_TRIPS && self.line.is_some()
    }

    /// Returns the smoothed round-trip time; `None` before the first round trip.
    pub fn rtt(&self) -> Option<TimeDelta> {
        self.rtt
    }

    /// Returns the smoothed mean deviation of round-trip times; zero before the second round trip.
    pub fn jitter(&self) -> TimeDelta {
        self.jitter
    }

    /// Returns the minimum round-trip time by the fitted line, which covers at most the last 40 s: that of the link
    /// itself, without queues. `None` before the first round trip since the last reset.
    pub fn rtt_min(&self) -> Option<TimeDelta> {
        self.line.map(|line| line.rtt_min.max(TimeDelta::ZERO))
    }

    /// Returns an upper bound for the round-trip time of the link: 100 ms plus three times the minimum or, right after
    /// a reset, the smoothed round-trip time. A longer one is taken as a sign that a host program was suspended.
    pub(crate) fn max_plausible_rtt(&self) -> TimeDelta {
        self.rtt_min().or(self.rtt).unwrap_or_default() * 3 + MAX_RTT_VARIATION
    }

    /// Returns the offset of the peer's clock from the local one at `now`, positive if the peer's is ahead; `None`
    /// before the first round trip since the last reset.
    pub fn offset(&self, now: Instant) -> Option<TimeDelta> {
        self.line.map(|line| line.offset(now))
    }

    /// Returns the skew of the peer's clock against the local one in parts per million, positive if the peer's runs
    /// faster; `None` before the first round trip since the last reset.
    pub fn skew_ppm(&self) -> Option<f64> {
        self.line.map(|line| line.skew * 1e6)
    }

    /// Returns the local time at which the peer's clock shows `theirs`; `None` before the first round trip since the
    /// last reset.
    pub fn to_local(&self, theirs: Instant) -> Option<Instant> {
        self.line.map(|line| line.to_local(theirs))
    }

    /// Returns the time on the peer's clock at the local time `ours`; `None` before the first round trip since the last
    /// reset.
    pub fn to_remote(&self, ours: Instant) -> Option<Instant> {
        self.line.map(|line| ours + line.offset(ours))
    }

    /// Returns the group time at the local time `ours`, provided that the peer's clock defines group time; `None`
    /// before the first round trip since the last reset.
    pub fn to_group(&self, ours: Instant) -> Option<GroupInstant> {
        self.to_remote(ours).map(|remote| GroupInstant::from_nanos(remote.as_nanos()))
    }

    /// Returns the local time at a group time, provided that the peer's clock defines group time; `None` before the
    /// first round trip since the last reset.
    pub fn from_group(&self, group: GroupInstant) -> Option<Instant> {
        self.to_local(Instant::from_nanos(group.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generator of exponentially distributed delays.
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

        /// Returns the error of the estimate after `seconds` of probes at the rate of a session: 20 per second at
        /// first, then 5.
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
        let local = Instant::from_nanos(7_000_000_000);
        let error = clock.to_local(clock.to_remote(local).unwrap()).unwrap() - local;
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
            let remote = sent + delay + ahead;
            clock.on_round_trip(RoundTrip { sent, received: remote, answered: remote, returned: sent + delay * 2 });
        }
        let offset = clock.offset(Instant::from_nanos(10_000_000_000)).unwrap();
        assert!((offset - TimeDelta::from_secs(3)).abs() < TimeDelta::from_millis(1), "{offset}");
    }

    /// The peer's clock stops for less than a round-trip time, so the minimum delays from before and after the stop
    /// still add up to a positive round-trip time. The estimate must follow all the same.
    #[test]
    fn briefly_stopped_clock_is_relearned() {
        for (jitter_us, stopped_ms) in [(0.0, 87), (500.0, 30), (5_000.0, 70)] {
            let mut peer =
                Peer { out: TimeDelta::from_millis(51), back: TimeDelta::from_millis(51), ..jittery_peer(0.0) };
            let (mut clock, mut noise) = (Clock::default(), Noise(7));
            for step in 0..150i64 {
                let sent = Instant::from_nanos(step * 200_000_000);
                if step == 100 {
                    peer.offset -= TimeDelta::from_millis(stopped_ms);
                }
                let received = sent + peer.out + noise.exponential(jitter_us);
                let returned = received + peer.back + noise.exponential(jitter_us);
                let [received, answered] = [peer.clock_at(received); 2];
                clock.on_round_trip(RoundTrip { sent, received, answered, returned });
            }
            let now = Instant::from_nanos(30_000_000_000);
            let error = clock.to_remote(now).unwrap() - peer.clock_at(now);
            assert!(error.abs() < TimeDelta::from_millis(3), "{error} after a stop of {stopped_ms} ms");
        }
    }

    /// A single answer takes a route that is 41 ms shorter. The line must not wait for its next regular fit.
    #[test]
    fn single_short_answer_is_forgotten_after_nine_seconds() {
        let delay = TimeDelta::from_millis(58);
        for odd in 60..100i64 {
            let mut clock = Clock::default();
            for step in 0..=odd + 45 {
                let sent = Instant::from_nanos(step * 200_000_000);
                let received = sent + delay;
                let back = if step == odd { delay - TimeDelta::from_millis(41) } else { delay };
                clock.on_round_trip(RoundTrip { sent, received, answered: received, returned: received + back });
            }
            let error = clock.offset(Instant::from_nanos((odd + 45) * 200_000_000)).unwrap();
            assert!(error.abs() < TimeDelta::from_millis(1), "{error} after a short answer in round trip {odd}");
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
