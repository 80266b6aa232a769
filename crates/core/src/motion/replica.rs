//! An object at a client: a simulator that follows the server's, and for one's own object the hand that commands it.

use super::course::Heard;
use super::hand::Hand;
use super::known::{Known, Progress, Told};
use super::peer::Peer;
use super::simulator::Simulator;
use super::{Config, Consistency, Discrepancy, Method, Predictor, Timer};
use crate::time::{Instant, TimeDelta};

/// An object at a client.
#[derive(Debug)]
pub(super) struct Replica<S, V> {
    /// Nothing until the server told of it.
    pub(super) simulator: Option<Simulator<S, V>>,
    pub(super) hand: Option<Hand<V>>,
    known: Known<S, V>,
    discrepancy: Discrepancy<S>,
    /// The server was started anew: whatever it says next counts.
    is_anew: bool,
    /// When the server was last asked to tell of it.
    pub(super) asked: Option<Instant>,
    /// The server is to be told what we have heard: when it left there.
    pub(super) heard: Option<Instant>,
    /// What was heard, if how far the server is was not taken to heart yet.
    fresh: Option<Fresh>,
    /// What the way was taken to be, as long as that was not measured.
    expected: Option<TimeDelta>,
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    /// A command.
    Leg,
    /// Of the object for the first time: there is nothing yet that could be corrected gradually.
    Object,
    /// Of the object by a server that was started anew.
    Anew,
}

/// What a command of which the server told is to who looks at the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is there only now.
    Appeared,
    /// It is ours, and we did not give that command.
    Overruled,
}

/// What there is to hear with.
pub(super) struct Ear<'a, P> {
    pub(super) now: Instant,
    /// When the datagram left, by the server's clock.
    pub(super) sent: Instant,
    pub(super) predictor: &'a P,
    pub(super) config: &'a Config,
    pub(super) server: &'a mut Peer,
}

impl<S: Clone, V: Clone> Replica<S, V> {
    pub(super) fn new(config: &Config, hand: Option<Hand<V>>) -> Self {
        Self {
            simulator: None,
            hand,
            known: Known::default(),
            discrepancy: Discrepancy::new(config.window),
            is_anew: false,
            asked: None,
            heard: None,
            fresh: None,
            expected: None,
        }
    }

    /// Whether the server is to be asked to tell of it.
    pub(super) fn is_unknown(&self) -> bool {
        self.simulator.is_none() || (self.is_anew && self.hand.is_none())
    }

    /// Goes on until now.
    pub(super) fn advance<P: Predictor<State = S, Vector = V>>(
        &mut self,
        now: Instant,
        predictor: &P,
        config: &Config,
        server: &Peer,
    ) {
        let Some(simulator) = &mut self.simulator else { return };
        if let Some(hand) = &mut self.hand {
            hand.advance(now, simulator, predictor, config, server);
        }
        simulator.advance(predictor, now, config);
        self.discrepancy.on_seen(now, simulator.shown());
    }

    /// The server is another: it knows nothing of what we told the one before.
    pub(super) fn on_server_anew(&mut self) {
        self.is_anew = true;
        self.asked = None;
        self.known.forget();
        if let Some(hand) = &mut self.hand {
            hand.on_server_anew();
        }
    }

    /// The server told of a command. Says what that is to who looks at the object.
    pub(super) fn on_command<P: Predictor<State = S, Vector = V>>(
        &mut self,
        ear: &Ear<'_, P>,
        command: (u32, TimeDelta, V),
        start: Option<S>,
    ) -> Option<News> {
        let number = command.0;
        let Some(simulator) = &mut self.simulator else {
            let start = start?;
            self.simulator = Some(Simulator::new(ear.now, number, start, command.2));
            self.hand.iter_mut().for_each(|hand| hand.on_told(number));
            (self.fresh, self.is_anew, self.heard) = (Some(Fresh::Object), false, Some(ear.sent));
            return Some(News::Appeared);
        };
        simulator.advance(ear.predictor, ear.now, ear.config);
        // Of our own object we know better, but for commands that we did not give.
        let heard = match start {
            Some(start) if self.is_anew && self.hand.is_none() => {
                simulator.replace(number, start, command.2);
                self.fresh = Some(Fresh::Anew);
                Heard::New
            }
            start => simulator.hear(ear.predictor, command, start),
        };
        if heard != Heard::Missing {
            (self.is_anew, self.heard) = (false, Some(ear.sent));
        }
        if heard == Heard::New {
            self.fresh.get_or_insert(Fresh::Leg);
            if let Some(hand) = &mut self.hand {
                hand.on_told(number);
                return Some(News::Overruled);
            }
        }
        (self.fresh == Some(Fresh::Anew)).then_some(News::Appeared)
    }

