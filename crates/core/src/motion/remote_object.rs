//! An object at a client: a simulator that follows the server's, and for one's own object the hand that commands it.

use super::command_history::CommandReceipt;
use super::confirmed::{ConfirmedMotion, ConfirmedProgress, TimerProgress};
use super::local_controller::LocalController;
use super::peer::MotionPeer;
use super::simulator::Simulator;
use super::{
    CommandNumber, Consistency, DiscrepancyMeter, MotionConfig, MotionPredictor, MotionTimer, SyncMethod,
    TIMER_UPDATE_INTERVAL,
};
use crate::time::{Instant, TimeDelta};

/// Who has not heard of an object for so long asks for it again: the server may have forgotten that it is wanted.
const MAX_SILENT_INTERVALS: i64 = 3;

/// An object at a client.
#[derive(Debug)]
pub(super) struct RemoteObject<S, V> {
    /// Nothing until the server told of it.
    pub(super) simulator: Option<Simulator<S, V>>,
    pub(super) controller: Option<LocalController<V>>,
    confirmed: ConfirmedMotion<S, V>,
    discrepancy: DiscrepancyMeter<S>,
    /// The server was started anew, or the object is not ours any more: whatever is said of it next counts, and our numbers say nothing.
    is_unverified: bool,
    /// When the server last said something of it that we understood.
    last_update_at: Instant,
    /// When the server was last asked to tell of it.
    pub(super) last_requested_at: Option<Instant>,
    /// The server is to be told what we have heard: when it left there.
    pub(super) ack_due: Option<Instant>,
    /// What was heard, if how far the server is was not taken to heart yet.
    pending_update: Option<PendingUpdate>,
    /// What the way was taken to be, as long as that was not measured.
    expected_delay: Option<TimeDelta>,
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingUpdate {
    /// A command.
    Segment,
    /// Of the object for the first time: there is nothing yet that could be corrected gradually.
    NewObject,
    /// Of the object by a server that was started anew.
    ServerRestart,
}

/// What a command of which the server told is to who looks at the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectChange {
    /// It is there only now.
    Appeared,
    /// It is ours, and we did not give that command.
    Overruled,
}

/// What there is to hear with.
pub(super) struct ReceiveContext<'a, P> {
    pub(super) now: Instant,
    /// When the datagram left, by the server's clock.
    pub(super) sent: Instant,
    pub(super) predictor: &'a P,
    pub(super) config: &'a MotionConfig,
    pub(super) server: &'a mut MotionPeer,
}

impl<S: Clone, V: Clone> RemoteObject<S, V> {
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

    /// It is ours from now on.
    pub(super) fn take_control(&mut self, now: Instant) {
        if self.controller.is_none() {
            let mut hand = LocalController::new(now);
            self.simulator.iter().for_each(|simulator| hand.on_server_command(simulator.commands.newest().number));
            self.controller = Some(hand);
        }
    }

    /// It is not ours, or not any more: then what the server has not heard of our commands does not count.
    pub(super) fn release_control(&mut self) {
        if self.controller.take().is_some() {
            (self.is_unverified, self.last_requested_at) = (true, None);
        }
    }

    /// Whether what we know of it may be wrong altogether.
    pub(super) fn is_unverified(&self) -> bool {
        self.is_unverified
    }

    /// Whether the server is to be asked to tell of it now: again after so long where we know nothing, and less often where it only was silent.
    pub(super) fn needs_request(&self, now: Instant, repeat_after: TimeDelta) -> bool {
        let is_unknown = self.simulator.is_none() || self.is_unverified;
        let is_silent = now - self.last_update_at > TIMER_UPDATE_INTERVAL * MAX_SILENT_INTERVALS;
        let again_after = if is_unknown { repeat_after } else { TIMER_UPDATE_INTERVAL };
        (is_unknown || is_silent) && self.last_requested_at.is_none_or(|asked| now - asked >= again_after)
    }

    /// Whether we know of it by a command of this epoch or a later one.
    pub(super) fn is_in_epoch(&self, epoch: u32) -> bool {
        let newest = self.simulator.as_ref().map(|simulator| simulator.commands.newest().number);
        !self.is_unverified && newest.is_some_and(|number| number.epoch >= epoch)
    }

