//! A client's knowledge of the server's simulator of an object: the simulator's recent and present states, derived from
//! the progress that the server reported and from the times of the reports.

use alloc::collections::VecDeque;

use super::command_history::MotionCommand;
use super::{CommandNumber, MotionPredictor, TimerRate};
use crate::time::{Instant, TimeDelta};

/// Maximum number of segments kept for the measurement of the discrepancy.
const MAX_SEGMENTS: usize = 16;

/// Progress of a simulator on a segment, as the server or the owner of the object reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerProgress {
    pub(super) timer: TimeDelta,
    /// Time that the simulator will catch up by running faster.
    pub(super) catch_up: TimeDelta,
    /// Time since the segment started.
    pub(super) segment_age: TimeDelta,
    /// Timer value when the segment started.
    pub(super) initial_timer: TimeDelta,
}

/// Progress reported by the server, with the send time of the report, converted to the local clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfirmedProgress {
    pub(super) reported_at: Instant,
    pub(super) progress: TimerProgress,
}

impl ConfirmedProgress {
    /// Returns the local time at which the server started the segment.
    fn segment_start(&self) -> Instant {
        self.reported_at - self.progress.segment_age
    }

    /// Returns the server's timer at `now`, which must not be before the start of the segment. Takes into account that
    /// the timer may have run faster at first, to catch up.
    fn timer_at(&self, now: Instant, rate: TimerRate) -> TimeDelta {
        let fastest = self.progress.initial_timer + (now - self.segment_start()).scale(rate.fastest);
        fastest.min(self.caught_up_timer_at(now)).max(TimeDelta::ZERO)
    }

    /// Returns the server's timer at `now`, on the assumption that the timer has caught up completely by then.
    pub(super) fn caught_up_timer_at(&self, now: Instant) -> TimeDelta {
        self.progress.timer + (now - self.reported_at) + self.progress.catch_up
    }
}

#[derive(Clone, Debug)]
struct Segment<S, V> {
    number: CommandNumber,
    /// State at the start of the segment or, if the predictor is additive, at a later timer value.
    start: (TimeDelta, S),
    vector: V,
    confirmed: ConfirmedProgress,
}

/// Progress on a segment after which its start moves forward, so that a long segment costs no more than a short one.
const MAX_REPLAY: TimeDelta = TimeDelta::from_secs(8);

impl<S: Clone, V> Segment<S, V> {
    /// Moves the start forward to [`MAX_REPLAY`]/2 before the reported timer.
    fn shorten<P: MotionPredictor<State = S, Vector = V>>(&mut self, predictor: &P) {
        let (from, timer) = (self.start.0, self.confirmed.progress.timer);
        if P::IS_ADDITIVE && timer - from > MAX_REPLAY {
            let to = timer - MAX_REPLAY / 2;
            self.start = (to, predictor.advance(&self.start.1, &self.vector, to - from));
        }
    }
}

/// State of the server's simulator that was computed last, from which later ones follow.
pub(super) struct StateCursor<S>(Option<(CommandNumber, TimeDelta, S)>);

impl<S> Default for StateCursor<S> {
    fn default() -> Self {
        Self(None)
    }
}

/// Newest segments of the server's simulator of one object, each with the progress that the server reported last.
#[derive(Clone, Debug)]
pub(super) struct ConfirmedMotion<S, V> {
    segments: VecDeque<Segment<S, V>>,
}

impl<S, V> Default for ConfirmedMotion<S, V> {
    fn default() -> Self {
        Self { segments: VecDeque::new() }
    }
}

impl<S: Clone, V: Clone> ConfirmedMotion<S, V> {
    /// Stores the server's progress on the segment of a command. Ignores it if a newer segment or a later report on
    /// this one is known.
    pub(super) fn on_progress<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        command: &MotionCommand<S, V>,
        confirmed: ConfirmedProgress,
    ) {
        if let Some(segment) = self.segments.back_mut().filter(|segment| segment.number == command.number) {
            // A report that a later one overtook adds nothing.
            if confirmed.reported_at > segment.confirmed.reported_at {
                segment.confirmed = confirmed;
                segment.shorten(predictor);
            }
            return;
        }
        if self.segments.back().is_some_and(|segment| segment.number > command.number) {
            return;
        }
        if self.segments.len() >= MAX_SEGMENTS {
            self.segments.pop_front();
        }
        let (number, start, vector) =
            (command.number, (TimeDelta::ZERO, command.start.clone()), command.vector.clone());
        let mut segment = Segment { number, start, vector, confirmed };
        segment.shorten(predictor);
        self.segments.push_back(segment);
    }

    /// Returns the last reported progress on the segment of a command. `None` if that segment is not the newest
    /// reported one.
    pub(super) fn progress_of(&self, number: CommandNumber) -> Option<&ConfirmedProgress> {
        self.segments.back().filter(|segment| segment.number == number).map(|segment| &segment.confirmed)
    }

    /// Returns the state of the server's simulator at `now`, by the reports received so far. `None` before the oldest
    /// kept segment. If the predictor is additive, continues from the state in `cursor` where that is possible.
    pub(super) fn state_at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        rate: TimerRate,
        cursor: &mut StateCursor<S>,
    ) -> Option<S> {
        let segment = self.segments.iter().rev().find(|segment| segment.confirmed.segment_start() <= now)?;
        let (number, timer) = (segment.number, segment.confirmed.timer_at(now, rate));
        let is_before = |(on, at, _): &&(CommandNumber, TimeDelta, S)| *on == number && *at <= timer;
        let (from, state) = match cursor.0.as_ref().filter(is_before) {
            Some((_, at, state)) => (*at, state),
            None => (segment.start.0, &segment.start.1),
        };
        let state = predictor.advance(state, &segment.vector, timer - from);
        cursor.0 = P::IS_ADDITIVE.then(|| (number, timer, state.clone()));
        Some(state)
    }

    /// Discards all reports, after a restart of the server.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.segments.capacity() * size_of::<Segment<S, V>>()
    }
}
