//! How an object's motion is put into a datagram, by whoever tells of it.

use super::course::Turn;
use super::known::Progress;
use super::{MAX_STATE, MAX_VECTOR, Number, ObjectId, Predictor};
use crate::wire::Full;
use crate::wire::motion::{Datagram, Item};

/// Commands, where they took effect unless that follows from the one before, and the timer on the leg of the last. All of it, or nothing.
pub(super) fn put_motion<'a, P: Predictor>(
    datagram: &mut Datagram<'_>,
    predictor: &P,
    object: ObjectId,
    turns: impl Iterator<Item = &'a Turn<P::State, P::Vector>>,
    progress: Progress,
) -> Result<(), Full>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let begun = datagram.len();
    put_all(datagram, predictor, object, turns, progress).inspect_err(|Full| datagram.cut(begun))
}

fn put_all<'a, P: Predictor>(
    datagram: &mut Datagram<'_>,
    predictor: &P,
    object: ObjectId,
    turns: impl Iterator<Item = &'a Turn<P::State, P::Vector>>,
    progress: Progress,
) -> Result<(), Full>
where
    P::State: 'a,
    P::Vector: 'a,
{
    let mut newest: Option<Number> = None;
    for turn in turns {
        // Who knows the command before knows where this one took effect.
        if newest.is_none_or(|before| before.next() != turn.number) {
            let mut state = [0; MAX_STATE];
            let len = predictor.encode_state(&turn.start, &mut state).ok_or(Full)?;
            datagram.put(Item::Start { object, number: turn.number, state: state.get(..len).ok_or(Full)? })?;
        }
        let mut vector = [0; MAX_VECTOR];
        let len = predictor.encode_vector(&turn.vector, &mut vector).ok_or(Full)?;
        let vector = vector.get(..len).ok_or(Full)?;
        datagram.put(Item::Command { object, number: turn.number, leg: turn.leg, vector })?;
        newest = Some(turn.number);
    }
    newest.map_or(Ok(()), |number| put_timer(datagram, object, number, progress))
}

/// How far a simulator is.
pub(super) fn put_timer(
    datagram: &mut Datagram<'_>,
    object: ObjectId,
    number: Number,
    Progress { timer, owed, since, from }: Progress,
) -> Result<(), Full> {
    datagram.put(Item::Timer { object, number, timer, owed, since, from })
}
