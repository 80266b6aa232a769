//! One copy of a moving object: its way, how far along it is, and what is seen of it.

use super::command_history::{CommandHistory, CommandReceipt};
use super::{CommandNumber, MotionConfig, MotionPredictor, MotionTimer};
use crate::time::{Instant, TimeDelta};

/// A copy of a moving object at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectMoment<S> {
    /// The newest command that is known.
    pub number: CommandNumber,
    /// For how long it has been on the leg of that command, in motion time.
    pub timer: MotionTimer,
    /// Where it is.
    pub state: S,
    /// What is seen of it: where it is, or on the way there after a correction.
    pub displayed: S,
}

/// A copy of a moving object.
#[derive(Clone, Debug)]
pub(super) struct Simulator<S, V> {
    pub(super) commands: CommandHistory<S, V>,
    pub(super) timer: MotionTimer,
    /// When it was last brought up to date.
    at: Instant,
    displayed: S,
}

impl<S: Clone, V: Clone> Simulator<S, V> {
    pub(super) fn new(now: Instant, number: CommandNumber, state: S, vector: V) -> Self {
        Self {
            commands: CommandHistory::new(number, state.clone(), vector),
            timer: MotionTimer::default(),
            at: now,
            displayed: state,
        }
    }

    /// Goes on until now.
    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        now: Instant,
        config: &MotionConfig,
    ) {
        if now <= self.at {
            return;
        }
        let by = now - self.at;
        self.at = now;
        let step = self.timer.advance(by, config.timer_rate);
        let truth = self.state(predictor);
        self.displayed = match config.correction_speed {
            None => truth,
            Some(speed) => {
                let shown = predictor.advance(&self.displayed, &self.commands.newest().vector, step);
                let is_far = predictor.distance(&shown, &truth) > speed * config.snap_threshold.as_secs_f64();
                if is_far { truth } else { predictor.move_toward(&shown, &truth, speed * by.as_secs_f64()) }
            }
        };
    }

    /// Where it is by its timer.
    pub(super) fn state<P: MotionPredictor<State = S, Vector = V>>(&self, predictor: &P) -> S {
        let leg = self.commands.newest();
        predictor.advance(&leg.start, &leg.vector, self.timer.value())
    }

    /// What is seen of it.
    pub(super) fn displayed(&self) -> &S {
        &self.displayed
    }

    /// How it will be then, if nothing is heard until then.
    pub(super) fn at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        config: &MotionConfig,
    ) -> ObjectMoment<S> {
        let mut then = self.clone();
        then.advance(predictor, now, config);
        let (number, state) = (then.commands.newest().number, then.state(predictor));
        ObjectMoment { number, timer: then.timer, state, displayed: then.displayed }
    }

    /// A new leg begins now, at the end of the one before.
    pub(super) fn start_segment<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        number: CommandNumber,
        vector: V,
    ) {
        self.commands.append(predictor, number, self.timer.value(), vector);
        self.timer = MotionTimer::default();
    }

    /// Another told of a command: if it is new, its leg begins now.
    pub(super) fn receive_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> CommandReceipt {
        let heard = self.commands.receive(predictor, command, start);
        if heard == CommandReceipt::New {
            self.timer = MotionTimer::default();
        }
        heard
    }

    /// Nobody has seen it yet: it is so far on its leg.
    pub(super) fn set_timer<P: MotionPredictor<State = S, Vector = V>>(&mut self, predictor: &P, timer: TimeDelta) {
        self.timer = MotionTimer::new(timer, TimeDelta::ZERO);
        self.displayed = self.state(predictor);
    }

    /// All of it is another, but what is seen of it: that comes nearer.
    pub(super) fn replace(&mut self, number: CommandNumber, start: S, vector: V) {
        self.commands = CommandHistory::new(number, start, vector);
        self.timer = MotionTimer::default();
    }
}
