//! Runs a scenario of mirrored servers: injects its faults and passes what the servers do to the checker.

use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{LinkConfig, Loss};

use super::MirrorNetwork;
use super::checker::MirrorChecker;
use super::scenario::{FAULTS_END_MS, ISSUING_BEGIN, LAST_ISSUER_TIME, MirrorFault, MirrorScenario, RECOVERY_TIME};
use crate::scenario_result::ScenarioResult;

impl MirrorScenario {
    /// Runs the scenario, and checks the deliveries and the states of its servers.
    pub fn run(&self) -> ScenarioResult {
        let mut network = MirrorNetwork::new(self.seed, &self.server_plans, |_, _| self.link.clone());
        let mut checker = MirrorChecker::new(self);
        network.set_sabotage(self.sabotage);
        (0..self.server_plans.len() - self.late_joiners).for_each(|node| network.start_server(node));
        network.run_until(Instant::ZERO + ISSUING_BEGIN, |node, observation| checker.on_observation(node, observation));
        (0..self.server_plans.len() - self.late_joiners).for_each(|node| network.start_issuing(node));
        for (at, fault) in &self.faults {
            network.run_until(*at, |node, observation| checker.on_observation(node, observation));
            checker.check_all_drops(&network);
            Self::apply_fault(&mut network, fault, &mut checker);
        }
        let calm = Instant::ZERO + TimeDelta::from_millis(FAULTS_END_MS);
        network.run_until(calm, |node, observation| checker.on_observation(node, observation));
        checker.check_memory(&network);
        self.end_impairments(&mut network);
        network.run_until(calm + LAST_ISSUER_TIME, |node, observation| checker.on_observation(node, observation));
        self.last_issuer.into_iter().for_each(|node| network.stop_issuing(node));
        network.run_until(calm + RECOVERY_TIME, |node, observation| checker.on_observation(node, observation));
        checker.check_memory(&network);
        checker.on_end(&network);
        checker.into_result(self, &network)
    }

    fn apply_fault(network: &mut MirrorNetwork, fault: &MirrorFault, checker: &mut MirrorChecker) {
        match *fault {
            MirrorFault::Start(node) if network.server(node).is_none() => {
                checker.on_start(node);
                network.start_server(node);
                network.start_issuing(node);
            }
            MirrorFault::Crash(node) => {
                checker.on_stop(network, node);
                network.stop(node);
            }
            MirrorFault::Leave(node) => {
                checker.on_stop(network, node);
                network.leave(node);
            }
            _ => _ = network.apply(fault, &mut |_, _| ()),
        }
    }

    /// Ends loss, duplicates, cuts and all issuing except that of the last issuer.
    fn end_impairments(&self, network: &mut MirrorNetwork) {
        network.end_impairments(|link| LinkConfig { loss: Loss::None, duplicate: 0.0, ..link });
        (0..self.server_plans.len())
            .filter(|node| Some(*node) != self.last_issuer)
            .for_each(|node| network.stop_issuing(node));
    }
}
