//! Random scenarios of mirrored servers with faults keep every property, and every sabotage is detected.

use std::collections::BTreeSet;

use coplay_sim::mirror::{MirrorSabotage, MirrorScenario};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --mirror --seed";

#[test]
fn mirror_scenarios_have_no_violations() {
    let (mut dropped, mut installed) = (0, 0);
    for seed in 0..300 {
        let outcome = MirrorScenario::new(seed).run();
        assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
        dropped += outcome.activity_count;
        installed += outcome.recorded;
    }
    assert!(dropped > 10_000, "only {dropped} obsolete events were dropped: too few to prove anything");
    assert!(installed > 100, "only {installed} snapshots were installed: too few to prove anything");
}

/// In these seeds a source crashes, and one of its events is lost everywhere. Later events of that source are about
/// other objects, and some servers have received the events that replace them. All remaining servers agree on the state
/// of the source.
#[test]
fn remaining_servers_agree_on_the_state_of_a_crashed_source() {
    for seed in [1_429, 1_735, 1_899, 2_528, 3_644, 4_227, 4_379] {
        let outcome = MirrorScenario::new(seed).run();
        assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
    }
}

/// A restarted server downloads nine snapshots of 196 kB over links that reorder datagrams, with a round trip of 240 ms
/// and more.
#[test]
fn restarted_server_gets_long_snapshots_over_links_with_reordering() {
    let seed = 100_008_903;
    let outcome = MirrorScenario::new(seed).run();
    assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
}

/// Returns the properties that `sabotage` violates in the first 40 seeds, counting only the first violation of each
/// seed.
fn violated_properties(sabotage: MirrorSabotage) -> BTreeSet<String> {
    let play = |seed: u64| MirrorScenario { sabotage: Some(sabotage), ..MirrorScenario::new(seed) }.run();
    let first = |seed: u64| play(seed).violations.into_iter().next();
    (0..40).filter_map(first).map(|violation| violation.split(':').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_mirror_sabotage_is_detected() {
    for (sabotage, property) in [
        (MirrorSabotage::MarkAllReplacing, "state"),
        (MirrorSabotage::StripDependencies, "order"),
        (MirrorSabotage::DropRequests, "completeness"),
        (MirrorSabotage::CorruptSnapshot, "state"),
        (MirrorSabotage::ApplyTwice, "order"),
        (MirrorSabotage::SkipEvents, "state"),
        (MirrorSabotage::WrongGroupTime, "time"),
    ] {
        assert!(violated_properties(sabotage).contains(property), "{sabotage:?}");
    }
}

#[test]
fn mirror_seed_gives_the_same_trace_every_time() {
    for seed in 0..6 {
        let traces = [0, 1].map(|_| MirrorScenario::new(seed).run().trace_hash);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], MirrorScenario::new(seed + 1).run().trace_hash, "seeds {seed} and {}", seed + 1);
    }
}
