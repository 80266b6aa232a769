//! The lab as a person has it: experiments by name, files, one page, and what a link feels like.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use common::run::{host, place};
use common::{Place, arg};

#[test]
fn an_experiment_leaves_its_files_and_says_what_holds() {
    let place = Place::new("lab-run");
    let outcome = place.run(&["lab", "run", "overrun", "--seed", "3", "--out", "found/here"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("holds: ") && !outcome.out.contains("DOES NOT"), "{outcome:?}");
    assert!(outcome.err.contains("overrun (1 of 1)"), "{outcome:?}");
    let bytes = |name: &str| std::fs::read(place.at("found/here").join(name)).expect("it is there");
    assert!(
        bytes("overrun.csv").starts_with(b"way,least_frames") && bytes("overrun-claims.csv").starts_with(b"claim,")
    );
    assert!(bytes("overrun.svg").starts_with(b"<svg") && bytes("overrun.png").starts_with(b"\x89PNG"));
}

#[test]
fn a_folder_that_cannot_be_is_told_before_the_work() {
    let place = Place::new("lab-folder");
    place.file("file", b"");
    let outcome = place.run(&["lab", "report", "--out", "file/folder"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("cannot be written") && lines[1].contains("--out"), "{outcome:?}");
}

#[test]
fn all_experiments_are_listed() {
    let place = Place::new("lab-list");
    let outcome = place.run(&["lab", "list"]);
    assert_eq!(outcome.code, Some(0));
    for experiment in coplay_lab::catalog::ALL {
        assert!(outcome.out.lines().any(|line| line.starts_with(experiment.name)), "{}: {outcome:?}", experiment.name);
    }
    assert!(outcome.out.lines().all(|line| line.chars().count() <= 100), "{}", outcome.out);
}

#[test]
fn a_link_is_felt() {
    let place = Place::new("lab-feel");
    let outcome = place.run(&["lab", "feel", "--rtt", "120", "--jitter", "5", "--loss", "2"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("→ auto picks lag 2 and window"), "{outcome:?}");
}

/// How far a real host is, is asked without it noticing anybody.
#[test]
fn a_link_can_be_that_to_somebody_real() {
    let (place, game) = place("lab-measure");
    let host = host(&place, &game, &["--impair", "delay=40"]);
    let outcome = place.run(&["lab", "feel", "--measure", &host.ticket(), "--game", arg(&game)]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}\n{host}");
    let rtt: f64 = outcome.row("link").parse().expect("a number");
    assert!((40.0..400.0).contains(&rtt), "{outcome:?}");
    assert!(outcome.out.contains("ms a step"), "{outcome:?}");
    assert!(!host.err().contains("here:") || !host.err().contains("seat 2"), "nobody has come: {host}");
}
