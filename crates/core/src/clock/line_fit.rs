//! Fits one line under the delay samples of both directions: the most likely offset and skew if delays are a constant
//! plus exponential jitter.
//!
//! For that jitter the likelihood is greatest where the sum of all distances between the samples and the line is least,
//! with no sample below it. Both directions share one skew (with opposite signs), which halves its error. For a given
//! skew the best line of each direction touches its lowest sample, so the sum is a convex function of the skew alone,
//! and golden-section search finds its minimum. A prior holds the skew at its last value, and near zero at first, until
//! the samples contradict it.
//!
//! All this assumes that the minimum delay is constant. When it has become longer permanently, as on another route, the
//! samples of the shorter route would hold the line down for as long as they are kept, so they are dropped.

use super::{CLOCK_STEP_THRESHOLD, RoundTrip};
use crate::time::{Instant, TimeDelta};

/// Number of time slices whose minimum delays are kept.
const MAX_SLICES: usize = 40;
/// Length of a time slice, of which only the lowest sample of each direction is kept.
const SLICE_LENGTH: TimeDelta = TimeDelta::from_secs(1);
/// Number of newest slices that must all show a longer round-trip time before the route counts as longer.
const ROUTE_CHANGE_SLICES: i64 = 8;
/// Fewest slices from which the variation of their minimum round-trip times is estimated.
const MIN_SLICES_FOR_VARIATION: usize = 6;
/// Multiple of the variation (median minus minimum of the slices' round-trip times) by which even the shortest round
/// trip may exceed the minimum round-trip time of the line, besides [`CLOCK_STEP_THRESHOLD`], before it contradicts the
/// line.
const VARIATION_FACTOR: i64 = 6;
/// Number of slices after which the skew is reliable, and later fits expect it.
const MIN_SETTLED_SLICES: usize = 10;
/// Smallest increase of the minimum round-trip time that counts as a longer route, if the round-trip time does not
/// vary.
const ROUTE_CHANGE_THRESHOLD: TimeDelta = TimeDelta::from_millis(3);
/// Largest skew that is tracked, as a fraction: 2 %.
pub(super) const MAX_SKEW: f64 = 0.02;
/// Scale of the prior: typical distance of a skew from its expected value, as a fraction (30 ppm).
const PRIOR_SKEW_SCALE: f64 = 30e-6;
/// Multiple of the mean distance between samples and line. A skew whose cost is lower than that of the expected skew by
/// more than this multiple is accepted without the prior.
const PRIOR_OVERRIDE_FACTOR: f64 = 20.0;
/// Distance from the last skew that is searched first, as a fraction (200 ppm).
const SKEW_SEARCH_RADIUS: f64 = 200e-6;

/// The lowest sample of one direction in a slice: its local time, and the receiver's stamp minus the sender's.
#[derive(Clone, Copy, Debug)]
struct DelaySample {
    at: Instant,
    ahead: TimeDelta,
}

#[derive(Clone, Copy, Debug)]
struct DelaySlice {
    number: i64,
    /// Lowest sample from this site to the peer: offset plus delay.
    out: DelaySample,
    /// Lowest sample from the peer to this site: delay minus offset.
    back: DelaySample,
    /// Minimum round-trip time of single round trips. The sum of `out` and `back` may be lower, because they may come
    /// from different round trips.
    rtt_min: TimeDelta,
}

/// The minimum delays of both directions, for each of the last [`MAX_SLICES`] slices.
#[derive(Debug)]
pub(super) struct DelayEnvelope {
    slices: [Option<DelaySlice>; MAX_SLICES],
}

impl Default for DelayEnvelope {
    fn default() -> Self {
        Self { slices: [None; MAX_SLICES] }
    }
}

/// The peer's clock as a linear function of the local one: an offset at `origin`, and a skew.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockLine {
    origin: Instant,
    offset: TimeDelta,
    pub(super) skew: f64,
    /// Whether this line or an earlier one rests on at least [`MIN_SETTLED_SLICES`] slices, so that the next fit
    /// expects its skew.
    pub(super) is_settled: bool,
    /// Whether the line rests on [`MAX_SLICES`] slices.
    pub(super) is_full: bool,
    pub(super) rtt_min: TimeDelta,
}

impl ClockLine {
    pub(super) fn offset(&self, at: Instant) -> TimeDelta {
        self.offset + (at - self.origin).scale(self.skew)
    }

    /// Returns whether, by this line, one of the two packets arrived more than [`CLOCK_STEP_THRESHOLD`] before it was
    /// sent.
    pub(super) fn contradicts(&self, trip: &RoundTrip) -> bool {
        let offset = self.offset(trip.returned);
        let (out, back) = (trip.received - trip.sent - offset, trip.returned - trip.answered + offset);
        out.min(back) < -CLOCK_STEP_THRESHOLD
    }

