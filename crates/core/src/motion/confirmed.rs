//! What a client knows of the server's simulator: from what the server told and when, by the clock, to where it is at any time.

use alloc::collections::VecDeque;

use super::command_history::MotionCommand;
use super::{CommandNumber, MotionPredictor, TimerRate};
use crate::time::{Instant, TimeDelta};

/// Legs that are remembered: what a discrepancy is measured against.
const MAX_SEGMENTS: usize = 16;

/// A simulator's timer as it tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerProgress {
    pub(super) timer: TimeDelta,
    /// What it will make up for by being quicker.
    pub(super) catch_up: TimeDelta,
    /// For how long it has been on the leg.
    pub(super) segment_age: TimeDelta,
    /// Where its timer began then.
    pub(super) initial_timer: TimeDelta,
}

/// The server's timer as it was told, and when that was, in our time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConfirmedProgress {
    pub(super) reported_at: Instant,
    pub(super) progress: TimerProgress,
}

impl ConfirmedProgress {
    /// When the server learned of the command.
    fn segment_start(&self) -> Instant {
        self.reported_at - self.progress.segment_age
    }

    /// Its timer at any time since it learned of the command: at first it may have been quicker.
    fn timer_at(&self, now: Instant, pace: TimerRate) -> TimeDelta {
        let quick = self.progress.initial_timer + (now - self.segment_start()).scale(pace.fastest);
        quick.min(self.caught_up_timer_at(now)).max(TimeDelta::ZERO)
    }

    /// Its timer if it had made up for everything.
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

/// The server's simulator of one object.
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
    /// The server told how far it is on the leg of this command.
    pub(super) fn on_progress(&mut self, turn: &MotionCommand<S, V>, told: ConfirmedProgress) {
        if let Some(leg) = self.segments.back_mut().filter(|leg| leg.number == turn.number) {
            // What was overtaken on its way says nothing new.
            if told.reported_at > leg.confirmed.reported_at {
                leg.confirmed = told;
            }
            return;
        }
        if self.segments.back().is_some_and(|leg| leg.number > turn.number) {
            return;
        }
        if self.segments.len() >= MAX_SEGMENTS {
            self.segments.pop_front();
        }
        let (number, start, vector) = (turn.number, turn.start.clone(), turn.vector.clone());
        self.segments.push_back(Segment { number, start, vector, confirmed: told });
    }

    /// What was told of a command last.
    pub(super) fn progress_of(&self, number: CommandNumber) -> Option<&ConfirmedProgress> {
        self.segments.back().filter(|leg| leg.number == number).map(|leg| &leg.confirmed)
    }

    /// Where the server's simulator was at a time, as far as we know by now.
    pub(super) fn state_at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        pace: TimerRate,
    ) -> Option<S> {
        let leg = self.segments.iter().rev().find(|leg| leg.confirmed.segment_start() <= now)?;
        Some(predictor.advance(&leg.start, &leg.vector, leg.confirmed.timer_at(now, pace)))
    }

    /// Nothing is known any more.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.segments.capacity() * size_of::<Segment<S, V>>()
    }
}
