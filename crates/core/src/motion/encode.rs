//! Encoding of an object's motion into a datagram, for the server and its clients.

use super::command_history::MotionCommand;
use super::confirmed::TimerProgress;
use super::{CommandNumber, MAX_STATE_SIZE, MAX_VECTOR_SIZE, MotionPredictor, ObjectId};
use crate::codec::BufferFull;
use crate::motion::message::{MotionDatagramWriter, MotionItem};

/// Appends commands, with the start state of each whose predecessor is not among them, and the timer on the segment of
/// the last command. Appends all of it or nothing.
pub(super) fn put_motion<'a, P: MotionPredictor>(
    datagram: &mut MotionDatagramWriter<'_>,
    predictor: &P,
    object: ObjectId,
    commands: impl Iterator<Item = &'a MotionCommand<P::State, P::Vector>>,
    progress: TimerProgress,
) -> Result<(), BufferFull>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let len_before = datagram.len();
    put_commands(datagram, predictor, object, commands, progress)
        .inspect_err(|BufferFull| datagram.truncate(len_before))
}

fn put_commands<'a, P: MotionPredictor>(
    datagram: &mut MotionDatagramWriter<'_>,
    predictor: &P,
    object: ObjectId,
    commands: impl Iterator<Item = &'a MotionCommand<P::State, P::Vector>>,
    progress: TimerProgress,
) -> Result<(), BufferFull>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let mut newest: Option<CommandNumber> = None;
    for command in commands {
        // The receiver can compute the start state if the preceding command is in the datagram, too.
        if newest.is_none_or(|before| before.next() != command.number) {
            let mut state = [0; MAX_STATE_SIZE];
            let len = predictor.encode_state(&command.start, &mut state).ok_or(BufferFull)?;
            datagram.put(MotionItem::StartState {
                object,
                number: command.number,
                state: state.get(..len).ok_or(BufferFull)?,
            })?;
        }
        let mut vector = [0; MAX_VECTOR_SIZE];
        let len = predictor.encode_vector(&command.vector, &mut vector).ok_or(BufferFull)?;
        let vector = vector.get(..len).ok_or(BufferFull)?;
        datagram.put(MotionItem::Command {
            object,
            number: command.number,
            previous_segment: command.previous_segment,
            vector,
        })?;
        newest = Some(command.number);
    }
    newest.map_or(Ok(()), |number| put_timer(datagram, object, number, progress))
}

/// Appends a simulator's progress on the segment of the command `number`.
pub(super) fn put_timer(
    datagram: &mut MotionDatagramWriter<'_>,
    object: ObjectId,
    number: CommandNumber,
    TimerProgress { timer, catch_up, segment_age, initial_timer }: TimerProgress,
) -> Result<(), BufferFull> {
    datagram.put(MotionItem::Timer {
        object,
        number,
        timer,
        catch_up,
        command_age: segment_age,
        timer_at_command: initial_timer,
    })
}
