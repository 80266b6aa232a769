//! When obsolete events are given up on: Section IV of the paper, as policies of one queue.

use super::config::{Curve, Policy};
use crate::time::TimeDelta;

/// How many are to be given up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    None,
    One,
    All,
}

/// A policy and what it remembers.
#[derive(Debug)]
pub(super) struct Dropper {
    policy: Policy,
    average: Option<TimeDelta>,
    obsolete: Dice,
    others: Dice,
    state: u64,
}

/// Spreads drops evenly: as in RED, the chance grows with the events since the last one.
#[derive(Debug, Default)]
struct Dice {
    counter: u64,
    /// From 0 to 65,535.
    random: u64,
}

impl Dropper {
    pub(super) fn new(policy: Policy, seed: u64) -> Self {
        let (obsolete, others) = (Dice::default(), Dice::default());
        let mut dropper = Self { policy, average: None, obsolete, others, state: seed | 1 };
        dropper.obsolete.random = dropper.draw();
        dropper.others.random = dropper.draw();
        dropper
    }

    /// From 0 to 65,535 (Marsaglia's xorshift, multiplied).
    fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 48
    }

    /// Whether it goes by how long events take.
    pub(super) fn listens(&self) -> bool {
        !matches!(self.policy, Policy::Off | Policy::Adaptive { .. })
    }

    /// An event took so long: what is to become of those that are obsolete?
    pub(super) fn on_sample(&mut self, sample: TimeDelta) -> Verdict {
        match self.policy {
            Policy::Off | Policy::Adaptive { .. } => Verdict::None,
            Policy::OnOff { threshold } if sample > threshold => Verdict::All,
            Policy::OnOff { .. } => Verdict::None,
            Policy::Ila(curve) | Policy::TwoCurve { obsolete: curve, .. } => {
                let average = self.smooth(sample, curve.weight);
                self.obsolete.throw(&curve, average)
            }
        }
    }

    /// After [`on_sample`](Self::on_sample): whether one that is not obsolete is to be given up on, as a last resort.
    pub(super) fn is_last_resort(&mut self) -> bool {
        match (self.policy, self.average) {
            (Policy::TwoCurve { others, .. }, Some(average)) => self.others.throw(&others, average) != Verdict::None,
            _ => false,
        }
    }

    fn smooth(&mut self, sample: TimeDelta, weight: u8) -> TimeDelta {
        let average = self.average.map_or(sample, |average| average + (sample - average) / (1i64 << weight));
        self.average = Some(average);
        average
    }

    pub(super) fn on_dropped(&mut self) {
        self.obsolete = Dice { counter: 0, random: self.draw() };
    }

    pub(super) fn on_gave_up(&mut self) {
        self.others = Dice { counter: 0, random: self.draw() };
    }
}

impl Dice {
    /// Equation 6 of the paper: counter ≥ R / p.
    fn throw(&mut self, curve: &Curve, average: TimeDelta) -> Verdict {
        if average < curve.min {
            return Verdict::None;
        }
        if average >= curve.max {
            return Verdict::All;
        }
        self.counter += 1;
        let (above, width) = ((average - curve.min).as_nanos(), (curve.max - curve.min).as_nanos());
        let chance = (u128::from(curve.most) * 65_536 / 1_000 * above as u128 / width as u128) as u64;
        if self.counter * chance >= self.random.max(1) { Verdict::One } else { Verdict::None }
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
    fn off_and_on_off_are_what_they_say() {
        let mut off = Dropper::new(Policy::Off, 1);
        assert_eq!(off.on_sample(ms(9_999)), Verdict::None);
        let mut on_off = Dropper::new(Policy::OnOff { threshold: GIT }, 1);
        assert_eq!([149, 151, 150].map(|gtd| on_off.on_sample(ms(gtd))), [Verdict::None, Verdict::All, Verdict::None]);
    }

    #[test]
    fn ila_drops_with_the_chance_of_its_average_and_evenly() {
        let mut ila = Dropper::new(Policy::Ila(Curve::PAPER), 7);
        assert_eq!(ila.on_sample(ms(49)), Verdict::None);
        ila.average = Some(ms(100));
        let (mut drops, mut since, mut longest) = (0, 0, 0);
        for _ in 0..10_000 {
            since += 1;
            if ila.on_sample(ms(100)) == Verdict::One {
                ila.on_dropped();
                (drops, longest, since) = (drops + 1, longest.max(since), 0);
            }
        }
        // The chance is 10 %; between two drops there are 1 to 10 events, evenly spread.
        assert!((1_600..2_000).contains(&drops) && longest == 10, "{drops} drops, {longest} apart");
        assert_eq!(ila.on_sample(ms(9_000)), Verdict::All);
    }

    #[test]
    fn the_last_resort_is_only_for_two_curves_and_only_when_nothing_else_helps() {
        let policy = Policy::TwoCurve { obsolete: Curve::PAPER, others: Curve::LAST_RESORT };
        let mut two = Dropper::new(policy, 7);
        two.on_sample(ms(149));
        assert!(!(0..100).any(|_| two.is_last_resort()));
        two.on_sample(ms(100_000));
        assert!(two.is_last_resort());
        let mut ila = Dropper::new(Policy::Ila(Curve::PAPER), 7);
        ila.on_sample(ms(100_000));
        assert!(!ila.is_last_resort());
    }
}
