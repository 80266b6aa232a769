//! What must hold in a court, judged by what each end shows and by what was commanded.

use std::collections::{BTreeMap, BTreeSet};

use coplay::motion::{MilliVec2, MotionClientEvent, MotionPredictor, ObjectId, ObjectMoment, SyncMethod};
use coplay::time::{Instant, TimeDelta};

use super::scenario::MotionFault;
use super::{ChangeCause, Endpoint, LINEAR_MOTION, MotionNetwork, MotionScenario};
use crate::session::scenario::ScenarioResult;
use crate::toy_machine::mix_hash;

/// Simulators are as near to the server's as clocks are known.
const MAX_TIMER_ERROR: TimeDelta = TimeDelta::from_millis(10);
/// The most memory of one end.
const MAX_MEMORY: usize = 1 << 20;
/// What rounding may add to a step.
const ROUNDING_TOLERANCE: TimeDelta = TimeDelta::from_micros(2);
/// Violations of one kind are told so often.
const MAX_REPORTS_PER_PROPERTY: usize = 3;

/// What somebody commanded.
#[derive(Clone, Copy, Debug)]
struct LastCommand {
    /// When the first of those was given that were combined, on the clock of who gave it.
    given_at: Instant,
    vector: MilliVec2,
    /// Nothing happened since that could have undone it.
    is_binding: bool,
    /// What the server decided is forgotten with it, until the owner has heard of it.
    issuer: Endpoint,
}

/// The judge of one scenario.
pub(super) struct MotionChecker {
    config: coplay::motion::MotionConfig,
    max_timer_error: TimeDelta,
    /// What each end showed of each object last, and when, on its own clock.
    last_seen: BTreeMap<(usize, ObjectId), (Instant, ObjectMoment<MilliVec2>)>,
    last_commands: BTreeMap<ObjectId, LastCommand>,
    /// Who commands an object, where that is another than at first.
    owners: BTreeMap<ObjectId, Endpoint>,
    /// What the server decided about objects that clients command, by the epochs of those decisions.
    server_decisions: BTreeMap<(ObjectId, u32), Vec<MilliVec2>>,
    /// In which epoch an object came to its owner: until that has heard of it, it may hear of commands of the one before.
    transfer_epochs: BTreeMap<ObjectId, u32>,
    removed: BTreeSet<ObjectId>,
    /// Objects that were removed at any time.
    ever_removed: BTreeSet<ObjectId>,
    measurement_time: Instant,
    /// How far what a seat showed was from the server's, over the last window before it is measured: D, the time, and the distance, last.
    discrepancies: BTreeMap<(usize, ObjectId), (f64, Instant, f64)>,
    violations: Vec<String>,
    frames: u64,
    commands: u64,
    trace_hash: u64,
}

/// The server among the ends.
const SERVER_INDEX: usize = usize::MAX;

impl MotionChecker {
    pub(super) fn new(scenario: &MotionScenario) -> Self {
        let config = scenario.plan.config;
        // By half of a round trip nobody knows better than delays vary.
        let guessed = TimeDelta::from_millis(20) + scenario.max_jitter() * 2;
        Self {
            config,
            max_timer_error: if config.method == SyncMethod::Paper { guessed } else { MAX_TIMER_ERROR },
            last_seen: BTreeMap::new(),
            last_commands: BTreeMap::new(),
            owners: BTreeMap::new(),
            server_decisions: BTreeMap::new(),
            transfer_epochs: BTreeMap::new(),
            removed: BTreeSet::new(),
            ever_removed: BTreeSet::new(),
            measurement_time: scenario.measurement_time(),
            discrepancies: BTreeMap::new(),
            violations: Vec::new(),
            frames: 0,
            commands: 0,
            trace_hash: scenario.seed,
        }
    }

