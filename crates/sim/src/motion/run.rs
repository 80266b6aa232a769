//! Runs a scenario of moving objects: gives random commands, injects the faults, and passes each change to the checker.

use coplay::motion::{ClientId, MilliVec2, ObjectId};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{LinkConfig, Loss};
use coplay_links::random::Random;

use super::checker::MotionChecker;
use super::scenario::{
    FAULTS_BEGIN, FAULTS_END, LAST_COMMANDS_AT, MotionDecision, MotionFault, MotionScenario, RECOVERY_END, SCENARIO_END,
};
use super::{MotionEndpoint, MotionNetwork, avatar_of};
use crate::scenario_result::ScenarioResult;

impl MotionScenario {
    /// Runs the scenario, and checks the timers and positions at all endpoints.
    pub fn run(&self) -> ScenarioResult {
        let mut network = MotionNetwork::new(self.seed, &self.plan);
        let mut checker = MotionChecker::new(self);
        network.set_sabotage(self.sabotage);
        self.start_endpoint(&mut network, MotionEndpoint::Server, &checker);
        (0..self.plan.clients.len())
            .for_each(|seat| self.start_endpoint(&mut network, MotionEndpoint::Seat(seat), &checker));
        let mut script = CommandScript::new(self);
        for (at, fault) in &self.faults {
            script.run(&mut network, *at, &mut checker);
            self.apply_fault(&mut network, fault, &mut checker);
        }
        script.run(&mut network, self.time_of(FAULTS_END), &mut checker);
        network.end_impairments(|link| LinkConfig { loss: Loss::None, duplicate: 0.0, ..link });
        checker.run_until(&mut network, self.time_of(RECOVERY_END));
        checker.check_convergence(&network, self, false);
        script.run(&mut network, self.time_of(LAST_COMMANDS_AT), &mut checker);
        checker.run_until(&mut network, self.measurement_time());
        checker.check_discrepancies(&network);
        checker.run_until(&mut network, self.time_of(SCENARIO_END));
        checker.check_convergence(&network, self, true);
        checker.into_result(self, &network)
    }

    fn apply_fault(&self, network: &mut MotionNetwork, fault: &MotionFault, checker: &mut MotionChecker) {
        match *fault {
            MotionFault::Crash(node) => {
                checker.on_crash(network, MotionEndpoint::of_node(node));
                network.stop(MotionEndpoint::of_node(node));
            }
            MotionFault::Start(node) => self.start_endpoint(network, MotionEndpoint::of_node(node), checker),
            MotionFault::Engine(MotionDecision::ForgeNumber(seat)) => network.forge_next_number(seat),
            MotionFault::Engine(decision) => self.apply_decision(network, decision, checker),
            _ => _ = network.apply(fault, &mut ()),
        }
    }

    fn apply_decision(&self, network: &mut MotionNetwork, decision: MotionDecision, checker: &mut MotionChecker) {
        match decision {
            MotionDecision::Remove => {
                let Some((object, _)) = self.objects().find(|(_, by)| *by == MotionEndpoint::Server) else { return };
                network.server_mut().into_iter().for_each(|server| server.remove(object));
                checker.on_removed(object);
            }
            // The remaining decisions need a running server.
            _ if network.server().is_none() => {}
            MotionDecision::Vanish(object) if !checker.is_removed(object) => {
                network.server_mut().into_iter().for_each(|server| server.remove(object));
                checker.on_removed(object);
            }
            MotionDecision::Respawn(object) if checker.is_removed(object) => self.respawn(network, object, checker),
            MotionDecision::Place(seat) | MotionDecision::Command(seat) | MotionDecision::Give(seat, _) => {
                let object = avatar_of(seat);
                if !checker.is_removed(object) {
                    self.decide_about_avatar(network, decision, object, checker);
                }
            }
            MotionDecision::Vanish(_) | MotionDecision::Respawn(_) | MotionDecision::ForgeNumber(_) => {}
        }
    }

