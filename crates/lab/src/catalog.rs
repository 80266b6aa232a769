//! All experiments there are.

use crate::experiment::{Experiment, Paper};
use crate::{g, k, l, p, z};

/// Sharing games that were made for one computer.
pub static ZHAO: Paper = Paper {
    letter: "Z",
    authors: "Zhao, Li, Gu, Shao, Gu (2009)",
    title: "An Approach to Sharing Legacy TV/Arcade Games for Real-Time Collaboration",
};

/// Losses that cost no packets.
pub static KIM: Paper = Paper {
    letter: "K",
    authors: "Kim, Park (2005)",
    title: "A History Retransmission Algorithm for Online Arcade Video Games",
};

/// Worlds without a server.
pub static GAUTIER: Paper = Paper {
    letter: "G",
    authors: "Gautier, Diot, Kurose (1999)",
    title: "End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on the Internet",
};

/// Servers that mirror each other.
pub static PALAZZI: Paper = Paper {
    letter: "P",
    authors: "Palazzi, Ferretti, Cacciaguerra, Roccetti (2005)",
    title: "On Maintaining Interactivity in Event Delivery Synchronization for Mirrored Game Architectures",
};

/// Worlds with a server.
pub static LI: Paper = Paper {
    letter: "L",
    authors: "Li, Li, Lau (2004)",
    title: "Supporting Continuous Consistency in Multiplayer Online Games",
};

/// All of them, in the order of the report.
pub static ALL: [&Experiment; 24] = [
    &z::pacing::EXPERIMENT,
    &z::players::EXPERIMENT,
    &z::loss::EXPERIMENT,
    &z::spectators::EXPERIMENT,
    &z::latecomers::EXPERIMENT,
    &k::buffer::EXPERIMENT,
    &k::packets::EXPERIMENT,
    &k::resync::EXPERIMENT,
    &k::step::EXPERIMENT,
    &k::overrun::EXPERIMENT,
    &k::policies::EXPERIMENT,
    &g::moments::EXPERIMENT,
    &g::rate::EXPERIMENT,
    &g::reckonable::EXPERIMENT,
    &g::thinning::EXPERIMENT,
    &g::bursts::EXPERIMENT,
    &g::quiet::EXPERIMENT,
    &g::regions::EXPERIMENT,
    &l::timers::EXPERIMENT,
    &l::share::EXPERIMENT,
    &p::threshold::EXPERIMENT,
    &p::delays::EXPERIMENT,
    &p::drops::EXPERIMENT,
    &p::choices::EXPERIMENT,
];

/// The experiment of this name.
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
            assert!(experiment.seconds > 0.0 && !experiment.shows.is_empty());
        }
        assert!(find("nothing").is_none());
    }
}