    fn report_violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MAX_REPORTS_PER_PROPERTY {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    /// Who commands an object.
    pub(super) fn owner(&self, object: ObjectId) -> Endpoint {
        let at_first = if object.0 >= 1_000 { Endpoint::Server } else { Endpoint::Seat(object.0 as usize - 1) };
        self.owners.get(&object).copied().unwrap_or(at_first)
    }

    /// Its owner is about to command an object. Whether it is there to be commanded.
    pub(super) fn on_command(&mut self, court: &mut MotionNetwork, object: ObjectId, vector: MilliVec2) -> bool {
        let by = self.owner(object);
        self.process_events(court, by);
        if court.object_moment(by, object).is_none() {
            return false;
        }
        self.commands += 1;
        let at = court.local_time(by);
        let is_combined = |before: &&mut LastCommand| {
            by != Endpoint::Server
                && before.issuer == by
                && (TimeDelta::ZERO..self.config.combine_interval).contains(&(at - before.given_at))
        };
        if let Some(before) = self.last_commands.get_mut(&object).filter(is_combined) {
            before.vector = LINEAR_MOTION.combine(&before.vector, &vector);
        } else {
            self.last_commands.insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: by });
        }
        true
    }

    /// What an end did before a crash may be forgotten with it.
    pub(super) fn on_crash(&mut self, court: &mut MotionNetwork, end: Endpoint) {
        self.process_events(court, end);
        match end {
            Endpoint::Server => {
                let own = self.last_commands.values_mut().filter(|commanded| commanded.issuer == Endpoint::Server);
                own.for_each(|commanded| commanded.is_binding = false);
                self.last_seen.retain(|(of, _), _| *of != SERVER_INDEX);
            }
            Endpoint::Seat(seat) => {
                // Nothing is combined with what was given before.
                self.last_commands.retain(|_, commanded| commanded.issuer != end);
                self.last_seen.retain(|(of, _), _| *of != seat);
            }
        }
    }

    /// The server has decided something about an object that a client commands: its owner may hear of it, and only of that.
    pub(super) fn on_server_decision(&mut self, court: &MotionNetwork, object: ObjectId) {
        let does = court.server().and_then(|server| server.vector(object)).copied();
        if let (Some(vector), Some(moment)) = (does, court.object_moment(Endpoint::Server, object)) {
            self.server_decisions.entry((object, moment.number.epoch)).or_default().push(vector);
        }
    }

    /// Another client commands an object from now on: what the one before has under way does not count.
    pub(super) fn on_transfer(&mut self, court: &mut MotionNetwork, object: ObjectId, to: usize) {
        let before = self.owners.insert(object, Endpoint::Seat(to));
        let before = before.unwrap_or(Endpoint::Seat(object.0 as usize - 1));
        if before == Endpoint::Seat(to) {
            return;
        }
        if let Endpoint::Seat(seat) = before {
            court.subscribe(seat, object, false);
        }
        court.subscribe(to, object, true);
        self.transfer_epochs
            .extend(court.object_moment(Endpoint::Server, object).map(|moment| (object, moment.number.epoch)));
        self.record_server_command(court, object);
    }

    fn record_server_command(&mut self, court: &MotionNetwork, object: ObjectId) {
        if let Some(vector) = court.server().and_then(|server| server.vector(object)).copied() {
            let at = court.local_time(Endpoint::Server);
            self.last_commands
                .insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: Endpoint::Server });
        }
    }

    pub(super) fn on_removed(&mut self, object: ObjectId) {
        self.removed.insert(object);
        self.ever_removed.insert(object);
        // What its owner commands counts for it until it hears of that.
        self.last_commands.retain(|of, commanded| *of != object || commanded.issuer != Endpoint::Server);
    }

    /// There is another object that is called the same.
    pub(super) fn on_respawned(&mut self, court: &MotionNetwork, object: ObjectId) {
        self.removed.remove(&object);
        self.last_seen.remove(&(SERVER_INDEX, object));
        self.on_server_decision(court, object);
        if self.owner(object) == Endpoint::Server {
            self.record_server_command(court, object);
        }
    }

    pub(super) fn is_removed(&self, object: ObjectId) -> bool {
        self.removed.contains(&object)
    }

    /// Goes on until then, and looks at every frame of everybody.
    pub(super) fn run_until(&mut self, court: &mut MotionNetwork, until: Instant) {
        court.run_observed(until, |court, end, when| match when {
            ChangeCause::Frame => self.on_frame(court, end),
            ChangeCause::Arrival => self.on_arrival(court, end),
        });
    }

    /// Takes in what happened at an end since it was last looked at.
    fn process_events(&mut self, court: &mut MotionNetwork, end: Endpoint) {
        let Endpoint::Seat(seat) = end else { return };
        for event in court.take_events(end) {
            match event {
                MotionClientEvent::Appeared(object) => {
                    self.last_seen.remove(&(seat, object));
                    let does = court.client(seat).and_then(|client| client.vector(object));
                    let own = self.last_commands.get(&object).filter(|commanded| commanded.issuer == end);
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
    fn on_overruled(&mut self, court: &MotionNetwork, seat: usize, object: ObjectId) {
        let end = Endpoint::Seat(seat);
        let does = court.client(seat).and_then(|client| client.vector(object)).copied();
        let (Some(vector), Some(moment)) = (does, court.object_moment(end, object)) else { return };
        let decided = self.server_decisions.get(&(object, moment.number.epoch));
        let is_of_before = self.transfer_epochs.get(&object).is_some_and(|given| moment.number.epoch < *given);
        if !is_of_before && !decided.is_some_and(|vectors| vectors.contains(&vector)) {
            self.report_violation("overruled", || format!("seat {seat} lost commands of {object:?} for {vector:?}"));
        }
        if self.owner(object) == end {
            // Nothing is combined with it.
            let at = court.local_time(end) - self.config.combine_interval;
            self.last_commands.insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: end });
        }
    }

    /// A client was told that there is no such object. If there is one again, it wants to see that.
    fn on_gone(&mut self, court: &mut MotionNetwork, seat: usize, object: ObjectId) {
        if !self.ever_removed.contains(&object) {
            self.report_violation("gone", || format!("seat {seat} was told that {object:?} is no more"));
        }
        self.last_seen.remove(&(seat, object));
        self.last_commands.retain(|of, commanded| *of != object || commanded.issuer != Endpoint::Seat(seat));
        if !self.is_removed(object) {
            court.subscribe(seat, object, self.owner(object) == Endpoint::Seat(seat));
        }
    }

    /// Looks at a client after every datagram, too. Between two frames it may be put right more than once, each time by more than is
    /// corrected gradually, and from frames alone that cannot be told from a jump: two such corrections may end near where they began.
    fn on_arrival(&mut self, court: &mut MotionNetwork, end: Endpoint) {
        let Endpoint::Seat(seat) = end else { return };
        self.process_events(court, end);
        let objects: Vec<ObjectId> = court.client(seat).map_or(Vec::new(), |client| client.objects().collect());
        objects.into_iter().for_each(|object| _ = self.check_moment(court, (end, seat), object));
    }

    fn on_frame(&mut self, court: &mut MotionNetwork, end: Endpoint) {
        self.frames += 1;
        self.process_events(court, end);
        let number = if let Endpoint::Seat(seat) = end { seat } else { SERVER_INDEX };
        let (objects, memory): (Vec<ObjectId>, usize) = match end {
            Endpoint::Server => {
                court.server().map_or((Vec::new(), 0), |server| (server.objects().collect(), server.memory()))
            }
            Endpoint::Seat(seat) => {
                court.client(seat).map_or((Vec::new(), 0), |client| (client.objects().collect(), client.memory()))
            }
        };
        if memory > MAX_MEMORY {
            self.report_violation("memory", || format!("{end:?} takes {memory} bytes"));
        }
        for object in objects {
            if let Some(moment) = self.check_moment(court, (end, number), object) {
                self.accumulate_discrepancy(court, end, object, &moment);
            }
        }
    }

    /// Compares an object at an end with how it was there when it was last looked at.
    fn check_moment(
        &mut self,
        court: &MotionNetwork,
        (end, number): (Endpoint, usize),
        object: ObjectId,
    ) -> Option<ObjectMoment<MilliVec2>> {
        let (local, moment) = (court.local_time(end), court.object_moment(end, object)?);
        if let Some((at, before)) = self.last_seen.insert((number, object), (local, moment)) {
            self.check_step(end, object, (at, &before), (local, &moment));
        }
        Some(moment)
    }

    /// Nobody goes back, slower or faster than agreed on, and nothing is seen to jump.
    fn check_step(
        &mut self,
        end: Endpoint,
        object: ObjectId,
        (then, before): (Instant, &ObjectMoment<MilliVec2>),
        (now, moment): (Instant, &ObjectMoment<MilliVec2>),
    ) {
        let (by, pace) = (now - then, self.config.timer_rate);
        if moment.number == before.number {
            let step = moment.timer.value() - before.timer.value();
            let is_leap = step >= self.config.snap_threshold;
            let (least, most) =
                (by.scale(pace.slowest) - ROUNDING_TOLERANCE, by.scale(pace.fastest) + ROUNDING_TOLERANCE);
            if step < least || (step > most && !is_leap) {
                self.report_violation("pace", || format!("{end:?}: {object:?} goes on by {step:?} in {by:?}"));
            }
        }
        let Some(glide) = self.config.correction_speed.filter(|_| end != Endpoint::Server) else { return };
        let fastest = f64::from(LINEAR_MOTION.max_speed) / 1e3;
        let most = (fastest * pace.fastest + glide) * by.as_secs_f64() + 0.01;
        let seen = LINEAR_MOTION.distance(&before.displayed, &moment.displayed);
        // An object beyond the leap distance is corrected at once.
        let far = glide * self.config.snap_threshold.as_secs_f64();
        let is_leap = seen > far - most || LINEAR_MOTION.distance(&before.displayed, &before.state) > far;
        if seen > most && !is_leap {
            self.report_violation("seen", || {
                format!(
                    "{end:?}: {object:?} is seen to go {seen} units in {by:?} {then:?} {before:?} {now:?} {moment:?}"
                )
            });
        }
    }

    /// Adds up D in the window before it is measured.
    fn accumulate_discrepancy(
        &mut self,
        court: &MotionNetwork,
        end: Endpoint,
        object: ObjectId,
        moment: &ObjectMoment<MilliVec2>,
    ) {
        let Endpoint::Seat(seat) = end else { return };
        if court.now() < self.measurement_time - self.config.averaging_window {
            return;
        }
        let Some(server) = court.object_moment(Endpoint::Server, object) else { return };
        let apart = LINEAR_MOTION.distance(&moment.displayed, &server.state);
        let (area, at, before) = self.discrepancies.get(&(seat, object)).copied().unwrap_or((0.0, court.now(), apart));
        let area = area + (apart + before) / 2.0 * (court.now() - at).as_secs_f64();
        self.discrepancies.insert((seat, object), (area, court.now(), apart));
    }

    /// What clients say of their discrepancies is what they were.
    pub(super) fn check_discrepancies(&mut self, court: &MotionNetwork) {
        let near = self.max_timer_error.as_secs_f64() * f64::from(LINEAR_MOTION.max_speed) / 1e3;
        for ((seat, object), (area, ..)) in std::mem::take(&mut self.discrepancies) {
            let told = court.client(seat).and_then(|client| client.consistency(object));
            let Some(told) = told else { continue };
            // Timers that are within what is called near may be so all the time; and what happens between frames nobody sees.
            let most = area * 0.15 + near * self.config.averaging_window.as_secs_f64() / 2.0 + 0.05;
            // Where so many commands were given that not all are remembered, less is known than there was.
            let is_all = told.duration > self.config.averaging_window.scale(0.9);
            if told.discrepancy - area > most || (is_all && area - told.discrepancy > most) {
                self.report_violation("discrepancy", || {
                    format!("seat {seat} says {:.3} of {object:?}, and it was {area:.3}", told.discrepancy)
                });
            }
        }
    }

    /// Nothing was commanded for a while, and nothing was lost: everybody is where the server is, which does what was commanded last.
    pub(super) fn check_convergence(&mut self, court: &MotionNetwork, scenario: &MotionScenario, is_end: bool) {
        for (object, _) in scenario.objects() {
            self.check_last_command(court, object, is_end);
            for seat in 0..court.seats() {
                self.check_client(court, seat, object);
            }
        }
        let refused = court.server().map_or(0, coplay::motion::MotionServer::malformed)
            + (0..court.seats())
                .filter_map(|seat| court.client(seat))
                .map(coplay::motion::MotionClient::malformed)
                .sum::<u64>();
        if refused > court.forged_number_count() {
            self.report_violation("refused", || format!("{refused} datagrams were not understood"));
        }
    }

    fn check_last_command(&mut self, court: &MotionNetwork, object: ObjectId, is_end: bool) {
        let Some(commanded) = self.last_commands.get(&object).copied() else { return };
        let does = court.server().and_then(|server| server.vector(object)).copied();
        if (commanded.is_binding || is_end) && does != Some(commanded.vector) {
            self.report_violation("last", || {
                format!("{object:?} was commanded {:?} and does {does:?}", commanded.vector)
            });
        }
    }

    fn check_client(&mut self, court: &MotionNetwork, seat: usize, object: ObjectId) {
        let (there, here) =
            (court.object_moment(Endpoint::Server, object), court.object_moment(Endpoint::Seat(seat), object));
        let (Some(there), Some(here)) = (there, here) else {
            if there.is_some() {
                self.report_violation("heard", || format!("seat {seat} has not heard of {object:?}"));
            } else if here.is_some() {
                self.report_violation("gone", || format!("seat {seat} shows {object:?}, which is no more"));
            }
            return;
        };
        self.trace_hash = mix_hash(self.trace_hash, here.state.x as u64);
        if here.number != there.number {
            self.report_violation("heard", || {
                format!("seat {seat} knows {:?} of {object:?}, there is {:?}", here.number, there.number)
            });
            return;
        }
        let off = (here.timer.value() - there.timer.value()).abs();
        if off > self.max_timer_error {
            self.report_violation("timers", || format!("seat {seat}: the timer of {object:?} is off by {off:?}"));
            return;
        }
        let near = off.as_secs_f64() * f64::from(LINEAR_MOTION.max_speed) / 1e3 + 0.05;
        let apart = [here.state, here.displayed].map(|place| LINEAR_MOTION.distance(&place, &there.state));
        if apart.iter().any(|apart| *apart > near) {
            self.report_violation("way", || format!("seat {seat}: {object:?} is {apart:?} from where it should be"));
        }
    }

    pub(super) fn into_result(self, scenario: &MotionScenario, court: &MotionNetwork) -> ScenarioResult {
        let traffic = court.traffic();
        let count =
            |kind: fn(&MotionFault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        ScenarioResult {
            violations: self.violations,
            frames: self.frames,
            packets: traffic.sent,
            lost_datagrams: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, MotionFault::Cut(_))),
            crashes: count(|fault| matches!(fault, MotionFault::Crash(_))),
            virtual_seconds: (court.now() - Instant::ZERO).as_secs_f64(),
            activity_count: self.commands,
            features: scenario.features(),
            trace_hash: mix_hash(self.trace_hash, traffic.bytes),
            ..ScenarioResult::default()
        }
    }
}
