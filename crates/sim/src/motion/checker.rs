//! Checks of a server of moving objects, based on the displayed state of each endpoint and on the commands given.
//!
//! - *pace*: timers run within the configured rates, except for snaps, and never backwards.
//! - *speed*: displayed objects move no faster than the maximum speed and the correction speed together allow, except
//!   for snaps.
//! - *ownership*: an owner loses its commands only to a decision of the server or, after a transfer, to commands of the
//!   previous owner.
//! - *knowledge*, *existence*: after recovery, every client knows the newest command of every object, and no removed
//!   object.
//! - *last command*: the server executes the last command given.
//! - *timers*, *trajectory*: after recovery, each client's timers and positions are near the server's.
//! - *discrepancy*: the discrepancies that clients report are the true ones.
//! - *refused*: no more datagrams are malformed than were forged.
//! - *memory*: no endpoint exceeds [`MAX_MEMORY`].

use std::collections::{BTreeMap, BTreeSet};

use coplay::motion::{MilliVec2, MotionClientEvent, MotionPredictor, ObjectId, ObjectMoment, SyncMethod};
use coplay::time::{Instant, TimeDelta};

use super::{ChangeCause, LINEAR_MOTION, MotionEndpoint, MotionNetwork, MotionScenario};
use crate::scenario_result::ScenarioResult;
use crate::toy_machine::mix_hash;
use crate::violations::Violations;

/// Largest allowed difference between a client's and the server's timer with [`SyncMethod::Clocks`].
const MAX_TIMER_ERROR: TimeDelta = TimeDelta::from_millis(10);
/// Largest allowed memory of an endpoint, in bytes.
const MAX_MEMORY: usize = 1 << 20;
/// Tolerance for the rounding of timers between two samples.
const ROUNDING_TOLERANCE: TimeDelta = TimeDelta::from_micros(2);

/// Last command of an object, or a decision of the server about it.
#[derive(Clone, Copy, Debug)]
struct LastCommand {
    /// Time of the first of the combined commands, on the clock of the issuer.
    given_at: Instant,
    vector: MilliVec2,
    /// Whether no crash of the server since the command could have undone it.
    is_binding: bool,
    /// Endpoint that gave the command. A decision of the server that the owner has not received is lost if the server
    /// crashes.
    issuer: MotionEndpoint,
}

/// A moment of an object at an endpoint.
#[derive(Clone, Copy, Debug)]
struct SeenMoment {
    /// Local time of the endpoint.
    at: Instant,
    /// Incarnation of the server that the command number is from.
    server_run: u32,
    moment: ObjectMoment<MilliVec2>,
}

impl SeenMoment {
    /// Returns whether both moments are on the same segment. Command numbers are valid only within one incarnation of
    /// the server: a restarted server may give another segment the same number, with an earlier timer.
    fn is_on_segment_of(&self, other: &Self) -> bool {
        (self.server_run, self.moment.number) == (other.server_run, other.moment.number)
    }
}

/// Observations of one scenario, and the violations found in them.
pub(super) struct MotionChecker {
    config: coplay::motion::MotionConfig,
    max_timer_error: TimeDelta,
    /// Last moment of each object at each endpoint.
    last_seen: BTreeMap<(usize, ObjectId), SeenMoment>,
    /// Number of server restarts that each client has noticed.
    server_restarts: BTreeMap<usize, u32>,
    /// Incarnation of the server, counted in restarts, that each client's command number of an object is from. A client
    /// that notices a restart shows the earlier numbers until the server has sent the object.
    server_runs: BTreeMap<(usize, ObjectId), u32>,
    last_commands: BTreeMap<ObjectId, LastCommand>,
    /// Current owners of objects that were transferred.
    owners: BTreeMap<ObjectId, MotionEndpoint>,
    /// Vectors that the server decided for objects, by object and epoch.
    server_decisions: BTreeMap<(ObjectId, u32), Vec<MilliVec2>>,
    /// Epoch of each object's last ownership transfer. Until the new owner knows that epoch, it may receive commands of
    /// the previous owner.
    transfer_epochs: BTreeMap<ObjectId, u32>,
    removed: BTreeSet<ObjectId>,
    /// Objects that were ever removed, respawned or not.
    ever_removed: BTreeSet<ObjectId>,
    measurement_time: Instant,
    /// Discrepancy of each client and object in the averaging window before the measurement: area D, time and distance
    /// of the last sample.
    discrepancies: BTreeMap<(usize, ObjectId), (f64, Instant, f64)>,
    violations: Violations,
    frames: u64,
    commands: u64,
    trace_hash: u64,
}

