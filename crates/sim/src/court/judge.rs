//! What must hold in a court, judged by what each end shows and by what was commanded.

use std::collections::{BTreeMap, BTreeSet};

use coplay::motion::{ClientEvent, Method, Moment, ObjectId, Pair, Predictor};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::motion::{Datagram, Item, Items};

use super::scenario::{Fault, MEASURED};
use super::{Court, End, LINEAR, Scenario};
use crate::scenario::Played;
use crate::toy::mix;

/// Simulators are as near to the server's as clocks are known.
const NEAR: TimeDelta = TimeDelta::from_millis(10);
/// The most memory of one end.
const MEMORY: usize = 1 << 20;
/// What rounding may add to a step.
const ROUNDING: TimeDelta = TimeDelta::from_micros(2);
/// Violations of one kind are told so often.
const MOST: usize = 3;

/// What is broken on purpose, on the way to or from the first seat, to see that it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It hears of no commands of others after a while.
    Deaf,
    /// Its own commands do not get to the server after a while.
    Mute,
    /// It gets wrong stamps for clocks.
    Stamps,
    /// It takes legs to be longer than they were.
    Legs,
    /// It takes the server to have turned earlier than it did.
    Since,
    /// Its own time runs too fast for a while.
    Hurry,
}

/// What somebody commanded.
#[derive(Clone, Copy, Debug)]
struct Commanded {
    /// When the first of those was given that were combined, on the clock of who gave it.
    at: Instant,
    vector: Pair,
    /// Nothing happened since that could have undone it.
    counts: bool,
}

/// The judge of one scenario.
pub(super) struct Judge {
    config: coplay::motion::Config,
    near: TimeDelta,
    /// What each end showed of each object last, and when, on its own clock.
    before: BTreeMap<(usize, ObjectId), (Instant, Moment<Pair>)>,
    commanded: BTreeMap<ObjectId, Commanded>,
    removed: BTreeSet<ObjectId>,
    /// How far what a seat showed was from the server's, over the last window before it is measured: D, the time, and the distance, last.
    area: BTreeMap<(usize, ObjectId), (f64, Instant, f64)>,
    violations: Vec<String>,
    frames: u64,
    commands: u64,
    trace: u64,
}

/// The server among the ends.
const SERVER: usize = usize::MAX;

