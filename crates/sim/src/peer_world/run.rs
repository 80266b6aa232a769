//! Runs a scenario of a serverless maze: injects its faults and passes each view to the checker.

use coplay::time::Instant;
use coplay_links::link::{LinkConfig, Loss};

use super::PeerWorldNetwork;
use super::checker::PeerWorldChecker;
use super::scenario::{FAULTS_END, PeerWorldFault, PeerWorldScenario, RECOVERY_TIME, SETTLING_TIME};
use crate::scenario_result::ScenarioResult;

impl PeerWorldScenario {
    /// Runs the scenario, and checks the views, the clocks and the scores of its sites.
    pub fn run(&self) -> ScenarioResult {
        let mut network = PeerWorldNetwork::new(self.seed, self.terms, &self.site_plans, &self.link);
        let mut checker = PeerWorldChecker::new(self);
        network.keep_deliveries();
        network.set_sabotage(self.sabotage);
        for node in 0..self.site_plans.len() - self.late_joiners {
            network.join(node);
        }
        for (at, fault) in &self.faults {
            network.run_until(*at, |network, node| checker.on_view(network, node));
            Self::apply_fault(&mut network, fault, &mut checker);
        }
        let calm = Instant::ZERO + FAULTS_END;
        network.run_until(calm, |network, node| checker.on_view(network, node));
        network.end_impairments(|link| LinkConfig { loss: Loss::None, duplicate: 0.0, rate: None, ..link });
        network.run_until(calm + RECOVERY_TIME, |network, node| checker.on_view(network, node));
        checker.on_recovered(&mut network);
        for node in network.active_nodes() {
            network.game_mut(node).into_iter().for_each(coplay_maze::MazeSite::release_controls);
        }
        network.run_until(calm + RECOVERY_TIME + SETTLING_TIME, |network, node| checker.on_view(network, node));
        checker.on_end(&mut network);
        checker.into_result(self, &network)
    }

    fn apply_fault(network: &mut PeerWorldNetwork, fault: &PeerWorldFault, checker: &mut PeerWorldChecker) {
        match *fault {
            PeerWorldFault::Start(node) if network.game(node).is_none() => {
                checker.on_join(node);
                network.join(node);
            }
            PeerWorldFault::Crash(node) => {
                checker.on_departure(network, node);
                network.stop(node);
            }
            PeerWorldFault::Leave(node) => {
                checker.on_departure(network, node);
                network.leave(node);
            }
            _ => _ = network.apply(fault, &mut ()),
        }
    }
}