/// Key of the server in `last_seen`, where clients have their seat numbers.
const SERVER_INDEX: usize = usize::MAX;

impl MotionChecker {
    pub(super) fn new(scenario: &MotionScenario) -> Self {
        let config = scenario.plan.config;
        // The paper's method estimates delays from round trips, so the error of its timers grows with the jitter.
        let paper_error = TimeDelta::from_millis(20) + scenario.max_jitter() * 2;
        Self {
            config,
            max_timer_error: if config.method == SyncMethod::Paper { paper_error } else { MAX_TIMER_ERROR },
            last_seen: BTreeMap::new(),
            server_restarts: BTreeMap::new(),
            server_runs: BTreeMap::new(),
            last_commands: BTreeMap::new(),
            owners: BTreeMap::new(),
            server_decisions: BTreeMap::new(),
            transfer_epochs: BTreeMap::new(),
            removed: BTreeSet::new(),
            ever_removed: BTreeSet::new(),
            measurement_time: scenario.measurement_time(),
            discrepancies: BTreeMap::new(),
            violations: Violations::default(),
            frames: 0,
            commands: 0,
            trace_hash: scenario.seed,
        }
    }

    /// Returns the current owner of an object. Ids from 1,000 on belong to the server at first, lower ones to a client.
    pub(super) fn owner(&self, object: ObjectId) -> MotionEndpoint {
        let initial =
            if object.0 >= 1_000 { MotionEndpoint::Server } else { MotionEndpoint::Seat(object.0 as usize - 1) };
        self.owners.get(&object).copied().unwrap_or(initial)
    }

