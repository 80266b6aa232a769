//! Random peer-world scenarios with faults keep every property, and every sabotage is detected. The traffic of a site
//! depends on its neighbourhood, not on the size of the world.

use std::collections::BTreeSet;

use coplay::peer_world::UpdatePolicy;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;
use coplay_maze::MazeSettings;
use coplay_sim::clock::NodeClock;
use coplay_sim::peer_world::{
    PeerWorldFault, PeerWorldNetwork, PeerWorldSabotage, PeerWorldScenario, PeerWorldSitePlan,
};

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --maze --seed";

#[test]
fn peer_world_scenarios_have_no_violations() {
    let mut hits = 0;
    for seed in 0..150 {
        let outcome = PeerWorldScenario::new(seed).run();
        assert!(outcome.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", outcome.violations);
        hits += outcome.activity_count;
    }
    assert!(hits > 1_000, "only {hits} hits: too few to prove anything");
}

/// Returns the properties that `sabotage` violates in the first 12 seeds, counting only the first violation of each
/// seed.
fn violated_properties(sabotage: PeerWorldSabotage) -> BTreeSet<String> {
    let play = |seed: u64| PeerWorldScenario { sabotage: Some(sabotage), ..PeerWorldScenario::new(seed) }.run();
    let first = |seed: u64| play(seed).violations.into_iter().next();
    (0..12).filter_map(first).map(|violation| violation.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// Returns the violations that `sabotage` causes in the first four scenarios with two sites that `among` accepts. With
/// two sites, a state can be compared only with that of the avatar's owner, not with that of a third site.
fn violations_between_two_sites(
    sabotage: PeerWorldSabotage,
    among: impl Fn(&PeerWorldScenario) -> bool,
) -> Vec<Vec<String>> {
    let pairs =
        (0..400).map(PeerWorldScenario::new).filter(|scenario| scenario.site_plans.len() == 2 && among(scenario));
    pairs.take(4).map(|scenario| PeerWorldScenario { sabotage: Some(sabotage), ..scenario }.run().violations).collect()
}

#[test]
fn every_peer_world_sabotage_is_detected() {
    for (sabotage, property) in [
        (PeerWorldSabotage::ShiftUpdateTicks, "display"),
        (PeerWorldSabotage::DropRecords, "scores"),
        (PeerWorldSabotage::WrongClockStamps, "clock"),
        (PeerWorldSabotage::ShowUndelivered, "expiry"),
    ] {
        assert_eq!(violated_properties(sabotage), BTreeSet::from([property.to_owned()]), "{sabotage:?}");
    }
    let is_violated =
        |violations: &[String], property: &str| violations.iter().any(|violation| violation.starts_with(property));
    let shifted =
        violations_between_two_sites(PeerWorldSabotage::ShiftUpdateTicks, |scenario| scenario.faults.is_empty());
    assert!(shifted.iter().all(|violations| is_violated(violations, "display")), "{shifted:#?}");
    assert!(shifted.iter().any(|violations| is_violated(violations, "reckoning")), "{shifted:#?}");
    // A leaving site sends all its records first, so records that no other site knows were lost without an excuse.
    let has_feature = |scenario: &PeerWorldScenario, name: &'static str| scenario.features().contains(&(name, true));
    let lost = violations_between_two_sites(PeerWorldSabotage::DropFinalRecords, |scenario| {
        has_feature(scenario, "leave") && !has_feature(scenario, "crash")
    });
    assert!(lost.iter().any(|violations| is_violated(violations, "exactly once")), "{lost:#?}");
}

/// Returns a scenario of three sites in which the first two are cut off from the third. The first leaves, and only the
/// second receives its final records. The fault `then`, if any, follows 0.5 s later, before the partition heals.
fn final_records_behind_a_partition(seed: u64, then: Option<PeerWorldFault>) -> PeerWorldScenario {
    let at = |millis: i64| Instant::ZERO + TimeDelta::from_millis(millis);
    let mut faults = vec![
        (at(4_000), PeerWorldFault::Split(2)),
        (at(7_000), PeerWorldFault::Leave(0)),
        (at(8_000), PeerWorldFault::HealAll),
    ];
    faults.splice(2..2, then.map(|fault| (at(7_500), fault)));
    let plan = PeerWorldSitePlan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(25), ninjas: 3 };
    let settings = MazeSettings { cells_per_side: 4, ..PeerWorldScenario::new(seed).terms };
    PeerWorldScenario {
        terms: settings,
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

/// Updates per second that each site sends of its avatar.
const UPDATES_PER_SECOND: u32 = 10;

/// Returns the datagrams and the bytes per second and site, in a maze with `side` cells per side.
fn traffic_per_site(sites: usize, side: u8) -> (f64, f64) {
    let plan =
        PeerWorldSitePlan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(UPDATES_PER_SECOND), ninjas: 1 };
    let settings = MazeSettings { cells_per_side: side, ..MazeSettings::default() };
    let mut network = PeerWorldNetwork::new(7, settings, &vec![plan; sites], &LinkConfig::lan());
    (0..sites).for_each(|site| network.join(site));
    let (warm, end) = (Instant::ZERO + TimeDelta::from_secs(3), Instant::ZERO + TimeDelta::from_secs(6));
    network.run_until(warm, |_, _| ());
    let before = network.traffic();
    network.run_until(end, |_, _| ());
    let after = network.traffic();
    let per_site = |count: u64| count as f64 / sites as f64 / (end - warm).as_secs_f64();
    (per_site(after.sent - before.sent), per_site(after.bytes - before.bytes))
}

/// At about equal avatar density, the traffic of a site among 100 is less than twice (datagrams) or 2.5 times (bytes)
/// that of a site among 16, and less than a quarter of what sending all updates to all sites takes.
#[test]
fn traffic_per_site_depends_on_neighbours_not_world_size() {
    let (few, few_bytes) = traffic_per_site(16, 17);
    let (many, many_bytes) = traffic_per_site(100, 43);
    println!("16 sites: {few:.0} datagrams, {few_bytes:.0} bytes per second; 100 sites: {many:.0}, {many_bytes:.0}");
    assert!(many < few * 2.0 && many_bytes < few_bytes * 2.5);
    let all_updates = 99.0 * f64::from(UPDATES_PER_SECOND);
    assert!(many < all_updates / 4.0);
}
