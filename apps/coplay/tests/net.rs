//! Whole games of real processes over real sockets, with bots for players.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;
#[cfg(target_os = "linux")]
#[allow(unreachable_pub, reason = "a module of a test")]
#[path = "common/hostile.rs"]
mod hostile;

use std::path::PathBuf;

use common::arg;
use common::run::{
    Run, assert_agree, assert_equal_before, end, host, join, number, place, wait_for_frame, wait_for_more,
};
#[cfg(target_os = "linux")]
use hostile::HostileHost;

#[test]
fn two_play_the_same_game() {
    let (place, game) = place("net-two");
    let files = |who: &str| [place.at(&format!("{who}.csv")), place.at(&format!("{who}.json"))];
    let (ann, bob) = (files("ann"), files("bob"));
    let logs = |files: &[PathBuf; 2]| {
        ["--frames", "600", "--frame-log", arg(&files[0]), "--stats", arg(&files[1])].map(str::to_owned)
    };
    let (for_ann, for_bob) = (logs(&ann), logs(&bob));
    let mut host = host(&place, &game, &for_ann.each_ref().map(String::as_str));
    let ticket = host.ticket();
    assert!(ticket.starts_with("udp://127.0.0.1:"), "{host}");
    host.wait_for(&format!("coplay join '{ticket}'"));
    // The guest finds the game by what is in it.
    place.file("config/coplay/settings.toml", format!("games = [{:?}]\n", place.at("")).as_bytes());
    let args = ["join", &ticket, "--headless", "--bot", "2", "--name", "Bob"];
    let mut guest = Run::start(&place, &[&args[..], &for_bob.each_ref().map(String::as_str)].concat());
    host.assert_ends_well();
    guest.assert_ends_well();
    assert_eq!(assert_equal_before(600, &ann[0], &bob[0]), 600);
    assert!(host.err().contains("Bob (seat 2"), "{host}");
    let stats = std::fs::read_to_string(&bob[1]).unwrap();
    assert!(stats.starts_with('{') && stats.contains("\"rtt_ms\":") && stats.contains("\"site\":0"), "{stats}");
}

#[test]
fn a_way_out_can_be_made_worse() {
    let (place, game) = place("net-impair");
    let (ann, bob) = (place.at("ann.csv"), place.at("bob.csv"));
    let (annas, bobs) = (place.at("ann.json"), place.at("bob.json"));
    let ours = ["--frames", "360", "--frame-log", arg(&ann), "--stats", arg(&annas)];
    let theirs = ["--frames", "360", "--frame-log", arg(&bob), "--stats", arg(&bobs)];
    let mut host = host(&place, &game, &[&ours[..], &["--impair", "delay=30,loss=10"]].concat());
    let ticket = host.ticket();
    let how = ["--impair", "delay=20,jitter=2,reorder,duplicate=5,seed=7"];
    let mut guest = join(&place, &ticket, &game, &[&theirs[..], &how].concat());
    host.assert_ends_well();
    guest.assert_ends_well();
    assert_eq!(assert_equal_before(360, &ann, &bob), 360);
    for numbers in [&annas, &bobs] {
        let rtt = number(numbers, "rtt_ms");
        assert!((50.0..500.0).contains(&rtt), "a round trip of {rtt} ms");
    }
    assert!(number(&bobs, "loss") > 0.02, "the host's packets get lost");
}

#[test]
fn who_does_not_know_the_secret_stays_outside() {
    let (place, game) = place("net-secret");
    let host = host(&place, &game, &["--secret", "tennis"]);
    let ticket = host.ticket();
    let wrong = ticket.replace("#tennis", "#squash");
    join(&place, &wrong, &game, &[]).assert_fails(1, &["does not know our secret"]);
    assert!(!host.err().contains("seat 2"), "{host}");
}

