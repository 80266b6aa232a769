//! Whole games of real processes over real sockets, with bots as players.

use std::path::PathBuf;

use crate::common::path_arg;
use crate::common::run::{
    RunningProgram, assert_confirmed_equal, assert_equal_before, interrupt_in_order, start_host, start_join,
    stat_value, test_dir_with_game, wait_for_frame, wait_for_more_frames,
};
#[cfg(target_os = "linux")]
use crate::hostile::HostileHost;

#[test]
fn two_sites_have_equal_states() {
    let (dir, game) = test_dir_with_game("net-two");
    let files = |name: &str| [dir.path_of(&format!("{name}.csv")), dir.path_of(&format!("{name}.json"))];
    let (ann, bob) = (files("ann"), files("bob"));
    let logs = |files: &[PathBuf; 2]| {
        ["--frames", "600", "--frame-log", path_arg(&files[0]), "--stats", path_arg(&files[1])].map(str::to_owned)
    };
    let (for_ann, for_bob) = (logs(&ann), logs(&bob));
    let mut host = start_host(&dir, &game, &for_ann.each_ref().map(String::as_str));
    let ticket = host.ticket();
    assert!(ticket.starts_with("udp://127.0.0.1:"), "{host}");
    host.wait_for_stderr(&format!("coplay join '{ticket}'"));
    // The joiner finds the game by its content.
    dir.write_file("config/coplay/settings.toml", format!("games = [{:?}]\n", dir.path_of("")).as_bytes());
    let args = ["join", &ticket, "--headless", "--bot", "2", "--name", "Bob"];
    let mut joiner = RunningProgram::start(&dir, &[&args[..], &for_bob.each_ref().map(String::as_str)].concat());
    host.assert_ends_well();
    joiner.assert_ends_well();
    assert_eq!(assert_equal_before(600, &ann[0], &bob[0]), 600);
    assert!(host.err().contains("Bob (seat 2"), "{host}");
    let stats = std::fs::read_to_string(&bob[1]).unwrap();
    assert!(stats.starts_with('{') && stats.contains("\"rtt_ms\":") && stats.contains("\"site\":0"), "{stats}");
}

#[test]
fn impaired_uplinks_keep_states_equal() {
    let (dir, game) = test_dir_with_game("net-impair");
    let (ann, bob) = (dir.path_of("ann.csv"), dir.path_of("bob.csv"));
    let (ann_stats, bob_stats) = (dir.path_of("ann.json"), dir.path_of("bob.json"));
    let host_flags = ["--frames", "360", "--frame-log", path_arg(&ann), "--stats", path_arg(&ann_stats)];
    let joiner_flags = ["--frames", "360", "--frame-log", path_arg(&bob), "--stats", path_arg(&bob_stats)];
    let mut host = start_host(&dir, &game, &[&host_flags[..], &["--impair", "delay=30,loss=10"]].concat());
    let ticket = host.ticket();
    let impaired = ["--impair", "delay=20,jitter=2,reorder,duplicate=5,seed=7"];
    let mut joiner = start_join(&dir, &ticket, &game, &[&joiner_flags[..], &impaired].concat());
    host.assert_ends_well();
    joiner.assert_ends_well();
    assert_eq!(assert_equal_before(360, &ann, &bob), 360);
    for stats in [&ann_stats, &bob_stats] {
        let rtt = stat_value(stats, "rtt_ms");
        assert!((50.0..500.0).contains(&rtt), "a round trip of {rtt} ms");
    }
    assert!(stat_value(&bob_stats, "loss") > 0.02, "packets of the host are lost");
}

#[test]
fn wrong_secret_is_refused() {
    let (dir, game) = test_dir_with_game("net-secret");
    let host = start_host(&dir, &game, &["--secret", "tennis"]);
    let ticket = host.ticket();
    let wrong = ticket.replace("#tennis", "#squash");
    start_join(&dir, &wrong, &game, &[]).assert_fails(1, &["rejected the secret of the ticket"]);
    assert!(!host.err().contains("seat 2"), "{host}");
}

