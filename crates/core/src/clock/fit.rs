//! One line under two envelopes: the most likely offset and skew when delays are a constant plus exponential jitter.
//!
//! For that jitter the likelihood is greatest where the sum of all distances between the samples and the line is least, with no
//! sample below it. Both directions share one skew (with opposite signs), which halves its error. For a given skew the best line
//! of each direction touches its lowest sample, so the sum is a convex function of the skew alone, and its minimum is found
//! by narrowing an interval. A prior keeps the skew near zero, where real clocks are, until the samples say otherwise.

use super::RoundTrip;
use crate::time::{Instant, TimeDelta};

/// Slices of time of which the least delay is kept.
const SLICES: usize = 40;
const SLICE: TimeDelta = TimeDelta::from_secs(1);
/// No clock worth synchronising is off by more.
const MAX_SKEW: f64 = 0.02;
/// How far a clock is usually off (the scale of the prior).
const USUAL_SKEW: f64 = 30e-6;
/// By how many mean distances a skew must be better than none to be believed without the prior.
const CERTAIN: f64 = 20.0;
/// How far from the last skew to look first.
const NEAR: f64 = 200e-6;

/// The lowest sample of a slice: when, and by how much the receiver's clock was ahead of the sender's stamp.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    ahead: TimeDelta,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    number: i64,
    /// From us to the peer: offset plus delay.
    out: Sample,
    /// From the peer to us: delay minus offset.
    back: Sample,
}

/// The least delays of both directions, slice by slice.
#[derive(Debug)]
pub(super) struct Envelope {
    slices: [Option<Slice>; SLICES],
}

impl Default for Envelope {
    fn default() -> Self {
        Self { slices: [None; SLICES] }
    }
}

/// The peer's clock as a function of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    origin: Instant,
    offset: TimeDelta,
    pub(super) skew: f64,
    pub(super) rtt_min: TimeDelta,
}

impl Line {
    pub(super) fn offset(&self, at: Instant) -> TimeDelta {
        self.offset + (at - self.origin).scale(self.skew)
    }

    /// Our time when the peer's clock shows `theirs`.
    pub(super) fn local(&self, theirs: Instant) -> Instant {
        self.origin + (theirs - self.offset - self.origin).scale(1.0 / (1.0 + self.skew))
    }
}

impl Envelope {
    pub(super) fn add(&mut self, trip: &RoundTrip) {
        let out = Sample { at: trip.sent, ahead: trip.received - trip.sent };
        let back = Sample { at: trip.returned, ahead: trip.returned - trip.answered };
        let number = trip.returned.as_nanos().div_euclid(SLICE.as_nanos());
        let slot = &mut self.slices[number.rem_euclid(SLICES as i64) as usize];
        match slot {
            Some(slice) if slice.number == number => {
                slice.out = lower(slice.out, out);
                slice.back = lower(slice.back, back);
            }
            _ => *slot = Some(Slice { number, out, back }),
        }
    }

    /// The most likely line; `last` is the skew to look near first.
    pub(super) fn fit(&self, now: Instant, last: Option<f64>) -> Line {
        let points = Points::new(self, now);
        let skew = points.likely_skew(last.unwrap_or(0.0));
        let (out, back) = points.touch(skew);
        Line {
            origin: now,
            offset: points.reference + TimeDelta::from_nanos(((out - back) / 2.0) as i64),
            skew,
            rtt_min: TimeDelta::from_nanos((out + back) as i64),
        }
    }
}

fn lower(one: Sample, other: Sample) -> Sample {
    if other.ahead < one.ahead { other } else { one }
}

/// The samples as plain numbers (nanoseconds), relative to now and to a reference offset so that nothing is lost to rounding.
struct Points {
    reference: TimeDelta,
    out: [(f64, f64); SLICES],
    back: [(f64, f64); SLICES],
    len: usize,
}

impl Points {
    fn new(envelope: &Envelope, now: Instant) -> Self {
        let newest = now.as_nanos().div_euclid(SLICE.as_nanos());
        let current = |slice: &&Slice| (0..SLICES as i64).contains(&(newest - slice.number));
        let mut slices = envelope.slices.iter().flatten().filter(current).peekable();
        let reference = slices.peek().map_or(TimeDelta::ZERO, |slice| slice.out.ahead);
        let mut points = Self { reference, out: [(0.0, 0.0); SLICES], back: [(0.0, 0.0); SLICES], len: 0 };
        for slice in slices {
            let number = |delta: TimeDelta| delta.as_nanos() as f64;
            points.out[points.len] = (number(slice.out.at - now), number(slice.out.ahead - reference));
            points.back[points.len] = (number(slice.back.at - now), number(slice.back.ahead + reference));
            points.len += 1;
        }
        points
    }

    /// Where the lines of this skew touch the lowest samples: the two delays, each with the offset still in it.
    fn touch(&self, skew: f64) -> (f64, f64) {
        let lowest = |points: &[(f64, f64)], skew: f64| {
            points.iter().map(|(at, ahead)| ahead - skew * at).fold(f64::INFINITY, f64::min)
        };
        (lowest(&self.out[..self.len], skew), lowest(&self.back[..self.len], -skew))
    }

    /// The sum of all distances from the lines of this skew.
    fn cost(&self, skew: f64) -> f64 {
        let (out, back) = self.touch(skew);
        let distance = |points: &[(f64, f64)], skew: f64, touch: f64| -> f64 {
            points.iter().map(|(at, ahead)| ahead - skew * at - touch).sum()
        };
        distance(&self.out[..self.len], skew, out) + distance(&self.back[..self.len], -skew, back)
    }

    fn likely_skew(&self, near: f64) -> f64 {
        if self.len < 2 {
            return 0.0;
        }
        let mut skew = least(near - NEAR, near + NEAR, 10, |skew| self.cost(skew));
        if (skew - near).abs() > NEAR * 0.9 {
            skew = least(-MAX_SKEW, MAX_SKEW, 30, |skew| self.cost(skew));
        }
        let noise = self.cost(skew) / (2 * self.len) as f64;
        if self.cost(0.0) - self.cost(skew) > CERTAIN * noise {
            return skew;
        }
        least(skew.min(0.0), skew.max(0.0), 8, |skew| self.cost(skew) + skew.abs() / USUAL_SKEW * noise)
    }
}

/// Where a convex function is least.
fn least(mut low: f64, mut high: f64, rounds: u32, cost: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..rounds {
        let third = (high - low) / 3.0;
        if cost(low + third) <= cost(high - third) {
            high -= third;
        } else {
            low += third;
        }
    }
    (low + high) / 2.0
}