impl Judge {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let config = scenario.plan.config;
        // By half of a round trip nobody knows better than delays vary.
        let guessed = TimeDelta::from_millis(20) + scenario.jitter() * 2;
        Self {
            config,
            near: if config.method == Method::Paper { guessed } else { NEAR },
            before: BTreeMap::new(),
            commanded: BTreeMap::new(),
            removed: BTreeSet::new(),
            area: BTreeMap::new(),
            violations: Vec::new(),
            frames: 0,
            commands: 0,
            trace: scenario.seed,
        }
    }

    fn violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MOST {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    /// Somebody is about to command an object. Whether it is there to be commanded.
    pub(super) fn on_command(&mut self, court: &Court, by: End, object: ObjectId, vector: Pair) -> bool {
        if court.moment(by, object).is_none() {
            return false;
        }
        self.commands += 1;
        let at = court.local(by);
        let is_combined = |before: &&mut Commanded| by != End::Server && at - before.at < self.config.buffer;
        if let Some(before) = self.commanded.get_mut(&object).filter(is_combined) {
            before.vector = LINEAR.combine(&before.vector, &vector);
        } else {
            self.commanded.insert(object, Commanded { at, vector, counts: true });
        }
        true
    }

    /// What the server's own objects do, or a client's does, before a crash, may be forgotten with it.
    pub(super) fn on_crash(&mut self, end: End) {
        match end {
            End::Server => {
                let own = self.commanded.iter_mut().filter(|(object, _)| object.0 >= 1_000);
                own.for_each(|(_, commanded)| commanded.counts = false);
                self.before.retain(|(of, _), _| *of != SERVER);
            }
            End::Seat(seat) => {
                // Nothing is combined with what was given before.
                self.commanded.remove(&Scenario::avatar(seat));
                self.before.retain(|(of, _), _| *of != seat);
            }
        }
    }

    pub(super) fn on_placed(&mut self, object: ObjectId) {
        // Nothing is combined with what was given before, either.
        self.commanded.remove(&object);
    }

    pub(super) fn on_removed(&mut self, object: ObjectId) {
        self.removed.insert(object);
        self.commanded.remove(&object);
    }

    pub(super) fn is_removed(&self, object: ObjectId) -> bool {
        self.removed.contains(&object)
    }

    /// Goes on until then, and looks at every frame of everybody.
    pub(super) fn rest(&mut self, court: &mut Court, until: Instant) {
        court.run(until, |court, end| self.on_frame(court, end));
    }

    fn on_frame(&mut self, court: &mut Court, end: End) {
        self.frames += 1;
        let number = if let End::Seat(seat) = end { seat } else { SERVER };
        for event in court.take_events(end) {
            match event {
                ClientEvent::Appeared(object) => _ = self.before.remove(&(number, object)),
                ClientEvent::Overruled(object) => self.on_placed(object),
                ClientEvent::Gone(_) | ClientEvent::ServerAnew => {}
            }
        }
        let (objects, memory): (Vec<ObjectId>, usize) = match end {
            End::Server => {
                court.server().map_or((Vec::new(), 0), |server| (server.objects().collect(), server.memory()))
            }
            End::Seat(seat) => {
                court.client(seat).map_or((Vec::new(), 0), |client| (client.objects().collect(), client.memory()))
            }
        };
        if memory > MEMORY {
            self.violation("memory", || format!("{end:?} takes {memory} bytes"));
        }
        let local = court.local(end);
        for object in objects {
            let Some(moment) = court.moment(end, object) else { continue };
            if let Some((at, before)) = self.before.insert((number, object), (local, moment)) {
                self.judge_step(end, object, (at, &before), (local, &moment));
            }
            self.measure(court, end, object, &moment);
        }
    }

    /// Nobody goes back, slower or faster than agreed on, and nothing is seen to jump.
    fn judge_step(
        &mut self,
        end: End,
        object: ObjectId,
        (then, before): (Instant, &Moment<Pair>),
        (now, moment): (Instant, &Moment<Pair>),
    ) {
        let (by, pace) = (now - then, self.config.pace);
        if moment.number == before.number {
            let step = moment.timer.value() - before.timer.value();
            let is_leap = step >= self.config.leap;
            let (least, most) = (by.scale(pace.slowest) - ROUNDING, by.scale(pace.fastest) + ROUNDING);
            if step < least || (step > most && !is_leap) {
                self.violation("pace", || format!("{end:?}: {object:?} goes on by {step:?} in {by:?}"));
            }
        }
        let Some(glide) = self.config.glide.filter(|_| end != End::Server) else { return };
        let fastest = f64::from(LINEAR.fastest) / 1e3;
        let most = (fastest * pace.fastest + glide) * by.as_secs_f64() + 0.01;
        let seen = LINEAR.distance(&before.shown, &moment.shown);
        // What is too far off to be corrected gradually may have been put right more than once.
        let far = glide * self.config.leap.as_secs_f64();
        let is_leap = seen > far - most || LINEAR.distance(&before.shown, &before.state) > far;
        if seen > most && !is_leap {
            self.violation("seen", || {
                format!(
                    "{end:?}: {object:?} is seen to go {seen} units in {by:?} {then:?} {before:?} {now:?} {moment:?}"
                )
            });
        }
    }

    /// Adds up D in the window before it is measured.
    fn measure(&mut self, court: &Court, end: End, object: ObjectId, moment: &Moment<Pair>) {
        let End::Seat(seat) = end else { return };
        if court.now() < Instant::ZERO + MEASURED - self.config.window {
            return;
        }
        let Some(server) = court.moment(End::Server, object) else { return };
        let apart = LINEAR.distance(&moment.shown, &server.state);
        let (area, at, before) = self.area.get(&(seat, object)).copied().unwrap_or((0.0, court.now(), apart));
        let area = area + (apart + before) / 2.0 * (court.now() - at).as_secs_f64();
        self.area.insert((seat, object), (area, court.now(), apart));
    }

    /// What clients say of their discrepancies is what they were.
    pub(super) fn on_measured(&mut self, court: &Court) {
        let near = self.near.as_secs_f64() * f64::from(LINEAR.fastest) / 1e3;
        for ((seat, object), (area, ..)) in std::mem::take(&mut self.area) {
            let told = court.client(seat).and_then(|client| client.consistency(object));
            let Some(told) = told else { continue };
            // Timers that are within what is called near may be so all the time; and what happens between frames nobody sees.
            let most = area * 0.15 + near * self.config.window.as_secs_f64() / 2.0 + 0.05;
            if (told.discrepancy - area).abs() > most {
                self.violation("discrepancy", || {
                    format!("seat {seat} says {:.3} of {object:?}, and it was {area:.3}", told.discrepancy)
                });
            }
        }
    }

    /// Nothing was commanded for a while, and nothing was lost: everybody is where the server is, which does what was commanded last.
    pub(super) fn on_settled(&mut self, court: &Court, scenario: &Scenario, is_end: bool) {
        for (object, _) in scenario.objects() {
            self.judge_last(court, object, is_end);
            for seat in 0..court.seats() {
                self.judge_seat(court, seat, object);
            }
        }
        let refused = court.server().map_or(0, coplay::motion::Server::refused)
            + (0..court.seats())
                .filter_map(|seat| court.client(seat))
                .map(coplay::motion::Client::refused)
                .sum::<u64>();
        if refused > 0 {
            self.violation("refused", || format!("{refused} datagrams were not understood"));
        }
    }

    fn judge_last(&mut self, court: &Court, object: ObjectId, is_end: bool) {
        let Some(commanded) = self.commanded.get(&object).copied() else { return };
        let does = court.server().and_then(|server| server.vector(object)).copied();
        if (commanded.counts || is_end) && does != Some(commanded.vector) {
            self.violation("last", || format!("{object:?} was commanded {:?} and does {does:?}", commanded.vector));
        }
    }

    fn judge_seat(&mut self, court: &Court, seat: usize, object: ObjectId) {
        let (there, here) = (court.moment(End::Server, object), court.moment(End::Seat(seat), object));
        let (Some(there), Some(here)) = (there, here) else {
            if there.is_some() {
                self.violation("heard", || format!("seat {seat} has not heard of {object:?}"));
            } else if here.is_some() {
                self.violation("gone", || format!("seat {seat} shows {object:?}, which is no more"));
            }
            return;
        };
        self.trace = mix(self.trace, here.state.x as u64);
        if here.number != there.number {
            self.violation("heard", || {
                format!("seat {seat} knows {} commands of {object:?}, there were {}", here.number, there.number)
            });
            return;
        }
        let off = (here.timer.value() - there.timer.value()).abs();
        if off > self.near {
            self.violation("timers", || format!("seat {seat}: the timer of {object:?} is off by {off:?}"));
            return;
        }
        let near = off.as_secs_f64() * f64::from(LINEAR.fastest) / 1e3 + 0.05;
        let apart = [here.state, here.shown].map(|place| LINEAR.distance(&place, &there.state));
        if apart.iter().any(|apart| *apart > near) {
            self.violation("way", || format!("seat {seat}: {object:?} is {apart:?} from where it should be"));
        }
    }

    pub(super) fn into_played(self, scenario: &Scenario, court: &Court) -> Played {
        let traffic = court.traffic();
        let count = |kind: fn(&Fault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        Played {
            violations: self.violations,
            frames: self.frames,
            packets: traffic.sent,
            losses: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, Fault::Cut(_))),
            crashes: count(|fault| matches!(fault, Fault::Crash(_))),
            seconds: (court.now() - Instant::ZERO).as_secs_f64(),
            seen: self.commands,
            kinds: scenario.kinds(),
            trace: mix(self.trace, traffic.bytes),
            ..Played::default()
        }
    }
}

