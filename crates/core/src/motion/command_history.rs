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
    checkpoints: Checkpoints<S>,
}

/// Minimum difference between the timer values of the two older checkpoints.
const CHECKPOINT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// States that a simulator has reached on the newest segment, each with its timer value, newest first: the last one,
/// and two older ones, so that a step back of up to [`CHECKPOINT_INTERVAL`] does not begin at the start of the segment.
#[derive(Clone, Debug)]
struct Checkpoints<S>([Option<(TimeDelta, S)>; 3]);

impl<S: Clone> Checkpoints<S> {
    const NONE: Self = Self([None, None, None]);

    fn record(&mut self, timer: TimeDelta, state: &S) {
        let [last, older, oldest] = &mut self.0;
        if older.as_ref().is_none_or(|(at, _)| timer - *at >= CHECKPOINT_INTERVAL) {
            core::mem::swap(older, oldest);
            *older = Some((timer, state.clone()));
        }
        *last = Some((timer, state.clone()));
    }

    /// Returns the newest checkpoint that is not after `timer`.
    fn last_before(&self, timer: TimeDelta) -> Option<&(TimeDelta, S)> {
        self.0.iter().flatten().find(|(at, _)| *at <= timer)
    }
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
            checkpoints: Checkpoints::NONE,
        }
    }

    /// Returns the state on the newest segment at a timer value.
    pub(super) fn state_at<P: MotionPredictor<State = S, Vector = V>>(&self, predictor: &P, timer: TimeDelta) -> S {
        let (from, state) = self
            .checkpoints
            .last_before(timer)
            .map_or((TimeDelta::ZERO, &self.newest.start), |(at, state)| (*at, state));
        predictor.advance(state, &self.newest.vector, timer - from)
    }

    /// Returns the state on the newest segment at the timer value that a simulator has reached, and keeps it as a
    /// checkpoint if the predictor is additive.
    pub(super) fn reach<P: MotionPredictor<State = S, Vector = V>>(&mut self, predictor: &P, timer: TimeDelta) -> S {
        let state = self.state_at(predictor, timer);
        if P::IS_ADDITIVE {
            self.checkpoints.record(timer, &state);
        }
        state
    }

    pub(super) fn newest(&self) -> &MotionCommand<S, V> {
        &self.newest
    }

    /// Replaces the vector of the newest command, after another command was combined with it.
    pub(super) fn set_vector(&mut self, vector: V) {
        self.newest.vector = vector;
        self.checkpoints = Checkpoints::NONE;
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
        let start = self.state_at(predictor, previous_segment);
        self.push(MotionCommand { number, previous_segment, start, vector });
    }

    fn push(&mut self, command: MotionCommand<S, V>) {
        let before = core::mem::replace(&mut self.newest, command);
        self.checkpoints = Checkpoints::NONE;
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

    /// Linear motion in whole milliseconds at a whole number of units per second, which is additive.
    #[derive(Debug)]
    struct Additive;

    impl MotionPredictor for Additive {
        type State = MilliVec2;
        type Vector = MilliVec2;
        const IS_ADDITIVE: bool = true;

        fn advance(&self, state: &MilliVec2, vector: &MilliVec2, by: TimeDelta) -> MilliVec2 {
            assert!(by <= TimeDelta::from_millis(2_500), "advanced from {by:?} ago");
            LINEAR.advance(state, vector, by)
        }

        fn combine(&self, _: &MilliVec2, later: &MilliVec2) -> MilliVec2 {
            *later
        }

        fn distance(&self, one: &MilliVec2, other: &MilliVec2) -> f64 {
            LINEAR.distance(one, other)
        }

        fn move_toward(&self, _: &MilliVec2, to: &MilliVec2, _: f64) -> MilliVec2 {
            *to
        }

        fn encode_state(&self, state: &MilliVec2, buf: &mut [u8]) -> Option<usize> {
            LINEAR.encode_state(state, buf)
        }

        fn decode_state(&self, bytes: &[u8]) -> Option<MilliVec2> {
            LINEAR.decode_state(bytes)
        }

        fn encode_vector(&self, vector: &MilliVec2, buf: &mut [u8]) -> Option<usize> {
            LINEAR.encode_vector(vector, buf)
        }

        fn decode_vector(&self, bytes: &[u8]) -> Option<MilliVec2> {
            LINEAR.decode_vector(bytes)
        }
    }

    #[test]
    fn long_segment_is_not_advanced_from_its_start() {
        let mut history = CommandHistory::new(number(0), MilliVec2::default(), MilliVec2::from_units(1, 0));
        for millis in (0..60_000).step_by(20) {
            let state = history.reach(&Additive, TimeDelta::from_millis(millis));
            assert_eq!(state, MilliVec2 { x: millis, y: 0 });
            // A command may end the segment up to a second ago.
            let ended = (millis - 1_000).max(0);
            assert_eq!(history.state_at(&Additive, TimeDelta::from_millis(ended)), MilliVec2 { x: ended, y: 0 });
        }
        history.append(&Additive, number(1), TimeDelta::from_millis(59_500), MilliVec2::from_units(0, 2));
        assert_eq!(history.newest().start, MilliVec2 { x: 59_500, y: 0 });
        assert_eq!(history.reach(&Additive, one_second()), MilliVec2 { x: 59_500, y: 2_000 });
        history.set_vector(MilliVec2::from_units(0, 3));
        assert_eq!(history.reach(&Additive, one_second()), MilliVec2 { x: 59_500, y: 3_000 }, "a stale checkpoint");
    }
}
