//! An object at a client: a simulator that follows the server's, and a controller if the object is the client's own.

use super::command_history::CommandReceipt;
use super::confirmed::{ConfirmedMotion, ConfirmedProgress, StateCursor, TimerProgress};
use super::local_controller::LocalController;
use super::peer::MotionPeer;
use super::simulator::Simulator;
use super::{
    CommandNumber, Consistency, DiscrepancyMeter, MotionConfig, MotionPredictor, MotionTimer, SyncMethod,
    TIMER_UPDATE_INTERVAL,
};
use crate::time::{Instant, TimeDelta};

/// Number of [`TIMER_UPDATE_INTERVAL`]s without an update after which a client subscribes again: the server may have
/// forgotten the subscription.
const MAX_SILENT_INTERVALS: i64 = 3;

/// An object that a client controls or subscribes to.
#[derive(Debug)]
pub(super) struct ClientObject<S, V> {
    /// `None` until the server has sent the object's state.
    pub(super) simulator: Option<Simulator<S, V>>,
    pub(super) controller: Option<LocalController<V>>,
    confirmed: ConfirmedMotion<S, V>,
    discrepancy: DiscrepancyMeter<S>,
    /// Whether the local state may be invalid, because the server restarted or this client released control: the next
    /// update counts, whatever its number.
    is_unverified: bool,
    /// Arrival time of the last update that could be applied.
    last_update_at: Instant,
    /// Time of the last subscription request; `None` before the first one, and again when the local state becomes
    /// unverified.
    pub(super) last_requested_at: Option<Instant>,
    /// Send time, on the server's clock, of the datagram to acknowledge.
    pub(super) ack_due: Option<Instant>,
    /// Kind of the last update, until the server's progress on its segment has been applied.
    pending_update: Option<PendingUpdate>,
    /// `RT_accum` that was assumed when the timer was set, until the delay has been measured. Used only with
    /// [`SyncMethod::Paper`].
    expected_delay: Option<TimeDelta>,
}

/// Kind of an update from the server, which decides how the server's progress is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingUpdate {
    /// A new command, which starts a segment.
    Segment,
    /// The first update of the object, or a new epoch in which it was not commanded yet: the displayed state is set at
    /// once and not corrected gradually.
    NewObject,
    /// The first update after the local state became unverified, for example after a server restart.
    ServerRestart,
}

/// Change of an object that the client reports to the host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectChange {
    /// The server sent the object for the first time or again after the local state became unverified, sent another
    /// object with the same id, or transferred control of an object that was never commanded.
    Appeared,
    /// The server started a command for an own object, which makes the client's commands in flight void.
    Overruled,
}

/// Context in which an object handles a received item.
pub(super) struct ReceiveContext<'a, P> {
    pub(super) now: Instant,
    /// Send time of the datagram, on the server's clock.
    pub(super) sent: Instant,
    pub(super) predictor: &'a P,
    pub(super) config: &'a MotionConfig,
    pub(super) server: &'a mut MotionPeer,
}

impl<S: Clone, V: Clone> ClientObject<S, V> {
    pub(super) fn new(now: Instant, config: &MotionConfig) -> Self {
        Self {
            simulator: None,
            controller: None,
            confirmed: ConfirmedMotion::default(),
            discrepancy: DiscrepancyMeter::new(config.averaging_window),
            is_unverified: false,
            last_update_at: now,
            last_requested_at: None,
            ack_due: None,
            pending_update: None,
            expected_delay: None,
        }
    }

    /// Makes this client control the object. The commands known so far count as acknowledged.
    pub(super) fn take_control(&mut self, now: Instant) {
        if self.controller.is_none() {
            let mut controller = LocalController::new(now);
            self.simulator
                .iter()
                .for_each(|simulator| controller.on_server_command(simulator.commands.newest().number));
            self.controller = Some(controller);
        }
    }

    /// Releases control of the object, if this client has it. The client's commands that the server has not received
    /// are then void.
    pub(super) fn release_control(&mut self) {
        if self.controller.take().is_some() {
            (self.is_unverified, self.last_requested_at) = (true, None);
        }
    }

    pub(super) fn last_update_at(&self) -> Instant {
        self.last_update_at
    }

    /// Returns the end of the combine interval, unless commands cannot be sent then.
    pub(super) fn next_command_at(&self, config: &MotionConfig) -> Option<Instant> {
        self.controller.as_ref().filter(|_| !self.is_unverified)?.combining_ends_at(config)
    }

    /// Returns whether a command of this client is due to be sent. While the local state is unverified, none is.
    pub(super) fn is_command_due(
        &self,
        now: Instant,
        (retransmit_timeout, config): (TimeDelta, &MotionConfig),
    ) -> bool {
        let (Some(controller), Some(simulator), false) = (&self.controller, &self.simulator, self.is_unverified) else {
            return false;
        };
        controller.is_due(now, simulator.commands.newest().number, (retransmit_timeout, config))
    }

