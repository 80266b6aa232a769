//! The program with libretro cores: checks, movies, options, and cores that cannot be hosted.
#![cfg(target_os = "linux")]

use crate::common::{Outcome, TestDir};
use coplay_testcores::{CoreDefect, build_core};

const TENNIS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../games/tennis.nes");

fn verdict(outcome: &Outcome) -> &str {
    let found = outcome.out.split("\"kind\": \"").nth(1).and_then(|rest| rest.split('"').next());
    found.unwrap_or_else(|| panic!("no verdict in {outcome:?}"))
}

#[test]
fn check_reports_rollback_lockstep_or_unfit() {
    let dir = TestDir::new("check");
    let own = dir.run(&["check", "--frames", "60", "--json"]);
    assert_eq!((own.code, own.err.as_str()), (Some(0), ""), "{own:?}");
    assert!(own.out.starts_with('{') && own.out.ends_with("}\n") && own.out.contains("\"key\""), "{own:?}");
    // On a busy computer rollbacks may take too long.
    assert!(["rollback", "lockstep"].contains(&verdict(&own)), "{own:?}");
    let clock = build_core(CoreDefect::Clock);
    let unfit = dir.run(&["check", "--core", &clock.path_string(), "--frames", "60"]);
    assert_eq!(unfit.code, Some(1), "{unfit:?}");
    assert!(unfit.out.contains("unfit") && unfit.out.contains("from frame 0 on"), "{unfit:?}");
    assert!(unfit.err.starts_with("error: ") && unfit.err.contains("hint: "), "{unfit:?}");
    let forgets = build_core(CoreDefect::Forgets);
    let inexact = dir.run(&["check", "--core", &forgets.path_string(), "--frames", "300", "--players", "1"]);
    assert!(inexact.code == Some(0) && inexact.out.contains("lockstep only"), "{inexact:?}");
    assert!(inexact.out.contains("1 pad,"), "{inexact:?}");
}

#[test]
fn crashing_core_is_reported_unfit() {
    let (dir, aborts) = (TestDir::new("aborts"), build_core(CoreDefect::Aborts));
    let outcome = dir.run(&["check", "--core", &aborts.path_string(), "--json"]);
    assert_eq!((outcome.code, verdict(&outcome)), (Some(1), "unfit"), "{outcome:?}");
    assert!(outcome.out.contains("signal") && outcome.err.contains("cannot be shared"), "{outcome:?}");
}

#[test]
fn movie_replays_on_the_same_core_only() {
    let dir = TestDir::new("core-movie");
    let record = ["--core", "nestopia", "--bot", "7", "--record", "game.cpm", "--headless", "--frames", "300"];
    let played = dir.run(&[&["play", TENNIS], &record[..]].concat());
    assert_eq!(played.code, Some(0), "{played:?}");
    let replayed = dir.run(&["replay", "game.cpm", TENNIS, "--core", "nestopia", "--headless"]);
    assert_eq!((replayed.code, replayed.row_value("state")), (Some(0), played.row_value("state")), "{replayed:?}");
    assert!(replayed.out.contains("all equal") && replayed.row_value("hashes") != "0", "{replayed:?}");
    // Another machine is rejected.
    let other = dir.run(&["replay", "game.cpm", TENNIS, "--headless"]);
    assert!(other.code == Some(1) && other.err.contains("recorded with another machine"), "{other:?}");
    let own = dir.run(&["play", "--headless", "--frames", "10", "--record", "own.cpm"]);
    let other = dir.run(&["replay", "own.cpm", TENNIS, "--core", "nestopia", "--headless"]);
    assert!(own.code == Some(0) && other.code == Some(1), "{own:?} {other:?}");
    assert!(other.err.contains("recorded with another machine"), "{other:?}");
}

#[test]
fn core_options_are_part_of_a_movie() {
    let (dir, honest) = (TestDir::new("core-options"), build_core(CoreDefect::Honest));
    let core = honest.path_string();
    let play = |step: &str, movie: &str| {
        let option = format!("testcore_step={step}");
        let played = ["--bot", "7", "--record", movie, "--headless", "--frames", "200"];
        dir.run(&[&["play", "--core", &core, "--option", &option], &played[..]].concat())
    };
    let (one, three) = (play("1", "one.cpm"), play("3", "three.cpm"));
    assert_eq!((one.code, three.code), (Some(0), Some(0)), "{one:?} {three:?}");
    assert_ne!(one.row_value("state"), three.row_value("state"));
    let replayed = dir.run(&["replay", "three.cpm", "--core", &core, "--headless"]);
    assert_eq!((replayed.code, replayed.row_value("state")), (Some(0), three.row_value("state")), "{replayed:?}");
    let wrong = dir.run(&["play", "--core", &core, "--option", "speed=3", "--headless"]);
    assert!(wrong.code == Some(1) && wrong.err.contains("no option \"speed\""), "{wrong:?}");
    assert!(wrong.err.contains("testcore_step"), "{wrong:?}");
}

#[test]
fn core_that_needs_a_game_is_explained() {
    let dir = TestDir::new("core-game");
    let outcome = dir.run(&["play", "--core", "mgba", "--headless"]);
    assert!(outcome.code == Some(1) && outcome.err.contains("the core needs a game"), "{outcome:?}");
    assert!(outcome.err.contains("hint: give the file of a game"), "{outcome:?}");
    let demo = dir.run(&["demo", "--core", "nestopia", "--headless", "--frames", "200"]);
    assert_eq!((demo.code, demo.row_value("states equal")), (Some(0), "yes"), "{demo:?}");
}

#[test]
fn unfit_core_cannot_be_hosted() {
    let (dir, clock) = (TestDir::new("core-unfit"), build_core(CoreDefect::Clock));
    let outcome = dir.run(&["host", "--core", &clock.path_string(), "--headless", "--udp", "127.0.0.1:0"]);
    assert!(outcome.code == Some(1) && outcome.out.is_empty(), "{outcome:?}");
    assert!(outcome.err.contains("cannot be shared on Test core 1") && outcome.err.contains("hint: "), "{outcome:?}");
    // A machine with inexact states can be shared, but without prediction.
    let forgets = build_core(CoreDefect::Forgets);
    let demo = dir.run(&["demo", "--core", &forgets.path_string(), "--headless", "--frames", "300"]);
    assert_eq!((demo.code, demo.row_value("states equal")), (Some(0), "yes"), "{demo:?}");
    assert_eq!((demo.row_value("delay"), demo.row_value("prediction")), ("2", "0"), "{demo:?}");
}

#[test]
fn check_result_is_cached_and_used_by_host() {
    let (dir, late) = (TestDir::new("core-late"), build_core(CoreDefect::Late));
    let core = late.path_string();
    let host = ["host", "--core", &core, "--headless", "--udp", "127.0.0.1:0", "--frames", "1"];
    let checked = dir.run(&["check", "--core", &core]);
    assert!(checked.code == Some(1) && checked.out.contains("from frame 5000 on"), "{checked:?}");
    let refused = dir.run(&host);
    assert!(refused.code == Some(1) && refused.out.is_empty(), "{refused:?}");
    assert!(refused.err.contains("from frame 5000 on") && refused.err.contains("--again"), "{refused:?}");
    let again = dir.run(&["check", "--core", &core]);
    assert!(again.err.starts_with("this report is from an earlier check") && again.out == checked.out, "{again:?}");
}
