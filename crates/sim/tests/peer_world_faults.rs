//! Random mazes with faults keep every promise; what is broken on purpose is found out; and who is far away costs nothing.

use std::collections::BTreeSet;

use coplay::peer_world::UpdatePolicy;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;
use coplay_sim::clock::NodeClock;
use coplay_sim::link::LinkConfig;
use coplay_sim::peer_world::{
    FEATURES, PeerWorldFault, PeerWorldNetwork, PeerWorldScenario, PeerWorldSitePlan, Sabotage,
};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --maze --seed";

#[test]
fn peer_world_scenarios_have_no_violations() {
    let mut hits = 0;
    for seed in 0..150 {
        let played = PeerWorldScenario::new(seed).run();
        assert!(played.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", played.violations);
        hits += played.activity_count;
    }
    assert!(hits > 1_000, "only {hits} hits: too few to prove anything");
}

/// The promises that are broken in the first seeds by something broken, the first of each seed only.
fn violated_properties(sabotage: Sabotage) -> BTreeSet<String> {
    let play = |seed: u64| PeerWorldScenario { sabotage: Some(sabotage), ..PeerWorldScenario::new(seed) }.run();
    let first = |seed: u64| play(seed).violations.into_iter().next();
    (0..12).filter_map(first).map(|violation| violation.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// What is broken by something broken in the first scenarios of two sites, where there is nobody to compare a view with but its owner.
fn violations_between_two_sites(sabotage: Sabotage, among: impl Fn(&PeerWorldScenario) -> bool) -> Vec<Vec<String>> {
    let pairs =
        (0..400).map(PeerWorldScenario::new).filter(|scenario| scenario.site_plans.len() == 2 && among(scenario));
    pairs.take(4).map(|scenario| PeerWorldScenario { sabotage: Some(sabotage), ..scenario }.run().violations).collect()
}

#[test]
fn every_peer_world_sabotage_is_detected() {
    for (sabotage, promise) in [
        (Sabotage::ShiftUpdateTicks, "told"),
        (Sabotage::DropRecords, "scores"),
        (Sabotage::WrongClockStamps, "clock"),
        (Sabotage::ShowUndelivered, "give up"),
    ] {
        assert_eq!(violated_properties(sabotage), BTreeSet::from([promise.to_owned()]), "{sabotage:?}");
    }
    let is_broken = |violations: &[String], promise: &str| violations.iter().any(|told| told.starts_with(promise));
    let shifted = violations_between_two_sites(Sabotage::ShiftUpdateTicks, |scenario| scenario.faults.is_empty());
    assert!(shifted.iter().all(|violations| is_broken(violations, "told")), "{shifted:#?}");
    assert!(shifted.iter().any(|violations| is_broken(violations, "reckoning")), "{shifted:#?}");
    // Who leaves says everything first; what nobody knows of it then is lost for no good reason.
    let kind = |scenario: &PeerWorldScenario, name: &str| {
        FEATURES.iter().position(|kind| *kind == name).is_some_and(|at| scenario.features()[at])
    };
    let lost = violations_between_two_sites(Sabotage::DropFinalRecords, |scenario| {
        kind(scenario, "leave") && !kind(scenario, "crash")
    });
    assert!(lost.iter().any(|violations| is_broken(violations, "once")), "{lost:#?}");
}

/// Three sites, of which the first two are cut off from the third. The first leaves, and only the second hears its last words.
fn final_records_behind_a_partition(seed: u64, then: Option<PeerWorldFault>) -> PeerWorldScenario {
    let at = |millis: i64| Instant::ZERO + TimeDelta::from_millis(millis);
    let mut faults = vec![
        (at(4_000), PeerWorldFault::Split(2)),
        (at(7_000), PeerWorldFault::Leave(0)),
        (at(8_000), PeerWorldFault::Heal),
    ];
    faults.splice(2..2, then.map(|fault| (at(7_500), fault)));
    let plan = PeerWorldSitePlan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(25), ninjas: 3 };
    let terms = MazeSettings { cells_per_side: 4, ..PeerWorldScenario::new(seed).terms };
    PeerWorldScenario {
        terms,
        site_plans: vec![plan; 3],
        link: LinkConfig::lan(),
        faults,
        late_joiners: 0,
        ..PeerWorldScenario::new(seed)
    }
}

#[test]
fn records_known_only_to_a_crashed_site_may_be_lost() {
    for seed in 0..8 {
        let violations = final_records_behind_a_partition(seed, Some(PeerWorldFault::Crash(1))).run().violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        let violations = final_records_behind_a_partition(seed, None).run().violations;
        assert!(violations.is_empty(), "seed {seed}, where the second site stays: {violations:#?}");
    }
}

#[test]
fn peer_world_seed_gives_the_same_trace_every_time() {
    for seed in 0..6 {
        let traces = [0, 1].map(|_| PeerWorldScenario::new(seed).run().trace_hash);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], PeerWorldScenario::new(seed + 1).run().trace_hash, "seeds {seed} and {}", seed + 1);
    }
}

/// Updates in a second.
const UPDATES_PER_SECOND: u32 = 10;

/// Datagrams and bytes that come to each site in a second.
fn traffic_per_site(sites: usize, side: u8) -> (f64, f64) {
    let plan =
        PeerWorldSitePlan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(UPDATES_PER_SECOND), ninjas: 1 };
    let terms = MazeSettings { cells_per_side: side, ..MazeSettings::default() };
    let mut arena = PeerWorldNetwork::new(7, terms, &vec![plan; sites], &LinkConfig::lan());
    (0..sites).for_each(|place| arena.join(place));
    let (warm, end) = (Instant::ZERO + TimeDelta::from_secs(3), Instant::ZERO + TimeDelta::from_secs(6));
    arena.run_until(warm, |_, _| ());
    let before = arena.traffic();
    arena.run_until(end, |_, _| ());
    let after = arena.traffic();
    let per_site = |count: u64| count as f64 / sites as f64 / (end - warm).as_secs_f64();
    (per_site(after.sent - before.sent), per_site(after.bytes - before.bytes))
}

/// As many avatars in the same space: what a site hears of is its neighbourhood, however large the world is.
#[test]
fn traffic_per_site_depends_on_neighbours_not_world_size() {
    let (few, few_bytes) = traffic_per_site(16, 17);
    let (many, many_bytes) = traffic_per_site(100, 43);
    println!("16 sites: {few:.0} datagrams, {few_bytes:.0} bytes a second; 100 sites: {many:.0}, {many_bytes:.0}");
    assert!(many < few * 2.0 && many_bytes < few_bytes * 2.5);
    let everybody = 99.0 * f64::from(UPDATES_PER_SECOND);
    assert!(many < everybody / 4.0);
}
