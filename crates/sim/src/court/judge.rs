//! What must hold in a court, judged by what each end shows and by what was commanded.

use std::collections::{BTreeMap, BTreeSet};

use coplay::motion::{MilliVec2, MotionClientEvent, MotionPredictor, ObjectId, ObjectMoment, SyncMethod};
use coplay::time::{Instant, TimeDelta};

use super::scenario::Fault;
use super::{Court, End, LINEAR, Scenario, When};
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

/// What somebody commanded.
#[derive(Clone, Copy, Debug)]
struct Commanded {
    /// When the first of those was given that were combined, on the clock of who gave it.
    at: Instant,
    vector: MilliVec2,
    /// Nothing happened since that could have undone it.
    counts: bool,
    /// What the server decided is forgotten with it, until the owner has heard of it.
    by: End,
}

/// The judge of one scenario.
pub(super) struct Judge {
    config: coplay::motion::MotionConfig,
    near: TimeDelta,
    /// What each end showed of each object last, and when, on its own clock.
    before: BTreeMap<(usize, ObjectId), (Instant, ObjectMoment<MilliVec2>)>,
    commanded: BTreeMap<ObjectId, Commanded>,
    /// Who commands an object, where that is another than at first.
    owners: BTreeMap<ObjectId, End>,
    /// What the server decided about objects that clients command, by the epochs of those decisions.
    decided: BTreeMap<(ObjectId, u32), Vec<MilliVec2>>,
    /// In which epoch an object came to its owner: until that has heard of it, it may hear of commands of the one before.
    given: BTreeMap<ObjectId, u32>,
    removed: BTreeSet<ObjectId>,
    /// Objects that were removed at any time.
    vanished: BTreeSet<ObjectId>,
    measured: Instant,
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
            near: if config.method == SyncMethod::Paper { guessed } else { NEAR },
            before: BTreeMap::new(),
            commanded: BTreeMap::new(),
            owners: BTreeMap::new(),
            decided: BTreeMap::new(),
            given: BTreeMap::new(),
            removed: BTreeSet::new(),
            vanished: BTreeSet::new(),
            measured: scenario.measured(),
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

    /// Who commands an object.
    pub(super) fn owner(&self, object: ObjectId) -> End {
        let at_first = if object.0 >= 1_000 { End::Server } else { End::Seat(object.0 as usize - 1) };
        self.owners.get(&object).copied().unwrap_or(at_first)
    }

    /// Its owner is about to command an object. Whether it is there to be commanded.
    pub(super) fn on_command(&mut self, court: &mut Court, object: ObjectId, vector: MilliVec2) -> bool {
        let by = self.owner(object);
        self.hear(court, by);
        if court.moment(by, object).is_none() {
            return false;
        }
        self.commands += 1;
        let at = court.local(by);
        let is_combined = |before: &&mut Commanded| {
            by != End::Server
                && before.by == by
                && (TimeDelta::ZERO..self.config.combine_interval).contains(&(at - before.at))
        };
        if let Some(before) = self.commanded.get_mut(&object).filter(is_combined) {
            before.vector = LINEAR.combine(&before.vector, &vector);
        } else {
            self.commanded.insert(object, Commanded { at, vector, counts: true, by });
        }
        true
    }

    /// What an end did before a crash may be forgotten with it.
    pub(super) fn on_crash(&mut self, court: &mut Court, end: End) {
        self.hear(court, end);
        match end {
            End::Server => {
                let own = self.commanded.values_mut().filter(|commanded| commanded.by == End::Server);
                own.for_each(|commanded| commanded.counts = false);
                self.before.retain(|(of, _), _| *of != SERVER);
            }
            End::Seat(seat) => {
                // Nothing is combined with what was given before.
                self.commanded.retain(|_, commanded| commanded.by != end);
                self.before.retain(|(of, _), _| *of != seat);
            }
        }
    }

    /// The server has decided something about an object that a client commands: its owner may hear of it, and only of that.
    pub(super) fn on_decided(&mut self, court: &Court, object: ObjectId) {
        let does = court.server().and_then(|server| server.vector(object)).copied();
        if let (Some(vector), Some(moment)) = (does, court.moment(End::Server, object)) {
            self.decided.entry((object, moment.number.epoch)).or_default().push(vector);
        }
    }

    /// Another client commands an object from now on: what the one before has under way does not count.
    pub(super) fn on_given(&mut self, court: &mut Court, object: ObjectId, to: usize) {
        let before = self.owners.insert(object, End::Seat(to));
        let before = before.unwrap_or(End::Seat(object.0 as usize - 1));
        if before == End::Seat(to) {
            return;
        }
        if let End::Seat(seat) = before {
            court.want(seat, object, false);
        }
        court.want(to, object, true);
        self.given.extend(court.moment(End::Server, object).map(|moment| (object, moment.number.epoch)));
        self.on_server_commanded(court, object);
    }

