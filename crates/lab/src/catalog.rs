//! The list of all experiments.

use crate::experiment::Experiment;
use crate::{gautier, kim, li, palazzi, zhao};

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
    &gautier::nearby_traffic::EXPERIMENT,
    &li::timers::EXPERIMENT,
    &li::compensation_split::EXPERIMENT,
    &palazzi::threshold::EXPERIMENT,
    &palazzi::delays::EXPERIMENT,
    &palazzi::drops::EXPERIMENT,
    &palazzi::gtd_measures::EXPERIMENT,
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
