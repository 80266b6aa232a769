//! What commands one's own object: commands are given, combined for a moment, sent, and sent again until the server has them.

use super::known::Progress;
use super::peer::Peer;
use super::simulator::Simulator;
use super::{Config, Method, Number, Predictor, Timer};
use crate::time::{Instant, TimeDelta};

/// What commands one's own object.
#[derive(Clone, Debug)]
pub(super) struct Hand<V> {
    /// When the newest command was given (state A of the paper's Figure 1), as long as others may be combined with it.
    open: Option<Instant>,
    /// When it was given.
    given: Instant,
    /// When it was first sent (state B), and last.
    first_sent: Option<Instant>,
    last_sent: Option<Instant>,
    /// What the way was taken to be then.
    expected: TimeDelta,
    /// The newest command that the server has, and when the datagram left that brought it there if it is our newest, too.
    acked: Option<Number>,
    brought: Option<Instant>,
    /// The answer to the newest command was taken to heart (state C).
    is_answered: bool,
    /// What is wanted of an object of which the server did not tell yet.
    wanted: Option<V>,
}

impl<V: Clone> Hand<V> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            open: None,
            given: now,
            first_sent: None,
            last_sent: None,
            expected: TimeDelta::ZERO,
            acked: None,
            brought: None,
            is_answered: true,
            wanted: None,
        }
    }

    /// A command for an object of which the server did not tell yet: it counts when it did.
    pub(super) fn want(&mut self, vector: V) {
        self.wanted = Some(vector);
    }

    /// A command. What it makes the object do is seen at once.
    pub(super) fn command<S: Clone, P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        vector: V,
        simulator: &mut Simulator<S, V>,
        (predictor, config, server): (&P, &Config, &Peer),
    ) {
        self.advance(now, simulator, predictor, config, server);
        simulator.advance(predictor, now, config);
        if self.open.is_some() {
            let both = predictor.combine(&simulator.course.newest().vector, &vector);
            simulator.course.set_vector(both);
            return;
        }
        simulator.turn(predictor, simulator.course.newest().number.next(), vector);
        (self.open, self.given, self.is_answered) = (Some(now), now, false);
        (self.first_sent, self.last_sent, self.brought) = (None, None, None);
        if config.method == Method::Clocks {
            // The server will begin when it hears of it: the sooner we slow down, the less we are ahead by then.
            let ahead = (config.buffer + server.one_way()).scale(1.0 - config.share);
            simulator.timer = Timer::new(TimeDelta::ZERO, ahead);
        }
    }

    /// Does what is due: gives what was wanted before it could be given, and closes the time of combining.
    pub(super) fn advance<S: Clone, P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        simulator: &mut Simulator<S, V>,
        predictor: &P,
        config: &Config,
        server: &Peer,
    ) {
        if let Some(vector) = self.wanted.take() {
            self.command(now, vector, simulator, (predictor, config, server));
        }
        if self.closes(config).is_some_and(|closes| closes <= now) {
            self.open = None;
        }
    }

    /// When the newest command is ready to be sent.
    pub(super) fn closes(&self, config: &Config) -> Option<Instant> {
        self.open.map(|given| given + config.buffer)
    }

    /// Whether the server is to be told now, when its newest command is this.
    pub(super) fn is_due(&self, now: Instant, newest: Number, repeat_after: TimeDelta) -> bool {
        let is_missing = self.acked.is_none_or(|acked| acked < newest);
        let is_time = self.last_sent.is_none_or(|last| now - last >= repeat_after);
        self.open.is_none() && is_missing && is_time
    }

    /// The server is told.
    pub(super) fn on_sent(&mut self, now: Instant, own: &mut Timer, (config, server): (&Config, &Peer)) {
        self.last_sent = Some(now);
        if self.first_sent.is_none() {
            self.first_sent = Some(now);
            self.expected = server.delay.accumulated();
            if config.method == Method::Paper && !self.is_answered {
                // Td = +RT_accum, and what we were on the leg before anybody could be told.
                own.set_off(self.expected + own.value());
            }
        }
    }

    /// The newest command that the server has.
    pub(super) fn acked(&self) -> Option<Number> {
        self.acked
    }

    /// How long ago the newest command was given.
    pub(super) fn age(&self, now: Instant) -> TimeDelta {
        now - self.given
    }

    pub(super) fn on_heard(&mut self, newest: Number, number: Number, sent: Instant) {
        self.acked = Some(self.acked.map_or(number, |acked| acked.max(number)).min(newest));
        if number == newest {
            self.brought = Some(sent);
        }
    }

    /// The server answered: its timer is Ts.
    pub(super) fn on_answer(&mut self, now: Instant, own: &mut Timer, progress: Progress) {
        let (Some(brought), Some(first_sent), false) = (self.brought, self.first_sent, self.is_answered) else {
            return;
        };
        self.is_answered = true;
        let whole = now - brought;
        if progress.from > TimeDelta::ZERO {
            // It heard of the command so late that it is where we are.
            own.set_off(TimeDelta::ZERO);
            return;
        }
        // What was lost before costs us as much as a longer way.
        let lost = brought - first_sent;
        own.correct((progress.timer - whole).abs() / 2 + lost, self.expected);
    }

    /// The newest command is one that the server told us of.
    pub(super) fn on_told(&mut self, number: Number) {
        (self.open, self.acked, self.is_answered) = (None, Some(number), true);
    }

    /// The server was started anew, and has the object as it appeared there: it is to be told what was commanded before.
    pub(super) fn on_server_anew(&mut self, number: Number) {
        (self.acked, self.brought, self.last_sent) = (Some(number), None, None);
    }
}
