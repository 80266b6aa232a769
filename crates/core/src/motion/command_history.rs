//! The way of an object: numbered commands, each with the leg before it. Whoever knows the commands knows the same way.

use alloc::collections::VecDeque;

use super::{CommandNumber, MotionPredictor};
use crate::time::TimeDelta;

/// Commands that are kept for those who have not heard of them. Who has missed more is told where the oldest of them began.
pub(super) const MAX_COMMANDS: usize = 16;

/// A command, and where it took effect.
#[derive(Clone, Debug)]
pub(super) struct MotionCommand<S, V> {
    pub(super) number: CommandNumber,
    /// How long the leg before it lasted, in motion time.
    pub(super) previous_segment: TimeDelta,
    pub(super) start: S,
    pub(super) vector: V,
}

/// The newest commands of an object; there is always one.
#[derive(Clone, Debug)]
pub(super) struct CommandHistory<S, V> {
    previous: VecDeque<MotionCommand<S, V>>,
    newest: MotionCommand<S, V>,
}

/// What a command was to who heard it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandReceipt {
    /// It is the newest now.
    New,
    /// It was known.
    Duplicate,
    /// Commands before it are missing, and where it took effect was not told.
    Gap,
}

impl<S: Clone, V: Clone> CommandHistory<S, V> {
    pub(super) fn new(number: CommandNumber, start: S, vector: V) -> Self {
        Self {
            previous: VecDeque::new(),
            newest: MotionCommand { number, previous_segment: TimeDelta::ZERO, start, vector },
        }
    }

    pub(super) fn newest(&self) -> &MotionCommand<S, V> {
        &self.newest
    }

    /// The newest command is another, because it was combined with one more.
    pub(super) fn set_vector(&mut self, vector: V) {
        self.newest.vector = vector;
    }

    /// The newest command has another number, and those before it are forgotten: their numbers say nothing any more.
    pub(super) fn renumber(&mut self, number: CommandNumber) {
        self.previous.clear();
        self.newest.number = number;
    }

    /// One more command, after so long a leg.
    pub(super) fn append<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        number: CommandNumber,
        leg: TimeDelta,
        vector: V,
    ) {
        let start = predictor.advance(&self.newest.start, &self.newest.vector, leg);
        self.push(MotionCommand { number, previous_segment: leg, start, vector });
    }

    fn push(&mut self, turn: MotionCommand<S, V>) {
        let before = core::mem::replace(&mut self.newest, turn);
        if self.previous.len() >= MAX_COMMANDS - 1 {
            self.previous.pop_front();
        }
        self.previous.push_back(before);
    }

    /// A command of which somebody else told, with where it took effect if that was told: then that counts, whatever we think of the way there.
    pub(super) fn receive<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        (number, leg, vector): (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> CommandReceipt {
        if number <= self.newest.number {
            return CommandReceipt::Duplicate;
        }
        let is_next = number == self.newest.number.next();
        match start {
            Some(start) if is_next => self.push(MotionCommand { number, previous_segment: leg, start, vector }),
            Some(start) => *self = Self::new(number, start, vector),
            None if is_next => self.append(predictor, number, leg, vector),
            None => return CommandReceipt::Gap,
        }
        CommandReceipt::New
    }

    /// A command, if it is still kept.
    pub(super) fn find(&self, number: CommandNumber) -> Option<&MotionCommand<S, V>> {
        self.previous.iter().chain(core::iter::once(&self.newest)).find(|turn| turn.number == number)
    }

    /// The commands after this one that are still kept, and the newest in any case.
    pub(super) fn commands_since(&self, number: Option<CommandNumber>) -> impl Iterator<Item = &MotionCommand<S, V>> {
        let is_after = move |turn: &&MotionCommand<S, V>| number.is_some_and(|number| turn.number > number);
        self.previous.iter().filter(is_after).chain(core::iter::once(&self.newest))
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.previous.capacity() * size_of::<MotionCommand<S, V>>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinearPredictor, MilliVec2};
    use super::*;
    use alloc::vec::Vec;

    const LINEAR: LinearPredictor = LinearPredictor { max_speed: 9_000 };

    fn number(count: u32) -> CommandNumber {
        CommandNumber { epoch: 4, count }
    }

    fn append_command(course: &mut CommandHistory<MilliVec2, MilliVec2>, leg: TimeDelta, vector: MilliVec2) {
        course.append(&LINEAR, course.newest().number.next(), leg, vector);
    }

    fn one_second() -> TimeDelta {
        TimeDelta::from_secs(1)
    }

    #[test]
    fn same_commands_give_the_same_path() {
        let mut told = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::from_units(1, 0));
        let mut heard = told.clone();
        append_command(&mut told, one_second() * 2, MilliVec2::from_units(0, 1));
        append_command(&mut told, one_second() * 3, MilliVec2::from_units(1, 1));
        assert_eq!(told.newest().start, MilliVec2::from_units(2, 3));
        let turns: Vec<_> = told.commands_since(Some(number(0))).cloned().collect();
        let hear = |heard: &mut CommandHistory<_, _>, at: usize, start| {
            let turn: &MotionCommand<MilliVec2, MilliVec2> = &turns[at];
            heard.receive(&LINEAR, (turn.number, turn.previous_segment, turn.vector), start)
        };
        assert_eq!(hear(&mut heard, 1, None), CommandReceipt::Gap);
        assert_eq!(hear(&mut heard, 0, None), CommandReceipt::New);
        assert_eq!(hear(&mut heard, 0, None), CommandReceipt::Duplicate);
        assert_eq!(hear(&mut heard, 1, None), CommandReceipt::New);
        assert_eq!(heard.newest().start, MilliVec2::from_units(2, 3));
        let mut late = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::default());
        assert_eq!(hear(&mut late, 1, Some(turns[1].start)), CommandReceipt::New);
        assert_eq!(late.newest().start, MilliVec2::from_units(2, 3));
    }

    #[test]
    fn received_start_state_overrides_the_local_one() {
        let mut course = CommandHistory::new(number(0), MilliVec2::from_units(9, 9), MilliVec2::from_units(1, 0));
        let heard =
            course.receive(&LINEAR, (number(1), one_second(), MilliVec2::default()), Some(MilliVec2::from_units(2, 3)));
        assert_eq!((heard, course.newest().start), (CommandReceipt::New, MilliVec2::from_units(2, 3)));
    }

    #[test]
    fn command_history_is_bounded() {
        let mut course = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::from_units(1, 0));
        (0..100).for_each(|_| append_command(&mut course, one_second(), MilliVec2::from_units(1, 0)));
        let numbers: Vec<u32> = course.commands_since(Some(number(3))).map(|turn| turn.number.count).collect();
        assert_eq!(numbers, (85..=100).collect::<Vec<u32>>());
        assert_eq!(course.commands_since(None).count(), 1);
        course.renumber(number(1));
        assert_eq!((course.commands_since(Some(number(0))).count(), course.newest().number), (1, number(1)));
    }
}