#[test]
fn full_and_private_games_refuse_joiners_and_spectators() {
    let (dir, game) = test_dir_with_game("net-full");
    let host = start_host(&dir, &game, &["--private"]);
    let ticket = host.ticket();
    let _guest = start_join(&dir, &ticket, &game, &[]);
    host.wait_for_stderr("the game starts");
    start_join(&dir, &ticket, &game, &[]).assert_fails(1, &["the game is full", "coplay watch"]);
    RunningProgram::start(&dir, &["watch", &ticket, path_arg(&game), "--headless"])
        .assert_fails(1, &["does not admit spectators"]);
}

#[test]
fn joiner_with_another_game_is_refused_and_frees_its_seat() {
    let (dir, game) = test_dir_with_game("net-other");
    let mut image = coplay_testcores::images::nes();
    *image.last_mut().unwrap() ^= 1;
    let other = dir.write_file("other.nes", &image);
    let host = start_host(&dir, &game, &[]);
    let ticket = host.ticket();
    start_join(&dir, &ticket, &other, &[]).assert_fails(1, &["on this computer differs from the host's", "the game"]);
    // Without a file, this computer does not have the game.
    let mut joiner = RunningProgram::start(&dir, &["join", &ticket, "--headless"]);
    joiner.assert_fails(1, &["cannot find the game of the host", "SHA-256", "does not send games"]);
    let _guest = start_join(&dir, &ticket, &game, &[]);
    host.wait_for_stderr("the game starts");
}

#[test]
fn invalid_host_and_join_arguments_are_explained() {
    let (dir, game) = test_dir_with_game("net-wrong");
    let first = start_host(&dir, &game, &[]);
    let ticket = first.ticket();
    let port = ticket.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once('#')).unwrap().0.to_owned();
    let in_use = ["host", path_arg(&game), "--headless", "--udp", &format!("127.0.0.1:{port}")];
    RunningProgram::start(&dir, &in_use).assert_fails(1, &["is used by another program"]);
    let foreign = ["host", path_arg(&game), "--headless", "--udp", "192.0.2.7:0"];
    RunningProgram::start(&dir, &foreign).assert_fails(1, &["is not an address of this computer"]);
    let unknown = ["join", "udp://no.such.host.invalid:7000#x", path_arg(&game), "--headless"];
    RunningProgram::start(&dir, &unknown).assert_fails(1, &["cannot resolve host no.such.host.invalid"]);
    for bad in ["tennis", "udp://127.0.0.1:7000", "udp://127.0.0.1#x"] {
        RunningProgram::start(&dir, &["join", bad, "--headless"]).assert_fails(2, &["invalid ticket"]);
    }
    let many = ["host", path_arg(&game), "--headless", "--players", "2", "--pads", "3"];
    RunningProgram::start(&dir, &many).assert_fails(2, &["--pads 3 is more than the total"]);
    RunningProgram::start(&dir, &["host", "--headless", "--drop-after", "soon"]).assert_fails(2, &["never"]);
    let alone = ["--go-on-alone", "--drop-after", "never"];
    for command in [&["host", "--headless"][..], &["join", "udp://127.0.0.1:7#x", "--headless"]] {
        RunningProgram::start(&dir, &[command, &alone].concat())
            .assert_fails(2, &["--go-on-alone has no effect", "seconds"]);
    }
}

