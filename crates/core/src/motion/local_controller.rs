//! What commands one's own object: commands are given, combined for a moment, sent, and sent again until the server has them.

use super::confirmed::TimerProgress;
use super::peer::MotionPeer;
use super::simulator::Simulator;
use super::{CommandNumber, MotionConfig, MotionPredictor, MotionTimer, SyncMethod};
use crate::time::{Instant, TimeDelta};

/// What commands one's own object.
#[derive(Clone, Debug)]
pub(super) struct LocalController<V> {
    /// When the newest command was given (state A of the paper's Figure 1), as long as others may be combined with it.
    combining_since: Option<Instant>,
    /// When it was given.
    issued_at: Instant,
    /// When it was first sent (state B), and last.
    first_sent_at: Option<Instant>,
    last_sent_at: Option<Instant>,
    /// What the way was taken to be then.
    expected_delay: TimeDelta,
    /// The newest command that the server has, and when the datagram left that brought it there if it is our newest, too.
    acked: Option<CommandNumber>,
    acked_datagram_sent_at: Option<Instant>,
    /// The answer to the newest command was taken to heart (state C).
    is_answered: bool,
    /// What is wanted of an object of which the server did not tell yet.
    pending_vector: Option<V>,
}

impl<V: Clone> LocalController<V> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            combining_since: None,
            issued_at: now,
            first_sent_at: None,
            last_sent_at: None,
            expected_delay: TimeDelta::ZERO,
            acked: None,
            acked_datagram_sent_at: None,
            is_answered: true,
            pending_vector: None,
        }
    }

    /// A command for an object of which the server did not tell yet: it counts when it did.
    pub(super) fn set_pending(&mut self, vector: V) {
        self.pending_vector = Some(vector);
    }

    /// A command. What it makes the object do is seen at once.
    pub(super) fn command<S: Clone, P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        vector: V,
        simulator: &mut Simulator<S, V>,
        (predictor, config, server): (&P, &MotionConfig, &MotionPeer),
    ) {
        self.advance(now, simulator, predictor, config, server);
        simulator.advance(predictor, now, config);
        if self.combining_since.is_some() {
            let both = predictor.combine(&simulator.commands.newest().vector, &vector);
            simulator.commands.set_vector(both);
            return;
        }
        simulator.start_segment(predictor, simulator.commands.newest().number.next(), vector);
        (self.combining_since, self.issued_at, self.is_answered) = (Some(now), now, false);
        (self.first_sent_at, self.last_sent_at, self.acked_datagram_sent_at) = (None, None, None);
        if config.method == SyncMethod::Clocks {
            // The server will begin when it hears of it: the sooner we slow down, the less we are ahead by then.
            let ahead = (config.combine_interval + server.one_way_delay()).scale(1.0 - config.server_share);
            simulator.timer = MotionTimer::new(TimeDelta::ZERO, ahead);
        }
    }

    /// Does what is due: gives what was wanted before it could be given, and closes the time of combining.
    pub(super) fn advance<S: Clone, P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        simulator: &mut Simulator<S, V>,
        predictor: &P,
        config: &MotionConfig,
        server: &MotionPeer,
    ) {
        if let Some(vector) = self.pending_vector.take() {
            self.command(now, vector, simulator, (predictor, config, server));
        }
        if self.combining_ends_at(config).is_some_and(|closes| closes <= now) {
            self.combining_since = None;
        }
    }

    /// When the newest command is ready to be sent.
    pub(super) fn combining_ends_at(&self, config: &MotionConfig) -> Option<Instant> {
        self.combining_since.map(|given| given + config.combine_interval)
    }

    /// Whether the server is to be told now, when its newest command is this.
    pub(super) fn is_due(&self, now: Instant, newest: CommandNumber, repeat_after: TimeDelta) -> bool {
        let is_missing = self.acked.is_none_or(|acked| acked < newest);
        let is_time = self.last_sent_at.is_none_or(|last| now - last >= repeat_after);
        self.combining_since.is_none() && is_missing && is_time
    }

    /// The server is told.
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        own: &mut MotionTimer,
        (config, server): (&MotionConfig, &MotionPeer),
    ) {
        self.last_sent_at = Some(now);
        if self.first_sent_at.is_none() {
            self.first_sent_at = Some(now);
            self.expected_delay = server.delay.accumulated();
            if config.method == SyncMethod::Paper && !self.is_answered {
                // Td = +RT_accum, and what we were on the leg before anybody could be told.
                own.set_offset(self.expected_delay + own.value());
            }
        }
    }

    /// The newest command that the server has.
    pub(super) fn acked(&self) -> Option<CommandNumber> {
        self.acked
    }

    /// How long ago the newest command was given.
    pub(super) fn command_age(&self, now: Instant) -> TimeDelta {
        now - self.issued_at
    }

    pub(super) fn on_ack(&mut self, newest: CommandNumber, number: CommandNumber, sent: Instant) {
        self.acked = Some(self.acked.map_or(number, |acked| acked.max(number)).min(newest));
        if number == newest {
            self.acked_datagram_sent_at = Some(sent);
        }
    }

    /// The server answered: its timer is Ts.
    pub(super) fn on_timer_answer(&mut self, now: Instant, own: &mut MotionTimer, progress: TimerProgress) {
        let (Some(brought), Some(first_sent), false) =
            (self.acked_datagram_sent_at, self.first_sent_at, self.is_answered)
        else {
            return;
        };
        self.is_answered = true;
        let whole = now - brought;
        if progress.initial_timer > TimeDelta::ZERO {
            // It heard of the command so late that it is where we are.
            own.set_offset(TimeDelta::ZERO);
            return;
        }
        // What was lost before costs us as much as a longer way.
        let lost = brought - first_sent;
        own.correct((progress.timer - whole).abs() / 2 + lost, self.expected_delay);
    }

    /// The newest command is one that the server told us of.
    pub(super) fn on_server_command(&mut self, number: CommandNumber) {
        (self.combining_since, self.acked, self.is_answered) = (None, Some(number), true);
    }

    /// The server was started anew, and has the object as it appeared there: it is to be told what was commanded before.
    pub(super) fn on_server_restart(&mut self, number: CommandNumber) {
        (self.acked, self.acked_datagram_sent_at, self.last_sent_at) = (Some(number), None, None);
    }
}
