//! Drop policies for obsolete events after Section IV of the paper: each GTD sample decides how many events to drop.

use super::config::{DropCurve, DropPolicy};
use crate::time::TimeDelta;

/// Number of obsolete events to drop after one GTD sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropAmount {
    None,
    One,
    All,
}

/// A drop policy with its average GTD, its drop counters and its random number generator.
#[derive(Debug)]
pub(super) struct Dropper {
    policy: DropPolicy,
    average_gtd: Option<TimeDelta>,
    obsolete: DropSpacing,
    others: DropSpacing,
    rng_state: u64,
}

/// State that spaces drops evenly: as in RED, the drop probability grows with the number of GTD samples since the last
/// drop. Samples that leave the average outside the curve do not count.
#[derive(Debug, Default)]
struct DropSpacing {
    counter: u64,
    /// Random number from 0 to 65,535 (R in the paper).
    random: u64,
}

impl Dropper {
    pub(super) fn new(policy: DropPolicy, seed: u64) -> Self {
        let (obsolete, others) = (DropSpacing::default(), DropSpacing::default());
        let mut dropper = Self { policy, average_gtd: None, obsolete, others, rng_state: seed | 1 };
        dropper.obsolete.random = dropper.next_random();
        dropper.others.random = dropper.next_random();
        dropper
    }

    /// Returns a random number from 0 to 65,535 (Marsaglia's xorshift, multiplied).
    fn next_random(&mut self) -> u64 {
        self.rng_state ^= self.rng_state >> 12;
        self.rng_state ^= self.rng_state << 25;
        self.rng_state ^= self.rng_state >> 27;
        self.rng_state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 48
    }

    pub(super) fn uses_gtd_samples(&self) -> bool {
        !matches!(self.policy, DropPolicy::Off | DropPolicy::Adaptive { .. })
    }

    /// Adds a GTD sample and returns how many obsolete events to drop now.
    pub(super) fn on_sample(&mut self, sample: TimeDelta) -> DropAmount {
        match self.policy {
            DropPolicy::Off | DropPolicy::Adaptive { .. } => DropAmount::None,
            DropPolicy::OnOff { threshold } if sample > threshold => DropAmount::All,
            DropPolicy::OnOff { .. } => DropAmount::None,
            DropPolicy::Ila(curve) | DropPolicy::TwoCurve { obsolete: curve, .. } => {
                let average = self.update_average(sample, curve.average_shift);
                self.obsolete.evaluate(&curve, average)
            }
        }
    }

    /// Returns whether to drop an event that is not obsolete, as a last resort. Must be called once after each
    /// [`on_sample`](Self::on_sample). Always false except under [`DropPolicy::TwoCurve`].
    pub(super) fn should_abandon(&mut self) -> bool {
        match (self.policy, self.average_gtd) {
            (DropPolicy::TwoCurve { others, .. }, Some(average)) => {
                self.others.evaluate(&others, average) != DropAmount::None
            }
            _ => false,
        }
    }

    fn update_average(&mut self, sample: TimeDelta, shift: u8) -> TimeDelta {
        let average = self.average_gtd.map_or(sample, |average| average + (sample - average) / (1i64 << shift));
        self.average_gtd = Some(average);
        average
    }

    pub(super) fn on_dropped(&mut self) {
        self.obsolete = DropSpacing { counter: 0, random: self.next_random() };
    }

    pub(super) fn on_abandoned(&mut self) {
        self.others = DropSpacing { counter: 0, random: self.next_random() };
    }
}

impl DropSpacing {
    /// Decides on a drop by the average GTD. Between the ends of the curve, it follows equation 6 of the paper:
    /// counter ≥ R / p.
    fn evaluate(&mut self, curve: &DropCurve, average: TimeDelta) -> DropAmount {
        if average < curve.min {
            return DropAmount::None;
        }
        if average >= curve.max {
            return DropAmount::All;
        }
        self.counter += 1;
        let (above, width) = ((average - curve.min).as_nanos(), (curve.max - curve.min).as_nanos());
        let probability = (u128::from(curve.max_drop_permille) * 65_536 / 1_000 * above as u128 / width as u128) as u64;
        if self.counter * probability >= self.random.max(1) { DropAmount::One } else { DropAmount::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIT: TimeDelta = TimeDelta::from_millis(150);

    fn ms(millis: i64) -> TimeDelta {
        TimeDelta::from_millis(millis)
    }

    #[test]
    fn off_never_drops_and_on_off_drops_all_above_the_threshold() {
        let mut off = Dropper::new(DropPolicy::Off, 1);
        assert_eq!(off.on_sample(ms(9_999)), DropAmount::None);
        let mut on_off = Dropper::new(DropPolicy::OnOff { threshold: GIT }, 1);
        assert_eq!(
            [149, 151, 150].map(|gtd| on_off.on_sample(ms(gtd))),
            [DropAmount::None, DropAmount::All, DropAmount::None]
        );
    }

    #[test]
    fn ila_drops_evenly_with_the_probability_of_its_average() {
        let mut ila = Dropper::new(DropPolicy::Ila(DropCurve::PAPER), 7);
        assert_eq!(ila.on_sample(ms(49)), DropAmount::None);
        ila.average_gtd = Some(ms(100));
        let (mut drops, mut since, mut longest) = (0, 0, 0);
        for _ in 0..10_000 {
            since += 1;
            if ila.on_sample(ms(100)) == DropAmount::One {
                ila.on_dropped();
                (drops, longest, since) = (drops + 1, longest.max(since), 0);
            }
        }
        // The drop probability is 10 %, so each drop follows the last one after 1 to 10 samples, evenly distributed.
        assert!((1_600..2_000).contains(&drops) && longest == 10, "{drops} drops, {longest} apart");
        assert_eq!(ila.on_sample(ms(9_000)), DropAmount::All);
    }

    #[test]
    fn only_two_curve_abandons_events_and_only_above_its_second_curve() {
        let policy = DropPolicy::TwoCurve { obsolete: DropCurve::PAPER, others: DropCurve::LAST_RESORT };
        let mut two = Dropper::new(policy, 7);
        two.on_sample(ms(149));
        assert!(!(0..100).any(|_| two.should_abandon()));
        two.on_sample(ms(100_000));
        assert!(two.should_abandon());
        let mut ila = Dropper::new(DropPolicy::Ila(DropCurve::PAPER), 7);
        ila.on_sample(ms(100_000));
        assert!(!ila.should_abandon());
    }
}