#[test]
fn a_full_game_and_a_private_one_say_so() {
    let (place, game) = place("net-full");
    let host = host(&place, &game, &["--private"]);
    let ticket = host.ticket();
    let _guest = join(&place, &ticket, &game, &[]);
    host.wait_for("the game starts");
    join(&place, &ticket, &game, &[]).assert_fails(1, &["the game is full", "coplay watch"]);
    Run::start(&place, &["watch", &ticket, arg(&game), "--headless"]).assert_fails(1, &["nobody may watch"]);
}

#[test]
fn another_game_is_told_and_gives_the_seat_back() {
    let (place, game) = place("net-other");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().unwrap() ^= 1;
    let other = place.file("other.nes", &image);
    let host = host(&place, &game, &[]);
    let ticket = host.ticket();
    join(&place, &ticket, &other, &[]).assert_fails(1, &["the host plays something else", "the game"]);
    // Without a file of its own it has nothing that fits.
    let mut guest = Run::start(&place, &["join", &ticket, "--headless"]);
    guest.assert_fails(1, &["is not here", "SHA-256", "never sent"]);
    let _guest = join(&place, &ticket, &game, &[]);
    host.wait_for("the game starts");
}

#[test]
fn what_cannot_be_is_told() {
    let (place, game) = place("net-wrong");
    let first = host(&place, &game, &[]);
    let ticket = first.ticket();
    let port = ticket.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once('#')).unwrap().0.to_owned();
    let taken = ["host", arg(&game), "--headless", "--udp", &format!("127.0.0.1:{port}")];
    Run::start(&place, &taken).assert_fails(1, &["is taken by another program"]);
    let elsewhere = ["host", arg(&game), "--headless", "--udp", "192.0.2.7:0"];
    Run::start(&place, &elsewhere).assert_fails(1, &["is no address of this computer"]);
    let nobody = ["join", "udp://no.such.host.invalid:7000#x", arg(&game), "--headless"];
    Run::start(&place, &nobody).assert_fails(1, &["there is no computer called"]);
    for bad in ["tennis", "udp://127.0.0.1:7000", "udp://127.0.0.1#x"] {
        Run::start(&place, &["join", bad, "--headless"]).assert_fails(2, &["this is no ticket"]);
    }
    let many = ["host", arg(&game), "--headless", "--players", "2", "--pads", "3"];
    Run::start(&place, &many).assert_fails(2, &["3 cannot play here"]);
    Run::start(&place, &["host", "--headless", "--drop-after", "soon"]).assert_fails(2, &["never"]);
    let alone = ["--go-on-alone", "--drop-after", "never"];
    for command in [&["host", "--headless"][..], &["join", "udp://127.0.0.1:7#x", "--headless"]] {
        Run::start(&place, &[command, &alone].concat()).assert_fails(2, &["--go-on-alone does nothing", "seconds"]);
    }
}

