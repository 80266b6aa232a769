//! Control of a client's own object: commands are issued, combined for a moment, sent, and retransmitted until the
//! server has them.

use super::confirmed::TimerProgress;
use super::peer::MotionPeer;
use super::simulator::Simulator;
use super::{CommandNumber, MotionConfig, MotionPredictor, MotionTimer, SyncMethod};
use crate::time::{Instant, TimeDelta};

/// Progress of the newest command of a client's own object: combining, sending, acknowledgement and answer.
#[derive(Clone, Debug)]
pub(super) struct LocalController<V> {
    /// Time of the newest command (state A of the paper's Figure 1), while later commands may be combined with it.
    combining_since: Option<Instant>,
    /// Time at which the newest command was issued.
    issued_at: Instant,
    /// Time at which the newest command was first sent (state B).
    first_sent_at: Option<Instant>,
    /// Time at which the newest command was last sent.
    last_sent_at: Option<Instant>,
    /// `RT_accum` when the newest command was first sent.
    expected_delay: TimeDelta,
    /// Newest command that the server has acknowledged or sent itself.
    acked: Option<CommandNumber>,
    /// Send time of the datagram that carried the newest command to the server; `None` until the server acknowledges
    /// it.
    acked_datagram_sent_at: Option<Instant>,
    /// Whether the answer to the newest command has been applied (state C). Used only with [`SyncMethod::Paper`].
    is_answered: bool,
    /// Last command for an object whose state the server has not sent yet.
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

    /// Stores a command for an object whose state the server has not sent yet; it is issued once the state arrives.
    pub(super) fn set_pending(&mut self, vector: V) {
        self.pending_vector = Some(vector);
    }

    /// Issues a command, or combines it with the newest one within the combine interval. The object responds at once.
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
            let combined = predictor.combine(&simulator.commands.newest().vector, &vector);
            simulator.commands.set_vector(combined);
            return;
        }
        simulator.start_segment(predictor, simulator.commands.newest().number.next(), vector);
        (self.combining_since, self.issued_at, self.is_answered) = (Some(now), now, false);
        (self.first_sent_at, self.last_sent_at, self.acked_datagram_sent_at) = (None, None, None);
        if config.method == SyncMethod::Clocks {
            // The server starts the segment when the command arrives: the sooner this client slows down, the less it is
            // ahead by then.
            let ahead = (config.combine_interval + server.one_way_delay()).scale(1.0 - config.server_share);
            simulator.timer = MotionTimer::new(TimeDelta::ZERO, ahead);
        }
    }

    /// Issues the pending command, and ends the combine interval when it has passed.
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
        if self.combining_ends_at(config).is_some_and(|ends_at| ends_at <= now) {
            self.combining_since = None;
        }
    }

    /// Returns the end of the combine interval, at which the newest command may be sent. `None` if it has ended.
    pub(super) fn combining_ends_at(&self, config: &MotionConfig) -> Option<Instant> {
        self.combining_since.map(|since| since + config.combine_interval)
    }

    /// Returns whether the commands must be sent to the server now. `newest` is the number of the newest one.
    pub(super) fn is_due(
        &self,
        now: Instant,
        newest: CommandNumber,
        (retransmit_timeout, config): (TimeDelta, &MotionConfig),
    ) -> bool {
        let is_missing = self.acked.is_none_or(|acked| acked < newest);
        let is_time = self.last_sent_at.is_none_or(|last| now - last >= retransmit_timeout);
        self.combining_ends_at(config).is_none_or(|ends_at| ends_at <= now) && is_missing && is_time
    }

    /// Notes that the commands were sent to the server. With [`SyncMethod::Paper`], sets Td when the newest command is
    /// sent for the first time.
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        timer: &mut MotionTimer,
        (config, server): (&MotionConfig, &MotionPeer),
    ) {
        self.last_sent_at = Some(now);
        if self.first_sent_at.is_none() {
            self.first_sent_at = Some(now);
            self.expected_delay = server.delay.accumulated();
            if config.method == SyncMethod::Paper && !self.is_answered {
                // Td = +RT_accum, plus the progress on the segment before the command was sent.
                timer.set_offset(self.expected_delay + timer.value());
            }
        }
    }

    /// Returns the newest command that the server has acknowledged or sent itself.
    pub(super) fn acked(&self) -> Option<CommandNumber> {
        self.acked
    }

    /// Returns the time since the newest command was issued.
    pub(super) fn command_age(&self, now: Instant) -> TimeDelta {
        now - self.issued_at
    }

    pub(super) fn on_ack(&mut self, newest: CommandNumber, number: CommandNumber, sent: Instant) {
        self.acked = Some(self.acked.map_or(number, |acked| acked.max(number)).min(newest));
        if number == newest {
            self.acked_datagram_sent_at = Some(sent);
        }
    }

    /// Corrects the timer by the server's answer to the newest command. The timer in `progress` is Ts of the paper.
    /// Only the first answer counts.
    pub(super) fn on_timer_answer(&mut self, now: Instant, timer: &mut MotionTimer, progress: TimerProgress) {
        let (Some(acked_sent_at), Some(first_sent_at), false) =
            (self.acked_datagram_sent_at, self.first_sent_at, self.is_answered)
        else {
            return;
        };
        self.is_answered = true;
        let round_trip = now - acked_sent_at;
        if progress.initial_timer > TimeDelta::ZERO {
            // The server received the command so late that it started the segment where this client was.
            timer.set_offset(TimeDelta::ZERO);
            return;
        }
        // Time lost before the acknowledged datagram has the effect of a longer delay.
        let time_lost = acked_sent_at - first_sent_at;
        timer.correct((progress.timer - round_trip).abs() / 2 + time_lost, self.expected_delay);
    }

    /// Notes that the newest command is one that came from the server.
    pub(super) fn on_server_command(&mut self, number: CommandNumber) {
        (self.combining_since, self.acked, self.is_answered) = (None, Some(number), true);
    }

    /// Notes that a restarted server has the object only as it was spawned: earlier commands must be sent to it.
    pub(super) fn on_server_restart(&mut self, number: CommandNumber) {
        (self.acked, self.acked_datagram_sent_at, self.last_sent_at) = (Some(number), None, None);
    }
}