    /// Goes on until now.
    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &MotionConfig,
        server: &MotionPeer,
    ) {
        let Some(simulator) = &mut self.simulator else { return };
        if let Some(hand) = &mut self.controller {
            hand.advance(now, simulator, predictor, config, server);
        }
        simulator.advance(predictor, now, config);
        self.discrepancy.record(now, simulator.displayed());
    }

    /// The server is another: it knows nothing of what we told the one before.
    pub(super) fn on_server_restart(&mut self) {
        (self.is_unverified, self.last_requested_at) = (true, None);
        self.confirmed.clear();
    }

    /// The server told of a command. Says what that is to who looks at the object.
    pub(super) fn on_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        ear: &ReceiveContext<'_, P>,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
    ) -> Option<ObjectChange> {
        let number = command.0;
        let Some(simulator) = &mut self.simulator else {
            self.simulator = Some(Simulator::new(ear.now, number, start?, command.2));
            self.on_new_command(ear, number, PendingUpdate::NewObject);
            return Some(ObjectChange::Appeared);
        };
        simulator.advance(ear.predictor, ear.now, ear.config);
        if self.is_unverified {
            return self.on_unverified_command(ear, number, start?, command.2);
        }
        // Of our own object we know better, but for commands that we did not give.
        match simulator.receive_command(ear.predictor, command, start) {
            CommandReceipt::Gap => None,
            CommandReceipt::Duplicate => {
                self.on_update_received(ear);
                None
            }
            CommandReceipt::New if number.is_first() => {
                self.on_new_command(ear, number, PendingUpdate::NewObject);
                Some(ObjectChange::Appeared)
            }
            CommandReceipt::New => {
                self.on_new_command(ear, number, self.pending_update.unwrap_or(PendingUpdate::Segment));
                self.controller.as_ref().map(|_| ObjectChange::Overruled)
            }
        }
    }

    /// The server told of it, and we did not know whether what we know is right.
    fn on_unverified_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        ear: &ReceiveContext<'_, P>,
        number: CommandNumber,
        start: S,
        vector: V,
    ) -> Option<ObjectChange> {
        let simulator = self.simulator.as_mut()?;
        if let Some(hand) = self.controller.as_mut().filter(|_| number.is_first()) {
            // Nobody has commanded it there: what we commanded before still counts, and the server is to hear of it.
            simulator.commands.renumber(number.next());
            hand.on_server_restart(number);
            self.on_update_received(ear);
            return Some(ObjectChange::Appeared);
        }
        simulator.replace(number, start, vector);
        self.on_new_command(ear, number, PendingUpdate::ServerRestart);
        Some(if self.controller.is_some() { ObjectChange::Overruled } else { ObjectChange::Appeared })
    }

    /// The server told of a command that we did not know.
    fn on_new_command<P>(&mut self, ear: &ReceiveContext<'_, P>, number: CommandNumber, fresh: PendingUpdate) {
        self.on_update_received(ear);
        self.pending_update = Some(fresh);
        self.controller.iter_mut().for_each(|hand| hand.on_server_command(number));
    }

    /// The server told of it, and we understood.
    fn on_update_received<P>(&mut self, ear: &ReceiveContext<'_, P>) {
        (self.is_unverified, self.last_update_at, self.ack_due) = (false, ear.now, Some(ear.sent));
    }

    /// The server told how far it is on the leg of a command.
    pub(super) fn on_timer<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        ear: &mut ReceiveContext<'_, P>,
        number: CommandNumber,
        progress: TimerProgress,
    ) {
        // A server that was started anew says nothing by numbers that we know from the one before.
        let Some(simulator) = self.simulator.as_mut().filter(|_| !self.is_unverified) else { return };
        let at = ear.server.to_local(ear.now, ear.sent);
        // Our own newer commands may be under way; what the server did until then counts for how far apart we were.
        if let Some(turn) = simulator.commands.find(number) {
            self.confirmed.on_progress(turn, ConfirmedProgress { reported_at: at, progress });
            self.last_update_at = ear.now;
        }
        if simulator.commands.newest().number != number {
            return;
        }
        simulator.advance(ear.predictor, ear.now, ear.config);
        let expected = ear.server.delay.accumulated();
        let target = match (ear.config.method, self.confirmed.progress_of(number)) {
            (SyncMethod::Clocks, Some(told)) => told.caught_up_timer_at(ear.now),
            // Td = −RT_accum, and what the server was on the leg before it told us.
            _ => progress.timer + expected,
        };
        let fresh = self.pending_update.take();
        match (fresh, ear.config.method, &mut self.controller) {
            (Some(PendingUpdate::NewObject), ..) => simulator.set_timer(ear.predictor, target),
            (Some(PendingUpdate::ServerRestart), ..) => simulator.timer = MotionTimer::new(target, TimeDelta::ZERO),
            (Some(PendingUpdate::Segment), ..) | (None, SyncMethod::Clocks, _) => {
                steer_timer(&mut simulator.timer, target, ear.config.snap_threshold);
            }
            (None, SyncMethod::Paper, Some(hand)) => hand.on_timer_answer(ear.now, &mut simulator.timer, progress),
            (None, SyncMethod::Paper, None) => {}
        }
        if fresh.is_some() && ear.config.method == SyncMethod::Paper {
            self.expected_delay = Some(expected);
            ear.server.probe_soon(ear.now);
        }
    }

    /// The server has heard our commands up to here.
    pub(super) fn on_ack(&mut self, number: CommandNumber, sent: Instant) {
        if let (Some(hand), Some(simulator), false) = (&mut self.controller, &self.simulator, self.is_unverified) {
            hand.on_ack(simulator.commands.newest().number, number, sent);
        }
    }

    /// The way to the server was measured. Who follows it is further behind where the way is longer, so the sign is the other one than
    /// for who is ahead.
    pub(super) fn on_delay(
        &mut self,
        now: Instant,
        delay: TimeDelta,
        ear: (&impl MotionPredictor<State = S, Vector = V>, &MotionConfig),
    ) {
        if let (Some(simulator), Some(expected)) = (&mut self.simulator, self.expected_delay.take()) {
            simulator.advance(ear.0, now, ear.1);
            simulator.timer.correct(expected, delay);
        }
    }

    /// How consistent it was of late with the server's, as far as we know by now.
    pub(super) fn consistency<P: MotionPredictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        config: &MotionConfig,
    ) -> Consistency {
        let apart = |at: Instant, seen: &S| {
            self.confirmed.state_at(predictor, at, config.timer_rate).map(|state| predictor.distance(seen, &state))
        };
        let (discrepancy, over) = self.discrepancy.measure(apart);
        Consistency { discrepancy, tolerance: config.tolerance, duration: over }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let course = self.simulator.as_ref().map_or(0, |simulator| simulator.commands.memory());
        course + self.confirmed.memory() + self.discrepancy.memory()
    }
}

/// A timer that is to be where the server's is: gradually, or at once where it is too far behind. It never goes back.
fn steer_timer(timer: &mut MotionTimer, target: TimeDelta, leap: TimeDelta) {
    let off = timer.value() - target;
    *timer = if off < -leap { MotionTimer::new(target, TimeDelta::ZERO) } else { MotionTimer::new(timer.value(), off) };
}
