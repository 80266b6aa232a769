//! The way of an object: numbered commands, each with the leg before it. Whoever knows the commands knows the same way.

use alloc::collections::VecDeque;

use super::{Number, Predictor};
use crate::time::TimeDelta;

/// Commands that are kept for those who have not heard of them. Who has missed more is told where the oldest of them began.
pub(super) const KEPT: usize = 16;

/// A command, and where it took effect.
#[derive(Clone, Debug)]
pub(super) struct Turn<S, V> {
    pub(super) number: Number,
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
    pub(super) fn new(number: Number, start: S, vector: V) -> Self {
        Self { before: VecDeque::new(), newest: Turn { number, leg: TimeDelta::ZERO, start, vector } }
    }

    pub(super) fn newest(&self) -> &Turn<S, V> {
        &self.newest
    }

    /// The newest command is another, because it was combined with one more.
    pub(super) fn set_vector(&mut self, vector: V) {
        self.newest.vector = vector;
    }

    /// The newest command has another number, and those before it are forgotten: their numbers say nothing any more.
    pub(super) fn renumber(&mut self, number: Number) {
        self.before.clear();
        self.newest.number = number;
    }

    /// One more command, after so long a leg.
    pub(super) fn turn<P: Predictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        number: Number,
        leg: TimeDelta,
        vector: V,
    ) {
        let start = predictor.advance(&self.newest.start, &self.newest.vector, leg);
        self.push(Turn { number, leg, start, vector });
    }

    fn push(&mut self, turn: Turn<S, V>) {
        let before = core::mem::replace(&mut self.newest, turn);
        if self.before.len() >= KEPT - 1 {
            self.before.pop_front();
        }
        self.before.push_back(before);
    }

    /// A command of which somebody else told, with where it took effect if that was told: then that counts, whatever we think of the way there.
    pub(super) fn hear<P: Predictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        (number, leg, vector): (Number, TimeDelta, V),
        start: Option<S>,
    ) -> Heard {
        if number <= self.newest.number {
            return Heard::Known;
        }
        let is_next = number == self.newest.number.next();
        match start {
            Some(start) if is_next => self.push(Turn { number, leg, start, vector }),
            Some(start) => *self = Self::new(number, start, vector),
            None if is_next => self.turn(predictor, number, leg, vector),
            None => return Heard::Missing,
        }
        Heard::New
    }

    /// A command, if it is still kept.
    pub(super) fn find(&self, number: Number) -> Option<&Turn<S, V>> {
        self.before.iter().chain(core::iter::once(&self.newest)).find(|turn| turn.number == number)
    }

    /// The commands after this one that are still kept, and the newest in any case.
    pub(super) fn since(&self, number: Option<Number>) -> impl Iterator<Item = &Turn<S, V>> {
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

    fn number(count: u32) -> Number {
        Number { epoch: 4, count }
    }

    fn turn(course: &mut Course<Pair, Pair>, leg: TimeDelta, vector: Pair) {
        course.turn(&LINEAR, course.newest().number.next(), leg, vector);
    }

    fn second() -> TimeDelta {
        TimeDelta::from_secs(1)
    }

    #[test]
    fn who_hears_all_commands_walks_the_same_way() {
        let mut told = Course::new(number(0), Pair::default(), Pair::units(1, 0));
        let mut heard = told.clone();
        turn(&mut told, second() * 2, Pair::units(0, 1));
        turn(&mut told, second() * 3, Pair::units(1, 1));
        assert_eq!(told.newest().start, Pair::units(2, 3));
        let turns: Vec<_> = told.since(Some(number(0))).cloned().collect();
        let hear = |heard: &mut Course<_, _>, at: usize, start| {
            let turn: &Turn<Pair, Pair> = &turns[at];
            heard.hear(&LINEAR, (turn.number, turn.leg, turn.vector), start)
        };
        assert_eq!(hear(&mut heard, 1, None), Heard::Missing);
        assert_eq!(hear(&mut heard, 0, None), Heard::New);
        assert_eq!(hear(&mut heard, 0, None), Heard::Known);
        assert_eq!(hear(&mut heard, 1, None), Heard::New);
        assert_eq!(heard.newest().start, Pair::units(2, 3));
        let mut late = Course::new(number(0), Pair::default(), Pair::default());
        assert_eq!(hear(&mut late, 1, Some(turns[1].start)), Heard::New);
        assert_eq!(late.newest().start, Pair::units(2, 3));
    }

    #[test]
    fn where_a_command_took_effect_counts_if_it_is_told() {
        let mut course = Course::new(number(0), Pair::units(9, 9), Pair::units(1, 0));
        let heard = course.hear(&LINEAR, (number(1), second(), Pair::default()), Some(Pair::units(2, 3)));
        assert_eq!((heard, course.newest().start), (Heard::New, Pair::units(2, 3)));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut course = Course::new(number(0), Pair::default(), Pair::units(1, 0));
        (0..100).for_each(|_| turn(&mut course, second(), Pair::units(1, 0)));
        let numbers: Vec<u32> = course.since(Some(number(3))).map(|turn| turn.number.count).collect();
        assert_eq!(numbers, (85..=100).collect::<Vec<u32>>());
        assert_eq!(course.since(None).count(), 1);
        course.renumber(number(1));
        assert_eq!((course.since(Some(number(0))).count(), course.newest().number), (1, number(1)));
    }
}
