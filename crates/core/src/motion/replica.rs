//! An object at a client: a simulator that follows the server's, and for one's own object the hand that commands it.

use super::course::Heard;
use super::hand::Hand;
use super::known::{Known, Progress, Told};
use super::peer::Peer;
use super::simulator::Simulator;
use super::{BEAT, Config, Consistency, Discrepancy, Method, Number, Predictor, Timer};
use crate::time::{Instant, TimeDelta};

/// Who has not heard of an object for so long asks for it again: the server may have forgotten that it is wanted.
const SILENCE_BEATS: i64 = 3;

/// An object at a client.
#[derive(Debug)]
pub(super) struct Replica<S, V> {
    /// Nothing until the server told of it.
    pub(super) simulator: Option<Simulator<S, V>>,
    pub(super) hand: Option<Hand<V>>,
    known: Known<S, V>,
    discrepancy: Discrepancy<S>,
    /// The server was started anew, or the object is not ours any more: whatever is said of it next counts, and our numbers say nothing.
    is_doubtful: bool,
    /// When the server last said something of it that we understood.
    told: Instant,
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
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        Self {
            simulator: None,
            hand: None,
            known: Known::default(),
            discrepancy: Discrepancy::new(config.window),
            is_doubtful: false,
            told: now,
            asked: None,
            heard: None,
            fresh: None,
            expected: None,
        }
    }

    /// It is ours from now on.
    pub(super) fn take_over(&mut self, now: Instant) {
        if self.hand.is_none() {
            let mut hand = Hand::new(now);
            self.simulator.iter().for_each(|simulator| hand.on_told(simulator.course.newest().number));
            self.hand = Some(hand);
        }
    }

    /// It is not ours, or not any more: then what the server has not heard of our commands does not count.
    pub(super) fn let_go(&mut self) {
        if self.hand.take().is_some() {
            (self.is_doubtful, self.asked) = (true, None);
        }
    }

    /// Whether what we know of it may be wrong altogether.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Whether the server is to be asked to tell of it now: again after so long where we know nothing, and less often where it only was silent.
    pub(super) fn is_to_be_asked_for(&self, now: Instant, repeat_after: TimeDelta) -> bool {
        let is_unknown = self.simulator.is_none() || self.is_doubtful;
        let is_silent = now - self.told > BEAT * SILENCE_BEATS;
        let again_after = if is_unknown { repeat_after } else { BEAT };
        (is_unknown || is_silent) && self.asked.is_none_or(|asked| now - asked >= again_after)
    }

    /// Whether we know of it by a command of this epoch or a later one.
    pub(super) fn is_of(&self, epoch: u32) -> bool {
        let newest = self.simulator.as_ref().map(|simulator| simulator.course.newest().number);
        !self.is_doubtful && newest.is_some_and(|number| number.epoch >= epoch)
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
        (self.is_doubtful, self.asked) = (true, None);
        self.known.forget();
    }

    /// The server told of a command. Says what that is to who looks at the object.
    pub(super) fn on_command<P: Predictor<State = S, Vector = V>>(
        &mut self,
        ear: &Ear<'_, P>,
        command: (Number, TimeDelta, V),
        start: Option<S>,
    ) -> Option<News> {
        let number = command.0;
        let Some(simulator) = &mut self.simulator else {
            self.simulator = Some(Simulator::new(ear.now, number, start?, command.2));
            self.on_news(ear, number, Fresh::Object);
            return Some(News::Appeared);
        };
        simulator.advance(ear.predictor, ear.now, ear.config);
        if self.is_doubtful {
            return self.on_doubt(ear, number, start?, command.2);
        }
        // Of our own object we know better, but for commands that we did not give.
        match simulator.hear(ear.predictor, command, start) {
            Heard::Missing => None,
            Heard::Known => {
                self.on_word(ear);
                None
            }
            Heard::New if number.is_first() => {
                self.on_news(ear, number, Fresh::Object);
                Some(News::Appeared)
            }
            Heard::New => {
                self.on_news(ear, number, self.fresh.unwrap_or(Fresh::Leg));
                self.hand.as_ref().map(|_| News::Overruled)
            }
        }
    }

    /// The server told of it, and we did not know whether what we know is right.
    fn on_doubt<P: Predictor<State = S, Vector = V>>(
        &mut self,
        ear: &Ear<'_, P>,
        number: Number,
        start: S,
        vector: V,
    ) -> Option<News> {
        let simulator = self.simulator.as_mut()?;
        if let Some(hand) = self.hand.as_mut().filter(|_| number.is_first()) {
            // Nobody has commanded it there: what we commanded before still counts, and the server is to hear of it.
            simulator.course.renumber(number.next());
            hand.on_server_anew(number);
            self.on_word(ear);
            return Some(News::Appeared);
        }
        simulator.replace(number, start, vector);
        self.on_news(ear, number, Fresh::Anew);
        Some(if self.hand.is_some() { News::Overruled } else { News::Appeared })
    }

    /// The server told of a command that we did not know.
    fn on_news<P>(&mut self, ear: &Ear<'_, P>, number: Number, fresh: Fresh) {
        self.on_word(ear);
        self.fresh = Some(fresh);
        self.hand.iter_mut().for_each(|hand| hand.on_told(number));
    }

    /// The server told of it, and we understood.
    fn on_word<P>(&mut self, ear: &Ear<'_, P>) {
        (self.is_doubtful, self.told, self.heard) = (false, ear.now, Some(ear.sent));
    }

    /// The server told how far it is on the leg of a command.
    pub(super) fn on_timer<P: Predictor<State = S, Vector = V>>(
        &mut self,
        ear: &mut Ear<'_, P>,
        number: Number,
        progress: Progress,
    ) {
        // A server that was started anew says nothing by numbers that we know from the one before.
        let Some(simulator) = self.simulator.as_mut().filter(|_| !self.is_doubtful) else { return };
        let at = ear.server.to_local(ear.now, ear.sent);
        // Our own newer commands may be under way; what the server did until then counts for how far apart we were.
        if let Some(turn) = simulator.course.find(number) {
            self.known.on_told(turn, Told { at, progress });
            self.told = ear.now;
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
    pub(super) fn on_heard(&mut self, number: Number, sent: Instant) {
        if let (Some(hand), Some(simulator), false) = (&mut self.hand, &self.simulator, self.is_doubtful) {
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
