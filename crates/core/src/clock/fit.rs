//! One line under two envelopes: the most likely offset and skew when delays are a constant plus exponential jitter.
//!
//! For that jitter the likelihood is greatest where the sum of all distances between the samples and the line is least, with no
//! sample below it. Both directions share one skew (with opposite signs), which halves its error. For a given skew the best line
//! of each direction touches its lowest sample, so the sum is a convex function of the skew alone, and its minimum is found
//! by narrowing an interval. A prior keeps the skew where it was last, and near zero at first, until the samples say otherwise.
//!
//! All this takes the least delay to be constant. Where it has become longer for good, as on another route, the samples of the
//! shorter one would hold the line down for as long as they are kept, so they are forgotten.

use super::{RoundTrip, STEPPED};
use crate::time::{Instant, TimeDelta};

/// Slices of time of which the least delay is kept.
const SLICES: usize = 40;
const SLICE: TimeDelta = TimeDelta::from_secs(1);
/// Slices that must agree that a route has become longer, and by how much at least.
const RECENT: i64 = 8;
/// Slices that are enough to tell how much the least round trip varies, and how many times the usual difference is still nothing unusual.
const ENOUGH: usize = 6;
const VARIES: i64 = 6;
/// Slices from which on a skew is relied on.
const SETTLED: usize = 10;
const OTHER_ROUTE: TimeDelta = TimeDelta::from_millis(3);
/// No clock worth synchronising is off by more.
pub(super) const MAX_SKEW: f64 = 0.02;
/// How far from what was thought a clock usually is (the scale of the prior).
const USUAL_SKEW: f64 = 30e-6;
/// By how many mean distances a skew must be better than the last to be believed without the prior.
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
    /// The least that one round trip took.
    rtt: TimeDelta,
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
    /// Whether the skew stems from enough slices to be what is expected from now on.
    pub(super) settled: bool,
    /// Whether it stems from as many slices as are kept.
    pub(super) full: bool,
    pub(super) rtt_min: TimeDelta,
}

impl Line {
    pub(super) fn offset(&self, at: Instant) -> TimeDelta {
        self.offset + (at - self.origin).scale(self.skew)
    }

    /// Whether a packet would have arrived before it was sent, or nearly so, if this line were right.
    pub(super) fn contradicts(&self, trip: &RoundTrip) -> bool {
        let offset = self.offset(trip.returned);
        let (out, back) = (trip.received - trip.sent - offset, trip.returned - trip.answered + offset);
        out.min(back) < -STEPPED
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
        let (number, rtt) = (slice_number(trip.returned), trip.rtt());
        let slot = &mut self.slices[number.rem_euclid(SLICES as i64) as usize];
        match slot {
            Some(slice) if slice.number == number => {
                slice.out = lower(slice.out, out);
                slice.back = lower(slice.back, back);
                slice.rtt = slice.rtt.min(rtt);
            }
            _ => *slot = Some(Slice { number, out, back, rtt }),
        }
    }

    /// Drops all but the newest slices when even their least round trip is clearly longer than that of the ones before.
    fn forget_shorter_route(&mut self, now: Instant) {
        let newest = slice_number(now);
        let recent = |slice: &&Slice| (0..RECENT).contains(&(newest - slice.number));
        let rtt = |slice: &Slice| slice.out.ahead + slice.back.ahead;
        let (count, least, sum) = self
            .slices
            .iter()
            .flatten()
            .filter(recent)
            .map(rtt)
            .fold((0, TimeDelta::MAX, TimeDelta::ZERO), |(count, least, sum), rtt| {
                (count + 1, least.min(rtt), sum + rtt)
            });
        let floor = self.slices.iter().flatten().map(rtt).min().unwrap_or_default();
        if count == RECENT && least - floor > OTHER_ROUTE + (sum / RECENT - least) * 4 {
            for slot in &mut self.slices {
                *slot = slot.filter(|slice| recent(&slice));
            }
        }
    }

    /// Whether no round trip of those that are kept is nearly as short as both ways at their best are by this line. Where delays vary some are
    /// longer than that anyway, in one slice more than in another.
    pub(super) fn contradicts(&self, now: Instant, line: Line) -> bool {
        let (mut rtts, mut count) = ([TimeDelta::ZERO; SLICES], 0);
        for (rtt, slice) in rtts.iter_mut().zip(self.current(now)) {
            *rtt = slice.rtt;
            count += 1;
        }
        let rtts = &mut rtts[..count];
        rtts.sort_unstable();
        let (Some(least), Some(usual)) = (rtts.first(), rtts.get(count / 2)) else { return false };
        count >= ENOUGH && *least - line.rtt_min > STEPPED + (*usual - *least) * VARIES
    }

