//! The reference simulator of an object at the server, which all other simulators follow.

use super::command_history::CommandReceipt;
use super::confirmed::TimerProgress;
use super::peer::MotionPeer;
use super::simulator::{ObjectMoment, Simulator};
use super::{ClientId, CommandNumber, MotionConfig, MotionPredictor, MotionTimer};
use crate::time::{Instant, TimeDelta};

/// The reference simulator of an object at the server.
#[derive(Debug)]
pub(super) struct AuthoritativeObject<S, V> {
    simulator: Simulator<S, V>,
    /// Client that controls the object; `None` if the server does.
    pub(super) owner: Option<ClientId>,
    /// Time at which the newest segment started: the arrival of the owner's command, or the decision of the server.
    segment_started_at: Instant,
    /// Timer value at `segment_started_at`.
    initial_timer: TimeDelta,
    /// Send time, on the owner's clock, of the datagram that brought the owner's newest command. Meaningless before the
    /// first command.
    pub(super) command_sent_at: Instant,
    is_timer_pending: bool,
    /// Time by which the owner has moved ahead in the segments that it has reported, less what it has fallen behind
    /// since; never negative.
    owner_lead: TimeDelta,
}

impl<S: Clone + PartialEq, V: Clone> AuthoritativeObject<S, V> {
    pub(super) fn new(now: Instant, owner: Option<ClientId>, epoch: u32, state: S, vector: V) -> Self {
        let simulator = Simulator::new(now, CommandNumber::first_in_epoch(epoch), state, vector);
        Self {
            simulator,
            owner,
            segment_started_at: now,
            initial_timer: TimeDelta::ZERO,
            command_sent_at: now,
            is_timer_pending: false,
            owner_lead: TimeDelta::ZERO,
        }
    }

    pub(super) fn simulator(&self) -> &Simulator<S, V> {
        &self.simulator
    }

    pub(super) fn newest_number(&self) -> CommandNumber {
        self.simulator.commands.newest().number
    }

