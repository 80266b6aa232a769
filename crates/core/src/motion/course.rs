//! The way of an object: numbered commands, each with the leg before it. Whoever knows the commands knows the same way.

use alloc::collections::VecDeque;

use super::Predictor;
use crate::time::TimeDelta;

/// Commands that are kept for those who have not heard of them. Who has missed more is told where the oldest of them began.
pub(super) const KEPT: usize = 16;
/// After a command of the server's own the numbers of an object go on from the next multiple of this, so that none that is under way is taken for
/// one after it.
const EPOCH: u32 = 1 << 16;

/// A command, and where it took effect.
#[derive(Clone, Debug)]
pub(super) struct Turn<S, V> {
    pub(super) number: u32,
    /// How long the leg before it lasted, in motion time.
    pub(super) leg: TimeDelta,
    pub(super) start: S,
    pub(super) vector: V,
}

/// The newest commands of an object; there is always one.
#[derive(Clone, Debug)]
pub(super) struct Course<S, V> {
    before: VecDeque<Turn<S, V>>,
    newest: Turn<S, V>,
}

/// What a command was to who heard it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is the newest now.
    New,
    /// It was known.
    Known,
    /// Commands before it are missing, and where it took effect was not told.
    Missing,
}

impl<S: Clone, V: Clone> Course<S, V> {
    pub(super) fn new(number: u32, start: S, vector: V) -> Self {
        Self { before: VecDeque::new(), newest: Turn { number, leg: TimeDelta::ZERO, start, vector } }
    }

    pub(super) fn newest(&self) -> &Turn<S, V> {
        &self.newest
    }

    /// The newest command is another, because it was combined with one more.
    pub(super) fn set_vector(&mut self, vector: V) {
        self.newest.vector = vector;
    }

    /// The number of a command after which none that is under way counts.
    pub(super) fn next_epoch(&self) -> u32 {
        (self.newest.number | (EPOCH - 1)).wrapping_add(1)
    }

    /// One more command, after so long a leg.
    pub(super) fn turn<P: Predictor<State = S, Vector = V>>(&mut self, predictor: &P, leg: TimeDelta, vector: V) {
        let start = predictor.advance(&self.newest.start, &self.newest.vector, leg);
        let number = self.newest.number.wrapping_add(1);
        let before = core::mem::replace(&mut self.newest, Turn { number, leg, start, vector });
        if self.before.len() >= KEPT - 1 {
            self.before.pop_front();
        }
        self.before.push_back(before);
    }

    /// A command of which somebody else told, with where it took effect if that was told.
    pub(super) fn hear<P: Predictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        (number, leg, vector): (u32, TimeDelta, V),
        start: Option<S>,
    ) -> Heard {
        if number <= self.newest.number {
            return Heard::Known;
        }
        if number == self.newest.number + 1 {
            self.turn(predictor, leg, vector);
            return Heard::New;
        }
        let Some(start) = start else { return Heard::Missing };
        *self = Self::new(number, start, vector);
        Heard::New
    }

    /// A command, if it is still kept.
    pub(super) fn find(&self, number: u32) -> Option<&Turn<S, V>> {
        self.before.iter().chain(core::iter::once(&self.newest)).find(|turn| turn.number == number)
    }

    /// The commands after this one that are still kept, and the newest in any case.
    pub(super) fn since(&self, number: Option<u32>) -> impl Iterator<Item = &Turn<S, V>> {
        let is_after = move |turn: &&Turn<S, V>| number.is_some_and(|number| turn.number > number);
        self.before.iter().filter(is_after).chain(core::iter::once(&self.newest))
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.before.capacity() * size_of::<Turn<S, V>>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Linear, Pair};
    use super::*;
    use alloc::vec::Vec;

    const LINEAR: Linear = Linear { fastest: 9_000 };

    fn second() -> TimeDelta {
        TimeDelta::from_secs(1)
    }

    #[test]
    fn who_hears_all_commands_walks_the_same_way() {
        let mut told = Course::new(0, Pair::default(), Pair::units(1, 0));
        let mut heard = told.clone();
        told.turn(&LINEAR, second() * 2, Pair::units(0, 1));
        told.turn(&LINEAR, second() * 3, Pair::units(1, 1));
        assert_eq!(told.newest().start, Pair::units(2, 3));
        let turns: Vec<_> = told.since(Some(0)).cloned().collect();
        let hear = |heard: &mut Course<_, _>, at: usize, start| {
            let turn: &Turn<Pair, Pair> = &turns[at];
            heard.hear(&LINEAR, (turn.number, turn.leg, turn.vector), start)
        };
        assert_eq!(hear(&mut heard, 1, None), Heard::Missing);
        assert_eq!(hear(&mut heard, 0, None), Heard::New);
        assert_eq!(hear(&mut heard, 0, None), Heard::Known);
        assert_eq!(hear(&mut heard, 1, None), Heard::New);
        assert_eq!(heard.newest().start, Pair::units(2, 3));
        let mut late = Course::new(0, Pair::default(), Pair::default());
        assert_eq!(hear(&mut late, 1, Some(turns[1].start)), Heard::New);
        assert_eq!(late.newest().start, Pair::units(2, 3));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut course = Course::new(0, Pair::default(), Pair::units(1, 0));
        (0..100).for_each(|_| course.turn(&LINEAR, second(), Pair::units(1, 0)));
        let numbers: Vec<u32> = course.since(Some(3)).map(|turn| turn.number).collect();
        assert_eq!(numbers, (85..=100).collect::<Vec<u32>>());
        assert_eq!(course.since(None).count(), 1);
        assert_eq!(course.next_epoch(), 65_536);
    }
}
