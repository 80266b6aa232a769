//! Relaxed consistency (Definition 2.3): D = ∫ |sᵢ(t) − sⱼ(t)| dt over a window that slides along, against a tolerance ξ.
//!
//! One of the two copies is kept as it was seen; the other is asked for when D is, so that what is learned late of it counts from when it was.

use alloc::collections::VecDeque;

use crate::time::{Instant, TimeDelta};

/// Moments of a window that are kept.
const MAX_SAMPLES: usize = 128;

/// A copy of an object as it was seen of late.
#[derive(Clone, Debug)]
pub struct DiscrepancyMeter<S> {
    averaging_window: TimeDelta,
    samples: VecDeque<(Instant, S)>,
}

/// How far apart two copies of an object were of late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consistency {
    /// D, in units times seconds.
    pub discrepancy: f64,
    /// ξ.
    pub tolerance: f64,
    /// Over how long it was measured: the window, or less where there was no more.
    pub duration: TimeDelta,
}

impl Consistency {
    /// Whether it is as consistent as it should be.
    pub fn is_tolerated(&self) -> bool {
        self.discrepancy < self.tolerance
    }
}

impl<S: Clone> DiscrepancyMeter<S> {
    /// Over so long a time.
    pub fn new(window: TimeDelta) -> Self {
        Self { averaging_window: window, samples: VecDeque::new() }
    }

    /// It is seen like this now. More often than it can be kept it is not.
    pub fn record(&mut self, now: Instant, state: &S) {
        if self.samples.back().is_some_and(|(last, _)| now - *last < self.averaging_window / MAX_SAMPLES as i64) {
            return;
        }
        while self.samples.len() >= MAX_SAMPLES
            || self.samples.front().is_some_and(|(first, _)| now - *first > self.averaging_window)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, state.clone()));
    }

    /// D, by how far it was from another copy at each moment, where that is known; and over how long.
    pub fn measure(&self, distance: impl Fn(Instant, &S) -> Option<f64>) -> (f64, TimeDelta) {
        let mut before: Option<(Instant, f64)> = None;
        let (mut sum, mut over) = (0.0, TimeDelta::ZERO);
        for (at, state) in &self.samples {
            let Some(apart) = distance(*at, state) else { continue };
            if let Some((last, last_apart)) = before {
                sum += (apart + last_apart) / 2.0 * (*at - last).as_secs_f64();
                over += *at - last;
            }
            before = Some((*at, apart));
        }
        (sum, over)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.samples.capacity() * size_of::<(Instant, S)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discrepancy_is_the_area_between_two_copies_over_the_averaging_window() {
        let mut discrepancy = DiscrepancyMeter::new(TimeDelta::from_secs(2));
        for step in 0..1_000i64 {
            discrepancy.record(Instant::ZERO + TimeDelta::from_millis(10 * step), &(step as f64 / 100.0));
        }
        // Two units apart for two seconds; then as far apart as time goes on, the last two of ten seconds.
        let (area, over) = discrepancy.measure(|_, state| Some((state - (state - 2.0)).abs()));
        assert!((area - 2.0 * over.as_secs_f64()).abs() < 1e-9 && over > TimeDelta::from_millis(1_900), "{area}");
        let (area, over) = discrepancy.measure(|_, state| Some(*state));
        let mean = area / over.as_secs_f64();
        assert!((8.9..9.1).contains(&mean), "{mean}");
        assert!(discrepancy.samples.len() <= MAX_SAMPLES);
    }

    #[test]
    fn times_without_known_state_are_not_measured() {
        let mut discrepancy = DiscrepancyMeter::new(TimeDelta::from_secs(2));
        (0..100).for_each(|step| discrepancy.record(Instant::ZERO + TimeDelta::from_millis(20 * step), &1.0));
        assert_eq!(discrepancy.measure(|_, _| None), (0.0, TimeDelta::ZERO));
        let late = Instant::ZERO + TimeDelta::from_secs(1);
        let (area, over) = discrepancy.measure(|at, state| (at >= late).then_some(*state));
        assert!((area - over.as_secs_f64()).abs() < 1e-9 && over < TimeDelta::from_secs(1));
    }
}
