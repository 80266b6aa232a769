//! The server's own simulator of an object, which all others follow.

use super::course::Heard;
use super::known::Progress;
use super::peer::Peer;
use super::simulator::{Moment, Simulator};
use super::{ClientId, Config, Number, Predictor, Timer};
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
    pub(super) fn new(now: Instant, owner: Option<ClientId>, epoch: u32, state: S, vector: V) -> Self {
        let simulator = Simulator::new(now, Number::first_of(epoch), state, vector);
        Self { simulator, owner, turned: now, from: TimeDelta::ZERO, brought: now, is_fresh: false }
    }

    pub(super) fn simulator(&self) -> &Simulator<S, V> {
        &self.simulator
    }

    pub(super) fn newest(&self) -> Number {
        self.simulator.course.newest().number
    }

    /// The first epoch of another object that is called the same.
    pub(super) fn next_epoch(&self) -> u32 {
        self.newest().epoch.saturating_add(1)
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
        // An owner may have given the next command just now.
        let number = if self.owner.is_some() { self.newest().decided() } else { self.newest().next() };
        self.simulator.turn(predictor, number, vector);
        self.on_turned(now);
    }

    /// The server puts it somewhere else, whatever its owner wants.
    pub(super) fn place(&mut self, now: Instant, state: S, vector: V) {
        self.simulator = Simulator::new(now, self.newest().decided(), state, vector);
        self.on_turned(now);
    }

    /// Somebody else commands it from now on; until then it goes on as it does.
    pub(super) fn give<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        owner: Option<ClientId>,
        predictor: &P,
        config: &Config,
    ) {
        self.advance(now, predictor, config);
        self.owner = owner;
        let vector = self.simulator.course.newest().vector.clone();
        self.simulator.turn(predictor, self.newest().given(), vector);
        self.on_turned(now);
    }

    /// The server itself began a leg.
    fn on_turned(&mut self, now: Instant) {
        (self.turned, self.from, self.is_fresh) = (now, TimeDelta::ZERO, false);
    }

    /// Its owner commands it. Whether that is news.
    pub(super) fn hear<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        command: (Number, TimeDelta, V),
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
