//! How an object's motion is put into a datagram, by whoever tells of it.

use super::command_history::MotionCommand;
use super::confirmed::TimerProgress;
use super::{CommandNumber, MAX_STATE_SIZE, MAX_VECTOR_SIZE, MotionPredictor, ObjectId};
use crate::wire::BufferFull;
use crate::wire::motion::{MotionDatagram, MotionItem};

/// Commands, where they took effect unless that follows from the one before, and the timer on the leg of the last. All of it, or nothing.
pub(super) fn put_motion<'a, P: MotionPredictor>(
    datagram: &mut MotionDatagram<'_>,
    predictor: &P,
    object: ObjectId,
    turns: impl Iterator<Item = &'a MotionCommand<P::State, P::Vector>>,
    progress: TimerProgress,
) -> Result<(), BufferFull>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let begun = datagram.len();
    put_commands(datagram, predictor, object, turns, progress).inspect_err(|BufferFull| datagram.truncate(begun))
}

fn put_commands<'a, P: MotionPredictor>(
    datagram: &mut MotionDatagram<'_>,
    predictor: &P,
    object: ObjectId,
    turns: impl Iterator<Item = &'a MotionCommand<P::State, P::Vector>>,
    progress: TimerProgress,
) -> Result<(), BufferFull>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let mut newest: Option<CommandNumber> = None;
    for turn in turns {
        // Who knows the command before knows where this one took effect.
        if newest.is_none_or(|before| before.next() != turn.number) {
            let mut state = [0; MAX_STATE_SIZE];
            let len = predictor.encode_state(&turn.start, &mut state).ok_or(BufferFull)?;
            datagram.put(MotionItem::StartState {
                object,
                number: turn.number,
                state: state.get(..len).ok_or(BufferFull)?,
            })?;
        }
        let mut vector = [0; MAX_VECTOR_SIZE];
        let len = predictor.encode_vector(&turn.vector, &mut vector).ok_or(BufferFull)?;
        let vector = vector.get(..len).ok_or(BufferFull)?;
        datagram.put(MotionItem::Command {
            object,
            number: turn.number,
            previous_segment: turn.previous_segment,
            vector,
        })?;
        newest = Some(turn.number);
    }
    newest.map_or(Ok(()), |number| put_timer(datagram, object, number, progress))
}

/// How far a simulator is.
pub(super) fn put_timer(
    datagram: &mut MotionDatagram<'_>,
    object: ObjectId,
    number: CommandNumber,
    TimerProgress { timer, catch_up: owed, segment_age: since, initial_timer: from }: TimerProgress,
) -> Result<(), BufferFull> {
    datagram.put(MotionItem::Timer {
        object,
        number,
        timer,
        catch_up: owed,
        command_age: since,
        timer_at_command: from,
    })
}
