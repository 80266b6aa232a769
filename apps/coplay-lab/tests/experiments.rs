//! Experiments by name, result files, the preview of a link without `coplay`, and invalid arguments.

use std::path::Path;

use crate::common::{Outcome, TestDir, path_arg};

#[test]
fn experiment_writes_files_and_reports_claims() {
    let dir = TestDir::new("lab-run");
    let outcome = dir.run(&["run", "overrun", "--seed", "3", "--out", "found/here"]);
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
    let outcome = dir.run(&["report", "--out", "file/folder"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("cannot write") && lines[1].contains("--out"), "{outcome:?}");
}

#[test]
fn lab_list_names_all_experiments() {
    let dir = TestDir::new("lab-list");
    let outcome = dir.run(&["list"]);
    assert_eq!(outcome.code, Some(0));
    for experiment in coplay_lab::catalog::ALL {
        assert!(outcome.out.lines().any(|line| line.starts_with(experiment.name)), "{}: {outcome:?}", experiment.name);
    }
    assert!(outcome.out.lines().all(|line| line.chars().count() <= 100), "{}", outcome.out);
}

#[test]
fn lab_feel_recommends_delay_settings() {
    let dir = TestDir::new("lab-feel");
    let outcome = dir.run(&["feel", "--rtt", "120", "--jitter", "5", "--loss", "2"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("→ auto picks --delay 2 and --prediction"), "{outcome:?}");
}

#[track_caller]
fn assert_fails(outcome: &Outcome, code: i32, message: &str, hint: &str) {
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert_eq!((outcome.code, lines.len()), (Some(code), 2), "{outcome:?}");
    assert!(lines[0].starts_with("error: ") && lines[0].contains(message), "{message:?} not in {outcome:?}");
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{hint:?} not in {outcome:?}");
}

#[test]
fn usage_errors_are_explained() {
    let dir = TestDir::new("lab-misuse");
    for (args, message, hint) in [
        (&[][..], "missing subcommand", "`coplay-lab --help` lists all commands"),
        (&["reprot"], "there is no command \"reprot\"", "did you mean `coplay-lab report`?"),
        (&["run"], "missing NAME", "`coplay-lab run --help`"),
        (&["run", "pacing", "nothing"], "there is no experiment \"nothing\"", "pacing, players"),
        (&["run", "loss", "--real"], "loss runs in virtual time only", "--real"),
        (&["feel"], "missing --rtt MS", "--help"),
        (&["feel", "--rtt", "far"], "must be a number from 0 to 2000", "explains --rtt"),
        (&["drift"], "missing TRACE", "`coplay-lab drift --help`"),
    ] {
        assert_fails(&dir.run(args), 2, message, hint);
    }
}

#[test]
fn invalid_traces_are_explained() {
    let dir = TestDir::new("lab-trace");
    let (empty, other) = (dir.write_file("empty", b""), dir.write_file("other", b"frame,start\n1,2\n"));
    let one = dir.write_file("one", b"coplay maze trace 1\nsite,5,00000001\n");
    let two = dir.write_file("two", b"coplay maze trace 1\nsite,5,00000002\nsee");
    let assert_rejected = |paths: &[&Path], code, message| {
        let paths: Vec<&str> = paths.iter().map(|path| path_arg(path)).collect();
        assert_fails(&dir.run(&[&["drift"], &paths[..]].concat()), code, message, "give ");
    };
    assert_rejected(&[&one, &empty], 1, "is empty");
    assert_rejected(&[&one, &other], 1, "is not a trace of a maze");
    assert_rejected(&[&one, &dir.path_of("none")], 1, "there is no such file");
    assert_rejected(&[&one], 2, "one trace is not enough");
    assert_rejected(&[&one, &one], 2, "of the same site");
    assert_rejected(&[&one, &two], 1, "no site displayed an avatar of another site");
}