    /// Returns the local time at which the peer's clock shows `theirs`.
    pub(super) fn to_local(self, theirs: Instant) -> Instant {
        self.origin + (theirs - self.offset - self.origin).scale(1.0 / (1.0 + self.skew))
    }
}

impl DelayEnvelope {
    /// Adds a round trip. Returns whether it begins a new slice.
    pub(super) fn add(&mut self, trip: &RoundTrip) -> bool {
        let out = DelaySample { at: trip.sent, ahead: trip.received - trip.sent };
        let back = DelaySample { at: trip.returned, ahead: trip.returned - trip.answered };
        let (number, rtt) = (slice_number(trip.returned), trip.rtt());
        let slot = &mut self.slices[number.rem_euclid(MAX_SLICES as i64) as usize];
        match slot {
            Some(slice) if slice.number == number => {
                slice.out = lower_sample(slice.out, out);
                slice.back = lower_sample(slice.back, back);
                slice.rtt_min = slice.rtt_min.min(rtt);
                false
            }
            _ => {
                *slot = Some(DelaySlice { number, out, back, rtt_min: rtt });
                true
            }
        }
    }

    /// Drops all but the newest [`ROUTE_CHANGE_SLICES`] slices if the route has become longer.
    fn forget_shorter_route(&mut self, now: Instant) {
        if self.has_longer_route(now) {
            for slot in &mut self.slices {
                *slot = slot.filter(|slice| is_recent(slice, now));
            }
        }
    }

    /// Returns whether even the minimum round-trip time of the newest [`ROUTE_CHANGE_SLICES`] slices is clearly longer
    /// than that of the earlier ones; `false` if a round trip is missing in one of the newest slices.
    pub(super) fn has_longer_route(&self, now: Instant) -> bool {
        let rtt = |slice: &DelaySlice| slice.out.ahead + slice.back.ahead;
        let (count, least, sum) = self
            .slices
            .iter()
            .flatten()
            .filter(|slice| is_recent(slice, now))
            .map(rtt)
            .fold((0, TimeDelta::MAX, TimeDelta::ZERO), |(count, least, sum), rtt| {
                (count + 1, least.min(rtt), sum + rtt)
            });
        let floor = self.slices.iter().flatten().map(rtt).min().unwrap_or_default();
        count == ROUTE_CHANGE_SLICES && least - floor > ROUTE_CHANGE_THRESHOLD + (sum / ROUTE_CHANGE_SLICES - least) * 4
    }

    /// Returns whether even the shortest kept round trip is clearly longer than the sum of both minimum delays by this
    /// line. With varying delays it is longer anyway, so the slices' variation is allowed for. With fewer than
    /// [`MIN_SLICES_FOR_VARIATION`] slices, returns `false`.
    pub(super) fn contradicts(&self, now: Instant, line: ClockLine) -> bool {
        let (mut rtts, mut count) = ([TimeDelta::ZERO; MAX_SLICES], 0);
        for (rtt, slice) in rtts.iter_mut().zip(self.current_slices(now)) {
            *rtt = slice.rtt_min;
            count += 1;
        }
        let rtts = &mut rtts[..count];
        rtts.sort_unstable();
        let (Some(least), Some(typical)) = (rtts.first(), rtts.get(count / 2)) else { return false };
        count >= MIN_SLICES_FOR_VARIATION
            && *least - line.rtt_min > CLOCK_STEP_THRESHOLD + (*typical - *least) * VARIATION_FACTOR
    }

    /// Iterates over the slices of the last 40 s.
    fn current_slices(&self, now: Instant) -> impl Iterator<Item = &DelaySlice> {
        let newest = slice_number(now);
        self.slices.iter().flatten().filter(move |slice| (0..MAX_SLICES as i64).contains(&(newest - slice.number)))
    }

    /// Returns the most likely line at `now`, with a skew of at most ±`max_skew`. The last line gives the start of the
    /// search and, if it is settled, the expected skew. Samples of a shorter route are dropped first.
    pub(super) fn fit(&mut self, now: Instant, last: Option<ClockLine>, max_skew: f64) -> ClockLine {
        self.forget_shorter_route(now);
        let points = FitPoints::new(self, now);
        let expected = last.map_or(0.0, |line| if line.is_settled { line.skew } else { 0.0 });
        let skew = points.most_likely_skew(last.map_or(0.0, |line| line.skew), expected, max_skew);
        let (out, back) = (points.out.lowest_intercept(skew), points.back.lowest_intercept(-skew));
        ClockLine {
            origin: now,
            offset: points.reference + TimeDelta::from_nanos(((out - back) / 2.0) as i64),
            skew,
            is_settled: points.out.len >= MIN_SETTLED_SLICES || last.is_some_and(|line| line.is_settled),
            is_full: points.out.len == MAX_SLICES,
            rtt_min: TimeDelta::from_nanos((out + back) as i64),
        }
    }
}

