//! The server's own simulator of an object, which all others follow.

use super::course::Heard;
use super::known::Progress;
use super::peer::Peer;
use super::simulator::{Moment, Simulator};
use super::{ClientId, Config, Predictor, Timer};
use crate::time::{Instant, TimeDelta};

/// The server's own simulator of an object.
#[derive(Debug)]
pub(super) struct Reference<S, V> {
    simulator: Simulator<S, V>,
    /// Who commands it; the server itself if nobody does.
    pub(super) owner: Option<ClientId>,
    /// When its newest command was heard of.
    turned: Instant,
    /// Its timer then.
    from: TimeDelta,
    /// When the datagram left that brought it.
    pub(super) brought: Instant,
    is_fresh: bool,
}

impl<S: Clone, V: Clone> Reference<S, V> {
    pub(super) fn new(now: Instant, owner: Option<ClientId>, state: S, vector: V) -> Self {
        let simulator = Simulator::new(now, 0, state, vector);
        Self { simulator, owner, turned: now, from: TimeDelta::ZERO, brought: now, is_fresh: false }
    }

    pub(super) fn simulator(&self) -> &Simulator<S, V> {
        &self.simulator
    }

    pub(super) fn newest(&self) -> u32 {
        self.simulator.course.newest().number
    }

    pub(super) fn advance<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &Config,
    ) {
        // What nobody sees need not be corrected gradually.
        self.simulator.advance(predictor, now, &Config { glide: None, ..*config });
    }

    pub(super) fn at<P: Predictor<State = S, Vector = V>>(
        &self,
        now: Instant,
        predictor: &P,
        config: &Config,
    ) -> Moment<S> {
        self.simulator.at(predictor, now, &Config { glide: None, ..*config })
    }

    /// The server itself commands it.
    pub(super) fn command<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        vector: V,
        predictor: &P,
        config: &Config,
    ) {
        self.advance(now, predictor, config);
        self.simulator.turn(predictor, vector);
        (self.turned, self.from) = (now, TimeDelta::ZERO);
    }

    /// The server puts it somewhere else, whatever its owner wants.
    pub(super) fn place(&mut self, now: Instant, state: S, vector: V) {
        let number = self.simulator.course.next_epoch();
        self.simulator = Simulator::new(now, number, state, vector);
        (self.turned, self.from) = (now, TimeDelta::ZERO);
    }

    /// Its owner commands it. Whether that is news.
    pub(super) fn hear<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        command: (u32, TimeDelta, V),
        start: Option<S>,
        (predictor, config): (&P, &Config),
    ) -> Heard {
        self.advance(now, predictor, config);
        let heard = self.simulator.hear(predictor, command, start);
        if heard == Heard::New {
            (self.turned, self.from, self.is_fresh) = (now, TimeDelta::ZERO, true);
        }
        heard
    }

    /// How far its owner was on the leg of its newest command, which it gave so long ago, when it told.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        sent: Instant,
        timer: TimeDelta,
        age: TimeDelta,
        (owner, config): (&Peer, &Config),
    ) {
        if !core::mem::take(&mut self.is_fresh) {
            return;
        }
        self.brought = sent;
        let on_the_way = now - owner.to_local(now, sent);
        self.simulator.timer = if timer > config.leap {
            Timer::new(timer + on_the_way, TimeDelta::ZERO)
        } else {
            Timer::new(TimeDelta::ZERO, -(age + on_the_way).min(config.leap).scale(config.share))
        };
        self.from = self.simulator.timer.value();
    }

    /// What others are told of its timer.
    pub(super) fn progress(&self, now: Instant) -> Progress {
        let timer = self.simulator.timer;
        Progress { timer: timer.value(), owed: -timer.off(), since: now - self.turned, from: self.from }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.simulator.course.memory()
    }
}
