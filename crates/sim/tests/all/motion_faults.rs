//! Random motion scenarios with faults keep every property, and every sabotage is detected.

use std::collections::BTreeMap;

use coplay_sim::motion::{MotionSabotage, MotionScenario};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --motion --seed";

/// Between two frames a client corrects an object twice, by more than the limit of gradual correction and back. The
/// displayed position does not jump.
#[test]
fn two_corrections_between_frames_are_not_reported_as_a_jump() {
    let seed = 7_504_122;
    let outcome = MotionScenario::new(seed).run();
    assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
}

/// The server restarts and transfers an object to a client. The first command that the client receives from it has the
/// same number as the last one of the previous incarnation, and a timer 2 s behind.
#[test]
fn first_command_after_a_server_restart_is_not_reported_as_a_timer_that_goes_back() {
    let seed = 101_000_724;
    let outcome = MotionScenario::new(seed).run();
    assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
}

#[test]
fn motion_scenarios_have_no_violations() {
    let mut commands = 0;
    for seed in 0..150 {
        let outcome = MotionScenario::new(seed).run();
        assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
        commands += outcome.activity_count;
    }
    assert!(commands > 5_000, "only {commands} commands: too few to prove anything");
}

/// Runs the first 16 seeds with `sabotage`. Returns the property that is most often the first one violated; `None` if
/// no seed has a violation.
fn most_violated_property(sabotage: MotionSabotage) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..16 {
        let outcome = MotionScenario { sabotage: Some(sabotage), ..MotionScenario::new(seed) }.run();
        if let Some(violation) = outcome.violations.first() {
            *counts.entry(violation.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(property, _)| property)
}

#[test]
fn every_motion_sabotage_is_detected() {
    for (sabotage, property) in [
        (MotionSabotage::DropCommandsToClient, "knowledge"),
        (MotionSabotage::DropCommandsToServer, "last command"),
        (MotionSabotage::WrongClockStamps, "timers"),
        (MotionSabotage::LongerSegments, "trajectory"),
        (MotionSabotage::WrongTurnTimes, "discrepancy"),
        (MotionSabotage::FastClock, "pace"),
        (MotionSabotage::DropSubscriptions, "knowledge"),
        (MotionSabotage::DropNewEpochs, "knowledge"),
        (MotionSabotage::DropRemovals, "existence"),
        (MotionSabotage::ForgeCommands, "ownership"),
    ] {
        assert_eq!(most_violated_property(sabotage).as_deref(), Some(property), "{sabotage:?}");
    }
}

#[test]
fn motion_seed_gives_the_same_trace_every_time() {
    for seed in 0..6 {
        let traces = [0, 1].map(|_| MotionScenario::new(seed).run().trace_hash);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], MotionScenario::new(seed + 1).run().trace_hash, "seeds {seed} and {}", seed + 1);
    }
}