    fn on_server_commanded(&mut self, court: &Court, object: ObjectId) {
        if let Some(vector) = court.server().and_then(|server| server.vector(object)).copied() {
            let at = court.local(End::Server);
            self.commanded.insert(object, Commanded { at, vector, counts: true, by: End::Server });
        }
    }

    pub(super) fn on_removed(&mut self, object: ObjectId) {
        self.removed.insert(object);
        self.vanished.insert(object);
        // What its owner commands counts for it until it hears of that.
        self.commanded.retain(|of, commanded| *of != object || commanded.by != End::Server);
    }

    /// There is another object that is called the same.
    pub(super) fn on_respawned(&mut self, court: &Court, object: ObjectId) {
        self.removed.remove(&object);
        self.before.remove(&(SERVER, object));
        self.on_decided(court, object);
        if self.owner(object) == End::Server {
            self.on_server_commanded(court, object);
        }
    }

    pub(super) fn is_removed(&self, object: ObjectId) -> bool {
        self.removed.contains(&object)
    }

    /// Goes on until then, and looks at every frame of everybody.
    pub(super) fn rest(&mut self, court: &mut Court, until: Instant) {
        court.watch(until, |court, end, when| match when {
            When::Frame => self.on_frame(court, end),
            When::Arrival => self.on_arrival(court, end),
        });
    }

    /// Takes in what happened at an end since it was last looked at.
    fn hear(&mut self, court: &mut Court, end: End) {
        let End::Seat(seat) = end else { return };
        for event in court.take_events(end) {
            match event {
                MotionClientEvent::Appeared(object) => {
                    self.before.remove(&(seat, object));
                    let does = court.client(seat).and_then(|client| client.vector(object));
                    let own = self.commanded.get(&object).filter(|commanded| commanded.by == end);
                    if own.is_some_and(|commanded| does != Some(&commanded.vector)) {
                        self.on_overruled(court, seat, object);
                    }
                }
                MotionClientEvent::Overruled(object) => self.on_overruled(court, seat, object),
                MotionClientEvent::Removed(object) => self.on_gone(court, seat, object),
                MotionClientEvent::ServerRestarted => {}
            }
        }
    }

    /// What an owner commanded does not count, because the server decided otherwise; and only then.
    fn on_overruled(&mut self, court: &Court, seat: usize, object: ObjectId) {
        let end = End::Seat(seat);
        let does = court.client(seat).and_then(|client| client.vector(object)).copied();
        let (Some(vector), Some(moment)) = (does, court.moment(end, object)) else { return };
        let decided = self.decided.get(&(object, moment.number.epoch));
        let is_of_before = self.given.get(&object).is_some_and(|given| moment.number.epoch < *given);
        if !is_of_before && !decided.is_some_and(|vectors| vectors.contains(&vector)) {
            self.violation("overruled", || format!("seat {seat} lost commands of {object:?} for {vector:?}"));
        }
        if self.owner(object) == end {
            // Nothing is combined with it.
            let at = court.local(end) - self.config.combine_interval;
            self.commanded.insert(object, Commanded { at, vector, counts: true, by: end });
        }
    }

    /// A client was told that there is no such object. If there is one again, it wants to see that.
    fn on_gone(&mut self, court: &mut Court, seat: usize, object: ObjectId) {
        if !self.vanished.contains(&object) {
            self.violation("gone", || format!("seat {seat} was told that {object:?} is no more"));
        }
        self.before.remove(&(seat, object));
        self.commanded.retain(|of, commanded| *of != object || commanded.by != End::Seat(seat));
        if !self.is_removed(object) {
            court.want(seat, object, self.owner(object) == End::Seat(seat));
        }
    }

    /// Looks at a client after every datagram, too. Between two frames it may be put right more than once, each time by more than is
    /// corrected gradually, and from frames alone that cannot be told from a jump: two such corrections may end near where they began.
    fn on_arrival(&mut self, court: &mut Court, end: End) {
        let End::Seat(seat) = end else { return };
        self.hear(court, end);
        let objects: Vec<ObjectId> = court.client(seat).map_or(Vec::new(), |client| client.objects().collect());
        objects.into_iter().for_each(|object| _ = self.judge_moment(court, (end, seat), object));
    }

    fn on_frame(&mut self, court: &mut Court, end: End) {
        self.frames += 1;
        self.hear(court, end);
        let number = if let End::Seat(seat) = end { seat } else { SERVER };
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
        for object in objects {
            if let Some(moment) = self.judge_moment(court, (end, number), object) {
                self.measure(court, end, object, &moment);
            }
        }
    }

