//! Play, record and replay without anything to see.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::Place;

#[test]
fn a_seed_always_plays_the_same_and_another_does_not() {
    let place = Place::new("seed");
    let play =
        |seed: &str| place.run(&["play", "--headless", "--frames", "400", "--bot", seed]).row("state").to_owned();
    assert_eq!(play("1"), play("1"));
    assert_ne!(play("1"), play("2"));
}

#[test]
fn a_movie_plays_again_as_it_was() {
    let place = Place::new("movie");
    let played = place.run(&["play", "--headless", "--frames", "500", "--bot", "7", "--record", "game.cpm"]);
    assert_eq!(played.code, Some(0), "{played:?}");
    let replayed = place.run(&["replay", "game.cpm", "--headless"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert_eq!((replayed.row("frames"), replayed.row("hashes")), ("500", "9"));
    assert_eq!(replayed.row("state"), played.row("state"));
    assert!(replayed.out.contains("all equal"));
}

#[test]
fn ninjas_play_in_a_maze_and_the_score_is_told() {
    let place = Place::new("maze");
    let play = |seconds: &str| {
        let args = ["maze", "play", "--headless", "--seconds", seconds, "--ninjas", "4", "--side", "5", "--seed", "7"];
        place.run(&args)
    };
    let short = play("3");
    assert_eq!(short.code, Some(0), "{short:?}");
    assert_eq!((short.row("maze"), short.row("played")), ("7", "3.0"));
    assert_eq!(short.out.matches("ninja").count(), 4, "{short:?}");
    let long = play("120");
    assert_ne!(long.row("score"), "0", "somebody hits somebody in two minutes: {long:?}");
    assert_eq!(long.out, play("120").out, "a seed always plays the same");
}

#[test]
fn the_demonstration_ends_with_equal_states() {
    let place = Place::new("demo");
    let shown = place.run(&["demo", "--headless", "--frames", "300"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!((shown.row("states equal"), shown.row("packets").is_empty()), ("yes", false));
    // Without a display and a terminal it does the same by itself.
    let by_itself = place.run(&["demo", "--frames", "300"]);
    let without_speed = |text: &str| text.lines().filter(|line| !line.starts_with("speed")).collect::<String>();
    assert_eq!(without_speed(&by_itself.out), without_speed(&shown.out), "virtual time always passes the same");
}

/// Starts a long recording, and sends it a signal once something is on disk.
#[cfg(unix)]
fn interrupted(place: &Place, signal: &str) {
    let mut child = place
        .program()
        .args(["play", "--headless", "--frames", "4000000000", "--bot", "1", "--record", "game.cpm", "--force"])
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(place.at("game.cpm")).map_or(0, |found| found.len()) < 600 {
        assert!(Instant::now() < patience, "nothing was recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    child.wait().unwrap();
}

#[test]
#[cfg(unix)]
fn a_recording_that_is_killed_is_good_up_to_its_last_block() {
    let place = Place::new("killed");
    interrupted(&place, "-KILL");
    let replayed = place.run(&["replay", "game.cpm", "--headless"]);
    assert_eq!(replayed.code, Some(1), "{replayed:?}");
    assert!(replayed.row("frames").parse::<u32>().unwrap() >= 60 && replayed.out.contains("all equal"), "{replayed:?}");
    assert!(replayed.err.contains("breaks off before frame"), "{replayed:?}");
}

#[test]
#[cfg(unix)]
fn a_recording_that_is_interrupted_is_whole() {
    let place = Place::new("interrupted");
    for signal in ["-INT", "-TERM"] {
        interrupted(&place, signal);
        let replayed = place.run(&["replay", "game.cpm", "--headless"]);
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
        assert!(replayed.out.contains("all equal"), "{replayed:?}");
    }
}
