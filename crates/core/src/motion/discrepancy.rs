//! Relaxed consistency (Definition 2.3): D = ∫ |sᵢ(t) − sⱼ(t)| dt over a sliding window, against a tolerance ξ.
//!
//! One of the two copies is recorded as it is displayed. The other is evaluated when D is computed, so that information
//! about it that arrives late counts from the time it applies to.

use alloc::collections::VecDeque;

use crate::time::{Instant, TimeDelta};

/// Maximum number of samples in a window.
const MAX_SAMPLES: usize = 128;

/// Recorder of the recently displayed states of one copy of an object, which computes the discrepancy D to another
/// copy.
#[derive(Clone, Debug)]
pub struct DiscrepancyMeter<S> {
    averaging_window: TimeDelta,
    samples: VecDeque<(Instant, S)>,
}

/// Recent discrepancy between two copies of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consistency {
    /// D over `duration`, in units times seconds.
    pub discrepancy: f64,
    /// Tolerance ξ, in units times seconds.
    pub tolerance: f64,
    /// Measured duration: about the averaging window, or less if the state of the other copy is not known for all of
    /// it.
    pub duration: TimeDelta,
}

impl Consistency {
    /// Returns whether D is below the tolerance.
    pub fn is_tolerated(&self) -> bool {
        self.discrepancy < self.tolerance
    }
}

impl<S: Clone> DiscrepancyMeter<S> {
    /// Creates a meter without samples, which measures over the last `averaging_window`.
    pub fn new(averaging_window: TimeDelta) -> Self {
        Self { averaging_window, samples: VecDeque::new() }
    }

    /// Records the displayed state. Ignores states that follow the last sample by less than 1/128 of the averaging
    /// window.
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

    /// Computes D. `distance` returns the distance of a sample to the other copy, or `None` where the other copy's
    /// state is not known; it is called for one sample after the other, oldest first. Returns D and the measured
    /// duration.
    pub fn measure(&self, mut distance: impl FnMut(Instant, &S) -> Option<f64>) -> (f64, TimeDelta) {
        let mut last_sample: Option<(Instant, f64)> = None;
        let (mut sum, mut duration) = (0.0, TimeDelta::ZERO);
        for (at, state) in &self.samples {
            let Some(current) = distance(*at, state) else { continue };
            if let Some((last, previous)) = last_sample {
                sum += (current + previous) / 2.0 * (*at - last).as_secs_f64();
                duration += *at - last;
            }
            last_sample = Some((*at, current));
        }
        (sum, duration)
    }

    /// Returns the heap size in bytes.
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
        // Two units apart over 2 s; then as far apart as the elapsed seconds, over the last 2 s of 10 s.
        let (area, duration) = discrepancy.measure(|_, state| Some((state - (state - 2.0)).abs()));
        assert!(
            (area - 2.0 * duration.as_secs_f64()).abs() < 1e-9 && duration > TimeDelta::from_millis(1_900),
            "{area}"
        );
        let (area, duration) = discrepancy.measure(|_, state| Some(*state));
        let mean = area / duration.as_secs_f64();
        assert!((8.9..9.1).contains(&mean), "{mean}");
        assert!(discrepancy.samples.len() <= MAX_SAMPLES);
    }

    #[test]
    fn times_without_known_state_are_not_measured() {
        let mut discrepancy = DiscrepancyMeter::new(TimeDelta::from_secs(2));
        (0..100).for_each(|step| discrepancy.record(Instant::ZERO + TimeDelta::from_millis(20 * step), &1.0));
        assert_eq!(discrepancy.measure(|_, _| None), (0.0, TimeDelta::ZERO));
        let late = Instant::ZERO + TimeDelta::from_secs(1);
        let (area, duration) = discrepancy.measure(|at, state| (at >= late).then_some(*state));
        assert!((area - duration.as_secs_f64()).abs() < 1e-9 && duration < TimeDelta::from_secs(1));
    }
}