    /// The server told how far it is on the leg of a command.
    pub(super) fn on_timer<P: Predictor<State = S, Vector = V>>(
        &mut self,
        ear: &mut Ear<'_, P>,
        number: u32,
        progress: Progress,
    ) {
        let Some(simulator) = &mut self.simulator else { return };
        let at = ear.server.to_local(ear.now, ear.sent);
        // Our own newer commands may be under way; what the server did until then counts for how far apart we were.
        if let Some(turn) = simulator.course.find(number) {
            self.known.on_told(turn, Told { at, progress });
        }
        if simulator.course.newest().number != number {
            return;
        }
        simulator.advance(ear.predictor, ear.now, ear.config);
        let expected = ear.server.delay.accumulated();
        let target = match (ear.config.method, self.known.told(number)) {
            (Method::Clocks, Some(told)) => told.settled_at(ear.now),
            // Td = −RT_accum, and what the server was on the leg before it told us.
            _ => progress.timer + expected,
        };
        let fresh = self.fresh.take();
        match (fresh, ear.config.method, &mut self.hand) {
            (Some(Fresh::Object), ..) => simulator.settle(ear.predictor, target),
            (Some(Fresh::Anew), ..) => simulator.timer = Timer::new(target, TimeDelta::ZERO),
            (Some(Fresh::Leg), ..) | (None, Method::Clocks, _) => {
                follow(&mut simulator.timer, target, ear.config.leap);
            }
            (None, Method::Paper, Some(hand)) => hand.on_answer(ear.now, &mut simulator.timer, progress),
            (None, Method::Paper, None) => {}
        }
        if fresh.is_some() && ear.config.method == Method::Paper {
            self.expected = Some(expected);
            ear.server.ask_soon(ear.now);
        }
    }

    /// The server has heard our commands up to here.
    pub(super) fn on_heard(&mut self, number: u32, sent: Instant) {
        if let (Some(hand), Some(simulator)) = (&mut self.hand, &self.simulator) {
            hand.on_heard(simulator.course.newest().number, number, sent);
        }
    }

    /// The way to the server was measured. Who follows it is further behind where the way is longer, so the sign is the other one than
    /// for who is ahead.
    pub(super) fn on_delay(
        &mut self,
        now: Instant,
        delay: TimeDelta,
        ear: (&impl Predictor<State = S, Vector = V>, &Config),
    ) {
        if let (Some(simulator), Some(expected)) = (&mut self.simulator, self.expected.take()) {
            simulator.advance(ear.0, now, ear.1);
            simulator.timer.correct(expected, delay);
        }
    }

    /// How consistent it was of late with the server's, as far as we know by now.
    pub(super) fn consistency<P: Predictor<State = S, Vector = V>>(
        &self,
        predictor: &P,
        config: &Config,
    ) -> Consistency {
        let apart = |at: Instant, seen: &S| {
            self.known.state_at(predictor, at, config.pace).map(|state| predictor.distance(seen, &state))
        };
        let (discrepancy, over) = self.discrepancy.measure(apart);
        Consistency { discrepancy, tolerance: config.tolerance, over }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        let course = self.simulator.as_ref().map_or(0, |simulator| simulator.course.memory());
        course + self.known.memory() + self.discrepancy.memory()
    }
}

/// A timer that is to be where the server's is: gradually, or at once where it is too far behind. It never goes back.
fn follow(timer: &mut Timer, target: TimeDelta, leap: TimeDelta) {
    let off = timer.value() - target;
    *timer = if off < -leap { Timer::new(target, TimeDelta::ZERO) } else { Timer::new(timer.value(), off) };
}