#[test]
#[cfg(unix)]
fn who_was_killed_is_back_in_its_seat() {
    let (place, game) = place("net-killed");
    let log = place.at("ann.csv");
    let mut host = host(&place, &game, &["--drop-after", "1", "--frame-log", arg(&log)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", "1"];
    let mut guest = join(&place, &ticket, &game, &args);
    wait_for_frame(&log, 60);
    guest.signal("-KILL");
    assert_eq!(guest.code(), None);
    host.wait_for("Bob is lost");
    let again = place.at("bob.csv");
    let mut guest = join(&place, &ticket, &game, &[&args[..], &["--frame-log", arg(&again)]].concat());
    host.wait_for("Bob plays");
    wait_for_more(&again, 150);
    end(&mut guest, &mut host);
    assert!(guest.err().contains("Bob (seat 2"), "{guest}");
    let common = assert_agree(&log, &again, 0);
    assert!(common > 60, "only {common} frames together");
}

#[test]
#[cfg(unix)]
fn who_watches_sees_the_same_and_who_is_interrupted_leaves_properly() {
    let (place, game) = place("net-watch");
    let (ann, eve) = (place.at("ann.csv"), place.at("eve.csv"));
    let mut host = host(&place, &game, &["--frame-log", arg(&ann)]);
    let ticket = host.ticket();
    let mut guest = join(&place, &ticket, &game, &["--name", "Bob"]);
    host.wait_for("the game starts");
    let args = ["watch", &ticket, arg(&game), "--headless", "--frame-log", arg(&eve)];
    let mut watch = Run::start(&place, &args);
    host.wait_for("1 watching");
    let mut to_the_end = Run::start(&place, &args[..4]);
    host.wait_for("2 watching");
    wait_for_more(&eve, 150);
    watch.signal("-INT");
    watch.assert_ends_well();
    guest.signal("-INT");
    assert_eq!(guest.code(), Some(0), "{guest}");
    host.wait_for("Bob left");
    host.signal("-TERM");
    assert_eq!(host.code(), Some(0), "{host}");
    to_the_end.assert_ends_well();
    assert!(to_the_end.out().contains("the game is over"), "{to_the_end}");
    assert!(assert_agree(&ann, &eve, 0) > 60);
}

#[test]
fn the_others_go_on_when_the_host_leaves() {
    let (place, game) = place("net-three");
    let (bob, eve) = (place.at("bob.csv"), place.at("eve.csv"));
    let mut host = host(&place, &game, &["--players", "3", "--frames", "200"]);
    let ticket = host.ticket();
    let guest = |name, log| join(&place, &ticket, &game, &["--name", name, "--frames", "420", "--frame-log", arg(log)]);
    let (mut second, mut third) = (guest("Bob", &bob), guest("Eve", &eve));
    host.assert_ends_well();
    second.wait_for("Ann left");
    second.assert_ends_well();
    third.assert_ends_well();
    assert_eq!(assert_equal_before(420, &bob, &eve), 420);
}

#[test]
#[cfg(target_os = "linux")]
fn a_host_cannot_make_guests_load_native_code() {
    let (place, game) = place("net-hostile");
    let core = coplay_testcores::build_core(coplay_testcores::CoreDefect::Honest);
    std::fs::copy(core.path(), place.at("trap.so")).unwrap();
    std::fs::copy(core.path(), place.at("trap_libretro.so")).unwrap();
    let mark = place.at("mark");
    let run = |args: &[&str]| {
        let mut program = place.program();
        program.env(coplay_testcores::LOAD_MARKER_ENV, &mark).env("LIBRETRO_DIRECTORY", place.at(""));
        Run::start_as(program, args)
    };
    // The trap works: whoever opens the core on their own account leaves a mark.
    assert_eq!(run(&["play", "--core", "./trap.so", "--headless", "--frames", "1"]).code(), Some(0));
    std::fs::remove_file(&mark).expect("the library was loaded");
    let host = HostileHost::start();
    for name in ["./trap.so", "../trap.so", "C:\\trap.dll", "\\\\host\\share\\trap.dll", "", "()", "\u{1b}[2J"] {
        host.set_machine(name);
        for command in ["join", "watch"] {
            let mut guest = run(&[command, host.ticket(), arg(&game), "--headless"]);
            let (code, err) = (guest.code(), guest.err());
            assert!(!mark.exists(), "{command} loaded a core because the host names its machine {name:?}: {guest}");
            assert_eq!(code, Some(1), "{name:?}: {guest}");
            assert!(err.contains("invalid machine name") && err.contains("\nhint: "), "{name:?}: {guest}");
            assert!(!err.contains('\u{1b}'), "{name:?}: {guest}");
        }
    }
    // A name that a machine can have is no path either, and finds only a core that is called so.
    for name in ["Trapdoor Plus", "trap.so"] {
        host.set_machine(name);
        let mut guest = run(&["join", host.ticket(), arg(&game), "--headless"]);
        guest.assert_fails(1, &[name, "not installed here"]);
        assert!(!mark.exists(), "{guest}");
    }
}
