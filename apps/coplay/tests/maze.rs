//! Mazes of real processes over real sockets, with ninjas for players.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::run::Run;
use common::{Outcome, Place, arg};

/// So long a maze is open: time for all to come, to play and to agree, also where the computer has much else to do.
const SECONDS: &str = "14";

fn host(place: &Place, more: &[&str]) -> Run {
    let all = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "off", "--name", "Ann"];
    Run::start(place, &[&all[..], more].concat())
}

fn join(place: &Place, ticket: &str, name: &str, more: &[&str]) -> Run {
    Run::start(place, &[&["maze", "join", ticket, "--headless", "--name", name], more].concat())
}

fn drift(place: &Place, traces: &[&Path]) -> Outcome {
    let traces: Vec<&str> = traces.iter().map(|path| arg(path)).collect();
    let outcome = place.run(&[&["maze", "drift", "--json"], &traces[..]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome
}

/// The first number of this name.
#[track_caller]
fn number(outcome: &Outcome, name: &str) -> f64 {
    let rest = outcome.out.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {outcome:?}")).1;
    rest[..rest.find([',', '}']).expect("something follows")].parse().expect("a number")
}

#[test]
fn three_sites_see_the_same_and_agree_on_the_score() {
    let place = Place::new("maze-three");
    let traces: [PathBuf; 3] = ["ann", "bob", "cid"].map(|name| place.at(name));
    let stats = place.at("ann.json");
    let how = |trace| ["--rate", "25", "--ninjas", "2", "--seconds", SECONDS, "--trace", arg(trace)];
    let mut ann = host(&place, &[&how(&traces[0])[..], &["--seed", "7", "--stats", arg(&stats)]].concat());
    let ticket = ann.ticket();
    let mut bob = join(&place, &ticket, "Bob", &how(&traces[1]));
    let bad = ["--impair", "loss=10,burst=4,seed=3"];
    let mut cid = join(&place, &ticket, "Cid", &[&how(&traces[2])[..], &bad].concat());
    for run in [&mut ann, &mut bob, &mut cid] {
        assert_eq!(run.code(), Some(0), "{run}");
        assert!(run.out().contains("\npeer ") && run.out().contains("\nplayed "), "{run}");
    }
    let without_loss = drift(&place, &[&traces[0], &traces[1]]);
    assert!(number(&without_loss, "mean") < 16.0 && number(&without_loss, "samples") > 100.0, "{without_loss:?}");
    let all = drift(&place, &traces.each_ref().map(PathBuf::as_path));
    assert!(number(&all, "under_50") > 0.8, "{all:?}");
    assert!(all.out.contains("\"scores_equal\":true"), "{all:?}");
    let stats = std::fs::read_to_string(&stats).unwrap();
    assert!(stats.contains("\"rtt_ms\":") && stats.contains("\"offset_ms\":"), "{stats}");
}

#[test]
#[cfg(unix)]
fn the_others_go_on_when_one_is_killed_or_interrupted() {
    let place = Place::new("maze-killed");
    let (killed, whole) = (place.at("bob"), place.at("eve"));
    let mut ann = host(&place, &["--seconds", "20", "--trace", arg(&place.at("ann"))]);
    let ticket = ann.ticket();
    let mut bob = join(&place, &ticket, "Bob", &["--trace", arg(&killed)]);
    let mut cid = join(&place, &ticket, "Cid", &["--seconds", "16"]);
    let mut eve = join(&place, &ticket, "Eve", &["--trace", arg(&whole)]);
    for name in ["Bob", "Cid", "Eve"] {
        ann.wait_for(&format!("{name} is here"));
    }
    cid.wait_for("Bob is here");
    std::thread::sleep(std::time::Duration::from_secs(5));
    bob.signal("-KILL");
    assert_eq!(bob.code(), None);
    eve.signal("-INT");
    assert_eq!(eve.code(), Some(0), "{eve}");
    ann.wait_for("Eve left");
    ann.wait_for("Bob is not heard any more");
    cid.wait_for("Bob is not heard any more");
    assert_eq!(cid.code(), Some(0), "{cid}");
    assert_eq!(ann.code(), Some(0), "{ann}");
    // What was written until then can be read, also a line that was cut off.
    assert!(number(&drift(&place, &[&place.at("ann"), &killed, &whole]), "samples") > 0.0);
}

#[test]
fn who_has_no_business_there_stays_outside() {
    let place = Place::new("maze-outside");
    let maze = host(&place, &["--secret", "tennis"]);
    let ticket = maze.ticket();
    join(&place, &ticket.replace("#tennis", "#squash"), "Eve", &[]).assert_fails(1, &["does not know our secret"]);
    Run::start(&place, &["join", &ticket, "--headless"]).assert_fails(1, &["coplay maze join"]);
    let game = Run::start(&place, &["host", "--headless", "--udp", "127.0.0.1:0"]);
    join(&place, &game.ticket(), "Eve", &[]).assert_fails(1, &["not a world", "`coplay join`"]);
    assert!(!maze.err().contains("is here"), "{maze}");
}

#[test]
fn what_cannot_be_is_told() {
    let place = Place::new("maze-wrong");
    let nowhere = place.at("no/such/place");
    host(&place, &["--trace", arg(&nowhere)]).assert_fails(1, &["cannot be written", "no such directory"]);
    host(&place, &["--stats", arg(&nowhere)]).assert_fails(1, &["cannot be written"]);
    host(&place, &["--rate", "30"]).assert_fails(2, &["whole ticks of 10 ms"]);
    host(&place, &["--delay", "15"]).assert_fails(2, &["whole ticks of 10 ms"]);
    host(&place, &["--bucket", "0"]).assert_fails(2, &["whole ticks of 10 ms"]);
    host(&place, &["--ninjas", "32"]).assert_fails(2, &["0..=31"]);
    let off = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "10.0.0.1:5000"];
    Run::start(&place, &off).assert_fails(1, &["no place for multicast"]);
    join(&place, "tennis", "Eve", &[]).assert_fails(2, &["this is no ticket"]);
}

#[test]
fn what_is_no_trace_is_told() {
    let place = Place::new("maze-trace");
    let (empty, other) = (place.file("empty", b""), place.file("other", b"frame,start\n1,2\n"));
    let one = place.file("one", b"coplay maze trace 1\nsite,5,00000001\n");
    let two = place.file("two", b"coplay maze trace 1\nsite,5,00000002\nsee");
    let fails = |paths: &[&Path], code, words| {
        let paths: Vec<&str> = paths.iter().map(|path| arg(path)).collect();
        Run::start(&place, &[&["maze", "drift"], &paths[..]].concat()).assert_fails(code, &[words]);
    };
    fails(&[&one, &empty], 1, "is empty");
    fails(&[&one, &other], 1, "is no trace of a maze");
    fails(&[&one, &place.at("none")], 1, "there is no such file");
    fails(&[&one], 2, "one trace says nothing");
    fails(&[&one, &one], 2, "of the same site");
    fails(&[&one, &two], 1, "never saw each other");
}
