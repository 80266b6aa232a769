//! The path of an object: numbered commands, each with the duration of the segment before it. Simulators that know the
//! same commands follow the same path.

use alloc::collections::VecDeque;

use super::{CommandNumber, MotionPredictor};
use crate::time::TimeDelta;

/// Maximum number of commands kept for receivers that lack them. A receiver that lacks more continues from the start
/// state of the oldest kept one.
pub(super) const MAX_COMMANDS: usize = 16;

/// A command and the state in which it took effect.
#[derive(Clone, Debug)]
pub(super) struct MotionCommand<S, V> {
    pub(super) number: CommandNumber,
    /// Duration of the previous segment, in motion time.
    pub(super) previous_segment: TimeDelta,
    pub(super) start: S,
    pub(super) vector: V,
}

/// Newest commands of an object; there is always at least one.
#[derive(Clone, Debug)]
pub(super) struct CommandHistory<S, V> {
    previous: VecDeque<MotionCommand<S, V>>,
    newest: MotionCommand<S, V>,
}

/// Outcome of a received command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandReceipt {
    /// The command is the newest now.
    New,
    /// The command is not newer than the newest known one.
    Duplicate,
    /// Commands before it are missing, and it came without a start state.
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

    /// Replaces the vector of the newest command, after another command was combined with it.
    pub(super) fn set_vector(&mut self, vector: V) {
        self.newest.vector = vector;
    }

    /// Renumbers the newest command and drops those before it, whose numbers are no longer valid.
    pub(super) fn renumber(&mut self, number: CommandNumber) {
        self.previous.clear();
        self.newest.number = number;
    }

    /// Appends a command that ends a segment of duration `previous_segment`.
    pub(super) fn append<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        number: CommandNumber,
        previous_segment: TimeDelta,
        vector: V,
    ) {
        let start = predictor.advance(&self.newest.start, &self.newest.vector, previous_segment);
        self.push(MotionCommand { number, previous_segment, start, vector });
    }

    fn push(&mut self, command: MotionCommand<S, V>) {
        let before = core::mem::replace(&mut self.newest, command);
        if self.previous.len() >= MAX_COMMANDS - 1 {
            self.previous.pop_front();
        }
        self.previous.push_back(before);
    }

    /// Handles a command from another site. Its start state, if there is one, overrides the local path.
    pub(super) fn receive<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        (number, previous_segment, vector): (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> CommandReceipt {
        if number <= self.newest.number {
            return CommandReceipt::Duplicate;
        }
        let is_next = number == self.newest.number.next();
        match start {
            Some(start) if is_next => self.push(MotionCommand { number, previous_segment, start, vector }),
            Some(start) => *self = Self::new(number, start, vector),
            None if is_next => self.append(predictor, number, previous_segment, vector),
            None => return CommandReceipt::Gap,
        }
        CommandReceipt::New
    }

    /// Returns the command `number`, if it is still kept.
    pub(super) fn find(&self, number: CommandNumber) -> Option<&MotionCommand<S, V>> {
        self.previous.iter().chain(core::iter::once(&self.newest)).find(|command| command.number == number)
    }

    /// Returns the kept commands after `number`, and always the newest one. Without `number`, returns only the newest
    /// one.
    pub(super) fn commands_since(&self, number: Option<CommandNumber>) -> impl Iterator<Item = &MotionCommand<S, V>> {
        let is_after = move |command: &&MotionCommand<S, V>| number.is_some_and(|number| command.number > number);
        self.previous.iter().filter(is_after).chain(core::iter::once(&self.newest))
    }

    /// Returns the heap size in bytes.
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

    fn append_command(
        history: &mut CommandHistory<MilliVec2, MilliVec2>,
        previous_segment: TimeDelta,
        vector: MilliVec2,
    ) {
        history.append(&LINEAR, history.newest().number.next(), previous_segment, vector);
    }

    fn one_second() -> TimeDelta {
        TimeDelta::from_secs(1)
    }

    #[test]
    fn same_commands_give_the_same_path() {
        let mut sent = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::from_units(1, 0));
        let mut received = sent.clone();
        append_command(&mut sent, one_second() * 2, MilliVec2::from_units(0, 1));
        append_command(&mut sent, one_second() * 3, MilliVec2::from_units(1, 1));
        assert_eq!(sent.newest().start, MilliVec2::from_units(2, 3));
        let commands: Vec<_> = sent.commands_since(Some(number(0))).cloned().collect();
        let receive = |received: &mut CommandHistory<_, _>, index: usize, start| {
            let command: &MotionCommand<MilliVec2, MilliVec2> = &commands[index];
            received.receive(&LINEAR, (command.number, command.previous_segment, command.vector), start)
        };
        assert_eq!(receive(&mut received, 1, None), CommandReceipt::Gap);
        assert_eq!(receive(&mut received, 0, None), CommandReceipt::New);
        assert_eq!(receive(&mut received, 0, None), CommandReceipt::Duplicate);
        assert_eq!(receive(&mut received, 1, None), CommandReceipt::New);
        assert_eq!(received.newest().start, MilliVec2::from_units(2, 3));
        let mut late = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::default());
        assert_eq!(receive(&mut late, 1, Some(commands[1].start)), CommandReceipt::New);
        assert_eq!(late.newest().start, MilliVec2::from_units(2, 3));
    }

    #[test]
    fn received_start_state_overrides_the_local_one() {
        let mut history = CommandHistory::new(number(0), MilliVec2::from_units(9, 9), MilliVec2::from_units(1, 0));
        let receipt = history.receive(
            &LINEAR,
            (number(1), one_second(), MilliVec2::default()),
            Some(MilliVec2::from_units(2, 3)),
        );
        assert_eq!((receipt, history.newest().start), (CommandReceipt::New, MilliVec2::from_units(2, 3)));
    }

    #[test]
    fn command_history_is_bounded() {
        let mut history = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::from_units(1, 0));
        (0..100).for_each(|_| append_command(&mut history, one_second(), MilliVec2::from_units(1, 0)));
        let numbers: Vec<u32> = history.commands_since(Some(number(3))).map(|command| command.number.count).collect();
        assert_eq!(numbers, (85..=100).collect::<Vec<u32>>());
        assert_eq!(history.commands_since(None).count(), 1);
        history.renumber(number(1));
        assert_eq!((history.commands_since(Some(number(0))).count(), history.newest().number), (1, number(1)));
    }
}