impl Sabotage {
    /// From when on something is broken, and until when somebody hurries.
    const BROKEN: TimeDelta = TimeDelta::from_secs(6);
    const HURRIES: TimeDelta = TimeDelta::from_secs(1);

    /// By how much the first seat's time is ahead of its clock.
    pub(super) fn hurry(self, seat: usize, now: Instant) -> TimeDelta {
        let since = (now - Instant::ZERO - Self::BROKEN).max(TimeDelta::ZERO).min(Self::HURRIES);
        if self == Self::Hurry && seat == 0 { since * 3 } else { TimeDelta::ZERO }
    }

    /// Changes what gets to or from a seat; `None` if it does not get there at all.
    pub(super) fn spoil(self, now: Instant, seat: usize, up: bool, bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        let is_late = now - Instant::ZERO > Self::BROKEN;
        let is_concerned = match self {
            Self::Mute => up && is_late,
            Self::Deaf => !up && is_late,
            Self::Hurry => false,
            Self::Stamps | Self::Legs | Self::Since => !up,
        };
        if seat != 0 || !is_concerned {
            return Some(bytes);
        }
        let items = Items::new(&bytes).ok()?;
        let mut buf = [0; coplay::wire::MAX_DATAGRAM];
        let mut datagram = Datagram::new(&mut buf, items.head()).ok()?;
        for item in items.flatten() {
            datagram.put(self.changed(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// An item as it is told, if it is.
    fn changed(self, item: Item<'_>) -> Option<Item<'_>> {
        match (self, item) {
            (Self::Deaf | Self::Mute, Item::Command { .. }) => None,
            (Self::Stamps, Item::Echo { sent, received }) => Some(Item::Echo { sent, received: received + OFF * 4 }),
            (Self::Legs, Item::Command { object, number, leg, vector }) => {
                Some(Item::Command { object, number, leg: leg + OFF, vector })
            }
            (Self::Since, Item::Timer { object, number, timer, owed, since, from }) => {
                Some(Item::Timer { object, number, timer, owed, since: since + OFF * 10, from })
            }
            (_, item) => Some(item),
        }
    }
}

/// By how much what is broken is off.
const OFF: TimeDelta = TimeDelta::from_millis(40);
