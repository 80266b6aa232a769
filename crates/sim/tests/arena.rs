//! Random mazes with faults keep every promise; what is broken on purpose is found out; and who is far away costs nothing.

use std::collections::BTreeSet;

use coplay::peer_world::UpdatePolicy;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;
use coplay_sim::arena::{Arena, Fault, KINDS, Plan, Sabotage, Scenario};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::LinkConfig;

const REPLAY: &str = "cargo run --release -p coplay-sim --bin swarm -- --maze --seed";

#[test]
fn the_first_seeds_keep_every_promise() {
    let mut hits = 0;
    for seed in 0..150 {
        let played = Scenario::new(seed).play();
        assert!(played.violations.is_empty(), "{:#?}\nreplay: {REPLAY} {seed}", played.violations);
        hits += played.seen;
    }
    assert!(hits > 1_000, "only {hits} hits: too few to prove anything");
}

/// The promises that are broken in the first seeds by something broken, the first of each seed only.
fn broken_promises(sabotage: Sabotage) -> BTreeSet<String> {
    let play = |seed: u64| Scenario { sabotage: Some(sabotage), ..Scenario::new(seed) }.play();
    let first = |seed: u64| play(seed).violations.into_iter().next();
    (0..12).filter_map(first).map(|violation| violation.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// What is broken by something broken in the first scenarios of two sites, where there is nobody to compare a view with but its owner.
fn broken_between_two(sabotage: Sabotage, among: impl Fn(&Scenario) -> bool) -> Vec<Vec<String>> {
    let pairs = (0..400).map(Scenario::new).filter(|scenario| scenario.plans.len() == 2 && among(scenario));
    pairs.take(4).map(|scenario| Scenario { sabotage: Some(sabotage), ..scenario }.play().violations).collect()
}

#[test]
fn what_is_broken_is_seen() {
    for (sabotage, promise) in [
        (Sabotage::Shift, "told"),
        (Sabotage::Deaf, "scores"),
        (Sabotage::Stamps, "clock"),
        (Sabotage::Ghosts, "give up"),
    ] {
        assert_eq!(broken_promises(sabotage), BTreeSet::from([promise.to_owned()]), "{sabotage:?}");
    }
    let is_broken = |violations: &[String], promise: &str| violations.iter().any(|told| told.starts_with(promise));
    let shifted = broken_between_two(Sabotage::Shift, |scenario| scenario.faults.is_empty());
    assert!(shifted.iter().all(|violations| is_broken(violations, "told")), "{shifted:#?}");
    assert!(shifted.iter().any(|violations| is_broken(violations, "reckoning")), "{shifted:#?}");
    // Who leaves says everything first; what nobody knows of it then is lost for no good reason.
    let kind = |scenario: &Scenario, name: &str| {
        KINDS.iter().position(|kind| *kind == name).is_some_and(|at| scenario.kinds()[at])
    };
    let lost = broken_between_two(Sabotage::Wordless, |scenario| kind(scenario, "leave") && !kind(scenario, "crash"));
    assert!(lost.iter().any(|violations| is_broken(violations, "once")), "{lost:#?}");
}

/// Three sites, of which the first two are cut off from the third. The first leaves, and only the second hears its last words.
fn last_words_behind_a_cut(seed: u64, then: Option<Fault>) -> Scenario {
    let at = |millis: i64| Instant::ZERO + TimeDelta::from_millis(millis);
    let mut faults = vec![(at(4_000), Fault::Split(2)), (at(7_000), Fault::Leave(0)), (at(8_000), Fault::Heal)];
    faults.splice(2..2, then.map(|fault| (at(7_500), fault)));
    let plan = Plan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(25), ninjas: 3 };
    let terms = MazeSettings { cells_per_side: 4, ..Scenario::new(seed).terms };
    Scenario { terms, plans: vec![plan; 3], link: LinkConfig::lan(), faults, late: 0, ..Scenario::new(seed) }
}

#[test]
fn nobody_need_know_what_only_a_site_knew_that_crashed() {
    for seed in 0..8 {
        let violations = last_words_behind_a_cut(seed, Some(Fault::Crash(1))).play().violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        let violations = last_words_behind_a_cut(seed, None).play().violations;
        assert!(violations.is_empty(), "seed {seed}, where the second site stays: {violations:#?}");
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

/// Updates in a second.
const RATE: u32 = 10;

/// Datagrams and bytes that come to each site in a second.
fn cost_per_site(sites: usize, side: u8) -> (f64, f64) {
    let plan = Plan { clock: NodeClock::TRUE, sending: UpdatePolicy::fixed(RATE), ninjas: 1 };
    let terms = MazeSettings { cells_per_side: side, ..MazeSettings::default() };
    let mut arena = Arena::new(7, terms, &vec![plan; sites], &LinkConfig::lan());
    (0..sites).for_each(|place| arena.enter(place));
    let (warm, end) = (Instant::ZERO + TimeDelta::from_secs(3), Instant::ZERO + TimeDelta::from_secs(6));
    arena.run(warm, |_, _| ());
    let before = arena.traffic();
    arena.run(end, |_, _| ());
    let after = arena.traffic();
    let per_site = |count: u64| count as f64 / sites as f64 / (end - warm).as_secs_f64();
    (per_site(after.sent - before.sent), per_site(after.bytes - before.bytes))
}

/// As many avatars in the same space: what a site hears of is its neighbourhood, however large the world is.
#[test]
fn a_site_pays_for_its_neighbourhood_and_not_for_the_world() {
    let (few, few_bytes) = cost_per_site(16, 17);
    let (many, many_bytes) = cost_per_site(100, 43);
    println!("16 sites: {few:.0} datagrams, {few_bytes:.0} bytes a second; 100 sites: {many:.0}, {many_bytes:.0}");
    assert!(many < few * 2.0 && many_bytes < few_bytes * 2.5);
    let everybody = 99.0 * f64::from(RATE);
    assert!(many < everybody / 4.0);
}
