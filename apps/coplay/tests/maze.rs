//! Mazes of real processes over real sockets, with ninjas for players.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::run::RunningProgram;
use common::{Outcome, TestDir, path_arg};

/// So long a maze is open: time for all to come, to play and to agree, also where the computer has much else to do.
const MAZE_SECONDS: &str = "14";

fn start_maze_host(place: &TestDir, more: &[&str]) -> RunningProgram {
    let all = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "off", "--name", "Ann"];
    RunningProgram::start(place, &[&all[..], more].concat())
}

fn start_maze_join(place: &TestDir, ticket: &str, name: &str, more: &[&str]) -> RunningProgram {
    RunningProgram::start(place, &[&["maze", "join", ticket, "--headless", "--name", name], more].concat())
}

fn run_drift(place: &TestDir, traces: &[&Path]) -> Outcome {
    let traces: Vec<&str> = traces.iter().map(|path| path_arg(path)).collect();
    let outcome = place.run(&[&["maze", "drift", "--json"], &traces[..]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome
}

/// The first number of this name.
#[track_caller]
fn json_number(outcome: &Outcome, name: &str) -> f64 {
    let rest = outcome.out.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {outcome:?}")).1;
    rest[..rest.find([',', '}']).expect("something follows")].parse().expect("a number")
}

#[test]
fn three_sites_have_low_drift_and_equal_scores() {
    let place = TestDir::new("maze-three");
    let traces: [PathBuf; 3] = ["ann", "bob", "cid"].map(|name| place.path_of(name));
    let stats = place.path_of("ann.json");
    let how = |trace| ["--rate", "25", "--ninjas", "2", "--seconds", MAZE_SECONDS, "--trace", path_arg(trace)];
    let mut ann =
        start_maze_host(&place, &[&how(&traces[0])[..], &["--seed", "7", "--stats", path_arg(&stats)]].concat());
    let ticket = ann.ticket();
    let mut bob = start_maze_join(&place, &ticket, "Bob", &how(&traces[1]));
    let bad = ["--impair", "loss=10,burst=4,seed=3"];
    let mut cid = start_maze_join(&place, &ticket, "Cid", &[&how(&traces[2])[..], &bad].concat());
    for run in [&mut ann, &mut bob, &mut cid] {
        assert_eq!(run.wait_for_exit(), Some(0), "{run}");
        assert!(run.out().contains("\npeer ") && run.out().contains("\nplayed "), "{run}");
    }
    let without_loss = run_drift(&place, &[&traces[0], &traces[1]]);
    assert!(
        json_number(&without_loss, "mean") < 16.0 && json_number(&without_loss, "samples") > 100.0,
        "{without_loss:?}"
    );
    let all = run_drift(&place, &traces.each_ref().map(PathBuf::as_path));
    assert!(json_number(&all, "under_50") > 0.8, "{all:?}");
    assert!(all.out.contains("\"scores_equal\":true"), "{all:?}");
    let stats = std::fs::read_to_string(&stats).unwrap();
    assert!(stats.contains("\"rtt_ms\":") && stats.contains("\"offset_ms\":"), "{stats}");
}

#[test]
#[cfg(unix)]
fn maze_continues_when_a_site_is_killed_or_leaves() {
    let place = TestDir::new("maze-killed");
    let (killed, whole) = (place.path_of("bob"), place.path_of("eve"));
    let mut ann = start_maze_host(&place, &["--seconds", "20", "--trace", path_arg(&place.path_of("ann"))]);
    let ticket = ann.ticket();
    let mut bob = start_maze_join(&place, &ticket, "Bob", &["--trace", path_arg(&killed)]);
    let mut cid = start_maze_join(&place, &ticket, "Cid", &["--seconds", "16"]);
    let mut eve = start_maze_join(&place, &ticket, "Eve", &["--trace", path_arg(&whole)]);
    for name in ["Bob", "Cid", "Eve"] {
        ann.wait_for_stderr(&format!("{name} is here"));
    }
    cid.wait_for_stderr("Bob is here");
    std::thread::sleep(std::time::Duration::from_secs(5));
    bob.send_signal("-KILL");
    assert_eq!(bob.wait_for_exit(), None);
    eve.send_signal("-INT");
    assert_eq!(eve.wait_for_exit(), Some(0), "{eve}");
    ann.wait_for_stderr("Eve left");
    ann.wait_for_stderr("Bob is not heard any more");
    cid.wait_for_stderr("Bob is not heard any more");
    assert_eq!(cid.wait_for_exit(), Some(0), "{cid}");
    assert_eq!(ann.wait_for_exit(), Some(0), "{ann}");
    // What was written until then can be read, also a line that was cut off.
    assert!(json_number(&run_drift(&place, &[&place.path_of("ann"), &killed, &whole]), "samples") > 0.0);
}

#[test]
fn maze_rejects_wrong_secret_and_wrong_kind() {
    let place = TestDir::new("maze-outside");
    let maze = start_maze_host(&place, &["--secret", "tennis"]);
    let ticket = maze.ticket();
    start_maze_join(&place, &ticket.replace("#tennis", "#squash"), "Eve", &[])
        .assert_fails(1, &["does not know our secret"]);
    RunningProgram::start(&place, &["join", &ticket, "--headless"]).assert_fails(1, &["coplay maze join"]);
    let game = RunningProgram::start(&place, &["host", "--headless", "--udp", "127.0.0.1:0"]);
    start_maze_join(&place, &game.ticket(), "Eve", &[]).assert_fails(1, &["not a world", "`coplay join`"]);
    assert!(!maze.err().contains("is here"), "{maze}");
}

#[test]
fn invalid_maze_arguments_are_explained() {
    let place = TestDir::new("maze-wrong");
    let nowhere = place.path_of("no/such/place");
    start_maze_host(&place, &["--trace", path_arg(&nowhere)])
        .assert_fails(1, &["cannot be written", "no such directory"]);
    start_maze_host(&place, &["--stats", path_arg(&nowhere)]).assert_fails(1, &["cannot be written"]);
    start_maze_host(&place, &["--rate", "30"]).assert_fails(2, &["whole ticks of 10 ms"]);
    start_maze_host(&place, &["--delay", "15"]).assert_fails(2, &["whole ticks of 10 ms"]);
    start_maze_host(&place, &["--bucket", "0"]).assert_fails(2, &["whole ticks of 10 ms"]);
    start_maze_host(&place, &["--ninjas", "32"]).assert_fails(2, &["0..=31"]);
    let off = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "10.0.0.1:5000"];
    RunningProgram::start(&place, &off).assert_fails(1, &["no place for multicast"]);
    start_maze_join(&place, "tennis", "Eve", &[]).assert_fails(2, &["this is no ticket"]);
}

#[test]
fn invalid_traces_are_explained() {
    let place = TestDir::new("maze-trace");
    let (empty, other) = (place.write_file("empty", b""), place.write_file("other", b"frame,start\n1,2\n"));
    let one = place.write_file("one", b"coplay maze trace 1\nsite,5,00000001\n");
    let two = place.write_file("two", b"coplay maze trace 1\nsite,5,00000002\nsee");
    let fails = |paths: &[&Path], wait_for_exit, words| {
        let paths: Vec<&str> = paths.iter().map(|path| path_arg(path)).collect();
        RunningProgram::start(&place, &[&["maze", "drift"], &paths[..]].concat()).assert_fails(wait_for_exit, &[words]);
    };
    fails(&[&one, &empty], 1, "is empty");
    fails(&[&one, &other], 1, "is no trace of a maze");
    fails(&[&one, &place.path_of("none")], 1, "there is no such file");
    fails(&[&one], 2, "one trace says nothing");
    fails(&[&one, &one], 2, "of the same site");
    fails(&[&one, &two], 1, "never saw each other");
}
