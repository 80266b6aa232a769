//! `coplay lab`: experiments by name, result files, and the preview of a link.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of the module")]
mod common;

use common::run::{start_host, test_dir_with_game};
use common::{TestDir, path_arg};

#[test]
fn experiment_writes_files_and_reports_claims() {
    let dir = TestDir::new("lab-run");
    let outcome = dir.run(&["lab", "run", "overrun", "--seed", "3", "--out", "found/here"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("holds: ") && !outcome.out.contains("DOES NOT"), "{outcome:?}");
    assert!(outcome.err.contains("overrun (1 of 1)"), "{outcome:?}");
    let bytes = |name: &str| std::fs::read(dir.path_of("found/here").join(name)).expect("the file was written");
    assert!(
        bytes("overrun.csv").starts_with(b"variant,min_frames") && bytes("overrun-claims.csv").starts_with(b"claim,")
    );
    assert!(bytes("overrun.svg").starts_with(b"<svg") && bytes("overrun.png").starts_with(b"\x89PNG"));
}

#[test]
fn unwritable_output_folder_fails_before_running() {
    let dir = TestDir::new("lab-folder");
    dir.write_file("file", b"");
    let outcome = dir.run(&["lab", "report", "--out", "file/folder"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("cannot write") && lines[1].contains("--out"), "{outcome:?}");
}

#[test]
fn lab_list_names_all_experiments() {
    let dir = TestDir::new("lab-list");
    let outcome = dir.run(&["lab", "list"]);
    assert_eq!(outcome.code, Some(0));
    for experiment in coplay_lab::catalog::ALL {
        assert!(outcome.out.lines().any(|line| line.starts_with(experiment.name)), "{}: {outcome:?}", experiment.name);
    }
    assert!(outcome.out.lines().all(|line| line.chars().count() <= 100), "{}", outcome.out);
}

#[test]
fn lab_feel_recommends_delay_settings() {
    let dir = TestDir::new("lab-feel");
    let outcome = dir.run(&["lab", "feel", "--rtt", "120", "--jitter", "5", "--loss", "2"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("→ auto picks --delay 2 and --prediction"), "{outcome:?}");
}

/// The measurement must not take a seat in the game of the host.
#[test]
fn lab_feel_measures_the_link_to_a_real_host() {
    let (dir, game) = test_dir_with_game("lab-measure");
    let host = start_host(&dir, &game, &["--impair", "delay=40"]);
    let outcome = dir.run(&["lab", "feel", "--measure", &host.ticket(), "--game", path_arg(&game)]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}\n{host}");
    let rtt: f64 = outcome.row_value("link").parse().expect("a number");
    assert!((40.0..400.0).contains(&rtt), "{outcome:?}");
    assert!(outcome.out.contains("ms per step"), "{outcome:?}");
    assert!(!host.err().contains("seat 2"), "no player has joined: {host}");
}