    /// Returns whether to send a subscription request now. Requests repeat after `retransmit_timeout` while the state
    /// is unknown or unverified. After more than 3 s without an update they repeat every [`TIMER_UPDATE_INTERVAL`].
    pub(super) fn needs_request(&self, now: Instant, retransmit_timeout: TimeDelta) -> bool {
        let is_unknown = self.simulator.is_none() || self.is_unverified;
        let is_silent = now - self.last_update_at > TIMER_UPDATE_INTERVAL * MAX_SILENT_INTERVALS;
        let repeat_interval = if is_unknown { retransmit_timeout } else { TIMER_UPDATE_INTERVAL };
        (is_unknown || is_silent)
            && self.last_requested_at.is_none_or(|requested_at| now - requested_at >= repeat_interval)
    }

    /// Returns whether the local state is valid and its newest command is of this epoch or a later one.
    pub(super) fn is_in_epoch(&self, epoch: u32) -> bool {
        let newest = self.simulator.as_ref().map(|simulator| simulator.commands.newest().number);
        !self.is_unverified && newest.is_some_and(|number| number.epoch >= epoch)
    }

    /// Advances the object to `now` and records its displayed state for the discrepancy.
    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &MotionConfig,
        server: &MotionPeer,
    ) {
        let Some(simulator) = &mut self.simulator else { return };
        if let Some(controller) = &mut self.controller {
            controller.advance(now, simulator, predictor, config, server);
        }
        simulator.advance(predictor, now, config);
        self.discrepancy.record(now, simulator.displayed());
    }

    /// Handles a restart of the server, which then knows nothing of earlier commands: marks the local state as
    /// unverified and discards the progress that the server has reported.
    pub(super) fn on_server_restart(&mut self) {
        (self.is_unverified, self.last_requested_at) = (true, None);
        self.confirmed.clear();
    }

    /// Handles a command from the server. Returns the change to report, if any.
    pub(super) fn on_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        context: &ReceiveContext<'_, P>,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> Option<ObjectChange> {
        let number = command.0;
        let Some(simulator) = &mut self.simulator else {
            self.simulator = Some(Simulator::new(context.now, number, start?, command.2));
            self.on_new_command(context, number, PendingUpdate::NewObject);
            return Some(ObjectChange::Appeared);
        };
        simulator.advance(context.predictor, context.now, context.config);
        if self.is_unverified {
            return self.on_unverified_command(context, number, start?, command.2);
        }
        // For an own object, the commands that this client issued are duplicates here, and new ones are the server's.
        match simulator.receive_command(context.predictor, command, start) {
            CommandReceipt::Gap => None,
            CommandReceipt::Duplicate => {
                self.on_update_received(context);
                None
            }
            CommandReceipt::New if number.is_first() => {
                self.on_new_command(context, number, PendingUpdate::NewObject);
                Some(ObjectChange::Appeared)
            }
            CommandReceipt::New => {
                self.on_new_command(context, number, self.pending_update.unwrap_or(PendingUpdate::Segment));
                self.controller.as_ref().map(|_| ObjectChange::Overruled)
            }
        }
    }

    /// Handles a command from the server while the local state is unverified. An own object that the server has never
    /// commanded keeps this client's newest command, which the server must then receive. Any other object takes over
    /// the server's command and start state.
    fn on_unverified_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        context: &ReceiveContext<'_, P>,
        number: CommandNumber,
        start: S,
        vector: V,
    ) -> Option<ObjectChange> {
        let simulator = self.simulator.as_mut()?;
        if let Some(controller) = self.controller.as_mut().filter(|_| number.is_first()) {
            // The object was never commanded at this server: this client's earlier commands remain valid, and the
            // server must receive them.
            simulator.commands.renumber(number.next());
            controller.on_server_restart(number);
            self.on_update_received(context);
            return Some(ObjectChange::Appeared);
        }
        simulator.replace(number, start, vector);
        self.on_new_command(context, number, PendingUpdate::ServerRestart);
        Some(if self.controller.is_some() { ObjectChange::Overruled } else { ObjectChange::Appeared })
    }

    /// Notes a new command from the server, which replaces the commands of the controller.
    fn on_new_command<P>(&mut self, context: &ReceiveContext<'_, P>, number: CommandNumber, update: PendingUpdate) {
        self.on_update_received(context);
        self.pending_update = Some(update);
        self.controller.iter_mut().for_each(|controller| controller.on_server_command(number));
    }

    /// Records the arrival of a usable update, duplicates included: the local state counts as verified, and an
    /// acknowledgement of the datagram is due.
    fn on_update_received<P>(&mut self, context: &ReceiveContext<'_, P>) {
        (self.is_unverified, self.last_update_at, self.ack_due) = (false, context.now, Some(context.sent));
    }

    /// Handles the server's progress on the segment of a command, unless the local state is unverified. If the segment
    /// is the newest, steers the timer towards the server's or sets it. With [`SyncMethod::Paper`], only the first
    /// report after a new command from the server and the answer to an own command change the timer.
    pub(super) fn on_timer<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        context: &mut ReceiveContext<'_, P>,
        number: CommandNumber,
        progress: TimerProgress,
    ) {
        // The command numbers of a restarted server are not comparable with known ones.
        let Some(simulator) = self.simulator.as_mut().filter(|_| !self.is_unverified) else { return };
        let at = context.server.to_local(context.now, context.sent);
        // Own newer commands may be in flight; the server's progress until then still counts for the discrepancy.
        if let Some(command) = simulator.commands.find(number) {
            let confirmed = ConfirmedProgress { reported_at: at, progress };
            self.confirmed.on_progress(context.predictor, command, confirmed);
            self.last_update_at = context.now;
        }
        if simulator.commands.newest().number != number {
            return;
        }
        simulator.advance(context.predictor, context.now, context.config);
        let expected_delay = context.server.delay.accumulated();
        let target = match (context.config.method, self.confirmed.progress_of(number)) {
            (SyncMethod::Clocks, Some(confirmed)) => confirmed.caught_up_timer_at(context.now),
            // Td = −RT_accum, less the progress on the segment that the server reported.
            _ => progress.timer + expected_delay,
        };
        let update = self.pending_update.take();
        match (update, context.config.method, &mut self.controller) {
            (Some(PendingUpdate::NewObject), ..) => simulator.set_timer(context.predictor, target),
            (Some(PendingUpdate::ServerRestart), ..) => simulator.timer = MotionTimer::new(target, TimeDelta::ZERO),
            (Some(PendingUpdate::Segment), ..) | (None, SyncMethod::Clocks, _) => {
                steer_timer(&mut simulator.timer, target, context.config.snap_threshold);
            }
            (None, SyncMethod::Paper, Some(controller)) => {
                controller.on_timer_answer(context.now, &mut simulator.timer, progress)
            }
            (None, SyncMethod::Paper, None) => {}
        }
        if update.is_some() && context.config.method == SyncMethod::Paper {
            self.expected_delay = Some(expected_delay);
            context.server.probe_soon(context.now);
        }
    }

    /// Handles the server's acknowledgement of own commands up to `number`. `sent` is the send time, on the local
    /// clock, of the datagram that carried them.
    pub(super) fn on_ack(&mut self, number: CommandNumber, sent: Instant) {
        if let (Some(controller), Some(simulator), false) = (&mut self.controller, &self.simulator, self.is_unverified)
        {
            controller.on_ack(simulator.commands.newest().number, number, sent);
        }
    }

    /// Corrects the timer once the delay to the server has been measured. A client that follows is further behind if
    /// the delay is longer, so the sign is opposite to that of [`LocalController::on_timer_answer`], whose client is
    /// ahead.
    pub(super) fn on_delay(
        &mut self,
        now: Instant,
        delay: TimeDelta,
        (predictor, config): (&impl MotionPredictor<State = S, Vector = V>, &MotionConfig),
    ) {
        if let (Some(simulator), Some(expected)) = (&mut self.simulator, self.expected_delay.take()) {
            simulator.advance(predictor, now, config);
            simulator.timer.correct(expected, delay);
        }
    }

    /// Returns the recent discrepancy between the displayed state and the server's, by the reports received so far.
    pub(super) fn consistency<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        config: &MotionConfig,
    ) -> Consistency {
        let mut cursor = StateCursor::default();
        let distance = |at: Instant, displayed: &S| {
            let state = self.confirmed.state_at(predictor, at, config.timer_rate, &mut cursor);
            state.map(|state| predictor.distance(displayed, &state))
        };
        let (discrepancy, duration) = self.discrepancy.measure(distance);
        Consistency { discrepancy, tolerance: config.tolerance, duration }
    }

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        let commands = self.simulator.as_ref().map_or(0, |simulator| simulator.commands.memory());
        commands + self.confirmed.memory() + self.discrepancy.memory()
    }
}

/// Steers a timer to the server's: gradually, or at once if it is behind by more than `snap_threshold`. A timer never
/// goes back.
fn steer_timer(timer: &mut MotionTimer, target: TimeDelta, snap_threshold: TimeDelta) {
    let offset = timer.value() - target;
    *timer = if offset < -snap_threshold {
        MotionTimer::new(target, TimeDelta::ZERO)
    } else {
        MotionTimer::new(timer.value(), offset)
    };
}