    /// Records a command that the owner is about to give. Returns `false`, without a record, if the owner does not have
    /// the object.
    pub(super) fn on_command(&mut self, network: &mut MotionNetwork, object: ObjectId, vector: MilliVec2) -> bool {
        let owner = self.owner(object);
        self.process_events(network, owner);
        if network.object_moment(owner, object).is_none() {
            return false;
        }
        self.commands += 1;
        let at = network.local_time(owner);
        let is_combined = |before: &&mut LastCommand| {
            owner != MotionEndpoint::Server
                && before.issuer == owner
                && (TimeDelta::ZERO..self.config.combine_interval).contains(&(at - before.given_at))
        };
        if let Some(before) = self.last_commands.get_mut(&object).filter(is_combined) {
            before.vector = LINEAR_MOTION.combine(&before.vector, &vector);
        } else {
            self.last_commands.insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: owner });
        }
        true
    }

    /// Records that an endpoint is about to crash. Commands of the endpoint before the crash may be lost.
    pub(super) fn on_crash(&mut self, network: &mut MotionNetwork, end: MotionEndpoint) {
        self.process_events(network, end);
        match end {
            MotionEndpoint::Server => {
                let own = self.last_commands.values_mut().filter(|command| command.issuer == MotionEndpoint::Server);
                own.for_each(|command| command.is_binding = false);
                self.last_seen.retain(|(of, _), _| *of != SERVER_INDEX);
            }
            MotionEndpoint::Seat(seat) => {
                // Later commands are not combined with earlier ones.
                self.last_commands.retain(|_, command| command.issuer != end);
                self.last_seen.retain(|(of, _), _| *of != seat);
            }
        }
    }

    /// Records a decision of the server about an object. Only such a decision may overrule the owner's commands.
    pub(super) fn on_server_decision(&mut self, network: &MotionNetwork, object: ObjectId) {
        let vector = network.server().and_then(|server| server.vector(object)).copied();
        if let (Some(vector), Some(moment)) = (vector, network.object_moment(MotionEndpoint::Server, object)) {
            self.server_decisions.entry((object, moment.number.epoch)).or_default().push(vector);
        }
    }

    /// Records an ownership transfer to a client, and changes the subscriptions of both owners. Commands of the
    /// previous owner that are in flight do not count.
    pub(super) fn on_transfer(&mut self, network: &mut MotionNetwork, object: ObjectId, to: usize) {
        let before = self.owners.insert(object, MotionEndpoint::Seat(to));
        let before = before.unwrap_or(MotionEndpoint::Seat(object.0 as usize - 1));
        if before == MotionEndpoint::Seat(to) {
            return;
        }
        if let MotionEndpoint::Seat(seat) = before {
            network.subscribe(seat, object, false);
        }
        network.subscribe(to, object, true);
        self.transfer_epochs
            .extend(network.object_moment(MotionEndpoint::Server, object).map(|moment| (object, moment.number.epoch)));
        self.record_server_command(network, object);
    }

    fn record_server_command(&mut self, network: &MotionNetwork, object: ObjectId) {
        if let Some(vector) = network.server().and_then(|server| server.vector(object)).copied() {
            let at = network.local_time(MotionEndpoint::Server);
            self.last_commands
                .insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: MotionEndpoint::Server });
        }
    }

    pub(super) fn on_removed(&mut self, object: ObjectId) {
        self.removed.insert(object);
        self.ever_removed.insert(object);
        // The owner's command counts for it until it learns of the removal.
        self.last_commands.retain(|of, command| *of != object || command.issuer != MotionEndpoint::Server);
    }

    /// Records that a removed object was spawned again under the same id.
    pub(super) fn on_respawned(&mut self, network: &MotionNetwork, object: ObjectId) {
        self.removed.remove(&object);
        self.last_seen.remove(&(SERVER_INDEX, object));
        self.on_server_decision(network, object);
        if self.owner(object) == MotionEndpoint::Server {
            self.record_server_command(network, object);
        }
    }

    pub(super) fn is_removed(&self, object: ObjectId) -> bool {
        self.removed.contains(&object)
    }

    /// Runs the network up to the true time `until`, and checks every frame of every endpoint and every arrival at a
    /// client.
    pub(super) fn run_until(&mut self, network: &mut MotionNetwork, until: Instant) {
        network.run_observed(until, |network, end, cause| match cause {
            ChangeCause::Frame => self.on_frame(network, end),
            ChangeCause::Arrival => self.on_arrival(network, end),
        });
    }

    /// Processes the events of a client since the last call.
    fn process_events(&mut self, network: &mut MotionNetwork, end: MotionEndpoint) {
        let MotionEndpoint::Seat(seat) = end else { return };
        for event in network.take_events(end) {
            if let MotionClientEvent::Appeared(object) | MotionClientEvent::Overruled(object) = event {
                let server_run = self.server_restarts.get(&seat).copied().unwrap_or(0);
                self.server_runs.insert((seat, object), server_run);
            }
            match event {
                MotionClientEvent::Appeared(object) => {
                    self.last_seen.remove(&(seat, object));
                    let vector = network.client(seat).and_then(|client| client.vector(object));
                    let own = self.last_commands.get(&object).filter(|command| command.issuer == end);
                    if own.is_some_and(|command| vector != Some(&command.vector)) {
                        self.on_overruled(network, seat, object);
                    }
                }
                MotionClientEvent::Overruled(object) => self.on_overruled(network, seat, object),
                MotionClientEvent::Removed(object) => self.on_gone(network, seat, object),
                MotionClientEvent::ServerRestarted => *self.server_restarts.entry(seat).or_default() += 1,
            }
        }
    }

    /// Records that an owner's commands were overruled, and checks that the server decided so.
    fn on_overruled(&mut self, network: &MotionNetwork, seat: usize, object: ObjectId) {
        let end = MotionEndpoint::Seat(seat);
        let vector = network.client(seat).and_then(|client| client.vector(object)).copied();
        let (Some(vector), Some(moment)) = (vector, network.object_moment(end, object)) else { return };
        let decided = self.server_decisions.get(&(object, moment.number.epoch));
        let is_of_previous_owner = self.transfer_epochs.get(&object).is_some_and(|epoch| moment.number.epoch < *epoch);
        if !is_of_previous_owner && !decided.is_some_and(|vectors| vectors.contains(&vector)) {
            self.violations.report("ownership", || format!("client {seat}: undecided {vector:?} overruled {object:?}"));
        }
        if self.owner(object) == end {
            // Later commands are not combined with the decision.
            let at = network.local_time(end) - self.config.combine_interval;
            self.last_commands.insert(object, LastCommand { given_at: at, vector, is_binding: true, issuer: end });
        }
    }

    /// Records that a client learned of a removal, which must have happened. If the object was spawned again, the
    /// client subscribes to it.
    fn on_gone(&mut self, network: &mut MotionNetwork, seat: usize, object: ObjectId) {
        if !self.ever_removed.contains(&object) {
            self.violations.report("existence", || {
                format!("client {seat} was notified of a removal of {object:?} that never happened")
            });
        }
        self.last_seen.remove(&(seat, object));
        self.last_commands.retain(|of, command| *of != object || command.issuer != MotionEndpoint::Seat(seat));
        if !self.is_removed(object) {
            network.subscribe(seat, object, self.owner(object) == MotionEndpoint::Seat(seat));
        }
    }

    /// Checks the objects of a client after every datagram, in addition to every frame. Between two frames an object
    /// may be corrected more than once, each time beyond the snap threshold. Frames alone cannot distinguish that from
    /// a jump, because two such corrections may end near where they began.
    fn on_arrival(&mut self, network: &mut MotionNetwork, end: MotionEndpoint) {
        let MotionEndpoint::Seat(seat) = end else { return };
        self.process_events(network, end);
        let objects: Vec<ObjectId> = network.client(seat).map_or(Vec::new(), |client| client.objects().collect());
        objects.into_iter().for_each(|object| _ = self.check_moment(network, (end, seat), object));
    }

    fn on_frame(&mut self, network: &mut MotionNetwork, end: MotionEndpoint) {
        self.frames += 1;
        self.process_events(network, end);
        let number = if let MotionEndpoint::Seat(seat) = end { seat } else { SERVER_INDEX };
        let (objects, memory): (Vec<ObjectId>, usize) = match end {
            MotionEndpoint::Server => {
                network.server().map_or((Vec::new(), 0), |server| (server.objects().collect(), server.memory()))
            }
            MotionEndpoint::Seat(seat) => {
                network.client(seat).map_or((Vec::new(), 0), |client| (client.objects().collect(), client.memory()))
            }
        };
        if memory > MAX_MEMORY {
            self.violations.report("memory", || format!("{end:?} uses {memory} bytes"));
        }
        for object in objects {
            if let Some(moment) = self.check_moment(network, (end, number), object) {
                self.accumulate_discrepancy(network, end, object, &moment);
            }
        }
    }

    /// Checks an object at an endpoint against its last moment there. Returns the new moment; `None` if the endpoint
    /// does not have the object.
    fn check_moment(
        &mut self,
        network: &MotionNetwork,
        (end, number): (MotionEndpoint, usize),
        object: ObjectId,
    ) -> Option<ObjectMoment<MilliVec2>> {
        let (at, moment) = (network.local_time(end), network.object_moment(end, object)?);
        let server_run = self.server_runs.get(&(number, object)).copied().unwrap_or(0);
        let seen = SeenMoment { at, server_run, moment };
        if let Some(before) = self.last_seen.insert((number, object), seen) {
            self.check_step(end, object, &before, &seen);
        }
        Some(moment)
    }

    /// Checks that a timer keeps to the configured rates and that a displayed object does not jump.
    fn check_step(&mut self, end: MotionEndpoint, object: ObjectId, earlier: &SeenMoment, later: &SeenMoment) {
        let (SeenMoment { at: then, moment: before, .. }, SeenMoment { at: now, moment, .. }) = (earlier, later);
        let (by, timer_rate) = (*now - *then, self.config.timer_rate);
        if later.is_on_segment_of(earlier) {
            let step = moment.timer.value() - before.timer.value();
            let is_snap = step >= self.config.snap_threshold;
            let (least, most) =
                (by.scale(timer_rate.slowest) - ROUNDING_TOLERANCE, by.scale(timer_rate.fastest) + ROUNDING_TOLERANCE);
            if step < least || (step > most && !is_snap) {
                self.violations
                    .report("pace", || format!("{end:?}: the timer of {object:?} advances {step:?} in {by:?}"));
            }
        }
        let Some(correction_speed) = self.config.correction_speed.filter(|_| end != MotionEndpoint::Server) else {
            return;
        };
        let fastest = f64::from(LINEAR_MOTION.max_speed) / 1e3;
        let most = (fastest * timer_rate.fastest + correction_speed) * by.as_secs_f64() + 0.01;
        let seen = LINEAR_MOTION.distance(&before.displayed, &moment.displayed);
        // An object beyond the snap distance is corrected at once.
        let far = correction_speed * self.config.snap_threshold.as_secs_f64();
        let is_snap = seen > far - most || LINEAR_MOTION.distance(&before.displayed, &before.state) > far;
        if seen > most && !is_snap {
            self.violations.report("speed", || {
                format!("{end:?}: {object:?} moves {seen} units in {by:?} {then:?} {before:?} {now:?} {moment:?}")
            });
        }
    }

    /// Adds the distance between a client's object and the server's to the discrepancy D, in the averaging window
    /// before the measurement.
    fn accumulate_discrepancy(
        &mut self,
        network: &MotionNetwork,
        end: MotionEndpoint,
        object: ObjectId,
        moment: &ObjectMoment<MilliVec2>,
    ) {
        let MotionEndpoint::Seat(seat) = end else { return };
        if network.now() < self.measurement_time - self.config.averaging_window {
            return;
        }
        let Some(server) = network.object_moment(MotionEndpoint::Server, object) else { return };
        let apart = LINEAR_MOTION.distance(&moment.displayed, &server.state);
        let (area, at, before) =
            self.discrepancies.get(&(seat, object)).copied().unwrap_or((0.0, network.now(), apart));
        let area = area + (apart + before) / 2.0 * (network.now() - at).as_secs_f64();
        self.discrepancies.insert((seat, object), (area, network.now(), apart));
    }

    /// Checks that the discrepancies reported by the clients are the true ones, within a tolerance.
    pub(super) fn check_discrepancies(&mut self, network: &MotionNetwork) {
        let near = self.max_timer_error.as_secs_f64() * f64::from(LINEAR_MOTION.max_speed) / 1e3;
        for ((seat, object), (area, ..)) in std::mem::take(&mut self.discrepancies) {
            let reported = network.client(seat).and_then(|client| client.consistency(object));
            let Some(reported) = reported else { continue };
            // Timers may differ by the allowed error all the time, and changes between frames are not sampled.
            let most = area * 0.15 + near * self.config.averaging_window.as_secs_f64() / 2.0 + 0.05;
            // With more commands than a client remembers, it reports only a part of the window.
            let is_complete = reported.duration > self.config.averaging_window.scale(0.9);
            if reported.discrepancy - area > most || (is_complete && area - reported.discrepancy > most) {
                self.violations.report("discrepancy", || {
                    format!(
                        "client {seat} reports {:.3} for {object:?}, the true discrepancy is {area:.3}",
                        reported.discrepancy
                    )
                });
            }
        }
    }

    /// Checks, when no command was given and no datagram was lost for a while, that all clients agree with the server,
    /// that the server executes the last command, and that no datagrams were malformed except the forged ones. With
    /// `is_end`, a last command that a server crash could have undone counts as well.
    pub(super) fn check_convergence(&mut self, network: &MotionNetwork, scenario: &MotionScenario, is_end: bool) {
        for (object, _) in scenario.objects() {
            self.check_last_command(network, object, is_end);
            for seat in 0..network.seats() {
                self.check_client(network, seat, object);
            }
        }
        let refused = network.server().map_or(0, coplay::motion::MotionServer::malformed)
            + (0..network.seats())
                .filter_map(|seat| network.client(seat))
                .map(coplay::motion::MotionClient::malformed)
                .sum::<u64>();
        if refused > network.forged_number_count() {
            self.violations.report("refused", || format!("{refused} datagrams were malformed"));
        }
    }

    fn check_last_command(&mut self, network: &MotionNetwork, object: ObjectId, is_end: bool) {
        let Some(command) = self.last_commands.get(&object).copied() else { return };
        let vector = network.server().and_then(|server| server.vector(object)).copied();
        if (command.is_binding || is_end) && vector != Some(command.vector) {
            self.violations.report("last command", || {
                format!("{object:?} was commanded {:?}, but the server has {vector:?}", command.vector)
            });
        }
    }

    fn check_client(&mut self, network: &MotionNetwork, seat: usize, object: ObjectId) {
        let (server, client) = (
            network.object_moment(MotionEndpoint::Server, object),
            network.object_moment(MotionEndpoint::Seat(seat), object),
        );
        let (Some(server), Some(client)) = (server, client) else {
            if server.is_some() {
                self.violations.report("knowledge", || format!("client {seat} does not know {object:?}"));
            } else if client.is_some() {
                self.violations.report("existence", || format!("client {seat} shows {object:?}, which was removed"));
            }
            return;
        };
        self.trace_hash = mix_hash(self.trace_hash, client.state.x as u64);
        if client.number != server.number {
            self.violations.report("knowledge", || {
                format!("client {seat} has {:?} of {object:?}, the server has {:?}", client.number, server.number)
            });
            return;
        }
        let off = (client.timer.value() - server.timer.value()).abs();
        if off > self.max_timer_error {
            self.violations.report("timers", || format!("client {seat}: the timer of {object:?} is off by {off:?}"));
            return;
        }
        let near = off.as_secs_f64() * f64::from(LINEAR_MOTION.max_speed) / 1e3 + 0.05;
        let apart = [client.state, client.displayed].map(|state| LINEAR_MOTION.distance(&state, &server.state));
        if apart.iter().any(|apart| *apart > near) {
            self.violations
                .report("trajectory", || format!("client {seat}: {object:?} is {apart:?} units from the server's"));
        }
    }

    pub(super) fn into_result(self, scenario: &MotionScenario, network: &MotionNetwork) -> ScenarioResult {
        ScenarioResult {
            trace_hash: mix_hash(self.trace_hash, network.traffic().bytes),
            violations: self.violations.into_vec(),
            frames: self.frames,
            activity_count: self.commands,
            ..ScenarioResult::of_network(network, &scenario.faults, scenario.features())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MotionPlan, MotionSabotage, avatar_of};
    use super::*;
    use crate::clock::NodeClock;
    use coplay_links::link::{Delay, LinkConfig};

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    /// Starts a server that spawns the client's object and then places it at `x` units on the first axis. The placement
    /// has the same command number in every incarnation of the server.
    fn start_server(network: &mut MotionNetwork, checker: &mut MotionChecker, x: i64) {
        let (local, object) = (network.local_time(MotionEndpoint::Server), avatar_of(0));
        let server = network.start_server();
        server.spawn(local, object, Some(MotionNetwork::client_id(0)), MilliVec2::default(), MilliVec2::default());
        server.place(local, object, MilliVec2::from_units(x, 0), MilliVec2::from_units(1, 0));
        checker.on_server_decision(network, object);
    }

    /// Runs a client whose server restarts at 4 s, and returns the violations.
    fn violations_with_a_server_restart(sabotage: Option<MotionSabotage>) -> Vec<String> {
        let random = MotionScenario::new(0);
        let plan = MotionPlan {
            config: coplay::motion::MotionConfig::clocks(0),
            server: NodeClock::default(),
            clients: vec![NodeClock::default()],
            link: LinkConfig { delay: Delay::Constant(TimeDelta::from_millis(50)), ..LinkConfig::default() },
            ..random.plan.clone()
        };
        let scenario = MotionScenario { plan, server_object_count: 0, faults: Vec::new(), ..random };
        let (mut network, mut checker) = (MotionNetwork::new(0, &scenario.plan), MotionChecker::new(&scenario));
        network.set_sabotage(sabotage);
        start_server(&mut network, &mut checker, 0);
        network.start_client(0);
        network.subscribe(0, avatar_of(0), true);
        checker.run_until(&mut network, at(4_000));
        let moment = |network: &MotionNetwork| {
            network.object_moment(MotionEndpoint::Seat(0), avatar_of(0)).expect("the client has the object")
        };
        let before = moment(&network);
        checker.on_crash(&mut network, MotionEndpoint::Server);
        network.stop(MotionEndpoint::Server);
        start_server(&mut network, &mut checker, 3);
        checker.run_until(&mut network, at(5_500));
        let after = moment(&network);
        assert_eq!(before.number, after.number, "the segments must have the same number");
        assert!(before.timer.value() > after.timer.value() + TimeDelta::from_secs(2), "{before:?} {after:?}");
        checker.run_until(&mut network, at(8_000));
        checker.violations.into_vec()
    }

    #[test]
    fn segment_of_a_restarted_server_is_not_taken_for_an_earlier_one_with_the_same_number() {
        assert_eq!(violations_with_a_server_restart(None), Vec::<String>::new());
        let violations = violations_with_a_server_restart(Some(MotionSabotage::FastClock));
        let is_pace = |violation: &String| violation.starts_with("pace");
        assert!(violations.iter().any(is_pace), "timers must still be checked after a restart: {violations:?}");
    }
}
