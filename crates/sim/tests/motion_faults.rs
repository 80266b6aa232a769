//! Random courts with faults keep every promise, and what is broken on purpose is found out.

use std::collections::BTreeMap;

use coplay_sim::motion::{MotionScenario, Sabotage};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --motion --seed";

/// Between two frames a client is put right twice, by more than is corrected gradually, and back: it is not seen to go far.
#[test]
fn two_corrections_between_frames_are_not_reported_as_a_jump() {
    let seed = 7_504_122;
    let played = MotionScenario::new(seed).run();
    assert!(played.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", played.violations);
}

#[test]
fn motion_scenarios_have_no_violations() {
    let mut commands = 0;
    for seed in 0..150 {
        let played = MotionScenario::new(seed).run();
        assert!(played.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", played.violations);
        commands += played.activity_count;
    }
    assert!(commands > 5_000, "only {commands} commands: too few to prove anything");
}

/// The promise that something broken breaks first in most of the first seeds in which it breaks any.
fn most_violated_property(sabotage: Sabotage) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..16 {
        let played = MotionScenario { sabotage: Some(sabotage), ..MotionScenario::new(seed) }.run();
        if let Some(violation) = played.violations.first() {
            *counts.entry(violation.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(promise, _)| promise)
}

#[test]
fn every_motion_sabotage_is_detected() {
    for (sabotage, promise) in [
        (Sabotage::DropCommandsToClient, "heard"),
        (Sabotage::DropCommandsToServer, "last"),
        (Sabotage::WrongClockStamps, "timers"),
        (Sabotage::LongerSegments, "way"),
        (Sabotage::WrongTurnTimes, "discrepancy"),
        (Sabotage::FastClock, "pace"),
        (Sabotage::DropSubscriptions, "heard"),
        (Sabotage::DropNewEpochs, "heard"),
        (Sabotage::DropRemovals, "gone"),
        (Sabotage::ForgeCommands, "overruled"),
    ] {
        assert_eq!(most_violated_property(sabotage).as_deref(), Some(promise), "{sabotage:?}");
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
