//! One copy of a moving object: its commands, its progress on the newest segment, and its displayed state.

use super::command_history::{CommandHistory, CommandReceipt};
use super::{CommandNumber, MotionConfig, MotionPredictor, MotionTimer};
use crate::time::{Instant, TimeDelta};

/// A copy of a moving object at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectMoment<S> {
    /// Number of the newest known command.
    pub number: CommandNumber,
    /// Motion timer on the segment of the newest command.
    pub timer: MotionTimer,
    /// State on the segment of the newest command at the value of `timer`.
    pub state: S,
    /// Displayed state: `state`, or a state that approaches `state` during a correction.
    pub displayed: S,
}

/// A copy of a moving object, at the server or at a client.
#[derive(Clone, Debug)]
pub(super) struct Simulator<S, V> {
    pub(super) commands: CommandHistory<S, V>,
    pub(super) timer: MotionTimer,
    /// Time up to which the copy was last advanced.
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

    /// Advances the timer and the displayed state to `now`. Does nothing if `now` is not later than the last advance.
    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        now: Instant,
        config: &MotionConfig,
    ) {
        if now <= self.at {
            return;
        }
        let elapsed = now - self.at;
        self.at = now;
        let step = self.timer.advance(elapsed, config.timer_rate);
        let actual = self.commands.reach(predictor, self.timer.value());
        self.displayed = match config.correction_speed {
            None => actual,
            Some(speed) => {
                let displayed = predictor.advance(&self.displayed, &self.commands.newest().vector, step);
                let is_far = predictor.distance(&displayed, &actual) > speed * config.snap_threshold.as_secs_f64();
                if is_far { actual } else { predictor.move_toward(&displayed, &actual, speed * elapsed.as_secs_f64()) }
            }
        };
    }

    /// Returns the state on the newest segment at the value of the timer.
    pub(super) fn state<P: MotionPredictor<State = S, Vector = V>>(&self, predictor: &P) -> S {
        self.commands.state_at(predictor, self.timer.value())
    }

    pub(super) fn displayed(&self) -> &S {
        &self.displayed
    }

    /// Predicts the copy at `now`, on the assumption that no command arrives before.
    pub(super) fn at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        now: Instant,
        config: &MotionConfig,
    ) -> ObjectMoment<S> {
        let mut copy = self.clone();
        copy.advance(predictor, now, config);
        let (number, state) = (copy.commands.newest().number, copy.state(predictor));
        ObjectMoment { number, timer: copy.timer, state, displayed: copy.displayed }
    }

    /// Starts a new segment at the end of the previous one.
    pub(super) fn start_segment<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        number: CommandNumber,
        vector: V,
    ) {
        self.commands.append(predictor, number, self.timer.value(), vector);
        self.timer = MotionTimer::default();
    }

    /// Handles a command from another site. A new command starts its segment now.
    pub(super) fn receive_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        predictor: &P,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> CommandReceipt {
        let receipt = self.commands.receive(predictor, command, start);
        if receipt == CommandReceipt::New {
            self.timer = MotionTimer::default();
        }
        receipt
    }

    /// Sets the timer of an object that has just appeared. The displayed state changes at once, without a gradual
    /// correction.
    pub(super) fn set_timer<P: MotionPredictor<State = S, Vector = V>>(&mut self, predictor: &P, timer: TimeDelta) {
        self.timer = MotionTimer::new(timer, TimeDelta::ZERO);
        self.displayed = self.state(predictor);
    }

    /// Replaces the commands and resets the timer. The displayed state stays as it is; [`advance`](Self::advance) then
    /// corrects it.
    pub(super) fn replace(&mut self, number: CommandNumber, start: S, vector: V) {
        self.commands = CommandHistory::new(number, start, vector);
        self.timer = MotionTimer::default();
    }
}
