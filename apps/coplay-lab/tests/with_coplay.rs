//! Commands that need the program `coplay`: measurements of links and machines, traces of real mazes, and the commands
//! of `coplay` that lead here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::run::{RunningProgram, test_dir_with_game};
use crate::common::{Outcome, TestDir, path_arg};

/// Returns the program `coplay` next to the program under test. Builds it if it is missing: only a test run of the
/// whole workspace has built it.
fn coplay() -> PathBuf {
    let path = Path::new(crate::PROGRAM).with_file_name(format!("coplay{}", std::env::consts::EXE_SUFFIX));
    if !path.is_file() {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = ["build", "--quiet", "--package", "coplay-app", "--bin", "coplay", "--profile", profile];
        assert!(Command::new(env!("CARGO")).args(build).status().expect("cargo starts").success());
    }
    path
}

fn coplay_command(dir: &TestDir) -> Command {
    let mut command = Command::new(coplay());
    dir.isolate(&mut command);
    command
}

fn start_coplay(dir: &TestDir, args: &[&str]) -> RunningProgram {
    RunningProgram::start_command(coplay_command(dir), args)
}

fn run_coplay(dir: &TestDir, args: &[&str]) -> Outcome {
    Outcome::from(coplay_command(dir).args(args).output().expect("the program starts"))
}

/// The measurement must not take a seat in the game of the host.
#[test]
fn feel_measures_the_link_to_a_real_host() {
    let (dir, game) = test_dir_with_game("lab-measure");
    let host = ["host", path_arg(&game), "--headless", "--udp", "127.0.0.1:0", "--bot", "1", "--impair", "delay=40"];
    let host = start_coplay(&dir, &host);
    let outcome = dir.run(&["feel", "--measure", &host.ticket(), "--game", path_arg(&game)]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}\n{host}");
    let rtt: f64 = outcome.row_value("link").parse().expect("a number");
    assert!((40.0..400.0).contains(&rtt), "{outcome:?}");
    assert!(outcome.out.contains("ms per step"), "{outcome:?}");
    assert!(!host.err().contains("seat 2"), "no player has joined: {host}");
}

/// An error of `coplay` is printed once, and its exit code is passed on.
#[test]
fn errors_of_coplay_are_printed_once() {
    let dir = TestDir::new("lab-passed-on");
    coplay();
    for (args, code, part) in [
        (&["feel", "--measure", "nobody"][..], 2, "error: invalid ticket"),
        (&["feel", "--rtt", "9", "--game", "nowhere.nes"], 1, "error: cannot read the game "),
        (&["feel", "--rtt", "9", "--core", "nosuch"], 1, "error: there is no libretro core named \"nosuch\""),
    ] {
        let outcome = dir.run(args);
        let lines: Vec<&str> = outcome.err.lines().collect();
        assert_eq!((outcome.code, lines.len()), (Some(code), 2), "{args:?}: {outcome:?}");
        assert!(lines[0].starts_with(part) && lines[1].starts_with("hint: "), "{args:?}: {outcome:?}");
    }
}

/// `coplay maze drift` and `coplay lab drift` are `coplay-lab drift`.
#[test]
fn drift_of_a_real_maze_is_measured() {
    let dir = TestDir::new("lab-drift");
    let traces = ["ann", "bob"].map(|name| dir.path_of(name));
    let site = |trace| ["--headless", "--ninjas", "2", "--seconds", "10", "--trace", path_arg(trace)];
    let host = ["maze", "host", "--udp", "127.0.0.1:0", "--multicast", "off"];
    let mut host = start_coplay(&dir, &[&host[..], &site(&traces[0])].concat());
    let ticket = host.ticket();
    let mut joiner = start_coplay(&dir, &[&["maze", "join", &ticket][..], &site(&traces[1])].concat());
    assert_eq!((host.wait_for_exit(), joiner.wait_for_exit()), (Some(0), Some(0)), "{host}\n{joiner}");
    let args = ["drift", "--json", path_arg(&traces[0]), path_arg(&traces[1])];
    let measured = dir.run(&args);
    assert_eq!(measured.code, Some(0), "{measured:?}");
    assert!(
        measured.out.starts_with("{\"drift\":{\"samples\":") && measured.out.contains("\"under_50\":"),
        "{measured:?}"
    );
    for command in ["maze", "lab"] {
        let outcome = run_coplay(&dir, &[&[command], &args[..]].concat());
        assert_eq!((outcome.code, &outcome.out), (Some(0), &measured.out), "{command}: {outcome:?}");
    }
    let wrong = run_coplay(&dir, &["lab", "reprot"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("did you mean `coplay-lab report`?"), "{wrong:?}");
}