    /// The slices that are not too old.
    fn current(&self, now: Instant) -> impl Iterator<Item = &Slice> {
        let newest = slice_number(now);
        self.slices.iter().flatten().filter(move |slice| (0..SLICES as i64).contains(&(newest - slice.number)))
    }

    /// The most likely line; the one before says where to look and what to expect.
    pub(super) fn fit(&mut self, now: Instant, last: Option<Line>, most_skew: f64) -> Line {
        self.forget_shorter_route(now);
        let points = Points::new(self, now);
        let usual = last.map_or(0.0, |line| if line.settled { line.skew } else { 0.0 });
        let skew = points.likely_skew(last.map_or(0.0, |line| line.skew), usual, most_skew);
        let (out, back) = (points.out.touch(skew), points.back.touch(-skew));
        Line {
            origin: now,
            offset: points.reference + TimeDelta::from_nanos(((out - back) / 2.0) as i64),
            skew,
            settled: points.out.len >= SETTLED || last.is_some_and(|line| line.settled),
            full: points.out.len == SLICES,
            rtt_min: TimeDelta::from_nanos((out + back) as i64),
        }
    }
}

fn slice_number(at: Instant) -> i64 {
    at.as_nanos().div_euclid(SLICE.as_nanos())
}

fn lower(one: Sample, other: Sample) -> Sample {
    if other.ahead < one.ahead { other } else { one }
}

/// The samples as plain numbers (nanoseconds), relative to now and to a reference offset so that nothing is lost to rounding.
struct Points {
    reference: TimeDelta,
    out: Side,
    back: Side,
}

/// The samples of one direction.
struct Side {
    at: [f64; SLICES],
    ahead: [f64; SLICES],
    len: usize,
    sum_at: f64,
    sum_ahead: f64,
}

impl Side {
    const EMPTY: Self = Self { at: [0.0; SLICES], ahead: [0.0; SLICES], len: 0, sum_at: 0.0, sum_ahead: 0.0 };

    fn push(&mut self, at: TimeDelta, ahead: TimeDelta) {
        let (at, ahead) = (at.as_nanos() as f64, ahead.as_nanos() as f64);
        (self.at[self.len], self.ahead[self.len]) = (at, ahead);
        self.len += 1;
        self.sum_at += at;
        self.sum_ahead += ahead;
    }

    /// Where the line of this skew touches the lowest sample: the delay, with the offset still in it.
    fn touch(&self, skew: f64) -> f64 {
        let mut lowest = f64::INFINITY;
        for (at, ahead) in self.at[..self.len].iter().zip(&self.ahead[..self.len]) {
            let distance = ahead - skew * at;
            lowest = if distance < lowest { distance } else { lowest };
        }
        lowest
    }

    /// The sum of all distances from that line.
    fn cost(&self, skew: f64) -> f64 {
        self.sum_ahead - skew * self.sum_at - self.touch(skew) * self.len as f64
    }
}

impl Points {
    fn new(envelope: &Envelope, now: Instant) -> Self {
        let mut slices = envelope.current(now).peekable();
        let reference = slices.peek().map_or(TimeDelta::ZERO, |slice| slice.out.ahead);
        let mut points = Self { reference, out: Side::EMPTY, back: Side::EMPTY };
        for slice in slices {
            points.out.push(slice.out.at - now, slice.out.ahead - reference);
            points.back.push(slice.back.at - now, slice.back.ahead + reference);
        }
        points
    }

    fn cost(&self, skew: f64) -> f64 {
        self.out.cost(skew) + self.back.cost(-skew)
    }

    /// The most likely skew; it is looked for near the last one, and expected to be the usual one.
    fn likely_skew(&self, near: f64, usual: f64, most: f64) -> f64 {
        if self.out.len < 2 {
            return usual;
        }
        let mut skew = least((near - NEAR).max(-most), (near + NEAR).min(most), 12, |skew| self.cost(skew));
        if (skew - near).abs() > NEAR * 0.9 {
            skew = least(-most, most, 36, |skew| self.cost(skew));
        }
        let cost = self.cost(skew);
        let noise = cost / (2 * self.out.len) as f64;
        if self.cost(usual) - cost > CERTAIN * noise {
            return skew;
        }
        least(skew.min(usual), skew.max(usual), 8, |skew| self.cost(skew) + (skew - usual).abs() / USUAL_SKEW * noise)
    }
}

/// Where a convex function is least, by golden sections.
fn least(mut low: f64, mut high: f64, rounds: u32, cost: impl Fn(f64) -> f64) -> f64 {
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