#[test]
#[cfg(unix)]
fn killed_joiner_rejoins_its_seat() {
    let (dir, game) = test_dir_with_game("net-killed");
    let log = dir.path_of("ann.csv");
    let mut host = start_host(&dir, &game, &["--drop-after", "1", "--frame-log", path_arg(&log)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", "1"];
    let mut joiner = start_join(&dir, &ticket, &game, &args);
    wait_for_frame(&log, 60);
    joiner.send_signal("-KILL");
    assert_eq!(joiner.wait_for_exit(), None);
    host.wait_for_stderr("Bob was dropped");
    let again = dir.path_of("bob.csv");
    let mut joiner = start_join(&dir, &ticket, &game, &[&args[..], &["--frame-log", path_arg(&again)]].concat());
    host.wait_for_stderr("Bob joined");
    wait_for_more_frames(&again, 150);
    interrupt_in_order(&mut joiner, &mut host);
    assert!(joiner.err().contains("Bob (seat 2"), "{joiner}");
    let common = assert_confirmed_equal(&log, &again, 0);
    assert!(common > 60, "only {common} frames together");
}

#[test]
#[cfg(unix)]
fn spectator_sees_equal_states_and_interrupted_sites_leave_cleanly() {
    let (dir, game) = test_dir_with_game("net-watch");
    let (ann, eve) = (dir.path_of("ann.csv"), dir.path_of("eve.csv"));
    let mut host = start_host(&dir, &game, &["--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let mut joiner = start_join(&dir, &ticket, &game, &["--name", "Bob"]);
    host.wait_for_stderr("the game starts");
    let args = ["watch", &ticket, path_arg(&game), "--headless", "--frame-log", path_arg(&eve)];
    let mut watch = RunningProgram::start(&dir, &args);
    host.wait_for_stderr("1 watching");
    let mut to_the_end = RunningProgram::start(&dir, &args[..4]);
    host.wait_for_stderr("2 watching");
    wait_for_more_frames(&eve, 150);
    watch.send_signal("-INT");
    watch.assert_ends_well();
    joiner.send_signal("-INT");
    assert_eq!(joiner.wait_for_exit(), Some(0), "{joiner}");
    host.wait_for_stderr("Bob left");
    host.send_signal("-TERM");
    assert_eq!(host.wait_for_exit(), Some(0), "{host}");
    to_the_end.assert_ends_well();
    assert!(to_the_end.out().contains("the game is over"), "{to_the_end}");
    assert!(assert_confirmed_equal(&ann, &eve, 0) > 60);
}

#[test]
fn game_continues_when_the_host_leaves() {
    let (dir, game) = test_dir_with_game("net-three");
    let (bob, eve) = (dir.path_of("bob.csv"), dir.path_of("eve.csv"));
    let mut host = start_host(&dir, &game, &["--players", "3", "--frames", "200"]);
    let ticket = host.ticket();
    let joiner = |name, log| {
        start_join(&dir, &ticket, &game, &["--name", name, "--frames", "420", "--frame-log", path_arg(log)])
    };
    let (mut second, mut third) = (joiner("Bob", &bob), joiner("Eve", &eve));
    host.assert_ends_well();
    second.wait_for_stderr("Ann left");
    second.assert_ends_well();
    third.assert_ends_well();
    assert_eq!(assert_equal_before(420, &bob, &eve), 420);
}

#[test]
#[cfg(target_os = "linux")]
fn hostile_host_cannot_make_joiners_load_native_code() {
    let (dir, game) = test_dir_with_game("net-hostile");
    let core = coplay_testcores::build_core(coplay_testcores::CoreDefect::Honest);
    std::fs::copy(core.path(), dir.path_of("trap.so")).unwrap();
    std::fs::copy(core.path(), dir.path_of("trap_libretro.so")).unwrap();
    let mark = dir.path_of("mark");
    let run = |args: &[&str]| {
        let mut program = dir.program();
        program.env(coplay_testcores::LOAD_MARKER_ENV, &mark).env("LIBRETRO_DIRECTORY", dir.path_of(""));
        RunningProgram::start_command(program, args)
    };
    // The trap works: opening the core with --core leaves the mark.
    assert_eq!(run(&["play", "--core", "./trap.so", "--headless", "--frames", "1"]).wait_for_exit(), Some(0));
    std::fs::remove_file(&mark).expect("the library was loaded");
    let host = HostileHost::start();
    for name in ["./trap.so", "../trap.so", "C:\\trap.dll", "\\\\host\\share\\trap.dll", "", "()", "\u{1b}[2J"] {
        host.set_machine_name(name);
        for command in ["join", "watch"] {
            let mut joiner = run(&[command, host.ticket(), path_arg(&game), "--headless"]);
            let (code, err) = (joiner.wait_for_exit(), joiner.err());
            assert!(!mark.exists(), "{command} loaded a core because the host names its machine {name:?}: {joiner}");
            assert_eq!(code, Some(1), "{name:?}: {joiner}");
            assert!(err.contains("invalid machine name") && err.contains("\nhint: "), "{name:?}: {joiner}");
            assert!(!err.contains('\u{1b}'), "{name:?}: {joiner}");
        }
    }
    // A valid machine name is not used as a path, and finds only a core with that name.
    for name in ["Trapdoor Plus", "trap.so"] {
        host.set_machine_name(name);
        let mut joiner = run(&["join", host.ticket(), path_arg(&game), "--headless"]);
        joiner.assert_fails(1, &[name, "not installed here"]);
        assert!(!mark.exists(), "{joiner}");
    }
}
