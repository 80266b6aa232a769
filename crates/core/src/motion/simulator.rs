//! One copy of a moving object: its way, how far along it is, and what is seen of it.

use super::course::{Course, Heard};
use super::{Config, Number, Predictor, Timer};
use crate::time::{Instant, TimeDelta};

/// A copy of a moving object at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment<S> {
    /// The newest command that is known.
    pub number: Number,
    /// For how long it has been on the leg of that command, in motion time.
    pub timer: Timer,
    /// Where it is.
    pub state: S,
    /// What is seen of it: where it is, or on the way there after a correction.
    pub shown: S,
}

/// A copy of a moving object.
#[derive(Clone, Debug)]
pub(super) struct Simulator<S, V> {
    pub(super) course: Course<S, V>,
    pub(super) timer: Timer,
    /// When it was last brought up to date.
    at: Instant,
    shown: S,
}

impl<S: Clone, V: Clone> Simulator<S, V> {
    pub(super) fn new(now: Instant, number: Number, state: S, vector: V) -> Self {
        Self { course: Course::new(number, state.clone(), vector), timer: Timer::default(), at: now, shown: state }
    }

    /// Goes on until now.
    pub(super) fn advance<P: Predictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        now: Instant,
        config: &Config,
    ) {
        if now <= self.at {
            return;
        }
        let by = now - self.at;
        self.at = now;
        let step = self.timer.advance(by, config.pace);
        let truth = self.state(predictor);
        self.shown = match config.glide {
            None => truth,
            Some(speed) => {
                let shown = predictor.advance(&self.shown, &self.course.newest().vector, step);
                let is_far = predictor.distance(&shown, &truth) > speed * config.leap.as_secs_f64();
                if is_far { truth } else { predictor.toward(&shown, &truth, speed * by.as_secs_f64()) }
            }
        };
    }

    /// Where it is by its timer.
    pub(super) fn state<P: Predictor<State = S, Vector = V>>(&self, predictor: &P) -> S {
        let leg = self.course.newest();
        predictor.advance(&leg.start, &leg.vector, self.timer.value())
    }

    /// What is seen of it.
    pub(super) fn shown(&self) -> &S {
        &self.shown
    }

    /// How it will be then, if nothing is heard until then.
    pub(super) fn at<P: Predictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        config: &Config,
    ) -> Moment<S> {
        let mut then = self.clone();
        then.advance(predictor, now, config);
        let (number, state) = (then.course.newest().number, then.state(predictor));
        Moment { number, timer: then.timer, state, shown: then.shown }
    }

    /// A new leg begins now, at the end of the one before.
    pub(super) fn turn<P: Predictor<State = S, Vector = V>>(&mut self, predictor: &P, number: Number, vector: V) {
        self.course.turn(predictor, number, self.timer.value(), vector);
        self.timer = Timer::default();
    }

    /// Another told of a command: if it is new, its leg begins now.
    pub(super) fn hear<P: Predictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        command: (Number, TimeDelta, V),
        start: Option<S>,
    ) -> Heard {
        let heard = self.course.hear(predictor, command, start);
        if heard == Heard::New {
            self.timer = Timer::default();
        }
        heard
    }

    /// Nobody has seen it yet: it is so far on its leg.
    pub(super) fn settle<P: Predictor<State = S, Vector = V>>(&mut self, predictor: &P, timer: TimeDelta) {
        self.timer = Timer::new(timer, TimeDelta::ZERO);
        self.shown = self.state(predictor);
    }

    /// All of it is another, but what is seen of it: that comes nearer.
    pub(super) fn replace(&mut self, number: Number, start: S, vector: V) {
        self.course = Course::new(number, start, vector);
        self.timer = Timer::default();
    }
}
