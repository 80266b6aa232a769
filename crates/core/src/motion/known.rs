//! What a client knows of the server's simulator: from what the server told and when, by the clock, to where it is at any time.

use alloc::collections::VecDeque;

use super::course::Turn;
use super::{Number, Pace, Predictor};
use crate::time::{Instant, TimeDelta};

/// Legs that are remembered: what a discrepancy is measured against.
const KEPT: usize = 16;

/// A simulator's timer as it tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) timer: TimeDelta,
    /// What it will make up for by being quicker.
    pub(super) owed: TimeDelta,
    /// For how long it has been on the leg.
    pub(super) since: TimeDelta,
    /// Where its timer began then.
    pub(super) from: TimeDelta,
}

/// The server's timer as it was told, and when that was, in our time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) at: Instant,
    pub(super) progress: Progress,
}

impl Told {
    /// When the server learned of the command.
    fn begun(&self) -> Instant {
        self.at - self.progress.since
    }

    /// Its timer at any time since it learned of the command: at first it may have been quicker.
    fn timer_at(&self, now: Instant, pace: Pace) -> TimeDelta {
        let quick = self.progress.from + (now - self.begun()).scale(pace.fastest);
        quick.min(self.settled_at(now)).max(TimeDelta::ZERO)
    }

    /// Its timer if it had made up for everything.
    pub(super) fn settled_at(&self, now: Instant) -> TimeDelta {
        self.progress.timer + (now - self.at) + self.progress.owed
    }
}

#[derive(Clone, Debug)]
struct Leg<S, V> {
    number: Number,
    start: S,
    vector: V,
    told: Told,
}

/// The server's simulator of one object.
#[derive(Clone, Debug)]
pub(super) struct Known<S, V> {
    legs: VecDeque<Leg<S, V>>,
}

impl<S, V> Default for Known<S, V> {
    fn default() -> Self {
        Self { legs: VecDeque::new() }
    }
}

impl<S: Clone, V: Clone> Known<S, V> {
    /// The server told how far it is on the leg of this command.
    pub(super) fn on_told(&mut self, turn: &Turn<S, V>, told: Told) {
        if let Some(leg) = self.legs.back_mut().filter(|leg| leg.number == turn.number) {
            // What was overtaken on its way says nothing new.
            if told.at > leg.told.at {
                leg.told = told;
            }
            return;
        }
        if self.legs.back().is_some_and(|leg| leg.number > turn.number) {
            return;
        }
        if self.legs.len() >= KEPT {
            self.legs.pop_front();
        }
        let (number, start, vector) = (turn.number, turn.start.clone(), turn.vector.clone());
        self.legs.push_back(Leg { number, start, vector, told });
    }

    /// What was told of a command last.
    pub(super) fn told(&self, number: Number) -> Option<&Told> {
        self.legs.back().filter(|leg| leg.number == number).map(|leg| &leg.told)
    }

    /// Where the server's simulator was at a time, as far as we know by now.
    pub(super) fn state_at<P: Predictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        pace: Pace,
    ) -> Option<S> {
        let leg = self.legs.iter().rev().find(|leg| leg.told.begun() <= now)?;
        Some(predictor.advance(&leg.start, &leg.vector, leg.told.timer_at(now, pace)))
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.legs.clear();
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.legs.capacity() * size_of::<Leg<S, V>>()
    }
}
