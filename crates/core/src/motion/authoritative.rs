//! The server's own simulator of an object, which all others follow.

use super::command_history::CommandReceipt;
use super::confirmed::TimerProgress;
use super::peer::MotionPeer;
use super::simulator::{ObjectMoment, Simulator};
use super::{ClientId, CommandNumber, MotionConfig, MotionPredictor, MotionTimer};
use crate::time::{Instant, TimeDelta};

/// The server's own simulator of an object.
#[derive(Debug)]
pub(super) struct AuthoritativeObject<S, V> {
    simulator: Simulator<S, V>,
    /// Who commands it; the server itself if nobody does.
    pub(super) owner: Option<ClientId>,
    /// When its newest command was heard of.
    segment_started_at: Instant,
    /// Its timer then.
    initial_timer: TimeDelta,
    /// When the datagram left that brought it.
    pub(super) command_sent_at: Instant,
    is_timer_pending: bool,
}

impl<S: Clone, V: Clone> AuthoritativeObject<S, V> {
    pub(super) fn new(now: Instant, owner: Option<ClientId>, epoch: u32, state: S, vector: V) -> Self {
        let simulator = Simulator::new(now, CommandNumber::first_in_epoch(epoch), state, vector);
        Self {
            simulator,
            owner,
            segment_started_at: now,
            initial_timer: TimeDelta::ZERO,
            command_sent_at: now,
            is_timer_pending: false,
        }
    }

    pub(super) fn simulator(&self) -> &Simulator<S, V> {
        &self.simulator
    }

    pub(super) fn newest_number(&self) -> CommandNumber {
        self.simulator.commands.newest().number
    }

    /// The first epoch of another object that is called the same.
    pub(super) fn next_epoch(&self) -> u32 {
        self.newest_number().epoch.saturating_add(1)
    }

    pub(super) fn advance<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &MotionConfig,
    ) {
        // What nobody sees need not be corrected gradually.
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

    /// The server itself commands it.
    pub(super) fn command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        vector: V,
        predictor: &P,
        config: &MotionConfig,
    ) {
        self.advance(now, predictor, config);
        // An owner may have given the next command just now.
        let number = if self.owner.is_some() {
            self.newest_number().after_server_decision()
        } else {
            self.newest_number().next()
        };
        self.simulator.start_segment(predictor, number, vector);
        self.on_segment_started(now);
    }

    /// The server puts it somewhere else, whatever its owner wants.
    pub(super) fn place(&mut self, now: Instant, state: S, vector: V) {
        self.simulator = Simulator::new(now, self.newest_number().after_server_decision(), state, vector);
        self.on_segment_started(now);
    }

    /// Somebody else commands it from now on; until then it goes on as it does.
    pub(super) fn transfer_ownership<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        owner: Option<ClientId>,
        predictor: &P,
        config: &MotionConfig,
    ) {
        self.advance(now, predictor, config);
        self.owner = owner;
        let vector = self.simulator.commands.newest().vector.clone();
        self.simulator.start_segment(predictor, self.newest_number().after_ownership_transfer(), vector);
        self.on_segment_started(now);
    }

    /// The server itself began a leg.
    fn on_segment_started(&mut self, now: Instant) {
        (self.segment_started_at, self.initial_timer, self.is_timer_pending) = (now, TimeDelta::ZERO, false);
    }

    /// Its owner commands it. Whether that is news.
    pub(super) fn on_owner_command<P: MotionPredictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        command: (CommandNumber, TimeDelta, V),
        start: Option<S>,
        (predictor, config): (&P, &MotionConfig),
    ) -> CommandReceipt {
        self.advance(now, predictor, config);
        let heard = self.simulator.receive_command(predictor, command, start);
        if heard == CommandReceipt::New {
            (self.segment_started_at, self.initial_timer, self.is_timer_pending) = (now, TimeDelta::ZERO, true);
        }
        heard
    }

    /// How far its owner was on the leg of its newest command, which it gave so long ago, when it told.
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
        self.command_sent_at = sent;
        let on_the_way = now - owner.to_local(now, sent);
        self.simulator.timer = if timer > config.snap_threshold {
            MotionTimer::new(timer + on_the_way, TimeDelta::ZERO)
        } else {
            MotionTimer::new(TimeDelta::ZERO, -(age + on_the_way).min(config.snap_threshold).scale(config.server_share))
        };
        self.initial_timer = self.simulator.timer.value();
    }

    /// What others are told of its timer.
    pub(super) fn progress(&self, now: Instant) -> TimerProgress {
        let timer = self.simulator.timer;
        TimerProgress {
            timer: timer.value(),
            catch_up: -timer.offset(),
            segment_age: now - self.segment_started_at,
            initial_timer: self.initial_timer,
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.simulator.commands.memory()
    }
}
