//! `coplay play`, `replay`, `demo` and `maze` without a screen.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::TestDir;

#[test]
fn bot_seed_determines_the_final_state() {
    let dir = TestDir::new("seed");
    let play =
        |seed: &str| dir.run(&["play", "--headless", "--frames", "400", "--bot", seed]).row_value("state").to_owned();
    assert_eq!(play("1"), play("1"));
    assert_ne!(play("1"), play("2"));
}

#[test]
fn recorded_movie_replays_to_the_same_state() {
    let dir = TestDir::new("movie");
    let played = dir.run(&["play", "--headless", "--frames", "500", "--bot", "7", "--record", "game.cpm"]);
    assert_eq!(played.code, Some(0), "{played:?}");
    let replayed = dir.run(&["replay", "game.cpm", "--headless"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert_eq!((replayed.row_value("frames"), replayed.row_value("hashes")), ("500", "9"));
    assert_eq!(replayed.row_value("state"), played.row_value("state"));
    assert!(replayed.out.contains("all equal"));
}

#[test]
fn headless_maze_is_deterministic_and_reports_scores() {
    let dir = TestDir::new("maze");
    let play = |seconds: &str| {
        let args = ["maze", "play", "--headless", "--seconds", seconds, "--ninjas", "4", "--side", "5", "--seed", "7"];
        dir.run(&args)
    };
    let short = play("3");
    assert_eq!(short.code, Some(0), "{short:?}");
    assert_eq!((short.row_value("maze"), short.row_value("played")), ("7", "3.0"));
    assert_eq!(short.out.matches("ninja").count(), 4, "{short:?}");
    let long = play("120");
    assert_ne!(long.row_value("score"), "0", "there are hits in two minutes: {long:?}");
    assert_eq!(long.out, play("120").out, "the same seed gives the same game");
}

#[test]
fn headless_demo_ends_with_equal_states() {
    let dir = TestDir::new("demo");
    let shown = dir.run(&["demo", "--headless", "--frames", "300"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!((shown.row_value("states equal"), shown.row_value("packets").is_empty()), ("yes", false));
    // With neither a display nor a terminal, the demo runs headless by itself.
    let by_default = dir.run(&["demo", "--frames", "300"]);
    let without_speed = |text: &str| text.lines().filter(|line| !line.starts_with("speed")).collect::<String>();
    assert_eq!(without_speed(&by_default.out), without_speed(&shown.out), "virtual time is deterministic");
}

/// Starts a long recording, sends it a signal once the file has 600 bytes, and waits for its end.
#[cfg(unix)]
fn signal_during_recording(dir: &TestDir, signal: &str) {
    let mut child = dir
        .program()
        .args(["play", "--headless", "--frames", "4000000000", "--bot", "1", "--record", "game.cpm", "--force"])
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(dir.path_of("game.cpm")).map_or(0, |found| found.len()) < 600 {
        assert!(Instant::now() < deadline, "nothing was recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait().unwrap();
}

#[test]
#[cfg(unix)]
fn killed_recording_replays_up_to_its_last_block() {
    let dir = TestDir::new("killed");
    signal_during_recording(&dir, "-KILL");
    let replayed = dir.run(&["replay", "game.cpm", "--headless"]);
    assert_eq!(replayed.code, Some(1), "{replayed:?}");
    assert!(
        replayed.row_value("frames").parse::<u32>().unwrap() >= 60 && replayed.out.contains("all equal"),
        "{replayed:?}"
    );
    assert!(replayed.err.contains("the movie ends early, before frame"), "{replayed:?}");
}

#[test]
#[cfg(unix)]
fn interrupted_recording_is_complete() {
    let dir = TestDir::new("interrupted");
    for signal in ["-INT", "-TERM"] {
        signal_during_recording(&dir, signal);
        let replayed = dir.run(&["replay", "game.cpm", "--headless"]);
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
        assert!(replayed.out.contains("all equal"), "{replayed:?}");
    }
}
