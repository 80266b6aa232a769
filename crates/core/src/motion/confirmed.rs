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
    start: S,
    vector: V,
    confirmed: ConfirmedProgress,
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
    pub(super) fn on_progress(&mut self, command: &MotionCommand<S, V>, confirmed: ConfirmedProgress) {
        if let Some(segment) = self.segments.back_mut().filter(|segment| segment.number == command.number) {
            // A report that a later one overtook adds nothing.
            if confirmed.reported_at > segment.confirmed.reported_at {
                segment.confirmed = confirmed;
            }
            return;
        }
        if self.segments.back().is_some_and(|segment| segment.number > command.number) {
            return;
        }
        if self.segments.len() >= MAX_SEGMENTS {
            self.segments.pop_front();
        }
        let (number, start, vector) = (command.number, command.start.clone(), command.vector.clone());
        self.segments.push_back(Segment { number, start, vector, confirmed });
    }

    /// Returns the last reported progress on the segment of a command. `None` if that segment is not the newest
    /// reported one.
    pub(super) fn progress_of(&self, number: CommandNumber) -> Option<&ConfirmedProgress> {
        self.segments.back().filter(|segment| segment.number == number).map(|segment| &segment.confirmed)
    }

    /// Returns the state of the server's simulator at `now`, by the reports received so far. `None` before the oldest
    /// kept segment.
    pub(super) fn state_at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        rate: TimerRate,
    ) -> Option<S> {
        let segment = self.segments.iter().rev().find(|segment| segment.confirmed.segment_start() <= now)?;
        Some(predictor.advance(&segment.start, &segment.vector, segment.confirmed.timer_at(now, rate)))
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
