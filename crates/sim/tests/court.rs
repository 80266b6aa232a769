//! Random courts with faults keep every promise, and what is broken on purpose is found out.

use std::collections::BTreeSet;

use coplay_sim::court::{Sabotage, Scenario};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --motion --seed";

#[test]
fn the_first_seeds_keep_every_promise() {
    let mut commands = 0;
    for seed in 0..150 {
        let played = Scenario::new(seed).play();
        assert!(played.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", played.violations);
        commands += played.seen;
    }
    assert!(commands > 5_000, "only {commands} commands: too few to prove anything");
}

/// The promises that are broken in the first seeds by something broken, the first of each seed only.
fn broken_promises(sabotage: Sabotage) -> BTreeSet<String> {
    let play = |seed: u64| Scenario { sabotage: Some(sabotage), ..Scenario::new(seed) }.play();
    let first = |seed: u64| play(seed).violations.into_iter().next();
    (0..12).filter_map(first).map(|violation| violation.split(':').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn what_is_broken_is_seen() {
    for (sabotage, promise) in [
        (Sabotage::Deaf, "heard"),
        (Sabotage::Mute, "last"),
        (Sabotage::Stamps, "timers"),
        (Sabotage::Legs, "way"),
        (Sabotage::Since, "discrepancy"),
        (Sabotage::Hurry, "pace"),
    ] {
        assert_eq!(broken_promises(sabotage), BTreeSet::from([promise.to_owned()]), "{sabotage:?}");
    }
}

#[test]
fn a_seed_gives_the_same_trace_every_time() {
    for seed in 0..6 {
        let traces = [0, 1].map(|_| Scenario::new(seed).play().trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], Scenario::new(seed + 1).play().trace, "seeds {seed} and {}", seed + 1);
    }
}