/// Returns whether a slice is one of the newest [`ROUTE_CHANGE_SLICES`].
fn is_recent(slice: &DelaySlice, now: Instant) -> bool {
    (0..ROUTE_CHANGE_SLICES).contains(&(slice_number(now) - slice.number))
}

fn slice_number(at: Instant) -> i64 {
    at.as_nanos().div_euclid(SLICE_LENGTH.as_nanos())
}

fn lower_sample(one: DelaySample, other: DelaySample) -> DelaySample {
    if other.ahead < one.ahead { other } else { one }
}

/// The samples as plain numbers in nanoseconds. Times are relative to `now` and offsets to `reference`, which avoids
/// rounding errors.
struct FitPoints {
    reference: TimeDelta,
    out: DirectionSamples,
    back: DirectionSamples,
}

/// The samples of one direction, in nanoseconds: local times relative to `now`, and receiver's stamp minus sender's.
struct DirectionSamples {
    times: [f64; MAX_SLICES],
    offsets: [f64; MAX_SLICES],
    len: usize,
    sum_times: f64,
    sum_offsets: f64,
}

impl DirectionSamples {
    const EMPTY: Self =
        Self { times: [0.0; MAX_SLICES], offsets: [0.0; MAX_SLICES], len: 0, sum_times: 0.0, sum_offsets: 0.0 };

    fn push(&mut self, at: TimeDelta, ahead: TimeDelta) {
        let (at, ahead) = (at.as_nanos() as f64, ahead.as_nanos() as f64);
        (self.times[self.len], self.offsets[self.len]) = (at, ahead);
        self.len += 1;
        self.sum_times += at;
        self.sum_offsets += ahead;
    }

    /// Returns the intercept at `now` of the line of this skew that touches the lowest sample: the minimum delay, plus
    /// the clock offset on the way to the peer, minus that offset on the way back.
    fn lowest_intercept(&self, skew: f64) -> f64 {
        let mut lowest = f64::INFINITY;
        for (at, ahead) in self.times[..self.len].iter().zip(&self.offsets[..self.len]) {
            let distance = ahead - skew * at;
            lowest = if distance < lowest { distance } else { lowest };
        }
        lowest
    }

    /// Returns the sum of the distances of all samples from the line of this skew that touches the lowest sample.
    fn cost(&self, skew: f64) -> f64 {
        self.sum_offsets - skew * self.sum_times - self.lowest_intercept(skew) * self.len as f64
    }
}

impl FitPoints {
    fn new(envelope: &DelayEnvelope, now: Instant) -> Self {
        let mut slices = envelope.current_slices(now).peekable();
        let reference = slices.peek().map_or(TimeDelta::ZERO, |slice| slice.out.ahead);
        let mut points = Self { reference, out: DirectionSamples::EMPTY, back: DirectionSamples::EMPTY };
        for slice in slices {
            points.out.push(slice.out.at - now, slice.out.ahead - reference);
            points.back.push(slice.back.at - now, slice.back.ahead + reference);
        }
        points
    }

    fn cost(&self, skew: f64) -> f64 {
        self.out.cost(skew) + self.back.cost(-skew)
    }

    /// Returns the most likely skew, at most ±`max_skew`. The search begins near `near`, and the prior is centred on
    /// `expected`. With fewer than two slices, returns `expected`.
    fn most_likely_skew(&self, near: f64, expected: f64, max_skew: f64) -> f64 {
        if self.out.len < 2 {
            return expected;
        }
        let mut skew = minimize_convex(
            (near - SKEW_SEARCH_RADIUS).max(-max_skew),
            (near + SKEW_SEARCH_RADIUS).min(max_skew),
            12,
            |skew| self.cost(skew),
        );
        if (skew - near).abs() > SKEW_SEARCH_RADIUS * 0.9 {
            skew = minimize_convex(-max_skew, max_skew, 36, |skew| self.cost(skew));
        }
        let cost = self.cost(skew);
        let noise = cost / (2 * self.out.len) as f64;
        if self.cost(expected) - cost > PRIOR_OVERRIDE_FACTOR * noise {
            return skew;
        }
        minimize_convex(skew.min(expected), skew.max(expected), 8, |skew| {
            self.cost(skew) + (skew - expected).abs() / PRIOR_SKEW_SCALE * noise
        })
    }
}

/// Returns the argument between `low` and `high` at which the convex function `cost` is least, by `rounds` rounds of
/// golden-section search.
fn minimize_convex(mut low: f64, mut high: f64, rounds: u32, cost: impl Fn(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_left, mut at_right) = (cost(left), cost(right));
    for _ in 0..rounds {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - GOLDEN * (high - low);
            at_left = cost(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + GOLDEN * (high - low);
            at_right = cost(right);
        }
    }
    (low + high) / 2.0
}