    /// Returns the lowest epoch for a later object with the same id.
    pub(super) fn next_epoch(&self) -> u32 {
        self.newest_number().epoch.saturating_add(1)
    }

    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &MotionConfig,
    ) {
        // The server displays nothing, so corrections need not be gradual.
        self.simulator.advance(predictor, now, &MotionConfig { correction_speed: None, ..*config });
    }

    pub(super) fn moment_at<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        now: Instant,
        predictor: &P,
        config: &MotionConfig,
    ) -> ObjectMoment<S> {
        self.simulator.at(predictor, now, &MotionConfig { correction_speed: None, ..*config })
    }

    /// Commands the object on behalf of the server.
    pub(super) fn command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        vector: V,
        predictor: &P,
        config: &MotionConfig,
    ) {
        self.advance(now, predictor, config);
        // The owner may just have issued the next number.
        let number = if self.owner.is_some() {
            self.newest_number().after_server_decision()
        } else {
            self.newest_number().next()
        };
        self.simulator.start_segment(predictor, number, vector);
        self.on_segment_started(now);
    }

    /// Places the object in another state, overruling its owner.
    pub(super) fn place(&mut self, now: Instant, state: S, vector: V) {
        self.simulator = Simulator::new(now, self.newest_number().after_server_decision(), state, vector);
        self.on_segment_started(now);
    }

    /// Transfers control of the object, which keeps its motion vector.
    pub(super) fn transfer_ownership<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        owner: Option<ClientId>,
        predictor: &P,
        config: &MotionConfig,
    ) {
        self.advance(now, predictor, config);
        (self.owner, self.owner_lead) = (owner, TimeDelta::ZERO);
        let vector = self.simulator.commands.newest().vector.clone();
        self.simulator.start_segment(predictor, self.newest_number().after_ownership_transfer(), vector);
        self.on_segment_started(now);
    }

    /// Records that the server itself started a segment at `now`.
    fn on_segment_started(&mut self, now: Instant) {
        (self.segment_started_at, self.initial_timer, self.is_timer_pending) = (now, TimeDelta::ZERO, false);
    }

    /// Handles a command of the owner. A new command starts a segment, whose timer the owner's next timer item sets.
    pub(super) fn on_owner_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
        (predictor, config): (&P, &MotionConfig),
    ) -> CommandReceipt {
        self.advance(now, predictor, config);
        let start = match config.owner_tolerance {
            Some(_) if command.0 <= self.newest_number() => return CommandReceipt::Duplicate,
            Some(tolerance) if !self.take_plausible((command.0, command.1), start.as_ref(), tolerance, predictor) => {
                self.simulator.start_segment(predictor, self.newest_number().after_server_decision(), command.2);
                self.on_segment_started(now);
                return CommandReceipt::New;
            }
            Some(_) => None,
            None => start,
        };
        let receipt = self.simulator.receive_command(predictor, command, start);
        if receipt == CommandReceipt::New {
            (self.segment_started_at, self.initial_timer, self.is_timer_pending) = (now, TimeDelta::ZERO, true);
        }
        receipt
    }

    /// Returns whether the owner may end the newest segment after the duration that it reports. If so, adds to its
    /// lead.
    fn take_plausible<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        (number, previous_segment): (CommandNumber, TimeDelta),
        start: Option<&S>,
        tolerance: TimeDelta,
        predictor: &P,
    ) -> bool {
        let ahead = previous_segment - self.simulator.timer.value();
        let lead = (self.owner_lead + ahead).max(TimeDelta::ZERO);
        let is_plausible = number == self.newest_number().next()
            && ahead >= -tolerance
            && lead <= tolerance
            && start.is_none_or(|start| *start == self.simulator.commands.state_at(predictor, previous_segment));
        if is_plausible {
            self.owner_lead = lead;
        }
        is_plausible
    }

    /// Starts the timer on the newest command's segment. `timer` is the owner's timer and `age` the age of the command,
    /// both at the send time `sent` on the owner's clock. If the owner's timer is above
    /// [`MotionConfig::snap_threshold`], the server starts where the owner is or, with an
    /// [`owner_tolerance`](MotionConfig::owner_tolerance), overrules the owner. Otherwise it starts at the beginning of
    /// the segment and then catches up [`MotionConfig::server_share`] of the command's age at its arrival, of at most
    /// the snap threshold. Only the first call after a new command has an effect; with
    /// an `owner_tolerance` it must come with the command.
    pub(super) fn start_segment_timer(
        &mut self,
        now: Instant,
        sent: Instant,
        timer: TimeDelta,
        age: TimeDelta,
        (owner, config): (&MotionPeer, &MotionConfig),
    ) {
        if !core::mem::take(&mut self.is_timer_pending) {
            return;
        }
        // An owner that is not trusted could otherwise hold its timer back, and return to where the segment began.
        if config.owner_tolerance.is_some() && now > self.segment_started_at {
            return;
        }
        self.command_sent_at = sent;
        if timer > config.snap_threshold && config.owner_tolerance.is_some() {
            let newest = self.simulator.commands.newest().clone();
            self.simulator.replace(newest.number.after_server_decision(), newest.start, newest.vector);
            return;
        }
        let transit_time = now - owner.to_local(now, sent);
        self.simulator.timer = if timer > config.snap_threshold {
            MotionTimer::new(timer + transit_time, TimeDelta::ZERO)
        } else {
            MotionTimer::new(
                TimeDelta::ZERO,
                -(age + transit_time).min(config.snap_threshold).scale(config.server_share),
            )
        };
        self.initial_timer = self.simulator.timer.value();
    }

    /// Returns the progress of the timer, as reported to clients.
    pub(super) fn progress(&self, now: Instant) -> TimerProgress {
        let timer = self.simulator.timer;
        TimerProgress {
            timer: timer.value(),
            catch_up: -timer.offset(),
            segment_age: now - self.segment_started_at,
            initial_timer: self.initial_timer,
        }
    }

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.simulator.commands.memory()
    }
}
