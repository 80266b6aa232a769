//! The list of all experiments and their papers.

use crate::experiment::{Experiment, PaperInfo};
use crate::{gautier, kim, li, palazzi, zhao};

/// Paper on sharing single-computer games in lockstep.
pub static ZHAO: PaperInfo = PaperInfo {
    letter: "Z",
    authors: "Zhao, Li, Gu, Shao, Gu (2009)",
    title: "An Approach to Sharing Legacy TV/Arcade Games for Real-Time Collaboration",
};

/// Paper on recovering lost inputs by history retransmission, without extra packets.
pub static KIM: PaperInfo = PaperInfo {
    letter: "K",
    authors: "Kim, Park (2005)",
    title: "A History Retransmission Algorithm for Online Arcade Video Games",
};

/// Paper on worlds without a server, with dead reckoning.
pub static GAUTIER: PaperInfo = PaperInfo {
    letter: "G",
    authors: "Gautier, Diot, Kurose (1999)",
    title: "End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on the Internet",
};

/// Paper on mirrored game servers that drop obsolete events.
pub static PALAZZI: PaperInfo = PaperInfo {
    letter: "P",
    authors: "Palazzi, Ferretti, Cacciaguerra, Roccetti (2005)",
    title: "On Maintaining Interactivity in Event Delivery Synchronization for Mirrored Game Architectures",
};

/// Paper on continuous consistency in worlds with a server.
pub static LI: PaperInfo = PaperInfo {
    letter: "L",
    authors: "Li, Li, Lau (2004)",
    title: "Supporting Continuous Consistency in Multiplayer Online Games",
};

/// All experiments, in report order.
pub static ALL: [&Experiment; 24] = [
    &zhao::pacing::EXPERIMENT,
    &zhao::players::EXPERIMENT,
    &zhao::loss::EXPERIMENT,
    &zhao::spectators::EXPERIMENT,
    &zhao::late_joiners::EXPERIMENT,
    &kim::buffer::EXPERIMENT,
    &kim::packets::EXPERIMENT,
    &kim::resync::EXPERIMENT,
    &kim::delay_step::EXPERIMENT,
    &kim::buffer_overrun::EXPERIMENT,
    &kim::recovery_policies::EXPERIMENT,
    &gautier::drift_over_time::EXPERIMENT,
    &gautier::update_rate::EXPERIMENT,
    &gautier::reckonable::EXPERIMENT,
    &gautier::thinned_replay::EXPERIMENT,
    &gautier::bursts::EXPERIMENT,
    &gautier::send_policies::EXPERIMENT,
    &gautier::regions::EXPERIMENT,
    &li::timers::EXPERIMENT,
    &li::compensation_split::EXPERIMENT,
    &palazzi::threshold::EXPERIMENT,
    &palazzi::delays::EXPERIMENT,
    &palazzi::drops::EXPERIMENT,
    &palazzi::policy_measures::EXPERIMENT,
];

/// Returns the experiment named `name`; `None` if no experiment has this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_found_by_its_own_name() {
        for experiment in ALL {
            assert!(find(experiment.name).is_some_and(|found| std::ptr::eq(found, experiment)), "{}", experiment.name);
            assert!(experiment.expected_seconds > 0.0 && !experiment.summary.is_empty());
        }
        assert!(find("nothing").is_none());
    }
}