    /// Compares an object at an end with how it was there when it was last looked at.
    fn judge_moment(
        &mut self,
        court: &Court,
        (end, number): (End, usize),
        object: ObjectId,
    ) -> Option<ObjectMoment<MilliVec2>> {
        let (local, moment) = (court.local(end), court.moment(end, object)?);
        if let Some((at, before)) = self.before.insert((number, object), (local, moment)) {
            self.judge_step(end, object, (at, &before), (local, &moment));
        }
        Some(moment)
    }

    /// Nobody goes back, slower or faster than agreed on, and nothing is seen to jump.
    fn judge_step(
        &mut self,
        end: End,
        object: ObjectId,
        (then, before): (Instant, &ObjectMoment<MilliVec2>),
        (now, moment): (Instant, &ObjectMoment<MilliVec2>),
    ) {
        let (by, pace) = (now - then, self.config.timer_rate);
        if moment.number == before.number {
            let step = moment.timer.value() - before.timer.value();
            let is_leap = step >= self.config.snap_threshold;
            let (least, most) = (by.scale(pace.slowest) - ROUNDING, by.scale(pace.fastest) + ROUNDING);
            if step < least || (step > most && !is_leap) {
                self.violation("pace", || format!("{end:?}: {object:?} goes on by {step:?} in {by:?}"));
            }
        }
        let Some(glide) = self.config.correction_speed.filter(|_| end != End::Server) else { return };
        let fastest = f64::from(LINEAR.max_speed) / 1e3;
        let most = (fastest * pace.fastest + glide) * by.as_secs_f64() + 0.01;
        let seen = LINEAR.distance(&before.displayed, &moment.displayed);
        // An object beyond the leap distance is corrected at once.
        let far = glide * self.config.snap_threshold.as_secs_f64();
        let is_leap = seen > far - most || LINEAR.distance(&before.displayed, &before.state) > far;
        if seen > most && !is_leap {
            self.violation("seen", || {
                format!(
                    "{end:?}: {object:?} is seen to go {seen} units in {by:?} {then:?} {before:?} {now:?} {moment:?}"
                )
            });
        }
    }

    /// Adds up D in the window before it is measured.
    fn measure(&mut self, court: &Court, end: End, object: ObjectId, moment: &ObjectMoment<MilliVec2>) {
        let End::Seat(seat) = end else { return };
        if court.now() < self.measured - self.config.averaging_window {
            return;
        }
        let Some(server) = court.moment(End::Server, object) else { return };
        let apart = LINEAR.distance(&moment.displayed, &server.state);
        let (area, at, before) = self.area.get(&(seat, object)).copied().unwrap_or((0.0, court.now(), apart));
        let area = area + (apart + before) / 2.0 * (court.now() - at).as_secs_f64();
        self.area.insert((seat, object), (area, court.now(), apart));
    }

    /// What clients say of their discrepancies is what they were.
    pub(super) fn on_measured(&mut self, court: &Court) {
        let near = self.near.as_secs_f64() * f64::from(LINEAR.max_speed) / 1e3;
        for ((seat, object), (area, ..)) in std::mem::take(&mut self.area) {
            let told = court.client(seat).and_then(|client| client.consistency(object));
            let Some(told) = told else { continue };
            // Timers that are within what is called near may be so all the time; and what happens between frames nobody sees.
            let most = area * 0.15 + near * self.config.averaging_window.as_secs_f64() / 2.0 + 0.05;
            // Where so many commands were given that not all are remembered, less is known than there was.
            let is_all = told.duration > self.config.averaging_window.scale(0.9);
            if told.discrepancy - area > most || (is_all && area - told.discrepancy > most) {
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
        let refused = court.server().map_or(0, coplay::motion::MotionServer::malformed)
            + (0..court.seats())
                .filter_map(|seat| court.client(seat))
                .map(coplay::motion::MotionClient::malformed)
                .sum::<u64>();
        if refused > court.boasts() {
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
                format!("seat {seat} knows {:?} of {object:?}, there is {:?}", here.number, there.number)
            });
            return;
        }
        let off = (here.timer.value() - there.timer.value()).abs();
        if off > self.near {
            self.violation("timers", || format!("seat {seat}: the timer of {object:?} is off by {off:?}"));
            return;
        }
        let near = off.as_secs_f64() * f64::from(LINEAR.max_speed) / 1e3 + 0.05;
        let apart = [here.state, here.displayed].map(|place| LINEAR.distance(&place, &there.state));
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
