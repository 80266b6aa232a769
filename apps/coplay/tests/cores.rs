//! The program with libretro cores: checks, movies, options, and games that are shared or must not be.
#![cfg(target_os = "linux")]

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use common::{Outcome, TestDir};
use coplay_testcores::{CoreDefect, build_core};

const TENNIS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../games/tennis.nes");

fn verdict(outcome: &Outcome) -> &str {
    let found = outcome.out.split("\"kind\": \"").nth(1).and_then(|rest| rest.split('"').next());
    found.unwrap_or_else(|| panic!("no verdict in {outcome:?}"))
}

#[test]
fn check_reports_rollback_lockstep_or_unfit() {
    let place = TestDir::new("check");
    let own = place.run(&["check", "--frames", "60", "--json"]);
    assert_eq!((own.code, own.err.as_str()), (Some(0), ""), "{own:?}");
    assert!(own.out.starts_with('{') && own.out.ends_with("}\n") && own.out.contains("\"key\""), "{own:?}");
    // On a computer with much else to do repairs may take too long.
    assert!(["rollback", "lockstep"].contains(&verdict(&own)), "{own:?}");
    let clock = build_core(CoreDefect::Clock);
    let unfit = place.run(&["check", "--core", &clock.path_string(), "--frames", "60"]);
    assert_eq!(unfit.code, Some(1), "{unfit:?}");
    assert!(unfit.out.contains("unfit") && unfit.out.contains("from frame 0 on"), "{unfit:?}");
    assert!(unfit.err.starts_with("error: ") && unfit.err.contains("hint: "), "{unfit:?}");
    let forgets = build_core(CoreDefect::Forgets);
    let inexact = place.run(&["check", "--core", &forgets.path_string(), "--frames", "300", "--players", "1"]);
    assert!(inexact.code == Some(0) && inexact.out.contains("lockstep only"), "{inexact:?}");
    assert!(inexact.out.contains("1 player,"), "{inexact:?}");
}

#[test]
fn crashing_core_is_reported_unfit() {
    let (place, aborts) = (TestDir::new("aborts"), build_core(CoreDefect::Aborts));
    let told = place.run(&["check", "--core", &aborts.path_string(), "--json"]);
    assert_eq!((told.code, verdict(&told)), (Some(1), "unfit"), "{told:?}");
    assert!(told.out.contains("signal") && told.err.contains("cannot be shared"), "{told:?}");
}

#[test]
fn movie_replays_on_the_same_core_only() {
    let place = TestDir::new("core-movie");
    let record = ["--core", "nestopia", "--bot", "7", "--record", "game.cpm", "--headless", "--frames", "300"];
    let played = place.run(&[&["play", TENNIS], &record[..]].concat());
    assert_eq!(played.code, Some(0), "{played:?}");
    let replayed = place.run(&["replay", "game.cpm", TENNIS, "--core", "nestopia", "--headless"]);
    assert_eq!((replayed.code, replayed.row_value("state")), (Some(0), played.row_value("state")), "{replayed:?}");
    assert!(replayed.out.contains("all equal") && replayed.row_value("hashes") != "0", "{replayed:?}");
    // On another machine it is another movie, and says so.
    let other = place.run(&["replay", "game.cpm", TENNIS, "--headless"]);
    assert!(other.code == Some(1) && other.err.contains("made with another machine"), "{other:?}");
    let own = place.run(&["play", "--headless", "--frames", "10", "--record", "own.cpm"]);
    let other = place.run(&["replay", "own.cpm", TENNIS, "--core", "nestopia", "--headless"]);
    assert!(own.code == Some(0) && other.code == Some(1), "{own:?} {other:?}");
    assert!(other.err.contains("made with another machine"), "{other:?}");
}

#[test]
fn core_options_are_part_of_a_movie() {
    let (place, honest) = (TestDir::new("core-options"), build_core(CoreDefect::Honest));
    let core = honest.path_string();
    let play = |step: &str, movie: &str| {
        let option = format!("testcore_step={step}");
        let played = ["--bot", "7", "--record", movie, "--headless", "--frames", "200"];
        place.run(&[&["play", "--core", &core, "--option", &option], &played[..]].concat())
    };
    let (one, three) = (play("1", "one.cpm"), play("3", "three.cpm"));
    assert_eq!((one.code, three.code), (Some(0), Some(0)), "{one:?} {three:?}");
    assert_ne!(one.row_value("state"), three.row_value("state"));
    let replayed = place.run(&["replay", "three.cpm", "--core", &core, "--headless"]);
    assert_eq!((replayed.code, replayed.row_value("state")), (Some(0), three.row_value("state")), "{replayed:?}");
    let wrong = place.run(&["play", "--core", &core, "--option", "speed=3", "--headless"]);
    assert!(wrong.code == Some(1) && wrong.err.contains("no option \"speed\""), "{wrong:?}");
    assert!(wrong.err.contains("testcore_step"), "{wrong:?}");
}

#[test]
fn core_that_needs_a_game_is_explained() {
    let place = TestDir::new("core-game");
    let told = place.run(&["play", "--core", "mgba", "--headless"]);
    assert!(told.code == Some(1) && told.err.contains("runs only with a game"), "{told:?}");
    assert!(told.err.contains("hint: name the file of a game"), "{told:?}");
    let demo = place.run(&["demo", "--core", "nestopia", "--headless", "--frames", "200"]);
    assert_eq!((demo.code, demo.row_value("states equal")), (Some(0), "yes"), "{demo:?}");
}

#[test]
fn unfit_core_cannot_be_hosted() {
    let (place, clock) = (TestDir::new("core-unfit"), build_core(CoreDefect::Clock));
    let told = place.run(&["host", "--core", &clock.path_string(), "--headless", "--udp", "127.0.0.1:0"]);
    assert!(told.code == Some(1) && told.out.is_empty(), "{told:?}");
    assert!(told.err.contains("cannot be shared on Test core 1") && told.err.contains("hint: "), "{told:?}");
    // States that are not exact are no reason, but nothing is guessed then.
    let forgets = build_core(CoreDefect::Forgets);
    let demo = place.run(&["demo", "--core", &forgets.path_string(), "--headless", "--frames", "300"]);
    assert_eq!((demo.code, demo.row_value("states equal")), (Some(0), "yes"), "{demo:?}");
    assert!(demo.out.contains("lag 2, window 0"), "{demo:?}");
}

#[test]
fn check_result_is_cached_and_used_by_host() {
    let (place, late) = (TestDir::new("core-late"), build_core(CoreDefect::Late));
    let core = late.path_string();
    let host = ["host", "--core", &core, "--headless", "--udp", "127.0.0.1:0", "--frames", "1"];
    let checked = place.run(&["check", "--core", &core]);
    assert!(checked.code == Some(1) && checked.out.contains("from frame 5000 on"), "{checked:?}");
    let refused = place.run(&host);
    assert!(refused.code == Some(1) && refused.out.is_empty(), "{refused:?}");
    assert!(refused.err.contains("from frame 5000 on") && refused.err.contains("--again"), "{refused:?}");
    let again = place.run(&["check", "--core", &core]);
    assert!(again.err.starts_with("checked before") && again.out == checked.out, "{again:?}");
}