    /// Applies a decision of the server about an object that a client owned at first.
    fn decide_about_avatar(
        &self,
        network: &mut MotionNetwork,
        decision: MotionDecision,
        object: ObjectId,
        checker: &mut MotionChecker,
    ) {
        let local = network.local_time(MotionEndpoint::Server);
        let Some(server) = network.server_mut() else { return };
        match decision {
            MotionDecision::Command(_) => server.command(local, object, MilliVec2 { x: -1_500, y: 2_500 }),
            MotionDecision::Give(_, to) => {
                server.transfer_ownership(object, Some(MotionNetwork::client_id(to)));
                checker.on_transfer(network, object, to);
            }
            _ => server.place(local, object, MilliVec2::from_units(100, 100), MilliVec2::default()),
        }
        checker.on_server_decision(network, object);
        network.transmit(MotionEndpoint::Server.into(), &mut ());
    }

    fn respawn(&self, network: &mut MotionNetwork, object: ObjectId, checker: &mut MotionChecker) {
        let (local, owner) = (network.local_time(MotionEndpoint::Server), checker.owner(object));
        let Some(server) = network.server_mut() else { return };
        server.spawn(
            local,
            object,
            owner_client(owner),
            MilliVec2::from_units(-50, object.0 as i64),
            MilliVec2 { x: 700, y: 100 },
        );
        checker.on_respawned(network, object);
        for seat in 0..network.seats() {
            network.subscribe(seat, object, owner == MotionEndpoint::Seat(seat));
        }
    }

    fn start_endpoint(&self, network: &mut MotionNetwork, end: MotionEndpoint, checker: &MotionChecker) {
        let local = network.local_time(end);
        let objects = self.objects().map(|(object, _)| object).filter(|object| !checker.is_removed(*object));
        match end {
            MotionEndpoint::Server => {
                // A restarted server has its objects elsewhere than its clients saw them last.
                let later = network.run_count().into();
                let server = network.start_server();
                for object in objects {
                    let (position, vector) =
                        (MilliVec2::from_units(object.0 as i64, later), MilliVec2 { x: 500, y: -250 });
                    server.spawn(local, object, owner_client(checker.owner(object)), position, vector);
                }
            }
            MotionEndpoint::Seat(seat) => {
                network.start_client(seat);
                objects.for_each(|object| network.subscribe(seat, object, checker.owner(object) == end));
            }
        }
    }
}

/// Source of random commands: times, objects and vectors.
struct CommandScript {
    random: Random,
    mean_interval: TimeDelta,
    next_commands: Vec<(Instant, ObjectId)>,
}

impl CommandScript {
    fn new(scenario: &MotionScenario) -> Self {
        let random = Random::stream(scenario.seed, "commands");
        let mut script = Self { random, mean_interval: scenario.mean_command_interval, next_commands: Vec::new() };
        for (object, _) in scenario.objects() {
            let at = script.next_time(Instant::ZERO + FAULTS_BEGIN / 2);
            script.next_commands.push((at, object));
        }
        script
    }

    fn next_time(&mut self, at: Instant) -> Instant {
        at + TimeDelta::from_nanos(self.random.exponential(self.mean_interval.as_nanos() as f64) as i64 + 1)
    }

    /// Runs the network up to the true time `until`, and gives commands meanwhile. The first command of each object
    /// comes in the first half of that time.
    fn run(&mut self, network: &mut MotionNetwork, until: Instant, checker: &mut MotionChecker) {
        let (begin, middle) = (network.now(), network.now() + (until - network.now()) / 2);
        for (at, _) in &mut self.next_commands {
            *at = (*at).min(middle).max(begin);
        }
        while let Some(first) = (0..self.next_commands.len()).min_by_key(|index| self.next_commands[*index].0) {
            let (at, object) = self.next_commands[first];
            if at >= until {
                break;
            }
            self.next_commands[first].0 = self.next_time(at.max(network.now()));
            checker.run_until(network, at);
            let vector = MilliVec2 { x: self.random.range(-7_000..=7_000), y: self.random.range(-7_000..=7_000) };
            if checker.on_command(network, object, vector) {
                network.command(checker.owner(object), object, vector);
            }
        }
        checker.run_until(network, until);
    }
}

/// Returns the id by which the server knows an owner; `None` if the owner is the server itself.
fn owner_client(owner: MotionEndpoint) -> Option<ClientId> {
    match owner {
        MotionEndpoint::Server => None,
        MotionEndpoint::Seat(seat) => Some(MotionNetwork::client_id(seat)),
    }
}
